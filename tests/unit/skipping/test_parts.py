"""Stores that are larger than what is kept open: written as rows come, judged and refreshed part by part."""

from __future__ import annotations

import base64
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.errors import BridgeError, ConfigError, FormatError, KeyAccessDeniedError, VerificationError
from sparkcrypt.files.parquet import DataKey
from sparkcrypt.keys.opened import OpenedKeyService
from sparkcrypt.policy import Policy
from sparkcrypt.skipping.format.store import NO_KEY, Bounds, rows_of
from sparkcrypt.skipping.format.values import Budget
from sparkcrypt.skipping.indexes.build import refresh_store
from sparkcrypt.skipping.query.skip_files import OpenedStores, judge_part, skip_files
from sparkcrypt.skipping.trusted import trust, write
from sparkcrypt.skipping.trusted.folder import LocalFolder
from sparkcrypt.skipping.trusted.sidecar import SIDECAR, PartSize, Sidecar, StoreIdentity, open_sidecar, seal_sidecar
from sparkcrypt.skipping.trusted.trust import Expected, open_parts
from sparkcrypt.skipping.trusted.write import open_writer
from tests.unit.skipping.keys import Keys
from tests.unit.skipping.requests import policy, request
from tests.unit.skipping.tables import UUID, Table
from tests.unit.skipping.whole_stores import open_store

FILES = 7
PREDICATES: tuple[Any, ...] = (
    ["=", "id", 15],
    ["=", "ssn", "025-secret"],
    ["or", [["=", "id", 15], ["=", "ssn", "063-none"]]],
    ["and", [[">", "id", 12], ["not", ["in", "id", [20, 40]]], ["<", "ssn", "05"]]],
    ["null", "id"],
    ["=", "id", -1],
    ["unknown"],
)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Seven encrypted files with a store of four parts where the policy says: three of two objects, and one of one."""
    keys = Keys(tmp_path / "keys")
    monkeypatch.setattr(write, "ROWS_PER_FILE", 2)
    made = StoredTable(tmp_path, keys, keys)
    for number in range(FILES):
        made.write(f"{number}.parquet", number * 10, number * 10 + 5, uuid=UUID, key="pii")
    made.create("id", "ssn")
    return made


class StoredTable(Table):
    """A table whose store is where its policy says."""

    @property
    def folder(self) -> LocalFolder:
        """The store's folder."""
        return LocalFolder(self.root / "indexes" / UUID)

    @property
    def sidecar(self) -> Sidecar:
        """The store's sidecar."""
        return open_sidecar((self.folder.path / SIDECAR).read_bytes(), self.keys, ("footer",).__contains__)

    def seal(self, sidecar: Sidecar) -> None:
        """Put a sidecar in place of the store's, as a holder of the footer's key could."""
        key = DataKey(*self.keys.keys.maker.make("footer", is_footer_key=True))
        (self.folder.path / SIDECAR).write_bytes(seal_sidecar(sidecar, key))


def service_of(policy: Policy) -> OpenedKeyService:
    """Return a policy's key service."""
    return OpenedKeyService(policy.key_service)


def request_of(table: Table, predicate: Any, *chosen: int) -> dict[str, Any]:
    """Return the request of a query that reads column ``id`` of the files with these numbers, or of all."""
    whole = request(table, predicate, read=["id"])
    return {**whole, "files": [whole["files"][number] for number in chosen or range(FILES)]}


def judge(table: Table, asked: Mapping[str, Any], service: OpenedKeyService | None = None) -> dict[str, Any]:
    """Answer as the jar does: by the driver's helper, which keeps no store open, and by a helper for each part."""
    service = service or service_of(policy(table))
    answer = skip_files(asked, service, OpenedStores(most_bytes=1))
    sent = {name: value for name, value in asked.items() if name not in ("folders", "files", "read")}
    found: dict[int, str] = {}
    for part in answer["parts"]:
        judged = judge_part({**sent, "part": part["part"]}, service)
        answer["unused"] |= judged["unused"]
        for index, bitmap in judged["rows"].items():
            bits = int.from_bytes(base64.b64decode(bitmap), "little")
            found |= {part["first"] + row: index for row in range(bits.bit_length()) if bits >> row & 1}
    answer["skipped"] = [number for number, row in enumerate(answer["rows"]) if row in found]
    answer["by"] = dict(Counter(found[answer["rows"][number]] for number in answer["skipped"]))
    return answer


@pytest.mark.parametrize("predicate", PREDICATES)
def test_parts_say_what_the_whole_store_says(table: Table, predicate: Any) -> None:
    """The same files are left out, by the same indexes, whether the store is kept open or judged part by part."""
    asked = request_of(table, predicate)
    whole = skip_files(asked, service_of(policy(table)), OpenedStores())
    parts = judge(table, asked)
    assert [part["first"] for part in parts["parts"]] == [0, 2, 4, 6]
    assert whole["parts"] == []
    for name in ("skipped", "by", "unused", "generation", "store", "why"):
        assert parts[name] == whole[name], name


def test_only_parts_of_listed_files_are_asked(table: Table) -> None:
    """Files of pruned partitions, files that are new or were changed, and those without a row cost no part."""
    asked = request_of(table, ["=", "id", 15], 4, 1)
    answer = judge(table, asked)
    assert (answer["rows"], [part["first"] for part in answer["parts"]]) == ([4, 1], [0, 4])
    assert answer["skipped"] == [0]
    for place, other in ((1, "8.parquet"), (2, 1), (3, 1)):
        asked["files"][0][place], before = other, asked["files"][0][place]
        assert judge(table, asked)["rows"] == [-1, 1]
        asked["files"][0][place] = before


def test_each_reader_has_the_indexes_of_his_keys(table: Table, tmp_path: Path) -> None:
    """Without the key of ``ssn`` its index is not used in any part, for him alone; bounds of others serve him."""
    rich, poor = service_of(policy(table)), service_of(policy(table))
    opened = poor.opener.open

    def denied(material: Any, **named: Any) -> bytes:
        if material.master_key_id == "pii":
            raise KeyAccessDeniedError("no")
        return opened(material, **named)

    poor.opener.open = denied  # type: ignore[method-assign]
    asked = request_of(table, ["or", [["=", "id", 15], ["=", "ssn", "none"]]])
    assert (judge(table, asked, rich)["skipped"], judge(table, asked, poor)["skipped"]) == ([0, 2, 3, 4, 5, 6], [])
    answer = judge(table, request_of(table, ["=", "id", 15]), poor)
    assert (answer["skipped"], answer["unused"]) == ([0, 2, 3, 4, 5, 6], {"ssn minmax": NO_KEY})


def parts_of(table: Table) -> list[Path]:
    """Return the files of a store in their order."""
    return sorted(table.folder.path.glob("part-*"))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone", "another part", "of an earlier generation"])
def test_part_that_is_not_what_was_written_is_an_error(table: Table, damage: str) -> None:
    """A part that was damaged, exchanged or brought back is judged by nobody; the error keeps every file."""
    first, second, *_ = parts_of(table)
    if damage == "cut":
        _cut(second)
    elif damage == "flipped":
        _flip(second)
    elif damage == "gone":
        second.unlink()
    elif damage == "another part":
        shutil.copy(first, second)
    else:
        old = second.read_bytes()
        table.create("id", "ssn")
        parts_of(table)[1].write_bytes(old)
    with pytest.raises((VerificationError, FormatError)):
        judge(table, request_of(table, ["=", "id", 15]))
    assert judge(table, request_of(table, ["=", "id", 55], 4, 5))["skipped"] == [0]


def test_part_is_known_by_all_that_the_sidecar_says(table: Table) -> None:
    """A request that names another length, file-unique, generation, order of objects or table is refused."""
    asked = request_of(table, ["=", "id", 15])
    answer = skip_files(asked, service_of(policy(table)), OpenedStores(most_bytes=1))
    part, other = answer["parts"][0]["part"], answer["parts"][1]["part"]
    changes: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"length": part["length"] + 1}, VerificationError),
        ({"unique": other["unique"]}, VerificationError),
        ({"generation": 2}, VerificationError),
        ({"objects": other["objects"]}, VerificationError),
        ({"table_uuid": "another"}, BridgeError),
        ({"objects": None}, BridgeError),
        ({"length": "1"}, BridgeError),
        ({"more": 1}, BridgeError),
    ]
    for change, error in changes:
        with pytest.raises(error):
            judge_part({**asked, "part": {**part, **change}}, service_of(policy(table)))
    with pytest.raises(BridgeError, match="do not belong together"):
        judge_part(asked, service_of(policy(table)))


def test_part_that_holds_more_than_a_part_is_refused(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its sidecar says, no more is read of a part than a writer puts into one."""
    monkeypatch.setattr("sparkcrypt.skipping.query.skip_files.part_budget", lambda: Budget(values=5))
    with pytest.raises(FormatError, match="more than is read at once"):
        judge(table, request_of(table, ["=", "id", 15]))


def test_parts_end_where_they_hold_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part ends by its rows, bytes or values; the sidecar has what each holds; one object too large is refused."""
    keys = Keys(tmp_path / "keys")
    table = StoredTable(tmp_path, keys, keys)
    for number in range(FILES):
        table.write(f"{number}.parquet", number * 10, number * 10 + 5, uuid=UUID, key="pii")
    for bound, most, rows in (("ROWS", 3, [3, 3, 1]), ("VALUES", 10, [2, 2, 2, 1]), ("BYTES", 1, [1] * FILES)):
        with monkeypatch.context() as patched:
            patched.setattr(write, f"{bound}_PER_FILE", most)
            table.create("id", "ssn")
        assert [size.rows for size in table.sidecar.sizes.values()] == rows
        assert {size.values for size in table.sidecar.sizes.values()} == {5 * count for count in rows}
    before = parts_of(table)
    monkeypatch.setattr(write, "ROWS_PER_FILE", 2)
    monkeypatch.setattr(write, "PART_VALUES", 80)
    table.write("9.parquet", *range(100), uuid=UUID, key="pii")
    with pytest.raises(ConfigError, match=r"9\.parquet#\d+: its entries take .* 101 values; allowed: .* 40"):
        table.create("id", kinds={"id": ("valuelist",)})
    assert parts_of(table) == before  # those of the store that was there, and none that was begun


def test_large_store_is_kept_true_a_part_at_a_time(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that cannot be read whole is refreshed all the same: no more than one part is ever held."""
    monkeypatch.setattr(trust, "part_budget", lambda: Budget(values=10))
    expected = Expected(UUID, ("footer",), None)
    with pytest.raises(FormatError, match="more than is read at once"):
        open_store(table.folder, table.keys, expected, budget=Budget(values=34))
    table.write("2.parquet", 7, uuid=UUID, key="pii")
    table.write("9.parquet", 90, uuid=UUID, key="pii")
    (table.root / "data" / "0.parquet").unlink()
    opened = open_parts(table.folder, table.keys, expected)
    assert opened.store.objects == ()
    built = refresh_store(table.folder, table.data, opened, table.with_keys({"ssn": "pii"}))
    assert (built.read, built.sidecar.generation) == (2, 2)
    known = table.known(UUID)
    assert sorted(known) == [f"{number}.parquet" for number in (1, 2, 3, 4, 5, 6, 9)]
    assert (known["2.parquet"], known["6.parquet"]) == (Bounds(7, 7), Bounds(60, 65))


def test_parts_that_tell_of_one_object_twice_are_no_store(table: StoredTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object with rows in two parts is found where parts are read one by one, whatever the sidecar says of sizes."""
    monkeypatch.setattr(write, "ROWS_PER_FILE", 1)
    before = table.opened(UUID)
    row = next(rows_of(before.store))
    with open_writer(table.folder, before.store, table.with_keys({}), StoreIdentity(UUID, 2)) as writer:
        for _ in range(2):  # with a part for each
            writer.add(row, before.sidecar.objects[row.name])
        writer.finish(digest_key=before.sidecar.digest_key, fixed_values={})
    with pytest.raises(FormatError, match="the sizes of other files and objects"):
        open_parts(table.folder, table.keys, Expected(UUID, ("footer",), None))
    sizes = dict.fromkeys(_facts_of(table), PartSize(1, 1, 1))
    table.seal(replace(before.sidecar, generation=2, files=_facts_of(table), sizes=sizes))
    opened = open_parts(table.folder, table.keys, Expected(UUID, ("footer",), None))
    with pytest.raises(VerificationError, match="not those of its sidecar"):
        list(opened.parts())


def _facts_of(table: Table) -> dict[str, tuple[int, str]]:
    return {path.name: write._facts(table.folder, path.name) for path in parts_of(table)}

from __future__ import annotations

import datetime
import json
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.errors import (
    ConfigError,
    FormatError,
    KeyAccessDeniedError,
    RunConflictError,
    SparkcryptError,
    VerificationError,
)
from sparkcrypt.files.parquet import (
    FOOTER_KEY,
    DataKey,
    FileEncryption,
    KeyRequest,
    inspect_file,
    read_footer,
    rewrite_file,
    verify_file,
)
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.names import SPARK_SCHEMA
from sparkcrypt.skipping.format.bloom import BloomFilter
from sparkcrypt.skipping.format.description import Index, PartitionColumn, description_of
from sparkcrypt.skipping.format.store import NO_KEY, UNKNOWN, Bounds, Entry, IndexEntries, Store
from sparkcrypt.skipping.trusted import write
from sparkcrypt.skipping.trusted.folder import LocalFolder
from sparkcrypt.skipping.trusted.sidecar import (
    SIDECAR,
    ObjectFacts,
    PartSize,
    StoreIdentity,
    StoreKeys,
    open_sidecar,
    seal_sidecar,
)
from sparkcrypt.skipping.trusted.trust import OTHER_KEY, Expected
from tests.unit.skipping.keys import Keys
from tests.unit.skipping.whole_stores import open_store, write_store

UUID = "0a1b2c3d-0000-4000-8000-000000000001"
NAMES = ("/t/day=1/a.parquet#1700000000000", "/t/day=1/b.parquet#1700000000001", "/t/day=2/c.parquet#1700000000002")
FACTS = {name: ObjectFacts(1000 + number, "ab" * 8, "cd" * 16) for number, name in enumerate(NAMES)}
FIRST = StoreIdentity(UUID, 1)
EXPECTED = Expected(UUID, ("footer",), {"ssn": "pii", "e.mail": "arn:aws:kms:eu:1:key/x"})


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """The keys of the policy."""
    return Keys(tmp_path_factory.mktemp("keys"))


def bloom(*values: str) -> bytes:
    """Return a filter."""
    made = BloomFilter.for_values(10, 0.01)
    for value in values:
        made.add(value)
    return made.to_bytes()


def index(kind: str, column: str, of: str, *entries: Entry | None, **params: str) -> IndexEntries:
    """Return an index and its entries."""
    return IndexEntries(Index("", kind, (column,), of, tuple(params.items())), entries)


def store(*indexes: IndexEntries) -> Store:
    """Return a store of three objects in two partitions."""
    chosen = indexes or (
        index("minmax", "ssn", "string", Bounds("001-secret", "1"), Bounds("2", "900-secret"), Bounds(None, None)),
        index("bloomfilter", "e.mail", "binary", bloom("ann"), bloom("bob"), None, ndv="10", fpp="0.01"),
        index("valuelist", "city", "string", frozenset({"Oslo", "Åbo"}), frozenset({"Lima"}), frozenset()),
    )
    partitions = ((PartitionColumn("", "day", "integer"), (1, 1, 2)),)
    return Store(4, "/t", None, NAMES, partitions, chosen)


def test_what_is_written_is_read(tmp_path: Path, keys: Keys) -> None:
    """Objects, partitions, all kinds of indexes, parameters and facts come back."""
    written = write_store(LocalFolder(tmp_path / "s"), store(), FACTS, keys.keys, FIRST)
    found = open_store(LocalFolder(tmp_path / "s"), keys, EXPECTED)
    assert (found.store.objects, found.store.table, found.store.version) == (NAMES, "/t", 4)
    assert found.store.partitions == ((PartitionColumn("virtual_day", "day", "integer"), (1, 1, 2)),)
    assert [stored.entries for stored in found.store.indexes] == [stored.entries for stored in store().indexes]
    assert found.store.indexes[1].index.params == (("ndv", "10"), ("fpp", "0.01"))
    assert found.sidecar == written
    assert found.sidecar.objects == FACTS


def test_values_of_every_type_come_back(tmp_path: Path, keys: Keys) -> None:
    """Each type of column that is compared is written so that it is read as it was."""
    days = (datetime.date(1200, 1, 1) - datetime.date(1970, 1, 1)).days
    of: Mapping[str, tuple[Any, Any]] = {
        **{"boolean": (False, True), "byte": (-128, 127), "short": (-5, 5), "integer": (-(2**31), 2**31 - 1)},
        **{"long": (-(2**63), 2**63 - 1), "float": (0.0, 0.5), "double": (-math.inf, 1e300), "string": ("", "ü")},
        **{"binary": (b"", b"\xff"), "date": (days, 1), "timestamp": (-5, 10**15), "timestamp_ntz": (-(10**17), 5)},
        **{"decimal(38,5)": (Decimal("-1.00001"), Decimal("9")), "decimal(4,0)": (Decimal(-7), Decimal(7))},
    }
    indexes = []
    for number, (kind, (least, most)) in enumerate(of.items()):
        indexes.append(
            index("minmax", f"c{number}", kind, Bounds(least, most), Bounds(least, least), Bounds(most, most))
        )
        indexes.append(index("valuelist", f"c{number}", kind, frozenset({least, most}), frozenset(), frozenset({most})))
    write_store(LocalFolder(tmp_path), store(*indexes), FACTS, keys.keys, FIRST)
    found = open_store(LocalFolder(tmp_path), keys, EXPECTED).store
    assert [(stored.index.type, stored.entries) for stored in found.indexes] == [
        (stored.index.type, stored.entries) for stored in indexes
    ]


def test_a_nan_stays_the_greatest(tmp_path: Path, keys: Keys) -> None:
    """A NaN as the upper bound, which says that nothing is known above, is written and read."""
    write_store(
        LocalFolder(tmp_path),
        store(index("minmax", "x", "double", *[Bounds(1.0, math.nan)] * 3)),
        FACTS,
        keys.keys,
        FIRST,
    )
    (found,) = open_store(LocalFolder(tmp_path), keys, EXPECTED).store.indexes
    assert all(isinstance(bounds, Bounds) and math.isnan(float(bounds.greatest or 0)) for bounds in found.entries)


def part_of(folder: Path) -> Path:
    """Return the only data file of a store."""
    (part,) = folder.glob("part-*")
    return part


def test_every_byte_is_under_the_right_key(tmp_path: Path, keys: Keys) -> None:
    """A tagged column's index is under its key, everything else under the footer's; no value is in clear on disk."""
    write_store(LocalFolder(tmp_path), store(), FACTS, keys.keys, FIRST)
    part = part_of(tmp_path)
    summary = inspect_file(part, retrieve_key=keys)
    assert (summary.footer, summary.algorithm, summary.footer_key) == ("encrypted", "AES_GCM_V1", "footer")
    assert {path: (column.encrypted, column.key_id) for path, column in (summary.columns or {}).items()} == {
        ("obj_name",): (True, "footer"),
        ("virtual_day",): (True, "footer"),
        ("ssn_minmax_3", "min"): (True, "pii"),
        ("ssn_minmax_3", "max"): (True, "pii"),
        ("e$#$mail_bloomfilter_8",): (True, "arn:aws:kms:eu:1:key/x"),
        ("city_valuelist_4", "list", "element"): (True, "footer"),
    }
    assert verify_file(part, retrieve_key=keys).authenticated == "all"
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        assert not any(word in content for word in (b"secret", b"Oslo", b"/t/day=1", b"city", b"BloomFilter"))


def test_the_schema_is_what_upstream_reads(tmp_path: Path, keys: Keys) -> None:
    """Spark's schema names version, table, labels with escaped key ids, columns, parameters and upstream's class."""
    write_store(LocalFolder(tmp_path), store(), FACTS, keys.keys, FIRST)
    metadata = read_footer(part_of(tmp_path), retrieve_key=keys).metadata
    assert metadata is not None
    (text,) = [pair.value for pair in metadata.key_value_metadata or () if pair.key == SPARK_SCHEMA]
    fields = {field["name"]: field for field in json.loads(text or "")["fields"]}
    master = fields["obj_name"]
    label = "arn%3Aaws%3Akms%3Aeu%3A1%3Akey%2Fx"
    assert (master["nullable"], master["metadata"]["version"], master["metadata"]["tableIdentifier"]) == (
        False,
        4,
        "/t",
    )
    assert master["metadata"]["encryption"] == {
        "encryption.footer.key": "footer",
        "encryption.column.keys": "footer:obj_name,virtual_day,city_valuelist_4.list.element;"
        f"pii:ssn_minmax_3.min,ssn_minmax_3.max;{label}:e$#$mail_bloomfilter_8",
    }
    bloom_field = fields["e$#$mail_bloomfilter_8"]
    assert bloom_field["type"]["class"].startswith("io.xskipper.") and bloom_field["type"]["sqlType"] == "binary"
    assert bloom_field["metadata"]["index"] == {
        **{"name": "bloomfilter", "cols": ["e.mail"], "params": {"ndv": "10", "fpp": "0.01"}, "key_metadata": label}
    }
    assert fields["city_valuelist_4"]["metadata"]["index"]["key_metadata"] == "footer"
    assert description_of(text or "").labels is not None


def test_an_object_of_which_something_is_unknown_has_no_row(tmp_path: Path, keys: Keys) -> None:
    """Upstream takes a missing entry for nulls, and would skip the object; filters may be missing."""
    made = store(
        index("minmax", "a", "long", None, Bounds(1, 2), Bounds(1, 2)),
        index("bloomfilter", "b", "binary", bloom("x"), bloom("x"), None),
    )
    unknown = replace(made, partitions=((made.partitions[0][0], (1, UNKNOWN, 2)),))
    write_store(LocalFolder(tmp_path), unknown, FACTS, keys.keys, FIRST)
    found = open_store(LocalFolder(tmp_path), keys, EXPECTED)
    assert found.store.objects == NAMES[2:]
    assert found.sidecar.objects == FACTS


def test_a_store_without_objects(tmp_path: Path, keys: Keys) -> None:
    """A table without files has a store too."""
    empty = replace(store(index("minmax", "ssn", "long")), objects=(), partitions=())
    write_store(LocalFolder(tmp_path), empty, {}, keys.keys, FIRST)
    assert open_store(LocalFolder(tmp_path), keys, EXPECTED).store.objects == ()


def test_many_objects_are_in_several_files(tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are bounded in rows and in bytes of filters, and their order is the store's."""
    monkeypatch.setattr(write, "ROWS_PER_FILE", 2)
    write_store(LocalFolder(tmp_path / "rows"), store(), FACTS, keys.keys, FIRST)
    monkeypatch.setattr(write, "ROWS_PER_FILE", 100)
    monkeypatch.setattr(write, "BYTES_PER_FILE", 100)
    write_store(LocalFolder(tmp_path / "bytes"), store(), FACTS, keys.keys, FIRST)
    for folder, count in (("rows", 2), ("bytes", 3)):
        assert len(list((tmp_path / folder).glob("part-*"))) == count
        assert open_store(LocalFolder(tmp_path / folder), keys, EXPECTED).store.objects == NAMES


def test_a_new_store_takes_the_place_of_the_old(tmp_path: Path, keys: Keys) -> None:
    """After a write of the next generation no old file is left; an older or equal generation is a conflict."""
    write_store(LocalFolder(tmp_path), store(), FACTS, keys.keys, FIRST)
    old = part_of(tmp_path)
    write_store(
        LocalFolder(tmp_path),
        store(index("minmax", "a", "long", *[Bounds(1, 2)] * 3)),
        FACTS,
        keys.keys,
        StoreIdentity(UUID, 2),
    )
    assert not old.exists() and part_of(tmp_path).exists()
    found = open_store(LocalFolder(tmp_path), keys, replace(EXPECTED, generation=2))
    assert [stored.index.columns for stored in found.store.indexes] == [("a",)]
    for generation in (1, 2):
        with pytest.raises(RunConflictError, match="holds generation 2"):
            write_store(LocalFolder(tmp_path), store(), FACTS, keys.keys, StoreIdentity(UUID, generation))


class Killed(BaseException):
    """Stands for a signal."""


@pytest.mark.parametrize("at", ["_facts", "seal_sidecar", "LocalFolder.replace"])
def test_a_writer_that_is_killed_leaves_the_old_store(
    tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Until the sidecar is replaced the old store is the store; the next write removes what was left."""
    write_store(LocalFolder(tmp_path), store(), FACTS, keys.keys, FIRST)

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(LocalFolder if "." in at else write, at.rpartition(".")[2], die)
        with pytest.raises(Killed):
            write_store(LocalFolder(tmp_path), store(), FACTS, keys.keys, StoreIdentity(UUID, 2))
    assert len(list(tmp_path.glob("part-*"))) == 2
    assert open_store(LocalFolder(tmp_path), keys, EXPECTED).sidecar.generation == 1
    write_store(LocalFolder(tmp_path), store(), FACTS, keys.keys, StoreIdentity(UUID, 2))
    assert len(list(tmp_path.glob("part-*"))) == 1
    assert open_store(LocalFolder(tmp_path), keys, EXPECTED).sidecar.generation == 2


def test_a_writer_that_is_killed_after_the_swap_leaves_the_new_store(
    tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old files that were not removed any more are no part of the store."""
    write_store(LocalFolder(tmp_path), store(), FACTS, keys.keys, FIRST)
    replaced = LocalFolder.replace

    def die(folder: LocalFolder, name: str, content: bytes) -> None:
        replaced(folder, name, content)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(LocalFolder, "replace", die)
        with pytest.raises(Killed):
            write_store(LocalFolder(tmp_path), store(), FACTS, keys.keys, StoreIdentity(UUID, 2))
    found = open_store(LocalFolder(tmp_path), keys, EXPECTED)
    assert (found.sidecar.generation, found.store.objects) == (2, NAMES)


def test_files_that_are_no_index_are_never_removed(tmp_path: Path, keys: Keys) -> None:
    """A folder with other files, data or another table's store, is refused and left as it is."""
    other = tmp_path / "other"
    write_store(LocalFolder(other), store(), FACTS, keys.keys, StoreIdentity("another", 1))
    for content in (b"rows", part_of(other).read_bytes()):
        folder = tmp_path / str(len(content))
        folder.mkdir()
        (folder / "part-00000.parquet").write_bytes(content)
        with pytest.raises(ConfigError, match="a folder of its own"):
            write_store(LocalFolder(folder), store(), FACTS, keys.keys, FIRST)
        assert [path.name for path in folder.iterdir() if path.suffix == ".parquet"] == ["part-00000.parquet"]


def test_one_writer_at_a_time(tmp_path: Path, keys: Keys) -> None:
    """While a process writes a store, another that wants to is a conflict."""
    with LocalFolder(tmp_path).lock(), pytest.raises(RunConflictError, match="another process"):
        write_store(LocalFolder(tmp_path), store(), FACTS, keys.keys, FIRST)


def test_what_cannot_be_written_says_why(tmp_path: Path, keys: Keys) -> None:
    """A value of another type and a folder that cannot be are configuration errors."""
    with pytest.raises(ConfigError, match="not of its index's type"):
        write_store(
            LocalFolder(tmp_path), store(index("minmax", "a", "byte", *[Bounds(1, 300)] * 3)), FACTS, keys.keys, FIRST
        )
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_store(LocalFolder(tmp_path / "file"), store(), FACTS, keys.keys, FIRST)


def test_a_denied_key_costs_that_index_alone(tmp_path: Path, keys: Keys) -> None:
    """Who may not use ``pii`` has every other index; who may not use the footer's key has none."""
    write_store(LocalFolder(tmp_path / "s"), store(), FACTS, keys.keys, FIRST)
    denied = {"pii"}

    def retrieve(request: KeyRequest) -> bytes:
        material = parse_key_material(request.key_metadata or b"")
        if material.master_key_id in denied:
            raise KeyAccessDeniedError("no")
        return keys(request)

    found = open_store(LocalFolder(tmp_path / "s"), retrieve, EXPECTED).store
    assert [stored.unused for stored in found.indexes] == [NO_KEY, None, None]
    denied.add("footer")
    with pytest.raises(KeyAccessDeniedError):
        open_store(LocalFolder(tmp_path / "s"), retrieve, EXPECTED)


@pytest.fixture
def good(tmp_path: Path, keys: Keys) -> Path:
    """A store of generation 2, in which an older one was."""
    write_store(LocalFolder(tmp_path / "s"), store(), FACTS, keys.keys, FIRST)
    shutil.copytree(tmp_path / "s", tmp_path / "old")
    write_store(LocalFolder(tmp_path / "s"), store(), FACTS, keys.keys, StoreIdentity(UUID, 2))
    return tmp_path / "s"


def refused(folder: Path, keys: Keys, expected: Expected = EXPECTED, said: str | None = None) -> None:
    """Check that a store is not used."""
    with pytest.raises((VerificationError, FormatError), match=said):
        open_store(LocalFolder(folder), keys, expected)


def test_a_store_of_another_table_or_generation_is_not_used(good: Path, keys: Keys) -> None:
    """A store that was copied from another table, or brought back from before, is refused."""
    refused(good, keys, replace(EXPECTED, table_uuid="another"), "is the store of table")
    refused(good.parent / "old", keys, replace(EXPECTED, generation=2), "generation 1, and 2 was written last")
    open_store(LocalFolder(good), keys, replace(EXPECTED, generation=2))


def test_an_older_file_under_the_newest_name_is_not_used(good: Path, keys: Keys) -> None:
    """A file of an older generation is not the one that the sidecar names."""
    part_of(good).write_bytes(part_of(good.parent / "old").read_bytes())
    refused(good, keys, said="another file, table or generation")


def test_a_sidecar_of_an_older_generation_is_not_used(good: Path, keys: Keys) -> None:
    """The older sidecar names files that are gone, and its claims cannot be changed."""
    new, old = good / SIDECAR, good.parent / "old" / SIDECAR
    claimed = json.loads(old.read_bytes())
    new.write_bytes(old.read_bytes())
    refused(good, keys, said="is gone")
    new.write_text(json.dumps({**claimed, "generation": 2}))
    refused(good, keys, said="does not authenticate")
    new.write_text(json.dumps({**claimed, "table_uuid": None}))
    refused(good, keys, replace(EXPECTED, table_uuid=None), "does not authenticate")


def test_a_cut_or_changed_file_is_not_used(good: Path, keys: Keys) -> None:
    """No byte of a store can be changed, left out or added."""
    part, content = part_of(good), part_of(good).read_bytes()
    for at in range(0, len(content), max(1, len(content) // 60)):
        part.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        refused(good, keys)
    for changed in (b"", content[:-1], content + b"x"):
        part.write_bytes(changed)
        refused(good, keys)
    part.unlink()
    refused(good, keys, said="is gone")


def test_a_cut_or_changed_sidecar_is_not_used(good: Path, keys: Keys) -> None:
    """No byte of the sidecar that says anything can be changed; without it there is no store."""
    path, content = good / SIDECAR, (good / SIDECAR).read_bytes()
    for at in range(0, len(content), max(1, len(content) // 60)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(SparkcryptError):
            open_store(LocalFolder(good), keys, EXPECTED)
    for changed in (b"", b"{}", b"[]", b"\xff", b"[" * 50_000, content[:-9]):
        path.write_bytes(changed)
        refused(good, keys)
    path.unlink()
    refused(good, keys, said="without it is shown, not used")


def test_a_store_in_clear_is_not_used(good: Path, keys: Keys) -> None:
    """A file that was decrypted, or whose columns were, is refused although its content is right."""
    part = part_of(good)
    shutil.move(part, good.parent / "sealed")
    rewrite_file(good.parent / "sealed", part, retrieve_key=keys)
    refused(good, keys, said="the file is not encrypted")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"default": FOOTER_KEY, "footer_mode": "plaintext"}, "is plaintext_signed"),
        ({"default": FOOTER_KEY, "algorithm": "AES_GCM_CTR_V1"}, "under AES_GCM_CTR_V1"),
        ({"columns": {("obj_name",): FOOTER_KEY}}, "is in clear"),
    ],
)
def test_a_file_that_is_less_than_encrypted_is_not_used(good: Path, keys: Keys, how: dict[str, Any], said: str) -> None:
    """A holder of the footer key could seal a sidecar over weaker files: footer in clear, CTR, plaintext columns."""
    part = part_of(good)
    shutil.move(part, good.parent / "sealed")
    footer = DataKey(*keys.keys.maker.make("footer", is_footer_key=True))
    weaker = FileEncryption(footer, aad_prefix=StoreIdentity(UUID, 2).aad_prefix(part.name), **how)
    rewrite_file(good.parent / "sealed", part, retrieve_key=keys, encryption=weaker)
    sidecar = open_sidecar((good / SIDECAR).read_bytes(), keys, ("footer",).__contains__)
    named = replace(sidecar, files={part.name: write._facts(LocalFolder(good), part.name)})
    (good / SIDECAR).write_bytes(seal_sidecar(named, DataKey(*keys.keys.maker.make("footer", is_footer_key=True))))
    refused(good, keys, said=said)


def test_the_identity_of_a_file_has_table_generation_and_name() -> None:
    """No two of them have one AAD prefix, and none has that of a data file of the table."""
    identities = [StoreIdentity(uuid, generation) for uuid in (UUID, None) for generation in (1, 2, 12)]
    prefixes = {identity.aad_prefix(name) for identity in identities for name in ("a", "b")}
    assert len(prefixes) == 12 and all(prefix.endswith(b"\0") for prefix in prefixes)
    assert FileIdentity(UUID, "", "a").to_aad_prefix() not in prefixes


def forged(good: Path, keys: Keys, change: Mapping[str, str], **more: Any) -> None:
    """Write the store anew as somebody would who may use other keys than the policy's."""
    forger = StoreKeys(keys.keys.maker, **{"footer": "footer", "columns": dict(change), **more})
    write_store(LocalFolder(good), store(), FACTS, forger, StoreIdentity(UUID, 3))


def test_an_index_under_another_key_is_not_used(good: Path, keys: Keys) -> None:
    """Whoever may use the footer's key alone cannot give a tagged column an index of their own; nor one for another."""
    forged(good, keys, {"e.mail": "arn:aws:kms:eu:1:key/x"})
    assert [stored.unused for stored in open_store(LocalFolder(good), keys, EXPECTED).store.indexes] == [
        OTHER_KEY,
        None,
        None,
    ]
    assert [
        stored.unused for stored in open_store(LocalFolder(good), keys, replace(EXPECTED, column_keys={})).store.indexes
    ] == [
        None,
        OTHER_KEY,
        None,
    ]


def test_a_store_under_another_footer_key_is_not_used(good: Path, keys: Keys) -> None:
    """Only the policy's footer key and those of its history make a store."""
    forged(good, keys, {}, footer="other")
    refused(good, keys, said="does not name for footers")
    open_store(LocalFolder(good), keys, replace(EXPECTED, footer_keys=("footer", "other"), column_keys={}))


@pytest.mark.parametrize(
    ("objects", "sizes", "said"),
    [
        (NAMES[:2], {}, "the sizes of other files and objects"),
        (NAMES[:2], None, "the sizes of other files and objects"),
        (NAMES[::-1], None, "not those of its sidecar"),
        ((*NAMES[:2], "/t/x#1"), None, "not those of its sidecar"),
        (NAMES, {"part-0": PartSize(3, 1, 1)}, "the sizes of other files and objects"),
    ],
)
def test_a_sidecar_of_other_objects_is_not_used(
    good: Path, keys: Keys, objects: tuple[str, ...], sizes: dict[str, PartSize] | None, said: str
) -> None:
    """Each row's object must be known to the sidecar, in the order of the rows, with the sizes of its files."""
    sidecar = open_sidecar((good / SIDECAR).read_bytes(), keys, ("footer",).__contains__)
    facts = {name: FACTS[NAMES[0]] for name in objects}
    other = replace(sidecar, objects=facts, sizes=sidecar.sizes if sizes is None else sizes)
    (good / SIDECAR).write_bytes(seal_sidecar(other, DataKey(*keys.keys.maker.make("footer", is_footer_key=True))))
    refused(good, keys, said=said)


def test_nothing_is_shown_of_keys(good: Path, keys: Keys) -> None:
    """The key of digests is in no representation."""
    sidecar = open_store(LocalFolder(good), keys, EXPECTED).sidecar
    assert sidecar.digest_key.hex() not in repr(sidecar) and repr(sidecar.digest_key) not in repr(sidecar)
    assert sidecar.footer_digest(b"a") != replace(sidecar, digest_key=os.urandom(32)).footer_digest(b"a")


def test_pyarrow_reads_what_is_written(tmp_path: Path, keys: Keys) -> None:
    """Decrypted, a store's file is a Parquet file that others read: names, a struct, a list, binary."""
    write_store(LocalFolder(tmp_path / "s"), store(), FACTS, keys.keys, FIRST)
    rewrite_file(part_of(tmp_path / "s"), tmp_path / "plain", retrieve_key=keys)
    rows = pq.read_table(tmp_path / "plain").to_pylist()
    assert [row["obj_name"] for row in rows] == list(NAMES)
    assert rows[0]["ssn_minmax_3"] == {"min": "001-secret", "max": "1"}
    assert rows[2]["ssn_minmax_3"] == {"min": None, "max": None}
    assert [row["city_valuelist_4"] for row in rows] == [["Oslo", "Åbo"], ["Lima"], []]

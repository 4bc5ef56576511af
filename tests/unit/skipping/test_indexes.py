from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.errors import (
    ConfigError,
    FormatError,
    KeyAccessDeniedError,
    RunConflictError,
    VerificationError,
)
from sparkcrypt.files.parquet import KeyRequest, rewrite_file
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.skipping.format.description import object_name
from sparkcrypt.skipping.format.store import Bounds
from sparkcrypt.skipping.indexes import files
from sparkcrypt.skipping.indexes.build import (
    Wanted,
    carry_store,
    keys_of_store,
    plan_store,
    read_kinds,
    refresh_store,
)
from sparkcrypt.skipping.indexes.entries import read_file
from sparkcrypt.skipping.indexes.files import DataFolder
from sparkcrypt.skipping.indexes.indexed import Comparison
from sparkcrypt.skipping.trusted import write
from sparkcrypt.skipping.trusted.folder import LOCK, LocalFolder
from sparkcrypt.skipping.trusted.sidecar import SIDECAR, ObjectFacts
from sparkcrypt.skipping.trusted.write import drop_store
from tests.unit.skipping.keys import Keys
from tests.unit.skipping.tables import UUID, Table

OTHER = "0a1b2c3d-0000-4000-8000-000000000002"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """The keys of the policy."""
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def table(tmp_path: Path, keys: Keys) -> Table:
    """Three files of two rows."""
    made = Table(tmp_path, keys, keys)
    for number, name in enumerate("abc"):
        made.write(f"{name}.parquet", number * 10, number * 10 + 5)
    return made


ABC = {"a.parquet": Bounds(0, 5), "b.parquet": Bounds(10, 15), "c.parquet": Bounds(20, 25)}


def test_a_refresh_reads_new_and_changed_files_alone(table: Table) -> None:
    """Of a file that was added, one that was written again and one that is gone, two are read; the rest is kept."""
    table.create()
    table.write("b.parquet", 100, 105)
    table.write("d.parquet", 30, 35)
    (table.root / "data" / "c.parquet").unlink()
    built = table.refresh()
    assert sorted(table.read) == ["b.parquet", "d.parquet"]
    assert (built.read, built.written, built.sidecar.generation, len(built.sidecar.objects)) == (2, True, 2, 3)
    assert table.known() == {
        "a.parquet": Bounds(0, 5),
        "b.parquet": Bounds(100, 105),
        "d.parquet": Bounds(30, 35),
    }
    assert table.compare().is_fresh


def test_a_length_that_changed_under_one_time_is_read_again(table: Table) -> None:
    """Name and time may be those of before; the length tells that the file is another."""
    table.create()
    before = (table.root / "data" / "b.parquet").stat()
    table.write("b.parquet", *range(500, 900), at=int(before.st_mtime))
    assert table.compare().changed == (str(table.root / "data" / "b.parquet"),)
    assert table.refresh().read == 1
    assert table.known()["b.parquet"] == Bounds(500, 899)


def test_a_refresh_of_what_is_fresh_writes_nothing(table: Table) -> None:
    """Without a change the store, its generation and its files stay."""
    table.create()
    before = {path.name: path.stat().st_mtime_ns for path in (table.root / "store").iterdir()}
    built = table.refresh()
    assert (built.read, built.written, built.sidecar.generation) == (0, False, 1)
    assert {path.name: path.stat().st_mtime_ns for path in (table.root / "store").iterdir()} == before


def test_a_table_without_files_left_has_an_empty_store(table: Table) -> None:
    """Once all files are gone nothing is carried over."""
    table.create()
    for path in (table.root / "data").iterdir():
        path.unlink()
    assert table.refresh().sidecar.objects == {}
    assert table.known() == {}


def test_files_that_change_while_they_are_read_are_left_out(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is written again or deleted during the work is not in the store, and the next refresh takes it up."""

    def meanwhile(source: Any, *rest: Any, **named: Any) -> Any:
        found = read_file(source, *rest, **named)
        if Path(source).name == "a.parquet":
            table.write("a.parquet", 7)
            (table.root / "data" / "c.parquet").unlink(missing_ok=True)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(files, "read_file", meanwhile)
        built = table.create()
    assert [Path(path).name for path in built.left_out] == ["a.parquet", "c.parquet"]
    assert table.known() == {"b.parquet": Bounds(10, 15)}
    table.refresh()
    assert table.known() == {"a.parquet": Bounds(7, 7), "b.parquet": Bounds(10, 15)}


class Killed(BaseException):
    """Stands for a signal."""


def steps(patched: pytest.MonkeyPatch, at: int, *, before: bool) -> Iterator[None]:
    """Count what changes the store's folder, and die before or after the one with a number."""
    done = iter(range(1000))

    def dying(change: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **named: Any) -> Any:
            number = next(done)
            if number == at and before:
                raise Killed
            found = change(*args, **named)
            if number == at:
                raise Killed
            return found

        return step

    patched.setattr(write, "rewrite_file", dying(rewrite_file))
    for name in ("replace", "delete"):
        patched.setattr(LocalFolder, name, dying(getattr(LocalFolder, name)))
    yield


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("at", range(5))
def test_a_refresh_that_is_killed_leaves_a_store(
    table: Table, monkeypatch: pytest.MonkeyPatch, at: int, before: bool
) -> None:
    """Killed at any step, it leaves the old store or the new one whole; the next refresh ends what it began."""
    monkeypatch.setattr(write, "ROWS_PER_FILE", 2)  # two files in the old store, two in the new one
    table.create()
    table.write("d.parquet", 30, 35)
    with monkeypatch.context() as patched:
        for _ in steps(patched, at, before=before):
            with pytest.raises(Killed):
                table.refresh()
    swapped = at > 2 or (at == 2 and not before)
    assert table.opened(generation=1).sidecar.generation == (2 if swapped else 1)
    new = {**ABC, "d.parquet": Bounds(30, 35)}
    assert table.known() == (new if swapped else ABC)
    table.refresh()
    assert table.known() == new
    table.write("e.parquet", 1)
    table.refresh()
    assert len(list((table.root / "store").glob("part-*"))) == 3


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("at", range(5))
def test_a_create_that_is_killed_leaves_a_store(
    table: Table, monkeypatch: pytest.MonkeyPatch, at: int, before: bool
) -> None:
    """Killed at any step, the first create leaves none or a whole one, a later one the old or the new, of new kinds."""
    monkeypatch.setattr(write, "ROWS_PER_FILE", 2)  # two files in each store
    kinds: dict[str, Any] = {"kinds": {"id": ("minmax", "valuelist")}}
    swapped = at > 2 or (at == 2 and not before)
    if at < 3:  # nothing is deleted
        with monkeypatch.context() as patched:
            for _ in steps(patched, at, before=before):
                with pytest.raises(Killed):
                    table.create()
        if swapped:
            assert table.known() == ABC
        else:
            with pytest.raises(FormatError, match=r"_sparkcrypt\.json: cannot be read"):
                table.opened()
    table.create()
    table.write("d.parquet", 30, 35)
    generation = table.opened().sidecar.generation
    with monkeypatch.context() as patched:
        for _ in steps(patched, at, before=before):
            with pytest.raises(Killed):
                table.create(**kinds)
    found = table.opened(generation=generation)
    assert found.sidecar.generation == generation + swapped
    assert [entry.index.kind for entry in found.store.indexes] == ["minmax", "valuelist"][: 1 + swapped]
    new = {**ABC, "d.parquet": Bounds(30, 35)}
    assert table.known() == (new if swapped else ABC)
    table.create(**kinds)
    assert table.known() == new
    assert len(list((table.root / "store").glob("part-*"))) == 2


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("at", range(5))
def test_a_carrying_over_that_is_killed_leaves_a_store(
    table: Table, monkeypatch: pytest.MonkeyPatch, at: int, before: bool
) -> None:
    """Killed at any step, it leaves the old names or the new ones; asked again of what is there, it ends with the new.

    It goes on from the store that it finds, which may know the new name already.
    """
    monkeypatch.setattr(write, "ROWS_PER_FILE", 2)
    table.create()
    opened = table.opened()
    first = min(opened.store.objects)
    made = new_object(table, "x.parquet", 1_800_000_000)
    own = table.with_keys({})
    with monkeypatch.context() as patched:
        for _ in steps(patched, at, before=before):
            with pytest.raises(Killed):
                carry_store(table.folder, opened, {first: made}, (), own)
    swapped = at > 2 or (at == 2 and not before)
    new = {"x.parquet": Bounds(0, 5), "b.parquet": Bounds(10, 15), "c.parquet": Bounds(20, 25)}
    assert table.known() == (new if swapped else ABC)
    carry_store(table.folder, table.opened(generation=1), {first: made}, (), own)
    assert table.known() == new
    assert len(list((table.root / "store").glob("part-*"))) == 2


def test_an_older_store_is_not_used_again(table: Table) -> None:
    """A store that is brought back from before is refused by the generation kept elsewhere; a later one is not."""
    table.create()
    old = {path: path.read_bytes() for path in (table.root / "store").iterdir()}
    table.write("d.parquet", 30)
    assert table.refresh().sidecar.generation == 2
    for path in (table.root / "store").iterdir():
        path.unlink()
    for path, content in old.items():
        path.write_bytes(content)
    with pytest.raises(VerificationError, match="generation 1, and 2 was written last"):
        table.opened(generation=2)
    assert table.opened(generation=1).sidecar.generation == 1
    assert table.refresh(generation=7).sidecar.generation == 8


def test_two_refreshes_at_once_are_a_conflict(table: Table) -> None:
    """Who read the store before another wrote it does not write over that."""
    table.create()
    table.write("d.parquet", 30)
    early = table.opened()
    table.refresh()
    table.write("e.parquet", 40)
    late = LocalFolder(table.root / "store")
    with pytest.raises(RunConflictError, match="holds generation 2; expected less than 2"):
        refresh_store(late, table.data, early, table.with_keys({}))


@pytest.fixture
def sealed(tmp_path: Path, keys: Keys) -> Table:
    """Two encrypted files of a table, in partitions, and one in clear."""
    made = Table(tmp_path, keys, keys)
    made.write("day=1/a.parquet", 1, 2, uuid=UUID, key="pii")
    made.write("day=2/b.parquet", 3, 4, uuid=UUID, key="pii")
    made.write("day=2/c.parquet", 5, 6)
    return made


def test_the_table_of_a_store_is_that_of_its_files(sealed: Table) -> None:
    """The UUID is what the files' AAD prefixes have; files of another table are refused, at once or at a refresh."""
    assert sealed.create("id", "ssn").sidecar.table_uuid == UUID
    sealed.write("day=3/d.parquet", 7, uuid=OTHER, key="pii")
    with pytest.raises(VerificationError, match=f"is a file of table {OTHER}"):
        sealed.refresh(UUID)
    with pytest.raises(ConfigError, match=f"files of the tables {UUID}, {OTHER}"):
        plan_store(sealed.data, Wanted({"id": ("minmax",)}))


def test_indexes_stay_under_their_keys(sealed: Table) -> None:
    """A refresh keeps each index under its column's key, and refuses a file whose column is under another by then."""
    sealed.create("id", "ssn")
    sealed.write("day=3/d.parquet", 7, uuid=UUID, key="pii")
    sealed.refresh(UUID)
    assert keys_of_store(sealed.opened(UUID).store, "footer") == {"ssn": "pii"}
    sealed.write("day=3/e.parquet", 8, uuid=UUID, key="other")
    with pytest.raises(ConfigError, match=r"column 'ssn' under other, and its index is under pii.*index create"):
        sealed.refresh(UUID)


def test_a_column_that_was_tagged_since_is_refused(sealed: Table) -> None:
    """Its bounds would otherwise go under the footer's key, which every reader holds."""
    for path in sorted((sealed.root / "data").rglob("*.parquet")):
        path.unlink()
    sealed.write("day=1/a.parquet", 1)
    sealed.create("ssn")
    sealed.write("day=1/b.parquet", 2, uuid=None, key="pii")
    with pytest.raises(ConfigError, match="under pii, and its index is under footer"):
        sealed.refresh()


def test_a_refresh_takes_every_key(sealed: Table) -> None:
    """An index that cannot be read cannot be carried over, and is not dropped silently."""
    sealed.create("id", "ssn")

    def without(request: KeyRequest) -> bytes:
        if parse_key_material(request.key_metadata or b"").master_key_id == "pii":
            raise KeyAccessDeniedError("no")
        return sealed.keys(request)

    sealed.retrieve = without
    with pytest.raises(KeyAccessDeniedError, match="index of ssn cannot be carried over"):
        sealed.refresh(UUID)


def test_partitions_come_from_folders_and_given_values(sealed: Table) -> None:
    """Their values are in the store, typed as declared, and a refresh goes on as the store was begun."""
    sealed.create("id", types={"day": "integer", "region": "string"}, given={"region": "eu"})
    sealed.write("day=__HIVE_DEFAULT_PARTITION__/d.parquet", 7)
    sealed.write("day=soon/e.parquet", 8)
    sealed.refresh(UUID)
    found = {column.column: (column.type, values) for column, values in sealed.opened(UUID).store.partitions}
    assert found == {"day": ("integer", (1, 2, 2, None)), "region": ("string", ("eu",) * 4)}
    assert len(sealed.opened(UUID).sidecar.objects) == 5  # a day that is no integer is always opened
    sealed.write("f.parquet", 9)
    with pytest.raises(ConfigError, match=r"f\.parquet: lies in folders of no partition column"):
        sealed.refresh(UUID)


def test_the_store_of_another_folder_is_not_refreshed(table: Table) -> None:
    """A store says of which folder it is, and that cannot be mixed up."""
    table.create()
    (table.root / "data").rename(table.root / "moved")
    data = DataFolder(str(table.root / "moved"), table.retrieve, lambda *_: None)
    with pytest.raises(ConfigError, match="the index is that of"):
        refresh_store(table.folder, data, table.opened(), table.with_keys({}))


def test_verify_tells_every_difference(table: Table) -> None:
    """Files are as indexed, new, changed, gone, or altered: the last is what would lose rows."""
    table.create()
    assert table.compare() == Comparison(1, 3, (), (), (), ())
    path = table.root / "data" / "a.parquet"
    before, content = path.stat(), bytearray(path.read_bytes())
    at = len(content) - 60  # inside the footer
    content[at] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    table.write("d.parquet", 1)
    (table.root / "data" / "c.parquet").unlink()
    found = table.compare()
    assert (found.same, found.altered, found.new) == (1, (str(path),), (str(table.root / "data" / "d.parquet"),))
    assert [Path(name.partition("#")[0]).name for name in found.gone] == ["c.parquet"]
    path.write_bytes(b"x" * len(content))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert table.compare().altered == (str(path),)


def test_verify_knows_other_rows_of_one_length(table: Table) -> None:
    """Two files of one name, time and length are told apart by their footers' digests."""
    table.write("x.parquet", 1, 2)
    first = table.root / "data" / "x.parquet"
    table.create()
    stamp = int(first.stat().st_mtime)
    length = first.stat().st_size
    table.write("x.parquet", 3, 4, at=stamp)
    assert first.stat().st_size == length
    assert table.compare().altered == (str(first),)
    assert table.refresh().written is False  # nobody can know it without the footer: verify is what reads them


def test_a_store_is_dropped_whole(table: Table) -> None:
    """Its files go, sidecar first, and its folder; the generation is noted before."""
    table.create()
    noted: list[int] = []
    deleted = drop_store(table.folder, None, lambda _: None, noted.append)
    assert (deleted[0], len(deleted), noted) == (SIDECAR, 2, [1])
    assert not (table.root / "store").exists()
    with pytest.raises(ConfigError, match="holds no index"):
        drop_store(table.folder, None, lambda _: None, noted.append)


def test_a_store_that_is_in_use_is_not_dropped(table: Table) -> None:
    """Neither while somebody writes it, nor where a table is, nor with files that are none of its."""
    table.create()
    there = {path.name for path in (table.root / "store").iterdir()}
    with table.folder.lock(), pytest.raises(RunConflictError):
        drop_store(table.folder, None, lambda _: None, lambda _: None)
    with pytest.raises(VerificationError, match=r"db\.t points to it, so its files stay"):
        drop_store(table.folder, None, lambda _: "db.t points to it", lambda _: None)
    with pytest.raises(ConfigError, match="no file of a store that sparkcrypt wrote for this table"):
        drop_store(table.folder, OTHER, lambda _: None, lambda _: None)
    (table.root / "store" / "rows.parquet").write_bytes((table.root / "data" / "a.parquet").read_bytes())
    with pytest.raises(ConfigError, match=r"rows\.parquet: is no file of a store"):
        drop_store(table.folder, None, lambda _: None, lambda _: None)
    assert {path.name for path in (table.root / "store").iterdir()} == there | {"rows.parquet", LOCK}


@pytest.mark.parametrize("at", range(2))
def test_a_drop_that_is_killed_can_be_ended(table: Table, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """After the sidecar nobody uses what is left, and the next drop removes it."""
    table.create()
    with monkeypatch.context() as patched:
        for _ in steps(patched, at, before=False):
            with pytest.raises(Killed):
                drop_store(table.folder, None, lambda _: None, lambda _: None)
    with pytest.raises(FormatError):
        table.opened()
    if at == 0:
        drop_store(table.folder, None, lambda _: None, lambda _: None)
        assert not (table.root / "store").exists()


def new_object(table: Table, name: str, at: int) -> tuple[str, ObjectFacts]:
    """Return a file of the table as a store would call it, with made-up facts."""
    return object_name(str(table.root / "data" / name), at * 1000), ObjectFacts(99, "ab", None)


def test_carrying_over_renames_objects_and_drops_those_that_are_gone(table: Table) -> None:
    """What was known of an old name is known of the new one, under the next generation; of the gone nothing is."""
    table.create()
    opened = table.opened()
    first, second, third = sorted(opened.store.objects)
    made = new_object(table, "x.parquet", 1_800_000_000)
    own = table.with_keys(keys_of_store(opened.store, "footer"))
    written = carry_store(table.folder, opened, {first: made}, {second}, own, generation=7)
    assert written.generation == 8
    assert written.objects == {made[0]: made[1], third: opened.sidecar.objects[third]}
    assert written.digest_key == opened.sidecar.digest_key
    assert table.known() == {"x.parquet": Bounds(0, 5), "c.parquet": Bounds(20, 25)}
    assert table.read == []


def test_carrying_over_puts_an_index_under_another_key(table: Table) -> None:
    """An index whose column has got another key is written under that, and opens by it alone."""
    table.write("d.parquet", 30, key="pii", uuid=UUID)
    table.create("ssn")
    opened = table.opened(UUID)
    carry_store(table.folder, opened, {}, (), table.with_keys({"ssn": "other"}))
    again = table.opened(UUID)
    assert keys_of_store(again.store, "footer") == {"ssn": "other"}
    assert [entry.unused for entry in again.store.indexes] == [None]


def test_an_index_whose_key_is_denied_is_not_carried_over(table: Table) -> None:
    """It would be lost: the store stays as it was."""
    table.write("d.parquet", 30, key="pii", uuid=UUID)
    table.create("ssn")

    def refuse(request: KeyRequest) -> bytes:
        if parse_key_material(request.key_metadata or b"").master_key_id == "pii":
            raise KeyAccessDeniedError("pii")
        return table.keys(request)

    table.retrieve = refuse
    opened = table.opened(UUID)
    with pytest.raises(KeyAccessDeniedError, match="the index of ssn cannot be carried over"):
        carry_store(table.folder, opened, {}, (), table.with_keys({"ssn": "other"}))
    assert table.opened(UUID).sidecar.generation == 1


def test_kinds_of_a_column_are_united_however_it_is_spelled() -> None:
    """A column is found in any case, so that another spelling adds kinds and takes none away."""
    assert read_kinds(["id", "ssn:values", "ID:bloom"]) == {"id": ("minmax", "bloomfilter"), "ssn": ("valuelist",)}


def test_a_column_may_have_a_key_of_its_own_under_the_footers_master_key(sealed: Table) -> None:
    """Its index is under that master key, too, so that a refresh takes its new files."""
    for number, name in enumerate(("day=1/a.parquet", "day=2/b.parquet", "day=2/c.parquet")):
        sealed.write(name, number, uuid=UUID, key="footer")
    sealed.create("ssn")
    sealed.write("day=3/d.parquet", 7, uuid=UUID, key="footer")
    assert sealed.refresh(UUID).read == 1

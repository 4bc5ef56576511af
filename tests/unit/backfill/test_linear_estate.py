"""What is asked about the tables of a metastore costs as much as there are, not their square; most is asked once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from sparkcrypt.errors import PlanError
from sparkcrypt.files.footers import FooterFacts
from sparkcrypt.keys.material import Wrapping
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.names import TABLE_MARK, TABLE_UUID
from sparkcrypt.runs.old_folders import orphans
from sparkcrypt.runs.passes.keys_in_use import count_uses, find_uses_of_keys
from sparkcrypt.runs.table import in_use as in_use_module
from sparkcrypt.runs.table.cache import FooterCache
from sparkcrypt.runs.table.disposal import Disposal
from sparkcrypt.runs.table.in_use import FRESH_SECONDS, OtherTables
from sparkcrypt.spark.files.hadoop import FileStatus
from sparkcrypt.spark.files.listing import SourceFile
from sparkcrypt.spark.tables import identity
from sparkcrypt.spark.tables.identity import Identities, refuse_shared_identity
from sparkcrypt.spark.tables.table import Table
from tests.footers import keep_footers
from tests.growth import Work, assert_linear
from tests.unit.backfill.metastores import Folders, Metastore, in_use_of
from tests.unit.backfill.scanned_files import plain_file


@pytest.fixture
def metastore(monkeypatch: pytest.MonkeyPatch) -> Metastore:
    """A metastore without tables, which is asked in the place of a session's, by its own clock."""
    made = Metastore()
    monkeypatch.setattr(in_use_module, "Catalog", lambda _: made)
    monkeypatch.setattr(identity, "Catalog", lambda _: made)
    monkeypatch.setattr(in_use_module, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def add_with_uuid(metastore: Metastore, name: str, number: int, created: int = 1) -> Table:
    """Make a table with a UUID and its mark."""
    uuid = str(UUID(int=number))
    marks = {TABLE_UUID: uuid, TABLE_MARK: f"{uuid} {created}"}
    table = replace(metastore.add(name, f"/wh/{name}"), properties=marks, options=marks, created=created)
    metastore.tables[table.quoted] = table
    return table


@pytest.fixture
def bare_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing lies beside the data of any folder."""
    monkeypatch.setattr("sparkcrypt.runs.table.disposal.find_foreign_in", lambda *_: None)


def expire(metastore: Metastore, tables: int, others: OtherTables | None = None) -> Mapping[str, str]:
    """Delete an old folder of each of so many tables, one after the other, as `expire` does; return what was kept."""
    others, kept = others or OtherTables(cast("Any", None)), dict[str, str]()
    for number in range(tables):
        table = metastore.tables.get(f"`db`.`t{number}`") or metastore.add(f"t{number}", f"/wh/t{number}")
        in_use, old = in_use_of(table, others), f"/wh/.sparkcrypt/t{number}/old-run"
        in_use.look()
        files = cast("Any", Folders(old))
        disposal = Disposal(files, in_use, table.location, "run", lambda: None, asks_all=True)
        kept |= disposal.delete([old])
        assert files.there == ({old} if old in kept else set())
    return kept


@pytest.mark.usefixtures("bare_data")
def test_all_tables_are_asked_for_once_a_command(metastore: Metastore) -> None:
    """Before the first folder goes, and once more when that is set aside, however many tables there are."""
    for number in range(50):
        metastore.add(f"t{number}", f"/wh/t{number}")
    assert expire(metastore, 50) == {}
    assert metastore.asked["all tables"] == 2


@pytest.mark.usefixtures("bare_data")
def test_answer_about_other_tables_is_a_minute_old_at_most(metastore: Metastore) -> None:
    """Or as old as the time that it took, if that is longer; what was asked before a folder was set aside is older."""
    others = OtherTables(cast("Any", None))
    table = metastore.add("t", "/wh/t")
    in_use = in_use_of(table, others)

    def looks(*pauses: float) -> int:
        before = metastore.asked["all tables"]
        for pause in pauses:
            metastore.now += pause
            in_use.look(afresh=True)
        return metastore.asked["all tables"] - before

    in_use.look()
    assert looks(0, FRESH_SECONDS, 1, FRESH_SECONDS, 1) == 3
    metastore.seconds = 900
    assert looks(FRESH_SECONDS + 1, 900, 1, 900) == 2


@pytest.mark.usefixtures("bare_data")
def test_folder_that_comes_into_use_before_it_is_set_aside_is_kept(metastore: Metastore) -> None:
    """By another table, after the first look of the command."""
    others, old = OtherTables(cast("Any", None)), "/wh/.sparkcrypt/t1/old-run"
    in_use_of(metastore.add("t0", "/wh/t0"), others).look()
    metastore.add("other", old)
    assert list(expire(metastore, 2, others)) == [old]


def test_own_partitions_are_asked_for_at_each_look(metastore: Metastore) -> None:
    """Also where other tables are not."""
    table = metastore.add("t", "/wh/t", partitions=3)
    in_use = in_use_of(table, OtherTables(cast("Any", None)))
    in_use.look()
    before = metastore.asked[table.quoted]
    assert in_use.look().user_of("/wh/t/p=3") is None
    metastore.partitions_of[table.quoted] = 4
    assert in_use.look().user_of("/wh/t/p=3") == "p=3 points to file:/wh/t/p=3"
    assert metastore.asked[table.quoted] - before == 2


def test_other_tables_that_are_asked_for_again_count_at_once(metastore: Metastore) -> None:
    """Also where the target's own places are those of a moment ago."""
    in_use = in_use_of(metastore.add("t", "/wh/t"), OtherTables(cast("Any", None)))
    assert in_use.look().user_of("/wh/old") is None
    metastore.add("other", "/wh/old")
    assert in_use.look(seconds_old=30.0).user_of("/wh/old") is None
    assert in_use.look(afresh=True, seconds_old=30.0).user_of("/wh/old") == "db.other points to file:/wh/old"


@pytest.mark.usefixtures("bare_data")
def test_cost_of_an_expiry_grows_with_its_tables(metastore: Metastore) -> None:
    """Each of them may have a folder that any other uses."""

    def prepare(number: int) -> Work:
        metastore.tables.clear()
        for place in range(number):
            metastore.add(f"t{place}", f"/wh/t{place}")
        return lambda: expire(metastore, number)

    assert_linear(prepare, 40, most=2.1)


def test_cost_of_a_look_at_each_unit_grows_with_the_units(metastore: Metastore) -> None:
    """Each unit of a table asks where it is, and whether its folders are free, by an answer of a moment ago."""

    def prepare(number: int) -> Work:
        metastore.tables.clear()
        in_use = in_use_of(metastore.add("t", "/wh/t", partitions=number), OtherTables(cast("Any", None)))

        def ask() -> None:
            for place in range(number):
                assert in_use.units(seconds_old=30.0)[f"p={place}"] == f"/wh/t/p={place}"
                assert in_use.find_own(seconds_old=30.0).user_of(f"/wh/.sparkcrypt/t/r/p={place}") is None
                assert in_use.is_free(f"/wh/.sparkcrypt/t/r/p={place}")
                assert not in_use.look(seconds_old=30.0).has_other_user(f"/wh/t/p={place}", f"p={place}", "db.t")

        return ask

    assert_linear(prepare, 60, most=2.1)


def test_tables_of_one_uuid_are_told_by_the_entries_of_the_catalog(metastore: Metastore) -> None:
    """Of a command as of one table: the owner may go on, a copy of it may not; a text that is no UUID is searched."""
    owner, copy = add_with_uuid(metastore, "t", 1), add_with_uuid(metastore, "copy", 1, created=2)
    other = add_with_uuid(metastore, "other", 2)
    odd, odd_copy = (
        replace(table, properties={TABLE_UUID: "mine"}, options={TABLE_UUID: "mine"}) for table in (owner, copy)
    )
    for known in (None, Identities(cast("Any", None))):
        for table in (owner, other):
            refuse_shared_identity(cast("Any", None), table, known)
        with pytest.raises(PlanError, match=r"db\.copy has the UUID of db\.t "):
            refuse_shared_identity(cast("Any", None), copy, known)
    assert metastore.asked["all entries"] == 1 and metastore.asked["entries of one"] == 3
    known = Identities(cast("Any", None))
    refuse_shared_identity(cast("Any", None), owner, known)
    metastore.tables["`db`.`renamed`"] = replace(metastore.tables.pop(owner.quoted), name="renamed")
    with pytest.raises(PlanError, match=r"db\.copy has the UUID of db\.renamed "):
        refuse_shared_identity(cast("Any", None), copy, known)
    metastore.tables |= {odd.quoted: odd, odd_copy.quoted: odd_copy}
    with pytest.raises(PlanError, match=r"db\.t has the UUID of db\.copy \(mine\)"):
        refuse_shared_identity(cast("Any", None), odd, Identities(cast("Any", None)))


def test_cost_of_telling_tables_of_one_uuid_grows_with_the_tables(metastore: Metastore) -> None:
    """Each table of a command asks whether another has its UUID."""

    def prepare(number: int) -> Work:
        metastore.tables.clear()
        tables = [add_with_uuid(metastore, f"t{place:05}", place) for place in range(number)]

        def ask() -> None:
            others = OtherTables(cast("Any", None))
            for table in tables:
                refuse_shared_identity(cast("Any", None), table, others.identities)

        return ask

    assert_linear(prepare, 60, most=2.1)


def test_cost_of_keys_grows_with_the_tables_and_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of many keys are in use is asked of the tables that the state directory knows, each with its own."""
    monkeypatch.setattr(os, "fsync", lambda _: None)

    def prepare(number: int) -> Work:
        store = LocalStateStore(tmp_path / str(number))
        source, keys = SourceFile("/t/f", 1, 2), [f"key-{place:05}" for place in range(number)]
        for key in keys:
            cache = FooterCache(store, f"table-{key}", name=key)
            keep_footers(cache, "all", [source], {"/t/f": facts_of_keys(key)})

        def find() -> None:
            assert list(find_uses_of_keys(store, keys)) == keys

        return find

    prepare(1)()
    assert_linear(prepare, 40, most=2.1)


def test_cost_of_key_uses_grows_with_the_keys_of_a_file(tmp_path: Path) -> None:
    """A footer may name many of them."""
    store = LocalStateStore(tmp_path)

    def prepare(number: int) -> Work:
        facts = facts_of_keys(*(f"key-{place:05}" for place in range(number)))
        return lambda: count_uses(store, "t", "db.t", [(facts, 1)])

    assert_linear(prepare, 100, most=2.1)


def facts_of_keys(*key_ids: str) -> FooterFacts:
    """Return what the footer of a file says whose columns are under master keys."""
    wrappings = tuple(Wrapping(key_id, 1, key_id, "local") for key_id in key_ids)
    return FooterFacts(replace(plain_file(path="/t/f"), footer="encrypted", wrappings=wrappings), {})


class LocalFiles:
    """Local folders, as orphans are looked for in a file system."""

    def _status(self, path: Path) -> FileStatus:
        found = path.stat()
        return FileStatus(str(path), found.st_size, found.st_mtime_ns // 1_000_000, path.is_dir(), "me", "us", "700")

    def exists(self, path: str) -> bool:
        """Return whether a path exists."""
        return Path(path).exists()

    def status(self, path: str) -> FileStatus:
        """Return what is there."""
        return self._status(Path(path))

    def children(self, path: str) -> list[FileStatus]:
        """Return what is in a folder."""
        return [self._status(child) for child in sorted(Path(path).iterdir())]

    def walk(self, path: str) -> list[FileStatus]:
        """Return the files below a folder."""
        return [self._status(file) for file in sorted(Path(path).rglob("*")) if file.is_file()]

    data_files = walk


def test_cost_of_orphans_grows_with_the_folders_of_runs(
    tmp_path: Path, metastore: Metastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of as many runs that are known as of others, beside one table and outside of it."""
    for name, made in (("HadoopFiles", LocalFiles()), ("Catalog", metastore), ("open_state_directory", None)):
        monkeypatch.setattr(orphans, name, lambda *_, made=made: made)
    monkeypatch.setattr(orphans, "list_run_ids", lambda _: frozenset[str]())
    rules: Any = SimpleNamespace(aliases=(), index_location=None, run_state="")

    def prepare(number: int) -> Work:
        base, metastore.tables = tmp_path / str(number) / "t", {}
        metastore.add("t", str(base))
        runs = [f"old-20261121T{place // 60:02d}{place % 60:02d}12Z-3f9a2c" for place in range(number)]
        known = {f"file:{base.parent}/.sparkcrypt/t/{run}-known/p=0" for run in runs}
        outside = [f"{tmp_path}/{number}/elsewhere{place}/p=0" for place in range(number)]
        beside = (base.parent / ".sparkcrypt/t" / run for run in runs)
        for folder in (base, *beside, *map(Path, outside)):
            folder.mkdir(parents=True)
            (folder / "part-0.parquet").write_bytes(b"x")
        left = {f"file:{place}": orphans.Leftover(place, "old", str(base)) for place in outside}
        monkeypatch.setattr(orphans, "leftovers_of_journals", lambda *_: (known, left))

        def find() -> None:
            search = orphans.OrphanSearch(cast("Any", None), rules)
            assert len(list(search.find_all((), None))) == 2 * number

        return find

    prepare(1)()
    assert_linear(prepare, 30, most=2.1)

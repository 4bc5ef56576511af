"""Swaps that are not recorded yet, and units that writers have replaced."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.audit import list_entries
from sparkcrypt.ledger.journal.journal import Journal, has_ended
from sparkcrypt.ledger.new_files import NewFiles
from sparkcrypt.ledger.state.store import StateStore, open_state_store
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.past_run import past_runs
from sparkcrypt.runs.old_folders.problems import Decision
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.passes.resolve_problem import resolve_problem
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.rewrite.swap import FolderSwap, LocationSwap
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.killing import after_swaps
from tests.spark.late_writers import audits
from tests.spark.support import SECRET, Lake, data_files, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, make_table, tagged

pytestmark = pytest.mark.spark

WAYS = [pytest.param(PARTITIONED["using"], LocationSwap, id="location"),
        pytest.param(UNPARTITIONED["using"], FolderSwap, id="folder")]  # fmt: skip


def pass_over(lake: Lake, policy: Policy) -> Any:
    """Run a pass that goes on after a unit that fails."""
    return backfill(
        lake.spark, policy, tables=["t"], options=PassOptions(run=RunOptions(keep_going=True, parallelism=1))
    )


def fails_after(function: Callable[..., Any], patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Make a function do its work, then fail, once."""
    left = [True]

    def failing(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        if left:
            left.clear()
            raise VerificationError("the answer was lost")
        return result

    patch.setattr(owner, name, failing)


def runs_that_ended(lake: Lake, policy: Policy) -> list[bool]:
    """Tell of every run of the table whether it is finished."""
    with past_runs(lake.spark, "t", policy, "look", None) as runs:
        return [has_ended(runs.journal(run_id)) for run_id in runs.ids()]


@pytest.mark.parametrize(("create", "way"), WAYS)
@pytest.mark.parametrize("step", ["swap", "record", "record, by the JVM"])
def test_lost_answer_leaves_the_run_unfinished_until_it_is_written_down(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, create: str, way: type[Any], step: str
) -> None:
    """A swap whose answer, or whose record, is lost ends the run; the next one records it and does the rest."""
    policy, before = tagged(lake, create)
    units = 2 if way is LocationSwap else 1
    if step == "swap":
        fails_after(way.swap_all, monkeypatch, way, "swap_all")
    else:
        append, left = Journal.append_all, [True]

        def failing(self: Journal, records: Any) -> Any:
            if left and any(kind == "unit_swapped" for kind, _ in records):
                left.clear()
                if "JVM" in step:  # as a file system does that fails while a record is written
                    lake.jvm.java.io.FileReader("/nowhere")
                raise VerificationError("the record cannot be written")
            return append(self, records)

        monkeypatch.setattr(Journal, "append_all", failing)
    report = pass_over(lake, policy)
    assert [failure.error for failure in report.failed] == ["RunConflictError"]
    assert "could not be written down" in report.failed[0].message
    assert audits(lake, policy) == []
    assert runs_that_ended(lake, policy) == [False]
    with pytest.raises(VerificationError, match="does not say what came of that"):
        verify_table(lake.spark, "t", policy, manifest=True)
    report = pass_over(lake, policy)
    assert (report.outcome, runs_that_ended(lake, policy)) == ("done", [True])
    assert audits(lake, policy) == ["encrypt"] * units
    assert expire_run(lake.spark, "t", policy).files == 4
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


@pytest.mark.parametrize(("create", "way"), WAYS)
def test_rows_on_both_sides_of_a_swap_are_kept(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, create: str, way: type[Any]
) -> None:
    """Where writers reached the old files and the new ones, the swap stays and is recorded; no row is lost."""
    policy, before = tagged(lake, create)
    left = [True]

    def write(swap: Any, new: NewFiles) -> None:
        files, old = HadoopFiles(lake.spark), swap.old_location(new.unit)
        content = files.read(new.unit.files[0].path.replace(new.unit.location, old))
        if left:
            left.clear()
            files.write_new(f"{old}/part-late.parquet", content)
            files.write_new(f"{swap.final_location(new.unit, new.staged)}/part-later.parquet", content)

    after_swaps(monkeypatch, way, write)
    report = pass_over(lake, policy)
    lake.spark.catalog.refreshTable("t")
    rows = len(rows_of(lake.spark.table("t"))) - len(before)
    assert runs_that_ended(lake, policy) == [True]
    if way is LocationSwap:
        assert audits(lake, policy) == ["encrypt", "encrypt", "carry over"]
        assert (report.outcome, rows) == ("done", 2 * 1)
        expire_run(lake.spark, "t", policy)
    else:
        assert audits(lake, policy) == ["encrypt"]
        assert report.outcome == "incomplete"
        assert "part-late.parquet is in the old folder" in str(report.to_dict())
        with pytest.raises(VerificationError, match=r"part-late\.parquet is in the old folder"):
            expire_run(lake.spark, "t", policy)


def test_statistics_that_cannot_be_put_back_are_told(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit is done and recorded, and the report says what to run."""
    policy, before = tagged(lake, PARTITIONED["using"])
    lake.spark.sql("ANALYZE TABLE t COMPUTE STATISTICS")

    def failing(self: Catalog, *_: Any) -> None:
        try:
            self._catalog.alterTableStats(None, None)
        except JVM_ERRORS:
            raise
        raise AssertionError("the catalog took no statistics for no table")

    monkeypatch.setattr(Catalog, "restore_statistics", failing)
    report = pass_over(lake, policy)
    assert report.outcome == "done"
    assert "run ANALYZE TABLE" in str(report.to_dict())
    assert audits(lake, policy) == ["encrypt", "encrypt"]
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before


def test_staged_files_that_cannot_be_deleted_do_not_hide_why_a_unit_failed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error that matters is reported, the journal names what was left, and `expire` deletes it."""
    policy, before = tagged(lake, PARTITIONED["using"])
    give, delete, failed = HadoopFiles.set_access, HadoopFiles.delete_tree, [False]

    def failing(self: HadoopFiles, *_: Any) -> None:
        failed[0] = True
        raise VerificationError("the access cannot be copied")

    def stuck(self: HadoopFiles, path: str) -> None:
        if failed[0]:
            failed[0] = False
            raise VerificationError("the folder cannot be deleted")
        delete(self, path)

    monkeypatch.setattr(HadoopFiles, "set_access", failing)
    monkeypatch.setattr(HadoopFiles, "delete_tree", stuck)
    report = pass_over(lake, policy)
    assert [unit["message"] for unit in report.tables[0].quarantined] == ["the access cannot be copied"] * 2
    with past_runs(lake.spark, "t", policy, "look", None) as runs:
        errors = [
            record.fields["error"] for record in runs.journal(runs.ids()[0]).records if record.kind == "unit_failed"
        ]
    assert all("the access cannot be copied; what was staged is left at file:" in text for text in errors)
    monkeypatch.setattr(HadoopFiles, "set_access", give)
    monkeypatch.setattr(HadoopFiles, "delete_tree", delete)
    assert pass_over(lake, policy).outcome == "done"
    expire_run(lake.spark, "t", policy)
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    in_use = {Path(path.removeprefix("file:")) for path in lake.spark.table("t").inputFiles()}
    everything = {path for path in (lake.root / "db").rglob("*.parquet") if path.is_file()}
    assert {path.resolve() for path in everything} == {path.resolve() for path in in_use}


def encrypted(lake: Lake, partitions: int, *, expired: bool = True) -> Policy:
    """Make a table of two files per partition, and run over it."""
    make_table(lake, "t", partitions=partitions)
    policy = lake.policy()
    for p in range(partitions):
        lake.sql(f"INSERT INTO t VALUES ({p + 100}, '{SECRET}-{p + 100}', 1.0, {p})")
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    if expired:
        expire_run(lake.spark, "t", policy)
    return policy


def overwrite(lake: Lake, p: int, *numbers: int) -> None:
    """Replace the files of a partition by those of a statement in a session under the policy."""
    rows = ", ".join(f"({n}, '{SECRET}-{n}', 1.0)" for n in numbers)
    lake.sql(f"INSERT OVERWRITE t PARTITION (p = {p}) SELECT * FROM VALUES {rows}")


def run_pass(lake: Lake, policy: Policy) -> Report:
    """Run over the table as a pass does, which leaves out what it must not touch."""
    return encrypt_table(lake.spark, "t", policy, keep_going=True)


def folder(lake: Lake, p: int) -> Path:
    """Return where a partition's files are now."""
    catalog = Catalog(lake.spark)
    (found,) = catalog.partitions(catalog.table("t"), {"p": str(p)})
    return Path(found.location.removeprefix("file:"))


def contents(place: Path) -> Mapping[str, bytes]:
    """Return the files in a folder."""
    return {file.name: file.read_bytes() for file in place.iterdir() if not file.name.startswith((".", "_"))}


def put(place: Path, files: Mapping[str, bytes]) -> None:
    """Replace what is in a folder, as whoever may write to the storage can."""
    shutil.rmtree(place)
    place.mkdir()
    for name, content in files.items():
        (place / name).write_bytes(content)


def store_of(lake: Lake, policy: Policy) -> tuple[StateStore, str]:
    """Return the state directory, and the table's id in it."""
    return open_state_store(policy.run_state), str(Catalog(lake.spark).table("t").uuid)


def told(lake: Lake, policy: Policy) -> list[tuple[str, str]]:
    """Return what the audit says, and of which unit."""
    return [(entry.entry["what"], entry.entry["unit"]["unit"]) for entry in list_entries(*store_of(lake, policy), None)]


def is_listed(lake: Lake, policy: Policy) -> bool:
    """Tell whether every file that should be there by the list is there unchanged."""
    found = verify_table(lake.spark, "t", policy, manifest=True)
    assert found.manifest is not None
    assert not found.manifest.ok or found.ok
    return found.manifest.ok


@pytest.mark.parametrize("expired", [True, False])
def test_pass_records_what_writers_replaced(lake: Lake, expired: bool) -> None:
    """Overwrites, a compaction, an erasure, and dropped partitions: after a pass the list is that of the new files."""
    policy = encrypted(lake, 5, expired=expired)
    overwrite(lake, 0, 7, 8)
    overwrite(lake, 1, 1, 101)  # a compaction: the same rows in other files
    overwrite(lake, 2, 2)
    lake.sql("ALTER TABLE t DROP PARTITION (p = 3)")
    lake.sql("ALTER TABLE t DROP PARTITION (p = 4)")
    if expired:  # else the old files, which are there yet, would come back
        lake.sql(f"INSERT INTO t VALUES (9, '{SECRET}-9', 1.0, 4)")
    assert not is_listed(lake, policy)
    assert run_pass(lake, policy).outcome == "nothing to do"
    assert is_listed(lake, policy)
    entries = told(lake, policy)
    assert sorted(entry for entry in entries if entry[0] == "replaced") == [("replaced", f"p={p}") for p in range(5)]
    assert run_pass(lake, policy).outcome == "nothing to do"
    assert told(lake, policy) == entries
    data_files(folder(lake, 0))[0].unlink()
    assert not is_listed(lake, policy), "the list has the files of the writer"


def test_pass_records_an_overwritten_table_without_partitions(lake: Lake) -> None:
    """The only unit of a table is no other."""
    lake.sql(UNPARTITIONED["using"])
    policy = lake.policy()
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}-1', 'note')")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    lake.sql(f"INSERT OVERWRITE t VALUES (2, '{SECRET}-2', 'note')")
    assert not is_listed(lake, policy)
    assert run_pass(lake, policy).outcome == "nothing to do"
    assert is_listed(lake, policy)


def encrypted_orc(lake: Lake) -> Policy:
    """Make an ORC table of two partitions, and run over it."""
    policy = lake.policy(more="formats: [parquet, orc]\n")
    with lake.stranger() as stranger:
        stranger.sql("CREATE TABLE t (id INT, email STRING, pay DOUBLE, p INT) USING orc PARTITIONED BY (p)")
        for p in range(2):
            stranger.sql(f"INSERT INTO t VALUES ({p}, '{SECRET}-{p}', 1.0, {p})")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    expire_run(lake.spark, "t", policy)
    return policy


def altered(files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return ORC files of which a byte of a stream is another, so that their digests are others too."""
    return {name: content[:4] + bytes((content[4] ^ 1,)) + content[5:] for name, content in files.items()}


def test_pass_records_replaced_orc_units_but_no_replayed_files(lake: Lake) -> None:
    """An overwrite ends the alarm; earlier files do not, as they were, with a changed byte, or renamed."""
    policy = encrypted_orc(lake)
    run_generation = contents(folder(lake, 0))
    overwrite(lake, 0, 7, 8)
    assert not is_listed(lake, policy)
    assert run_pass(lake, policy).outcome == "nothing to do"
    assert is_listed(lake, policy)
    session_generation = contents(folder(lake, 0))
    overwrite(lake, 0, 9)
    run_pass(lake, policy)
    assert is_listed(lake, policy)
    now = contents(folder(lake, 0))
    replays = [run_generation, session_generation, altered(run_generation), altered(session_generation)]
    replays.append({f"x{name}": content for name, content in session_generation.items()})
    for earlier in replays:
        assert earlier
        put(folder(lake, 0), earlier)
        assert run_pass(lake, policy).outcome == "incomplete"
        assert not is_listed(lake, policy)
    set_tags(lake.spark, "t", {"pay": ["pii"]}, policy)  # now a run would rewrite what it finds
    put(folder(lake, 0), altered(session_generation))
    assert run_pass(lake, policy).outcome == "incomplete"
    assert contents(folder(lake, 0)) == altered(session_generation)
    put(folder(lake, 0), now)
    run_pass(lake, policy)  # which closes the problem
    assert run_pass(lake, policy).outcome == "done"
    assert is_listed(lake, policy)


@pytest.mark.parametrize("expired", [True, False])
def test_deleted_and_replayed_files_are_never_recorded(lake: Lake, expired: bool) -> None:
    """Whoever may write to the storage deletes and replays files; no pass makes the list agree with that."""
    policy = encrypted(lake, 4, expired=expired)
    run_generation = contents(folder(lake, 0))
    overwrite(lake, 0, 7)
    run_pass(lake, policy)
    session_generation = contents(folder(lake, 0))
    overwrite(lake, 0, 8)
    run_pass(lake, policy)
    now = contents(folder(lake, 0))
    assert is_listed(lake, policy)
    for earlier in (run_generation, session_generation, {**session_generation, "x" + next(iter(now)): b""}):
        put(folder(lake, 0), earlier)
        for _ in range(2):
            assert run_pass(lake, policy).outcome == "incomplete"
            assert not is_listed(lake, policy)
    put(folder(lake, 0), now)
    run_pass(lake, policy)
    assert is_listed(lake, policy)
    lake.sql(f"INSERT INTO t VALUES (9, '{SECRET}-9', 1.0, 0)")
    run_pass(lake, policy)
    added = contents(folder(lake, 0)).keys() - now.keys()
    put(folder(lake, 0), {name: contents(folder(lake, 0))[name] for name in added})
    for _ in range(2):
        assert run_pass(lake, policy).outcome == "incomplete"
        assert not is_listed(lake, policy)
    # A deleted file; all of a folder; a copy of another partition's file in the place of a partition's own.
    data_files(folder(lake, 1))[0].unlink()
    put(folder(lake, 2), {})
    put(folder(lake, 3), contents(folder(lake, 1)))
    for _ in range(2):
        run_pass(lake, policy)
        found = verify_table(lake.spark, "t", policy, manifest=True)
        assert found.manifest is not None
        gone = {Path(path).parent.name for path in found.manifest.missing}
        assert gone == {"p=0", "p=1", "p=2", "p=3"}


def test_run_over_replayed_or_thinned_files_makes_no_list_of_them(lake: Lake) -> None:
    """Where the plan has changed, a run rewrites what it finds: no list takes replayed files, or forgets lost ones."""
    policy = encrypted(lake, 3)
    earlier = contents(folder(lake, 0))
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    expire_run(lake.spark, "t", policy)
    put(folder(lake, 0), earlier)
    assert run_pass(lake, policy).outcome == "incomplete"
    assert not is_listed(lake, policy)
    assert contents(folder(lake, 0)) == earlier
    (problem,) = run_pass(lake, policy).problems
    data_files(folder(lake, 1))[0].unlink()
    set_tags(lake.spark, "t", {"pay": ["pii"]}, policy)
    for _ in range(2):
        report = run_pass(lake, policy)
        assert report.outcome == "incomplete"
        assert not is_listed(lake, policy)
    other = next(known for known in report.problems if known["unit"] == "p=1")
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "restored from a backup"))
    resolve_problem(lake.spark, "t", policy, other["problem"], Decision("new", "deleted by hand"))
    assert run_pass(lake, policy).outcome == "done"
    assert is_listed(lake, policy)


@pytest.mark.parametrize("expired", [True, False])
def test_emptied_unit_waits_for_a_person(lake: Lake, expired: bool) -> None:
    """TRUNCATE and a deletion of every file look alike: the list stays, until somebody says that the rows are gone."""
    policy = encrypted(lake, 2, expired=expired)
    lake.sql("TRUNCATE TABLE t PARTITION (p = 0)")
    for _ in range(2):
        report = run_pass(lake, policy)
        assert report.outcome == "incomplete"
        assert not is_listed(lake, policy)
    (problem,) = report.problems
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "TRUNCATE"))
    assert is_listed(lake, policy)
    assert run_pass(lake, policy).outcome == "nothing to do"
    overwrite(lake, 0, 5)
    run_pass(lake, policy)
    assert is_listed(lake, policy)


def test_pass_reads_no_more_of_a_longer_history(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over a table as it is listed reads as many records of the audit after ten overwrites as after two."""
    policy = encrypted(lake, 2)
    read: list[str] = []
    original = StateStore.read

    def count(self: StateStore, name: str) -> bytes | None:
        read.append(name)
        return original(self, name)

    def read_by_pass() -> list[str]:
        run_pass(lake, policy)
        with monkeypatch.context() as patched:
            patched.setattr(StateStore, "read", count)
            read.clear()
            assert run_pass(lake, policy).outcome == "nothing to do"
        return [name for name in read if name.startswith(("log/", "cache/listed/"))]

    def overwrite_and_count(times: int) -> int:
        for number in range(times):
            overwrite(lake, 0, number)
            run_pass(lake, policy)
        return len(read_by_pass())

    assert overwrite_and_count(2) == overwrite_and_count(8)

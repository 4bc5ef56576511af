"""Writers that are late, and connections that break."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import PlanError, RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.new_files import NewFiles
from sparkcrypt.ledger.state.lock import acquire
from sparkcrypt.ledger.state.store import open_state_store
from sparkcrypt.runs.old_folders import late_commits as carry_module
from sparkcrypt.runs.old_folders.expire import ExpiryOptions, expire_run
from sparkcrypt.runs.old_folders.problems import Decision
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.passes.report import PassReport
from sparkcrypt.runs.passes.resolve_problem import resolve_problem
from sparkcrypt.runs.rewrite.context import append_audit
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.rewrite.swap import FolderSwap, LocationSwap
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.identity import ensure_identity
from sparkcrypt.spark.tables.tagging import set_tags
from tests.journals import find_unfinished
from tests.spark.killing import Clock, after_record, after_swaps, kill
from tests.spark.late_writers import OnAdvance, audits, ids, leave
from tests.spark.support import SECRET, Lake, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, tagged

pytestmark = pytest.mark.spark


def left_folder(lake: Lake) -> Path:
    """Return a folder that a run has left already: which unit comes first depends on the files' age."""
    partitions = Catalog(lake.spark).partitions(Catalog(lake.spark).table("t"))
    folder, *_ = {partition.folder for partition in partitions if "/.sparkcrypt/" in partition.location}
    return lake.path("t") / folder


def one_by_one(progress: Progress | None = None) -> PassOptions:
    """Options under which units are done one after the other."""
    return PassOptions(run=RunOptions(keep_going=True, parallelism=1, progress=progress))


def test_rows_left_during_a_run_are_carried_over_at_its_end(lake: Lake) -> None:
    """A file that comes to a swapped unit's old folder during the run is in the table, encrypted, when it ends."""
    policy, before = tagged(lake, PARTITIONED["using"])
    late = OnAdvance(lambda: leave(lake, left_folder(lake), 77))
    report = backfill(lake.spark, policy, tables=["t"], options=one_by_one(late))
    assert report.outcome == "done"
    assert ids(lake) == [*sorted(row.id for row in before), 77]
    manifest = verify_table(lake.spark, "t", policy, manifest=True).manifest
    assert manifest is not None and manifest.to_dict() == {
        "files": 5, "missing": [], "changed": [], "unlisted": [],
    }  # fmt: skip
    assert audits(lake, policy) == ["encrypt", "encrypt", "carry over"]
    assert expire_run(lake.spark, "t", policy).carried == 0
    assert ids(lake) == [*sorted(row.id for row in before), 77]


@pytest.mark.parametrize("after", ["unit_carrying", "the rename", "the audit"])
def test_killed_carrying_neither_loses_nor_doubles(lake: Lake, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    """Wherever an expire is killed while it carries over, the next one ends with each row once."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    leave(lake, lake.path("t") / "p=1", 77)
    leave(lake, lake.path("t") / "p=1", 78)
    append = Journal.append_all
    with monkeypatch.context() as patch:

        def killed(*arguments: Any, **named: Any) -> Any:
            if after == "the audit":
                append_audit(*arguments, **named)
            raise KeyboardInterrupt

        def appended(journal: Journal, records: Any) -> Any:
            written = append(journal, records)
            if any(kind == after for kind, _ in records):
                raise KeyboardInterrupt
            return written

        if after == "unit_carrying":
            patch.setattr(Journal, "append_all", appended)
        else:
            patch.setattr(carry_module, "append_audit", killed)
        with pytest.raises(KeyboardInterrupt):
            expire_run(lake.spark, "t", policy)
    expire_run(lake.spark, "t", policy)
    assert ids(lake) == [*sorted(row.id for row in before), 77, 78]
    assert verify_table(lake.spark, "t", policy).ok
    assert not (lake.path("t") / "p=1").exists()


def test_stale_overwrite_is_not_carried_over(lake: Lake) -> None:
    """Where listed files are gone and others came, nobody can tell what the table should hold: expire refuses."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    folder = lake.path("t") / "p=0"
    for file in folder.glob("part-*"):
        file.unlink()
    leave(lake, folder, 77)
    assert "a late commit overwrote the unit there" in expire_run(lake.spark, "t", policy).refused["p=0"]
    assert len(list(folder.glob("part-*"))) == 1
    assert ids(lake) == sorted(row.id for row in before)


def test_expire_deletes_nothing_while_a_writer_may_come_back_to_it(lake: Lake) -> None:
    """A writer that began before the swap commits to the old folder, where nobody would look for it after expire."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    for name, seconds in (
        (".spark-staging-6a1f", 60),
        (".hive-staging_hive_1", 60),
        ("__magic_job-1", 60),
        ("_temporary", -60),
    ):
        writing = lake.path("t") / name
        writing.mkdir()
        os.utime(writing, (time.time() + seconds, time.time() + seconds))
        with pytest.raises(VerificationError, match=f"{name} is there, so a writer that began before the swap may"):
            expire_run(lake.spark, "t", policy)
        assert len(list(lake.path("t").glob("p=*/part-*"))) == len(before)
        writing.rmdir()
    later = lake.path("t") / "_temporary"
    later.mkdir()
    os.utime(later, (time.time() + 600, time.time() + 600))
    assert expire_run(lake.spark, "t", policy).files == len(before)


def test_older_rows_do_not_come_back_after_an_overwrite(lake: Lake) -> None:
    """Where the new files were overwritten since, a stale file is not put beside what replaced them."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    # A static overwrite would delete what is in the partition's ordinary folder too, though it lies elsewhere now.
    lake.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    lake.sql(f"INSERT OVERWRITE t VALUES (50, '{SECRET}-50', 'new', 0)")
    after = ids(lake)
    leave(lake, lake.path("t") / "p=0", 77)
    why = expire_run(lake.spark, "t", policy).refused["p=0"]
    assert "has replaced the unit's rows since, so older ones must not come back" in why
    assert ids(lake) == after


def test_forged_file_is_not_carried_over(lake: Lake) -> None:
    """A plaintext file in the old folder of a table that requires encryption may be forged: it is named and stays."""
    policy, before = tagged(lake, PARTITIONED["using"])
    policy = lake.policy(tables=f"  {lake.name('t')}: {{require_encryption: true}}\n", algorithm=policy.algorithm)
    encrypt_table(lake.spark, "t", policy, adopt=True)
    leave(lake, lake.path("t") / "p=0", 66)
    assert "requires encryption, so this file may be a forgery" in expire_run(lake.spark, "t", policy).refused["p=0"]
    assert ids(lake) == sorted(row.id for row in before)


def test_folder_in_which_somebody_writes_is_not_renamed(lake: Lake) -> None:
    """A managed table is swapped by renaming its folder, which would take a running write with it: the run waits."""
    policy, before = tagged(lake, UNPARTITIONED["using"])
    (lake.path("t") / "_temporary" / "0").mkdir(parents=True)
    with pytest.raises(VerificationError, match="_temporary is there, so someone is writing"):
        encrypt_table(lake.spark, "t", policy)
    assert rows_of(lake.spark.table("t")) == before
    shutil.rmtree(lake.path("t") / "_temporary")
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"


@pytest.mark.parametrize("kind", ["partitioned", "external", "managed"])
def test_paused_driver_is_fenced_off(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
    kind: str,
) -> None:
    """A driver that sleeps between its look at the lock and its swap, while another finishes the run, does no harm.

    Readers find the right rows when it has woken up, it ends with a conflict, and the next run finds all in order.
    """
    create = PARTITIONED["using"] if kind == "partitioned" else UNPARTITIONED["using"]
    if kind == "external":
        create += f" LOCATION '{(lake.root / 'external').as_uri()}'"
    policy, before = tagged(lake, create)
    swap_class = FolderSwap if kind == "managed" else LocationSwap
    swap_all = swap_class.swap_all
    slept: list[str] = []

    def paused(self: Any, several: Any) -> Any:
        if not slept:
            slept.append(several[0].unit.name)
            clock.now += 1_000  # the lock expires, and another driver comes
            other = encrypt_table(lake.spark, "t", policy)
            assert other.outcome == "done"
            assert rows_of(lake.spark.table("t")) == before
        return swap_all(self, several)

    monkeypatch.setattr(swap_class, "swap_all", paused)
    with pytest.raises(SparkcryptError) as ended:
        encrypt_table(lake.spark, "t", policy)
    assert isinstance(ended.value, VerificationError | RunConflictError) or kind == "managed"
    monkeypatch.undo()
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    encrypt_table(lake.spark, "t", policy)
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy).ok


def test_driver_that_wakes_up_after_its_last_look_gives_way(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
) -> None:
    """The worst moment, right before ALTER: the driver then points the partition to where the other had put it.

    What somebody wrote there meanwhile is found again.
    """
    policy, before = tagged(lake, PARTITIONED["using"])
    move_partitions = Catalog.move_partitions
    slept: list[str] = []

    def paused(self: Catalog, table: Any, moves: Any) -> Any:
        if not slept:
            slept.append(moves[0].location)
            clock.now += 1_000
            assert encrypt_table(lake.spark, "t", policy).outcome == "done"
            lake.sql(f"INSERT INTO t VALUES (77, '{SECRET}-77', 'new', 0)")
        return move_partitions(self, table, moves)

    monkeypatch.setattr(Catalog, "move_partitions", paused)
    with pytest.raises(RunConflictError, match="no longer holds the lock"):
        encrypt_table(lake.spark, "t", policy)
    monkeypatch.undo()
    after = [*sorted(row.id for row in before), 77]
    assert ids(lake) == after
    set_tags(lake.spark, "t", {"note": ["pii"]}, policy)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    assert ids(lake) == after
    assert expire_run(lake.spark, "t", policy).carried == 0
    assert ids(lake) == after
    assert verify_table(lake.spark, "t", policy).ok


def test_readers_of_an_undone_swap_find_its_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader who listed a unit between its swap and the undoing finishes: what was staged stays until expire."""
    policy, before = tagged(lake, PARTITIONED["using"])
    readers: list[Any] = []

    def read(_swap: Any, _new: NewFiles) -> None:
        if not readers:
            lake.spark.catalog.refreshTable("t")
            frame = lake.spark.table("t")
            frame._jdf.queryExecution().toRdd().getNumPartitions()  # it has its list of files now
            readers.append(frame)
            leave(lake, lake.path("t") / "p=0", 77)

    after_swaps(monkeypatch, LocationSwap, read)
    monkeypatch.setattr("sparkcrypt.runs.passes.units.PAUSES_SECONDS", (0.0,))
    options = PassOptions(run=RunOptions(keep_going=True, parallelism=1))
    assert backfill(lake.spark, policy, tables=["t"], options=options).outcome == "done"
    assert rows_of(readers[0]) == before
    assert ids(lake) == [*sorted(row.id for row in before), 77]
    expire_run(lake.spark, "t", policy)
    assert ids(lake) == [*sorted(row.id for row in before), 77]
    used = {
        part.location.removeprefix("file:") for part in Catalog(lake.spark).partitions(Catalog(lake.spark).table("t"))
    }
    left = {str(file.parent) for file in (lake.root / "db").rglob("*.parquet")}
    assert left == used


class UndoneSwaps:
    """The folders of swaps that are undone: while one is in effect, somebody adds a row to the old files."""

    def __init__(self) -> None:
        """Let one be undone."""
        self.folders: list[Path] = []
        self.most = 1


@pytest.fixture
def undone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> UndoneSwaps:
    """Swaps of the partition ``p=0`` that are undone."""
    done = UndoneSwaps()

    def write(swap: Any, new: NewFiles) -> None:
        if len(done.folders) < done.most and new.unit.name == "p=0":
            done.folders.append(Path(urlsplit(new.staged).path))
            leave(lake, Path(urlsplit(swap.old_location(new.unit)).path), 69 + len(done.folders))

    after_swaps(monkeypatch, LocationSwap, write)
    return done


@pytest.mark.parametrize("next_command", ["backfill", "expire"])
def test_commit_to_a_swap_that_was_undone_is_carried_over(lake: Lake, undone: UndoneSwaps, next_command: str) -> None:
    """A writer planned while the swap was in effect, and commits when the unit is long swapped to another folder."""
    policy, before = tagged(lake, PARTITIONED["using"])
    assert backfill(lake.spark, policy, tables=["t"], options=one_by_one()).outcome == "done"
    leave(lake, undone.folders[0], 77)
    if next_command == "backfill":
        assert backfill(lake.spark, policy, tables=["t"], options=one_by_one()).outcome == "nothing to do"
        assert ids(lake) == [*sorted(row.id for row in before), 70, 77]
    assert expire_run(lake.spark, "t", policy, options=ExpiryOptions(dry_run=True)).carried == (
        next_command == "expire"
    )
    assert expire_run(lake.spark, "t", policy).carried == (next_command == "expire")
    assert ids(lake) == [*sorted(row.id for row in before), 70, 77]
    assert not undone.folders[0].exists()
    assert audits(lake, policy) == ["encrypt", "encrypt", "carry over"]


def test_overwrite_of_a_swap_that_was_undone_is_a_problem(lake: Lake, undone: UndoneSwaps) -> None:
    """It removed what the run had made there, so its rows replace the unit's: they are not put beside them."""
    policy, before = tagged(lake, PARTITIONED["using"])
    assert backfill(lake.spark, policy, tables=["t"], options=one_by_one()).outcome == "done"
    for file in undone.folders[0].glob("part-*"):
        file.unlink()
    leave(lake, undone.folders[0], 77)
    (problem,) = backfill(lake.spark, policy, tables=["t"], options=one_by_one()).tables[0].problems
    assert (problem["unit"], problem["kind"]) == ("p=0", "overwritten")
    assert ids(lake) == [*sorted(row.id for row in before), 70]
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "the table is right"))
    assert backfill(lake.spark, policy, tables=["t"], options=one_by_one()).outcome == "nothing to do"
    expire_run(lake.spark, "t", policy)
    assert not undone.folders[0].exists()


def test_commit_to_an_undone_swap_of_a_unit_that_failed_is_a_problem(lake: Lake, undone: UndoneSwaps) -> None:
    """The unit is as it was, so nothing is carried over: a person inserts the rows, and then they may expire."""
    policy, before = tagged(lake, PARTITIONED["using"])
    undone.most = 50
    assert backfill(lake.spark, policy, tables=["t"], options=one_by_one()).outcome == "incomplete"
    added, undone.most = len(undone.folders), 0
    leave(lake, undone.folders[0], 77)
    report = backfill(lake.spark, policy, tables=["t"], options=one_by_one())
    (problem,) = report.tables[0].problems
    assert (report.exit_code, problem["kind"]) == (74, "came to a swap that was undone")
    assert undone.folders[0].as_posix() in problem["message"]
    expire_run(lake.spark, "t", policy)
    assert len(list(undone.folders[0].glob("part-*"))) > 1
    with pytest.raises(VerificationError, match="--keep new"):
        resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("old", "put it back"))
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "its row was inserted"))
    assert backfill(lake.spark, policy, tables=["t"], options=one_by_one()).outcome == "nothing to do"
    expire_run(lake.spark, "t", policy)
    assert not undone.folders[0].exists()
    assert ids(lake) == [*sorted(row.id for row in before), *range(70, 70 + added)]


class Flaky:
    """The session catalog, whose connection breaks the first few times that something is asked."""

    def __init__(self, catalog: Any, lake: Lake, breaks: dict[str, int]) -> None:
        """Take the catalog, and how often each question fails."""
        self._catalog, self._lake, self._breaks = catalog, lake, breaks

    def __getattr__(self, name: str) -> Any:
        """Return a method that fails as a refused connection does; the external catalog is as flaky."""
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "externalCatalog":
            return lambda: Flaky(self._catalog.externalCatalog(), self._lake, self._breaks)

        def called(*arguments: Any) -> Any:
            if self._breaks.get(name, 0) > 0:
                self._breaks[name] -= 1
                self._lake.jvm.java.net.Socket("127.0.0.1", 1)
            return getattr(self._catalog, name)(*arguments)

        return called


def breaking(monkeypatch: pytest.MonkeyPatch, lake: Lake, **breaks: int) -> None:
    """Let the metastore's connection break so many times at some questions."""
    made = Catalog.__init__

    def init(self: Catalog, spark: Any) -> None:
        made(self, spark)
        self._catalog = Flaky(self._catalog, lake, breaks)

    monkeypatch.setattr(Catalog, "__init__", init)
    monkeypatch.setattr("sparkcrypt.spark.tables.catalog.PAUSE_SECONDS", 0.0)


def test_one_broken_connection_is_no_answer(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass goes on where the metastore's connection breaks once at each kind of question."""
    policy, before = tagged(lake, PARTITIONED["using"])
    breaking(monkeypatch, lake, getTable=1, listPartitions=1, listDatabases=1, listTables=1)
    assert backfill(lake.spark, policy, databases=[lake.database]).outcome == "done"
    monkeypatch.undo()
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before


def test_metastore_that_stays_away_is_not_a_table_that_is_not_there(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the second attempt fails too, the error says that the metastore cannot be asked."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    breaking(monkeypatch, lake, getTable=1_000)
    with pytest.raises(Exception, match="the metastore cannot be asked") as caught:
        encrypt_table(lake.spark, "t", policy)
    assert not isinstance(caught.value, PlanError)


def test_metastore_is_not_asked_for_partitions_for_each_unit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six partitions more are not six more questions for all partitions; what grew old may be asked for again."""
    counts = []
    for partitions in (2, 8):
        lake.sql(f"CREATE TABLE w{partitions} (id INT, email STRING, p INT) USING parquet PARTITIONED BY (p)")
        values = ", ".join(f"({n}, 'x', {n})" for n in range(partitions))
        lake.sql(f"INSERT INTO w{partitions} VALUES {values}")
        policy = lake.policy()
        lake.sql(f"ALTER TABLE w{partitions} SET TBLPROPERTIES ('x' = 'y')")
        from sparkcrypt.spark.tables.tagging import set_tags

        set_tags(lake.spark, f"w{partitions}", {"email": ["pii"]}, policy)
        asked: list[Any] = []
        with monkeypatch.context() as patch:
            listed = Catalog.partitions

            def counted(self: Catalog, table: Any, having: Any = None, listed: Any = listed, asked: Any = asked) -> Any:
                asked.append(having)
                return listed(self, table, having)

            patch.setattr(Catalog, "partitions", counted)
            options = RunOptions(keep_going=True, move_old=True)
            report = backfill(lake.spark, policy, tables=[f"w{partitions}"], options=PassOptions(run=options))
        assert report.tables[0].files_rewritten == partitions
        counts.append(len([condition for condition in asked if condition is None]))
    assert counts[1] < counts[0] + 6


def test_pass_over_locked_tables_ends_with_75(lake: Lake) -> None:
    """Where nothing is wrong but that other runs hold tables, a scheduler can tell; with another failure it cannot."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    uuid = ensure_identity(lake.spark, lake.name("t")).uuid or ""
    with acquire(open_state_store(policy.run_state), uuid, run_id="the-first-run", owner="somebody"):
        report = backfill(lake.spark, policy, tables=["t"])
    assert report.exit_code == RunConflictError.exit_code == 75
    assert report.to_dict()["failed"][0]["error"] == "RunConflictError"


@pytest.mark.usefixtures("unit_a_batch")
def test_report_of_a_fenced_run_tells_what_was_done(lake: Lake, clock: Clock) -> None:
    """A driver that loses its lock between two units: its report has the run, the first unit, and why it ended."""
    policy, _ = tagged(lake, PARTITIONED["using"])

    class Pause(Progress):
        """Sleeps before the second swap."""

        def step(self, unit: str, step: str) -> None:
            """Let the lock expire."""
            clock.now += 1_000 if (unit, step) == ("p=1", "swapping") else 0

    options = PassOptions(run=RunOptions(keep_going=True, parallelism=1, progress=Pause()))
    report = backfill(lake.spark, policy, tables=["t"], options=options)
    assert report.exit_code == 75
    (run,) = report.tables
    assert (run.outcome, [unit["unit"] for unit in run.units]) == ("failed", ["p=0"])
    store = open_state_store(policy.run_state)
    assert run.run_id == find_unfinished(store, Catalog(lake.spark).table("t").uuid or "")
    assert json.loads(json.dumps(report.to_dict()))["tables"][0]["run_id"] == run.run_id


@pytest.mark.usefixtures("unit_a_batch")
def test_error_that_ends_everything_leaves_a_report(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever calls hears what was done before the error goes on."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    heard: list[PassReport | Report] = []

    class Break(Progress):
        """Fails in a way that nothing foresees, after the first unit."""

        def step(self, unit: str, step: str) -> None:
            """Fail."""
            if (unit, step) == ("p=1", "staging"):
                raise MemoryError

    run = RunOptions(keep_going=True, parallelism=1, progress=Break())
    with pytest.raises(MemoryError):
        backfill(lake.spark, policy, tables=["t"], options=PassOptions(run=run, on_failure=heard.append))
    with pytest.raises(MemoryError):
        encrypt_table(lake.spark, "t", policy, parallelism=1, progress=Break(), on_failure=heard.append)
    first, second = heard
    assert isinstance(first, PassReport) and isinstance(second, Report)
    assert [unit["unit"] for unit in first.tables[0].units] == [unit["unit"] for unit in second.units] == ["p=0"]
    assert first.tables[0].run_id == second.run_id


@pytest.mark.usefixtures("unit_a_batch")
def test_continued_pass_tells_its_own_part(lake: Lake, clock: Clock) -> None:
    """The report of a run that goes on says what this pass did, beside the run so far."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    kill(lake, policy, clock, after_record("unit_swapped"), parallelism=1)
    report = backfill(lake.spark, policy, tables=["t"])
    (run,) = report.tables
    assert (run.files_rewritten, run.earlier, run.this_pass["files_rewritten"]) == (4, ("p=0",), 2)
    assert report.totals()["files_rewritten"] == 2
    assert "2 files, 2 rows; 1 units were done before it" in run.to_text()
    assert Path(policy.run_state).exists()

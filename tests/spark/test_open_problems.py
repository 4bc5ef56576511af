"""What writers, erasures and compactions do to old folders after a swap: nothing is lost or doubled without a word."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql.functions import udf

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.cli.runs.past_runs import status
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.ledger.state.store import open_state_store
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders import late_commits as carry_module
from sparkcrypt.runs.old_folders import old_folder
from sparkcrypt.runs.old_folders.expire import ExpiryOptions, expire_run
from sparkcrypt.runs.old_folders.problems import Decision
from sparkcrypt.runs.passes.html.page import report_html
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.passes.report import PassReport
from sparkcrypt.runs.passes.resolve_problem import resolve_problem
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.spark.tables.catalog import Catalog
from tests.spark.late_writers import OnAdvance, audits, ids, leave
from tests.spark.passes import the_pass, the_problem
from tests.spark.support import SECRET, Lake, assert_encrypted
from tests.spark.tables import PARTITIONED, UNPARTITIONED, tagged

pytestmark = pytest.mark.spark


@contextmanager
def planned_before(lake: Lake, sql: str, folder: Path) -> Iterator[None]:
    """Begin a statement in a session of its own; it writes, and commits, when the block has ended."""
    folder.mkdir()

    def wait(value: int) -> int:
        (folder / "began").touch()
        until = time.monotonic() + 120
        while not (folder / "go").exists() and time.monotonic() < until:
            time.sleep(0.05)
        return value

    failed: list[BaseException] = []
    with lake.stranger() as stranger:
        stranger.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        stranger.udf.register("wait", udf(wait, "int"))

        def write() -> None:
            try:
                stranger.sql(sql)
            except BaseException as error:  # noqa: BLE001  # the thread's end; the test raises it
                failed.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        while not (folder / "began").exists() and writer.is_alive():
            time.sleep(0.05)
    try:
        yield
    finally:
        (folder / "go").touch()
        writer.join(120)
    assert not failed, failed


def old_files(lake: Lake, partition: str = "p=0") -> list[Path]:
    """Return the data files in a partition's old folder."""
    return sorted((lake.path("t") / partition).glob("part-*"))


def test_overwrite_in_flight_is_kept_until_it_is_resolved(lake: Lake) -> None:
    """A dynamic overwrite planned before the swap and committed after it is an open problem until someone decides.

    Each pass repeats it, status and the page name it, expire keeps its files and deletes those of the other units; in
    favour of the old folder, the table has its rows, encrypted.
    """
    policy, before = tagged(lake, PARTITIONED["using"])
    overwrite = (
        f"INSERT OVERWRITE t SELECT /*+ COALESCE(1) */ wait(id + 100), '{SECRET}-new', 'new', p FROM t WHERE p = 0"
    )
    with planned_before(lake, overwrite, lake.root / "flag"):
        assert the_pass(lake, policy).outcome == "done"
    assert ids(lake) == sorted(row.id for row in before)
    found = the_pass(lake, policy)
    problem = the_problem(found)
    assert (problem["unit"], problem["kind"]) == ("p=0", "overwritten")
    assert the_problem(the_pass(lake, policy, changed=True)) == problem
    dry = expire_run(lake.spark, "t", policy, options=ExpiryOptions(dry_run=True))
    done = expire_run(lake.spark, "t", policy)
    assert dry.folders == done.folders == (f"file:{lake.path('t')}/p=1",)
    assert list(dry.refused) == list(done.refused) == ["p=0"]
    assert problem["problem"] in done.refused["p=0"]
    assert old_files(lake)
    assert not old_files(lake, "p=1")
    with pytest.raises(VerificationError, match=problem["problem"]):
        expire_run(lake.spark, "t", policy)
    assert the_problem(the_pass(lake, policy)) == problem
    file = next(file for file in lake.root.glob("policy-*/policy.yaml"))
    told = CliRunner().invoke(status, ["--policy", str(file), "--table", lake.name("t"), "--json"])
    assert [entry["problem"] for entry in json.loads(told.stdout)["problems"]] == [problem["problem"]]
    assert problem["problem"] in report_html(found.to_dict())
    with pytest.raises(ConfigError, match="reason"):
        resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("old", " "))
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("old", "the overwrite is right"))
    assert ids(lake) == [1, 3, 100, 102]
    assert_encrypted(lake.root / "db" / ".sparkcrypt" / "t", policy, {"email": "pii"}, visible=["note 1"])
    assert verify_table(lake.spark, "t", policy).ok
    assert the_pass(lake, policy).outcome == "nothing to do"
    assert "resolve" in audits(lake, policy)
    assert not expire_run(lake.spark, "t", policy).refused
    assert not old_files(lake)
    assert ids(lake) == [1, 3, 100, 102]


def test_compaction_that_adds_and_then_removes_doubles_no_row(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction has added its file when the old folder is compared, and removes the others a little later."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    folder, listed = lake.path("t") / "p=0", old_files(lake)
    with lake.stranger() as stranger:
        rows = stranger.read.parquet(*map(str, listed))
        rows.coalesce(1).write.mode("append").parquet(str(folder))
    pause = old_folder.pause

    def removed(seconds: float) -> None:
        for file in listed:
            file.unlink(missing_ok=True)
        pause(seconds)

    monkeypatch.setattr(old_folder, "pause", removed)
    problem = the_problem(the_pass(lake, policy))
    assert ids(lake) == sorted(row.id for row in before)
    assert (problem["kind"], len(problem["came"]), len(problem["gone"])) == ("overwritten", 1, 2)
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "a compaction; its rows are there"))
    assert the_pass(lake, policy).outcome == "nothing to do"
    expire_run(lake.spark, "t", policy)
    assert ids(lake) == sorted(row.id for row in before)
    assert old_files(lake) == []


def test_removal_after_a_carry_over_names_both(lake: Lake) -> None:
    """A compaction that removes long after it added has doubled rows, and that is an open problem with both names."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    folder, listed = lake.path("t") / "p=0", old_files(lake)
    with lake.stranger() as stranger:
        rows = stranger.read.parquet(*map(str, listed))
        rows.coalesce(1).write.mode("append").parquet(str(folder))
    assert the_pass(lake, policy).outcome in ("done", "nothing to do")
    assert len(ids(lake)) == 6
    added = next(file for file in old_files(lake) if file not in listed)
    for file in listed:
        file.unlink()
    problem = the_problem(the_pass(lake, policy))
    assert problem["kind"] == "carried over, then removed"
    assert (sorted(problem["gone"]), problem["carried"]) == (sorted(file.name for file in listed), [added.name])
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("old", "it was a compaction"))
    assert ids(lake) == sorted(row.id for row in before)
    assert the_pass(lake, policy).outcome == "nothing to do"


@pytest.mark.parametrize("kind", ["partitioned", "managed", "external"])
def test_erasure_in_the_old_folder_is_an_open_problem(lake: Lake, kind: str) -> None:
    """A job that deletes a file of a person's rows in the old folder has not erased them from the table: it is told."""
    create = PARTITIONED["using"] if kind == "partitioned" else UNPARTITIONED["using"]
    if kind == "external":
        create += f" LOCATION '{(lake.root / 'external').as_uri()}'"
    policy, before = tagged(lake, create)
    report = encrypt_table(lake.spark, "t", policy)
    old = Path(str(report.units[0]["old_location"]).removeprefix("file:"))
    victim = sorted(old.glob("part-*"))[0]
    with lake.stranger() as stranger:
        erased = {row.id for row in stranger.read.parquet(str(victim)).collect()}
    victim.unlink()
    problem = the_problem(the_pass(lake, policy))
    assert (problem["kind"], problem["gone"]) == ("removed", [victim.name])
    if kind == "partitioned":
        assert problem["problem"] in expire_run(lake.spark, "t", policy).refused["p=0"]
    with pytest.raises(VerificationError, match=problem["problem"]):
        expire_run(lake.spark, "t", policy)
    dry = the_pass_dry(lake, policy)
    assert dry.exit_code == 74
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("old", "an erasure"))
    assert ids(lake) == sorted(row.id for row in before if row.id not in erased)
    assert the_pass(lake, policy).outcome == "nothing to do"
    expire_run(lake.spark, "t", policy)
    assert ids(lake) == sorted(row.id for row in before if row.id not in erased)


def the_pass_dry(lake: Lake, policy: Policy) -> PassReport:
    """Run a pass that changes nothing."""
    options = PassOptions(run=RunOptions(keep_going=True, dry_run=True))
    return backfill(lake.spark, policy, tables=["t"], options=options)


def test_old_folder_in_favour_of_which_rows_would_be_lost_is_refused(lake: Lake) -> None:
    """What was written since to the new folder does not vanish because someone decides for the old one."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    old_files(lake)[0].unlink()
    lake.sql(f"INSERT INTO t VALUES (50, '{SECRET}-50', 'new', 0)")
    after = ids(lake)
    problem = the_problem(the_pass(lake, policy))
    with pytest.raises(VerificationError, match="was written after the run"):
        resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("old", "an erasure"))
    assert ids(lake) == after
    assert the_problem(the_pass(lake, policy)) == problem


def test_carry_over_waits_until_a_commit_is_over(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a writer's folder is there its files are not carried over; when it is gone, they are, each row once."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    leave(lake, lake.path("t") / "p=0", 77)
    at_work = lake.path("t") / ".spark-staging-1"
    at_work.mkdir()
    began = time.monotonic()
    problem = the_problem(the_pass(lake, policy))
    assert time.monotonic() - began >= 2.0
    assert (problem["kind"], ids(lake)) == ("a writer at work", sorted(row.id for row in before))
    assert str(at_work) in problem["message"]
    monkeypatch.setattr(old_folder, "MOST_SECONDS", 600.0)
    assert the_problem(the_pass(lake, policy))["problem"] == problem["problem"]  # known: not waited for again
    at_work.rmdir()
    assert the_pass(lake, policy).outcome == "nothing to do"
    assert ids(lake) == [*sorted(row.id for row in before), 77]
    assert audits(lake, policy)[-2:] == ["carry over", "resolve"]


def test_commit_during_the_wait_is_seen(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second file of the same commit that comes while the first is about to be carried over comes with it."""
    policy, before = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    folder = lake.path("t") / "p=0"
    leave(lake, folder, 77)
    pause, later = old_folder.pause, [78, 79]

    def more(seconds: float) -> None:
        if later:
            leave(lake, folder, later.pop(0))
        pause(seconds)

    monkeypatch.setattr(old_folder, "pause", more)
    monkeypatch.setattr(old_folder, "MOST_SECONDS", 60.0)
    the_pass(lake, policy)
    assert ids(lake) == [*sorted(row.id for row in before), 77, 78, 79]
    assert audits(lake, policy).count("carry over") == 1


def test_overwrite_of_the_table_itself_is_no_problem(lake: Lake) -> None:
    """An ordinary static overwrite after the run empties old folders and new ones: its rows are the table's."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    lake.sql(f"INSERT OVERWRITE t VALUES (50, '{SECRET}-50', 'new', 0)")
    assert not the_pass(lake, policy).left_out
    assert ids(lake) == [50]


def test_forged_or_damaged_problem_is_refused(lake: Lake) -> None:
    """A record of an open problem that was edited, or that nobody wrote, is not believed, nor is a planted decision."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    old_files(lake)[0].unlink()
    problem = the_problem(the_pass(lake, policy))
    store, uuid = open_state_store(policy.run_state), Catalog(lake.spark).table("t").uuid
    (name,) = store.list(f"problems/{uuid}/")
    content = store.read(name)
    assert content is not None
    store.create(name.replace(".json", "-resolved.json"), content)
    report = the_pass(lake, policy)
    assert report.exit_code == 74
    assert "where 'resolution' is expected" in json.dumps(report.to_dict())
    assert problem["problem"] in json.dumps(report.to_dict())


def test_late_file_during_a_pass_waits_too(lake: Lake) -> None:
    """At the end of the run itself the same holds: what is removed and what came is told by its own report."""
    policy, before = tagged(lake, PARTITIONED["using"])
    folder = lake.path("t") / "p=0"

    def compact() -> None:
        listed = old_files(lake)
        leave(lake, folder, 77)
        listed[0].unlink()

    options = PassOptions(run=RunOptions(keep_going=True, parallelism=1, progress=OnAdvance(compact)))
    report = backfill(lake.spark, policy, tables=["t"], options=options)
    assert the_problem(report)["kind"] == "overwritten"
    assert ids(lake) == sorted(row.id for row in before)
    assert carry_module.__doc__

"""Passes over many tables: which are chosen, what is left alone, what stops, and how the next pass goes on."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import load_policy, verify_table
from sparkcrypt.cli.frame.known_runs import known_runs
from sparkcrypt.errors import ConfigError, KeyServiceUnavailableError, PlanError, RunConflictError, VerificationError
from sparkcrypt.files import workers
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.store import open_state_store
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.passes.report import PassReport
from sparkcrypt.runs.passes.run import TableJob, encrypt_table, run_table
from sparkcrypt.runs.passes.units import Surveyed, survey_units
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from sparkcrypt.spark.tasks import run as task_runs
from tests.spark.support import SECRET, Lake, assert_plaintext, make_policy, rows_of
from tests.spark.tables import make_table
from tests.unit.backfill.heard_progress import Heard, summed

pytestmark = pytest.mark.spark

TAGS = "\n  pii: {key: pii}\n  finance: {key: fin}\n  public: plaintext\n"


def options(**named: Any) -> PassOptions:
    """Return the options of a pass; those of its runs by their names."""
    run = {name: value for name, value in named.items() if name in RunOptions.__dataclass_fields__}
    own = {name: value for name, value in named.items() if name not in run}
    return PassOptions(run=RunOptions(keep_going=True, **run), **own)


@pytest.fixture
def policy(lake: Lake) -> Policy:
    """A policy of two keys, under which the session is."""
    return lake.policy(TAGS)


def by_table(report: PassReport) -> dict[str, Report]:
    """Return table name without its database -> its report."""
    return {table.table.partition(".")[2]: table for table in report.tables}


def test_database_is_brought_to_its_plan(lake: Lake, policy: Policy) -> None:
    """Every Parquet table of a database is done, a view passed over, an untagged table not even given an identity."""
    make_table(lake, "a")
    make_table(lake, "b", partitions=0)
    make_table(lake, "plain", tagged=None)
    lake.sql("CREATE VIEW v AS SELECT * FROM a")
    before = {name: rows_of(lake.spark.table(name)) for name in ("a", "b", "plain", "v")}
    dry = backfill(lake.spark, policy, databases=[lake.database], options=options(dry_run=True))
    assert (dry.outcome, dry.drifts, dry.totals()["files_left"]) == ("dry run", True, 4)
    assert {unit["unit"] for unit in by_table(dry)["a"].planned} == {"p=0", "p=1", "p=2"}
    assert_plaintext(lake.path("a"))
    report = backfill(lake.spark, policy, databases=[lake.database], options=options(parallelism=3))
    outcomes = {name: entry.outcome for name, entry in by_table(report).items()}
    assert (report.outcome, outcomes) == ("done", {"a": "done", "b": "done", "plain": "untagged"})
    assert list(report.passed_over) == [lake.name("v")]
    for name, rows in before.items():
        lake.spark.catalog.refreshTable(name)
        assert rows_of(lake.spark.table(name)) == rows
    assert verify_table(lake.spark, "a", policy).ok and verify_table(lake.spark, "b", policy).ok
    assert Catalog(lake.spark).table("plain").uuid is None
    assert report.throughput[-1].files == 4
    json.dumps(report.to_dict())
    again = backfill(lake.spark, policy, databases=[lake.database])
    assert (again.outcome, again.totals()["files_rewritten"]) == ("nothing to do", 0)


def test_patterns_choose_tables(lake: Lake, policy: Policy) -> None:
    """A pattern fits names of one database or of many, none stands for all; what fits nothing is an error."""
    for name in ("cust_a", "cust_b", "other"):
        make_table(lake, name, partitions=0)
    report = backfill(lake.spark, policy, tables=[f"{lake.database}.cust_*"])
    assert sorted(by_table(report)) == ["cust_a", "cust_b"]
    assert_plaintext(lake.path("other"))
    with pytest.raises(PlanError, match=r"nothing_\*: fits no table"):
        backfill(lake.spark, policy, tables=["nothing_*"])
    with pytest.raises(PlanError, match="missing: not found"):
        backfill(lake.spark, policy, tables=["missing"])
    everything = backfill(lake.spark, policy, options=options(dry_run=True))
    assert {"cust_a", "cust_b", "other"} <= by_table(everything).keys()


def test_retagged_column_follows(lake: Lake, policy: Policy) -> None:
    """Another tag on a column: every file is re-keyed, and coverage says so for each tag."""
    make_table(lake, "t")
    backfill(lake.spark, policy, tables=["t"])
    before = rows_of(lake.spark.table("t"))
    set_tags(lake.spark, "t", {"email": ["finance"]}, policy)
    dry = backfill(lake.spark, policy, tables=["t"], options=options(dry_run=True)).tables[0]
    assert dry.drift["before"] == {"wrong_key": 3}
    assert [list(unit["actions"]) for unit in dry.planned] == [["re-key"]] * 3
    done = backfill(lake.spark, policy, tables=["t"]).tables[0]
    assert (done.outcome, done.files_rewritten, done.columns) == ("done", 3, {"email": "fin"})
    assert done.coverage["finance"]["before"]["files"] == 0
    assert done.coverage["finance"]["after"]["files"] == done.coverage["finance"]["files"] == 3
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy).ok


def test_new_master_key_is_wrapped_around_the_old_data_keys(lake: Lake) -> None:
    """With rewrap footers alone are new, and the old master key is not needed any more; without, every page is."""
    folder = lake.root / "rotated"
    policy = make_policy(folder, TAGS, keys=["pii2"])
    make_table(lake, "t")
    backfill(lake.spark, policy, tables=["t"])
    before, old = rows_of(lake.spark.table("t")), placed(lake)
    text = (folder / "policy.yaml").read_text()
    (folder / "policy.yaml").write_text(text.replace("pii: {key: pii}", "pii: {key: pii2, history: [pii]}"))
    renewed = load_policy(folder / "policy.yaml")
    dry = backfill(lake.spark, renewed, tables=["t"], options=options(dry_run=True, rewrap=True)).tables[0]
    assert [list(unit["actions"]) for unit in dry.planned] == [["re-wrap"]] * 3
    report = backfill(lake.spark, renewed, tables=["t"], options=options(rewrap=True)).tables[0]
    assert (report.outcome, report.files_rewritten, report.columns) == ("done", 3, {"email": "pii2"})
    new = placed(lake)
    assert new.keys() == old.keys()
    for place, path in new.items():
        data, data_before = path.read_bytes(), old[place].read_bytes()
        start = len(data_before) - 8 - int.from_bytes(data_before[-8:-4], "little")
        assert data[:start] == data_before[:start]
        assert data != data_before
    (folder / "keys" / "pii.json").unlink()
    assert verify_table(lake.spark, "t", renewed).ok
    assert rows_of(lake.spark.table("t")) == before
    with pytest.raises(ConfigError, match="--rewrap leaves pages as they are"):
        backfill(lake.spark, renewed, tables=["t"], options=options(rewrap=True, engine="spark"))


def test_progress_is_told_within_a_unit(lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of one unit and many files is not silent until its end; in the end all is told, once."""
    monkeypatch.setattr(task_runs, "EVERY_SECONDS", 0.05)
    monkeypatch.setattr(workers, "FILES_A_TASK", 4)  # what is told are tasks that have ended
    make_table(lake, "t", partitions=0, tagged=None)
    with lake.stranger() as stranger:
        stranger.range(0, 40, 1, 40).selectExpr("int(id) id", "string(id) email", "double(id) pay").write.insertInto(
            "t"
        )
    set_tags(lake.spark, "t", {"email": ["pii"]}, None)
    heard = Heard()
    report = backfill(lake.spark, policy, tables=["t"], options=options(progress=heard))
    assert summed(heard) == (41, report.tables[0].bytes_before, 1)
    assert len(heard.told) > 2
    assert len(report.throughput) == len(heard.told) + 1


def placed(lake: Lake) -> dict[str, Path]:
    """Return partition and name -> the file that table t has there now."""
    catalog = Catalog(lake.spark)
    found = {}
    for partition in catalog.partitions(catalog.table(lake.name("t"))):
        for file in Path(partition.location.removeprefix("file:")).glob("*.parquet"):
            found[f"{partition.folder}/{file.name}"] = file
    return found


def test_unreadable_file_quarantines_its_unit(lake: Lake, policy: Policy) -> None:
    """One damaged file: its unit is as it was and is reported, the others are done, and mended it is done next time."""
    make_table(lake, "t")
    damaged = next((lake.path("t") / "p=1").glob("part-*"))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-4] + b"XXXX")
    report = backfill(lake.spark, policy, tables=["t"])
    table = report.tables[0]
    assert (report.outcome, table.outcome, table.files_rewritten) == ("incomplete", "incomplete", 2)
    (quarantined,) = table.quarantined
    assert quarantined["unit"] == "p=1" and damaged.name in quarantined["message"]
    assert damaged.read_bytes() == content[:-4] + b"XXXX"
    assert table.drift["after"] == {"unreadable": 1}
    damaged.write_bytes(content)
    again = backfill(lake.spark, policy, tables=["t"]).tables[0]
    assert (again.outcome, again.files_rewritten) == ("done", 1)


def test_partition_of_another_format_quarantines_its_unit(lake: Lake, policy: Policy) -> None:
    """A Hive table's ORC partition is told and left as it is; its Parquet partitions are done, and readers see both."""
    with lake.stranger() as stranger:
        stranger.sql("CREATE TABLE t (id INT, email STRING, pay DOUBLE) PARTITIONED BY (p INT) STORED AS PARQUET")
        for p in range(3):
            stranger.sql(f"INSERT INTO t PARTITION (p = {p}) VALUES ({p}, '{SECRET}-{p}', {p}.5)")
        hive = stranger._jsparkSession.sharedState().externalCatalog().unwrapped().client()
        lake.jvm.System.setProperty("spark.testing", "true")  # Spark's SQL cannot do this, and Hive's can
        hive.runSqlHive(f"USE {lake.database}")
        for what in ("FILEFORMAT ORC", f"LOCATION '{(lake.root / 'orc').as_uri()}'"):
            hive.runSqlHive(f"ALTER TABLE t PARTITION (p = 1) SET {what}")
        hive.runSqlHive("USE default")
        lake.jvm.System.clearProperty("spark.testing")
        stranger.sql(f"SELECT 1 AS id, '{SECRET}-1' AS email, 1.5D AS pay").write.orc(str(lake.root / "orc"))
    set_tags(lake.spark, "t", {"email": ["pii"]}, None)
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", "false")  # the SerDes read each partition as it is
    before = rows_of(lake.spark.table("t"))
    orc = {file.name: file.read_bytes() for file in (lake.root / "orc").iterdir()}
    report = backfill(lake.spark, policy, tables=["t"])
    table = report.tables[0]
    assert (report.outcome, table.files_rewritten, [unit["unit"] for unit in table.quarantined]) == (
        "incomplete", 2, ["p=1"],
    )  # fmt: skip
    assert "its partition is not Parquet (org.apache.hadoop.hive.ql.io.orc.OrcSerde)" in table.quarantined[0]["message"]
    assert table.drift["after"] == {"unreadable": 1}
    assert {file.name: file.read_bytes() for file in (lake.root / "orc").iterdir()} == orc
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    with pytest.raises(VerificationError, match="its partition is not Parquet"):
        encrypt_table(lake.spark, "t", policy)
    assert encrypt_table(lake.spark, "t", policy, where="p <> 1").outcome == "nothing to do"
    found = verify_table(lake.spark, "t", policy)
    assert not found.ok and [drift.kind for drift in found.drift] == ["unreadable"]


def test_one_bad_table_does_not_stop_the_others(lake: Lake, policy: Policy) -> None:
    """A table whose tags make no plan is reported, and the rest is done."""
    make_table(lake, "a", partitions=0)
    make_table(lake, "b", partitions=0)
    set_tags(lake.spark, "a", {"email": ["unknown_tag"]}, None)
    report = backfill(lake.spark, policy, databases=[lake.database])
    assert report.outcome == "incomplete"
    assert [(failure.table, failure.error) for failure in report.failed] == [(lake.name("a"), "PlanError")]
    assert "unknown_tag" in report.failed[0].message
    assert by_table(report)["b"].outcome == "done"


class Together(Progress):
    """Lets no table be staged before several are."""

    def __init__(self, tables: int) -> None:
        self._tables, self.staged = threading.Barrier(tables, timeout=120), list[str]()

    def of_run(self, target: str) -> Progress:
        """Return what waits in a table's run."""
        together = self

        class OfTable(Progress):
            """Waits for the others."""

            def step(self, unit: str, step: str) -> None:
                """Wait at the first unit."""
                if step == "staging" and target not in together.staged:
                    together.staged.append(target)
                    together._tables.wait()

        return OfTable()


def test_tables_at_once(lake: Lake, policy: Policy) -> None:
    """Three tables are staged at the same time, a bad one stops none, and the report has them in their order."""
    names = ["a", "b", "c", "d", "e", "f"]
    for name in names:
        make_table(lake, name, partitions=2)
    before = {name: rows_of(lake.spark.table(name)) for name in names}
    set_tags(lake.spark, "b", {"email": ["unknown_tag"]}, None)
    together = Together(3)
    first = backfill(
        lake.spark, policy, tables=[f"{lake.database}.[abcd]"], options=options(tables_at_once=3, progress=together)
    )
    assert sorted(together.staged) == [lake.name(name) for name in "acd"]
    assert [(failure.table, failure.error) for failure in first.failed] == [(lake.name("b"), "PlanError")]
    assert [table.table for table in first.tables] == [lake.name(name) for name in "acd"]
    assert {table.outcome for table in first.tables} == {"done"}
    set_tags(lake.spark, "b", {"email": ["pii"]}, policy)
    rest = backfill(lake.spark, policy, databases=[lake.database], options=options(tables_at_once=4))
    outcomes = {name: table.outcome for name, table in by_table(rest).items()}
    assert outcomes == {name: "done" if name in "bef" else "nothing to do" for name in names}
    assert list(outcomes) == names
    assert (rest.throughput[-1].files, rest.totals()["files_rewritten"]) == (6, 6)
    for name in names:
        lake.spark.catalog.refreshTable(name)
        assert rows_of(lake.spark.table(name)) == before[name]
        assert verify_table(lake.spark, name, policy).ok
    with pytest.raises(ConfigError, match="tables at once 0"):
        backfill(lake.spark, policy, databases=[lake.database], options=options(tables_at_once=0))


def test_tables_at_once_share_a_budget(lake: Lake, policy: Policy) -> None:
    """Of six units in three tables, a budget of three begins three, wherever they are; the next pass does the rest."""
    for name in "abc":
        make_table(lake, name, partitions=2)
    length = max(file.stat().st_size for file in lake.path("a").rglob("*.parquet"))
    some = options(max_bytes=int(length * 3.5), tables_at_once=3)
    first = backfill(lake.spark, policy, databases=[lake.database], options=some)
    assert (first.outcome, first.totals()["files_rewritten"], first.totals()["units_left"]) == (
        "stopped at budget", 3, 3,
    )  # fmt: skip
    rest = backfill(lake.spark, policy, databases=[lake.database], options=options(tables_at_once=3))
    assert (rest.outcome, rest.totals()["units_left"]) == ("done", 0)
    assert all(verify_table(lake.spark, name, policy).ok for name in "abc")


@pytest.mark.parametrize("at_once", [1, 2])
def test_error_of_all_tables_ends_the_pass(
    lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Once a key service does not answer, no table is begun; what is under way ends, and the report is partial."""
    for name in "abcd":
        make_table(lake, name, partitions=1)
    reports: list[PassReport] = []
    b_began, a_ended = threading.Event(), threading.Event()

    def run_or_fail(job: TableJob, **_: Any) -> Report:
        if job.table.target.name == lake.name("a"):
            assert at_once == 1 or b_began.wait(60)
            a_ended.set()
            raise KeyServiceUnavailableError("the key service does not answer")
        b_began.set()
        assert a_ended.wait(60)
        return run_table(job)

    monkeypatch.setattr("sparkcrypt.runs.passes.passes.run_table", run_or_fail)
    with pytest.raises(KeyServiceUnavailableError):
        wanted = replace(options(tables_at_once=at_once), on_failure=reports.append)
        backfill(lake.spark, policy, databases=[lake.database], options=wanted)
    (report,) = reports
    assert [failure.table for failure in report.failed] == [lake.name("a")]
    assert {table.table for table in report.tables} <= {lake.name("b")}
    for name in "acd" if at_once == 2 else "abcd":
        assert_plaintext(lake.path(name))


def test_budget_stops_and_the_next_pass_goes_on(lake: Lake, policy: Policy) -> None:
    """A pass ends at its budget with units left, its run unfinished; the same command does the rest in the same run."""
    make_table(lake, "t", partitions=4)
    before = rows_of(lake.spark.table("t"))
    length = sum(file.stat().st_size for file in lake.path("t").rglob("*.parquet")) // 4
    first = backfill(lake.spark, policy, tables=["t"], options=options(max_bytes=int(length * 2.5), parallelism=2))
    (table,) = first.tables
    assert (first.outcome, table.outcome, table.units_left, len(table.units)) == (
        "stopped at budget", "stopped at budget", 2, 2,
    )  # fmt: skip
    assert rows_of(lake.spark.table("t")) == before
    second = backfill(lake.spark, policy, tables=["t"], options=options(max_seconds=0.0)).tables[0]
    assert (second.run_id, second.units_left, len(second.units)) == (table.run_id, 1, 3)
    last = backfill(lake.spark, policy, tables=["t"]).tables[0]
    assert (last.run_id, last.outcome, last.units_left, len(last.units)) == (table.run_id, "done", 0, 4)
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy).ok


@pytest.mark.parametrize("move_old", [False, True])
def test_old_files_expire_between_budgets(lake: Lake, policy: Policy, move_old: bool) -> None:
    """A run that stopped at its budget keeps its old files no longer than it must, and goes on; each goes once."""
    make_table(lake, "t", partitions=4)
    before = rows_of(lake.spark.table("t"))
    for left in (3, 2, 1, 0):
        report = backfill(lake.spark, policy, tables=["t"], options=options(max_bytes=1, move_old=move_old)).tables[0]
        assert report.units_left == left
        (run,) = (known for known in known_runs(open_state_store(policy.run_state)) if known.table == lake.name("t"))
        assert (run.state, run.to_dict()["expired"]) == ("paused" if left else "done", False)
        expired = expire_run(lake.spark, "t", policy)
        assert (expired.run_ids, expired.files) == ((report.run_id,), 1)
        assert expire_run(lake.spark, "t", policy).run_ids == ()
        (run,) = known_runs(open_state_store(policy.run_state))
        assert (run.state, run.to_dict()["expired"]) == ("paused" if left else "done", True)
        assert rows_of(lake.spark.table("t")) == before
    assert not list(lake.path("t").rglob("*.parquet"))
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


def test_budget_is_spent_on_the_first_tags_of_the_policy(lake: Lake, policy: Policy) -> None:
    """Between tables and within one; without a budget, tables come by their names."""
    for name, tag in (("a", "finance"), ("b", "public"), ("c", "pii")):
        make_table(lake, name, partitions=2, tagged=None)
        set_tags(lake.spark, name, {"email": [tag]}, None)
    named = [lake.name(letter) for letter in "abc"]
    first = backfill(lake.spark, policy, databases=[lake.database], options=options(dry_run=True, max_bytes=1))
    assert [table.table for table in first.tables] == [named[2], named[0], named[1]]
    planned = backfill(lake.spark, policy, databases=[lake.database], options=options(dry_run=True))
    assert [table.table for table in planned.tables] == named
    spent = backfill(lake.spark, policy, databases=[lake.database], options=options(max_bytes=1))
    assert {table.table: len(table.units) for table in spent.tables if table.units} == {named[2]: 1}


def test_unfinished_run_over_other_partitions_is_left_so(lake: Lake, policy: Policy) -> None:
    """Partitions that are asked for are done, nothing else is; the report names the run that is unfinished."""
    make_table(lake, "t", partitions=4)
    begun = backfill(lake.spark, policy, tables=["t"], options=options(where="p < 2", max_seconds=0.0)).tables[0]
    assert (begun.outcome, len(begun.units), begun.units_left) == ("stopped at budget", 1, 1)
    asked = backfill(lake.spark, policy, tables=["t"], options=options(where="p = 3")).tables[0]
    assert (asked.outcome, [unit["unit"] for unit in asked.units]) == ("done", ["p=3"])
    assert asked.run_id != begun.run_id
    assert any(f"run {begun.run_id} over --where 'p < 2' is unfinished" in warning for warning in asked.warnings)
    left = backfill(lake.spark, policy, tables=["t"], options=options(dry_run=True)).tables[0]
    waiting = {"p=0", "p=1"} - {unit["unit"] for unit in begun.units}
    assert {unit["unit"] for unit in left.planned} == {"p=2", *waiting}
    rest = backfill(lake.spark, policy, tables=["t"], options=options(where="p < 2")).tables[0]
    assert (rest.outcome, rest.run_id) == ("done", begun.run_id)


def test_changed_policy_is_a_conflict_until_the_run_is_abandoned(lake: Lake, policy: Policy) -> None:
    """A run that stopped at its budget is not continued under another policy; --resume never begins anew."""
    make_table(lake, "t", partitions=3)
    backfill(lake.spark, policy, tables=["t"], options=options(max_seconds=0.0))
    other = replace(policy, footer_mode="plaintext")
    report = backfill(lake.spark, other, tables=["t"])
    assert [failure.error for failure in report.failed] == ["RunConflictError"]
    done = backfill(lake.spark, other, tables=["t"], options=options(resume="never")).tables[0]
    assert (done.outcome, done.units_left) == ("done", 0)
    assert verify_table(lake.spark, "t", other).ok


def test_changed_passes_over_what_is_as_it_was(lake: Lake, policy: Policy) -> None:
    """--changed begins only tables whose files, tags or policy are not those of the last pass."""
    make_table(lake, "a")
    make_table(lake, "b", partitions=0)
    changed = options(changed=True)
    assert backfill(lake.spark, policy, databases=[lake.database], options=changed).outcome == "done"
    idle = backfill(lake.spark, policy, databases=[lake.database], options=changed)
    assert (idle.outcome, sorted(idle.unchanged)) == ("nothing to do", [lake.name("a"), lake.name("b")])
    lake.sql(f"INSERT INTO a VALUES (9, '{SECRET}-9', 9.5, 1)")
    files = backfill(lake.spark, policy, databases=[lake.database], options=changed)
    assert (list(by_table(files)), list(files.unchanged)) == (["a"], [lake.name("b")])
    set_tags(lake.spark, "b", {"pay": ["finance"]}, policy)
    tags = backfill(lake.spark, policy, databases=[lake.database], options=changed)
    assert {name: entry.outcome for name, entry in by_table(tags).items()} == {"b": "done"}
    other = replace(policy, footer_mode="plaintext")
    new = backfill(lake.spark, other, databases=[lake.database], options=changed)
    assert sorted(by_table(new)) == ["a", "b"]


def test_a_table_that_matches_is_surveyed_once(lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that finds nothing to do keeps what its run saw; one that changed files looks at them again."""
    make_table(lake, "t")
    surveys = Counter[str]()
    for module in ("run", "passes"):

        def survey(*arguments: Any, module: str = module) -> Surveyed:
            surveys[module] += 1
            return survey_units(*arguments)

        monkeypatch.setattr(f"sparkcrypt.runs.passes.{module}.survey_units", survey)
    assert backfill(lake.spark, policy, tables=["t"]).outcome == "done"
    assert surveys == {"run": 1, "passes": 1}
    assert backfill(lake.spark, policy, tables=["t"]).outcome == "nothing to do"
    assert surveys == {"run": 2, "passes": 1}
    assert backfill(lake.spark, policy, tables=["t"], options=options(changed=True)).unchanged == [lake.name("t")]


@pytest.mark.parametrize("changes", ["files", "tags"])
def test_what_changes_as_a_run_ends_is_looked_at(
    lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch, changes: str
) -> None:
    """A run found nothing to do, and before the pass kept that, somebody wrote a file or set a tag."""
    make_table(lake, "t")
    backfill(lake.spark, policy, tables=["t"])

    def run_then_change(job: TableJob, **named: Any) -> Report:
        report = run_table(job, **named)
        if changes == "tags":
            set_tags(lake.spark, "t", {"pay": ["finance"]}, policy)
        else:
            with lake.stranger() as stranger:
                stranger.sql(f"INSERT INTO t VALUES (9, '{SECRET}-9', 9.5, 1)")
        return report

    with monkeypatch.context() as patched:
        patched.setattr("sparkcrypt.runs.passes.passes.run_table", run_then_change)
        assert backfill(lake.spark, policy, tables=["t"]).outcome == "nothing to do"
    assert backfill(lake.spark, policy, tables=["t"], options=options(changed=True)).outcome == "done"


def test_tables_that_share_a_folder_are_refused(lake: Lake, policy: Policy) -> None:
    """Equal and nested folders are named, and rewritten only when that is accepted."""
    make_table(lake, "a", partitions=0, suffix=f"LOCATION '{(lake.root / 'shared').as_uri()}'")
    with lake.stranger() as stranger:
        stranger.sql(f"CREATE TABLE twin (id INT) USING parquet LOCATION '{(lake.root / 'shared').as_uri()}'")
        stranger.sql(f"CREATE TABLE inner (id INT) USING parquet LOCATION '{(lake.root / 'shared' / 'x').as_uri()}'")
    report = backfill(lake.spark, policy, tables=["a"])
    assert (report.outcome, list(report.refused)) == ("incomplete", [lake.name("a")])
    assert "lie in one another" in report.refused[lake.name("a")]
    lake.sql("DROP TABLE inner")
    assert f"{lake.name('twin')} share the folder" in backfill(lake.spark, policy, tables=["a"]).refused[lake.name("a")]
    assert_plaintext(lake.root / "shared")
    accepted = backfill(lake.spark, policy, tables=["a"], options=options(accept_path_readers=True))
    assert accepted.outcome == "done"


def test_vanished_tags_do_not_decrypt(lake: Lake, policy: Policy) -> None:
    """Tags that are gone without `tags unset` are refused: a run would write plaintext."""
    make_table(lake, "t", partitions=2)
    backfill(lake.spark, policy, tables=["t"])
    catalog = Catalog(lake.spark)
    table = catalog.table("t")
    schema = json.loads(table.schema_json)
    for field in schema["fields"]:
        field["metadata"] = {}
    data = {**schema, "fields": [column for column in schema["fields"] if column["name"] != "p"]}
    catalog.set_schema_metadata(table, json.dumps(data))
    catalog.unset_options(table, tuple(name for name in table.options if ".tags." in name))
    report = backfill(lake.spark, policy, tables=["t"])
    assert report.outcome == "incomplete"
    assert "the tags of email are gone" in report.refused[lake.name("t")]
    location = Path(catalog.partitions(catalog.table("t"))[0].location.removeprefix("file:"))
    assert next(location.glob("part-*")).read_bytes()[:4] == b"PARE"


def test_second_run_is_told_of_the_first(lake: Lake, policy: Policy) -> None:
    """A table that another run holds is reported with that run's name, and the others are done."""
    from sparkcrypt.ledger.state.lock import acquire

    make_table(lake, "a", partitions=0)
    make_table(lake, "b", partitions=0)
    backfill(lake.spark, policy, tables=["a"], options=options(dry_run=True))
    encrypt_table(lake.spark, "a", policy)
    store, uuid = open_state_store(policy.run_state), Catalog(lake.spark).table("a").uuid or ""
    set_tags(lake.spark, "a", {"pay": ["finance"]}, policy)
    with acquire(store, uuid, run_id="the-first-run", owner="somebody"):
        report = backfill(lake.spark, policy, databases=[lake.database])
        with pytest.raises(RunConflictError, match="the-first-run of somebody"):
            encrypt_table(lake.spark, "a", policy)
    assert [(failure.table, failure.error) for failure in report.failed] == [(lake.name("a"), "RunConflictError")]
    assert "the-first-run" in report.failed[0].message
    assert by_table(report)["b"].outcome == "done"


def test_busy_unit_is_tried_again(lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that comes while a unit is staged: the unit is staged once more, with that file, and no row is lost."""
    make_table(lake, "t", partitions=2)
    monkeypatch.setattr("sparkcrypt.runs.passes.units.PAUSES_SECONDS", (0.0, 0.0))
    written: list[str] = []

    class Writer(Progress):
        """Inserts a row when the first unit is verified."""

        def step(self, unit: str, step: str) -> None:
            """Write once."""
            if (unit, step) == ("p=0", "verifying") and not written:
                written.append(unit)
                lake.spark.newSession().sql(f"INSERT INTO {lake.name('t')} VALUES (7, '{SECRET}-7', 7.5, 0)")

    report = backfill(lake.spark, policy, tables=["t"], options=options(parallelism=1, progress=Writer()))
    assert (report.outcome, written) == ("done", ["p=0"])
    lake.spark.catalog.refreshTable("t")
    assert sorted(row.id for row in lake.spark.table("t").collect()) == [0, 1, 7]
    assert verify_table(lake.spark, "t", policy).ok
    store = open_state_store(policy.run_state)
    journal = Journal.open(
        TableLog.open(store, Catalog(lake.spark).table("t").uuid or "", None), report.tables[0].run_id
    )
    failures = [record.fields["error"] for record in journal.records if record.kind == "unit_failed"]
    assert len(failures) == 1 and failures[0].startswith("SourceChangedError")

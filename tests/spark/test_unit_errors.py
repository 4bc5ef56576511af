"""Units that fail, and sources that change or vanish under a unit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import KeyServiceUnavailableError, SourceChangedError, VerificationError
from sparkcrypt.ledger.audit.audit import list_entries
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.check_keys import check_keys
from sparkcrypt.runs.old_folders.expire import ExpiryOptions, expire_run
from sparkcrypt.runs.passes import passes as expire_of_many
from sparkcrypt.runs.passes.choose_tables import Choice
from sparkcrypt.runs.passes.passes import PassOptions, backfill, expire_many
from sparkcrypt.runs.passes.report import PassReport
from sparkcrypt.runs.rewrite.options import Engine, RunOptions
from sparkcrypt.runs.table import target
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.spark.tables import planning
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import SECRET, Lake, data_files
from tests.spark.tables import PARTITIONED, UNPARTITIONED, make_table, tagged

pytestmark = pytest.mark.spark


@pytest.fixture
def policy(lake: Lake) -> Policy:
    """A policy of two keys, under which the session is."""
    return lake.policy("\n  pii: {key: pii}\n  finance: {key: fin}\n")


def mixed_modes(lake: Lake, patch: pytest.MonkeyPatch) -> str:
    """Two files of one folder that not the same people may read."""
    with lake.stranger() as stranger:
        stranger.sql(f"INSERT INTO a VALUES (8, '{SECRET}-8', 8.5, 1)")
    data_files(lake.path("a") / "p=1")[0].chmod(0o600)
    return "differ in who may read them"


def refusing_metastore(lake: Lake, patch: pytest.MonkeyPatch) -> str:
    """The metastore refuses one of several changes, as it does one that this user may not make."""
    move_partitions = Catalog.move_partitions

    def refused(self: Catalog, table: Any, moves: Any) -> Any:
        kept = [move for move in moves if "p=1" not in move.location or table.name != "a"]
        left = move_partitions(self, table, kept)
        if len(kept) < len(moves):
            lake.sql("ALTER TABLE no_such_table SET LOCATION 'file:/nowhere'")
        return left

    patch.setattr(Catalog, "move_partitions", refused)
    return "AnalysisException|TABLE_OR_VIEW_NOT_FOUND"


@pytest.mark.parametrize("cause", [mixed_modes, refusing_metastore])
def test_error_of_one_unit_leaves_the_others_to_be_done(
    lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch, cause: Any
) -> None:
    """Also one of Spark or Hadoop: the unit is as it was, the rest of its table and the next table are done."""
    make_table(lake, "a", partitions=3)
    make_table(lake, "b", partitions=0)
    said = cause(lake, monkeypatch)
    report = backfill(lake.spark, policy, databases=[lake.database])
    a, b = report.tables
    assert (report.outcome, report.failed, b.outcome) == ("incomplete", [], "done")
    assert {unit["unit"] for unit in a.units} == {"p=0", "p=2"}
    (quarantined,) = a.quarantined
    assert quarantined["unit"] == "p=1"
    assert any(reason in quarantined["message"] for reason in said.split("|"))
    monkeypatch.undo()
    catalog = Catalog(lake.spark)
    places = {partition.folder: partition.location for partition in catalog.partitions(catalog.table("a"))}
    assert places["p=1"] == f"file:{lake.path('a')}/p=1"


def state_in_the_table(lake: Lake, patch: pytest.MonkeyPatch) -> str:
    """The state directory is in one table's folder."""
    folder = max(lake.root.glob("policy-*"))
    lake.sql(f"CREATE TABLE a (id INT, email STRING) USING parquet LOCATION 'file:{folder}'")
    set_tags(lake.spark, "a", {"email": ["pii"]}, None)
    return "ConfigError"


def unforeseen(lake: Lake, patch: pytest.MonkeyPatch) -> str:
    """Something about one table is as nobody foresaw."""
    make_table(lake, "a", partitions=0)
    plan_of = planning.plan_of

    def fails(spark: Any, table: Any, policy: Policy, **named: Any) -> Any:
        if table.name == "a":
            raise KeyError("files")
        return plan_of(spark, table, policy, **named)

    patch.setattr(target, "plan_of", fails)
    return "KeyError"


@pytest.mark.parametrize("cause", [state_in_the_table, unforeseen])
def test_error_of_one_table_leaves_the_others_to_be_done(
    lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch, cause: Any
) -> None:
    """Plan, pass, check of keys and expiry do the other tables, and name the one that failed, whatever the error."""
    error = cause(lake, monkeypatch)
    make_table(lake, "b", partitions=0)
    plan, done = (
        backfill(lake.spark, policy, databases=[lake.database], options=PassOptions(run=options))
        for options in (RunOptions(keep_going=True, dry_run=True), RunOptions(keep_going=True))
    )
    for report in (plan, done):
        assert [(failed.table, failed.error) for failed in report.failed] == [(lake.name("a"), error)]
        assert ([table.table for table in report.tables], report.exit_code) == ([lake.name("b")], 74)
    assert done.tables[0].outcome == "done"
    a, b = check_keys(lake.spark, policy, databases=[lake.database]).tables
    assert (a.table, [entry.error for entry in a.unopened]) == (lake.name("a"), [error])
    assert (b.encrypted, b.unopened) == (1, [])
    monkeypatch.setattr(expire_of_many, "expire_run", _expire_all_but_a())
    gone = expire_many(
        lake.spark, policy, Choice(databases=(lake.database,)), options=ExpiryOptions(older_than_seconds=0)
    )
    assert [table.table for table in gone.tables] == [lake.name("b")] and gone.tables[0].files == 1


def _expire_all_but_a() -> Any:
    def expired(spark: Any, table: str, policy: Policy, **named: Any) -> Any:
        if table.endswith(".a"):
            raise KeyError("files")
        return expire_run(spark, table, policy, **named)

    return expired


def test_error_that_every_table_meets_ends_the_pass_and_is_told_of_the_table(
    lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report so far names the table at which the pass ended; nobody's interruption is taken for its error."""
    make_table(lake, "a", partitions=0)
    make_table(lake, "b", partitions=0)
    for error, told in ((KeyServiceUnavailableError("no answer"), [lake.name("a")]), (KeyboardInterrupt(), [])):
        reports: list[PassReport] = []

        def fails(*_: Any, error: BaseException = error, **named: Any) -> Any:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(target, "plan_of", fails)
            with pytest.raises(type(error)):
                backfill(lake.spark, policy, databases=[lake.database], options=PassOptions(on_failure=reports.append))
        assert [failed.table for failed in reports[0].failed] == told


@pytest.mark.parametrize("parallelism", [1, 4])
def test_unit_that_cannot_be_done_does_not_spend_the_budget(lake: Lake, policy: Policy, parallelism: int) -> None:
    """A damaged file stays damaged; each night another unit is done all the same."""
    make_table(lake, "t", partitions=3)
    data_files(lake.path("t") / "p=0")[0].write_bytes(b"PAR1 no more")
    run = RunOptions(keep_going=True, parallelism=parallelism)
    for done in (["p=1"], ["p=2"]):
        report = backfill(lake.spark, policy, tables=["t"], options=PassOptions(run=run, max_bytes=1)).tables[0]
        assert [unit["unit"] for unit in report.units][-1:] == done
    report = backfill(lake.spark, policy, tables=["t"], options=PassOptions(run=run, max_bytes=1)).tables[0]
    assert [unit["unit"] for unit in report.quarantined] == ["p=0"]


REQUIRED = "  {table}: {{require_encryption: true}}\n"


def test_earlier_footer_key_is_no_forgery_where_the_policy_names_it(lake: Lake) -> None:
    """Readers take such files, so a run does; under a footer key that no policy had they are refused."""
    policy = lake.policy("\n  pii: {key: pii}\n", REQUIRED.format(table=lake.name("t")), keys=["footer2"])
    lake.sql("CREATE TABLE t (id INT, email STRING) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}')")
    changed = lake.changed("{key: footer, mode: encrypted}", "{key: footer2, mode: encrypted}")
    with pytest.raises(VerificationError, match="may be a forgery"):
        encrypt_table(lake.spark, "t", changed)
    named = lake.changed("{key: footer2, mode: encrypted}", "{key: footer2, history: [footer], mode: encrypted}")
    assert encrypt_table(lake.spark, "t", named).outcome == "done"


def test_column_that_gets_another_tag_is_read_and_done_where_encryption_is_required(lake: Lake) -> None:
    """Its earlier key goes into the column's sealed history, and out of it when the whole table is done."""
    tags = "\n  pii: {key: 'pii:é'}\n  finance: {key: fin}\n"
    policy = lake.policy(tags, REQUIRED.format(table=lake.name("t")))
    lake.sql("CREATE TABLE t (id INT, email STRING, p INT) USING parquet PARTITIONED BY (p)")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}', 0), (2, '{SECRET}', 1)")
    set_tags(lake.spark, "t", {"email": ["finance"]}, policy)
    options = Catalog(lake.spark).table("t").options
    assert options["parquet.sparkcrypt.history.email"].split(",")[0] == "pii%3A%C3%A9"
    assert {row.email for row in lake.spark.table("t").select("email").collect()} == {SECRET}
    set_tags(lake.spark, "t", {"id": ["finance"]}, policy)
    assert "parquet.sparkcrypt.history.id" not in Catalog(lake.spark).table("t").options
    report = encrypt_table(lake.spark, "t", policy, where="p = 0", adopt=True)
    assert (report.outcome, report.columns) == ("done", {"email": "fin", "id": "fin"})
    policy = lake.changed("finance: {key: fin}", "finance: {key: fin, history: [plaintext]}")
    report = encrypt_table(lake.spark, "t", policy)
    assert (report.outcome, report.columns) == ("done", {"email": "fin", "id": "fin"})
    assert not [name for name, value in Catalog(lake.spark).table("t").options.items() if "history" in name and value]


def test_first_run_over_plaintext_is_no_forgery_where_the_history_names_it(lake: Lake) -> None:
    """By the policy's history, and by no property; what --adopt takes up otherwise is in the audit."""
    make_table(lake, "t", partitions=2)
    policy = lake.policy("\n  pii: {key: pii}\n", REQUIRED.format(table=lake.name("t")))
    with pytest.raises(VerificationError, match="may be a forgery"):
        encrypt_table(lake.spark, "t", policy)
    adopted = encrypt_table(lake.spark, "t", policy, where="p = 0", adopt=True)
    assert any("adopted: plaintext: 1 file" in warning for warning in adopted.warnings)
    catalog = Catalog(lake.spark)
    catalog.set_options(catalog.table("t"), {"parquet.sparkcrypt.history.email": "plaintext"})
    with pytest.raises(VerificationError, match="may be a forgery"):
        encrypt_table(lake.spark, "t", policy)
    policy = lake.changed("pii: {key: pii}", "pii: {key: pii, history: [plaintext]}")
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    store = open_state_directory(lake.spark, policy.run_state, outside="/nowhere")
    entries = [signed.entry["unit"] for signed in list_entries(store, catalog.table("t").uuid or "", None)]
    assert [any("adopted" in note for note in unit["notes"]) for unit in entries] == [True, False]


class Once(Progress):
    """Does something once, when a unit enters a step."""

    def __init__(self, step: str, action: Callable[[], None]) -> None:
        """Take the step and the action."""
        self._step, self._actions = step, [action]

    def step(self, unit: str, step: str) -> None:
        """Act."""
        if step == self._step and self._actions:
            self._actions.pop()()


def overwrite(lake: Lake, create: str) -> Callable[[], None]:
    """Return what overwrites the table, or one partition, as an ordinary job does."""

    def act() -> None:
        with lake.stranger() as stranger:
            stranger.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
            partition = ", 0" if "PARTITIONED" in create else ""
            stranger.sql(f"INSERT OVERWRITE t VALUES (50, '{SECRET}-50', 'new'{partition})")

    return act


def cut(folder: Path) -> Callable[[], None]:
    """Return what cuts a file short, as a writer does that replaces it in place, and then takes it away."""

    def act() -> None:
        file = data_files(folder)[0]
        file.write_bytes(file.read_bytes()[:-20])

    return act


def options(engine: Engine, progress: Progress) -> PassOptions:
    """Return options of a pass with one unit at a time."""
    return PassOptions(run=RunOptions(keep_going=True, engine=engine, progress=progress))


@pytest.mark.parametrize("engine", ["native", "spark"])
@pytest.mark.parametrize("step", ["staging", "verifying"])
@pytest.mark.parametrize("create", [PARTITIONED["using"], UNPARTITIONED["using"]])
def test_overwrite_during_a_unit_is_taken_up(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, create: str, step: str, engine: Engine
) -> None:
    """An INSERT OVERWRITE while a unit is staged or verified: the unit is done again with the new rows."""
    policy, before = tagged(lake, create)
    monkeypatch.setattr("sparkcrypt.runs.passes.units.PAUSES_SECONDS", (0.0, 0.0))
    report = backfill(lake.spark, policy, tables=["t"], options=options(engine, Once(step, overwrite(lake, create))))
    assert (report.outcome, report.exit_code) == ("done", 0)
    lake.spark.catalog.refreshTable("t")
    kept = [row.id for row in before if "PARTITIONED" in create and row.p == 1]
    assert sorted(row.id for row in lake.spark.table("t").collect()) == sorted([50, *kept])
    assert verify_table(lake.spark, "t", policy).ok


@pytest.mark.parametrize("engine", ["native", "spark"])
def test_file_that_is_cut_under_a_unit_is_a_change(lake: Lake, engine: Engine) -> None:
    """A source that is replaced by a shorter one while its unit is staged is somebody's write, not a damaged table."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    with pytest.raises(SourceChangedError, match=r"changed since the listing"):
        encrypt_table(lake.spark, "t", policy, engine=engine, progress=Once("staging", cut(lake.path("t") / "p=0")))


def test_partition_that_is_moved_or_dropped_under_a_pass(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that somebody points elsewhere is done there; one that he drops needs nothing any more."""
    policy, before = tagged(lake, PARTITIONED["using"])
    monkeypatch.setattr("sparkcrypt.runs.passes.units.PAUSES_SECONDS", (0.0, 0.0))

    def act() -> None:
        elsewhere = lake.root / "elsewhere"
        (lake.path("t") / "p=0").rename(elsewhere)
        with lake.stranger() as stranger:
            stranger.sql(f"ALTER TABLE t PARTITION (p = 0) SET LOCATION '{elsewhere.as_uri()}'")
            stranger.sql("ALTER TABLE t DROP PARTITION (p = 1)")

    report = backfill(lake.spark, policy, tables=["t"], options=options("native", Once("staging", act)))
    assert (report.outcome, report.exit_code) == ("done", 0)
    lake.spark.catalog.refreshTable("t")
    rows = sorted(row.id for row in lake.spark.table("t").collect())
    assert rows == sorted(row.id for row in before if row.p == 0)
    assert verify_table(lake.spark, "t", policy).ok

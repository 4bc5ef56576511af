"""A pass beside other people: what changes while it goes on, and folders that other tables point to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import PlanError, VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.problems import Decision
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.passes.resolve_problem import resolve_problem
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.late_writers import At
from tests.spark.support import SECRET, Lake, assert_plaintext, rows_of
from tests.spark.tables import make_table

pytestmark = pytest.mark.spark
RESOLVING = PassOptions(run=RunOptions(keep_going=True))
CHANGED = PassOptions(run=RunOptions(keep_going=True, parallelism=1), changed=True)


@pytest.fixture
def policy(lake: Lake) -> Policy:
    """A policy of two keys, under which the session is."""
    return lake.policy("\n  pii: {key: pii}\n  finance: {key: fin}\n")


def inserts(lake: Lake) -> None:
    """Insert a row in clear, as who was never configured does, into the partition that is swapped already."""
    with lake.stranger() as stranger:
        stranger.sql(f"INSERT INTO t VALUES (9, '{SECRET}-9', 9.5, 0)")


def retags(lake: Lake) -> None:
    """Tag another column."""
    set_tags(lake.spark, "t", {"pay": ["finance"]}, None)


@pytest.mark.usefixtures("unit_a_batch")
@pytest.mark.parametrize("what", [inserts, retags])
def test_what_changed_during_a_pass_is_taken_up_by_the_next(
    lake: Lake, policy: Policy, what: Callable[[Lake], None]
) -> None:
    """A table is passed over only as it was when it was seen to be in order."""
    make_table(lake, "t", partitions=2)
    during = At("p=1", "swapping", lambda: what(lake))
    assert (
        backfill(
            lake.spark, policy, tables=["t"], options=replace(CHANGED, run=replace(CHANGED.run, progress=during))
        ).outcome
        == "done"
    )
    assert during.done
    second = backfill(lake.spark, policy, tables=["t"], options=CHANGED)
    assert (second.unchanged, second.tables[0].files_rewritten > 0) == ([], True)
    assert verify_table(lake.spark, "t", policy).ok
    third = backfill(lake.spark, policy, tables=["t"], options=CHANGED)
    assert third.unchanged == [lake.name("t")]


def test_tags_are_those_of_the_moment_when_a_tables_turn_comes(lake: Lake, policy: Policy) -> None:
    """A pass over many tables takes long; one that was dropped meanwhile is no error."""
    for name in ("a", "b", "c"):
        make_table(lake, name, partitions=0)

    def change() -> None:
        set_tags(lake.spark, "b", {"pay": ["finance"]}, None)
        lake.sql("DROP TABLE c")

    during = At(lake.name("a"), "verifying", change)
    report = backfill(
        lake.spark,
        policy,
        databases=[lake.database],
        options=PassOptions(run=RunOptions(keep_going=True, progress=during)),
    )
    assert [(table.table, table.columns) for table in report.tables] == [
        (lake.name("a"), {"email": "pii"}),
        (lake.name("b"), {"email": "pii", "pay": "fin"}),
    ]
    assert (report.outcome, report.failed) == ("done", [])


def test_folders_that_a_partition_of_another_table_points_to_are_not_deleted(lake: Lake, policy: Policy) -> None:
    """A pass over the table is refused; where it was run all the same, expiry is."""
    make_table(lake, "t", partitions=2)
    lake.sql("CREATE TABLE other (id INT, email STRING, pay DOUBLE, p INT) USING parquet PARTITIONED BY (p)")
    lake.sql(f"ALTER TABLE other ADD PARTITION (p = 0) LOCATION 'file:{lake.path('t')}/p=0'")
    before = rows_of(lake.spark.table("other"))
    assert len(before) == 1
    report = backfill(lake.spark, policy, tables=["t"])
    assert "whoever reads the other would find old files" in report.refused[lake.name("t")]
    encrypt_table(lake.spark, "t", policy)
    with pytest.raises(VerificationError, match=rf"p=0 holds old files, and {lake.name('other')} points to"):
        expire_run(lake.spark, "t", policy)
    lake.spark.catalog.refreshTable("other")
    assert rows_of(lake.spark.table("other")) == before
    assert_plaintext(lake.path("t"))
    lake.sql("ALTER TABLE other DROP PARTITION (p = 0)")  # it was managed: it took its file along
    expired = expire_run(lake.spark, "t", policy)
    assert (expired.files, list(expired.refused)) == (1, ["p=0"])
    assert "is gone from the old folder" in expired.refused["p=0"]
    (problem,) = backfill(lake.spark, policy, tables=["t"], options=RESOLVING).tables[0].problems
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "the other table was dropped"))
    assert expire_run(lake.spark, "t", policy).refused == {}


@pytest.mark.parametrize("marker", ["_spark_metadata", "_delta_log", ".hoodie", "metadata"])
def test_formats_are_known_by_the_tables_folder_too(lake: Lake, policy: Policy, marker: str) -> None:
    """The list of a partitioned table's files is not in its partitions."""
    make_table(lake, "t", partitions=2)
    folder = lake.path("t") / marker
    folder.mkdir()
    if marker == "metadata":
        assert backfill(lake.spark, policy, tables=["t"], options=PassOptions(run=RunOptions(dry_run=True))).drifts
        (folder / "v1.metadata.json").write_text("{}")
    with pytest.raises(PlanError, match=f"has {marker}: "):
        encrypt_table(lake.spark, "t", policy)
    report = backfill(lake.spark, policy, tables=["t"])
    assert [failure.error for failure in report.failed] == ["PlanError"]
    assert_plaintext(lake.path("t"))


def test_history_goes_once_the_whole_table_is_done_partition_by_partition(lake: Lake, policy: Policy) -> None:
    """Passes over some partitions leave it; the first pass over all of them that finds nothing to do takes it off."""
    make_table(lake, "t", partitions=2)
    name = "parquet.sparkcrypt.history.email"
    Catalog(lake.spark).set_options(Catalog(lake.spark).table("t"), {name: "plaintext"})
    for p in (0, 1):
        assert encrypt_table(lake.spark, "t", policy, where=f"p = {p}").outcome == "done"
        assert Catalog(lake.spark).table("t").options[name] == "plaintext"
    assert encrypt_table(lake.spark, "t", policy).outcome == "nothing to do"
    assert not Catalog(lake.spark).table("t").options.get(name)

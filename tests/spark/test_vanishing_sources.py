"""Sources that vanish or change under a unit: whatever fails then, the unit is tried again with what is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import SourceChangedError
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.rewrite.engine_names import Engine
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.table.progress import Progress, Silent
from tests.spark.support import SECRET, Lake, data_files
from tests.spark.tables import PARTITIONED, UNPARTITIONED, tagged

pytestmark = pytest.mark.spark


class Once(Silent):
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

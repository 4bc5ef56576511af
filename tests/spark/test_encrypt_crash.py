"""Runs that are killed, paused, raced or contradicted: nothing is lost, and the same command ends right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sparkcrypt import encrypt_table, load_policy, verify_table
from sparkcrypt.errors import ConfigError, KeyNotFoundError, RunConflictError, VerificationError
from sparkcrypt.ledger.new_files import NewFiles
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.lock import acquire
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.rewrite.swap import FolderSwap, LocationSwap
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.tagging import set_tags
from tests.journals import find_unfinished
from tests.spark.killing import Clock, after_record, after_swap, after_swaps, between_renames, kill
from tests.spark.support import Lake, assert_plaintext, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, tagged

pytestmark = pytest.mark.spark


STEPS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    **{
        f"partitioned, after {kind}": (PARTITIONED["using"], after_record(kind))
        for kind in ("run_started", "unit_listed", "unit_staged", "unit_verified", "unit_swapping", "unit_swapped")
    },
    "partitioned, after the swap": (PARTITIONED["using"], after_swap),
    "renamed, before the swap": (UNPARTITIONED["using"], after_record("unit_swapping")),
    "renamed, after the swap": (UNPARTITIONED["using"], after_swap),
    "renamed, between the renames": (UNPARTITIONED["using"], between_renames),
}


@pytest.mark.parametrize("step", STEPS)
def test_killed_run_is_continued(lake: Lake, clock: Clock, step: str) -> None:
    """Whatever the step, readers find every row once the job has run again, and every file is as planned."""
    create, patch = STEPS[step]
    policy, before = tagged(lake, create)
    kill(lake, policy, clock, patch)
    if "between" not in step:
        lake.spark.catalog.refreshTable("t")
        assert rows_of(lake.spark.table("t")) == before
    with pytest.raises(ConfigError, match="is unfinished; run the job again to finish it, then expire"):
        expire_run(lake.spark, "t", policy)
    report = encrypt_table(lake.spark, "t", policy)
    assert report.outcome == "done"
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy).ok
    assert find_unfinished(open_state_directory(lake.spark, policy.run_state, outside="/nowhere"), _id(lake)) is None
    left = [
        path for path in (lake.root / "db" / ".sparkcrypt" / "t").rglob("*.parquet") if report.run_id not in str(path)
    ]
    assert not left, "staged files of no use were left behind"


def _id(lake: Lake) -> str:
    from sparkcrypt.spark.tables.catalog import Catalog

    return str(Catalog(lake.spark).table("t").uuid)


def test_second_run_is_told_of_the_first(lake: Lake, clock: Clock) -> None:
    """While one run holds the table, another is refused with the first one's name."""
    policy, _ = tagged(lake, UNPARTITIONED["using"])
    store = open_state_directory(lake.spark, policy.run_state, outside="/nowhere")
    first = acquire(store, _id(lake), run_id="run-first", owner="ann@host", clock=clock)
    with first, pytest.raises(RunConflictError, match="run-first"):
        encrypt_table(lake.spark, "t", policy)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"


def test_paused_driver_is_fenced_off(lake: Lake, clock: Clock) -> None:
    """A driver that wakes up after its lock expired does not swap."""
    policy, before = tagged(lake, PARTITIONED["using"])

    class Pause(Progress):
        def step(self, unit: str, step: str) -> None:
            clock.now += 1_000 if step == "swapping" else 0

    with pytest.raises(RunConflictError):
        encrypt_table(lake.spark, "t", policy, progress=Pause())
    assert_plaintext(lake.path("t"))
    assert rows_of(lake.spark.table("t")) == before
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    assert rows_of(lake.spark.table("t")) == before


def test_writer_during_staging_keeps_his_rows(lake: Lake) -> None:
    """Rows that arrive after the listing make the unit fail unswapped; the next run takes them with it."""
    policy, _ = tagged(lake, UNPARTITIONED["using"])

    class Writer(Progress):
        def step(self, unit: str, step: str) -> None:
            if step == "verifying":
                with lake.stranger() as stranger:
                    stranger.sql("INSERT INTO t VALUES (99, 'late', 'n')")

    with pytest.raises(VerificationError, match="is new since the listing"):
        encrypt_table(lake.spark, "t", policy, progress=Writer())
    lake.spark.catalog.refreshTable("t")
    assert lake.spark.table("t").count() == 5
    assert_plaintext(lake.path("t"))
    assert encrypt_table(lake.spark, "t", policy).rows == 5


@pytest.mark.parametrize(
    ("create", "way"), [(PARTITIONED["using"], LocationSwap), (UNPARTITIONED["using"], FolderSwap)]
)
def test_file_that_slips_in_at_the_swap_undoes_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, create: str, way: type[Any]
) -> None:
    """A file that a writer leaves in the old folder while it is swapped is found, and the table is as it was before."""
    policy, before = tagged(lake, create)

    def write(swap: Any, new: NewFiles) -> None:
        files, old = HadoopFiles(lake.spark), swap.old_location(new.unit)
        files.write_new(f"{old}/part-late.parquet", files.read(new.unit.files[0].path.replace(new.unit.location, old)))

    after_swaps(monkeypatch, way, write)
    with pytest.raises(VerificationError, match=r"part-late\.parquet is new"):
        encrypt_table(lake.spark, "t", policy)
    assert_plaintext(lake.path("t"))
    lake.spark.catalog.refreshTable("t")
    assert lake.spark.table("t").count() > len(before)


def test_corrected_policy_goes_on_where_a_key_was_never_there(lake: Lake, clock: Clock) -> None:
    """A run that named a missing key encrypted nothing: the right policy closes it; any other change stays refused."""
    policy, before = tagged(lake, PARTITIONED["using"])
    lake.changed("pii: {key: pii}", "pii: {key: pi}")
    mistaken = load_policy(next(lake.root.glob("policy-*/policy.yaml")))
    with pytest.raises(KeyNotFoundError):
        encrypt_table(lake.spark, "t", mistaken)
    with pytest.raises(KeyNotFoundError):
        encrypt_table(lake.spark, "t", mistaken)  # the same run, which cannot be finished
    right = lake.changed("pii: {key: pi}", "pii: {key: pii}")
    assert right.digest() == policy.digest()
    report = encrypt_table(lake.spark, "t", right)
    assert report.outcome == "done"
    (warning,) = (text for text in report.warnings if "was closed, and another begun" in text)
    assert "'pi'" in warning
    assert rows_of(lake.spark.table("t")) == before
    set_tags(lake.spark, "t", {"note": ["fin"]}, right)
    kill(lake, right, clock, after_record("unit_staged"))
    with pytest.raises(RunConflictError, match=r"began under policy"):
        encrypt_table(lake.spark, "t", lake.changed("fin: {key: fin}", "fin: {key: pii}"))


@pytest.mark.usefixtures("unit_a_batch")
def test_changed_policy_is_a_conflict(lake: Lake, clock: Clock) -> None:
    """An unfinished run is not continued under another policy, unless it is given up first."""
    policy, before = tagged(lake, PARTITIONED["using"])
    kill(lake, policy, clock, after_swap, parallelism=1)
    other = replace(policy, data_key_bits=128)
    with pytest.raises(RunConflictError, match=r"began under policy .* --resume never"):
        encrypt_table(lake.spark, "t", other)
    report = encrypt_table(lake.spark, "t", other, resume="never")
    assert report.outcome == "done"
    assert rows_of(lake.spark.table("t")) == before


@pytest.mark.parametrize("mutation", ["value", "drop", "double", "key"])
def test_wrong_staging_is_found(lake: Lake, monkeypatch: pytest.MonkeyPatch, mutation: str) -> None:
    """Staged rows or keys that are not as they must be are found before the swap, and nothing is left behind."""
    from sparkcrypt.runs.rewrite.spark_engine import SparkStager

    policy, before = tagged(lake, UNPARTITIONED["using"])
    rows = SparkStager._rows
    staging: list[bool] = []

    def wrong(self: SparkStager, folder: Any, pinned: Any) -> Any:
        frame = rows(self, folder, pinned)
        if not staging:
            return frame
        changed = {
            "value": lambda: frame.selectExpr("id", "email", "if(id = 3, 'other', note) AS note"),
            "drop": lambda: frame.where("id <> 3"),
            "double": lambda: frame.union(frame.where("id = 3")),
            "key": lambda: frame,
        }[mutation]()
        return changed.select(
            *(changed[field.name].alias(field.name, metadata=field.metadata) for field in frame.schema)
        )

    write = SparkStager._write

    def written(self: SparkStager, *arguments: Any) -> None:
        staging.append(True)
        fin = next(rule.key for rule in policy.tags if rule.name == "fin")
        tags = tuple(replace(rule, key=fin) if rule.name == "pii" else rule for rule in policy.tags)
        with monkeypatch.context() as patch:
            if mutation == "key":
                patch.setattr(self, "table", replace(self.table, policy=replace(policy, tags=tags)))
            write(self, *arguments)
        staging.clear()

    monkeypatch.setattr(SparkStager, "_rows", wrong)
    monkeypatch.setattr(SparkStager, "_write", written)
    with pytest.raises(VerificationError, match="nothing was swapped"):
        encrypt_table(lake.spark, "t", policy, engine="spark")
    assert_plaintext(lake.path("t"))
    assert rows_of(lake.spark.table("t")) == before
    assert not list((lake.root / "db" / ".sparkcrypt").rglob("*.parquet"))

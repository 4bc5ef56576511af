"""Writers and drivers that were too late: no row of theirs is lost or doubled, and none brings a wrong one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.backfill import carry as carry_module
from sparkcrypt.backfill.audit import audit_entries
from sparkcrypt.backfill.expire import expire_run
from sparkcrypt.backfill.journal import Journal
from sparkcrypt.backfill.options import RunOptions
from sparkcrypt.backfill.passes import PassOptions, backfill
from sparkcrypt.backfill.store import open_state_store
from sparkcrypt.backfill.swap import FolderSwap, LocationSwap
from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.catalog import Catalog
from sparkcrypt.spark.tagging import set_tags
from tests.spark.support import SECRET, Lake, rows_of
from tests.spark.test_encrypt_crash import Clock, clock, tagged  # noqa: F401  # a fixture
from tests.spark.test_encrypt_table import PARTITIONED, UNPARTITIONED

pytestmark = pytest.mark.spark


class OnAdvance:
    """Does something once, when the first unit is done."""

    def __init__(self, action: Callable[[], None]) -> None:
        """Take the action."""
        self._actions = [action]

    def start(self, *_: object) -> None:
        """Hear nothing."""

    def step(self, *_: object) -> None:
        """Hear nothing."""

    def advance(self, *_: object) -> None:
        """Act."""
        while self._actions:
            self._actions.pop()()

    def finish(self) -> None:
        """Hear nothing."""


def leave(lake: Lake, folder: Path, number: int) -> None:
    """Write one row into a folder, as a job does that planned its write before the folder was left."""
    with lake.stranger() as stranger:
        frame = stranger.sql(f"SELECT {number} AS id, '{SECRET}-{number}' AS email, 'late' AS note")
        frame.coalesce(1).write.mode("append").parquet(str(folder))


def ids(lake: Lake) -> list[int]:
    """Return the ids in the table."""
    lake.spark.catalog.refreshTable("t")
    return sorted(row.id for row in lake.spark.table("t").collect())


def one_by_one() -> PassOptions:
    """Options under which units are done one after the other."""
    return PassOptions(run=RunOptions(keep_going=True, parallelism=1))


def audits(lake: Lake, policy: Policy) -> list[str]:
    """Return what the audit's entries say was done."""
    store, uuid = open_state_store(policy.run_state), Catalog(lake.spark).table("t").uuid or ""
    return [one.entry["what"] for one in audit_entries(store, uuid)]


def test_rows_left_during_a_run_are_carried_over_at_its_end(lake: Lake) -> None:
    """A file that comes to a swapped unit's old folder during the run is in the table, encrypted, when it ends."""
    policy, before = tagged(lake, PARTITIONED["using"])
    late = OnAdvance(lambda: leave(lake, lake.path("t") / "p=0", 77))
    report = backfill(lake.spark, policy, tables=["t"], options=one_by_one(), progress=late)
    assert report.outcome == "done"
    assert ids(lake) == [*sorted(row.id for row in before), 77]
    assert verify_table(lake.spark, "t", policy, manifest=True).manifest.to_dict() == {  # type: ignore[union-attr]
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
    append, audited = Journal.append, carry_module.audited
    with monkeypatch.context() as patch:

        def killed(*arguments: Any, **named: Any) -> Any:
            if after == "the audit":
                audited(*arguments, **named)
            raise KeyboardInterrupt

        def appended(journal: Journal, kind: str, **fields: Any) -> Any:
            record = append(journal, kind, **fields)
            if kind == after:
                raise KeyboardInterrupt
            return record

        if after == "unit_carrying":
            patch.setattr(Journal, "append", appended)
        else:
            patch.setattr(carry_module, "audited", killed)
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
    with pytest.raises(VerificationError, match=r"p=0: .* a stale writer overwrote the unit there"):
        expire_run(lake.spark, "t", policy)
    assert len(list(folder.glob("part-*"))) == 1
    assert ids(lake) == sorted(row.id for row in before)


def test_older_rows_do_not_come_back_after_an_overwrite(lake: Lake) -> None:
    """Where the new files were overwritten since, a stale file is not put beside what replaced them."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    # A static overwrite would delete what is in the partition's ordinary folder too, though it lies elsewhere now.
    lake.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    lake.sql(f"INSERT OVERWRITE t VALUES (50, '{SECRET}-50', 'new', 0)")
    after = ids(lake)
    leave(lake, lake.path("t") / "p=0", 77)
    with pytest.raises(VerificationError, match="has replaced the unit's rows since, so older ones must not come back"):
        expire_run(lake.spark, "t", policy)
    assert ids(lake) == after


def test_forged_file_is_not_carried_over(lake: Lake) -> None:
    """A plaintext file in the old folder of a table that requires encryption may be forged: it is named and stays."""
    policy, before = tagged(lake, PARTITIONED["using"])
    policy = lake.policy(tables=f"  {lake.name('t')}: {{require_encryption: true}}\n", algorithm=policy.algorithm)
    encrypt_table(lake.spark, "t", policy, adopt=True)
    leave(lake, lake.path("t") / "p=0", 66)
    with pytest.raises(VerificationError, match="requires encryption, so this file may be a forgery"):
        expire_run(lake.spark, "t", policy)
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
    clock: Clock,  # noqa: F811
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
    swap = swap_class.swap
    slept: list[str] = []

    def paused(self: Any, unit: Any, staged: str) -> str:
        if not slept:
            slept.append(unit.name)
            clock.now += 1_000  # the lock expires, and another driver comes
            other = encrypt_table(lake.spark, "t", policy)
            assert other.outcome == "done"
            assert rows_of(lake.spark.table("t")) == before
        return str(swap(self, unit, staged))

    monkeypatch.setattr(swap_class, "swap", paused)
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
    clock: Clock,  # noqa: F811
) -> None:
    """The worst moment, right before ALTER: the driver then points the partition to where the other had put it.

    What somebody wrote there meanwhile is found again.
    """
    policy, before = tagged(lake, PARTITIONED["using"])
    set_location = Catalog.set_location
    slept: list[str] = []

    def paused(self: Catalog, table: Any, location: str, partition: Any) -> None:
        if not slept:
            slept.append(location)
            clock.now += 1_000
            assert encrypt_table(lake.spark, "t", policy).outcome == "done"
            lake.sql(f"INSERT INTO t VALUES (77, '{SECRET}-77', 'new', 0)")
        set_location(self, table, location, partition)

    monkeypatch.setattr(Catalog, "set_location", paused)
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
    swap = LocationSwap.swap
    readers: list[Any] = []

    def swapped(self: LocationSwap, unit: Any, staged: str) -> str:
        old = swap(self, unit, staged)
        if not readers:
            lake.spark.catalog.refreshTable("t")
            frame = lake.spark.table("t")
            frame._jdf.queryExecution().toRdd().getNumPartitions()  # it has its list of files now
            readers.append(frame)
            leave(lake, lake.path("t") / "p=0", 77)
        return old

    monkeypatch.setattr(LocationSwap, "swap", swapped)
    monkeypatch.setattr("sparkcrypt.backfill.unit_work.PAUSES_SECONDS", (0.0,))
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

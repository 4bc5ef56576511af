"""What a batch of units asks of the metastore, the log and the file system does not grow faster than its units."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.files.orders import FileOutcome
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.unit import Unit
from sparkcrypt.runs.rewrite import moved_files, native_engine, unit_rewriter
from sparkcrypt.runs.rewrite.engine import StagedWork, Staging
from sparkcrypt.runs.rewrite.native_engine import NativeStager
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter
from sparkcrypt.runs.table import in_use as in_use_module
from sparkcrypt.runs.table.disposal import Disposal
from sparkcrypt.runs.table.in_use import OtherTables
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.runs.table.scan import ScannedUnit
from sparkcrypt.spark.tables.table import Partition
from tests.growth import Work, assert_linear
from tests.unit.backfill.conftest import TABLE, run_record
from tests.unit.backfill.metastores import Folders, Metastore, in_use_of
from tests.unit.backfill.records import Records

BASE = "/wh/t"


class Disk(Folders):
    """Folders with as much space as anybody needs."""

    def free_bytes(self, _folder: str) -> None:
        """Return that it is not known."""


class Engine:
    """An engine that makes the folder of each unit, and fails for it then."""

    engine = "native"

    def __init__(self, disk: Disk, error: Exception | None = None) -> None:
        self._disk, self._error = disk, error

    def stage_all(self, several: Sequence[Staging]) -> list[StagedWork | Exception]:
        """Return an error of each unit."""
        self._disk.there.update(staging.staged for staging in several)
        return [self._error or VerificationError(f"{staging.scanned.unit.name} is damaged") for staging in several]


class Run:
    """A run over a table of partitions, and what its rewriter asks.

    Attributes:
        scanned: the units, each with notes.
        disk: the folders that are there.
    """

    def __init__(self, folder: Path, metastore: Metastore, units: int) -> None:
        table = metastore.add("t", BASE, partitions=units)
        self.metastore, self.disk, in_use = metastore, Disk(), in_use_of(table, OtherTables(cast("Any", None)))
        self.records = Records(folder)
        self.journal = Journal.start(self.records.open(), run_record())
        self._lock = SimpleNamespace(token=1, check=lambda: None)
        self.disposal = Disposal(cast("Any", self.disk), in_use, BASE, run_record().run_id, self._lock.check)
        self._table: Any = SimpleNamespace(
            files=self.disk, in_use=in_use, target=SimpleNamespace(base=BASE), progress=Progress()
        )
        names = [f"p={number}" for number in range(units)]
        self.scanned = [(ScannedUnit(Unit(name, f"{BASE}/{name}", None, name, {}), {}, ()), ()) for name in names]

    def rewriter(self, engine: Engine) -> UnitRewriter:
        """Return the rewriter of its units."""
        run: Any = SimpleNamespace(
            run_id=run_record().run_id,
            table=self._table,
            journal=self.journal,
            lock=self._lock,
            disposal=self.disposal,
            secret=None,
            one_at_a_time=cast("Any", _Mutex()),
        )
        return UnitRewriter(run, engine, cast("Any", None))

    def failures(self) -> dict[str, str]:
        """Return unit -> the failure that is recorded of it."""
        statuses = self.journal.statuses()
        return {name: status.error or "" for name, status in statuses.items() if status.step == "unit_failed"}


class _Mutex:
    def __enter__(self) -> None:
        """Take nothing."""

    def __exit__(self, *_: object) -> None:
        """Give nothing back."""


@pytest.fixture
def metastore(monkeypatch: pytest.MonkeyPatch) -> Metastore:
    """A metastore without tables; nothing lies beside data, no file is opened, and no power cut concerns records."""
    made = Metastore()
    monkeypatch.setattr(in_use_module, "Catalog", lambda _: made)
    monkeypatch.setattr("sparkcrypt.runs.table.disposal.find_foreign_in", lambda *_: None)
    monkeypatch.setattr(unit_rewriter, "files_of", lambda *_: {})
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return made


def test_failed_units_are_given_up_at_once(tmp_path: Path, metastore: Metastore) -> None:
    """One look at the metastore before their folders are set aside and one after, one object of the log."""
    run = Run(tmp_path, metastore, 40)
    run.disposal.in_use.look()  # which lists all tables, once a command
    asked, objects = metastore.asked["`db`.`t`"], len(run.records.store.list(f"log/{TABLE}/"))
    results = run.rewriter(Engine(run.disk)).process_all(run.scanned)
    assert [str(result) for result in results] == [f"p={number} is damaged" for number in range(40)]
    assert run.failures() == {f"p={number}": f"VerificationError: p={number} is damaged" for number in range(40)}
    assert not run.disk.there and metastore.asked["`db`.`t`"] - asked == 2
    assert len(run.records.store.list(f"log/{TABLE}/")) == objects + 2  # they are listed, and failed


def test_cost_of_failed_units_grows_with_them(tmp_path: Path, metastore: Metastore) -> None:
    """Of a table of as many partitions."""

    def prepare(number: int) -> Work:
        folder = tmp_path / str(number)
        folder.mkdir()
        run = Run(folder, metastore, number)
        return lambda: run.rewriter(Engine(run.disk)).process_all(run.scanned)

    prepare(1)()
    assert_linear(prepare, 60, most=2.1)


def test_folder_that_stays_is_told_with_its_unit_alone(tmp_path: Path, metastore: Metastore) -> None:
    """Somebody pointed a table to what was staged of one."""
    run = Run(tmp_path, metastore, 3)

    class Used(Engine):
        def stage_all(self, several: Sequence[Staging]) -> list[StagedWork | Exception]:
            metastore.add("other", several[1].staged)
            return super().stage_all(several)

    run.rewriter(Used(run.disk)).process_all(run.scanned)
    told = [error for error in run.failures().values() if "was left as it is" in error]
    (left,) = run.disk.there
    assert len(told) == 1 and f"{left} is in use (db.other points to " in told[0] and "p=1 is damaged" in told[0]


def test_folders_that_cannot_be_deleted_are_told(
    tmp_path: Path, metastore: Metastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failures of their units are recorded all the same."""
    run = Run(tmp_path, metastore, 2)

    def refuse(*_: object) -> Mapping[str, str]:
        raise SparkcryptError("the disk is gone")

    monkeypatch.setattr(Disposal, "delete", refuse)
    run.rewriter(Engine(run.disk)).process_all(run.scanned)
    errors = run.failures()
    assert all(f"{name} is damaged; what was staged is left at " in error for name, error in errors.items())
    assert len(errors) == 2


def test_lost_lock_leaves_all_to_the_other_driver(tmp_path: Path, metastore: Metastore) -> None:
    """Nothing is deleted and nothing recorded."""
    run = Run(tmp_path, metastore, 2)
    with pytest.raises(RunConflictError, match="somebody else"):
        run.rewriter(Engine(run.disk, RunConflictError("somebody else has it"))).process_all(run.scanned)
    assert len(run.disk.there) == 2 and run.failures() == {} and not metastore.asked


def test_units_that_spark_stages_are_cleared_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it begins with the first of them; what it cannot stage fails alone."""
    calls = list[tuple[str, ...]]()
    table = SimpleNamespace(policy=None, target=SimpleNamespace(table=None, format="parquet", name="db.t"))

    class Spark:
        def __init__(self, _: object) -> None:
            pass

        def stage_all(self, several: Sequence[Staging]) -> list[StagedWork | Exception]:
            calls.append(("stage", *(staging.staged for staging in several)))
            works = [StagedWork("spark", None, ("as it is",), cast("Any", None)) for _ in several]
            return [VerificationError("no rows"), *works[1:]]

    def discard(folders: Sequence[str]) -> Mapping[str, str]:
        calls.append(("discard", *folders))
        return {}

    monkeypatch.setattr(native_engine, "SparkStager", Spark)
    monkeypatch.setattr(native_engine, "FileOrders", lambda *_, **__: None)
    stager = NativeStager(cast("Any", table), mac=cast("Any", None), discard=discard, renamed_by=None)
    refused: Any = SimpleNamespace(refused="lzo", error=None, target="f")
    order: Any = SimpleNamespace(carried=(), purged=(), target="f")
    names = [f"/s/{number}" for number in range(3)]
    work = [(Staging(ScannedUnit(Unit("u", "/u", None, "", {}), {}, ()), name), [order]) for name in names]
    found = stager._finish_all(work, cast("list[FileOutcome]", [refused] * 3), cast("Any", None))
    assert calls == [("discard", *names), ("stage", *names)]
    assert str(found["/s/0"]) == "no rows"
    made = found["/s/1"]
    assert isinstance(made, StagedWork) and made.notes[1].startswith("staged by Spark's engine, since 1 of its files")


def test_old_folders_of_units_that_were_moved_are_looked_for_at_once(metastore: Metastore) -> None:
    """Each unit is asked where it is; the places of all others count for some seconds."""
    others = OtherTables(cast("Any", None))
    in_use = in_use_of(metastore.add("t", BASE, partitions=30), others)
    run: Any = SimpleNamespace(table=SimpleNamespace(in_use=in_use, target=SimpleNamespace(name="db.t")))
    elsewhere = SimpleNamespace(repoints=True, current_location=lambda _: "/elsewhere")
    users = [
        moved_files._user_of_old(run, cast("Any", elsewhere), _partition(place), "/staged", f"{BASE}/p={old}")
        for place, old in [*((place, place) for place in range(30)), (3, 4)]
    ]
    assert users[:30] == [None] * 30 and users[30] == "p=4 points to file:/wh/t/p=4"
    assert metastore.asked["`db`.`t`"] == 1
    back: Any = SimpleNamespace(repoints=True, current_location=lambda _: f"{BASE}/p=3/")
    assert (
        moved_files._user_of_old(run, back, _partition(3), "/staged", f"{BASE}/p=3") == "p=3 points to file:/wh/t/p=3"
    )


def _partition(place: int) -> Unit:
    partition = Partition((("p", str(place)),), f"{BASE}/p={place}", "")
    return Unit(f"p={place}", f"{BASE}/p={place}", partition, f"p={place}", {})

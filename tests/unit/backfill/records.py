"""A state directory with the records of runs of one table, as many as a test asks for."""

from __future__ import annotations

from pathlib import Path

from sparkcrypt.ledger.audit.pins import PinPlace
from sparkcrypt.ledger.audit.trust import TableTrust
from sparkcrypt.ledger.journal.entries import (
    Proven,
    RunExpired,
    RunFinished,
    UnitListed,
    UnitStaged,
    UnitSwapped,
    UnitSwapping,
    UnitVerified,
)
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.ledger.unit import Folder, Unit, UnitOutcome
from sparkcrypt.spark.files.listing import SourceFile
from tests.unit.backfill.believed import BASE, make_service, policy_of
from tests.unit.backfill.conftest import TABLE, run_record


def name_run(number: int) -> str:
    """Return the id of a run that began in a minute of its own."""
    return f"20261121T{number // 60:02d}{number % 60:02d}12Z-3f9a2c"


def write_unit(journal: Journal, name: str, location: str = BASE, *, ends: bool = True) -> None:
    """Journal the steps of a unit of one file, as its run does; a unit may be left about to be swapped."""
    there = f"{location}/{name}"
    staged = f"/warehouse/db/.sparkcrypt/t/{journal.run.run_id}-1-1-0123abcd/{name}"
    files = (Folder("", (SourceFile(f"{there}/part-0.parquet", 1234, 1_763_780_000_000),)),)
    made = (Folder("", (SourceFile(f"{staged}/part-0.parquet", 1300, 1_763_780_001_000),)),)
    file = {"path": f"{there}/part-0.parquet", "bytes": 1234, "modified_ms": 1, "rows": 5, "digest": "d" * 64}
    target = {**file, "path": f"{staged}/part-0.parquet"}
    changes = [{"folder": "", "sources": [file], "targets": [target], "pages": {"equal": True}}]
    digests = {"of": "length and footer", "by": "HMAC-SHA256", "secret": {"key_id": "audit", "wrapped": "x"}}
    unit = Unit(name, there, None, partition_path=name, values={}, folders=files)
    journal.write(UnitListed(unit, staged))
    journal.write(UnitStaged(name, staged, made))
    journal.write(UnitVerified(name, staged, Proven(5, {"digests": digests, "changes": changes}, {})))
    journal.write(UnitSwapping(name, staged))
    if ends:
        outcome = UnitOutcome(name, 1, 5, 1234, 1300, there, staged, verified=True)
        journal.write(UnitSwapped(outcome, "sales.customers", "digest-1"))


class Records:
    """A state directory with runs of one table, and what opens it.

    Args:
        folder: an empty folder.

    Attributes:
        store: the state directory.
        policy: names the master keys of the audit.
        mac: the MAC of the table's audit.
        base: the table's folder.
        locations: the folders of its partitions that the metastore has.
    """

    def __init__(self, folder: Path) -> None:
        make_service(folder)
        self.store, self.policy = LocalStateStore(folder / "state"), policy_of(folder)
        self.base, self.locations = BASE, tuple[str, ...]()
        self.mac = self.trust().mac(renew=True)

    def trust(self, pins: tuple[PinPlace, ...] = ()) -> TableTrust:
        """Return what opens the journals, as a new command has it."""
        locations = (self.base, *self.locations)
        return TableTrust(
            self.store, TABLE, self.policy, self.base, lambda _: locations, lambda _: True, lambda _: pins
        )

    def open(self) -> TableLog:
        """Open the log."""
        return TableLog.open(self.store, TABLE, self.mac)

    def write_units(self, number: int, *, ends: bool = True, location: str = BASE) -> Journal:
        """Write a run of so many units, that has not ended."""
        journal = Journal.start(self.open(), run_record(name_run(0)))
        for unit in range(number):
            write_unit(journal, f"p={unit}", location.format(unit), ends=ends)
        return journal

    def write_runs(
        self, number: int, *, over: bool = False, but: int = -1, location: str = BASE, unit: str = "p={}"
    ) -> None:
        """Write so many runs of one unit each, that have ended but one; by default each of another unit."""
        log = self.open()
        for run in range(number):
            journal = Journal.start(log, run_record(name_run(run), run + 1))
            write_unit(journal, unit.format(run), location.format(run))
            if run != but:
                journal.write(RunFinished("done"))
            if over and run != but:
                journal.write(RunExpired((f"{BASE}/p={run}",)))

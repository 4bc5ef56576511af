"""What is recorded of a table costs as much as there is of it, not its square: units of a run, and runs of a table."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkcrypt.errors import StorageError
from sparkcrypt.ledger import log as log_module
from sparkcrypt.ledger.audit.audit import AuditWriter, list_entries, verify_audit
from sparkcrypt.ledger.audit.manifest import (
    LISTED_GONE,
    Digests,
    Manifest,
    ManifestFile,
    read_every_entry,
    read_listed,
)
from sparkcrypt.ledger.audit.pins import PinPlace, make_pin
from sparkcrypt.ledger.audit.trust import AuditIndex
from sparkcrypt.ledger.journal.entries import (
    UnitFailed,
)
from sparkcrypt.ledger.journal.journal import Journal, is_over
from sparkcrypt.ledger.journal.unit_status import attempts_of, undone_attempts
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.ledger.unit import Folder, Unit
from sparkcrypt.runs.old_folders.compare_with_audit import ListedFiles, compare_unread, places_of_unread
from sparkcrypt.runs.old_folders.old_folder import OldFolder
from sparkcrypt.runs.old_folders.problems import GONE, Decision, Problem, Problems
from sparkcrypt.runs.old_folders.replacements import Standing
from sparkcrypt.runs.table.in_use import Places
from sparkcrypt.runs.table.scan import ScannedUnit
from sparkcrypt.spark.files.listing import SourceFile
from tests.growth import Metered, Work, assert_linear
from tests.unit.backfill.believed import BASE
from tests.unit.backfill.conftest import TABLE, run_record
from tests.unit.backfill.records import Records, name_run, write_unit

METERED = (
    Metered(LocalStateStore, "list", "names", lambda _, names: len(names)),
    Metered(LocalStateStore, "read", "reads", lambda *_: 1),
    Metered(log_module, "decode_line", "decoded", lambda args, _: len(args[1])),
    Metered(TableMac, "check", "MACs", lambda *_: 1),
    Metered(Journal, "records", "records", lambda _, records: len(records)),
    Metered(TableLog, "of_run", "records", lambda _, records: len(records)),
)
"""What a state directory is asked, what is parsed and authenticated of it, and which records are handed out."""


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of records are made, which no power cut concerns."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def _open_run(records: Records, number: int) -> Work:
    records.write_units(number)
    return lambda: records.trust().journal(name_run(0)).statuses()


def _open_run_elsewhere(records: Records, number: int) -> Work:
    records.write_units(number, location="/elsewhere/{}")
    records.locations = tuple(f"/elsewhere/{place}/p={place}" for place in range(number))
    return lambda: records.trust().journal(name_run(0)).statuses()


def _open_runs_elsewhere(records: Records, number: int) -> Work:
    records.write_runs(number, location="/elsewhere/{}")
    records.locations = tuple(f"/elsewhere/{place}/p={place}" for place in range(number))
    return _open_each(records, number)


def _open_runs_of_renamed(records: Records, number: int) -> Work:
    """Open the runs of a table that has another name now."""
    records.write_runs(number)
    records.base = "/warehouse/db/renamed"
    return _open_each(records, number)


def _fail_units(records: Records, number: int) -> Work:
    journal = records.write_units(number, ends=False)

    def fail() -> None:
        for unit in range(number):
            assert journal.status_of(f"p={unit}").step == "unit_swapping"
            assert len(attempts_of(journal.of_unit(f"p={unit}"))[f"p={unit}"]) == 1
            journal.write(UnitFailed(f"p={unit}", "OSError: disk"))
            assert journal.last.kind == "unit_failed"

    return fail


def _find_undone(records: Records, number: int) -> Work:
    journal = records.write_units(number, ends=False)
    for unit in range(number):
        journal.write(UnitFailed(f"p={unit}", "OSError: disk"))

    def find() -> None:
        assert len(list(undone_attempts(journal.records, journal.statuses()))) == number

    return find


def _open_every_run(records: Records, number: int) -> Work:
    records.write_runs(number)
    return _open_each(records, number)


def _open_each(records: Records, number: int) -> Work:
    trust = records.trust()
    log = trust.log()

    def read() -> None:
        assert len([trust.journal(run_id, log) for run_id in Journal.runs(log)]) == number

    return read


def _open_log(records: Records, number: int) -> Work:
    records.write_runs(number)

    def read() -> None:
        trust = records.trust()
        assert len(Journal.runs(trust.log())) == len(Journal.runs(trust.log(), archived=False)) == number

    return read


def _find_unfinished(records: Records, number: int) -> Work:
    records.write_runs(number, but=0)

    def find() -> None:
        assert records.trust().find_unfinished() == name_run(0)

    return find


def _find_none(records: Records, number: int) -> Work:
    records.write_runs(number)

    def find() -> None:
        for _ in range(2):
            assert records.trust().find_unfinished() is None

    return find


def _find_unread(records: Records, number: int, damage: Callable[[bytes], bytes] | None = None) -> Work:
    """Damage a record amid each run."""
    records.write_runs(number)
    for name in records.store.list(f"log/{TABLE}/")[3::7]:
        content = records.store.read(name) or b""
        records.store.delete(name)
        if damage is not None:
            records.store.create(name, damage(content))
    log = records.open()

    def find() -> None:
        unread = [run_id for run_id in Journal.runs(log) if log.find_loss(run_id) is not None]
        assert len(unread) == len({log.describe_gap(gap) for gap in log.open_gaps}) == number

    return find


def _find_damaged(records: Records, number: int) -> Work:
    return _find_unread(records, number, lambda content: content[:-9])


def _find_forged(records: Records, number: int) -> Work:
    return _find_unread(records, number, lambda content: content.replace(b'"mac":"', b'"mac":"0'))


def _find_forged_at_end(records: Records, number: int) -> Work:
    """Put the first record of another run under each of so many numbers after the last one."""
    log = records.open()
    Journal.start(log, run_record(name_run(0)))
    for run in range(1, number + 1):
        content = log._make(name_run(run), 1, [("run_started", {})])[1]
        content = content.replace(b'"mac":"', b'"mac":"0')
        records.store.create(f"log/{TABLE}/{run + 1:08d}.json", content)
    log.refresh()

    def find() -> None:
        assert len([run_id for run_id in Journal.runs(log) if log.find_loss(run_id) is not None]) == number

    return find


def _append_beside(records: Records, number: int) -> Work:
    log, other = records.open(), records.open()
    journal = Journal.start(log, run_record(name_run(0)))

    def append() -> None:
        for unit in range(number):
            journal.append("unit_listed", unit=f"p={unit}")
        other.refresh()
        assert len(Journal.open(other, name_run(0)).records) == number + 1

    return append


def _pack(records: Records, number: int) -> Work:
    records.write_runs(number, over=True)

    def pack() -> None:
        records.open().pack()
        log = records.open()
        assert all(is_over(Journal.open(log, run_id)) for run_id in Journal.runs(log))

    return pack


def _verify(records: Records, number: int) -> Work:
    records.write_runs(number)

    def verify() -> None:
        assert verify_audit(records.store, TABLE, records.mac) is not None
        assert len(list(list_entries(records.store, TABLE, records.mac))) == number
        assert len(AuditIndex.of(records.open()).swaps) == number
        assert len(read_every_entry(records.store, TABLE, records.mac).listed) == number

    return verify


def _list_files(records: Records, number: int) -> Work:
    records.write_runs(number)

    def read() -> None:
        for _ in range(2):
            assert len(read_listed(records.store, records.open(), records.mac)[0].listed) == number

    return read


def _check_pins_of_run(records: Records, number: int) -> Work:
    records.write_units(number)
    return _check_pins_of(records)


def _check_pins(records: Records, number: int) -> Work:
    records.write_runs(number)
    return _check_pins_of(records)


def _check_pins_of(records: Records) -> Work:
    swapping = [record for record in records.open().records if record.kind == "unit_swapping"]
    places = tuple(
        PinPlace(str(record.unit), str(record.unit), BASE, make_pin(records.mac, TABLE, str(record.unit), record))
        for record in swapping
    )
    return lambda: records.trust(places).refuse_older_records()


class NoFiles:
    """A file system without any folder."""

    def exists(self, _: str) -> bool:
        """Return that it is not there."""
        return False

    def qualify(self, path: str) -> str:
        """Return a path as it is."""
        return path

    def listed_in_jvm(self, path: str, _: str) -> str:
        """Refuse a folder that is not there."""
        raise StorageError(f"{path}: not there")


def _compare_unread_of_one(records: Records, number: int) -> Work:
    """Compare those of one unit, which each run has swapped."""
    return _compare_unread(records, number, "p=0")


def _compare_unread(records: Records, number: int, unit: str = "p={}") -> Work:
    """Compare the old folders of runs whose journals are not trusted with the audit."""
    records.write_runs(number, unit=unit)
    units = {f"p={place}": f"{BASE}/p={place}" for place in range(number)}
    trust = records.trust()
    trust.audit()
    table = SimpleNamespace(
        trust=trust,
        files=NoFiles(),
        target=SimpleNamespace(base=BASE, name="sales.customers"),
        in_use=SimpleNamespace(units=lambda: units),
    )
    runs: Any = SimpleNamespace(table=table, problems=lambda: None, lock=SimpleNamespace(check=lambda: None))

    def compare() -> None:
        assert compare_unread(runs, ()) == []
        assert len(places_of_unread(runs, ())) == (number if unit == "p={}" else 1)

    return compare


def _compare_listed(records: Records, number: int) -> Work:
    """Compare units with the audit's list of their files, half of which have another file beside them."""
    records.write_runs(number)
    table = SimpleNamespace(
        store=records.store, target=SimpleNamespace(table_id=TABLE, name="sales.customers"), trust=records.trust()
    )
    runs: Any = SimpleNamespace(table=table, problems=lambda: None)
    scanned = []
    for place in range(number):
        folder = f"/warehouse/db/.sparkcrypt/t/{name_run(place)}-1-1-0123abcd/p={place}"
        names = ("part-0.parquet", "added.parquet")[: 1 + place % 2]
        files = (Folder("", tuple(SourceFile(f"{folder}/{name}", 1234, 1) for name in names)),)
        unit = Unit(f"p={place}", folder, None, partition_path=f"p={place}", values={}, folders=files)
        scanned.append(ScannedUnit(unit, {}, ()))

    listed = ListedFiles(runs, ())

    def compare() -> None:
        for unit in scanned:
            listed.compare(unit)
        assert listed.settle(whole=True, adopt=False) == []

    return compare


def _close_listed(records: Records, number: int) -> Work:
    """Close the problem of each unit whose files are those of the list again."""
    records.write_runs(number)
    trust, problems = records.trust(), Problems(records.store, TABLE, lambda: records.mac)
    target = SimpleNamespace(table_id=TABLE, name="sales.customers")
    table = SimpleNamespace(store=records.store, target=target, trust=trust, policy=records.policy)
    scanned = []
    for place in range(number):
        unit, folder = f"p={place}", f"/warehouse/db/.sparkcrypt/t/{name_run(place)}-1-1-0123abcd/p={place}"
        problems.add(Problem("", "sales.customers", name_run(place), unit, LISTED_GONE, folder))
        files = (Folder("", (SourceFile(f"{folder}/part-0.parquet", 1234, 1),)),)
        scanned.append(ScannedUnit(Unit(unit, folder, None, unit, {}, files), {}, ()))
    runs: Any = SimpleNamespace(
        table=table,
        problems=lambda: Problems(records.store, TABLE, lambda: records.mac),
        audit_writer=lambda: AuditWriter(trust.log(), number),
    )

    def close() -> None:
        listed = ListedFiles(runs, problems.open())
        for unit in scanned:
            listed.compare(unit)
        assert listed.settle(whole=True, adopt=False) == [] == runs.problems().open()

    return close


class ShortFiles:
    """Files that are no Parquet files, and how often they are opened."""

    def __init__(self) -> None:
        self.opened = 0

    def open(self, _: str) -> io.BytesIO:
        """Open one."""
        self.opened += 1
        return io.BytesIO(b"no")


def _find_replayed(_: Records, number: int) -> Work:
    """Look for earlier files of a unit among as many of the same length."""
    secret = {"key_id": "audit", "wrapped": "w"}
    known = [ManifestFile(f"/t/p=0/old-{place}", 9, f"{place}", secret) for place in range(number)]
    files = (Folder("", tuple(SourceFile(f"/t/p=0/new-{place}", 9, 1) for place in range(number))),)

    def find() -> None:
        there = ShortFiles()
        service: Any = SimpleNamespace(unwrap=lambda *_: b"s" * 32)
        listed = ListedFiles.__new__(ListedFiles)
        listed.__dict__ |= {
            "_history": Manifest(earlier={"p=0": {9: known}}),
            "_digests": Digests(cast("Any", there), service),
        }
        assert not listed._is_replayed(Unit("p=0", "/t/p=0", None, "p=0", {}, files), {})
        assert there.opened == number

    return find


def _follow_units(records: Records, number: int) -> Work:
    """Look for the later runs of each unit, from a run before all of them, and from its own."""
    records.write_runs(number)

    def follow() -> None:
        trust = records.trust()
        for place in range(number):
            assert len(list(trust.later_of("", f"p={place}"))) == 1
            assert list(trust.later_of(name_run(place), f"p={place}")) == []

    return follow


def _find_attempts(records: Records, number: int) -> Work:
    """Take the attempts at one unit from a run's journal."""
    journal = Journal.start(records.open(), run_record(name_run(0)))
    for _ in range(number):
        write_unit(journal, "p=0", ends=False)

    def find() -> None:
        (attempts,) = attempts_of(journal.records).values()
        assert [attempt.newest for attempt in attempts] == [False] * (number - 1) + [True]

    return find


def _list_settled(records: Records, number: int) -> Work:
    """List which old folders of each run may go, and which stay."""
    records.write_runs(number)
    log = records.open()
    journals = [Journal.open(log, run_id) for run_id in Journal.runs(log)]
    olds = tuple(old for journal in journals for old in OldFolder.list_waiting(journal))

    lost, places = tuple((old, "it may be the only copy") for old in olds), Places(())

    def list_all() -> None:
        standing = Standing(olds, {}, lost, frozenset(), places)
        for journal in journals:
            assert len(list(standing.of(journal))) == len(standing.list_refused(journal)) == 1

    return list_all


def _open_problems(records: Records, number: int) -> Work:
    """Open a problem of each unit, and find each again."""

    def open_all() -> None:
        problems = Problems(records.store, TABLE, lambda: records.mac)
        for _ in range(2):
            for place in range(number):
                found = Problem("", "sales.customers", name_run(0), f"p={place}", GONE, f"{BASE}/p={place}")
                assert problems.add(found).unit == f"p={place}"
        assert len(Problems(records.store, TABLE, lambda: records.mac).open()) == number

    return open_all


def _close_problems(records: Records, number: int) -> Work:
    """Close the problem of each unit, and ask which are open before and after that."""
    problems = Problems(records.store, TABLE, lambda: records.mac)
    for place in range(number):
        problems.add(Problem("", "sales.customers", name_run(0), f"p={place}", GONE, f"{BASE}/p={place}"))

    def close_all() -> None:
        problems = Problems(records.store, TABLE, lambda: records.mac)
        for place in range(number):
            known = problems.of(name_run(0), f"p={place}")
            assert known is not None
            problems.close(known.problem, Decision("both", "it is well again"))
            assert problems.of(name_run(0), f"p={place}") is None
        assert problems.open() == Problems(records.store, TABLE, lambda: records.mac).open() == []

    return close_all


WORKS: dict[str, tuple[Callable[[Records, int], Work], int, tuple[str, ...]]] = {
    "a run of many units is opened": (_open_run, 40, ("names", "reads", "decoded", "MACs", "records")),
    "a run of partitions elsewhere is opened": (_open_run_elsewhere, 40, ("records",)),
    "every run of partitions elsewhere is opened": (_open_runs_elsewhere, 40, ("records",)),
    "every run of a renamed table is opened": (_open_runs_of_renamed, 40, ("records",)),
    "units of a run fail": (_fail_units, 40, ("decoded", "MACs", "records")),
    "undone attempts are found": (_find_undone, 40, ("records",)),
    "every run is opened": (_open_every_run, 60, ("records",)),
    "a log of many runs is opened": (_open_log, 30, ("names", "reads", "decoded", "MACs")),
    "the first run is unfinished": (_find_unfinished, 30, ("names", "reads", "decoded", "MACs", "records")),
    "no run is unfinished": (_find_none, 30, ("names", "reads", "decoded", "MACs", "records")),
    "records are missing": (_find_unread, 60, ()),
    "records are damaged": (_find_damaged, 60, ()),
    "records are forged": (_find_forged, 60, ()),
    "records at the end are forged": (_find_forged_at_end, 60, ()),
    "records are appended and taken up": (_append_beside, 40, ("names", "reads", "decoded", "MACs")),
    "records are packed": (_pack, 60, ("names", "reads", "decoded", "MACs")),
    "the audit is read": (_verify, 30, ("names", "reads", "decoded", "MACs")),
    "the list of files is read": (_list_files, 30, ("names", "reads", "decoded", "MACs")),
    "runs that are not trusted are compared": (_compare_unread, 60, ()),
    "runs of one unit that are not trusted are compared": (_compare_unread_of_one, 60, ()),
    "units are compared with the audit's list": (_compare_listed, 200, ()),
    "units are those of the audit's list again": (_close_listed, 40, ("reads", "decoded", "MACs")),
    "files are looked for among earlier ones": (_find_replayed, 100, ()),
    "units are followed through later runs": (_follow_units, 40, ("names", "reads", "decoded", "MACs", "records")),
    "many attempts are made at a unit": (_find_attempts, 40, ()),
    "problems are opened": (_open_problems, 60, ("names", "reads", "MACs")),
    "problems are closed": (_close_problems, 60, ("names", "reads", "MACs")),
    "folders of runs are settled": (_list_settled, 60, ()),
    "pins of one run are checked": (_check_pins_of_run, 40, ("names", "reads", "decoded", "MACs", "records")),
    "pins are checked": (_check_pins, 30, ("names", "reads", "decoded", "MACs", "records")),
}
"""What is done -> what makes the records and returns it, for how many, and what it counts besides lines and calls."""
MOST_GROWTH = 2.1
"""Lines of code of one record are many, so a square must show beside them."""


@pytest.mark.parametrize("work", WORKS)
def test_cost_is_linear(tmp_path: Path, work: str) -> None:
    """Twice as many units, runs or records cost twice as much."""
    make, size, kinds = WORKS[work]

    def prepare(number: int) -> Work:
        folder = tmp_path / str(number)
        folder.mkdir()
        return make(Records(folder), number)

    assert_linear(prepare, size, ("lines", "calls", *kinds), METERED, most=MOST_GROWTH)


@pytest.mark.parametrize("kind", ["names", "reads", "decoded", "MACs", "records"])
def test_counter_catches_a_planted_square(tmp_path: Path, kind: str) -> None:
    """Whatever is asked of all records for each of them."""
    records = Records(tmp_path)
    journal = records.write_units(0)
    asked: dict[str, Callable[[], object]] = {
        "names": lambda: records.store.list(f"log/{TABLE}/"),
        "reads": lambda: [records.store.read(name) for name in records.store.list(f"log/{TABLE}/")],
        "decoded": records.open,
        "MACs": records.open,
        "records": lambda: journal.records,
    }

    def planted(number: int) -> Work:
        def work() -> None:
            for _ in range(number):
                asked[kind]()

        while len(journal.records) < number:
            journal.append("unit_listed", unit="p=0")
        return work

    with pytest.raises(AssertionError, match=rf"{kind}: .*, so they grow by [34]"):
        assert_linear(planted, 10, (kind,), METERED, most=MOST_GROWTH)

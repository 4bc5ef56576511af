"""The journal of a run, from which a killed run is continued: a view of the log of its table (`sparkcrypt.ledger.log`).

Its records are those of the log with the run's id and one of the `KINDS`; module ``entries`` defines their fields.
The first is of kind ``run_started``.  A journal of which a record is missing or damaged is refused, and so is one of
which a record that is not authentic stands at the end of the log, until the log goes on after that.

Once the old files of a run have expired, its records are packed without their lists of files, and nothing is appended.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.ledger.journal.entries import Entry, RunExpired
from sparkcrypt.ledger.journal.unit_status import UNIT_KINDS, UnitStatus, next_status
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.record import LogRecord
from sparkcrypt.ledger.state.store import StateStore

Record = LogRecord
RUN_KINDS = (
    *("run_started", "run_resumed", "run_paused", "run_finished", "run_rolled_back", "run_expiring", "run_expired"),
)
KINDS = RUN_KINDS + UNIT_KINDS
_NEW_FILES = ("unit_swapped", "unit_moved", "unit_rolled_back")
DAMAGED = "the state directory was damaged; restore it, or look at the table and start a new run"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The inputs of a run; ``plan`` and ``options`` are JSON values, fixed in the journal's first record."""

    table_id: str
    table: str
    run_id: str
    policy_digest: str
    plan: dict[str, Any]
    options: dict[str, Any]
    fencing_token: int

    @property
    def where(self) -> str | None:
        """The predicate that selects the run's partitions."""
        return self.options.get("where")

    @property
    def output(self) -> str | None:
        """The folder to which the run copies; None for a run that swaps."""
        return self.options.get("output") or None

    @property
    def allows_decryption(self) -> bool:
        """Whether the run was allowed to decrypt columns, and so is what comes late to its old folders."""
        return bool(self.options.get("allow_decrypt"))

    @property
    def moves_old(self) -> bool:
        """Whether the run moves old files out of the table's folder."""
        return bool(self.options.get("move_old"))


class _Units:
    """What records say of their units: it is taken from each record once."""

    def __init__(self) -> None:
        self.statuses: dict[str, UnitStatus] = {}
        self.records: dict[str, list[Record]] = {}
        self._taken = 0

    def take(self, records: Sequence[Record]) -> None:
        """Take the records that were not taken yet, of all so far."""
        for record in records[self._taken :]:
            if record.kind in UNIT_KINDS:
                unit = str(record.fields["unit"])
                self.statuses[unit] = next_status(record, self.statuses.get(unit))
                self.records.setdefault(unit, []).append(record)
        self._taken = len(records)


class Journal:
    """The records of a run, created by ``start`` or read by ``open``; threads may ask concurrently.

    What is asked costs what the log got since it was last asked, but `records` and `statuses`, which return all.
    """

    def __init__(self, log: TableLog, run: RunRecord) -> None:
        self.log, self.run = log, run
        self._mutex = threading.Lock()
        self._taken = 0
        self._newest: Record | None = None
        self._records: list[Record] = []
        self._units = _Units()
        self._token = max([run.fencing_token, *(record.fencing_token for record in self.records)])

    @property
    def records(self) -> tuple[Record, ...]:
        """Every record, oldest first."""
        with self._mutex:
            return tuple(self._read())

    @property
    def last(self) -> Record:
        """The last record."""
        with self._mutex:
            return self._read()[-1]

    def statuses(self) -> dict[str, UnitStatus]:
        """Return the status of each unit, in the order in which the units were first listed."""
        with self._mutex:
            return dict(self._read_units().statuses)

    def status_of(self, unit: str) -> UnitStatus:
        """Return the status of a unit.

        Raises:
            KeyError: no record is about it.
        """
        with self._mutex:
            return self._read_units().statuses[unit]

    def of_unit(self, unit: str) -> tuple[Record, ...]:
        """Return the records of a unit, oldest first."""
        with self._mutex:
            return tuple(self._read_units().records.get(unit, ()))

    def _read(self) -> list[Record]:
        """Return every record, after those were taken from the log that it got since."""
        later = self.log.of_run(self.run.run_id, max(self._taken - 1, 0))
        if self._newest is not None and (not later or later[0] is not self._newest):  # it was of another past
            self._taken, self._newest, self._records, self._units = 0, None, [], _Units()
            later = self.log.of_run(self.run.run_id)
        for record in later if self._newest is None else later[1:]:
            self._taken, self._newest = self._taken + 1, record
            if record.kind in KINDS:
                self._records.append(record)
        return self._records

    def _read_units(self) -> _Units:
        self._units.take(self._read())
        return self._units

    @property
    def authenticated(self) -> bool:
        """Whether each record was authenticated; if not, the journal may only be shown."""
        return self.log.authenticates

    @property
    def archived(self) -> bool:
        """Whether lists of files are gone: the old files have expired, and nothing is appended."""
        return self.log.is_short(self.run.run_id)

    @classmethod
    def start(cls, log: TableLog, run: RunRecord) -> Journal:
        """Begin the journal of a new run.

        Args:
            log: the log of its table; commands that act on records refuse those written without a MAC key.
            run: the run's inputs.

        Raises:
            RunConflictError: a run of that id exists.
        """
        if log.of_run(run.run_id):
            raise RunConflictError(f"run {run.run_id}: exists, so it is not begun again")
        journal = cls(log, run)
        fields = {name: value for name, value in asdict(run).items() if name not in ("run_id", "fencing_token")}
        journal.append("run_started", **fields)
        return journal

    @classmethod
    def open(cls, log: TableLog, run_id: str) -> Journal:
        """Return the journal of a run.

        Args:
            log: the log of its table; without MAC keys the journal may be shown, but not acted on.
            run_id: the run's id.

        Raises:
            VerificationError: a record is missing, damaged, not authentic, or of an unknown kind; the message names it.
        """
        why = log.find_loss(run_id)
        if why is not None:
            raise VerificationError(f"run {run_id}: {why}; {DAMAGED}")
        records = log.of_run(run_id)
        if log.is_short(run_id) and not _is_over(records):
            raise VerificationError(
                f"run {run_id}: its lists of files were left out, though its old files have not expired; {DAMAGED}"
            )
        for record in records:
            if record.kind.startswith(("run_", "unit_")) and not _is_known(record):
                raise VerificationError(
                    f"{record.name}: its kind {record.kind!r} is not known; use the release that wrote it"
                )
        if not records or records[0].kind != "run_started":
            raise VerificationError(
                f"{log.name}: the first record of run {run_id} is not whole or not there; {DAMAGED}"
            )
        return cls(log, _run_record(records[0], log.table_id))

    @staticmethod
    def runs(log: TableLog, *, archived: bool = True) -> tuple[str, ...]:
        """Return the ids of a table's runs, oldest first, with those that only records that are not authentic name.

        Args:
            log: the log of the table.
            archived: include runs whose lists of files are gone.
        """
        found = {record.run_id: False for record in log.records if record.kind in KINDS}
        found |= {run_id: False for run_id, kind in log.claims() if kind in KINDS}
        if not archived:
            found |= {run_id: log.is_short(run_id) and _is_over(log.of_run(run_id)) for run_id in found}
        return tuple(sorted(run_id for run_id, is_archived in found.items() if not is_archived))

    def write(self, entry: Entry) -> Record:
        """Append an entry as a record; see `append_all`."""
        return self.write_all([entry])[0]

    def write_all(self, entries: Sequence[Entry]) -> Sequence[Record]:
        """Append entries as records; see `append_all`."""
        return self.append_all([(entry.kind, entry.to_dict()) for entry in entries])

    def append(self, kind: str, **fields: Any) -> Record:
        """Append a record; see `append_all`."""
        return self.append_all([(kind, fields)])[0]

    def append_all(self, records: Sequence[tuple[str, dict[str, Any]]]) -> Sequence[Record]:
        """Append records, all or none of them, as one object of the log; threads may call this concurrently.

        Args:
            records: for each one of ``KINDS``, and JSON values; that of a unit has the unit's name under ``unit``.

        Raises:
            RunConflictError: another driver appended to the log, so this driver is fenced off; or the run has expired.
        """
        for kind, fields in records:
            if kind not in KINDS or (kind in UNIT_KINDS and not isinstance(fields.get("unit"), str)):
                raise SparkcryptError(
                    f"run {self.run.run_id}: {kind!r} is no record of a journal; allowed: {', '.join(KINDS)}, those of "
                    "units with the unit's name as unit"
                )
        if self.archived:
            raise RunConflictError(
                f"run {self.run.run_id}: its old files have expired, so nothing more is done with it"
            )
        return self.log.append_all(self.run.run_id, self._token, records) if records else ()

    def resume(self, fencing_token: int) -> Record:
        """Continue the run under a new lock, whose token fences off the driver that held an earlier one.

        Raises:
            RunConflictError: the token is older than the journal's, or another driver wrote the next record.
        """
        if fencing_token < self._token:
            raise RunConflictError(
                f"run {self.run.run_id}: its journal was continued under fencing token {self._token}, this driver has "
                f"{fencing_token}; it stops and changes nothing"
            )
        self._token = fencing_token
        return self.append("run_resumed")


def has_ended(journal: Journal) -> bool:
    """Return whether a run has ended."""
    return _has_ended(journal.records)


def has_expired(journal: Journal) -> bool:
    """Return whether all old files of a run were deleted.

    They were not if a paused run has changed units since then, or if units with an open problem were left.
    """
    return _has_expired(journal.records)


def _has_ended(records: Sequence[Record]) -> bool:
    return any(record.kind == "run_finished" for record in records)


def _has_expired(records: Sequence[Record]) -> bool:
    steps = [record for record in records if record.kind in (*_NEW_FILES, "run_expired")]
    return bool(steps) and steps[-1].kind == "run_expired" and not RunExpired.from_dict(steps[-1].fields).units_left


_CHANGE_NO_UNIT = (
    *("run_resumed", "run_expiring", "run_expired"),
    *("unit_carrying", "unit_carried", "unit_resolved", "unit_moved", "unit_relocated"),
)
"""The kinds of records that `expire` writes; a driver that continues the run writes other kinds too."""


def is_paused(journal: Journal) -> bool:
    """Return whether a run stopped at its budget, every unit done or unchanged, and was not continued since."""
    kinds = [record.kind for record in journal.records if record.kind not in _CHANGE_NO_UNIT]
    return not has_ended(journal) and kinds[-1:] == ["run_paused"]


def is_over(journal: Journal) -> bool:
    """Return whether a run has ended, and all of its old files were deleted, as of each that is archived."""
    return _is_over(journal.records)


def _is_over(records: Sequence[Record]) -> bool:
    """Return whether a run needs its lists of files no more; of others nobody may have left them out."""
    return _has_ended(records) and _has_expired(records)


def list_table_ids(store: StateStore) -> tuple[str, ...]:
    """Return the ids of the tables and folders, and of the audit of keys, that have a log, sorted."""
    return tuple(sorted({name.split("/")[1] for name in store.list("log/")}))


def new_run_id(clock: Callable[[], float] = time.time) -> str:
    """Return a run id such as ``20261121T101112Z-3f9a2c``: three hex digits of milliseconds, then three random ones."""
    now = clock()
    milliseconds = int(now * 1000) % 1000
    start = datetime.fromtimestamp(int(now), timezone.utc)
    return f"{start:%Y%m%dT%H%M%S}Z-{milliseconds:03x}{secrets.randbelow(0x1000):03x}"


def list_run_ids(store: StateStore) -> frozenset[str]:
    """Return the ids of the runs that a state directory knows, of any table; nothing is authenticated."""
    logs = (TableLog.open(store, table_id, None) for table_id in list_table_ids(store))
    return frozenset(run_id for log in logs for run_id in Journal.runs(log))


def start_of_run(run_id: str) -> int:
    """Return when a run began by its id, in milliseconds since the epoch; a second may be missing."""
    return int(datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc).timestamp() * 1000)


def check_same_policy(journal: Journal, digest: str) -> None:
    """Check that a run is continued under the policy with which it began.

    Raises:
        RunConflictError: the policy has changed since.
    """
    if journal.run.policy_digest != digest:
        raise RunConflictError(
            f"{journal.run.table}: run {journal.run.run_id} is unfinished and began under policy "
            f"{journal.run.policy_digest}, which is now {digest}; finish it under the policy with which it began, "
            "or give --resume never, which settles its units, closes it and begins another run"
        )


def _is_known(record: Record) -> bool:
    return record.kind in KINDS and (record.kind not in UNIT_KINDS or "unit" in record.fields)


def _run_record(first: Record, table_id: str) -> RunRecord:
    try:
        run = RunRecord(run_id=first.run_id, fencing_token=first.fencing_token, **first.fields)
    except TypeError as error:
        raise VerificationError(f"{first.name}: does not say how the run was started; {DAMAGED}") from error
    if run.table_id != table_id:
        raise VerificationError(f"{first.name}: belongs to table {run.table_id}; {DAMAGED}")
    return run

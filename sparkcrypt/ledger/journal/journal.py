"""The journal of a run: numbered, chained, authenticated records from which a killed run is continued.

    runs/<table id>/<run id>/000001.json          first record, of kind ``run_started``
    runs/<table id>/<run id>/000007-retry1.json   record 7, if ``000007.json`` is torn
    archive/<table id>/<run id>.json              the whole journal without the lists of files, once old files expired

A record is one line of canonical JSON: ``version``, ``table_id``, ``number``, ``time`` (UTC), ``kind``, ``run_id``,
``fencing_token``, ``fields`` (module ``entries`` defines those of each kind), ``previous`` (SHA-256 of the bytes of the
record before), ``supersedes`` (SHA-256 of the torn record whose number it takes, else null), ``mac`` (of the table's
audit, over a purpose and the canonical JSON of all these; null if the writer had no MAC key) and ``checksum`` (SHA-256
of the record without it).

Each record is created exclusively: if two drivers continue one run, only one can write record *n*, and the other is
fenced off.  A *torn* record was cut off before its end (after a power cut, on a file system that stores a name before
the content).  Only the last record may be torn.  It is never deleted, since a slow driver could then delete the good
record that replaced it.  Its number is used again under the name ``-retry1`` (``-retry2`` …), also created exclusively,
and ``supersedes`` pins the torn bytes: a torn record that changes later is damage.

The chain detects accidental damage anywhere in the journal; the MAC of the table's audit detects records written by an
attacker who can only write to the state directory.  Neither detects that the last records are missing (as after a
crash).  The audit does: its entries name the journal record after which they were written (``trust``).

An archive has the MAC of the table's audit, under its own purpose: version, table_id, run_id, records (each with the
SHA-256 of the original), mac.  It is written before the records of the journal are deleted, which happens oldest first:
while both exist, either shows that the run has ended.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.ledger.journal.entries import Entry
from sparkcrypt.ledger.state.mac import CheckMac, Mac, TableMac, open_sealed, seal_record
from sparkcrypt.ledger.state.store import StateStore, decode_record, encode_decoded, encode_record

VERSION = 2
UNIT_KINDS = (
    *("unit_listed", "unit_staged", "unit_verified", "unit_swapping", "unit_swapped", "unit_moved", "unit_failed"),
    *("unit_carrying", "unit_carried", "unit_resolved", "unit_relocated", "unit_rolling_back", "unit_rolled_back"),
)
RUN_KINDS = (
    *("run_started", "run_resumed", "run_paused", "run_finished", "run_rolled_back", "run_expiring", "run_expired"),
)
KINDS = RUN_KINDS + UNIT_KINDS
DAMAGED = "the state directory was damaged; restore it, or look at the table and start a new run"

_RECORD_PURPOSE = b"sparkcrypt journal record\n"
"""The prefix of authenticated bytes: the same MAC key authenticates other kinds of records, with other prefixes."""
_RECORD_NAME = re.compile(r"(?P<number>\d{6}|[1-9]\d{6,})(?:-retry(?P<attempt>[1-9]\d*))?\.json")


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a journal, stored in the state directory under ``name``.

    ``digest`` is the SHA-256 of its bytes; ``generation`` is the number of the MAC key of the table's audit that made
    its MAC, counted from 1, and 0 if the MAC was not checked or there is none.
    """

    name: str
    number: int
    time: str
    kind: str
    run_id: str
    fencing_token: int
    fields: Mapping[str, Any]
    previous: str
    supersedes: str | None
    checksum: str
    digest: str
    generation: int = 0

    @property
    def authenticated(self) -> bool:
        """Whether its MAC was checked and is correct."""
        return self.generation > 0

    @property
    def unit(self) -> str | None:
        """The name of the record's unit; None for a record of the whole run."""
        unit = self.fields.get("unit")
        return unit if isinstance(unit, str) else None

    @property
    def staged(self) -> str | None:
        """The folder where new files are made, if the record names it."""
        return str(self.fields["staged"]) if "staged" in self.fields else None


def make_record(body: Mapping[str, Any], mac: Mac | None) -> bytes:
    """Return the bytes of a record.

    Args:
        body: ``table_id``, ``number``, ``kind``, ``run_id``, ``fencing_token``, ``fields``, ``previous`` and
            ``supersedes``.
        mac: the MAC of the table's audit; a record made with None is refused wherever MACs are checked.
    """
    fields = {"version": VERSION, "time": datetime.now(timezone.utc).isoformat(), **body}
    whole = {**fields, "mac": None if mac is None else mac(_RECORD_PURPOSE + encode_record(fields))}
    return encode_record({**whole, "checksum": digest_of(encode_record(whole))})


def parse_record(name: str, content: bytes, table_id: str, check_mac: CheckMac | None) -> Record:
    """Return the record that bytes encode.

    Args:
        name: its name in the state directory.
        content: its bytes.
        table_id: the table to which it must belong.
        check_mac: returns the number of the MAC key that made a MAC; with None the record is not authenticated.

    Raises:
        VerificationError: the record is damaged, of an unknown version or kind, of another table, or not authentic.
    """
    body = decode_record(name, content)
    version, checksum = body.get("version"), body.pop("checksum", None)
    if version != VERSION:
        raise VerificationError(f"{name}: has version {version!r}; allowed: {VERSION}; use the release that wrote it")
    if checksum != digest_of(encode_decoded(body)):
        raise VerificationError(f"{name}: its checksum is wrong; {DAMAGED}")
    generation = _generation(name, body, check_mac)
    del body["version"]
    if body.pop("table_id", None) != table_id:
        raise VerificationError(f"{name}: belongs to another table than {table_id}; {DAMAGED}")
    try:
        record = Record(name=name, checksum=checksum, digest=digest_of(content), generation=generation, **body)
    except TypeError as error:
        raise VerificationError(f"{name}: has fields {sorted(body)}, which are not a record's; {DAMAGED}") from error
    if record.kind not in KINDS or (record.kind in UNIT_KINDS and "unit" not in record.fields):
        raise VerificationError(f"{name}: its kind {record.kind!r} is not known; use the release that wrote it")
    return record


def _generation(name: str, body: dict[str, Any], check_mac: CheckMac | None) -> int:
    """Remove the MAC from a record, and return the number of the key that made it; 0 if ``check_mac`` is None.

    Raises:
        VerificationError: no key made it.
    """
    mac = body.pop("mac", None)
    if check_mac is None:
        return 0
    generation = check_mac(_RECORD_PURPOSE + encode_decoded(body), mac) if isinstance(mac, str) else 0
    if not generation:
        raise VerificationError(
            f"{name}: does not authenticate: it was edited, or written by someone else; nothing is done on its word; "
            "compare the state directory with a backup"
        )
    return generation


def place_of(name: str) -> tuple[int, int]:
    """Return the number and the attempt in a record's name.

    Raises:
        VerificationError: this is not the name of a record.
    """
    match = _RECORD_NAME.fullmatch(name.rpartition("/")[2])
    if match is None:
        raise VerificationError(f"{name}: is not the name of a journal record; {DAMAGED}")
    return int(match["number"]), int(match["attempt"] or 0)


def is_torn(content: bytes) -> bool:
    """Return whether bytes are a record that was cut off before its only line feed, the last byte.

    Bytes that contain a line feed, or continue after a complete JSON value, are not torn.
    """
    if b"\n" in content:
        return False
    try:
        return json.JSONDecoder().raw_decode(content.decode("latin-1"))[1] == len(content)
    except (ValueError, RecursionError):
        return True


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of bytes, in hex."""
    return hashlib.sha256(content).hexdigest()


_ARCHIVE_VERSION = 1
_ARCHIVE_PURPOSE = b"sparkcrypt archived run\n"
_LISTS = ("files", "made", "evidence")
"""Fields that are long, and needed only while old files exist."""


def archive_records(store: StateStore, table_id: str, run_id: str, records: tuple[Record, ...], mac: TableMac) -> None:
    """Replace a run's journal by one record; a second call completes a call that was interrupted.

    Args:
        store: the state directory.
        table_id: the table's id.
        run_id: a run that has ended, and whose old files no longer exist.
        records: its whole journal, which was authenticated.
        mac: the MAC of the table's audit.
    """
    kept = [
        {
            "number": record.number,
            "time": record.time,
            "kind": record.kind,
            "fencing_token": record.fencing_token,
            "fields": {name: value for name, value in record.fields.items() if name not in _LISTS},
            "digest": record.digest,
        }
        for record in records
    ]
    members = {"version": _ARCHIVE_VERSION, "table_id": table_id, "run_id": run_id, "records": kept}
    store.create(_archive_name(table_id, run_id), seal_record(_ARCHIVE_PURPOSE, members, mac))
    clear_archived(store, table_id, run_id, mac.check)


def clear_archived(store: StateStore, table_id: str, run_id: str, check_mac: CheckMac) -> None:
    """Delete the records of a journal, oldest first, if the run has an authentic archive."""
    try:
        archived = read_archive(store, table_id, run_id, check_mac)
    except VerificationError:
        return  # the archive is not authentic, so the journal stays
    if archived is not None:
        for name in sorted(store.list(f"runs/{table_id}/{run_id}/")):
            store.delete(name)


def list_archived_runs(store: StateStore, table_id: str) -> tuple[str, ...]:
    """Return the ids of a table's runs that have an archive, oldest first."""
    return tuple(name.rpartition("/")[2].removesuffix(".json") for name in store.list(f"archive/{table_id}/"))


def read_archive(
    store: StateStore, table_id: str, run_id: str, check_mac: CheckMac | None
) -> tuple[Record, ...] | None:
    """Return the archived records of a run; None if the run has no archive.

    Args:
        store: the state directory.
        table_id: the table's id.
        run_id: the run's id.
        check_mac: returns the number of the MAC key that made a MAC; with None the archive is not authenticated.

    Raises:
        VerificationError: the archive is damaged, of another run, or not authentic.
    """
    name = _archive_name(table_id, run_id)
    content = store.read(name)
    if content is None:
        return None
    expected = {"version": _ARCHIVE_VERSION, "table_id": table_id, "run_id": run_id}
    if check_mac is None:
        members = decode_record(name, content)
        if any(members.get(key) != value for key, value in expected.items()):
            raise VerificationError(f"{name}: is not the archive of this run; restore the state directory's copy of it")
    else:
        members = open_sealed(_ARCHIVE_PURPOSE, name, content, check_mac, expected)
    return tuple(_restore_record(name, run_id, record) for record in members["records"])


def _restore_record(name: str, run_id: str, fields: Mapping[str, Any]) -> Record:
    return Record(
        name=name,
        run_id=run_id,
        previous="",
        supersedes=None,
        checksum="",
        **fields,
    )


def _archive_name(table_id: str, run_id: str) -> str:
    return f"archive/{table_id}/{run_id}.json"


class JournalChain:
    """The records of one run, each chained to the one before."""

    def __init__(self, table_id: str, run_id: str, mac: TableMac | None) -> None:
        self._table_id, self._run_id, self.mac = table_id, run_id, mac
        self.folder = f"runs/{table_id}/{run_id}/"
        self.records: list[Record] = []
        self.torn_name: str | None = None
        self._last = b""
        self._torn = b""
        self._attempt = 0
        self.archived = False

    def load_archive(self, store: StateStore) -> bool:
        """Load the run's archive; False if it has none, or an archive that is not valid while the journal exists."""
        try:
            found = read_archive(store, self._table_id, self._run_id, None if self.mac is None else self.mac.check)
        except VerificationError:
            if not store.list(self.folder):
                raise
            found = None  # the journal exists, so it alone counts
        self.records.extend(found or ())
        self.archived = found is not None
        return self.archived

    def load(self, store: StateStore) -> None:
        """Read every record of the run and check that each follows from the one before.

        Raises:
            VerificationError: a record does not; the message names it.
        """
        for name in sorted(store.list(self.folder), key=place_of):
            number, attempt = place_of(name)
            if (number, attempt) != (len(self.records) + 1, self._attempt):
                expected = self._name(len(self.records) + 1, self._attempt)
                raise VerificationError(f"{name}: stands where {expected} is missing; {DAMAGED}")
            content = store.read(name) or b""
            if is_torn(content):
                self._torn, self.torn_name, self._attempt = content, name, attempt + 1
            else:
                self.take(name, content)

    def take(self, name: str, content: bytes) -> Record:
        """Add the record that is stored under a name, after checking that it is the next one.

        Raises:
            VerificationError: the record is damaged, not authentic, or not the next one.
        """
        record = parse_record(name, content, self._table_id, None if self.mac is None else self.mac.check)
        problem = self._problem(record)
        if problem:
            raise VerificationError(f"{name}: {problem}; {DAMAGED}")
        self.records.append(record)
        self._last, self._torn, self._attempt, self.torn_name = content, b"", 0, None
        return record

    def next_record(self, kind: str, token: int, fields: Mapping[str, Any]) -> tuple[str, bytes]:
        """Return the name and the bytes of a record that can be appended."""
        number = len(self.records) + 1
        body = {
            "table_id": self._table_id,
            "number": number,
            "kind": kind,
            "run_id": self._run_id,
            "fencing_token": token,
            "fields": fields,
            "previous": digest_of(self._last),
            "supersedes": digest_of(self._torn) if self._attempt else None,
        }
        return self._name(number, self._attempt), make_record(body, self.mac)

    def _problem(self, record: Record) -> str | None:
        before = self.records[-1] if self.records else record
        if record.run_id != self._run_id:
            return f"belongs to run {record.run_id}"
        if record.number != len(self.records) + 1:
            return f"is record {record.number} under another's name"
        if record.previous != digest_of(self._last):
            return "does not follow from the record before it, which was changed or replaced"
        if record.supersedes != (digest_of(self._torn) if self._attempt else None):
            return "does not follow from the torn record whose number it takes"
        if record.fencing_token < before.fencing_token:
            return "was written by a driver that had been fenced off"
        if record.generation < before.generation:
            return "is under a MAC key that a record before it had given up"
        return None

    def _name(self, number: int, attempt: int) -> str:
        return f"{self.folder}{number:06d}{f'-retry{attempt}' if attempt else ''}.json"


__all__ = ["KINDS", "RUN_KINDS", "UNIT_KINDS", "VERSION", "Journal", "Record", "RunRecord"]


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


class Journal:
    """The records of a run, created by ``start`` or read by ``open``."""

    def __init__(self, store: StateStore, run: RunRecord, chain: JournalChain) -> None:
        self._store, self._chain, self.run = store, chain, run
        self._mutex = threading.Lock()
        self._token = max([run.fencing_token, *(record.fencing_token for record in chain.records)])

    @property
    def records(self) -> tuple[Record, ...]:
        """Every record, oldest first."""
        return tuple(self._chain.records)

    @property
    def torn(self) -> str | None:
        """The name of the torn last record, whose number the next record takes; None if there is none."""
        return self._chain.torn_name

    @property
    def authenticated(self) -> bool:
        """Whether each record has the audit's MAC; if not, the journal may only be shown."""
        return self._chain.mac is not None

    @property
    def archived(self) -> bool:
        """Whether only the archive is left, without lists of files: the old files have expired, nothing is appended."""
        return self._chain.archived

    @classmethod
    def start(cls, store: StateStore, run: RunRecord, mac: TableMac | None = None) -> Journal:
        """Begin the journal of a new run.

        Args:
            store: the state directory.
            run: the run's inputs.
            mac: the MAC of the table's audit; commands that act on records refuse those written without it.

        Raises:
            RunConflictError: a run of that id exists.
        """
        journal = cls(store, run, JournalChain(run.table_id, run.run_id, mac))
        fields = {name: value for name, value in asdict(run).items() if name not in ("run_id", "fencing_token")}
        journal.append("run_started", **fields)
        return journal

    @classmethod
    def open(cls, store: StateStore, table_id: str, run_id: str, mac: TableMac | None = None) -> Journal:
        """Read the journal of a run and check every record.

        Args:
            store: the state directory.
            table_id: the table's id.
            run_id: the run's id.
            mac: the MAC of the table's audit; without it the journal may be shown, but not acted on.

        Raises:
            VerificationError: a record is missing, damaged, not authentic, not in the chain, or of an unknown version
                or kind; the message names the file.
        """
        chain = JournalChain(table_id, run_id, mac)
        if chain.load_archive(store):
            return cls(store, _run_record(chain.records[0], table_id), chain)
        chain.load(store)
        if not chain.records or chain.records[0].kind != "run_started":
            raise VerificationError(f"{chain.folder}: the journal's first record is not whole or not there; {DAMAGED}")
        return cls(store, _run_record(chain.records[0], table_id), chain)

    @staticmethod
    def runs(store: StateStore, table_id: str, *, archived: bool = True) -> tuple[str, ...]:
        """Return the ids of a table's runs, oldest first, except those that never began: their only record is torn.

        Args:
            store: the state directory.
            table_id: the table's id.
            archived: include runs of which only an archive is left.
        """
        names: dict[str, list[str]] = {}
        for name in store.list(f"runs/{table_id}/"):
            names.setdefault(name.split("/")[2], []).append(name)
        began = (run for run, own in names.items() if len(own) > 1 or not is_torn(store.read(own[0]) or b""))
        return tuple(sorted({*began, *(list_archived_runs(store, table_id) if archived else ())}))

    @staticmethod
    def find_table(store: StateStore, table_id: str, run_id: str) -> str:
        """Return the table's name at the start of a run, from its first record alone, which is not authenticated.

        Raises:
            VerificationError: there is no such record, or it is damaged.
        """
        archived = read_archive(store, table_id, run_id, None)
        if archived:
            return _run_record(archived[0], table_id).table
        folder = f"runs/{table_id}/{run_id}/"
        for name in sorted(store.list(folder), key=place_of):
            content = store.read(name) or b""
            if not is_torn(content):
                return _run_record(parse_record(name, content, table_id, None), table_id).table
        raise VerificationError(f"{folder}: the journal's first record is not whole or not there; {DAMAGED}")

    @staticmethod
    def has_ended(store: StateStore, table_id: str, run_id: str, mac: TableMac | None = None) -> bool:
        """Return whether a run has a ``run_finished`` record, reading back from its newest record.

        If ``mac`` is given, only a record under its newest key counts.  One under an earlier key ends a run only if the
        whole journal is authentic, which `open` checks.

        Raises:
            VerificationError: a record that was read is damaged, of another run, or not authentic.
        """
        check_mac, newest = (None, 0) if mac is None else (mac.check, mac.newest)
        for name in sorted(store.list(f"runs/{table_id}/{run_id}/"), key=place_of, reverse=True):
            content = store.read(name) or b""
            if is_torn(content):
                continue
            record = parse_record(name, content, table_id, check_mac)
            if record.run_id != run_id:
                raise VerificationError(f"{name}: belongs to run {record.run_id}; {DAMAGED}")
            if record.kind == "run_finished":
                if record.generation == newest:
                    return True
                break
        try:
            return read_archive(store, table_id, run_id, check_mac) is not None
        except VerificationError:
            return False  # the archive is not authentic, so the journal alone counts

    def write(self, entry: Entry) -> Record:
        """Append an entry as a record; see `append`."""
        return self.append(entry.kind, **entry.to_dict())

    def append(self, kind: str, **fields: Any) -> Record:
        """Append a record; threads may call this concurrently.

        Args:
            kind: one of ``KINDS``.
            **fields: JSON values; a record of a unit has the unit's name under ``unit``.

        Raises:
            RunConflictError: another driver wrote the record of this number, so this driver is fenced off; or the run
                has expired.
        """
        if kind not in KINDS or (kind in UNIT_KINDS and not isinstance(fields.get("unit"), str)):
            raise SparkcryptError(
                f"run {self.run.run_id}: {kind!r} is no record of a journal; allowed: {', '.join(KINDS)}, those of "
                "units with the unit's name as unit"
            )
        if self.archived:
            raise RunConflictError(
                f"run {self.run.run_id}: its old files have expired, so nothing more is done with it"
            )
        with self._mutex:
            name, content = self._chain.next_record(kind, self._token, fields)
            if not self._store.create(name, content):
                raise RunConflictError(
                    f"run {self.run.run_id}: another driver wrote {name}, so it continues this run; this one stops and "
                    "changes nothing more"
                )
            return self._chain.take(name, content)

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


def new_run_id(clock: Callable[[], float] = time.time) -> str:
    """Return a run id such as ``20261121T101112Z-3f9a2c``: three hex digits of milliseconds, then three random ones."""
    now = clock()
    milliseconds = int(now * 1000) % 1000
    start = datetime.fromtimestamp(int(now), timezone.utc)
    return f"{start:%Y%m%dT%H%M%S}Z-{milliseconds:03x}{secrets.randbelow(0x1000):03x}"


def list_run_ids(store: StateStore) -> frozenset[str]:
    """Return the ids of the runs that a state directory knows, of any table."""
    names = (name for kind in ("runs/", "archive/") for name in store.list(kind))
    return frozenset(name.split("/")[2].removesuffix(".json") for name in names)


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


def _run_record(first: Record, table_id: str) -> RunRecord:
    try:
        run = RunRecord(run_id=first.run_id, fencing_token=first.fencing_token, **first.fields)
    except TypeError as error:
        raise VerificationError(f"{first.name}: does not say how the run was started; {DAMAGED}") from error
    if run.table_id != table_id:
        raise VerificationError(f"{first.name}: belongs to table {run.table_id}; {DAMAGED}")
    return run

"""The log of a table: one chain of numbered, authenticated records of what commands do to it.

    log/<table id>/00000012.json              record 12
    log/<table id>/00000012-1.json            record 12, where what stands under ``00000012.json`` is no record
    log/<table id>/00000001-00000064.json     older records in a pack

A record is one line of canonical JSON: ``version``, ``table_id``, ``number``, ``time`` (UTC), ``kind``, ``run_id``,
``fencing_token``, ``who``, ``fields``, ``previous`` (SHA-256 of the bytes of the record before), ``supersedes``
(SHA-256 of what stands under its number and is no record, else null) and ``mac``, by the table's newest MAC key over a
purpose and the canonical JSON of all these.  Each is created exclusively by who holds the table's lock.

What stands at the end and is no authentic record (torn by a power cut, or planted) is never deleted, since a slow
driver could then delete the good record that replaced it: its number is used again under the next name, and
``supersedes`` pins its bytes.  What is missing or damaged before an authentic record is a *gap*.  Nobody can tell of
which run the lost record was, so nothing is done on the word of runs that began before a gap.

A cut at the end is as a crash to the log itself; pins in the metastore find it (``pins``).
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import groupby
from typing import Any

from sparkcrypt.errors import RunConflictError, VerificationError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.state.lock import acting_user
from sparkcrypt.ledger.state.mac import TableMac, open_sealed, seal_record
from sparkcrypt.ledger.state.store import StateStore, decode_record, encode_decoded, encode_record

MOST_PACKED, MOST_BYTES = 64, 4 * 1024 * 1024
"""The number of records, or of bytes, at which a pack is full."""
_VERSION = 1
_RECORD, _PACK = b"sparkcrypt log record\n", b"sparkcrypt log pack\n"
_NAME = re.compile(r"(?P<number>\d{8}|[1-9]\d{8,})(?:-(?P<attempt>[1-9]\d{0,6})|-(?P<last>\d{8}|[1-9]\d{8,}))?\.json")
_START = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class LogRecord(JsonObject):
    """One record; ``digest`` is the SHA-256 of its bytes, ``generation`` the number of the MAC key of its MAC."""

    number: int
    time: str
    kind: str
    run_id: str
    fencing_token: int
    who: str
    fields: Mapping[str, Any]
    digest: str
    generation: int


class TableLog:
    """The log of one table, as it was when it was opened or last appended to; threads may append concurrently.

    Attributes:
        records: every record, oldest first.
        refused: name -> why what stands there is no record.
        gaps: the numbers of records that are missing or damaged, before authentic ones.
    """

    def __init__(self, store: StateStore, table_id: str, mac: TableMac) -> None:
        self._store, self._table_id, self._mac = store, table_id, mac
        self._folder = f"log/{table_id}/"
        self._mutex = threading.RLock()
        self.records: list[LogRecord] = []
        self.refused: dict[str, str] = {}
        self.gaps: list[int] = []
        self._taken: list[bytes] = []
        self._packed = 0

    @classmethod
    def open(cls, store: StateStore, table_id: str, mac: TableMac) -> TableLog:
        """Read a table's log.

        Raises:
            VerificationError: a pack is not authentic, or a name is not that of a record.
        """
        log = cls(store, table_id, mac)
        log.refresh()
        if log.gaps:  # records may have been packed while they were listed
            log = cls(store, table_id, mac)
            log.refresh()
        return log

    @property
    def head(self) -> tuple[int, str]:
        """The number and the digest of the last record."""
        return (self.records[-1].number, self.records[-1].digest) if self.records else (0, _START)

    def is_whole(self, run_id: str) -> bool:
        """Return whether nothing is missing since a run began, so that its records may be acted upon."""
        first = next((record.number for record in self.records if record.run_id == run_id), 0)
        return first > max(self.gaps, default=0)

    def refresh(self) -> None:
        """Read what was appended since.

        Raises:
            VerificationError: as `open`.
        """
        with self._mutex:
            names = [(name, self._place(name)) for name in self._store.list(self._folder)]
            for name, (first, _, last) in sorted(names, key=lambda item: item[1][0]):
                if last and first == self._packed + 1 and not self.records[self._packed :]:
                    self._take_pack(name, first, last)
            number = self.head[0] + 1
            self._taken = []
            loose = sorted((first, attempt, name) for name, (first, attempt, last) in names if not last)
            for first, group in groupby((item for item in loose if item[0] >= number), key=lambda item: item[0]):
                self._take_number(first, [name for _, _, name in group])

    def append(self, kind: str, run_id: str, token: int, fields: Mapping[str, Any]) -> LogRecord:
        """Append a record under the table's lock.

        Args:
            kind: what the record is about.
            run_id: the run, or command, that appends it.
            token: the fencing token of the lock.
            fields: JSON values.

        Raises:
            RunConflictError: another driver appended, so this one is fenced off.
        """
        with self._mutex:
            while True:
                self._refuse_fenced(run_id, token)
                name, content = self._make(kind, run_id, token, fields)
                if self._store.create(name, content):
                    self._take_number(self.head[0] + 1, [name])
                    return self.records[-1]
                before = self.head
                self.refresh()
                others = [record for record in self.records if record.number > before[0]]
                if any(record.fencing_token != token for record in others):
                    raise RunConflictError(
                        f"run {run_id}: another driver wrote {name}, so it works on this table; this one stops and "
                        "changes nothing more"
                    )

    def pack(self, reduce: Callable[[LogRecord], Mapping[str, Any]] = lambda record: record.fields) -> None:
        """Pack older records, and delete those that are packed; the caller holds the table's lock.

        Args:
            reduce: returns the fields of a record that are kept.

        Raises:
            VerificationError: a loose record differs from its copy in a pack; both stay.
        """
        self._clear_packed()
        loose = [record for record in self.records[:-1] if record.number > self._packed]
        for records in _full_packs(loose, reduce):
            first, last = records[0], records[-1]
            before = self._digest_before(first.number)
            members = {
                **self._describe_pack(first.number),
                "previous": before,
                "records": [record.to_dict() for record in records],
            }
            name = f"{self._folder}{first.number:08d}-{last.number:08d}.json"
            self._store.create(name, seal_record(_PACK, members, self._mac))
            self._packed = last.number
        self._clear_packed()

    def _clear_packed(self) -> None:
        """Delete the loose records that packs have, oldest first."""
        digests = {record.number: record.digest for record in self.records[: self._packed]}
        for name in self._store.list(self._folder):
            number, _, last = self._place(name)
            if last or number not in digests:
                continue
            content = self._store.read(name) or b""
            if name not in self.refused and hashlib.sha256(content).hexdigest() != digests[number]:
                raise VerificationError(
                    f"{name}: is not as its pack has it: someone changed the log; restore the state directory's copy"
                )
            self._store.delete(name)

    def _digest_before(self, number: int) -> str:
        return next((record.digest for record in self.records if record.number == number - 1), _START)

    def _take_pack(self, name: str, first: int, last: int) -> None:
        content = self._store.read(name) or b""
        members = open_sealed(_PACK, name, content, self._mac.check, self._describe_pack(first))
        records = [LogRecord.from_dict(values) for values in members["records"]]
        if members["previous"] != self.head[1] or [record.number for record in records] != list(range(first, last + 1)):
            raise VerificationError(
                f"{name}: does not follow from the records before it; restore the state directory's copy of it"
            )
        self.records.extend(records)
        self._packed = last

    def _describe_pack(self, first: int) -> dict[str, Any]:
        return {"version": _VERSION, "table_id": self._table_id, "first": first}

    def _take_number(self, number: int, names: Sequence[str]) -> None:
        """Take the record of a number from what stands under its names; note why the others are none."""
        expected = self.head[0] + 1
        taken = self._taken if number == expected else []
        for name in names:
            content = self._store.read(name) or b""
            found = self._parse(name, content, number, taken)
            if isinstance(found, LogRecord):
                self.gaps.extend(range(expected, number))
                self.records.append(found)
                self._taken = []
                return
            self.refused[name] = found
            taken.append(content)
        self._taken = taken if number == expected else []

    def _parse(self, name: str, content: bytes, number: int, taken: Sequence[bytes]) -> LogRecord | str:
        """Return the record that bytes are, or why they are not the next one."""
        try:
            body = decode_record(name, content)
        except VerificationError as error:
            return str(error)
        mac = body.pop("mac", None)
        generation = self._mac.check(_RECORD + encode_decoded(body), mac) if isinstance(mac, str) else 0
        if not generation:
            return f"{name}: does not authenticate: it was edited, or written by someone else"
        if (body.pop("version"), body.pop("table_id"), body["number"]) != (_VERSION, self._table_id, number):
            return f"{name}: belongs elsewhere: it was moved or copied"
        previous, supersedes = body.pop("previous"), body.pop("supersedes")
        record = LogRecord(**body, digest=hashlib.sha256(content).hexdigest(), generation=generation)
        last = self.records[-1] if self.records else record
        if number == self.head[0] + 1 and previous != self.head[1]:
            return f"{name}: does not follow from the record before it, which was changed or replaced"
        if supersedes != _digest_all(taken):
            return f"{name}: does not follow from what stands under its number"
        if record.fencing_token < last.fencing_token:
            return f"{name}: was written by a driver that had been fenced off"
        if generation < last.generation:
            return f"{name}: is under a MAC key that a record before it had given up"
        return record

    def _make(self, kind: str, run_id: str, token: int, fields: Mapping[str, Any]) -> tuple[str, bytes]:
        number, digest = self.head[0] + 1, self.head[1]
        body = {
            "version": _VERSION,
            "table_id": self._table_id,
            "number": number,
            "time": datetime.now(timezone.utc).isoformat(),
            "kind": kind,
            "run_id": run_id,
            "fencing_token": token,
            "who": acting_user(),
            "fields": fields,
            "previous": digest,
            "supersedes": _digest_all(self._taken),
        }
        attempt = f"-{len(self._taken)}" if self._taken else ""
        content = encode_record({**body, "mac": self._mac(_RECORD + encode_record(body))})
        return f"{self._folder}{number:08d}{attempt}.json", content

    def _refuse_fenced(self, run_id: str, token: int) -> None:
        last = self.records[-1].fencing_token if self.records else 0
        if token < last:
            raise RunConflictError(
                f"run {run_id}: the log was continued under fencing token {last}, this driver has {token}; it stops "
                "and changes nothing more"
            )

    def _place(self, name: str) -> tuple[int, int, int]:
        """Return the number, the attempt and, of a pack, the last number in a name.

        Raises:
            VerificationError: this is not the name of a record or a pack.
        """
        match = _NAME.fullmatch(name.removeprefix(self._folder))
        if match is None:
            raise VerificationError(
                f"{name}: is not the name of a record of a log; move it away when you know what it is"
            )
        return int(match["number"]), int(match["attempt"] or 0), int(match["last"] or 0)


def _digest_all(taken: Sequence[bytes]) -> str | None:
    return (
        hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in taken)).hexdigest() if taken else None
    )


def _full_packs(
    records: Sequence[LogRecord], reduce: Callable[[LogRecord], Mapping[str, Any]]
) -> Iterator[list[LogRecord]]:
    """Yield records pack by pack, without the last ones if they do not fill a pack."""
    pack: list[LogRecord] = []
    size = 0
    for record in records:
        kept = {**record.to_dict(), "fields": dict(reduce(record))}
        pack.append(LogRecord.from_dict(kept))
        size += len(encode_record(kept))
        if len(pack) >= MOST_PACKED or size >= MOST_BYTES:
            yield pack
            pack, size = [], 0

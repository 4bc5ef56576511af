"""The chain of one journal's records, checked when records are read and extended when they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.journal.archive import read_archive
from sparkcrypt.ledger.journal.record import (
    DAMAGED,
    Record,
    digest_of,
    is_torn,
    make_record,
    parse_record,
    place_of,
)
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import StateStore


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

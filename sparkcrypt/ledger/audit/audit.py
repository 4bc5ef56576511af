"""The audit of a table: who changed which files, when and why; append-only, chained, and authenticated.

    audit/<table id>/00000003.json        entry 3: its MAC, and the SHA-256 of entry 2's bytes
    audit/<table id>/head-00000003.json   "there are 3 entries, and this is the digest of the last", with its MAC
    audit/<table id>/mac-key.json         the table's MAC key, wrapped by a master key (``state.mac``)
    audit/<table id>/pack-….json          many entries in one record, without their heads (``packs``)

Each entry has its own MAC, which depends on everything before it, so an edited, forged, moved or dropped entry is
detected.  A crash between an entry and its head leaves an entry that is authentic by itself; the next append writes its
head.  A cut at the end is detected by the head of a missing entry or, if the head is missing too, by the journals of
the same state directory: each unit that is swapped by a journal has its entry.

Nothing in a state directory can show an end that was cut together with its heads and the journals' records of it, or an
audit that was deleted with all of the table's journals.  To detect that, keep the head that an append returns where
others cannot write (a report, a log service), and pass it to ``verify_audit``.  Anyone who can unwrap the MAC key can
write entries that verify, so it should be wrapped by a master key that readers may not use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.ledger.audit.chain import VERSION, AuditChain, AuditRecords, entry_name, head_name
from sparkcrypt.ledger.journal.entries import AuditHead
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.journal.record import digest_of
from sparkcrypt.ledger.state.actor import acting_user
from sparkcrypt.ledger.state.mac import FOUND, CheckMac, Mac
from sparkcrypt.ledger.state.store import StateStore, decode_record, encode_record


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entry of the audit; ``entry`` contains the values that the run wrote."""

    name: str
    number: int
    time: str
    entry: dict[str, Any]


class AuditWriter:
    """Appends entries to a table's audit; the caller holds the table's lock.

    The audit is listed only before the first entry, since listing it takes longer with every entry.

    Args:
        store: the state directory.
        table_id: the table's id.
        mac: returns the MAC of bytes, with a key that the state directory only has wrapped.
    """

    def __init__(self, store: StateStore, table_id: str, mac: Mac) -> None:
        self._store, self._table_id, self._mac = store, table_id, mac
        self._head: AuditHead | None = None

    def append(self, entry: dict[str, Any]) -> AuditHead:
        """Append an entry.

        Args:
            entry: JSON values: ``who``, ``what``, ``why`` with ``policy_digest`` and ``run_id``, and further values of
                the entry; the time is added.

        Returns:
            The new head, which can be kept elsewhere.

        Raises:
            VerificationError: entries are missing or the last one is damaged, so nothing is appended.
            RunConflictError: another driver wrote the entry of this number.
            SparkcryptError: the entry lacks who, what or why.
        """
        _refuse_vague(self._table_id, entry)
        # If anything fails from here on, the next append lists the audit again.
        last, self._head = self._head or self._find_head(), None
        body = {
            "version": VERSION,
            "what": "entry",
            "table_id": self._table_id,
            "number": last.number + 1,
            "time": datetime.now(timezone.utc).isoformat(),
            "previous": last.digest,
            "entry": entry,
        }
        content = _authenticate(body, self._mac)
        name = entry_name(self._table_id, last.number + 1)
        if not self._store.create(name, content):
            raise RunConflictError(
                f"{name}: another driver wrote this entry, so it works on this table; this one stops"
            )
        head = AuditHead(last.number + 1, digest_of(content))
        _write_head(self._store, self._table_id, head, self._mac)
        self._head = head
        return head

    def _find_head(self) -> AuditHead:
        """Return the head of the stored entries, and write its record if a crash prevented that."""
        records = AuditRecords.of(self._store, self._table_id)
        numbers = records.numbers
        if not numbers:
            return AuditHead(0, digest_of(b""))
        last = records.entry(len(numbers))
        decode_record(entry_name(self._table_id, len(numbers)), last)
        head = AuditHead(len(numbers), digest_of(last))
        if head.number not in records.heads:
            _write_head(self._store, self._table_id, head, self._mac)
        return head


def verify_audit(
    store: StateStore, table_id: str, *, check_mac: CheckMac, expected: Collection[AuditHead] = ()
) -> AuditHead | None:
    """Verify the whole audit of a table.

    Args:
        store: the state directory.
        table_id: the table's id.
        check_mac: returns the number of the MAC key that made a MAC.
        expected: heads that were kept elsewhere, such as in journals; the audit must contain each.

    Returns:
        The head, whose number is the number of entries; it can be kept elsewhere.  None if there are no entries.

    Raises:
        VerificationError: an entry was edited, dropped, moved or cut off, or a journal is damaged; the message names
            it.
    """
    swapped = _swapped_by_run(store, table_id)  # before the entries: a run in progress writes them first
    records = AuditRecords.of(store, table_id, check_mac)
    numbers, chain, written = records.numbers, AuditChain(table_id, check_mac), Counter[str]()
    for number in numbers:
        written[str(chain.entry(number, records.entry(number))["entry"]["why"]["run_id"])] += 1
    records.check_heads(chain)
    _refuse_cut(table_id, swapped, written)
    for head in expected:
        if chain.digests.get(head.number) != head.digest:
            raise VerificationError(
                f"audit of {table_id}: has {len(numbers)} entries, of which none is the entry {head.number} that a "
                f"journal, or a head kept elsewhere, tells of: its end was cut off, or it was replaced; {FOUND}"
            )
    return AuditHead(len(numbers), chain.digests[len(numbers)]) if numbers else None


def journalled_head(store: StateStore, table_id: str) -> AuditHead | None:
    """Return the newest head in the journals of a table's runs; call this before the audit is read.

    Raises:
        VerificationError: a journal is damaged.
    """
    heads = [
        AuditHead.from_dict(record.fields["audit"])
        for run_id in Journal.runs(store, table_id)
        for record in Journal.open(store, table_id, run_id).records
        if record.kind == "unit_swapped" and "audit" in record.fields
    ]
    return max(heads, key=lambda head: head.number, default=None)


def audit_entries(store: StateStore, table_id: str) -> Iterator[AuditEntry]:
    """Yield a table's entries, oldest first, for display; they are not verified (see ``verify_audit``).

    Raises:
        VerificationError: an entry is missing, or a record is not an entry.
    """
    records = AuditRecords.of(store, table_id)
    for number in records.numbers:
        name = entry_name(table_id, number)
        body = decode_record(name, records.entry(number))
        yield AuditEntry(name, number, str(body.get("time")), dict(body.get("entry") or {}))


def authentic_entries(store: StateStore, table_id: str, check_mac: CheckMac) -> Iterator[tuple[AuditEntry, str]]:
    """Yield a table's authenticated entries, oldest first, each with the SHA-256 of its bytes.

    A cut at the end is not detected, unless a head was left.

    Raises:
        VerificationError: an entry was edited, dropped or moved; the message names it.
    """
    records, chain = AuditRecords.of(store, table_id, check_mac), AuditChain(table_id, check_mac)
    for number in records.numbers:
        body = chain.entry(number, records.entry(number))
        name = entry_name(table_id, number)
        yield AuditEntry(name, number, str(body.get("time")), dict(body["entry"])), chain.digests[number]


def make_entry(what: str, policy_digest: str, run_id: str, **about: Any) -> dict[str, Any]:
    """Return an audit entry by the current user.

    Args:
        what: the action that was done.
        policy_digest: the digest of the policy that was in force.
        run_id: the id of the run, or the command, that did it.
        about: further JSON values: the table, the unit, its files.
    """
    return {"who": acting_user(), "what": what, "why": {"policy_digest": policy_digest, "run_id": run_id}, **about}


def _refuse_vague(table_id: str, entry: dict[str, Any]) -> None:
    why = entry.get("why")
    missing = [name for name in ("who", "what") if not entry.get(name)]
    missing += [f"why.{name}" for name in ("policy_digest", "run_id") if not isinstance(why, dict) or not why.get(name)]
    if missing:
        raise SparkcryptError(f"audit of {table_id}: an entry without {', '.join(missing)} says too little; add them")


def _refuse_cut(table_id: str, swapped: Counter[str], written: Counter[str]) -> None:
    for run_id, count in sorted(swapped.items()):
        if written[run_id] < count:
            raise VerificationError(
                f"audit of {table_id}: has {written[run_id]} entries of run {run_id}, whose journal says that "
                f"{count} units were swapped: its end was cut off; {FOUND}"
            )


def _swapped_by_run(store: StateStore, table_id: str) -> Counter[str]:
    swapped: Counter[str] = Counter()
    for run_id in Journal.runs(store, table_id):
        records = Journal.open(store, table_id, run_id).records
        swapped[run_id] = len({record.unit for record in records if record.kind == "unit_swapped"})
    return swapped


def _write_head(store: StateStore, table_id: str, head: AuditHead, mac: Mac) -> None:
    body = {"version": VERSION, "what": "head", "table_id": table_id, "number": head.number, "entry": head.digest}
    store.create(head_name(table_id, head.number), _authenticate(body, mac))  # False: another process wrote this head


def _authenticate(body: dict[str, Any], mac: Mac) -> bytes:
    return encode_record({**body, "mac": mac(encode_record(body))})

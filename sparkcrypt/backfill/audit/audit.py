"""The audit of a table: who changed which files, when and why; append-only, chained, and authenticated.

    audit/<table id>/00000003.json        entry 3: its MAC, and the SHA-256 of entry 2's bytes
    audit/<table id>/head-00000003.json   "there are 3 entries, and this is the digest of the last", with its MAC
    audit/<table id>/mac-key.json         the table's MAC key, wrapped by a master key (``backfill.mac``)
    audit/<table id>/pack-….json          many entries in one record, without their heads (``packs``)

Each entry carries its own MAC over everything before it, so that an edited, forged, moved or dropped one is found, and
a crash between an entry and its head leaves nothing that anybody could have forged; the next append writes that head.
A cut at the end is found by the head of an entry that is gone, or where the head is gone too, by the journals of the
same state directory: each unit that they say was swapped has its entry.

Not found, since nothing in a state directory can show it: an end that was cut together with its heads and with the
journals' records of it, or an audit that was deleted with all of the table's journals.  Against that, keep what an
append returns in a place that others cannot write (a report, a log service), and give it to ``verify_audit``.  Whoever
may unwrap the MAC key can write entries that verify, so a master key that readers may not use wraps it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.backfill.audit.chain import VERSION, AuditChain, AuditRecords, entry_name, head_name
from sparkcrypt.backfill.journal.entries import AuditHead
from sparkcrypt.backfill.journal.journal import Journal
from sparkcrypt.backfill.journal.record import digest_of
from sparkcrypt.backfill.state.actor import acting_user
from sparkcrypt.backfill.state.mac import FOUND, CheckMac, Mac
from sparkcrypt.backfill.state.store import StateStore, decode_record, encode_record
from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entry as it stands in the audit; ``entry`` is what the run said."""

    name: str
    number: int
    time: str
    entry: dict[str, Any]


class AuditWriter:
    """Appends entries to a table's audit; use it under the table's lock.

    The audit is listed before the first entry; the next ones follow from what was written, since a listing for each
    would take longer with each.

    Args:
        store: the state directory.
        table_id: which table.
        mac: returns the MAC of bytes, by a key that the state directory does not hold in clear.
    """

    def __init__(self, store: StateStore, table_id: str, mac: Mac) -> None:
        self._store, self._table_id, self._mac = store, table_id, mac
        self._head: AuditHead | None = None

    def append(self, entry: dict[str, Any]) -> AuditHead:
        """Append an entry.

        Args:
            entry: JSON values: ``who``, ``what``, ``why`` with ``policy_digest`` and ``run_id``, and what it is about;
                the time is added.

        Returns:
            The new head, worth keeping elsewhere.

        Raises:
            VerificationError: entries are missing or the last one is damaged, so nothing is added to them.
            RunConflictError: another driver wrote the entry of this number.
            SparkcryptError: the entry does not say who, what and why.
        """
        _refuse_vague(self._table_id, entry)
        # Whatever fails from here on: look again before the next.
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
        """Return the head of what is there; a head that was not written before a crash is written now."""
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
        table_id: which table.
        check_mac: tells which MAC key made a MAC of bytes.
        expected: heads that were kept elsewhere, such as those of the journals; the audit must hold each.

    Returns:
        The head, worth keeping elsewhere: its number is that of the entries.  None when there are no entries.

    Raises:
        VerificationError: an entry was edited, dropped, moved or cut off, or a journal is damaged; it is named.
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
    """Return the newest head that the journals of a table's runs tell of; ask before the audit is looked at.

    Raises:
        VerificationError: a journal is damaged.
    """
    told = [
        AuditHead.from_dict(record.fields["audit"])
        for run_id in Journal.runs(store, table_id)
        for record in Journal.open(store, table_id, run_id).records
        if record.kind == "unit_swapped" and "audit" in record.fields
    ]
    return max(told, key=lambda head: head.number, default=None)


def audit_entries(store: StateStore, table_id: str) -> Iterator[AuditEntry]:
    """Yield a table's entries, oldest first, to be shown; only ``verify_audit`` says whether they are true.

    Raises:
        VerificationError: one is no entry.
    """
    records = AuditRecords.of(store, table_id)
    for number in records.numbers:
        name = entry_name(table_id, number)
        body = decode_record(name, records.entry(number))
        yield AuditEntry(name, number, str(body.get("time")), dict(body.get("entry") or {}))


def authentic_entries(store: StateStore, table_id: str, check_mac: CheckMac) -> Iterator[tuple[AuditEntry, str]]:
    """Yield a table's entries, each with the SHA-256 of its bytes, oldest first, and each once it is authentic.

    What was cut off at the end is not found by it, unless a head was left.

    Raises:
        VerificationError: an entry was edited, dropped or moved; it is named.
    """
    records, chain = AuditRecords.of(store, table_id, check_mac), AuditChain(table_id, check_mac)
    for number in records.numbers:
        body = chain.entry(number, records.entry(number))
        name = entry_name(table_id, number)
        yield AuditEntry(name, number, str(body.get("time")), dict(body["entry"])), chain.digests[number]


def make_entry(what: str, policy_digest: str, run_id: str, **about: Any) -> dict[str, Any]:
    """Return an audit's entry that this user's process is about to write.

    Args:
        what: was done.
        policy_digest: of the policy by which it was.
        run_id: of the run or command that did it.
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
    store.create(head_name(table_id, head.number), _authenticate(body, mac))  # False: the next append was faster


def _authenticate(body: dict[str, Any], mac: Mac) -> bytes:
    return encode_record({**body, "mac": mac(encode_record(body))})

"""The audit of a table: who changed which files, when and why; append-only, chained, and authenticated.

    audit/<table id>/00000003.json        entry 3: its MAC, and the SHA-256 of entry 2's bytes
    audit/<table id>/head-00000003.json   "there are 3 entries, and this is the digest of the last", with its MAC
    audit/<table id>/mac-key.json         the table's MAC key, wrapped by a master key (``backfill.mac``)

Each entry carries its own MAC over everything before it, so that an edited, forged, moved or dropped one is found, and
a crash between an entry and its head leaves nothing that anybody could have forged; the next append writes that head.
A cut at the end is found by the head of an entry that is gone, or where the head is gone too, by the journals of the
same state directory: each unit that they say was swapped has its entry.

Not found, since nothing in a state directory can show it: an end that was cut together with its heads and with the
journals' records of it, or an audit that was deleted with all of the table's journals.  Against that, keep what
an append returns in a place that others cannot write (a report, a log service), and give it to ``verify_audit``.
Who may unwrap the MAC key can write entries that verify, so it is wrapped by a master key that readers may not use.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.backfill.journal import Journal
from sparkcrypt.backfill.mac import FOUND, CheckMac, Mac, is_mac_key
from sparkcrypt.backfill.store import StateStore, decode_record, encode_record
from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError

VERSION = 1

_NAME = re.compile(r"(?P<head>head-)?(?P<number>\d{8}|[1-9]\d{8,})\.json")


@dataclass(frozen=True, slots=True)
class AuditHead:
    """How long an audit is, and the SHA-256 of its last entry's bytes, on which all before it bear."""

    number: int
    digest: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"number": self.number, "digest": self.digest}


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
        last, self._head = self._head or self._found(), None  # whatever fails from here on: look again before the next
        body = {
            "version": VERSION,
            "what": "entry",
            "table_id": self._table_id,
            "number": last.number + 1,
            "time": datetime.now(timezone.utc).isoformat(),
            "previous": last.digest,
            "entry": entry,
        }
        content = _authenticated(body, self._mac)
        name = _entry_name(self._table_id, last.number + 1)
        if not self._store.create(name, content):
            raise RunConflictError(
                f"{name}: another driver wrote this entry, so it works on this table; this one stops"
            )
        head = AuditHead(last.number + 1, _digest(content))
        _write_head(self._store, self._table_id, head, self._mac)
        self._head = head
        return head

    def _found(self) -> AuditHead:
        """Return the head of what is there; a head that was not written before a crash is written now."""
        heads, numbers = _listed(self._store, self._table_id)
        _refuse_gaps(self._table_id, heads, numbers)
        if not numbers:
            return AuditHead(0, _digest(b""))
        name = _entry_name(self._table_id, len(numbers))
        last = _content(self._store, name)
        decode_record(name, last)
        head = AuditHead(len(numbers), _digest(last))
        if head.number not in heads:
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
    heads, numbers = _listed(store, table_id)
    _refuse_gaps(table_id, heads, numbers)
    chain = _Chain(check_mac)
    written: Counter[str] = Counter()
    for number in numbers:
        body = chain.entry(_entry_name(table_id, number), store, {"table_id": table_id, "number": number})
        written[str(body["entry"]["why"]["run_id"])] += 1
    for number in heads:
        chain.head(_head_name(table_id, number), store, {"table_id": table_id, "number": number})
    _refuse_lost_heads(table_id, heads, numbers)
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
        AuditHead(int(record.fields["audit"]["number"]), str(record.fields["audit"]["digest"]))
        for run_id in Journal.runs(store, table_id)
        for record in Journal.open(store, table_id, run_id).records
        if record.kind == "unit_swapped" and "audit" in record.fields
    ]
    return max(told, key=lambda head: head.number, default=None)


class _Chain:
    """The entries of an audit, one after the other, and then their heads."""

    def __init__(self, check_mac: CheckMac) -> None:
        self._check_mac = check_mac
        self._last = b""
        self._generation = 0
        self._generations: dict[int, int] = {}
        self.digests: dict[int, str] = {}

    def entry(self, name: str, store: StateStore, said: dict[str, Any]) -> dict[str, Any]:
        """Take the next entry."""
        content = _content(store, name)
        body, generation = _checked(name, content, self._check_mac, {"what": "entry", **said})
        if body.get("previous") != _digest(self._last):
            raise VerificationError(f"{name}: does not follow from the entry before it; {FOUND}")
        if generation < self._generation:
            raise VerificationError(f"{name}: is under a MAC key that an entry before it had given up; {FOUND}")
        self._last, self._generation = content, generation
        self.digests[said["number"]], self._generations[said["number"]] = _digest(content), generation
        return body

    def head(self, name: str, store: StateStore, said: dict[str, Any]) -> None:
        """Check a head against its entry."""
        number = said["number"]
        wanted = {"what": "head", "entry": self.digests.get(number), **said}
        if _checked(name, _content(store, name), self._check_mac, wanted)[1] < self._generations.get(number, 0):
            raise VerificationError(f"{name}: is under a MAC key that its entry had given up; {FOUND}")


def audit_entries(store: StateStore, table_id: str) -> Iterator[AuditEntry]:
    """Yield a table's entries, oldest first, to be shown; only ``verify_audit`` says whether they are true.

    Raises:
        VerificationError: one is no entry.
    """
    for number in _listed(store, table_id)[1]:
        name = _entry_name(table_id, number)
        body = decode_record(name, _content(store, name))
        yield AuditEntry(name, number, str(body.get("time")), dict(body.get("entry") or {}))


def authentic_entries(store: StateStore, table_id: str, check_mac: CheckMac) -> Iterator[tuple[AuditEntry, str]]:
    """Yield a table's entries, each with the SHA-256 of its bytes, oldest first, and each once it is authentic.

    What was cut off at the end is not found by it, unless a head was left.

    Raises:
        VerificationError: an entry was edited, dropped or moved; it is named.
    """
    heads, numbers = _listed(store, table_id)
    _refuse_gaps(table_id, heads, numbers)
    chain = _Chain(check_mac)
    for number in numbers:
        name = _entry_name(table_id, number)
        body = chain.entry(name, store, {"table_id": table_id, "number": number})
        yield AuditEntry(name, number, str(body.get("time")), dict(body["entry"])), chain.digests[number]


def _refuse_vague(table_id: str, entry: dict[str, Any]) -> None:
    why = entry.get("why")
    missing = [name for name in ("who", "what") if not entry.get(name)]
    missing += [f"why.{name}" for name in ("policy_digest", "run_id") if not isinstance(why, dict) or not why.get(name)]
    if missing:
        raise SparkcryptError(f"audit of {table_id}: an entry without {', '.join(missing)} says too little; add them")


def _listed(store: StateStore, table_id: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the numbers of heads and of entries.

    Raises:
        VerificationError: a name is neither's.
    """
    folder = f"audit/{table_id}/"
    # Heads first: an entry is written before its head, so none is seen without the other while a run appends.
    found = {name: _NAME.fullmatch(name.removeprefix(folder)) for name in store.list(f"{folder}head-")}
    heads = tuple(sorted(int(match["number"]) for match in found.values() if match))
    found |= {name: _NAME.fullmatch(name.removeprefix(folder)) for name in store.list(folder)}
    for name, match in found.items():
        if match is None and not is_mac_key(name.removeprefix(folder)):
            raise VerificationError(f"{name}: is not the name of an audit's record; {FOUND}")
    return heads, tuple(sorted(int(match["number"]) for match in found.values() if match and not match["head"]))


def _refuse_gaps(table_id: str, heads: tuple[int, ...], numbers: tuple[int, ...]) -> None:
    known = max([0, *heads, *numbers])
    for number in range(1, known + 1):
        if number > len(numbers) or numbers[number - 1] != number:
            raise VerificationError(
                f"{_entry_name(table_id, number)}: is missing, though the audit has had {known} entries; {FOUND}"
            )


def _refuse_lost_heads(table_id: str, heads: tuple[int, ...], numbers: tuple[int, ...]) -> None:
    for number in numbers[:-1]:  # the last entry's may not have been written before a crash
        if number not in heads:
            raise VerificationError(f"{_head_name(table_id, number)}: is missing; {FOUND}")


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
        swapped[run_id] = len({record.fields["unit"] for record in records if record.kind == "unit_swapped"})
    return swapped


def _write_head(store: StateStore, table_id: str, head: AuditHead, mac: Mac) -> None:
    body = {"version": VERSION, "what": "head", "table_id": table_id, "number": head.number, "entry": head.digest}
    store.create(_head_name(table_id, head.number), _authenticated(body, mac))  # False: the next append was faster


def _authenticated(body: dict[str, Any], mac: Mac) -> bytes:
    return encode_record({**body, "mac": mac(encode_record(body))})


def _checked(name: str, content: bytes, check_mac: CheckMac, said: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return a record's object, and which MAC key made its MAC, once that is right and it says what it must.

    Raises:
        VerificationError: it is not what was written there.
    """
    body = decode_record(name, content)
    mac = body.pop("mac", None)
    if body.get("version") != VERSION:
        raise VerificationError(f"{name}: has format version {body.get('version')!r}; allowed: {VERSION}")
    generation = check_mac(encode_record(body), mac) if isinstance(mac, str) else 0
    if not generation:
        raise VerificationError(f"{name}: does not authenticate: it was edited, or written by someone else; {FOUND}")
    if any(body.get(key) != value for key, value in said.items()):
        raise VerificationError(f"{name}: belongs elsewhere: it was moved, or what it tells of was changed; {FOUND}")
    return body, generation


def _content(store: StateStore, name: str) -> bytes:
    content = store.read(name)
    if content is None:
        raise VerificationError(f"{name}: is missing; {FOUND}")
    return content


def _entry_name(table_id: str, number: int) -> str:
    return f"audit/{table_id}/{number:08d}.json"


def _head_name(table_id: str, number: int) -> str:
    return f"audit/{table_id}/head-{number:08d}.json"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

"""The audit of a table: who changed which files, when and why; append-only, chained, and authenticated.

    audit/<table id>/00000003.json        entry 3: its MAC, and the SHA-256 of entry 2's bytes
    audit/<table id>/head-00000003.json   "there are 3 entries, and this is the digest of the last", with its MAC
    audit/<table id>/mac-key.json         the table's MAC key, wrapped by a master key (``state.mac``)
    audit/<table id>/pack-….json          many entries in one record, without their heads (below)

Each entry has its own MAC, which depends on everything before it, so an edited, forged, moved or dropped entry is
detected.  A crash between an entry and its head leaves an entry that is authentic by itself; the next append writes its
head.  A cut at the end is detected by the head of a missing entry or, if the head is missing too, by the journals of
the same state directory: each unit that is swapped by a journal has its entry.

Nothing in a state directory can show an end that was cut together with its heads and the journals' records of it, or an
audit that was deleted with all of the table's journals.  To detect that, keep the head that an append returns where
others cannot write (a report, a log service), and pass it to ``verify_audit``.  Anyone who can unwrap the MAC key can
write entries that verify, so it should be wrapped by a master key that readers may not use.

Packs of many entries in one record (version, what, table_id, first, entries, mac) keep daily runs from creating
thousands of files.  A pack contains the exact bytes of its entries, so they stay chained and authenticated, and an
audit verifies in the same way.  The pack's own MAC, under its own purpose, replaces the heads of its entries.  A pack
is written before the first of its entries is deleted; if both exist, the pack counts.  The newest entry is never
packed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.errors import RunConflictError, SparkcryptError, VerificationError
from sparkcrypt.ledger.journal.entries import AuditHead
from sparkcrypt.ledger.journal.journal import Journal, digest_of
from sparkcrypt.ledger.state.lock import acting_user
from sparkcrypt.ledger.state.mac import FOUND, CheckMac, Mac, TableMac, is_mac_key, open_sealed, seal_record
from sparkcrypt.ledger.state.store import StateStore, decode_record, encode_decoded, encode_record

MOST_ENTRIES, MOST_BYTES = 64, 4 * 1024 * 1024
"""The number of entries, or of bytes, at which a pack is full."""
_PACK_VERSION = 1
_PACK_PURPOSE = b"sparkcrypt audit pack\n"
_PACK_NAME = re.compile(r"pack-(?P<first>\d{8}|[1-9]\d{8,})-(?P<last>\d{8}|[1-9]\d{8,})\.json")


class Packs:
    """The packs of one audit; a pack is read when one of its entries is needed, and the last one read is cached.

    ``numbers`` are the numbers of the packed entries.

    Args:
        store: the state directory.
        table_id: the table's id.
        names: names of records below the audit's folder; those of other records are ignored.
        check_mac: returns the number of the MAC key that made a MAC; with None packs are not authenticated.
    """

    def __init__(self, store: StateStore, table_id: str, names: Iterable[str], check_mac: CheckMac | None) -> None:
        self._store, self._table_id, self._check_mac = store, table_id, check_mac
        self._ranges = {range(*bounds): name for name in names if (bounds := _bounds(name)) is not None}
        self.numbers = frozenset(number for numbers in self._ranges for number in numbers)
        self._read: tuple[str, dict[int, bytes]] = ("", {})

    def entry(self, number: int) -> bytes | None:
        """Return an entry's bytes; None if no pack has it.

        Raises:
            VerificationError: the pack is damaged, not authentic, or a copy of another pack.
        """
        for bounds, name in self._ranges.items():
            if number in bounds:
                if self._read[0] != name:
                    self._read = name, dict(zip(bounds, self._entries(name, bounds), strict=True))
                return self._read[1][number]
        return None

    def _entries(self, name: str, bounds: range) -> list[bytes]:
        content = self._store.read(name) or b""
        expected = {"version": _PACK_VERSION, "what": "pack", "table_id": self._table_id, "first": bounds.start}
        if self._check_mac is None:
            members = decode_record(name, content)
        else:
            members = open_sealed(_PACK_PURPOSE, name, content, self._check_mac, expected)
        texts = members.get("entries")
        if not isinstance(texts, list) or len(texts) != len(bounds) or not all(isinstance(text, str) for text in texts):
            raise VerificationError(
                f"{name}: does not hold the {len(bounds)} entries that its name says; someone changed the audit: "
                "restore the state directory's copy of it"
            )
        return [text.encode() for text in texts]


def is_pack(name: str) -> bool:
    """Return whether a name below an audit's folder is that of a pack."""
    return _PACK_NAME.fullmatch(name) is not None


def fills_pack(count: int) -> bool:
    """Return whether this number of entries fills a pack."""
    return count >= MOST_ENTRIES


def full_packs(entries: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield entries pack by pack, without the last ones if they do not fill a pack."""
    pack: list[tuple[int, bytes]] = []
    for entry in entries:
        pack.append(entry)
        if len(pack) >= MOST_ENTRIES or sum(len(content) for _, content in pack) >= MOST_BYTES:
            yield pack
            pack = []


def write_pack(store: StateStore, table_id: str, entries: Sequence[tuple[int, bytes]], mac: Mac) -> None:
    """Write numbered entries as one pack."""
    first, last = entries[0][0], entries[-1][0]
    texts = [content.decode("ascii") for _, content in entries]
    members = {"version": _PACK_VERSION, "what": "pack", "table_id": table_id, "first": first, "entries": texts}
    store.create(f"audit/{table_id}/pack-{first:08d}-{last:08d}.json", seal_record(_PACK_PURPOSE, members, mac))


def _bounds(name: str) -> tuple[int, int] | None:
    match = _PACK_NAME.fullmatch(name.rpartition("/")[2])
    return None if match is None else (int(match["first"]), int(match["last"]) + 1)


VERSION = 1
RECORD_NAME = re.compile(r"(?P<head>head-)?(?P<number>\d{8}|[1-9]\d{8,})\.json")


class AuditChain:
    """Checks the entries of an audit one after the other, and then their heads."""

    def __init__(self, table_id: str, check_mac: CheckMac) -> None:
        self._table_id, self._check_mac = table_id, check_mac
        self._last = b""
        self._generation = 0
        self._generations: dict[int, int] = {}
        self.digests: dict[int, str] = {}

    def begin_after(self, number: int, content: bytes) -> None:
        """Begin after an entry that was checked in its chain before."""
        expected = {"what": "entry", "table_id": self._table_id, "number": number}
        name = entry_name(self._table_id, number)
        self._last, self._generation = content, _check_entry(name, content, self._check_mac, expected)[1]

    def entry(self, number: int, content: bytes) -> dict[str, Any]:
        """Check the next entry and return its record's object."""
        name = entry_name(self._table_id, number)
        expected = {"what": "entry", "table_id": self._table_id, "number": number}
        body, generation = _check_entry(name, content, self._check_mac, expected)
        if body.get("previous") != digest_of(self._last):
            raise VerificationError(f"{name}: does not follow from the entry before it; {FOUND}")
        if generation < self._generation:
            raise VerificationError(f"{name}: is under a MAC key that an entry before it had given up; {FOUND}")
        self._last, self._generation = content, generation
        self.digests[number], self._generations[number] = digest_of(content), generation
        return body

    def head(self, number: int, content: bytes) -> None:
        """Check a head against its entry."""
        name = head_name(self._table_id, number)
        expected = {"what": "head", "entry": self.digests.get(number), "table_id": self._table_id, "number": number}
        if _check_entry(name, content, self._check_mac, expected)[1] < self._generations.get(number, 0):
            raise VerificationError(f"{name}: is under a MAC key that its entry had given up; {FOUND}")


class AuditRecords:
    """The listed entries of an audit, loose or in packs, and the heads of the loose ones.

    Entries may be packed while they are read: a loose entry that no longer exists is read from a newer pack.
    """

    def __init__(self, store: StateStore, table_id: str, check_mac: CheckMac | None) -> None:
        self._store, self._table_id, self._check_mac = store, table_id, check_mac
        self.heads, self.loose, self._packs = self._list_records()

    @classmethod
    def of(cls, store: StateStore, table_id: str, check_mac: CheckMac | None = None) -> AuditRecords:
        """List the records of a table's audit.

        Raises:
            VerificationError: an entry is missing, or a name is not that of an audit's record.
        """
        records = cls(store, table_id, check_mac)
        if records._gap() is not None:  # entries were packed while they were listed
            records = cls(store, table_id, check_mac)
        gap, length = records._gap(), max([0, *records.heads, *records.numbers])
        if gap is not None:
            raise VerificationError(
                f"{entry_name(table_id, gap)}: is missing, though the audit has had {length} entries; {FOUND}"
            )
        return records

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of all entries."""
        return tuple(sorted({*self.loose, *self._packs.numbers}))

    @property
    def packed(self) -> frozenset[int]:
        """The numbers of the packed entries."""
        return self._packs.numbers

    def entry(self, number: int) -> bytes:
        """Return the bytes of an entry.

        Raises:
            VerificationError: the entry is missing, or its pack is not authentic.
        """
        name = entry_name(self._table_id, number)
        content = self._packs.entry(number)
        content = self._store.read(name) if content is None else content
        content = self._list_records()[2].entry(number) if content is None else content
        if content is None:
            raise VerificationError(f"{name}: is missing; {FOUND}")
        return content

    def check_heads(self, chain: AuditChain) -> None:
        """Check that each loose entry has its head; the last one's may be missing after a crash.

        Raises:
            VerificationError: a head is missing or wrong.
        """
        # An entry is written after the head before it, which may be newer than the listed heads while a run appends.
        for number in sorted({*self.heads, *self.loose[:-1]}):
            name = head_name(self._table_id, number)
            content = self._store.read(name)
            if content is None and number not in self._list_records()[2].numbers:
                raise VerificationError(f"{name}: is missing; {FOUND}")
            if content is not None:
                chain.head(number, content)

    def _gap(self) -> int | None:
        numbers = {*self.loose, *self._packs.numbers}
        return next((number for number in range(1, max([0, *self.heads, *numbers]) + 1) if number not in numbers), None)

    def _list_records(self) -> tuple[tuple[int, ...], tuple[int, ...], Packs]:
        """Return the numbers of heads and of entries that are not packed, and the packs.

        Raises:
            VerificationError: a name is not that of an audit's record.
        """
        folder = f"audit/{self._table_id}/"
        # Heads first: an entry is written before its head, so no listed head lacks its entry while a run appends.
        found = {name: RECORD_NAME.fullmatch(name.removeprefix(folder)) for name in self._store.list(f"{folder}head-")}
        heads = {int(match["number"]) for match in found.values() if match}
        found |= {name: RECORD_NAME.fullmatch(name.removeprefix(folder)) for name in self._store.list(folder)}
        for name, match in found.items():
            own = name.removeprefix(folder)
            if match is None and not (is_mac_key(own) or is_pack(own)):
                raise VerificationError(f"{name}: is not the name of an audit's record; {FOUND}")
        packs = Packs(self._store, self._table_id, found, self._check_mac)
        loose = {int(match["number"]) for match in found.values() if match and not match["head"]}
        return tuple(sorted(heads - packs.numbers)), tuple(sorted(loose - packs.numbers)), packs


def entry_name(table_id: str, number: int) -> str:
    """Return the name of an entry's record."""
    return f"audit/{table_id}/{number:08d}.json"


def head_name(table_id: str, number: int) -> str:
    """Return the name of a head's record."""
    return f"audit/{table_id}/head-{number:08d}.json"


def _check_entry(
    name: str, content: bytes, check_mac: CheckMac, expected: dict[str, Any]
) -> tuple[dict[str, Any], int]:
    """Check a record's MAC and members, and return its object and the number of the MAC key.

    Raises:
        VerificationError: the record was edited, moved or forged.
    """
    body = decode_record(name, content)
    mac = body.pop("mac", None)
    if body.get("version") != VERSION:
        raise VerificationError(f"{name}: has format version {body.get('version')!r}; allowed: {VERSION}")
    generation = check_mac(encode_decoded(body), mac) if isinstance(mac, str) else 0
    if not generation:
        raise VerificationError(f"{name}: does not authenticate: it was edited, or written by someone else; {FOUND}")
    if any(body.get(key) != value for key, value in expected.items()):
        raise VerificationError(f"{name}: belongs elsewhere: it was moved, or what it tells of was changed; {FOUND}")
    return body, generation


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


def pack_audit(store: StateStore, table_id: str, mac: TableMac) -> None:
    """Pack older entries of a table's audit, and delete their records; the caller holds the table's lock.

    Args:
        store: the state directory.
        table_id: the table's id.
        mac: the MAC of the table's audit.

    Raises:
        VerificationError: the audit was changed; nothing was packed.
    """
    _clear_packed(store, table_id, mac)
    records = AuditRecords.of(store, table_id, mac.check)
    if not fills_pack(len(records.loose) - 1):
        return
    chain, contents = AuditChain(table_id, mac.check), dict[int, bytes]()
    for number in records.numbers:
        content = records.entry(number)
        chain.entry(number, content)
        if number in records.loose[:-1]:
            contents[number] = content
    records.check_heads(chain)
    for pack in full_packs(sorted(contents.items())):
        write_pack(store, table_id, pack, mac)
    _clear_packed(store, table_id, mac)


def _clear_packed(store: StateStore, table_id: str, mac: TableMac) -> None:
    """Delete the records of packed entries, oldest first, and their heads.

    Raises:
        VerificationError: an entry differs from its copy in the pack; both stay.
    """
    names = store.list(f"audit/{table_id}/")
    packs = Packs(store, table_id, names, mac.check)
    for name in names:
        match = RECORD_NAME.fullmatch(name.rpartition("/")[2])
        packed = packs.entry(int(match["number"])) if match else None
        if match is None or packed is None:
            continue
        if not match["head"] and store.read(name) != packed:
            raise VerificationError(f"{name}: is not as its pack has it; {FOUND}")
        store.delete(name)

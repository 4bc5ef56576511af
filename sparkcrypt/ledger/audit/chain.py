"""Reading an audit: its entries, loose or in packs, and its heads, each checked against the chain."""

from __future__ import annotations

import re
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.packs import Packs, is_pack
from sparkcrypt.ledger.journal.record import digest_of
from sparkcrypt.ledger.state.mac import FOUND, CheckMac, is_mac_key
from sparkcrypt.ledger.state.store import StateStore, decode_record, encode_decoded

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

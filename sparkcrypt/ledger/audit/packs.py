"""Packs of many audit entries in one record, so that daily runs do not create thousands of files.

    audit/<table id>/pack-00000001-00000064.json    version, what, table_id, first, entries (each unchanged), mac

A pack contains the exact bytes of its entries, so they stay chained and authenticated, and an audit verifies in the
same way.  The pack's own MAC, under its own purpose, replaces the heads of its entries.  A pack is written before the
first of its entries is deleted; if both exist, the pack counts.  The newest entry is never packed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.state.mac import CheckMac, Mac
from sparkcrypt.ledger.state.sealed_record import open_sealed, seal_record
from sparkcrypt.ledger.state.store import StateStore, decode_record

MOST_ENTRIES, MOST_BYTES = 64, 4 * 1024 * 1024
"""The number of entries, or of bytes, at which a pack is full."""
_VERSION = 1
_PURPOSE = b"sparkcrypt audit pack\n"
_NAME = re.compile(r"pack-(?P<first>\d{8}|[1-9]\d{8,})-(?P<last>\d{8}|[1-9]\d{8,})\.json")


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
        expected = {"version": _VERSION, "what": "pack", "table_id": self._table_id, "first": bounds.start}
        if self._check_mac is None:
            members = decode_record(name, content)
        else:
            members = open_sealed(_PURPOSE, name, content, self._check_mac, expected)
        texts = members.get("entries")
        if not isinstance(texts, list) or len(texts) != len(bounds) or not all(isinstance(text, str) for text in texts):
            raise VerificationError(
                f"{name}: does not hold the {len(bounds)} entries that its name says; someone changed the audit: "
                "restore the state directory's copy of it"
            )
        return [text.encode() for text in texts]


def is_pack(name: str) -> bool:
    """Return whether a name below an audit's folder is that of a pack."""
    return _NAME.fullmatch(name) is not None


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
    members = {"version": _VERSION, "what": "pack", "table_id": table_id, "first": first, "entries": texts}
    store.create(f"audit/{table_id}/pack-{first:08d}-{last:08d}.json", seal_record(_PURPOSE, members, mac))


def _bounds(name: str) -> tuple[int, int] | None:
    match = _NAME.fullmatch(name.rpartition("/")[2])
    return None if match is None else (int(match["first"]), int(match["last"]) + 1)

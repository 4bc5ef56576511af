"""Reads the row index of one column of a stripe: the positions of its row groups, and their statistics."""

from __future__ import annotations

from collections.abc import Sequence

from sparkcrypt.errors import FormatError
from sparkcrypt.orc.file.protobuf import MAX_FIELDS, Message, decode

_ENTRIES, _POSITIONS, _STATISTICS = 1, 1, 2


class RowIndex:
    """The entries of a stream ROW_INDEX, each decoded when it is accessed.

    Args:
        content: the stream's decompressed content.
        groups: the stripe's number of row groups.
        what: the column, for messages.

    Raises:
        FormatError: the number of entries is not that of row groups.
    """

    __slots__ = ("_entries", "_positions", "_what")

    def __init__(self, content: bytes, groups: int, what: str) -> None:
        self._what = f"the row index of {what}"
        found = decode(content, self._what, max_fields=max(MAX_FIELDS, groups))
        self._entries = found.read_repeated(_ENTRIES)
        if len(self._entries) != groups:
            raise FormatError(f"{self._what} has {len(self._entries)} entries; expected {groups}")
        self._positions: dict[int, Sequence[int]] = {}

    def positions(self, group: int) -> Sequence[int]:
        """Return the positions of a row group in the column's streams.

        Raises:
            FormatError: the entry is damaged.
        """
        known = self._positions.get(group)
        if known is None:
            entry = decode(self._entries[group], self._what)
            known = self._positions[group] = entry.integers(_POSITIONS, bits=63)
        return known

    def statistics(self, group: int) -> Message | None:
        """Return the statistics of a row group; None if it has none.

        Raises:
            FormatError: the entry is damaged.
        """
        return decode(self._entries[group], self._what).message(_STATISTICS, "column statistics")

"""Checks that the parts of a file lie inside its data and do not overlap."""

from __future__ import annotations

from bisect import bisect_right

from sparkcrypt.errors import FormatError

FIRST_OFFSET = 4
"""The offset of the first byte after the magic at a file's start."""

_Region = tuple[int, int, object]


class Layout:
    """The regions of one file that its footer refers to.

    Args:
        limit: the offset of the footer, at which data must end.
    """

    __slots__ = ("_regions", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._regions: list[_Region] = []

    def add(self, start: int, end: int, what: object) -> None:
        """Add a region; ``str(what)`` is its name in messages.

        Raises:
            FormatError: it is not inside the file's data, or its end is before its start.
        """
        if not FIRST_OFFSET <= start <= end <= self.limit:
            raise FormatError(
                f"{what} is {end - start} bytes at offset {start}; expected inside {FIRST_OFFSET} to {self.limit}"
            )
        if end > start:
            self._regions.append((start, end, what))

    def check_apart(self) -> None:
        """Check that no two regions overlap.

        Raises:
            FormatError: two do.
        """
        self._regions.sort(key=_start)
        before: _Region = (0, 0, "")
        for region in self._regions:
            if region[0] < before[1]:
                raise FormatError(
                    f"{region[2]} begins at offset {region[0]}, inside {before[2]}, which ends at {before[1]}; "
                    "expected them apart"
                )
            before = region

    def room(self, offset: int) -> int:
        """Return the offset of the next region after an offset, or `limit`; call `check_apart` first, which sorts."""
        after = bisect_right(self._regions, offset, key=_start)
        return self._regions[after][0] if after < len(self._regions) else self.limit


def _start(region: _Region) -> int:
    return region[0]

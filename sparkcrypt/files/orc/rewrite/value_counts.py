"""Counts the values of a column in a stripe, and finds the first value of each row group.

A nested column may have another number of values than there are rows.  The number is taken from the column itself: its
stream PRESENT has one bit for each value, and its row index has the positions of row groups in that; without PRESENT no
value is null, and the statistics count all.  Source: ORC specification v1, "Column Statistics", "Indexes", "Boolean Run
Length Encoding".
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import accumulate

from sparkcrypt.errors import WRITE_ORC_ANEW, FormatError, UnsupportedFileError
from sparkcrypt.files.orc.file.compression import Compression
from sparkcrypt.files.orc.file.protobuf import Message, decode

_POSITIONS, _STATISTICS, _VALUES = 1, 2, 1
_LITERALS, _MIN_REPEAT = 128, 3
_BITS = 8


@dataclass(frozen=True, slots=True)
class Extent:
    """The values of a column in a stripe.

    ``size`` is the number of bytes with one bit for each value; ``starts`` the number of each row group's first value.
    """

    size: int
    starts: tuple[int, ...]


def extent_of_rows(rows: int, stride: int, groups: int) -> Extent:
    """Return the extent of a column that has one value for each row."""
    return Extent(-(-rows // _BITS), tuple(group * stride for group in range(groups)))


def extent_of_counts(entries: Sequence[Message], of_stripe: bytes, what: str) -> Extent:
    """Return the extent of a column without nulls, from its statistics.

    Args:
        entries: of its row index; empty if it has none.
        of_stripe: its statistics of the stripe.
        what: the column, for messages.

    Raises:
        FormatError: the statistics are damaged.
        UnsupportedFileError: the statistics have no counts.
    """
    if not entries:
        return Extent(-(-_count(decode(of_stripe, "column statistics"), what) // _BITS), ())
    counts = [_count(entry.message(_STATISTICS, "column statistics"), what) for entry in entries]
    *starts, total = accumulate(counts, initial=0)
    return Extent(-(-total // _BITS), tuple(starts))


def extent_of_present(raw: bytes, entries: Sequence[Message], compression: Compression, what: str) -> Extent:
    """Return the extent of a column that has nulls, from its stream PRESENT and its row index's positions in that.

    Args:
        raw: the stream, decrypted and still compressed.
        entries: of the row index; empty if the column has none.
        compression: of the file.
        what: the column, for messages.

    Raises:
        FormatError: the stream is damaged, or a position of the row index is not at the start of a run.
    """
    begins, content, parts = {}, 0, []
    for offset, part in compression.located_chunks(raw, what):
        begins[offset] = content
        content += len(part)
        parts.append(part)
    begins[len(raw)] = content
    places = []
    for entry in entries:
        positions = entry.integers(_POSITIONS, bits=63)
        if compression.codec == "none":
            positions = [0, *positions]
        if len(positions) < 4 or positions[0] not in begins or positions[3] > _BITS:
            raise FormatError(f"{what}: its row index leads nowhere in PRESENT; expected where a chunk begins")
        places.append((begins[positions[0]] + positions[1], positions[2], positions[3]))
    runs, size = _find_runs(b"".join(parts), {run for run, _, _ in places}, what)
    starts = tuple((runs.get(run, size + 1) + byte) * _BITS + bit for run, byte, bit in places)
    if max(starts, default=0) > size * _BITS:
        raise FormatError(f"{what}: its row index leads to no run of PRESENT; expected where one begins")
    return Extent(size, starts)


def _count(statistics: Message | None, what: str) -> int:
    if statistics is None or not statistics.has(_VALUES):
        raise UnsupportedFileError(
            f"{what}: its statistics have no counts, by which its place among others is known; {WRITE_ORC_ANEW}"
        )
    return statistics.integer(_VALUES, bits=63)


def _find_runs(runs: bytes, wanted: Container[int], what: str) -> tuple[dict[int, int], int]:
    """Return offset -> number of decoded bytes before it, for wanted offsets of runs and the end; and their total."""
    found, position, size = {}, 0, 0
    while position < len(runs):
        if position in wanted:
            found[position] = size
        header = runs[position]
        literals = 256 - header if header >= _LITERALS else 0
        size += literals or header + _MIN_REPEAT
        position += 1 + (literals or 1)
    if position != len(runs):
        raise FormatError(f"{what}: PRESENT ends inside a run; expected {position - len(runs)} bytes more")
    return {**found, position: size}, size

"""Makes the unencrypted form of an encrypted column, in which readers without the key see only nulls.

Streams, encodings and positions are those of ORC's Java writer under its mask ``nullify``, whatever the column
contains: the root has PRESENT, all zero, and all other streams of the root and of columns below it exist and are empty.

Counts the values of a column in a stripe, and finds the first value of each row group.  A nested column may have
another number of values than there are rows.  The number is taken from the column itself: its stream PRESENT has one
bit for each value, and its row index has the positions of row groups in that; without PRESENT no value is null, and the
statistics count all.  Source: ORC specification v1, "Column Statistics", "Indexes", "Boolean Run Length Encoding".
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import accumulate

from sparkcrypt.errors import WRITE_ORC_ANEW, FormatError, UnsupportedFileError
from sparkcrypt.files.orc.file.compression import Compression
from sparkcrypt.files.orc.file.protobuf import BYTES, FIXED64, VARINT, Message, decode, encode_packed, message
from sparkcrypt.files.orc.file.schema import Column
from sparkcrypt.files.orc.file.stripe import DATA, DICTIONARY_DATA, LENGTH, PRESENT, ROW_INDEX, SECONDARY

_POSITIONS, _ENTRY_STATISTICS, _VALUES = 1, 2, 1
_LITERALS, _MIN_REPEAT = 128, 3
_BITS_A_BYTE = 8


@dataclass(frozen=True, slots=True)
class Extent:
    """The values of a column in a stripe.

    ``size`` is the number of bytes with one bit for each value; ``starts`` the number of each row group's first value.
    """

    size: int
    starts: tuple[int, ...]


def extent_of_rows(rows: int, stride: int, groups: int) -> Extent:
    """Return the extent of a column that has one value for each row."""
    return Extent(-(-rows // _BITS_A_BYTE), tuple(group * stride for group in range(groups)))


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
        return Extent(-(-_count(decode(of_stripe, "column statistics"), what) // _BITS_A_BYTE), ())
    counts = [_count(entry.message(_ENTRY_STATISTICS, "column statistics"), what) for entry in entries]
    *starts, total = accumulate(counts, initial=0)
    return Extent(-(-total // _BITS_A_BYTE), tuple(starts))


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
        if len(positions) < 4 or positions[0] not in begins or positions[3] > _BITS_A_BYTE:
            raise FormatError(f"{what}: its row index leads nowhere in PRESENT; expected where a chunk begins")
        places.append((begins[positions[0]] + positions[1], positions[2], positions[3]))
    runs, size = _find_runs(b"".join(parts), {run for run, _, _ in places}, what)
    starts = tuple((runs.get(run, size + 1) + byte) * _BITS_A_BYTE + bit for run, byte, bit in places)
    if max(starts, default=0) > size * _BITS_A_BYTE:
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


_DIRECT, _DIRECT_V2, _DICTIONARY_V2 = 0, 2, 3
_RAW, _RUNS, _BITS = 1, 2, 3
"""The number of positions in a stream of bytes, of runs and of bits; one more if it is compressed."""
_RUN_BYTES = 130
"""The length of the longest run of a byte, which is encoded in two bytes."""
_LEAST_RUN = 3
_HAS_NULL = 10

_Streams = tuple[tuple[int, int], ...]
_INTEGER: tuple[int, _Streams] = (_DIRECT_V2, ((DATA, _RUNS),))
_FLOAT: tuple[int, _Streams] = (_DIRECT, ((DATA, _RAW),))
_TEXT: tuple[int, _Streams] = (_DICTIONARY_V2, ((DATA, _RUNS), (LENGTH, 0), (DICTIONARY_DATA, 0)))
_BINARY: tuple[int, _Streams] = (_DIRECT_V2, ((DATA, _RAW), (LENGTH, _RUNS)))
_TIME: tuple[int, _Streams] = (_DIRECT_V2, ((DATA, _RUNS), (SECONDARY, _RUNS)))
_REPEATED: tuple[int, _Streams] = (_DIRECT_V2, ((LENGTH, _RUNS),))
_SHAPES: dict[str, tuple[int, _Streams]] = {
    **dict.fromkeys(("short", "int", "long", "date"), _INTEGER),
    **dict.fromkeys(("float", "double"), _FLOAT),
    **dict.fromkeys(("string", "varchar", "char"), _TEXT),
    **dict.fromkeys(("binary", "geometry", "geography"), _BINARY),
    **dict.fromkeys(("timestamp", "timestamp_instant"), _TIME),
    **dict.fromkeys(("list", "map"), _REPEATED),
    "boolean": (_DIRECT, ((DATA, _BITS),)),
    "byte": (_DIRECT, ((DATA, _RUNS),)),
    "decimal": (_DIRECT_V2, ((DATA, _RAW), (SECONDARY, _RUNS))),
    "struct": (_DIRECT, ()),
    "union": (_DIRECT, ((DATA, _RUNS),)),
}
"""Kind of a column -> its encoding, and its streams besides PRESENT with the number of positions of each."""

_SUM = Message("statistics of integers", [(3 << 3 | VARINT, 0)])
_STATISTICS: dict[str, tuple[int, Message]] = {
    **dict.fromkeys(("byte", "short", "int", "long"), (2, _SUM)),
    **dict.fromkeys(("float", "double"), (3, Message("statistics of floats", [(3 << 3 | FIXED64, bytes(8))]))),
    **dict.fromkeys(("string", "varchar", "char"), (4, Message("statistics of texts"))),
    **dict.fromkeys(("timestamp", "timestamp_instant"), (9, Message("statistics of timestamps"))),
    "boolean": (5, Message("statistics of booleans", [(1 << 3 | BYTES, b"\0")])),
    "decimal": (6, Message("statistics of decimals", [(3 << 3 | BYTES, b"0")])),
    "date": (7, Message("statistics of dates")),
    "binary": (8, Message("statistics of binaries", [(1 << 3 | VARINT, 0)])),
    **dict.fromkeys(("geometry", "geography"), (13, Message("statistics of shapes"))),
}
"""Kind -> the field of ``ColumnStatistics`` that is specific to it, and its content for no values."""


@dataclass(frozen=True, slots=True)
class MaskStream:
    """A stream of a mask, and its bytes."""

    kind: int
    column: int
    data: bytes


def empty_statistics(column: Column, *, has_null: bool) -> bytes:
    """Return statistics of no values."""
    own = _STATISTICS.get(column.kind)
    typed = () if own is None else ((own[0], own[1].encode()),)
    return message("column statistics", *sorted(((1, 0), *typed, (_HAS_NULL, int(has_null))))).encode()


def mask_encoding(column: Column) -> bytes:
    """Return the encoding of a masked column."""
    encoding = _SHAPES[column.kind][0]
    return message("an encoding", (1, encoding), (2, 0 if encoding == _DICTIONARY_V2 else None)).encode()


def mask_streams(
    columns: Sequence[Column], extent: Extent, indexed: Sequence[int], groups: int, compression: Compression
) -> list[MaskStream]:
    """Return the streams of a mask in one stripe.

    Args:
        columns: the encrypted column, and all columns below it.
        extent: of the encrypted column.
        indexed: the numbers of the columns that have a row index.
        groups: the number of entries of each row index.
        compression: of the file.
    """
    root = columns[0]
    present = _Zeros(extent.size, compression)
    streams = [MaskStream(PRESENT, root.number, present.data)] if extent.size else []
    for column in columns:
        streams += [MaskStream(kind, column.number, b"") for kind, _ in _SHAPES[column.kind][1]]
        if column.number in indexed:
            nulls = column is root and bool(extent.size)
            first = [present.positions(start) for start in extent.starts] if nulls else [()] * groups
            streams.append(MaskStream(ROW_INDEX, column.number, _row_index(column, first, nulls, compression)))
    return streams


def _row_index(column: Column, first: Sequence[tuple[int, ...]], has_null: bool, compression: Compression) -> bytes:
    more = int(compression.codec != "none")
    rest = sum(count + more for _, count in _SHAPES[column.kind][1] if count)
    statistics = empty_statistics(column, has_null=has_null)
    entries = [
        message("an entry", (1, encode_packed((*positions, *[0] * rest)) or None), (2, statistics)).encode()
        for positions in first
    ]
    return compression.deflate(message("a row index", *((1, entry) for entry in entries)).encode())


class _Zeros:
    """A compressed stream of byte runs whose bits are all zero."""

    def __init__(self, size: int, compression: Compression) -> None:
        runs, rest = divmod(size, _RUN_BYTES)
        content = bytes((_RUN_BYTES - _LEAST_RUN, 0)) * runs
        if rest >= _LEAST_RUN:
            content += bytes((rest - _LEAST_RUN, 0))
        elif rest:
            content += bytes((256 - rest, *bytes(rest)))
        chunks = list(compression.deflated_chunks(content))
        self._compression = compression
        self._starts = [0]
        for chunk in chunks:
            self._starts.append(self._starts[-1] + len(chunk))
        self.data = b"".join(chunks)

    def positions(self, value: int) -> tuple[int, ...]:
        """Return the position of a value: the chunk, the byte in it, the bytes of the run, the bits of the byte."""
        size, bits = divmod(value, 8)
        runs, consumed = divmod(size, _RUN_BYTES)
        if self._compression.codec == "none":
            return (2 * runs, consumed, bits)
        chunk, offset = divmod(2 * runs, self._compression.written_bytes)
        return (self._starts[chunk], offset, consumed, bits)

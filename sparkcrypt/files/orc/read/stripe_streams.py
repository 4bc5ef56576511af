"""Opens the streams of one stripe for a reader with keys: those of the variant if a column is encrypted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from sparkcrypt.errors import FormatError, UnsupportedFileError
from sparkcrypt.files.orc.file.compression import MOST_TIMES
from sparkcrypt.files.orc.file.encryption import Encryption, LocalKey
from sparkcrypt.files.orc.file.protobuf import MAX_FIELDS, Message, decode
from sparkcrypt.files.orc.file.schema import Column
from sparkcrypt.files.orc.file.stripe import FOOTER_TIMEZONE, ROW_INDEX, Stream, read_stream_whole, read_stripe_footer
from sparkcrypt.files.orc.file.tail import CALENDAR, PS_VERSION, TYPES, Stripe, Tail
from sparkcrypt.files.orc.read.runs import BitRuns, ByteRuns, IntegerRuns, Positions, StreamBytes, StreamCursor
from sparkcrypt.files.source import Input
from sparkcrypt.schema import Path, shown_path

_PRECISION, _SCALE = 5, 6
MOST_DIGITS = 38
_OF_HIVE_11 = (38, 10)
"""Precision and scale of decimals whose type has neither, as in ORC's Java reader."""
_FLAT = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar": pa.string(),
    "char": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("ns"),
    "timestamp_instant": pa.timestamp("ns", tz="UTC"),
}


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column to read, and the columns below it.

    Attributes:
        number: its column id.
        path: its path in the file, with ORC's names.
        kind: its name in `sparkcrypt.files.orc.file.schema.KINDS`.
        type: its Arrow type.
        children: the fields of a struct, the element of a list, or the key and value of a map.
    """

    number: int
    path: Path
    kind: str
    type: pa.DataType
    children: tuple[ReadColumn, ...]

    @property
    def shown(self) -> str:
        """The column's path, for messages."""
        return shown_path(self.path)


def find_columns(tail: Tail) -> tuple[Column, ...]:
    """Return the top-level columns.

    Raises:
        UnsupportedFileError: the root is not a struct.
        FormatError: two columns have the same name.
    """
    root = tail.columns[0]
    if root.kind != "struct":
        raise UnsupportedFileError(f"its root is a {root.kind}; allowed: a struct; read it with Spark")
    found = tuple(tail.columns[number] for number in root.children)
    if len({column.path for column in found}) < len(found):
        raise FormatError("two columns have one name; expected each once")
    return found


def read_type(tail: Tail, column: Column) -> ReadColumn:
    """Return a column, with all columns below it, as a column to read.

    Raises:
        UnsupportedFileError: a column is of a kind that this package does not decode.
        FormatError: a decimal has an invalid precision or scale, or a struct has two fields of the same name.
    """
    return _read_type(tail.columns, tail.footer.messages(TYPES, "a type"), column)


def _read_type(columns: Sequence[Column], types: Sequence[Message], column: Column) -> ReadColumn:
    children = tuple(_read_type(columns, types, columns[number]) for number in column.children)
    make = _NESTED.get(column.kind)
    if make is not None:
        found = make(children)
    elif column.kind == "decimal":
        found = _decimal(types[column.number], column)
    elif column.kind in _FLAT:
        found = _FLAT[column.kind]
    else:
        raise UnsupportedFileError(
            f"column {shown_path(column.path)} is of kind {column.kind}, which is not decoded here; leave it out, or "
            "read the file with Spark"
        )
    return ReadColumn(column.number, column.path, column.kind, found, children)


def _decimal(message: Message, column: Column) -> pa.DataType:
    if not message.has(_PRECISION):  # Hive 0.11 wrote none
        return pa.decimal128(*_OF_HIVE_11)
    precision, scale = message.integer(_PRECISION, bits=32), message.integer(_SCALE, bits=32)
    if not 0 < precision <= MOST_DIGITS or scale > precision:
        raise FormatError(
            f"column {shown_path(column.path)} is a decimal of {precision} digits, {scale} of them after the point; "
            f"expected 1 to {MOST_DIGITS} digits"
        )
    return pa.decimal128(precision, scale)


def _struct(children: Sequence[ReadColumn]) -> pa.DataType:
    names = [child.path[-1] for child in children]
    if len(set(names)) < len(names):
        raise FormatError(f"a struct has the fields {', '.join(names)}; expected each once")
    return pa.struct([pa.field(child.path[-1], child.type) for child in children])


def _list(children: Sequence[ReadColumn]) -> pa.DataType:
    (element,) = children
    return pa.list_(element.type)


def _map(children: Sequence[ReadColumn]) -> pa.DataType:
    key, value = children
    return pa.map_(key.type, value.type)


_NESTED: Mapping[str, Callable[[Sequence[ReadColumn]], pa.DataType]] = {"struct": _struct, "list": _list, "map": _map}


ENCODING_KIND, ENCODING_SIZE = 1, 2
MOST_GROUPS = 1 << 22
"""The most row groups of a stripe."""
LEAST_BATCH_BYTES = 256 * 1024 * 1024
"""The bytes that a batch, with what is kept of its stripe, may take; `MOST_TIMES` the stripe's size if that is more."""
_PROLEPTIC_GREGORIAN = 2
_DIRECT, _DICTIONARY, _DIRECT_V2, _DICTIONARY_V2 = range(4)
_ENTRIES, _POSITIONS, _STATISTICS = 1, 1, 2


class StripeStreams:
    """The streams of a stripe, with a cache of its row indexes.

    Args:
        file: the open file.
        tail: its tail.
        stripe: one of its stripes.
        keys: number of a variant -> its local key in this stripe, for all variants to read.

    Raises:
        FormatError: the stripe's footer violates the specification.
        UnsupportedFileError: as `read_stripe_footer`.
        StorageError: the storage failed.
    """

    def __init__(self, file: Input, tail: Tail, stripe: Stripe, keys: Mapping[int, LocalKey]) -> None:
        self._file = file
        self._tail = tail
        self._keys = keys
        self.stripe = stripe
        self._footer = read_stripe_footer(file, tail, stripe)
        self._streams = {(stream.variant, stream.column, stream.kind): stream for stream in self._footer.streams}
        self._indexes: dict[int, RowIndex | None] = {}
        self._most = max(LEAST_BATCH_BYTES, MOST_TIMES * (stripe.end - stripe.offset))
        self._kept = self._taken = 0
        self.groups = -(-stripe.rows // tail.stride) if tail.stride else 1
        if self.groups > MOST_GROUPS:
            raise FormatError(f"stripe {stripe.number} has {self.groups} row groups; expected at most {MOST_GROUPS}")

    @property
    def version(self) -> tuple[int, ...]:
        """The file's version, such as (0, 12)."""
        return tuple(self._tail.postscript.integers(PS_VERSION, bits=32))

    @property
    def timezone(self) -> str:
        """The time zone of the stripe's writer; empty if the stripe has none."""
        return self._footer.message.text(FOOTER_TIMEZONE) or ""

    @property
    def is_in_old_calendar(self) -> bool:
        """Whether dates are in the calendar of ORC's Java writer, which Spark assumes where a file does not say."""
        return self._tail.footer.integer(CALENDAR) != _PROLEPTIC_GREGORIAN

    def begin_batch(self) -> None:
        """Begin to count the bytes of another batch."""
        self._taken = 0

    def count_bytes(self, count: int, column: ReadColumn, *, is_kept: bool = False) -> None:
        """Count bytes of memory that a column takes for the batch, or for the whole stripe, before it takes them.

        Raises:
            UnsupportedFileError: together they are too many for a stripe of this size.
        """
        self._kept += count if is_kept else 0
        self._taken += 0 if is_kept else count
        if self._kept + self._taken > self._most:
            size = self.stripe.end - self.stripe.offset
            raise UnsupportedFileError(
                f"stripe {self.stripe.number}: with column {column.shown}, {size} bytes become more than {self._most} "
                "in one batch of rows; leave the column out, or read it with Spark"
            )

    def has(self, column: ReadColumn, kind: int) -> bool:
        """Return whether a column has a stream of a kind."""
        return self._find(column.number, kind) is not None

    def cursor(self, column: ReadColumn, kind: int) -> StreamCursor:
        """Return a cursor at the start of a stream; a missing stream is empty."""
        stream = self._find(column.number, kind) or Stream(kind, column.number, self.stripe.offset, 0, None)
        name = f"stripe {self.stripe.number}, column {column.shown}, {stream}"
        cipher = None
        if stream.variant is not None:
            cipher = partial(self._keys[stream.variant].stream, stream.column, stream.kind, self.stripe.id)
        compression = self._tail.compression
        return StreamCursor(StreamBytes(self._file, name, stream.offset, stream.length, cipher, compression))

    def bits(self, column: ReadColumn, kind: int) -> BitRuns:
        """Return a stream of bits."""
        return BitRuns(self.cursor(column, kind))

    def bytes(self, column: ReadColumn, kind: int) -> ByteRuns:
        """Return a stream of bytes."""
        return ByteRuns(self.cursor(column, kind))

    def integers(self, column: ReadColumn, kind: int, *, is_signed: bool) -> IntegerRuns:
        """Return a stream of integers, in the version given by the column's encoding.

        Raises:
            FormatError: the encoding is unknown.
        """
        version = 2 if self._encoding_kind(column) in (_DIRECT_V2, _DICTIONARY_V2) else 1
        return IntegerRuns(self.cursor(column, kind), version, is_signed)

    def dictionary_size(self, column: ReadColumn) -> int | None:
        """Return the size of a column's dictionary; None if the column has none.

        Raises:
            FormatError: the encoding is unknown.
        """
        if self._encoding_kind(column) not in (_DICTIONARY, _DICTIONARY_V2):
            return None
        return self._encoding(column.number).integer(ENCODING_SIZE, bits=31)

    def positions(self, column: ReadColumn, group: int, after: int) -> Positions:
        """Return the positions of a row group in the streams of a column.

        Args:
            column: the column.
            group: number of the row group.
            after: number of the row group after the last that will be read.

        Raises:
            UnsupportedFileError: the column has no row index, so that only the stripe as a whole can be read.
            FormatError: the row index is damaged.
        """
        if group == 0 and after >= self.groups:
            return Positions(None, None, self._is_compressed, column.shown)
        index = self.row_index(column)
        if index is None:
            raise UnsupportedFileError(
                f"stripe {self.stripe.number}: column {column.shown} has no row index, while others have; read it "
                "without a filter"
            )
        numbers = index.positions(group) if group else None
        ends = index.positions(after) if after < self.groups else None
        return Positions(numbers, ends, self._is_compressed, column.shown)

    def row_index(self, column: ReadColumn) -> RowIndex | None:
        """Return the row index of a column, which is read at the first call; None if it has none.

        Raises:
            FormatError: it is damaged.
        """
        number = column.number
        if number not in self._indexes:
            stream = self._find(number, ROW_INDEX) if self._tail.stride else None
            self._indexes[number] = None
            if stream is not None:
                cipher = None
                if stream.variant is not None:
                    cipher = self._keys[stream.variant].stream(number, ROW_INDEX, self.stripe.id)
                content = read_stream_whole(self._file, stream, cipher, self._tail.compression)
                self.count_bytes(len(content), column, is_kept=True)
                self._indexes[number] = RowIndex(content, self.groups, column.shown)
        return self._indexes[number]

    @property
    def _is_compressed(self) -> bool:
        return self._tail.compression.codec != "none"

    def _variant(self, column: int) -> int | None:
        """Return the number of the variant that a column is read from, or None."""
        encryption: Encryption | None = self._tail.encryption
        variant = None if encryption is None else encryption.variant_of(column)
        return None if variant is None else variant.number

    def _find(self, column: int, kind: int) -> Stream | None:
        return self._streams.get((self._variant(column), column, kind))

    def _encoding(self, column: int) -> Message:
        variant = self._variant(column)
        if variant is None or self._tail.encryption is None:
            return self._footer.encodings[column]
        return self._footer.variant_encodings[variant][column - self._tail.encryption.variants[variant].root.number]

    def _encoding_kind(self, column: ReadColumn) -> int:
        kind = self._encoding(column.number).integer(ENCODING_KIND, bits=31)
        if kind > _DICTIONARY_V2:
            raise FormatError(f"column {column.shown} has encoding {kind}; expected 0 to {_DICTIONARY_V2}")
        return kind


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

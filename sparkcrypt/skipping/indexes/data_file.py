"""One data file for indexing: the file's column for a column of the table, its bounds, and its distinct values.

A column can be indexed only if Spark compares the values as they are stored: INT96, Parquet types without a Spark type,
unsigned numbers, collations, CHAR, field ids and nested columns are refused with the column's name.

Statistics of a footer are used only if they are bounds of what Spark reads; bounds that may be wrong are unknown:

====================================  ==============================================================================
in the file                           bounds
====================================  ==============================================================================
float, double                         the greatest is NaN, unless ``nan_count`` is 0: Arrow leaves NaN out of bounds
``min_value``, ``max_value``          used only under ``TypeDefinedOrder``
the old ``min``, ``max``              not used for byte arrays, whose order they do not define
bounds of text that are not UTF-8     unknown: a maximum that was truncated inside a character
no bounds                             unknown, unless the null count shows that all values are null
dates and times before 1900           unknown if their calendar is unknown
====================================  ==============================================================================

Distinct values are read one column chunk at a time, in bounded memory.  The pages of a chunk are decrypted and put into
a plaintext file in memory, which pyarrow decodes.  So every codec and encoding that pyarrow supports is read, and no
page of another column.  The file's schema has only the physical type, so pyarrow returns values as Parquet stores them.

The sizes in a data file's headers are untrusted.  The sizes that a chunk announces are limited before it is decoded,
and batches of rows limit what is decoded at once.  Texts of a dictionary are not repeated for each row, and texts in
`DELTA_BYTE_ARRAY`, in which a few bytes can encode any number of long texts, are not read.

Source: LogicalTypes.md of parquet-format; ``ParquetToSparkSchemaConverter`` of Spark; parquet.thrift, ``Statistics``
and ``ColumnOrder``; ``ParquetMetadataConverter.fromParquetStatistics``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from struct import error as StructError
from struct import unpack
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import ConfigError, FormatError
from sparkcrypt.files.parquet.file.footer import MAGIC_BYTES, PLAINTEXT_MAGIC, Footer, check_magic_and_unique, footer_of
from sparkcrypt.files.parquet.file.modules import FileCiphers, RetrieveKey
from sparkcrypt.files.parquet.file.schema import leaf_levels
from sparkcrypt.files.parquet.rewrite.page_stream import PageHead
from sparkcrypt.files.parquet.rewrite.source_chunk import SourceChunk, column_chunks
from sparkcrypt.files.parquet.thrift.compact import (
    BINARY,
    BOOL,
    I32,
    STRUCT,
    List,
    Struct,
    decode_struct,
    encode_struct,
    field_key,
)
from sparkcrypt.files.parquet.thrift.metadata import (
    ColumnChunk,
    ColumnMetaData,
    Encoding,
    FileMetaData,
    PageHeader,
    PageType,
    RowGroup,
    SchemaElement,
    Statistics,
)
from sparkcrypt.files.source import Input, Source, naming, open_source
from sparkcrypt.names import SPARK_SCHEMA
from sparkcrypt.skipping.format.store import Bounds
from sparkcrypt.skipping.format.values import (
    BOOLEAN,
    BYTE_ARRAY,
    DOUBLE,
    FIXED,
    FLOAT,
    FLOATS,
    INT32,
    INT64,
    INT96,
    Raw,
    Value,
    converter,
    modern_calendar,
)

if TYPE_CHECKING:
    import pyarrow as pa


_CONVERTED = {
    (INT32, None): "integer", (INT32, 6): "date", (INT32, 15): "byte", (INT32, 16): "short", (INT32, 17): "integer",
    (INT64, None): "long", (INT64, 18): "long", (INT64, 9): "timestamp", (INT64, 10): "timestamp",
    (BYTE_ARRAY, None): "binary", (BYTE_ARRAY, 0): "string",
    (BOOLEAN, None): "boolean", (FLOAT, None): "float", (DOUBLE, None): "double",
}  # fmt: skip
"""Physical and converted type -> Spark's type."""
_DECIMAL = 5
_LOGICAL_TIMESTAMP, _IS_ADJUSTED, _UNIT = field_key(8, STRUCT), field_key(1, BOOL), field_key(2, STRUCT)
_MILLIS, _MICROS = field_key(1, STRUCT), field_key(2, STRUCT)
_REFUSED_METADATA = {
    "__COLLATIONS": "it has a collation",
    "parquet.field.id": "it is found by a field id",
}


@dataclass(frozen=True, slots=True)
class DataFile:
    """An open data file.

    Attributes:
        file: the open file.
        footer: its footer.
        metadata: the footer's metadata.
        ciphers: the ciphers of its keys; None if no keys were given.
        tail: the bytes from the footer to the end of the file, for a digest.
    """

    file: Input
    footer: Footer
    metadata: FileMetaData
    ciphers: FileCiphers | None
    tail: bytes

    def chunks(self, at: int) -> Iterator[SourceChunk]:
        """Yield a leaf's chunk of each row group; no other leaf's key is requested."""
        return column_chunks(self.file, self.footer, self.ciphers, at)


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a data file: its schema element, and its index among the leaves."""

    element: SchemaElement
    at: int


@contextmanager
def open_data_file(source: Source, retrieve_key: RetrieveKey | None) -> Iterator[DataFile]:
    """Open a data file for a ``with`` block; errors inside the block name the file.

    Args:
        source: the data file.
        retrieve_key: returns the keys of the footer and of columns that are read.

    Raises:
        FormatError: the footer is damaged.
        VerificationError: it does not authenticate.
        ConfigError: the footer is encrypted and retrieve_key is None.
        KeyServiceError: a key is denied or unavailable.
    """
    with open_source(source) as file:
        ciphers = None if retrieve_key is None else FileCiphers(file.name, retrieve_key)
        footer = footer_of(file, ciphers)
        with naming(file.name):
            check_magic_and_unique(file, footer)
            if footer.metadata is None:
                raise ConfigError(f"{file.name}: its footer is encrypted and no key is given; pass retrieve_key")
            tail = file.read(footer.offset, file.size - footer.offset, "the footer")
            yield DataFile(file, footer, footer.metadata, ciphers, tail)


def find_column(data: DataFile, column: str, kind: str) -> FileColumn | str:
    """Return a top-level column of a file, or the reason why its values are unknown.

    Args:
        data: the file.
        column: its name, in any case.
        kind: its Spark type in the table.

    Raises:
        ConfigError: as `column_type`.
    """
    found = column_type(data.metadata, column)
    if found is None:
        return "the file does not have the column"
    if found != kind:
        return f"the file has it as {found}"
    (element,) = _elements(data.metadata, column)
    at = [leaf.path for leaf in data.footer.columns or ()].index((element.name,))
    if leaf_levels(data.metadata)[at].repetition:
        return "it is repeated"
    return FileColumn(element, at)


def column_type(metadata: FileMetaData, column: str) -> str | None:
    """Return Spark's type of a top-level column, or None if the file does not have it.

    Raises:
        ConfigError: the column cannot be indexed, since Spark does not compare its stored values; the message has the
            reason.
    """
    named = _elements(metadata, column)
    if not named:
        return None
    if len(named) > 1:
        raise ConfigError(f"column {column!r}: is there in several spellings; rename all but one")
    element = named[0]
    if element.type is None or element.repetition_type == 2:
        raise _refuse_column(column, "it is nested or repeated")
    if element.type == INT96:
        raise _refuse_column(column, "it is INT96, whose time zone depends on its writer: write it as TIMESTAMP_MICROS")
    kind = _kind(element)
    if kind is None:
        raise _refuse_column(
            column, f"its Parquet type {element.type} ({element.converted_type}) is not one that is compared"
        )
    _check_spark(metadata, column)
    return kind


def _refuse_column(column: str, why: str) -> ConfigError:
    return ConfigError(f"column {column!r}: cannot be indexed, since {why}; leave it out")


def _elements(metadata: FileMetaData, column: str) -> list[SchemaElement]:
    """Return the top-level fields of a name in any case, as Spark finds them."""
    found, skip = [], 0
    for element in metadata.schema[1:]:
        if skip == 0 and element.name.lower() == column.lower():
            found.append(element)
        skip += (element.num_children or 0) - (1 if skip else 0)
    return found


def _kind(element: SchemaElement) -> str | None:
    if element.converted_type == _DECIMAL and element.precision and element.type in (INT32, INT64, BYTE_ARRAY, FIXED):
        return f"decimal({element.precision},{element.scale or 0})"
    timestamp = None if element.logical_type is None else element.logical_type.struct.get(_LOGICAL_TIMESTAMP)
    if isinstance(timestamp, Struct):
        unit = timestamp.get(_UNIT)
        known = element.type == INT64 and isinstance(unit, Struct) and (_MILLIS in unit or _MICROS in unit)
        return ("timestamp" if timestamp.get(_IS_ADJUSTED) else "timestamp_ntz") if known else None
    if element.converted_type is None and element.logical_type is not None:
        return None
    return _CONVERTED.get((element.type or 0, element.converted_type))


def _check_spark(metadata: FileMetaData, column: str) -> None:
    """Refuse a column that has a collation, is CHAR or is found by a field id, by Spark's schema in the footer."""
    text = next((entry.value for entry in metadata.key_value_metadata or () if entry.key == SPARK_SCHEMA), None)
    try:
        document: Any = json.loads(text or "{}")
        fields = [entry for entry in document.get("fields", ()) if str(entry["name"]).lower() == column.lower()]
        entries = [(key, value) for field in fields for key, value in (field.get("metadata") or {}).items()]
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise FormatError(f"{SPARK_SCHEMA} is not the JSON that Spark writes; expected a struct") from error
    for key, value in entries:
        if key in _REFUSED_METADATA:
            raise _refuse_column(column, _REFUSED_METADATA[key])
        if key == "__CHAR_VARCHAR_TYPE_STRING" and str(value).startswith("char"):
            raise _refuse_column(column, "it is CHAR, which Spark pads")


_PLAIN = {INT32: "<i", INT64: "<q", FLOAT: "<f", DOUBLE: "<d"}
_TYPE_ORDER = field_key(1, STRUCT)


def find_bounds(data: DataFile, column: FileColumn, kind: str) -> Bounds | str:
    """Return the bounds of a column, or the reason why they are unknown.

    Args:
        data: the file, of which only the footer and the column's metadata are read.
        column: the column.
        kind: its Spark type.

    Raises:
        FormatError: the metadata is damaged.
        VerificationError: it does not authenticate.
        KeyServiceError: the column's key is denied or unavailable.
    """
    element = column.element
    convert = converter(kind, element, modern_calendar=modern_calendar(data.metadata))
    orders = data.metadata.column_orders
    typed = orders is not None and column.at < len(orders) and _TYPE_ORDER in orders[column.at]
    sides: list[tuple[Value, Value]] = []
    for chunk in data.chunks(column.at):
        statistics = chunk.metadata.statistics
        if not chunk.metadata.num_values or (statistics and statistics.null_count == chunk.metadata.num_values):
            continue
        raw = _read_raw_bounds(chunk.metadata, statistics, element, typed)
        if isinstance(raw, str):
            return raw
        side = _side(convert(raw[0]), convert(raw[1]), kind in FLOATS, statistics)
        if isinstance(side, str):
            return side
        sides.append(side)
    return _unite_bounds(sides)


def _side(
    least: Value | None, greatest: Value | None, floats: bool, statistics: Statistics | None
) -> tuple[Value, Value] | str:
    """Return the bounds of a row group, or the reason why they are unknown."""
    if least is None or greatest is None:
        return "its bounds are no UTF-8, or before 1900 in an unknown calendar"
    if floats:
        if least != least:
            return "its least value is not a number"
        if statistics is None or statistics.nan_count != 0:
            greatest = math.nan
    if _comparable(least) > _comparable(greatest):
        return "its least value is greater than its greatest"
    return least, greatest


def _read_raw_bounds(
    metadata: ColumnMetaData, statistics: Statistics | None, element: SchemaElement, typed: bool
) -> tuple[Raw, Raw] | str:
    if statistics is None:
        return "its footer has no statistics"
    least, greatest = (statistics.min_value, statistics.max_value) if typed else (None, None)
    if (least is None or greatest is None) and metadata.type not in (BYTE_ARRAY, FIXED):
        least, greatest = statistics.min, statistics.max
    if least is None or greatest is None:
        return "its footer has no bounds in an order that is known"
    return _decode_plain(least, element), _decode_plain(greatest, element)


def _decode_plain(data: bytes, element: SchemaElement) -> Raw:
    kind = element.type or 0
    try:
        if kind == BOOLEAN:
            (flag,) = unpack("<B", data)
            return bool(flag)
        return unpack(_PLAIN[kind], data)[0] if kind in _PLAIN else data
    except StructError as error:
        raise FormatError(f"a bound of {element.name!r} has {len(data)} bytes; expected those of its type") from error


def _unite_bounds(sides: Sequence[tuple[Value, Value]]) -> Bounds:
    """Return the bounds of all row groups together; NaN is greater than any number."""
    if not sides:
        return Bounds(None, None)
    least = min((side for side, _ in sides), key=_comparable)
    return Bounds(least, max((side for _, side in sides), key=_comparable))


def _comparable(value: Value) -> Any:
    return (value != value, 0 if value != value else value)


BATCH_ROWS = 1 << 20
MAX_ROWS = 1 << 28
"""Maximum number of rows in a file: a page of a few bytes can announce two billion nulls."""
MAX_ROW_GROUPS = 4096
"""Maximum number of row groups in a file, since each is decoded as a file of its own."""
MAX_STORED_BYTES = 256 * 1024 * 1024
MAX_DECODED_BYTES = 256 * 1024 * 1024
"""Maximum sizes of the pages of one chunk, stored and decompressed; Spark's row groups take 128 MiB.  Decoding takes up
to four times the latter."""
MAX_BYTES, MAX_TIMES = 64 * 1024 * 1024, 64
"""Maximum decompressed size of all pages of a column in a file, and how many times their stored size if that is more: a
few kB can announce any number of large pages."""
MAX_PAGE_BYTES = 64 * 1024 * 1024
"""Maximum decompressed size of a data page, of which pyarrow holds several copies; writers aim at 1 MiB."""
MAX_DICTIONARY_BYTES = 16 * 1024 * 1024
"""Maximum decompressed size of a dictionary page; Spark and Arrow limit theirs to 1 MiB."""
_DELTA_LENGTH_BYTE_ARRAY = 6
_NAME = "v"


class _UnknownValuesError(Exception):
    """Raised if the values of a column are unknown; the message is the reason."""


def distinct_values(data: DataFile, column: FileColumn, most: int) -> Iterator[list[Raw] | str]:
    """Yield lists of a column's values except null, distinct within each batch of rows but not across batches.

    If the values are too many or too long to be decoded, the last item is a text, the reason why they are unknown.

    Args:
        data: the file.
        column: the column, which must be a top-level one and not repeated.
        most: maximum number of distinct values in a batch of rows; with more, the values are unknown.

    Raises:
        FormatError: a page is damaged.
        VerificationError: a page does not authenticate.
        KeyServiceError: the column's key is denied or unavailable.
        ConfigError: pyarrow is not installed.
    """
    if sum(group.num_rows for group in data.metadata.row_groups) > MAX_ROWS:
        yield f"the file has more than {MAX_ROWS:,} rows"
        return
    if len(data.metadata.row_groups) > MAX_ROW_GROUPS:
        yield f"the file has more than {MAX_ROW_GROUPS:,} row groups"
        return
    stored = decoded = 0
    try:
        for chunk in data.chunks(column.at):
            if chunk.rows or chunk.metadata.num_values:
                content, encodings, announced = _copy_plain(chunk, column.element)
                stored, decoded = stored + len(content), decoded + announced
                if decoded > max(MAX_BYTES, MAX_TIMES * stored):
                    raise _UnknownValuesError(
                        f"its pages decompress to more than {MAX_BYTES >> 20} MiB and to more than {MAX_TIMES} times "
                        "their size"
                    )
                indexed = column.element.type == BYTE_ARRAY and _is_numbered(encodings)
                yield from _decode_chunk(chunk, content, most, [_NAME] if indexed else None)
    except _UnknownValuesError as error:
        yield str(error)


def _is_numbered(encodings: set[int]) -> bool:
    """Tell whether texts can be decoded as indices of a dictionary, so that rows do not repeat them.

    Raises:
        _UnknownValuesError: the decoded pages could be larger than their headers announce.
    """
    if encodings <= {Encoding.PLAIN, Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY}:
        return True
    if encodings <= {Encoding.PLAIN, _DELTA_LENGTH_BYTE_ARRAY}:
        return False
    raise _UnknownValuesError("its texts are encoded as DELTA_BYTE_ARRAY, or in several ways, which is not bounded")


def _decode_chunk(
    chunk: SourceChunk, content: bytes, most: int, read_dictionary: list[str] | None
) -> Iterator[list[Raw]]:
    try:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ConfigError(
            "an index of values or a Bloom filter needs pyarrow; install sparkcrypt[arrow], or index by minmax"
        ) from error
    rows = 0
    try:
        file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=read_dictionary)
        for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
            rows += batch.num_rows
            found = pc.unique(batch.column(0))
            if len(found) - found.null_count > most:
                raise _UnknownValuesError(f"it has more than {most:,} distinct values")
            yield _to_raw_values(found)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, pa.ArrowNotImplementedError) or "not yet implemented" in str(error).lower():
            raise _UnknownValuesError("its pages are of a codec or an encoding that pyarrow does not read") from error
        raise FormatError(f"{chunk.name}: a page cannot be decoded ({error}); expected what its header says") from error
    if rows != chunk.rows:
        raise FormatError(f"{chunk.name}: pages hold {rows} rows; expected {chunk.rows}, as the row group says")


def _to_raw_values(found: pa.Array) -> list[Raw]:
    import pyarrow as pa

    whole: Any = found.dictionary_decode() if pa.types.is_dictionary(found.type) else found
    values: list[Raw] = whole.drop_null().to_pylist()
    return values


def _copy_plain(chunk: SourceChunk, element: SchemaElement) -> tuple[bytes, set[int], int]:
    """Return a plaintext file with one chunk, whose column has only a physical type.

    Returns:
        The file, the encodings of its data pages, and the decompressed size that its pages announce, in bytes.
    """
    start, end = chunk.range()
    if end - start > MAX_STORED_BYTES:
        raise _UnknownValuesError(f"it has a column chunk of more than {MAX_STORED_BYTES >> 20} MiB")
    pages, at, dictionary = [PLAINTEXT_MAGIC], MAGIC_BYTES, None
    first, values, decoded, encodings = MAGIC_BYTES, 0, 0, set[int]()
    for page in chunk.page_source().pages():
        head, body = page.head, bytes(page.body)
        decoded += head.uncompressed
        if decoded > MAX_DECODED_BYTES:
            raise _UnknownValuesError(f"it has a column chunk of more than {MAX_DECODED_BYTES >> 20} MiB decompressed")
        if head.type == PageType.DICTIONARY_PAGE:
            if head.uncompressed > MAX_DICTIONARY_BYTES:
                raise _UnknownValuesError(f"it has a dictionary of more than {MAX_DICTIONARY_BYTES >> 20} MiB")
            _check_dictionary(chunk, head)
            dictionary = at
        elif head.uncompressed > MAX_PAGE_BYTES:
            raise _UnknownValuesError(f"it has a page of more than {MAX_PAGE_BYTES >> 20} MiB decompressed")
        else:
            encodings.add(head.encoding)
        values += head.values
        header = head.encode(len(body), None)
        pages += [header, body]
        at += len(header) + len(body)
        if head.type == PageType.DICTIONARY_PAGE:
            first = at
    if values != chunk.rows or values != chunk.metadata.num_values:
        raise FormatError(f"{chunk.name}: pages hold {values} values; expected {chunk.rows}, one for each row")
    footer = encode_struct(_footer(chunk, element, first, dictionary, at - MAGIC_BYTES, decoded))
    return b"".join([*pages, footer, len(footer).to_bytes(4, "little"), PLAINTEXT_MAGIC]), encodings, decoded


def _check_dictionary(chunk: SourceChunk, head: PageHead) -> None:
    """Refuse a dictionary page that announces more values than bytes, since pyarrow would allocate memory for all."""
    header = PageHeader(decode_struct(head.encode(head.size, None))[0]).dictionary_page_header
    if header is not None and header.num_values > head.uncompressed:
        raise FormatError(
            f"{chunk.name}: a dictionary page has {header.num_values} values in {head.uncompressed} bytes; expected no "
            "more values than bytes"
        )


def _footer(
    chunk: SourceChunk, element: SchemaElement, first: int, dictionary: int | None, size: int, decoded: int
) -> Struct:
    described: dict[int, Any] = {
        ColumnMetaData.type.key: element.type or 0,
        ColumnMetaData.encodings.key: List(I32, list(chunk.metadata.encodings)),
        ColumnMetaData.path_in_schema.key: List(BINARY, [_NAME.encode()]),
        ColumnMetaData.codec.key: chunk.metadata.codec,
        ColumnMetaData.num_values.key: chunk.rows,
        ColumnMetaData.total_uncompressed_size.key: decoded,
        ColumnMetaData.total_compressed_size.key: size,
        ColumnMetaData.data_page_offset.key: first,
    }
    if dictionary is not None:
        described[ColumnMetaData.dictionary_page_offset.key] = dictionary
    leaf: dict[int, Any] = {SchemaElement.type.key: element.type or 0}
    if element.type_length is not None:
        leaf[SchemaElement.type_length.key] = element.type_length
    leaf |= {SchemaElement.repetition_type.key: element.repetition_type or 0, SchemaElement.name.key: _NAME.encode()}
    root = Struct({SchemaElement.name.key: b"schema", SchemaElement.num_children.key: 1})
    column = Struct({ColumnChunk.file_offset.key: 0, ColumnChunk.meta_data.key: Struct(described)})
    group = Struct(
        {
            RowGroup.columns.key: List(STRUCT, [column]),
            RowGroup.total_byte_size.key: decoded,
            RowGroup.num_rows.key: chunk.rows,
        }
    )
    return Struct(
        {
            FileMetaData.version.key: 1,
            FileMetaData.schema.key: List(STRUCT, [root, Struct(leaf)]),
            FileMetaData.num_rows.key: chunk.rows,
            FileMetaData.row_groups.key: List(STRUCT, [group]),
        }
    )

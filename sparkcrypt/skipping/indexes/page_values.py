"""Reads the distinct values of a column from the pages of a data file, one column chunk at a time, in bounded memory.

The pages of a chunk are decrypted and put into a plaintext file in memory, which pyarrow decodes.  So every codec and
encoding that pyarrow supports is read, and no page of another column.  The file's schema has only the physical type, so
pyarrow returns values as Parquet stores them.

The sizes in a data file's headers are untrusted.  The sizes that a chunk announces are limited before it is decoded,
and batches of rows limit what is decoded at once.  Texts of a dictionary are not repeated for each row, and texts in
`DELTA_BYTE_ARRAY`, in which a few bytes can encode any number of long texts, are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import ConfigError, FormatError
from sparkcrypt.files.parquet.file.footer import MAGIC_BYTES, PLAINTEXT_MAGIC
from sparkcrypt.files.parquet.rewrite.page_header import PageHead
from sparkcrypt.files.parquet.rewrite.source_chunk import SourceChunk
from sparkcrypt.files.parquet.thrift.compact import BINARY, I32, STRUCT, List, Struct, decode_struct
from sparkcrypt.files.parquet.thrift.encode import encode_struct
from sparkcrypt.files.parquet.thrift.metadata import (
    ColumnChunk,
    ColumnMetaData,
    Encoding,
    FileMetaData,
    PageHeader,
    PageType,
    RowGroup,
    SchemaElement,
)
from sparkcrypt.skipping.format.convert_values import BYTE_ARRAY
from sparkcrypt.skipping.format.decode_chunk import Raw
from sparkcrypt.skipping.indexes.data_file import DataFile, FileColumn

if TYPE_CHECKING:
    import pyarrow as pa

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

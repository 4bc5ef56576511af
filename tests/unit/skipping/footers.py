"""Files of one column by pyarrow, the same with other statistics in their footers, and what is read of either."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkcrypt.files.parquet import read_footer
from sparkcrypt.files.parquet.thrift.compact import Struct, decode_struct, encode_struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnMetaData, FileMetaData, Statistics
from sparkcrypt.skipping.format.description import MINMAX, Index
from sparkcrypt.skipping.indexes.entries import ReadFile, make_index, read_file

DIGEST_KEY = b"k" * 32


@dataclass(frozen=True)
class ReadColumns:
    """What was read of a file, by the names of its columns."""

    file: ReadFile
    bounds: Mapping[str, Any]
    unknown: Mapping[str, str]


def read_bounds(source: Any, columns: Mapping[str, str], retrieve_key: Any = None) -> ReadColumns:
    """Read the bounds of columns, given with their types."""
    indexes = [index_of(MINMAX, kind, name) for name, kind in columns.items()]
    found = read_file(source, indexes, retrieve_key, DIGEST_KEY)
    return ReadColumns(
        found,
        {index.columns[0]: entry for index, entry in found.entries.items()},
        {index.columns[0]: why for index, why in found.unknown.items()},
    )


def index_of(kind: str, column_type: str, column: str = "c", *, most: int = 1000, share: float = 0.01) -> Index:
    """Return an index of one column."""
    return make_index(column, kind, column_type, most_values=most, false_positives=share)


def entry_of(source: Any, index: Index, *, retrieve_key: Any = None) -> Any:
    """Return what an index holds of a file, or why it holds nothing."""
    found = read_file(source, [index], retrieve_key, DIGEST_KEY)
    entry = found.entries[index]
    return found.unknown[index] if entry is None else entry


def file_of(column: pa.Array, *, metadata: dict[str, str] | None = None, name: str = "c", **writer: Any) -> bytes:
    """Return a file with one column."""
    out = io.BytesIO()
    table = pa.table({name: column}).replace_schema_metadata(metadata or {"org.apache.spark.version": "4.1.0"})
    pq.write_table(table, out, **writer)
    return out.getvalue()


def changed(data: bytes, **statistics: Any) -> bytes:
    """Return a file whose statistics were changed; None takes a field away.  ``ordered=False`` takes the order away."""
    footer = read_footer(data)
    metadata, _ = decode_struct(data, start=footer.offset)
    if not statistics.pop("ordered", True):
        metadata.pop(FileMetaData.column_orders.key)
    for group in FileMetaData(metadata).row_groups:
        chunk = group.columns[0].meta_data
        assert chunk is not None
        for name, value in statistics.items():
            assert chunk.statistics is not None
            key = getattr(Statistics, name).key
            if value is None:
                chunk.statistics.struct.pop(key, None)
            else:
                chunk.statistics.struct[key] = value
        if statistics:
            assert chunk.statistics is not None
            chunk.struct[ColumnMetaData.statistics.key] = Struct(sorted(chunk.statistics.struct.items()))
    encoded = encode_struct(metadata)
    return data[: footer.offset] + encoded + len(encoded).to_bytes(4, "little") + b"PAR1"

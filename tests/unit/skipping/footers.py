"""Files of one column by pyarrow, and the same with other statistics in their footers."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkcrypt.parquet import read_footer
from sparkcrypt.parquet.thrift.compact import Struct, decode_struct
from sparkcrypt.parquet.thrift.encode import encode_struct
from sparkcrypt.parquet.thrift.metadata import ColumnMetaData, FileMetaData, Statistics


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

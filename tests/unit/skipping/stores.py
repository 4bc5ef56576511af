"""Files of stores as Spark writes them, made by pyarrow and the schema's JSON of the specification."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkcrypt.names import SPARK_SCHEMA
from sparkcrypt.skipping.format.store import StorePart, read_part
from sparkcrypt.skipping.query.skipper import Listed, Predicate, Skipper

UDT = "ParquetBaseClauseTranslator$BloomFilterMetaDataTypeUDT"
TABLE = "/data/table"
NAMES = tuple(f"{TABLE}/part-{number}.parquet#{1_700_000_000_000 + number}" for number in range(3))


def spark_field(name: str, kind: Any, metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a field of Spark's schema JSON."""
    return {"name": name, "type": kind, "nullable": True, "metadata": dict(metadata or {})}


def index_field(name: str, kind: Any, called: str, columns: Sequence[str], **more: Any) -> dict[str, Any]:
    """Return the field of an index."""
    return spark_field(name, kind, {"index": {"cols": list(columns), "name": called, **more}})


def minmax_type(kind: str) -> dict[str, Any]:
    """Return the Spark type of bounds."""
    return {"type": "struct", "fields": [spark_field("min", kind), spark_field("max", kind)]}


def list_type(kind: str) -> dict[str, Any]:
    """Return the Spark type of a list of values."""
    return {"type": "array", "elementType": kind, "containsNull": True}


def schema_json(fields: Sequence[Mapping[str, Any]], version: int | None = 4, **more: Any) -> str:
    """Return the schema of a store, ``obj_name`` first."""
    master = {"tableIdentifier": TABLE, **({} if version is None else {"version": version}), **more}
    return json.dumps({"type": "struct", "fields": [spark_field("obj_name", "string", master), *fields]})


def store_bytes(
    schema: str, columns: Mapping[str, Any], *, spark: str | None = "4.1.0", names: Sequence[str] = NAMES, **writer: Any
) -> bytes:
    """Return a file of a store: its names, and these columns."""
    table = pa.table({"obj_name": list(names), **columns})
    extra = {} if spark is None else {"org.apache.spark.version": spark}
    table = table.replace_schema_metadata({SPARK_SCHEMA: schema, **extra})
    out = io.BytesIO()
    pq.write_table(table, out, **writer)
    return out.getvalue()


def read_bytes(data: bytes, **named: Any) -> StorePart:
    """Read a file of a store."""
    return read_part("part-0.parquet", lambda: io.BytesIO(data), **named)


def bounds_of(pairs: Sequence[tuple[Any, Any] | None], kind: pa.DataType) -> pa.Array:
    """Return a column of bounds; None is a row without them."""
    rows = [None if pair is None else {"min": pair[0], "max": pair[1]} for pair in pairs]
    return pa.array(rows, pa.struct([("min", kind), ("max", kind)]))


def must_open(skipper: Skipper, files: Iterable[Listed], predicate: Predicate) -> list[bool]:
    """Tell for each file, in order, whether a query with a predicate must open it."""
    return [names is None for names in skipper.name_indexes(files, predicate)]

"""Makes a plaintext file of a store with pyarrow, and its Spark schema of version 4."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import ConfigError
from sparkcrypt.files.parquet.file.schema import Path
from sparkcrypt.names import SPARK_SCHEMA
from sparkcrypt.skipping.format.description import Index
from sparkcrypt.skipping.format.merge import Store
from sparkcrypt.skipping.format.naming import BLOOM, MINMAX, OBJECT, VERSION
from sparkcrypt.skipping.format.store import Bounds, Entry

if TYPE_CHECKING:
    import pyarrow as pa

UDT = "io.xskipper.metadatastore.parquet.ParquetBaseClauseTranslator$BloomFilterMetaDataTypeUDT"
"""The class that upstream reads Bloom filters with."""
SPARK_VERSION = "4.0.0"
"""The writer's version in a file; it tells readers that dates and times are in the calendar of Spark 3.0 and later."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def schema_json(store: Store) -> str:
    """Return a store's Spark schema as JSON, as upstream's ``ParquetUtils.createDFSchema`` makes it."""
    master: dict[str, Any] = {"version": VERSION, "tableIdentifier": store.table or ""}
    if store.labels is not None:
        block = {
            "encryption.column.keys": store.labels.column_keys,
            "encryption.footer.key": store.labels.footer_key,
        }
        master["encryption"] = block
    fields = [_field(OBJECT, "string", master, nullable=False)]
    fields += [_field(column.field, column.type, {}) for column, _ in store.partitions]
    fields += [
        _field(index.index.field, _spark_type(index.index), {"index": _metadata(index.index)})
        for index in store.indexes
    ]
    return json.dumps({"type": "struct", "fields": fields}, ensure_ascii=False, separators=(",", ":"))


def table_bytes(store: Store, schema: str) -> bytes:
    """Return a plaintext Parquet file with a store's rows, in plain encoding, with gzip and without statistics.

    Every entry except Bloom filters must be known.

    Raises:
        ConfigError: pyarrow is not installed, or a value does not have its index's type.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ConfigError("writing a store needs pyarrow; install sparkcrypt[arrow]") from error
    columns: dict[str, Any] = {OBJECT: pa.array(store.objects, pa.string())}
    try:
        for column, values in store.partitions:
            columns[column.field] = pa.array(list(values), _arrow_type(column.type or ""))
        for index in store.indexes:
            columns[index.index.field] = _column(index.index, index.entries)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise ConfigError(
            f"a value is not of its index's type ({type(error).__name__}); give bounds of that type"
        ) from error
    metadata = {SPARK_SCHEMA: schema, "org.apache.spark.version": SPARK_VERSION}
    out = io.BytesIO()
    table = pa.table(columns).replace_schema_metadata(metadata)
    pq.write_table(table, out, compression="gzip", use_dictionary=False, write_statistics=False)
    return out.getvalue()


def leaf_paths_of(index: Index) -> tuple[Path, ...]:
    """Return the paths of the Parquet leaves of an index's field, as `table_bytes` writes them."""
    if index.kind == MINMAX:
        return (index.field, "min"), (index.field, "max")
    return ((index.field,),) if index.kind == BLOOM else ((index.field, "list", "element"),)


def _field(name: str, kind: Any, metadata: Mapping[str, Any], *, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def _spark_type(index: Index) -> Any:
    if index.kind == BLOOM:
        return {"type": "udt", "class": UDT, "pyClass": None, "sqlType": "binary"}
    if index.kind == MINMAX:
        return {"type": "struct", "fields": [_field(side, index.type, {}) for side in ("min", "max")]}
    return {"type": "array", "elementType": index.type, "containsNull": True}


def _metadata(index: Index) -> dict[str, Any]:
    found: dict[str, Any] = {"name": index.kind, "cols": list(index.columns)}
    if index.params:
        found["params"] = dict(index.params)
    return found if index.key is None else {**found, "key_metadata": index.key}


def _column(index: Index, entries: Sequence[Entry | None]) -> pa.Array:
    import pyarrow as pa

    if index.kind == BLOOM:
        return pa.array(list(entries), pa.binary())
    of = _arrow_type(index.type or "")
    if index.kind == MINMAX:
        rows = [{"min": entry.least, "max": entry.greatest} if isinstance(entry, Bounds) else None for entry in entries]
        return pa.array(rows, pa.struct([("min", of), ("max", of)]))
    lists = [sorted(entry, key=_order) if isinstance(entry, frozenset) else None for entry in entries]
    return pa.array(lists, pa.list_(pa.field("element", of)))


def _order(value: Any) -> Any:
    return (value != value, value if value == value else 0)


def _arrow_type(kind: str) -> pa.DataType:
    """Return pyarrow's type for a Spark type; pyarrow accepts the integers here as values of dates and times."""
    import pyarrow as pa

    match = _DECIMAL.fullmatch(kind)
    if match is not None:
        return pa.decimal128(int(match[1]), int(match[2]))
    makers: dict[str, Callable[[], pa.DataType]] = {
        **{"boolean": pa.bool_, "byte": pa.int8, "short": pa.int16, "integer": pa.int32, "long": pa.int64},
        **{"float": pa.float32, "double": pa.float64, "string": pa.string, "binary": pa.binary, "date": pa.date32},
        "timestamp": lambda: pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": lambda: pa.timestamp("us"),
    }
    if kind not in makers:
        raise ConfigError(f"an index of type {kind!r}; allowed: {', '.join(makers)} and decimal")
    return makers[kind]()

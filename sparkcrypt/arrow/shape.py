"""Converts schemas between pyarrow, Spark and Parquet, matches paths of their columns, and finds those of a filter."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkcrypt.errors import PlanError
from sparkcrypt.files.parquet import Footer, message_type
from sparkcrypt.schema import (
    ELEMENT,
    KEY,
    METADATA,
    VALUE,
    Path,
    Schema,
    find_shredded,
    fold,
    schema_from_parquet,
    schema_from_spark,
    shown_path,
)

SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""Key of Spark's schema JSON, with its tags, in a footer's metadata (``ParquetReadSupport.SPARK_METADATA_KEY``)."""


INT96_UNIT = "us"
"""The unit in which pyarrow reads INT96, as Spark does; in its own, nanoseconds, it overflows after 2262."""
_INSTANT = pa.timestamp(INT96_UNIT, "UTC")
_MARK = {"sparkcrypt.type": "variant"}
VARIANT = pa.struct([pa.field(name, pa.binary(), metadata=_MARK) for name in (VALUE, METADATA)])
"""A VARIANT as pyarrow reads it from files that have it whole; the marks distinguish it from other structs."""


def spark_json(schema: pa.Schema) -> str:
    """Return the names and nesting of an Arrow schema as Spark's schema JSON, in which every other leaf is a string."""
    return json.dumps(_struct(schema))


def _struct(fields: Any) -> dict[str, Any]:
    listed = [{"name": field.name, "type": _type(field.type), "nullable": True, "metadata": {}} for field in fields]
    return {"type": "struct", "fields": listed}


def _type(kind: pa.DataType) -> Any:
    if kind.equals(VARIANT, check_metadata=True):
        return "variant"
    if pa.types.is_struct(kind):
        return _struct(kind)
    if is_list(kind):
        return {"type": "array", "elementType": _type(kind.value_type), "containsNull": True}
    if pa.types.is_map(kind):
        pair = {"keyType": _type(kind.key_type), "valueType": _type(kind.item_type)}
        return {"type": "map", **pair, "valueContainsNull": True}
    return "string"


def make_nullable(field: pa.Field, variants: frozenset[Path] = frozenset(), path: Path = ()) -> pa.Field:
    """Return a nullable field with nullable children, since a file may lack it or this reader its key.

    Args:
        field: the field.
        variants: logical paths of VARIANTs, which get one type however files have them.
        path: the field's logical path; its name if it is a column.
    """
    return pa.field(field.name, _nullable_type(field.type, variants, path or (field.name,)), nullable=True)


def _nullable_type(kind: pa.DataType, variants: frozenset[Path], path: Path) -> pa.DataType:
    if path in variants:
        return VARIANT
    if pa.types.is_struct(kind):
        return pa.struct([make_nullable(field, variants, (*path, field.name)) for field in kind])
    if is_list(kind):
        return _list_of(kind, make_nullable(kind.value_field, variants, (*path, ELEMENT)))
    if pa.types.is_map(kind):
        key = _nullable_type(kind.key_type, variants, (*path, KEY))
        return pa.map_(key, make_nullable(kind.item_field, variants, (*path, VALUE)))
    return kind


def with_sparks_times(schema: pa.Schema, is_int96: Iterable[bool]) -> pa.Schema:
    """Return a schema whose INT96 are points in time, and whose milliseconds are microseconds, as Spark reads them.

    Args:
        schema: of a file, in which pyarrow takes INT96 for times without a zone.
        is_int96: for each of its leaves, whether it is INT96.
    """
    leaves = iter(is_int96)
    return pa.schema([_with_sparks_times(field, leaves) for field in schema], schema.metadata)


def _with_sparks_times(field: pa.Field, is_int96: Iterator[bool]) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_with_sparks_times(child, is_int96) for child in kind]))
    if pa.types.is_map(kind):
        key, item = (_with_sparks_times(child, is_int96) for child in (kind.key_field, kind.item_field))
        return field.with_type(pa.map_(key, item))
    if is_list(kind):
        return field.with_type(_list_of(kind, _with_sparks_times(kind.value_field, is_int96)))
    if next(is_int96):
        return field.with_type(_INSTANT)
    is_millis = pa.types.is_timestamp(kind) and kind.unit == "ms"
    return field.with_type(pa.timestamp("us", kind.tz)) if is_millis else field


def _list_of(kind: pa.DataType, value: pa.Field) -> pa.DataType:
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(value, kind.list_size)
    return (pa.large_list if pa.types.is_large_list(kind) else pa.list_)(value)


def is_list(kind: pa.DataType) -> bool:
    """Tell whether a type is any kind of list."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def leaves_of(kind: pa.DataType, above: Path) -> list[Path]:
    """Return the logical paths of the leaves below a column, those of an extension's storage too."""
    if isinstance(kind, pa.BaseExtensionType):
        return leaves_of(kind.storage_type, above)
    if pa.types.is_struct(kind):
        return [path for field in kind for path in leaves_of(field.type, (*above, field.name))]
    if is_list(kind) or str(kind).startswith(("list_view<", "large_list_view<")):
        return leaves_of(kind.value_type, (*above, ELEMENT))
    if pa.types.is_map(kind):
        return [*leaves_of(kind.key_type, (*above, KEY)), *leaves_of(kind.item_type, (*above, VALUE))]
    return [above]


def columns_of(footer: Footer, of_spark: str | None = None) -> Schema:
    """Return the columns of a file, by its annotations or as Spark's schema JSON says."""
    columns = schema_from_spark(of_spark) if of_spark else None
    return schema_from_parquet([] if footer.metadata is None else message_type(footer.metadata), columns)


def paths_in_file(columns: Schema) -> dict[Path, Path]:
    """Return logical path -> Parquet path of a file's leaves."""
    return {leaf.logical: leaf.parquet for leaf in columns.leaves()}


def refuse_shredded(path: str, columns: Schema, read: Iterable[Path]) -> None:
    """Refuse to read a VARIANT whose writer has spread it over typed columns: pyarrow would read the rest as null.

    Args:
        path: the file's path.
        columns: its columns.
        read: logical paths of the leaves that are read.

    Raises:
        PlanError: one of them is in such a VARIANT; the message names it.
    """
    for variant in sorted(find_shredded(columns)):
        if any(leaf[: len(variant)] == variant for leaf in read):
            raise PlanError(
                f"{path}: column {shown_path(variant)} is a VARIANT that is shredded in this file, which pyarrow "
                "cannot put together; name the other columns, or read the table with Spark"
            )


def check_names(path: str, in_file: Iterable[Path], columns: frozenset[Path]) -> None:
    """Refuse a file whose column differs from the table's only by case: pyarrow would read nulls, Spark its values.

    Args:
        path: the file's path.
        in_file: logical paths of its leaves.
        columns: logical paths of the table's leaves; empty if they are not known yet.

    Raises:
        PlanError: there is such a column; the message names it.
    """
    folded = {fold(column): column for column in columns}
    for logical in in_file:
        wanted = folded.get(fold(logical))
        if wanted is not None and logical not in columns:
            raise PlanError(
                f"{path}: column {shown_path(logical)} differs from the table's {shown_path(wanted)} by case alone, "
                "which Spark reads as one column and pyarrow as two; read this table with Spark, or give `schema` with "
                "the names of its files"
            )


def columns_in(expression: pc.Expression | None, schema: pa.Schema) -> tuple[str, ...]:
    """Return the top-level columns that an expression uses.

    pyarrow has no interface for this, so a column counts as used if the expression cannot be evaluated without it.

    Args:
        expression: the expression; None uses no column.
        schema: the columns that it may use.

    Raises:
        pyarrow.ArrowInvalid: it uses a column that the schema lacks, or cannot be evaluated.
    """
    if expression is None:
        return ()
    _evaluate(expression, schema)
    text = str(expression)
    if "FieldPath(" in text:  # a column is given by its position
        return tuple(schema.names)
    named = [name for name in schema.names if name in text]
    return tuple(name for name in named if not _can_do_without(expression, schema, name))


def _can_do_without(expression: pc.Expression, schema: pa.Schema, name: str) -> bool:
    try:
        _evaluate(expression, schema.remove(schema.get_field_index(name)))
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError):
        return False
    return True


def _evaluate(expression: pc.Expression, schema: pa.Schema) -> None:
    schema.empty_table().filter(expression)

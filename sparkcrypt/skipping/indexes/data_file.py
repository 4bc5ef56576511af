"""Opens a data file for indexing, and finds the file's column for a column of the table.

A column can be indexed only if Spark compares the values as they are stored: INT96, Parquet types without a Spark type,
unsigned numbers, collations, CHAR, field ids and nested columns are refused with the column's name.

Source: LogicalTypes.md of parquet-format; ``ParquetToSparkSchemaConverter`` of Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sparkcrypt.errors import ConfigError, FormatError
from sparkcrypt.files.parquet.file.footer import Footer, footer_of
from sparkcrypt.files.parquet.file.keys import FileCiphers, RetrieveKey
from sparkcrypt.files.parquet.file.magic import check_magic_and_unique
from sparkcrypt.files.parquet.file.schema import leaf_levels
from sparkcrypt.files.parquet.rewrite.source_chunk import SourceChunk, column_chunks
from sparkcrypt.files.parquet.thrift.compact import BOOL, STRUCT, Struct, field_key
from sparkcrypt.files.parquet.thrift.metadata import FileMetaData, SchemaElement
from sparkcrypt.files.source import Input, Source, naming, open_source
from sparkcrypt.names import SPARK_SCHEMA
from sparkcrypt.skipping.format.convert_values import BOOLEAN, BYTE_ARRAY, DOUBLE, FIXED, FLOAT, INT32, INT64, INT96

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
        footer = footer_of(file, ciphers, None, None)
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

"""The description of a store: its version, its table, its indexes with the labels of their keys, and the names in it.

It is in the metadata of the fields of the store's Spark schema, which the footer of each of its files contains.
Source: the specification of the Parquet metadata store, "Version 1", "Version 2" and "Version 4"; ``ParquetUtils`` and
``Identifier`` of Xskipper.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sparkcrypt.errors import FormatError, show
from sparkcrypt.files.parquet.thrift.metadata import FileMetaData
from sparkcrypt.names import SPARK_SCHEMA

OBJECT = "obj_name"
"""The field with the name of a row's object: its path, ``#``, and its modification time in milliseconds."""
PARTITION_PREFIX = "virtual_"
FIRST_VERSION, VERSION = 1, 4
"""The oldest version that is read; the newest version, which is also the one that is written."""
MINMAX, VALUES, BLOOM = "minmax", "valuelist", "bloomfilter"
"""The kinds of indexes that are used."""
FALSE_POSITIVES = "io.xskipper.index.bloom.fpp"
"""Parameter of an index: the share of false positives of a Bloom filter.  Upstream's name."""
MOST_VALUES = "io.sparkcrypt.index.values.most"
"""Parameter of an index: the number of distinct values of an object up to which its list is stored."""
COLUMN_TYPE = "io.sparkcrypt.index.column.type"
"""Parameter of an index: the Spark type of a Bloom filter's column, which the filter's bytes do not contain."""


def field_name(columns: Sequence[str], kind: str, version: int = VERSION) -> str:
    """Return the name of an index's field.

    From version 2 on, ``#`` in a column's name is written ``##`` and ``.`` is written ``$#$``, and the lengths of the
    escaped names follow the kind, in UTF-16 units as Java counts them.

    Args:
        columns: the columns of the index, in its order.
        kind: the name of the index's kind.
        version: the store's version, from 1 on.
    """
    if version < 2:
        return "_".join([*columns, kind])
    escaped = [column.replace("#", "##").replace(".", "$#$") for column in columns]
    lengths = "-".join(str(len(text.encode("utf-16-le", "surrogatepass")) // 2) for text in escaped)
    return "_".join([*escaped, kind, lengths])


def object_name(path: str, modified_ms: int) -> str:
    """Return the name of an object in a store.

    Args:
        path: a path or a URI as Hadoop prints it, not percent-encoded; scheme and bucket are removed.
        modified_ms: modification time in milliseconds since 1970.
    """
    return f"{table_identifier(path)}#{modified_ms}"


def table_identifier(location: str) -> str:
    """Return the path of a URI without scheme, authority and trailing slash."""
    scheme, colon, rest = location.partition(":")
    if colon and scheme.isascii() and scheme.replace("+", "").replace("-", "").replace(".", "").isalnum():
        location = rest
    if location.startswith("//"):
        location = "/" + location[2:].partition("/")[2]
    return location.removesuffix("/")


Params = tuple[tuple[str, str], ...]
MAX_TEXT = 16 * 1024 * 1024
"""Maximum length of the schema in characters; the schema of a thousand indexes is shorter than one million."""
_ATOMIC = frozenset(
    (
        *("boolean", "byte", "short", "integer", "long", "float", "double", "decimal"),
        *("string", "binary", "date", "timestamp", "timestamp_ntz"),
    )
)


@dataclass(frozen=True, slots=True)
class Index:
    """An index of a store.

    Attributes:
        field: the name of the store's field with its entries.
        kind: the name of its kind; only `MINMAX`, `VALUES` and `BLOOM` are used.
        columns: the table's columns that it indexes, as the store spells them (upstream: in lower case).
        type: the Spark type of the bounds or values, ``binary`` for Bloom filters; None if it is unknown.
        params: names and values of the parameters that it was made with, in the store's order.
        key: label of the key that encrypts its field, or None.
        unused: reason why it is not used, or None.
    """

    field: str
    kind: str
    columns: tuple[str, ...]
    type: str | None
    params: Params = ()
    key: str | None = None
    unused: str | None = None

    @property
    def column_type(self) -> str | None:
        """The Spark type of the column; None if the index does not contain it, like upstream's Bloom filters."""
        return dict(self.params).get(COLUMN_TYPE) if self.kind == BLOOM else self.type


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A partition column of the table, whose values the store contains from version 4 on."""

    field: str
    column: str
    type: str | None


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of keys that a store's writer recorded; Parquet itself does not use them."""

    footer_key: str
    column_keys: str
    footer_mode: Literal["encrypted", "plaintext"]


@dataclass(frozen=True, slots=True)
class Description:
    """The description of a store in one of its files."""

    version: int
    table: str | None
    indexes: tuple[Index, ...]
    partitions: tuple[PartitionColumn, ...]
    labels: Labels | None


def describe(metadata: FileMetaData) -> Description:
    """Return the description in the footer of a store's file.

    Raises:
        FormatError: it is not the footer of a store's file, or the version is not supported.
    """
    texts = [entry.value for entry in metadata.key_value_metadata or () if entry.key == SPARK_SCHEMA]
    if len(texts) != 1 or texts[0] is None:
        raise FormatError(
            f"has {len(texts)} entries {SPARK_SCHEMA!r} in its footer; expected one, as a store's files have"
        )
    return description_of(texts[0])


def description_of(text: str) -> Description:
    """Return the description in a store's Spark schema, given as JSON.

    Raises:
        FormatError: it is not the schema of a store, or the version is not supported.
    """
    fields = list(_fields(_parse_schema(text)))
    master = next((metadata for name, _, metadata in fields if name == OBJECT), None)
    if master is None:
        raise FormatError(f"its schema has no field {OBJECT!r}; expected one: it is no store of this specification")
    version = _version(master)
    names = [name for name, _, _ in fields]
    if len(set(names)) != len(names):
        raise FormatError("its schema has two fields of one name; expected each once")
    table = master.get("tableIdentifier")
    return Description(
        version,
        table if isinstance(table, str) else None,
        tuple(_index(*field) for field in fields if "index" in field[2]),
        tuple(
            PartitionColumn(name, name.removeprefix(PARTITION_PREFIX), _atomic(kind))
            for name, kind, metadata in fields
            if version >= VERSION and name.startswith(PARTITION_PREFIX) and "index" not in metadata
        ),
        _labels(master),
    )


def _parse_schema(text: str) -> Mapping[str, Any]:
    if len(text) > MAX_TEXT:
        raise FormatError(f"its schema has {len(text)} characters; expected at most {MAX_TEXT}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError("its schema is not the JSON that Spark writes; expected a struct") from error
    if not isinstance(document, dict) or not isinstance(document.get("fields"), list):
        raise FormatError(f"its schema is {show(document)}; expected a struct with fields")
    return document


def _fields(document: Mapping[str, Any]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    for field in document["fields"]:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str):
            raise FormatError(f"its schema has the field {show(field)}; expected a name, a type and metadata")
        metadata = field.get("metadata", {})
        if not isinstance(metadata, dict):
            raise FormatError(f"field {show(field['name'])} has the metadata {show(metadata)}; expected an object")
        yield field["name"], field.get("type"), metadata


def _version(master: Mapping[str, Any]) -> int:
    version = master.get("version", 0)
    if type(version) is not int or not FIRST_VERSION <= version <= VERSION:
        why = (
            "which keeps objects of classes in Java's serialisation that are not described; index the table again"
            if version == 0
            else "which is not known; use a newer sparkcrypt, or index the table again"
        )
        raise FormatError(f"is of version {show(version)}, {why}; expected {FIRST_VERSION} to {VERSION}")
    return version


def _labels(master: Mapping[str, Any]) -> Labels | None:
    block = master.get("encryption")
    if block is None:
        return None
    if not isinstance(block, dict):
        raise FormatError(f"field {OBJECT!r} has the encryption {show(block)}; expected an object")
    footer, columns = block.get("encryption.footer.key"), block.get("encryption.column.keys")
    if not isinstance(footer, str) or not isinstance(columns, str):
        raise FormatError(f"the encryption of {OBJECT!r} lacks a label; expected footer.key and column.keys as texts")
    return Labels(footer, columns, "plaintext" if block.get("encryption.plaintext.footer") == "true" else "encrypted")


def _index(name: str, kind: Any, metadata: Mapping[str, Any]) -> Index:
    block = metadata["index"]
    columns, called = (block.get("cols"), block.get("name")) if isinstance(block, dict) else (None, None)
    if (
        not isinstance(called, str)
        or not isinstance(columns, list)
        or not all(isinstance(column, str) for column in columns)
    ):
        raise FormatError(f"field {show(name)} has the index {show(block)}; expected name and cols")
    key = block.get("key_metadata")
    if key is not None and not isinstance(key, str):
        raise FormatError(f"field {show(name)} has the key_metadata {show(key)}; expected a label")
    held = _find_held_type(called, kind)
    return Index(
        name,
        called,
        tuple(columns),
        held,
        _params(block.get("params"), name),
        key,
        _explain_unused(called, columns, held),
    )


def _params(params: Any, name: str) -> Params:
    """Return an index's parameters, written as strings ``name:value`` up to version 2, as an object from version 3."""
    if params is None:
        return ()
    if isinstance(params, dict) and all(isinstance(value, str) for value in params.values()):
        return tuple(params.items())
    if isinstance(params, list) and all(isinstance(param, str) for param in params):
        return tuple(
            (text[: text.rfind(":")], text[text.rfind(":") + 1 :]) if ":" in text else (text, "") for text in params
        )
    raise FormatError(f"field {show(name)} has the params {show(params)}; expected texts, or an object of texts")


def _find_held_type(called: str, kind: Any) -> str | None:
    if called == BLOOM:
        binary = kind == "binary" or (isinstance(kind, dict) and kind.get("sqlType") == "binary")
        return "binary" if binary else None
    if called == VALUES and isinstance(kind, dict) and kind.get("type") == "array":
        return _atomic(kind.get("elementType"))
    if called == MINMAX and isinstance(kind, dict) and isinstance(kind.get("fields"), list):
        bounds = {
            entry.get("name"): entry.get("type")
            for entry in kind["fields"]
            if isinstance(entry, dict) and isinstance(entry.get("name"), str)
        }
        if set(bounds) == {"min", "max"} and bounds["min"] == bounds["max"]:
            return _atomic(bounds["min"])
    return None


def _atomic(kind: Any) -> str | None:
    """Return a type's name if its values can be compared, else None, as for a string with a collation."""
    return kind if isinstance(kind, str) and kind.partition("(")[0] in _ATOMIC else None


def _explain_unused(called: str, columns: list[str], held: str | None) -> str | None:
    if called not in (MINMAX, VALUES, BLOOM):
        return f"indexes of kind {show(called)} are not known"
    if len(columns) != 1:
        return f"it is over {len(columns)} columns"
    return None if held is not None else "its type is not one that is compared"

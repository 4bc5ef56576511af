"""Files of a schema as new and old writers make them: their lists and maps have other groups, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkcrypt.files.parquet.thrift.compact import BINARY, STRUCT, List, Struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnMetaData, ConvertedType, FileMetaData, SchemaElement
from tests.unit.parquet.rewriting import clear_metadata, column_chunks, patch_footer

Choose = Callable[[Sequence[str]], str]
"""Returns one of several forms."""
_REQUIRED, _REPEATED, _BYTES, _UTF8 = 0, 2, 6, 0
LISTS = ("new", "Hive", "Spark legacy", "Avro", "Thrift", "of several fields")
REPEATED = "repeated"
"""The form of Protocol Buffers: no group is around what repeats."""
MAPS = ("new", "old", "annotated by its inside")


def canary(leaf: int) -> str:
    """Return the value of a leaf, which is in no other."""
    return f"value of leaf {leaf:03}, for all to see"


def texts(document: Any) -> Any:
    """Return a Spark type with texts for all its leaves."""
    if isinstance(document, str):
        return "string"
    if document["type"] == "array":
        return {**document, "elementType": texts(document["elementType"])}
    if document["type"] == "map":
        return {**document, "keyType": "string", "valueType": texts(document["valueType"])}
    return {**document, "fields": [{**field, "type": texts(field["type"])} for field in document["fields"]]}


def tags_of_leaves(kind: Any, tag: str | None = None) -> list[str | None]:
    """Return the tag of each leaf, in the order of the schema: its own, or that of the nearest field around it."""
    if isinstance(kind, str):
        return [tag]
    if kind["type"] == "array":
        return tags_of_leaves(kind["elementType"], tag)
    if kind["type"] == "map":
        return [tag, *tags_of_leaves(kind["valueType"], tag)]
    own = [(field["type"], *field["metadata"].get("tags", ())) for field in kind["fields"]]
    return [found for inner, *tags in own for found in tags_of_leaves(inner, tags[0] if tags else tag)]


def write_as(path: Path, document: dict[str, Any], choose: Choose) -> Path:
    """Write a row of canaries in the forms that are chosen; the levels of all forms are the same.

    Args:
        path: the new file.
        document: Spark's schema, of texts.
        choose: returns the form of the next list or map, or of the case of the next name.
    """
    schema = pa.schema(list(_arrow_type(document)))
    numbers = iter(range(1000))
    pq.write_table(
        pa.Table.from_pylist([_value(document, numbers)], schema),
        path,
        compression="none",
        use_dictionary=False,
        store_schema=False,
    )
    elements, paths = _fields(document, (), choose)
    root = _element("schema", _REQUIRED, len(document["fields"]))

    def change(footer: Struct) -> None:
        footer[FileMetaData.schema.key] = List(STRUCT, [root, *elements])
        for chunk, names in zip(column_chunks(footer), paths, strict=True):
            encoded = List(BINARY, [name.encode() for name in names])
            clear_metadata(chunk).struct[ColumnMetaData.path_in_schema.key] = encoded

    return patch_footer(path, change)


def _arrow_type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        return pa.string()
    if kind["type"] == "array":
        return pa.list_(pa.field("element", _arrow_type(kind["elementType"]), nullable=False))
    if kind["type"] == "map":
        return pa.map_(pa.string(), pa.field("value", _arrow_type(kind["valueType"]), nullable=False))
    return pa.struct([pa.field(field["name"], _arrow_type(field["type"]), nullable=False) for field in kind["fields"]])


def _value(kind: Any, numbers: Iterator[int]) -> Any:
    if isinstance(kind, str):
        return canary(next(numbers))
    if kind["type"] == "array":
        return [_value(kind["elementType"], numbers)]
    if kind["type"] == "map":
        return [(canary(next(numbers)), _value(kind["valueType"], numbers))]
    return {field["name"]: _value(field["type"], numbers) for field in kind["fields"]}


Made = tuple[list[Struct], list[tuple[str, ...]]]
"""Elements of a schema, and the paths of the leaves among them."""


def _element(name: str, repetition: int, children: int = 0, converted: int | None = None) -> Struct:
    made = Struct({SchemaElement.repetition_type.key: repetition, SchemaElement.name.key: name.encode()})
    made[SchemaElement.num_children.key if children else SchemaElement.type.key] = children or _BYTES
    converted = converted if children else _UTF8
    if converted is not None:
        made[SchemaElement.converted_type.key] = converted
    return made


def _fields(struct: Any, above: tuple[str, ...], choose: Choose) -> Made:
    elements: list[Struct] = []
    paths: list[tuple[str, ...]] = []
    for field in struct["fields"]:
        kind, name = field["type"], field["name"]
        name = name.upper() if choose(("as in the table", "upper case")) == "upper case" else name
        repeats = not isinstance(kind, str) and kind["type"] == "array" and choose(("annotated", REPEATED)) == REPEATED
        inner = kind["elementType"] if repeats else kind
        made = _field(name, inner, above, choose, _REPEATED if repeats else _REQUIRED)
        elements += made[0]
        paths += made[1]
    return elements, paths


def _field(name: str, kind: Any, above: tuple[str, ...], choose: Choose, repetition: int = _REQUIRED) -> Made:
    path = (*above, name)
    if isinstance(kind, str):
        return [_element(name, repetition)], [path]
    if kind["type"] == "struct":
        elements, paths = _fields(kind, path, choose)
        return [_element(name, repetition, len(kind["fields"])), *elements], paths
    if kind["type"] == "array":
        elements, paths = _repeated_element(path, kind["elementType"], choose)
        return [_element(name, repetition, 1, ConvertedType.LIST), *elements], paths
    form = choose(MAPS)
    outer, inner = (ConvertedType.MAP_KEY_VALUE, None) if form == MAPS[2] else (ConvertedType.MAP, None)
    group, names = ("key_value", ("key", "value")) if form == "new" else ("map", ("k", "v"))
    inner = ConvertedType.MAP_KEY_VALUE if form == "old" else None
    key, value = (
        _field(part, of, (*path, group), choose) for part, of in zip(names, ("string", kind["valueType"]), strict=True)
    )
    elements = [_element(name, repetition, 1, outer), _element(group, _REPEATED, 2, inner), *key[0], *value[0]]
    return elements, [*key[1], *value[1]]


def _repeated_element(path: tuple[str, ...], kind: Any, choose: Choose) -> Made:
    """Return what is in the annotated group of a list."""
    form = choose(LISTS)
    fields = kind["fields"] if not isinstance(kind, str) and kind["type"] == "struct" else []
    if form == "Avro" or (form == "Thrift" and not fields) or (form == "of several fields" and len(fields) < 2):
        return _field("array", kind, path, choose, _REPEATED)
    if form == "Thrift":
        return _field(f"{path[-1]}_tuple", kind, path, choose, _REPEATED)
    if form == "of several fields":
        return _field("element", kind, path, choose, _REPEATED)
    names = {"new": ("list", "element"), "Hive": ("bag", "array_element"), "Spark legacy": ("bag", "array")}
    group, name = names[form]
    elements, paths = _field(name, kind, (*path, group), choose)
    return [_element(group, _REPEATED, 1), *elements], paths

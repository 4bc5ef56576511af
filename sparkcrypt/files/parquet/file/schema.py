"""Decodes a footer's schema into the nested fields that the planner and the bridge use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet.thrift.metadata import ConvertedType, FileMetaData, SchemaElement

Annotation = Literal["LIST", "MAP", "MAP_KEY_VALUE", "VARIANT"]
Path = tuple[str, ...]

MAX_DEPTH = 256
NAME_SIZE = 8
"""What a name in a path counts in addition to its characters, since a path holds a reference to it."""
PATHS_SIZE = 8_000_000
"""The most that all leaf paths of a file may have together, in characters plus `NAME_SIZE` for each name; the file's
size in bytes if that is more.  Every column chunk contains its leaf's path, so only a forged file has longer ones."""
_REPETITIONS = ("required", "optional", "repeated")
_ALL_CONVERTED = range(22)
_CONVERTED: dict[int, Annotation] = {
    ConvertedType.MAP: "MAP",
    ConvertedType.MAP_KEY_VALUE: "MAP_KEY_VALUE",
    ConvertedType.LIST: "LIST",
}


class Field(TypedDict):
    """A node of the schema tree as JSON values; ``annotation`` is set for groups that are a list, map or VARIANT."""

    name: str
    kind: Literal["leaf", "group"]
    annotation: Annotation | None
    repetition: str
    children: list[Field]


@dataclass(slots=True)
class _Group:
    """A group whose children are still being read."""

    path: Path
    size: int
    missing: int
    children: list[Field] = field(default_factory=list)


def message_type(metadata: FileMetaData) -> list[Field]:
    """Return the fields below the root, nested.

    Raises:
        FormatError: the list of schema elements is no tree, or nests deeper than 256 levels.
    """
    root: list[Field] = []
    for parent, _, node in _walk(metadata, root):
        parent.append(node)
    return root


def leaf_paths(metadata: FileMetaData, *, max_size: int | None = None) -> tuple[Path, ...]:
    """Return the paths of the leaf columns in schema order, which is the order of the column chunks.

    Args:
        metadata: the footer.
        max_size: the most that `paths_size` may be; None for a footer from `read_footer`, which has checked it.

    Raises:
        FormatError: as `message_type`, or the paths are longer than ``max_size``.
    """
    return tuple([path for _, path, node in _walk(metadata, [], max_size) if node["kind"] == "leaf"])


def paths_size(paths: tuple[Path, ...]) -> int:
    """Return the size of paths: their characters, and `NAME_SIZE` for each name."""
    return sum(len(name) + NAME_SIZE for path in paths for name in path)


@dataclass(frozen=True, slots=True)
class LeafLevels:
    """The greatest definition and repetition levels of a leaf column; ``repetition`` 0 means one value for each row."""

    definition: int
    repetition: int


def leaf_levels(metadata: FileMetaData) -> tuple[LeafLevels, ...]:
    """Return the levels of the leaf columns, in the order of `leaf_paths`.

    Raises:
        FormatError: as `message_type`.
    """
    return tuple(_levels(message_type(metadata), 0, 0))


def leaf_types(metadata: FileMetaData) -> tuple[int, ...]:
    """Return the physical types of the leaf columns, in the order of `leaf_paths`."""
    return tuple(element.type for element in metadata.schema[1:] if element.type is not None)


def _levels(fields: list[Field], definition: int, repetition: int) -> Iterator[LeafLevels]:
    for entry in fields:
        inner = LeafLevels(
            definition + (entry["repetition"] != "required"), repetition + (entry["repetition"] == "repeated")
        )
        if entry["kind"] == "leaf":
            yield inner
        else:
            yield from _levels(entry["children"], inner.definition, inner.repetition)


def _walk(
    metadata: FileMetaData, root: list[Field], max_size: int | None = None
) -> Iterator[tuple[list[Field], Path, Field]]:
    """Yield each node below the root, depth first, as (its parent's list of children, its path, the node)."""
    elements = metadata.schema
    if not elements:
        raise FormatError("the footer has no schema element; expected a root")
    groups, sizes = [_Group((), 0, _child_count(elements[0]), root)], 0
    for element in elements[1:]:
        while groups and not groups[-1].missing:
            groups.pop()
        if not groups:
            raise FormatError(
                f"schema element {element.name!r} belongs to no group; expected as many as the groups announce"
            )
        parent = groups[-1]
        parent.missing -= 1
        node = _field(element)
        size = parent.size + len(node["name"]) + NAME_SIZE
        sizes += size if node["kind"] == "leaf" else 0
        if max_size is not None and sizes > max_size:
            raise FormatError(f"the paths of the leaf columns have more than {max_size} characters; expected no more")
        path = (*parent.path, node["name"])
        yield parent.children, path, node
        if node["kind"] == "group":
            if len(groups) >= MAX_DEPTH:
                raise FormatError(
                    f"schema element {element.name!r} nests too deep; expected at most {MAX_DEPTH} levels"
                )
            groups.append(_Group(path, size, _child_count(element), node["children"]))
    if missing := sum(group.missing for group in groups):
        raise FormatError(f"{missing} schema elements are missing; expected as many as the groups announce")


def _field(element: SchemaElement) -> Field:
    repetition = element.repetition_type
    if repetition is None or not 0 <= repetition < len(_REPETITIONS):
        raise FormatError(
            f"schema element {element.name!r} has repetition {repetition}; expected 0 to {len(_REPETITIONS) - 1}"
        )
    leaf = element.type is not None
    return {
        "name": element.name,
        "kind": "leaf" if leaf else "group",
        "annotation": None if leaf else _annotation(element),
        "repetition": _REPETITIONS[repetition],
        "children": [],
    }


def _annotation(element: SchemaElement) -> Annotation | None:
    converted, logical = element.converted_type, element.logical_type
    # Where the two differ, parquet-mr, and so Spark, believes the old one.
    if converted is not None and converted in _ALL_CONVERTED:
        return _CONVERTED.get(converted)
    if logical is None:
        return None
    if logical.variant is not None:
        return "VARIANT"
    return "LIST" if logical.list is not None else "MAP" if logical.map is not None else None


def _child_count(group: SchemaElement) -> int:
    count = group.num_children
    if count is None or count < 0:
        raise FormatError(f"schema group {group.name!r} announces {count} children; expected a count")
    return count

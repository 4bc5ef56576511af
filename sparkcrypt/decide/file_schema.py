"""Rebuilding of a file's nested schema from its columns' paths, guided by the schema that is read.

Annotations are not available here, and a list's groups may have any names, so a forged file could hide a column from
its tag by other names.  If the reader's schema has a list or map, the file's group is one, whatever its names; other
columns are not read, and the names that writers use decide (LogicalTypes.md, "Nested Types").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from sparkcrypt.errors import PlanError
from sparkcrypt.schema import MAX_DEPTH, Node, Path, Schema, check_depth, schema_from_parquet

_Tree: TypeAlias = "dict[str, _Tree]"
_Field: TypeAlias = "dict[str, Any]"


def schema_of_columns(paths: Iterable[Sequence[str]], requested: Schema | None) -> Schema:
    """Return the schema of a file.

    Args:
        paths: the paths of its leaf columns.
        requested: the columns that are read, if they are known.

    Raises:
        PlanError: a column is nested too deeply, or is not the list or map that is read.
    """
    tree: _Tree = {}
    for path in paths:
        check_depth(tuple(path), 2 * MAX_DEPTH)
        below = tree
        for name in path:
            below = below.setdefault(name, {})
    guides = requested.fields if requested is not None else ()
    return schema_from_parquet([_field((name,), below, _guide(guides, name)) for name, below in tree.items()])


def _guide(nodes: Iterable[Node], name: str) -> Node | None:
    found = [node for node in nodes if node.name.lower() == name.lower()]
    exact = [node for node in found if node.name == name]
    return exact[0] if exact else found[0] if len(found) == 1 else None


def _field(path: Path, below: _Tree, guide: Node | None) -> _Field:
    if not below:
        return _make_field(path, "leaf", [])
    kind = guide.kind if guide is not None else _kind_by_names(path[-1], below)
    if kind == "list":
        return _make_field(path, "group", [_repeated_element(path, below, guide)], annotation="LIST")
    if kind == "map":
        return _make_field(path, "group", [_repeated_pair(path, below, guide)], annotation="MAP")
    nodes = guide.children if guide is not None else ()
    return _make_field(
        path, "group", [_field((*path, name), inside, _guide(nodes, name)) for name, inside in below.items()]
    )


def _repeated_element(path: Path, below: _Tree, guide: Node | None) -> _Field:
    name, inside = _get_only_child(path, below, "list")
    element = guide.children[0] if guide is not None else None
    if len(inside) != 1 or name in ("array", f"{path[-1]}_tuple"):
        return _field((*path, name), inside, element) | {"repetition": "repeated"}
    (inner, rest), *_ = inside.items()
    return _make_field((*path, name), "group", [_field((*path, name, inner), rest, element)]) | {
        "repetition": "repeated"
    }


def _repeated_pair(path: Path, below: _Tree, guide: Node | None) -> _Field:
    name, inside = _get_only_child(path, below, "map")
    nodes = guide.children if guide is not None else (None, None)
    if len(inside) != len(nodes):
        raise _not_as_read(path, "map")
    pair = zip(inside.items(), nodes, strict=True)
    children = [_field((*path, name, inner), rest, node) for (inner, rest), node in pair]
    return _make_field((*path, name), "group", children) | {"repetition": "repeated"}


def _get_only_child(path: Path, below: _Tree, kind: str) -> tuple[str, _Tree]:
    if len(below) != 1:
        raise _not_as_read(path, kind)
    return next(iter(below.items()))


def _not_as_read(path: Path, kind: str) -> PlanError:
    return PlanError(f"column {'.'.join(path)} is read as a {kind}, but the file's columns below it are not a {kind}'s")


def _kind_by_names(name: str, below: Mapping[str, _Tree]) -> str:
    """Return the kind of a group by the only group in it.

    A user's struct that looks like a list is treated as one; its columns keep their Parquet paths, and tags find them.
    """
    if len(below) != 1:
        return "struct"
    (inner, inside), *_ = below.items()
    if inner in ("array", f"{name}_tuple") or (inner in ("list", "bag") and len(inside) == 1):
        return "list"
    return "map" if inner in ("key_value", "map") and len(inside) == len(("key", "value")) else "struct"


def _make_field(path: Path, kind: str, children: list[_Field], annotation: str | None = None) -> _Field:
    return {
        "name": path[-1],
        "kind": kind,
        "annotation": annotation,
        "repetition": "optional",
        "children": children,
    }

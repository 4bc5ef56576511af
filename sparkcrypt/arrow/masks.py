"""Removes denied leaves from the type of a column to read, and restores the full type with nulls afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from sparkcrypt.arrow.shape import is_list
from sparkcrypt.schema import ELEMENT, KEY, VALUE, Path

Denied: TypeAlias = "dict[str, Denied] | None"
"""Logical name -> denied leaves below that node; None: the leaf itself is denied; empty: nothing is denied."""


def group_denied(paths: Iterable[Path]) -> dict[str, Denied]:
    """Return column -> its denied leaves.

    Args:
        paths: logical paths of denied leaves.
    """
    found: dict[str, Any] = {}
    for path in paths:
        below = found
        for name in path[:-1]:
            below = below.setdefault(name, {})
        below[path[-1]] = None
    return found


def kept_type(kind: pa.DataType, denied: Denied) -> pa.DataType | None:
    """Return a type without its denied leaves; None if the whole value is null.

    It is null if no readable leaf is left, and for a map without its keys or values or a fixed-size list with a denied
    leaf.
    """
    if denied is None:
        return None
    if not denied:
        return kind
    if pa.types.is_struct(kind):
        kept = [(field, kept_type(field.type, denied.get(field.name, {}))) for field in kind]
        fields = [field.with_type(kept_child) for field, kept_child in kept if kept_child is not None]
        return pa.struct(fields) if fields else None
    if pa.types.is_fixed_size_list(kind):
        return None
    if is_list(kind):
        kept_child = kept_type(kind.value_type, denied.get(ELEMENT, {}))
        make = pa.large_list if pa.types.is_large_list(kind) else pa.list_
        return None if kept_child is None else make(kind.value_field.with_type(kept_child))
    if pa.types.is_map(kind):
        kept_child = None if KEY in denied else kept_type(kind.item_type, denied.get(VALUE, {}))
        return None if kept_child is None else pa.map_(kind.key_type, kind.item_field.with_type(kept_child))
    return kind


def restore(array: pa.Array, kind: pa.DataType, denied: Denied) -> pa.Array:
    """Return an array of ``kept_type(kind, denied)`` as an array of the full type, with nulls for the denied leaves."""
    if array.type == kind:
        return array
    below: dict[str, Denied] = denied or {}
    if pa.types.is_struct(kind):
        found = {field.name: place for place, field in enumerate(array.type)}
        children = [
            restore(array.field(found[field.name]), field.type, below.get(field.name, {}))
            if field.name in found
            else pa.nulls(len(array), field.type)
            for field in kind
        ]
        return with_children(array, kind, children)
    if pa.types.is_map(kind):
        items = restore(array.items, kind.item_type, below.get(VALUE, {}))
        return with_children(array, kind, [array.keys, items])
    return with_children(array, kind, [restore(array.values, kind.value_type, below.get(ELEMENT, {}))])


def with_children(array: pa.Array, kind: pa.DataType, children: Sequence[pa.Array]) -> pa.Array:
    """Return a struct, list or map with other fields, elements, or keys and items, of the types that ``kind`` has."""
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pa.types.is_map(kind):
        fields = [kind.key_field.with_nullable(False), kind.item_field]
        children = [pa.StructArray.from_arrays(children, fields=fields)]
    buffers = array.buffers()[:2]  # the list's own buffers: validity and offsets
    return pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset, children=children)

"""Message types of Parquet, in the form of every writer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def leaf(name: str, repetition: str = "optional") -> dict[str, Any]:
    """Return a leaf field."""
    return {"name": name, "kind": "leaf", "annotation": None, "repetition": repetition, "children": []}


def group(
    name: str, *children: dict[str, Any], annotation: str | None = None, repetition: str = "optional"
) -> dict[str, Any]:
    """Return a group field."""
    return {
        "name": name,
        "kind": "group",
        "annotation": annotation,
        "repetition": repetition,
        "children": list(children),
    }


def repeated(name: str, *children: dict[str, Any], annotation: str | None = None) -> dict[str, Any]:
    """Return a repeated group."""
    return group(name, *children, annotation=annotation, repetition="repeated")


FORMS = {
    "three levels": (
        group("a", repeated("list", leaf("element")), annotation="LIST"),
        [("a.element", "a.list.element")],
    ),
    "three levels of Arrow": (
        group("a", repeated("list", leaf("item")), annotation="LIST"),
        [("a.element", "a.list.item")],
    ),
    "two levels": (
        group("a", leaf("array", "repeated"), annotation="LIST"),
        [("a.element", "a.array")],
    ),
    "two levels of structs, several fields": (
        group("a", repeated("element", leaf("x"), leaf("y")), annotation="LIST"),
        [("a.element.x", "a.element.x"), ("a.element.y", "a.element.y")],
    ),
    "two levels of structs named array": (
        group("a", repeated("array", leaf("x")), annotation="LIST"),
        [("a.element.x", "a.array.x")],
    ),
    "two levels of structs named tuple": (
        group("a", repeated("a_tuple", leaf("x")), annotation="LIST"),
        [("a.element.x", "a.a_tuple.x")],
    ),
    "two levels of structs with a repeated field": (
        group("a", repeated("list", leaf("x", "repeated")), annotation="LIST"),
        [("a.element.x.element", "a.list.x")],
    ),
    "two levels of lists": (
        group("a", repeated("array", leaf("array", "repeated"), annotation="LIST"), annotation="LIST"),
        [("a.element.element", "a.array.array")],
    ),
    "Hive": (
        group("a", repeated("bag", leaf("array_element")), annotation="LIST"),
        [("a.element", "a.bag.array_element")],
    ),
    "Spark legacy with nulls": (
        group("a", repeated("bag", group("array", leaf("x"))), annotation="LIST"),
        [("a.element.x", "a.bag.array.x")],
    ),
    "map": (
        group("m", repeated("key_value", leaf("key", "required"), leaf("value")), annotation="MAP"),
        [("m.key", "m.key_value.key"), ("m.value", "m.key_value.value")],
    ),
    "old map": (
        group("m", repeated("map", leaf("k", "required"), leaf("v"), annotation="MAP_KEY_VALUE"), annotation="MAP"),
        [("m.key", "m.map.k"), ("m.value", "m.map.v")],
    ),
    "map annotated by its inside": (
        group("m", repeated("map", leaf("key", "required"), leaf("value")), annotation="MAP_KEY_VALUE"),
        [("m.key", "m.map.key"), ("m.value", "m.map.value")],
    ),
    "map of lists": (
        group(
            "m",
            repeated("key_value", leaf("key"), group("value", repeated("list", leaf("element")), annotation="LIST")),
            annotation="MAP",
        ),
        [("m.key", "m.key_value.key"), ("m.value.element", "m.key_value.value.list.element")],
    ),
    "struct that looks like a list": (
        group("s", group("list", leaf("element"))),
        [("s.list.element", "s.list.element")],
    ),
    "struct that looks like a map": (
        group("s", group("key_value", leaf("key"), leaf("value"))),
        [("s.key_value.key", "s.key_value.key"), ("s.key_value.value", "s.key_value.value")],
    ),
    "annotation on a group that is no list": (
        group("s", group("list", leaf("element")), annotation="LIST"),
        [("s.list.element", "s.list.element")],
    ),
    "annotation on a group that is no map": (
        group("s", repeated("key_value", leaf("key")), annotation="MAP"),
        [("s.key_value.element.key", "s.key_value.key")],
    ),
    "repeated without annotation": (repeated("r", leaf("x")), [("r.element.x", "r.x")]),
    "repeated leaf": (leaf("r", "repeated"), [("r.element", "r")]),
    "repeated leaf in a repeated group": (
        repeated("r", leaf("x", "repeated"), leaf("y")),
        [("r.element.x.element", "r.x"), ("r.element.y", "r.y")],
    ),
    "repeated list": (
        repeated("r", repeated("list", leaf("element")), annotation="LIST"),
        [("r.element.element", "r.list.element")],
    ),
    "hard names": (group("a.b", leaf("c,d")), [("a%2Eb.c,d", "a%2Eb.c,d")]),
}


def message_type(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what Spark's standard format makes of a schema."""
    return [_field(field["name"], field["type"]) for field in document["fields"]]


def _field(name: str, kind: Any) -> dict[str, Any]:
    if isinstance(kind, str):
        return leaf(name)
    if kind["type"] == "array":
        return group(name, repeated("list", _field("element", kind["elementType"])), annotation="LIST")
    if kind["type"] == "map":
        pair = (_field("key", kind["keyType"]), _field("value", kind["valueType"]))
        return group(name, repeated("key_value", *pair), annotation="MAP")
    return group(name, *message_type(kind))


def fields_of(paths: Iterable[Sequence[str]]) -> list[dict[str, Any]]:
    """Return the message type of these leaves, in which groups with names of lists and maps are such."""
    tree: dict[str, Any] = {}
    for path in paths:
        below = tree
        for name in path:
            below = below.setdefault(name, {})
    return [_field_of(name, below) for name, below in tree.items()]


def _field_of(name: str, below: Mapping[str, Any]) -> dict[str, Any]:
    if not below:
        return leaf(name)
    annotation = _annotation(name, below)
    if annotation is None:
        return group(name, *(_field_of(inner, rest) for inner, rest in below.items()))
    ((inner, inside),) = below.items()
    inner_fields = [_field_of(name, rest) for name, rest in inside.items()]
    return group(name, repeated(inner, *inner_fields) if inside else leaf(inner, "repeated"), annotation=annotation)


def _annotation(name: str, below: Mapping[str, Any]) -> str | None:
    if len(below) != 1:
        return None
    ((inner, inside),) = below.items()
    if inner in ("array", f"{name}_tuple") or (inner in ("list", "bag") and len(inside) == 1):
        return "LIST"
    return "MAP" if inner in ("key_value", "map") and len(inside) == len(("key", "value")) else None

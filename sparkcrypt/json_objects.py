"""Dataclasses as JSON objects and back, by the names and types of their fields."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

J = TypeVar("J", bound="JsonObject")


class JsonObject:
    """A dataclass that is a JSON object with a member for each field, in the order of the fields.

    Tuples become arrays, sets sorted arrays, bytes base64, and mappings from paths of columns arrays of pairs.
    The class argument ``json_names`` has the members that are not named as their fields, and None for fields that are
    no members.
    """

    __slots__ = ()
    _json_names: ClassVar[Mapping[str, str | None]] = {}

    def __init_subclass__(cls, json_names: Mapping[str, str | None] | None = None, **named: Any) -> None:
        """Take the members' names; a dataclass with slots is made twice, the second time without them."""
        super().__init_subclass__(**named)
        if json_names is not None:
            cls._json_names = json_names

    def to_dict(self) -> dict[str, Any]:
        """Return the object as JSON values."""
        members = _members(type(self))  # type: ignore[arg-type]  # classes are hashable
        return {name: _encode(getattr(self, field), kind) for field, name, kind in members}

    @classmethod
    def from_dict(cls: type[J], values: Mapping[str, Any]) -> J:
        """Return the object that `to_dict` gave.

        Raises:
            KeyError: a member is missing.
        """
        members = _members(cls)  # type: ignore[arg-type]  # classes are hashable
        return cls(**{field: _decode(values[name], kind) for field, name, kind in members})


@cache
def _members(kind: type[Any]) -> tuple[tuple[str, str, Any], ...]:
    """Return the name of each field, its member's, and its type, without None."""
    hints = get_type_hints(kind)
    named = [(field.name, kind._json_names.get(field.name, field.name)) for field in fields(kind)]
    return tuple((field, name, _strip_none(hints[field])) for field, name in named if name is not None)


def _strip_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    (first, *_) = [choice for choice in get_args(kind) if choice is not type(None)]
    return first


def _encode(value: Any, kind: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        of_keys, of_values = get_args(kind) or (Any, Any)
        pairs = [(key, _encode(item, of_values)) for key, item in value.items()]
        return [[list(key), item] for key, item in pairs] if get_origin(of_keys) is tuple else dict(pairs)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, tuple | list):
        of_items = (*get_args(kind), Any)[0]
        return [_encode(item, of_items) for item in value]
    return value


def _decode(value: Any, kind: Any) -> Any:
    kind = _strip_none(kind)
    arguments = get_args(kind)
    if value is None:
        return None
    if kind is bytes:
        return base64.b64decode(value)
    if isinstance(kind, type) and issubclass(kind, JsonObject):
        return kind.from_dict(value)
    if get_origin(kind) is tuple:
        return tuple(_decode(item, arguments[0]) for item in value)
    if get_origin(kind) is Mapping:
        pairs = value if get_origin(arguments[0]) is tuple else value.items()
        return {_decode(key, arguments[0]): _decode(item, arguments[1]) for key, item in pairs}
    return value

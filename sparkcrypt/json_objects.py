"""Dataclasses as JSON objects and back, by the names and types of their fields."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import Any, ClassVar, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

J = TypeVar("J", bound="JsonObject")
Convert: TypeAlias = Callable[[Any], Any]


class JsonObject:
    """A dataclass that is a JSON object with a member for each field, in the order of the fields.

    Tuples become arrays, sets sorted arrays, bytes base64, and mappings from paths of columns arrays of pairs.  Values
    of classes with ``to_json`` and ``from_json`` become what these return.
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
        return {name: encode(getattr(self, field)) for field, name, encode, _ in members}

    @classmethod
    def from_dict(cls: type[J], values: Mapping[str, Any]) -> J:
        """Return the object that `to_dict` gave.

        Raises:
            KeyError: a member is missing.
        """
        members = _members(cls)  # type: ignore[arg-type]  # classes are hashable
        return cls(**{field: decode(values[name]) for field, name, _, decode in members})


@cache
def _members(kind: type[Any]) -> tuple[tuple[str, str, Convert, Convert], ...]:
    """Return the name of each field, its member's name, and what converts its value to JSON and back."""
    hints = get_type_hints(kind)
    names = [(field.name, kind._json_names.get(field.name, field.name)) for field in fields(kind)]
    return tuple(
        (field, name, _make_encoder(hints[field]), _make_decoder(hints[field]))
        for field, name in names
        if name is not None
    )


def _make_encoder(kind: Any) -> Convert:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _allow_none(_make_encoder(_strip_none(kind)))
    if kind is bytes:
        return lambda value: base64.b64encode(value).decode()
    if hasattr(kind, "to_json"):
        return lambda value: value.to_json()
    if hasattr(kind, "to_dict"):
        return lambda value: value.to_dict()
    if origin in (tuple, list, Sequence):
        item = _make_encoder(arguments[0])
        return list if item is _keep else lambda value: [item(part) for part in value]
    if origin in (set, frozenset):
        return sorted
    if origin not in (dict, Mapping):
        return _keep
    item = _make_encoder(arguments[1])
    if get_origin(arguments[0]) is tuple:
        return lambda value: [[list(key), item(part)] for key, part in value.items()]
    return dict if item is _keep else lambda value: {key: item(part) for key, part in value.items()}


def _make_decoder(kind: Any) -> Convert:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _allow_none(_make_decoder(_strip_none(kind)))
    if kind is bytes:
        return base64.b64decode
    if hasattr(kind, "from_json"):
        return kind.from_json  # type: ignore[no-any-return]  # it takes JSON values
    if hasattr(kind, "from_dict"):
        return kind.from_dict  # type: ignore[no-any-return]  # it takes JSON values
    if origin is tuple:
        item = _make_decoder(arguments[0])
        return tuple if item is _keep else lambda value: tuple(item(part) for part in value)
    if origin is not Mapping:
        return _keep
    item = _make_decoder(arguments[1])
    if get_origin(arguments[0]) is tuple:
        return lambda value: {tuple(key): item(part) for key, part in value}
    return dict if item is _keep else lambda value: {key: item(part) for key, part in value.items()}


def _strip_none(kind: Any) -> Any:
    choices = [choice for choice in get_args(kind) if choice is not type(None)]
    return choices[0] if len(choices) == 1 else Any


def _allow_none(convert: Convert) -> Convert:
    return convert if convert is _keep else lambda value: None if value is None else convert(value)


def _keep(value: Any) -> Any:
    return value

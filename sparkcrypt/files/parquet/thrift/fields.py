"""Declares typed fields of generic Thrift structs, as the IDL does, and checks them when they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet.thrift import compact as thrift
from sparkcrypt.files.parquet.thrift.compact import Struct, field_key

T = TypeVar("T")
V = TypeVar("V", bound="View")


@dataclass(frozen=True, slots=True)
class View:
    """A view of a struct with the names and types of the IDL; the struct itself keeps all its fields."""

    struct: Struct


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A Thrift type, and the conversion of its generic values to ``T``."""

    type: int
    convert: Callable[[Any], T]


def _keep_as_is(value: Any) -> Any:
    return value


def _text(value: bytes) -> str:
    return value.decode("utf-8")


BOOL: Kind[bool] = Kind(thrift.BOOL, _keep_as_is)
I16: Kind[int] = Kind(thrift.I16, _keep_as_is)
I32: Kind[int] = Kind(thrift.I32, _keep_as_is)
I64: Kind[int] = Kind(thrift.I64, _keep_as_is)
DOUBLE: Kind[bytes] = Kind(thrift.DOUBLE, _keep_as_is)
BINARY: Kind[bytes] = Kind(thrift.BINARY, _keep_as_is)
TEXT: Kind[str] = Kind(thrift.BINARY, _text)
STRUCT: Kind[Struct] = Kind(thrift.STRUCT, _keep_as_is)


def struct_of(view: type[V]) -> Kind[V]:
    """Return the kind of a struct that is viewed as ``view``."""
    return Kind(thrift.STRUCT, view)


def list_of(element: Kind[T]) -> Kind[tuple[T, ...]]:
    """Return the kind of a list of ``element``; a list of another type is a `FormatError`."""

    def convert(values: thrift.List) -> tuple[T, ...]:
        found = thrift.BOOL if values.element == thrift.FALSE else values.element
        if values and found != element.type:
            raise FormatError(f"list of Thrift type {values.element}; expected elements of type {element.type}")
        return tuple([element.convert(value) for value in values])

    return Kind(thrift.LIST, convert)


class _Field(Generic[T]):
    """A field's id, kind and name in its struct."""

    __slots__ = ("field_id", "key", "kind", "where")

    def __init__(self, field_id: int, kind: Kind[T]) -> None:
        self.field_id = field_id
        self.kind = kind
        self.key = field_key(field_id, kind.type)
        self.where = ""

    def __set_name__(self, owner: type[View], name: str) -> None:
        self.where = f"{owner.__name__}.{name} (field {self.field_id})"


class OptionalField(_Field[T]):
    """A field that is None if the struct does not have it."""

    __slots__ = ()

    @overload
    def __get__(self, instance: None, owner: type[View]) -> OptionalField[T]: ...
    @overload
    def __get__(self, instance: View, owner: type[View]) -> T | None: ...
    def __get__(self, instance: View | None, owner: type[View]) -> OptionalField[T] | T | None:
        if instance is None:
            return self
        value = instance.struct.get(self.key)
        return None if value is None else _convert_value(self.kind, value, self.where)


class RequiredField(_Field[T]):
    """A field whose absence is a `FormatError`."""

    __slots__ = ()

    @overload
    def __get__(self, instance: None, owner: type[View]) -> RequiredField[T]: ...
    @overload
    def __get__(self, instance: View, owner: type[View]) -> T: ...
    def __get__(self, instance: View | None, owner: type[View]) -> RequiredField[T] | T:
        if instance is None:
            return self
        value = instance.struct.get(self.key)
        if value is None:
            raise FormatError(f"{self.where} is missing, or of another Thrift type; expected type {self.kind.type}")
        return _convert_value(self.kind, value, self.where)


def _convert_value(kind: Kind[T], value: Any, where: str) -> T:
    try:
        return kind.convert(value)
    except UnicodeDecodeError as error:
        raise FormatError(f"{where} is not UTF-8 text; expected UTF-8") from error
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from error

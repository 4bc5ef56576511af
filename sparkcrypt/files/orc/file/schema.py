"""Reads the types of an ORC file, a tree that is stored in pre-order, and names its columns.

The elements of a list are named ``_elem``, keys and values of a map ``_key`` and ``_value``, the variants of a union by
their number, as in ``TypeDescription.getFullFieldName`` of ORC's Java writer.
Source: ORC specification v1, "Type Information".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkcrypt.errors import FormatError
from sparkcrypt.files.orc.file.protobuf import Message
from sparkcrypt.schema import Path

KINDS = (
    *("boolean", "byte", "short", "int", "long", "float", "double", "string", "binary", "timestamp", "list", "map"),
    *("struct", "union", "decimal", "date", "varchar", "char", "timestamp_instant", "geometry", "geography"),
)
"""The names of kinds, by their numbers in ``Type.Kind``."""

MAX_DEPTH = 100
MAX_COLUMNS = 1 << 24
"""The most columns that the IV of a stream can number."""
PATHS_BYTES = 16 * 1024 * 1024
"""The most characters of all columns' paths together."""

_NESTED = {"list": ("_elem",), "map": ("_key", "_value")}
_KIND, _SUBTYPES, _NAMES, _ATTRIBUTES = 1, 2, 3, 7
_OF_ENCRYPTION = ("encrypt", "mask")
"""Attributes in which ORC's Java writer repeats how it was configured to encrypt a type."""


@dataclass(frozen=True, slots=True)
class Column:
    """One type of the tree.

    ``number`` is its column id, ``last`` the id of the last type below it (its own if there is none), ``parent`` the id
    of the type that it is part of (-1 for the root).
    """

    number: int
    path: Path
    kind: str
    parent: int
    children: tuple[int, ...]
    last: int


def read_columns(types: Sequence[Message]) -> tuple[Column, ...]:
    """Return the columns of a file by their ids; the first is the root.

    Raises:
        FormatError: the types are not a tree in pre-order, nest too deep, or have too long names.
    """
    if not types:
        raise FormatError("the footer has no types; expected at least the root's")
    if len(types) > MAX_COLUMNS:
        raise FormatError(f"the footer has {len(types)} types; expected at most {MAX_COLUMNS}")
    kinds = [_kind(kind) for kind in types]
    children = [tuple(kind.integers(_SUBTYPES)) for kind in types]
    names = [_names(kind, part, len(below)) for kind, part, below in zip(kinds, types, children, strict=True)]
    parents, paths = _place(children, names)
    last = list(range(len(types)))
    for number in reversed(range(1, len(types))):
        last[parents[number]] = max(last[parents[number]], last[number])
    return tuple(
        Column(number, paths[number], kinds[number], parents[number], children[number], last[number])
        for number in range(len(types))
    )


def without_encryption(message: Message) -> Message:
    """Return a type without the attributes that repeat how it was to be encrypted.

    Raises:
        FormatError: an attribute is not a pair of texts.
    """
    kept = [pair for pair in message.messages(_ATTRIBUTES, "an attribute") if pair.text(1) not in _OF_ENCRYPTION]
    return message.replace_field(_ATTRIBUTES, [pair.encode() for pair in kept])


def leaves(columns: Sequence[Column]) -> list[Column]:
    """Return the columns without columns below them; a root without fields is not one."""
    return [column for column in columns[1:] if not column.children] if len(columns) > 1 else []


def _kind(message: Message) -> str:
    number = message.integer(_KIND, bits=31)
    if number >= len(KINDS):
        raise FormatError(f"a column is of kind {number}; expected 0 to {len(KINDS) - 1}")
    return KINDS[number]


def _names(kind: str, message: Message, count: int) -> tuple[str, ...]:
    if kind == "struct":
        names = tuple(message.texts(_NAMES))
    elif kind == "union":
        names = tuple(map(str, range(count)))
    else:
        names = _NESTED.get(kind, ())
    if len(names) != count:
        raise FormatError(f"a column of kind {kind} has {count} below it; expected {len(names)}")
    return names


def _place(children: Sequence[tuple[int, ...]], names: Sequence[tuple[str, ...]]) -> tuple[list[int], list[Path]]:
    """Return parents and paths, after checking that the ids are in pre-order."""
    parents = [-1] * len(children)
    paths: list[Path] = [()] * len(children)
    waiting: list[tuple[int, int, Path]] = [(0, -1, ())]
    expected = size = 0
    while waiting:
        number, parent, path = waiting.pop()
        if number != expected:
            raise FormatError(f"column {number} stands where column {expected} is expected; ids go in pre-order")
        size += sum(map(len, path)) + 1
        if len(path) > MAX_DEPTH or size > PATHS_BYTES:
            raise FormatError(
                f"columns nest too deep or have too long names; expected at most {MAX_DEPTH} levels and "
                f"{PATHS_BYTES} characters of all paths"
            )
        parents[number], paths[number], expected = parent, path, expected + 1
        below = list(zip(children[number], names[number], strict=True))
        if below and max(children[number]) >= len(children):
            raise FormatError(f"column {max(children[number])} is named; expected at most {len(children) - 1}")
        waiting.extend((child, number, (*path, name)) for child, name in reversed(below))
    if expected != len(children):
        raise FormatError(f"{len(children)} types, of which {expected} are below the root; expected all")
    return parents, paths

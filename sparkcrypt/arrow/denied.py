"""Denied leaves of a table: decided before it is read, removed from what is read, and restored as nulls."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from sparkcrypt.arrow.files import DataFile
from sparkcrypt.arrow.reader import Reader
from sparkcrypt.arrow.shape import is_list
from sparkcrypt.decide.denied import decide
from sparkcrypt.names import IN_SOME_PARTITIONS
from sparkcrypt.policy.model import OnDenied, Policy
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


MOST_SAMPLES = 8
"""Number of files whose keys are tried if the key service cannot list the keys that a credential may use."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    path: Path
    column: str
    key: str
    decision: str
    why: str
    partitions: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class DeniedLeaves:
    """The masked leaves of a table, and the partitions that they refer to by number."""

    leaves: tuple[_Leaf, ...] = ()
    partitions: tuple[Mapping[str, str], ...] = ()

    def of_file(self, file: DataFile) -> dict[str, Denied]:
        """Return column -> its leaves that are denied in a file."""
        here = {number for number, values in enumerate(self.partitions) if values.items() <= file.partition.items()}
        return group_denied(leaf.path for leaf in self.leaves if leaf.partitions is None or leaf.partitions & here)

    def find_denied_everywhere(self) -> dict[str, Denied]:
        """Return column -> its leaves that are denied in every file."""
        return group_denied(leaf.path for leaf in self.leaves if leaf.partitions is None)

    def of_any_file(self) -> dict[str, Denied]:
        """Return column -> its leaves that are denied in at least one file."""
        return group_denied(leaf.path for leaf in self.leaves)

    def keys_below(self, columns: Container[str]) -> Iterator[tuple[str, str, str]]:
        """Yield key, path and ``denied``, ``shredded`` or ``missing`` for each masked leaf of top-level columns."""
        for leaf in self.leaves:
            if leaf.path[0] in columns:
                yield leaf.key, leaf.column, leaf.decision

    def reasons(self) -> dict[str, str]:
        """Return column path -> reason why it is null, in the words of ``sparkcrypt.masked_columns``."""
        found: dict[str, str] = {}
        for leaf in self.leaves:
            found.setdefault(leaf.column, leaf.why + (IN_SOME_PARTITIONS if leaf.partitions is not None else ""))
        return found


def decide_denied(
    reader: Reader,
    request: Mapping[str, Any],
    on_denied: OnDenied | None,
    files: Sequence[DataFile],
    sample: Callable[[DataFile], Iterable[str]],
) -> DeniedLeaves:
    """Decide which leaves of a table are masked.

    Args:
        reader: the reader and its policy.
        request: ``path``, ``properties`` and ``schema``, as ``decide`` takes them.
        on_denied: the caller's mode for denied columns; None leaves the choice to the tags.
        files: the table's files.
        sample: returns the key metadata of a file's columns in base64; called if keys have to be tried.

    Raises:
        KeyAccessDeniedError, KeyNotFoundError: the footer key is denied or missing, so nothing can be read.
        KeyServiceUnavailableError: the key service cannot be asked which keys are denied.
    """
    if not _is_asked(reader.policy, on_denied):
        return DeniedLeaves()
    decisions = reader.keys.decisions
    full_request = {
        **request,
        "policy": reader.policy.canonical(),
        "principal": reader.principal,
        "on_denied": on_denied,
    }
    answer = decide(full_request, decisions)
    needed = answer["partition_columns"]  # those that key templates use
    values = {tuple(pair for pair in file.partition.items() if pair[0] in needed) for file in files if needed}
    partitions: tuple[Mapping[str, str], ...] = tuple(dict(pairs) for pairs in sorted(values) if pairs)
    if partitions:
        full_request["partitions"] = [dict(values) for values in partitions]
        answer = decide(full_request, decisions)
    if answer["undecided"]:
        step = max(1, len(files) // MOST_SAMPLES)
        full_request["key_metadata"] = [text for file in files[::step][:MOST_SAMPLES] for text in sample(file)]
        answer = decide(full_request, decisions)
    return DeniedLeaves(tuple(map(_leaf, answer["columns"])), partitions)


def _is_asked(policy: Policy, on_denied: OnDenied | None) -> bool:
    return on_denied == "mask" or (on_denied is None and any(rule.on_denied == "mask" for rule in policy.tags))


def _leaf(column: Mapping[str, Any]) -> _Leaf:
    places = column["partitions"]
    return _Leaf(
        path=tuple(column["path"]),
        column=column["column"],
        key=column["key"],
        decision=column["why"],
        why=f"key {column['key']} of tag {column['tag']} is {column['why']}",
        partitions=None if places is None else frozenset(places),
    )

"""Decides which leaves of a table are null for this reader, and in which partitions, as Spark's readers decide."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkcrypt.arrow.file_keys import Reader, opened_key_service
from sparkcrypt.arrow.files import DataFile
from sparkcrypt.arrow.masks import Denied, group_denied
from sparkcrypt.decide.denied import decide
from sparkcrypt.names import IN_SOME_PARTITIONS
from sparkcrypt.policy.model import OnDenied, Policy
from sparkcrypt.schema import Path

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
    decisions = opened_key_service(reader.policy.key_service).decisions
    full_request = {
        **request,
        "policy": reader.policy.canonical(),
        "principal": reader.principal,
        "on_denied": on_denied,
    }
    answer = decide(full_request, decisions)
    partitions = _list_distinct_values(files, answer["partition_columns"])
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


def _list_distinct_values(files: Sequence[DataFile], names: Sequence[str]) -> tuple[Mapping[str, str], ...]:
    """Return the distinct values of the named partition columns, which key templates use."""
    found = {tuple((name, value) for name, value in file.partition.items() if name in names) for file in files if names}
    return tuple(dict(values) for values in sorted(found) if values)


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

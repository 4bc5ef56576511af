"""Detection of files in table formats' own logs, which every reader of such a table must be able to read."""

from __future__ import annotations

from collections.abc import Iterable

_LOG = "_delta_log"
_ACTIONS = frozenset(
    {
        "txn",
        "add",
        "remove",
        "metaData",
        "protocol",
        "cdc",
        "commitInfo",
        "domainMetadata",
        "checkpointMetadata",
        "sidecar",
    }
)
"""Delta's protocol, "Checkpoint Schema": the columns of a checkpoint and of its sidecars."""


def is_log(path: str, columns: Iterable[str]) -> bool:
    """Return whether a file is a checkpoint of Delta's log, by its path and columns; it is never encrypted."""
    return is_in_log(path) and set(columns) <= _ACTIONS


def is_in_log(path: str) -> bool:
    """Return whether a file is in the folder of Delta's log, from which Spark reads no rows of the table."""
    return _LOG in path.split("/")[:-1]

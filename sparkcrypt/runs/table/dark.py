"""Dark columns: under a master key that was shredded, so that they can never be decrypted again.

A file that only gets new key metadata keeps them byte for byte.  A Parquet file that gets new data keys cannot keep
them: encrypted modules are bound to the file's identity and to their position in it, and only their own key could bind
them to another.  An ORC file can keep them if it keeps its identity, since streams are bound only to column and stripe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.files.parquet.summary import columns_under
from sparkcrypt.names import FileFormat
from sparkcrypt.runs.table.difference import Drift
from sparkcrypt.schema import Path, join_dotted

TellShredded: TypeAlias = Callable[[Collection[str]], Collection[str]]
"""Returns which of some master keys were shredded, by an authentic record; never keys that are merely missing."""


def tell_none(_: Collection[str]) -> Collection[str]:
    """Return no key; for callers that do not check whether keys were shredded."""
    return ()


def find_dark(summary: FileSummary, tell_shredded: TellShredded) -> dict[Path, str]:
    """Return a file's dark columns, with their master keys.

    Args:
        summary: the file's footer; a column under the footer's key is not dark, since the footer was opened.
        tell_shredded: returns which keys were shredded.
    """
    named = {column.key_id for column in (summary.columns or {}).values() if column.key_id is not None}
    return columns_under(summary, tell_shredded(named)) if named else {}


def find_dark_drift(dark: Mapping[str, Mapping[Path, str]]) -> Iterator[Drift]:
    """Yield dark columns as differences from the plan, for a run that replaces them by nulls.

    Args:
        dark: file -> its dark columns, with their keys.
    """
    for file, columns in dark.items():
        for path, key_id in sorted(columns.items()):
            detail = f"under the shredded key {key_id!r}, to be replaced by nulls"
            yield Drift("dark", file, join_dotted(path), detail, key_id)


def keeps_dark(file_format: FileFormat, action: str, drift: Iterable[Drift]) -> bool:
    """Return whether an action on a file keeps its dark columns unchanged, or purges them.

    Args:
        file_format: the file's format.
        action: the action, as named in reports.
        drift: the file's drift.
    """
    if action in ("re-wrap", "purge"):
        return True
    return file_format == "orc" and not any(difference.kind == "aad_mismatch" for difference in drift)


def describe_dark(dark: Mapping[Path, str]) -> str:
    """Return dark columns as text for messages, each with its key."""
    return ", ".join(f"{join_dotted(path)} (key {key_id!r})" for path, key_id in sorted(dark.items()))


def refuse_dark(file: str, dark: Mapping[Path, str], doing: str, advice: str) -> None:
    """Refuse an operation on a file that has dark columns.

    Args:
        file: its path.
        dark: its dark columns; if empty, nothing is refused.
        doing: the operation, as the subject of the message's sentence.
        advice: what the operator can do instead.

    Raises:
        UnsupportedFileError: there are dark columns; the message names them and their keys.
    """
    if dark:
        raise UnsupportedFileError(
            f"{file}: {doing} would need the keys of columns that were shredded: {describe_dark(dark)}; {advice}; "
            "nothing was changed"
        )

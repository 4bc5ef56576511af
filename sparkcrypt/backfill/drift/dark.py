"""Columns that are dark: under a master key that was shredded, so that nothing opens them ever again.

A file that only gets other key metadata keeps them byte for byte.  A Parquet file that gets new data keys cannot: what
is encrypted is bound to the file's identity and to its place in it, and only its own key could bind it to others.  An
ORC file can, as long as it keeps its identity, since streams are bound to column and stripe alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from sparkcrypt.backfill.drift.difference import Drift
from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.names import FileFormat
from sparkcrypt.parquet import FileSummary
from sparkcrypt.parquet.summary import columns_under
from sparkcrypt.schema import Path, join_dotted

TellShredded: TypeAlias = Callable[[Collection[str]], Collection[str]]
"""Returns which of some master keys were shredded, as an authentic record says; never those that are merely missing."""


def tell_none(_: Collection[str]) -> Collection[str]:
    """Return no key, for who does not look whether keys were shredded."""
    return ()


def find_dark(summary: FileSummary, tell_shredded: TellShredded) -> dict[Path, str]:
    """Return a file's dark columns, and the master keys that they are under.

    Args:
        summary: what its footer says; a column under the footer's key is none, since the footer was opened.
        tell_shredded: says which keys were shredded.
    """
    named = {column.key_id for column in (summary.columns or {}).values() if column.key_id is not None}
    return columns_under(summary, tell_shredded(named)) if named else {}


def find_dark_drift(dark: Mapping[str, Mapping[Path, str]]) -> Iterator[Drift]:
    """Yield dark columns as differences from the plan, for a run that is to put nulls in their place.

    Args:
        dark: file -> its dark columns, with their keys.
    """
    for file, columns in dark.items():
        for path, key_id in sorted(columns.items()):
            detail = f"under the shredded key {key_id!r}, to be replaced by nulls"
            yield Drift("dark", file, join_dotted(path), detail, key_id)


def keeps_dark(file_format: FileFormat, action: str, drift: Iterable[Drift]) -> bool:
    """Tell whether what is to be done with a file leaves its dark columns as they are, or replaces them.

    Args:
        file_format: of the file.
        action: what is to be done with it, as reports name it.
        drift: of the file.
    """
    if action in ("re-wrap", "purge"):
        return True
    return file_format == "orc" and not any(difference.kind == "aad_mismatch" for difference in drift)


def describe_dark(dark: Mapping[Path, str]) -> str:
    """Return dark columns as messages name them, each with its key."""
    return ", ".join(f"{join_dotted(path)} (key {key_id!r})" for path, key_id in sorted(dark.items()))


def refuse_dark(file: str, dark: Mapping[Path, str], doing: str, advice: str) -> None:
    """Refuse to do with a file what its dark columns do not allow.

    Args:
        file: its path.
        dark: its dark columns; without any, nothing is refused.
        doing: what was about to be done, as the subject of the sentence.
        advice: what a person can do instead.

    Raises:
        UnsupportedFileError: it names the columns and their keys.
    """
    if dark:
        raise UnsupportedFileError(
            f"{file}: {doing} would need the keys of columns that were shredded: {describe_dark(dark)}; {advice}; "
            "nothing was changed"
        )

"""Confinement of the paths in a run's records to the table's folders, so that records cannot affect other files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.journal.record import Record
from sparkcrypt.ledger.unit import staging_folder
from sparkcrypt.paths import Place, comparable_path

_PLACES = ("location", "staged", "from", "to", "base")
_OF_OUTCOME = ("old_location", "new_location")
_OF_CHANGE = {"sources": ("path", "kept"), "targets": ("path", "staged")}
_LISTED = ("files", "made")


@dataclass(frozen=True, slots=True)
class RunFolders:
    """The folders in which a table's runs work.

    Attributes:
        base: the table's original folder; the staging folder of its runs is beside it.
        named: returns further folders from sources other than the records: those of custom-located partitions in the
            metastore, and those of authentic audit entries.  Called only if a path is outside the others.
        earlier: returns the table's original folders before it was renamed; called only if a path is outside ``base``.
    """

    base: str
    named: Callable[[], Iterable[str]]
    earlier: Callable[[], Iterable[str]] = tuple

    def hold(self, path: str) -> bool:
        """Return whether a path is one of the folders, or inside one."""
        if self._is_within(path, (self.base, staging_folder(self.base))):
            return True
        earlier = (self._is_within(path, (base, staging_folder(base))) for base in self.earlier())
        return any(earlier) or self._is_within(path, self.named())

    def hold_staged(self, path: str) -> bool:
        """Return whether a path is inside the staging folder, or in or below one of the ``named`` folders."""
        if self._below_staging(path, self.base) or any(self._below_staging(path, base) for base in self.earlier()):
            return True
        return self._is_within(path, self.named())

    @staticmethod
    def _below_staging(path: str, base: str) -> bool:
        return comparable_path(path).startswith(comparable_path(staging_folder(base)) + "/")

    @staticmethod
    def _is_within(path: str, folders: Iterable[str]) -> bool:
        place = comparable_path(path)
        return any(place == folder or place.startswith(folder + "/") for folder in map(comparable_path, folders))


def refuse_outside(records: Iterable[Record], places: RunFolders) -> None:
    """Refuse a journal with a path outside the folders in which the table's runs work.

    Args:
        records: the records of one run.
        places: the folders in which their paths may be.

    Raises:
        VerificationError: there is such a path; the message names it and the record.
    """
    for record in records:
        for path in _relative_paths(record.fields):
            if path and not _is_plain(path):
                raise _refuse_path(record, path, "is no path of folders below a unit")
        for path, staged in _paths(record.fields):
            if not _is_normal(path):
                raise _refuse_path(record, path, "is no absolute path without '.' and '..'")
            if not (places.hold_staged(path) if staged else places.hold(path)):
                raise _refuse_path(
                    record, path, f"is outside {places.base}, {staging_folder(places.base)} and the table's partitions"
                )


def _paths(fields: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the absolute paths in a record, each with whether it is a staging folder."""
    for key in _PLACES:
        if key in fields:
            yield str(fields[key]), key == "staged"
    outcome = fields.get("outcome")
    if isinstance(outcome, Mapping):
        yield from ((str(outcome[key]), False) for key in _OF_OUTCOME if key in outcome)
    for key in _LISTED:
        for _, files in fields.get(key) or ():
            yield from ((str(file[0]), False) for file in files)
    for change in (fields.get("evidence") or {}).get("changes", ()):
        for side, names in _OF_CHANGE.items():
            for file in change.get(side, ()):
                yield from ((str(file[name]), False) for name in names if name in file)


def _relative_paths(fields: Mapping[str, Any]) -> Iterator[str]:
    if "partition_path" in fields:
        yield str(fields["partition_path"])
    for key in _LISTED:
        yield from (str(folder) for folder, _ in fields.get(key) or ())
    for change in (fields.get("evidence") or {}).get("changes", ()):
        yield str(change.get("folder", ""))


def _is_plain(path: str) -> bool:
    return all(part not in ("", ".", "..") and "\0" not in part for part in path.split("/"))


def _is_normal(path: str) -> bool:
    return Place.of(path).path.startswith("/") and "\0" not in path and not {".", ".."} & set(path.split("/"))


def _refuse_path(record: Record, path: str, why: str) -> VerificationError:
    return VerificationError(
        f"{record.name}: names {path!r}, which {why}; nothing is done on its word: someone changed the state "
        "directory, or the table was moved since; look at both"
    )

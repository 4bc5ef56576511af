"""The new files of a unit, and the proof of where they are: staged, in use, or neither.

Nothing else decides whether a swap has happened: neither which folders exist, nor what a journal says.  Files are
recognised by the names and lengths with which they were proven.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from sparkcrypt.ledger.unit import Folder, Unit, by_place, list_folders
from sparkcrypt.paths import comparable_path

if TYPE_CHECKING:
    from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.listing import SourceFile


class Whereabouts(Enum):
    """Where the proven files of a unit are."""

    STAGED = "staged"
    """All of them are where they were staged, and the unit does not point there."""
    IN_USE = "in use"
    """All of them are at their final place, to which the unit points; other files may be beside them."""
    NEITHER = "neither"
    """Some are missing at either place, or changed: they were replaced, deleted, or moved in part."""


@dataclass(frozen=True, slots=True)
class NewFiles:
    """The new files of a unit.

    Attributes:
        unit: the unit as it was listed, with its old files.
        staged: the folder in which the new files were made.
        lengths: path below that folder -> length in bytes, of every proven file.
        pin: what the metastore gets with the swap (`sparkcrypt.names.PIN`); empty to leave what it has.
    """

    unit: Unit
    staged: str
    lengths: Mapping[str, int]
    pin: str = ""

    @classmethod
    def of_folders(cls, unit: Unit, staged: str, folders: tuple[Folder, ...]) -> NewFiles:
        """Return the files that were listed in the folder in which they were made."""
        return cls(unit, staged, {place: file.length for place, file in by_place(staged, folders).items()})

    def relocate(self, location: str) -> NewFiles:
        """Return the same files of a unit whose own folder has another path now."""
        return replace(self, unit=self.unit.relocate(location, self.unit.folders))

    def list_missing(self, files: HadoopFiles, folder: str) -> list[str]:
        """Return which of the files are not in a folder with their lengths, as paths below it."""
        return missing_files(self.lengths, by_place(folder, list_folders(files, folder)))


def missing_files(lengths: Mapping[str, int], now: Mapping[str, SourceFile]) -> list[str]:
    """Return the paths of files that a listing lacks, or has with another length.

    Args:
        lengths: path below a folder -> length in bytes.
        now: path below the folder -> the listed file.
    """
    return sorted(place for place, length in lengths.items() if place not in now or now[place].length != length)


def prove_in_use(files: HadoopFiles, new: NewFiles, final: str, here: str | None) -> Whereabouts:
    """Tell where the proven files of a unit are.

    Args:
        files: the file system.
        new: the files; without any, nothing is proven to be in use.
        final: the folder in which they are after the swap.
        here: the folder to which the unit points now; None if it was dropped.

    Raises:
        SparkcryptError: a folder cannot be listed.
    """
    place = None if here is None else comparable_path(here)
    if new.lengths and place == comparable_path(final) and not new.list_missing(files, final):
        return Whereabouts.IN_USE
    if place != comparable_path(new.staged) and not new.list_missing(files, new.staged):
        return Whereabouts.STAGED
    return Whereabouts.NEITHER

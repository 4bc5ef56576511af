"""The deletion of folders by runs: never one in use, nor files written to it since, nor what lies beside data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sparkcrypt.errors import SourceChangedError, VerificationError
from sparkcrypt.files.listing import SUMMARIES, Beside, Entry, find_beside
from sparkcrypt.keys.external_material import is_material_file
from sparkcrypt.ledger.unit import Unit, list_location, staging_folder
from sparkcrypt.paths import comparable_path, is_hidden
from sparkcrypt.runs.table.in_use import InUse, Places
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.listing import list_contents

if TYPE_CHECKING:
    from sparkcrypt.runs.table.target import Target
    from sparkcrypt.spark.files.hadoop import HadoopFiles

_SHOWN = 3


def refuse_foreign(unit: str, location: str, beside: Iterable[Beside]) -> None:
    """Refuse a unit with anything beside its data that a run would move, and `expire` would delete.

    Args:
        unit: the unit's name.
        location: its folder.
        beside: what lies beside its data files.

    Raises:
        VerificationError: there is something; the message names it.
    """
    why = describe_foreign(location, beside)
    if why is not None:
        raise VerificationError(f"{unit}: {why}")


def describe_foreign(folder: str, beside: Iterable[Beside]) -> str | None:
    """Return why a folder must be neither moved nor deleted: what lies in it beside data; None if it may be."""
    found = find_foreign(beside)
    if not found:
        return None
    what = name_foreign(folder, found)
    if any(entry.kind != "foreign" for entry in found):
        return (
            f"{what}: lies beside data and is of other tables or another format, so it must not be moved or deleted "
            "with them; name the tables' own folders"
        )
    return (
        f"{what}: lies beside data and is no run's, so it must not be moved or deleted with them; move it to a folder "
        "of its own, and tell whatever uses it (for a stream's checkpoint: end the stream, move it, and start the "
        "stream with the new checkpointLocation), then run again"
    )


def find_foreign_in(files: HadoopFiles, folder: str, place: str) -> str | None:
    """Return why a folder must not be deleted: what lies in it beside data; None if nothing does.

    Args:
        files: the file system.
        folder: the folder, for the message.
        place: where it is now, if it was set aside.
    """
    if not files.exists(place):
        return None
    return describe_foreign(folder, list_contents(files, files.status(place).path).beside)


def find_foreign(beside: Iterable[Beside]) -> tuple[Beside, ...]:
    """Return what lies beside data and is no run's."""
    return tuple(entry for entry in beside if entry.kind in ("foreign", "staging", "format"))


def name_foreign(folder: str, found: Sequence[Beside]) -> str:
    """Return the paths of the first few entries, and how many more there are."""
    more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    return ", ".join(f"{folder.rstrip('/')}/{entry.path}" for entry in found[:_SHOWN]) + more


def refuse_moving(files: HadoopFiles, unit: Unit) -> None:
    """Refuse to rename a unit's folder if somebody writes below it, or keeps something beside its data.

    Raises:
        SourceChangedError: a job is writing; the message names its temporary folder.
        VerificationError: something lies beside the data; the message names it.
    """
    _, beside = list_location(files, unit.location)
    refuse_writers(unit, beside)
    refuse_foreign(unit.name, unit.location, beside)


def refuse_writers(unit: Unit, beside: Iterable[Beside]) -> None:
    """Refuse a unit below whose folder Spark or Hive is writing: a rename would move their temporary files too.

    Raises:
        SourceChangedError: a job is writing; the message names its temporary folder.
    """
    for entry in beside:
        if entry.kind == "writer":
            raise SourceChangedError(
                f"{unit.name}: {unit.location}/{entry.path} is there, so someone is writing; the unit stays unchanged; "
                "run again when that has ended; move that folder away if its writer was killed"
            )


def find_summaries_above(files: HadoopFiles, target: Target) -> tuple[str, ...]:
    """Return the summaries of footers in the folder of a partitioned table, above its partitions.

    Returns:
        Their paths; none if the plan encrypts no column, and none of a target whose units have all of its files.
    """
    table = target.table
    if table is None or not table.partition_columns or not target.plan.encrypted:
        return ()
    return tuple(path for name in SUMMARIES if files.exists(path := f"{target.base}/{name}"))


def remove_marks(files: HadoopFiles, folder: str) -> None:
    """Remove a folder that has no more than empty folders and marks of writers; anything else stays, and so does it."""
    if files.exists(folder):
        root = files.status(folder).path
        for entry in list_contents(files, root).beside:
            if entry.kind == "written":
                files.delete_file(f"{root}/{entry.path}")
        _remove_empty(files, root)


def _remove_empty(files: HadoopFiles, folder: str) -> None:
    for child in files.children(folder):
        if child.is_folder:
            _remove_empty(files, child.path)
    files.delete_empty(folder)


@dataclass(frozen=True, slots=True)
class _Going:
    """A folder that is about to be deleted.

    Attributes:
        place: where it is now: set aside by a rename, or unchanged.
        listed: its files, if the file system has no atomic rename: only they are deleted, and not what a writer adds
            meanwhile.
    """

    place: str
    listed: tuple[str, ...] | None = None


@dataclass(slots=True)
class Disposal:
    """Deletes folders of a run that are not in use.

    A folder is first renamed aside, if the rename is atomic, and inspected there; then the metastore is queried again,
    and only then is the folder deleted, or renamed back.  The path aside is derived from the run and the folder: a
    driver that continues after a crash finds it, and puts the folder back if it is in use.

    Attributes:
        base: the original folder of the table, beside which folders are set aside.
        bases: folder -> the original folder of its table, if that is not ``base``.
        asks_all: query the folders of all other tables again too, once folders are set aside.
    """

    files: HadoopFiles
    in_use: InUse
    base: str
    run_id: str
    check_lock: Callable[[], None]
    bases: Mapping[str, str] = field(default_factory=dict)
    asks_all: bool = False

    def delete(
        self,
        folders: Iterable[str],
        *,
        inspect: Callable[[str, str], str | None] = lambda *_: None,
        deleted: Callable[[str], None] = lambda _: None,
    ) -> dict[str, str]:
        """Delete folders; those that do not exist are ignored.

        Args:
            folders: the folders.
            inspect: called with a folder, and with its path after it was set aside; returns a reason to keep it, or
                None.  If it raises, all folders that were not deleted yet are put back.
            deleted: called with each folder after its deletion.

        Returns:
            The folders that were kept: folder -> its user, or another reason.

        Raises:
            RunConflictError: the lock was lost.
            SparkcryptError: the file system refused.
        """
        there = [folder for folder in dict.fromkeys(folders) if self.is_there(folder)]
        if not there:
            return {}
        self.check_lock()
        kept = _find_used(there, self.in_use.look())
        for folder in kept:
            self.restore(folder)
        going: dict[str, _Going] = {}
        try:
            for folder in (folder for folder in there if folder not in kept):
                self.check_lock()
                why = self._delete_set_aside(folder, inspect) or self._take(folder, inspect, going)
                if why is not None:
                    kept[folder] = why
            used = _find_used(going, self.in_use.look(afresh=self.asks_all)) if going else {}
            for folder in [folder for folder in going if folder not in used]:
                self.check_lock()
                self._delete(going.pop(folder))
                deleted(folder)
        except BaseException:
            for folder, taken in going.items():
                self._put_back(folder, taken)
            raise
        kept |= {folder: user + self._put_back(folder, going[folder]) for folder, user in used.items()}
        for above in sorted({path for folder in there for path in self._list_above(folder)}, key=len, reverse=True):
            self.files.delete_empty(above)
        return kept

    def remove_emptied(self, folder: str, *, seconds_old: float) -> None:
        """Remove a folder from which all data were moved, with those above it that it was made in, unless it is in use.

        Args:
            folder: the folder; if there is more than empty folders and marks of writers in it, it stays.
            seconds_old: how old the target's own locations may be, since no data are deleted.
        """
        if self.in_use.look(seconds_old=seconds_old).user_of(folder) is None:
            remove_marks(self.files, folder)
            for above in self._list_above(folder):
                self.files.delete_empty(above)

    def _list_above(self, folder: str) -> Iterator[str]:
        """Yield the folders above a folder, and above where it was set aside, in which runs put nothing else."""
        top = staging_folder(self._base(folder))
        for path in (folder, self._place_aside(folder)):
            above = path.rstrip("/").rpartition("/")[0]
            while above.startswith(f"{top}/"):
                yield above
                above = above.rpartition("/")[0]

    def _take(self, folder: str, inspect: Callable[[str, str], str | None], going: dict[str, _Going]) -> str | None:
        """Set a folder aside and inspect it there; if it is kept, put it back and return the reason."""
        going[folder] = self._put_aside(folder)
        place = going[folder].place
        why = inspect(folder, place) or find_foreign_in(self.files, folder, place)
        return None if why is None else why + self._put_back(folder, going.pop(folder))

    def _put_back(self, folder: str, going: _Going) -> str:
        """Rename a folder back; if a writer has re-created it since, leave both and return a text about that.

        The writer's files are not mixed with files that may have another state of the rows.
        """
        if going.listed is not None:
            return ""
        if self.files.exists(folder):
            return f"; a writer has made {folder} anew meanwhile, and what was there is at {going.place}: look at both"
        self.files.rename(going.place, folder)
        return ""

    def is_there(self, folder: str) -> bool:
        """Return whether a folder exists, or was set aside by a driver that was killed."""
        return self.files.exists(folder) or self._set_aside(folder) is not None

    def restore(self, folder: str) -> None:
        """Put back a folder that a killed driver had set aside, unless the folder exists again."""
        aside = self._set_aside(folder)
        if aside and not self.files.exists(folder):
            self.files.make_folder(folder.rstrip("/").rpartition("/")[0])
            self.files.rename(aside, folder)

    def _delete_set_aside(self, folder: str, inspect: Callable[[str, str], str | None]) -> str | None:
        """Delete what a killed driver had set aside if a writer has re-created the folder; return a reason to keep it.

        Files of a late commit may be in the part that was set aside, so it is inspected like the folder itself.
        """
        aside = self._set_aside(folder)
        if not aside or not self.files.exists(folder):
            return None
        why = inspect(folder, aside) or find_foreign_in(self.files, folder, aside)
        if why is not None:
            return f"{why}; part of it was set aside before, to {aside}: look at both"
        self.files.delete_tree(aside)
        return None

    def _put_aside(self, folder: str) -> _Going:
        """Rename a folder aside, where no writer finds it, if the rename is atomic; else list its files."""
        aside = self._set_aside(folder)
        if aside and not self.files.exists(folder):
            return _Going(aside)
        if not self.files.renames_at_once(folder) or urlsplit(folder)[:2] != urlsplit(self._base(folder))[:2]:
            return _Going(folder, self._list(folder))
        aside = self._place_aside(folder)
        self.files.make_folder(self._name_trash_folder(folder))
        self.files.rename(folder, aside)
        return _Going(aside)

    def _list(self, folder: str) -> tuple[str, ...]:
        """Return a folder's data files, followed by the files of their key material.

        A writer commits such a pair one file after the other.  Key material is listed first, so a pair that is
        committed meanwhile keeps its key material; a later inspection finds its data file, or the active writer.
        """
        root = folder.rstrip("/")
        materials = [file.path for file in self.files.walk(folder) if is_material_file(file.name)]
        data = [file.path for file in self.files.walk_visible(folder) if not is_hidden(file.name)]
        depth = len(self.files.qualify(root)) + 1
        visible = (path for path in materials if not any(map(is_hidden, path[depth:].split("/")[:-1])))
        return (*data, *visible)

    def _delete(self, going: _Going) -> None:
        for file in going.listed or ():
            self.files.delete_file(file)
        if going.listed is None or self._is_left(going.place):
            self.files.delete_tree(going.place)

    def _is_left(self, place: str) -> bool:
        """Return whether a folder has only files that Spark leaves beside data; else a writer may be active there."""
        start = len(self.files.qualify(place.rstrip("/"))) + 1
        left = [Entry(file.path[start:]) for file in self.files.walk(place)]
        beside = find_beside(left)
        return len(beside) == len(left) and all(entry.kind in ("written", "summary") for entry in beside)

    def _set_aside(self, folder: str) -> str | None:
        aside = self._place_aside(folder)
        return aside if self.files.exists(aside) else None

    def _place_aside(self, folder: str) -> str:
        digest = hashlib.sha256(comparable_path(folder).rstrip("/").encode()).hexdigest()
        return f"{self._name_trash_folder(folder)}/{digest[:16]}"

    def _name_trash_folder(self, folder: str) -> str:
        return f"{staging_folder(self._base(folder))}/trash-{self.run_id}"

    def _base(self, folder: str) -> str:
        return self.bases.get(folder, self.base)


def _find_used(folders: Iterable[str], places: Places) -> dict[str, str]:
    found = ((folder, places.user_of(folder)) for folder in folders)
    return {folder: user for folder, user in found if user is not None}

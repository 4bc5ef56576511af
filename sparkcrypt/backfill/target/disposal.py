"""The one way by which runs delete a folder: none that is in use ever goes, nor what came to it since the last look."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sparkcrypt.backfill.target.in_use import InUse, Places
from sparkcrypt.backfill.target.unit import staging_folder
from sparkcrypt.keys.external_material import is_material_file
from sparkcrypt.paths import comparable_path, is_hidden
from sparkcrypt.spark.files.hadoop import HadoopFiles


@dataclass(frozen=True, slots=True)
class _Going:
    """A folder that is about to be deleted.

    Attributes:
        place: where it is: renamed aside, or where it was.
        listed: its files, where no rename is one step: only they go, and not what a writer leaves there meanwhile.
    """

    place: str
    listed: tuple[str, ...] | None = None


@dataclass(slots=True)
class Disposal:
    """Deletes folders of a run, and none that is in use.

    A folder is renamed aside first, where that is one step, and looked at there; then the metastore is asked again, and
    only then is it deleted, or renamed back.  The place aside follows from the run and the folder, so that whoever
    continues after a crash finds what was set aside, and puts it back where it is in use.

    Attributes:
        base: the original folder of the table, beside which folders are set aside.
        bases: folder -> that of its own table, where it is another.
        asks_all: ask for the folders of all other tables again too, once folders are set aside.
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
        """Delete folders; those that are not there are deleted already.

        Args:
            folders: which.
            inspect: is given a folder, and where it is when writers do not find it any more; returns why it stays, or
                None.  What it raises puts back all that was not deleted.
            deleted: is told of each folder right after it is gone.

        Returns:
            Those that stay: folder -> who uses it, or why else.

        Raises:
            RunConflictError: the lock is lost.
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
        for trash in {self._trash(folder) for folder in there}:
            self.files.delete_empty(trash)
        return kept

    def _take(self, folder: str, inspect: Callable[[str, str], str | None], going: dict[str, _Going]) -> str | None:
        """Put a folder aside and look at it there; put it back where it stays, and return why."""
        going[folder] = self._put_aside(folder)
        why = inspect(folder, going[folder].place)
        return None if why is None else why + self._put_back(folder, going.pop(folder))

    def _put_back(self, folder: str, going: _Going) -> str:
        """Rename a folder back; return what else is to be said where a writer has made it anew since.

        What that writer leaves there is not put beside files that may be another state of the rows.
        """
        if going.listed is not None:
            return ""
        if self.files.exists(folder):
            return f"; a writer has made {folder} anew meanwhile, and what was there is at {going.place}: look at both"
        self.files.rename(going.place, folder)
        return ""

    def is_there(self, folder: str) -> bool:
        """Tell whether a folder is there, or what a killed driver has set aside of it."""
        return self.files.exists(folder) or self._set_aside(folder) is not None

    def restore(self, folder: str) -> None:
        """Put back what a driver had set aside when it was killed, where a table points to it now."""
        aside = self._set_aside(folder)
        if aside and not self.files.exists(folder):
            self.files.make_folder(folder.rstrip("/").rpartition("/")[0])
            self.files.rename(aside, folder)

    def _delete_set_aside(self, folder: str, inspect: Callable[[str, str], str | None]) -> str | None:
        """Delete what a killed driver had set aside, where a writer has made the folder anew since; or say why not.

        A late commit may have gone along when it was set aside, so it is looked at as the folder itself is.
        """
        aside = self._set_aside(folder)
        if not aside or not self.files.exists(folder):
            return None
        why = inspect(folder, aside)
        if why is not None:
            return f"{why}; part of it was set aside before, to {aside}: look at both"
        self.files.delete_tree(aside)
        return None

    def _put_aside(self, folder: str) -> _Going:
        """Rename a folder to where no writer finds it, where that is one step; else list what is in it."""
        aside = self._set_aside(folder)
        if aside and not self.files.exists(folder):
            return _Going(aside)
        if not self.files.renames_at_once(folder) or urlsplit(folder)[:2] != urlsplit(self._base(folder))[:2]:
            return _Going(folder, self._list(folder))
        aside = self._place_aside(folder)
        self.files.make_folder(self._trash(folder))
        self.files.rename(folder, aside)
        return _Going(aside)

    def _list(self, folder: str) -> tuple[str, ...]:
        """Return data files, and after them the files of their key material.

        A writer commits such a pair one file after the other.  Key material is listed first, and what comes later
        stays with its data file; whoever inspects the folder then finds that one, or the writer at work.
        """
        root = folder.rstrip("/")
        materials = [file.path for file in self.files.walk(folder) if is_material_file(file.name)]
        data = [file.path for file in self.files.data_files(folder)]
        depth = len(self.files.qualify(root)) + 1
        seen = (path for path in materials if not any(map(is_hidden, path[depth:].split("/")[:-1])))
        return (*data, *seen)

    def _delete(self, going: _Going) -> None:
        for file in going.listed or ():
            self.files.delete_file(file)
        if going.listed is None or self._is_left(going.place):
            self.files.delete_tree(going.place)

    def _is_left(self, place: str) -> bool:
        """Tell whether nothing is in a folder but what Spark leaves beside files; a writer may be at work there."""
        return all(
            file.name.startswith(("_SUCCESS", "_metadata", "_common_metadata")) for file in self.files.walk(place)
        )

    def _set_aside(self, folder: str) -> str | None:
        aside = self._place_aside(folder)
        return aside if self.files.exists(aside) else None

    def _place_aside(self, folder: str) -> str:
        return f"{self._trash(folder)}/{hashlib.sha256(comparable_path(folder).rstrip('/').encode()).hexdigest()[:16]}"

    def _trash(self, folder: str) -> str:
        return f"{staging_folder(self._base(folder))}/trash-{self.run_id}"

    def _base(self, folder: str) -> str:
        return self.bases.get(folder, self.base)


def _find_used(folders: Iterable[str], places: Places) -> dict[str, str]:
    found = ((folder, places.user_of(folder)) for folder in folders)
    return {folder: user for folder, user in found if user is not None}

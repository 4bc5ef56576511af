"""What is in use now, by the metastore; and the one way by which runs delete a folder: none that is in use ever goes.

A state directory may tell less than what has happened (it was restored, or lost its end), and people move partitions
while runs go on.  So before a folder is deleted, renamed or adopted, the metastore is asked: for the target's own
folders each time, for those of all other tables once for as long as an `OtherTables` lives, which is a pass.
"""

from __future__ import annotations

import hashlib
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sparkcrypt.backfill.locations import locations_of_tables
from sparkcrypt.backfill.targets import CatalogTarget, Target
from sparkcrypt.backfill.units import staging_folder
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.errors import VerificationError
from sparkcrypt.spark.catalog import Catalog
from sparkcrypt.spark.files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class User:
    """Who points to a folder.

    Attributes:
        name: a unit of the target, or ``db.table``.
        reads_below: files in folders below are read too; False of a partitioned table, whose partitions say where
            theirs are.
    """

    name: str
    reads_below: bool = True


class Places:
    """Folders that tables and partitions point to, at one moment.

    Args:
        users: folder -> who points to it.
    """

    def __init__(self, users: Iterable[tuple[str, User]]) -> None:
        self._users: dict[str, list[User]] = {}
        for folder, user in users:
            self._users.setdefault(_place(folder), []).append(user)
        self._ordered = sorted(self._users)

    def user_of(self, folder: str, *, but: str | None = None) -> str | None:
        """Return who points to a folder, into it, or above it without a hidden folder between; None: nobody.

        Args:
            folder: which.
            but: a unit that does not count.
        """
        place = _place(folder)
        for candidate in (place, *self._below(f"{place}/")):
            for user in self._users.get(candidate, ()):
                if user.name != but:
                    return f"{user.name} points to {candidate}"
        for outer in _above(place):
            for user in self._users.get(outer, ()):
                if user.reads_below and user.name != but:
                    return f"{user.name} points to {outer}"
        return None

    def uses(self, folder: str) -> bool:
        """Tell whether somebody points to this very folder."""
        return _place(folder) in self._users

    def _below(self, outer: str) -> Iterator[str]:
        for number in range(bisect_left(self._ordered, outer), len(self._ordered)):
            if not self._ordered[number].startswith(outer):
                return
            yield self._ordered[number]


class OtherTables:
    """The folders of every table but one, asked for at most once."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._known: tuple[tuple[str, User], ...] | None = None

    def users(self, but: str | None) -> Iterator[tuple[str, User]]:
        """Yield every folder to which a table or partition points, and who does.

        Args:
            but: a table whose folders are left out: ``db.table``.
        """
        if self._known is None:
            found = locations_of_tables(self._spark)
            self._known = tuple((place, User(name, reads_below=below)) for name, place, below in found)
        return (one for one in self._known if one[1].name != but)


@dataclass(slots=True)
class InUse:
    """Asks what is in use.

    Attributes:
        target: whose own folders are asked for afresh; None where there is none, and all tables are others.
        others: the folders of all other tables.
    """

    spark: SparkSession
    target: Target | None
    others: OtherTables
    _own: tuple[tuple[str, User], ...] = ()
    _asked: float | None = None

    def look(self) -> Places:
        """Return what tables and partitions point to.

        Raises:
            PlanError: the table is gone, or somebody's partitions cannot be listed.
        """
        table = self.target.name if isinstance(self.target, CatalogTarget) else None
        return Places([*self._own_users(0.0), *self.others.users(table)])

    def own(self, *, seconds_old: float) -> Places:
        """Return what the target alone points to; the answer may be so many seconds old."""
        return Places(self._own_users(seconds_old))

    def units(self) -> Mapping[str, str]:
        """Return unit -> where its files are, afresh."""
        return {user.name: place for place, user in self._own_users(0.0) if user.reads_below}

    def _own_users(self, seconds_old: float) -> tuple[tuple[str, User], ...]:
        if self._asked is None or time.monotonic() - self._asked > seconds_old:
            asked = time.monotonic()
            self._own, self._asked = tuple(_of_target(self.spark, self.target)), asked
        return self._own


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

    A folder is renamed aside first, where that is one step; then the metastore is asked again, and only then is it
    deleted, or renamed back.  The place aside follows from the run and the folder, so that whoever continues after a
    crash finds what was set aside, and puts it back where it is in use.
    """

    files: HadoopFiles
    in_use: InUse
    base: str
    run_id: str
    check_lock: Callable[[], None]

    def delete(
        self, folders: Iterable[str], *, inspect: Callable[[str, str], None] = lambda *_: None
    ) -> dict[str, str]:
        """Delete folders; those that are not there are deleted already.

        Args:
            folders: which.
            inspect: is given a folder, and where it is when writers do not find it any more; what it raises puts back
                all that was not deleted.

        Returns:
            Those that are in use, and stay: folder -> who uses it.

        Raises:
            RunConflictError: the lock is lost.
            SparkcryptError: the file system refused.
        """
        there = [one for one in dict.fromkeys(folders) if self.is_there(one)]
        if not there:
            return {}
        self.check_lock()
        kept = _used(there, self.in_use.look())
        for folder in kept:
            self.restore(folder)
        going: dict[str, _Going] = {}
        try:
            for folder in (one for one in there if one not in kept):
                self.check_lock()
                self._delete_set_aside(folder, inspect)
                going[folder] = self._put_aside(folder)
            for folder, one in going.items():
                inspect(folder, one.place)
            used = _used(going, self.in_use.look())
            for folder in [one for one in going if one not in used]:
                self.check_lock()
                self._delete(going.pop(folder))
        finally:
            for folder, one in going.items():
                if one.listed is None:
                    self.files.rename(one.place, folder)
        self.files.delete_empty(self._trash())
        return kept | used

    def is_there(self, folder: str) -> bool:
        """Tell whether a folder is there, or what a killed driver has set aside of it."""
        return self.files.exists(folder) or self._set_aside(folder) is not None

    def restore(self, folder: str) -> None:
        """Put back what a driver had set aside when it was killed, where a table points to it now."""
        aside = self._set_aside(folder)
        if aside and not self.files.exists(folder):
            self.files.make_folder(folder.rstrip("/").rpartition("/")[0])
            self.files.rename(aside, folder)

    def _delete_set_aside(self, folder: str, inspect: Callable[[str, str], None]) -> None:
        """Delete what a killed driver had set aside, where a writer has made the folder anew since.

        A late commit may have gone along when it was set aside, so it is looked at as the folder itself is.
        """
        aside = self._set_aside(folder)
        if aside and self.files.exists(folder):
            inspect(folder, aside)
            self.files.delete_tree(aside)

    def _put_aside(self, folder: str) -> _Going:
        """Rename a folder to where no writer finds it, where that is one step; else list what is in it."""
        aside = self._set_aside(folder)
        if aside and not self.files.exists(folder):
            return _Going(aside)
        if not self.files.renames_at_once(folder) or urlsplit(folder)[:2] != urlsplit(self.base)[:2]:
            return _Going(folder, tuple(one.path for one in self.files.data_files(folder)))
        aside = self._place_aside(folder)
        self.files.make_folder(self._trash())
        self.files.rename(folder, aside)
        return _Going(aside)

    def _delete(self, going: _Going) -> None:
        for file in going.listed or ():
            self.files.delete_file(file)
        if going.listed is None or not self.files.data_files(going.place):
            self.files.delete_tree(going.place)

    def _set_aside(self, folder: str) -> str | None:
        aside = self._place_aside(folder)
        return aside if self.files.exists(aside) else None

    def _place_aside(self, folder: str) -> str:
        return f"{self._trash()}/{hashlib.sha256(_place(folder).encode()).hexdigest()[:16]}"

    def _trash(self) -> str:
        return f"{staging_folder(self.base)}/trash-{self.run_id}"


def _used(folders: Iterable[str], places: Places) -> dict[str, str]:
    found = ((folder, places.user_of(folder)) for folder in folders)
    return {folder: user for folder, user in found if user is not None}


def refuse_used(places: Places, unit: str, folder: str, what: str) -> None:
    """Refuse to rename or adopt a folder that somebody else uses.

    Raises:
        VerificationError: it names the folder and who points to it.
    """
    user = places.user_of(folder, but=unit)
    if user is not None:
        raise VerificationError(
            f"{unit}: {folder} {what}, and {user}, so it stays where it is; point that elsewhere with ALTER TABLE … "
            "SET LOCATION, then run again"
        )


def _of_target(spark: SparkSession, target: Target | None) -> Iterator[tuple[str, User]]:
    if target is None:
        return
    if not isinstance(target, CatalogTarget):
        yield target.base, User(target.name)
        return
    catalog = Catalog(spark)
    table = catalog.table(target.table.quoted)
    yield table.location, User(target.name, reads_below=not table.partition_columns)
    if table.partition_columns:
        for partition in catalog.partitions(table):
            yield partition.location, User(partition.folder)


def _place(folder: str) -> str:
    return comparable_path(folder).rstrip("/")


def _above(place: str) -> Iterator[str]:
    """Yield the folders above one, up to that in which a hidden folder lies: readers do not look below those."""
    while "/" in place:
        place, _, name = place.rpartition("/")
        if name.startswith(".") or (name.startswith("_") and "=" not in name):
            return
        yield place

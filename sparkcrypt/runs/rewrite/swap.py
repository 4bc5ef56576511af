"""Swaps: ways to put a unit's staged files into use, each with an undo.

A table is swapped by SET LOCATION, a single change in the metastore; readers in flight keep the old files.  This does
not work for a managed table without partitions: Spark's RENAME TABLE and ``saveAsTable`` with overwrite assume that
such a table lies in its default folder, and do not find its data elsewhere.  Its folder is renamed instead, and readers
in flight fail.  A bare folder is copied to a new one, or renamed as a whole.  No file is ever replaced in place: a
reader that had listed it would silently read the wrong bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from sparkcrypt.errors import ConfigError, SourceChangedError, SparkcryptError, VerificationError
from sparkcrypt.ledger.new_files import NewFiles, missing_files
from sparkcrypt.ledger.unit import Unit, base_location, by_place, former_home, list_folders, old_folder
from sparkcrypt.names import PIN
from sparkcrypt.paths import is_same_place
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.table.disposal import remove_marks
from sparkcrypt.runs.table.open_table import OpenTable
from sparkcrypt.runs.table.target import Target
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.listing import list_contents
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS
from sparkcrypt.spark.tables.catalog import Catalog, PartitionMove
from sparkcrypt.spark.tables.table import Partition, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Swap(ABC):
    """One way to put a unit's staged files into use.

    If ``same_folder`` is set, the new files must have other names than the old ones: a reader that had listed an old
    file would read a new file of the same name with the old one's length, and silently lose rows.

    Attributes:
        name: the name of the swap in reports.
        same_folder: whether the new files are put into the folder in which the old ones were.
        repoints: whether the metastore is pointed to the new files; the old ones stay in place, and an undo points to
            them.
        copies: whether the new files are a copy; the source stays in use, so its files are not old files.
        at_once: whether several units are swapped by one call; if not, each is looked at right before its own.
    """

    name: ClassVar[str]
    same_folder: ClassVar[bool] = False
    repoints: ClassVar[bool] = False
    copies: ClassVar[bool] = False
    at_once: ClassVar[bool] = False

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._files = HadoopFiles(spark)

    @property
    @abstractmethod
    def warning(self) -> str | None:
        """What users of the table must know after the swap."""

    @abstractmethod
    def swap(self, new: NewFiles) -> str:
        """Put the staged folder into use for the unit, and set its pin; return where the old files are afterwards."""

    def swap_all(self, several: Sequence[NewFiles]) -> Mapping[str, Exception]:
        """Put the staged folders of several units into use, and set their pins.

        Returns:
            Unit -> why it could not be swapped, or not as far as is known; the others are.
        """
        failed: dict[str, Exception] = {}
        for new in several:
            try:
                self.swap(new)
            except (SparkcryptError, *JVM_ERRORS, OSError) as error:
                failed[new.unit.name] = error
        return failed

    @abstractmethod
    def undo(self, new: NewFiles, location: str | None = None) -> None:
        """Put the old files back into use; the new files are in the staged folder afterwards.

        Args:
            new: the unit as it was listed, and its new files.
            location: the folder to which a swap that ``repoints`` points the unit; its listed location by default.
        """

    @abstractmethod
    def current_location(self, unit: Unit) -> str | None:
        """Return the folder to which the unit points now; None if it no longer exists."""

    def current_locations(self, units: Sequence[Unit]) -> Mapping[str, str | None]:
        """Return unit -> the folder to which it points now; None if it no longer exists."""
        return {unit.name: self.current_location(unit) for unit in units}

    @abstractmethod
    def is_begun(self, new: NewFiles) -> bool:
        """Tell whether a step of the swap has happened.

        If the new files are not proven to be in use then, the swap was cut off, and only a person can tell what the
        unit's folder should hold.
        """

    @abstractmethod
    def final_location(self, unit: Unit, staged: str) -> str:
        """Return where the new files are after the swap."""

    def old_location(self, unit: Unit) -> str:
        """Return where the old files are after the swap: by default where they were."""
        return unit.location

    def set_pin(self, new: NewFiles) -> None:  # noqa: B027 - a bare folder has no place for one
        """Set the pin of a unit whose files are in use; where the metastore has no place for it, nothing is done."""

    def put_back(self, new: NewFiles) -> None:  # noqa: B027 - most swaps are a single step
        """Undo a swap of which only the first step has happened, if nothing has come to the unit's folder since."""

    def put_in(self, new: NewFiles) -> None:  # noqa: B027 - most swaps are a single step
        """Undo a rollback of which only the first step has happened, if nothing has come to the unit's folder since."""


class LocationSwap(Swap):
    """A swap by ALTER TABLE … SET LOCATION, of a table or of a partition.

    Args:
        spark: a classic session.
        table: the table.
    """

    name = "set location"
    repoints = True
    at_once = True

    def __init__(self, spark: SparkSession, table: Table) -> None:
        super().__init__(spark)
        self._table = table

    @property
    def warning(self) -> str | None:
        """What users of the table must know."""
        back = (
            "until then DROP PARTITION, followed by MSCK REPAIR, ADD PARTITION or an INSERT into that partition, would "
            "bring them back; "
        )
        return (
            "old files stay where they were until `sparkcrypt backfill expire`; "
            f"{back if self._table.partition_columns else ''}"
            f"a job that writes to {base_location(self._table.location)} by path must write to the table now: "
            "its files would be in no table"
        )

    def swap(self, new: NewFiles) -> str:
        """Point the table or partition to the staged folder.

        Raises:
            SourceChangedError: it no longer points to the unit's folder.
        """
        unit = new.unit
        if unit.partition is not None:
            self._move(new, unit.partition, unit.location, new.staged)
            return unit.location
        current = self._read_location(unit)
        if not is_same_place(current, unit.location):
            raise _describe_moved(unit, current)
        self._point_table(new, new.staged)
        return unit.location

    def swap_all(self, several: Sequence[NewFiles]) -> Mapping[str, Exception]:
        """Point several partitions to their staged folders, in one call of the metastore.

        The call may fail, or time out, after it has changed some or all of them: only where they point then tells.  It
        may fail for one of them, so those that it has not changed are swapped one by one.
        """
        partitions = [(new, new.unit.partition) for new in several if new.unit.partition is not None]
        if len(partitions) < len(several):
            return super().swap_all(several)
        failed: dict[str, Exception] = {}
        try:
            moves = [_move_of(new, partition, new.unit.location, new.staged) for new, partition in partitions]
            left = Catalog(self._spark).move_partitions(self._table, moves)
            for new, partition in partitions:
                if partition.folder in left:
                    failed[new.unit.name] = _describe_moved(new.unit, left[partition.folder])
        except (SparkcryptError, *JVM_ERRORS) as error:
            now = self.current_locations([new.unit for new in several])
            for new in several:
                here = now[new.unit.name]
                if here is not None and is_same_place(here, new.staged):
                    continue
                if here is None or not is_same_place(here, new.unit.location):
                    failed[new.unit.name] = _describe_moved(new.unit, here)
                elif len(several) == 1:
                    failed[new.unit.name] = error
                else:
                    failed |= self.swap_all([new])
        return failed

    def undo(self, new: NewFiles, location: str | None = None) -> None:
        """Point the table or partition back to the unit's folder, or to another one, if it is not there already.

        Raises:
            SourceChangedError: it does not point to the staged folder.
        """
        unit, current = new.unit, self._read_location(new.unit)
        to = location or unit.location
        if is_same_place(current, to):
            return
        if not is_same_place(current, new.staged):
            raise SourceChangedError(
                f"{unit.name}: its location is now {current}, neither {unit.location} nor what this run staged; "
                "someone moved it; look at the table, then run again"
            )
        if unit.partition is None:
            self._point_table(new, to)
        else:
            self._move(new, unit.partition, new.staged, to)

    def set_pin(self, new: NewFiles) -> None:
        """Set the pin of the table or partition, which stays where it is."""
        partition = new.unit.partition
        here = None if partition is None else self.current_location(new.unit)
        if partition is None:
            _pin_table(Catalog(self._spark), self._table, new)
        elif here is not None:
            self._move(new, partition, here, here)

    def _point_table(self, new: NewFiles, location: str) -> None:
        catalog = Catalog(self._spark)
        _pin_table(catalog, self._table, new)
        catalog.set_location(self._table, location)

    def _move(self, new: NewFiles, partition: Partition, before: str, location: str) -> None:
        """Point a partition to another folder.

        Raises:
            SourceChangedError: it does not point to the folder before.
        """
        left = Catalog(self._spark).move_partitions(self._table, [_move_of(new, partition, before, location)])
        for current in left.values():
            raise _describe_moved(new.unit, current)

    def current_location(self, unit: Unit) -> str | None:
        """Return the location of the table or partition in the metastore; None if the partition was dropped."""
        return self.current_locations([unit])[unit.name]

    def current_locations(self, units: Sequence[Unit]) -> Mapping[str, str | None]:
        """Return unit -> its location in the metastore, in one query; None if it was dropped."""
        catalog, table = Catalog(self._spark), self._table
        partitions = [unit.partition for unit in units if unit.partition is not None]
        found = catalog.find_partitions(table, partitions) if partitions else {}
        of_table = catalog.table(table.quoted).location if len(partitions) < len(units) else None
        return {
            unit.name: of_table if unit.partition is None else _location_of(found.get(unit.partition.folder))
            for unit in units
        }

    def is_begun(self, new: NewFiles) -> bool:
        """Tell whether the table or partition points to the new files."""
        here = self.current_location(new.unit)
        return here is not None and is_same_place(here, self.final_location(new.unit, new.staged))

    def final_location(self, unit: Unit, staged: str) -> str:
        """Return the staged folder."""
        return staged

    def _read_location(self, unit: Unit) -> str:
        here = self.current_location(unit)
        if here is None:
            raise _describe_moved(unit, None)
        return here


def _move_of(new: NewFiles, partition: Partition, before: str, location: str) -> PartitionMove:
    return PartitionMove(replace(partition, location=before), location, new.pin)


def _location_of(partition: Partition | None) -> str | None:
    return None if partition is None else partition.location


def _describe_moved(unit: Unit, current: str | None) -> SourceChangedError:
    """Return the error that a unit no longer points to its folder."""
    if current is None:
        return SourceChangedError(
            f"{unit.name}: the partition is no longer in the metastore; someone dropped it, run again"
        )
    return SourceChangedError(
        f"{unit.name}: its location is now {current}, not {unit.location}; someone moved it, run again"
    )


class HomeSwap(LocationSwap):
    """A swap by SET LOCATION to the former home of a table or partition, to which the staged folder is renamed before.

    Until the metastore points there, readers of the table have the old files, so a rename that is not followed by
    anything is simply taken back.
    """

    name = "set location to the former home"
    at_once = False
    swap_all = Swap.swap_all

    @property
    def warning(self) -> str | None:
        """What users of the table must know."""
        return (
            "the files are where jobs look for them by path; what such a job writes there is encrypted only if its "
            "session is under the policy; the next run that rewrites the table takes it away from there again"
        )

    def swap(self, new: NewFiles) -> str:
        """Rename the staged folder to the home, and point the table or partition there.

        Raises:
            SourceChangedError: it no longer points to the unit's folder.
            SparkcryptError: the home has files, or a rename failed; what was renamed is renamed back.
        """
        files, home = self._files, self.final_location(new.unit, new.staged)
        refuse_taken_home(files, new.unit.name, home)
        remove_marks(files, home)
        files.make_folder(home.rpartition("/")[0])
        _rename_whole(files, new.staged, home)
        try:
            return super().swap(replace(new, staged=home))
        except (SparkcryptError, *JVM_ERRORS):
            self.put_back(new)
            raise

    def undo(self, new: NewFiles, location: str | None = None) -> None:
        """Point the table or partition back, then rename its home to the staged folder if nothing points there.

        Raises:
            SourceChangedError: it does not point to its home.
        """
        super().undo(replace(new, staged=self.final_location(new.unit, new.staged)), location)
        self.put_back(new)

    def put_back(self, new: NewFiles) -> None:
        """Rename the home to the staged folder, unless the unit points there or the home has other files."""
        files, home = self._files, self.final_location(new.unit, new.staged)
        if not new.lengths or self.is_begun(new) or files.exists(new.staged) or not files.exists(home):
            return
        contents = list_contents(files, files.status(home).path)
        foreign = any(entry.kind != "written" for entry in contents.beside)
        if not foreign and len(contents.data) == len(new.lengths) and not new.list_missing(files, home):
            _rename_whole(files, home, new.staged)

    def final_location(self, unit: Unit, staged: str) -> str:
        """Return the home: the table's original folder, or the partition's folder below it."""
        return former_home(staged, base_location(staged)) or unit.location


class FolderSwap(Swap):
    """A swap by two renames: the unit's folder is moved away, and the staged folder takes its place.

    Args:
        spark: a classic session.
        target: a table without partitions, or a bare folder.
        old: where the run keeps the old folder: beside the table's folder, as that was named when the run began.
    """

    name = "rename"
    same_folder = True
    warning = (
        "the folder was renamed: readers that had listed the old files fail with 'file not found' and must run again"
    )

    def __init__(self, spark: SparkSession, target: Target, old: str) -> None:
        super().__init__(spark)
        self._target, self._old = target, old

    def swap(self, new: NewFiles) -> str:
        """Rename the old folder away and the staged folder to its place; if that fails, rename the old folder back.

        Raises:
            SparkcryptError: a rename failed, or did not move every file.  If files have come to the unit's folder
                meanwhile, the old folder is not renamed back.
        """
        files, location, old = self._files, new.unit.location, self.old_location(new.unit)
        self.set_pin(new)
        files.make_folder(old.rpartition("/")[0])
        try:
            _rename_whole(files, location, old)
            _rename_whole(files, new.staged, location)
        except SparkcryptError:
            self.put_back(new)
            raise
        self._refresh()
        return old

    def undo(self, new: NewFiles, location: str | None = None) -> None:
        """Rename both folders back."""
        files, place = self._files, new.unit.location
        self.set_pin(new)
        if files.exists(place):
            _rename_whole(files, place, new.staged)
        _rename_whole(files, self.old_location(new.unit), place)
        self._refresh()

    def set_pin(self, new: NewFiles) -> None:
        """Set the table's pin; a bare folder has no place for one."""
        if self._target.table is not None:
            _pin_table(Catalog(self._spark), self._target.table, new)

    def current_location(self, unit: Unit) -> str | None:
        """Return the table's location in the metastore, or the bare folder."""
        return next(iter(self._target.locations()), None)

    def put_back(self, new: NewFiles) -> None:
        """Rename the old folder back if there is no folder in its place."""
        files, old = self._files, self.old_location(new.unit)
        if files.exists(old) and not files.exists(new.unit.location):
            _rename_whole(files, old, new.unit.location)
            self._refresh()

    def put_in(self, new: NewFiles) -> None:
        """Rename the staged folder in again if there is no folder in its place, and the old one is kept elsewhere."""
        files, place = self._files, new.unit.location
        if not files.exists(place) and files.exists(new.staged) and self.is_begun(new):
            _rename_whole(files, new.staged, place)
            self._refresh()

    def is_begun(self, new: NewFiles) -> bool:
        """Tell whether the old folder was renamed away."""
        return self._files.exists(self.old_location(new.unit))

    def final_location(self, unit: Unit, staged: str) -> str:
        """Return the unit's folder."""
        return unit.location

    def old_location(self, unit: Unit) -> str:
        """Return the folder to which the run renames the old one."""
        return self._old

    def _refresh(self) -> None:
        if self._target.table is not None:
            self._spark.catalog.refreshTable(self._target.table.quoted)


class NewFolder(Swap):
    """A swap that leaves a bare folder unchanged, and renames the staged folder to the output.

    The output appears whole, or file by file where the file system copies each file of a renamed folder.

    Args:
        spark: a classic session.
        output: the folder.
        slow: whether the file system copies.
    """

    name = "new directory"
    copies = True

    def __init__(self, spark: SparkSession, output: str, *, slow: bool) -> None:
        super().__init__(spark)
        self._output, self._slow = output, slow

    @property
    def warning(self) -> str | None:
        """What users of the folder must know."""
        unchanged = "the source folder is unchanged and still holds the old files"
        if not self._slow:
            return unchanged
        return (
            f"{unchanged}; {self._output} was filled file by file, since this file system cannot rename a folder: "
            "whoever read it before the run had ended may have seen a part"
        )

    def swap(self, new: NewFiles) -> str:
        """Rename the staged folder to the output."""
        self._files.rename(new.staged, self._output)
        return new.unit.location

    def undo(self, new: NewFiles, location: str | None = None) -> None:
        """Rename the output back to the staged folder."""
        self._files.rename(self._output, new.staged)

    def current_location(self, unit: Unit) -> str | None:
        """Return the output folder; None if it does not exist."""
        return self._output if self._files.exists(self._output) else None

    def is_begun(self, new: NewFiles) -> bool:
        """Tell whether the output exists."""
        return self._files.exists(self._output)

    def final_location(self, unit: Unit, staged: str) -> str:
        """Return the output folder."""
        return self._output


def choose_swap(
    table: OpenTable, run_id: str, options: RunOptions, *, resumed: bool = False, base: str | None = None
) -> Swap:
    """Return the swap after which all ordinary operations on the target still work.

    Args:
        table: a table or a folder.
        run_id: the id of the run.
        options: where the new files go: by default beside the table; ``home``, ``output`` or ``exclusive``.
        resumed: whether an ``output`` that already exists may have been written by this run.
        base: the target's original folder when the run began; its present original folder by default.

    Raises:
        ConfigError: the options do not fit the target: a bare folder without ``output`` or ``exclusive``, a table with
            ``output``, an output that already exists, lies inside the source or is on another file system, a way home
            for a table that leaves none, or a rename on a file system that does not rename a folder in one step.
    """
    spark, target = table.spark, table.target
    if options.home:
        return _choose_home_swap(table)
    if target.table is not None:
        if options.output:
            raise ConfigError("--output goes with --path; a table keeps its name, and its new files are made beside it")
        if target.table.managed and not target.table.partition_columns:
            _refuse_slow_rename(table, "make the table external, or partition it")
            return FolderSwap(spark, target, old_folder(base or target.base, run_id))
        return LocationSwap(spark, target.table)
    if options.output:
        return _choose_copy(table, options.output, resumed=resumed)
    if not options.exclusive:
        raise ConfigError(
            "a bare folder has no catalog to swap it: give --output DIR for the encrypted copy, or --exclusive to "
            "rename the folder while nobody reads or writes it"
        )
    _refuse_slow_rename(table, "use --output instead")
    return FolderSwap(spark, target, old_folder(base or target.base, run_id))


def _choose_copy(table: OpenTable, output: str, *, resumed: bool) -> NewFolder:
    files, base = table.files, table.target.base
    qualified = files.qualify(output.rstrip("/"))
    if (qualified + "/").startswith(base + "/"):
        raise ConfigError(f"--output {output} lies inside --path {base}; name a folder beside it")
    if urlsplit(qualified)[:2] != urlsplit(base)[:2]:
        raise ConfigError(
            f"--output {output} is on another file system than --path {base}, so the finished folder cannot be "
            "renamed to it; name one on the same file system, and copy it afterwards"
        )
    if not resumed and files.exists(qualified):
        raise ConfigError(f"--output {output} is there already; name a folder that does not exist")
    return NewFolder(table.spark, qualified, slow=not files.renames_at_once(qualified))


def _choose_home_swap(table: OpenTable) -> HomeSwap:
    """Return the swap that brings a table, or its partitions, back to where jobs look for them by path.

    Raises:
        ConfigError: the target is no table that leaves its folder, or its file system does not rename a folder in one
            step, so that a job could read a part by path.
    """
    target = table.target
    if target.table is None or (target.table.managed and not target.table.partition_columns):
        raise ConfigError(f"--home: no run takes {target.name} away from its folder; leave the option out")
    if not table.files.renames_at_once(target.base):
        raise ConfigError(
            f"--home: {target.name}: its file system copies a renamed folder file by file, so whoever reads "
            f"{target.base} by path would see a part; change the jobs so that they use the table"
        )
    return HomeSwap(table.spark, target.table)


def _pin_table(catalog: Catalog, table: Table, new: NewFiles) -> None:
    if new.pin:
        catalog.set_properties(table, {PIN: new.pin})


def refuse_taken_home(files: HadoopFiles, unit: str, home: str) -> None:
    """Refuse to bring a unit to its former home while that has files.

    Raises:
        VerificationError: it names the home and a file.
    """
    if not files.exists(home):
        return
    contents = list_contents(files, files.status(home).path)
    beside = (f"{home}/{entry.path}" for entry in contents.beside if entry.kind != "written")
    found = [*(file.path for file in contents.data), *beside]
    if found:
        more = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
        raise VerificationError(
            f"{unit}: cannot come back to {home}, since {found[0]}{more} is there; old files go with `sparkcrypt "
            "backfill expire`, which also names files that are in no table; nothing was changed"
        )


def _refuse_slow_rename(table: OpenTable, instead: str) -> None:
    target = table.target
    if not table.files.renames_at_once(target.base):
        raise ConfigError(
            f"{target.name}: is swapped by renaming its folder {target.base}, which this file system does file by "
            f"file, so that readers would see a part and a killed run leave one; {instead}"
        )


def _rename_whole(files: HadoopFiles, source: str, target: str) -> None:
    """Rename a folder, and check that every data file is at its new place and the folder no longer at its former one.

    Raises:
        SparkcryptError: the file system refused, or moved only a part.
    """
    before = {place: file.length for place, file in by_place(source, list_folders(files, source)).items()}
    files.rename(source, target)
    lost = missing_files(before, by_place(target, list_folders(files, target)))
    if lost or files.exists(source):
        what = f"{lost[0]} is not in {target}" if lost else f"{source} is there again"
        raise VerificationError(
            f"{source} was renamed to {target}, and {what}, or is of another length; nothing more was changed"
        )

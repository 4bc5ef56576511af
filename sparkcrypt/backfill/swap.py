"""Swaps: three ways to put a unit's staged files into use, each with an undo.

A table is swapped by SET LOCATION, a single change in the metastore; readers in flight keep the old files.  This does
not work for a managed table without partitions: Spark's RENAME TABLE and ``saveAsTable`` with overwrite assume that
such a table lies in its default folder, and do not find its data elsewhere.  Its folder is renamed instead, and readers
in flight fail.  A bare folder is copied to a new one, or renamed as a whole.  No file is ever replaced in place: a
reader that had listed it would silently read the wrong bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from sparkcrypt.backfill.target.target import Target
from sparkcrypt.backfill.target.unit import Unit, old_folder
from sparkcrypt.errors import ConfigError, SourceChangedError, SparkcryptError, VerificationError
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Swap(Protocol):
    """One way to put a unit's staged files into use.

    If ``same_folder`` is set, the new files must have other names than the old ones: a reader that had listed an old
    file would read a new file of the same name with the old one's length, and silently lose rows.
    """

    @property
    def same_folder(self) -> bool:
        """Whether the new files are put into the folder in which the old ones were."""

    @property
    def repoints(self) -> bool:
        """Whether the metastore is pointed to the new files; the old ones stay in place, and an undo points to them."""

    @property
    def copies(self) -> bool:
        """Whether the new files are a copy; the source stays in use, so its files are not old files."""

    @property
    def name(self) -> str:
        """The name of the swap in reports."""

    @property
    def warning(self) -> str | None:
        """What users of the table must know after the swap."""

    def swap(self, unit: Unit, staged: str) -> str:
        """Put the staged folder into use for the unit; return where the old files are afterwards."""

    def undo(self, unit: Unit, staged: str, location: str | None = None) -> None:
        """Put the old files back into use; the new files are in the staged folder afterwards.

        Args:
            unit: the unit as it was listed.
            staged: the folder in which its new files were made.
            location: the folder to which a swap that ``repoints`` points the unit; its listed location by default.
        """

    def in_effect(self, unit: Unit, staged: str) -> bool:
        """Tell whether the swap has happened; a half-done one is undone first, or an error is raised."""

    def final_location(self, unit: Unit, staged: str) -> str:
        """Return where the new files are after the swap."""

    def old_location(self, unit: Unit) -> str:
        """Return where the old files are after the swap."""


@dataclass(frozen=True, slots=True)
class LocationSwap:
    """A swap by ALTER TABLE … SET LOCATION, of a table or of a partition."""

    spark: SparkSession
    table: Table
    same_folder: bool = False
    repoints: bool = True
    copies: bool = False
    name: str = "set location"
    warning: str | None = (
        "old files stay where they were until `sparkcrypt backfill expire`; until then DROP PARTITION, followed by "
        "MSCK REPAIR, ADD PARTITION or an INSERT into that partition, would bring them back"
    )

    def swap(self, unit: Unit, staged: str) -> str:
        """Point the table or partition to the staged folder.

        Raises:
            SourceChangedError: it no longer points to the unit's folder.
        """
        current = self._read_location(unit)
        if current != _make_comparable(unit.location):
            raise SourceChangedError(
                f"{unit.name}: its location is now {current}, not {unit.location}; someone moved it, run again"
            )
        Catalog(self.spark).set_location(self.table, staged, unit.partition)
        return unit.location

    def undo(self, unit: Unit, staged: str, location: str | None = None) -> None:
        """Point the table or partition back to the unit's folder, or to another one.

        Raises:
            SourceChangedError: it does not point to the staged folder.
        """
        current = self._read_location(unit)
        if current != _make_comparable(staged):
            raise SourceChangedError(
                f"{unit.name}: its location is now {current}, neither {unit.location} nor what this run staged; "
                "someone moved it; look at the table, then run again"
            )
        Catalog(self.spark).set_location(self.table, location or unit.location, unit.partition)

    def in_effect(self, unit: Unit, staged: str) -> bool:
        """Tell whether the table or partition points to the staged folder."""
        return self._read_location(unit) == _make_comparable(staged)

    def final_location(self, unit: Unit, staged: str) -> str:
        """Return the staged folder."""
        return staged

    def old_location(self, unit: Unit) -> str:
        """Return the unit's folder, in which the old files stay."""
        return unit.location

    def _read_location(self, unit: Unit) -> str:
        catalog, table = Catalog(self.spark), self.table
        if unit.partition is None:
            return _make_comparable(catalog.table(table.quoted).location)
        for partition in catalog.partitions(table, dict(unit.partition.values)):
            if partition.values == unit.partition.values:
                return _make_comparable(partition.location)
        raise SourceChangedError(
            f"{unit.name}: the partition is no longer in the metastore; someone dropped it, run again"
        )


@dataclass(frozen=True, slots=True)
class FolderSwap:
    """A swap by two renames: the unit's folder is moved away, and the staged folder takes its place.

    Attributes:
        old: where the run keeps the old folder: beside the table's folder, as that was named when the run began.
    """

    spark: SparkSession
    target: Target
    old: str
    same_folder: bool = True
    repoints: bool = False
    copies: bool = False
    name: str = "rename"
    warning: str | None = (
        "the folder was renamed: readers that had listed the old files fail with 'file not found' and must run again"
    )

    def swap(self, unit: Unit, staged: str) -> str:
        """Rename the old folder away and the staged folder to its place; undo the first rename if the second fails."""
        files, old = HadoopFiles(self.spark), self.old_location(unit)
        files.make_folder(old.rpartition("/")[0])
        files.rename(unit.location, old)
        try:
            files.rename(staged, unit.location)
        except SparkcryptError:
            files.rename(old, unit.location)
            raise
        self._refresh()
        return old

    def undo(self, unit: Unit, staged: str, location: str | None = None) -> None:
        """Rename both folders back."""
        files = HadoopFiles(self.spark)
        if files.exists(unit.location):
            files.rename(unit.location, staged)
        files.rename(self.old_location(unit), unit.location)
        self._refresh()

    def in_effect(self, unit: Unit, staged: str) -> bool:
        """Tell whether both renames have happened; if only the first has, rename the old folder back."""
        files, old = HadoopFiles(self.spark), self.old_location(unit)
        if files.exists(old) and not files.exists(unit.location):
            files.rename(old, unit.location)
            self._refresh()
            return False
        return files.exists(old)

    def final_location(self, unit: Unit, staged: str) -> str:
        """Return the unit's folder."""
        return unit.location

    def old_location(self, unit: Unit) -> str:
        """Return the folder to which the run renames the old one."""
        return self.old

    def _refresh(self) -> None:
        if self.target.table is not None:
            self.spark.catalog.refreshTable(self.target.table.quoted)


@dataclass(frozen=True, slots=True)
class NewFolder:
    """A swap that leaves a bare folder unchanged, and renames the staged folder to the output.

    The output appears whole, or file by file where the file system copies each file of a renamed folder.

    Attributes:
        slow: whether the file system copies.
    """

    spark: SparkSession
    output: str
    slow: bool = False
    same_folder: bool = False
    repoints: bool = False
    copies: bool = True
    name: str = "new directory"

    @property
    def warning(self) -> str | None:
        """What users of the folder must know."""
        unchanged = "the source folder is unchanged and still holds the old files"
        if not self.slow:
            return unchanged
        return (
            f"{unchanged}; {self.output} was filled file by file, since this file system cannot rename a folder: "
            "whoever read it before the run had ended may have seen a part"
        )

    def swap(self, unit: Unit, staged: str) -> str:
        """Rename the staged folder to the output."""
        HadoopFiles(self.spark).rename(staged, self.output)
        return unit.location

    def undo(self, unit: Unit, staged: str, location: str | None = None) -> None:
        """Rename the output back to the staged folder."""
        HadoopFiles(self.spark).rename(self.output, staged)

    def in_effect(self, unit: Unit, staged: str) -> bool:
        """Tell whether the output exists.

        Raises:
            VerificationError: the output is incomplete: a rename that copies file by file was interrupted.
        """
        files = HadoopFiles(self.spark)
        if files.exists(self.output) and files.data_files(staged):
            raise VerificationError(
                f"{self.output}: only a part of {staged} was moved there when the run was killed; see that nobody "
                "reads it, rename it, then run again"
            )
        return files.exists(self.output)

    def final_location(self, unit: Unit, staged: str) -> str:
        """Return the output folder."""
        return self.output

    def old_location(self, unit: Unit) -> str:
        """Return the source folder, which is unchanged."""
        return unit.location


def choose_swap(
    spark: SparkSession,
    target: Target,
    run_id: str,
    *,
    output: str | None,
    exclusive: bool,
    resumed: bool = False,
    base: str | None = None,
) -> Swap:
    """Return the swap after which all ordinary operations on the target still work.

    Args:
        spark: a classic session.
        target: a table or a folder.
        run_id: the id of the run.
        output: the folder for the copy of a bare folder.
        exclusive: whether the operator has stated that nothing reads or writes the bare folder.
        resumed: whether an ``output`` that already exists may have been written by this run.
        base: the target's original folder when the run began; its present original folder by default.

    Raises:
        ConfigError: the options do not fit the target: a bare folder without ``output`` or ``exclusive``, a table with
            ``output``, an output that already exists, lies inside the source or is on another file system, or a rename
            on a file system that does not rename a folder in one step.
    """
    if target.table is not None:
        if output:
            raise ConfigError("--output goes with --path; a table keeps its name, and its new files are made beside it")
        if target.table.managed and not target.table.partition_columns:
            _refuse_slow_rename(spark, target, "make the table external, or partition it")
            return FolderSwap(spark, target, old_folder(base or target.base, run_id))
        return LocationSwap(spark, target.table)
    if output:
        qualified = HadoopFiles(spark).qualify(output.rstrip("/"))
        if (qualified + "/").startswith(target.base + "/"):
            raise ConfigError(f"--output {output} lies inside --path {target.base}; name a folder beside it")
        if urlsplit(qualified)[:2] != urlsplit(target.base)[:2]:
            raise ConfigError(
                f"--output {output} is on another file system than --path {target.base}, so the finished folder "
                "cannot be renamed to it; name one on the same file system, and copy it afterwards"
            )
        if not resumed and HadoopFiles(spark).exists(qualified):
            raise ConfigError(f"--output {output} is there already; name a folder that does not exist")
        return NewFolder(spark, qualified, slow=not HadoopFiles(spark).renames_at_once(qualified))
    if not exclusive:
        raise ConfigError(
            "a bare folder has no catalog to swap it: give --output DIR for the encrypted copy, or --exclusive to "
            "rename the "
            "folder while nobody reads or writes it"
        )
    _refuse_slow_rename(spark, target, "use --output instead")
    return FolderSwap(spark, target, old_folder(base or target.base, run_id))


def _refuse_slow_rename(spark: SparkSession, target: Target, instead: str) -> None:
    if not HadoopFiles(spark).renames_at_once(target.base):
        raise ConfigError(
            f"{target.name}: is swapped by renaming its folder {target.base}, which this file system does file by "
            f"file, so that readers would see a part and a killed run leave one; {instead}"
        )


def _make_comparable(location: str) -> str:
    """Return a location in comparable form: ``file:///x`` and ``file:/x`` become equal."""
    return location.replace("file:///", "file:/").rstrip("/")

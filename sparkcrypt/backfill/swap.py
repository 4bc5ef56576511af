"""How staged files become the table's: three ways, each atomic for those who read, each with its undo.

A table swaps by SET LOCATION, one change in the metastore: readers in flight keep the old files.  A managed table
without partitions cannot: Spark's RENAME TABLE and ``saveAsTable`` with overwrite assume that such a table lies in its
default folder, and lose sight of the data when it does not; so its folder is renamed, and readers in flight fail.  A
bare folder is written to a new one, or renamed as a whole.  A file is never replaced in place: a reader that listed it
before would silently read the wrong bytes.
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
    """One way to put staged files in a unit's place.

    ``same_folder``: new files come where old ones were, so they must have other names: a reader that had listed the old
    ones would read a new file of the same name by the old one's length, and silently lose rows.
    """

    @property
    def same_folder(self) -> bool:
        """New files come where old ones were."""

    @property
    def repoints(self) -> bool:
        """The metastore is pointed to the new files; the old ones stay where they were, and can be pointed to again."""

    @property
    def copies(self) -> bool:
        """The source stays in use, and its files are no old ones: the new files are a copy beside it."""

    @property
    def name(self) -> str:
        """What a report calls it."""

    @property
    def warning(self) -> str | None:
        """What people must know after it."""

    def swap(self, unit: Unit, staged: str) -> str:
        """Put the staged folder in the unit's place; return where the old files are afterwards."""

    def undo(self, unit: Unit, staged: str, location: str | None = None) -> None:
        """Put the old files back; the staged ones are where they were before the swap.

        Args:
            unit: as it was listed.
            staged: where its new files were made.
            location: of a swap that ``repoints``, where the unit is pointed to; by default where it was.
        """

    def in_effect(self, unit: Unit, staged: str) -> bool:
        """Tell whether the swap has happened; a half-done one is finished or undone first."""

    def final_location(self, unit: Unit, staged: str) -> str:
        """Return where the new files are after the swap."""

    def old_location(self, unit: Unit) -> str:
        """Return where the old files are after the swap."""


@dataclass(frozen=True, slots=True)
class LocationSwap:
    """ALTER TABLE or PARTITION … SET LOCATION."""

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
        """Point the table or partition to the staged folder, if it still points to the unit's."""
        current = self._current(unit)
        if current != _plain(unit.location):
            raise SourceChangedError(
                f"{unit.name}: its location is now {current}, not {unit.location}; someone moved it, run again"
            )
        Catalog(self.spark).set_location(self.table, staged, unit.partition)
        return unit.location

    def undo(self, unit: Unit, staged: str, location: str | None = None) -> None:
        """Point it from the staged folder back, or to another one.

        Raises:
            SourceChangedError: it does not point to the staged folder.
        """
        current = self._current(unit)
        if current != _plain(staged):
            raise SourceChangedError(
                f"{unit.name}: its location is now {current}, neither {unit.location} nor what this run staged; "
                "someone moved it; look at the table, then run again"
            )
        Catalog(self.spark).set_location(self.table, location or unit.location, unit.partition)

    def in_effect(self, unit: Unit, staged: str) -> bool:
        """Tell whether it points to the staged folder."""
        return self._current(unit) == _plain(staged)

    def final_location(self, unit: Unit, staged: str) -> str:
        """The staged folder itself."""
        return staged

    def old_location(self, unit: Unit) -> str:
        """Where they were."""
        return unit.location

    def _current(self, unit: Unit) -> str:
        catalog, table = Catalog(self.spark), self.table
        if unit.partition is None:
            return _plain(catalog.table(table.quoted).location)
        for partition in catalog.partitions(table, dict(unit.partition.values)):
            if partition.values == unit.partition.values:
                return _plain(partition.location)
        raise SourceChangedError(
            f"{unit.name}: the partition is no longer in the metastore; someone dropped it, run again"
        )


@dataclass(frozen=True, slots=True)
class FolderSwap:
    """Rename of the whole folder: the old one away, the staged one in its place.

    Attributes:
        old: where the run keeps the old folder: beside the table, as that was called when the run began.
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
        """Rename old away and staged in; when the second fails, the first is undone."""
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
        """Rename both back."""
        files = HadoopFiles(self.spark)
        if files.exists(unit.location):
            files.rename(unit.location, staged)
        files.rename(self.old_location(unit), unit.location)
        self._refresh()

    def in_effect(self, unit: Unit, staged: str) -> bool:
        """Tell whether both renames happened; after the first alone, the old folder is put back."""
        files, old = HadoopFiles(self.spark), self.old_location(unit)
        if files.exists(old) and not files.exists(unit.location):
            files.rename(old, unit.location)
            self._refresh()
            return False
        return files.exists(old)

    def final_location(self, unit: Unit, staged: str) -> str:
        """Where the unit always was."""
        return unit.location

    def old_location(self, unit: Unit) -> str:
        """In a folder of this run's."""
        return self.old

    def _refresh(self) -> None:
        if self.target.table is not None:
            self.spark.catalog.refreshTable(self.target.table.quoted)


@dataclass(frozen=True, slots=True)
class NewFolder:
    """A bare folder stays; the staged one gets the name that was asked for."""

    spark: SparkSession
    output: str
    same_folder: bool = False
    repoints: bool = False
    copies: bool = True
    name: str = "new directory"
    warning: str | None = "the source folder is unchanged and still holds the old files"

    def swap(self, unit: Unit, staged: str) -> str:
        """Rename the staged folder to the output."""
        HadoopFiles(self.spark).rename(staged, self.output)
        return unit.location

    def undo(self, unit: Unit, staged: str, location: str | None = None) -> None:
        """Rename it back."""
        HadoopFiles(self.spark).rename(self.output, staged)

    def in_effect(self, unit: Unit, staged: str) -> bool:
        """Tell whether the output is there.

        Raises:
            VerificationError: only a part of it is: the rename was cut short where it copies file by file.
        """
        files = HadoopFiles(self.spark)
        if files.exists(self.output) and files.data_files(staged):
            raise VerificationError(
                f"{self.output}: only a part of {staged} was moved there when the run was killed; see that nobody "
                "reads it, rename it, then run again"
            )
        return files.exists(self.output)

    def final_location(self, unit: Unit, staged: str) -> str:
        """The output."""
        return self.output

    def old_location(self, unit: Unit) -> str:
        """The source, which is unchanged."""
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
    """Choose the way that leaves every ordinary operation working.

    Args:
        spark: a classic session.
        target: a table or a folder.
        run_id: of the run.
        output: where the copy of a bare folder goes.
        exclusive: nobody reads or writes the bare folder.
        resumed: an ``output`` that is there already may be this run's own.
        base: the target's original folder when the run began; where it is now by default.

    Raises:
        ConfigError: a bare folder without ``output`` or ``exclusive``, an output that is there already, or a folder
            that is to be renamed where that is not one step.
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
        return NewFolder(spark, qualified)
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


def _plain(location: str) -> str:
    """Return a location as it is compared: ``file:///x`` and ``file:/x`` are one."""
    return location.replace("file:///", "file:/").rstrip("/")

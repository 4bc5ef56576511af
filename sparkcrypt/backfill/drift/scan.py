"""Scans a target: units are listed, and the footers of their files compared with the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sparkcrypt.backfill.drift.cache import FooterCache
from sparkcrypt.backfill.drift.columns import FileColumns, match_columns
from sparkcrypt.backfill.drift.difference import Drift, drift_of_file, missing_folder, unreadable
from sparkcrypt.backfill.drift.footers import (
    DriverFooters,
    FooterReader,
    Footers,
    RetrieveKey,
    TaskFooters,
    own_keys,
    sort_footers,
)
from sparkcrypt.backfill.drift.inherited import Inherited, find_inherited
from sparkcrypt.backfill.drift.rotation import Rotation, select_drift
from sparkcrypt.backfill.target.target import Target
from sparkcrypt.backfill.target.unit import Unit, list_unit, partition_of
from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.native.footers import Found
from sparkcrypt.parquet import FileSummary
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.tags.lineage import ColumnLineage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class ScannedUnit:
    """A unit, and what was found of its files.

    Attributes:
        unit: the unit, listed.
        summaries: file -> what its footer says.
        columns: file -> its columns, matched with the plan's.
        drift: how they differ from the plan; none: nothing is to do.
        codecs: file -> its codecs.
        inherited: columns that are encrypted by tags which the table lacks.
        lineage: file -> where its columns came from.
        rotation: of a master key, for which it was scanned; then the drift is what that has to do with.
    """

    unit: Unit
    summaries: Mapping[str, FileSummary]
    columns: Mapping[str, FileColumns]
    drift: tuple[Drift, ...]
    codecs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    inherited: tuple[Inherited, ...] = ()
    lineage: Mapping[str, tuple[ColumnLineage, ...]] = field(default_factory=dict)
    rotation: Rotation | None = None


class Scanner:
    """Lists units and compares the footers of their files with the plan; a unit is forgotten once it was yielded.

    Args:
        target: whose units they are.
        files: the file system.
        reader: reads footers.
        cache: facts of files that have not changed since they were read; None reads all.
        rotation: of a master key, whose files are looked for.
    """

    def __init__(
        self,
        target: Target,
        files: HadoopFiles,
        reader: FooterReader,
        cache: FooterCache | None = None,
        rotation: Rotation | None = None,
    ) -> None:
        self._target, self._files, self._reader, self._cache = target, files, reader, cache
        self._rotation = rotation

    def scan(self, units: Iterable[Unit]) -> Iterator[ScannedUnit]:
        """Yield each unit with its drift, some thousand files at a time.

        Raises:
            PlanError: a partition's value cannot stand in a key template, or a unit's files belong to another format.
        """
        batch: list[Unit] = []
        files = 0
        for unit in units:
            listed = list_unit(self._files, unit)
            batch.append(listed)
            files += len(listed.files)
            if files >= FILES_AT_ONCE:
                yield from self._scan(batch)
                batch, files = [], 0
        yield from self._scan(batch)

    def _scan(self, units: Sequence[Unit]) -> Iterator[ScannedUnit]:
        cache = self._cache
        known = {unit.name: self._look_up(unit) for unit in units}
        unknown = [file for unit in units for file in unit.files if file.path not in known[unit.name]]
        found = self._reader.read(unknown)
        for unit in units:
            facts = {
                **known[unit.name],
                **{file.path: found[file.path] for file in unit.files if file.path in found},
            }
            if cache is not None and len(facts) > len(known[unit.name]):
                cache.keep(unit.name, unit.files, facts)
            scanned = scan_footers(unit, sort_footers(facts, unit.files), self._target, self._rotation)
            if not unit.files and not self._files.exists(unit.location):
                scanned = replace(scanned, drift=(missing_folder(unit.location),))
            yield scanned

    def _look_up(self, unit: Unit) -> Mapping[str, Found]:
        """Return what need not be read."""
        if unit.other_format:
            why = f"its partition is not Parquet ({unit.other_format}); convert it, or leave it out by --where"
            return dict.fromkeys((file.path for file in unit.files), UnsupportedFileError(why))
        return {} if self._cache is None else self._cache.find_known(unit.name, unit.files)


def scan_footers(unit: Unit, footers: Footers, target: Target, rotation: Rotation | None = None) -> ScannedUnit:
    """Compare the footers of a unit's files with the plan, and with what a rotation asks.

    Raises:
        PlanError: a file's columns are nested otherwise than the table's, or its partition cannot stand in a key.
    """
    drift: list[Drift] = []
    inherited: list[Inherited] = []
    plan = target.plan
    columns = {path: match_columns(summary, plan) for path, summary in footers.summaries.items()}
    for folder in unit.folders:
        values = partition_of(unit, folder)
        for file in folder.files:
            if file.path in footers.errors:
                drift.append(unreadable(file.path, footers.errors[file.path]))
            else:
                summary, matched = footers.summaries[file.path], columns[file.path]
                found = list(find_inherited(summary, matched, footers.lineage.get(file.path, ())))
                paths = {entry.path for entry in found}
                inherited.extend(found)
                differing = drift_of_file(summary, matched, plan, values, table_uuid=target.uuid, inherited=paths)
                drift.extend(differing if rotation is None else rotation.drift_of(summary, differing))
    told = tuple(drift) if rotation is None else select_drift(tuple(drift))
    return ScannedUnit(
        unit, footers.summaries, columns, told, footers.codecs, tuple(inherited), footers.lineage, rotation
    )


def scan_target(
    spark: SparkSession,
    target: Target,
    policy: Policy,
    *,
    where: str | None = None,
    retrieve_key: RetrieveKey | None = None,
    cache: FooterCache | None = None,
) -> Iterator[ScannedUnit]:
    """Scan a target's units, by tasks of Spark where there are many files.

    Args:
        spark: a classic session.
        target: what is scanned.
        policy: whose key service opens footers.
        where: a predicate over partition columns.
        retrieve_key: opens footers on the driver, and no other does; the policy's key service by default.
        cache: as `Scanner`.
    """
    files = HadoopFiles(spark)
    driver = DriverFooters(files, retrieve_key or own_keys(policy.key_service))
    reader: FooterReader = driver if retrieve_key else TaskFooters(spark, policy.key_service, driver)
    return Scanner(target, files, reader, cache).scan(target.units(where))

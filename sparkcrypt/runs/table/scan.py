"""Scanning a target: listing its units, and comparing the footers of their files with the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sparkcrypt.errors import PlanError, SparkcryptError, StorageError, UnsupportedFileError
from sparkcrypt.files.footers import Found
from sparkcrypt.files.listing import Beside
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.ledger.unit import Unit, list_unit, partition_of
from sparkcrypt.names import FileFormat
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.table.columns import ColumnMatcher, FileColumns, Inherited, find_inherited
from sparkcrypt.runs.table.difference import (
    Drift,
    Rotation,
    TellShredded,
    drift_of_away,
    drift_of_file,
    drift_of_missing_folder,
    drift_of_summary,
    drift_of_unknown,
    drift_of_unlisted_folder,
    drift_of_unreadable,
    find_dark,
    find_dark_drift,
    select_drift,
    tell_none,
)
from sparkcrypt.runs.table.footers import (
    DriverFooters,
    FooterCache,
    FooterReader,
    Footers,
    RetrieveKey,
    TaskFooters,
    own_keys,
    sort_footers,
)
from sparkcrypt.runs.table.target import Target
from sparkcrypt.schema import Path
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.tags.lineage_note import ColumnLineage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES_AT_ONCE = 5_000
_FORMAT_NAMES: Mapping[FileFormat, str] = {"parquet": "Parquet", "orc": "ORC"}


@dataclass(frozen=True, slots=True)
class ScannedUnit:
    """A unit and the results of the scan of its files.

    Attributes:
        unit: the unit, listed.
        summaries: file -> the contents of its footer.
        columns: file -> its columns, matched with the plan's.
        drift: the differences from the plan; empty if there is no work.
        codecs: file -> its codecs.
        inherited: columns that are encrypted by tags which the table lacks.
        lineage: file -> the origins of its columns.
        rotation: the rotation of a master key for which it was scanned, if any; then only drift that concerns it is in
            ``drift``.
        dark: file -> its columns under shredded keys, with these; only if there is drift, or columns are purged.
    """

    unit: Unit
    summaries: Mapping[str, FileSummary]
    columns: Mapping[str, FileColumns]
    drift: tuple[Drift, ...]
    codecs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    inherited: tuple[Inherited, ...] = ()
    lineage: Mapping[str, tuple[ColumnLineage, ...]] = field(default_factory=dict)
    rotation: Rotation | None = None
    dark: Mapping[str, Mapping[Path, str]] = field(default_factory=dict)


class Scanner:
    """Lists units and compares the footers of their files with the plan; keeps only one batch of units in memory.

    Args:
        target: the target of the units.
        files: the file system.
        reader: reads footers.
        cache: facts of files that have not changed since they were read; None reads all.
        rotation: the rotation of a master key, to find the files that it concerns.
        tell_shredded: returns which master keys were shredded; called if a file differs from the plan, or for a purge.
        purge: count columns under shredded keys as drift, since nulls will replace them.
    """

    def __init__(
        self,
        target: Target,
        files: HadoopFiles,
        reader: FooterReader,
        cache: FooterCache | None = None,
        rotation: Rotation | None = None,
        tell_shredded: TellShredded = tell_none,
        *,
        purge: bool = False,
    ) -> None:
        self._target, self._files, self._reader, self._cache = target, files, reader, cache
        self._rotation, self._tell_shredded, self._purge = rotation, tell_shredded, purge

    def scan(self, units: Iterable[Unit]) -> Iterator[ScannedUnit]:
        """Yield each unit with its drift, in batches of some thousand files; a folder that cannot be listed is drift.

        Raises:
            PlanError: a partition's value cannot be used in a key template, or a unit's files belong to another table
                format.
        """
        unlisted: dict[str, StorageError] = {}
        reading = read_units(units, self._files, self._reader, self._cache, self._refuse_serde, unlisted)
        for unit, facts in reading:
            scanned = scan_footers(
                unit,
                sort_footers(facts, unit.files),
                self._target,
                self._rotation,
                tell_shredded=self._tell_shredded,
                purge=self._purge,
            )
            if unit.name in unlisted:
                scanned = replace(scanned, drift=(drift_of_unlisted_folder(unit.location, unlisted[unit.name]),))
            elif not unit.files and not self._files.exists(unit.location):
                scanned = replace(scanned, drift=(drift_of_missing_folder(unit.location),))
            yield scanned

    def _refuse_serde(self, unit: Unit) -> Mapping[str, Found]:
        """Return the error of each file of a partition in another format; its footers are not read."""
        serde = unit.find_other_serde(self._target.format)
        if not serde:
            return {}
        wanted = _FORMAT_NAMES[self._target.format]
        why = f"its partition is not {wanted} ({serde}); convert it, or leave it out by --where"
        return dict.fromkeys((file.path for file in unit.files), UnsupportedFileError(why))


def read_units(
    units: Iterable[Unit],
    files: HadoopFiles,
    reader: FooterReader,
    cache: FooterCache | None = None,
    refuse: Callable[[Unit], Mapping[str, Found]] = lambda _: {},
    unlisted: dict[str, StorageError] | None = None,
) -> Iterator[tuple[Unit, Mapping[str, Found]]]:
    """List units, and yield each with the facts or errors of its files, in batches of some thousand files.

    Args:
        units: the units, not listed.
        files: the file system.
        reader: reads footers.
        cache: facts of files that have not changed since they were read; None reads all.
        refuse: returns the errors of files of a listed unit whose footers are not read.
        unlisted: receives the units that cannot be listed, with the error; None raises it.

    Raises:
        SparkcryptError: a unit cannot be listed, or its files belong to another table format.
    """
    batch: list[Unit] = []
    listed = 0
    for unit in units:
        try:
            batch.append(list_unit(files, unit))
        except StorageError as error:
            if unlisted is None:
                raise
            unlisted[unit.name] = error
            batch.append(unit)
        listed += len(batch[-1].files)
        if listed >= FILES_AT_ONCE:
            yield from _read_batch(batch, reader, cache, refuse)
            batch, listed = [], 0
    yield from _read_batch(batch, reader, cache, refuse)


def _read_batch(
    units: Sequence[Unit],
    reader: FooterReader,
    cache: FooterCache | None,
    refuse: Callable[[Unit], Mapping[str, Found]],
) -> Iterator[tuple[Unit, Mapping[str, Found]]]:
    known = {unit.name: refuse(unit) for unit in units}
    if cache is not None:
        known = {unit.name: known[unit.name] or cache.find_known(unit.name, unit.files) for unit in units}
    found = reader.read([file for unit in units for file in unit.files if file.path not in known[unit.name]])
    for unit in units:
        facts = {**known[unit.name], **{file.path: found[file.path] for file in unit.files if file.path in found}}
        if cache is not None and len(facts) > len(known[unit.name]):
            cache.keep(unit.name, unit.files, facts)
        yield unit, facts


def scan_footers(
    unit: Unit,
    footers: Footers,
    target: Target,
    rotation: Rotation | None = None,
    *,
    tell_shredded: TellShredded = tell_none,
    purge: bool = False,
) -> ScannedUnit:
    """Compare the footers of a unit's files with the plan, and with a rotation.

    Args:
        unit: the unit, listed.
        footers: the footers of its files.
        target: the target with the plan.
        rotation: the rotation of a master key for which the files are scanned, if any.
        tell_shredded: returns which master keys were shredded; called if a file differs, or for a purge.
        purge: count columns under shredded keys as drift, since nulls will replace them.

    Raises:
        PlanError: a partition's value cannot be used in a key template.
    """
    footers, columns = _match_columns(_part_other_formats(footers, target.format), target.plan)
    summaries = footers.summaries
    inherited = {
        path: tuple(find_inherited(summary, columns[path], footers.lineage.get(path, ())))
        for path, summary in summaries.items()
    }
    scanned = ScannedUnit(
        unit,
        summaries,
        columns,
        (),
        footers.codecs,
        tuple(found for file in unit.files for found in inherited.get(file.path, ())),
        footers.lineage,
        rotation,
    )
    scanned = replace(scanned, drift=_find_drift(scanned, footers.errors, target))
    if not scanned.drift and not purge:
        return scanned
    dark = {path: found for path, summary in summaries.items() if (found := find_dark(summary, tell_shredded))}
    if not dark:
        return scanned
    scanned = replace(scanned, dark=dark)
    drift = _find_drift(scanned, footers.errors, target)
    return replace(scanned, drift=(*drift, *find_dark_drift(dark)) if purge else drift)


def add_way_home(scanned: ScannedUnit, home: str) -> ScannedUnit:
    """Count it as drift that a unit is away from its former home."""
    return replace(scanned, drift=(*scanned.drift, drift_of_away(scanned.unit.location, home)))


def _part_other_formats(footers: Footers, expected: FileFormat) -> Footers:
    """Return the footers, with errors in place of those whose format is not the target's."""
    errors = {
        path: UnsupportedFileError(
            f"is a file of {_FORMAT_NAMES[summary.format]} among files of {_FORMAT_NAMES[expected]}; a table's files, "
            "and those of a folder, are of one format: move it elsewhere"
        )
        for path, summary in footers.summaries.items()
        if summary.format != expected
    }
    if not errors:
        return footers
    summaries = {path: summary for path, summary in footers.summaries.items() if path not in errors}
    return replace(footers, summaries=summaries, errors={**footers.errors, **errors})


def _match_columns(footers: Footers, plan: EncryptionPlan) -> tuple[Footers, dict[str, FileColumns]]:
    """Match the columns of files with the table's; a file whose columns cannot be read into these has an error."""
    matcher, columns, errors = ColumnMatcher(plan), {}, dict(footers.errors)
    for path, summary in footers.summaries.items():
        try:
            columns[path] = matcher.match(summary)
        except PlanError as error:
            errors[path] = error
    if len(errors) == len(footers.errors):
        return footers, columns
    return replace(footers, summaries={path: footers.summaries[path] for path in columns}, errors=errors), columns


def _find_drift(scanned: ScannedUnit, errors: Mapping[str, SparkcryptError], target: Target) -> tuple[Drift, ...]:
    inherited: dict[str, set[Path]] = {}
    for entry in scanned.inherited:
        inherited.setdefault(entry.file, set()).add(entry.path)
    drift: list[Drift] = []
    rotation = scanned.rotation
    for folder in scanned.unit.folders:
        values = partition_of(scanned.unit, folder)
        for file in folder.files:
            if file.path in errors:
                drift.append(drift_of_unreadable(file.path, errors[file.path]))
                continue
            summary, matched = scanned.summaries[file.path], scanned.columns[file.path]
            differing = drift_of_file(
                summary,
                matched,
                target.plan,
                values,
                table_uuid=target.uuid,
                inherited=inherited.get(file.path, ()),
                dark=scanned.dark.get(file.path, ()),
            )
            differing = (*differing, *drift_of_unknown(summary, matched, target.plan))
            drift.extend(differing if rotation is None else rotation.drift_of(summary, differing))
    if rotation is not None:
        return select_drift(tuple(drift))
    place, summaries = scanned.unit.location.rstrip("/"), list_summaries(scanned.unit, target.plan)
    return (*drift, *(drift_of_summary(f"{place}/{entry.path}") for entry in summaries))


def list_summaries(unit: Unit, plan: EncryptionPlan) -> tuple[Beside, ...]:
    """Return the summaries of footers beside a unit's files, if the plan encrypts columns."""
    return tuple(entry for entry in unit.beside if entry.kind == "summary" and plan.encrypted)


def scan_target(
    spark: SparkSession,
    target: Target,
    policy: Policy,
    *,
    where: str | None = None,
    retrieve_key: RetrieveKey | None = None,
    cache: FooterCache | None = None,
    tell_shredded: TellShredded = tell_none,
) -> Iterator[ScannedUnit]:
    """Scan a target's units, in Spark tasks if there are many files.

    Args:
        spark: a classic session.
        target: the target to scan.
        policy: names the key service that opens footers.
        where: a predicate over partition columns.
        retrieve_key: opens all footers, on the driver; by default the policy's key service is used.
        cache: as `Scanner`.
        tell_shredded: as `Scanner`.
    """
    files = HadoopFiles(spark)
    driver = DriverFooters(files, retrieve_key or own_keys(policy.key_service))
    reader: FooterReader = driver if retrieve_key else TaskFooters(spark, policy.key_service, driver)
    return Scanner(target, files, reader, cache, tell_shredded=tell_shredded).scan(target.units(where))

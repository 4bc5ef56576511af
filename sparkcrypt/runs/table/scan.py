"""Scanning a target: listing its units, and comparing the footers of their files with the plan."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from sparkcrypt.errors import PlanError, SparkcryptError, StorageError, UnsupportedFileError
from sparkcrypt.files.footers import Found
from sparkcrypt.files.format import FORMATS
from sparkcrypt.files.listing import Beside
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.ledger.unit import Unit, list_unit, partition_of
from sparkcrypt.log_lines import log_as_here
from sparkcrypt.names import FileFormat
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.runs.table.cache import FooterCache
from sparkcrypt.runs.table.columns import ColumnMatcher, Inherited, ScannedFile, find_inherited
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
from sparkcrypt.runs.table.footers import DriverFooters, FooterReader, TaskFooters, own_keys
from sparkcrypt.runs.table.target import Target
from sparkcrypt.spark.files.hadoop import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES_AT_ONCE = 5_000
LISTERS = 4
"""The number of threads that list the folders of units."""
LISTED_AHEAD = 16
"""The most units that are listed, or wait for it, before their turn has come."""
T = TypeVar("T")


class _End:
    """What follows the last item."""


_END = _End()


@dataclass(frozen=True, slots=True)
class ScannedUnit:
    """A unit and the results of the scan of its files.

    Attributes:
        unit: the unit, listed.
        files: path -> what is known of the file, for those that could be read.
        drift: the differences from the plan; empty if there is no work.
        rotation: the rotation of a master key for which it was scanned, if any; then only drift that concerns it is in
            ``drift``.
    """

    unit: Unit
    files: Mapping[str, ScannedFile]
    drift: tuple[Drift, ...]
    rotation: Rotation | None = None

    @property
    def summaries(self) -> Mapping[str, FileSummary]:
        """Path of a file -> the contents of its footer."""
        return {path: file.summary for path, file in self.files.items()}

    @property
    def inherited(self) -> tuple[Inherited, ...]:
        """Columns that are encrypted by tags which the table lacks."""
        return tuple(entry for file in self.files.values() for entry in file.inherited)


@dataclass(frozen=True, slots=True)
class Scanner:
    """Lists units and compares the footers of their files with the plan.

    While a batch of units is compared, the next one is read, and the one after that is listed; no more is in memory.

    Attributes:
        target: the target of the units.
        files: the file system.
        reader: reads footers.
        cache: facts of files that have not changed since they were read; None reads all.
        rotation: the rotation of a master key, to find the files that it concerns.
        tell_shredded: returns which master keys were shredded; called if a file differs from the plan, or for a purge.
        purge: count columns under shredded keys as drift, since nulls will replace them.
    """

    target: Target
    files: HadoopFiles
    reader: FooterReader
    cache: FooterCache | None = None
    rotation: Rotation | None = None
    tell_shredded: TellShredded = tell_none
    purge: bool = False

    def scan(self, units: Iterable[Unit]) -> Iterator[ScannedUnit]:
        """Yield each unit with its drift, in batches of some thousand files; a folder that cannot be listed is drift.

        Raises:
            PlanError: a partition's value cannot be used in a key template, or a unit's files belong to another table
                format.
        """
        unlisted: dict[str, StorageError] = {}
        reading = read_units(units, self.files, self.reader, self.cache, self._refuse_serde, unlisted)
        for unit, facts in reading:
            scanned = scan_footers(
                unit, facts, self.target, self.rotation, tell_shredded=self.tell_shredded, purge=self.purge
            )
            if unit.name in unlisted:
                scanned = replace(scanned, drift=(drift_of_unlisted_folder(unit.location, unlisted[unit.name]),))
            elif not unit.files and not self.files.exists(unit.location):
                scanned = replace(scanned, drift=(drift_of_missing_folder(unit.location),))
            yield scanned

    def _refuse_serde(self, unit: Unit) -> Mapping[str, Found]:
        """Return the error of each file of a partition in another format; its footers are not read."""
        serde = unit.find_other_serde(self.target.format)
        if not serde:
            return {}
        wanted = FORMATS[self.target.format].title
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
    """List units, and yield each with the facts or errors of its files, in their order; see `list_batches`.

    While the caller works on the units of a batch, the next one is read.

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
    batches = list_batches(units, files, unlisted)
    for read in _work_ahead(list(_read_batch(batch, reader, cache, refuse)) for batch in batches):
        yield from read


def list_batches(
    units: Iterable[Unit], files: HadoopFiles, unlisted: dict[str, StorageError] | None = None
) -> Iterator[Sequence[Unit]]:
    """List units by a few threads, and yield them in their order, in batches of some thousand files.

    While the caller works on a batch the next one is listed, and no more than that.

    Args:
        units: the units, not listed.
        files: the file system.
        unlisted: receives the units that cannot be listed, with the error; None raises it.

    Raises:
        SparkcryptError: a unit cannot be listed, or its files belong to another table format.
    """

    def list_one(unit: Unit) -> Unit:
        try:
            return list_unit(files, unit)
        except StorageError as error:
            if unlisted is None:
                raise
            unlisted[unit.name] = error
            return unit

    return _work_ahead(_gather_batches(_list_in_order(units, list_one)))


def _list_in_order(units: Iterable[Unit], list_one: Callable[[Unit], Unit]) -> Iterator[Unit]:
    waiting: deque[Future[Unit]] = deque()
    with ThreadPoolExecutor(LISTERS, "listing") as pool:
        try:
            for unit in units:
                waiting.append(pool.submit(list_one, unit))
                if len(waiting) > LISTED_AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _gather_batches(units: Iterable[Unit]) -> Iterator[Sequence[Unit]]:
    batch: list[Unit] = []
    listed = 0
    for unit in units:
        batch.append(unit)
        listed += len(unit.files)
        if listed >= FILES_AT_ONCE:
            yield batch
            batch, listed = [], 0
    if batch:
        yield batch


def _work_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield what an iterator yields; from the second item on, a thread of its own makes the next one meanwhile."""
    first = next(items, _END)
    if isinstance(first, _End):
        return
    with ThreadPoolExecutor(1, "ahead", log_as_here()) as pool:
        item: T | _End = first
        while not isinstance(item, _End):
            waiting = pool.submit(next, items, _END)
            yield item
            item = waiting.result()


def _read_batch(
    units: Sequence[Unit],
    reader: FooterReader,
    cache: FooterCache | None,
    refuse: Callable[[Unit], Mapping[str, Found]],
) -> Iterator[tuple[Unit, Mapping[str, Found]]]:
    known = {unit.name: refuse(unit) for unit in units}
    if cache is not None:
        cached = cache.find_known(units)
        known = {name: refused or cached.get(name, {}) for name, refused in known.items()}
    read = reader.read([file for unit in units for file in unit.files if file.path not in known[unit.name]])
    found = {
        unit.name: {**known[unit.name], **{file.path: read[file.path] for file in unit.files if file.path in read}}
        for unit in units
    }
    if cache is not None:
        cache.keep(units, found, {name for name, facts in found.items() if len(facts) > len(known[name])})
    yield from ((unit, found[unit.name]) for unit in units)


def scan_footers(
    unit: Unit,
    found: Mapping[str, Found],
    target: Target,
    rotation: Rotation | None = None,
    *,
    tell_shredded: TellShredded = tell_none,
    purge: bool = False,
) -> ScannedUnit:
    """Compare the footers of a unit's files with the plan, and with a rotation.

    Args:
        unit: the unit, listed.
        found: the footers of its files, or the errors of reading them.
        target: the target with the plan.
        rotation: the rotation of a master key for which the files are scanned, if any.
        tell_shredded: returns which master keys were shredded; called if a file differs, or for a purge.
        purge: count columns under shredded keys as drift, since nulls will replace them.

    Raises:
        PlanError: a partition's value cannot be used in a key template.
    """
    matcher, files, errors = ColumnMatcher(target.plan), dict[str, ScannedFile](), dict[str, SparkcryptError]()
    for source in unit.files:
        file = _match_file(found[source.path], matcher, target.format)
        if isinstance(file, SparkcryptError):
            errors[source.path] = file
        else:
            files[source.path] = file
    scanned = ScannedUnit(unit, files, (), rotation)
    scanned = replace(scanned, drift=_find_drift(scanned, errors, target))
    if not scanned.drift and not purge:
        return scanned
    dark = {path: columns for path, file in files.items() if (columns := find_dark(file.summary, tell_shredded))}
    if not dark:
        return scanned
    files = {**files, **{path: replace(files[path], dark=columns) for path, columns in dark.items()}}
    scanned = replace(scanned, files=files)
    drift = _find_drift(scanned, errors, target)
    return replace(scanned, drift=(*drift, *find_dark_drift(files.values())) if purge else drift)


def _match_file(found: Found, matcher: ColumnMatcher, expected: FileFormat) -> ScannedFile | SparkcryptError:
    """Match a file's columns with the table's; a file of another format, or that does not match, has an error."""
    if isinstance(found, SparkcryptError):
        return found
    summary = found.summary
    if summary.format != expected:
        return UnsupportedFileError(
            f"is a file of {FORMATS[summary.format].title} among files of {FORMATS[expected].title}; a table's files, "
            "and those of a folder, are of one format: move it elsewhere"
        )
    try:
        columns = matcher.match(summary)
    except PlanError as error:
        return error
    return ScannedFile(found, columns, tuple(find_inherited(summary, columns, found.lineage)))


def add_way_home(scanned: ScannedUnit, home: str) -> ScannedUnit:
    """Count it as drift that a unit is away from its former home."""
    return replace(scanned, drift=(*scanned.drift, drift_of_away(scanned.unit.location, home)))


def _find_drift(scanned: ScannedUnit, errors: Mapping[str, SparkcryptError], target: Target) -> tuple[Drift, ...]:
    drift: list[Drift] = []
    rotation = scanned.rotation
    for folder in scanned.unit.folders:
        values = partition_of(scanned.unit, folder)
        for file in folder.files:
            if file.path in errors:
                drift.append(drift_of_unreadable(file.path, errors[file.path]))
                continue
            known = scanned.files[file.path]
            differing = drift_of_file(known, target.plan, values, table_uuid=target.uuid)
            differing = (*differing, *drift_of_unknown(known, target.plan))
            drift.extend(differing if rotation is None else rotation.drift_of(known.summary, differing))
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
    keys: KeyServiceConfig,
    *,
    where: str | None = None,
    cache: FooterCache | None = None,
    tell_shredded: TellShredded = tell_none,
) -> Iterator[ScannedUnit]:
    """Scan a target's units, in Spark tasks if there are many files.

    Args:
        spark: a classic session.
        target: the target to scan.
        keys: the key service that opens footers.
        where: a predicate over partition columns.
        cache: as `Scanner`.
        tell_shredded: as `Scanner`.
    """
    files = HadoopFiles(spark)
    reader = TaskFooters(spark, keys, DriverFooters(files, own_keys(keys)))
    return Scanner(target, files, reader, cache, tell_shredded=tell_shredded).scan(target.units(where))

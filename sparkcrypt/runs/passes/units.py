"""The units of a run: all are surveyed before any is changed; each is listed again, and taken through its steps.

A survey may be old and come from a cache, so the footers of a unit's files are read again before it is rewritten.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sparkcrypt.errors import SourceChangedError, SparkcryptError, StorageError
from sparkcrypt.ledger.journal.entries import UnitFailed
from sparkcrypt.ledger.journal.journal import Journal, start_of_run
from sparkcrypt.ledger.unit import Unit, former_home, list_folders
from sparkcrypt.paths import comparable_path
from sparkcrypt.runs.rewrite.context import ANSWER_SECONDS
from sparkcrypt.runs.rewrite.engine import FAILURES
from sparkcrypt.runs.rewrite.keks import rotation_of
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import WRITTEN_IN_CLEAR
from sparkcrypt.runs.rewrite.schedule import ENDS_THE_RUN, Result
from sparkcrypt.runs.rewrite.swap import refuse_taken_home
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter, recheck
from sparkcrypt.runs.table.cache import FooterCache
from sparkcrypt.runs.table.difference import Drift, drift_in_short, drift_of_summary
from sparkcrypt.runs.table.disposal import find_foreign, find_summaries_above, name_foreign
from sparkcrypt.runs.table.footers import FooterReader
from sparkcrypt.runs.table.in_use import Places, refuse_used
from sparkcrypt.runs.table.open_table import OpenTable
from sparkcrypt.runs.table.scan import ScannedUnit, Scanner, add_way_home
from sparkcrypt.runs.table.target import Target
from sparkcrypt.runs.table.unit_survey import UnitSurvey, survey_unit
from sparkcrypt.runs.table.untouchable import find_suspicious, refuse_unit
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.jvm.failures import find_storage_error
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS, read_java_error
from sparkcrypt.text import count_of

PAUSES_SECONDS = (1.0, 2.0, 5.0, 10.0, 20.0)
"""How long a run waits before it retries units to which another process wrote."""


@dataclass(frozen=True, slots=True)
class UnitWork:
    """The work on the units of a run.

    Attributes:
        rewriter: takes units through their steps.
        reader: reads the footers of its files again, since the survey may be old and come from a cache.
        options: the run's options.
        refuse_replayed: refuses a unit with a file that has another's place in the audit's list.
    """

    rewriter: UnitRewriter
    reader: FooterReader
    options: RunOptions
    refuse_replayed: Callable[[Unit], None]

    def locate(self, surveys: Sequence[UnitSurvey]) -> list[UnitSurvey]:
        """Return units with their present locations in the metastore, without those that were dropped.

        Raises:
            SourceChangedError: the table was dropped and re-created under its name.
        """
        self.rewriter.run.table.target.refuse_other_table()
        now = {unit.name: unit for unit in self.rewriter.run.table.target.units(self.options.where)}
        return [replace(survey, unit=now[survey.name]) for survey in surveys if survey.name in now]

    def process_all(self, surveys: Sequence[UnitSurvey]) -> list[Result]:
        """List the units of a batch and read their footers again, then take them through their steps.

        Returns:
            For each its outcome; its error, a SourceChangedError if its files have changed since the listing; or None
            if no file differs from the plan any more, or it is at home again.  Errors of Spark, Hadoop and the file
            system are of this package too.

        Raises:
            SparkcryptError: an error that ends the run.
        """
        results: dict[str, Result] = {}
        todo: list[tuple[ScannedUnit, tuple[str, ...]]] = []
        for survey in surveys:
            self.rewriter.run.table.progress.step(survey.name, "listing")
        for survey, scanned in zip(surveys, self._scan(surveys), strict=True):
            try:
                if isinstance(scanned, SparkcryptError):
                    raise scanned
                home = self._find_home(scanned)
                scanned = scanned if home is None else add_way_home(scanned, home)
                if not scanned.drift or (self.options.home and home is None):
                    self.rewriter.run.table.progress.advance(survey.amount.files, survey.total_bytes, 1)
                    results[survey.name] = None
                else:
                    todo.append((scanned, self._prepare(scanned, home)))
            except ENDS_THE_RUN:
                raise
            except FAILURES as error:
                results[survey.name] = error if isinstance(scanned, SparkcryptError) else self._explain(scanned, error)
        processed = self.rewriter.process_all(todo) if todo else []
        for (scanned, _), result in zip(todo, processed, strict=True):
            name = scanned.unit.name
            results[name] = self._explain(scanned, result) if isinstance(result, BaseException) else result
        return [results[survey.name] for survey in surveys]

    def _scan(self, surveys: Sequence[UnitSurvey]) -> list[ScannedUnit | SparkcryptError]:
        """Scan units; if that fails for all at once, one by one, to tell which it fails for."""
        run = self.rewriter.run
        scanner = Scanner(
            run.table.target,
            run.table.files,
            self.reader,
            rotation=rotation_of(self.options, run.table.trust),
            tell_shredded=run.table.trust.shredded.select,
            purge=self.options.purge,
        )
        try:
            return list(scanner.scan([survey.unit for survey in surveys]))
        except ENDS_THE_RUN:
            raise
        except SparkcryptError as error:
            if len(surveys) == 1:
                return [error]
            return [scanned for survey in surveys for scanned in self._scan([survey])]

    def _find_home(self, scanned: ScannedUnit) -> str | None:
        if not self.options.home:
            return None
        return former_home(scanned.unit.location, self.rewriter.run.table.target.base)

    def _prepare(self, scanned: ScannedUnit, home: str | None) -> tuple[str, ...]:
        """Refuse a unit that must not be rewritten; return notes for its outcome."""
        run = self.rewriter.run
        self._refuse_moved(scanned)
        if home is not None:
            places = run.table.in_use.look(afresh=True, seconds_old=ANSWER_SECONDS)
            refuse_home(run.table.files, places, scanned.unit.name, home)
        notes = _note_adopted(self._find_adoptable(scanned))  # refuses damaged files, by a better reason
        self.refuse_replayed(scanned.unit)
        return (*notes, *self._note_left(scanned.unit))

    def _explain(self, scanned: ScannedUnit, error: BaseException) -> BaseException:
        """Return the error of a unit as one of this package, which says so if its files have changed since the listing.

        Raises:
            SparkcryptError: an error that ends the run.
        """
        unit = scanned.unit
        if isinstance(error, ENDS_THE_RUN) or not isinstance(error, FAILURES):
            raise error
        if isinstance(error, SourceChangedError):
            return error
        try:
            refuse_changed(self.rewriter.run.table.files, unit, error)
        except SourceChangedError as changed:
            return changed
        made: SparkcryptError
        if isinstance(error, SparkcryptError):
            return error
        if isinstance(error, JVM_ERRORS):
            of_files = find_storage_error(error)
            made = SparkcryptError(f"{unit.name}: {': '.join(read_java_error(error))}")
            made = made if of_files is None else StorageError(f"{unit.name}: {of_files}")
        else:
            made = StorageError(f"{unit.name}: {error}")
        made.__cause__ = error
        return made

    def _refuse_moved(self, scanned: ScannedUnit) -> None:
        """Check that a unit whose folder is missing was not dropped or moved since the survey.

        Raises:
            SourceChangedError: the unit was dropped or moved.
        """
        unit = scanned.unit
        if any(difference.kind == "missing_folder" for difference in scanned.drift):
            in_use, swap = self.rewriter.run.table.in_use, self.rewriter.swap
            here = in_use.units().get(unit.name) if unit.partition is None else swap.current_location(unit)
            if here is None or comparable_path(here) != comparable_path(unit.location):
                raise SourceChangedError(f"{unit.name}: {unit.location} was dropped, or left, since it was surveyed")

    def _find_adoptable(self, scanned: ScannedUnit) -> tuple[Drift, ...]:
        """Refuse a unit that must not be rewritten; return the suspicious files that --adopt accepts."""
        run, adopt, allow_decrypt = self.rewriter.run, self.options.adopt, self.options.allow_decrypt
        try:
            copies = self.rewriter.swap.copies
            refuse_unit(
                scanned, run.table.target, run.table.policy, adopt=adopt, allow_decrypt=allow_decrypt, copies=copies
            )
            return tuple(find_suspicious(scanned, run.table.target.plan, run.table.policy)) if adopt else ()
        except SparkcryptError as error:
            run.journal.write(UnitFailed(scanned.unit.name, f"{type(error).__name__}: {error}"))
            raise

    def _note_left(self, unit: Unit) -> tuple[str, ...]:
        """Return notes on files of 0 bytes, and on what a copy leaves beside data; other runs refuse such a unit."""
        left = find_foreign(unit.beside) if self.rewriter.swap.copies else ()
        empty = [entry for entry in unit.beside if entry.kind == "empty"]
        notes = {"stays in the source and is not in the copy": left, "left out, as 0 bytes hold no row": empty}
        return tuple(f"{what}: {name_foreign(unit.location, found)}" for what, found in notes.items() if found)


def refuse_home(files: HadoopFiles, places: Places, unit: str, home: str) -> None:
    """Refuse to bring a unit to its former home while that has files, or another table or partition is there.

    Raises:
        VerificationError: it names what is there.
    """
    refuse_used(places, unit, home, "is where it would come back to")
    refuse_taken_home(files, unit, home)


def refuse_changed(files: HadoopFiles, unit: Unit, error: BaseException) -> None:
    """Raise an error if another process has written to a unit of which a step failed.

    Args:
        files: the file system.
        unit: the unit as it was listed.
        error: the error of the step.

    Raises:
        SourceChangedError: files were added, removed or changed since the listing, which may have caused the failure.
    """
    try:
        now = list_folders(files, unit.location)
    except SparkcryptError:
        return  # the folder cannot be listed: the caller raises the step's error
    try:
        recheck(unit, unit.location, now)
    except SourceChangedError as changed:
        raise SourceChangedError(f"{changed} ({type(error).__name__}: {error})") from error


def _note_adopted(drift: Sequence[Drift]) -> tuple[str, ...]:
    """Return the audit's notes on suspicious files, which readers would refuse and --adopt has accepted."""
    return tuple(f"adopted: {line}" for line in drift_in_short(drift))


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A summary of all units of a target, and warnings about how they were chosen.

    ``home`` is whether only units that are away from their former homes are of interest.
    """

    units: list[UnitSurvey]
    warnings: tuple[str, ...] = ()
    home: bool = False

    @property
    def drifted(self) -> list[UnitSurvey]:
        """The units with a file that differs from the plan, or those that are away from home."""
        return [survey for survey in self.units if (survey.is_away if self.home else survey.drift)]


def survey_units(
    table: OpenTable, reader: FooterReader, options: RunOptions, compare: Callable[[ScannedUnit], None] = lambda _: None
) -> Surveyed:
    """Survey every unit; unless the run keeps going or is dry, raise an error for a unit that it must not rewrite.

    ``compare`` is called with each unit while its files are known.

    Raises:
        SparkcryptError: a unit must not be rewritten, and the run neither keeps going nor is dry.
    """
    cache = FooterCache(table.store, table.target.table_id, name=table.target.name, keeps=not options.dry_run)
    surveys, units = list[UnitSurvey](), table.target.units(options.where)
    warnings: tuple[str, ...] = ()
    if not units and options.where is not None:
        warnings = (
            f"{table.target.name}: --where {options.where!r} chooses no partition; SHOW PARTITIONS lists what is there",
        )

    @functools.cache
    def find_last_run() -> str | None:
        return next(reversed(Journal.runs(table.trust.shown_log())), None)

    rewrap = options.rewrap and not _gives_new_names(table.target, options)
    scanner = Scanner(
        table.target,
        table.files,
        reader,
        cache,
        rotation_of(options, table.trust),
        table.trust.shredded.select,
        purge=options.purge,
    )
    scanned_units = scanner.scan(units)
    for scanned in _add_ways_home(table, options, scanned_units) if options.home else scanned_units:
        compare(scanned)
        if scanned.drift and not (options.keep_going or options.dry_run):
            _refuse(table, scanned, options)
        copies, last = options.output is not None, find_last_run() if scanned.drift else None
        since_ms = math.inf if last is None else start_of_run(last)
        surveys.append(survey_unit(scanned, table.target.plan, rewrap=rewrap, copies=copies, since_ms=since_ms))
    above = (drift_of_summary(path, above=True) for path in find_summaries_above(table.files, table.target))
    written = sum(survey.clear_since for survey in surveys)
    if written:
        warnings = (*warnings, _describe_written(written, find_last_run()))
    return Surveyed(surveys, (*warnings, *(f"{drift.file}: {drift.detail}" for drift in above)), home=options.home)


def _describe_written(files: int, run_id: str | None) -> str:
    return (
        f"{WRITTEN_IN_CLEAR} {count_of(files, 'file')} {'was' if files == 1 else 'were'} written in clear since run "
        f"{run_id}, by a job without sparkcrypt or a session without the policy: put that job under the policy "
        "(docs/existing-jobs.md), or each of its writes is in clear until the next run encrypts it"
    )


def _add_ways_home(
    table: OpenTable, options: RunOptions, scanned_units: Iterable[ScannedUnit]
) -> Iterator[ScannedUnit]:
    """Yield units, with drift if they are away from home.

    Raises:
        VerificationError: a home is taken, and the run does not keep going.
    """
    places = table.in_use.look(afresh=True)
    for scanned in scanned_units:
        home = former_home(scanned.unit.location, table.target.base)
        if home is not None and not options.keep_going:
            refuse_home(table.files, places, scanned.unit.name, home)
        yield scanned if home is None else add_way_home(scanned, home)


def _gives_new_names(target: Target, options: RunOptions) -> bool:
    """Tell whether new files get new names, which re-keys them, since a file's name is part of its identity."""
    table = target.table
    return options.exclusive if table is None else table.managed and not table.partition_columns


def _refuse(table: OpenTable, scanned: ScannedUnit, options: RunOptions) -> None:
    try:
        adopt, allow_decrypt = options.adopt, options.allow_decrypt
        copies = options.output is not None
        refuse_unit(scanned, table.target, table.policy, adopt=adopt, allow_decrypt=allow_decrypt, copies=copies)
    except SparkcryptError as error:
        refuse_changed(table.files, scanned.unit, error)
        raise

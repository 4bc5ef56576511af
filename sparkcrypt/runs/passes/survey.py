"""Survey of a target: reads the footers of every unit before any unit is changed; a dry run ends with it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sparkcrypt.errors import SparkcryptError, VerificationError
from sparkcrypt.ledger.journal.journal import Journal, start_of_run
from sparkcrypt.ledger.journal.unit_status import status_of_units
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.ledger.unit import UnitOutcome, former_home
from sparkcrypt.runs.old_folders.former_homes import describe_move
from sparkcrypt.runs.passes.job import TableJob
from sparkcrypt.runs.passes.result import RunResult
from sparkcrypt.runs.passes.unit_work import refuse_changed, refuse_home
from sparkcrypt.runs.rewrite.keks import rotation_of
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import WRITTEN_IN_CLEAR, Report
from sparkcrypt.runs.rewrite.schedule import FailedUnit
from sparkcrypt.runs.table.difference import drift_of_summary
from sparkcrypt.runs.table.disposal import find_summaries_above
from sparkcrypt.runs.table.footers import FooterCache
from sparkcrypt.runs.table.scan import ScannedUnit, Scanner, add_way_home
from sparkcrypt.runs.table.unit_survey import UnitSurvey, survey_unit
from sparkcrypt.runs.table.untouchable import error_of_folder, refuse_unit
from sparkcrypt.text import count_of

_RUNS = 3
"""The number of newest runs that count, since machines, engines and files change."""


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
    job: TableJob, options: RunOptions, compare: Callable[[ScannedUnit], None] = lambda _: None
) -> Surveyed:
    """Survey every unit; unless the run keeps going or is dry, raise an error for a unit that it must not rewrite.

    ``compare`` is called with each unit while its files are known.

    Raises:
        SparkcryptError: a unit must not be rewritten, and the run neither keeps going nor is dry.
    """
    cache = FooterCache(
        job.table.store, job.table.target.table_id, name=job.table.target.name, keeps=not options.dry_run
    )
    surveys, units = list[UnitSurvey](), job.table.target.units(options.where)
    warnings: tuple[str, ...] = ()
    if not units and options.where is not None:
        warnings = (
            f"{job.table.target.name}: --where {options.where!r} chooses no partition; SHOW PARTITIONS lists what is "
            "there",
        )

    @functools.cache
    def find_last_run() -> str | None:
        return next(reversed(Journal.runs(job.table.store, job.table.target.table_id)), None)

    rewrap = options.rewrap and not _gives_new_names(job, options)
    scanner = Scanner(
        job.table.target,
        job.table.files,
        job.reader,
        cache,
        rotation_of(options, job.table.trust),
        job.table.trust.shredded.select,
        purge=options.purge,
    )
    scanned_units = scanner.scan(units)
    for scanned in _add_ways_home(job, options, scanned_units) if options.home else scanned_units:
        compare(scanned)
        if scanned.drift and not (options.keep_going or options.dry_run):
            _refuse(job, scanned, options)
        copies, last = options.output is not None, find_last_run() if scanned.drift else None
        since_ms = math.inf if last is None else start_of_run(last)
        surveys.append(survey_unit(scanned, job.table.target.plan, rewrap=rewrap, copies=copies, since_ms=since_ms))
    above = (drift_of_summary(path, above=True) for path in find_summaries_above(job.table.files, job.table.target))
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


def _add_ways_home(job: TableJob, options: RunOptions, scanned_units: Iterable[ScannedUnit]) -> Iterator[ScannedUnit]:
    """Yield units, with drift if they are away from home.

    Raises:
        VerificationError: a home is taken, and the run does not keep going.
    """
    places = job.table.in_use.look(afresh=True)
    for scanned in scanned_units:
        home = former_home(scanned.unit.location, job.table.target.base)
        if home is not None and not options.keep_going:
            refuse_home(job.table.files, places, scanned.unit.name, home)
        yield scanned if home is None else add_way_home(scanned, home)


def report_dry_run(job: TableJob) -> tuple[Report, Surveyed]:
    """Return the report of a dry run and its survey; nothing is changed.

    Units whose folder is missing or cannot be listed are quarantined in it, as they would be in a pass.

    Raises:
        SparkcryptError: as `survey_units`.
        VerificationError: the journal of an earlier run is damaged.
    """
    speed = bytes_a_second(job.table.store, job.table.target.table_id)
    surveyed = survey_units(job, job.options)
    fast = None if speed is None else speed * job.options.parallelism
    lost = [(survey.name, error_of_folder(survey.name, survey.drift)) for survey in surveyed.units]
    failed = [FailedUnit(name, type(error).__name__, str(error)) for name, error in lost if error is not None]
    result = RunResult("dry-run", "dry run", surveyed.units, failed=failed, bytes_a_second=fast)
    moves = surveyed.drifted and not job.options.home
    move = describe_move(job.table.target.table) if job.table.target.table is not None and moves else None
    warnings = surveyed.warnings if move is None else (*surveyed.warnings, move)
    return job.report(result, job.options.engine, warnings), surveyed


def bytes_a_second(store: StateStore, table_id: str) -> float | None:
    """Return the speed of a table's newest runs, in bytes of old files per second from a unit's listing to its swap.

    The seconds of units that were rewritten concurrently are added up, so a run with a parallelism of two is twice as
    fast.

    Returns:
        None if no run has swapped a unit, or no outcome has its seconds.
    """
    runs = list(Journal.runs(store, table_id))[-_RUNS:]
    return rate(outcome for run_id in runs for outcome in _outcomes(store, table_id, run_id))


def rate(outcomes: Iterable[UnitOutcome]) -> float | None:
    """Return the bytes per second of units that were swapped; None if no outcome has its seconds."""
    timed = [(outcome.bytes_before, outcome.seconds) for outcome in outcomes if outcome.seconds and outcome.seconds > 0]
    seconds = sum(taken for _, taken in timed)
    return sum(total for total, _ in timed) / seconds if seconds else None


def _gives_new_names(job: TableJob, options: RunOptions) -> bool:
    """Tell whether new files get new names, which re-keys them, since a file's name is part of its identity."""
    table = job.table.target.table
    return options.exclusive if table is None else table.managed and not table.partition_columns


def _refuse(job: TableJob, scanned: ScannedUnit, options: RunOptions) -> None:
    try:
        adopt, allow_decrypt = options.adopt, options.allow_decrypt
        copies = options.output is not None
        refuse_unit(
            scanned, job.table.target, job.table.policy, adopt=adopt, allow_decrypt=allow_decrypt, copies=copies
        )
    except SparkcryptError as error:
        refuse_changed(job.table.files, scanned.unit, error)
        raise


def _outcomes(store: StateStore, table_id: str, run_id: str) -> tuple[UnitOutcome, ...]:
    """Return the outcomes of a run's units; empty if its journal cannot be read, since this is only an estimate."""
    try:
        statuses = status_of_units(Journal.open(store, table_id, run_id).records).values()
        return tuple(status.outcome for status in statuses if status.was_swapped)
    except VerificationError:
        return ()

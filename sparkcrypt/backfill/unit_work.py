"""The units of a run, one after the other or several at a time; those to which somebody writes are tried again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sparkcrypt.backfill.drift import Drift, drift_in_short
from sparkcrypt.backfill.footers import FooterReader
from sparkcrypt.backfill.options import RunOptions
from sparkcrypt.backfill.outcome import UnitOutcome
from sparkcrypt.backfill.report import Outcome
from sparkcrypt.backfill.runner import Runner, recheck
from sparkcrypt.backfill.scan import ScannedUnit, Scanner, refuse_unit, suspicious
from sparkcrypt.backfill.schedule import ENDS_THE_RUN, Budget, Done, FailedUnit, work_through
from sparkcrypt.backfill.survey import UnitSurvey
from sparkcrypt.backfill.units import Unit, list_folders
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.errors import SourceChangedError, SparkcryptError, StorageError
from sparkcrypt.spark.files import HadoopFiles
from sparkcrypt.spark.jvm import JVM_ERRORS, cause_of

PAUSES_SECONDS = (1.0, 2.0, 5.0, 10.0, 20.0)
"""How long a run waits before each further try of units to which somebody wrote."""


@dataclass(slots=True)
class Progressed:
    """What a run has done so far, and what it could not; unsettled: new files are in use, and nobody can prove them."""

    outcomes: list[UnitOutcome] = field(default_factory=list)
    failed: list[FailedUnit] = field(default_factory=list)
    unsettled: list[FailedUnit] = field(default_factory=list)
    left: list[UnitSurvey] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        """How the run ends."""
        if self.failed or self.unsettled:
            return "incomplete"
        if self.left:
            return "stopped at budget"
        return "done" if self.outcomes else "nothing to do"


@dataclass(frozen=True, slots=True)
class UnitWork:
    """Takes the units of a run through their steps.

    Attributes:
        runner: does one unit.
        reader: reads the footers of its files anew, since the survey may be old and from a cache.
        options: of the run.
        budget: what may be spent.
    """

    runner: Runner
    reader: FooterReader
    options: RunOptions
    budget: Budget

    def process(self, drifted: Sequence[UnitSurvey]) -> Progressed:
        """Work through the units; those to which somebody wrote meanwhile are tried again, where they are then.

        Raises:
            SparkcryptError: what ended the run.
        """
        progressed, todo = Progressed(), list(drifted)
        for pause in (*PAUSES_SECONDS, None):
            done = self._once(todo)
            progressed.outcomes.extend(done.outcomes)
            progressed.failed.extend(done.failed)
            progressed.left.extend(done.left)
            if not done.busy:
                break
            if pause is None:
                progressed.failed.extend(
                    FailedUnit(survey.name, type(error).__name__, str(error)) for survey, error in done.busy
                )
                break
            time.sleep(pause)
            todo = self._where_they_are([survey for survey, _ in done.busy])
        return progressed

    def _where_they_are(self, surveys: Sequence[UnitSurvey]) -> list[UnitSurvey]:
        """Return units where the metastore says that they are now; those that were dropped need nothing any more."""
        now = {unit.name: unit for unit in self.runner.run.target.units(self.options.where)}
        return [replace(one, unit=now[one.name]) for one in surveys if one.name in now]

    def _once(self, units: Sequence[UnitSurvey]) -> Done:
        keep_going, parallelism = self.options.keep_going, self.options.parallelism
        return work_through(units, self._one, parallelism=parallelism, budget=self.budget, keep_going=keep_going)

    def _one(self, survey: UnitSurvey) -> UnitOutcome | None:
        """List and read a unit anew, then take it through its steps; an error of Spark or Hadoop is this unit's.

        Raises:
            SourceChangedError: it failed, and its files are not those that were listed.
            SparkcryptError: it could not be done.
        """
        run = self.runner.run
        (scanned,) = Scanner(run.target, run.files, self.reader).scan([survey.unit])
        if not scanned.drift:
            run.progress.advance(survey.amount.files, survey.total_bytes, 1)
            return None
        self._refuse_moved(scanned)
        try:
            return self.runner.process(scanned, notes=_adopted(self._adoptable(scanned)))
        except (SourceChangedError, *ENDS_THE_RUN):
            raise
        except JVM_ERRORS as error:
            refuse_changed(run.files, scanned.unit, error)
            raise SparkcryptError(f"{survey.name}: {': '.join(cause_of(error))}") from error
        except OSError as error:
            refuse_changed(run.files, scanned.unit, error)
            raise StorageError(f"{survey.name}: {error}") from error
        except SparkcryptError as error:
            refuse_changed(run.files, scanned.unit, error)
            raise

    def _refuse_moved(self, scanned: ScannedUnit) -> None:
        """See that a unit whose folder is missing was not dropped, or pointed elsewhere, since it was surveyed.

        Raises:
            SourceChangedError: it was.
        """
        unit = scanned.unit
        if any(one.kind == "missing_folder" for one in scanned.drift):
            here = self.runner.run.in_use.units().get(unit.name)
            if here is None or comparable_path(here) != comparable_path(unit.location):
                raise SourceChangedError(f"{unit.name}: {unit.location} was dropped, or left, since it was surveyed")

    def _adoptable(self, scanned: ScannedUnit) -> tuple[Drift, ...]:
        """Refuse a unit that must not be touched; return what is made believable by --adopt."""
        run, adopt = self.runner.run, self.options.adopt
        try:
            refuse_unit(scanned, run.target, run.policy, adopt=adopt)
            return tuple(suspicious(scanned, run.target.plan, run.policy)) if adopt else ()
        except SparkcryptError as error:
            run.journal.append("unit_failed", unit=scanned.unit.name, error=f"{type(error).__name__}: {error}")
            raise


def refuse_changed(files: HadoopFiles, unit: Unit, error: BaseException) -> None:
    """See, after a step of a unit failed, whether that was since somebody wrote to it.

    Args:
        files: the file system.
        unit: as it was listed.
        error: with which the step failed.

    Raises:
        SourceChangedError: files came, went or changed since the listing, which is why anything may have failed.
    """
    try:
        now = list_folders(files, unit.location)
    except SparkcryptError:
        return  # nobody can tell: the error stands
    try:
        recheck(unit, unit.location, now)
    except SourceChangedError as changed:
        raise SourceChangedError(f"{changed} ({type(error).__name__}: {error})") from error


def _adopted(drift: Sequence[Drift]) -> tuple[str, ...]:
    """Return what the audit says of files that readers would not have believed, and that --adopt made believable."""
    return tuple(f"adopted: {line}" for line in drift_in_short(drift))

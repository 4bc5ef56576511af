"""One unit of a run: listed and read anew, since the survey may be old, then taken through its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparkcrypt.backfill.drift.difference import Drift, drift_in_short
from sparkcrypt.backfill.drift.footers import FooterReader
from sparkcrypt.backfill.drift.scan import ScannedUnit, Scanner
from sparkcrypt.backfill.drift.unit_survey import UnitSurvey
from sparkcrypt.backfill.drift.untouchable import find_suspicious, refuse_unit
from sparkcrypt.backfill.journal.entries import UnitFailed
from sparkcrypt.backfill.report.outcome import UnitOutcome
from sparkcrypt.backfill.target.unit import Unit, list_folders
from sparkcrypt.backfill.work.options import RunOptions
from sparkcrypt.backfill.work.requested_rotation import rotation_of
from sparkcrypt.backfill.work.runner import Runner, recheck
from sparkcrypt.backfill.work.schedule import ENDS_THE_RUN
from sparkcrypt.errors import SourceChangedError, SparkcryptError, StorageError
from sparkcrypt.paths import comparable_path
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS, read_java_error

PAUSES_SECONDS = (1.0, 2.0, 5.0, 10.0, 20.0)
"""How long a run waits before each further try of units to which somebody wrote."""


@dataclass(frozen=True, slots=True)
class UnitWork:
    """Takes the units of a run through their steps.

    Attributes:
        runner: does one unit.
        reader: reads the footers of its files anew, since the survey may be old and from a cache.
        options: of the run.
    """

    runner: Runner
    reader: FooterReader
    options: RunOptions

    def locate(self, surveys: Sequence[UnitSurvey]) -> list[UnitSurvey]:
        """Return units where the metastore says that they are now; those that were dropped need nothing any more.

        Raises:
            SourceChangedError: the table was dropped, and made anew under its name.
        """
        self.runner.run.target.refuse_other_table()
        now = {unit.name: unit for unit in self.runner.run.target.units(self.options.where)}
        return [replace(survey, unit=now[survey.name]) for survey in surveys if survey.name in now]

    def process(self, survey: UnitSurvey) -> UnitOutcome | None:
        """List and read a unit anew, then take it through its steps; an error of Spark or Hadoop is this unit's.

        Raises:
            SourceChangedError: it failed, and its files are not those that were listed.
            SparkcryptError: it could not be done.
        """
        run = self.runner.run
        rotation = rotation_of(self.options, run.trust)
        (scanned,) = Scanner(
            run.target,
            run.files,
            self.reader,
            rotation=rotation,
            tell_shredded=run.trust.shredded.select,
            purge=self.options.purge,
        ).scan([survey.unit])
        if not scanned.drift:
            run.progress.advance(survey.amount.files, survey.total_bytes, 1)
            return None
        self._refuse_moved(scanned)
        try:
            return self.runner.process(scanned, notes=_note_adopted(self._find_adoptable(scanned)))
        except (SourceChangedError, *ENDS_THE_RUN):
            raise
        except JVM_ERRORS as error:
            refuse_changed(run.files, scanned.unit, error)
            raise SparkcryptError(f"{survey.name}: {': '.join(read_java_error(error))}") from error
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
        if any(difference.kind == "missing_folder" for difference in scanned.drift):
            here = self.runner.run.in_use.units().get(unit.name)
            if here is None or comparable_path(here) != comparable_path(unit.location):
                raise SourceChangedError(f"{unit.name}: {unit.location} was dropped, or left, since it was surveyed")

    def _find_adoptable(self, scanned: ScannedUnit) -> tuple[Drift, ...]:
        """Refuse a unit that must not be touched; return what is made believable by --adopt."""
        run, adopt = self.runner.run, self.options.adopt
        try:
            refuse_unit(scanned, run.target, run.policy, adopt=adopt)
            return tuple(find_suspicious(scanned, run.target.plan, run.policy)) if adopt else ()
        except SparkcryptError as error:
            run.journal.write(UnitFailed(scanned.unit.name, f"{type(error).__name__}: {error}"))
            raise


def refuse_changed(files: HadoopFiles, unit: Unit, error: BaseException) -> None:
    """Refuse a unit of which a step failed, where somebody has written to it.

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


def _note_adopted(drift: Sequence[Drift]) -> tuple[str, ...]:
    """Return what the audit says of files that readers would not have believed, and that --adopt made believable."""
    return tuple(f"adopted: {line}" for line in drift_in_short(drift))

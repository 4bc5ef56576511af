"""Work on one unit of a run: lists it and reads its footers again, since the survey may be old, and rewrites it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sparkcrypt.errors import SourceChangedError, SparkcryptError, StorageError
from sparkcrypt.ledger.journal.entries import UnitFailed
from sparkcrypt.ledger.unit import Unit, UnitOutcome, former_home, list_folders
from sparkcrypt.paths import comparable_path
from sparkcrypt.runs.rewrite.keks import rotation_of
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.schedule import ENDS_THE_RUN
from sparkcrypt.runs.rewrite.swap import refuse_taken_home
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter, recheck
from sparkcrypt.runs.table.difference import Drift, drift_in_short
from sparkcrypt.runs.table.disposal import find_foreign, name_foreign
from sparkcrypt.runs.table.footers import FooterReader
from sparkcrypt.runs.table.in_use import Places, refuse_used
from sparkcrypt.runs.table.scan import ScannedUnit, Scanner, add_way_home
from sparkcrypt.runs.table.unit_survey import UnitSurvey
from sparkcrypt.runs.table.untouchable import find_suspicious, refuse_unit
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.jvm.failures import find_storage_error
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS, read_java_error

PAUSES_SECONDS = (1.0, 2.0, 5.0, 10.0, 20.0)
"""How long a run waits before it retries units to which another process wrote."""


@dataclass(frozen=True, slots=True)
class UnitWork:
    """The work on the units of a run.

    Attributes:
        rewriter: takes one unit through its steps.
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

    def process(self, survey: UnitSurvey) -> UnitOutcome | None:
        """List a unit and read its footers again, then take it through its steps.

        Returns:
            The outcome; None if no file differs from the plan any more, or the unit is at home again.

        Raises:
            SourceChangedError: a step failed, and the unit's files have changed since the listing.
            SparkcryptError: a step failed; errors of Spark, Hadoop and the file system are raised as this too.
        """
        run = self.rewriter.run
        rotation = rotation_of(self.options, run.table.trust)
        (scanned,) = Scanner(
            run.table.target,
            run.table.files,
            self.reader,
            rotation=rotation,
            tell_shredded=run.table.trust.shredded.select,
            purge=self.options.purge,
        ).scan([survey.unit])
        home = former_home(scanned.unit.location, run.table.target.base) if self.options.home else None
        if home is not None:
            scanned = add_way_home(scanned, home)
        if not scanned.drift or (self.options.home and home is None):
            run.table.progress.advance(survey.amount.files, survey.total_bytes, 1)
            return None
        self._refuse_moved(scanned)
        try:
            if home is not None:
                refuse_home(run.table.files, run.table.in_use.look(afresh=True), survey.name, home)
            notes = _note_adopted(self._find_adoptable(scanned))  # refuses damaged files, by a better reason
            self.refuse_replayed(scanned.unit)
            return self.rewriter.process(scanned, notes=(*notes, *self._note_left(scanned.unit)))
        except (SourceChangedError, *ENDS_THE_RUN):
            raise
        except JVM_ERRORS as error:
            refuse_changed(run.table.files, scanned.unit, error)
            of_files = find_storage_error(error)
            if of_files is not None:
                raise StorageError(f"{survey.name}: {of_files}") from error
            raise SparkcryptError(f"{survey.name}: {': '.join(read_java_error(error))}") from error
        except OSError as error:
            refuse_changed(run.table.files, scanned.unit, error)
            raise StorageError(f"{survey.name}: {error}") from error
        except SparkcryptError as error:
            refuse_changed(run.table.files, scanned.unit, error)
            raise

    def _refuse_moved(self, scanned: ScannedUnit) -> None:
        """Check that a unit whose folder is missing was not dropped or moved since the survey.

        Raises:
            SourceChangedError: the unit was dropped or moved.
        """
        unit = scanned.unit
        if any(difference.kind == "missing_folder" for difference in scanned.drift):
            here = self.rewriter.run.table.in_use.units().get(unit.name)
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

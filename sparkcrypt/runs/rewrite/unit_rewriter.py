"""The journalled steps of one unit: list, stage, verify, recheck, swap, recheck, audit."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.errors import RunConflictError, SourceChangedError, SparkcryptError, StorageError, VerificationError
from sparkcrypt.ledger.audit.evidence import StagedUnit, evidence_of, files_of
from sparkcrypt.ledger.journal.entries import Proven, UnitFailed, UnitListed, UnitStaged, UnitSwapping, UnitVerified
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.journal.unit_status import status_of_units
from sparkcrypt.ledger.new_files import NewFiles, Whereabouts, prove_in_use
from sparkcrypt.ledger.unit import (
    Folder,
    Unit,
    UnitOutcome,
    attempt_folder,
    base_location,
    by_place,
    list_folders,
    list_location,
)
from sparkcrypt.runs.rewrite.context import ANSWER_SECONDS, RunContext, outcome_of, record_swap
from sparkcrypt.runs.rewrite.engine import Stager
from sparkcrypt.runs.rewrite.native_engine import NativeStager
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.spark_engine import SparkStager
from sparkcrypt.runs.rewrite.swap import Swap, choose_swap, move_old_files
from sparkcrypt.runs.table.disposal import describe_foreign, refuse_foreign, refuse_writers
from sparkcrypt.runs.table.progress import UnitProgress
from sparkcrypt.runs.table.scan import ScannedUnit
from sparkcrypt.runs.table.untouchable import refuse_unreadable
from sparkcrypt.spark.files.access_rights import copy_access, find_access_differences
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.jvm.failures import is_disk_full
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS, read_java_error
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table
from sparkcrypt.text import size_of


class _Space:
    """The free space of a run's disk, of which units that are being staged take what they need."""

    def __init__(self, files: HadoopFiles) -> None:
        self._files, self._mutex = files, threading.Lock()
        self._needed: dict[str, int] = {}
        self._left = 0

    @contextmanager
    def reserved(self, unit: Unit, staged: str) -> Iterator[None]:
        """Refuse a unit that the disk has no space for, before the block stages it; describe a disk that gets full.

        Raises:
            StorageError: new files as large as the old ones do not fit, or the block found the disk full.
        """
        with self._mutex:
            free, others = self._files.free_bytes(staged), sum(self._needed.values())
            # What others have written so far is in both, so less may be left than there is, and never more.
            self._left = free or 0 if not self._needed else max(self._left, (free or 0) - others)
            if free is not None and unit.total_bytes > self._left:
                raise _full_error(unit, staged, free, "nothing was staged", others)
            self._left -= unit.total_bytes
            self._needed[unit.name] = unit.total_bytes
        try:
            yield
        except (*JVM_ERRORS, OSError, SparkcryptError) as error:
            if not is_disk_full(error):
                raise
            raise _full_error(unit, staged, self._files.free_bytes(staged), "its staged files are deleted") from error
        finally:
            with self._mutex:
                del self._needed[unit.name]


def _full_error(unit: Unit, staged: str, free: int | None, what: str, others: int = 0) -> StorageError:
    place = staged.rpartition("/.sparkcrypt/")[0] or staged
    amount = "no space is left" if free is None else f"{size_of(free)} are free"
    shared = f", {size_of(others)} of it for units that are being staged now" if others else ""
    return StorageError(
        f"{unit.name}: the disk of {place} is full: its new files need {size_of(unit.total_bytes)}, and "
        f"{amount}{shared}; {what}, and the unit is unchanged; free space, such as by `sparkcrypt backfill expire`, "
        "and run again; --max-bytes limits how much a pass rewrites"
    )


class UnitRewriter:
    """The steps of a run's units; each step is recorded in the journal before the next one begins.

    Several units may be processed concurrently, each in its own thread.
    """

    def __init__(self, run: RunContext, stager: Stager, swap: Swap) -> None:
        self.run, self.stager, self.swap = run, stager, swap
        self._files = run.table.files
        self._attempts: Counter[str] = Counter()
        self._statistics: tuple[float, Any] | None = None
        self._space = _Space(run.table.files)

    def process(self, scanned: ScannedUnit, notes: tuple[str, ...] = ()) -> UnitOutcome:
        """Take one unit from listed to swapped.

        Args:
            scanned: the unit.
            notes: notes for its outcome and its audit entry, in addition to those of its steps.

        Raises:
            SourceChangedError: another process writes to the unit, or the table was dropped and re-created.
            RunConflictError: the lock is lost; or the unit is or may be swapped and this cannot be recorded; or its old
                files cannot be moved.  The run must then not end before the unit is settled.
            SparkcryptError: a step failed; the unit is unchanged.  Its staged files are deleted, unless its swap was
                begun.
        """
        started = time.monotonic()
        unit = scanned.unit
        self._attempts[unit.name] += 1
        attempt = attempt_folder(self.run.run_id, self.run.lock.token, self._attempts[unit.name])
        staged = unit.staging(self.run.table.target.base, attempt)
        self.run.journal.write(UnitListed(unit, staged))
        unit_progress = UnitProgress(self.run.table.progress, len(unit.files), unit.total_bytes)
        new = NewFiles(unit, staged, {})
        try:
            refuse_unreadable(scanned)
            proven, made = self._stage(scanned, staged, unit_progress, notes)
            new = NewFiles.of_folders(unit, staged, made.folders)
            with self.run.one_at_a_time:
                old, swap_notes = self._swap_in(new)
        except BaseException as error:
            try:
                self._give_up(new, error)
            finally:  # after the clean-up, since the progress display may raise an error too
                unit_progress.tell_unchanged()
            raise
        outcome = outcome_of(unit, proven, old, self.swap.final_location(unit, staged), made.total_bytes)
        outcome = replace(
            outcome,
            not_authenticated=made.not_authenticated,
            notes=(*outcome.notes, *swap_notes),
            seconds=round(time.monotonic() - started, 3),
            finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
        try:
            record_swap(self.run, outcome)
        except Exception as error:  # of any class: the unit is swapped, and no record says so yet
            raise _describe_unsettled(unit, error) from error
        try:
            outcome = move_old_files(self.run, self.swap, outcome, unit, staged, self.run.table.target.base)
        except RunConflictError:
            raise
        except (SparkcryptError, *JVM_ERRORS) as error:
            raise RunConflictError(
                f"{unit.name}: it is swapped and recorded, and its old files could not be moved: "
                f"{type(error).__name__}: {error}; the run is unfinished: mend the cause and run the job again, which "
                "moves them first"
            ) from error
        unit_progress.tell_done()
        return outcome

    def _stage(
        self, scanned: ScannedUnit, staged: str, unit_progress: UnitProgress, notes: tuple[str, ...]
    ) -> tuple[Proven, StagedUnit]:
        run, unit = self.run, scanned.unit
        run.table.progress.step(unit.name, "staging")
        sources = files_of(self._files, unit.folders, scanned.summaries, run.secret)
        with self._space.reserved(unit, staged):
            work = self.stager.stage(scanned, staged, unit_progress.tell_rewritten)
        copy_access(self._files, unit.location, staged)
        folders = list_folders(self._files, staged)
        run.journal.write(UnitStaged(unit.name, staged, folders))
        run.table.progress.step(unit.name, "verifying")
        proof = work.prove(folders, run.fresh_keys)
        differing = find_access_differences(self._files, unit.location, staged)
        if differing:
            raise VerificationError(
                f"{unit.name}: the staged folder's access differs: {'; '.join(differing)}; nothing was swapped"
            )
        targets = files_of(self._files, folders, proof.unit.summaries, run.secret)
        evidence = evidence_of(sources, targets, proof, run.secret, run.table.target.format)
        about = {"codec": work.codec, "notes": [*notes, *work.notes], "engine": work.engine}
        proven = Proven(proof.rows, evidence, about)
        run.journal.write(UnitVerified(unit.name, staged, proven))
        return proven, proof.unit

    def locate(self, new: NewFiles) -> Whereabouts:
        """Tell where the proven files of a unit are: see `prove_in_use`."""
        final = self.swap.final_location(new.unit, new.staged)
        return prove_in_use(self._files, new, final, self.swap.current_location(new.unit))

    def _swap_in(self, new: NewFiles) -> tuple[str, tuple[str, ...]]:
        """Swap a unit; return the folder of its old files, and notes for the report.

        Raises:
            VerificationError: the proven files are not in use after the swap.
        """
        run, unit = self.run, new.unit
        run.table.progress.step(unit.name, "swapping")
        self._recheck(unit, unit.location, moves=self.swap.same_folder)
        new = run.pin(new, run.journal.write(UnitSwapping(unit.name, new.staged)))
        table = run.table.target.table
        statistics = self._statistics_of(table) if table else None
        run.lock.check()
        run.table.target.refuse_other_table()
        old = self.swap.swap(new)
        try:
            run.lock.check()
        except RunConflictError:
            give_way(self, new)
            raise
        notes = self._recheck_swapped(new, old)
        where = self.locate(new)
        if where is not Whereabouts.IN_USE:
            final = self.swap.final_location(unit, new.staged)
            raise VerificationError(
                f"{unit.name}: its new files are not in use in {final} after the swap, but {where.value}; someone "
                "moved, replaced or deleted them; old and new files stay"
            )
        return old, (*notes, *self._restore(table, statistics))

    def _recheck(self, unit: Unit, location: str, *, moves: bool = False) -> None:
        """Check a unit right before or after its swap: its files are as listed, and nothing lies beside them.

        Raises:
            SourceChangedError: a file was added, removed or changed, or a job writes to a folder that is to be moved.
            VerificationError: something lies beside the files, and the swap is no copy.
        """
        folders, beside = list_location(self._files, location)
        if moves:
            refuse_writers(unit, beside)
        recheck(unit, location, folders)
        if not self.swap.copies:
            refuse_foreign(unit.name, location, beside)

    def _recheck_swapped(self, new: NewFiles, old: str) -> tuple[str, ...]:
        """Undo the swap if another process wrote to the old files, or re-created the table, right before it.

        If rows were added to the new files as well, undoing would lose them: the swap stays, and the files that were
        added to the old folder are reconciled or reported at the end of the run.

        Returns:
            Notes for the report.

        Raises:
            SourceChangedError: the swap was undone.
        """
        try:
            self._recheck(new.unit, old)
            self.run.table.target.refuse_other_table()
        except (SourceChangedError, VerificationError) as error:
            if is_as_staged(self, new):
                self.swap.undo(new)
                raise
            return (f"somebody wrote to the old files and to the new ones while they were swapped: {error}",)
        return ()

    def _statistics_of(self, table: Table) -> Any:
        """Return the table's statistics, which each swap drops and restores; cached for ``ANSWER_SECONDS``."""
        now = time.monotonic()
        if self._statistics is None or now - self._statistics[0] > ANSWER_SECONDS:
            self._statistics = now, Catalog(self.run.table.spark).statistics(table)
        return self._statistics[1]

    def _restore(self, table: Table | None, statistics: Any) -> tuple[str, ...]:
        if table is None or statistics is None:
            return ()
        encrypted = frozenset(column.leaf.logical[0] for column in self.run.table.target.plan.encrypted)
        try:
            Catalog(self.run.table.spark).restore_statistics(table, statistics, encrypted)
        except JVM_ERRORS as error:
            reason = ": ".join(read_java_error(error))
            return (f"the table's statistics could not be put back ({reason}); run ANALYZE TABLE",)
        return ()

    def _give_up(self, new: NewFiles, error: BaseException) -> None:
        """Delete the staged files of a failed unit, and record the failure.

        The staged files stay until ``expire`` if the swap was begun and undone, since readers may have begun to read
        them.  If the lock is lost, nothing is done, since another driver continues the run.

        Raises:
            RunConflictError: the swap is in effect although it failed, or its state is not known.
        """
        if isinstance(error, RunConflictError):
            return
        name, leftovers = new.unit.name, ""
        swapping = status_of_units(self.run.journal.records)[name].step == "unit_swapping"
        if not swapping:
            leftovers = self._discard(new.staged)
        elif not isinstance(error, Exception):
            return  # the driver was interrupted: the next execution of the run finds out what has happened
        elif not self._is_undone(new):
            raise _describe_unsettled(new.unit, error) from error
        self.run.journal.write(UnitFailed(name, f"{type(error).__name__}: {error}{leftovers}"))

    def _discard(self, staged: str) -> str:
        """Delete staged files; return a note on files that remain, so that it cannot hide why the unit failed."""
        try:
            kept = self.run.disposal.delete([staged])
        except (SparkcryptError, *JVM_ERRORS) as error:
            return f"; what was staged is left at {staged} until `sparkcrypt backfill expire`: {error}"
        return "".join(f"; {folder} is in use ({user}) and was left as it is" for folder, user in kept.items())

    def _is_undone(self, new: NewFiles) -> bool:
        try:
            return self.locate(new) is Whereabouts.STAGED and not self.swap.is_begun(new)
        except (SparkcryptError, *JVM_ERRORS):
            return False


def _describe_unsettled(unit: Unit, error: BaseException) -> RunConflictError:
    return RunConflictError(
        f"{unit.name}: it is swapped, or may be, and that could not be written down: {type(error).__name__}: {error}; "
        "the run is unfinished and its old files are kept: mend the cause and run the job again, which settles this "
        "unit first"
    )


def give_way(rewriter: UnitRewriter, new: NewFiles) -> None:
    """Undo the swap of a driver that was paused right before it, and lost its lock meanwhile.

    If the driver that took over has swapped the unit already, rows may have been written since, so the unit is pointed
    to that driver's folder; otherwise it is pointed to its listed location.  A renamed folder is renamed back, unless
    another process has written to it meanwhile: then it stays, since it contains all rows.
    """
    run, unit = rewriter.run, new.unit
    if not rewriter.swap.repoints:
        if is_as_staged(rewriter, new):
            rewriter.swap.undo(new)
        return
    location = unit.location
    for run_id in Journal.runs(run.table.trust.log()):
        try:
            records = run.table.trust.journal(run_id).records
            status = status_of_units(records).get(unit.name)
        except VerificationError:
            continue  # a journal that is not trusted must not decide where the unit points
        if run_id >= run.run_id and status is not None and status.swapped:
            location = status.new_location
            swapping = [record for record in records if record.kind == "unit_swapping" and record.unit == unit.name]
            new = run.pin(new, swapping[-1]) if swapping else new
    rewriter.swap.undo(new, location)


def is_as_staged(rewriter: UnitRewriter, new: NewFiles) -> bool:
    """Tell whether a swapped unit's new folder has what was staged and nothing else, so that it may be moved back."""
    location = rewriter.swap.final_location(new.unit, new.staged)
    folders, beside = list_location(rewriter.run.table.files, location)
    lengths = {place: file.length for place, file in by_place(location, folders).items()}
    return lengths == dict(new.lengths) and describe_foreign(location, beside) is None


def recheck(unit: Unit, location: str, folders: tuple[Folder, ...]) -> None:
    """Check that a unit's source files are unchanged since they were listed, wherever they are now.

    Args:
        unit: the unit as it was listed.
        location: where its files are now.
        folders: the present listing of that folder.

    Raises:
        SourceChangedError: a file was added, removed or changed.
    """
    now, then = by_place(location, folders), by_place(unit.location, unit.folders)
    for name in sorted(now.keys() | then.keys()):
        new, listed = now.get(name), then.get(name)
        if new is None or listed is None or (new.length, new.modified_ms) != (listed.length, listed.modified_ms):
            what = "is gone" if new is None else "is new" if listed is None else "changed"
            raise SourceChangedError(
                f"{unit.name}: file {name} {what} since the listing, so someone writes to it; the unit stays "
                "unchanged; run again"
            )


def rewriter_of(context: RunContext, options: RunOptions, *, resumed: bool = False) -> UnitRewriter:
    """Return the rewriter of a run's units.

    Args:
        context: the run's context.
        options: the options with which the run began.
        resumed: whether an ``--output`` that already exists may have been written by this run.

    Raises:
        ConfigError: as `choose_swap`.
    """
    records = context.journal.records
    base = next((base_location(record.staged) for record in records if record.staged is not None), None)
    swap = choose_swap(context.table, context.run_id, options, resumed=resumed, base=base)
    stager: Stager = SparkStager(context.table)
    if options.engine == "native":
        renamed_by = context.run_id if swap.same_folder else None
        stager = NativeStager(
            context.table,
            mac=lambda: context.mac,
            discard=context.disposal.delete,
            renamed_by=renamed_by,
            rewrap=options.rewrap,
            purge=options.purge,
        )
    return UnitRewriter(context, stager, swap)

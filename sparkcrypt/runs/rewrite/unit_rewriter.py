"""The journalled steps of a batch of units: list, stage, verify, recheck, swap, recheck, audit.

A step is done for all units of the batch: one job of Spark, one call of the metastore, one object of the log.  Not so
what is asked of each file system right before and after the swap, which takes as many units as it can within a moment.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.errors import RunConflictError, SourceChangedError, SparkcryptError, StorageError, VerificationError
from sparkcrypt.ledger.audit.evidence import FileEvidence, StagedUnit, evidence_of, files_of
from sparkcrypt.ledger.journal.entries import Proven, UnitFailed, UnitListed, UnitStaged, UnitSwapping, UnitVerified
from sparkcrypt.ledger.journal.journal import Journal
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
from sparkcrypt.runs.rewrite.context import ANSWER_SECONDS, RunContext, outcome_of, record_swaps
from sparkcrypt.runs.rewrite.engine import FAILURES, StagedWork, Stager, Staging
from sparkcrypt.runs.rewrite.moved_files import move_old_files
from sparkcrypt.runs.rewrite.native_engine import NativeStager
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.schedule import ENDS_THE_RUN, Result
from sparkcrypt.runs.rewrite.spark_engine import SparkStager
from sparkcrypt.runs.rewrite.swap import Swap, choose_swap
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

LISTED_SECONDS = 1.0
"""How long a swap goes on to list units again before it takes those that it has."""


class _Space:
    """The free space of a run's disk, of which units that are being staged take what they need."""

    def __init__(self, files: HadoopFiles) -> None:
        self._files, self._mutex = files, threading.Lock()
        self._needed: dict[str, int] = {}
        self._left = 0

    def reserve(self, unit: Unit, staged: str) -> None:
        """Take what a unit needs, until it is released.

        Raises:
            StorageError: new files as large as the old ones do not fit.
        """
        with self._mutex:
            free, others = self._files.free_bytes(staged), sum(self._needed.values())
            # What others have written so far is in both, so less may be left than there is, and never more.
            self._left = free or 0 if not self._needed else max(self._left, (free or 0) - others)
            if free is not None and unit.total_bytes > self._left:
                raise _full_error(unit, staged, free, "nothing was staged", others)
            self._left -= unit.total_bytes
            self._needed[unit.name] = unit.total_bytes

    def release(self, unit: Unit) -> None:
        """Give back what a unit has taken, if it has."""
        with self._mutex:
            self._needed.pop(unit.name, None)

    def explain(self, unit: Unit, staged: str, error: Exception) -> Exception:
        """Return the error of staging a unit, or what it means if the disk is full."""
        if not is_disk_full(error):
            return error
        full = _full_error(unit, staged, self._files.free_bytes(staged), "its staged files are deleted")
        full.__cause__ = error
        return full


def _full_error(unit: Unit, staged: str, free: int | None, what: str, others: int = 0) -> StorageError:
    place = staged.rpartition("/.sparkcrypt/")[0] or staged
    amount = "no space is left" if free is None else f"{size_of(free)} are free"
    shared = f", {size_of(others)} of it for units that are being staged now" if others else ""
    return StorageError(
        f"{unit.name}: the disk of {place} is full: its new files need {size_of(unit.total_bytes)}, and "
        f"{amount}{shared}; {what}, and the unit is unchanged; free space, such as by `sparkcrypt backfill expire`, "
        "and run again; --max-bytes limits how much a pass rewrites"
    )


@dataclass(slots=True)
class PendingUnit:
    """A unit on its way through the steps of a batch.

    Attributes:
        scanned: the unit.
        staged: the folder of its new files.
        notes: notes for its outcome and its audit entry.
        progress: receives its progress.
        new: its new files, without lengths until they are listed.
        sources: the evidence of its old files.
        work: what was staged.
        folders: the staged files.
        proven: the proof of them.
        made: the verified files.
        swapping: whether its swap is recorded as begun.
        outcome: its outcome, once it is swapped.
        error: why it is unchanged.
        failed_with_others: whether the error is of the job that was to stage it, and others in that job.
    """

    scanned: ScannedUnit
    staged: str
    notes: tuple[str, ...]
    progress: UnitProgress
    new: NewFiles
    sources: Mapping[str, list[FileEvidence]] = field(default_factory=dict)
    work: StagedWork = field(init=False)
    folders: tuple[Folder, ...] = field(init=False)
    proven: Proven = field(init=False)
    made: StagedUnit = field(init=False)
    swapping: bool = False
    outcome: UnitOutcome | None = None
    error: BaseException | None = None
    failed_with_others: bool = False

    @property
    def unit(self) -> Unit:
        """The unit as it was listed."""
        return self.scanned.unit

    @property
    def is_pending(self) -> bool:
        """Whether it is neither swapped nor given up."""
        return self.result is None

    @property
    def result(self) -> Result:
        """Its outcome or error; None while it has neither."""
        return self.error if self.outcome is None else self.outcome


class UnitRewriter:
    """The steps of a run's units, batch by batch; each step is recorded in the journal before the next one begins.

    Several batches may be processed concurrently, each in its own thread.  Each unit is swapped or unchanged by itself:
    one that fails, or to which somebody writes, leaves its batch.
    """

    def __init__(self, run: RunContext, stager: Stager, swap: Swap) -> None:
        self.run, self.stager, self.swap = run, stager, swap
        self._files = run.table.files
        self._attempts: Counter[str] = Counter()
        self._statistics: tuple[float, Any] | None = None
        self._space = _Space(run.table.files)

    def process_all(self, units: Sequence[tuple[ScannedUnit, tuple[str, ...]]]) -> list[Result]:
        """Take a batch of units from listed to swapped.

        Args:
            units: each with notes for its outcome and its audit entry, in addition to those of its steps.

        Returns:
            For each its outcome, or why it is unchanged: a SourceChangedError if another process writes to it, or the
            table was dropped and re-created.  Staged files are deleted, unless a swap was begun.

        Raises:
            RunConflictError: the lock is lost; or a unit is or may be swapped and this cannot be recorded; or old files
                cannot be moved.  The run must then not end before the unit is settled.
            SparkcryptError: an error that concerns all units.
        """
        batch = [self._begin(scanned, notes) for scanned, notes in units]
        started = time.monotonic()
        try:
            self.run.journal.write_all([UnitListed(unit.unit, unit.staged) for unit in batch])
            self._prove(self._stage(batch))
            with self.run.one_at_a_time:
                ready = deque(unit for unit in batch if unit.is_pending)
                while ready:
                    if chunk := self._take_unchanged(ready):
                        self._swap_in(chunk, started, batch)
        except BaseException as error:
            self._give_up_rest(batch, error)
            if not isinstance(error, FAILURES) or isinstance(error, ENDS_THE_RUN):
                raise
        else:
            self._give_up_rest(batch)
        for unit in batch:
            if unit.outcome is not None:
                unit.outcome = self._move_old(unit, unit.outcome)
                unit.progress.tell_done()
        return [self._process_alone(unit) if unit.failed_with_others else unit.result for unit in batch]

    def _begin(self, scanned: ScannedUnit, notes: tuple[str, ...]) -> PendingUnit:
        unit = scanned.unit
        self._attempts[unit.name] += 1
        attempt = attempt_folder(self.run.run_id, self.run.lock.token, self._attempts[unit.name])
        staged = unit.staging(self.run.table.target.base, attempt)
        progress = UnitProgress(self.run.table.progress, len(unit.files), unit.total_bytes)
        return PendingUnit(scanned, staged, notes, progress, NewFiles(unit, staged, {}))

    def _process_alone(self, unit: PendingUnit) -> Result:
        (result,) = self.process_all([(unit.scanned, unit.notes)])
        return result

    def _each(self, batch: Sequence[PendingUnit], step: Callable[[PendingUnit], None]) -> list[PendingUnit]:
        """Take units through a step; return those that did not fail in it.  Others are given up with their batch."""
        for unit in batch:
            try:
                step(unit)
            except FAILURES as error:
                if isinstance(error, ENDS_THE_RUN):
                    raise
                unit.error = error
        return [unit for unit in batch if unit.is_pending]

    def _stage(self, batch: Sequence[PendingUnit]) -> list[PendingUnit]:
        """Stage units; return those whose new files are written and listed."""
        for unit in batch:
            self.run.table.progress.step(unit.unit.name, "staging")
        try:
            batch = self._each(batch, self._prepare)
            several = [Staging(unit.scanned, unit.staged, unit.progress.tell_rewritten) for unit in batch]
            works = self.stager.stage_all(several) if several else []
        finally:
            for unit in batch:
                self._space.release(unit.unit)
        failures = Counter(id(work) for work in works if isinstance(work, Exception))
        staged = dict(zip((unit.staged for unit in batch), works, strict=True))

        def take(unit: PendingUnit) -> None:
            work = staged[unit.staged]
            if isinstance(work, Exception):
                unit.failed_with_others = failures[id(work)] > 1
                raise self._space.explain(unit.unit, unit.staged, work)
            unit.work = work
            copy_access(self._files, unit.unit.location, unit.staged)
            unit.folders = list_folders(self._files, unit.staged)

        batch = self._each(batch, take)
        self.run.journal.write_all([UnitStaged(unit.unit.name, unit.staged, unit.folders) for unit in batch])
        return batch

    def _prepare(self, unit: PendingUnit) -> None:
        refuse_unreadable(unit.scanned)
        unit.sources = files_of(self._files, unit.unit.folders, unit.scanned.summaries, self.run.secret)
        self._space.reserve(unit.unit, unit.staged)

    def _prove(self, batch: Sequence[PendingUnit]) -> None:
        """Prove the staged files of units."""
        batch = self._each(batch, self._prove_unit)
        self.run.journal.write_all([UnitVerified(unit.unit.name, unit.staged, unit.proven) for unit in batch])

    def _prove_unit(self, unit: PendingUnit) -> None:
        run, work = self.run, unit.work
        run.table.progress.step(unit.unit.name, "verifying")
        proof = work.prove(unit.folders, run.fresh_keys)
        differing = find_access_differences(self._files, unit.unit.location, unit.staged)
        if differing:
            raise VerificationError(
                f"{unit.unit.name}: the staged folder's access differs: {'; '.join(differing)}; nothing was swapped"
            )
        targets = files_of(self._files, unit.folders, proof.unit.summaries, run.secret)
        evidence = evidence_of(unit.sources, targets, proof, run.secret, run.table.target.format)
        about = {"codec": work.codec, "notes": [*unit.notes, *work.notes], "engine": work.engine}
        unit.proven, unit.made = Proven(proof.rows, evidence, about), proof.unit
        unit.new = NewFiles.of_folders(unit.unit, unit.staged, proof.unit.folders)

    def _take_unchanged(self, ready: deque[PendingUnit]) -> list[PendingUnit]:
        """Take the first units, as many as can be listed again within a moment, that are as they were listed."""
        first, found = time.monotonic(), list[PendingUnit]()
        while ready and (not found or (self.swap.at_once and time.monotonic() - first < LISTED_SECONDS)):
            unit = ready.popleft()
            self.run.table.progress.step(unit.unit.name, "swapping")
            found.extend(self._each([unit], self._recheck_listed))
        return found

    def _recheck_listed(self, unit: PendingUnit) -> None:
        self._recheck(unit.unit, unit.unit.location, moves=self.swap.same_folder)

    def _swap_in(self, chunk: Sequence[PendingUnit], started: float, batch: Sequence[PendingUnit]) -> None:
        """Swap units that were just found unchanged, prove that their new files are in use, and record it.

        Args:
            chunk: the units.
            started: when their batch was begun, in seconds of the monotonic clock.
            batch: all units of the batch.

        Raises:
            RunConflictError: the lock is lost, or a unit is or may be swapped and this cannot be recorded.
        """
        run, table = self.run, self.run.table.target.table
        records = run.journal.write_all([UnitSwapping(unit.unit.name, unit.staged) for unit in chunk])
        for unit in chunk:
            unit.swapping = True
        for unit, record in zip(chunk, records, strict=True):
            unit.new = run.pin(unit.new, record)
        statistics = self._statistics_of(table) if table else None
        failed = self._swap_under_lock(chunk)
        notes = self._prove_swapped(chunk, failed)
        restored = self._restore(table, statistics)
        total = sum(unit.unit.total_bytes for unit in batch) or 1
        seconds = (time.monotonic() - started) / total
        outcomes = {
            unit.unit.name: self._outcome_of(unit, (*notes[unit.unit.name], *restored), seconds)
            for unit in chunk
            if unit.unit.name not in failed
        }
        try:
            record_swaps(run, list(outcomes.values()))
        except Exception as error:  # of any class: the units are swapped, and no record says so yet
            raise _describe_unsettled(", ".join(outcomes), error) from error
        for unit in chunk:
            unit.outcome, unit.error = outcomes.get(unit.unit.name), failed.get(unit.unit.name)
        self._give_up([unit for unit in chunk if unit.error is not None])

    def _swap_under_lock(self, chunk: Sequence[PendingUnit]) -> dict[str, BaseException]:
        """Swap units; return the errors of those that could not be swapped.

        Raises:
            RunConflictError: the lock is lost; what was swapped since is given up to the driver that has it.
            SourceChangedError: the table was dropped and re-created; nothing was swapped.
        """
        self.run.lock.check()
        self.run.table.target.refuse_other_table()
        several = [unit.new for unit in chunk]
        try:
            failed: dict[str, BaseException] = dict(self.swap.swap_all(several))
        except FAILURES:  # so that it is not known which were swapped
            self._keep_or_give_way(several)
            raise
        self._keep_or_give_way([new for new in several if new.unit.name not in failed])
        return failed

    def _keep_or_give_way(self, several: Sequence[NewFiles]) -> None:
        """Look whether this driver still has the lock after a swap; if not, undo the swap.

        Raises:
            RunConflictError: the lock is lost; the message names each unit that could not be left to the other driver.
        """
        try:
            self.run.lock.check()
        except RunConflictError as error:
            kept = give_way(self, several)
            if not kept:
                raise
            raise RunConflictError(
                f"{error}; and these could not be pointed back to where the other driver has them, so look at where "
                f"they point: {'; '.join(kept)}"
            ) from error

    def _prove_swapped(
        self, chunk: Sequence[PendingUnit], failed: dict[str, BaseException]
    ) -> Mapping[str, tuple[str, ...]]:
        """Look at the units of a swap right after it; add those that failed, or whose swap was undone.

        Returns:
            Unit -> notes for the report.
        """
        notes: dict[str, tuple[str, ...]] = {}
        other = self._find_other_table()
        for unit in chunk:
            name = unit.unit.name
            if name not in failed:
                try:
                    notes[name] = self._recheck_swapped(unit.new, self.swap.old_location(unit.unit), other)
                except RunConflictError:
                    raise
                except FAILURES as error:
                    failed[name] = error
        left = [unit for unit in chunk if unit.unit.name not in failed]
        try:
            now = self.swap.current_locations([unit.unit for unit in left])
        except FAILURES as error:
            failed |= dict.fromkeys((unit.unit.name for unit in left), error)
            return notes
        for unit in left:
            try:
                self._refuse_not_in_use(unit.new, now[unit.unit.name])
            except FAILURES as error:
                failed[unit.unit.name] = error
        return notes

    def _refuse_not_in_use(self, new: NewFiles, here: str | None) -> None:
        where = self._locate(new, here)
        if where is not Whereabouts.IN_USE:
            raise VerificationError(
                f"{new.unit.name}: it points to {here or 'nothing'} after the swap, and its new files are not in use, "
                f"but {where.value}; someone moved, replaced or deleted them; old and new files stay"
            )

    def _outcome_of(self, unit: PendingUnit, notes: tuple[str, ...], seconds: float) -> UnitOutcome:
        """Return the outcome of a swapped unit, for which its batch took so many seconds a byte."""
        old, new = self.swap.old_location(unit.unit), self.swap.final_location(unit.unit, unit.staged)
        outcome = outcome_of(unit.unit, unit.proven, old, new, unit.made.total_bytes)
        return replace(
            outcome,
            not_authenticated=unit.made.not_authenticated,
            notes=(*outcome.notes, *notes),
            seconds=round(seconds * unit.unit.total_bytes, 3),
            finished=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )

    def _move_old(self, unit: PendingUnit, outcome: UnitOutcome) -> UnitOutcome:
        try:
            return move_old_files(self.run, self.swap, outcome, unit.unit, unit.staged, self.run.table.target.base)
        except RunConflictError:
            raise
        except (SparkcryptError, *JVM_ERRORS) as error:
            raise RunConflictError(
                f"{unit.unit.name}: it is swapped and recorded, and its old files could not be moved: "
                f"{type(error).__name__}: {error}; the run is unfinished: mend the cause and run the job again, which "
                "moves them first"
            ) from error

    def locate(self, new: NewFiles) -> Whereabouts:
        """Tell where the proven files of a unit are: see `prove_in_use`."""
        return self._locate(new, self.swap.current_location(new.unit))

    def _locate(self, new: NewFiles, here: str | None) -> Whereabouts:
        return prove_in_use(self._files, new, self.swap.final_location(new.unit, new.staged), here)

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

    def _find_other_table(self) -> SourceChangedError | None:
        """Return that the table was dropped and re-created, if it was."""
        try:
            self.run.table.target.refuse_other_table()
        except SourceChangedError as error:
            return error
        return None

    def _recheck_swapped(self, new: NewFiles, old: str, other: SourceChangedError | None) -> tuple[str, ...]:
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
            if other is not None:
                raise other
        except (SourceChangedError, VerificationError) as error:
            if is_as_staged(self, new):
                self.run.lock.check()  # who has it now may have recorded this swap
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

    def _give_up_rest(self, batch: Sequence[PendingUnit], error: BaseException | None = None) -> None:
        """Give up the units of a batch that failed before their swaps, and those that are pending because of an error.

        Raises:
            RunConflictError: as `_give_up`.
            Exception: a failure could not be recorded.
        """
        rest = [unit for unit in batch if unit.is_pending or (unit.error is not None and not unit.swapping)]
        for unit in rest:
            unit.error = unit.error or error
        self._give_up(rest)

    def _give_up(self, failed: Sequence[PendingUnit]) -> None:
        """Delete the staged files of failed units, all at once, and record the failures.

        The staged files stay until ``expire`` if the swap was begun and undone, since readers may have begun to read
        them.  If the lock is lost, nothing is done, since another driver continues the run.

        Raises:
            RunConflictError: the swap of one is in effect although it failed, or its state is not known; the others are
                given up.
        """
        ours = [unit for unit in failed if not isinstance(unit.error, RunConflictError)]
        known, unsettled = list[PendingUnit](), list[PendingUnit]()
        try:
            left = self._discard([unit.staged for unit in ours if not unit.swapping])
            for unit in ours:
                if not unit.swapping or isinstance(unit.error, Exception):
                    (known if not unit.swapping or self._is_undone(unit.new) else unsettled).append(unit)
                # else the driver was interrupted: the next execution of the run finds out what has happened
            self.run.journal.write_all([_describe_failure(unit, left.get(unit.staged, "")) for unit in known])
        except Exception:
            if not unsettled:
                raise
        finally:  # after the clean-up, since the progress display may raise an error too
            for unit in failed:
                unit.progress.tell_unchanged()
        for unit in unsettled:
            raise _describe_unsettled(unit.unit.name, unit.error) from unit.error

    def _discard(self, staged: Sequence[str]) -> dict[str, str]:
        """Delete staged files; return a note on those that remain, so that it cannot hide why their units failed."""
        try:
            kept = self.run.disposal.delete(staged)
        except (SparkcryptError, *JVM_ERRORS) as error:
            return {
                folder: f"; what was staged is left at {folder} until `sparkcrypt backfill expire`: {error}"
                for folder in staged
            }
        return {folder: f"; {folder} is in use ({user}) and was left as it is" for folder, user in kept.items()}

    def _is_undone(self, new: NewFiles) -> bool:
        try:
            return self.locate(new) is Whereabouts.STAGED and not self.swap.is_begun(new)
        except (SparkcryptError, *JVM_ERRORS):
            return False


def _describe_failure(unit: PendingUnit, leftovers: str) -> UnitFailed:
    return UnitFailed(unit.unit.name, f"{type(unit.error).__name__}: {unit.error}{leftovers}")


def _describe_unsettled(name: str, error: BaseException | None) -> RunConflictError:
    return RunConflictError(
        f"{name}: it is swapped, or may be, and that could not be written down: {type(error).__name__}: {error}; "
        "the run is unfinished and its old files are kept: mend the cause and run the job again, which settles this "
        "unit first"
    )


def give_way(rewriter: UnitRewriter, several: Sequence[NewFiles]) -> list[str]:
    """Undo the swap of a driver that was paused right before it, and lost its lock meanwhile.

    If the driver that took over has swapped a unit already, rows may have been written since, so the unit is pointed to
    that driver's folder; otherwise it is pointed to its listed location.  A renamed folder is renamed back, unless
    another process has written to it meanwhile: then it stays, since it contains all rows.

    Returns:
        The units that could not be given way to, each with the reason; they do not keep the others.
    """
    kept: list[str] = []
    later = list(_list_later(rewriter.run)) if rewriter.swap.repoints else []
    for new in several:
        try:
            _give_way(rewriter, new, later)
        except FAILURES as error:
            kept.append(f"{new.unit.name}: {type(error).__name__}: {error}")
    return kept


def _list_later(run: RunContext) -> Iterator[Journal]:
    """Yield the journals of this run, as the other driver has continued it, and of later ones, oldest first."""
    for run_id in Journal.runs(run.table.trust.log()):
        if run_id >= run.run_id:
            try:
                yield run.table.trust.journal(run_id)
            except VerificationError:
                continue  # a journal that is not trusted must not decide where a unit points


def _give_way(rewriter: UnitRewriter, new: NewFiles, later: Sequence[Journal]) -> None:
    run, unit = rewriter.run, new.unit
    if not rewriter.swap.repoints:
        if is_as_staged(rewriter, new):
            rewriter.swap.undo(new)
        return
    location = unit.location
    for journal in later:
        status = journal.statuses().get(unit.name)
        if status is not None and status.swapped:
            location = status.new_location
            swapping = [record for record in journal.of_unit(unit.name) if record.kind == "unit_swapping"]
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

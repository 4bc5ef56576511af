"""Checks of past runs' old files at each later run: compares their folders again, and reports open problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.trust import TableTrust
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.journal.run_status import has_ended, has_expired, is_paused
from sparkcrypt.ledger.state.actor import acting_user
from sparkcrypt.ledger.state.lock import RunLock, acquire
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.ledger.unit import Unit
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.awaiting_expiry import count_awaiting_expiry
from sparkcrypt.runs.old_folders.check_replacements import report_lost
from sparkcrypt.runs.old_folders.compare_with_audit import compare_unread
from sparkcrypt.runs.old_folders.compare_with_journal import compare_run, problems_of
from sparkcrypt.runs.old_folders.former_homes import (
    find_stray_files,
    find_unknown_old,
    list_stray_files,
    look_into_homes,
)
from sparkcrypt.runs.old_folders.grace import move_out_of_reach
from sparkcrypt.runs.old_folders.listed_files import ListedFiles
from sparkcrypt.runs.old_folders.past_run import PastRuns, trust_of
from sparkcrypt.runs.old_folders.problems import BACK, CUT_OFF, OF_LIST, REPLAYED, Problem, problems_of_target
from sparkcrypt.runs.rewrite.follow_rename import settle_places
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.rewrite.schedule import FailedUnit
from sparkcrypt.runs.table.in_use import InUse, OtherTables
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.runs.table.scan import ScannedUnit
from sparkcrypt.runs.table.target import CatalogTarget, Target
from sparkcrypt.runs.table.unit_survey import UnitSurvey
from sparkcrypt.spark.files.hadoop import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class LookedAfter:
    """The result of checking the old files of past runs.

    Attributes:
        carried: the number of late commits' files that were reconciled.
        failed: the units of which something stays open, each with the reason.
        notes: notes for the report.
        problems: the open problems of the table.
    """

    carried: int = 0
    failed: tuple[FailedUnit, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def look_after(
    spark: SparkSession,
    target: Target,
    policy: Policy,
    trust: TableTrust,
    lock: RunLock,
    progress: Progress,
    others: OtherTables,
    *,
    but: str | None = None,
) -> LookedAfter:
    """Compare the old folders of finished and paused runs that have not expired, and move old files out of reach.

    See `compare_run` and `move_out_of_reach`.  A run whose journal is not trusted is reported and keeps its old files,
    which are compared with the audit's entries instead (`compare_unread`).  An unfinished run is compared when it ends.
    Former homes without old files are looked into for ever (`look_into_homes`).

    Args:
        spark: a classic session.
        target: a table; nothing is done for a bare folder.
        policy: the policy under which late commits are reconciled.
        trust: opens the table's journals.
        lock: the table's lock.
        progress: receives progress updates.
        others: the folders of other tables.
        but: the id of a run to leave out, since it is continued under this lock.

    Raises:
        RunConflictError: the lock is lost.
    """
    if target.table is None:
        return LookedAfter()
    store = trust.store
    if _has_no_old_files(store, target.table_id) and not _has_stray_files(spark, target, trust, others):
        return LookedAfter()
    trust.mac(renew=True)
    runs = PastRuns(spark, target, policy, store, lock, HadoopFiles(spark), progress, trust, others)
    carried, failed, notes = 0, list[FailedUnit](), list[str]()
    journals = runs.list_readable()
    for journal in journals:
        if journal.run.run_id == but or journal.archived:
            continue
        if not (has_ended(journal) or is_paused(journal)) or has_expired(journal):
            continue
        with runs.rewriter(journal) as rewriter:
            settle_places(rewriter)
            lost = report_lost(rewriter)
            compared = compare_run(rewriter)
            left = {unit.name for unit in (*lost, *compared.failed)}
            kept = {problem.unit for problem in problems_of(rewriter).open()} | left
            notes += [
                in_reach.note for in_reach in move_out_of_reach(rewriter, kept, grace_seconds=policy.grace_seconds)
            ]
        carried += compared.carried
        failed.extend((*lost, *compared.failed))
    failed.extend(compare_unread(runs, {journal.run.run_id for journal in journals}))
    astray, hints = look_into_homes(runs, journals)
    failed.extend(astray)
    notes += hints
    problems = runs.problems().open()
    return LookedAfter(carried, tuple(failed), tuple(notes), tuple(problems))


class OldFiles:
    """The old files of one target's past runs, which its next run checks.

    Args:
        spark: a classic session.
        target: the table; for a bare folder nothing is checked.
        policy: the policy with the grace.
        trust: opens the table's journals.
        progress: receives progress updates.
        others: the folders of other tables.
    """

    def __init__(
        self,
        spark: SparkSession,
        target: Target,
        policy: Policy,
        trust: TableTrust,
        progress: Progress,
        others: OtherTables,
    ) -> None:
        self._spark, self._target, self._policy, self._trust = spark, target, policy, trust
        self._progress, self._others = progress, others
        self._looked = LookedAfter()
        self._listed: ListedFiles | None = None

    def look_after(self, lock: RunLock, *, but: str | None) -> None:
        """Check them before a run begins or is continued; see the function `look_after`."""
        self._looked = look_after(
            self._spark, self._target, self._policy, self._trust, lock, self._progress, self._others, but=but
        )
        spark, target, policy, trust = self._spark, self._target, self._policy, self._trust
        self._listed = None
        if target.table is not None and target.plan.encrypted:
            files, store = HadoopFiles(spark), trust.store
            runs = PastRuns(spark, target, policy, store, lock, files, self._progress, trust, self._others)
            try:
                self._listed = ListedFiles(runs, self._looked.problems)
            except VerificationError as error:
                note = f"{target.name}: its files were not compared with the audit's list of them: {error}"
                self._looked = replace(self._looked, notes=(*self._looked.notes, note))

    def compare(self, scanned: ScannedUnit) -> None:
        """Compare a unit that is surveyed with the audit's list of its files."""
        if self._listed is not None:
            self._listed.compare(scanned)

    def refuse_replayed(self, unit: Unit) -> None:
        """Refuse to rewrite a unit with a file that has another's place in the audit's list; see `ListedFiles`.

        Raises:
            VerificationError: there is such a file.
        """
        if self._listed is not None:
            self._listed.refuse_replayed(unit)

    def settle_listed(self, *, whole: bool, adopt: bool) -> None:
        """Record which units writers have replaced, and open problems of others; see `ListedFiles`.

        Args:
            whole: every unit of the table was compared.
            adopt: files that belong elsewhere are accepted.
        """
        if self._listed is not None:
            opened = self._listed.settle(whole=whole, adopt=adopt)
            self._looked = replace(self._looked, problems=(*self._looked.problems, *opened))

    def look_without_lock(self) -> None:
        """Find what a run would report of former homes and unknown runs, for a dry run, which opens no problem."""
        in_use = InUse(self._spark, self._target, self._others)
        strays = list_stray_files(HadoopFiles(self._spark), self._target, in_use, self._trust)
        self._looked = LookedAfter(failed=tuple(strays))

    @property
    def failed(self) -> tuple[FailedUnit, ...]:
        """The units of which something stays open, as last found."""
        return self._looked.failed

    def leave_out_undecided(
        self, units: Sequence[UnitSurvey], *, keep_going: bool
    ) -> tuple[list[UnitSurvey], list[FailedUnit]]:
        """Return units without those whose rows a person must decide on first, and the latter with the reason.

        Raises:
            VerificationError: there is such a unit, and the run does not keep going.
        """
        undecided = {
            problem.unit: problem for problem in self._looked.problems if problem.kind in (BACK, CUT_OFF, REPLAYED)
        }
        failed = [undecided[unit.name].as_failed() for unit in units if unit.name in undecided]
        if failed and not keep_going:
            raise VerificationError(failed[0].message)
        return [unit for unit in units if unit.name not in undecided], failed

    def report_open_problems(self, report: Report) -> Report:
        """Return a run's report with the open problems, the old files awaiting expiry and the result of the check."""
        looked, files = self._looked, HadoopFiles(self._spark)
        problems = read_open_problems(self._trust, self._target, files)
        messages = {str(unit["message"]) for unit in report.quarantined}
        failed = [unit.to_dict() for unit in looked.failed if unit.message not in messages]
        messages |= {str(unit["message"]) for unit in failed}
        failed += [
            problem.as_failed().to_dict()
            for problem in problems
            if not any(problem.problem in text for text in messages)
        ]
        quarantined = _without_consequences((*report.quarantined, *failed), problems)
        ends = not (problems or failed) or report.outcome in ("dry run", "failed")
        grace = self._policy.grace_seconds
        return replace(
            report,
            outcome=report.outcome if ends else "incomplete",
            quarantined=quarantined,
            problems=tuple(problem.to_dict() for problem in problems),
            warnings=(*report.warnings, *looked.notes),
            awaiting_expiry=count_awaiting_expiry(self._trust.store, self._target.table_id, files, grace).to_dict(),
        )


def needs_care(
    spark: SparkSession,
    target: CatalogTarget,
    policy: Policy,
    store: StateStore,
    progress: Progress,
    others: OtherTables,
) -> bool:
    """Check the old files of a table that a pass would skip; tell whether the pass must not skip it.

    Args:
        spark: a classic session.
        target: the table.
        policy: the policy under which late commits are reconciled.
        store: the state directory.
        progress: receives progress updates.
        others: the folders of other tables.

    Raises:
        RunConflictError: a run holds the table.
    """
    trust = trust_of(spark, target, policy, store, others)
    if _has_no_old_files(store, target.table_id) and not _has_stray_files(spark, target, trust, others):
        return False
    owner = acting_user()
    with acquire(store, target.table_id, run_id="look after old files", owner=owner) as lock:
        lock.keep_alive()
        looked = look_after(spark, target, policy, trust, lock, progress, others)
    if looked.carried or looked.failed or looked.problems:
        return True
    return count_awaiting_expiry(store, target.table_id, HadoopFiles(spark), policy.grace_seconds).beyond_grace


def _has_no_old_files(store: StateStore, table_id: str) -> bool:
    """Tell whether no run of a table has old files: all runs are archived, or there are neither runs nor an audit."""
    if Journal.runs(store, table_id, archived=False):
        return False
    return bool(Journal.runs(store, table_id)) or not store.list(f"audit/{table_id}/")


def _has_stray_files(spark: SparkSession, target: Target, trust: TableTrust, others: OtherTables) -> bool:
    """Tell whether files are in a former home, or a problem is open, of a table without old files.

    Nothing is authenticated here, so each home counts that either the catalog or a journal names.
    """
    files, in_use = HadoopFiles(spark), InUse(spark, target, others)
    return bool(
        find_stray_files(files, target, in_use, {})
        or find_unknown_old(files, target, in_use, trust.store)
        or list_stray_files(files, target, in_use, trust)
        or read_open_problems(trust, target, files)
    )


def read_open_problems(trust: TableTrust, target: Target, files: HadoopFiles) -> list[Problem]:
    """Return the open problems of a table; a bare folder has none.

    Raises:
        KeyServiceError: the key service did not unwrap the MAC key of their records.
    """
    if target.table is None:
        return []
    return problems_of_target(target, trust.store, trust.mac, files).open()


def _without_consequences(
    units: Sequence[Mapping[str, Any]], problems: Iterable[Problem]
) -> tuple[Mapping[str, Any], ...]:
    """Return units that are left out, without what the audit's list says of one that another reason has left out."""
    of_list = {problem.message for problem in problems if problem.kind in OF_LIST}
    others = {unit["unit"] for unit in units if unit["message"] not in of_list}
    return tuple(unit for unit in units if unit["message"] not in of_list or unit["unit"] not in others)

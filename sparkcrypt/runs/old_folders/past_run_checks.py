"""Checks of past runs' old files at each later run: compares their folders again, and reports open problems."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.manifest import CUT_OFF, REPLAYED
from sparkcrypt.ledger.journal.journal import Journal, has_ended, has_expired, is_over, is_paused
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.lock import RunLock, acquire, acting_user
from sparkcrypt.ledger.state.mac import has_mac_key
from sparkcrypt.ledger.unit import Unit
from sparkcrypt.runs.old_folders.compare_with_audit import ListedFiles, compare_unread
from sparkcrypt.runs.old_folders.former_homes import (
    find_stray_files,
    find_unknown_old,
    list_stray_files,
    look_into_homes,
)
from sparkcrypt.runs.old_folders.late_commits import Compared, compare_run
from sparkcrypt.runs.old_folders.old_folder import Awaiting, count_awaiting_expiry, move_out_of_reach
from sparkcrypt.runs.old_folders.past_run import PastRuns
from sparkcrypt.runs.old_folders.problems import BACK, OF_LIST, Problem, problems_of_target
from sparkcrypt.runs.old_folders.replacements import report_lost
from sparkcrypt.runs.rewrite.recover import settle_places
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.rewrite.schedule import FailedUnit
from sparkcrypt.runs.table.open_table import OpenTable
from sparkcrypt.runs.table.scan import ScannedUnit
from sparkcrypt.runs.table.unit_survey import UnitSurvey

_PROBLEM = re.compile(r"(?=([0-9a-f]{12}))")
"""Whatever may be the name of a problem in a text, wherever it begins."""


def look_after(table: OpenTable, lock: RunLock, *, but: str | None = None) -> Compared:
    """Compare the old folders of finished and paused runs that have not expired, and move old files out of reach.

    See `compare_run` and `move_out_of_reach`.  A run whose journal is not trusted is reported and keeps its old files,
    which are compared with the audit's entries instead (`compare_unread`).  An unfinished run is compared when it ends.
    Former homes without old files are looked into for ever (`look_into_homes`).

    Args:
        table: a table; nothing is done for a bare folder.
        lock: the table's lock.
        but: the id of a run to leave out, since it is continued under this lock.

    Raises:
        RunConflictError: the lock is lost.
    """
    if table.target.table is None or _has_nothing_left(table):
        return Compared()
    table.trust.mac(renew=True)
    runs = PastRuns(table, lock)
    carried, failed, notes = 0, list[FailedUnit](), list[str]()
    journals, problems = runs.list_readable(), runs.problems()
    for journal in journals:
        if journal.run.run_id == but or journal.archived:
            continue
        if not (has_ended(journal) or is_paused(journal)) or has_expired(journal):
            continue
        with runs.rewriter(journal) as rewriter:
            settle_places(rewriter)
            lost = report_lost(rewriter, problems)
            compared = compare_run(rewriter, problems)
            left = {unit.name for unit in (*lost, *compared.failed)}
            kept = {problem.unit for problem in problems.open()} | left
            notes += move_out_of_reach(rewriter, kept, grace_seconds=table.policy.grace_seconds)
        carried += compared.carried
        failed.extend((*lost, *compared.failed))
    failed.extend(compare_unread(runs, {journal.run.run_id for journal in journals}))
    astray, hints = look_into_homes(runs, journals)
    failed.extend(astray)
    notes += hints
    return Compared(carried, tuple(failed), tuple(notes), tuple(runs.problems().open()))


class OldFiles:
    """The old files of one target's past runs, which its next run checks.

    Args:
        table: the table; for a bare folder nothing is checked.
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table
        self._looked = Compared()
        self._listed: ListedFiles | None = None

    def look_after(self, lock: RunLock, *, but: str | None) -> None:
        """Check them before a run begins or is continued; see the function `look_after`."""
        self._looked = look_after(self._table, lock, but=but)
        self._listed = None
        target = self._table.target
        if target.table is not None and target.plan.encrypted:
            try:
                self._listed = ListedFiles(PastRuns(self._table, lock), self._looked.problems)
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
        self._looked = Compared(failed=tuple(list_stray_files(self._table)))

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
        looked, table = self._looked, self._table
        problems = read_open_problems(table)
        messages = {str(unit["message"]) for unit in report.quarantined}
        failed = [unit.to_dict() for unit in looked.failed if unit.message not in messages]
        messages |= {str(unit["message"]) for unit in failed}
        named = {found[1] for text in messages for found in _PROBLEM.finditer(text)}
        failed += [problem.as_failed().to_dict() for problem in problems if problem.problem not in named]
        quarantined = _without_consequences((*report.quarantined, *failed), problems)
        ends = not (problems or failed) or report.outcome in ("dry run", "failed")
        return replace(
            report,
            outcome=report.outcome if ends else "incomplete",
            quarantined=quarantined,
            problems=tuple(problem.to_dict() for problem in problems),
            warnings=(*report.warnings, *looked.notes),
            awaiting_expiry=_count_awaiting(table).to_dict(),
        )


def needs_care(table: OpenTable) -> bool:
    """Check the old files of a table that a pass would skip; tell whether the pass must not skip it.

    Raises:
        RunConflictError: a run holds the table.
    """
    if _has_nothing_left(table):
        return False
    owner = acting_user()
    with acquire(table.store, table.target.table_id, run_id="look after old files", owner=owner) as lock:
        lock.keep_alive()
        looked = look_after(table, lock)
    if looked.carried or looked.failed or looked.problems:
        return True
    return _count_awaiting(table).beyond_grace


def _count_awaiting(table: OpenTable) -> Awaiting:
    return count_awaiting_expiry(table.trust.shown_log(), table.files.exists, table.policy.grace_seconds)


def _has_nothing_left(table: OpenTable) -> bool:
    """Tell whether a table has no old files, no file in a former home, and no open problem.

    Where it has no old files, each home counts that either the catalog or a journal names.
    """
    if not _has_no_old_files(table):
        return False
    return not (
        find_stray_files(table, {})
        or find_unknown_old(table)
        or list_stray_files(table, unknown=())
        or read_open_problems(table)
    )


def _has_no_old_files(table: OpenTable) -> bool:
    """Tell whether no run of a table has old files: all runs have expired, or there are neither runs nor an audit."""
    if not has_mac_key(table.store, table.target.table_id):
        return not table.store.list(f"log/{table.target.table_id}/")
    log = table.trust.log()
    runs = Journal.runs(log)
    return bool(runs) and all(_is_expired(log, run_id) for run_id in runs)


def _is_expired(log: TableLog, run_id: str) -> bool:
    try:
        return is_over(Journal.open(log, run_id))
    except VerificationError:
        return False


def read_open_problems(table: OpenTable) -> list[Problem]:
    """Return the open problems of a table; a bare folder has none.

    Raises:
        KeyServiceError: the key service did not unwrap the MAC key of their records.
    """
    if table.target.table is None:
        return []
    return problems_of_target(table.target, table.store, table.trust.mac, table.files).open()


def _without_consequences(
    units: Sequence[Mapping[str, Any]], problems: Iterable[Problem]
) -> tuple[Mapping[str, Any], ...]:
    """Return units that are left out, without what the audit's list says of one that another reason has left out."""
    of_list = {problem.message for problem in problems if problem.kind in OF_LIST}
    others = {unit["unit"] for unit in units if unit["message"] not in of_list}
    return tuple(unit for unit in units if unit["message"] not in of_list or unit["unit"] not in others)

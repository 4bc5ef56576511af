"""What a pass does for the old files of past runs: it compares them again, and repeats what is open of the table."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from sparkcrypt.backfill.awaiting import awaiting_expiry
from sparkcrypt.backfill.compare import compare_run, problems_of
from sparkcrypt.backfill.in_use import OtherTables
from sparkcrypt.backfill.journal import Journal
from sparkcrypt.backfill.lock import RunLock, acquire
from sparkcrypt.backfill.migrate import authenticating
from sparkcrypt.backfill.past_run import PastRuns
from sparkcrypt.backfill.problems import BACK, Problem, Problems
from sparkcrypt.backfill.progress import Progress
from sparkcrypt.backfill.reach import move_out_of_reach
from sparkcrypt.backfill.report import Report
from sparkcrypt.backfill.run_state import ended, expired, paused
from sparkcrypt.backfill.schedule import FailedUnit
from sparkcrypt.backfill.store import StateStore
from sparkcrypt.backfill.survey import UnitSurvey
from sparkcrypt.backfill.targets import CatalogTarget, Target, locations_of
from sparkcrypt.backfill.trust import TableTrust
from sparkcrypt.errors import VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class LookedAfter:
    """What was done for the old files of past runs, what is left for a person, and what people should know."""

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
    """Compare the old folders of a table's runs that have ended, or wait, and not expired; see `compare_run`.

    A run whose journal is damaged is named, and keeps its old files; an unfinished one is compared when it ends.

    Args:
        spark: a classic session.
        target: a table; of a bare directory no old files are looked after.
        policy: under which files are carried over.
        trust: opens the table's journals.
        lock: of the table.
        progress: hears what is done.
        others: the folders of other tables.
        but: a run that goes on under this lock.

    Raises:
        RunConflictError: the lock is lost.
    """
    if not isinstance(target, CatalogTarget):
        return LookedAfter()
    store = trust.store
    if not Journal.runs(store, target.table_id, archived=False):
        return LookedAfter()
    authenticating(trust, target.name)
    runs = PastRuns(spark, target, policy, store, lock, HadoopFiles(spark), progress, trust, others)
    carried, failed, notes = 0, list[FailedUnit](), list[str]()
    for journal in runs.readable():
        if journal.run.run_id == but or journal.archived:
            continue
        if not (ended(journal) or paused(journal)) or expired(journal):
            continue
        with runs.runner(journal) as runner:
            compared = compare_run(runner)
            kept = {one.unit for one in problems_of(runner).open()} | {one.name for one in compared.failed}
            notes += [one.note for one in move_out_of_reach(runner, kept, grace_seconds=policy.grace_seconds)]
        carried += compared.carried
        failed.extend(compared.failed)
    problems = known_problems(trust, target)
    return LookedAfter(carried, tuple(failed), tuple(notes), tuple(problems))


class OldFiles:
    """The old files of one target, as its next run meets them.

    Args:
        spark: a classic session.
        target: the table; of a bare directory nothing is known.
        policy: whose grace counts.
        trust: opens the table's journals.
        progress: hears what is done.
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

    def look_after(self, lock: RunLock, *, but: str | None) -> None:
        """Look after them, before a run begins or goes on; see `look_after`."""
        self._looked = look_after(
            self._spark, self._target, self._policy, self._trust, lock, self._progress, self._others, but=but
        )

    def without_back(
        self, units: Sequence[UnitSurvey], *, keep_going: bool
    ) -> tuple[list[UnitSurvey], list[FailedUnit]]:
        """Return units less those in which old files are in use again, and why these are left as they are.

        Raises:
            VerificationError: there is one, and the run does not keep going.
        """
        back = {one.unit: one for one in self._looked.problems if one.kind == BACK}
        failed = [back[one.name].failed() for one in units if one.name in back]
        if failed and not keep_going:
            raise VerificationError(failed[0].message)
        return [one for one in units if one.name not in back], failed

    def told_in(self, report: Report) -> Report:
        """Return a run's report with what is open of its table, what waits for expiry, and what was looked after."""
        looked, problems = self._looked, known_problems(self._trust, self._target)
        told = {str(one["message"]) for one in report.quarantined}
        left = [one.to_dict() for one in looked.failed if one.message not in told]
        told |= {str(one["message"]) for one in left}
        left += [one.failed().to_dict() for one in problems if not any(one.problem in text for text in told)]
        ends = not (problems or left) or report.outcome in ("dry run", "failed")
        files, grace = HadoopFiles(self._spark), self._policy.grace_seconds
        return replace(
            report,
            outcome=report.outcome if ends else "incomplete",
            quarantined=(*report.quarantined, *left),
            problems=tuple(one.to_dict() for one in problems),
            warnings=(*report.warnings, *looked.notes),
            awaiting_expiry=awaiting_expiry(self._trust.store, self._target.table_id, files, grace).to_dict(),
        )


def needs_care(
    spark: SparkSession,
    target: CatalogTarget,
    policy: Policy,
    store: StateStore,
    progress: Progress,
    others: OtherTables,
) -> bool:
    """Look after the old files of a table that a pass would pass over; tell whether it must not.

    Args:
        spark: a classic session.
        target: the table.
        policy: under which files are carried over.
        store: the state directory.
        progress: hears what is done.
        others: the folders of other tables.

    Raises:
        RunConflictError: a run holds the table.
    """
    if not Journal.runs(store, target.table_id, archived=False):
        return False
    owner = f"{getpass.getuser()}@{socket.gethostname()}"
    with acquire(store, target.table_id, run_id="look after old files", owner=owner) as lock:
        lock.keep_alive()
        trust = TableTrust(store, target.table_id, policy, target.base, partial(locations_of, spark, target))
        looked = look_after(spark, target, policy, trust, lock, progress, others)
    if looked.carried or looked.failed or looked.problems:
        return True
    return awaiting_expiry(store, target.table_id, HadoopFiles(spark), policy.grace_seconds).beyond_grace


def known_problems(trust: TableTrust, target: Target) -> list[Problem]:
    """Return the open problems of a table; a bare directory has none.

    Raises:
        KeyServiceError: the key service did not unwrap what authenticates them.
    """
    if not isinstance(target, CatalogTarget):
        return []
    return Problems(trust.store, target.table_id, trust.mac).open()

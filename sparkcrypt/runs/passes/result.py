"""The result of a run, and its report."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.journal.entries import AuditHead
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.unit import UnitOutcome
from sparkcrypt.runs.rewrite.run_report import IN_CLEAR, NEEDS_CONSENT, WITHOUT_EFFECT, Outcome, Report
from sparkcrypt.runs.rewrite.schedule import FailedUnit
from sparkcrypt.runs.table.columns import sum_up_inherited
from sparkcrypt.runs.table.difference import DECRYPTED, Drift, drift_in_short
from sparkcrypt.runs.table.target import Target
from sparkcrypt.runs.table.unit_survey import UnitSurvey, count_calls, coverage_of, files_by_kind
from sparkcrypt.text import count_of

_SHOWN = 3
_RUNS = 3
"""The number of newest runs that count, since machines, engines and files change."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run.

    Attributes:
        run_id: the id of the run.
        outcome: how the run ended.
        surveys: the units of the target, as they were surveyed.
        outcomes: the units that were done.
        earlier: those of the outcomes that earlier executions had reached.
        failed: the units that failed.
        left: the units for which the budget was not enough.
        swap: how units were swapped; None if no unit was.
        notes: notes on the run as a whole.
        audit: the audit's head that the journal recorded last.
        bytes_a_second: the expected speed of a run; None if it is not known.
        index: the state of the table's store for data skipping.
    """

    run_id: str
    outcome: Outcome
    surveys: Sequence[UnitSurvey]
    outcomes: Sequence[UnitOutcome] = ()
    earlier: Sequence[UnitOutcome] = ()
    failed: Sequence[FailedUnit] = ()
    left: Sequence[UnitSurvey] = ()
    swap: str | None = None
    notes: tuple[str, ...] = ()
    audit: Mapping[str, Any] | None = None
    bytes_a_second: float | None = None
    index: Mapping[str, Any] | None = None

    def report(self, target: Target, engine: str, seconds: float) -> Report:
        """Return the report on a target; ``seconds`` is how long the execution took."""
        done = {outcome.name for outcome in self.outcomes}
        undone = [survey for survey in self.surveys if survey.drift and survey.name not in done]
        earlier = {outcome.name: None for outcome in self.earlier}
        inherited = any(survey.inherited for survey in self.surveys)
        untagged = not (target.plan.encrypted or undone or inherited)  # else something may still be encrypted
        return Report(
            table=target.name,
            run_id=self.run_id,
            engine=engine,
            files_total=sum(survey.amount.files for survey in self.surveys),
            files_rewritten=sum(outcome.files for outcome in self.outcomes),
            files_skipped=sum(survey.amount.files for survey in self.surveys if not survey.drift),
            files_left=sum(survey.amount.files for survey in undone),
            rows=sum(outcome.rows for outcome in self.outcomes),
            bytes_before=sum(outcome.bytes_before for outcome in self.outcomes),
            bytes_after=sum(outcome.bytes_after for outcome in self.outcomes),
            bytes_left=sum(survey.total_bytes for survey in undone),
            units_left=len(undone),
            columns=_list_columns(target),
            verified=all(outcome.verified for outcome in self.outcomes) if self.outcomes else not untagged,
            seconds=round(seconds, 3),
            old_location=_find_shared_folder([outcome.old_location for outcome in self.outcomes]),
            new_location=_find_shared_folder([outcome.new_location for outcome in self.outcomes]),
            outcome="untagged" if untagged and self.outcome == "nothing to do" else self.outcome,
            swap=self.swap,
            units=tuple(outcome.to_dict() for outcome in self.outcomes),
            warnings=(
                *(f"{WITHOUT_EFFECT} {line}" for line in target.plan.without_effect),
                *(f"{IN_CLEAR} {line}" for line in target.plan.in_clear),
                *self._warnings(),
            ),
            audit=self.audit,
            quarantined=tuple(unit.to_dict() for unit in self.failed),
            drift={"before": files_by_kind(self.surveys), "after": files_by_kind(undone)},
            coverage=coverage_of(self.surveys, done),
            planned=tuple(survey.to_dict() for survey in undone) if self.outcome == "dry run" else (),
            estimated_seconds=self._estimate_seconds(undone),
            this_pass=_sum_up([outcome for outcome in self.outcomes if outcome.name not in earlier]),
            earlier=tuple(earlier),
            index=self.index,
            key_calls={"before": count_calls(self.surveys)},
            untagged=untagged,
            data_columns=len(target.plan.columns),
            key_ids=self._list_key_ids(done, target.plan.footer_key),
        )

    def _list_key_ids(self, done: Collection[str], footer_key: str) -> tuple[str, ...]:
        """Return the master keys of all files: those of units that were done are by the plan now."""
        found = set[str]()
        for survey in self.surveys:
            if survey.name in done:
                found |= survey.keys and {*survey.keys, footer_key}
            if survey.name not in done or sum(amount.files for amount in survey.actions.values()) < survey.amount.files:
                found |= {wrapping.key_id for wrapping in survey.wrappings}
        return tuple(sorted(found))

    def _estimate_seconds(self, undone: Sequence[UnitSurvey]) -> float | None:
        if self.outcome != "dry run" or not self.bytes_a_second:
            return None
        return round(sum(survey.total_bytes for survey in undone) / self.bytes_a_second, 1)

    def _warnings(self) -> tuple[str, ...]:
        drift = [difference for unit in self.surveys for difference in unit.drift] if self.outcome == "dry run" else []
        held = [f"{unit.name}: {unit.held_by}" for unit in self.surveys if unit.held_by and self.outcome == "dry run"]
        inherited = sum_up_inherited(found for unit in self.surveys for found in unit.inherited)
        asks = _describe_decrypted(drift)
        return (*self.notes, *_list_notes(self.outcomes), *drift_in_short(drift), *held, *asks, *map(str, inherited))


def _describe_decrypted(drift: Sequence[Drift]) -> tuple[str, ...]:
    """Return the warning of a dry run that a run would need consent to decrypt columns; empty if it decrypts none."""
    found = [difference for difference in drift if difference.kind == DECRYPTED]
    if not found:
        return ()
    columns = ", ".join(sorted({difference.column for difference in found if difference.column})) or "all columns"
    files = count_of(len({difference.file for difference in found}), "file")
    return (f"{NEEDS_CONSENT} of {columns} in {files}: a run leaves their units as they are without --allow-decrypt",)


def _sum_up(outcomes: Sequence[UnitOutcome]) -> dict[str, int]:
    return {
        "files_rewritten": sum(outcome.files for outcome in outcomes),
        "rows": sum(outcome.rows for outcome in outcomes),
        "bytes_before": sum(outcome.bytes_before for outcome in outcomes),
        "bytes_after": sum(outcome.bytes_after for outcome in outcomes),
    }


def result_of_failed_run(journal: Journal, surveys: Sequence[UnitSurvey]) -> RunResult:
    """Return the result of a run that an error ended, from its journal."""
    statuses = journal.statuses()
    done = [status.outcome for status in statuses.values() if status.swapped]
    failed = [
        FailedUnit(name, *str(status.error).partition(": ")[::2])
        for name, status in statuses.items()
        if status.step == "unit_failed"
    ]
    return RunResult(
        journal.run.run_id, "failed", surveys, outcomes=done, failed=failed, audit=find_last_audit(journal)
    )


def find_last_audit(journal: Journal) -> Mapping[str, Any] | None:
    """Return the head of the log as JSON values; None if the run has swapped no unit."""
    swapped = any(record.kind == "unit_swapped" for record in journal.records)
    return AuditHead(*journal.log.head).to_dict() if swapped else None


def _list_notes(outcomes: Sequence[UnitOutcome]) -> tuple[str, ...]:
    """Return each note once, with the names of the first few units that have it."""
    units: dict[str, list[str]] = {}
    for outcome in outcomes:
        for note in outcome.notes:
            units.setdefault(note, []).append(outcome.name)
    lines = []
    for note, names in units.items():
        more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
        lines.append(f"{', '.join(names[:_SHOWN])}{more}: {note}")
    return tuple(lines)


def _list_columns(target: Target) -> Mapping[str, str]:
    return {
        column.leaf.dotted: column.key.text if column.key else target.plan.footer_key
        for column in target.plan.encrypted
    }


def _find_shared_folder(locations: Sequence[str]) -> str | None:
    """Return the innermost folder that contains all of some folders; None if there are none."""
    if not locations:
        return None
    folders = [location.rstrip("/").split("/") for location in locations]
    if len(folders) == 1:
        return "/".join(folders[0])
    shared = []
    for names in zip(*folders, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return "/".join(shared)


def bytes_a_second(log: TableLog) -> float | None:
    """Return the speed of a table's newest runs, in bytes of old files per second from a unit's listing to its swap.

    The seconds of units that were rewritten concurrently are added up, so a run with a parallelism of two is twice as
    fast.

    Returns:
        None if no run has swapped a unit, or no outcome has its seconds.
    """
    return rate(outcome for run_id in Journal.runs(log)[-_RUNS:] for outcome in _outcomes(log, run_id))


def rate(outcomes: Iterable[UnitOutcome]) -> float | None:
    """Return the bytes per second of units that were swapped; None if no outcome has its seconds."""
    timed = [(outcome.bytes_before, outcome.seconds) for outcome in outcomes if outcome.seconds and outcome.seconds > 0]
    seconds = sum(taken for _, taken in timed)
    return sum(total for total, _ in timed) / seconds if seconds else None


def _outcomes(log: TableLog, run_id: str) -> tuple[UnitOutcome, ...]:
    """Return the outcomes of a run's units; empty if its journal cannot be read, since this is only an estimate."""
    try:
        statuses = Journal.open(log, run_id).statuses().values()
        return tuple(status.outcome for status in statuses if status.was_swapped)
    except VerificationError:
        return ()

"""From what a run did to its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkcrypt.backfill.drift import drift_in_short
from sparkcrypt.backfill.journal import Journal
from sparkcrypt.backfill.outcome import UnitOutcome
from sparkcrypt.backfill.report import Outcome, Report
from sparkcrypt.backfill.schedule import FailedUnit
from sparkcrypt.backfill.survey import UnitSurvey, coverage_of, files_by_kind
from sparkcrypt.backfill.targets import Target
from sparkcrypt.backfill.unit_state import state_of_units

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run did, and what it left: units that failed, and units that the budget was not enough for.

    ``notes`` are what people should know of the run as a whole; ``audit`` is the head that its journal recorded last;
    ``earlier`` are those of the outcomes that passes before this one had reached;
    ``bytes_a_second`` is how fast a run would be, where that can be told.
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

    def report(self, target: Target, engine: str, seconds: float) -> Report:
        """Return the report."""
        done = {one.name for one in self.outcomes}
        undone = [one for one in self.surveys if one.drift and one.name not in done]
        return Report(
            table=target.name,
            run_id=self.run_id,
            engine=engine,
            files_total=sum(one.amount.files for one in self.surveys),
            files_rewritten=sum(one.files for one in self.outcomes),
            files_skipped=sum(one.amount.files for one in self.surveys if not one.drift),
            files_left=sum(one.amount.files for one in undone),
            rows=sum(one.rows for one in self.outcomes),
            bytes_before=sum(one.bytes_before for one in self.outcomes),
            bytes_after=sum(one.bytes_after for one in self.outcomes),
            bytes_left=sum(one.total_bytes for one in undone),
            units_left=len(undone),
            columns=_columns(target),
            verified=all(one.verified for one in self.outcomes),
            seconds=round(seconds, 3),
            old_location=_old_location(self.outcomes),
            outcome=self.outcome,
            swap=self.swap,
            units=tuple(one.to_dict() for one in self.outcomes),
            warnings=self._warnings(),
            audit=self.audit,
            quarantined=tuple(one.to_dict() for one in self.failed),
            drift={"before": files_by_kind(self.surveys), "after": files_by_kind(undone)},
            coverage=coverage_of(self.surveys, done),
            planned=tuple(one.to_dict() for one in undone) if self.outcome == "dry run" else (),
            estimated_seconds=self._estimate(undone),
            this_pass=_sums([one for one in self.outcomes if one not in self.earlier]),
            earlier=tuple(one.name for one in self.earlier),
        )

    def _estimate(self, undone: Sequence[UnitSurvey]) -> float | None:
        if self.outcome != "dry run" or not self.bytes_a_second:
            return None
        return round(sum(one.total_bytes for one in undone) / self.bytes_a_second, 1)

    def _warnings(self) -> tuple[str, ...]:
        drift = [one for unit in self.surveys for one in unit.drift] if self.outcome == "dry run" else []
        return (*self.notes, *_notes_of_units(self.outcomes), *drift_in_short(drift))


def _sums(outcomes: Sequence[UnitOutcome]) -> dict[str, int]:
    return {
        "files_rewritten": sum(one.files for one in outcomes),
        "rows": sum(one.rows for one in outcomes),
        "bytes_before": sum(one.bytes_before for one in outcomes),
        "bytes_after": sum(one.bytes_after for one in outcomes),
    }


def of_failed_run(journal: Journal, surveys: Sequence[UnitSurvey]) -> RunResult:
    """Return what a run had done when an error ended it, by its journal."""
    states = state_of_units(journal.records)
    done = [UnitOutcome.from_dict(one.fields["outcome"]) for one in states.values() if one.swapped]
    failed = [
        FailedUnit(name, *str(one.fields["error"]).partition(": ")[::2])
        for name, one in states.items()
        if one.step == "unit_failed"
    ]
    return RunResult(journal.run.run_id, "failed", surveys, outcomes=done, failed=failed, audit=last_audit(journal))


def last_audit(journal: Journal) -> Mapping[str, Any] | None:
    """Return the audit's head as a run's journal recorded it last."""
    heads = [record.fields.get("audit") for record in journal.records if record.kind == "unit_swapped"]
    return heads[-1] if heads else None


def _notes_of_units(outcomes: Sequence[UnitOutcome]) -> tuple[str, ...]:
    """Return each note once, with the first few units that have it."""
    units: dict[str, list[str]] = {}
    for one in outcomes:
        for note in one.notes:
            units.setdefault(note, []).append(one.name)
    lines = []
    for note, names in units.items():
        more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
        lines.append(f"{', '.join(names[:_SHOWN])}{more}: {note}")
    return tuple(lines)


def _columns(target: Target) -> Mapping[str, str]:
    return {
        column.leaf.dotted: column.key.text if column.key else target.plan.footer_key
        for column in target.plan.encrypted
    }


def _old_location(outcomes: Sequence[UnitOutcome]) -> str | None:
    """Return the one folder under which all old files are."""
    if not outcomes:
        return None
    folders = [one.old_location.rstrip("/").split("/") for one in outcomes]
    if len(folders) == 1:
        return "/".join(folders[0])
    shared = []
    for names in zip(*folders, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return "/".join(shared)

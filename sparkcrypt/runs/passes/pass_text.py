"""Formats the report of a pass as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sparkcrypt.runs.passes.report import NOT_IN_PLACE
from sparkcrypt.runs.rewrite.run_report import (
    IN_CLEAR,
    KEY_NOT_KNOWN,
    NEEDS_CONSENT,
    WITHOUT_EFFECT,
    WRITTEN_IN_CLEAR,
    describe_missing_keys,
)
from sparkcrypt.text import align_table, count_of, cut_lines, size_of

if TYPE_CHECKING:
    from sparkcrypt.runs.passes.report import PassReport
    from sparkcrypt.runs.rewrite.run_report import Report

_OF_PLANS = (NOT_IN_PLACE, NEEDS_CONSENT, WITHOUT_EFFECT, IN_CLEAR, KEY_NOT_KNOWN, WRITTEN_IN_CLEAR)
"""How warnings begin that the table of a plan does not show already."""
_HEAD = ("table", "outcome", "files", "rewritten", "bytes", "left", "run")


def pass_text(done: PassReport) -> str:
    """Return a line for the pass, a line for each table, and all failures, warnings and notes."""
    totals = done.totals()
    lines = [f"{done.outcome}: {_describe_pass(done, totals)}"]
    if done.tables:
        head = ("table", "outcome", "files", "to do", "bytes", "what") if done.dry_run else _HEAD
        rows = [_plan_row(table) if done.dry_run else _run_row(table) for table in done.tables]
        lines += ["", align_table(rows, head=head)]
    lines += _problems(done)
    return "\n".join(lines)


def _describe_pass(done: PassReport, totals: Mapping[str, int]) -> str:
    tables = count_of(totals["tables"], "table") + (f" ({totals['untagged']:,} untagged)" if totals["untagged"] else "")
    if done.dry_run:
        amount = (
            f"{count_of(totals['files_left'], 'file')} of {totals['files_total']:,}, {size_of(totals['bytes_left'])}"
        )
        return f"{tables}, {amount} differ from the plan{estimate_text(done.tables)}"
    amount = (
        f"{count_of(totals['files_rewritten'], 'file')} of {totals['files_total']:,}, {size_of(totals['bytes_before'])}"
    )
    remainder = (
        f"; left: {count_of(totals['units_left'], 'unit')}, {size_of(totals['bytes_left'])}"
        if totals["units_left"]
        else ""
    )
    return f"{tables}, {amount} rewritten in {done.seconds:,.1f} s{remainder}"


def estimate_text(reports: Iterable[Report]) -> str:
    """Return the estimated time to remove the drift, from the speed of earlier runs of the tables, if known."""
    drifting = [report.estimated_seconds for report in reports if report.units_left]
    known = [seconds for seconds in drifting if seconds is not None]
    if not known:
        return ""
    of = "" if len(known) == len(drifting) else f" for {len(known):,} of {count_of(len(drifting), 'table')}"
    return f"; about {timedelta(seconds=round(sum(known)))}{of}, by earlier runs"


def actions_text(report: Report) -> str:
    """Return the actions of a plan, each with its number of files."""
    actions: dict[str, int] = {}
    for unit in report.planned:
        for action, amount in unit["actions"].items():
            actions[action] = actions.get(action, 0) + int(amount["files"])
    return ", ".join(f"{action} {count:,}" for action, count in sorted(actions.items()))


def _plan_row(report: Report) -> tuple[object, ...]:
    what = actions_text(report)
    drift = ", ".join(f"{kind}: {count:,}" for kind, count in sorted(report.drift.get("before", {}).items()))
    outcome = "drift" if report.units_left else "untagged" if report.untagged else "matches"
    untagged = f"no tag on {count_of(report.data_columns, 'column')}" if report.untagged else None
    return (
        report.table,
        outcome,
        f"{report.files_total:,}",
        f"{report.files_left:,} in {count_of(report.units_left, 'unit')}",
        size_of(report.bytes_left),
        f"{what} ({drift})" if what else untagged,
    )


def _run_row(report: Report) -> tuple[object, ...]:
    left = f"{count_of(report.units_left, 'unit')}, {size_of(report.bytes_left)}" if report.units_left else None
    now = report.this_pass.get("files_rewritten", report.files_rewritten)
    rewritten = f"{now:,} (run: {report.files_rewritten:,})" if report.earlier else f"{now:,}"
    amount = size_of(report.this_pass.get("bytes_before", report.bytes_before))
    return report.table, report.outcome, f"{report.files_total:,}", rewritten, amount, left, report.run_id


def _problems(done: PassReport) -> list[str]:
    found = list(_texts(done))
    return ["", *cut_lines(found)] if found else []


def _texts(done: PassReport) -> Iterator[str]:
    for entry in done.failed:
        yield f"failed: {entry.table}: {entry.error}: {entry.message}"
    for table, reason in done.refused.items():
        yield f"refused: {table}: {reason}"
    yield from _describe_untagged(done.tables)
    for report in done.tables:
        unit: Mapping[str, Any]
        for unit in report.quarantined:
            yield f"quarantined: {report.table}: {unit['unit']}: {unit['error']}: {unit['message']}"
    for report in done.tables:
        yield from (f"{report.table}: {line}" for line in describe_missing_keys(report.missing_keys))
        shown = _OF_PLANS if done.dry_run else ""  # the table of a dry run shows the other warnings
        yield from (f"warning: {report.table}: {text}" for text in report.warnings if text.startswith(shown))
    yield from _describe_held(done.tables)
    yield from (f"warning: {warning}" for warning in done.warnings)
    yield from _describe_awaiting(done.tables)
    if done.unchanged:
        yield f"unchanged since the last pass: {', '.join(done.unchanged)}"
    yield from (f"skipped: {table}: {reason}" for table, reason in done.passed_over.items())


def _describe_untagged(reports: Iterable[Report]) -> Iterator[str]:
    names = [report.table for report in reports if report.untagged]
    if names:
        yield f"untagged, so nothing in them is encrypted: {', '.join(names)}; see `sparkcrypt tags set`"


def _describe_held(reports: Iterable[Report]) -> Iterator[str]:
    for report in reports:
        for unit in report.planned:
            if unit["held_by"]:
                yield f"held: {report.table}: {unit['unit']}: {unit['held_by']}"


def _describe_awaiting(reports: Iterable[Report]) -> Iterator[str]:
    for report in reports:
        files, total = report.plaintext_awaiting
        if files:
            waiting = report.awaiting_expiry or {}
            late = ", beyond its grace: run `sparkcrypt backfill expire`" if waiting.get("beyond_grace") else ""
            amount = f"{count_of(files, 'file')}, {size_of(total)}, since {waiting.get('since')}{late}"
            yield f"plaintext awaiting expiry: {report.table}: {amount}"

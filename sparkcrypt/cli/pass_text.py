"""The report of a pass as a person reads it on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sparkcrypt.backfill.pass_report import NOT_IN_PLACE
from sparkcrypt.cli.output import aligned, counted, size

if TYPE_CHECKING:
    from sparkcrypt.backfill.pass_report import PassReport
    from sparkcrypt.backfill.report import Report

_SHOWN = 20


def pass_text(done: PassReport) -> str:
    """Return a line on the whole, one for each table, and all that a person must look at."""
    totals = done.totals()
    lines = [f"{done.outcome}: {_whole(done, totals)}"]
    if done.tables:
        head = ("table", "outcome", "files", "to do", "bytes", "what") if done.dry_run else _HEAD
        rows = [_planned(one) if done.dry_run else _done(one) for one in done.tables]
        lines += ["", aligned(rows, head=head)]
    lines += _problems(done)
    return "\n".join(lines)


_HEAD = ("table", "outcome", "files", "rewritten", "bytes", "left", "run")


def _whole(done: PassReport, totals: Mapping[str, int]) -> str:
    tables = counted(totals["tables"], "table")
    if done.dry_run:
        amount = f"{counted(totals['files_left'], 'file')} of {totals['files_total']:,}, {size(totals['bytes_left'])}"
        return f"{tables}, {amount} differ from the plan{estimate_text(done.tables)}"
    amount = (
        f"{counted(totals['files_rewritten'], 'file')} of {totals['files_total']:,}, {size(totals['bytes_before'])}"
    )
    left = (
        f"; left: {counted(totals['units_left'], 'unit')}, {size(totals['bytes_left'])}" if totals["units_left"] else ""
    )
    return f"{tables}, {amount} rewritten in {done.seconds:,.1f} s{left}"


def estimate_text(reports: Iterable[Report]) -> str:
    """Return how long the drift would take to mend, where an earlier run of each table tells how fast it was."""
    drifting = [one.estimated_seconds for one in reports if one.units_left]
    known = [seconds for seconds in drifting if seconds is not None]
    if not known:
        return ""
    of = "" if len(known) == len(drifting) else f" for {len(known):,} of {counted(len(drifting), 'table')}"
    return f"; about {timedelta(seconds=round(sum(known)))}{of}, by earlier runs"


def actions_text(report: Report) -> str:
    """Return what would be done, and with how many files."""
    actions: dict[str, int] = {}
    for unit in report.planned:
        for action, amount in unit["actions"].items():
            actions[action] = actions.get(action, 0) + int(amount["files"])
    return ", ".join(f"{action} {count:,}" for action, count in sorted(actions.items()))


def _planned(report: Report) -> tuple[object, ...]:
    what = actions_text(report)
    drift = ", ".join(f"{kind}: {count:,}" for kind, count in sorted(report.drift.get("before", {}).items()))
    outcome = "drift" if report.units_left else "matches"
    return (
        report.table,
        outcome,
        f"{report.files_total:,}",
        f"{report.files_left:,} in {counted(report.units_left, 'unit')}",
        size(report.bytes_left),
        f"{what} ({drift})" if what else None,
    )


def _done(report: Report) -> tuple[object, ...]:
    left = f"{counted(report.units_left, 'unit')}, {size(report.bytes_left)}" if report.units_left else None
    now = report.this_pass.get("files_rewritten", report.files_rewritten)
    rewritten = f"{now:,} (run: {report.files_rewritten:,})" if report.earlier else f"{now:,}"
    amount = size(report.this_pass.get("bytes_before", report.bytes_before))
    return report.table, report.outcome, f"{report.files_total:,}", rewritten, amount, left, report.run_id


def _problems(done: PassReport) -> list[str]:
    found = list(_texts(done))
    more = [f"… and {len(found) - _SHOWN:,} more; --json lists all"] if len(found) > _SHOWN else []
    return ["", *found[:_SHOWN], *more] if found else []


def _shown(warnings: Iterable[str], *, dry_run: bool) -> Iterator[str]:
    """Yield the warnings; of a dry run those that its table does not say already."""
    return (one for one in warnings if not dry_run or one.startswith(NOT_IN_PLACE))


def _texts(done: PassReport) -> Iterator[str]:
    for one in done.failed:
        yield f"failed: {one.table}: {one.error}: {one.message}"
    for table, reason in done.refused.items():
        yield f"refused: {table}: {reason}"
    for report in done.tables:
        unit: Mapping[str, Any]
        for unit in report.quarantined:
            yield f"left as it was: {report.table}: {unit['unit']}: {unit['error']}: {unit['message']}"
    for report in done.tables:
        for warning in _shown(report.warnings, dry_run=done.dry_run):
            yield f"warning: {report.table}: {warning}"
    yield from _awaiting(done.tables)
    if done.unchanged:
        yield f"unchanged since the last pass: {', '.join(done.unchanged)}"
    for table, reason in done.passed_over.items():
        yield f"passed over: {table}: {reason}"


def _awaiting(reports: Iterable[Report]) -> Iterator[str]:
    for report in reports:
        files, total = report.plaintext_awaiting
        if files:
            waiting = report.awaiting_expiry or {}
            late = ", beyond its grace: run `sparkcrypt backfill expire`" if waiting.get("beyond_grace") else ""
            amount = f"{counted(files, 'file')}, {size(total)}, since {waiting.get('since')}{late}"
            yield f"plaintext awaiting expiry: {report.table}: {amount}"

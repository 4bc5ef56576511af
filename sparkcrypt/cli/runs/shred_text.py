"""Formats plans and reports of shredding keys as text."""

from __future__ import annotations

from collections.abc import Iterator

from sparkcrypt.cli.frame.output import align_table
from sparkcrypt.runs.keys.shredding_plan import LateData, ShreddableKey, ShredPlan, ShredReport
from sparkcrypt.text import count_of, size_of, utc_text

_HEAD = ("goes dark: table", "partitions", "columns", "files", "bytes", "rows")
_SHOWN = 20


def shred_plan_text(plan: ShredPlan) -> str:
    """Return a plan as text."""
    lines = [f"keys whose data are past retention as of {utc_text(plan.as_of)}: {len(plan.keys)}"]
    for key in plan.keys:
        lines += ["", *_describe_key(key)]
    lines.append("")
    lines += [tombstone.to_text() for tombstone in plan.shredded]
    lines += [_describe_late(late) for late in plan.late_data]
    lines += [f"left out: key {key_id!r}: {reason}" for key_id, reason in sorted(plan.left_out.items())]
    lines += [f"NOT looked at: {table}: {reason}" for table, reason in sorted(plan.not_scanned.items())]
    away = sorted(plan.passed_over.items())
    lines += [f"skipped: {table}: {reason}" for table, reason in away[:_SHOWN]]
    if len(away) > _SHOWN:
        lines.append(f"… and {len(away) - _SHOWN:,} more; --json lists all")
    lines.append(f"looked at {count_of(plan.tables, 'table')} of the catalog, {count_of(plan.files, 'file')}")
    lines += [f"REFUSED: {doubt}" for doubt in plan.doubts]
    lines += [f"warning: {warning}" for warning in plan.warnings]
    lines.append(f"head of the audit of keys: {plan.head}")
    return "\n".join(lines)


def shred_report_text(report: ShredReport) -> str:
    """Return the report of a shredding as text."""
    lines = [f"{report.outcome}: {count_of(len(report.shredded), 'key')} shredded"]
    for shredded_key in report.shredded:
        lines += [
            "",
            f"key {shredded_key.key_id!r}: gone, effective {shredded_key.effective_at}",
            f"  {shredded_key.promise}",
        ]
        lines += [f"  must still go: {what}" for what in shredded_key.remains]
    lines.append("")
    for key in report.kept:
        lines += [f"kept: key {key.key_id!r}: HELD: {hold.to_text()}" for hold in key.holds]
        lines += [f"kept: key {key.key_id!r}: REFUSED: {reason}" for reason in key.refused[:_SHOWN]]
    lines += [f"kept: key {key_id!r}: {reason}" for key_id, reason in report.left.items()]
    lines += [f"NOT looked at: {table}: {reason}" for table, reason in sorted(report.plan.not_scanned.items())]
    lines += [f"warning: {warning}" for warning in report.plan.warnings]
    lines.append(f"head of the audit of keys: {report.head}")
    return "\n".join(lines)


def _describe_key(key: ShreddableKey) -> Iterator[str]:
    over = key.retention.over_at
    since = "named, without a date" if over is None else f"retention over since {utc_text(over)}"
    absence = "" if key.is_there else "; the key service has it no more"
    begun = "; a shredding of it was begun" if key.begun else ""
    yield f"key {key.key_id!r} ({', '.join(key.retention.tags)}): {since}{absence}{begun}"
    rows = [
        (
            table.table,
            _shorten(table.partitions),
            ", ".join(table.columns),
            f"{table.files:,}",
            size_of(table.total_bytes),
            f"{table.rows:,}",
        )
        for table in key.dark
    ]
    if rows:
        yield align_table(rows, head=_HEAD, indent="  ")
    else:
        yield "  no file of the tables that were looked at is under it"
    yield from (f"  HELD: {hold.to_text()}" for hold in key.holds)
    yield from (f"  REFUSED: {reason}" for reason in key.refused[:_SHOWN])
    yield from (f"  stays readable: {reason}" for reason in key.defeated_by[:_SHOWN])
    yield from (f"  known export: {export.to_text()}" for export in key.exports[:_SHOWN])
    more = sum(max(0, len(texts) - _SHOWN) for texts in (key.refused, key.defeated_by, key.exports))
    if more:
        yield f"  … and {count_of(more, 'line')}; --json shows all"


def _describe_late(late: LateData) -> str:
    over = late.retention.over_at
    until = "no date ends its retention" if over is None else f"its retention is over on {utc_text(over)}"
    where = "; ".join(
        f"{table.table}: {_shorten(table.partitions)}: {count_of(table.files, 'file')}, {count_of(table.rows, 'row')}"
        for table in late.tables
    )
    return f"late data under key {late.retention.key_id!r} ({until}): {where}"


def _shorten(partitions: tuple[str, ...]) -> str:
    if len(partitions) < 3:
        return ", ".join(partitions)
    return f"{partitions[0]} … {partitions[-1]} ({len(partitions):,})"

"""Formats the plan of one table or folder, and the drift of its files, as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkcrypt.backfill.report.report import KEY_NOT_KNOWN, WRITTEN_IN_CLEAR, describe_missing_keys, describe_untagged
from sparkcrypt.cli.frame.pass_text import actions_text, estimate_text
from sparkcrypt.text import count_of, size_of

if TYPE_CHECKING:
    from sparkcrypt.backfill.drift.difference import Drift
    from sparkcrypt.backfill.many.plan import TargetPlan
    from sparkcrypt.backfill.report.report import Report

_SHOWN = 20


def plan_text(target_plan: TargetPlan) -> str:
    """Return the plan's table, a line of counts, a line for each file that differs, and a line on what a run does."""
    lines = [target_plan.plan.table_text(), "", *_drift(target_plan)]
    if target_plan.report.units_left:
        lines.append(_to_do(target_plan.report))
    lines += describe_missing_keys(target_plan.report.missing_keys)
    lines += map(str, target_plan.inherited)
    lines += [f"not in the table's properties: {text}" for text in target_plan.not_in_place]
    if target_plan.not_in_place:
        lines.append("  `sparkcrypt tags apply`, or a run, puts it there, for sessions without the extension of Spark")
    lines += [f"rotation overdue: {due.to_text()}" for due in target_plan.overdue]
    lines += [f"held: {survey.name}: {survey.held_by}" for survey in target_plan.surveys if survey.held_by]
    lines += _empty_files([path for survey in target_plan.surveys for path in survey.unit.empty_files])
    lines += [f"in no table: {text}" for text in target_plan.stray]
    shown = (KEY_NOT_KNOWN, WRITTEN_IN_CLEAR) if target_plan.surveys else ""
    lines += [f"warning: {text}" for text in target_plan.report.warnings if text.startswith(shown)]
    if target_plan.refused is not None:
        lines.append(f"refused: {target_plan.refused}")
    return "\n".join(lines)


def _drift(made: TargetPlan) -> list[str]:
    by_file: dict[str, list[Drift]] = {}
    for entry in made.drift:
        by_file.setdefault(entry.file, []).append(entry)
    total = made.report.files_total
    sentence = f"{len(by_file):,} differ from the plan" if by_file else "all match the plan" if total else ""
    if made.outcome == "untagged":
        sentence = describe_untagged(made.report.table, made.report.data_columns)
    head = f"{count_of(total, 'file')} in {count_of(len(made.surveys), 'unit')}: {sentence or 'nothing to encrypt'}"
    lines = [f"  {file}: {_differences(found)}" for file, found in list(by_file.items())[:_SHOWN]]
    more = [f"  … and {len(by_file) - _SHOWN:,} more; --json lists all"] if len(by_file) > _SHOWN else []
    return [head, *lines, *more]


def _empty_files(paths: Sequence[str]) -> list[str]:
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    text = f"{count_of(len(paths), 'file')} of 0 bytes, which hold no row and are left out: "
    return [f"{text}{', '.join(paths[:_SHOWN])}{more}"] if paths else []


def _to_do(report: Report) -> str:
    amount = (
        f"{count_of(report.files_left, 'file')} in {count_of(report.units_left, 'unit')}, {size_of(report.bytes_left)}"
    )
    return f"to do: {amount}: {actions_text(report)}{estimate_text([report])}"


def _differences(found: Sequence[Drift]) -> str:
    texts = [f"{entry.column}: {entry.detail}" if entry.column else entry.detail for entry in found]
    return "; ".join(texts[:4]) + (f"; and {len(texts) - 4} more" if len(texts) > 4 else "")

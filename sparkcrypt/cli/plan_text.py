"""The plan of one table or directory, and the drift of its files, as a person reads them on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkcrypt.cli.output import counted, size
from sparkcrypt.cli.pass_text import actions_text, estimate_text

if TYPE_CHECKING:
    from sparkcrypt.backfill.drift import Drift
    from sparkcrypt.backfill.report import Report
    from sparkcrypt.backfill.target_plan import TargetPlan

_SHOWN = 20


def plan_text(made: TargetPlan) -> str:
    """Return the plan's table, a line of counts, one for each file that differs, and what is to do."""
    lines = [made.plan.table_text(), "", *_drift(made)]
    if made.report.units_left:
        lines.append(_to_do(made.report))
    lines += [f"not in the table's properties: {one}" for one in made.not_in_place]
    if made.not_in_place:
        lines.append("  `sparkcrypt tags apply`, or a run, puts it there, for sessions without the extension of Spark")
    if made.refused is not None:
        lines.append(f"refused: {made.refused}")
    return "\n".join(lines)


def _drift(made: TargetPlan) -> list[str]:
    by_file: dict[str, list[Drift]] = {}
    for one in made.drift:
        by_file.setdefault(one.file, []).append(one)
    total = made.report.files_total
    said = f"{len(by_file):,} differ from the plan" if by_file else "all match the plan" if total else ""
    head = f"{counted(total, 'file')} in {counted(len(made.surveys), 'unit')}: {said or 'nothing to encrypt'}"
    lines = [f"  {file}: {_differences(found)}" for file, found in list(by_file.items())[:_SHOWN]]
    more = [f"  … and {len(by_file) - _SHOWN:,} more; --json lists all"] if len(by_file) > _SHOWN else []
    return [head, *lines, *more]


def _to_do(report: Report) -> str:
    amount = f"{counted(report.files_left, 'file')} in {counted(report.units_left, 'unit')}, {size(report.bytes_left)}"
    return f"to do: {amount}: {actions_text(report)}{estimate_text([report])}"


def _differences(found: Sequence[Drift]) -> str:
    texts = [f"{one.column}: {one.detail}" if one.column else one.detail for one in found]
    return "; ".join(texts[:4]) + (f"; and {len(texts) - 4} more" if len(texts) > 4 else "")

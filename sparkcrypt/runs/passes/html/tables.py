"""The tables of the report's page, with the shares that are drawn as bars in their rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparkcrypt.runs.passes.html.text import make_visible, percent
from sparkcrypt.runs.passes.html.view import (
    MOST_NAMES,
    Cut,
    Values,
    cut,
    read_list,
    read_number,
)
from sparkcrypt.text import count_of, size_of

FEW_TABLES = 6
MOST_TAGS = 30
MOST_DETAILS = 40


@dataclass(frozen=True, slots=True)
class CoverageRow:
    """A tag, with the share of its data that matched before and matches now, in percent and as text."""

    tag: str
    before: float
    after: float
    before_text: str
    after_text: str
    files: str
    data: str


@dataclass(frozen=True, slots=True)
class CoverageGroup:
    """The tags of one table, or of all tables together."""

    title: str
    rows: Cut


@dataclass(frozen=True, slots=True)
class Remainder:
    """The remaining work on a table: shares of its units in percent, numbers, and their state."""

    table: str
    done: float
    waiting: float
    quarantined: float
    state: str
    units: str
    files: str
    data: str


def coverage(tables: Sequence[Values]) -> tuple[CoverageGroup, ...]:
    """Return the coverage of each tag over all tables, and for each table if they are few."""
    having = [table for table in tables if table.get("coverage")]
    title = "All tables" if len(having) > 1 else ""
    if any(table.get("untagged") for table in tables):
        title = "Tagged tables alone"
    groups = [CoverageGroup(title, _coverage_rows(having))] if having else []
    if 1 < len(having) <= FEW_TABLES:
        groups += [CoverageGroup(make_visible(table["table"]), _coverage_rows([table])) for table in having]
    return tuple(groups)


def _coverage_rows(tables: Iterable[Values]) -> Cut:
    sums: dict[str, dict[str, float]] = {}
    for table in tables:
        for tag, found in table["coverage"].items():
            row = sums.setdefault(tag, defaultdict(float))
            for name in ("files", "bytes"):
                row[name] += read_number(found, name)
                row[f"{name}_0"] += read_number(found.get("before") or {}, name)
                row[f"{name}_1"] += read_number(found.get("after") or {}, name)
    shown = cut(list(sums.items()), MOST_TAGS)
    return Cut([_coverage_row(tag, row) for tag, row in shown.rows], shown.more)


def _coverage_row(tag: str, row: Mapping[str, float]) -> CoverageRow:
    by = "bytes" if row["bytes"] else "files"
    return CoverageRow(
        tag=make_visible(tag),
        before=_share(row[f"{by}_0"], row[by]),
        after=_share(row[f"{by}_1"], row[by]),
        before_text=percent(row[f"{by}_0"], row[by]),
        after_text=percent(row[f"{by}_1"], row[by]),
        files=f"{row['files_1']:,.0f} of {count_of(row['files'], 'file')}",
        data=f"{size_of(row['bytes_1'])} of {size_of(row['bytes'])}",
    )


def list_remainders(report: Values) -> Cut:
    """Return the remaining work, largest first: units that wait or are quarantined, then tables not worked on."""
    tables = [
        table for table in read_list(report, "tables") if read_number(table, "units_left") or table.get("quarantined")
    ]
    rows = [_remainder(table) for table in sorted(tables, key=lambda table: -read_number(table, "bytes_left"))]
    for kind, name in (("failed", "failed"), ("refused", "refused")):
        rows += [
            Remainder(make_visible(table.get("table")), 0, 0, 0, kind, "", "", "") for table in read_list(report, name)
        ]
    return cut(rows, MOST_NAMES)


def _remainder(table: Values) -> Remainder:
    finished, units_left = len(read_list(table, "units")), read_number(table, "units_left")
    held = len(read_list(table, "quarantined"))
    units_left = max(units_left, held)
    waiting, whole = units_left - held, finished + units_left
    parts = [f"{waiting:,.0f} waiting"] if waiting else []
    parts += [f"{held:,} quarantined"] if held else []
    return Remainder(
        table=make_visible(table.get("table")),
        done=_share(finished, whole),
        waiting=_share(waiting, whole),
        quarantined=_share(held, whole),
        state=", ".join(parts),
        units=f"{units_left:,.0f} of {count_of(whole, 'unit')}",
        files=f"{read_number(table, 'files_left'):,.0f}",
        data=size_of(read_number(table, "bytes_left")),
    )


def sort_tables(report: Values) -> list[Values]:
    """Return the tables of a report, largest first."""
    return sorted(
        read_list(report, "tables"),
        key=lambda table: -read_number(table, "bytes_before") - read_number(table, "bytes_left"),
    )


def sort_units(report: Values, name: str, order: str) -> Cut:
    """Return (table, unit) for each unit in a list of its table, such as ``units`` or ``planned``, largest first."""
    units = [(table, unit) for table in read_list(report, "tables") for unit in read_list(table, name)]
    return cut(sorted(units, key=lambda pair: -read_number(pair[1], order)))


def _share(part: float, whole: float) -> float:
    """Return a share in percent, rounded to a hundredth, between 0 and 100; 100 if the whole is 0."""
    return round(min(100.0, max(0.0, 100 * part / whole)), 2) if whole else 100.0

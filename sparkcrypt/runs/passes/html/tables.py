"""The tables of the report's page, with the shares that are drawn as bars in their rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparkcrypt.runs.passes.html.advice import Command, commands
from sparkcrypt.runs.passes.html.text import change, duration, make_visible, moment, percent
from sparkcrypt.runs.passes.html.view import (
    MOST_NAMES,
    Cut,
    Values,
    cut,
    icon_of,
    outcome_of_table,
    read_list,
    read_number,
    tone_of,
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


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row about a table's run."""

    table: str
    outcome: str
    tone: str
    icon: str
    files: str
    rewritten: str
    rows: str
    data: str
    after: str
    seconds: str
    left: str


@dataclass(frozen=True, slots=True)
class TableDetails:
    """The details of a table's run: facts, columns, drift by kind before and after, commands."""

    table: str
    outcome: str
    tone: str
    icon: str
    facts: tuple[tuple[str, str], ...]
    columns: Cut
    drift: tuple[tuple[str, int, int], ...]
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class UnitRow:
    """One row about a unit that was swapped in, or that a dry run would work on."""

    table: str
    unit: str
    files: str
    rows: str
    before: str
    after: str
    change: str
    seconds: str
    finished: str
    engine: str
    verified: bool
    old_location: str
    notes: tuple[str, ...]


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


def table_rows(report: Values) -> Cut:
    """Return a row for each table, largest first."""
    tables = sorted(
        read_list(report, "tables"),
        key=lambda table: -read_number(table, "bytes_before") - read_number(table, "bytes_left"),
    )
    shown = cut(tables)
    return Cut([_table_row(table) for table in shown.rows], shown.more)


def _table_row(table: Values) -> TableRow:
    outcome, before, after = (
        outcome_of_table(table),
        read_number(table, "bytes_before"),
        read_number(table, "bytes_after"),
    )
    units_left = read_number(table, "units_left")
    return TableRow(
        table=make_visible(table.get("table")),
        outcome=outcome,
        tone=tone_of(outcome),
        icon=icon_of(outcome),
        files=f"{read_number(table, 'files_total'):,.0f}",
        rewritten=f"{read_number(table, 'files_rewritten'):,.0f}",
        rows=f"{read_number(table, 'rows'):,.0f}",
        data=size_of(before) if before else "–",
        after=change(before, after) or "–",
        seconds=duration(read_number(table, "seconds")),
        left=f"{count_of(units_left, 'unit')}, {size_of(read_number(table, 'bytes_left'))}" if units_left else "–",
    )


def details(report: Values) -> Cut:
    """Return the details of each table's run, largest first."""
    tables = sorted(
        read_list(report, "tables"),
        key=lambda table: -read_number(table, "bytes_before") - read_number(table, "bytes_left"),
    )
    shown = cut(tables, MOST_DETAILS)
    return Cut([_details(table) for table in shown.rows], shown.more)


def _details(table: Values) -> TableDetails:
    outcome, drift = outcome_of_table(table), table.get("drift") or {}
    before, after = drift.get("before") or {}, drift.get("after") or {}
    columns = sorted((make_visible(path), make_visible(key)) for path, key in (table.get("columns") or {}).items())
    return TableDetails(
        table=make_visible(table.get("table")),
        outcome=outcome,
        tone=tone_of(outcome),
        icon=icon_of(outcome),
        facts=tuple(_facts(table)),
        columns=cut(columns, MOST_NAMES),
        drift=tuple(
            (make_visible(kind), before.get(kind, 0), after.get(kind, 0)) for kind in sorted({**before, **after})
        ),
        commands=commands(table),
    )


def _facts(table: Values) -> Iterator[tuple[str, str]]:
    yield "Run", make_visible(table.get("run_id") or "none")
    audit = table.get("audit")
    if isinstance(audit, Mapping):
        yield "Audit head", f"{make_visible(audit.get('number'))}:{make_visible(audit.get('digest'))}"
    yield "Engine", make_visible(table.get("engine") or "none")
    if table.get("swap"):
        yield "Swapped by", make_visible(table["swap"])
    if table.get("units"):
        yield "Verified before the swap", "yes" if table.get("verified") else "NO"
        yield "Old files", make_visible(table.get("old_location") or "none", 1_000)


def unit_rows(report: Values, name: str = "units") -> Cut:
    """Return a row for each unit that was swapped in (``units``) or would be (``planned``), largest first."""
    order = "bytes_before" if name == "units" else "bytes"
    units = [(table, unit) for table in read_list(report, "tables") for unit in read_list(table, name)]
    shown = cut(sorted(units, key=lambda pair: -read_number(pair[1], order)))
    return Cut([_unit_row(table, unit, order) for table, unit in shown.rows], shown.more)


def _unit_row(table: Values, unit: Values, order: str) -> UnitRow:
    before, after = read_number(unit, order), read_number(unit, "bytes_after")
    actions = [f"{action} {read_number(found, 'files'):,.0f}" for action, found in (unit.get("actions") or {}).items()]
    drift = [f"{kind}: {number:,}" for kind, number in (unit.get("drift") or {}).items()]
    return UnitRow(
        table=make_visible(table.get("table")),
        unit=make_visible(unit.get("unit")),
        files=f"{read_number(unit, 'files'):,.0f}",
        rows=f"{read_number(unit, 'rows'):,.0f}",
        before=size_of(before),
        after=size_of(after),
        change=change(before, after) or "–",
        seconds=duration(read_number(unit, "seconds")) if unit.get("seconds") is not None else "–",
        finished=moment(unit.get("finished")).removesuffix(" UTC") or "–",
        engine=make_visible(", ".join(actions) or unit.get("engine") or "–"),
        verified=bool(unit.get("verified")),
        old_location=make_visible(unit.get("old_location") or unit.get("location") or ""),
        notes=tuple(make_visible(note) for note in unit.get("notes") or drift),
    )


def _share(part: float, whole: float) -> float:
    """Return a share in percent, rounded to a hundredth, between 0 and 100; 100 if the whole is 0."""
    return round(min(100.0, max(0.0, 100 * part / whole)), 2) if whole else 100.0

"""The geometry of the pictures: of the report, from its numbers, and of the lineage of tables.

Ticks and boxes are namespaces, which the templates read alone.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace as Shown
from typing import TYPE_CHECKING, Any

from sparkcrypt.runs.passes.html.content import make_visible
from sparkcrypt.text import duration, size_of

if TYPE_CHECKING:
    from sparkcrypt.runs.passes.lineage import Lineage

WIDTH, HEIGHT = 960, 268
LEFT, RIGHT, TOP, BOTTOM = 84, 20, 14, 52
MOST_STEPS = 120
BOX_WIDTH, GAP, ROW, HEAD, MARGIN = 240, 120, 20, 28, 24
_LONGEST = 32
_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_RATES = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))


@dataclass(frozen=True, slots=True)
class Throughput:
    """A line of bytes per second over time.

    Attributes:
        line: its points, in SVG syntax; ``area`` has the points of the area under it.
        mean_y: the vertical position of the mean rate.
        mean: the mean rate, as text; ``peak`` likewise.
        unit: the unit of the rate's axis.
        x_ticks: the marks of the time since the start; ``y_ticks`` those of the rate.
        summary: a sentence that describes the picture.
    """

    line: str
    area: str
    mean_y: float
    mean: str
    peak: str
    unit: str
    x_ticks: tuple[Shown, ...]
    y_ticks: tuple[Shown, ...]
    summary: str


def throughput(points: Sequence[Mapping[str, Any]]) -> Throughput | None:
    """Return the line of throughput; None if no bytes were done, or in no time.

    Args:
        points: ``seconds`` since the start and ``bytes`` done by then; the start itself may be omitted.
    """
    done = _sum_points(points)
    seconds, total = done[-1]
    if not seconds or not total:
        return None
    rates = _rates(done)
    mean, peak = total / seconds, max(rates)
    scale, unit = next(((scale, unit) for scale, unit in _RATES if peak >= scale), (1.0, "B/s"))
    top, y_step = _choose_axis(peak / scale)
    xs = [_x(index / len(rates)) for index in range(len(rates) + 1)]
    ys = [_y(rate / scale / top) for rate in rates]
    corners = [f"{x:.1f},{y:.1f}" for index, y in enumerate(ys) for x in (xs[index], xs[index + 1])]
    base = _y(0)
    return Throughput(
        line=" ".join(corners),
        area=" ".join([f"{xs[0]:.1f},{base:.1f}", *corners, f"{xs[-1]:.1f},{base:.1f}"]),
        mean_y=round(_y(mean / scale / top), 1),
        mean=f"{size_of(mean)}/s",
        peak=f"{size_of(peak)}/s",
        unit=unit,
        x_ticks=_time_ticks(seconds),
        y_ticks=tuple(
            Shown(at=round(_y(step * y_step / top), 1), label=f"{step * y_step:,.{_decimals(y_step)}f}")
            for step in range(round(top / y_step) + 1)
        ),
        summary=f"{size_of(total)} in {duration(seconds)}: {size_of(mean)}/s on average, {size_of(peak)}/s at most.",
    )


def _sum_points(points: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Return (seconds, bytes) from (0, 0) on; bytes never decrease, and seconds strictly increase."""
    done = [(0.0, 0.0)]
    for point in sorted(points, key=lambda measured: float(measured.get("seconds") or 0)):
        seconds, total = float(point.get("seconds") or 0), float(point.get("bytes") or 0)
        if not math.isfinite(seconds) or not math.isfinite(total):
            continue
        total = max(total, done[-1][1])
        if seconds > done[-1][0]:
            done.append((seconds, total))
        else:
            done[-1] = (done[-1][0], total if done[-1][0] else 0.0)
    return done


def _rates(done: Sequence[tuple[float, float]]) -> list[float]:
    """Return the mean bytes per second in equal parts of the time, interpolating linearly between points."""
    seconds = done[-1][0]
    parts = max(1, min(MOST_STEPS, len(done) - 1))
    marks = [_interpolate_done(done, seconds * part / parts) for part in range(parts + 1)]
    return [(after - before) * parts / seconds for before, after in pairwise(marks)]


def _interpolate_done(done: Sequence[tuple[float, float]], when: float) -> float:
    index = bisect_right(done, when, key=lambda point: point[0])
    if index >= len(done):
        return done[-1][1]
    (earlier, before), (later, after) = done[index - 1], done[index]
    return before + (after - before) * (when - earlier) / (later - earlier)


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _choose_axis(most: float) -> tuple[float, float]:
    """Return the top of an axis and its step, as round numbers, so that there are three to six steps."""
    rough = most / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    return math.ceil(most / step - 1e-9) * step, step


def _decimals(step: float) -> int:
    """Return the number of decimals of an axis's labels: 0 for steps of 1, 1 for 2.5, 2 for 0.05."""
    return next((places for places in range(6) if abs(round(step, places) - step) < step * 1e-6), 6)


def _time_ticks(seconds: float) -> tuple[Shown, ...]:
    if seconds < 4:
        step = _choose_axis(seconds)[1]
    else:
        days = 86400 * math.ceil(seconds / 86400 / 8)
        step = next((candidate for candidate in _SECONDS if seconds / candidate <= 8), days)
    count = math.floor(seconds / step + 1e-9)
    return tuple(
        Shown(at=round(_x(part * step / seconds), 1), label=_clock(part * step, step)) for part in range(count + 1)
    )


def _clock(seconds: float, step: float) -> str:
    if not seconds:
        return "0"
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if step >= length and seconds % length == 0:
            return f"{seconds / length:,.0f} {unit}"
    if step >= 60:
        return duration(seconds)
    if step >= 1:
        return f"{seconds:,.0f} s" if seconds < 60 else duration(seconds)
    return f"{seconds:.{_decimals(step)}f} s"


def lineage_picture(lineage: Lineage) -> dict[str, Any]:
    """Return what the picture of a lineage is made of: boxes for tables, lines from columns to those derived from them.

    Sources are on the left; long names are cut.
    """
    columns = _columns_of(lineage)
    boxes = _place_boxes(columns, _rank_tables(lineage, list(columns)))
    at = {
        (name, column): (box, y)
        for name, box in boxes.items()
        for column, (_, y) in zip(columns[name], box.rows, strict=True)
    }
    lines = [
        _curve(at[origin], at[(table.table, derived.name)])
        for table in lineage.tables
        for derived in table.columns
        for origin in derived.sources
    ]
    return {
        "boxes": list(boxes.values()),
        "lines": lines,
        "width": max((box.x for box in boxes.values()), default=0) + BOX_WIDTH + MARGIN,
        "height": max((box.y + box.height for box in boxes.values()), default=0) + MARGIN,
        "box_width": BOX_WIDTH,
        "head": HEAD,
    }


def _columns_of(lineage: Lineage) -> dict[str, list[str]]:
    """Return table -> its columns in the lineage, whether or not they have a line, sorted."""
    found: dict[str, dict[str, None]] = {table.table: {} for table in lineage.tables}
    for table in lineage.tables:
        for derived in table.columns:
            found[table.table][derived.name] = None
            for source, column in derived.sources:
                found.setdefault(source, {})[column] = None
    return {name: sorted(columns) for name, columns in found.items()}


def _rank_tables(lineage: Lineage, names: list[str]) -> dict[str, int]:
    """Return table -> the longest path from a source, in steps; the order of tables in a cycle is arbitrary."""
    sources = {
        found.table: {name for column in found.columns for name, _ in column.sources} for found in lineage.tables
    }
    ranks = dict.fromkeys(names, 0)
    for _ in names:
        changed = {
            name: max((ranks[source] + 1 for source in sources.get(name, ()) if source != name), default=0)
            for name in names
        }
        if changed == ranks:
            break
        ranks = {name: min(rank, len(names) - 1) for name, rank in changed.items()}
    return ranks


def _place_boxes(columns: dict[str, list[str]], ranks: dict[str, int]) -> dict[str, Shown]:
    taken: dict[int, int] = {}
    boxes = {}
    for name in sorted(columns, key=lambda name: (ranks[name], name)):
        rank, height = ranks[name], HEAD + ROW * len(columns[name]) + ROW // 2
        x, y = MARGIN + rank * (BOX_WIDTH + GAP), taken.get(rank, MARGIN)
        taken[rank] = y + height + MARGIN
        rows = tuple((_cut(column), y + HEAD + ROW * number + ROW // 2) for number, column in enumerate(columns[name]))
        boxes[name] = Shown(name=_cut(name), x=x, y=y, height=height, rows=rows)
    return boxes


def _curve(start: tuple[Shown, int], end: tuple[Shown, int]) -> str:
    (left, y0), (right, y1) = start, end
    x0, x1 = left.x + BOX_WIDTH, right.x
    return f"M{x0} {y0} C{x0 + GAP // 2} {y0} {x1 - GAP // 2} {y1} {x1} {y1}"


def _cut(text: str) -> str:
    shown = make_visible(text)
    return shown if len(shown) <= _LONGEST else "…" + shown[-_LONGEST + 1 :]

"""The lineage of tables as a picture: a box for each table, a line from each column to the columns derived from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkcrypt.runs.passes.html.page import load_template
from sparkcrypt.runs.passes.html.text import make_visible

if TYPE_CHECKING:
    from sparkcrypt.runs.passes.lineage import Lineage

_TEMPLATE = "lineage.svg.j2"
WIDTH, GAP, ROW, HEAD, MARGIN = 240, 120, 20, 28, 24
_LONGEST = 32


@dataclass(frozen=True, slots=True)
class Box:
    """A table: its upper left corner, its height, and its columns with the vertical centres of their rows."""

    name: str
    x: int
    y: int
    height: int
    rows: tuple[tuple[str, int], ...]


def draw_lineage(lineage: Lineage) -> str:
    """Return the picture as a self-contained SVG, with sources on the left; long names are cut."""
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
    return load_template(_TEMPLATE).render(
        boxes=list(boxes.values()),
        lines=lines,
        width=max((box.x for box in boxes.values()), default=0) + WIDTH + MARGIN,
        height=max((box.y + box.height for box in boxes.values()), default=0) + MARGIN,
        box_width=WIDTH,
        head=HEAD,
    )


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


def _place_boxes(columns: dict[str, list[str]], ranks: dict[str, int]) -> dict[str, Box]:
    taken: dict[int, int] = {}
    boxes = {}
    for name in sorted(columns, key=lambda name: (ranks[name], name)):
        rank, height = ranks[name], HEAD + ROW * len(columns[name]) + ROW // 2
        x, y = MARGIN + rank * (WIDTH + GAP), taken.get(rank, MARGIN)
        taken[rank] = y + height + MARGIN
        rows = tuple((_cut(column), y + HEAD + ROW * number + ROW // 2) for number, column in enumerate(columns[name]))
        boxes[name] = Box(_cut(name), x, y, height, rows)
    return boxes


def _curve(start: tuple[Box, int], end: tuple[Box, int]) -> str:
    (left, y0), (right, y1) = start, end
    x0, x1 = left.x + WIDTH, right.x
    return f"M{x0} {y0} C{x0 + GAP // 2} {y0} {x1 - GAP // 2} {y1} {x1} {y1}"


def _cut(text: str) -> str:
    shown = make_visible(text)
    return shown if len(shown) <= _LONGEST else "…" + shown[-_LONGEST + 1 :]

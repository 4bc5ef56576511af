"""Formatting for messages and reports: numbers, sizes, times and aligned rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone

UTC_TIME = "%Y-%m-%dT%H:%M:%SZ"
"""Times in reports, records and descriptions of keys: ISO 8601 in UTC, in whole seconds."""
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What controls a terminal or the direction of text, without line feeds and tabs, which texts for people have."""
SHOWN = 20
"""Number of lines of one kind that a text has."""
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def size_of(total_bytes: float) -> str:
    """Return a number of bytes with a decimal unit: ``1.2 GB``."""
    amount, unit = float(total_bytes), 0
    while abs(amount) >= 999.95 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:,.0f} B" if unit == 0 else f"{amount:,.1f} {_UNITS[unit]}"


def utc_text(moment: datetime) -> str:
    """Return a time with a time zone in the format `UTC_TIME`."""
    return moment.astimezone(timezone.utc).strftime(UTC_TIME)


def count_of(number: float, noun: str) -> str:
    """Return ``1 file``, ``3,456 files``, ``2 entries``."""
    if number == 1:
        return f"{number:,.0f} {noun}"
    several = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeou" else f"{noun}s"
    return f"{number:,.0f} {several}"


def percent(part: float, whole: float) -> str:
    """Return a share as text: 0 % and 100 % only if it is exactly that; 100 % if the whole is 0."""
    share = 100 * part / whole if whole else 100.0
    if 0 < share < 0.1:
        return "< 0.1 %"
    if 99.9 < share < 100:
        return "> 99.9 %"
    return f"{share:.0f} %" if share in (0, 100) else f"{share:.1f} %"


def duration(seconds: float) -> str:
    """Return a time span in its two largest units: ``4.2 s``, ``12 min 5 s``, ``3 h 7 min``, ``2 d 4 h``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for unit, length, smaller, part in (("min", 60, "s", 1), ("h", 3600, "min", 60), ("d", 86400, "h", 3600)):
        if whole < length * (60 if unit != "h" else 24) or unit == "d":
            rest = whole % length // part
            return f"{whole // length:,} {unit} {rest} {smaller}" if rest else f"{whole // length:,} {unit}"
    raise AssertionError("days take any length")


def parse_time(text: str) -> datetime:
    """Return a time in ISO 8601, as reports and records have it; one without a zone is in UTC.

    Raises:
        ValueError: it is not one.
    """
    when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return when if when.tzinfo is not None else when.replace(tzinfo=timezone.utc)


def age_of(text: str | None, now: datetime) -> str:
    """Return how long ago a time was; ``?`` if it is not known, and no time for one that is still to come."""
    try:
        return "?" if text is None else duration(max(0.0, (now - parse_time(text)).total_seconds()))
    except ValueError:
        return "?"


def replace_controls(text: str) -> str:
    """Return a text without characters that would control a terminal, such as a file's name may have."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


class Printable:
    """A result whose ``str()`` is the text that commands print of it, as notebooks show it too."""

    __slots__ = ()

    def to_text(self) -> str:
        """Return it as text, without a line feed at its end."""
        raise NotImplementedError

    def __str__(self) -> str:
        return replace_controls(self.to_text())

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


def cut_lines(lines: Sequence[str], indent: str = "") -> list[str]:
    """Return the first of many lines, and a last one with the number of the others."""
    more = len(lines) - SHOWN
    return [*lines[:SHOWN], *([f"{indent}… and {more:,} more; --json lists all"] if more > 0 else [])]


def align_table(rows: Sequence[Sequence[object]], *, head: Sequence[str] = (), indent: str = "") -> str:
    """Return rows as lines with aligned columns; None is printed as a dash."""
    cells = [
        ["-" if cell is None else re.sub(r"[\n\t]", "\N{REPLACEMENT CHARACTER}", str(cell)) for cell in row]
        for row in ([head, *rows] if head else rows)
    ]
    return "\n".join(indent + line for line in align_rows(cells))


def align_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines whose columns line up, two spaces apart; no rows give no lines."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

"""Formatting for messages and reports: numbers, sizes, times and aligned rows."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from datetime import datetime, timezone

UTC_TIME = "%Y-%m-%dT%H:%M:%SZ"
"""Times in reports, records and descriptions of keys: ISO 8601 in UTC, in whole seconds."""
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What controls a terminal or the direction of text, without line feeds and tabs, which texts for people have."""
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


def replace_controls(text: str) -> str:
    """Return a text without characters that would control a terminal, such as a file's name may have."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


class _CleanLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return replace_controls(super().format(record))


def clean_log_lines() -> None:
    """Replace such characters also in the log lines of this process, unless it has configured its logging itself."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_CleanLines())


def align_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines whose columns line up, two spaces apart; no rows give no lines."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]

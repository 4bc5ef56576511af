"""Formatting of numbers, times and names for the page."""

from __future__ import annotations

import re
import shlex
from datetime import datetime, timezone

NAME_CHARACTERS = 300
MESSAGE_CHARACTERS = 2_000
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Characters that are invisible or change the direction of text: a name with one must not look like another name."""


def percent(part: float, whole: float) -> str:
    """Return a share as text: 0 % and 100 % only if it is exactly that; 100 % if the whole is 0."""
    share = 100 * part / whole if whole else 100.0
    if 0 < share < 0.1:
        return "< 0.1 %"
    if 99.9 < share < 100:
        return "> 99.9 %"
    return f"{share:.0f} %" if share in (0, 100) else f"{share:.1f} %"


def change(before: float, after: float) -> str:
    """Return the relative change as text: ``+0.3 %``; empty if ``before`` is 0."""
    if not before:
        return ""
    share = 100 * (after - before) / before
    return "±0.0 %" if abs(share) < 0.05 else f"{share:+.1f} %".replace("-", "\N{MINUS SIGN}")


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


def moment(text: object) -> str:
    """Return an ISO time as ``2026-11-21 10:11:12 UTC``, without ``UTC`` if it has no zone; other text as `visible`."""
    if not isinstance(text, str) or not text:
        return ""
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return make_visible(text)
    if when.tzinfo is None:
        return f"{when:%Y-%m-%d %H:%M:%S}"
    return f"{when.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def make_visible(text: object, limit: int = NAME_CHARACTERS) -> str:
    """Return a name with invisible characters escaped, cut if it is very long."""
    whole = _UNSEEN.sub(_escape, str(text))
    return whole if len(whole) <= limit else f"{whole[: limit - 1]}…"


def message(text: object) -> str:
    """Return a longer text with invisible characters escaped, cut if it is very long; its line breaks stay."""
    return "\n".join(make_visible(line, MESSAGE_CHARACTERS) for line in str(text)[:MESSAGE_CHARACTERS].splitlines())


def shell_word(text: str) -> str:
    """Return a text as one word of a bash command line, with invisible characters escaped."""
    if not _UNSEEN.search(text):
        return shlex.quote(text)
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_UNSEEN.sub(_escape, quoted)}'"


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"

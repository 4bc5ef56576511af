"""Durations in the form of policies: ``400d``, ``24h``."""

from __future__ import annotations

import re

from sparkcrypt.errors import show
from sparkcrypt.policy.section import Section

MAX_SECONDS = 36_500 * 86_400
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def duration_of(section: Section, name: str) -> int | None:
    """Return an optional duration of a section that is above zero, in seconds; None if it is not set."""
    value = section.raw(name, None)
    if value is None:
        return None
    seconds = seconds_of(value, "[1-9][0-9]{0,10}")
    if seconds is None:
        section.problem(
            name,
            f"is {show(value)}; allowed: a number and one of s, m, h, d, w, such as 400d, up to 36500d",
        )
    return seconds


def grace_of(root: Section) -> int | None:
    """Return how long old files stay in place, in seconds, as a policy sets it; None if it does not."""
    if "old_files" not in root.names():
        root.raw("old_files", None)
        return None
    section = root.section("old_files")
    value = section.raw("grace")
    seconds = seconds_of(value, "0|[1-9][0-9]{0,10}")
    if seconds is None and "grace" in section.names():
        section.problem(
            "grace",
            f"is {show(value)}; allowed: a number and one of s, m, h, d, w, such as 24h, up to 36500d; 0s moves old "
            "files out of reach right after each swap",
        )
    section.close()
    return seconds


def seconds_of(value: object, number: str) -> int | None:
    """Return a duration in seconds; None if the value is not a duration, or is longer than a hundred years."""
    match = re.fullmatch(rf"({number})([smhdw])", value, re.ASCII) if isinstance(value, str) else None
    seconds = int(match[1]) * _SECONDS[match[2]] if match else None
    return seconds if seconds is not None and seconds <= MAX_SECONDS else None

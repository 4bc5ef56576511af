"""When the data under a template's key are past their retention, by the last day of the key's bucket.

It follows from the policy and the key id alone, so no writer of files or records can bring it forward.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from string import Formatter
from typing import TypeAlias

from sparkcrypt.policy.model import Policy, TagRule
from sparkcrypt.policy.template import KeyTemplate, values_pattern

_Parts: TypeAlias = "Sequence[tuple[str, str | None, str | None, str | None]]"
_Values: TypeAlias = "tuple[tuple[str, str, str], ...]"
"""For each dated column its name, its date format, and the text in its place."""
_MOST_CHARACTERS = 500
_MOST_UNDATED = 2
_PIVOT = 69
"""From here on ``%y`` is in the twentieth century, as in POSIX."""


@dataclass(frozen=True, slots=True)
class KeyRetention:
    """The retention of the data under one master key.

    Attributes:
        key_id: the master key.
        tags: the tags whose key it is, or was.
        over_at: time at which all of its data are past their retention; None if no date shows it.
        reason: why no date shows it.
        by_name: whether it is the key of a bucket without a date, such as a tenant's, which may be shredded by its
            name.
    """

    key_id: str
    tags: tuple[str, ...]
    over_at: datetime | None
    reason: str | None
    by_name: bool = False

    def is_over(self, now: datetime) -> bool:
        """Return whether everything under the key is past its retention."""
        return self.over_at is not None and self.over_at <= now


def retention_of_key(policy: Policy, key_id: str) -> KeyRetention:
    """Return the retention of the data under a master key by a policy.

    The longest retention of all tags whose key it is counts; a key in the history of a tag has no known end.
    """
    rules = policy.rules_of_key(key_id)
    tags = tuple(rule.name for rule in rules)
    fixed = _find_fixed_use(policy, key_id, rules)
    if fixed is not None:
        return KeyRetention(key_id, tags, None, fixed)
    templates = {rule.name: template for rule in rules if (template := rule.template_of(key_id)) is not None}
    ends = {name: bucket_end(template, key_id) for name, template in templates.items()}
    undated = [name for name, end in ends.items() if end is None]
    if undated:
        by_name = not any(template.is_dated for template in templates.values())
        why = f"no date stands in it by the template of tag {undated[0]!r}, so its retention has no end that is known"
        return KeyRetention(key_id, tags, None, why, by_name)
    endless = [rule.name for rule in rules if rule.retention_seconds is None]
    if endless:
        return KeyRetention(key_id, tags, None, f"tag {endless[0]!r} has no retention, so its data are kept")
    try:
        over = [
            end + timedelta(seconds=rule.retention_seconds or 0)
            for rule in rules
            if (end := ends[rule.name]) is not None
        ]
    except OverflowError:
        return KeyRetention(key_id, tags, None, "its retention ends after the year 9999")
    return KeyRetention(key_id, tags, max(over), None)


def bucket_end(template: KeyTemplate, key_id: str) -> datetime | None:
    """Return the end of the last day of a key's bucket, in UTC; data with later dates have another key.

    Args:
        template: the template that gave the key id.
        key_id: the master key.

    Returns:
        Midnight after that day; None if the id does not show it: the template has no date, a date without its year,
        dates of two columns, or more than two undated columns, or the id is too long or can be read in two ways.
    """
    parts = list(Formatter().parse(template.text))
    columns = {column for _, column, date_format, _ in parts if column is not None and date_format}
    undated = sum(1 for _, column, date_format, _ in parts if column is not None and not date_format)
    if len(columns) != 1 or undated > _MOST_UNDATED or len(key_id) > _MOST_CHARACTERS:
        return None
    ends = {_last_day(values) for values in _read_values(parts, key_id)} - {None}
    last = ends.pop() if len(ends) == 1 else None
    try:
        return None if last is None else last + timedelta(days=1)
    except OverflowError:
        return None


def shows_end(template: KeyTemplate) -> bool:
    """Return whether the key ids of a template show when their buckets end."""
    day = datetime(2026, 1, 31, tzinfo=timezone.utc)
    parts = Formatter().parse(template.text)
    texts = (
        literal + ("" if column is None else day.strftime(date_format) if date_format else "x")
        for literal, column, date_format, _ in parts
    )
    return bucket_end(template, "".join(texts)) is not None


def is_past_retention(template: KeyTemplate, key_id: str, retention_seconds: int | None, now: datetime) -> bool:
    """Return whether the data of a key's bucket are past a retention.

    Args:
        template: the template that gave the key id.
        key_id: the master key.
        retention_seconds: the tag's retention; None: its data are kept.
        now: the time at which this is judged.
    """
    end = None if retention_seconds is None else bucket_end(template, key_id)
    try:
        return end is not None and end + timedelta(seconds=retention_seconds or 0) <= now
    except OverflowError:
        return False


def _find_fixed_use(policy: Policy, key_id: str, rules: Sequence[TagRule]) -> str | None:
    """Return why a key has no bucket; None if each use of it is by a template."""
    if key_id in (policy.footer_key, *policy.footer_key_history):
        return "it is a key of footers, without which no column can be read"
    if key_id in (policy.audit_key, *policy.audit_key_history):
        return "it is a key of audits, which are proven with it"
    if not rules:
        return "no tag of the policy gives it, so nothing says how long its data are kept"
    for rule in rules:
        template = rule.template_of(key_id)
        if template is None:
            return f"it is in the history of tag {rule.name!r}, and files of any date may be under it"
        if not template.columns and template is not rule.late_data:
            return f"it is the key of tag {rule.name!r} for all dates, so it has no bucket that ends"
    return None


def _read_values(parts: _Parts, text: str) -> Iterator[_Values]:
    """Yield each way to parse a key id by a template: the dated columns, and the texts in their places."""
    if not parts:
        if not text:
            yield ()
        return
    literal, column, date_format, _ = parts[0]
    if not text.startswith(literal):
        return
    rest = text[len(literal) :]
    if column is None:
        yield from _read_values(parts[1:], rest)
        return
    pattern = re.compile(values_pattern(date_format or "", whole_years=True), re.ASCII)
    for length in range(1, len(rest) + 1):
        if pattern.fullmatch(rest[:length]):
            own = ((column, date_format, rest[:length]),) if date_format else ()
            yield from ((*own, *others) for others in _read_values(parts[1:], rest[length:]))


def _last_day(values: _Values) -> datetime | None:
    """Return the last day, at midnight in UTC, that all of these texts denote; None if there is none."""
    days = [
        day
        for year in _list_years(values)
        for day in _list_days(year)
        if all(_is_of_day(day, date_format, text) for _, date_format, text in values)
    ]
    return max(days, default=None)


def _is_of_day(day: datetime, date_format: str, text: str) -> bool:
    hours = range(24) if "%H" in date_format else range(1)
    return any(day.replace(hour=hour).strftime(date_format) == text for hour in hours)


def _list_days(year: int) -> Iterator[datetime]:
    day = datetime(year, 1, 1, tzinfo=timezone.utc)
    while day.year == year:
        yield day
        if (day.month, day.day) == (12, 31):  # in the year 9999, no day follows
            return
        day += timedelta(days=1)


def _list_years(values: _Values) -> list[int]:
    """Return the years that these texts may denote; none if they contain no year."""
    years: set[int] = set()
    for _, date_format, text in values:
        parts = re.split(r"%(.)", date_format)
        pattern = "".join(
            f"({values_pattern(f'%{part}', whole_years=True)})" if place % 2 else re.escape(part)
            for place, part in enumerate(parts)
        )
        match = re.fullmatch(pattern, text, re.ASCII)
        for directive, digits in zip(parts[1::2], match.groups() if match else (), strict=False):
            if directive == "Y":
                years.add(int(digits))
            elif directive == "G":
                years |= {int(digits) - 1, int(digits), int(digits) + 1}
            elif directive == "y":
                years.add(int(digits) + (1900 if int(digits) >= _PIVOT else 2000))
    return sorted(year for year in years if 1 <= year <= 9999)

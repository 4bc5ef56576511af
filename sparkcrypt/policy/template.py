"""Key templates: key ids that contain values of partition columns, such as ``contact-{ingest_date:%Y-%m}``.

A date comes from a partition column whose values are days, such as 2026-01-31, unless the template says how they are
written, or of which columns the date is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from string import Formatter
from typing import Generic, TypeVar
from urllib.parse import quote

from sparkcrypt import names
from sparkcrypt.errors import PlanError, show

T = TypeVar("T")
_SEPARATOR = "\x1f"
_DIRECTIVES = {"Y": r"\d{1,4}", "G": r"\d{1,4}", "j": r"\d{3}"} | dict.fromkeys("mdHUVy", r"\d{2}")
WRITTEN = "written"
"""In keys of late data, in place of a column: the day, in UTC, on which rows are written."""
_DATE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2})?)(?:\.\d{1,9})?)?")


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """The text of a key id; ``{column}`` and ``{column:%Y-%m}`` stand for a partition's value.

    Doubled braces stand for single ones.

    Attributes:
        text: the key id.
        dates: name in the text -> partition column -> format of its values, of dates that are written otherwise than
            2026-01-31, or in several columns; as pairs.

    Raises:
        ValueError: at construction, when the text is not a template; the loader says where.
    """

    text: str
    dates: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()

    def __post_init__(self) -> None:
        """Check the text."""
        if not self.text.strip():
            raise ValueError("a key id may not be empty")
        try:
            parts = list(Formatter().parse(self.text))
        except ValueError as error:
            raise ValueError(f"{self.text!r}: {error}; write a brace that is part of the key id twice") from error
        for _, column, date_format, conversion in parts:
            if column is None:
                continue
            if not column.strip() or conversion or re.search(r"[\[\].!/={}]", column):
                raise ValueError(f"{self.text!r}: write {{column}} or {{column:%Y-%m}} with a partition column's name")
            if date_format and not _is_date_format(date_format):
                raise ValueError(
                    f"{self.text!r}: a date format holds % and one of {', '.join(_DIRECTIVES)}, and text without braces"
                )
        for name, columns in self.dates:
            self._check_date(name, columns)

    def _check_date(self, name: str, columns: tuple[tuple[str, str], ...]) -> None:
        wanted = {
            part
            for _, column, date_format, _ in Formatter().parse(self.text)
            if column == name
            for part in re.findall(r"%(.)", date_format or "")
        }
        if not wanted:
            raise ValueError(f"{self.text!r} has no date {name!r}; name one that stands in it as {{{name}:%Y-%m}}")
        formats = [date_format for _, date_format in columns]
        found = {part for date_format in formats for part in re.findall(r"%(.?)", date_format, re.DOTALL)}
        if not formats or not all(map(_is_date_format, formats)) or not found <= set("YmdjH"):
            raise ValueError("a format of a partition's values holds %Y, %m, %d, %j and %H, and text without braces")
        known = set("Yy") if "Y" in found else set()
        if known and found & set("mj"):
            known |= {"m"}
        if known and ("j" in found or {"m", "d"} <= found):
            known |= set("mdjGVU") | ({"H"} if "H" in found else set())
        if not wanted <= known:
            unknown = ", ".join(f"%{part}" for part in sorted(wanted - known))
            raise ValueError(f"{self.text!r} needs {unknown} of {name!r}, which {' '.join(formats)} does not show")

    @property
    def columns(self) -> tuple[str, ...]:
        """The partition columns that it needs, in order of appearance."""
        dates = {name: tuple(column for column, _ in columns) for name, columns in self.dates}
        named = (name for _, name, _, _ in Formatter().parse(self.text) if name is not None)
        return tuple(dict.fromkeys(column for name in named for column in dates.get(name, (name,))))

    @property
    def is_dated(self) -> bool:
        """Whether it contains a date."""
        return any(date_format for _, _, date_format, _ in Formatter().parse(self.text))

    def render(self, partition: Mapping[str, str]) -> str:
        """Return the key id of a partition.

        Args:
            partition: partition column -> value, as in the folder name after unescaping.

        Raises:
            PlanError: a value is missing, would leave the template, or is not a date where one is needed.
        """
        for column in self.columns:
            if column not in partition:
                raise PlanError(
                    f"key {self.text!r} needs the value of partition column {column!r}, which this write does not "
                    "show; partition the table by it, and for a static insert through Hive's own writer "
                    f"(spark.sql.hive.convertMetastoreParquet=false) set {names.PARTITION} to {column}=<value>"
                )
        parts: list[str] = []
        dates = dict(self.dates)
        for literal, name, date_format, _ in Formatter().parse(self.text):
            parts.append(literal)
            if name in dates:
                parts.append(self._read_date(dates[name], partition).strftime(date_format or ""))
            elif name is not None:
                parts.append(self._value(name, partition[name], date_format))
        return "".join(parts)

    def _read_date(self, columns: tuple[tuple[str, str], ...], partition: Mapping[str, str]) -> datetime:
        values = [partition[column] for column, _ in columns]
        text, date_format = _SEPARATOR.join(values), _SEPARATOR.join(date_format for _, date_format in columns)
        try:
            if not text.isascii() or any(_SEPARATOR in value or value != value.strip() for value in values):
                raise ValueError(text)
            return datetime.strptime(text, date_format)
        except ValueError as error:
            named = "/".join(f"{column}={show(partition[column])}" for column, _ in columns)
            raise PlanError(
                f"partition {named} is not a date of the form {' '.join(found for _, found in columns)}, which key "
                f"{self.text!r} needs; mend the tag's dates in the policy, and write rows without a date to a table of "
                "their own"
            ) from error

    def _value(self, column: str, value: str, date_format: str | None) -> str:
        if not value or {".", ".."} & set(re.split(r"[/\\]", value)):
            raise PlanError(
                f"partition {column}={show(value)} cannot stand in key {self.text!r}: it would leave the template; "
                "allowed: a value that is not empty and has no '.' or '..' between slashes"
            )
        if not date_format:
            try:
                return quote(value, safe="-_.~")
            except UnicodeError as error:
                raise PlanError(f"partition {column}={value!a} holds half a character; write it again") from error
        match = _DATE.fullmatch(value)
        try:
            if match is None or not value.isascii():
                raise ValueError(value)
            return datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00'}").strftime(date_format)
        except ValueError as error:
            raise PlanError(
                f"partition {column}={show(value)} is not a date, which key {self.text!r} needs; write dates as "
                "2026-01-31, or name their form under the tag's dates in the policy; rows without one need a table of "
                "their own"
            ) from error

    def matches(self, key_id: str) -> bool:
        """Return whether a key id could come from this template, for any partition."""
        pattern = "".join(
            re.escape(literal) + ("" if column is None else values_pattern(date_format))
            for literal, column, date_format, _ in Formatter().parse(self.text)
        )
        return re.fullmatch(pattern, key_id, re.ASCII) is not None


class TemplateIndex(Generic[T]):
    """Templates, found by a key id that they could give without a look at all of them: they begin with a text.

    Args:
        templates: templates, each with what is found by it.
    """

    def __init__(self, templates: Iterable[tuple[KeyTemplate, T]]) -> None:
        self._by_start: dict[str, list[tuple[int, KeyTemplate, T]]] = {}
        for place, (template, value) in enumerate(templates):
            start = next(literal for literal, _, _, _ in Formatter().parse(template.text))
            self._by_start.setdefault(start, []).append((place, template, value))

    def find(self, key_id: str) -> tuple[T, ...]:
        """Return what belongs to the templates from which a key id could come, in the order in which they came."""
        starts = (self._by_start.get(key_id[:end], ()) for end in range(len(key_id) + 1))
        found = [(place, value) for start in starts for place, template, value in start if template.matches(key_id)]
        return tuple(value for _, value in sorted(found, key=itemgetter(0)))


def _is_date_format(text: str) -> bool:
    directives = re.findall(r"%(.?)", text, re.DOTALL)
    return bool(directives) and set(directives) <= set(_DIRECTIVES) and not set("{}") & set(text)


def values_pattern(date_format: str | None, *, whole_years: bool = False) -> str:
    """Return a regular expression of all texts that may stand for one column.

    Args:
        date_format: the column's date format; empty or None if its value is not a date.
        whole_years: whether years have four digits, as those of valid dates do.
    """
    if not date_format:
        return "(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+"
    directives = _DIRECTIVES | (dict.fromkeys("YG", r"\d{4}") if whole_years else {})
    parts = re.split(r"%(.)", date_format)
    return "".join(directives[part] if place % 2 else re.escape(part) for place, part in enumerate(parts))

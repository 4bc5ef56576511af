"""Key templates: a master key's name that holds values of partition columns, ``contact-{ingest_date:%Y-%m}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from string import Formatter
from urllib.parse import quote

from sparkcrypt.errors import PlanError

_DIRECTIVES = "YmdHjUVGy"


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """The text of a key id; ``{column}`` and ``{column:%Y-%m}`` stand for a partition's value, doubled braces for themselves.

    Raises:
        ValueError: at construction, when the text is not a template; the loader says where.
    """

    text: str

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("a key id may not be empty")
        for _, column, date_format, conversion in Formatter().parse(self.text):
            if column is None:
                continue
            if not column or conversion or re.search(r"[\[\].!]", column):
                raise ValueError(f"{self.text!r}: write {{column}} or {{column:%Y-%m}} with a partition column's name")
            unknown = re.findall(rf"%[^{_DIRECTIVES}]", date_format or "")
            if date_format and ("%" not in date_format or unknown):
                raise ValueError(f"{self.text!r}: a date format holds % and one of {', '.join(_DIRECTIVES)}")

    @property
    def columns(self) -> tuple[str, ...]:
        """The partition columns that it needs, in order of appearance."""
        return tuple(dict.fromkeys(name for _, name, _, _ in Formatter().parse(self.text) if name is not None))

    def render(self, partition: Mapping[str, str]) -> str:
        """Return the key id of a partition.

        Args:
            partition: partition column -> value, as in the folder name after unescaping.

        Raises:
            PlanError: a value is missing, would leave the template, or is not a date where one is needed.
        """
        parts: list[str] = []
        for literal, column, date_format, _ in Formatter().parse(self.text):
            parts.append(literal)
            if column is not None:
                if column not in partition:
                    raise PlanError(
                        f"key {self.text!r} needs the value of partition column {column!r}, which this write does not show; "
                        "partition the table by it, and insert into a partitioned table"
                    )
                parts.append(self._value(column, partition[column], date_format))
        return "".join(parts)

    def _value(self, column: str, value: str, date_format: str | None) -> str:
        if not value or {".", ".."} & set(value.split("/")):
            raise PlanError(f"partition {column}={value!r} cannot stand in key {self.text!r}: it would leave the template")
        if not date_format:
            return quote(value, safe="-_.~")
        try:
            return datetime.fromisoformat(value).strftime(date_format)
        except ValueError as error:
            raise PlanError(
                f"partition {column}={value!r} is not a date, which key {self.text!r} needs; write dates as 2026-01-31"
            ) from error

    def matches(self, key_id: str) -> bool:
        """Tell whether a key id could come from this template, whatever the partition."""
        pattern = "".join(
            re.escape(literal) + ("" if column is None else "[A-Za-z0-9%._~ :-]+?")
            for literal, column, _, _ in Formatter().parse(self.text)
        )
        return re.fullmatch(pattern, key_id) is not None

"""The lineage of a file's columns: where they came from when it was written, by notes in its Spark schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sparkcrypt.errors import PlanError
from sparkcrypt.schema import tags_from_metadata

KEY = "lineage"
"""The name of the note in a field's metadata; jars/bridge/lineage/Lineage.java writes it."""

Origins = tuple[tuple[str, str], ...]
"""Tagged columns: (table, or the folder that was read; column)."""


@dataclass(frozen=True, slots=True)
class ColumnLineage:
    """The lineage of one top-level column of a file, from the write that made it.

    Attributes:
        column: its name.
        tags: those that it was written with, without those of fields inside it.
        origins: tagged columns that its values come from.
        declassified: tagged columns that its values come from without their tags.
        conditions: tagged columns used to choose, join or group the rows of the whole write.
        inherited: tags that the table's column lacked when it was written.
        more: whether there were more columns than are noted.
    """

    column: str
    tags: tuple[str, ...] = ()
    origins: Origins = ()
    declassified: Origins = ()
    conditions: Origins = ()
    inherited: tuple[str, ...] = ()
    more: bool = False

    def to_list(self) -> list[Any]:
        """Return it as JSON values that `from_list` takes."""
        columns = (self.origins, self.declassified, self.conditions)
        return [self.column, self.tags, *columns, self.inherited, self.more]

    @classmethod
    def from_list(cls, values: list[Any]) -> ColumnLineage:
        """Return the lineage whose `to_list` returned these values."""
        column, tags, origins, declassified, conditions, inherited, more = values
        columns = (_pairs(origins), _pairs(declassified), _pairs(conditions))
        return cls(column, tuple(tags), *columns, tuple(inherited), more)


def lineage_of_schema(document: str) -> tuple[ColumnLineage, ...]:
    """Return the lineage of the columns of a file, by its Spark schema; a column without a note has none.

    Anyone may have written the file: notes in another form than the extension's are ignored.
    """
    try:
        fields = json.loads(document)["fields"]
        found = (_lineage_of_field(field) for field in fields)
        return tuple(lineage for lineage in found if lineage is not None)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, PlanError):
        return ()


def _lineage_of_field(field: Mapping[str, Any]) -> ColumnLineage | None:
    metadata = field.get("metadata") or {}
    note = metadata.get(KEY)
    if not isinstance(note, dict) or not is_lineage(note) or not isinstance(field["name"], str):
        return None
    return ColumnLineage(
        column=field["name"],
        tags=tags_from_metadata(metadata.get("tags"), field["name"]),
        origins=_origins(note.get("from", {})),
        declassified=_origins(note.get("declassified", {})),
        conditions=_origins(note.get("conditions", {})),
        inherited=tuple(note.get("inherited", ())),
        more=note.get("more", False),
    )


def _pairs(values: Iterable[tuple[str, str]]) -> Origins:
    return tuple((table, column) for table, column in values)


def _origins(part: Mapping[str, list[str]]) -> Origins:
    return tuple((table, column) for table, columns in part.items() for column in columns)


def is_lineage(note: object) -> bool:
    """Return whether a value of a field's metadata is a note of its lineage."""
    return isinstance(note, dict) and all(name in _PARTS and _PARTS[name](value) for name, value in note.items())


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_columns(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_texts, value.values()))


_PARTS: dict[str, Callable[[object], bool]] = {
    "from": _is_columns,
    "declassified": _is_columns,
    "conditions": _is_columns,
    "inherited": _is_texts,
    "more": lambda value: isinstance(value, bool),
}

"""Columns that are encrypted by the tags of the columns that they came from, though their table has no tag for them.

Writes create such columns if the policy has ``inherit: observe``.  They stay unchanged until the table's owner tags the
column, with the tags that it inherited, or with one that means plaintext.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.plan import ColumnPlan
from sparkcrypt.runs.table.match_columns import FileColumns
from sparkcrypt.schema import Path, join_dotted
from sparkcrypt.tags.lineage_note import ColumnLineage, is_below
from sparkcrypt.text import count_of


@dataclass(frozen=True, slots=True)
class Inherited:
    """An inherited column of one file: its path in the file, its key, and the lineage that its writer noted."""

    file: str
    path: Path
    key_id: str | None
    lineage: ColumnLineage

    @property
    def origins(self) -> tuple[str, ...]:
        """The columns that it came from."""
        leaf = join_dotted(self.path)
        return tuple(
            f"{table}.{column}"
            for place, sources in self.lineage.places
            if is_below(leaf, place)
            for table, column in sources
        )


@dataclass(frozen=True, slots=True)
class InheritedColumn(JsonObject):
    """An inherited column of a table, with the number of files in which it is encrypted."""

    column: str
    tags: tuple[str, ...]
    key_ids: tuple[str, ...]
    origins: tuple[str, ...]
    files: int

    def __str__(self) -> str:
        """Return a warning about the column, with what its owner can do."""
        return (
            f"inherited: {self.column} is encrypted in {count_of(self.files, 'file')}, by {','.join(self.tags)} of "
            f"{', '.join(self.origins) or 'columns that are not known'}, and has no tag of its own: rows that come "
            "from elsewhere are not encrypted, and `inherit: refuse` would refuse such writes; tag the column with "
            "`sparkcrypt tags set`"
        )


def find_inherited(summary: FileSummary, matched: FileColumns, lineage: Iterable[ColumnLineage]) -> Iterator[Inherited]:
    """Yield the columns of one file that are encrypted by tags which their table lacks, by their writer's notes."""
    noted = {found.column.lower(): found for found in lineage if found.inherited}
    for path, column in (summary.columns or {}).items() if noted else ():
        planned = matched.planned.get(path)
        found = noted.get(path[0].lower())
        if column.encrypted and found is not None and planned is not None and is_untold(planned):
            yield Inherited(summary.path, path, column.key_id, found)


def is_untold(column: ColumnPlan) -> bool:
    """Return whether nothing was ever decided about a column of a table: no tag, no history, no key by a rule."""
    return column.action == "plaintext" and not column.tags and not column.history


def sum_up_inherited(found: Iterable[Inherited]) -> tuple[InheritedColumn, ...]:
    """Return the inherited columns of a table, each once, in the order of their names."""
    by_column: dict[str, list[Inherited]] = {}
    for inherited in found:
        by_column.setdefault(join_dotted(inherited.path), []).append(inherited)
    return tuple(
        InheritedColumn(
            column=column,
            tags=tuple(sorted({tag for entry in entries for tag in entry.lineage.inherited})),
            key_ids=tuple(sorted({entry.key_id for entry in entries if entry.key_id})),
            origins=tuple(sorted({origin for entry in entries for origin in entry.origins})),
            files=len({entry.file for entry in entries}),
        )
        for column, entries in sorted(by_column.items())
    )

"""A file's leaf columns matched with its table's: each has the table's tags, inherited ones, or is refused.

Columns that are encrypted by the tags of the columns that they came from, though their table has no tag for them.
Writes create such columns if the policy has ``inherit: observe``.  They stay unchanged until the table's owner tags the
column, with the tags that it inherited, or with one that means plaintext.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

from sparkcrypt.errors import PlanError
from sparkcrypt.files.footers import FooterFacts
from sparkcrypt.files.format import FORMATS
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.plan import ColumnPlan, EncryptionPlan
from sparkcrypt.schema import Path, join_dotted
from sparkcrypt.tags.field_metadata import ColumnLineage, is_below
from sparkcrypt.text import count_of


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of one file, by the file's own paths: those in the table's plan, and those that the table lacks."""

    planned: Mapping[Path, ColumnPlan]
    unknown: tuple[Path, ...]

    def key_ids(self, plan: EncryptionPlan, partition: Mapping[str, str]) -> dict[Path, str | None]:
        """Return column path in the file -> key id, for columns to be encrypted; None stands for the footer key.

        Raises:
            PlanError: a key template needs a partition value that is missing or not allowed in it.
        """
        keys = plan.key_ids(partition)
        return {path: keys[column.path] for path, column in self.planned.items() if column.action != "plaintext"}

    def is_late(self, path: Path, key_id: str | None, bucket_key: str | None) -> bool:
        """Return whether a column is under the key of late data, and its bucket is past its retention now.

        Args:
            path: the column's path in the file.
            key_id: the column's key.
            bucket_key: the key that the plan gives it.
        """
        return self.planned[path].takes_late(key_id, bucket_key, datetime.now(timezone.utc))

    def history(self) -> dict[str, tuple[str, ...]]:
        """Return the file's own name of each column -> former keys, or plaintext, that readers still accept for it."""
        return {join_dotted(path): column.history for path, column in self.planned.items()}

    def find_lacking_columns(self, plan: EncryptionPlan) -> tuple[tuple[str, ...], bool]:
        """Return the encrypted columns with a tag that the file lacks, and whether it lacks all of them.

        ADD COLUMNS leaves such files, and an attacker may add a file in which nothing needs a key.
        """
        tagged = {column.path for column in plan.columns if column.tag is not None and column.action != "plaintext"}
        held = {column.path for column in self.planned.values()}
        return tuple(sorted(join_dotted(path) for path in tagged - held)), bool(tagged) and tagged.isdisjoint(held)


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """What the scan of a unit knows of one of its files.

    Attributes:
        facts: what its footer says.
        columns: its columns, matched with the plan's.
        inherited: those that are encrypted by tags which the table lacks.
        dark: those under shredded keys, with these; looked up only if the unit differs from its plan, or for a purge.
    """

    facts: FooterFacts
    columns: FileColumns
    inherited: tuple[Inherited, ...] = ()
    dark: Mapping[Path, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The path of the file."""
        return self.facts.summary.path

    @property
    def summary(self) -> FileSummary:
        """The contents of its footer."""
        return self.facts.summary


class ColumnMatcher:
    """Matches the columns of many files with one table's; files with equal columns are matched once.

    Args:
        plan: the plan of the table.
    """

    def __init__(self, plan: EncryptionPlan) -> None:
        self._plan = plan
        self._known: dict[tuple[str, str | None, tuple[Path, ...]], FileColumns] = {}

    def match(self, summary: FileSummary) -> FileColumns:
        """Return the same as `match_columns`, from a cache; raises the same errors."""
        shape = summary.format, summary.fields, tuple(summary.columns or ())
        found = self._known.get(shape)
        if found is None:
            found = self._known[shape] = match_columns(summary, self._plan)
        return found


def match_columns(summary: FileSummary, plan: EncryptionPlan) -> FileColumns:
    """Match a file's leaf columns with a table's.

    Spark reads ``EMAIL`` of a file as the table's ``email``, a list's element whatever its groups are named, and a
    repeated column without any group as a list.  Such a column must be matched, or its values would stay in clear.

    Args:
        summary: the file's footer; columns that are not revealed are not matched.
        plan: the plan of the file's table.

    Raises:
        PlanError: a column of the file cannot be read into the table's; the message names the file.
    """
    try:
        return FileColumns(*FORMATS[summary.format].match_columns(summary, plan))
    except PlanError as error:
        raise PlanError(f"{summary.path}: {error}") from error


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

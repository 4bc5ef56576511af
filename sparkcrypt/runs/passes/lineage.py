"""Lineage of columns from tagged columns of other tables, as the writers of files recorded it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import PlanError, SparkcryptError, VerificationError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.choose_tables import Choice, Filters, choose_tables
from sparkcrypt.runs.table.cache import FooterCache
from sparkcrypt.runs.table.difference import OF_FOLDERS
from sparkcrypt.runs.table.scan import scan_target
from sparkcrypt.runs.table.target import catalog_target
from sparkcrypt.schema import join_dotted
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table
from sparkcrypt.tags.field_metadata import ColumnLineage
from sparkcrypt.text import Printable, count_of, cut_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Column = tuple[str, str]
"""A table, or a folder that was read, and the dotted path of a column; earlier releases noted top-level ones."""


@dataclass(frozen=True, slots=True)
class DerivedColumn:
    """A column whose values were derived from tagged columns, in some files of its table.

    Attributes:
        name: the dotted path of the column, or of the part of a nested one in which the values are.
        tags: the tags with which it was written.
        origins: the columns from which its values and tags were derived.
        declassified: the columns from which its values were derived without their tags, since a query declassified
            them.
        inherited: the tags that the table's column lacked when it was written.
        files: the number of files.
    """

    name: str
    tags: tuple[str, ...]
    origins: tuple[Column, ...]
    inherited: tuple[str, ...]
    files: int
    declassified: tuple[Column, ...] = ()

    @property
    def sources(self) -> tuple[Column, ...]:
        """The columns from which its values were derived, with or without their tags."""
        return (*self.origins, *self.declassified)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "column": self.name,
            "tags": list(self.tags),
            "origins": _columns_to_list(self.origins),
            "declassified": _columns_to_list(self.declassified),
            "inherited": list(self.inherited),
            "files": self.files,
        }


@dataclass(frozen=True, slots=True)
class TableLineage:
    """The lineage that the files of one table record.

    Attributes:
        table: ``db.table``.
        files: the number of its files.
        columns: the columns that were derived from tagged columns.
        conditions: tagged columns used to choose, join or group rows; no value was derived from them.
        unreadable: file or folder -> why it could not be read or listed, so that its lineage is not known.
        cut: whether a file records only the first of many columns.
    """

    table: str
    files: int
    columns: tuple[DerivedColumn, ...]
    conditions: tuple[Column, ...]
    unreadable: dict[str, str]
    cut: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """The tables and folders from which its rows were derived."""
        made = [column for derived in self.columns for column in derived.sources]
        return tuple(dict.fromkeys(table for table, _ in (*made, *self.conditions)))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "table": self.table,
            "files": self.files,
            "columns": [column.to_dict() for column in self.columns],
            "conditions": _columns_to_list(self.conditions),
            "unreadable": self.unreadable,
            "cut": self.cut,
        }


@dataclass(frozen=True, slots=True)
class Lineage(Printable, JsonObject):
    """The lineage of some tables and of all their source tables.

    Attributes:
        tables: the tables in the order in which they were read, beginning with the chosen ones.
        unknown: table or folder -> why its lineage is not known.
    """

    tables: tuple[TableLineage, ...]
    unknown: dict[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """The exit code: 74 if a file's footer could not be read, else 0."""
        return VerificationError.exit_code if any(table.unreadable for table in self.tables) else 0

    def to_text(self) -> str:
        """Return a paragraph for each table, and a last one for tables whose lineage is unknown."""
        paragraphs = ["\n".join(_lines_of_table(self, table)) for table in self.tables]
        unknown = [f"not looked at: {name}: {why}" for name, why in self.unknown.items()]
        return "\n\n".join([*paragraphs, *(["\n".join(unknown)] if unknown else [])])

    def _repr_html_(self) -> str:
        from sparkcrypt.runs.passes.html.page import draw_lineage

        return draw_lineage(self)

    def list_derived(self, table: str, column: str) -> tuple[Column, ...]:
        """Return the columns that were derived from one column."""
        return tuple(
            (found.table, derived.name)
            for found in self.tables
            for derived in found.columns
            if (table, column) in derived.sources
        )


def trace_lineage(
    spark: SparkSession,
    policy: Policy,
    *,
    tables: Sequence[str] = (),
    databases: Sequence[str] = (),
    filters: Filters | None = None,
) -> Lineage:
    """Read the lineage of tables, and of all tables from which they were derived, from the footers of their files.

    Footers that earlier passes cached are not read again.

    Args:
        spark: a classic session.
        policy: the policy with the key service, which opens footers.
        tables: ``db.table``, or patterns.
        databases: databases of which every table is read; without tables and databases, all of them.
        filters: what is kept of these tables.

    Raises:
        PlanError: a named table does not exist, or has no files whose footers can be read.
        ConfigError: the state directory cannot be opened.
    """
    choice = Choice(tuple(tables), tuple(databases), filters or Filters())
    chosen = choose_tables(spark, choice.or_all(spark), policy)
    named = {choice.table.full_name for choice in chosen if choice.named}
    queue = {choice.table.full_name: choice.table for choice in chosen}
    found: dict[str, TableLineage] = {}
    unknown: dict[str, str] = {}
    catalog = Catalog(spark)
    while queue:
        name, table = next(iter(queue.items()))
        del queue[name]
        try:
            found[name] = _ask_table(spark, table, policy)
        except SparkcryptError as error:
            if name in named:
                raise
            unknown[name] = str(error)
            continue
        for source in found[name].sources:
            if source in found or source in queue or source in unknown:
                continue
            try:
                queue[source] = catalog.table(source)
            except PlanError as error:
                unknown[source] = str(error)
    return Lineage(tuple(found.values()), unknown)


def _ask_table(spark: SparkSession, table: Table, policy: Policy) -> TableLineage:
    target = catalog_target(spark, table, policy, None)
    store = open_state_directory(spark, policy.run_state, outside=target.base)
    cache = FooterCache(store, target.table_id, keeps=False)
    files = 0
    unreadable: dict[str, str] = {}
    noted: list[ColumnLineage] = []
    for scanned in scan_target(spark, target, policy.key_service, cache=cache):
        files += len(scanned.unit.files)
        unreadable |= {drift.file: drift.detail for drift in scanned.drift if drift.kind in ("unreadable", *OF_FOLDERS)}
        noted.extend(note for file in scanned.files.values() for note in file.facts.lineage)
    return TableLineage(
        table.full_name,
        files,
        tuple(unite_columns(noted)),
        tuple(sorted({column for note in noted for column in note.conditions})),
        unreadable,
        any(note.more for note in noted),
    )


def unite_columns(noted: Iterable[ColumnLineage]) -> Iterator[DerivedColumn]:
    """Yield the derived columns of one table, by the notes in its files; ``files`` counts the notes of each."""
    by_name: dict[str, list[ColumnLineage]] = {}
    for part in (part for note in noted for part in _split(note)):
        if part.origins or part.declassified:
            by_name.setdefault(part.column, []).append(part)
    for name, notes in sorted(by_name.items()):
        yield DerivedColumn(
            name=name,
            tags=tuple(sorted({tag for note in notes for tag in note.tags})),
            origins=tuple(sorted({column for note in notes for column in note.origins})),
            inherited=tuple(sorted({tag for note in notes for tag in note.inherited})),
            files=len(notes),
            declassified=tuple(sorted({column for note in notes for column in note.declassified})),
        )


def _split(note: ColumnLineage) -> Iterator[ColumnLineage]:
    """Yield the lineage of a column and of each of its parts, by their dotted paths."""
    column = join_dotted([note.column])
    yield replace(note, column=column)
    for part in note.parts:
        inherited = tuple(tag for tag in note.inherited if tag in part.tags)
        yield ColumnLineage(f"{column}.{part.path}", part.tags, part.origins, inherited=inherited)


def _columns_to_list(columns: Iterable[Column]) -> list[dict[str, str]]:
    return [{"table": table, "column": column} for table, column in columns]


def _lines_of_table(traced: Lineage, table: TableLineage) -> list[str]:
    lines = [f"{table.table}: {count_of(table.files, 'file')}"]
    lines += [f"  {_column_text(column)}" for column in table.columns]
    if table.conditions:
        lines.append(f"  rows chosen by {_names(table.conditions)}")
    lines += [f"  {column} -> {_names(made)}" for column, made in _group_derived(traced, table.table).items()]
    if len(lines) == 1:
        lines.append("  nothing came from a tagged column")
    if table.cut:
        lines.append("  a file names only the first of its many sources")
    return [*lines, *cut_lines([f"  not read: {file}: {why}" for file, why in table.unreadable.items()], "  ")]


def _column_text(column: DerivedColumn) -> str:
    lacked = f", {','.join(column.inherited)} not its table's own" if column.inherited else ""
    parts = [_names(column.origins)] if column.origins else []
    parts += [f"declassified {_names(column.declassified)}"] if column.declassified else []
    return f"{column.name} ({','.join(column.tags) or 'no tag'}{lacked}) <- {', '.join(parts)}"


def _group_derived(traced: Lineage, table: str) -> dict[str, tuple[Column, ...]]:
    """Return column of a table -> the columns that were derived from it."""
    derived = [derived for found in traced.tables for derived in found.columns]
    used = {column for made in derived for column in made.sources}
    return {column: traced.list_derived(table, column) for source, column in sorted(used) if source == table}


def _names(columns: Iterable[Column]) -> str:
    return ", ".join(f"{table}.{column}" for table, column in columns)

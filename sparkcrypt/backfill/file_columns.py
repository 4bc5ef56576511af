"""Finds the planned column of each column of a file, whatever case and list names its writer used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sparkcrypt.bridge.shape import schema_of_columns
from sparkcrypt.errors import PlanError
from sparkcrypt.parquet import FileSummary
from sparkcrypt.plan import ColumnPlan, EncryptionPlan
from sparkcrypt.schema import Path, dotted
from sparkcrypt.tags.match import fold


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of one file: those of the table's plan, by the file's own paths, and those that it does not have."""

    planned: Mapping[Path, ColumnPlan]
    unknown: tuple[Path, ...]

    def key_ids(self, plan: EncryptionPlan, partition: Mapping[str, str]) -> dict[Path, str | None]:
        """Return the file's column path -> key id of what is to be encrypted; None stands for the footer key.

        Raises:
            PlanError: a key needs a partition value that is not there or cannot stand in it.
        """
        keys = plan.key_ids(partition)
        return {path: keys[column.path] for path, column in self.planned.items() if column.action != "plaintext"}


def file_columns(paths: Iterable[Path], plan: EncryptionPlan) -> FileColumns:
    """Match a file's leaf columns with a table's.

    Spark reads ``EMAIL`` of a file as the table's ``email``, and a list's element whatever its groups are called; so
    such a column must be found, or its values would stay in clear.

    Raises:
        PlanError: a column of the file is no list or map where the table has one.
    """
    exact = {column.leaf.logical: column for column in plan.columns}
    folded = {fold(logical): column for logical, column in exact.items()}
    planned: dict[Path, ColumnPlan] = {}
    unknown = []
    for leaf in schema_of_columns(paths, plan.schema).leaves():
        column = exact.get(leaf.logical) or folded.get(fold(leaf.logical))
        if column is None:
            unknown.append(leaf.parquet)
        else:
            planned[leaf.parquet] = column
    return FileColumns(planned, tuple(unknown))


def lacking_columns(paths: Iterable[Path], plan: EncryptionPlan) -> tuple[tuple[str, ...], bool]:
    """Return which tagged columns of a table a file lacks, and whether it lacks every one that is encrypted.

    ADD COLUMNS leaves such files behind, and so does who plants a file with nothing in it that needs a key.

    Raises:
        PlanError: as `file_columns`.
    """
    tagged = {column.path for column in plan.columns if column.tag is not None and column.action != "plaintext"}
    held = {column.path for column in file_columns(paths, plan).planned.values()}
    return tuple(sorted(dotted(path) for path in tagged - held)), bool(tagged) and tagged.isdisjoint(held)


def refuse_lost_columns(summaries: Mapping[str, FileSummary], plan: EncryptionPlan) -> None:
    """Refuse files that hold columns which the table's schema no longer has.

    No tag says what such a column is, and Spark's engine, which reads by the schema, would lose it.

    Raises:
        PlanError: it names file and column.
    """
    known = {_folded(column.leaf.logical) for column in plan.columns} | {
        _folded(column.path) for column in plan.columns
    }
    tops = {column.leaf.logical[0].lower() for column in plan.columns}
    for summary in summaries.values():
        for column in summary.columns or ():
            if column[0].lower() not in tops or (len(column) > 1 and not _covered(_folded(column), known)):
                raise PlanError(
                    f"{summary.path}: holds column {dotted(column)}, which the table's schema does not, so that no tag "
                    "says whether it may be read by all; add the column to the table (ALTER TABLE … ADD COLUMNS) and "
                    "tag it, or rewrite the file without it"
                )


def _covered(column: Path, known: set[Path]) -> bool:
    """Tell whether a nested leaf is among the plan's, whatever names its writer gave to lists and maps."""
    wrappers = {"list", "bag", "array", "array_element", "element", "item", "key_value", "map"}
    bare = tuple(name for name in column if name not in wrappers)
    return column in known or any(bare == tuple(name for name in one if name not in wrappers) for one in known)


def _folded(path: Path) -> Path:
    return tuple(name.lower() for name in path)

"""Matching of a file's columns with planned columns, whatever case and list names its writer used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from sparkcrypt.decide.file_schema import schema_of_columns
from sparkcrypt.errors import PlanError
from sparkcrypt.parquet import FileSummary
from sparkcrypt.plan import ColumnPlan, EncryptionPlan
from sparkcrypt.plan.orc import match_orc_columns
from sparkcrypt.schema import Path, join_dotted
from sparkcrypt.tags.find_column import fold


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of one file, by the file's own paths: those in the table's plan, and those not in it."""

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


class ColumnMatcher:
    """Matches the columns of many files with one table's; files with equal columns are matched once.

    Args:
        plan: the plan of the table.
    """

    def __init__(self, plan: EncryptionPlan) -> None:
        self._plan = plan
        self._known: dict[tuple[str, tuple[Path, ...]], FileColumns] = {}

    def match(self, summary: FileSummary) -> FileColumns:
        """Return the same as `match_columns`, from a cache; raises the same errors."""
        shape = summary.format, tuple(summary.columns or ())
        found = self._known.get(shape)
        if found is None:
            found = self._known[shape] = match_columns(summary, self._plan)
        return found


def match_columns(summary: FileSummary, plan: EncryptionPlan) -> FileColumns:
    """Match a file's leaf columns with a table's.

    Spark reads ``EMAIL`` of a file as the table's ``email``, and a list's element whatever its groups are named.  Such
    a column must be matched, or its values would stay in clear.

    Args:
        summary: the file's footer; columns that are not revealed are not matched.
        plan: the plan of the file's table.

    Raises:
        PlanError: a column of the file is nested unlike the table's; the message names the file.
    """
    if summary.format == "orc":
        try:
            return FileColumns(*match_orc_columns(summary.columns or (), plan))
        except PlanError as error:
            raise PlanError(f"{summary.path}: {error}") from error
    exact = {column.leaf.logical: column for column in plan.columns}
    folded = {fold(logical): column for logical, column in exact.items()}
    planned: dict[Path, ColumnPlan] = {}
    unknown = []
    try:
        leaves = schema_of_columns(summary.columns or (), plan.schema).leaves()
    except PlanError as error:
        raise PlanError(f"{summary.path}: {error}") from error
    for leaf in leaves:
        column = exact.get(leaf.logical) or folded.get(fold(leaf.logical))
        if column is None:
            unknown.append(leaf.parquet)
        else:
            planned[leaf.parquet] = column
    return FileColumns(planned, tuple(unknown))


def refuse_lost_columns(columns: Mapping[str, FileColumns], plan: EncryptionPlan) -> None:
    """Refuse files with columns that the table's schema no longer has.

    Such a column has no tag, and Spark's engine, which reads by the schema, would lose it.

    Args:
        columns: path of a file -> its columns.
        plan: the plan of the table.

    Raises:
        PlanError: there is one; the message names file and column.
    """
    tops = {fold(column.leaf.logical[:1]) for column in plan.columns}
    for path, matched in columns.items():
        for column in matched.unknown:
            if len(column) > 1 or fold(column) not in tops:  # else it is read as the table's, or reading fails
                raise PlanError(
                    f"{path}: holds column {join_dotted(column)}, which the table's schema does not, so that no tag "
                    "says whether it may be read by all; add the column to the table (ALTER TABLE … ADD COLUMNS) and "
                    "tag it, or rewrite the file without it"
                )

"""The total match of a file's leaf columns with a table's, by which each leaf has the table's tags or is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from sparkcrypt.errors import PlanError
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.parquet_schema import schema_from_parquet
from sparkcrypt.plan import ColumnPlan, EncryptionPlan
from sparkcrypt.plan.orc import match_orc_columns
from sparkcrypt.schema import Path, join_dotted


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
    columns = tuple(summary.columns or ())
    try:
        if summary.format == "orc":
            return FileColumns(*match_orc_columns(columns, plan))
        leaves = schema_from_parquet(json.loads(summary.fields or "[]"), plan.schema).leaves()
    except PlanError as error:
        raise PlanError(f"{summary.path}: {error}") from error
    planned = {column.leaf.logical: column for column in plan.columns}
    known = {leaf.parquet: planned[leaf.logical] for leaf in leaves if leaf.logical in planned}
    return FileColumns(
        {path: known[path] for path in columns if path in known}, tuple(path for path in columns if path not in known)
    )

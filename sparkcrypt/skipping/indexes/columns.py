"""Determines the type and key of columns to index, and the table's UUID, from the footers of all its files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkcrypt.decide.identity import table_uuid_of
from sparkcrypt.errors import ConfigError
from sparkcrypt.files.listing import ListedFile
from sparkcrypt.skipping.indexes.data_file import column_type
from sparkcrypt.skipping.indexes.files import DataFolder, keys_of, one_key


@dataclass(frozen=True, slots=True)
class Column:
    """A column that can be indexed: its Spark type, and the master key that encrypts it in files, if any."""

    kind: str
    key: str | None


def look_at_columns(
    data: DataFolder, files: Sequence[ListedFile], columns: Sequence[str]
) -> tuple[str | None, dict[str, Column]]:
    """Return the UUID of the files' table, and column -> its type and key.

    A column's type is that of the latest file that has it, since a table's columns are widened and not narrowed.

    Raises:
        ConfigError: a column is in no file, cannot be indexed, or is under several keys; or files belong to several
            tables.
        VerificationError: ``check_file`` refuses a file.
    """
    kinds: dict[str, str] = {}
    keys: dict[str, frozenset[str | None]] = dict.fromkeys(columns, frozenset())
    uuids: set[str] = set()
    for file in sorted(files, key=lambda file: file.modified_ns):
        footer, summary = data.footer(file.name)
        uuids |= {uuid for uuid in (table_uuid_of(summary.aad_prefix),) if uuid is not None}
        for column in columns:
            kind = None if footer.metadata is None else column_type(footer.metadata, column)
            if kind is not None:
                kinds[column] = kind
                keys[column] |= keys_of(column, summary)
    if absent := [column for column in columns if column not in kinds]:
        raise ConfigError(f"column {absent[0]!r}: is in none of the {len(files)} files; name a top-level column")
    return one_uuid(data.path, uuids), {
        column: Column(kinds[column], one_key(column, keys[column])) for column in kinds
    }


def find_uuid(data: DataFolder, files: Sequence[ListedFile]) -> str | None:
    """Return the table UUID of the first file that has one; None if no file has one."""
    for file in files:
        uuid = table_uuid_of(data.footer(file.name)[1].aad_prefix)
        if uuid is not None:
            return uuid
    return None


def one_uuid(path: str, uuids: set[str]) -> str | None:
    """Return the one UUID of files; None if there is none.

    Raises:
        ConfigError: there are several.
    """
    if len(uuids) > 1:
        raise ConfigError(
            f"{path}: holds files of the tables {', '.join(sorted(uuids))}; index the folder of one table"
        )
    return next(iter(uuids), None)

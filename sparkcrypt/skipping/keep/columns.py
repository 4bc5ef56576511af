"""What all files of a table together say of the columns that are to be indexed: type, key, and whose files they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkcrypt.decide.identity import table_uuid_of
from sparkcrypt.errors import ConfigError
from sparkcrypt.native.listing import ListedFile
from sparkcrypt.skipping.keep.data_file import column_type
from sparkcrypt.skipping.keep.files import DataFolder, keys_of, one_key


@dataclass(frozen=True, slots=True)
class Column:
    """A column that can be indexed: its Spark type, and the master key that files have it under, if they do."""

    kind: str
    key: str | None


def look_at_columns(
    data: DataFolder, files: Sequence[ListedFile], columns: Sequence[str]
) -> tuple[str | None, dict[str, Column]]:
    """Return the table's UUID, as its files have it, and what the columns are.

    A column's type is that of the file that was changed last, since a table's columns are widened and not narrowed.

    Raises:
        ConfigError: a column is in no file, cannot be indexed, or is under several keys; or files are of several
            tables.
        VerificationError: a file is not what ``check_file`` takes.
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
    """Return the UUID that the first file with one has, None where none has."""
    for file in files:
        uuid = table_uuid_of(data.footer(file.name)[1].aad_prefix)
        if uuid is not None:
            return uuid
    return None


def one_uuid(path: str, uuids: set[str]) -> str | None:
    """Return the table that files are of; None where none says so.

    Raises:
        ConfigError: they are of several.
    """
    if len(uuids) > 1:
        raise ConfigError(
            f"{path}: holds files of the tables {', '.join(sorted(uuids))}; index the folder of one table"
        )
    return next(iter(uuids), None)

"""The data files of a table: their list, columns, UUID and partition values, and the rows of a store read from them.

Folder names have no types, so a partition's value is a string unless another type is declared for its column.  A value
that does not have its column's type is unknown, and its files are always opened; ``__HIVE_DEFAULT_PARTITION__`` is
null.
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from sparkcrypt.decide.identity import table_uuid_of
from sparkcrypt.errors import ConfigError, FormatError
from sparkcrypt.files.listing import ListedFile, list_files, refuse_formats_above
from sparkcrypt.files.open_places import Settings, place
from sparkcrypt.files.parquet import FileSummary, Footer, RetrieveKey, Source, read_footer, summarise
from sparkcrypt.paths import partition_values, trailing_partition
from sparkcrypt.skipping.format.description import Index, PartitionColumn, object_name
from sparkcrypt.skipping.format.store import UNKNOWN
from sparkcrypt.skipping.format.values import INTEGERS
from sparkcrypt.skipping.indexes.data_file import column_type
from sparkcrypt.skipping.indexes.entries import ReadFile, read_file

SETTLED_SECONDS = 2.0
"""Minimum age of a file: a file that is rewritten within the clock's resolution keeps its modification time."""


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The data files of a table.

    Attributes:
        path: the table's folder, as Hadoop prints it.
        retrieve_key: opens data keys.
        check_file: called with a file's path and the summary of its footer; raises an error to refuse the file.
        settings: the Hadoop settings that are needed to access the files.
        partitions: for a table of the metastore: partition path -> folder of its files, with an empty partition path
            for a table without partitions; files are named as if all folders were below ``path``.  None for a bare
            folder.
        depth: the number of partition columns of a table of the metastore.
    """

    path: str
    retrieve_key: RetrieveKey
    check_file: Callable[[str, FileSummary], None]
    settings: Settings = field(default_factory=dict)
    partitions: Mapping[str, str] | None = None
    depth: int = 0

    def path_of(self, name: str) -> str:
        """Return a file's full path."""
        if self.partitions is None:
            return f"{self.path.rstrip('/')}/{name}" if name else self.path
        parts = name.split("/")
        return "/".join((self.partitions["/".join(parts[: self.depth])].rstrip("/"), *parts[self.depth :]))

    def list_files(self) -> tuple[ListedFile, ...]:
        """List the files.

        Raises:
            PlanError: the folder is of a table in a format that keeps its own list of files.
            VerificationError: one of them is a symbolic link.
        """
        if self.partitions is None:
            refuse_formats_above((self.path,), self.settings)
            return list_files(self.path, self.settings)
        return tuple(
            replace(file, name=f"{partition}/{file.name}" if partition else file.name)
            for partition, folder in self.partitions.items()
            for file in list_files(folder, self.settings)
        )

    def source(self, name: str) -> Source:
        """Return the source to read a file from."""
        return place(self.path_of(name), self.settings)

    def object_of(self, file: ListedFile) -> str:
        """Return the name of a file's object in a store."""
        return object_name(self.path_of(file.name), file.modified_ns // 1_000_000)

    def footer(self, name: str) -> tuple[Footer, FileSummary]:
        """Return a file's footer and its summary, checked with ``check_file``."""
        footer = read_footer(self.source(name), retrieve_key=self.retrieve_key)
        return footer, self.summary(name, footer)

    def summary(self, name: str, footer: Footer) -> FileSummary:
        """Return the summary of a footer, checked with ``check_file``."""
        summary = summarise(footer)
        self.check_file(self.path_of(name), summary)
        return summary


@dataclass(frozen=True, slots=True)
class Listing:
    """A listing of data files: those that are old enough to be indexed, and the paths of those that are not."""

    data: DataFolder
    settled: tuple[ListedFile, ...]
    too_young: tuple[str, ...]


def list_folder(data: DataFolder) -> Listing:
    """List a table's files."""
    files, now = data.list_files(), time.time_ns()
    young = {file.name for file in files if now - file.modified_ns < SETTLED_SECONDS * 1e9}
    return Listing(
        data,
        tuple(file for file in files if file.name not in young),
        tuple(data.path_of(file.name) for file in files if file.name in young),
    )


ReadRow: TypeAlias = "tuple[ListedFile, ReadFile]"
"""A file, and what was read of it; ``check_file`` has accepted it."""
Told: TypeAlias = "Callable[[int], None]"
"""Called with the number of files that were read, which never decreases."""


def tell_nobody(_: int) -> None:
    """Ignore progress."""


@dataclass(frozen=True, slots=True)
class RowsWanted:
    """A request to read the rows of a table's files.

    Attributes:
        data: the table's files.
        indexes: the indexes whose entries are read.
        digest_key: the key of the footers' digests.
    """

    data: DataFolder
    indexes: Sequence[Index]
    digest_key: bytes = field(repr=False)


class RowReader(Protocol):
    """A reader of the rows of files: `read_rows`, or one that uses Spark's tasks."""

    def __call__(self, wanted: RowsWanted, files: Sequence[ListedFile], progress: Told = ...) -> Iterator[ReadRow]:
        """Yield each file with what was read of it."""
        ...


def read_rows(wanted: RowsWanted, files: Sequence[ListedFile], progress: Told = tell_nobody) -> Iterator[ReadRow]:
    """Yield each file with what is read of it; files that cannot be read since they changed meanwhile are left out.

    Args:
        wanted: what to read.
        files: the files as they were listed.
        progress: called with the number of files that were read.

    Raises:
        ConfigError: a column cannot be indexed.
        FormatError: a file is damaged.
        VerificationError: a file does not authenticate, or ``check_file`` refuses it.
        KeyServiceError: a key is denied or unavailable.
    """
    data = wanted.data
    for number, file in enumerate(files, start=1):
        try:
            found = read_file(data.source(file.name), wanted.indexes, data.retrieve_key, wanted.digest_key)
        except FormatError:
            if file.name in changed_since(data, (file,)):
                continue
            raise
        data.check_file(data.path_of(file.name), found.summary)
        yield file, found
        progress(number)


def changed_since(data: DataFolder, files: Sequence[ListedFile]) -> set[str]:
    """Return the names of the files that no longer exist or have changed since they were listed."""
    there = {file.name: file for file in data.list_files()}
    return {file.name for file in files if there.get(file.name) != file}


def keys_of(column: str, summary: FileSummary) -> frozenset[str | None]:
    """Return the master keys that encrypt a column in a file; None stands for plaintext."""
    return frozenset(
        item.key_id if item.encrypted else None
        for path, item in (summary.columns or {}).items()
        if path[0].lower() == column.lower() and item.encrypted is not None
    )


def one_key(column: str, found: frozenset[str | None]) -> str | None:
    """Return the key of a column's index: the one that encrypts the column in at least one file, or None.

    Raises:
        ConfigError: files have several keys for it.
    """
    own = sorted(key for key in found if key is not None)
    if len(own) > 1:
        raise ConfigError(
            f"column {column!r}: is under the keys {', '.join(own)}, and an index is under one; index a folder whose "
            "files have one, or leave the column out"
        )
    return own[0] if own else None


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


def find_uuid(data: DataFolder) -> str | None:
    """Return the table UUID of the first file that has one; None if no file has one."""
    for file in list_folder(data).settled:
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


NULL = "__HIVE_DEFAULT_PARTITION__"
TYPES = ("string", *INTEGERS, "date", "boolean")
"""Types whose values have the same text in folder names of every writer."""
_EPOCH = datetime.date(1970, 1, 1)


def folder_values(name: str) -> Mapping[str, str]:
    """Return partition column -> value of a file's path below its table's folder."""
    return partition_values(trailing_partition(name.split("/")[:-1]))


def partition_columns(
    names: Sequence[str], types: Mapping[str, str], fixed_values: Mapping[str, str]
) -> tuple[PartitionColumn, ...]:
    """Return the partition columns of files.

    Args:
        names: paths of the files below their table's folder.
        types: column -> its type, if it is not a string.
        fixed_values: column -> its value in every file.

    Raises:
        ConfigError: files have different partition columns, a given column is also in folder names, or ``types`` has
            another column or a type that is not in `TYPES`.
    """
    first = tuple(folder_values(names[0])) if names else ()
    for name in names:
        check_folders(name, first)
    if twice := [column for column in fixed_values if column in first]:
        raise ConfigError(f"partition column {twice[0]!r}: folders tell its value, and it is given; leave one out")
    columns = (*first, *fixed_values)
    for column, kind in types.items():
        if column not in columns:
            there = ", ".join(columns) or "none, as no folder is named column=value"
            raise ConfigError(f"partition column {column!r}: is told by no folder; allowed: {there}")
        if kind not in TYPES:
            raise ConfigError(
                f"partition column {column!r}: values of type {kind!r} are not compared by their text; allowed: "
                f"{', '.join(TYPES)}; leave its type out if it is none of them"
            )
    return tuple(PartitionColumn("", column, types.get(column, "string")) for column in columns)


def check_folders(name: str, columns: Sequence[str]) -> None:
    """Refuse a file whose folders have other partition columns than these.

    Raises:
        ConfigError: they do.
    """
    found = tuple(folder_values(name))
    if found != tuple(columns):
        raise ConfigError(
            f"{name}: lies in folders of {', '.join(found) or 'no partition column'}, and others in those of "
            f"{', '.join(columns) or 'none'}; index each table by itself"
        )


def partition_value(text: str, kind: str | None) -> object:
    """Return a partition's value as in stores: None for null, `UNKNOWN` for a text that is no value of the type."""
    if text == NULL:
        return None
    return _READ[kind](text, kind) if kind is not None and kind in _READ else UNKNOWN


def _integer(text: str, kind: str) -> object:
    half = 1 << (INTEGERS[kind] - 1)
    return int(text) if re.fullmatch(r"-?[0-9]{1,20}", text) and -half <= int(text) < half else UNKNOWN


def _date(text: str, _: str) -> object:
    try:
        found = datetime.date.fromisoformat(text) if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else None
    except ValueError:
        return UNKNOWN
    return UNKNOWN if found is None else (found - _EPOCH).days


_READ: Mapping[str, Callable[[str, str], object]] = {
    "string": lambda text, _: text,
    "boolean": lambda text, _: {"true": True, "false": False}.get(text, UNKNOWN),
    "date": _date,
    **dict.fromkeys(INTEGERS, _integer),
}

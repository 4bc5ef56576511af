"""The data files of one table: listed, and read for what a store says of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from sparkcrypt.decide.identity import table_uuid_of
from sparkcrypt.errors import ConfigError, FormatError
from sparkcrypt.native.listing import ListedFile, list_files
from sparkcrypt.native.open_places import Settings, place
from sparkcrypt.parquet import FileSummary, Footer, RetrieveKey, Source, read_footer, summarise
from sparkcrypt.skipping.format.description import Index
from sparkcrypt.skipping.format.naming import object_name
from sparkcrypt.skipping.format.store import Entry
from sparkcrypt.skipping.keep.packed_rows import ReadFile, read_file
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts

SETTLED_SECONDS = 2.0
"""How old a file must be: one that was written again in the same moment has the same time of change."""


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A table's files.

    Attributes:
        path: their folder, as Hadoop prints it.
        retrieve_key: opens data keys.
        check_file: is given a file's path and what its footer says; raises where it is not what it should be.
        settings: what of Hadoop's configuration reaches the files.
        partitions: partition path -> the folder of its files, of a table whose folders the metastore knows, under an
            empty path where it has no partitions; their files are then named as if all lay below ``path``.  None
            where ``path`` is all that is known.
        depth: how many partition columns such a table has.
    """

    path: str
    retrieve_key: RetrieveKey
    check_file: Callable[[str, FileSummary], None]
    settings: Settings = field(default_factory=dict)
    partitions: Mapping[str, str] | None = None
    depth: int = 0

    def path_of(self, name: str) -> str:
        """Return a file's whole path."""
        if self.partitions is None:
            return f"{self.path.rstrip('/')}/{name}" if name else self.path
        parts = name.split("/")
        return "/".join((self.partitions["/".join(parts[: self.depth])].rstrip("/"), *parts[self.depth :]))

    def list_files(self) -> tuple[ListedFile, ...]:
        """List the files.

        Raises:
            VerificationError: there is a symbolic link among them.
        """
        if self.partitions is None:
            return list_files(self.path, self.settings)
        return tuple(
            replace(file, name=f"{partition}/{file.name}" if partition else file.name)
            for partition, folder in self.partitions.items()
            for file in list_files(folder, self.settings)
        )

    def source(self, name: str) -> Source:
        """Return what a file is read from."""
        return place(self.path_of(name), self.settings)

    def object_of(self, file: ListedFile) -> str:
        """Return what a store calls a file."""
        return object_name(self.path_of(file.name), file.modified_ns // 1_000_000)

    def footer(self, name: str) -> tuple[Footer, FileSummary]:
        """Read a file's footer, and check it."""
        footer = read_footer(self.source(name), retrieve_key=self.retrieve_key)
        return footer, self.summary(name, footer)

    def summary(self, name: str, footer: Footer) -> FileSummary:
        """Return what a footer says of the file's encryption, checked."""
        summary = summarise(footer)
        self.check_file(self.path_of(name), summary)
        return summary


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a folder that are old enough to be indexed, and the names of those that are not."""

    settled: tuple[ListedFile, ...]
    too_young: tuple[str, ...]


def list_folder(data: DataFolder) -> Listing:
    """List a table's files."""
    files, now = data.list_files(), time.time_ns()
    young = {file.name for file in files if now - file.modified_ns < SETTLED_SECONDS * 1e9}
    return Listing(
        tuple(file for file in files if file.name not in young),
        tuple(data.path_of(file.name) for file in files if file.name in young),
    )


@dataclass(frozen=True, slots=True)
class FileRow:
    """What is known of a file: its object's name and facts, what each index holds of it, and its keys.

    ``unknown`` says of an index why it holds nothing, ``keys`` of a column which master keys the file has it under
    (None: in clear), ``table_uuid`` which table's file it says that it is.
    """

    name: str
    object: str
    facts: ObjectFacts
    entries: Mapping[Index, Entry | None]
    unknown: Mapping[Index, str]
    keys: Mapping[str, frozenset[str | None]]
    table_uuid: str | None


Told: TypeAlias = "Callable[[int], None]"
"""Hears how many of the files are read; never less than before."""


def tell_nobody(_: int) -> None:
    """Hear nothing."""


@dataclass(frozen=True, slots=True)
class RowsWanted:
    """What is to be read of each file of a table.

    Attributes:
        data: the table's files.
        indexes: what a store says of each.
        digest_key: under which footers are digested.
    """

    data: DataFolder
    indexes: Sequence[Index]
    digest_key: bytes = field(repr=False)


class RowReader(Protocol):
    """What reads the rows of files: `read_rows`, or Spark's tasks."""

    def __call__(self, wanted: RowsWanted, files: Sequence[ListedFile], told: Told = ...) -> Iterator[FileRow]:
        """Yield what a store says of each file."""
        ...


def read_rows(wanted: RowsWanted, files: Sequence[ListedFile], told: Told = tell_nobody) -> Iterator[FileRow]:
    """Read what a store says of files; a file that is gone by now is left out.

    Args:
        wanted: what of them.
        files: which, as they were listed.
        told: hears how many files are read.

    Raises:
        ConfigError: a column cannot be indexed.
        FormatError: a file is damaged.
        VerificationError: it does not authenticate, or is not what ``check_file`` takes.
        KeyServiceError: a key is denied or cannot be had.
    """
    data = wanted.data
    for number, file in enumerate(files, start=1):
        try:
            found = read_file(
                data.path_of(file.name), data.settings, wanted.indexes, data.retrieve_key, wanted.digest_key
            )
        except FormatError:
            if file.name in changed_since(data, (file,)):
                continue
            raise
        yield make_row(data, file, found)
        told(number)


def make_row(data: DataFolder, file: ListedFile, found: ReadFile) -> FileRow:
    """Return what is known of a file that was read, once it is checked.

    Raises:
        VerificationError: the file is not what ``check_file`` takes.
    """
    data.check_file(data.path_of(file.name), found.summary)
    columns = {index.columns[0] for index in found.entries}
    return FileRow(
        file.name,
        data.object_of(file),
        found.facts,
        found.entries,
        found.unknown,
        {column: keys_of(column, found.summary) for column in columns},
        table_uuid_of(found.summary.aad_prefix),
    )


def changed_since(data: DataFolder, files: Sequence[ListedFile]) -> set[str]:
    """Return the names of those files that are gone, or another than when they were listed."""
    there = {file.name: file for file in data.list_files()}
    return {file.name for file in files if there.get(file.name) != file}


def keys_of(column: str, summary: FileSummary) -> frozenset[str | None]:
    """Return the master keys that a file has a column under; None stands for a column in clear."""
    return frozenset(
        item.key_id if item.encrypted else None
        for path, item in (summary.columns or {}).items()
        if path[0].lower() == column.lower() and item.encrypted is not None
    )


def one_key(column: str, found: frozenset[str | None]) -> str | None:
    """Return the key of a column's index: the one that any file has for it.

    Raises:
        ConfigError: files have several.
    """
    own = sorted(key for key in found if key is not None)
    if len(own) > 1:
        raise ConfigError(
            f"column {column!r}: is under the keys {', '.join(own)}, and an index is under one; index a folder whose "
            "files have one, or leave the column out"
        )
    return own[0] if own else None

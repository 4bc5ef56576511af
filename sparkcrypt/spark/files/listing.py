"""Lists what is below a folder: on a local disk without the JVM, elsewhere in one call to it; it needs no pyspark."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import StorageError, VerificationError
from sparkcrypt.files.listing import Beside, Entry, find_beside, find_empty, refused_link
from sparkcrypt.names import FOLDER_LISTING_CLASS
from sparkcrypt.paths import hadoop_local_path, is_hidden

if TYPE_CHECKING:
    from sparkcrypt.spark.files.hadoop import HadoopFiles

_FOLDER = -1
"""The length of a hidden folder in a listing."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that Spark reads: its URI, length in bytes, and modification time in milliseconds since the epoch."""

    path: str
    length: int
    modified_ms: int

    def to_list(self) -> list[Any]:
        """Return the file as JSON values for a journal."""
        return [self.path, self.length, self.modified_ms]


@dataclass(frozen=True, slots=True)
class Contents:
    """What is below a folder: the files that Spark reads, sorted by path, and what lies beside them."""

    data: tuple[SourceFile, ...]
    beside: tuple[Beside, ...]


def data_files(files: HadoopFiles, folder: str) -> tuple[SourceFile, ...]:
    """Return the files below a folder, without names that begin with ``_`` or ``.`` unless they name a partition.

    Files of 0 bytes are left out, as Spark leaves them out.

    Args:
        files: the file system.
        folder: its URI, as Hadoop prints it.

    Raises:
        StorageError: it cannot be listed.
        VerificationError: a file or folder below it is a symbolic link.
    """
    return list_contents(files, folder).data


def list_contents(files: HadoopFiles, folder: str) -> Contents:
    """Return what is below a folder, in one pass over it; hidden folders are named, and not looked into.

    Args:
        files: the file system.
        folder: its URI, as Hadoop prints it.

    Raises:
        StorageError: it cannot be listed.
        VerificationError: a data file, or a folder of them, is a symbolic link.
    """
    local = hadoop_local_path(folder)
    root = folder.rstrip("/") if local is None else f"file:{local}".rstrip("/")
    found = sorted(_list(files, root), key=lambda entry: entry.path)
    start = len(root) + 1
    entries = [Entry(entry.path[start:], entry.length == _FOLDER, max(entry.length, 0)) for entry in found]
    visible = [entry for entry in found if not is_hidden(entry.path.rpartition("/")[2])]
    return Contents(tuple(entry for entry in visible if entry.length), (*find_beside(entries), *find_empty(entries)))


def _list(files: HadoopFiles, folder: str) -> Iterator[SourceFile]:
    """Yield each data file, and the topmost of each hidden file or folder."""
    local = hadoop_local_path(folder)
    if local is not None:
        try:
            yield from _list_local(local or "/")
        except OSError as error:
            raise StorageError(f"cannot list {folder}: {error.strerror}: {error.filename}") from error
        return
    listing = files.listed_in_jvm(folder, FOLDER_LISTING_CLASS)
    if listing is None:  # no jar in this session
        for status in files.walk_visible(folder):
            yield SourceFile(status.path, _FOLDER if status.is_folder else status.length, status.modified_ms)
        return
    fields = listing.split("\0")[:-1]
    for path, length, time in zip(*[iter(fields)] * 3, strict=True):
        yield SourceFile(path, int(length), int(time))


def _list_local(folder: str) -> Iterator[SourceFile]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                with contextlib.suppress(FileNotFoundError):  # a writer's temporary file
                    yield _describe(entry)
            elif entry.is_symlink():
                raise VerificationError(refused_link(entry.path))
            elif entry.is_dir():
                yield from _list_local(entry.path)
            else:
                yield _describe(entry)


def _describe(entry: os.DirEntry[str]) -> SourceFile:
    status = entry.stat(follow_symlinks=False)
    length = _FOLDER if entry.is_dir(follow_symlinks=False) else status.st_size
    return SourceFile(f"file:{entry.path}", length, status.st_mtime_ns // 1_000_000)

"""Lists the data files below a folder: on a local disk without the JVM, elsewhere in one call to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkcrypt.errors import StorageError, VerificationError
from sparkcrypt.names import FOLDER_LISTING_CLASS
from sparkcrypt.native.listing import refused_link
from sparkcrypt.paths import is_hidden
from sparkcrypt.spark.files.status import local_path

if TYPE_CHECKING:
    from sparkcrypt.spark.files.hadoop import HadoopFiles


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that Spark reads: its URI, length in bytes, and modification time in milliseconds since the epoch."""

    path: str
    length: int
    modified_ms: int


def data_files(files: HadoopFiles, folder: str) -> tuple[DataFile, ...]:
    """Return the files below a folder, without names that begin with ``_`` or ``.`` unless they name a partition.

    Args:
        files: the file system.
        folder: its URI, as Hadoop prints it.

    Raises:
        StorageError: it cannot be listed.
        VerificationError: a file or folder below it is a symbolic link.
    """
    local = local_path(folder)
    if local is not None:
        try:
            return tuple(sorted(_list_local(local.rstrip("/") or "/"), key=lambda entry: entry.path))
        except OSError as error:
            raise StorageError(f"cannot list {folder}: {error.strerror}: {error.filename}") from error
    listing = files.listed_in_jvm(folder, FOLDER_LISTING_CLASS)
    if listing is None:  # no jar in this session
        return tuple(DataFile(file.path, file.length, file.modified_ms) for file in files.data_files(folder))
    fields = listing.split("\0")[:-1]
    made = (DataFile(path, int(length), int(time)) for path, length, time in zip(*[iter(fields)] * 3, strict=True))
    return tuple(sorted(made, key=lambda entry: entry.path))


def _list_local(folder: str) -> Iterator[DataFile]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if is_hidden(name):
                continue
            if entry.is_symlink():
                raise VerificationError(refused_link(entry.path))
            if entry.is_dir():
                yield from _list_local(entry.path)
            else:
                status = entry.stat()
                yield DataFile(f"file:{entry.path}", status.st_size, status.st_mtime_ns // 1_000_000)

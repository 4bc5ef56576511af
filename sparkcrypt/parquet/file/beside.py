"""Reads small files in the folder of a source, on whatever file system the source is."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from sparkcrypt.errors import FormatError, StorageError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

Read: TypeAlias = Callable[[str, int], "bytes | None"]


@dataclass(frozen=True, slots=True)
class Beside:
    """Access to the other files in a file's folder.

    Attributes:
        name: the file's own name in its folder.
        read: called with another file's name and a limit; returns the file's bytes, at most one more than the limit, or
            None if it does not exist.  Raises FormatError if it is not a regular file, StorageError if it cannot be
            reached.
    """

    name: str
    read: Read


def beside_path(path: str) -> Beside:
    """Return access to the files beside a local file; symbolic links, which may lead to another file's, are refused."""

    def read(name: str, most_bytes: int) -> bytes | None:
        where = os.path.join(os.path.dirname(path), name)  # noqa: PTH118, PTH120 - as the source itself is opened
        try:
            descriptor = os.open(where, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise FormatError(f"{name} is a symbolic link; expected a file of the folder's own") from error
            raise StorageError(f"{name} cannot be read: {error.strerror}; see that you may read it") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FormatError(f"{name} is no file; expected the file that a writer left there")
        with os.fdopen(descriptor, "rb") as file:
            return file.read(most_bytes + 1)

    return Beside(os.path.basename(path), read)  # noqa: PTH119


def beside_on(filesystem: FileSystem, path: str) -> Beside:
    """Return access to the files beside a file on a pyarrow file system."""
    folder, slash, own = path.rpartition("/")

    def read(name: str, most_bytes: int) -> bytes | None:
        try:
            with filesystem.open_input_file(f"{folder}{slash}{name}") as file:
                return bytes(file.read(most_bytes + 1))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StorageError(f"{name} cannot be read: {error}; see that its storage lets you read it") from error

    return Beside(own, read)


def beside_stream(source: Any) -> Beside | None:
    """Return access to the files beside an open file, if it is a local file or has ``beside``; None for others."""
    own: Beside | None = getattr(source, "beside", None)
    if own is not None:
        return own
    raw = getattr(source, "raw", source)
    return beside_path(raw.name) if isinstance(raw, io.FileIO) and isinstance(raw.name, str) else None

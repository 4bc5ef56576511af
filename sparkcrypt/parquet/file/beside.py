"""Reads small files that stand beside a source, in the same folder, wherever the source is opened from."""

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
    """What else is in the folder of a file.

    Attributes:
        name: the file's own, in its folder.
        read: returns what another file holds, by its name, and of one that holds more than so many bytes a byte more
            than that; None where there is none.  Raises FormatError where it is no plain file, StorageError where it
            cannot be reached.
    """

    name: str
    read: Read


def beside_path(path: str) -> Beside:
    """Return what is beside a local file; a symbolic link is refused, since it may lead to another file's."""

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
    """Return what is beside a file on a file system of pyarrow."""
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
    """Return what is beside an open file: one of this machine, or one that has ``beside``; None of others."""
    own: Beside | None = getattr(source, "beside", None)
    if own is not None:
        return own
    raw = getattr(source, "raw", source)
    return beside_path(raw.name) if isinstance(raw, io.FileIO) and isinstance(raw.name, str) else None

"""Reads small files in the folder of a source, on whatever file system the source is."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from sparkcrypt.errors import FormatError, StorageError
from sparkcrypt.regular_files import open_regular

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
            with open_regular(where) as file:
                return file.read(most_bytes + 1)
        except FileNotFoundError:
            return None
        except IsADirectoryError as error:
            raise FormatError(f"{name} is a folder; expected the file that a writer left there") from error
        except OSError as error:
            raise StorageError(f"{name} cannot be read: {error.strerror}; see that you may read it") from error

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

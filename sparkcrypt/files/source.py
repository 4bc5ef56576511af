"""Opens the sources of Parquet files, and reads ranges of them that are checked against the file's size."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, Union

from sparkcrypt.errors import FormatError, StorageError, UnsupportedFileError, VerificationError
from sparkcrypt.files.access_rights import PRIVATE, FileAccess, access_of
from sparkcrypt.regular_files import open_descriptor, open_regular

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


Source: TypeAlias = Union[str, "os.PathLike[str]", "tuple[FileSystem, str]", BinaryIO, bytes]
"""A path, a (pyarrow filesystem, path), an open seekable binary file (left open), or a whole file's bytes."""

_NOT_A_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError)
"""Errors of opening that mean there is no such file; no other error is evidence about the file."""


class Input:
    """A file of known name and size, read by ranges.  Its messages do not name the file: `naming` adds the name."""

    __slots__ = ("_buffer", "_file", "access", "beside", "descriptor", "name", "size")

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        size: int,
        descriptor: int | None = None,
        access: FileAccess | None = None,
        beside: Beside | None = None,
    ) -> None:
        self._file = file
        self._buffer = bytearray()
        self.name = name
        self.size = size
        self.descriptor = descriptor
        """The descriptor of an unbuffered local file, else None."""
        self.access = access
        """The access rights of files made from it; None if it is not a stored file."""
        self.beside = beside
        """Access to the other files in its folder; None if the folder is not known."""

    def read(self, offset: int, length: int, what: object) -> bytes:
        """Return the bytes of a range; ``str(what)`` is its name in messages.

        Raises:
            FormatError: the range is not inside the file, or the file became shorter.
            StorageError: the storage failed.
        """
        if offset < 0 or length < 0 or offset + length > self.size:
            raise FormatError(
                f"{what} is said to be {length} bytes at offset {offset}; expected inside the file's {self.size} bytes"
            )
        try:
            self._file.seek(offset)
            data = self._file.read(length)
            while len(data) < length and (more := self._file.read(length - len(data))):
                data += more
        except OSError as error:
            raise _make_unreachable_error(error, offset) from error
        if len(data) != length:
            raise FormatError(
                f"ends at offset {offset + len(data)}; expected {self.size} bytes, so it changed while it was read"
            )
        return data

    def read_into(self, offset: int, target: memoryview, what: object) -> None:
        """Read the bytes of a range into a buffer.

        Raises:
            FormatError, StorageError: as `read`.
        """
        read = getattr(self._file, "readinto", None)
        if read is None or offset < 0 or offset + len(target) > self.size:
            target[:] = self.read(offset, len(target), what)
            return
        done = 0
        try:
            self._file.seek(offset)
            while done < len(target) and (count := read(target[done:])):
                done += count
        except OSError as error:
            raise _make_unreachable_error(error, offset) from error
        if done != len(target):
            raise FormatError(
                f"ends at offset {offset + done}; expected {self.size} bytes, so it changed while it was read"
            )

    def buffer(self, length: int) -> memoryview:
        """Return a buffer of at least this length; the previous one is reused if it is long enough."""
        if len(self._buffer) < length:
            self._buffer = bytearray(length)
        return memoryview(self._buffer)


@contextmanager
def open_source(source: Source) -> Iterator[Input]:
    """Open a source for the duration of a ``with`` block.

    Raises:
        FormatError: it does not exist, or is not a file.
        StorageError: it cannot be reached.
    """
    if isinstance(source, (str, os.PathLike)):
        with _open_path(os.fspath(source)) as file:
            descriptor = file.fileno()
            size = os.fstat(descriptor).st_size
            path = os.fspath(source)
            yield Input(file, path, size, descriptor, access_of(descriptor), beside_path(path))
    elif isinstance(source, tuple):
        opened, access = _open_on(*source)
        with opened as native:
            try:
                size = native.size()
            except OSError as error:
                raise StorageError(f"{source[1]}: {_MAY_BE_RIGHT.format(error)}") from error
            yield Input(native, source[1], size, access=access, beside=beside_on(*source))
    elif isinstance(source, bytes):
        yield Input(io.BytesIO(source), "<bytes>", len(source))
    else:
        name, size = str(getattr(source, "name", "<file>")), source.seek(0, io.SEEK_END)
        yield Input(source, name, size, beside=beside_stream(source))


_RENAMED = (FormatError, StorageError, UnsupportedFileError, VerificationError)


class _Naming:
    """The context of `naming`; a class, since files of many columns enter it more often than anything else."""

    __slots__ = ("_lead", "_name")

    def __init__(self, name: object, lead: str) -> None:
        self._name = name
        self._lead = lead

    def __enter__(self) -> None:
        """Enter the block."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise an error about the file's content anew, with the name."""
        if isinstance(error, Exception) and type(error) in _RENAMED:
            raise type(error)(f"{self._lead}{self._name}: {error}") from error


def naming(name: object, lead: str = "") -> _Naming:
    """Prefix the messages of errors about a file's content, raised inside the ``with`` block, with a name.

    Args:
        name: its ``str``, which is only built for a message, is the name of the file or of a part of it.
        lead: what comes before the name.
    """
    return _Naming(name, lead)


def _open_path(path: str) -> BinaryIO:
    try:
        descriptor = open_descriptor(path, os.O_RDONLY, follow_link=True)  # its caller names it; listings refuse links
        return os.fdopen(descriptor, "rb", buffering=0)
    except _NOT_A_FILE as error:
        raise FormatError(
            f"{path}: cannot be opened: {getattr(error, 'strerror', None) or error}; give the path of a Parquet file"
        ) from error
    except OSError as error:
        raise StorageError(f"{path}: {_MAY_BE_RIGHT.format(error.strerror or error)}") from error


def _open_on(filesystem: FileSystem, path: str) -> tuple[Any, FileAccess]:
    """Open a file; return its access rights too, those of a private file if its file system cannot report them."""
    open_with_mode = getattr(getattr(filesystem, "handler", None), "open_with_mode", None)
    try:
        if open_with_mode is not None:  # one look at the file tells all
            opened, mode = open_with_mode(path)
            return opened, FileAccess(mode)
        return filesystem.open_input_file(path), _stored_access(filesystem, path)
    except (OSError, ValueError) as error:
        if isinstance(error, _NOT_A_FILE) or _is_folder(filesystem, path):
            raise FormatError(
                f"{path}: cannot be opened: {error}; give the path of a Parquet file on that file system"
            ) from error
        raise StorageError(f"{path}: {_MAY_BE_RIGHT.format(error)}") from error


def _stored_access(filesystem: FileSystem, path: str) -> FileAccess:
    if filesystem.type_name != "local":
        return PRIVATE
    status = os.stat(path)  # noqa: PTH116 - as pyarrow names it
    return FileAccess(status.st_mode & 0o777, status.st_uid, status.st_gid)


def _is_folder(filesystem: FileSystem, path: str) -> bool:
    from pyarrow.fs import FileType

    try:
        return bool(filesystem.get_file_info(path).type == FileType.Directory)
    except (OSError, ValueError):
        return False


_MAY_BE_RIGHT = "cannot be reached: {}; that says nothing of the file: see that its storage answers and lets you read"


def _make_unreachable_error(error: OSError, offset: int) -> StorageError:
    return StorageError(f"at offset {offset} it {_MAY_BE_RIGHT.format(error)}")

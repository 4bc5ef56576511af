"""Writes files that appear under their names whole or not at all, on any file system."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, Union

from sparkcrypt.durable import name_new, sync_folder
from sparkcrypt.errors import ConfigError, UnsupportedFileError
from sparkcrypt.files.access_rights import PRIVATE_FILE, FileAccess, give_access, open_private
from sparkcrypt.files.source import Input

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

Target: TypeAlias = Union[str, "os.PathLike[str]", "tuple[FileSystem, str]"]
"""A path, or a (pyarrow filesystem, path)."""

COPY_BYTES = 8 * 1024 * 1024
GATHER_BYTES = 1024 * 1024
"""The size of the write buffer, small enough for its content to be still in the processor's cache when written."""
S3_MOST_BYTES = 5 * 1024**3
"""The largest object that S3 copies in one request; there a finished file is given its name by a copy."""
_NO_KERNEL_COPY = (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM)
_WAITING: ContextVar[set[str] | None] = ContextVar("folders that wait to be synced", default=None)


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """What a rewrite of a file of either format tells, and its target does not.

    Attributes:
        unauthenticated: the parts of an encrypted source that nothing authenticated.
        notes: what the target lost, and which readers cannot read it.
        left_out: names of the user metadata that an ORC target lost.
    """

    unauthenticated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class Output:
    """A file that is being written, from front to back."""

    __slots__ = ("_descriptor", "_file", "_gathered", "_most", "_view", "position")

    def __init__(self, file: BinaryIO, descriptor: int | None, most: int | None = None) -> None:
        self._file = file
        self._descriptor = descriptor
        self._view = memoryview(bytearray(GATHER_BYTES))
        self._gathered = 0
        self._most = most
        self.position = 0

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes to the buffer, which `flush` writes at the latest; the caller may reuse a view afterwards."""
        size, start = len(data), self._gathered
        if size > len(self._view) - start:
            self.flush()
            start = 0
        if size > len(self._view):
            self._hand_over(data)
        else:
            self._gathered = start + size
            self._view[start : self._gathered] = data
        self.position += size

    def room(self, size: int) -> memoryview:
        """Return a buffer for the next bytes; call `advance` after filling it."""
        if size > len(self._view) - self._gathered:
            self.flush()
            if size > len(self._view):
                self._view = memoryview(bytearray(size))
        return self._view[self._gathered : self._gathered + size]

    def advance(self, size: int) -> None:
        """Append the first bytes of the buffer that `room` returned."""
        self._gathered += size
        self.position += size

    def flush(self) -> None:
        """Write the buffered bytes to the file."""
        if self._gathered:
            self._hand_over(self._view[: self._gathered])
            self._gathered = 0

    def _hand_over(self, data: bytes | memoryview) -> None:
        if self._most is not None and self.position > self._most:
            raise UnsupportedFileError(refusal_of_size(self._most))
        if self._descriptor is None:
            self._file.write(bytes(data))  # a copy, since a file system may send it later
            return
        written = os.write(self._descriptor, data)
        while written < len(data):
            written += os.write(self._descriptor, memoryview(data)[written:])

    def copy(self, source: Input, offset: int, length: int, what: object) -> None:
        """Append a range of a file; the kernel copies it if both are local files.

        Raises:
            FormatError: the range is not inside the file.
        """
        copied = self._copy_by_kernel(source, offset, length)
        while copied < length:
            size = min(COPY_BYTES, length - copied)
            self.write(source.read(offset + copied, size, what))
            copied += size

    def _copy_by_kernel(self, source: Input, offset: int, length: int) -> int:
        descriptor = source.descriptor
        if descriptor is None or self._descriptor is None or length < COPY_BYTES // 64:
            return 0
        if not hasattr(os, "copy_file_range"):
            return 0
        self.flush()
        copied = 0
        while copied < length:
            try:
                count = os.copy_file_range(descriptor, self._descriptor, length - copied, offset + copied)
            except OSError as error:
                if error.errno not in _NO_KERNEL_COPY:
                    raise
                break
            if not count:
                break
            copied += count
        self.position += copied
        return copied


@contextmanager
def open_target(target: Target, access: FileAccess | None = None) -> Iterator[Output]:
    """Open a target for the duration of a ``with`` block; the file gets its name when the block ends without an error.

    Until then its bytes are in a hidden file beside it, which is removed on failure and which, if the file system has
    modes, only its owner can access.

    Args:
        target: the place of the file.
        access: its access rights, set as far as this user is permitted to and never wider; None uses the process's
            defaults.

    Raises:
        ConfigError: the target already exists, or cannot be written.
    """
    opened = _on_file_system(*target, access) if isinstance(target, tuple) else _local(os.fspath(target), access)
    with opened as output:
        yield output


def _make_hidden_name(path: str) -> str:
    folder, name = posixpath.split(path)
    return posixpath.join(folder, f".{name}.{uuid.uuid4().hex}.partial")


@contextmanager
def _local(path: str, access: FileAccess | None) -> Iterator[Output]:
    _refuse_existing(os.path.lexists(path), path)
    partial = _make_hidden_name(path)
    try:
        # pathlib would cost as much as a small file; closed below, before the file gets its name
        file = open(partial, "xb", buffering=0, opener=None if access is None else open_private)  # noqa: SIM115
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}; give a path in a writable folder"
        ) from error
    try:
        with file:
            output = Output(file, file.fileno())
            yield output
            output.flush()
            if access is not None:
                give_access(file.fileno(), access)
            os.fsync(file.fileno())
        try:
            name_new(partial, path)
        except FileExistsError:
            _refuse_existing(True, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)  # noqa: PTH108
        raise
    folder = os.path.dirname(path) or "."  # noqa: PTH120
    waiting = _WAITING.get()
    if waiting is None:
        sync_folder(folder)
    else:
        waiting.add(folder)


@contextmanager
def folders_synced_once() -> Iterator[None]:
    """Sync the folders of local files written in the ``with`` block at its end, each folder once.

    Syncing a folder takes as long as syncing a small file.  Before the end of the block a crash of the machine may lose
    whole files that were written, but never leaves a part of one.  Nested blocks, and those of other threads, are
    independent.
    """
    waiting: set[str] = set()
    token = _WAITING.set(waiting)
    try:
        yield
    finally:
        _WAITING.reset(token)
        for folder in sorted(waiting):
            with contextlib.suppress(FileNotFoundError):  # the folder was removed, and so its files
                sync_folder(folder)


@contextmanager
def _on_file_system(filesystem: FileSystem, path: str, access: FileAccess | None) -> Iterator[Output]:
    from pyarrow.fs import FileType

    handler = getattr(filesystem, "handler", None)
    looks = not getattr(handler, "never_replaces", False)

    def refuse_existing() -> None:
        _refuse_existing(looks and filesystem.get_file_info(path).type != FileType.NotFound, path)

    refuse_existing()
    partial, local = _make_hidden_name(path), filesystem.type_name == "local"
    try:
        if local and access is not None:  # pyarrow opens an existing file and keeps its mode
            os.close(open_private(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        file: Any = filesystem.open_output_stream(partial, compression=None)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be written: {error}; give a path in a writable folder") from error
    try:
        with file:
            output = Output(file, None, most_bytes(filesystem))
            yield output
            output.flush()
        if access is not None:
            _give_stored(filesystem, partial, access)
        refuse_existing()
        try:
            filesystem.move(partial, path)
        except FileExistsError:  # a rename that refuses a file made concurrently
            _refuse_existing(True, path)
    except BaseException:
        with contextlib.suppress(OSError):
            filesystem.delete_file(partial)
        raise


def _give_stored(filesystem: FileSystem, path: str, access: FileAccess) -> None:
    """Set the access rights of a file on a file system, if that has modes that can be set from Python."""
    give_mode = getattr(getattr(filesystem, "handler", None), "give_mode", None)
    if give_mode is not None:
        if access.mode != PRIVATE_FILE:  # as it was made
            give_mode(path, access.mode)
    elif filesystem.type_name == "local":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            give_access(descriptor, access)
        finally:
            os.close(descriptor)


def most_bytes(filesystem: FileSystem) -> int | None:
    """Return the most bytes that a target on a file system may have; None without a limit.

    On S3, objects appear whole even without a copy, but pyarrow completes an upload that failed half-way, so a target
    is not written under its own name.
    """
    return S3_MOST_BYTES if filesystem.type_name == "s3" else None


def refusal_of_size(most: int) -> str:
    """Return the message that refuses a file whose target may be larger than ``most`` bytes."""
    return (
        f"the target may be larger than {most} bytes, the most that S3 copies at once; write smaller files, in Parquet "
        "also by the Spark engine"
    )


def _refuse_existing(exists: bool, path: str) -> None:
    if exists:
        raise ConfigError(f"{path}: is there already, and files are never replaced; give another path, or remove it")

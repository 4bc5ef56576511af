"""Durable writes: a file is whole or not there, and its name survives a loss of power.

The content is synced in a hidden file beside it, which then gets the name; the folder is synced last.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TEMPORARY = ".tmp"
"""The end of the names of hidden files; a writer that was killed leaves its own."""
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What file systems without hard links answer, or those that allow a file one name."""


def write_new(file: Path, content: bytes) -> None:
    """Create a file that only its owner can use, with all of its content or not at all.

    Args:
        file: the file's path.
        content: the file's content.

    Raises:
        FileExistsError: the file exists already; it is left unchanged.
        OSError: the file could not be written, or its folder could not be synced.
    """
    with hidden_file(file, content) as temporary:
        name_new(temporary, file)
    sync_folder(file.parent)


def replace_file(file: Path, content: bytes, *, mode: int | None = 0o600) -> None:
    """Replace a file, or create it, with all of its content or not at all.

    Args:
        file: the file's path.
        content: the file's content.
        mode: the new file's mode; None: as the process's umask has it.

    Raises:
        OSError: the file could not be written, or its folder could not be synced.
    """
    with hidden_file(file, content, mode=mode) as temporary:
        temporary.replace(file)
    sync_folder(file.parent)


@contextmanager
def hidden_file(file: Path, content: bytes, *, mode: int | None = 0o600) -> Iterator[Path]:
    """Write a hidden file beside another, and sync it; it is removed at the end of the block unless it was renamed.

    Raises:
        OSError: it could not be written.
    """
    temporary = file.with_name(f".{uuid.uuid4().hex}{TEMPORARY}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o666 if mode is None else mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if mode is not None:
                os.fchmod(descriptor, mode)
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def name_new(temporary: str | os.PathLike[str], file: str | os.PathLike[str]) -> None:
    """Give a finished file a name that is free, by a link where the file system has those, else by a rename.

    Raises:
        FileExistsError: the name is taken.
        OSError: it could not be renamed.
    """
    try:
        link_new(temporary, file)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if os.path.lexists(file):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(file)) from error
        os.rename(temporary, file)  # noqa: PTH104  # pathlib would cost as much as a small file
    else:
        os.unlink(temporary)  # noqa: PTH108


def link_new(temporary: str | os.PathLike[str], file: str | os.PathLike[str]) -> None:
    """Link a finished file to a name that is free; unlike a rename, a link never replaces a file made concurrently.

    Raises:
        FileExistsError: the name is taken.
        OSError: it could not be linked; its number is one of ``NO_LINKS`` where there are no hard links.
    """
    try:
        os.link(temporary, file)
    except FileExistsError:
        # NFS repeats a request whose answer was lost: the link that "exists" may be the one that was just created.
        if os.stat(temporary).st_nlink < 2:  # noqa: PTH116
            raise


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Sync a local folder's entries to the disk.

    Args:
        folder: the folder's path.

    Raises:
        OSError: the folder does not exist, or the disk failed.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

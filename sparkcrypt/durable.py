"""Durable writes: a file's name survives a loss of power only once the folder that contains it is synced."""

from __future__ import annotations

import os
from pathlib import Path


def write_new(file: Path, content: bytes) -> None:
    """Create a file that only its owner can use, with all of its content or not at all.

    Args:
        file: the file's path.
        content: the file's content.

    Raises:
        FileExistsError: the file exists already; it is left unchanged.
        OSError: the file could not be written and was removed, or its folder could not be synced.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        file.unlink()
        raise
    sync_folder(file.parent)


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

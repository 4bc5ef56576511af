"""Makes what was written outlast a loss of power: a file's name is safe once the folder that holds it is synced."""

from __future__ import annotations

import os
from pathlib import Path


def write_new(file: Path, content: bytes) -> None:
    """Write a file that is not there yet, for its owner alone, whole or not at all.

    Args:
        file: its path.
        content: of it.

    Raises:
        FileExistsError: it is there, and stays as it is.
        OSError: it could not be written; nothing is left of it.
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
    """Write a local folder's entries to the disk.

    Args:
        folder: its path.

    Raises:
        OSError: it is gone, or the disk failed.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

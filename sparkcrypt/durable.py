"""Makes what was written outlast a loss of power: a file's name is safe once the folder that holds it is synced."""

from __future__ import annotations

import os


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

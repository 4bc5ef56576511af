"""The folder of a store on a local or mounted disk."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sparkcrypt.durable import replace_file
from sparkcrypt.errors import RunConflictError
from sparkcrypt.files.parquet import Target
from sparkcrypt.regular_files import open_descriptor, open_regular

LOCK = "_sparkcrypt.lock"
"""Name of the lock file of a store's folder, on every file system."""


class LocalFolder:
    """A local folder; the kernel releases its lock when the process ends."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def uri(self) -> str:
        """The folder's path."""
        return str(self.path)

    def names(self) -> tuple[str, ...]:
        """Return the sorted names of the files and folders in it; none if it does not exist."""
        try:
            return tuple(sorted(entry.name for entry in self.path.iterdir()))
        except FileNotFoundError:
            return ()

    def is_file(self, name: str) -> bool:
        """Tell whether a name is a file and not a link."""
        entry = self.path / name
        return entry.is_file() and not entry.is_symlink()

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        return open_regular(self.path / name)

    def target(self, name: str) -> Target:
        """Return a file's path."""
        return self.path / name

    def replace(self, name: str, content: bytes) -> None:
        """Replace a file atomically; the new one is written and synced before it gets the name."""
        replace_file(self.path / name, content, mode=None)

    def delete(self, name: str) -> None:
        """Delete a file; do nothing if it does not exist."""
        (self.path / name).unlink(missing_ok=True)

    def delete_folder(self) -> None:
        """Delete the lock file, and the folder itself if it is then empty."""
        self.delete(LOCK)
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()

    def keep_lock(self) -> None:
        """Do nothing, since the kernel keeps the lock while this process lives."""

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder against other writers until the ``with`` block or the process ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with os.fdopen(open_descriptor(self.path / LOCK, os.O_RDWR | os.O_CREAT), "r+b") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunConflictError(
                    f"{self.uri}: another process writes this store; wait until it has ended"
                ) from error
            yield

"""The folder of a store, on whichever file system: listed, read, written by one writer at a time, its manifest swapped.

A local folder is held by a lock that the kernel lets go of when its process ends.  HDFS, over WebHDFS, has none: there
a file that is created exclusively stands for it, and one that a killed writer left is taken over after an hour.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol

from sparkcrypt.errors import ConfigError
from sparkcrypt.native.open_places import Settings, place
from sparkcrypt.parquet import Target
from sparkcrypt.paths import split_path
from sparkcrypt.policy.model import INDEX_SCHEMES
from sparkcrypt.skipping.trusted.hdfs_folder import HdfsFolder
from sparkcrypt.skipping.trusted.local_folder import LocalFolder


class StoreFolder(Protocol):
    """Where a store is; its methods raise OSError as the file system has it."""

    @property
    def uri(self) -> str:
        """Its path or URI, for messages."""
        ...

    def names(self) -> tuple[str, ...]:
        """Return the names of the files and folders in it, sorted; none where it is not there."""
        ...

    def is_file(self, name: str) -> bool:
        """Tell whether a name is that of a file, and no link's."""
        ...

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a file to be read."""
        ...

    def target(self, name: str) -> Target:
        """Return what the native rewrite reads and writes a file by."""
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Put a file in place of another, whole and safe before it has its name."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file; nothing happens where it is gone."""
        ...

    def delete_folder(self) -> None:
        """Delete the folder itself if it is empty."""
        ...

    def lock(self) -> AbstractContextManager[None]:
        """Make the folder, and hold it against other writers.

        Raises:
            RunConflictError: another one writes.
        """
        ...

    def keep_lock(self) -> None:
        """Say that the writer who holds the folder is still at work; to be called often.

        Raises:
            RunConflictError: another one has taken the folder over.
        """
        ...


def open_folder(uri: str, settings: Settings) -> StoreFolder:
    """Open the folder of a store.

    Args:
        uri: a local path, ``file:``, or a URI of HDFS.
        settings: what of Hadoop's configuration reaches HDFS.

    Raises:
        ConfigError: its file system is not one that stores are kept on, or cannot be reached.
    """
    scheme = split_path(uri)[0]
    if scheme not in (None, *INDEX_SCHEMES):
        raise ConfigError(
            f"{uri}: stores are not kept on {uri.partition(':')[0]}:, where two writers of one store could not be "
            f"kept apart; allowed: a local path, {', '.join(f'{name}:' for name in INDEX_SCHEMES)}"
        )
    where = place(uri, settings)
    if isinstance(where, str):
        return LocalFolder(Path(where))
    return HdfsFolder(uri, *where)

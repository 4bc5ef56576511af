"""The folder of a store on any supported file system, with a lock for one writer at a time.

A local folder has a lock that the kernel releases when its process ends.  HDFS, over WebHDFS, has no such lock: there
an exclusively created file is used instead, which other writers may take over after an hour without renewal.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol

from sparkcrypt.errors import ConfigError
from sparkcrypt.files.open_places import Settings, place
from sparkcrypt.files.parquet import Target
from sparkcrypt.paths import split_path
from sparkcrypt.policy.model import INDEX_SCHEMES
from sparkcrypt.skipping.trusted.hdfs_folder import HdfsFolder
from sparkcrypt.skipping.trusted.local_folder import LocalFolder

NO_LOCATION = "the policy does not say where indexes are; set index: {location: FOLDER} in it"
"""Message if a policy has no location for stores."""


class StoreFolder(Protocol):
    """The folder of a store; its methods raise the file system's OSError."""

    @property
    def uri(self) -> str:
        """The folder's path or URI, for messages."""
        ...

    def names(self) -> tuple[str, ...]:
        """Return the sorted names of the files and folders in it; none if it does not exist."""
        ...

    def is_file(self, name: str) -> bool:
        """Tell whether a name is a file and not a link."""
        ...

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a file for reading."""
        ...

    def target(self, name: str) -> Target:
        """Return a file's location as the native rewrite takes it."""
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Replace a file atomically; the new one is completely written before it gets the name."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file; do nothing if it does not exist."""
        ...

    def delete_folder(self) -> None:
        """Delete the folder itself if it is empty."""
        ...

    def lock(self) -> AbstractContextManager[None]:
        """Make the folder, and lock it against other writers during a ``with`` block.

        Raises:
            RunConflictError: another writer has the lock.
        """
        ...

    def keep_lock(self) -> None:
        """Renew the lock; the writer calls this often.

        Raises:
            RunConflictError: another writer has taken the lock over.
        """
        ...


def open_folder(uri: str, settings: Settings) -> StoreFolder:
    """Open the folder of a store.

    Args:
        uri: a local path, ``file:``, or a URI of HDFS.
        settings: the Hadoop settings that are needed to access HDFS.

    Raises:
        ConfigError: its file system is not supported for stores, or cannot be reached.
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

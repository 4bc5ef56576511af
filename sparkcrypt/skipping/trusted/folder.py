"""The folder of a store on any supported file system, with a lock for one writer at a time.

A local folder has a lock that the kernel releases when its process ends.  HDFS, over WebHDFS, has no such lock: there
an exclusively created file is used instead, which other writers may take over after an hour without renewal.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from sparkcrypt.durable import replace_file
from sparkcrypt.errors import ConfigError, RunConflictError
from sparkcrypt.files.open_places import Settings, place
from sparkcrypt.files.parquet import Target
from sparkcrypt.paths import split_path
from sparkcrypt.policy.model import INDEX_SCHEMES
from sparkcrypt.regular_files import open_descriptor, open_regular

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem


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


STALE_SECONDS = 3600
"""Age of a lock file from which another writer takes it over."""
RENEW_SECONDS = 600
"""Age of a lock file from which its writer renews it."""

_STALE = ".stale"
_MOST_OF_A_TOKEN = 64


class HdfsFolder:
    """A folder on HDFS, whose renames can replace a file atomically.

    Args:
        uri: the folder's URI as it was given.
        system: the file system.
        path: the folder's path on it.

    Raises:
        ConfigError: the file system is not accessed over WebHDFS.
    """

    def __init__(self, uri: str, system: FileSystem, path: str) -> None:
        handler: Any = getattr(system, "handler", None)
        if not hasattr(handler, "replace_file"):
            raise ConfigError(
                f"{uri}: libhdfs by pyarrow replaces files without being asked to, so two writers of a store could not "
                "be kept apart; name it as webhdfs:// or swebhdfs:// with the NameNode's HTTP address"
            )
        self.uri, self._system, self._path, self._handler = uri, system, path.rstrip("/"), handler
        self._token: bytes | None = None
        self._renewed = 0.0

    def names(self) -> tuple[str, ...]:
        """Return the sorted names of the files and folders in it."""
        return tuple(sorted(info.base_name for info in self._infos()))

    def is_file(self, name: str) -> bool:
        """Tell whether a name is a file."""
        return bool(self._system.get_file_info(self._path_of(name)).is_file)

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        file: BinaryIO = self._system.open_input_file(self._path_of(name))
        return file

    def target(self, name: str) -> Target:
        """Return the file system and a file's path on it."""
        return self._system, self._path_of(name)

    def replace(self, name: str, content: bytes) -> None:
        """Replace a file atomically; the new one is completely written before it gets the name.

        Raises:
            RunConflictError: another writer has taken the lock over.
        """
        partial = self._path_of(f".{name}.{uuid.uuid4().hex}.partial")
        try:
            self._create(partial, content)
            self._check_lock()
            self._handler.replace_file(partial, self._path_of(name))
        except BaseException:
            self._system_delete(partial)
            raise

    def delete(self, name: str) -> None:
        """Delete a file; do nothing if it does not exist."""
        self._system_delete(self._path_of(name))

    def delete_folder(self) -> None:
        """Delete the folder itself if it is empty, after deleting old lock files of killed writers."""
        for info in self._infos():
            if info.base_name.endswith(_STALE):
                self.delete(info.base_name)
        if not self._infos():
            self._system.delete_dir(self._path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder with a file that only one writer can create."""
        self._system.create_dir(self._path)
        self._set_stale_aside()
        token = uuid.uuid4().hex.encode()
        try:
            self._create(self._path_of(LOCK), token)
        except FileExistsError as error:
            raise RunConflictError(
                f"{self.uri}: another process writes this store, or was killed while it did; wait until it has ended, "
                f"or {STALE_SECONDS // 60} minutes"
            ) from error
        self._token, self._renewed = token, time.monotonic()
        try:
            yield
        finally:
            self._token = None
            if self._read_lock() == token:
                self.delete(LOCK)

    def keep_lock(self) -> None:
        """Rewrite the lock file once it is ten minutes old, so that other writers do not take it over."""
        if self._token is None or time.monotonic() < self._renewed + RENEW_SECONDS:
            return
        self.replace(LOCK, self._token)
        self._renewed = time.monotonic()

    def _check_lock(self) -> None:
        if self._token is not None and self._read_lock() != self._token:
            raise RunConflictError(
                f"{self.uri}: another process writes this store, since this one was silent for more than "
                f"{STALE_SECONDS // 60} minutes; look at the store with `sparkcrypt index verify`"
            )

    def _set_stale_aside(self) -> None:
        """Rename the lock file of a killed writer to a name that is unique to its content and time.

        If two writers find it, only one can rename it.  The other would rename it to the same name, which fails even if
        the first writer has created its own lock file by then.
        """
        content = self._read_lock()
        info = self._system.get_file_info(self._path_of(LOCK))  # after its content: a new lock file is not old
        if content is None or not info.is_file or time.time() - info.mtime_ns / 1e9 <= STALE_SECONDS:
            return
        which = hashlib.sha256(content + str(info.mtime_ns).encode()).hexdigest()
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            self._system.move(self._path_of(LOCK), self._path_of(f".{LOCK}.{which}{_STALE}"))

    def _read_lock(self) -> bytes | None:
        try:
            with self.open(LOCK) as file:
                return file.read(_MOST_OF_A_TOKEN)
        except FileNotFoundError:
            return None

    def _infos(self) -> list[FileInfo]:
        from pyarrow.fs import FileSelector

        found: list[FileInfo] = self._system.get_file_info(FileSelector(self._path, allow_not_found=True))
        return found

    def _create(self, path: str, content: bytes) -> None:
        with self._system.open_output_stream(path, compression=None) as stream:
            stream.write(content)

    def _system_delete(self, path: str) -> Any:
        return self._system.delete_file(path)

    def _path_of(self, name: str) -> str:
        return f"{self._path}/{name}"

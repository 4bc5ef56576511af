"""Where records of runs are kept: small files, each created exclusively and whole, never changed."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from sparkcrypt.errors import ConfigError


class StateStore(Protocol):
    """A flat store of named records; names hold slashes."""

    def create(self, name: str, content: bytes) -> bool:
        """Create a record whole; False when the name is taken."""

    def read(self, name: str) -> bytes | None:
        """Return a record, or None."""

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the names that begin with a prefix, sorted."""

    def delete(self, name: str) -> None:
        """Delete a record; nothing happens when it is not there."""


class LocalStateStore:
    """Records in a local directory: written under another name and linked, which fails when the name is taken."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)

    def create(self, name: str, content: bytes) -> bool:
        """Create a record whole; False when the name is taken."""
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = target.parent / f".{uuid.uuid4()}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.link(temporary, target)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(target.parent)
        return True

    def read(self, name: str) -> bytes | None:
        """Return a record, or None."""
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the names that begin with a prefix, sorted."""
        folder = self._root / prefix.rpartition("/")[0]
        found = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        names = (path.relative_to(self._root).as_posix() for path in found)
        return tuple(sorted(name for name in names if name.startswith(prefix)))

    def delete(self, name: str) -> None:
        """Delete a record."""
        (self._root / name).unlink(missing_ok=True)


def open_state_store(uri: str) -> StateStore:
    """Open a local state directory.

    Raises:
        ConfigError: another scheme, of which no conditional create is known here.
    """
    if uri.startswith("/"):
        return LocalStateStore(uri)
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return LocalStateStore(unquote(parts.path))
    raise ConfigError(
        f"run_state {uri}: its file system cannot create a record only if it does not exist; allowed: a local path, file:, hdfs:"
    )


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

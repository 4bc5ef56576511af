"""The folder in which services that were downloaded or built once are kept, and the lock of whoever fills it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """Return ``$SPARKCRYPT_CACHE``, else ``~/.cache/sparkcrypt``."""
    return Path(os.environ.get("SPARKCRYPT_CACHE") or "~/.cache/sparkcrypt").expanduser()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, made with its folder if need be, so that processes at the same time fill a folder once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

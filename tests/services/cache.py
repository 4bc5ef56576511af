"""The folder that caches downloaded or built services, and the lock for filling it."""

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
    """Hold a lock file, created with its folder if missing, so that concurrent processes fill a folder once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

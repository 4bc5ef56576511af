"""Turns Hadoop paths into what the native layer opens: local paths, or a pyarrow file system and a path."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from sparkcrypt.errors import ConfigError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

Place: TypeAlias = "str | tuple[FileSystem, str]"
Settings: TypeAlias = Mapping[str, str]
"""What of Hadoop's configuration a worker needs to reach the files (`HADOOP_SETTINGS`)."""

HADOOP_SETTINGS = (
    "fs.s3a.access.key",
    "fs.s3a.secret.key",
    "fs.s3a.session.token",
    "fs.s3a.endpoint",
    "fs.s3a.endpoint.region",
    "fs.s3a.connection.ssl.enabled",
    "fs.s3a.path.style.access",
)
SCHEMES = ("file", "s3", "s3a", "s3n", "gs", "abfs", "abfss", "hdfs", "viewfs", "webhdfs")


def place(path: str, settings: Settings) -> Place:
    """Return where a file is.

    Args:
        path: as Hadoop prints it: a local path, or a URI whose path is not percent-encoded.
        settings: of the job.

    Raises:
        ConfigError: no file system is known for its scheme, or its library is not there.
    """
    scheme, _, rest = path.partition(":")
    if path.startswith("/") or not rest:
        return path
    if scheme == "file":
        return "/" + rest.lstrip("/")
    authority, _, below = rest.removeprefix("//").partition("/")
    opened = _file_system(scheme, authority, tuple(sorted(settings.items())))
    return opened, (f"{authority}/{below}" if scheme in ("s3", "s3a", "s3n", "gs") else f"/{below}")


@lru_cache(maxsize=16)
def _file_system(scheme: str, authority: str, settings: tuple[tuple[str, str], ...]) -> FileSystem:
    try:
        from pyarrow import fs
    except ImportError as error:
        raise ConfigError(
            f"files under {scheme}:// need pyarrow, which {sys.executable} does not have; install it there, or use "
            "--engine spark"
        ) from error
    try:
        if scheme in ("s3", "s3a", "s3n"):
            return _s3(dict(settings))
        if scheme == "gs":
            return fs.GcsFileSystem()
        if scheme in ("hdfs", "viewfs"):
            return fs.HadoopFileSystem.from_uri(f"{scheme}://{authority}")
        return _by_fsspec(scheme, authority)
    except (OSError, ImportError, ValueError) as error:
        raise ConfigError(
            f"{scheme}://{authority}: its file system cannot be opened from Python: {error}; install what it needs on "
            "every executor, or use --engine spark"
        ) from error


def _s3(settings: Settings) -> FileSystem:
    from pyarrow import fs

    endpoint = settings.get("fs.s3a.endpoint", "")
    split = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
    plain = split.scheme == "http" or settings.get("fs.s3a.connection.ssl.enabled") == "false"
    return fs.S3FileSystem(
        access_key=settings.get("fs.s3a.access.key"),
        secret_key=settings.get("fs.s3a.secret.key"),
        session_token=settings.get("fs.s3a.session.token"),
        region=settings.get("fs.s3a.endpoint.region"),
        endpoint_override=split.netloc or None,
        scheme="http" if plain else "https",
        allow_bucket_creation=False,
    )


def _by_fsspec(scheme: str, authority: str) -> FileSystem:
    import fsspec
    from pyarrow import fs

    opened = fsspec.core.url_to_fs(f"{scheme}://{authority}/")[0]
    return fs.PyFileSystem(fs.FSSpecHandler(opened))

"""Resolves Hadoop paths to what the native engine opens: a local path, or a pyarrow file system and a path in it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlencode, urlsplit

from sparkcrypt.errors import ConfigError
from sparkcrypt.files.source import open_source
from sparkcrypt.files.webhdfs.client import (
    NameNodes,
    asks_kerberos,
    default_authority,
    hdfs_settings,
    name_nodes,
    user_of,
)
from sparkcrypt.paths import hadoop_local_path, is_uri

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

Place: TypeAlias = "str | tuple[FileSystem, str]"
Settings: TypeAlias = Mapping[str, str]
"""The part of Hadoop's configuration that a worker needs to reach the files (`worker_settings`)."""

S3_OPTIONS = ("access.key", "secret.key", "session.token", "endpoint", "endpoint.region", "connection.ssl.enabled")
"""Properties below ``fs.s3a.``, and below ``fs.s3a.bucket.<bucket>.``, which takes precedence, as in Hadoop."""
S3_BUCKETS = "fs.s3a.bucket."
_ENDS = tuple(f".{option}" for option in S3_OPTIONS)
WEB_HDFS = {"webhdfs": "http", "swebhdfs": "https"}
UNREACHABLE_SECONDS = 60.0
"""Seconds before a file system that could not be opened is tried again; else each file of a table would wait for it."""

_unreachable: dict[tuple[object, ...], tuple[float, ConfigError]] = {}


def worker_settings(get: Callable[[str], str | None], names: Iterable[str] = ()) -> dict[str, str]:
    """Return the part of Hadoop's configuration that a worker needs to reach the files.

    Args:
        get: returns the value of a property, or None.
        names: the properties that are set, used to find those of single buckets.
    """
    of_buckets = [name for name in names if name.startswith(S3_BUCKETS) and name.endswith(_ENDS)]
    found = {name: get(name) for name in (*(f"fs.s3a.{option}" for option in S3_OPTIONS), *of_buckets)}
    return hdfs_settings(get) | {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class S3Options:
    """The options with which Hadoop's s3a reaches a bucket; None for an option that is not set.

    Attributes:
        endpoint: host and port.
        plain: the endpoint is reached over HTTP.
    """

    access_key: str | None
    secret_key: str | None = field(repr=False)
    session_token: str | None = field(repr=False)
    region: str | None
    endpoint: str | None
    plain: bool


def s3_options(bucket: str, settings: Settings) -> S3Options:
    """Return the options of a bucket: the bucket's own properties take precedence over those of all buckets."""

    def option(name: str) -> str | None:
        return settings.get(f"{S3_BUCKETS}{bucket}.{name}", settings.get(f"fs.s3a.{name}")) or None

    endpoint = option("endpoint") or ""
    split = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
    return S3Options(
        access_key=option("access.key"),
        secret_key=option("secret.key"),
        session_token=option("session.token"),
        region=option("endpoint.region"),
        endpoint=split.netloc or None,
        plain=split.scheme == "http" or option("connection.ssl.enabled") == "false",
    )


def place(path: str, settings: Settings) -> Place:
    """Return the place of a file: a local path, or a pyarrow file system and a path in it.

    Args:
        path: as Hadoop prints it: a local path, or a URI whose path is not percent-encoded.
        settings: the job's part of Hadoop's configuration.

    Raises:
        ConfigError: no file system is known for its scheme, its library is not installed, or it cannot be reached.
    """
    if not is_uri(path):  # such as day=10:00/file
        return path
    scheme, _, rest = path.partition(":")
    if scheme.lower() == "file":
        local = hadoop_local_path(path)
        if local is None:
            raise ConfigError(f"{path}: is on another machine; allowed: a path, or file:/path, of this machine")
        return local
    authority, _, below = rest.removeprefix("//").partition("/")
    opened, root = _open_file_system(scheme, authority, tuple(sorted(settings.items())))
    return opened, f"{root}/{below}"


def _open_file_system(*key: object) -> tuple[FileSystem, str]:
    until, error = _unreachable.get(key, (0.0, None))
    if error is not None and time.monotonic() < until:
        raise ConfigError(str(error))
    try:
        return _file_system(*key)
    except ConfigError as caught:
        _unreachable[key] = time.monotonic() + UNREACHABLE_SECONDS, caught
        raise


@lru_cache(maxsize=16)
def _file_system(scheme: str, authority: str, settings: tuple[tuple[str, str], ...]) -> tuple[FileSystem, str]:
    """Return a file system, and the prefix of its paths."""
    try:
        from pyarrow import fs
    except ImportError as error:
        raise ConfigError(
            f"files under {scheme}:// need pyarrow, which {sys.executable} does not have; install it there, or use "
            "--engine spark"
        ) from error
    try:
        if scheme in ("s3", "s3a", "s3n"):
            return _s3(authority, dict(settings)), authority
        if scheme == "gs":
            return fs.GcsFileSystem(), authority
        if scheme in ("hdfs", "viewfs"):
            return _hdfs(scheme, authority, dict(settings)), ""
        if scheme in WEB_HDFS:
            return _web_hdfs(NameNodes((f"{WEB_HDFS[scheme]}://{authority}",), user_of(dict(settings)))), ""
        return _by_fsspec(scheme, authority)
    except (ConfigError, OSError, ImportError, ValueError) as error:
        raise ConfigError(
            f"{scheme}://{authority}: its file system cannot be opened from Python: {error}; install what it needs on "
            "every executor, or use --engine spark"
        ) from error


def _hdfs(scheme: str, authority: str, settings: Settings) -> FileSystem:
    """Open an HDFS with libhdfs if that can be loaded, else over WebHDFS."""
    from pyarrow import fs

    authority = authority or default_authority(settings)
    user = "" if asks_kerberos(settings) else f"?{urlencode({'user': user_of(settings)})}"
    try:
        return fs.HadoopFileSystem.from_uri(f"{scheme}://{authority}/{user}")
    except OSError as error:
        by_library = str(error).splitlines()[0]
    try:
        if scheme != "hdfs":
            raise ConfigError("WebHDFS has no mount tables")
        return _web_hdfs(name_nodes(authority, settings))
    except (ConfigError, OSError) as error:
        raise ConfigError(f"without libhdfs ({by_library}), {error}") from error


def _web_hdfs(nodes: NameNodes) -> FileSystem:
    from sparkcrypt.files.webhdfs.system import open_webhdfs

    return open_webhdfs(nodes)


def _s3(bucket: str, settings: Settings) -> FileSystem:
    from pyarrow import fs

    options = s3_options(bucket, settings)
    return fs.S3FileSystem(
        access_key=options.access_key,
        secret_key=options.secret_key,
        session_token=options.session_token,
        region=options.region,
        endpoint_override=options.endpoint,  # implies path-style addressing; AWS itself gets virtual-hosted addressing
        scheme="http" if options.plain else "https",
        allow_bucket_creation=False,
    )


def _by_fsspec(scheme: str, authority: str) -> tuple[FileSystem, str]:
    import fsspec
    from pyarrow import fs

    opened, root = fsspec.core.url_to_fs(f"{scheme}://{authority}/")
    return fs.PyFileSystem(fs.FSSpecHandler(opened)), root.rstrip("/")


def size_of(where: Place) -> int:
    """Return the size of a file in bytes.

    Raises:
        FormatError, StorageError: as `open_source`.
    """
    with open_source(where) as file:
        return file.size


def remove_file(where: Place) -> None:
    """Remove a file that was written and not proven; a failure is ignored, so as not to hide the original error."""
    with suppress(OSError):
        if isinstance(where, str):
            FilePath(where).unlink()
        else:
            where[0].delete_file(where[1])

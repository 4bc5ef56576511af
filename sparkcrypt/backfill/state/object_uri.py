"""Which bucket a URI of an object store means, whatever scheme it is written with."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Literal

from sparkcrypt.errors import ConfigError
from sparkcrypt.paths import comparable_path

Provider = Literal["s3", "gcs", "azure"]

SCHEMES: dict[str, Provider] = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gcs",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
    "wasb": "azure",
    "wasbs": "azure",
}
"""Each scheme that means an object store."""
AZURE_ACCOUNT = "AZURE_STORAGE_ACCOUNT_NAME"
"""In the environment: the storage account of URIs that name none."""
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(/.*)?", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A bucket and the beginning of keys in it.

    Attributes:
        provider: whose interface the bucket has.
        host: of an Azure storage account, where the URI names it, or its bare name; empty elsewhere.
        bucket: its name; for Azure a container's.
        root: what keys begin with, without slashes around it; may be empty.
    """

    provider: Provider
    host: str
    bucket: str
    root: str

    @property
    def account(self) -> str:
        """Return the name of an Azure storage account; empty elsewhere."""
        return self.host.partition(".")[0]

    def holds(self, other: ObjectPlace) -> bool:
        """Tell whether another place is this one or lies below it; an account that is not known is any."""
        if (self.provider, self.bucket) != (other.provider, other.bucket):
            return False
        if self.account and other.account and self.account != other.account:
            return False
        return not self.root or f"{other.root}/".startswith(f"{self.root}/")


def object_place(uri: str) -> ObjectPlace | None:
    """Return what a URI means; None when its scheme is no object store's.

    Nothing is unescaped, as in Hadoop's own paths.

    Raises:
        ConfigError: it names no bucket, or no key that any path could have.
    """
    match = _URI.fullmatch(uri)
    provider = SCHEMES.get(match[1].lower()) if match else None
    if match is None or provider is None:
        return None
    bucket, _, host = match[2].partition("@")
    if (host and provider != "azure") or not _BUCKET.fullmatch(bucket):
        # Without the URI, since older ones had keys where the bucket's name is now.
        form = "CONTAINER@ACCOUNT.dfs.core.windows.net" if provider == "azure" else "BUCKET"
        raise ConfigError(
            f"a {match[1]}: URI names no bucket that there could be; allowed: {match[1]}://{form}/folder, and no "
            "credentials in it"
        )
    parts = [part for part in (match[3] or "").split("/") if part]
    if {".", ".."} & set(parts) or any(not part.isprintable() for part in parts):
        raise ConfigError(f"{uri!r} is no place of an object store; allowed: a path without . and .. in it")
    if provider == "azure":
        host = host.lower() or os.environ.get(AZURE_ACCOUNT, "")
    return ObjectPlace(provider, host, bucket, "/".join(parts))


def lies_inside(uri: str, folder: str) -> bool:
    """Tell whether a path or URI is a folder or lies below it, whatever schemes both are written with.

    Raises:
        ConfigError: one is a URI of an object store that names no bucket.
    """
    inner, outer = object_place(uri), object_place(folder)
    if inner is not None and outer is not None:
        return outer.holds(inner)
    return (comparable_path(uri) + "/").startswith(comparable_path(folder) + "/")

"""URIs of object stores: the bucket and the keys to which they refer, in any of their schemes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Literal

from sparkcrypt.errors import ConfigError
from sparkcrypt.paths import Place, comparable_path

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
"""The schemes of object stores, with their providers."""
AZURE_ACCOUNT = "AZURE_STORAGE_ACCOUNT_NAME"
"""The environment variable with the storage account for URIs that name none."""
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)(/.*)?", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A bucket and a prefix of keys in it.

    Attributes:
        provider: the provider, whose API the bucket has.
        host: the host of an Azure storage account if the URI names it, or the account's bare name; empty for others.
        bucket: the name of the bucket; for Azure that of the container.
        root: the prefix of keys, without slashes around it; may be empty.
    """

    provider: Provider
    host: str
    bucket: str
    root: str

    @property
    def account(self) -> str:
        """The name of the Azure storage account; empty for others, or if it is not known."""
        return self.host.partition(".")[0]

    def holds(self, other: ObjectPlace) -> bool:
        """Return whether another place is this one or below it; an unknown account matches any."""
        if (self.provider, self.bucket) != (other.provider, other.bucket):
            return False
        if self.account and other.account and self.account != other.account:
            return False
        return not self.root or f"{other.root}/".startswith(f"{self.root}/")


def object_place(uri: str) -> ObjectPlace | None:
    """Parse the URI of an object store; None if its scheme is not that of an object store.

    Nothing is unescaped, as in Hadoop's own paths.

    Raises:
        ConfigError: the URI has no valid bucket, or a path that cannot be a key.
    """
    match = _URI.fullmatch(uri)
    provider = SCHEMES.get(match[1].lower()) if match else None
    if match is None or provider is None:
        return None
    bucket, _, host = match[2].partition("@")
    if (host and provider != "azure") or not _BUCKET.fullmatch(bucket):
        # The message omits the URI, since in old S3 URIs credentials preceded the bucket's name.
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
    """Return whether a path or URI is a folder or below it, whatever schemes they are written with.

    Raises:
        ConfigError: one is a URI of an object store without a valid bucket.
    """
    inner, outer = object_place(uri), object_place(folder)
    if inner is not None and outer is not None:
        return outer.holds(inner)
    below, above = (Place.of(comparable_path(text)).without_links() for text in (uri, folder))
    return below.is_within(above)

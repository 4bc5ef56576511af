"""Comparison of paths and URIs, and the partition folders at their end."""

from __future__ import annotations

import re
from typing import TypeAlias
from urllib.parse import unquote

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)?", re.DOTALL)
_SAME_STORE = {"s3": "s3a", "s3n": "s3a", "abfss": "abfs", "wasbs": "wasb"}
_FOLDER = re.compile(r"([^=/]+)=([^/]*)", re.DOTALL)

Partition: TypeAlias = "dict[str, str]"
"""Partition column -> value, unescaped."""


def comparable_path(path: str) -> str:
    """Return a path or URI in the form used for comparison: one ``file:`` form, no slash at the end.

    Percent escapes are kept, since Hadoop does not escape the text of a path: ``%3A`` is part of a folder's name.
    """
    scheme, authority, below = split_path(path)
    return f"{scheme or 'file'}:{f'//{authority}' if authority else ''}{below}"


def split_path(path: str) -> tuple[str | None, str, str]:
    """Return a path's scheme (None if it has none), authority, and path without a slash at the end."""
    match = _URI.fullmatch(path)
    scheme, authority, below = match.groups() if match else (None, None, path)
    scheme = scheme.lower() if scheme else None
    below = below or ""
    if "//" in below:
        below = re.sub("/+", "/", below)
    return _SAME_STORE.get(scheme or "", scheme), authority or "", below.rstrip("/")


def is_within(path: str, location: str) -> bool:
    """Return whether a path is a location or below it.

    A location without a scheme, as a policy may have it, matches that path on any file system; one without an
    authority matches it on any authority of its scheme: a rule applies rather than not.
    """
    (scheme, authority, below), (other_scheme, other_authority, root) = split_path(path), split_path(location)
    if scheme and other_scheme and scheme != other_scheme:
        return False
    if scheme and other_scheme and authority and other_authority and authority != other_authority:
        return False
    return f"{below}/".startswith(f"{root}/")


def is_hidden(name: str) -> bool:
    """Return whether Spark's readers ignore files and folders of a name (``HadoopFSUtils.shouldFilterOutPathName``)."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def is_partition_folder(folder: str) -> bool:
    """Return whether a folder's name is ``column=value``."""
    return _FOLDER.fullmatch(folder) is not None


def partition_values(partition_path: str) -> Partition:
    """Return partition column -> value of a path such as ``p=0/q=a%3Ab``."""
    matches = (_FOLDER.fullmatch(folder) for folder in partition_path.split("/"))
    return {unquote(match[1]): unquote(match[2]) for match in matches if match}


def trailing_partition(folders: list[str]) -> str:
    """Return the consecutive ``name=value`` folders at the end of a path, joined by slashes."""
    count = 0
    while count < len(folders) and _FOLDER.fullmatch(folders[-1 - count]):
        count += 1
    return "/".join(folders[len(folders) - count :])

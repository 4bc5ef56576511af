"""Paths and URIs compared as one, and the partition folders at their end."""

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
    """Return a path or URI as it is compared: ``file:`` forms alike, no slash at the end, nothing unescaped.

    Nothing is unescaped since Hadoop's text of a path is not: its ``%3A`` stands in the folder's name.
    """
    scheme, authority, below = split_path(path)
    return f"{scheme or 'file'}:{f'//{authority}' if authority else ''}{below}"


def split_path(path: str) -> tuple[str | None, str, str]:
    """Return a path's scheme (None: none), authority and path without slash at the end."""
    match = _URI.fullmatch(path)
    scheme, authority, below = match.groups() if match else (None, None, path)
    scheme = scheme.lower() if scheme else None
    below = below or ""
    if "//" in below:
        below = re.sub("/+", "/", below)
    return _SAME_STORE.get(scheme or "", scheme), authority or "", below.rstrip("/")


def is_within(path: str, location: str) -> bool:
    """Tell whether a path is a location or below it.

    A location without a scheme, as a policy may have it, stands for that path on any file system, and one without an
    authority for that path on any of its scheme: a rule applies rather than not.
    """
    (scheme, authority, below), (other_scheme, other_authority, root) = split_path(path), split_path(location)
    if scheme and other_scheme and scheme != other_scheme:
        return False
    if scheme and other_scheme and authority and other_authority and authority != other_authority:
        return False
    return f"{below}/".startswith(f"{root}/")


def is_hidden(name: str) -> bool:
    """Tell whether Spark's readers pass over a name of a file or folder (``HadoopFSUtils.shouldFilterOutPathName``)."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def is_partition_folder(folder: str) -> bool:
    """Tell whether a folder's name is ``column=value``."""
    return _FOLDER.fullmatch(folder) is not None


def partition_values(partition_path: str) -> Partition:
    """Return partition column -> value of a path such as ``p=0/q=a%3Ab``."""
    matches = (_FOLDER.fullmatch(folder) for folder in partition_path.split("/"))
    return {unquote(match[1]): unquote(match[2]) for match in matches if match}


def trailing_partition(folders: list[str]) -> str:
    """Return the run of ``name=value`` folders at the end of a path, joined."""
    count = 0
    while count < len(folders) and _FOLDER.fullmatch(folders[-1 - count]):
        count += 1
    return "/".join(folders[len(folders) - count :])

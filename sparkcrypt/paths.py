"""Places: folders and files whose names are compared as one, and the partition folders at their end."""

from __future__ import annotations

import itertools
import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import itemgetter
from pathlib import Path as FilePath
from typing import Generic, TypeAlias, TypeVar
from urllib.parse import unquote

from sparkcrypt.errors import ConfigError

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)?", re.DOTALL)
_THIS_MACHINE = ("", "localhost")
_SAME_STORE = {"s3": "s3a", "s3n": "s3a", "abfss": "abfs", "wasbs": "wasb"}
_DEFAULT_PORTS = {"hdfs": ":8020", "webhdfs": ":9870", "swebhdfs": ":9871"}
_NOT_NORMAL = re.compile(r"//|/\.{1,2}(?=/|$)|^\.{1,2}(?=/|$)|/$", re.DOTALL)
_FOLDER = re.compile(r"([^=/]+)=([^/]*)", re.DOTALL)

Partition: TypeAlias = "dict[str, str]"
"""Partition column -> value, unescaped."""
T = TypeVar("T")
_Store: TypeAlias = "tuple[str | None, str]"
"""Scheme and authority of a place."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder or file in normal form, in which its names are equal; the jar's ``Place`` makes the same form.

    Percent escapes are kept, since Hadoop does not escape the text of a path: ``%3A`` is part of a folder's name.

    Attributes:
        scheme: in lower case, one for all of a store's; None if it was not named.
        authority: in lower case, without a default port; empty if it was not named.
        path: without a slash at its end.
    """

    scheme: str | None
    authority: str
    path: str

    @classmethod
    def of(cls, text: str, aliases: Sequence[tuple[Place, Place]] = ()) -> Place:
        """Return the place that a path or URI names.

        Args:
            text: as Hadoop writes paths.
            aliases: places by a name of theirs, each with the place by the name that counts for all below it; of those
                that fit, the longest counts.
        """
        place = cls(*split_path(text))
        store = (place.scheme, place.authority)
        fitting = (
            pair for pair in aliases if store == (pair[0].scheme, pair[0].authority) and place.is_within(pair[0])
        )
        named, real = max(fitting, key=lambda pair: len(pair[0].path), default=(place, place))
        return Place(real.scheme, real.authority, real.path + place.path[len(named.path) :])

    def is_alike(self, other: Place) -> bool:
        """Return whether both are on one store, as far as they name it."""
        if self.scheme and other.scheme and self.scheme != other.scheme:
            return False
        return not self.authority or not other.authority or self.authority == other.authority

    def is_within(self, root: Place) -> bool:
        """Return whether this is another place or below it; a place without scheme or authority may be on any store."""
        return self.is_alike(root) and f"{self.path}/".startswith(f"{root.path}/")

    def without_links(self) -> Place:
        """Return the place without the links of a local file system, which may lead to what does not exist yet."""
        if self.scheme not in (None, "file") or not self.path.startswith("/") or "\0" in self.path:
            return self
        return Place(self.scheme, self.authority, os.path.realpath(self.path))

    def text(self) -> str:
        """Return the form used for comparison: one ``file:`` form, no slash at the end."""
        return f"{self.scheme or 'file'}:{f'//{self.authority}' if self.authority else ''}{self.path}"


class PlaceIndex(Generic[T]):
    """What is known of places, found by the places at, above and below another without a look at all of them.

    Args:
        known: places, each with what is known of it.
    """

    def __init__(self, known: Iterable[tuple[Place, T]]) -> None:
        self._by_path: dict[str, dict[_Store, list[tuple[int, Place, T]]]] = {}
        for number, (place, value) in enumerate(known):
            stores = self._by_path.setdefault(place.path, {})
            stores.setdefault((place.scheme, place.authority), []).append((number, place, value))
        self._ordered = sorted(f"{path}/" for path in self._by_path)

    def find_at(self, place: Place) -> Iterator[tuple[Place, T]]:
        """Yield what is at a place."""
        stores = self._by_path.get(place.path, {})
        at: Iterable[_Store] = stores
        if place.scheme and place.authority:  # else it may be on any of the stores
            at = itertools.product((place.scheme, None), (place.authority, ""))
        found = [entry for store in at for entry in stores.get(store, ()) if place.is_alike(entry[1])]
        yield from ((at_place, value) for _, at_place, value in sorted(found, key=itemgetter(0)))

    def find_above(self, place: Place) -> Iterator[tuple[Place, T]]:
        """Yield what is at a place and above it, the nearest first."""
        above = place
        while True:
            yield from self.find_at(above)
            if not above.path:
                return
            above = replace(above, path=above.path.rpartition("/")[0])

    def find_below(self, place: Place) -> Iterator[tuple[Place, T]]:
        """Yield what is below a place."""
        outer = f"{place.path}/"
        for number in range(bisect_left(self._ordered, outer), len(self._ordered)):
            path = self._ordered[number]
            if not path.startswith(outer):
                return
            if path != outer:
                yield from self.find_at(replace(place, path=path[:-1]))


def is_uri(text: str) -> bool:
    """Return whether a text is a URI with a path, and not a path such as ``day=10:00/file``."""
    return split_path(text)[0] is not None and ":/" in text


def is_local(text: str) -> bool:
    """Return whether what people give as a path or URI can be opened without Spark."""
    return text[:5].lower() == "file:" or not is_uri(text)


def local_path(text: str) -> str:
    """Return the local path of a path, or of a ``file:`` URI as people write it: percent escapes are resolved.

    Raises:
        ConfigError: the URI names another machine.
    """
    if text[:5].lower() != "file:":
        return text
    authority = text[7:].partition("/")[0] if text[5:7] == "//" else ""
    if authority.lower() not in _THIS_MACHINE:
        raise ConfigError(f"{text}: is on {authority!r}; allowed: a path, or file:/path, of this machine")
    return unquote(hadoop_local_path(text) or text[5:])


def hadoop_local_path(text: str) -> str | None:
    """Return the local path that Hadoop's text of a path names, with nothing unescaped; None if it is not absolute.

    A path on another file system or machine has none either.
    """
    match = _URI.fullmatch(text)
    if match is None:
        return text if text.startswith("/") else None
    is_here = match[1].lower() == "file" and (match[2] or "").lower() in _THIS_MACHINE
    return f"/{match[3].lstrip('/')}" if is_here and match[3] else None


def full_path(text: str) -> str:
    """Return a local path as absolute, as locations in policies are; URIs are unchanged."""
    return text if is_uri(text) or text.startswith("file:") else str(FilePath(text).absolute())


def comparable_path(path: str) -> str:
    """Return a path or URI in the form used for comparison: one ``file:`` form, no slash at the end.

    Percent escapes are kept, since Hadoop does not escape the text of a path: ``%3A`` is part of a folder's name.
    """
    folder, _, name = path.rpartition("/")
    if name in ("", ".", "..") or not folder or folder.endswith("/"):
        return Place.of(path).text()
    return f"{_comparable_folder(folder)}/{name}"


@lru_cache(maxsize=4096)
def _comparable_folder(folder: str) -> str:
    """Return the same for a folder, of which many files are asked for one after the other."""
    return Place.of(folder).text()


def walk_up(path: str) -> Iterator[str]:
    """Yield a path and the folders above it, the nearest first, in the form used for comparison."""
    place = comparable_path(path)
    yield place
    while "/" in place:
        place = place.rpartition("/")[0]
        yield place


def is_same_place(path: str, other: str) -> bool:
    """Return whether two paths or URIs name one place, in the form used for comparison."""
    return comparable_path(path) == comparable_path(other)


def split_path(path: str) -> tuple[str | None, str, str]:
    """Return the scheme (None if it has none), authority and path of a `Place`."""
    match = _URI.fullmatch(path)
    if match is None:
        return None, "", _normal_path(path)
    scheme = _SAME_STORE.get(match[1].lower(), match[1].lower())
    authority = "" if scheme == "file" else (match[2] or "").lower().removesuffix(_DEFAULT_PORTS.get(scheme, ""))
    return scheme, authority, _normal_path(match[3] or "")


def _normal_path(path: str) -> str:
    """Return a path without repeated slashes, ``.`` and ``..``, and without a slash at the end."""
    if not _NOT_NORMAL.search(path):
        return path
    kept: list[str] = []
    for name in path.split("/"):
        if name == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif name not in ("", "."):
            kept.append(name)
    return ("/" if path.startswith("/") and kept else "") + "/".join(kept)


def is_within(path: str, location: str) -> bool:
    """Return whether a path is a location or below it.

    A location without a scheme, as a policy may have it, matches that path on any file system; one without an
    authority matches it on any authority of its scheme: a rule applies rather than not.
    """
    return Place.of(path).is_within(Place.of(location))


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

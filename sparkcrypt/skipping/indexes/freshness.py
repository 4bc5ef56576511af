"""Compares a store with a listing of the table's files, without reading a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparkcrypt.skipping.indexes.files import DataFolder
from sparkcrypt.skipping.trusted.sidecar import Sidecar


@dataclass(frozen=True, slots=True)
class Freshness:
    """Numbers of a table's files that its store covers or does not cover.

    Attributes:
        generation: the store's generation.
        written_at: when the store was written (ISO 8601, UTC);
        indexed: files with an indexed path, modification time and length.
        changed: files with an indexed path and another time or length; queries open them.
        new: files with other paths; queries open them.
        gone: indexed paths at which there is no file any more.
    """

    generation: int
    written_at: str
    indexed: int
    changed: int
    new: int
    gone: int

    @property
    def is_fresh(self) -> bool:
        """Whether a refresh would find nothing to do."""
        return not (self.changed or self.new or self.gone)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "generation": self.generation,
            "written_at": self.written_at,
            "fresh": self.is_fresh,
            "indexed": self.indexed,
            "changed": self.changed,
            "new": self.new,
            "gone": self.gone,
        }


def compare_listing(data: DataFolder, sidecar: Sidecar) -> Freshness:
    """Compare a listing of a table's files with the objects in its store's sidecar.

    Raises:
        StorageError: the files cannot be listed.
        VerificationError: one of them is a symbolic link.
    """
    indexed_paths = {_path(name) for name in sidecar.objects}
    indexed = changed = new = 0
    there: set[str] = set()
    for file in data.list_files():
        name = data.object_of(file)
        there.add(_path(name))
        facts = sidecar.objects.get(name)
        if facts is not None and facts.length == file.length:
            indexed += 1
        elif _path(name) in indexed_paths:
            changed += 1
        else:
            new += 1
    return Freshness(sidecar.generation, sidecar.written_at, indexed, changed, new, len(indexed_paths - there))


def _path(name: str) -> str:
    """Return the path in an object's name, without the modification time after it."""
    return name.rpartition("#")[0]

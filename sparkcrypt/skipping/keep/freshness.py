"""How true a store still is, by a listing of the files that it was made of; no file is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparkcrypt.skipping.keep.files import DataFolder
from sparkcrypt.skipping.trusted.sidecar import Sidecar


@dataclass(frozen=True, slots=True)
class Freshness:
    """How many files of a table its store knows.

    Attributes:
        generation: of the store.
        written_at: when it was written (ISO 8601, UTC); None where an earlier release wrote it.
        indexed: files of the path, time and length that were indexed.
        changed: files of a path that was indexed, with another time or length; queries open them.
        new: files of other paths; queries open them.
        gone: paths that were indexed and are no files any more.
    """

    generation: int
    written_at: str | None
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
    """Compare a table's files, as they are listed, with what its store's sidecar says of them.

    Raises:
        StorageError: the files cannot be listed.
        VerificationError: there is a symbolic link among them.
    """
    known = {_path(name) for name in sidecar.objects}
    indexed = changed = new = 0
    there: set[str] = set()
    for file in data.list_files():
        name = data.object_of(file)
        there.add(_path(name))
        facts = sidecar.objects.get(name)
        if facts is not None and facts.length == file.length:
            indexed += 1
        elif _path(name) in known:
            changed += 1
        else:
            new += 1
    return Freshness(sidecar.generation, sidecar.written_at, indexed, changed, new, len(known - there))


def _path(name: str) -> str:
    """Return the path of an object, whose name has the time of change after it."""
    return name.rpartition("#")[0]

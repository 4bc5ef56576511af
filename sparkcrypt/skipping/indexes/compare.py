"""Compares a store with the table's files: with a listing alone, or also by the keyed digests of their footers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparkcrypt.errors import FormatError
from sparkcrypt.files.listing import ListedFile
from sparkcrypt.files.parquet.file.footer import footer_of
from sparkcrypt.files.source import open_source
from sparkcrypt.skipping.indexes.files import DataFolder
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts, Sidecar


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing a table's files with its store.

    Attributes:
        generation: the store's generation.
        same: number of files that are unchanged, including the footer.
        altered: files with an indexed name, modification time and length but another footer: queries might leave out
            their rows.  Their writer preserved the time, on purpose or by copying.
        changed: files with an indexed name and modification time but another length; queries open them.
        new: files that the store does not contain; queries open them.
        gone: objects of the store whose file no longer exists.
    """

    generation: int
    same: int
    altered: tuple[str, ...]
    changed: tuple[str, ...]
    new: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def is_fresh(self) -> bool:
        """Whether a refresh would find nothing to do, and nothing was altered."""
        return not (self.altered or self.changed or self.new or self.gone)


def compare_files(data: DataFolder, sidecar: Sidecar) -> Comparison:
    """Compare a table's files with the objects in its store's sidecar; footers are read but not decrypted.

    Raises:
        StorageError: a file cannot be accessed.
        VerificationError: one of the files is a symbolic link.
    """
    same = 0
    found: dict[str, list[str]] = {"altered": [], "changed": [], "new": []}
    names: set[str] = set()
    for file in data.list_files():
        name = data.object_of(file)
        names.add(name)
        state = _compare_file(data, file, sidecar, sidecar.objects.get(name))
        if state == "same":
            same += 1
        else:
            found[state].append(data.path_of(file.name))
    missing = tuple(name for name in sidecar.objects if name not in names)
    return Comparison(
        sidecar.generation, same, tuple(found["altered"]), tuple(found["changed"]), tuple(found["new"]), missing
    )


def _compare_file(data: DataFolder, file: ListedFile, sidecar: Sidecar, facts: ObjectFacts | None) -> str:
    if facts is None:
        return "new"
    if facts.length != file.length:
        return "changed"
    if facts.footer_digest is None:
        return "same"
    try:
        with open_source(data.source(file.name)) as source:
            footer = footer_of(source, None, None, None)
            tail = source.read(footer.offset, source.size - footer.offset, "the footer")
    except FormatError:
        return "altered"
    return "same" if sidecar.footer_digest(tail) == facts.footer_digest else "altered"


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

"""Holds a store against the files that it was made of: names, times, lengths, and the keyed digests of footers."""

from __future__ import annotations

from dataclasses import dataclass

from sparkcrypt.errors import FormatError
from sparkcrypt.native.listing import ListedFile
from sparkcrypt.parquet.file.footer import footer_of
from sparkcrypt.parquet.file.source import open_source
from sparkcrypt.skipping.keep.files import DataFolder
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts, Sidecar
from sparkcrypt.skipping.trusted.trust import TrustedStore


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the files of a table are to its store.

    Attributes:
        same: how many are those that were indexed, footer and all.
        altered: files of the name, time of change and length of one that was indexed, whose footer is another: queries
            would leave out rows of theirs.  Whoever made them kept the time, by intent or by a copy.
        changed: files of the name and time of change of one that was indexed, and another length: queries open them.
        new: files that the store does not know; queries open them.
        gone: objects of the store that are no files any more.
    """

    same: int
    altered: tuple[str, ...]
    changed: tuple[str, ...]
    new: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def is_fresh(self) -> bool:
        """Whether a refresh would find nothing to do, and nothing was altered."""
        return not (self.altered or self.changed or self.new or self.gone)


def verify_store(data: DataFolder, opened: TrustedStore) -> Comparison:
    """Authenticate every part of a store, one after another, and compare the table's files with its sidecar.

    Raises:
        As `TrustedStore.parts` and `compare_files`.
    """
    for _ in opened.parts():
        pass
    return compare_files(data, opened.sidecar)


def compare_files(data: DataFolder, sidecar: Sidecar) -> Comparison:
    """Compare a table's files with what its store's sidecar says of them; footers are read and not decrypted.

    Raises:
        StorageError: a file cannot be reached.
        VerificationError: there is a symbolic link among the files.
    """
    same = 0
    found: dict[str, list[str]] = {"altered": [], "changed": [], "new": []}
    seen: set[str] = set()
    for file in data.list_files():
        name = data.object_of(file)
        seen.add(name)
        state = _compare_file(data, file, sidecar, sidecar.objects.get(name))
        if state == "same":
            same += 1
        else:
            found[state].append(data.path_of(file.name))
    gone = tuple(name for name in sidecar.objects if name not in seen)
    return Comparison(same, tuple(found["altered"]), tuple(found["changed"]), tuple(found["new"]), gone)


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

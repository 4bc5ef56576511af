"""Progress of reading files for a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparkcrypt.files.listing import ListedFile
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.skipping.indexes.files import FileRow, RowReader, RowsWanted, Told, tell_nobody


@dataclass(frozen=True, slots=True)
class ToldReader:
    """Reads the rows of files by another reader, and reports the number of files and bytes that are read.

    Attributes:
        read: the other reader.
        target: the name of the table, for progress.
        progress: receives the progress.
    """

    read: RowReader
    target: str
    progress: Progress

    def __call__(
        self, wanted: RowsWanted, files: Sequence[ListedFile], progress: Told = tell_nobody
    ) -> Iterator[FileRow]:
        """Yield the store's row of each file."""
        done = 0

        def tell(number: int) -> None:
            nonlocal done
            progress(number)
            further = files[done : min(number, len(files))]
            if further:
                done += len(further)
                self.progress.advance(len(further), sum(file.length for file in further))

        self.progress.start(self.target, 0, len(files), sum(file.length for file in files))
        try:
            yield from self.read(wanted, files, tell)
            tell(len(files))
        finally:
            self.progress.finish()

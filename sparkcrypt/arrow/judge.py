"""Judges a file as it is opened, by the decision of Spark's readers, and binds what pyarrow reads to what it judged."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sparkcrypt.arrow.access_events import ReadEvents
from sparkcrypt.arrow.file_keys import FileKeys, Reader, encode
from sparkcrypt.arrow.shape import check_names, paths_in_file
from sparkcrypt.decide.file import resolve_read
from sparkcrypt.errors import FormatError, StorageError
from sparkcrypt.native.open_places import Settings, place
from sparkcrypt.parquet import Footer, KeyRequest, read_footer
from sparkcrypt.parquet.file.beside import Beside, beside_on, beside_path
from sparkcrypt.parquet.rewrite.rewrap import inline_footer
from sparkcrypt.schema import Path

End: TypeAlias = "tuple[int, int, bytes]"
"""A file's size, where its end begins, and the SHA-256 of that."""


class JudgedFile:
    """An open file whose end is kept in memory from the time that it was judged; for one thread at a time.

    Args:
        file: open, of pyarrow.
        name: its path, for messages.
        beside: reads what else is in its folder.
    """

    def __init__(self, file: Any, name: str, beside: Beside) -> None:
        self._file = file
        self._position = 0
        self._size = file.size()
        self._kept: dict[int, bytes] = {}
        self._is_sealed = False
        self._end_starts = self._size
        self._end: bytes = b""
        self.name = name
        self.beside = beside

    def seal(self) -> End:
        """Serve from now on what was read of the file's end, and tell what it is."""
        for start, data in sorted(self._kept.items(), reverse=True):
            if start < self._end_starts <= start + len(data):
                self._end = b"".join((data[: self._end_starts - start], self._end))
                self._end_starts = start
        self._kept, self._is_sealed = {}, True
        return self._size, self._end_starts, hashlib.sha256(self._end).digest()

    def end_with(self, offset: int, data: bytes) -> None:
        """Serve these bytes in the place of what the sealed file holds from an offset on."""
        self._end = self._end[: offset - self._end_starts] + data
        self._size = offset + len(data)

    def ends_with(self, end: End) -> bool:
        """Tell whether the file ends as one that was sealed, and seal it if it does."""
        size, starts, _ = end
        if size != self._size:
            return False
        self.seek(starts)
        self.read()
        return self.seal() == end

    def read(self, length: int = -1) -> bytes:
        """Return at most so many bytes from here; -1: all."""
        start = self._position
        stop = self._size if length < 0 else min(self._size, start + length)
        data = b""
        if start < min(stop, self._end_starts):
            self._file.seek(start)
            data = self._file.read(min(stop, self._end_starts) - start)
            if not self._is_sealed:
                self._kept[start] = data
        if start + len(data) >= self._end_starts:
            data += self._end[start + len(data) - self._end_starts : stop - self._end_starts]
        self._position = start + len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place in the file."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """Return the place in the file."""
        return self._position

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return bool(self._file.closed)

    def readable(self) -> bool:
        """Say yes."""
        return True

    def seekable(self) -> bool:
        """Say yes."""
        return True

    def writable(self) -> bool:
        """Say no."""
        return False


@dataclass(slots=True)
class Judge:
    """Opens the files of one read: each is judged on the very bytes that are handed on.

    Attributes:
        reader: who reads.
        events: of this read.
        properties: what is told of the table, as Spark's readers are told it.
        settings: what of Hadoop's configuration reaches the files.
        requested: Spark schema JSON of the columns that are read; None where they are not known.
        columns: logical paths of the table's leaves, whose names a file may not have in another case.
        needed: returns the logical paths of the leaves that are read of a file.
    """

    reader: Reader
    events: ReadEvents
    properties: Mapping[str, str]
    settings: Settings
    requested: str | None = None
    columns: frozenset[Path] = frozenset()
    needed: Callable[[str], frozenset[Path]] = lambda path: frozenset()
    _keys: dict[str, FileKeys] = field(default_factory=dict)
    _judged: dict[str, End] = field(default_factory=dict)
    _inlined: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def keys(self, path: str) -> FileKeys:
        """Return the keys of a file, which are there once it is open."""
        with self._lock:
            return self._keys.setdefault(path, FileKeys(self.reader, path, self.events))

    def open(self, path: str) -> JudgedFile:
        """Open a file, once its footer is what policy, history and place allow.

        Raises:
            VerificationError: it is not.
            FormatError: it is damaged, or no Parquet file.
            KeyServiceError: the key of the footer, or of a column that is read, is denied or cannot be had.
            StorageError: it cannot be reached.
        """
        file = open_file(path, self.settings)
        try:
            known = self._judged.get(path)
            if known is not None:
                if file.ends_with(known):
                    if path in self._inlined:
                        file.end_with(*self._inlined[path])
                    return file
                file.close()
                file = open_file(path, self.settings)  # somebody wrote it again: it is judged again
            self._judge(path, file)
        except BaseException:
            file.close()
            raise
        return file

    def footer(self, path: str) -> Footer:
        """Return what a file's footer says, judged.

        Raises:
            SparkcryptError: as `open`.
        """
        file = open_file(path, self.settings)
        try:
            return self._judge(path, file)
        finally:
            file.close()

    def _judge(self, path: str, file: JudgedFile) -> Footer:
        keys, opened = self.keys(path), []

        def retrieve(request: KeyRequest) -> bytes:
            opened.append(keys.open_footer(request.key_metadata or b""))
            return opened[0]

        footer = read_footer(file, retrieve_key=retrieve)  # type: ignore[arg-type]  # it reads, seeks and has a name
        end = file.seal()
        resolve_read(
            {
                "policy": self.reader.policy.canonical(),
                "path": path,
                "properties": dict(self.properties),
                "requested_schema": self.requested,
                "footer": facts_of(footer),
            }
        )
        in_file = paths_in_file(footer)
        check_names(path, in_file, self.columns)
        needed = {in_file[leaf] for leaf in self.needed(path) if leaf in in_file}
        for column in footer.columns or ():
            if column.own_key and column.path in needed:
                keys.open_column(column.key_metadata or b"", column.path)
        self._inlined.pop(path, None)
        if footer.external_material:  # pyarrow takes key material from inside a file alone
            self._inlined[path] = footer.offset, inline_footer(footer, opened[0])
            file.end_with(*self._inlined[path])
        self._judged[path] = end
        return footer


def open_file(path: str, settings: Settings) -> JudgedFile:
    """Open a file that is still to be judged.

    Raises:
        StorageError: it cannot be opened.
        ConfigError: its file system cannot.
    """
    from pyarrow.fs import LocalFileSystem

    where = place(path, settings)
    filesystem, name = (LocalFileSystem(), where) if isinstance(where, str) else where
    beside = beside_path(where) if isinstance(where, str) else beside_on(*where)
    try:
        return JudgedFile(filesystem.open_input_file(name), path, beside)
    except FileNotFoundError as error:
        raise FormatError(f"{path}: is gone since the folder was listed; open the table again") from error
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be reached: {error}; that says nothing of the file: see that its storage answers and lets "
            "you read"
        ) from error


def facts_of(footer: Footer) -> dict[str, Any]:
    """Return what a footer says of its file's encryption, as ``resolve_read`` takes it."""
    columns = [column for column in footer.columns or () if column.encrypted is not None]
    return {
        "mode": footer.mode,
        "algorithm": footer.algorithm,
        "aad_prefix": encode(footer.aad_prefix),
        "supply_aad_prefix": footer.supply_aad_prefix,
        "aad_file_unique": encode(footer.aad_file_unique),
        "footer_key_metadata": encode(footer.footer_key_metadata),
        "columns": [
            {
                "path": list(column.path),
                "encrypted": bool(column.encrypted),
                "key_metadata": encode(column.key_metadata or b"") if column.own_key else None,
            }
            for column in columns
        ],
    }

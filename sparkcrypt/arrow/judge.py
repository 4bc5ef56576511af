"""Judges each file when it is opened, as Spark's readers do, and gives pyarrow what it can read, with that footer.

parquet-mr leaves the levels of V2 pages in clear, and Arrow expects whole
pages to be encrypted.  So pyarrow gets the pages of the columns that it reads of such a file in plaintext, at the same
offsets, and a plaintext footer.  A chunk is decrypted when pyarrow reads it, and not kept.
"""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from sparkcrypt.arrow.old_calendar import find_old
from sparkcrypt.arrow.reader import FileKeys, Reader, ReadEvents, encode
from sparkcrypt.arrow.shape import check_names, columns_of, paths_in_file, refuse_shredded
from sparkcrypt.decide.file import resolve_read
from sparkcrypt.errors import FormatError, StorageError
from sparkcrypt.files.open_places import Settings, place
from sparkcrypt.files.parquet import Footer, KeyRequest, message_type, read_footer
from sparkcrypt.files.parquet.file.footer import PLAINTEXT_MAGIC
from sparkcrypt.files.parquet.file.modules import FileCiphers
from sparkcrypt.files.parquet.rewrite.footer_writer import in_id_order
from sparkcrypt.files.parquet.rewrite.rewrap import inline_footer
from sparkcrypt.files.parquet.rewrite.source_chunk import SourceChunk, column_chunks, source_chunks
from sparkcrypt.files.parquet.thrift.compact import STRUCT, List, Struct, encode_struct
from sparkcrypt.files.parquet.thrift.metadata import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    PageType,
    RowGroup,
)
from sparkcrypt.files.source import Beside, beside_on, beside_path, naming, open_source
from sparkcrypt.regular_files import open_regular
from sparkcrypt.schema import Path

End: TypeAlias = "tuple[int, int, bytes]"
"""A file's size, the offset at which its sealed end begins, and the SHA-256 of that end."""


class PositionedFile:
    """The position of an open file of known size, which is only read; not thread-safe.

    Args:
        size: its size in bytes.
    """

    def __init__(self, size: int) -> None:
        self._position = 0
        self._size = size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False


class JudgedFile(PositionedFile):
    """An open file whose end is kept in memory once it is judged; not thread-safe.

    Args:
        file: the file, opened by pyarrow.
        name: the file's path, for messages.
        beside: reads other files of the file's folder.
    """

    def __init__(self, file: Any, name: str, beside: Beside) -> None:
        super().__init__(file.size())
        self._file = file
        self._kept: dict[int, bytes] = {}
        self._is_sealed = False
        self._end_starts = self._size
        self._end: bytes = b""
        self.name = name
        self.beside = beside

    def seal(self) -> End:
        """Keep the part of the file's end that was read so far, serve it from memory, and return its fingerprint."""
        for start, data in sorted(self._kept.items(), reverse=True):
            if start < self._end_starts <= start + len(data):
                self._end = b"".join((data[: self._end_starts - start], self._end))
                self._end_starts = start
        self._kept, self._is_sealed = {}, True
        return self._size, self._end_starts, hashlib.sha256(self._end).digest()

    def end_with(self, offset: int, data: bytes) -> None:
        """Replace the sealed file's content from an offset on with these bytes."""
        self._end = self._end[: offset - self._end_starts] + data
        self._size = offset + len(data)

    def ends_with(self, end: End) -> bool:
        """Tell whether the file has the end of an earlier sealed one, and seal it if it does."""
        size, starts, _ = end
        if size != self._size:
            return False
        self.seek(starts)
        self.read()
        return self.seal() == end

    def read(self, length: int = -1) -> bytes:
        """Return at most ``length`` bytes from the current position; all that remain for -1."""
        start = self._position
        stop = self._size if length < 0 else min(self._size, start + length)
        data = b""
        if start < min(stop, self._end_starts):
            try:
                self._file.seek(start)
                data = self._file.read(min(stop, self._end_starts) - start)
            except OSError as error:
                raise StorageError(f"{self.name}: {error}; see that its storage answers, and read it again") from error
            if not self._is_sealed:
                self._kept[start] = data
        if start + len(data) >= self._end_starts:
            data += self._end[start + len(data) - self._end_starts : stop - self._end_starts]
        self._position = start + len(data)
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return bool(self._file.closed)


_OF_ENCRYPTION = (ColumnChunk.crypto_metadata.key, ColumnChunk.encrypted_column_metadata.key)
_OF_FILE = (FileMetaData.encryption_algorithm.key, FileMetaData.footer_signing_key_metadata.key)


def has_v2_pages(groups: Iterable[Iterable[SourceChunk]]) -> bool:
    """Tell whether any page of data in encrypted chunks is of version 2.

    Args:
        groups: the chunks of each row group.  Those whose metadata do not count their pages are read.

    Raises:
        FormatError, VerificationError: a chunk is damaged.
    """
    sealed = (chunk for chunks in groups for chunk in chunks if chunk.key is not None)
    return any(PageType.DATA_PAGE_V2 in _list_kinds(chunk) for chunk in sealed)


def _list_kinds(chunk: SourceChunk) -> Iterator[int]:
    counted = chunk.metadata.encoding_stats
    if counted is not None:
        return (count.page_type for count in counted)
    return (page.head.type for page in chunk.page_source().pages())


@dataclass(frozen=True, slots=True)
class Decryption:
    """What takes the place of a file's encrypted parts: chunks to decrypt, and the file's end from an offset on."""

    chunks: list[SourceChunk]
    offset: int
    end: bytes


def plan_decryption(footer: Footer, groups: Iterable[Iterable[SourceChunk]]) -> Decryption:
    """Return how to read a file whose encrypted chunks are decrypted.

    Args:
        footer: the file's footer.
        groups: for each row group, its chunks that are read.

    Raises:
        FormatError, VerificationError: a chunk is damaged.
    """
    assert footer.metadata is not None  # noqa: S101 - the caller has read it
    metadata = Struct(footer.metadata.struct)
    for key in _OF_FILE:
        metadata.pop(key, None)
    sealed = [{chunk.key.column: chunk for chunk in chunks if chunk.key is not None} for chunks in groups]
    plain = [_plain_group(group, chunks) for group, chunks in zip(footer.metadata.row_groups, sealed, strict=True)]
    metadata[FileMetaData.row_groups.key] = List(STRUCT, plain)
    encoded = encode_struct(in_id_order(metadata))
    end = b"".join((encoded, len(encoded).to_bytes(4, "little"), PLAINTEXT_MAGIC))
    chunks = [chunk for group in sealed for chunk in group.values()]
    return Decryption(sorted(chunks, key=SourceChunk.range), footer.offset, end)


def _plain_group(group: RowGroup, decrypted: dict[int, SourceChunk]) -> Struct:
    """Return a row group in whose chunks nothing is encrypted; those that are not decrypted have no metadata."""
    chunks = []
    for column, chunk in enumerate(group.columns):
        plain = Struct({key: value for key, value in chunk.struct.items() if key not in _OF_ENCRYPTION})
        if column in decrypted:
            pages = Struct(decrypted[column].metadata.struct)
            pages[ColumnMetaData.data_page_offset.key] = decrypted[column].range()[0]
            pages.pop(ColumnMetaData.dictionary_page_offset.key, None)
            plain[ColumnChunk.meta_data.key] = in_id_order(pages)
        chunks.append(in_id_order(plain))
    return Struct({**group.struct, RowGroup.columns.key: List(STRUCT, chunks)})


class DecryptedFile(PositionedFile):
    """A judged file of which some chunks are read in plaintext; not thread-safe.

    Args:
        stored: the file.
        plan: what takes the place of its encrypted parts.
    """

    def __init__(self, stored: JudgedFile, plan: Decryption) -> None:
        super().__init__(plan.offset + len(plan.end))
        self._stored = stored
        self._plan = plan
        with open_source(stored) as source:  # type: ignore[arg-type]  # it reads, seeks and has a name
            self._chunks = [(*chunk.range(), replace(chunk, file=source)) for chunk in plan.chunks]

    def read(self, length: int = -1) -> bytes:
        """Return at most ``length`` bytes from the current position; all that remain for -1.

        Raises:
            FormatError, VerificationError: a page is damaged.
            StorageError: the storage failed.
        """
        start = self._position
        self._position = max(start, self._size if length < 0 else min(self._size, start + length))
        with naming(self._stored.name):
            return b"".join(self._parts(start, self._position))

    def _parts(self, start: int, stop: int) -> Iterator[bytes]:
        for first, last, chunk in self._chunks:
            if start < last and first < stop:
                yield self._read_stored(start, first)
                yield _plain_pages(chunk, last - first)[max(start - first, 0) : stop - first]
                start = min(last, stop)
        yield self._read_stored(start, min(stop, self._plan.offset))
        yield self._plan.end[max(start - self._plan.offset, 0) : max(stop - self._plan.offset, 0)]

    def _read_stored(self, start: int, stop: int) -> bytes:
        if start >= stop:
            return b""
        self._stored.seek(start)
        return self._stored.read(stop - start)

    def close(self) -> None:
        """Close the file."""
        self._stored.close()

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._stored.closed


def _plain_pages(chunk: SourceChunk, size: int) -> bytes:
    """Return a chunk's pages in plaintext; zeros, which pyarrow does not read, take the place of encryption's bytes."""
    parts: list[Any] = []
    for page in chunk.page_source().pages():
        parts += (page.head.encode(len(page.body), None), bytes(page.body))
    return b"".join(parts).ljust(size, b"\0")


@dataclass(frozen=True, slots=True)
class _Judgement:
    """What was found of a judged file: its end, and what pyarrow cannot read of it as it is stored.

    Attributes:
        end: the end that was judged.
        old: logical paths of leaves that are read and may be in the old calendar.
        decryption: how to read it if pyarrow cannot decrypt its pages, else None.
        inlined: the offset and bytes of an end that has the key material of beside the file, else None.
    """

    end: End
    old: frozenset[Path]
    decryption: Decryption | None
    inlined: tuple[int, bytes] | None


@dataclass(slots=True)
class Judge:
    """Opens the files of one read, and judges each on the same bytes that pyarrow then reads.

    Attributes:
        reader: the reader and its policy.
        events: the access events of this read.
        properties: the table's properties, as Spark's readers get them.
        settings: the Hadoop settings that are needed to access the files.
        requested: Spark schema JSON of the columns that are read; None if they are unknown.
        columns: logical paths of the table's leaves; a file may not have one of them in another case.
        needed: returns the logical paths of the leaves that are read from the file of a path.
    """

    reader: Reader
    events: ReadEvents
    properties: Mapping[str, str]
    settings: Settings
    requested: str | None = None
    columns: frozenset[Path] = frozenset()
    needed: Callable[[str], frozenset[Path]] = lambda path: frozenset()
    _keys: dict[str, FileKeys] = field(default_factory=dict)
    _judged: dict[str, _Judgement] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def keys(self, path: str) -> FileKeys:
        """Return the keys of a file, which are opened when the file is."""
        with self._lock:
            return self._keys.setdefault(path, FileKeys(self.reader, path, self.events))

    def old_columns(self, path: str) -> frozenset[Path]:
        """Return the logical paths of leaves that are read from a judged file and may be in the old calendar."""
        found = self._judged.get(path)
        return frozenset() if found is None else found.old

    def open(self, path: str) -> JudgedFile | DecryptedFile:
        """Open a file if the policy, the table's history and the file's location allow its footer.

        Raises:
            VerificationError: they do not allow it.
            FormatError: the file is damaged, is no Parquet file, or no longer exists.
            KeyServiceError: the key of the footer, or of a column that is read, is denied or unavailable.
            StorageError: the file cannot be accessed.
        """
        file = open_file(path, self.settings)
        try:
            found = self._judged.get(path)
            if found is None or not file.ends_with(found.end):
                if found is not None:  # it was rewritten since, so it is judged again
                    file.close()
                    file = open_file(path, self.settings)
                _, found = self._judge(path, file)
            if found.decryption is not None:
                return DecryptedFile(file, found.decryption)
            if found.inlined is not None:
                file.end_with(*found.inlined)
            return file
        except BaseException:
            file.close()
            raise

    def footer(self, path: str) -> Footer:
        """Return a file's footer, judged.

        Raises:
            SparkcryptError: as `open`.
        """
        file = open_file(path, self.settings)
        try:
            return self._judge(path, file)[0]
        finally:
            file.close()

    def _judge(self, path: str, file: JudgedFile) -> tuple[Footer, _Judgement]:
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
            },
            self.reader.unwrap,
        )
        columns, read = columns_of(footer), self.needed(path)
        in_file = paths_in_file(columns)
        check_names(path, in_file, self.columns)
        refuse_shredded(path, columns, read)
        needed = {in_file[leaf]: leaf for leaf in read if leaf in in_file}
        for column in footer.columns or ():
            if column.own_key and column.path in needed:
                keys.open_column(column.key_metadata or b"", column.path)
        old, decryption = self._look_into(path, file, footer, needed)
        inlined = None
        if footer.external_material:  # pyarrow reads key material only from inside a file
            inlined = footer.offset, inline_footer(footer, opened[0])
        found = self._judged[path] = _Judgement(end, old, decryption, inlined)
        return footer, found

    def _look_into(
        self, path: str, file: JudgedFile, footer: Footer, needed: Mapping[Path, Path]
    ) -> tuple[frozenset[Path], Decryption | None]:
        """Return which of the columns that are read may be in the old calendar, and how to read what pyarrow cannot.

        Args:
            path: the file's path.
            file: the file.
            footer: its footer.
            needed: Parquet path -> logical path of each leaf that is read.
        """
        keys = self.keys(path)
        ciphers = FileCiphers(path, lambda request: keys.data_key(request.key_metadata or b"", request.column))
        paths = [column.path for column in footer.columns or ()]
        if footer.metadata is None or not needed:
            return frozenset(), None
        with naming(path), open_source(file) as source:  # type: ignore[arg-type]  # it reads, seeks and has a name
            leaves = {number: needed[column] for number, column in enumerate(paths) if column in needed}
            old = find_old(footer.metadata, leaves, partial(column_chunks, source, footer, ciphers))
            chunks = partial(
                source_chunks, source, footer, ciphers, [column for column in paths if column not in needed]
            )
            is_decrypted = footer.mode != "plaintext" and has_v2_pages(chunks())
            return old, plan_decryption(footer, chunks()) if is_decrypted else None


def open_file(path: str, settings: Settings) -> JudgedFile:
    """Open a file without judging it.

    Raises:
        FormatError: it does not exist.
        StorageError: it cannot be opened.
        ConfigError: its file system cannot be opened.
    """
    from pyarrow.fs import LocalFileSystem

    where = place(path, settings)
    filesystem, name = (LocalFileSystem(), where) if isinstance(where, str) else where
    beside = beside_path(where) if isinstance(where, str) else beside_on(*where)
    try:
        if isinstance(where, str):
            open_regular(where, follow_link=True).close()  # pyarrow would wait for the writer of a pipe
        return JudgedFile(filesystem.open_input_file(name), path, beside)
    except FileNotFoundError as error:
        raise FormatError(f"{path}: is gone since the folder was listed; open the table again") from error
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be reached: {error}; that says nothing of the file: see that its storage answers and lets "
            "you read"
        ) from error


def facts_of(footer: Footer) -> dict[str, Any]:
    """Return a footer's facts about its file's encryption, as ``resolve_read`` takes them."""
    columns = [column for column in footer.columns or () if column.encrypted is not None]
    return {
        "mode": footer.mode,
        "algorithm": footer.algorithm,
        "aad_prefix": encode(footer.aad_prefix),
        "supply_aad_prefix": footer.supply_aad_prefix,
        "aad_file_unique": encode(footer.aad_file_unique),
        "footer_key_metadata": encode(footer.footer_key_metadata),
        "fields": [] if footer.metadata is None else message_type(footer.metadata),
        "columns": [
            {
                "path": list(column.path),
                "encrypted": bool(column.encrypted),
                "key_metadata": encode(column.key_metadata or b"") if column.own_key else None,
            }
            for column in columns
        ],
    }

"""Decrypts the columns of a file before pyarrow reads it, where pyarrow cannot.

parquet-mr leaves the levels of V2 pages in clear, and Arrow expects whole pages to be encrypted.  So pyarrow gets the
pages of the columns that it reads in plaintext, at the same offsets, and a plaintext footer.  A chunk is decrypted when
pyarrow reads it, and not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sparkcrypt.arrow.judged_file import JudgedFile, PositionedFile
from sparkcrypt.files.parquet import Footer
from sparkcrypt.files.parquet.file.footer import PLAINTEXT_MAGIC
from sparkcrypt.files.parquet.rewrite.footer_writer import in_id_order
from sparkcrypt.files.parquet.rewrite.source_chunk import SourceChunk
from sparkcrypt.files.parquet.thrift.compact import STRUCT, List, Struct
from sparkcrypt.files.parquet.thrift.encode import encode_struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, ColumnMetaData, FileMetaData, PageType, RowGroup
from sparkcrypt.files.source import naming, open_source

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

    def of(self, stored: JudgedFile) -> DecryptedFile:
        """Return an open file as it is read."""
        return DecryptedFile(stored, self)


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

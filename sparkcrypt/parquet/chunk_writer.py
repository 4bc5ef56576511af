"""Writes the pages of a column chunk, encrypted or not, and notes what the chunk's metadata must say of them."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass

from sparkcrypt.errors import FormatError, UnsupportedFileError
from sparkcrypt.parquet.metadata import (
    AES_GCM_V1,
    Algorithm,
    DataPageHeader,
    DataPageHeaderV2,
    DictionaryPageHeader,
    PageHeader,
    PageType,
)
from sparkcrypt.parquet.modules import MAX_ORDINAL, ModuleCipher, ModuleType, module_aad
from sparkcrypt.parquet.output import Output
from sparkcrypt.parquet.page_stream import Page
from sparkcrypt.parquet.thrift import Struct
from sparkcrypt.parquet.thrift_encode import encode_struct

_COMPRESSED = PageHeader.compressed_page_size.key
_UNCOMPRESSED = PageHeader.uncompressed_page_size.key
_CRC = PageHeader.crc.key
_HEADER_OF_TYPE = {
    PageType.DATA_PAGE: (PageHeader.data_page_header.key, DataPageHeader.encoding.key),
    PageType.DICTIONARY_PAGE: (PageHeader.dictionary_page_header.key, DictionaryPageHeader.encoding.key),
    PageType.DATA_PAGE_V2: (PageHeader.data_page_header_v2.key, DataPageHeaderV2.encoding.key),
}
"""Where the encoding of each type of page stands: field of the page header, field of the struct in it."""


@dataclass(frozen=True, slots=True)
class ChunkSeal:
    """What encrypts the modules of one column chunk of the target."""

    cipher: ModuleCipher
    file_aad: bytes
    algorithm: Algorithm
    row_group: int
    column: int

    def aad(self, module: ModuleType, *page: int) -> bytes:
        """Return the AAD of a module of this chunk."""
        return module_aad(self.file_aad, module, self.row_group, self.column, *page)

    def seal(self, plaintext: bytes, module: ModuleType) -> bytes:
        """Return the framed GCM module of an index, a Bloom filter or metadata."""
        return self.cipher.encrypt(plaintext, self.aad(module))


@dataclass(frozen=True, slots=True)
class PagePlace:
    """Where a data page stands in source and target; ``length`` is the target's, header and body."""

    source: int
    start: int
    length: int


class ChunkWriter:
    """Writes one column chunk.

    Attributes:
        start: offset of its first byte.
        dictionary: offset of its dictionary page, or None.
        places: its data pages.
        values: how many values they hold.
        uncompressed: size of the pages without compression, headers as they are written included.
        levels_in_clear: whether it wrote a V2 page whose levels are not encrypted.
        encodings: how many pages there are of each (page type, encoding), in the order of their first.
    """

    def __init__(self, output: Output, seal: ChunkSeal | None) -> None:
        self._output = output
        self._seal = seal
        self.start = output.position
        self.dictionary: int | None = None
        self.places: list[PagePlace] = []
        self.values = 0
        self.uncompressed = 0
        self.levels_in_clear = False
        self.encodings: Counter[tuple[int, int]] = Counter()

    def write(self, page: Page) -> None:
        """Append a page.

        Raises:
            UnsupportedFileError: it is one data page more than an encrypted chunk can have.
        """
        output, start = self._output, self._output.position
        self._count(page)
        if self._seal is None:
            header = _patched(page.header, len(page.body), _crc(page.header, page.body))
            body: tuple[bytes | memoryview, ...] = (page.body,)
        else:
            header, body = self._sealed(page, self._seal)
        output.write(header)
        self.uncompressed += len(header) + _uncompressed(page.header)
        for part in body:
            output.write(part)
        if page.type == PageType.DICTIONARY_PAGE:
            self.dictionary = start
        else:
            self.places.append(PagePlace(page.start, start, output.position - start))
            self.values += page.values

    def _count(self, page: Page) -> None:
        outer, inner = _HEADER_OF_TYPE[PageType(page.type)]
        described = page.header.get(outer)
        encoding = described.get(inner) if isinstance(described, Struct) else None
        if isinstance(encoding, int):
            self.encodings[page.type, encoding] += 1

    def _sealed(self, page: Page, seal: ChunkSeal) -> tuple[bytes, tuple[bytes | memoryview, ...]]:
        if page.type == PageType.DICTIONARY_PAGE:
            number: tuple[int, ...] = ()
            module, header_module = ModuleType.DICTIONARY_PAGE, ModuleType.DICTIONARY_PAGE_HEADER
        else:
            number = (len(self.places),)
            module, header_module = ModuleType.DATA_PAGE, ModuleType.DATA_PAGE_HEADER
            if number[0] > MAX_ORDINAL:
                raise UnsupportedFileError(
                    f"more than {MAX_ORDINAL + 1} data pages in a column chunk, the most that encryption can number; "
                    "use the Spark engine, or write larger pages"
                )
        body: tuple[bytes | memoryview, ...]
        levels = page.levels
        if levels:
            self.levels_in_clear = True
            body = (page.body[:levels], self._body(page.body[levels:], seal, module, *number))
        else:
            body = (self._body(page.body, seal, module, *number),)
        size = sum(map(len, body))
        plain = _patched(page.header, size, _crc(page.header, *body) if seal.algorithm != AES_GCM_V1 else None)
        framed = seal.cipher.encrypt(plain, seal.aad(header_module, *number))
        return framed, body

    def _body(self, body: bytes | memoryview, seal: ChunkSeal, module: ModuleType, *number: int) -> bytes:
        if seal.algorithm == AES_GCM_V1:
            return seal.cipher.encrypt(body, seal.aad(module, *number))
        return seal.cipher.encrypt_ctr(body)


def _uncompressed(header: Struct) -> int:
    size = header.get(_UNCOMPRESSED)
    if not isinstance(size, int) or size < 0:
        raise FormatError(f"a page header has uncompressed_page_size {size!r}; expected 0 or more")
    return size


def _crc(header: Struct, *body: bytes | memoryview) -> int | None:
    """Return the CRC of a body as Thrift's signed integer, or None if the page came without one."""
    if _CRC not in header:
        return None
    crc = 0
    for part in body:
        crc = zlib.crc32(part, crc)
    return crc - (1 << 32) if crc >= 1 << 31 else crc


def _patched(header: Struct, size: int, crc: int | None) -> bytes:
    """Return a page header with another size, and with this CRC or none."""
    patched = Struct(header)
    patched[_COMPRESSED] = size
    if crc is None:
        patched.pop(_CRC, None)
    else:
        patched[_CRC] = crc
    return encode_struct(patched)

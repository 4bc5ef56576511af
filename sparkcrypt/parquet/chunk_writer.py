"""Writes the pages of a column chunk, encrypted or not, and notes what the chunk's metadata must say of them."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass

from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.parquet.metadata import AES_GCM_V1, Algorithm, PageType
from sparkcrypt.parquet.modules import MAX_ORDINAL, ModuleCipher, ModuleType, module_aad
from sparkcrypt.parquet.output import Output
from sparkcrypt.parquet.page_header import PageHead
from sparkcrypt.parquet.page_stream import Page


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
        if seal is not None:  # the AADs of data pages less their numbers, which are the last two bytes
            self._page_aad = seal.aad(ModuleType.DATA_PAGE, 0)[:-2]
            self._header_aad = seal.aad(ModuleType.DATA_PAGE_HEADER, 0)[:-2]
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
        output, head, start = self._output, page.head, self._output.position
        self.encodings[head.type, head.encoding] += 1
        if self._seal is None:
            header = head.encode(len(page.body), _crc(head, page.body))
            body: tuple[bytes | memoryview, ...] = (page.body,)
        else:
            header, body = self._sealed(page, self._seal)
        output.write(header)
        self.uncompressed += len(header) + head.uncompressed
        for part in body:
            output.write(part)
        if head.type == PageType.DICTIONARY_PAGE:
            self.dictionary = start
        else:
            self.places.append(PagePlace(page.start, start, output.position - start))
            self.values += head.values

    def _sealed(self, page: Page, seal: ChunkSeal) -> tuple[bytes, tuple[bytes | memoryview, ...]]:
        head, levels = page.head, page.head.levels
        if head.type == PageType.DICTIONARY_PAGE:
            header_aad, body_aad = seal.aad(ModuleType.DICTIONARY_PAGE_HEADER), seal.aad(ModuleType.DICTIONARY_PAGE)
        else:
            number = self._next_number()
            header_aad = self._header_aad + number
            body_aad = self._page_aad + number
        body: tuple[bytes | memoryview, ...]
        if levels:
            self.levels_in_clear = True
            body = (page.body[:levels], self._body(page.body[levels:], seal, body_aad))
        else:
            body = (self._body(page.body, seal, body_aad),)
        crc = _crc(head, *body) if seal.algorithm != AES_GCM_V1 else None
        return seal.cipher.encrypt(head.encode(sum(map(len, body)), crc), header_aad), body

    def _next_number(self) -> bytes:
        number = len(self.places)
        if number > MAX_ORDINAL:
            raise UnsupportedFileError(
                f"more than {MAX_ORDINAL + 1} data pages in a column chunk, the most that encryption can number; use "
                "the Spark engine, or write larger pages"
            )
        return number.to_bytes(2, "little")

    def _body(self, body: bytes | memoryview, seal: ChunkSeal, aad: bytes) -> bytes:
        if seal.algorithm == AES_GCM_V1:
            return seal.cipher.encrypt(body, aad)
        return seal.cipher.encrypt_ctr(body)


def _crc(head: PageHead, *body: bytes | memoryview) -> int | None:
    """Return the CRC of a body as Thrift's signed integer, or None if the page came without one."""
    if head.crc is None:
        return None
    crc = 0
    for part in body:
        crc = zlib.crc32(part, crc)
    return crc - (1 << 32) if crc >= 1 << 31 else crc

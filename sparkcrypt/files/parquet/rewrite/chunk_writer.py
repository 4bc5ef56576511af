"""Writes the pages of a column chunk, encrypted or not, and records what the chunk's metadata needs of them."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.files.output import Output
from sparkcrypt.files.parquet.file.modules import FRAME_BYTES, MAX_ORDINAL, ModuleType
from sparkcrypt.files.parquet.pages.chunk import crc32
from sparkcrypt.files.parquet.rewrite.encryption import ChunkSeal
from sparkcrypt.files.parquet.rewrite.page_stream import Page, PageHead
from sparkcrypt.files.parquet.thrift.metadata import PageType
from sparkcrypt.names import AES_GCM_V1


class PagePlace(NamedTuple):
    """The offsets of a data page in source and target; ``length`` is that in the target, header and body."""

    source: int
    start: int
    length: int


class ChunkWriter:
    """A writer of one column chunk.

    Attributes:
        start: the offset of its first byte.
        dictionary: the offset of its dictionary page, or None.
        places: the places of its data pages.
        values: the number of values in them.
        uncompressed: the size of the pages without compression, including headers as written.
        levels_in_clear: whether it wrote an encrypted V2 page whose levels are not encrypted.
        encodings: the number of pages of each (page type, encoding), in the order of first occurrence.
    """

    def __init__(self, output: Output, seal: ChunkSeal | None) -> None:
        self._output = output
        self._seal = seal
        if seal is not None:  # the AADs of data pages without page number, which is the last two bytes
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
            UnsupportedFileError: the encrypted chunk would have more data pages than can be numbered.
        """
        output, head, start = self._output, page.head, self._output.position
        self.encodings[head.type, head.encoding] += 1
        if self._seal is None:
            plain = head.encode(len(page.body), _crc(head, page.body))
            output.write(plain)
            output.write(page.body)
            header = len(plain)
        else:
            header = self._write_sealed(page, self._seal)
        self.uncompressed += header + head.uncompressed
        if head.type == PageType.DICTIONARY_PAGE:
            self.dictionary = start
        else:
            self.places.append(PagePlace(page.start, start, output.position - start))
            self.values += head.values

    def _write_sealed(self, page: Page, seal: ChunkSeal) -> int:
        """Append a page's modules; return the length of the header's module."""
        head = page.head
        if head.type == PageType.DICTIONARY_PAGE:
            header_aad, body_aad = seal.aad(ModuleType.DICTIONARY_PAGE_HEADER), seal.aad(ModuleType.DICTIONARY_PAGE)
        else:
            number = self._next_number()
            header_aad, body_aad = self._header_aad + number, self._page_aad + number
        if head.levels:
            self.levels_in_clear = True
        if seal.algorithm != AES_GCM_V1:
            return self._write_ctr(page, seal, header_aad)
        header = self._append(seal, head.encode(len(page.body) + FRAME_BYTES, None), header_aad)
        body = page.body
        if head.levels:
            self._output.write(body[: head.levels])
            body = body[head.levels :]
        self._append(seal, body, body_aad)
        return header

    def _write_ctr(self, page: Page, seal: ChunkSeal, header_aad: bytes) -> int:
        head, levels = page.head, page.body[: page.head.levels]
        sealed = seal.cipher.encrypt_ctr(page.body[page.head.levels :])
        crc = _crc(head, levels, sealed)
        header = self._append(seal, head.encode(len(levels) + len(sealed), crc), header_aad)
        self._output.write(levels)
        self._output.write(sealed)
        return header

    def _append(self, seal: ChunkSeal, plaintext: bytes | memoryview, aad: bytes) -> int:
        output = self._output
        size = seal.cipher.encrypt_into(plaintext, aad, output.room(len(plaintext) + FRAME_BYTES))
        output.advance(size)
        return size

    def _next_number(self) -> bytes:
        number = len(self.places)
        if number > MAX_ORDINAL:
            raise UnsupportedFileError(
                f"more than {MAX_ORDINAL + 1} data pages in a column chunk, the most that encryption can number; use "
                "the Spark engine, or write larger pages"
            )
        return number.to_bytes(2, "little")


def _crc(head: PageHead, *body: bytes | memoryview) -> int | None:
    """Return the CRC of a body as Thrift's signed integer, or None if the page came without one."""
    if head.crc is None:
        return None
    crc = 0
    for part in body:
        crc = crc32(part, crc)
    return crc - (1 << 32) if crc >= 1 << 31 else crc

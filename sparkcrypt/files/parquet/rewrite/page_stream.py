"""Reads the pages of a plaintext or encrypted column chunk in file order, as they were before encryption.

Decodes and encodes page headers for a rewrite: four numbers, and the rest as unchanged bytes.  Files have a header for
every few kilobytes, so a rewrite spends most of its time here.  The headers of a column chunk usually differ only in
their two sizes, so the rest of a header is compared with the previous one's, and decoded only if it differs.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.parquet.file.modules import LENGTH_BYTES, NONCE_BYTES, ModuleType
from sparkcrypt.files.parquet.pages.chunk import ChunkKey, PartName, check_crc
from sparkcrypt.files.parquet.pages.leniency import page_facts
from sparkcrypt.files.parquet.thrift.compact import I32, Struct, decode_struct, encode_struct, has_run_out
from sparkcrypt.files.parquet.thrift.metadata import PageHeader, PageType
from sparkcrypt.files.source import Input
from sparkcrypt.names import AES_GCM_V1
from sparkcrypt.schema import join_dotted

_NEXT_I32 = 1 << 4 | I32
_TYPE = PageHeader.type.key
_UNCOMPRESSED = PageHeader.uncompressed_page_size.key
_COMPRESSED = PageHeader.compressed_page_size.key
_CRC = PageHeader.crc.key
_SIZE_ID = PageHeader.compressed_page_size.field_id
_CRC_ID = PageHeader.crc.field_id
_MAX_I32 = 0x7FFFFFFF


class PageHead:
    """A page header.

    Attributes:
        type: the page's type.
        uncompressed: ``uncompressed_page_size``, in bytes.
        size: ``compressed_page_size``, in bytes, including encryption if the page is encrypted.
        crc: the CRC as a signed integer, or None.
        values: the number of values of a data page, including nulls; 0 for a dictionary page.
        rows: the number of rows of a V2 page; None for V1 and dictionary pages.
        levels: the number of bytes at the start of a V2 page that hold its levels.
        encoding: the encoding of its values.
    """

    __slots__ = (
        *("_kind", "_lead", "_rest", "_rest_id"),
        *("crc", "encoding", "levels", "rows", "size", "type", "uncompressed", "values"),
    )

    def __init__(self, lead: bytes, kind: int, uncompressed: int, size: int, crc: int | None) -> None:
        """Initialise the header from its numbers; ``lead`` are the encoded bytes that precede ``size``."""
        self._lead = lead
        self.type = kind
        self.uncompressed = uncompressed
        self.size = size
        self.crc = crc
        self.values = 0
        self.rows: int | None = None
        self.levels = 0
        self.encoding = 0
        self._rest_id = 0
        self._kind = 0
        self._rest = b""

    def encode(self, size: int, crc: int | None) -> bytes:
        """Return the header with another size, and with this CRC or none."""
        out = bytearray(self._lead)
        _append_integer(out, size)
        last = _SIZE_ID
        if crc is not None:
            out.append(_NEXT_I32)
            _append_integer(out, crc)
            last = _CRC_ID
        delta = self._rest_id - last
        if delta < 16:
            out.append(delta << 4 | self._kind)
        else:
            out.append(self._kind)
            _append_integer(out, self._rest_id)
        out += self._rest
        return bytes(out)

    def _carry(self, rest_id: int, kind: int, rest: bytes) -> None:
        if rest_id <= (_SIZE_ID if self.crc is None else _CRC_ID):
            raise FormatError(f"a page header has field {rest_id} twice or of another type; expected that of its page")
        self._rest_id, self._kind, self._rest = rest_id, kind, rest

    def _copy_facts(self, other: PageHead) -> None:
        self._rest_id, self._kind, self._rest = other._rest_id, other._kind, other._rest
        self.values, self.rows, self.levels, self.encoding = other.values, other.rows, other.levels, other.encoding

    def continues_as(self, other: PageHead, data: bytes, position: int, rest_id: int, kind: int) -> bool:
        """Return whether the bytes after the numbers equal those of another header."""
        rest = other._rest
        same = rest_id == other._rest_id and kind == other._kind and data.startswith(rest, position)
        return same and self.type == other.type

    @property
    def rest_bytes(self) -> int:
        """The number of bytes after the numbers, without the header of the first field there."""
        return len(self._rest)


def read_head(data: bytes, position: int, before: PageHead | None, origin: int) -> tuple[PageHead, int]:
    """Decode a page header.

    Args:
        data: bytes that contain it.
        position: its index in them.
        before: the header of the previous page, if it is of the same column chunk.
        origin: added to an index in ``data`` to give an offset in messages.

    Returns:
        The header and the index of the first byte after it.

    Raises:
        FormatError: the bytes are not a valid header, or end within it.
        UnsupportedFileError: it is the header of a page type without a module type.
    """
    found = _leading_numbers(data, position)
    if found is None:
        return _decode_header(data, position, origin)
    head, rest_at = found
    field = data[rest_at]
    rest_id = (_SIZE_ID if head.crc is None else _CRC_ID) + (field >> 4)
    if before is not None and head.continues_as(before, data, rest_at + 1, rest_id, field & 15):
        head._copy_facts(before)
        _check_sizes(head)
        return head, rest_at + 1 + before.rest_bytes
    struct, end = decode_struct(data, start=position, origin=origin)
    if field < 1 << 4:
        return _decode_header(data, position, origin)
    head._carry(rest_id, field & 15, data[rest_at + 1 : end])
    _describe(head, struct)
    return head, end


def _leading_numbers(data: bytes, start: int) -> tuple[PageHead, int] | None:
    """Decode type, sizes and CRC if they come first and in this order, as all writers write them; else return None."""
    try:
        kind = data[start + 1]
        if data[start] != _NEXT_I32 or kind > 127 or data[start + 2] != _NEXT_I32:
            return None
        uncompressed, at = _integer(data, start + 3)
        if data[at] != _NEXT_I32:
            return None
        lead = data[start : at + 1]
        size, at = _integer(data, at + 1)
        crc = None
        if data[at] == _NEXT_I32:
            crc, at = _integer(data, at + 1)
            data[at]  # raises IndexError unless more bytes follow
    except IndexError:
        return None
    return PageHead(lead, kind >> 1 ^ -(kind & 1), uncompressed, size, crc), at


def _integer(data: bytes, at: int) -> tuple[int, int]:
    """Decode an integer of at most 32 bits; return it and the index after it."""
    byte = data[at]
    raw, shift = byte & 127, 7
    while byte > 127 and shift < 35:
        at += 1
        byte = data[at]
        raw |= (byte & 127) << shift
        shift += 7
    return raw >> 1 ^ -(raw & 1), at + 1


def _decode_header(data: bytes, position: int, origin: int) -> tuple[PageHead, int]:
    """Decode a header whose fields have another order or form."""
    struct, end = decode_struct(data, start=position, origin=origin)
    header = PageHeader(struct)
    lead = bytearray()
    for number in (header.type, header.uncompressed_page_size):
        lead.append(_NEXT_I32)
        _append_integer(lead, number)
    lead.append(_NEXT_I32)
    sizes = (header.uncompressed_page_size, header.compressed_page_size)
    head = PageHead(bytes(lead), header.type, *sizes, header.crc)
    numbers = (_TYPE, _UNCOMPRESSED, _COMPRESSED, _CRC)
    rest = encode_struct(Struct(sorted((key, value) for key, value in struct.items() if key not in numbers)))
    head._carry(rest[0] >> 4, rest[0] & 15, rest[1:])
    _describe(head, struct)
    return head, end


def _describe(head: PageHead, struct: Struct) -> None:
    """Set counts, levels and encoding from a decoded header, and refuse invalid ones."""
    facts = page_facts(struct, "a page header", True)
    header = facts.view
    _check_sizes(head)
    head.values, head.rows, head.levels = facts.values, facts.rows, facts.levels
    if head.type == PageType.DATA_PAGE and (v1 := header.data_page_header) is not None:
        head.encoding = v1.encoding
    elif head.type == PageType.DATA_PAGE_V2 and (v2 := header.data_page_header_v2) is not None:
        head.encoding = v2.encoding
    elif (dictionary := header.dictionary_page_header) is not None:
        head.encoding = dictionary.encoding


def _check_sizes(head: PageHead) -> None:
    if not (0 <= head.size <= _MAX_I32 and 0 <= head.uncompressed <= _MAX_I32):
        raise FormatError(f"a page header has sizes {head.uncompressed} and {head.size}; expected 0 to {_MAX_I32}")
    if head.crc is not None and not -_MAX_I32 - 1 <= head.crc <= _MAX_I32:
        raise FormatError(f"a page header has the CRC {head.crc}; expected 32 bits")


def _append_integer(out: bytearray, number: int) -> None:
    raw = number << 1 if number >= 0 else ~(number << 1)
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)


READ_AHEAD_BYTES = 4 * 1024 * 1024
HEADER_BYTES = 256
"""The number of bytes first read to decode a page header; statistics may make it longer."""
STRUCT_BYTES = 64 * 1024
"""The number of bytes read to decode a Bloom filter's header, which has a few numbers."""
MAX_HEADER_BYTES = 16 * 1024 * 1024


class Page:
    """A decrypted page.

    Attributes:
        head: its header; size and CRC are those of the source.
        start: the offset in the source of its header (or of its header's module).
        end: the offset in the source of the first byte after its body.
        body: the page's bytes, still compressed.
    """

    __slots__ = ("body", "end", "head", "start")

    def __init__(self, head: PageHead, start: int, end: int, body: bytes | memoryview) -> None:
        self.head = head
        self.start = start
        self.end = end
        self.body = body


class Bytes:
    """A range of a file, read from front to back in large pieces into one buffer that all readers of the file share.

    A returned view is therefore only valid until more of the file is read.
    """

    __slots__ = ("_at", "_end", "_file", "_have", "_next", "_view")

    def __init__(self, file: Input, start: int, end: int) -> None:
        self._file = file
        self._view = file.buffer(min(READ_AHEAD_BYTES, end - start))
        self._at = 0
        self._have = 0
        self._next = start
        self._end = end

    @property
    def position(self) -> int:
        """The offset in the file of the next byte."""
        return self._next - self._have + self._at

    @property
    def left(self) -> int:
        """The number of bytes not taken yet."""
        return self._end - self.position

    def take(self, length: int, what: object) -> memoryview:
        """Take and return the next ``length`` bytes.

        Raises:
            FormatError: fewer are left.
        """
        if not 0 <= length <= self._have - self._at:
            if not 0 <= length <= self.left:
                raise FormatError(f"{what} of {length} bytes; expected at most the {self.left} bytes that are left")
            self._fill(length, what)
        at = self._at
        self._at = at + length
        return self._view[at : at + length]

    def head(self, before: PageHead | None) -> PageHead:
        """Take and return the next page header.

        Raises:
            FormatError: the next bytes are not a page header.
        """
        wanted = HEADER_BYTES
        while True:
            window = self._look(wanted, "a page header")
            try:
                head, length = read_head(window, 0, before, self.position)
            except FormatError as error:
                if wanted >= min(self.left, MAX_HEADER_BYTES) or not has_run_out(error):
                    raise
                wanted = min(wanted * 16, MAX_HEADER_BYTES)
                continue
            self._at += length
            return head

    def struct(self, what: object) -> Struct:
        """Take and return the next Thrift struct.

        Raises:
            FormatError: the next bytes are not a struct.
        """
        struct, length = decode_struct(self._look(STRUCT_BYTES, what), origin=self.position)
        self._at += length
        return struct

    def module(self, what: object) -> bytes:
        """Take and return the next framed module.

        Raises:
            FormatError: fewer bytes are left than the module has.
        """
        length = bytes(self.take(LENGTH_BYTES, what))
        return length + self.take(int.from_bytes(length, "little"), what)

    def _look(self, length: int, what: object) -> bytes:
        """Return the next ``length`` bytes, or all that are left, without taking them."""
        length = min(length, self.left)
        if length > self._have - self._at:
            self._fill(length, what)
        return bytes(self._view[self._at : self._at + length])

    def _fill(self, length: int, what: object) -> None:
        rest = bytes(self._view[self._at : self._have])
        if length > len(self._view):
            self._view = self._file.buffer(length)
        self._view[: len(rest)] = rest
        size = min(len(self._view) - len(rest), self._end - self._next)
        self._file.read_into(self._next, self._view[len(rest) : len(rest) + size], what)
        self._next += size
        self._have = len(rest) + size
        self._at = 0


class PlainPages:
    """The pages of a column chunk that is not encrypted.

    Attributes:
        start, end: the range of the pages in the file.
        unauthenticated: what of them nothing authenticates, which for these pages is not recorded.
    """

    def __init__(self, file: Input, start: int, end: int, name: PartName) -> None:
        self._bytes = Bytes(file, start, end)
        self._name = name
        self.start, self.end = start, end
        self.unauthenticated: set[str] = set()

    def pages(self) -> Iterator[Page]:
        """Yield the pages in file order.

        Raises:
            FormatError: a header or a length does not fit.
            UnsupportedFileError: a page has a type without a module type.
            VerificationError: a page's CRC is not that of its bytes.
        """
        data, name = self._bytes, self._name
        before: PageHead | None = None
        while data.left:
            start = data.position
            head = data.head(before)
            _check_place(head, name, first=before is None)
            body = data.take(head.size, name)
            check_crc(head.crc, body, name)
            yield Page(head, start, data.position, body)
            before = head


class EncryptedPages:
    """The pages of an encrypted column chunk, authenticated as far as the algorithm and the page version do so.

    The first page is a dictionary page if it authenticates as one, whatever the metadata contain: old writers leave the
    dictionary's offset out.

    Attributes:
        start, end: the range of the pages in the file.
        unauthenticated: what of the pages read so far nothing authenticates: ``page``, ``levels``.
    """

    def __init__(self, file: Input, start: int, end: int, key: ChunkKey) -> None:
        self._bytes = Bytes(file, start, end)
        self._key = key
        self._name = PartName(join_dotted(key.path), key.row_group)
        self.start, self.end = start, end
        self.unauthenticated: set[str] = set()

    def pages(self) -> Iterator[Page]:
        """Yield the pages in file order.

        Raises:
            FormatError: a length does not fit, or a page's type is not that of its module.
            VerificationError: a module does not authenticate, or a page's CRC is not that of its bytes.
        """
        data, name, number = self._bytes, self._name, 0
        before: PageHead | None = None
        while data.left:
            start = data.position
            module, head = self._head(number, before)
            _check_place(head, name, first=before is None)
            if (head.type == PageType.DICTIONARY_PAGE) != (module is ModuleType.DICTIONARY_PAGE_HEADER):
                raise FormatError(f"{name} has a page of type {head.type}; expected its module's")
            framed = data.take(head.size, name)
            if self._key.algorithm != AES_GCM_V1:
                check_crc(head.crc, framed, name)
            if module is ModuleType.DICTIONARY_PAGE_HEADER:
                yield Page(head, start, data.position, self._open(framed, ModuleType.DICTIONARY_PAGE))
            else:
                yield Page(head, start, data.position, self._data(head, framed, number))
                number += 1
            before = head

    def _head(self, number: int, before: PageHead | None) -> tuple[ModuleType, PageHead]:
        framed = self._bytes.module("a page header")
        if before is None:
            try:
                opened = self._key.open(framed, ModuleType.DICTIONARY_PAGE_HEADER)
                return ModuleType.DICTIONARY_PAGE_HEADER, read_head(opened, 0, None, 0)[0]
            except VerificationError:
                pass  # then it must be the header of a data page
        opened = self._key.open(framed, ModuleType.DATA_PAGE_HEADER, number)
        return ModuleType.DATA_PAGE_HEADER, read_head(opened, 0, before, 0)[0]

    def _data(self, head: PageHead, body: memoryview, number: int) -> bytes:
        """Open a data page; Arrow encrypts all bytes of a V2 page, parquet-mr leaves its levels in clear."""
        levels = head.levels
        if not levels or (_is_frame(body) and not _is_frame(body[levels:])):
            return self._open(body, ModuleType.DATA_PAGE, number)
        if _is_frame(body):  # both forms fit: only authentication can tell them apart
            try:
                return self._open(body, ModuleType.DATA_PAGE, number)
            except VerificationError:
                pass
        self.unauthenticated.add("levels")
        return bytes(body[:levels]) + self._open(body[levels:], ModuleType.DATA_PAGE, number)

    def _open(self, framed: memoryview, module: ModuleType, *page: int) -> bytes:
        key = self._key
        if key.algorithm == AES_GCM_V1:
            return key.open(framed, module, *page)
        self.unauthenticated.add("page")
        return key.cipher.decrypt_ctr(framed, key.name(module, *page))


def _check_place(head: PageHead, name: PartName, *, first: bool) -> None:
    if head.type == PageType.DICTIONARY_PAGE and not first:
        raise FormatError(f"{name} has a dictionary page after another page; expected it first")
    if head.levels > head.size:
        raise FormatError(f"{name} has a page with {head.levels} bytes of levels; expected no more than the page")


def _is_frame(body: memoryview) -> bool:
    return (
        len(body) >= LENGTH_BYTES + NONCE_BYTES
        and int.from_bytes(body[:LENGTH_BYTES], "little") == len(body) - LENGTH_BYTES
    )

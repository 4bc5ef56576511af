"""Decodes and encodes page headers for a rewrite: four numbers, and the rest as unchanged bytes.

Files have a header for every few kilobytes, so a rewrite spends most of its time here.  The headers of a column chunk
usually differ only in their two sizes, so the rest of a header is compared with the previous one's, and decoded only if
it differs.
"""

from __future__ import annotations

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet.pages.header_facts import page_facts
from sparkcrypt.files.parquet.thrift.compact import I32, Struct, decode_struct
from sparkcrypt.files.parquet.thrift.encode import encode_struct
from sparkcrypt.files.parquet.thrift.metadata import PageHeader, PageType

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
    facts, header = page_facts(struct, "a page header", True), PageHeader(struct)
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

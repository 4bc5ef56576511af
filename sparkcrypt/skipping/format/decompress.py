"""Decompresses a page to exactly the size that its header announces, and never further."""

from __future__ import annotations

import zlib

from sparkcrypt.errors import FormatError, show
from sparkcrypt.files.parquet.codecs import NAMES

_GZIP_OR_ZLIB = 47
"""zlib's ``wbits`` that accepts either header."""


def decompress_page(body: bytes, codec: int, size: int) -> bytes:
    """Return a page's decompressed bytes.

    Args:
        body: the page as it is stored.
        codec: its number in ``CompressionCodec`` of parquet.thrift.
        size: the announced size in bytes, whose limit the caller has checked.

    Raises:
        FormatError: the page does not decompress to this size, or its codec is not supported.
    """
    name = NAMES[codec] if 0 <= codec < len(NAMES) else show(codec)
    if name == "uncompressed":
        found = body
    elif name == "gzip":
        found = _inflate(body, size)
    elif name == "snappy":
        found = _decompress_snappy(body, size)
    else:
        raise FormatError(
            f"a page is compressed by {name}; expected snappy, gzip or none: write the store with one of them"
        )
    if len(found) != size:
        raise FormatError(f"a page has {len(found)} bytes; expected the {size} that its header announces")
    return found


def _inflate(body: bytes, size: int) -> bytes:
    try:
        return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body, size + 1)
    except zlib.error as error:
        raise FormatError(f"a page is not gzip ({error}); expected what its column says") from error


def _decompress_snappy(body: bytes, size: int) -> bytes:
    """Decompress raw Snappy.  Source: format_description.txt of google/snappy."""
    try:
        announced, at = _varint(body)
        if announced != size:
            raise FormatError(f"a page announces {announced} bytes in Snappy; expected {size}")
        out = bytearray()
        while at < len(body):
            at = _literal(body, at, out) if not body[at] & 3 else _copy(body, at, out)
            if len(out) > size:
                raise FormatError(f"a page has more than {size} bytes in Snappy; expected no more")
    except IndexError as error:
        raise FormatError("a page ends inside an element of Snappy; expected all of it") from error
    return bytes(out)


def _varint(body: bytes) -> tuple[int, int]:
    value = 0
    for at in range(5):
        value |= (body[at] & 127) << (7 * at)
        if body[at] < 128:
            return value, at + 1
    raise FormatError("a page's length in Snappy is too large; expected at most 32 bits")


def _literal(body: bytes, at: int, out: bytearray) -> int:
    length, at = body[at] >> 2, at + 1
    if length >= 60:
        extra = length - 59
        length, at = int.from_bytes(body[at : at + extra], "little"), at + extra
    end = at + length + 1
    if end > len(body):
        raise FormatError(f"a page has a literal of {length + 1} bytes in Snappy; expected no more than are left")
    out += body[at:end]
    return end


def _copy(body: bytes, at: int, out: bytearray) -> int:
    tag = body[at]
    if tag & 3 == 1:
        length, offset, end = (tag >> 2 & 7) + 4, (tag & 0xE0) << 3 | body[at + 1], at + 2
    else:
        extra = 2 if tag & 3 == 2 else 4
        length, end = (tag >> 2) + 1, at + 1 + extra
        offset = int.from_bytes(body[at + 1 : end], "little")
        if end > len(body):
            raise IndexError
    if not 0 < offset <= len(out):
        raise FormatError(f"a page copies from {offset} bytes before in Snappy; expected 1 to {len(out)}")
    start = len(out) - offset
    piece = out[start : start + length]
    while len(piece) < length:
        piece += piece[: length - len(piece)]
    out += piece
    return end

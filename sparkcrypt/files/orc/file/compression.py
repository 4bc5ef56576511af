"""Compresses and decompresses ORC's streams and messages, which consist of chunks with headers of three bytes.

A header is ``length * 2 + 1`` if the chunk is stored uncompressed, and ``length * 2`` if it is compressed, in three
bytes, little endian.  Source: ORC specification v1, "Compression".

The parts of codecs that pyarrow lacks: sizes of Snappy blocks and Zstandard frames, LZ4 blocks of unknown size.
Layouts: "Snappy compressed format description" (google/snappy, format_description.txt), RFC 8878 ("Zstandard Frames")
and "LZ4 Block Format Description" (lz4/lz4, doc/lz4_Block_format.md).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from sparkcrypt.errors import WRITE_ORC_ANEW, ConfigError, FormatError, UnsupportedFileError

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MIN_MATCH = 4
_LONG = 15


def snappy_size(block: bytes | memoryview) -> int:
    """Return the decompressed size that a Snappy block announces.

    Raises:
        ValueError: it does not begin with a size.
    """
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 127) << 7 * index
        if byte < 128:
            return size
    raise ValueError("no size")


def zstd_size(frame: bytes | memoryview) -> int | None:
    """Return the decompressed size that a Zstandard frame announces; None if it announces none."""
    if len(frame) < len(_ZSTD_MAGIC) + 1 or bytes(frame[: len(_ZSTD_MAGIC)]) != _ZSTD_MAGIC:
        return None
    descriptor = frame[len(_ZSTD_MAGIC)]
    is_single_segment = bool(descriptor & 32)
    width = (int(is_single_segment), 2, 4, 8)[descriptor >> 6]
    if not width:
        return None
    begin = len(_ZSTD_MAGIC) + 1 + (not is_single_segment) + (0, 1, 2, 4)[descriptor & 3]
    if begin + width > len(frame):
        return None
    return int.from_bytes(frame[begin : begin + width], "little") + (256 if width == 2 else 0)


def inflate_lz4(block: bytes | memoryview, most: int) -> bytes:
    """Decompress an LZ4 block.

    Args:
        block: the bytes.
        most: the most bytes that it may decompress to.

    Raises:
        ValueError: it is not an LZ4 block, or decompresses to more.
    """
    out = bytearray()
    position, size = 0, len(block)
    while position < size:
        token = block[position]
        literals, position = _length(block, position + 1, token >> 4)
        if position + literals > size or len(out) + literals > most:
            raise ValueError("literals reach too far")
        out += block[position : position + literals]
        position += literals
        if position == size:  # the last sequence has literals only
            return bytes(out)
        if position + 2 > size:
            raise ValueError("ends inside an offset")
        distance = int.from_bytes(block[position : position + 2], "little")
        length, position = _length(block, position + 2, token & _LONG)
        length += _MIN_MATCH
        if not 0 < distance <= len(out) or len(out) + length > most:
            raise ValueError("a match reaches too far")
        start = len(out) - distance
        piece = out[start : start + length]
        out += (piece * (length // len(piece) + 1))[:length]
    raise ValueError("ends without literals")


def _length(block: bytes | memoryview, position: int, length: int) -> tuple[int, int]:
    if length == _LONG:
        while True:
            if position >= len(block):
                raise ValueError("ends inside a length")
            byte = block[position]
            position += 1
            length += byte
            if byte < 255:
                break
    return length, position


NAMES = ("none", "zlib", "snappy", "lzo", "lz4", "zstd", "brotli")
"""The codecs' names, by their numbers in ``CompressionKind``."""

HEADER_BYTES = 3
MAX_BLOCK_BYTES = 1 << 23
"""The largest block size that is read; ORC's Java reader has no limit, and its writer allows one byte less."""
MAX_CHUNK_BYTES = (1 << 23) - 1
"""The most bytes of a chunk that is stored uncompressed: a header has 23 bits for their number."""
DEFAULT_BLOCK_BYTES = 256 * 1024
LEAST_BYTES = 32 * 1024 * 1024
MOST_TIMES = 64
"""The most times its size that a compressed message may expand to; `LEAST_BYTES` if that is more."""


@dataclass(frozen=True, slots=True)
class Compression:
    """The compression of a file: the codec's name, and the most bytes of content in one chunk."""

    codec: str
    block_bytes: int

    @property
    def written_bytes(self) -> int:
        """The bytes of content in each chunk that is written, but the last one."""
        return min(self.block_bytes, MAX_CHUNK_BYTES)

    def chunks(self, data: bytes, what: str) -> Iterator[bytes]:
        """Yield the content of each chunk; without compression, all content at once.

        Raises:
            FormatError: a chunk ends early, does not decompress, or is larger than `block_bytes`; or all content
                exceeds the limit of `LEAST_BYTES` and `MOST_TIMES`.
            UnsupportedFileError: the codec is not supported.
            ConfigError: the codec needs pyarrow, which is not installed.
        """
        for _, content in self.located_chunks(data, what):
            yield content

    def located_chunks(self, data: bytes, what: str) -> Iterator[tuple[int, bytes]]:
        """Yield the offset and the content of each chunk; without compression, all content at once.

        Raises:
            FormatError, UnsupportedFileError, ConfigError: as `chunks`.
        """
        if self.codec == "none":
            yield 0, data
            return
        position, left = 0, max(LEAST_BYTES, MOST_TIMES * len(data))
        while position < len(data):
            start = position
            header = int.from_bytes(data[position : position + HEADER_BYTES], "little")
            position += HEADER_BYTES
            size = header >> 1
            chunk = data[position : position + size]
            if len(chunk) != size or position > len(data):
                raise FormatError(f"{what}: a chunk of {size} bytes; expected at most the {len(chunk)} that are left")
            if header & 1 and size > self.block_bytes:
                raise FormatError(f"{what}: a chunk holds {size} bytes; expected at most {self.block_bytes}")
            content = chunk if header & 1 else self.inflate_chunk(chunk, what)
            position += size
            left -= len(content)
            if left < 0:
                most = max(LEAST_BYTES, MOST_TIMES * len(data))
                raise FormatError(f"{what}: {len(data)} bytes become more than {most}; expected fewer")
            yield start, content

    def inflate(self, data: bytes, what: str) -> bytes:
        """Return the content of all chunks.

        Raises:
            FormatError, UnsupportedFileError, ConfigError: as `chunks`.
        """
        return b"".join(self.chunks(data, what))

    def deflate(self, content: bytes) -> bytes:
        """Return content as chunks; a chunk is stored uncompressed if compression saves nothing."""
        return b"".join(self.deflated_chunks(content))

    def deflated_chunks(self, content: bytes) -> Iterator[bytes]:
        """Yield content chunk by chunk, with headers; every chunk but the last has `written_bytes` of content."""
        if self.codec == "none":
            yield content
            return
        for start in range(0, len(content), self.written_bytes):
            original = content[start : start + self.written_bytes]
            packed = self._deflate_chunk(original)
            kept, flag = (packed, 0) if len(packed) < len(original) else (original, 1)
            yield (len(kept) << 1 | flag).to_bytes(HEADER_BYTES, "little") + kept

    def inflate_chunk(self, chunk: bytes | memoryview, what: str) -> bytes:
        """Return the content of one compressed chunk, without its header.

        Raises:
            FormatError: it does not decompress, or is larger than `block_bytes`.
            UnsupportedFileError, ConfigError: as `chunks`.
        """
        try:
            content = _INFLATE[self.codec](chunk, self.block_bytes)
        except KeyError as error:
            raise UnsupportedFileError(
                f"{what}: {self.codec} is not decompressed here; allowed: {ALLOWED}; {WRITE_ORC_ANEW}"
            ) from error
        except (OSError, ValueError, zlib.error) as error:
            raise FormatError(
                f"{what}: a chunk of {len(chunk)} bytes is no {self.codec}; expected such data"
            ) from error
        if len(content) > self.block_bytes:
            raise FormatError(f"{what}: a chunk holds {len(content)} bytes; expected at most {self.block_bytes}")
        return content

    def _deflate_chunk(self, content: bytes) -> bytes:
        if self.codec == "zlib":
            deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
            return deflater.compress(content) + deflater.flush()
        if self.codec in ("snappy", "zstd"):
            return bytes(_codec(self.codec).compress(content, asbytes=True))
        return content


def _inflate_zlib(chunk: bytes | memoryview, most: int) -> bytes:
    inflater = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    content = inflater.decompress(chunk, most + 1)
    if not inflater.eof and len(content) <= most:
        raise ValueError("ends early")
    return content


def _inflate_snappy(chunk: bytes | memoryview, most: int) -> bytes:
    size = snappy_size(chunk)
    if size > most:
        raise ValueError(f"{size} bytes are announced")
    return bytes(_codec("snappy").decompress(chunk, size, asbytes=True))


def _inflate_zstd(chunk: bytes | memoryview, most: int) -> bytes:
    pyarrow = _pyarrow("zstd")
    size = zstd_size(chunk)
    if size and size <= most:
        return bytes(_codec("zstd").decompress(chunk, size, asbytes=True))
    with pyarrow.CompressedInputStream(pyarrow.BufferReader(chunk), "zstd") as stream:
        return bytes(stream.read(most + 1))


_INFLATE = {"zlib": _inflate_zlib, "snappy": _inflate_snappy, "zstd": _inflate_zstd, "lz4": inflate_lz4}
ALLOWED = ", ".join(("none", *sorted(_INFLATE)))


@cache
def _codec(name: str) -> Any:
    return _pyarrow(name).Codec(name)


def _pyarrow(codec: str) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ConfigError(
            f"{codec} needs pyarrow, which is not installed; run pip install 'sparkcrypt[arrow]'"
        ) from error
    return pyarrow

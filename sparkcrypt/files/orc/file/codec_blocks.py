"""The parts of codecs that pyarrow lacks: sizes of Snappy blocks and Zstandard frames, LZ4 blocks of unknown size.

Layouts: "Snappy compressed format description" (google/snappy, format_description.txt), RFC 8878 ("Zstandard Frames")
and "LZ4 Block Format Description" (lz4/lz4, doc/lz4_Block_format.md).
"""

from __future__ import annotations

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

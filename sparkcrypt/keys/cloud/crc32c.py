"""CRC-32C (Castagnoli), which Google Cloud KMS and its callers use to detect damage on the way."""

from __future__ import annotations

_POLYNOMIAL = 0x82F63B78  # reflected; RFC 3720, appendix B.4


def _row(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(_row(byte) for byte in range(256))


def crc32c(data: bytes) -> int:
    """Return the checksum of a few bytes, such as a key: a table in Python is fast enough for them."""
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF

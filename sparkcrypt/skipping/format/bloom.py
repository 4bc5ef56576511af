"""Reads, queries and makes Bloom filters in Spark's format, which has two versions.

Source: ``BloomFilterImpl``, ``BloomFilterImplV2``, ``BitArray`` and ``Murmur3_x86_32`` of Spark's ``common/sketch``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from struct import Struct, error, unpack_from

from sparkcrypt.errors import ConfigError, FormatError
from sparkcrypt.skipping.format.java_stream import pack_filter, unpack_filter

MAX_HASHES = 1024
"""Maximum number of bits that a value sets: 7 are used for 1 % of false positives, 30 for one in a billion."""
MAX_BYTES = 64 * 1024 * 1024
"""Maximum size of a new filter; upstream's default (100,000 values at 1 %) takes 120 kB."""
_INT = Struct(">i")
_V1, _V2 = 1, 2
_MASK = 0xFFFF_FFFF
_MAX_INT = 0x7FFF_FFFF
_C1, _C2 = 0xCC9E_2D51, 0x1B87_3593


class BloomFilter:
    """A set of values that tells whether a value is certainly absent or possibly present.

    Integers of every width are hashed as longs, text as UTF-8.
    """

    __slots__ = ("_bits", "_hashes", "_seed", "_size", "_version")

    def __init__(self, bits: bytearray | memoryview, hashes: int, *, version: int = _V1, seed: int = 0) -> None:
        """Store the bits, as big-endian 64-bit words like Java's, and the number of bits that a value sets."""
        self._bits, self._hashes, self._version, self._seed = bits, hashes, version, seed
        self._size = len(bits) * 8

    @classmethod
    def of_bytes(cls, data: bytes) -> BloomFilter | None:
        """Return the filter in a serialised Java object of a store; None if the object has no filter.

        Raises:
            FormatError: the bytes are no such object, or its filter is invalid.
        """
        content = unpack_filter(data)
        if content is None:
            return None
        view = memoryview(content)
        try:
            (version,), (hashes,) = _INT.unpack_from(view, 0), _INT.unpack_from(view, 4)
            seed = _INT.unpack_from(view, 8)[0] if version == _V2 else 0
            start = 12 if version == _V2 else 8
            (words,) = _INT.unpack_from(view, start)
        except error as cause:
            raise FormatError(f"Bloom filter of {len(view)} bytes; expected version, hashes and words") from cause
        bits = view[start + 4 :]
        if version not in (_V1, _V2) or not 1 <= hashes <= MAX_HASHES:
            raise FormatError(
                f"Bloom filter of version {version} with {hashes} hashes; expected 1 or 2, 1 to {MAX_HASHES}"
            )
        if words < 1 or words * 8 != len(bits):
            raise FormatError(f"Bloom filter of {words} words in {len(bits)} bytes; expected 8 bytes for each")
        return cls(bits, hashes, version=version, seed=seed)

    @classmethod
    def for_values(cls, values: int, false_positives: float) -> BloomFilter:
        """Return an empty filter of version 1.

        Args:
            values: number of distinct values that it is made for.
            false_positives: share of other values that it may report as present.

        Raises:
            ConfigError: no values, a share that is not between 0 and 1, or a filter larger than `MAX_BYTES`.
        """
        if values < 1 or not 0 < false_positives < 1:
            raise ConfigError(
                f"a Bloom filter for {values} values and a share of {false_positives}; allowed: 1 or more, and a share "
                "between 0 and 1"
            )
        bits = int(-values * math.log(false_positives) / (math.log(2) * math.log(2)))
        words = max(1, -(-bits // 64))
        if words * 8 > MAX_BYTES:
            raise ConfigError(f"a Bloom filter of {words * 8} bytes; allowed: {MAX_BYTES}; give it fewer values")
        hashes = max(1, math.floor(bits / values * math.log(2) + 0.5))
        return cls(bytearray(words * 8), min(hashes, MAX_HASHES))

    def to_bytes(self) -> bytes:
        """Return the filter as a serialised Java object, as stores contain it.

        Raises:
            FormatError: it has version 2, which is only read.
        """
        if self._version != _V1:
            raise FormatError(
                "a Bloom filter of version 2 is not written; expected version 1, which every reader knows"
            )
        head = _INT.pack(_V1) + _INT.pack(self._hashes) + _INT.pack(len(self._bits) // 8)
        return pack_filter(head + self._bits)

    def add(self, value: int | str) -> None:
        """Add a value."""
        self.add_hashes(hash_value(value, self._seed))

    def add_hashes(self, hashes: int) -> None:
        """Add a value, given its `hash_value` under the seed of this filter."""
        bits = self._bits
        for place in self._places(hashes):
            bits[_byte(place)] |= 1 << (place & 7)

    def may_hold(self, value: int | str) -> bool:
        """Tell whether a value may be present; False is certain."""
        bits = self._bits
        return all(bits[_byte(place)] >> (place & 7) & 1 for place in self._places(hash_value(value, self._seed)))

    def _places(self, hashes: int) -> Iterable[int]:
        first, second = hashes >> 32, _sign(hashes, 32)
        size = self._size
        if self._version == _V2:
            combined = first * _MAX_INT
            for _ in range(self._hashes):
                combined = _sign(combined + second, 64)
                yield (combined if combined >= 0 else ~combined) % size
            return
        for number in range(1, self._hashes + 1):
            combined = _sign(first + number * second, 32)
            yield (combined if combined >= 0 else ~combined) % size


def hash_value(value: int | str, seed: int = 0) -> int:
    """Return both 32-bit hashes that a filter uses of a value, the first one in the high bits, as a signed integer."""
    words, length = _mix_words(value)
    first = _hash_words(words, length, seed)
    return first << 32 | _hash_words(words, length, first) & _MASK


def count_fitting(size: int, false_positives: float) -> int:
    """Return the number of distinct values for which a filter of a size in bytes has a share of false positives."""
    return int(size * 8 * math.log(2) * math.log(2) / -math.log(false_positives))


def _byte(place: int) -> int:
    """Return the index of the byte that contains a bit: words are big-endian, bits are counted from the lowest."""
    return (place >> 6 << 3) + 7 - (place >> 3 & 7)


def _mix_words(value: int | str) -> tuple[list[int], int]:
    """Return the mixed words that Murmur3 hashes of a value, which do not depend on the seed, and its length in bytes.

    A long has two words; the last bytes of UTF-8 that do not fill a word are mixed in one by one.
    """
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        length = len(data)
        whole = length & ~3
        words = [*unpack_from(f"<{whole >> 2}I", data), *unpack_from(f"<{length - whole}b", data, whole)]
    else:
        words, length = [value & _MASK, value >> 32 & _MASK], 8
    mixed = [word * _C1 & _MASK for word in words]
    return [(word << 15 | word >> 17) * _C2 & _MASK for word in mixed], length


def _hash_words(words: list[int], length: int, seed: int) -> int:
    """Return the signed Murmur3 hash of mixed words."""
    state = seed & _MASK
    for word in words:
        state ^= word
        state = ((state << 13 | state >> 19) * 5 + 0xE654_6B64) & _MASK
    state ^= length
    state = (state ^ state >> 16) * 0x85EB_CA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2_AE35 & _MASK
    return _sign(state ^ state >> 16, 32)


def _sign(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number

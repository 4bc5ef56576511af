"""Bloom filters in Spark's format, which has two versions, and the serialised Java object in which a store has them.

The object is read and written without Java, and without creating any named object.  It is what ``ObjectOutputStream``
makes of an instance of Xskipper's ``BloomFilterMetaData``, whose only field is one of Spark's ``BloomFilterImpl`` (or
``BloomFilterImplV2``), which writes itself as block data::

    AC ED 00 05                                   magic and version
    73 72 <owner> …, its only field bloomFilter   the owner's class, whose base class has no fields
    73 72 <filter> …                              the filter's class; up to Spark 3.1 it described fields
    77 len … | 7A len4 …                          its block data in pieces
    78                                            the end

Class names and fields are compared; serial version UIDs are not, since those of Spark's classes differ by version.
Source: Java Object Serialization Specification, section 6; Xskipper's classes of the two names below;
``BloomFilterImpl``, ``BloomFilterImplV2``, ``BitArray`` and ``Murmur3_x86_32`` of Spark's ``common/sketch``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from struct import Struct, error, unpack_from
from typing import Final, NoReturn

from sparkcrypt.errors import ConfigError, FormatError

OWNERS: Final = (
    "io.xskipper.index.metadata.BloomFilterMetaData",
    "com.ibm.metaindex.metadata.index.types.BloomFilterMetaData",
)
"""The class with the filter: the first from version 3 of the store on, the second before."""
_BASES = ("io.xskipper.index.metadata.MetadataType", "com.ibm.metaindex.metadata.index.types.MetadataType")
_FILTERS = ("org.apache.spark.util.sketch.BloomFilterImpl", "org.apache.spark.util.sketch.BloomFilterImplV2")
_MAGIC = b"\xac\xed\x00\x05"
_NULL, _OBJECT, _CLASS, _STRING = 0x70, 0x73, 0x72, 0x74
_BLOCK, _END, _LONG_BLOCK = 0x77, 0x78, 0x7A
_SERIALIZABLE, _WRITES_ITSELF = 0x02, 0x01
_PIECE = 1024
_SHORT = 255
_MOST_FIELDS = 8

_HEAD = (
    _MAGIC
    + b"sr\x00\x2e" + OWNERS[0].encode() + b"\x00\x00\x00\x00\x00\x00\x00\x01\x02\x00\x01L\x00\x0bbloomFilter"
    + b"t\x00\x2aLorg/apache/spark/util/sketch/BloomFilter;xr\x00\x27" + _BASES[0].encode()
    + b"\x60\x3f\x5d\x1b\x7b\x76\x44\x46\x02\x00\x00xp"
    + b"sr\x00\x2c" + _FILTERS[0].encode() + b"\x83\x03\x77\x40\x76\xce\xab\xf6\x03\x00\x02I\x00\x10numHashFunctions"
    + b"L\x00\x04bitst\x00\x27Lorg/apache/spark/util/sketch/BitArray;xp"
)  # fmt: skip
"""The bytes before the block data, as Spark up to 3.1 wrote them, which every reader of a store accepts."""


def unpack_filter(data: bytes) -> bytes | None:
    """Return the block data of a Bloom filter, or None if the owner has no filter.

    Raises:
        FormatError: the bytes are not a serialised owner of a filter.
    """
    reader = _Reader(data)
    reader.expect(_MAGIC, "the magic of a Java stream")
    reader.expect(bytes((_OBJECT,)), "an object")
    reader.class_of(OWNERS, ("bloomFilter",), base=_BASES, flags=_SERIALIZABLE)
    if reader.byte("the owner's filter") == _NULL:
        reader.finish()
        return None
    reader.position -= 1
    reader.expect(bytes((_OBJECT,)), "the filter's object")
    reader.class_of(_FILTERS, ("numHashFunctions", "bits"), base=(), flags=_SERIALIZABLE | _WRITES_ITSELF)
    content = reader.blocks()
    reader.finish()
    return content


def pack_filter(content: bytes) -> bytes:
    """Return the serialised Java object that contains a filter, given its block data (version 1)."""
    parts = [_HEAD]
    for start in range(0, len(content), _PIECE):
        piece = content[start : start + _PIECE]
        size = len(piece)
        parts += [bytes((_BLOCK, size)) if size <= _SHORT else bytes((_LONG_BLOCK,)) + size.to_bytes(4, "big"), piece]
    return b"".join([*parts, bytes((_END,))])


class _Reader:
    """Reads the stream sequentially; announced lengths are checked against the bytes that are left."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, length: int, what: str) -> bytes:
        taken = self.data[self.position : self.position + length]
        if len(taken) != length:
            self.fail(f"{what} of {length} bytes", f"at most the {len(taken)} that are left")
        self.position += length
        return taken

    def byte(self, what: str) -> int:
        return self.take(1, what)[0]

    def number(self, length: int, what: str) -> int:
        return int.from_bytes(self.take(length, what), "big")

    def text(self, what: str) -> str:
        return self.take(self.number(2, what), what).decode("latin-1")

    def expect(self, wanted: bytes, what: str) -> None:
        if self.take(len(wanted), what) != wanted:
            self.fail("other bytes", what)

    def class_of(self, names: tuple[str, ...], fields: tuple[str, ...], *, base: tuple[str, ...], flags: int) -> None:
        """Read the description of a class, which must have one of these names, these flags and these fields."""
        self.expect(bytes((_CLASS,)), "the description of a class")
        if (name := self.text("a class's name")) not in names:
            self.fail(f"class {name[:80]!r}", " or ".join(names))
        self.take(8, "a serial version UID")
        if self.byte("flags") != flags:
            self.fail("a class of another kind", f"flags {flags}")
        found = self._fields()
        if base and found != list(fields):
            self.fail(f"the fields {found}", f"{list(fields)}")
        if not base and found not in ([], list(fields)):
            self.fail(f"the fields {found}", f"{list(fields)} or none")
        self.expect(bytes((_END,)), "the end of a class's annotations")
        if not base:
            self.expect(bytes((_NULL,)), "no base class")
            return
        self.class_of(base, (), base=(), flags=_SERIALIZABLE)

    def _fields(self) -> list[str]:
        count = self.number(2, "the count of fields")
        if count > _MOST_FIELDS:
            self.fail(f"{count} fields", f"at most {_MOST_FIELDS}")
        names = []
        for _ in range(count):
            kind = self.byte("a field's type")
            names.append(self.text("a field's name"))
            if kind in b"L[":
                self.expect(bytes((_STRING,)), "the name of a field's class")
                self.text("the name of a field's class")
            elif kind not in b"BCDFIJSZ":
                self.fail(f"a field of type {kind}", "a letter of Java's types")
        return names

    def blocks(self) -> bytes:
        parts = []
        while (kind := self.byte("block data")) != _END:
            if kind not in (_BLOCK, _LONG_BLOCK):
                self.fail(f"type {kind}", "block data or its end")
            parts.append(self.take(self.number(1 if kind == _BLOCK else 4, "a length"), "block data"))
        return b"".join(parts)

    def finish(self) -> None:
        if self.position != len(self.data):
            self.fail(f"{len(self.data) - self.position} bytes more", "the end")

    def fail(self, found: str, expected: str) -> NoReturn:
        raise FormatError(f"Bloom filter, offset {self.position}: {found}; expected {expected}")


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

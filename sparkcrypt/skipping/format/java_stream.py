"""Reads and writes the serialised Java object of a Bloom filter, without Java and without creating any named object.

A store contains a Bloom filter as ``ObjectOutputStream`` writes an instance of Xskipper's ``BloomFilterMetaData``,
whose only field is one of Spark's ``BloomFilterImpl`` (or ``BloomFilterImplV2``), which writes itself as block data::

    AC ED 00 05                                   magic and version
    73 72 <owner> …, its only field bloomFilter   the owner's class, whose base class has no fields
    73 72 <filter> …                              the filter's class; up to Spark 3.1 it described fields
    77 len … | 7A len4 …                          its block data in pieces
    78                                            the end

Class names and fields are compared; serial version UIDs are not, since those of Spark's classes differ by version.
Source: Java Object Serialization Specification, section 6; Xskipper's classes of the two names below.
"""

from __future__ import annotations

from typing import Final, NoReturn

from sparkcrypt.errors import FormatError

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

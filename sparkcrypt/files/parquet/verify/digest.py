"""Digests of a file's content, independent of its encryption and of the offsets of its parts.

The digests of a file and of its encrypted, decrypted or re-keyed rewrite are equal; those of two files whose pages,
bounds, schema, metadata or rows differ are not.  A digest has parts, each with a digest of its own, so that a
difference can be named, and parts that a rewrite redacts on purpose can be left out of a comparison:

==================  ===================================================================================================
part                content
==================  ===================================================================================================
schema              every schema element, in order
key_value_metadata  the footer's entries, sorted, without the keys ``sparkcrypt.*`` and ``original.created.by``
footer              the other fields of FileMetaData: version, num_rows, column_orders, unknown ones; without
                    created_by, encryption_algorithm, footer_signing_key_metadata
row_groups          of each row group num_rows and unknown fields; without offsets, sizes, ordinal
sorting_columns     of each row group
columns             of each chunk its decrypted ColumnMetaData without offsets, total sizes, encodings, encoding_stats
                    (the page headers contain both); and the unknown fields of its ColumnChunk
pages               of each chunk the pages in order: page type, header without compressed_page_size and crc, bytes
                    before encryption (still compressed; levels of V2 pages included)
column_indexes      of each chunk that has one, all of it
offset_indexes      of each chunk that has one, without PageLocation.offset and compressed_page_size
bloom_filters       of each chunk that has one, header and bit set
==================  ===================================================================================================

Everything is framed with the indices of row group and column in the footer, and with lengths.  Structs are digested in
their compact encoding with fields by ascending id.  Digests are SHA-256, or HMAC-SHA-256 under a key: an attacker who
guesses the content can confirm it by an unkeyed digest, so digests that are stored should be keyed.  Under a key the
bytes of pages enter the HMAC as fingerprints (GMAC under a key derived from it), which takes a tenth of the time.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from struct import pack
from typing import Final, Protocol, TypeAlias

from sparkcrypt.files.parquet.file.modules import SecretFingerprint
from sparkcrypt.files.parquet.thrift.compact import List, Struct, Value, encode_struct
from sparkcrypt.files.parquet.thrift.metadata import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    KeyValue,
    OffsetIndex,
    PageHeader,
    PageLocation,
    RowGroup,
)

DIGEST_PARTS: Final = (
    "schema",
    "key_value_metadata",
    "footer",
    "row_groups",
    "sorting_columns",
    "columns",
    "pages",
    "column_indexes",
    "offset_indexes",
    "bloom_filters",
)
OWN_KEYS_PREFIX = "sparkcrypt."
ORIGINAL_CREATED_BY = "original.created.by"
"""The entry in which rewriters keep the ``created_by`` that they replace."""

Digests: TypeAlias = Mapping[str, str]
"""Digest part -> lower-case hexadecimal."""

_FOOTER_LESS = frozenset(
    field.key
    for field in (
        FileMetaData.schema,
        FileMetaData.row_groups,
        FileMetaData.key_value_metadata,
        FileMetaData.created_by,
        FileMetaData.encryption_algorithm,
        FileMetaData.footer_signing_key_metadata,
    )
)
_ROW_GROUP_LESS = frozenset(
    field.key
    for field in (
        RowGroup.columns,
        RowGroup.total_byte_size,
        RowGroup.sorting_columns,
        RowGroup.file_offset,
        RowGroup.total_compressed_size,
        RowGroup.ordinal,
    )
)
_CHUNK_LESS = frozenset(
    field.key
    for field in (
        ColumnChunk.file_offset,
        ColumnChunk.meta_data,
        ColumnChunk.offset_index_offset,
        ColumnChunk.offset_index_length,
        ColumnChunk.column_index_offset,
        ColumnChunk.column_index_length,
        ColumnChunk.crypto_metadata,
        ColumnChunk.encrypted_column_metadata,
    )
)
_META_DATA_LESS = frozenset(
    field.key
    for field in (
        ColumnMetaData.encodings,
        ColumnMetaData.total_uncompressed_size,
        ColumnMetaData.total_compressed_size,
        ColumnMetaData.data_page_offset,
        ColumnMetaData.index_page_offset,
        ColumnMetaData.dictionary_page_offset,
        ColumnMetaData.encoding_stats,
        ColumnMetaData.bloom_filter_offset,
        ColumnMetaData.bloom_filter_length,
    )
)
_LOCATION_LESS = frozenset({PageLocation.offset.key, PageLocation.compressed_page_size.key})
_FINGERPRINT = b"sparkcrypt content 1 page bytes"
_COMPRESSED, _CRC = PageHeader.compressed_page_size.key, PageHeader.crc.key
_LOCATIONS = OffsetIndex.page_locations.key


class _Hash(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


class ContentDigest:
    """The digests of a file's content, which is added part by part.

    Within a part, content must be added in the file's order of row groups, columns and pages.  Parts may be
    interleaved, so that one pass over the data can add pages as they are read and indexes afterwards.
    """

    __slots__ = ("_fingerprint", "_hashes", "_key", "_pages")

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key
        self._hashes = {part: self._new_hash(part) for part in DIGEST_PARTS}
        self._pages = self._hashes["pages"].update
        self._fingerprint = None if key is None else SecretFingerprint(hmac.digest(key, _FINGERPRINT, "sha256"))

    def page(self, row_group: int, column: int, header: Struct, *body: bytes | memoryview) -> None:
        """Add a page: its plaintext header, and its bytes before encryption in one or more pieces."""
        wire = encode_struct(Struct(sorted([(k, v) for k, v in header.items() if k != _COMPRESSED and k != _CRC])))
        update = self._pages
        update(pack("<IIIQ", row_group, column, len(wire), sum(map(len, body))))
        update(wire)
        if self._fingerprint is not None:
            pieces = [piece for piece in body if len(piece)]
            body = (self._fingerprint.next_fingerprint(pieces[0] if len(pieces) == 1 else b"".join(pieces)),)
        for piece in body:
            update(piece)

    def column(self, row_group: int, column: int, chunk: Struct, meta_data: Struct) -> None:
        """Add a chunk's ``ColumnChunk`` and its decrypted ``ColumnMetaData``."""
        self._add(
            "columns",
            row_group,
            column,
            _encode_without(chunk, _CHUNK_LESS),
            _encode_without(meta_data, _META_DATA_LESS),
        )

    def column_index(self, row_group: int, column: int, index: Struct) -> None:
        """Add a chunk's column index."""
        self._add("column_indexes", row_group, column, _encode_without(index))

    def offset_index(self, row_group: int, column: int, index: Struct) -> None:
        """Add a chunk's offset index."""
        locations = index.get(_LOCATIONS)
        found = locations if isinstance(locations, List) else ()
        rest = [_encode_without(entry, _LOCATION_LESS) for entry in found if isinstance(entry, Struct)]
        self._add("offset_indexes", row_group, column, _encode_without(index, frozenset({_LOCATIONS})), *rest)

    def bloom_filter(self, row_group: int, column: int, header: Struct, bitset: bytes | memoryview) -> None:
        """Add a chunk's Bloom filter."""
        self._add("bloom_filters", row_group, column, _encode_without(header), bitset)

    def footer(self, metadata: FileMetaData, rows: int) -> None:
        """Add the footer and its row groups, without their column chunks.

        Args:
            metadata: the footer.
            rows: the file's number of rows, since a footer's ``num_rows`` may be 0 over row groups with rows.
        """
        struct = Struct({**metadata.struct, FileMetaData.num_rows.key: rows})
        self._add("footer", 0, 0, _encode_without(struct, _FOOTER_LESS))
        self._add("schema", 0, 0, *_encode_structs(struct.get(FileMetaData.schema.key)))
        entries = _encoded_key_values(struct.get(FileMetaData.key_value_metadata.key))
        self._add("key_value_metadata", 0, 0, *sorted(entries))
        for index, row_group in enumerate(metadata.row_groups):
            self._add("row_groups", index, 0, _encode_without(row_group.struct, _ROW_GROUP_LESS))
            if order := row_group.struct.get(RowGroup.sorting_columns.key):
                self._add("sorting_columns", index, 0, *_encode_structs(order))

    def digests(self) -> dict[str, str]:
        """Return the digest of each part."""
        return {part: found.hexdigest() for part, found in self._hashes.items()}

    def digest(self) -> str:
        """Return the digest of all parts."""
        return combined_digest(self.digests(), self._key)

    def _add(self, part: str, row_group: int, column: int, *pieces: bytes | memoryview) -> None:
        update = self._hashes[part].update
        update(pack("<III", row_group, column, len(pieces)))
        for piece in pieces:
            update(pack("<Q", len(piece)))
            update(piece)

    def _new_hash(self, part: str) -> _Hash:
        return _hash(self._key, f"sparkcrypt content 1 {part}\n".encode())


def combined_digest(digests: Digests, key: bytes | None = None) -> str:
    """Return the digest of a whole file from those of its parts."""
    text = "".join(f"{part}={digests[part]}\n" for part in DIGEST_PARTS)
    return _hash(key, f"sparkcrypt content 1\n{text}".encode()).hexdigest()


def _hash(key: bytes | None, begin: bytes) -> _Hash:
    return hashlib.sha256(begin) if key is None else hmac.new(key, begin, "sha256")


def _encode_without(struct: Struct, keys: frozenset[int] = frozenset()) -> bytes:
    return encode_struct(Struct({key: struct[key] for key in sorted(struct) if key not in keys}))


def _encode_structs(value: Value | None) -> list[bytes]:
    return [_encode_without(entry) for entry in value if isinstance(entry, Struct)] if isinstance(value, List) else []


def _encoded_key_values(entries: Value | None) -> list[bytes]:
    own, original = OWN_KEYS_PREFIX.encode(), ORIGINAL_CREATED_BY.encode()
    found = []
    for entry in entries if isinstance(entries, List) else ():
        name = entry.get(KeyValue.key.key) if isinstance(entry, Struct) else None
        ours = isinstance(name, bytes) and (name.startswith(own) or name == original)
        if isinstance(entry, Struct) and not ours:
            found.append(_encode_without(entry))
    return found

"""Authenticates every encrypted module of a file, checks its structure, and digests its content."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from sparkcrypt.errors import ConfigError, FormatError, VerificationError
from sparkcrypt.files.parquet.file.footer import (
    NOTHING_KNOWN,
    ColumnCrypto,
    Footer,
    KnownColumns,
    Mode,
    check_dark,
    check_magic_and_unique,
    footer_of,
    known_aad,
)
from sparkcrypt.files.parquet.file.layout import Layout
from sparkcrypt.files.parquet.file.modules import AadPrefix, FileCiphers, ModuleType, RetrieveKey
from sparkcrypt.files.parquet.file.schema import LeafLevels, leaf_levels, leaf_types
from sparkcrypt.files.parquet.pages.chunk import ChunkKey, PartName, claim_regions
from sparkcrypt.files.parquet.pages.leniency import (
    check_in_this_file,
    check_redacted,
    check_row_group_size,
    check_type,
    order_row_groups,
    row_count,
    whole_chunk,
)
from sparkcrypt.files.parquet.summary import FileSummary, summarise
from sparkcrypt.files.parquet.thrift.compact import decode_struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, ColumnMetaData, FileMetaData, RowGroup
from sparkcrypt.files.parquet.verify.chunk import ChunkCheck, ChunkPlace, FileCheck, Unauthenticated, check_nulls
from sparkcrypt.files.parquet.verify.digest import DIGEST_PARTS, ContentDigest, combined_digest
from sparkcrypt.files.source import Input, Source, naming, open_source
from sparkcrypt.names import Algorithm
from sparkcrypt.schema import Path, join_dotted

ExpectedDigest: TypeAlias = str | Mapping[str, str]
"""The `Verification.digest` of another file, or those of its ``digests`` that must be equal."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of verifying a file.

    ``authenticated`` is ``all`` if a holder of the keys wrote the footer and every module of every encrypted column;
    otherwise ``not_authenticated`` lists what is not authenticated.  ``in_clear`` lists what a plaintext footer says of
    the values of encrypted columns.  ``plaintext_columns`` are not covered: nothing
    authenticates their pages, as in any Parquet file.  ``modules`` is the number of encrypted modules, including the
    footer.  ``opened`` is the footer as it was read.  ``digest`` is that of the whole content, ``digests`` those of its
    parts, which `sparkcrypt.files.parquet.verify.digest` lists.
    """

    file: str
    authenticated: Literal["all", "partial"]
    not_authenticated: tuple[str, ...]
    plaintext_columns: tuple[tuple[str, ...], ...]
    footer: Mode
    algorithm: Algorithm | None
    modules: int
    rows: int
    row_groups: int
    opened: Footer = field(repr=False)
    in_clear: tuple[str, ...] = ()
    digest: str = field(default="", repr=False)
    digests: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def unauthenticated(self) -> tuple[str, ...]:
        """What nothing authenticates in an encrypted file; nothing for a file in plaintext."""
        return () if self.footer == "plaintext" else self.not_authenticated

    @property
    def summary(self) -> FileSummary:
        """The summary of the footer that was verified."""
        return summarise(self.opened)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, without digests: digests of plaintext confirm guesses of the content."""
        return {
            "file": self.file,
            "authenticated": self.authenticated,
            "not_authenticated": list(self.not_authenticated),
            "in_clear": list(self.in_clear),
            "plaintext_columns": [join_dotted(path) for path in self.plaintext_columns],
            "footer": self.footer,
            "algorithm": self.algorithm,
            "modules": self.modules,
            "rows": self.rows,
            "row_groups": self.row_groups,
        }


def verify_file(
    source: Source,
    *,
    retrieve_key: RetrieveKey | None = None,
    aad_prefix: AadPrefix | None = None,
    equal_to: ExpectedDigest | None = None,
    digest_key: bytes | None = None,
    known: KnownColumns = NOTHING_KNOWN,
) -> Verification:
    """Authenticate a whole file and check its structure: footer, column metadata, pages, indexes and Bloom filters.

    Every part must be inside the file's data and overlap no other; counts of values, rows and pages must agree between
    metadata, pages and indexes; ordinals must differ.

    Args:
        source: as `read_footer`.
        retrieve_key: called once for every key of the file; not needed for a file that is not encrypted.
        aad_prefix: as `read_footer`.
        equal_to: the digest that the file must have, such as the `Verification.digest` of its source; or a mapping with
            the parts of `Verification.digests` that must be equal, if a rewrite has dropped others on purpose.
        digest_key: makes the digests HMACs.  Use one if they are stored: unkeyed ones confirm guesses of the content.
        known: of dark columns, purged or not, no data are checked or digested; chunks of columns that must hold only
            nulls are checked, but not digested.

    Raises:
        FormatError: the file violates the specification.
        VerificationError: something does not authenticate, the file-unique is not 8 bytes, the content is not that of
            ``equal_to``, or a column that must hold only nulls holds a value.
        ConfigError: the file is encrypted and ``retrieve_key``, or a prefix that it does not store, is missing; or
            ``equal_to`` has an unknown part, or a dark column has no key of its own.
    """
    with open_source(source) as file:
        ciphers = None if retrieve_key is None else FileCiphers(file.name, retrieve_key)
        footer = footer_of(file, ciphers, aad_prefix)
        with naming(file.name):
            found = _Check(file, footer, ciphers, known, digest_key).run()
            if equal_to is not None:
                _check_equal(found, equal_to)
            return found


def verify_keys(
    source: Source, *, retrieve_key: RetrieveKey, aad_prefix: AadPrefix | None = None, dark: Collection[Path] = ()
) -> FileSummary:
    """Authenticate the footer, and the column metadata of every column that has a key of its own.

    This proves that each key of the file, except those of dark columns, can be retrieved and is the right one.  Pages
    are not read.

    Args:
        source: as `read_footer`.
        retrieve_key: called once for every key of the file.
        aad_prefix: as `read_footer`.
        dark: columns whose keys can no longer be opened; they are left unopened.

    Raises:
        FormatError, VerificationError: as `verify_file`.
        ConfigError: the AAD prefix is not stored in the file and none was given; or a dark column has no own key.
    """
    with open_source(source) as file:
        ciphers = FileCiphers(file.name, retrieve_key)
        footer = footer_of(file, ciphers, aad_prefix)
        open_every_key(file, footer, ciphers, dark)
        return summarise(footer)


def open_every_key(file: Input, footer: Footer, ciphers: FileCiphers, dark: Collection[Path] = ()) -> None:
    """Open each key of an open file whose footer was read; see `verify_keys`."""
    with naming(file.name):
        _Check(file, footer, ciphers, KnownColumns(dark)).open_keys()


def verify_opened(file: Input, footer: Footer, ciphers: FileCiphers, known: KnownColumns) -> Verification:
    """Authenticate an open file whose footer was read; see `verify_file`.

    Its digests are under a random key, so they are equal to no other's.
    """
    with naming(file.name):
        return _Check(file, footer, ciphers, known, os.urandom(32)).run()


def _check_equal(found: Verification, expected: ExpectedDigest) -> None:
    if isinstance(expected, str):
        differing = [] if found.digest == expected else ["digest"]
    else:
        if unknown := sorted(set(expected) - set(DIGEST_PARTS)):
            raise ConfigError(f"digest parts {unknown} are unknown; allowed: {', '.join(DIGEST_PARTS)}")
        differing = [part for part in DIGEST_PARTS if part in expected and found.digests[part] != expected[part]]
    if differing:
        raise VerificationError(
            f"the content differs from what is expected in: {', '.join(differing)}; it is not a faithful rewrite, so "
            "keep the source and write it again"
        )


_Leaf: TypeAlias = tuple[ColumnCrypto, LeafLevels, int, str]
"""A leaf column, its levels, its physical type, and its path as text, which is built once."""
_Chunk: TypeAlias = tuple[ChunkPlace, ColumnChunk, ColumnMetaData]


class _Check:
    """The verification of one file."""

    def __init__(
        self,
        file: Input,
        footer: Footer,
        ciphers: FileCiphers | None,
        known: KnownColumns,
        digest_key: bytes | None = None,
    ) -> None:
        self.file = file
        self.footer = footer
        self.ciphers = ciphers
        self.digest_key = digest_key
        self.known, self.dark = known, frozenset((*known.dark, *known.purged))
        metadata = footer.metadata
        self.writer = None if metadata is None else metadata.created_by
        self.in_clear: dict[str, None] = {}
        self.shared = FileCheck(file, Layout(footer.offset), ContentDigest(digest_key))

    def open_keys(self) -> None:
        metadata, _, leaves = self.open_footer()
        for _, chunks in self.row_groups(metadata, leaves):
            for _ in chunks:  # each chunk's metadata is opened
                pass

    def open_footer(self) -> tuple[FileMetaData, tuple[ColumnCrypto, ...], list[_Leaf]]:
        footer = self.footer
        metadata, columns = footer.metadata, footer.columns
        if self.known.check is not None:
            self.known.check(summarise(self.footer))
        check_magic_and_unique(self.file, footer)
        if footer.mode != "plaintext":
            self.check_keys()
        if metadata is None or columns is None:
            raise ConfigError(f"{footer.file}: the footer is encrypted and no key is given; pass retrieve_key")
        check_dark(columns, self.dark)
        schema = zip(columns, leaf_levels(metadata), leaf_types(metadata), strict=True)
        return metadata, columns, [(*leaf, join_dotted(leaf[0].path)) for leaf in schema]

    def run(self) -> Verification:
        footer, shared = self.footer, self.shared
        metadata, columns, leaves = self.open_footer()
        shared.digest.footer(metadata, rows := row_count(metadata))
        for _, chunks in self.row_groups(metadata, leaves):  # before a page is read, so that none is read twice
            for place, chunk, meta_data in chunks:
                claim_regions(shared.layout, chunk, meta_data, PartName(place.dotted, place.row_group))
        shared.layout.check_apart()
        for index, (row_group, chunks) in enumerate(self.row_groups(metadata, leaves)):
            size = 0
            for place, chunk, meta_data in chunks:
                shared.modules += place.key is not None and chunk.encrypted_column_metadata is not None
                self.check_chunk(place, chunk, meta_data, nulls=columns[place.column].path in self.known.nulls)
                size += meta_data.total_compressed_size
            if footer.mode != "plaintext" and not self.dark:  # sizes by old writers of plaintext files are unreliable
                check_row_group_size(row_group, size, f"row group {index}")
        return self.result(metadata, columns, rows)

    def check_chunk(self, place: ChunkPlace, chunk: ColumnChunk, meta_data: ColumnMetaData, *, nulls: bool) -> None:
        if not nulls:
            ChunkCheck(self.shared, place, chunk, meta_data).run()
            return
        apart = replace(self.shared, digest=ContentDigest(), modules=0)
        ChunkCheck(apart, place, chunk, meta_data).run()
        check_nulls(apart, place, meta_data)
        self.shared.modules += apart.modules

    def row_groups(self, metadata: FileMetaData, leaves: list[_Leaf]) -> Iterator[tuple[RowGroup, Iterator[_Chunk]]]:
        """Yield each row group with its chunks and their decrypted metadata."""
        for index, (row_group, ordinal) in enumerate(
            order_row_groups(metadata, encrypted=self.footer.mode != "plaintext")
        ):
            yield row_group, self.chunks(row_group, index, ordinal, leaves)

    def chunks(self, row_group: RowGroup, index: int, ordinal: int, leaves: list[_Leaf]) -> Iterator[_Chunk]:
        for column, (chunk, leaf) in enumerate(zip(row_group.columns, leaves, strict=True)):
            if leaf[0].path in self.dark:
                continue
            place = self.place(row_group, (index, ordinal, column), leaf)
            meta_data = self.open_meta_data(chunk, place)
            check_type(meta_data, leaf[2], place.name)
            yield place, chunk, meta_data

    def result(self, metadata: FileMetaData, columns: tuple[ColumnCrypto, ...], rows: int) -> Verification:
        footer = self.footer
        gaps = [_gap(*gap) for gap in self.shared.gaps]
        gaps.extend(f"column {join_dotted(path)}: its key is gone" for path in sorted(self.dark))
        if footer.mode == "plaintext":
            gaps.insert(0, "the file is not encrypted")
        digests = self.shared.digest.digests()
        return Verification(
            footer.file,
            "partial" if gaps else "all",
            tuple(gaps),
            tuple(crypto.path for crypto in columns if crypto.encrypted is False),
            footer.mode,
            footer.algorithm,
            self.shared.modules,
            rows,
            len(metadata.row_groups),
            footer,
            tuple(self.in_clear),
            combined_digest(digests, self.digest_key),
            digests,
        )

    def check_keys(self) -> None:
        if self.ciphers is None:
            raise ConfigError(f"{self.footer.file}: the file is encrypted and no key is given; pass retrieve_key")
        self.shared.modules += 1

    def place(self, row_group: RowGroup, numbers: tuple[int, int, int], leaf: _Leaf) -> ChunkPlace:
        (index, ordinal, column), (crypto, level, _, name) = numbers, leaf
        key = None
        if crypto.encrypted and self.ciphers is not None and self.footer.algorithm is not None:
            owner = (crypto.path, crypto.key_metadata) if crypto.own_key else (None, self.footer.footer_key_metadata)
            cipher, aad = self.ciphers.cipher(*owner), known_aad(self.footer)
            key = ChunkKey(cipher, aad, self.footer.algorithm, crypto.path, ordinal, column)
        return ChunkPlace(index, column, name, row_group.num_rows, level.repetition > 0, key)

    def open_meta_data(self, chunk: ColumnChunk, place: ChunkPlace) -> ColumnMetaData:
        check_in_this_file(chunk, place.name)
        framed = chunk.encrypted_column_metadata
        if framed is None or place.key is None:  # in clear, or part of the authenticated footer
            if chunk.meta_data is None:
                raise FormatError(f"the column metadata of {place.name} is missing; expected it in clear or encrypted")
            if place.key is not None:
                return chunk.meta_data
            return whole_chunk(self.file, chunk.meta_data, self.shared.layout.limit, self.writer, place.name)
        sealed = ColumnMetaData(decode_struct(place.key.open(framed, ModuleType.COLUMN_META_DATA))[0])
        if chunk.meta_data is not None:
            check_redacted(chunk.meta_data, sealed, place.name)
            found = [name for key, name in _OF_VALUES.items() if key in chunk.meta_data.struct]
            self.in_clear.update((f"{name} of column {place.dotted}", None) for name in found)
        return sealed


_OF_VALUES = {
    ColumnMetaData.statistics.key: "statistics",
    ColumnMetaData.size_statistics.key: "size statistics",
    ColumnMetaData.geospatial_statistics.key: "geospatial statistics",
}


def _gap(gap: Unauthenticated, column: str) -> str:
    if gap == "page":
        return f"pages of column {column}: AES_GCM_CTR_V1 does not authenticate them"
    return f"levels of column {column}: its V2 pages keep them in clear, unauthenticated"

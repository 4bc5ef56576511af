"""Rewrites a file under another encryption, or none, in one pass that decodes no page."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import TypeAlias

from sparkcrypt.errors import ConfigError, FormatError, UnsupportedFileError
from sparkcrypt.files.output import Output, RewriteResult, Target, open_target
from sparkcrypt.files.parquet.file.footer import Footer, check_dark, check_magic_and_unique, footer_of
from sparkcrypt.files.parquet.file.layout import Layout
from sparkcrypt.files.parquet.file.modules import MAX_ORDINAL, AadPrefix, FileCiphers, ModuleType, RetrieveKey
from sparkcrypt.files.parquet.file.schema import PATHS_SIZE, Path, leaf_levels, leaf_paths, leaf_types, paths_size
from sparkcrypt.files.parquet.pages.chunk import claim_regions
from sparkcrypt.files.parquet.pages.leniency import check_row_group_size, row_count
from sparkcrypt.files.parquet.rewrite.chunk import Notes, TargetChunk, write_bloom_filter, write_index, write_pages
from sparkcrypt.files.parquet.rewrite.encryption import ChunkSeal, FileCipherSuite, FileEncryption
from sparkcrypt.files.parquet.rewrite.footer_writer import (
    FooterSeal,
    cut_order,
    in_id_order,
    magic,
    protect,
    redact_key_values,
    redact_order,
    write_footer,
)
from sparkcrypt.files.parquet.rewrite.source_chunk import (
    SourceChunk,
    make_null_chunk,
    refuse_not_nullable,
    source_chunks,
)
from sparkcrypt.files.parquet.summary import FileSummary, summarise
from sparkcrypt.files.parquet.thrift.compact import STRUCT, List, Struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnMetaData, FileMetaData, RowGroup
from sparkcrypt.files.source import Input, Source, naming, open_source
from sparkcrypt.schema import SHREDDED, join_dotted

Encryption: TypeAlias = FileEncryption | Callable[[FileSummary], FileEncryption | None] | None
"""The encryption of the target, None for plaintext; a callable is called with the summary of the source's footer."""

_TIMES = 8
"""How many times `PATHS_SIZE` the paths in all row groups of a target may take, if its source leaves paths out."""
_MAX_I64 = 0x7FFF_FFFF_FFFF_FFFF


def rewrite_file(
    source: Source,
    target: Target,
    *,
    retrieve_key: RetrieveKey | None = None,
    encryption: Encryption = None,
    aad_prefix: AadPrefix | None = None,
    purge: Collection[Path] = (),
) -> RewriteResult:
    """Write the source's pages to the target under another encryption, or none.

    Pages keep their encoding, compression and order; statistics, indexes, Bloom filters, key-value metadata and the
    name of the writer stay unchanged.  Only the largest page, the footer and the page indexes are held in memory.

    Args:
        source: as `read_footer`.
        target: a path or a (pyarrow filesystem, path) that does not exist yet; the file appears there whole or not at
            all.
        retrieve_key: called once for each data key of an encrypted source.
        encryption: of the target; None writes plaintext.
        aad_prefix: of the source, as `read_footer`.
        purge: columns whose keys no longer exist: none of their data are read, and nulls replace them.

    Raises:
        FormatError: the source violates the specification.
        UnsupportedFileError: it has something that no encrypted file can have, or a column to purge cannot hold nulls:
            see the message.
        VerificationError: a module of the source does not authenticate, or the CRC of a page is not that of its
            bytes.
        ConfigError: the target already exists, a key is missing, the encryption names an unknown column, or a column to
            purge has no key of its own.
    """
    with ExitStack() as stack:
        file = stack.enter_context(open_source(source))
        ciphers = None if retrieve_key is None else FileCiphers(file.name, retrieve_key)
        footer = footer_of(file, ciphers, aad_prefix)
        chosen = encryption(summarise(footer)) if callable(encryption) else encryption
        stack.enter_context(naming(file.name))
        job = _Rewrite(file, footer, ciphers, chosen, purge)
        output = stack.enter_context(open_target(target, file.access))
        job.write(output, stack)
        return RewriteResult(tuple(job.notes.gaps), tuple(job.notes.texts))


def _layout(row_groups: list[list[SourceChunk]], limit: int, purge: Collection[Path]) -> Layout:
    """Return the source's regions, after checking that none overlap, so that no bytes are written twice."""
    layout = Layout(limit)
    for chunks in row_groups:
        for chunk in (known for known in chunks if known.path not in purge):
            claim_regions(layout, chunk.chunk, chunk.metadata, chunk.part)
    layout.check_apart()
    return layout


class _Rewrite:
    """A rewrite of one file."""

    def __init__(
        self,
        file: Input,
        footer: Footer,
        ciphers: FileCiphers | None,
        encryption: FileEncryption | None,
        purge: Collection[Path],
    ) -> None:
        if footer.metadata is None or footer.columns is None or (footer.mode != "plaintext" and ciphers is None):
            raise ConfigError(f"{file.name}: the file is encrypted and no key is given; pass retrieve_key")
        self.file = file
        self.footer = footer
        self.ciphers = ciphers
        self.metadata: FileMetaData = footer.metadata
        self.rows = row_count(footer.metadata)
        self.paths = leaf_paths(footer.metadata)
        self.notes = Notes()
        self.purge = purge
        check_dark(footer.columns, purge)
        for path, levels in zip(self.paths, leaf_levels(footer.metadata), strict=True):
            if path in purge:
                refuse_not_nullable(path, levels)
        check_magic_and_unique(file, footer)
        self.suite = None if encryption is None else FileCipherSuite(encryption, self.paths)
        if encryption is not None and max(len(self.metadata.row_groups), len(self.paths)) > MAX_ORDINAL + 1:
            raise UnsupportedFileError(
                f"more than {MAX_ORDINAL + 1} row groups or columns, the most that encryption can number; use the "
                "Spark engine, or write larger row groups"
            )
        if encryption is not None:
            self._check_paths()
        if self._redacts():
            self._refuse_shredded()

    def _check_paths(self) -> None:
        """Check the size of the column paths in the target's footer, which has each path in every row group."""
        size, most = len(self.metadata.row_groups) * paths_size(self.paths), max(_TIMES * PATHS_SIZE, self.file.size)
        if size > most:
            raise FormatError(f"column paths in all row groups would take {size} bytes; expected at most {most}")

    def _refuse_shredded(self) -> None:
        """Refuse a VARIANT whose objects' keys are names in the schema, if a part of it is encrypted."""
        assert self.suite is not None  # noqa: S101 - `_redacts` says so
        known = set(self.paths)
        for path, cipher in zip(self.paths, self.suite.columns, strict=True):
            at = path.index(SHREDDED) if SHREDDED in path else 0
            if cipher is not None and at and len(path) > at + 1 and (*path[:at], "metadata") in known:
                raise UnsupportedFileError(
                    f"column {join_dotted(path[:at])} is a VARIANT that is shredded by the keys of its objects, which "
                    "would be in clear in a plaintext footer; use the Spark engine, which writes it whole, or footer "
                    "mode encrypted"
                )

    def write(self, output: Output, stack: ExitStack) -> None:
        sources = self._sources(stack)
        layout = _layout(sources, self.footer.offset, self.purge)
        self._check_sizes(sources)
        output.write(magic(self.suite))
        seal: Callable[[int, int], ChunkSeal | None] = (lambda *_: None) if self.suite is None else self.suite.seal
        groups: list[list[TargetChunk]] = []
        for number, group in enumerate(sources):
            groups.append(
                [write_pages(chunk, output, seal(number, column), self.notes) for column, chunk in enumerate(group)]
            )
        for module in (ModuleType.COLUMN_INDEX, ModuleType.OFFSET_INDEX):
            for chunks in groups:
                for chunk in chunks:
                    write_index(chunk, output, module)
        for chunks in groups:
            for chunk in chunks:
                write_bloom_filter(chunk, output, layout)
        write_footer(
            output,
            self._footer(groups),
            None if self.suite is None else FooterSeal.of(self.suite),
            {} if self.suite is None else self.suite.encryption.key_values,
        )

    def _sources(self, stack: ExitStack) -> list[list[SourceChunk]]:
        """Return the chunks of each row group in schema order; columns to purge are chunks of nulls."""
        found, leaves = [], tuple(zip(self.paths, leaf_types(self.metadata), strict=True))
        sources = source_chunks(self.file, self.footer, self.ciphers, self.purge)
        for number, (group, chunks) in enumerate(zip(self.metadata.row_groups, sources, strict=True)):
            rows = group.num_rows
            found.append(
                [
                    make_null_chunk(stack, path, kind, number, rows) if path in self.purge else next(chunks)
                    for path, kind in leaves
                ]
            )
        return found

    def _check_sizes(self, sources: list[list[SourceChunk]]) -> None:
        if self.footer.mode != "plaintext" and not self.purge:  # sizes by old writers of plaintext files are unreliable
            for index, (group, chunks) in enumerate(zip(self.metadata.row_groups, sources, strict=True)):
                size = sum(chunk.metadata.total_compressed_size for chunk in chunks)
                check_row_group_size(group, size, f"row group {index}")

    def _footer(self, groups: list[list[TargetChunk]]) -> Struct:
        metadata = Struct(self.metadata.struct)
        rewritten = [
            self._row_group(index, group, chunks)
            for index, (group, chunks) in enumerate(zip(self.metadata.row_groups, groups, strict=True))
        ]
        metadata[FileMetaData.num_rows.key] = self.rows
        metadata[FileMetaData.row_groups.key] = List(STRUCT, rewritten)
        if self._redacts():
            for name in redact_key_values(metadata):
                self.notes.tell(f"key-value metadata {name!r} may tell of encrypted columns, and was left out")
        return metadata

    def _redacts(self) -> bool:
        suite = self.suite
        return suite is not None and suite.encryption.footer_mode == "plaintext" and any(suite.columns)

    def _row_group(self, index: int, group: RowGroup, chunks: list[TargetChunk]) -> Struct:
        rewritten = Struct(group.struct)
        columns = []
        sizes = [0, 0]
        for chunk in chunks:
            metadata = in_id_order(chunk.metadata)
            view = ColumnMetaData(metadata)
            sizes[0] += view.total_uncompressed_size
            sizes[1] += view.total_compressed_size
            protect(chunk.chunk, metadata, chunk.source.path, chunk.seal, self.suite)
            columns.append(in_id_order(chunk.chunk))
        if not 0 <= sizes[0] <= _MAX_I64:
            raise FormatError(f"row group {index} announces {sizes[0]} bytes uncompressed; expected 0 to {_MAX_I64}")
        rewritten[RowGroup.columns.key] = List(STRUCT, columns)
        rewritten[RowGroup.total_byte_size.key], rewritten[RowGroup.total_compressed_size.key] = sizes
        if chunks:
            rewritten[RowGroup.file_offset.key] = chunks[0].start
        rewritten.pop(RowGroup.ordinal.key, None)
        if index <= MAX_ORDINAL:
            rewritten[RowGroup.ordinal.key] = index
        if self.purge and cut_order(rewritten, {self.paths.index(path) for path in self.purge}):
            self.notes.tell("sorting columns were left out from the first on that was replaced by nulls")
        if self.suite is not None and self._redacts() and redact_order(rewritten, self.suite):
            self.notes.tell("sorting columns that are encrypted were left out of the plaintext footer")
        return in_id_order(rewritten)

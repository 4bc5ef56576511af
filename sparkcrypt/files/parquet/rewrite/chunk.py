"""Writes one column chunk of the source to the target: pages first, then indexes and Bloom filter."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkcrypt.files.output import Output
from sparkcrypt.files.parquet.file.layout import Layout
from sparkcrypt.files.parquet.file.modules import ModuleType
from sparkcrypt.files.parquet.pages.chunk import ChunkPages
from sparkcrypt.files.parquet.rewrite.chunk_writer import ChunkWriter, PagePlace
from sparkcrypt.files.parquet.rewrite.encryption import ChunkSeal
from sparkcrypt.files.parquet.rewrite.footer_writer import set_encodings
from sparkcrypt.files.parquet.rewrite.source_chunk import SourceChunk
from sparkcrypt.files.parquet.thrift.compact import List, Struct, decode_struct, encode_struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, ColumnMetaData, OffsetIndex, PageLocation, PageType
from sparkcrypt.schema import join_dotted

_PAGE_LOCATIONS = OffsetIndex.page_locations.key
_LOCATION_OFFSET = PageLocation.offset.key
_LOCATION_SIZE = PageLocation.compressed_page_size.key


@dataclass(slots=True)
class Notes:
    """The notes of a rewrite, each once, in the order of first occurrence."""

    texts: dict[str, None] = field(default_factory=dict)
    gaps: dict[str, None] = field(default_factory=dict)

    def tell(self, what: str) -> None:
        """Note something that the target has lost, or a reader that cannot read it."""
        self.texts[what] = None

    def note_gap(self, what: str) -> None:
        """Note a part of the source that nothing authenticated."""
        self.gaps[what] = None


@dataclass(slots=True)
class TargetChunk:
    """A column chunk whose pages are written; it keeps nothing of them but the indexes."""

    source: SourceChunk
    seal: ChunkSeal | None
    metadata: Struct
    chunk: Struct
    start: int
    column_index: bytes | None = None
    offset_index: bytes | None = None


def write_pages(source: SourceChunk, output: Output, seal: ChunkSeal | None, notes: Notes) -> TargetChunk:
    """Write a chunk's pages; plaintext pages that stay plaintext are copied unchanged.

    Raises:
        FormatError: the pages do not fit their metadata.
        VerificationError: a module of the source does not authenticate.
        UnsupportedFileError: the pages cannot be encrypted individually.
    """
    metadata = Struct(source.metadata.struct)
    target = TargetChunk(source, seal, metadata, Struct(source.chunk.struct), output.position)
    pages = ChunkPages(source.part, source.rows, repeated=source.repeated, encrypted=source.key is not None)
    plain = source.key is None and seal is None
    places = _copy(source, output, target, pages) if plain else _convert(source, output, target, pages, notes)
    target.chunk[ColumnChunk.file_offset.key] = target.start
    _take_indexes(target, pages, places, notes)
    return target


def _copy(source: SourceChunk, output: Output, target: TargetChunk, pages: ChunkPages) -> int:
    """Check and copy the pages; return the difference between their offsets in target and source."""
    reader = source.page_source()
    start, end = reader.start, reader.end
    for page in reader.pages():
        if page.head.type != PageType.DICTIONARY_PAGE:
            pages.add(page.start, page.end - page.start, page.head.values, page.head.rows)
    pages.check(source.metadata, start)
    output.copy(source.file, start, end - start, source.part)
    shift = target.start - start
    _set_offsets(target.metadata, start + shift, None if pages.first is None else pages.first + shift, end > start)
    _forget_index_page(target.metadata)
    return shift


def _set_offsets(metadata: Struct, start: int, first: int | None, holds_pages: bool) -> None:
    """Set the offsets of a chunk's pages; its first page is a dictionary if no data page begins at ``start``."""
    dictionary = holds_pages and first != start
    metadata[ColumnMetaData.data_page_offset.key] = start if first is None else first
    metadata.pop(ColumnMetaData.dictionary_page_offset.key, None)
    if dictionary:
        metadata[ColumnMetaData.dictionary_page_offset.key] = start


def _convert(
    source: SourceChunk, output: Output, target: TargetChunk, pages: ChunkPages, notes: Notes
) -> list[PagePlace]:
    writer = ChunkWriter(output, target.seal)
    reader = source.page_source()
    for page in reader.pages():
        if page.head.type != PageType.DICTIONARY_PAGE:
            pages.add(page.start, page.end - page.start, page.head.values, page.head.rows)
        writer.write(page)
    for gap in sorted(reader.unauthenticated):
        notes.note_gap(f"{'pages' if gap == 'page' else 'levels of V2 pages'} of column {join_dotted(source.path)}")
    pages.check(source.metadata, reader.start)
    metadata = target.metadata
    first = writer.places[0].start if writer.places else None
    _set_offsets(metadata, writer.start, first, output.position > writer.start)
    metadata[ColumnMetaData.total_compressed_size.key] = output.position - writer.start
    metadata[ColumnMetaData.total_uncompressed_size.key] = writer.uncompressed
    _forget_index_page(metadata)
    if target.seal is not None:
        set_encodings(metadata, writer.encodings, writer.dictionary is not None)
    if writer.levels_in_clear:
        notes.tell("V2 pages keep their levels in clear, as parquet-mr writes them: Arrow cannot read them")
    return writer.places


def _forget_index_page(metadata: Struct) -> None:
    metadata.pop(ColumnMetaData.index_page_offset.key, None)


def _take_indexes(target: TargetChunk, pages: ChunkPages, places: list[PagePlace] | int, notes: Notes) -> None:
    """Take the indexes over, with updated page locations; neither, if they do not fit plaintext pages.

    ``places`` are the places of the pages in the target, or the number of bytes by which all offsets have grown.
    """
    source, found = target.source, {}

    def read(module: ModuleType) -> Struct | None:
        found[module] = data = source.index(module)
        return None if data is None else decode_struct(data)[0]

    offsets, _, refused = pages.select_fitting_indexes(
        lambda: read(ModuleType.OFFSET_INDEX), lambda: read(ModuleType.COLUMN_INDEX)
    )
    if refused is not None:
        notes.tell(f"{source.name}: its indexes do not fit its pages, and were left out")
        return
    if offsets is not None:
        for number, location in enumerate(_locations(offsets)):
            if isinstance(places, int):
                location[_LOCATION_OFFSET] = int(str(location[_LOCATION_OFFSET])) + places
            else:
                location[_LOCATION_OFFSET], location[_LOCATION_SIZE] = places[number].start, places[number].length
        target.offset_index = encode_struct(offsets)
    target.column_index = found[ModuleType.COLUMN_INDEX]


def _locations(index: Struct) -> list[Struct]:
    locations = index.get(_PAGE_LOCATIONS)
    return [location for location in locations if isinstance(location, Struct)] if isinstance(locations, List) else []


def write_index(target: TargetChunk, output: Output, module: ModuleType) -> None:
    """Write the column index or the offset index of a chunk, if it has one, and set its offset and length."""
    column = module is ModuleType.COLUMN_INDEX
    index = target.column_index if column else target.offset_index
    offset = ColumnChunk.column_index_offset.key if column else ColumnChunk.offset_index_offset.key
    length = ColumnChunk.column_index_length.key if column else ColumnChunk.offset_index_length.key
    target.chunk.pop(offset, None)
    target.chunk.pop(length, None)
    if index is None:
        return
    start = output.position
    output.write(index if target.seal is None else target.seal.seal(index, module))
    target.chunk[offset], target.chunk[length] = start, output.position - start


def write_bloom_filter(target: TargetChunk, output: Output, layout: Layout) -> None:
    """Write the Bloom filter of a chunk, if it has one, and set its offset and length; ``layout`` is the source's."""
    metadata = target.metadata
    found = target.source.bloom_filter(layout.room(target.source.metadata.bloom_filter_offset or 0))
    metadata.pop(ColumnMetaData.bloom_filter_offset.key, None)
    metadata.pop(ColumnMetaData.bloom_filter_length.key, None)
    if found is None:
        return
    start = output.position
    for part, module in zip(found, (ModuleType.BLOOM_FILTER_HEADER, ModuleType.BLOOM_FILTER_BITSET), strict=True):
        output.write(part if target.seal is None else target.seal.seal(part, module))
    metadata[ColumnMetaData.bloom_filter_offset.key] = start
    metadata[ColumnMetaData.bloom_filter_length.key] = output.position - start

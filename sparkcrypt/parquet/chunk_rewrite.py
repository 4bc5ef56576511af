"""Carries one column chunk from source to target: pages first, then indexes, Bloom filter and metadata."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkcrypt.errors import FormatError
from sparkcrypt.parquet.chunk_writer import ChunkSeal, ChunkWriter, PagePlace
from sparkcrypt.parquet.footer_writer import set_encodings
from sparkcrypt.parquet.layout import Layout
from sparkcrypt.parquet.metadata import ColumnChunk, ColumnIndex, ColumnMetaData, OffsetIndex, PageLocation
from sparkcrypt.parquet.modules import ModuleType
from sparkcrypt.parquet.output import Output
from sparkcrypt.parquet.source_chunk import SourceChunk
from sparkcrypt.parquet.thrift import List, Struct, decode_struct
from sparkcrypt.parquet.thrift_encode import encode_struct
from sparkcrypt.schema import dotted

_PAGE_LOCATIONS = OffsetIndex.page_locations.key
_LOCATION_OFFSET = PageLocation.offset.key
_LOCATION_SIZE = PageLocation.compressed_page_size.key


@dataclass(slots=True)
class Notes:
    """What a rewrite has to tell of: each thing once, in the order of its first."""

    told: dict[str, None] = field(default_factory=dict)
    gaps: dict[str, None] = field(default_factory=dict)

    def tell(self, what: str) -> None:
        """Note what the target has lost or who cannot read it."""
        self.told[what] = None

    def gap(self, what: str) -> None:
        """Note what of the source nothing authenticated."""
        self.gaps[what] = None


@dataclass(slots=True)
class TargetChunk:
    """A column chunk whose pages are written; of its pages it knows no more than its indexes say."""

    source: SourceChunk
    seal: ChunkSeal | None
    metadata: Struct
    chunk: Struct
    start: int
    column_index: bytes | None = None
    offset_index: bytes | None = None


def write_pages(source: SourceChunk, output: Output, seal: ChunkSeal | None, notes: Notes) -> TargetChunk:
    """Write a chunk's pages; as they stand if they are plaintext and stay so.

    Raises:
        FormatError: pages that do not fit their metadata.
        VerificationError: a module of the source does not authenticate.
        UnsupportedFileError: pages that cannot be encrypted one by one.
    """
    metadata = Struct(source.metadata.struct)
    target = TargetChunk(source, seal, metadata, Struct(source.chunk.struct), output.position)
    plain = source.key is None and seal is None
    places = _copy(source, output, target) if plain else _convert(source, output, target, notes)
    target.chunk[ColumnChunk.file_offset.key] = target.start
    _read_indexes(target, places, notes)
    return target


def _copy(source: SourceChunk, output: Output, target: TargetChunk) -> int:
    """Copy the pages; return by how many bytes they stand further on."""
    start, end = source.range()
    output.copy(source.file, start, end - start, source.name)
    shift = target.start - start
    for key in (ColumnMetaData.data_page_offset.key, ColumnMetaData.dictionary_page_offset.key):
        offset = target.metadata.get(key)
        if isinstance(offset, int) and offset > 0:
            target.metadata[key] = offset + shift
    _forget_index_page(target.metadata)
    return shift


def _convert(source: SourceChunk, output: Output, target: TargetChunk, notes: Notes) -> list[PagePlace]:
    writer = ChunkWriter(output, target.seal)
    pages = source.page_source()
    for page in pages.pages():
        writer.write(page)
    for gap in sorted(pages.unauthenticated):
        notes.gap(f"{'pages' if gap == 'page' else 'levels of V2 pages'} of column {dotted(source.path)}")
    if writer.values != source.metadata.num_values:
        raise FormatError(f"{source.name}: pages hold {writer.values} values; expected {source.metadata.num_values}")
    metadata = target.metadata
    first_data = writer.places[0].start if writer.places else writer.start
    metadata[ColumnMetaData.data_page_offset.key] = first_data
    metadata.pop(ColumnMetaData.dictionary_page_offset.key, None)
    if writer.dictionary is not None:
        metadata[ColumnMetaData.dictionary_page_offset.key] = writer.dictionary
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


def _read_indexes(target: TargetChunk, places: list[PagePlace] | int, notes: Notes) -> None:
    """Take over the indexes, page locations brought up to date; neither, if they do not fit the pages.

    ``places`` are where the pages stand, or by how many bytes they all stand further on.
    """
    source = target.source
    offset_index = source.index(ModuleType.OFFSET_INDEX)
    column_index = source.index(ModuleType.COLUMN_INDEX)
    if offset_index is not None:
        struct, _ = decode_struct(offset_index)
        fits = _shifted(struct, source, places) if isinstance(places, int) else _relocated(struct, places)
        if fits and not isinstance(places, int) and column_index is not None:
            fits = len(ColumnIndex(decode_struct(column_index)[0]).null_pages) == len(places)
        if not fits:
            notes.tell(f"{source.name}: its indexes do not fit its pages, and were left out")
            return
        offset_index = encode_struct(struct)
    target.column_index, target.offset_index = column_index, offset_index


def _shifted(index: Struct, source: SourceChunk, shift: int) -> bool:
    start, end = source.range()
    for location in _locations(index):
        offset = location.get(_LOCATION_OFFSET)
        if not isinstance(offset, int) or not start <= offset < end:
            return False
        location[_LOCATION_OFFSET] = offset + shift
    return True


def _relocated(index: Struct, places: list[PagePlace]) -> bool:
    locations = _locations(index)
    if [location.get(_LOCATION_OFFSET) for location in locations] != [place.source for place in places]:
        return False
    for location, place in zip(locations, places, strict=True):
        location[_LOCATION_OFFSET] = place.start
        location[_LOCATION_SIZE] = place.length
    return True


def _locations(index: Struct) -> list[Struct]:
    locations = index.get(_PAGE_LOCATIONS)
    if not isinstance(locations, List):
        return []
    return [location for location in locations if isinstance(location, Struct)]


def write_index(target: TargetChunk, output: Output, module: ModuleType) -> None:
    """Write the column index or the offset index of a chunk, if it has one, and say in the chunk where."""
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
    """Write the Bloom filter of a chunk, if it has one, and say in its metadata where; ``layout`` is the source's."""
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

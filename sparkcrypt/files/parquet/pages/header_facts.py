"""Checks page headers, for every way of reading pages."""

from __future__ import annotations

from typing import NamedTuple

from sparkcrypt.errors import FormatError, UnsupportedFileError
from sparkcrypt.files.parquet.thrift.compact import Struct
from sparkcrypt.files.parquet.thrift.metadata import DataPageHeader, PageHeader, PageType
from sparkcrypt.files.source import naming


class PageFacts(NamedTuple):
    """The checked content of a page header; ``values`` is 0 for a dictionary page, ``rows`` is None unless it is V2."""

    view: PageHeader
    type: int
    size: int
    values: int
    rows: int | None
    levels: int


_TYPE = PageHeader.type.key
_UNCOMPRESSED = PageHeader.uncompressed_page_size.key
_COMPRESSED = PageHeader.compressed_page_size.key
_V1 = PageHeader.data_page_header.key
_V1_VALUES = DataPageHeader.num_values.key


def page_facts(struct: Struct, what: object, first: bool) -> PageFacts:
    """Return the checked content of a page header.

    Args:
        struct: the header.
        what: its ``str`` is the name of the header, or of its chunk, in messages.
        first: whether it is the chunk's first page.

    Raises:
        FormatError: sizes or counts are missing or impossible, or a page of this type is not allowed there.
        UnsupportedFileError: it is an index page, which has no module type.
    """
    kind, size = struct.get(_TYPE), struct.get(_COMPRESSED)
    if not isinstance(size, int) or size < 0 or not _is_count(struct.get(_UNCOMPRESSED)):
        raise FormatError(f"{what} has page sizes that are missing or negative; expected 0 or more")
    view = PageHeader(struct)
    if kind == 0:
        v1 = struct.get(_V1)
        values = v1.get(_V1_VALUES) if isinstance(v1, Struct) else None
        if not isinstance(values, int) or values < 0:
            raise FormatError(f"{what} has a data page without data_page_header or a count in it; expected both")
        return PageFacts(view, 0, size, values, None, 0)
    if kind == PageType.DATA_PAGE_V2:
        return _v2_facts(view, size, what)
    if kind == PageType.DICTIONARY_PAGE and first:
        with naming(str(what)):
            dictionary = view.dictionary_page_header
            counted = dictionary is not None and dictionary.num_values >= 0
        if not counted:
            raise FormatError(f"{what} has a dictionary page without a count of its values; expected one")
        return PageFacts(view, PageType.DICTIONARY_PAGE, size, 0, None, 0)
    if kind == PageType.INDEX_PAGE:
        raise UnsupportedFileError(
            f"{what} has an INDEX_PAGE, for which encryption has no module type; expected none: use the Spark engine"
        )
    raise FormatError(f"{what} has a page of type {kind!r}; expected {_ALLOWED}")


_ALLOWED = "DATA_PAGE (0), DATA_PAGE_V2 (3), or as the first one DICTIONARY_PAGE (2)"


def _v2_facts(view: PageHeader, size: int, what: object) -> PageFacts:
    v2 = view.data_page_header_v2
    if v2 is None:
        raise FormatError(f"{what} has a V2 data page without data_page_header_v2; expected one")
    with naming(str(what)):
        repetition, definition = v2.repetition_levels_byte_length, v2.definition_levels_byte_length
        values, nulls, rows = v2.num_values, v2.num_nulls, v2.num_rows
    if repetition < 0 or definition < 0 or repetition + definition > size:
        raise FormatError(
            f"{what} has {repetition} and {definition} bytes of levels in a page of {size}; expected no more than that"
        )
    if not (0 <= nulls <= values and 0 <= rows <= values):
        raise FormatError(f"{what} has {values} values, {nulls} nulls, {rows} rows; expected no more than its values")
    return PageFacts(view, PageType.DATA_PAGE_V2, size, values, rows, repetition + definition)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0

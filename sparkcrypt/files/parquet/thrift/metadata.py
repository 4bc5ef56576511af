"""The metadata structs of Parquet, by the names and field numbers of parquet-format's parquet.thrift."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, TypeVar, overload

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet.thrift import compact as thrift
from sparkcrypt.files.parquet.thrift.compact import Struct, field_key
from sparkcrypt.names import AES_GCM_CTR_V1, AES_GCM_V1, Algorithm

T = TypeVar("T")
V = TypeVar("V", bound="View")


@dataclass(slots=True)
class View:
    """A view of a struct with the names and types of the IDL; the struct itself keeps all its fields.

    It is not frozen, since a frozen dataclass takes twice as long to make, and a wide footer has many views.
    """

    struct: Struct


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A Thrift type, and the conversion of its generic values to ``T``; None if they are what is wanted."""

    type: int
    convert: Callable[[Any], T] | None = None


def _text(value: bytes) -> str:
    return value.decode("utf-8")


BOOL: Kind[bool] = Kind(thrift.BOOL)
I16: Kind[int] = Kind(thrift.I16)
I32: Kind[int] = Kind(thrift.I32)
I64: Kind[int] = Kind(thrift.I64)
DOUBLE: Kind[bytes] = Kind(thrift.DOUBLE)
BINARY: Kind[bytes] = Kind(thrift.BINARY)
TEXT: Kind[str] = Kind(thrift.BINARY, _text)
STRUCT: Kind[Struct] = Kind(thrift.STRUCT)


def struct_of(view: type[V]) -> Kind[V]:
    """Return the kind of a struct that is viewed as ``view``."""
    return Kind(thrift.STRUCT, view)


class Views(Sequence[V]):
    """A list of structs, each viewed when it is asked for, so that one of many costs no more than one of few."""

    __slots__ = ("_structs", "_view")

    def __init__(self, view: type[V], structs: list[Struct]) -> None:
        self._view = view
        self._structs = structs

    def __len__(self) -> int:
        return len(self._structs)

    def __iter__(self) -> Iterator[V]:
        return map(self._view, self._structs)

    @overload
    def __getitem__(self, index: int) -> V: ...
    @overload
    def __getitem__(self, index: slice) -> Views[V]: ...
    def __getitem__(self, index: int | slice) -> V | Views[V]:
        if isinstance(index, slice):
            return Views(self._view, self._structs[index])
        return self._view(self._structs[index])


def list_of(element: Kind[T]) -> Kind[tuple[T, ...]]:
    """Return the kind of a list of ``element``; a list of another type is a `FormatError`."""

    def convert(values: thrift.List) -> tuple[T, ...]:
        _check_element(values, element)
        return tuple(values if element.convert is None else map(element.convert, values))  # type: ignore[arg-type]

    return Kind(thrift.LIST, convert)


def views_of(view: type[V]) -> Kind[Views[V]]:
    """Return the kind of a list of structs that are viewed as ``view``; a list of another type is a `FormatError`."""

    def convert(values: thrift.List) -> Views[V]:
        _check_element(values, STRUCT)
        return Views(view, values)  # type: ignore[arg-type]  # the type of its elements was checked

    return Kind(thrift.LIST, convert)


def _check_element(values: thrift.List, element: Kind[Any]) -> None:
    found = thrift.BOOL if values.element == thrift.FALSE else values.element
    if values and found != element.type:
        raise FormatError(f"list of Thrift type {values.element}; expected elements of type {element.type}")


class _Field(Generic[T]):
    """A field's id, kind and name in its struct."""

    __slots__ = ("convert", "field_id", "key", "kind", "where")

    def __init__(self, field_id: int, kind: Kind[T]) -> None:
        self.field_id = field_id
        self.kind = kind
        self.convert = kind.convert
        self.key = field_key(field_id, kind.type)
        self.where = ""

    def __set_name__(self, owner: type[View], name: str) -> None:
        self.where = f"{owner.__name__}.{name} (field {self.field_id})"


class OptionalField(_Field[T]):
    """A field that is None if the struct does not have it."""

    __slots__ = ()

    @overload
    def __get__(self, instance: None, owner: type[View]) -> OptionalField[T]: ...
    @overload
    def __get__(self, instance: View, owner: type[View]) -> T | None: ...
    def __get__(self, instance: View | None, owner: type[View]) -> OptionalField[T] | T | None:
        if instance is None:
            return self
        value: Any = instance.struct.get(self.key)
        return value if value is None or self.convert is None else _convert_value(self.convert, value, self.where)


class RequiredField(_Field[T]):
    """A field whose absence is a `FormatError`."""

    __slots__ = ()

    @overload
    def __get__(self, instance: None, owner: type[View]) -> RequiredField[T]: ...
    @overload
    def __get__(self, instance: View, owner: type[View]) -> T: ...
    def __get__(self, instance: View | None, owner: type[View]) -> RequiredField[T] | T:
        if instance is None:
            return self
        value: Any = instance.struct.get(self.key)
        if value is None:
            raise FormatError(f"{self.where} is missing, or of another Thrift type; expected type {self.kind.type}")
        return value if self.convert is None else _convert_value(self.convert, value, self.where)


def _convert_value(convert: Callable[[Any], T], value: Any, where: str) -> T:
    try:
        return convert(value)
    except UnicodeDecodeError as error:
        raise FormatError(f"{where} is not UTF-8 text; expected UTF-8") from error
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from error


class ConvertedType(IntEnum):
    """The old annotations of a schema element that determine its structure."""

    MAP = 1
    MAP_KEY_VALUE = 2
    LIST = 3


class PageType(IntEnum):
    """The type of a page."""

    DATA_PAGE = 0
    INDEX_PAGE = 1
    DICTIONARY_PAGE = 2
    DATA_PAGE_V2 = 3


class Encoding(IntEnum):
    """The encodings of values, levels and dictionary entries that this package distinguishes."""

    PLAIN = 0
    PLAIN_DICTIONARY = 2
    RLE = 3
    RLE_DICTIONARY = 8


class LogicalType(View):
    """The new annotation of a schema element: a union, of which only the members that tell of groups are named."""

    map = OptionalField(2, STRUCT)
    list = OptionalField(3, STRUCT)
    variant = OptionalField(16, STRUCT)


class SchemaElement(View):
    """A node of the schema tree, which is stored depth first."""

    type = OptionalField(1, I32)
    type_length = OptionalField(2, I32)
    repetition_type = OptionalField(3, I32)
    name = RequiredField(4, TEXT)
    num_children = OptionalField(5, I32)
    converted_type = OptionalField(6, I32)
    scale = OptionalField(7, I32)
    precision = OptionalField(8, I32)
    field_id = OptionalField(9, I32)
    logical_type = OptionalField(10, struct_of(LogicalType))


class KeyValue(View):
    """An entry of the footer's key-value metadata."""

    key = RequiredField(1, TEXT)
    value = OptionalField(2, TEXT)


class AesAlgorithm(View):
    """AesGcmV1 and AesGcmCtrV1, which have the same fields."""

    aad_prefix = OptionalField(1, BINARY)
    aad_file_unique = OptionalField(2, BINARY)
    supply_aad_prefix = OptionalField(3, BOOL)


class EncryptionAlgorithm(View):
    """The union of the two algorithms."""

    aes_gcm_v1 = OptionalField(1, struct_of(AesAlgorithm))
    aes_gcm_ctr_v1 = OptionalField(2, struct_of(AesAlgorithm))

    def choose_algorithm(self) -> tuple[Algorithm, AesAlgorithm]:
        """Return the name and the parameters of the one algorithm that is set.

        Raises:
            FormatError: none or both are set.
        """
        gcm, ctr = self.aes_gcm_v1, self.aes_gcm_ctr_v1
        if len(self.struct) == 1 and gcm is not None:
            return AES_GCM_V1, gcm
        if len(self.struct) == 1 and ctr is not None:
            return AES_GCM_CTR_V1, ctr
        raise FormatError("the encryption algorithm is not one that is known; expected AES_GCM_V1 or AES_GCM_CTR_V1")


class EncryptionWithColumnKey(View):
    """The key reference of a column that has a key of its own."""

    path_in_schema = RequiredField(1, list_of(TEXT))
    key_metadata = OptionalField(2, BINARY)


class ColumnCryptoMetaData(View):
    """The union that defines the key of an encrypted column."""

    encryption_with_footer_key = OptionalField(1, STRUCT)
    encryption_with_column_key = OptionalField(2, struct_of(EncryptionWithColumnKey))

    def column_key(self) -> EncryptionWithColumnKey | None:
        """Return the reference to the column's own key, or None if it is encrypted with the footer's key.

        Raises:
            FormatError: neither or both are set.
        """
        own = self.encryption_with_column_key
        if len(self.struct) != 1 or (own is None and self.encryption_with_footer_key is None):
            raise FormatError(
                "crypto_metadata names no kind of key that is known; expected the footer key or a column key"
            )
        return own


class Statistics(View):
    """Bounds and counts of a column chunk or a page; ``max`` and ``min`` are the old signed ones."""

    max = OptionalField(1, BINARY)
    min = OptionalField(2, BINARY)
    null_count = OptionalField(3, I64)
    distinct_count = OptionalField(4, I64)
    max_value = OptionalField(5, BINARY)
    min_value = OptionalField(6, BINARY)
    is_max_value_exact = OptionalField(7, BOOL)
    is_min_value_exact = OptionalField(8, BOOL)
    nan_count = OptionalField(9, I64)


class SizeStatistics(View):
    """The size of a column chunk's values in memory, and histograms of its levels."""

    unencoded_byte_array_data_bytes = OptionalField(1, I64)
    repetition_level_histogram = OptionalField(2, list_of(I64))
    definition_level_histogram = OptionalField(3, list_of(I64))


class BoundingBox(View):
    """Bounds of coordinates, each the 8 bytes of a double as stored in the file."""

    xmin = RequiredField(1, DOUBLE)
    xmax = RequiredField(2, DOUBLE)
    ymin = RequiredField(3, DOUBLE)
    ymax = RequiredField(4, DOUBLE)
    zmin = OptionalField(5, DOUBLE)
    zmax = OptionalField(6, DOUBLE)
    mmin = OptionalField(7, DOUBLE)
    mmax = OptionalField(8, DOUBLE)


class GeospatialStatistics(View):
    """Bounds and types of a geospatial column chunk."""

    bbox = OptionalField(1, struct_of(BoundingBox))
    geospatial_types = OptionalField(2, list_of(I32))


class PageEncodingStats(View):
    """The number of pages of a type with an encoding."""

    page_type = RequiredField(1, I32)
    encoding = RequiredField(2, I32)
    count = RequiredField(3, I32)


class ColumnMetaData(View):
    """The content of a column chunk and its offsets.  Sizes are bytes in the file, including encryption overhead."""

    type = RequiredField(1, I32)
    encodings = RequiredField(2, list_of(I32))
    path_in_schema = OptionalField(3, list_of(TEXT))
    codec = RequiredField(4, I32)
    num_values = RequiredField(5, I64)
    total_uncompressed_size = RequiredField(6, I64)
    total_compressed_size = RequiredField(7, I64)
    key_value_metadata = OptionalField(8, views_of(KeyValue))
    data_page_offset = RequiredField(9, I64)
    index_page_offset = OptionalField(10, I64)
    dictionary_page_offset = OptionalField(11, I64)
    statistics = OptionalField(12, struct_of(Statistics))
    encoding_stats = OptionalField(13, views_of(PageEncodingStats))
    bloom_filter_offset = OptionalField(14, I64)
    bloom_filter_length = OptionalField(15, I32)
    size_statistics = OptionalField(16, struct_of(SizeStatistics))
    geospatial_statistics = OptionalField(17, struct_of(GeospatialStatistics))


class ColumnChunk(View):
    """One column of one row group."""

    file_path = OptionalField(1, TEXT)
    file_offset = RequiredField(2, I64)
    meta_data = OptionalField(3, struct_of(ColumnMetaData))
    offset_index_offset = OptionalField(4, I64)
    offset_index_length = OptionalField(5, I32)
    column_index_offset = OptionalField(6, I64)
    column_index_length = OptionalField(7, I32)
    crypto_metadata = OptionalField(8, struct_of(ColumnCryptoMetaData))
    encrypted_column_metadata = OptionalField(9, BINARY)


class SortingColumn(View):
    """One key of a row group's sort order."""

    column_idx = RequiredField(1, I32)
    descending = RequiredField(2, BOOL)
    nulls_first = RequiredField(3, BOOL)


class RowGroup(View):
    """A horizontal slice of the file."""

    columns = RequiredField(1, views_of(ColumnChunk))
    total_byte_size = RequiredField(2, I64)
    num_rows = RequiredField(3, I64)
    sorting_columns = OptionalField(4, views_of(SortingColumn))
    file_offset = OptionalField(5, I64)
    total_compressed_size = OptionalField(6, I64)
    ordinal = OptionalField(7, I16)


class FileMetaData(View):
    """The footer."""

    version = RequiredField(1, I32)
    schema = RequiredField(2, views_of(SchemaElement))
    num_rows = RequiredField(3, I64)
    row_groups = RequiredField(4, views_of(RowGroup))
    key_value_metadata = OptionalField(5, views_of(KeyValue))
    created_by = OptionalField(6, TEXT)
    column_orders = OptionalField(7, list_of(STRUCT))
    encryption_algorithm = OptionalField(8, struct_of(EncryptionAlgorithm))
    footer_signing_key_metadata = OptionalField(9, BINARY)


class FileCryptoMetaData(View):
    """The struct in clear before an encrypted footer."""

    encryption_algorithm = RequiredField(1, struct_of(EncryptionAlgorithm))
    key_metadata = OptionalField(2, BINARY)


class DataPageHeader(View):
    """The header of a V1 data page."""

    num_values = RequiredField(1, I32)
    encoding = RequiredField(2, I32)
    definition_level_encoding = RequiredField(3, I32)
    repetition_level_encoding = RequiredField(4, I32)
    statistics = OptionalField(5, struct_of(Statistics))


class DictionaryPageHeader(View):
    """The header of a dictionary page; ``num_values`` is the number of dictionary entries."""

    num_values = RequiredField(1, I32)
    encoding = RequiredField(2, I32)
    is_sorted = OptionalField(3, BOOL)


class DataPageHeaderV2(View):
    """The header of a V2 data page."""

    num_values = RequiredField(1, I32)
    num_nulls = RequiredField(2, I32)
    num_rows = RequiredField(3, I32)
    encoding = RequiredField(4, I32)
    definition_levels_byte_length = RequiredField(5, I32)
    repetition_levels_byte_length = RequiredField(6, I32)
    is_compressed = OptionalField(7, BOOL)
    statistics = OptionalField(8, struct_of(Statistics))


class PageHeader(View):
    """The header before each page; sizes in bytes, the compressed one including encryption overhead."""

    type = RequiredField(1, I32)
    uncompressed_page_size = RequiredField(2, I32)
    compressed_page_size = RequiredField(3, I32)
    crc = OptionalField(4, I32)
    data_page_header = OptionalField(5, struct_of(DataPageHeader))
    index_page_header = OptionalField(6, STRUCT)
    dictionary_page_header = OptionalField(7, struct_of(DictionaryPageHeader))
    data_page_header_v2 = OptionalField(8, struct_of(DataPageHeaderV2))


class PageLocation(View):
    """The offset of a data page, its length including the header, and its first row."""

    offset = RequiredField(1, I64)
    compressed_page_size = RequiredField(2, I32)
    first_row_index = RequiredField(3, I64)


class OffsetIndex(View):
    """The locations of the data pages of a column chunk."""

    page_locations = RequiredField(1, views_of(PageLocation))
    unencoded_byte_array_data_bytes = OptionalField(2, list_of(I64))


class ColumnIndex(View):
    """For each data page of a column chunk, whether it has only nulls, and its bounds."""

    null_pages = RequiredField(1, list_of(BOOL))
    min_values = RequiredField(2, list_of(BINARY))
    max_values = RequiredField(3, list_of(BINARY))
    boundary_order = RequiredField(4, I32)
    null_counts = OptionalField(5, list_of(I64))
    repetition_level_histograms = OptionalField(6, list_of(I64))
    definition_level_histograms = OptionalField(7, list_of(I64))
    nan_counts = OptionalField(8, list_of(I64))


class BloomFilterHeader(View):
    """The header before the bit set of a Bloom filter."""

    num_bytes = RequiredField(1, I32)
    algorithm = RequiredField(2, STRUCT)
    hash = RequiredField(3, STRUCT)
    compression = RequiredField(4, STRUCT)

"""The files of a store and what they hold: read, merged into one table of objects, split into rows, and made anew."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias, TypeVar

from sparkcrypt.errors import (
    ConfigError,
    FormatError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    SparkcryptError,
    VerificationError,
    show,
)
from sparkcrypt.files.parquet.file.footer import Footer, check_magic_and_unique, footer_of
from sparkcrypt.files.parquet.file.modules import FileCiphers, RetrieveKey, VerifyAad
from sparkcrypt.files.parquet.file.schema import LeafLevels, Path, leaf_levels
from sparkcrypt.files.parquet.rewrite.source_chunk import column_chunks
from sparkcrypt.files.parquet.thrift.metadata import FileMetaData, SchemaElement
from sparkcrypt.files.source import Input, open_source
from sparkcrypt.names import SPARK_SCHEMA
from sparkcrypt.skipping.format.description import (
    BLOOM,
    MINMAX,
    OBJECT,
    VERSION,
    Description,
    Index,
    Labels,
    PartitionColumn,
    describe,
)
from sparkcrypt.skipping.format.values import (
    FLOATS,
    Budget,
    Decoded,
    Raw,
    Value,
    converter,
    decode_chunk,
    modern_calendar,
)

if TYPE_CHECKING:
    import pyarrow as pa


NO_KEY = "its key is denied, or is not there"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and greatest value of a column in an object; both are None if all its values are null."""

    least: Value | None
    greatest: Value | None


Entry: TypeAlias = Bounds | frozenset[Value] | bytes
"""The entry of an index for an object: bounds, all distinct values except null, or a serialised Bloom filter."""


@dataclass(frozen=True, slots=True)
class IndexEntries:
    """An index and its entries in the order of the store's objects; an entry of None is unknown.

    ``unused`` is the reason why the index cannot be used, or None; ``entries`` is empty if there is a reason.
    """

    index: Index
    entries: tuple[Entry | None, ...] = ()
    unused: str | None = None


@dataclass(frozen=True, slots=True)
class StorePart:
    """The content of a store's file.

    ``description`` is None, and all below it empty, if the footer is encrypted and no key was given.  ``partitions``
    contains each column's values; a value that cannot be compared is the sentinel `UNKNOWN`.
    """

    name: str
    size: int
    footer: Footer
    description: Description | None = None
    objects: tuple[str, ...] = ()
    partitions: tuple[tuple[PartitionColumn, tuple[object, ...]], ...] = ()
    indexes: tuple[IndexEntries, ...] = ()


UNKNOWN = object()
"""An unknown value, as opposed to None, which is null."""


def read_part(
    name: str,
    opening: Callable[[], AbstractContextManager[BinaryIO]],
    *,
    retrieve_key: RetrieveKey | None = None,
    verify_aad: VerifyAad | None = None,
    check_footer: Callable[[Footer], None] | None = None,
    budget: Budget | None = None,
) -> StorePart:
    """Read a file of a store; an index whose key is denied has no entries, and ``unused`` as the reason.

    Args:
        name: the file's name.
        opening: opens it.
        retrieve_key: returns its data keys.
        verify_aad: called with its AAD prefix before any key is requested.
        check_footer: called with its footer before anything else is read; raises an error if it must not be used.
        budget: the remaining limits of all files of the store together.

    Raises:
        FormatError: it is no file of a store, or exceeds the budget.
        VerificationError: it does not authenticate, or its file-unique has another length than every writer's.
        KeyServiceError: the key service did not open the footer's key, or could not be reached.
    """
    with opening() as stream, open_source(stream) as source:
        try:
            ciphers = None if retrieve_key is None else FileCiphers(name, retrieve_key)
            footer = footer_of(source, ciphers, verify_aad)
            check_magic_and_unique(source, footer)
            if check_footer is not None:
                check_footer(footer)
            if footer.metadata is None:
                return StorePart(name, source.size, footer)
            description = describe(footer.metadata)
            return _Part(source, footer, footer.metadata, ciphers, budget or Budget()).read(name, description)
        except (FormatError, VerificationError) as error:
            raise _name_error(error, name) from error


def _name_error(error: SparkcryptError, name: str) -> SparkcryptError:
    text = str(error)
    for known in ("<file>: ", f"{name}: "):
        text = text.removeprefix(known)
    return type(error)(f"{name}: {text}")


class _Part:
    """The columns of one open file."""

    def __init__(
        self, source: Input, footer: Footer, metadata: FileMetaData, ciphers: FileCiphers | None, budget: Budget
    ) -> None:
        self.source, self.footer, self.metadata, self.ciphers, self.budget = source, footer, metadata, ciphers, budget
        elements = [entry for entry in metadata.schema if entry.type is not None]
        paths = [column.path for column in footer.columns or ()]
        levels = leaf_levels(metadata)
        self.leaves = {path: (at, elements[at], levels[at]) for at, path in enumerate(paths)}
        self.modern = modern_calendar(metadata)
        self.rows = sum(group.num_rows for group in metadata.row_groups)

    def read(self, name: str, description: Description) -> StorePart:
        readable = self.ciphers is not None or self.footer.mode == "plaintext"
        objects = self._objects() if readable else ()
        partitions = (
            [(partition, tuple(self._partition(partition))) for partition in description.partitions] if readable else []
        )
        indexes = tuple([self._index(index, readable) for index in description.indexes])
        return StorePart(name, self.source.size, self.footer, description, objects, tuple(partitions), indexes)

    def _objects(self) -> tuple[str, ...]:
        found = self._flat((OBJECT,), "string")
        if any(not isinstance(entry, str) for entry in found):
            raise FormatError(f"field {OBJECT!r} has rows without a name; expected one in each")
        return tuple([entry for entry in found if isinstance(entry, str)])

    def _partition(self, column: PartitionColumn) -> Sequence[object]:
        return self._flat((column.field,), column.type) if column.type is not None else [UNKNOWN] * self.rows

    def _index(self, index: Index, readable: bool) -> IndexEntries:
        if index.unused is not None:
            return IndexEntries(index, unused=index.unused)
        if not readable:
            return IndexEntries(index, unused="no keys were given")
        try:
            return IndexEntries(index, tuple(self._entries(index)))
        except (KeyAccessDeniedError, KeyNotFoundError):
            return IndexEntries(index, unused=NO_KEY)

    def _entries(self, index: Index) -> Iterator[Entry | None]:
        kind = index.type or ""
        if index.kind == MINMAX:
            sides = [self._flat((index.field, side), kind) for side in ("min", "max")]
            return (_bounds(least, greatest, kind) for least, greatest in zip(*sides, strict=True))
        if index.kind == BLOOM:
            return (entry if isinstance(entry, bytes) else None for entry in self._flat((index.field,), kind))
        return self._lists(index.field, kind)

    def _leaf(self, path: Path) -> tuple[int, SchemaElement, LeafLevels]:
        if path not in self.leaves:
            raise FormatError(f"has no column {'.'.join(path)}; expected it, as its schema says")
        return self.leaves[path]

    def _chunks(self, at: int, element: SchemaElement, levels: LeafLevels) -> Iterator[Decoded]:
        for chunk in column_chunks(self.source, self.footer, self.ciphers, at):
            yield decode_chunk(chunk, levels, element.type_length or 0, self.budget)

    def _flat(self, path: Path, kind: str) -> list[object]:
        """Return a value for each row: None for null, UNKNOWN if its group is null or it cannot be compared."""
        at, element, levels = self._leaf(path)
        if levels.repetition:
            raise FormatError(f"column {'.'.join(path)} is repeated; expected one value for each row")
        convert = converter(kind, element, modern_calendar=self.modern)
        found: list[object] = []
        for decoded in self._chunks(at, element, levels):
            values = iter(decoded.values)
            if decoded.definitions is None:
                found.extend([_mark_unknown(convert(value)) for value in values])
                continue
            for level in decoded.definitions:
                if level == levels.definition:
                    found.append(_mark_unknown(convert(next(values))))
                else:
                    found.append(None if level == levels.definition - 1 else UNKNOWN)
        return found

    def _lists(self, field: str, kind: str) -> Iterator[Entry | None]:
        paths = [path for path in self.leaves if path[0] == field]
        if len(paths) != 1:
            raise FormatError(f"field {field!r} has {len(paths)} leaves; expected one, of a list")
        at, element, levels = self._leaf(paths[0])
        if levels.repetition != 1:
            raise FormatError(f"field {field!r} is nested {levels.repetition} times; expected a list")
        convert = converter(kind, element, modern_calendar=self.modern)
        optional = element.repetition_type == 1
        for decoded in self._chunks(at, element, levels):
            yield from _assemble_rows(decoded, levels.definition, optional, convert)


def _mark_unknown(value: Value | None) -> object:
    return UNKNOWN if value is None else value


def _bounds(least: object, greatest: object, kind: str) -> Bounds | None:
    """Return an object's bounds, or None if unknown, as for two nulls of floats, which upstream writes for a NaN."""
    if least is UNKNOWN or greatest is UNKNOWN:
        return None
    if least is None and greatest is None:
        return None if kind in FLOATS else Bounds(None, None)
    if least is None or greatest is None:
        return None
    return Bounds(least, greatest)  # type: ignore[arg-type]  # neither null nor unknown, so a value


def _assemble_rows(
    decoded: Decoded, most: int, optional: bool, convert: Callable[[Raw], Value | None]
) -> Iterator[frozenset[Value] | None]:
    """Yield a set of values for each row of a list column; None if the list is null or a value cannot be compared."""
    empty, values = most - 1 - optional, iter(decoded.values)
    row: set[Value] | None = None
    for number, (repetition, level) in enumerate(
        zip(decoded.repetitions or [], decoded.definitions or [], strict=True)
    ):
        if repetition == 0:
            if number:
                yield None if row is None else frozenset(row)
            row = None if level < empty else set()
        if level == most:
            value = convert(next(values))
            if row is None or value is None:
                row = None
            else:
                row.add(value)
    if decoded.repetitions:
        yield None if row is None else frozenset(row)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Store:
    """The content of a store.

    Attributes:
        version: version of the specification.
        table: the table's identifier, as the writer recorded it.
        labels: labels of the keys that it was made with, or None.
        objects: the name of each row's object; names that occur twice are counted in ``repeated``.
        partitions: each partition column with its values, in the order of the objects.
        indexes: each index with its entries, in the same order.
        repeated: number of names that occur more than once, as after an interrupted refresh of upstream.
    """

    version: int
    table: str | None
    labels: Labels | None
    objects: tuple[str, ...]
    partitions: tuple[tuple[PartitionColumn, tuple[object, ...]], ...]
    indexes: tuple[IndexEntries, ...]
    repeated: int = 0


def merge_parts(parts: Sequence[StorePart]) -> Store | None:
    """Merge files into a store; return None if a footer is encrypted and no key was given.

    The entries of an index are unknown (None) for the objects of a file that lacks the index.

    Raises:
        FormatError: there is no file, or the files have different versions or tables.
    """
    described = [(part, part.description) for part in parts if part.description is not None]
    if len(described) != len(parts):
        return None
    first = _agree_on_description(described)
    counts = Counter(name for part in parts for name in part.objects)
    return Store(
        first.version,
        first.table,
        first.labels,
        tuple(name for part in parts for name in part.objects),
        tuple(
            (column, _values(column, parts))
            for column in _remove_repeats(description.partitions for _, description in described)
        ),
        tuple(
            _merge_entries(index, parts)
            for index in _remove_repeats(description.indexes for _, description in described)
        ),
        sum(count > 1 for count in counts.values()),
    )


def _agree_on_description(described: Sequence[tuple[StorePart, Description]]) -> Description:
    if not described:
        raise FormatError("the folder holds no file of a store; expected one or more")
    first = described[0][1]
    for part, entry in described:
        if (entry.version, entry.table) != (first.version, first.table):
            raise FormatError(
                f"{part.name}: is of version {entry.version} for {show(entry.table)}; expected {first.version} for "
                f"{show(first.table)}, as {described[0][0].name} has it: put each store into a folder of its own"
            )
    return first


def _remove_repeats(groups: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(entry for group in groups for entry in group))


def _values(column: PartitionColumn, parts: Sequence[StorePart]) -> tuple[object, ...]:
    found: list[object] = []
    for part in parts:
        values = next((values for partition, values in part.partitions if partition == column), None)
        found.extend([UNKNOWN] * len(part.objects) if values is None else values)
    return tuple(found)


def _merge_entries(index: Index, parts: Sequence[StorePart]) -> IndexEntries:
    found: list[Entry | None] = []
    unused: str | None = None
    for part in parts:
        held = next((entry for entry in part.indexes if entry.index == index), None)
        if held is not None and held.unused is not None:
            if held.unused != NO_KEY:
                return IndexEntries(index, unused=held.unused)
            unused = held.unused
        found.extend([None] * len(part.objects) if held is None or held.unused else held.entries)
    return IndexEntries(index, unused=unused) if unused else IndexEntries(index, tuple(found))


class Row(NamedTuple):
    """A store's row for one object: values of partition columns and entries of indexes, in the store's order."""

    name: str
    partitions: tuple[object, ...]
    entries: tuple[Entry | None, ...]


def rows_of(store: Store) -> Iterator[Row]:
    """Yield the rows of a store; all its indexes must have been read."""
    partitions = [values for _, values in store.partitions]
    indexes = [held.entries for held in store.indexes]
    for number, name in enumerate(store.objects):
        yield Row(name, tuple([of[number] for of in partitions]), tuple([of[number] for of in indexes]))


def with_rows(shape: Store, rows: Sequence[Row]) -> Store:
    """Return a store with the partition columns and indexes of another one and these rows."""
    return replace(
        shape,
        objects=tuple([row.name for row in rows]),
        partitions=tuple(
            (column, tuple([row.partitions[place] for row in rows]))
            for place, (column, _) in enumerate(shape.partitions)
        ),
        indexes=tuple(
            replace(held, entries=tuple([row.entries[place] for row in rows]))
            for place, held in enumerate(shape.indexes)
        ),
    )


def is_known(shape: Store, row: Row) -> bool:
    """Tell whether an object's bounds, values and partitions are known; its Bloom filters may be missing."""
    return UNKNOWN not in row.partitions and all(
        entry is not None or held.index.kind == BLOOM for entry, held in zip(row.entries, shape.indexes, strict=True)
    )


def measure_row(row: Row) -> tuple[int, int]:
    """Return the size of a row when the store is read: approximate decompressed bytes, and number of values."""
    size, values = size_of(row.name), 1 + len(row.partitions)
    for entry in row.entries:
        if isinstance(entry, bytes):
            size, values = size + 4 + len(entry), values + 1
        elif isinstance(entry, frozenset):
            size, values = size + sum(map(size_of, entry)), values + max(1, len(entry))
        elif entry is not None:
            sides = [side for side in (entry.least, entry.greatest) if side is not None]
            size, values = size + sum(map(size_of, sides)), values + 2
    return size, values


def size_of(value: Value) -> int:
    """Return the size of a value in a store in bytes, rounded up."""
    return 16 if not isinstance(value, (str, bytes)) else 4 + len(value.encode() if isinstance(value, str) else value)


UDT = "io.xskipper.metadatastore.parquet.ParquetBaseClauseTranslator$BloomFilterMetaDataTypeUDT"
"""The class that upstream reads Bloom filters with."""
SPARK_VERSION = "4.0.0"
"""The writer's version in a file; it tells readers that dates and times are in the calendar of Spark 3.0 and later."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def schema_json(store: Store) -> str:
    """Return a store's Spark schema as JSON, as upstream's ``ParquetUtils.createDFSchema`` makes it."""
    master: dict[str, Any] = {"version": VERSION, "tableIdentifier": store.table or ""}
    if store.labels is not None:
        block = {
            "encryption.column.keys": store.labels.column_keys,
            "encryption.footer.key": store.labels.footer_key,
        }
        master["encryption"] = block
    fields = [_field(OBJECT, "string", master, nullable=False)]
    fields += [_field(column.field, column.type, {}) for column, _ in store.partitions]
    fields += [
        _field(index.index.field, _spark_type(index.index), {"index": _metadata(index.index)})
        for index in store.indexes
    ]
    return json.dumps({"type": "struct", "fields": fields}, ensure_ascii=False, separators=(",", ":"))


def table_bytes(store: Store, schema: str) -> bytes:
    """Return a plaintext Parquet file with a store's rows, in plain encoding, with gzip and without statistics.

    Every entry except Bloom filters must be known.

    Raises:
        ConfigError: pyarrow is not installed, or a value does not have its index's type.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ConfigError("writing a store needs pyarrow; install sparkcrypt[arrow]") from error
    columns: dict[str, Any] = {OBJECT: pa.array(store.objects, pa.string())}
    try:
        for column, values in store.partitions:
            columns[column.field] = pa.array(list(values), _arrow_type(column.type or ""))
        for index in store.indexes:
            columns[index.index.field] = _column(index.index, index.entries)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise ConfigError(
            f"a value is not of its index's type ({type(error).__name__}); give bounds of that type"
        ) from error
    metadata = {SPARK_SCHEMA: schema, "org.apache.spark.version": SPARK_VERSION}
    out = io.BytesIO()
    table = pa.table(columns).replace_schema_metadata(metadata)
    pq.write_table(table, out, compression="gzip", use_dictionary=False, write_statistics=False)
    return out.getvalue()


def leaf_paths_of(index: Index) -> tuple[Path, ...]:
    """Return the paths of the Parquet leaves of an index's field, as `table_bytes` writes them."""
    if index.kind == MINMAX:
        return (index.field, "min"), (index.field, "max")
    return ((index.field,),) if index.kind == BLOOM else ((index.field, "list", "element"),)


def _field(name: str, kind: Any, metadata: Mapping[str, Any], *, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def _spark_type(index: Index) -> Any:
    if index.kind == BLOOM:
        return {"type": "udt", "class": UDT, "pyClass": None, "sqlType": "binary"}
    if index.kind == MINMAX:
        return {"type": "struct", "fields": [_field(side, index.type, {}) for side in ("min", "max")]}
    return {"type": "array", "elementType": index.type, "containsNull": True}


def _metadata(index: Index) -> dict[str, Any]:
    found: dict[str, Any] = {"name": index.kind, "cols": list(index.columns)}
    if index.params:
        found["params"] = dict(index.params)
    return found if index.key is None else {**found, "key_metadata": index.key}


def _column(index: Index, entries: Sequence[Entry | None]) -> pa.Array:
    import pyarrow as pa

    if index.kind == BLOOM:
        return pa.array(list(entries), pa.binary())
    of = _arrow_type(index.type or "")
    if index.kind == MINMAX:
        rows = [{"min": entry.least, "max": entry.greatest} if isinstance(entry, Bounds) else None for entry in entries]
        return pa.array(rows, pa.struct([("min", of), ("max", of)]))
    lists = [sorted(entry, key=_order) if isinstance(entry, frozenset) else None for entry in entries]
    return pa.array(lists, pa.list_(pa.field("element", of)))


def _order(value: Any) -> Any:
    return (value != value, value if value == value else 0)


def _arrow_type(kind: str) -> pa.DataType:
    """Return pyarrow's type for a Spark type; pyarrow accepts the integers here as values of dates and times."""
    import pyarrow as pa

    match = _DECIMAL.fullmatch(kind)
    if match is not None:
        return pa.decimal128(int(match[1]), int(match[2]))
    makers: dict[str, Callable[[], pa.DataType]] = {
        **{"boolean": pa.bool_, "byte": pa.int8, "short": pa.int16, "integer": pa.int32, "long": pa.int64},
        **{"float": pa.float32, "double": pa.float64, "string": pa.string, "binary": pa.binary, "date": pa.date32},
        "timestamp": lambda: pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": lambda: pa.timestamp("us"),
    }
    if kind not in makers:
        raise ConfigError(f"an index of type {kind!r}; allowed: {', '.join(makers)} and decimal")
    return makers[kind]()

"""Reads the files of a store: their description, their objects, and the entries of their indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

from sparkcrypt.errors import FormatError, KeyAccessDeniedError, KeyNotFoundError, SparkcryptError, VerificationError
from sparkcrypt.files.parquet.file.footer import Footer, footer_of
from sparkcrypt.files.parquet.file.keys import FileCiphers, RetrieveKey, VerifyAad
from sparkcrypt.files.parquet.file.magic import check_magic_and_unique
from sparkcrypt.files.parquet.file.schema import LeafLevels, Path, leaf_levels
from sparkcrypt.files.parquet.rewrite.source_chunk import column_chunks
from sparkcrypt.files.parquet.thrift.metadata import FileMetaData, SchemaElement
from sparkcrypt.files.source import Input, open_source
from sparkcrypt.skipping.format.convert_values import FLOATS, Value, converter, modern_calendar
from sparkcrypt.skipping.format.decode_chunk import Budget, Decoded, Raw, decode_chunk
from sparkcrypt.skipping.format.description import Description, Index, PartitionColumn, describe
from sparkcrypt.skipping.format.naming import BLOOM, MINMAX, OBJECT

NO_KEY = "its key is denied, or is not there"


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A file of a store: its name, and a function that opens it."""

    name: str
    open: Callable[[], AbstractContextManager[BinaryIO]]


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
    file: StoreFile,
    *,
    retrieve_key: RetrieveKey | None = None,
    verify_aad: VerifyAad | None = None,
    check_footer: Callable[[Footer], None] | None = None,
    budget: Budget | None = None,
) -> StorePart:
    """Read a file of a store; an index whose key is denied has no entries, and ``unused`` as the reason.

    Args:
        file: the file.
        retrieve_key: returns its data keys.
        verify_aad: called with its AAD prefix before any key is requested.
        check_footer: called with its footer before anything else is read; raises an error if it must not be used.
        budget: the remaining limits of all files of the store together.

    Raises:
        FormatError: it is no file of a store, or exceeds the budget.
        VerificationError: it does not authenticate, or its file-unique has another length than every writer's.
        KeyServiceError: the key service did not open the footer's key, or could not be reached.
    """
    with file.open() as stream, open_source(stream) as source:
        try:
            ciphers = None if retrieve_key is None else FileCiphers(file.name, retrieve_key)
            footer = footer_of(source, ciphers, None, verify_aad)
            check_magic_and_unique(source, footer)
            if check_footer is not None:
                check_footer(footer)
            if footer.metadata is None:
                return StorePart(file.name, source.size, footer)
            description = describe(footer.metadata)
            return _Part(source, footer, footer.metadata, ciphers, budget or Budget()).read(file.name, description)
        except (FormatError, VerificationError) as error:
            raise _name_error(error, file.name) from error


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

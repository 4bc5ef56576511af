"""What a store has of one data file: bounds from its footer, lists of values and Bloom filters from its pages.

A list or filter contains every value of the column except null, or is unknown as a whole: if a value cannot be
compared, if there are more values than a limit of count or bytes allows, or if the file lacks the column.
Spark's tasks pack the entries of files as text for the driver, which writes the store.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sparkcrypt.errors import ConfigError, FormatError, SparkcryptError, StorageError, error_named, show
from sparkcrypt.files.footers import FooterFacts, pack, unpack
from sparkcrypt.files.open_places import Settings, place
from sparkcrypt.files.parquet import FileSummary, RetrieveKey, Source, summarise
from sparkcrypt.keys.opened import open_data_keys
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.skipping.format.bloom import BloomFilter, count_fitting, hash_value
from sparkcrypt.skipping.format.description import (
    BLOOM,
    COLUMN_TYPE,
    FALSE_POSITIVES,
    MINMAX,
    MOST_VALUES,
    VALUES,
    Index,
)
from sparkcrypt.skipping.format.store import Bounds, Entry, size_of
from sparkcrypt.skipping.format.values import INTEGERS, Value, converter, modern_calendar
from sparkcrypt.skipping.indexes.data_file import (
    DataFile,
    FileColumn,
    distinct_values,
    find_bounds,
    find_column,
    open_data_file,
)
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts, keyed_digest

if TYPE_CHECKING:
    pass


LIST_VALUES, MAX_LIST_VALUES = 1000, 100_000
"""Maximum number of distinct values in a list: the default, and the largest that is allowed."""
FILTER_SHARE, MIN_FILTER_SHARE, MAX_FILTER_SHARE = 0.01, 1e-9, 0.5
"""Share of false positives of a filter: the default, and the allowed range."""
MAX_ENTRY_BYTES = 1024 * 1024
"""Maximum size of an object's list or filter; at the default share such a filter takes 875,000 distinct values."""


class ListGatherer:
    """Collects the distinct values of an object for its list."""

    def __init__(self, index: Index) -> None:
        self.most = int(_read_number(index, MOST_VALUES, LIST_VALUES, 1, MAX_LIST_VALUES))
        self._values: set[Value] = set()
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the limits are exceeded, so that further values are not needed."""
        return len(self._values) > self.most or self._bytes > MAX_ENTRY_BYTES

    def add(self, values: Iterable[Value]) -> None:
        """Add values, which may have been added before."""
        for value in values:
            if value not in self._values:
                self._values.add(value)
                self._bytes += size_of(value)
                if self.is_full:
                    return

    def entry(self) -> Entry | str:
        """Return the list, or the reason why there is none."""
        if len(self._values) > self.most:
            return f"it has more than {self.most:,} distinct values"
        return "its distinct values take more than 1 MiB" if self.is_full else frozenset(self._values)


class FilterGatherer:
    """Collects the hashes of an object's values for its filter."""

    def __init__(self, index: Index) -> None:
        self._share = _read_number(index, FALSE_POSITIVES, FILTER_SHARE, MIN_FILTER_SHARE, MAX_FILTER_SHARE)
        self.most = count_fitting(MAX_ENTRY_BYTES, self._share)
        self._hashes: set[int] = set()

    @property
    def is_full(self) -> bool:
        """Whether there are too many values for a filter, so that further ones are not needed."""
        return len(self._hashes) > self.most

    def add(self, values: Iterable[Value]) -> None:
        """Add values, which may have been added before."""
        self._hashes.update(hash_value(_as_hashed(value)) for value in values)

    def entry(self) -> Entry | str:
        """Return the filter, sized for the distinct values, or the reason why there is none."""
        if self.is_full:
            return f"it has more than {self.most:,} distinct values, whose filter would take more than 1 MiB"
        made = BloomFilter.for_values(max(1, len(self._hashes)), self._share)
        for hashes in self._hashes:
            made.add_hashes(hashes)
        return made.to_bytes()


def _as_hashed(value: Value) -> int | str:
    if isinstance(value, (int, str)):
        return value
    raise FormatError(f"a filter of values of type {type(value).__name__}; expected integers or text")


def _read_number(index: Index, name: str, default: float, least: float, most: float) -> float:
    """Return a numeric parameter of an index, or the default if the index does not have it.

    Raises:
        FormatError: it is no number, or is out of range.
    """
    text = dict(index.params).get(name, str(default))
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise FormatError(
            f"the index of {index.columns[0]!r} has {name} {show(text)}; expected {least} to {most}: create the index "
            "anew"
        )
    return number


FILTER_TYPES = (*INTEGERS, "string")
"""Column types that can have Bloom filters: those that upstream's readers and Spark's filters support."""


@dataclass(frozen=True, slots=True)
class ReadFile:
    """The result of reading a file: its facts and summary, index -> entry, and index -> reason of an unknown entry."""

    facts: ObjectFacts
    summary: FileSummary
    entries: Mapping[Index, Entry | None]
    unknown: Mapping[Index, str]


def make_index(column: str, kind: str, column_type: str, *, most_values: int, false_positives: float) -> Index:
    """Return the description of an index to make, after checking it.

    Args:
        column: a top-level column.
        kind: `MINMAX`, `VALUES` or `BLOOM`.
        column_type: the column's Spark type.
        most_values: maximum number of values in a list.
        false_positives: share of false positives of a filter.

    Raises:
        ConfigError: Bloom filters do not support the type, or a limit is out of range.
    """
    if kind == MINMAX:
        return Index("", MINMAX, (column,), column_type)
    if kind == VALUES:
        if not 1 <= most_values <= MAX_LIST_VALUES:
            raise ConfigError(f"a list of at most {most_values} values; allowed: 1 to {MAX_LIST_VALUES:,}")
        return Index("", VALUES, (column,), column_type, ((MOST_VALUES, str(most_values)),))
    if column_type not in FILTER_TYPES:
        raise ConfigError(
            f"column {column!r}: has no Bloom filter, since it is of type {column_type}; allowed: "
            f"{', '.join(FILTER_TYPES)}; index it by minmax or values"
        )
    if not MIN_FILTER_SHARE <= false_positives <= MAX_FILTER_SHARE:
        raise ConfigError(
            f"a share of {false_positives} false positives; allowed: {MIN_FILTER_SHARE} to {MAX_FILTER_SHARE}"
        )
    return Index("", BLOOM, (column,), "binary", ((FALSE_POSITIVES, str(false_positives)), (COLUMN_TYPE, column_type)))


def read_file(
    source: Source, indexes: Sequence[Index], retrieve_key: RetrieveKey | None, digest_key: bytes
) -> ReadFile:
    """Read a file's facts, and the entries of indexes from its footer and the pages of columns with a list or filter.

    Args:
        source: the data file.
        indexes: the indexes, each over one column.
        retrieve_key: returns the keys of the footer and of these columns.
        digest_key: the key of the footer's digest.

    Raises:
        FormatError: the file is damaged.
        VerificationError: a module that is read does not authenticate.
        ConfigError: a key is needed and retrieve_key is None, or a column cannot be indexed.
        KeyServiceError: a key is denied or unavailable.
    """
    found: dict[Index, Entry | str] = {}
    with open_data_file(source, retrieve_key) as data:
        for name, kind, wanted in _by_column(indexes):
            column = find_column(data, name, kind) if kind is not None else "its index does not tell its type"
            if isinstance(column, str) or kind is None:
                found |= {index: str(column) for index in wanted}
                continue
            for index in wanted:
                if index.kind == MINMAX:
                    found[index] = find_bounds(data, column, kind)
            found |= _read_values(data, column, kind, [index for index in wanted if index.kind != MINMAX])
    unique = data.footer.aad_file_unique
    return ReadFile(
        ObjectFacts(data.file.size, None if unique is None else unique.hex(), keyed_digest(digest_key, data.tail)),
        summarise(data.footer),
        {index: None if isinstance(entry, str) else entry for index, entry in found.items()},
        {index: entry for index, entry in found.items() if isinstance(entry, str)},
    )


def _by_column(indexes: Sequence[Index]) -> Iterator[tuple[str, str | None, list[Index]]]:
    """Yield each column with its type and the indexes over it."""
    columns: dict[tuple[str, str | None], list[Index]] = {}
    for index in indexes:
        columns.setdefault((index.columns[0], index.column_type), []).append(index)
    for (name, kind), wanted in columns.items():
        yield name, kind, wanted


def _read_values(data: DataFile, column: FileColumn, kind: str, indexes: Sequence[Index]) -> dict[Index, Entry | str]:
    """Return the lists and filters of a column; its pages are read once for all of them."""
    if not indexes:
        return {}
    gatherers = {index: FilterGatherer(index) if index.kind == BLOOM else ListGatherer(index) for index in indexes}
    most = max(gatherer.most for gatherer in gatherers.values())
    convert = converter(kind, column.element, modern_calendar=modern_calendar(data.metadata))
    for raw in distinct_values(data, column, most):
        values = raw if isinstance(raw, str) else _compare_values([convert(value) for value in raw])
        if isinstance(values, str):
            return dict.fromkeys(indexes, values)
        for gatherer in gatherers.values():
            if not gatherer.is_full:
                gatherer.add(values)
        if all(gatherer.is_full for gatherer in gatherers.values()):
            break
    return {index: gatherer.entry() for index, gatherer in gatherers.items()}


_NAN = float("nan")


def _compare_values(values: Sequence[Value | None]) -> list[Value] | str:
    """Return values with one object for all NaNs, so that a set has only one; or the reason why they are unknown."""
    found: list[Value] = []
    for value in values:
        if value is None:
            return "it has a value that is no UTF-8, is none of its type, or is before 1900 in an unknown calendar"
        found.append(value if value == value else _NAN)
    return found


def pack_file(path: str, found: ReadFile | SparkcryptError, indexes: Sequence[Index]) -> str:
    """Return a file's result or error as JSON, in which entries are in the order of the indexes."""
    if isinstance(found, SparkcryptError):
        return json.dumps({"path": path, "error": [type(found).__name__, str(found)]})
    facts = found.facts
    return json.dumps(
        {
            "path": path,
            "facts": [facts.length, facts.file_unique, facts.footer_digest],
            "summary": pack({path: FooterFacts(found.summary, {})}),
            "entries": [_pack_entry(found.entries.get(index)) for index in indexes],
            "unknown": [found.unknown.get(index) for index in indexes],
        }
    )


def unpack_file(packed: str, indexes: Sequence[Index]) -> tuple[str, ReadFile | SparkcryptError]:
    """Return a file's path, and the result or error that `pack_file` packed."""
    document = json.loads(packed)
    path = str(document["path"])
    if "error" in document:
        kind, message = document["error"]
        return path, error_named(kind)(message)
    facts = unpack(document["summary"])[path]
    if isinstance(facts, SparkcryptError):
        return path, facts
    entries = [_unpack_entry(entry) for entry in document["entries"]]
    unknown = {index: why for index, why in zip(indexes, document["unknown"], strict=True) if why is not None}
    read = ReadFile(ObjectFacts(*document["facts"]), facts.summary, dict(zip(indexes, entries, strict=True)), unknown)
    return path, read


def read_packed(
    indexes: Sequence[Index], key_service: str, settings: Settings, digest_key: bytes, paths: Iterable[str]
) -> Iterator[str]:
    """Yield the packed result, or error, of each file.

    Args:
        indexes: the indexes, each over one column.
        key_service: the key service's configuration, as canonical JSON.
        settings: how to reach the files.
        digest_key: the key of the footers' digests.
        paths: the files.
    """
    retrieve = open_data_keys(KeyServiceConfig.from_dict(json.loads(key_service)))
    for path in paths:
        try:
            found: ReadFile | SparkcryptError = read_file(place(path, settings), indexes, retrieve, digest_key)
        except SparkcryptError as error:
            found = error
        except OSError as error:
            found = StorageError(f"{path}: {error}")
        yield pack_file(path, found, indexes)


def _pack_entry(entry: Entry | None) -> Any:
    if entry is None:
        return None
    if isinstance(entry, bytes):
        return {"filter": base64.b64encode(entry).decode()}
    if isinstance(entry, frozenset):
        return {"values": [_pack_value(value) for value in entry]}
    return {"bounds": [_pack_value(entry.least), _pack_value(entry.greatest)]}


def _unpack_entry(packed: Any) -> Entry | None:
    if packed is None:
        return None
    if "filter" in packed:
        return base64.b64decode(packed["filter"])
    if "values" in packed:
        return frozenset(_unpack_value(value) for value in packed["values"])
    return Bounds(*map(_unpack_value, packed["bounds"]))


def _pack_value(value: Any) -> Any:
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return {"decimal": str(value)} if isinstance(value, Decimal) else value


def _unpack_value(packed: Any) -> Any:
    if not isinstance(packed, dict):
        return packed
    if "float" in packed:
        number = float.fromhex(packed["float"])
        return number if number == number else _NAN
    return base64.b64decode(packed["bytes"]) if "bytes" in packed else Decimal(packed["decimal"])

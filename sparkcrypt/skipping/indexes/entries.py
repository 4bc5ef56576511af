"""Reads a store's entries of one data file: bounds from its footer, lists of values and Bloom filters from its pages.

A list or filter contains every value of the column except null, or is unknown as a whole: if a value cannot be
compared, if there are too many values, or if the file lacks the column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparkcrypt.errors import ConfigError
from sparkcrypt.files.parquet import FileSummary, RetrieveKey, Source, summarise
from sparkcrypt.skipping.format.convert_values import INTEGERS, Value, converter, modern_calendar
from sparkcrypt.skipping.format.description import Index
from sparkcrypt.skipping.format.naming import BLOOM, COLUMN_TYPE, FALSE_POSITIVES, MINMAX, MOST_VALUES, VALUES
from sparkcrypt.skipping.format.store import Entry
from sparkcrypt.skipping.indexes.data_file import DataFile, FileColumn, find_column, open_data_file
from sparkcrypt.skipping.indexes.footer_bounds import find_bounds
from sparkcrypt.skipping.indexes.gatherers import (
    MAX_FILTER_SHARE,
    MAX_LIST_VALUES,
    MIN_FILTER_SHARE,
    FilterGatherer,
    ListGatherer,
)
from sparkcrypt.skipping.indexes.page_values import distinct_values
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts, keyed_digest

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

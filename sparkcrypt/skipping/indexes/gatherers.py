"""Collects the distinct values of one object into a list or a Bloom filter, within limits.

A list or filter contains all values, or is unknown if they exceed a limit of count or bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from sparkcrypt.errors import FormatError, show
from sparkcrypt.skipping.format.bloom import BloomFilter, count_fitting, hash_value
from sparkcrypt.skipping.format.convert_values import Value
from sparkcrypt.skipping.format.description import Index
from sparkcrypt.skipping.format.merge import size_of
from sparkcrypt.skipping.format.naming import FALSE_POSITIVES, MOST_VALUES
from sparkcrypt.skipping.format.store import Entry

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

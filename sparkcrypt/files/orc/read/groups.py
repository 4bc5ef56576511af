"""Finds the row groups of a stripe that a filter cannot rule out by their statistics.

pyarrow's datasets omit fragments whose partition expression contradicts a filter; here a fragment, which is never
opened, represents a row group, and its partition expression the conditions from the row group's statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import product
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from sparkcrypt.files.orc.read.bounds import WriterFacts, conditions_of
from sparkcrypt.files.orc.read.stripe_streams import StripeStreams
from sparkcrypt.files.orc.read.types import ReadColumn

MOST_ALTERNATIVES = 32
"""The most alternative conditions of a row group; columns that would exceed it are ignored."""


def kept_groups(
    streams: StripeStreams,
    columns: Sequence[ReadColumn],
    writer: WriterFacts,
    condition: pc.Expression,
    schema: pa.Schema,
) -> list[int]:
    """Return the numbers of the row groups to read.

    Args:
        streams: of the stripe.
        columns: the top-level columns that the filter refers to and whose statistics may be used.
        writer: the file's writer.
        condition: the filter.
        schema: a schema with all columns that the filter refers to.

    Raises:
        FormatError: a row index is damaged.
        StorageError: the storage failed.
    """
    if not streams.stripe.rows:
        return []
    indexes = [(column, index) for column in columns if (index := streams.row_index(column)) is not None]
    names, bounds = [], []
    for group in range(streams.groups if indexes else 0):
        of_columns = []
        for column, index in indexes:
            statistics = index.statistics(group)
            of_columns.append([] if statistics is None else conditions_of(column, statistics, writer))
        for alternative in _combine(of_columns):
            names.append(str(group))
            bounds.append(alternative)
    if not indexes:
        return list(range(streams.groups))
    return sorted({int(name) for name in _select_left_over(names, bounds, condition, schema)})


def join_runs(groups: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield runs of consecutive row groups, each as its first number and the number after its last."""
    start = end = -1
    for group in groups:
        if group != end:
            if end > start:
                yield start, end
            start = group
        end = group + 1
    if end > start:
        yield start, end


def _combine(of_columns: Sequence[Sequence[pc.Expression]]) -> Iterator[pc.Expression | None]:
    """Yield conditions of which at least one holds for each row; None is the condition that always holds."""
    used, count = [], 1
    for known in of_columns:
        if known and count * len(known) <= MOST_ALTERNATIVES:
            used.append(known)
            count *= len(known)
    for chosen in product(*used):
        yield reduce(and_, chosen) if chosen else None


def _select_left_over(
    names: Sequence[str], known: Sequence[pc.Expression | None], condition: pc.Expression, schema: pa.Schema
) -> Iterator[str]:
    storage, layout = LocalFileSystem(), ds.ParquetFileFormat()
    fragments = [
        layout.make_fragment(name, storage) if held is None else layout.make_fragment(name, storage, held)
        for name, held in zip(names, known, strict=True)
    ]
    return (
        fragment.path for fragment in ds.FileSystemDataset(fragments, schema, layout, storage).get_fragments(condition)
    )

"""Which row groups of a stripe a filter cannot rule out by their statistics.

pyarrow's datasets leave out fragments whose partition contradicts a filter; here a fragment stands for what is known of
a row group, and is never opened.
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

from sparkcrypt.orc.read.bounds import WriterFacts, known_of
from sparkcrypt.orc.read.stripe_streams import StripeStreams
from sparkcrypt.orc.read.types import ReadColumn

MOST_ALTERNATIVES = 32
"""Of conditions of which one holds; where there are more, columns after them are taken to be unknown."""


def kept_groups(
    streams: StripeStreams,
    columns: Sequence[ReadColumn],
    writer: WriterFacts,
    condition: pc.Expression,
    schema: pa.Schema,
) -> list[int]:
    """Return the numbers of the row groups that are to be read.

    Args:
        streams: of the stripe.
        columns: of the first level, that the filter asks for and whose statistics may be used.
        writer: of the file.
        condition: the filter.
        schema: of all columns that the filter asks for.

    Raises:
        FormatError: a row index is damaged.
        StorageError: the storage failed.
    """
    if not streams.stripe.rows:
        return []
    indexes = [(column, index) for column in columns if (index := streams.row_index(column)) is not None]
    names, known = [], []
    for group in range(streams.groups if indexes else 0):
        of_columns = []
        for column, index in indexes:
            statistics = index.statistics(group)
            of_columns.append([] if statistics is None else known_of(column, statistics, writer))
        for alternative in _combine(of_columns):
            names.append(str(group))
            known.append(alternative)
    if not indexes:
        return list(range(streams.groups))
    return sorted({int(name) for name in _left_over(names, known, condition, schema)})


def join_runs(groups: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield runs of row groups that follow each other: the first, and that after the last."""
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
    """Yield conditions of which one holds for each row; None is one that always holds."""
    used, count = [], 1
    for known in of_columns:
        if known and count * len(known) <= MOST_ALTERNATIVES:
            used.append(known)
            count *= len(known)
    for chosen in product(*used):
        yield reduce(and_, chosen) if chosen else None


def _left_over(
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

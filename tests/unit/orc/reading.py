"""Rows of ORC files as tests read them, and generated tables that are written to such files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sparkcrypt.arrow.shape import columns_in
from sparkcrypt.files.orc.file.encryption import LocalKeys
from sparkcrypt.files.orc.file.tail import tail_of
from sparkcrypt.files.orc.read.rows import GroupCount, RowsOrder, read_rows
from sparkcrypt.files.orc.read.stripe_streams import find_columns, read_type
from sparkcrypt.files.parquet import RetrieveKey
from sparkcrypt.files.source import naming, open_source
from tests.unit.orc.corpus import retrieve_key


def read_orc(
    source: Path | bytes,
    columns: Sequence[str] | None = None,
    condition: pc.Expression | None = None,
    *,
    keys: RetrieveKey = retrieve_key,
    count: GroupCount | None = None,
) -> pa.Table:
    """Return rows of a file, with those columns too that the filter asks for; all columns where none are named."""
    with open_source(source) as file, naming(file.name):
        tail = tail_of(file)
        found = [
            read_type(tail, column) for column in find_columns(tail) if columns is None or column.path[0] in columns
        ]
        schema = pa.schema([pa.field(column.path[0], column.type) for column in found])
        asked = columns_in(condition, schema)
        counted = frozenset(column.number for column in found if column.path[0] in asked)
        order = RowsOrder(found, condition=condition, counted=counted, count=count or GroupCount())
        return pa.Table.from_batches(read_rows(file, tail, LocalKeys(file.name, keys), order), order.schema)

"""Reads a single file with nulls in place of its denied leaves, and dates of the old calendar in the new one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from sparkcrypt.arrow.judge import Judge
from sparkcrypt.arrow.masks import Denied, kept_type, restore
from sparkcrypt.arrow.old_calendar import to_new_calendar
from sparkcrypt.arrow.shape import INT96_UNIT, columns_of, leaves_of, make_nullable, paths_in_file
from sparkcrypt.errors import PlanError
from sparkcrypt.schema import shown_path


def read_masked(
    judge: Judge,
    path: str,
    schema: pa.Schema,
    denied: Mapping[str, Denied],
    values: Mapping[str, pa.Scalar],
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows as Spark reads them, with nulls for its denied leaves, whose keys are not requested.

    Args:
        judge: opens the file.
        path: the file's path.
        schema: the schema of the batches.
        denied: column -> its denied leaves.
        values: partition column -> its value in this file.
        batch_rows: maximum number of rows in a batch.

    Raises:
        SparkcryptError: as `GuardedTable.scan`.
    """
    columns = columns_of(judge.footer(path))
    paths, variants = paths_in_file(columns), columns.variants()
    with (
        pa.PythonFile(judge.open(path), mode="r") as source,
        pq.ParquetFile(
            source,
            decryption_properties=judge.keys(path).properties(),
            pre_buffer=True,
            coerce_int96_timestamp_unit=INT96_UNIT,
        ) as file,
    ):
        own = (make_nullable(field, variants) for field in file.schema_arrow if field.name in schema.names)
        types = {field.name: field.type for field in own}
        kept = {name: kept_type(kind, denied.get(name, {})) for name, kind in types.items() if name not in values}
        leaves = [leaf for name, kind in kept.items() if kind is not None for leaf in leaves_of(kind, (name,))]
        names = [".".join(_find(path, paths, leaf)) for leaf in leaves]
        old = judge.old_columns(path)
        for batch in _read(file, names, batch_rows):
            read = [to_new_calendar(path, batch.column(name), (name,), old) for name in batch.schema.names if name]
            found = pa.RecordBatch.from_arrays(read, names=batch.schema.names) if read else batch
            yield pa.RecordBatch.from_arrays(
                [_column(found, field, types, denied, values) for field in schema], schema=schema
            )


def _find(path: str, known: Mapping[tuple[str, ...], tuple[str, ...]], leaf: tuple[str, ...]) -> tuple[str, ...]:
    found = known.get(leaf)
    if found is None:
        raise PlanError(
            f"{path}: column {shown_path(leaf)} cannot be told from its denied siblings by the names in this file; "
            "leave it out, or read the table with Spark"
        )
    return found


def _read(file: pq.ParquetFile, names: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of columns; without columns, yield batches with the file's number of rows."""
    if names:
        yield from file.iter_batches(batch_size=batch_rows, columns=names)
        return
    left = file.metadata.num_rows
    while left > 0:
        count = min(left, batch_rows)
        yield pa.RecordBatch.from_arrays([pa.nulls(count)], names=[""])
        left -= count


def _column(
    batch: pa.RecordBatch,
    field: pa.Field,
    types: Mapping[str, pa.DataType],
    denied: Mapping[str, Denied],
    values: Mapping[str, pa.Scalar],
) -> pa.Array:
    if field.name in values:
        return pa.repeat(values[field.name], batch.num_rows)
    place = batch.schema.get_field_index(field.name)
    if place < 0:
        return pa.nulls(batch.num_rows, field.type)
    return restore(batch.column(place), types[field.name], denied.get(field.name, {})).cast(field.type)

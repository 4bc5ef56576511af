"""Reads files of the corpus with Spark, those of one schema together, and returns the rows of each as texts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sparkcrypt.schema import split_dotted
from tests.corpus.driving import Trial
from tests.spark.support import said_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Rows = dict[str, list[str] | str]
"""File -> its rows, or what Spark said in their place."""
TOGETHER = 60
"""The most files in one query; a query's plan grows with them."""


def infer_schemas(session: SparkSession, trials: Iterable[Trial]) -> None:
    """Keep Spark's own schema of each file, or what it says in its place."""
    for trial in trials:
        try:
            trial.spark_schema = _reader(session, trial).load(str(trial.source)).schema.json()
        except Exception as error:  # noqa: BLE001 - what Spark says of a file is compared with the manifest
            trial.spark_error = said_of(error)


def groups(trials: Iterable[Trial]) -> list[list[Trial]]:
    """Return the files of one schema and format together."""
    found: dict[Any, list[Trial]] = defaultdict(list)
    for trial in trials:
        if trial.spark_schema is not None:
            found[trial.spark_schema, trial.is_orc, len(found[trial.spark_schema, trial.is_orc]) // TOGETHER].append(trial)
    return [group for group in found.values() if group]


def read_rows(
    session: SparkSession, group: Sequence[Trial], step: str | None, mask: Callable[[str], bool] = lambda _: False
) -> Rows:
    """Read files of one schema; if that fails, each alone.

    Args:
        session: whose policy and keys hold.
        group: the files.
        step: which outcome of them; None for the files themselves.
        mask: whether nulls are put in place of the columns with a tag.
    """
    try:
        return _read(session, group, step, mask)
    except Exception as error:  # noqa: BLE001 - see above
        if len(group) == 1:
            return {group[0].name: said_of(error)}
        found: Rows = {}
        for trial in group:
            found |= read_rows(session, [trial], step, mask)
        return found


def _read(session: SparkSession, group: Sequence[Trial], step: str | None, mask: Callable[[str], bool]) -> Rows:
    first = group[0]
    schema = StructType.fromJson(json.loads(first.spark_schema or "{}"))
    paths = [str(trial.source if step is None else trial.place(step)) for trial in group]
    reader = _reader(session, first) if len(group) == 1 else _reader(session, first).schema(schema)
    frame = reader.load(paths)
    row = _row(frame, schema, {split_dotted(path) for path, (tag, *_) in first.tags.items() if mask(tag)})
    found: dict[str, list[str]] = {trial.name: [] for trial in group}
    if len(group) == 1:
        found[first.name] = [said for (said,) in frame.select(row).collect()]
    else:
        for name, said in frame.select("_metadata.file_name", row).collect():
            found[name].append(said)
    return {**found}


def _reader(session: SparkSession, trial: Trial) -> Any:
    return session.read.format("orc" if trial.is_orc else "parquet")


def _row(frame: DataFrame, schema: StructType, masked: set[tuple[str, ...]]) -> Column:
    """Return a row as one text, with nulls in place of some columns."""
    columns = [_column(F.col(_quoted(field.name)), field, (field.name,), masked) for field in schema]
    return F.struct(*columns).cast("string") if columns else F.lit("a row")


def _column(found: Column, field: StructField, path: tuple[str, ...], masked: set[tuple[str, ...]]) -> Column:
    if path in masked:
        return F.lit(None).cast(field.dataType).alias(field.name)
    if not isinstance(field.dataType, StructType) or not any(deeper[: len(path)] == path for deeper in masked):
        return found.alias(field.name)
    inner = [_column(found.getField(below.name), below, (*path, below.name), masked) for below in field.dataType]
    return F.when(found.isNotNull(), F.struct(*inner)).alias(field.name)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"

"""Returns a table's data columns, and its partitions that a predicate over partition columns chooses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkcrypt.errors import PredicateError
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import NULL_VALUE, Partition, Table, quote_name

_PLACE = "#"
_CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
_CHAR = re.compile(r"char\((\d+)\)")


def data_schema(table: Table) -> T.StructType:
    """Return the schema of the columns that are in a table's files, with their metadata."""
    partition = {name.lower() for name in table.partition_columns}
    return T.StructType([field for field in _schema(table).fields if field.name.lower() not in partition])


def choose_partitions(spark: SparkSession, table: Table, where: str | None) -> tuple[Partition, ...]:
    """Return the partitions for which a predicate is true, or all partitions without one.

    Args:
        spark: a classic session.
        table: a partitioned table.
        where: SQL over partition columns, such as ``day >= '2026-01-01'``.

    Raises:
        PredicateError: the predicate is not SQL, or names other columns.
    """
    partitions = Catalog(spark).partitions(table)
    if not where or not partitions:
        return partitions
    fields = {field.name.lower(): field for field in _schema(table).fields}
    texts = T.StructType([T.StructField(name, T.StringType()) for name in (_PLACE, *table.partition_columns)])
    rows = [
        (str(place), *(None if value == NULL_VALUE else value for _, value in partition.values))
        for place, partition in enumerate(partitions)
    ]
    try:
        frame = spark.createDataFrame(rows, texts)
        frame = frame.select(_PLACE, *(_cast_column(name, fields[name.lower()]) for name in table.partition_columns))
        with _without_log():
            kept = {int(row[_PLACE]) for row in frame.where(where).collect()}
    except JVM_ERRORS as error:
        types = {name: fields[name.lower()].dataType.simpleString() for name in table.partition_columns}
        columns = ", ".join(f"{name} ({kind})" for name, kind in types.items())
        name, value = partitions[-1].values[0]
        raise PredicateError(
            f"--where {where!r}: {_reason(error, [*fields])}; allowed: a condition in SQL on the partition columns of "
            f"{table.full_name}: {columns}; such as --where \"{name} = '{value}'\""
        ) from error
    return tuple(partition for place, partition in enumerate(partitions) if place in kept)


def _reason(error: BaseException, columns: list[str]) -> str:
    """Return Spark's reason against a predicate, without its error class and its names of internal columns."""
    text = " ".join(next((line for line in str(error).splitlines() if line.strip()), "it is no condition").split())
    unknown = re.search(r"with name (`[^ ]+`) cannot be resolved", text)
    if unknown is None:
        return re.sub(r"^\[[A-Z_.]+\] ?", "", text).partition(" SQLSTATE")[0].rstrip(".;")
    in_files = unknown[1].strip("`").lower() in columns
    return f"{unknown[1]} is {'in the files, and no partition column' if in_files else 'no column of the table'}"


@contextmanager
def _without_log() -> Iterator[None]:
    """Keep pyspark, in 4.0 and later, from logging an error with its whole stack of Java before it raises it."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        yield
        return
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def _cast_column(name: str, field: T.StructField) -> Column:
    """Return a column of texts with a field's type; values of CHAR(n) are padded, as Spark does when it reads them."""
    column = F.col(quote_name(name))
    char = _CHAR.fullmatch(str(field.metadata.get(_CHAR_TYPE)))
    if char is None:
        return column.cast(field.dataType).alias(name)
    return F.rpad(column, int(char[1]), " ").alias(name, metadata={_CHAR_TYPE: char[0]})  # so it pads literals too


def _schema(table: Table) -> T.StructType:
    return T.StructType.fromJson(json.loads(table.schema_json))

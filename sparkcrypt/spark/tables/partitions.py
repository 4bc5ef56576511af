"""Returns a table's data columns, and its partitions that a predicate over partition columns chooses."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkcrypt.errors import PlanError
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Partition, Table

_PLACE = "#"


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
        PlanError: the predicate is not SQL, or names other columns.
    """
    partitions = Catalog(spark).partitions(table)
    if not where or not partitions:
        return partitions
    types = {field.name.lower(): field.dataType for field in _schema(table).fields}
    texts = T.StructType([T.StructField(name, T.StringType()) for name in (_PLACE, *table.partition_columns)])
    rows = [(str(place), *(value for _, value in partition.values)) for place, partition in enumerate(partitions)]
    try:
        frame = spark.createDataFrame(rows, texts)
        for name in table.partition_columns:
            frame = frame.withColumn(name, F.col(f"`{name}`").cast(types[name.lower()]))
        kept = {int(row[_PLACE]) for row in frame.where(where).collect()}
    except JVM_ERRORS as error:
        allowed = ", ".join(table.partition_columns)
        raise PlanError(f"--where {where!r}: {str(error).splitlines()[0]}; allowed columns: {allowed}") from error
    return tuple(partition for place, partition in enumerate(partitions) if place in kept)


def _schema(table: Table) -> T.StructType:
    return T.StructType.fromJson(json.loads(table.schema_json))

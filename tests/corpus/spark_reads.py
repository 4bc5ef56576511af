"""Reads files of the corpus with Spark, many in one query, and returns the rows of each as texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sparkcrypt.spark.jvm.gateway import java_session, jvm
from tests.corpus.driving import Trial
from tests.spark.support import said_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = dict[tuple[str, str], list[str]]
"""File and step -> its rows."""
MOST_COLUMNS = 80
"""The most columns of files that are read together."""


def infer_schemas(session: SparkSession, trials: Iterable[Trial]) -> None:
    """Keep Spark's own schema of each file, or what Spark says in its place."""
    java, own = jvm(session), java_session(session)
    spark_parquet = java.org.apache.spark.sql.execution.datasources.parquet
    every_column = java.org.apache.parquet.format.converter.ParquetMetadataConverter.NO_FILTER
    reader, conf = java.org.apache.parquet.hadoop.ParquetFileReader, own.sessionState().newHadoopConf()
    converter = spark_parquet.ParquetToSparkSchemaConverter(own.sessionState().conf())
    for trial in trials:
        try:
            if trial.is_orc:
                trial.spark_schema = session.read.orc(str(trial.source)).schema.json()
                continue
            path = java.org.apache.hadoop.fs.Path(str(trial.source))
            footer = java.org.apache.parquet.hadoop.Footer(path, reader.readFooter(conf, path, every_column))
            # What a read without a schema does in a job for each file.
            trial.spark_schema = spark_parquet.ParquetFileFormat.readSchemaFromFooter(footer, converter).json()
        except Exception as error:  # noqa: BLE001 - what Spark says of a file is compared with the manifest
            trial.spark_error = said_of(error)


def fields_of(trial: Trial) -> StructType:
    """Return the columns of a file, none of them required, as a read without a schema has them."""
    schema: StructType = StructType.fromJson(json.loads(trial.spark_schema or '{"type": "struct", "fields": []}'))
    for field in schema:
        field.nullable = True
    return schema


def choose_groups(trials: Iterable[Trial]) -> list[list[Trial]]:
    """Return files that one schema reads, since none has a column of the name, and of another type, together."""
    found: list[tuple[list[Trial], dict[str, Any]]] = []
    for trial in trials:
        fields = fields_of(trial)
        own = {field.name: field.dataType for field in fields}
        for group, columns in found:
            alike = all(columns.get(name, kind) == kind for name, kind in own.items())
            if alike and group[0].is_orc == trial.is_orc and len(own | columns) <= max(MOST_COLUMNS, len(own)):
                group.append(trial)
                columns.update(own)
                break
        else:
            found.append(([trial], own))
    return [group for group, _ in found]


def read_rows(session: SparkSession, group: Sequence[Trial], steps: Sequence[str], said: dict[str, str]) -> Rows:
    """Read steps of files; if that fails, each half of them alone, and note what Spark says of a single one."""
    try:
        return _read(session, group, steps)
    except Exception as error:  # noqa: BLE001 - see above
        if len(group) == 1:
            said[group[0].name] = said_of(error)
            return {}
        half = len(group) // 2
        return read_rows(session, group[:half], steps, said) | read_rows(session, group[half:], steps, said)


def _read(session: SparkSession, group: Sequence[Trial], steps: Sequence[str]) -> Rows:
    fields: dict[str, StructField] = {}
    for trial in group:
        fields |= {field.name: field for field in fields_of(trial)}
    schema = StructType(list(fields.values()))
    places = {str(trial.place(step)): (trial.name, step) for trial in group for step in steps}
    frame = session.read.format("orc" if group[0].is_orc else "parquet").schema(schema).load(list(places))
    row = F.struct("*").cast("string") if fields else F.lit("a row")
    found: Rows = {where: [] for where in places.values()}
    by_end = {tuple(place.split("/")[-3:]): where for place, where in places.items()}
    for file, text in frame.select(F.input_file_name(), row).collect():
        found[by_end[tuple(file.split("/")[-3:])]].append(text)
    return found

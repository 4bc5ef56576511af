"""The Spark side of the demo of retention: make a table of 14 months, and read it by every route."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import date
from typing import Any, Literal, TypeAlias

import duckdb
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import sparkcrypt
from sparkcrypt.arrow import open_table
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.jvm.failures import find_carried_error
from sparkcrypt.spark.tables.tagging import set_tags

Route: TypeAlias = Callable[[], "list[Any]"]

TABLE = "crm.contacts"
A_MONTH = 3
"""Rows of each."""


def session(policy: str) -> SparkSession:
    """Return a session as the demo's spark-defaults.conf describes it, under the policy."""
    spark = SparkSession.builder.appName("sparkcrypt retention demo").enableHiveSupport().getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    sparkcrypt.configure(spark, sparkcrypt.load_policy(policy))
    return spark


def make(policy: str, *months: str) -> None:
    """Make a table, tag it before its first row, and write some rows of each month; no key of a month is there yet."""
    spark = session(policy)
    spark.sql("CREATE DATABASE crm")
    columns = "id INT, email STRING, ssn STRING, ingest_date DATE"
    spark.sql(f"CREATE TABLE {TABLE} ({columns}) USING parquet PARTITIONED BY (ingest_date)")
    set_tags(spark, TABLE, {"email": ["contact"], "ssn": ["pii"]}, sparkcrypt.load_policy(policy))
    rows = [
        f"({place * A_MONTH + row}, 'mail-{month}-{row}', 'ssn-{month}-{row}', DATE '{month}-15')"
        for place, month in enumerate(months)
        for row in range(A_MONTH)
    ]
    spark.sql(f"INSERT INTO {TABLE} SELECT /*+ COALESCE(1) */ * FROM VALUES {', '.join(rows)}")
    print(json.dumps(spark.table(TABLE).count()))


def read(policy: str, *months: str) -> None:
    """Print what each route gives of each month."""
    spark, loaded = session(policy), sparkcrypt.load_policy(policy)
    # A run has put partitions elsewhere: pyarrow is given the folders that the metastore has.
    folders = sorted({name.rpartition("/")[0] for name in spark.table(TABLE).inputFiles()})
    routes = {month: routes_to(month, spark, loaded, folders) for month in months}
    found = {month: {name: answer_of(route) for name, route in of_month.items()} for month, of_month in routes.items()}
    print(json.dumps(found))


def routes_to(month: str, spark: SparkSession, policy: Policy, folders: list[str]) -> dict[str, Route]:
    """Return ways to a month's ``email``, and one to its ``ssn``."""
    where = f"ingest_date = '{month}-15'"

    def by_spark(column: str) -> list[Any]:
        return [row[0] for row in spark.sql(f"SELECT {column} FROM {TABLE} WHERE {where}").collect()]

    def with_nulls() -> list[Any]:
        frame = sparkcrypt.read_table(spark, TABLE, policy, on_denied="mask")
        return [row.email for row in frame.where(where).collect()]

    def by_arrow(mode: Literal["error", "mask"]) -> list[Any]:
        condition = pc.field("ingest_date") == date.fromisoformat(f"{month}-15")
        rows = open_table(folders, policy, table=TABLE, on_denied=mode).to_table(["email"], condition)
        return list(rows["email"].to_pylist())

    def by_duckdb() -> list[Any]:
        stream = open_table(folders, policy, table=TABLE, on_denied="mask").scan(["email", "ingest_date"])
        with duckdb.connect() as connection:
            connection.register("stream", stream)
            return [row[0] for row in connection.sql(f"SELECT email FROM stream WHERE {where}").fetchall()]

    return {
        "Spark SQL": lambda: by_spark("email"),
        "Spark, nulls asked for": with_nulls,
        "pyarrow": lambda: by_arrow("error"),
        "pyarrow, nulls asked for": lambda: by_arrow("mask"),
        "DuckDB, nulls asked for": by_duckdb,
        "Spark SQL, column ssn": lambda: by_spark("ssn"),
    }


def answer_of(route: Route) -> str:
    """Return the values in words, or what the reader is told in place of them."""
    try:
        found = sorted(route(), key=str)
    except Exception as error:  # noqa: BLE001  # a refusal comes as each route's own class
        return f"refused: {str(find_carried_error(error) or error).partition(' (file ')[0]}"
    return f"{len(found)} nulls" if found and set(found) == {None} else f"{len(found)} values: {found[0]}, …"


if __name__ == "__main__":
    steps: dict[str, Callable[..., None]] = {"make": make, "read": read}
    steps[sys.argv[1]](*sys.argv[2:])

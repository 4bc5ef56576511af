"""What an analyst asks by each route that is a program of its own, and the table that he asks for."""

from __future__ import annotations

ALLOWED = "SELECT id, salary, city FROM default.customers WHERE salary > 10 AND p < 3 ORDER BY id"
DENIED = "SELECT id, email FROM default.customers"
MASKED = "SELECT id, email FROM default.customers WHERE salary > 10 AND p < 3 AND email IS NULL ORDER BY id"

OWNER = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
import sparkcrypt
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags

rich, poor = (sparkcrypt.load_policy(path) for path in sys.argv[2:4])
builder = SparkSession.builder.enableHiveSupport()
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
owner = sparkcrypt.session(rich, builder=builder)
owner.sparkContext.setLogLevel("ERROR")
columns = "id INT, email STRING, salary INT, city STRING, p INT"
owner.sql(f"CREATE TABLE customers ({columns}) USING parquet PARTITIONED BY (p)")
set_tags(owner, "default.customers", {"email": ["pii"], "salary": ["fin"]}, rich)
owner.sql("INSERT INTO customers VALUES (1, 'ann@example.org', 10, 'Oslo', 1), (2, 'bob@example.org', 20, 'Lima', 1)")
owner.sql("INSERT INTO customers VALUES (3, 'eva@example.org', 30, NULL, 2), (4, 'kim@example.org', 40, 'Rome', 3)")
table = Catalog(owner).table("default.customers")
Path("table.json").write_text(json.dumps({"path": table.location, "properties": dict(table.options)}))
"""
"""Makes the table, in the session ``owner``; its arguments: Spark's conf in JSON, the owner's policy, the analyst's."""

IN_PYTHON = f"""
import json

ALLOWED, DENIED, MASKED = {ALLOWED!r}, {DENIED!r}, {MASKED!r}
"""
IN_PYTHON += """
def ask(allowed, denied, masked):
    try:
        denied()
        said = None
    except Exception as error:
        said = []
        while error is not None:
            java, said = getattr(error, "java_exception", getattr(error, "_origin", None)), [*said, str(error)]
            while java is not None:
                java, said = java.getCause(), [*said, str(java.toString())]
            error = error.__cause__
        said = " ".join(said)
    return {"allowed": [list(row) for row in allowed()], "denied": said, "masked": [list(row) for row in masked()]}
"""
"""Asks one route three questions; ``ask`` returns the answers as JSON values."""

CLASSIC = """
strict, soft = (sparkcrypt.session(poor, on_denied=word) for word in (None, "mask"))
import os
import pyspark.pandas as ps
from pyspark.sql import functions as F

def frame(session, *columns, email=False):
    rows = session.table("default.customers").where("salary > 10 AND p < 3")
    rows = rows.where(F.col("email").isNull()) if email else rows
    return rows.select(*columns).orderBy("id")

def of_pandas(session, *columns, email=False):
    SparkSession.builder._options.clear()
    SparkSession._instantiatedSession = SparkSession._activeSession = session
    sessions = session._jvm.org.apache.spark.sql
    sessions = sessions.SparkSession if session.version.startswith("3.") else sessions.classic.SparkSession
    sessions.setActiveSession(session._jsparkSession)
    session.conf.set("pandas_on_Spark.compute.fail_on_ansi_mode", "false")  # 4.0 refuses otherwise
    rows = session.table("default.customers").pandas_api()
    rows = rows[(rows["salary"] > 10) & (rows["p"] < 3)]
    rows = rows[rows["email"].isna()] if email else rows
    found = rows[list(columns)].sort_values("id").to_pandas()
    return found.astype(object).where(found.notna(), None).values.tolist()

def streamed(session, *columns, email=False):
    name = "of_" + "_".join(columns) + str(email)
    rows = session.readStream.table("default.customers").where("salary > 10 AND p < 3").select(*columns)
    query = rows.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination(120)
    found = session.table(name)
    return (found.where("email IS NULL") if email else found).orderBy("id").collect()

def answers(route):
    return ask(
        lambda: route(strict, "id", "salary", "city"),
        lambda: route(strict, "id", "email"),
        lambda: route(soft, "id", "email", email=True),
    )

found = {
    "Spark SQL": ask(
        lambda: strict.sql(ALLOWED).collect(), lambda: strict.sql(DENIED).collect(), lambda: soft.sql(MASKED).collect()
    ),
    "DataFrame": answers(lambda *names, **more: frame(*names, **more).collect()),
    "pandas of a DataFrame": answers(
        lambda *names, **more: frame(*names, **more).toPandas().astype(object).where(lambda rows: rows.notna(), None)
        .values.tolist()
    ),
    "pandas API on Spark": answers(of_pandas),
    "stream": answers(streamed),
}
Path("classic.json").write_text(json.dumps(found))
"""
"""The routes of a classic session, after `OWNER` and `IN_PYTHON`."""

CONNECT = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()

def masked():
    spark.conf.set("spark.sparkcrypt.on_denied", "mask")
    return spark.sql(MASKED).collect()

found = ask(lambda: spark.sql(ALLOWED).collect(), lambda: spark.sql(DENIED).collect(), masked)
spark.conf.set("spark.sparkcrypt.strict_projection", "true")
frame = spark.table("default.customers")
naming = [
    lambda: spark.sql(MASKED).collect(),
    lambda: frame.select("email").collect(),
    lambda: frame.select(frame.email).collect(),
    lambda: frame.where("id > 0").groupBy("email").count().collect(),
    lambda: frame.withColumn("more", frame["email"]).collect(),
    lambda: frame.withColumn("more", frame["email"]).orderBy("id").collect(),
    lambda: frame.orderBy(frame.email).select("id").collect(),
    lambda: frame.groupBy(frame.email).count().collect(),
    lambda: frame.join(frame.select("*"), "email").collect(),
]
whole = [frame, frame.select("*"), frame.where("id > 0").withColumnRenamed("city", "town")]
whole += [spark.sql("SELECT * FROM default.customers"), frame.withColumn("more", frame.city)]
found["named"] = [ask(list, action, list)["denied"] for action in naming]
found["stars"] = [rows.toPandas()["email"].isna().all().item() for rows in whole]
Path("connect.json").write_text(json.dumps(found))
spark.stop()
"""
"""Spark Connect, after `IN_PYTHON`; its argument: the server's URL."""

SHELL = f'''
def shown(value: Any) = if (value == null) "NULL" else value.toString
def rows(query: String) = spark.sql(query).collect.map(_.toSeq.map(shown).mkString("|")).mkString(";")
def causes(error: Throwable): String = if (error == null) "" else error.toString + " " + causes(error.getCause)
println("ALLOWED=" + rows("{ALLOWED}"))
println("DENIED=" + scala.util.Try(rows("{DENIED}")).failed.map(causes).getOrElse("read").replace("\\n", " "))
spark.conf.set("spark.sparkcrypt.on_denied", "mask")
println("MASKED=" + rows("{MASKED}"))
System.exit(0)
'''
"""spark-shell, which reads it from its input."""

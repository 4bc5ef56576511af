"""Runs statements, drawn by a seed, that carry canaries to places: ``python canary_script.py ROOT SEED STATEMENTS``.

The canaries follow from the seed, so that no command line or file has them.  Standard output has one line of JSON: what
each statement came to, and the processes of this one in whose command line or environment a canary is.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkcrypt
from sparkcrypt.cli.main import cli
from sparkcrypt.log_lines import LOG_VARIABLE
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.tagging import set_tags
from tests.attacks.canaries import Canaries, holds
from tests.spark.support import make_policy, said_of

EXPRESSIONS = (
    "email", "upper(email)", "concat(email, '!')", "base64(email)", "hex(email)", "encode(email, 'UTF-16')",
    "reverse(reverse(email))", "to_json(struct(email, id))", "coalesce(NULL, email)", "CASE WHEN id > 0 THEN email END",
    "IF(id > 0, email, 'x')", "map('k', email)['k']", "array(email)[0]", "element_at(split(email, ' '), 1)",
    "(SELECT max(email) FROM ruled)", "max(email) OVER (PARTITION BY id)", "lag(email, 0) OVER (ORDER BY id)",
    "struct(email).email", "get_json_object(to_json(struct(email)), '$.email')", "regexp_replace(email, 'q', 'q')",
    "transform(array(email), x -> concat(x, '?'))[0]", "aggregate(array(email), '', (a, x) -> concat(a, x))",
    "string(salary)", "salary + 0", "hex(salary)", "concat_ws('/', email, salary)", "v", "concat(v, n)", "of_default",
    "(SELECT max(x) FROM VALUES (upper(v)) AS t(x))", "try_to_binary(email, 'utf-8')",
    "decode(encode(email, 'UTF-16'), 'UTF-16')",
)  # fmt: skip
QUERIES = (
    "SELECT {e} AS x FROM ruled",
    "SELECT x FROM (SELECT id, {e} AS x FROM ruled) WHERE x IS NOT NULL",
    "SELECT max(x) AS x FROM (SELECT id, {e} AS x FROM ruled) GROUP BY id",
    "SELECT x FROM (SELECT {e} AS x FROM ruled UNION ALL SELECT {e} FROM ruled)",
    "WITH q AS (SELECT {e} AS x FROM ruled) SELECT a.x FROM q a LEFT JOIN q b ON a.x = b.x",
    "SELECT explode(collect_list(x)) AS x FROM (SELECT {e} AS x FROM ruled)",
)
STATEMENTS = {
    "a new table": "CREATE TABLE t{i} USING parquet AS {q}",
    "a new table of CSV": "CREATE TABLE t{i} USING csv AS {q}",
    "a new table of JSON": "CREATE TABLE t{i} USING json AS {q}",
    "a new table of ORC": "CREATE TABLE t{i} USING orc AS {q}",
    "a new table of Hive": "CREATE TABLE t{i} STORED AS PARQUET AS {q}",
    "a new text table of Hive": "CREATE TABLE t{i} STORED AS TEXTFILE AS {q}",
    "an insert": "INSERT INTO plain {q}",
    "an insert into CSV": "INSERT INTO texts {q}",
    "a folder": "INSERT OVERWRITE DIRECTORY '{root}/out/{i}' USING json {q}",
    "a folder of Hive": "INSERT OVERWRITE DIRECTORY '{root}/out/{i}' STORED AS TEXTFILE {q}",
    "a partition": "INSERT INTO parts SELECT 1 AS id, x FROM ({q})",
    "a view": "CREATE OR REPLACE TEMPORARY VIEW seen AS {q};CREATE TABLE t{i} USING csv AS SELECT * FROM seen",
    "a cache": "CACHE TABLE kept{i} AS {q};UNCACHE TABLE kept{i}",
    "a variable": "SET VAR w = (SELECT max(string(x)) FROM ({q}));INSERT INTO texts SELECT w",
    "an inline table": "SET VAR w = (SELECT max(string(x)) FROM ({q}));INSERT INTO texts VALUES (w)",
    "a declared variable": "SET VAR w = (SELECT max(string(x)) FROM ({q}));"
    "DECLARE OR REPLACE VARIABLE u STRING DEFAULT w;CREATE TABLE t{i} USING json AS SELECT u",
    "an argument": "SET VAR w = (SELECT max(string(x)) FROM ({q}));"
    "EXECUTE IMMEDIATE 'CREATE TABLE t{i} USING csv AS SELECT ? AS x' USING w",
    "a text": "SET VAR w = (SELECT max(string(x)) FROM ({q}));"
    "EXECUTE IMMEDIATE 'CREATE TABLE t{i} USING csv AS SELECT ''' || w || ''' AS x'",
    "a comment": "EXECUTE IMMEDIATE 'COMMENT ON TABLE plain IS ''' || v || ''''",
    "a property": "EXECUTE IMMEDIATE 'ALTER TABLE plain SET TBLPROPERTIES (''a'' = ''' || v || ''')'",
    "a static partition": "EXECUTE IMMEDIATE 'INSERT INTO parts PARTITION (x = ''' || v || ''') SELECT 1'",
    "a table's name": "CREATE TABLE IDENTIFIER('t{i}_' || v) (a INT) USING parquet",
    "a field's name": "CREATE TABLE t{i} USING parquet AS SELECT named_struct(v, id) AS s FROM plain",
    "a name in a schema": "CREATE TABLE t{i} USING parquet AS SELECT from_json('{{}}', v || ' STRING') AS s",
    "a name of a pivot": "CREATE TABLE t{i} USING parquet AS"
    " SELECT * FROM (SELECT 1 AS id, 'a' AS e) PIVOT (max(id) FOR e IN (v))",
    "a script": "BEGIN DECLARE a STRING DEFAULT v; DECLARE b STRING; SET b = a; INSERT INTO texts VALUES (b); END",
    "statistics": "CREATE TABLE t{i} USING parquet AS {q};ANALYZE TABLE t{i} COMPUTE STATISTICS",
    "a read": "{q}",
    "a plan": "EXPLAIN EXTENDED {q}",
}  # fmt: skip
FRAMES: dict[str, Callable[[SparkSession, str, str], object]] = {
    "parquet by path": lambda spark, q, to: spark.sql(q).write.parquet(to),
    "CSV by path": lambda spark, q, to: spark.sql(q).write.csv(to),
    "text by path": lambda spark, q, to: spark.sql(q).selectExpr("string(x)").write.text(to),
    "JSON by path": lambda spark, q, to: spark.sql(q).write.json(to),
    "ORC by path": lambda spark, q, to: spark.sql(q).write.orc(to),
    "JDBC": lambda spark, q, to: spark.sql(q).write.jdbc(f"jdbc:derby:{to};create=true", "m"),
    "partitions by path": lambda spark, q, to: spark.sql(f"SELECT x, 1 FROM ({q})").write.partitionBy("x").parquet(to),
    "an argument of sql": lambda spark, q, to: _with_argument(spark),
    "a stream of JSON": lambda spark, q, to: _stream(spark, to, "json"),
    "a stream of Parquet": lambda spark, q, to: _stream(spark, to, "parquet"),
}  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """What the documents say is in clear: the way to it from a table, the places, and the words of a page."""

    run: Callable[[SparkSession, str, Path], object]
    places: tuple[str, ...]
    page: str
    words: str


def _error(spark: SparkSession, table: str, _root: Path) -> None:
    try:
        spark.sql(f"SELECT CAST(email AS INT) AS n FROM {table}").collect()
    except Exception:  # noqa: BLE001  # its message has the value
        return
    raise AssertionError("the cast did not fail")


def _rows(spark: SparkSession, table: str, root: Path) -> None:
    rows = [(row.email,) for row in spark.table(table).collect()]
    spark.createDataFrame(rows, "email STRING").write.parquet(f"{root}/out/rows")


def _observe(spark: SparkSession, table: str, root: Path) -> None:
    folder = spark.conf.get("spark.sql.warehouse.dir")
    rows = spark.readStream.schema(spark.table("shown").schema).parquet(f"{folder}/shown")
    rows = rows.where(F.col("id") == spark.table(table).collect()[0].id)
    stream = rows.observe("seen", F.max("email").alias("most")).writeStream.format("noop")
    stream.option("checkpointLocation", f"{root}/out/observed").trigger(availableNow=True).start().awaitTermination()


def _model(spark: SparkSession, table: str, root: Path) -> None:
    from pyspark.ml.feature import StringIndexer

    StringIndexer(inputCol="email", outputCol="at").fit(spark.table(table)).save(f"{root}/out/model")


def _for(spark: SparkSession, table: str, _root: Path) -> None:
    spark.sql("CREATE TABLE lines (x STRING) USING csv")
    spark.sql(f"BEGIN FOR row AS (SELECT email FROM {table}) DO INSERT INTO lines SELECT row.email; END FOR; END")


def _checkpoint(spark: SparkSession, table: str, root: Path) -> None:
    spark.sparkContext.setCheckpointDir(f"{root}/checkpoint")
    spark.table(table).checkpoint()


def _statistics(spark: SparkSession, table: str, _root: Path) -> None:
    spark.sql("CREATE TABLE observed (x BIGINT) USING parquet")
    spark.sql(f"INSERT INTO observed SELECT salary FROM {table}")
    spark.sql("ANALYZE TABLE observed COMPUTE STATISTICS FOR COLUMNS x")


TAGS, SECURITY = "docs/tags.md", "docs/security.md"
SHOWN = {
    "rows": Shown(_rows, ("out/rows/",), TAGS, "Rows that leave Spark's plan and come back"),
    "rows of FOR": Shown(_for, ("warehouse/lines/", "events/"), TAGS, "Rows of `FOR` in a script"),
    "transpose": Shown(
        lambda spark, table, root: spark.sql(f"SELECT id, email FROM {table}")
        .transpose()
        .write.json(f"{root}/out/transposed"),
        ("out/transposed/",),
        TAGS,
        "The frames of `transpose`",
    ),
    "read.json": Shown(
        lambda spark, table, root: spark.read.json(spark.sql(f"SELECT to_json(struct(email, 1 AS i)) FROM {table}"))
        .write.json(f"{root}/out/read"),
        ("out/read/",),
        TAGS,
        "and of `spark.read.json(frame)`",
    ),
    "statistics": Shown(_statistics, ("metastore/",), TAGS, "ANALYZE leaves minimum and maximum of such a column"),
    "errors": Shown(_error, ("events/",), TAGS, "Messages of errors"),
    "observe": Shown(_observe, ("events/",), TAGS, "Metrics of `observe` in a stream"),
    "models": Shown(_model, ("out/model/",), TAGS, "Models of Spark ML"),
    "variables": Shown(
        lambda spark, table, _root: spark.sql(f"SELECT id FROM {table} WHERE email = v").collect(),
        ("events/",),
        TAGS,
        "Values of variables in plans",
    ),
    "literals": Shown(
        lambda spark, table, _root: spark.table(table).where(F.col("email") == _text(spark, table)).count(),
        ("events/",),
        SECURITY,
        "the literals of queries",
    ),
    "checkpoint": Shown(_checkpoint, ("checkpoint/",), SECURITY, "checkpoints of frames (`checkpoint`)"),
}  # fmt: skip


def _text(spark: SparkSession, table: str) -> str:
    return str(spark.table(table).collect()[0].email)


def _with_argument(spark: SparkSession) -> None:
    spark.sql("INSERT INTO texts SELECT :a", args={"a": F.expr("v")})


def _stream(spark: SparkSession, to: str, sink: str) -> None:
    folder = spark.conf.get("spark.sql.warehouse.dir")
    rows = (
        spark.readStream.schema(spark.table("ruled").schema).parquet(f"{folder}/ruled").selectExpr("upper(email) AS x")
    )
    writer = rows.writeStream.format(sink).option("path", to).option("checkpointLocation", f"{to}-checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()


def _make_session(root: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    conf = {
        "spark.ui.enabled": "false", "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file:{root}/events",
        "spark.eventLog.compress": "true", "spark.local.dir": f"{root}/local", "spark.io.encryption.enabled": "true",
        "spark.sql.shuffle.partitions": "1", "spark.sql.warehouse.dir": f"file:{root}/warehouse",
        "spark.sql.catalogImplementation": "hive", "spark.sql.parquet.compression.codec": "uncompressed",
        "spark.sql.orc.compression.codec": "none",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={root}/metastore;create=true",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={root}/derby",
    }  # fmt: skip
    builder = SparkSession.builder.master("local[1]")
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _make_tables(spark: SparkSession, policy: Policy, canaries: Mapping[str, Canaries]) -> None:
    """Fill tagged tables by frames, since the text of an INSERT is in event logs, as docs/security.md says."""
    rows = {"ruled": [(1, "ruled")], "shown": list(enumerate(SHOWN))}
    for table, of in rows.items():
        spark.sql(f"CREATE TABLE {table} (id INT, email STRING, salary BIGINT) USING parquet")
        set_tags(spark, table, {"email": ["pii"], "salary": ["fin"]}, policy)
        lines = [(number, canaries[name].text, canaries[name].number) for number, name in of]
        frame = spark.createDataFrame(spark.sparkContext.parallelize(lines, 1), spark.table(table).schema)
        frame.write.insertInto(table)
    for number, name in rows["shown"]:
        spark.table("shown").where(f"id = {number}").createOrReplaceTempView(_view(name))


def _make_targets(spark: SparkSession) -> None:
    for kind, table in {"csv": "texts (x STRING)", "parquet": "plain (x STRING)"}.items():
        spark.sql(f"CREATE TABLE {table} USING {kind}")
    spark.sql("CREATE TABLE parts (id INT, x STRING) USING parquet PARTITIONED BY (x)")
    for name, kind in (("v", "STRING"), ("w", "STRING"), ("n", "BIGINT")):
        spark.sql(f"DECLARE OR REPLACE VARIABLE {name} {kind}")
    spark.sql("SET VAR (v, n) = (SELECT max(email), max(salary) FROM of_variables)")
    spark.sql("DECLARE OR REPLACE VARIABLE of_default STRING DEFAULT concat(v, '.')")


def _run(spark: SparkSession, name: str, query: str, number: int, root: Path) -> None:
    if name in FRAMES:
        FRAMES[name](spark, query, f"{root}/out/{number}")
        return
    for statement in STATEMENTS[name].split(";" if not STATEMENTS[name].startswith("BEGIN") else "\0"):
        spark.sql(statement.format(i=number, q=query, root=root)).collect()


def _found_in_processes(canaries: Canaries) -> list[str]:
    """Return the files of this process and those below it whose command line or environment has a canary."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has ended
    own, found = {os.getpid()}, []
    while more := {child for child, parent in parents.items() if parent in own} - own:
        own |= more
    for process in own:
        for part in ("cmdline", "environ"):
            try:
                content = Path(f"/proc/{process}/{part}").read_bytes()
            except OSError:
                continue
            found += [f"{process}/{part}"] if holds(content, canaries) else []
    return found


def _report(root: Path) -> None:
    """Let a pass look at the tagged table, and keep what the commands say, log and send: each below the root."""
    events = {"type": "file", "log_file_path": f"{root}/lineage.json", "append": True}
    os.environ |= {LOG_VARIABLE: "json", "OPENLINEAGE__TRANSPORT": json.dumps(events)}
    told = ["--policy", f"{root}/p/policy.yaml"]
    of_table = ["--table", "default.ruled"]
    access = ["audit", "access", "--column", "default.ruled.email", "--on", f"{datetime.now(timezone.utc):%Y-%m-%d}"]
    status = ["status", "--metrics", f"{root}/status.prom", "--html", f"{root}/status.html"]
    rotate = ["rotate", "--key", "pii", *of_table]
    commands = (["plan", *of_table], ["encrypt", *of_table], ["verify", *of_table], access, status, rotate)
    for number, command in enumerate(commands):
        (root / f"report-{number}").write_text(CliRunner().invoke(cli, [*command, *told]).output)


def main() -> None:
    """Run the statements, those that the documents tell of, and a pass; print what came of them."""
    root, seed, most = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    draw = random.Random(seed)
    for name in ("events", "local", "log"):
        (root / name).mkdir()
    more = f"sinks: deny\ninherit: refuse\naccess_log: {{location: {root}/log}}\n"
    policy = make_policy(root / "p", tables="  default.observed: {inherit: observe}\n", more=more)
    spark = _make_session(root)
    sparkcrypt.configure(spark, policy)
    canaries = {name: Canaries.of(seed, name) for name in ("ruled", *SHOWN)}
    _make_tables(spark, policy, canaries)
    _make_targets(spark)
    names = [*STATEMENTS, *FRAMES]
    drawn = [names[i % len(names)] for i in range(most)]
    draw.shuffle(drawn)
    results = []
    for number, name in enumerate(drawn):
        table = "of_variables" if "SET VAR" in STATEMENTS.get(name, "") else "ruled"
        query = draw.choice(QUERIES).format(e=draw.choice(EXPRESSIONS)).replace("ruled", table)
        said = None
        try:
            _run(spark, name, query, number, root)
        except Exception as error:  # noqa: BLE001  # judged by the test
            said = said_of(error)
        results.append({"name": name, "query": query, "said": said})
    for name, shown in SHOWN.items():
        shown.run(spark, _view(name), root)
    _report(root)
    found = [place for values in canaries.values() for place in _found_in_processes(values)]
    spark.stop()
    print(json.dumps({"results": results, "processes": found}))


def _view(name: str) -> str:
    return "of_" + name.replace(" ", "_").replace(".", "_").lower()


if __name__ == "__main__":
    main()

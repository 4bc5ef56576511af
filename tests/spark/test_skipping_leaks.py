"""What a query that skips files leaves in logs, plans, metrics and event logs: no value of a tagged column."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FreshJvm
from tests.spark.support import make_policy

pytestmark = [pytest.mark.spark, pytest.mark.slow]
BOUND, LITERAL = "bound-canary", "literal-canary"
"""The first begins values in the table and its store, the second those that queries ask for."""
LOG4J = """
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = @@%p %c@@%m%n%throwable
logger.own.name = io.sparkcrypt
logger.own.level = debug
"""
SESSION = """
import json, sys, time
from pathlib import Path
from pyspark.sql import SparkSession
import sparkcrypt
from sparkcrypt.spark.tables.tagging import set_tags
root = Path(sys.argv[1])
builder = SparkSession.builder.master("local[2]").enableHiveSupport()
for name, value in {
    "spark.ui.enabled": "false", "spark.sql.warehouse.dir": str(root / "warehouse"), "spark.eventLog.compress": "false",
    "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{root / 'metastore'};create=true",
    "spark.eventLog.enabled": sys.argv[2], "spark.eventLog.dir": (root / "events").as_uri(),
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
policy = sparkcrypt.load_policy(root / "p" / "policy.yaml")
sparkcrypt.configure(spark, policy)
"""
MAKE = (
    SESSION
    + """
spark.sparkContext.setLogLevel("OFF")
spark.sql("CREATE TABLE t (id INT, email STRING) USING parquet")
set_tags(spark, "t", {"email": ["pii"]}, policy)
rows = spark.range(80).selectExpr("CAST(id AS INT) id", "concat('bound-canary-', lpad(id, 3, '0')) email")
rows.repartitionByRange(8, "id").write.insertInto("t")
time.sleep(2.5)
made = sparkcrypt.index_table(spark, "t", policy, columns=["id", "email:minmax:bloom:values"])
print("RESULT", json.dumps(made.to_dict()))
"""
)
ASK = (
    SESSION
    + """
QUERY = (
    "SELECT id FROM t WHERE email = 'literal-canary-1' OR email BETWEEN 'literal-canary-2' AND 'literal-canary-3' "
    "OR email LIKE 'literal-canary-4%' OR email IN ('literal-canary-5', 'literal-canary-6')"
)
told = {"explained": [], "metrics": [], "reports": []}

def ask():
    frame = spark.sql(QUERY)
    assert frame.collect() == []
    metrics = frame._jdf.queryExecution().executedPlan()
    while metrics.getClass().getSimpleName() != "FileSourceScanExec":
        metrics = metrics.children().head()
    told["metrics"].append(shown(metrics.metrics()))
    told["reports"].append(repr(sparkcrypt.skipping_report(frame)))

def shown(metrics):
    keys, found = metrics.keys().iterator(), {}
    while keys.hasNext():
        key = keys.next()
        found[key] = [metrics.apply(key).name().get(), metrics.apply(key).value()]
    return found

for word in ("true", "false"):
    spark.conf.set("spark.sparkcrypt.skipping", word)
    ask()
    told["explained"].append(spark.sql(f"EXPLAIN EXTENDED {QUERY}").head()[0])
spark.conf.set("spark.sparkcrypt.skipping", "true")
spark.conf.set("spark.sql.redaction.string.regex", "literal-canary-[0-9]")
told["redacted"] = spark.sql(f"EXPLAIN {QUERY}").head()[0]
spark.conf.unset("spark.sql.redaction.string.regex")  # which the properties of jobs would hold
store = next(Path(root / "p" / "indexes").iterdir())
sidecar = store / "_sparkcrypt.json"
sidecar.write_bytes(sidecar.read_bytes()[:-9])
ask()
spark.stop()
print("RESULT", json.dumps(told))
"""
)


def result(fresh_jvm: FreshJvm, script: str, *arguments: object, **env: str) -> tuple[dict[str, Any], str]:
    """Run a script; return what it found, and whatever else it printed."""
    done = fresh_jvm(script, *arguments, env=env)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout + done.stderr[-3000:]
    return json.loads(lines[0].removeprefix("RESULT ")), done.stdout.replace(lines[0], "") + done.stderr


def same_plan(text: str) -> str:
    """Return a plan without what is another in each: numbers of columns, and the index that lists files."""
    return re.sub(r"#\d+|plan_id=\d+", "#", text).replace("SkippingFileIndex", "InMemoryFileIndex")


def test_no_value_is_left_where_a_query_skips(fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> None:
    """Bounds are in no log, plan, metric or event; literals are only where Spark itself puts them, as without skipping.

    Logs are those of INFO, and of DEBUG for the classes of the jar.
    """
    make_policy(tmp_path / "p", more="index: {location: indexes/}\n")
    (tmp_path / "events").mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "log4j2.properties").write_text(LOG4J.format(log=tmp_path / "all.log"))
    made, _ = result(fresh_jvm, MAKE, tmp_path, "false", SPARKCRYPT_JAR=str(private_jar))
    assert made["objects"] == 8
    told, printed = result(
        fresh_jvm,
        ASK,
        tmp_path,
        "true",
        SPARKCRYPT_JAR=str(private_jar),
        SPARK_CONF_DIR=str(tmp_path / "conf"),
    )
    log = (tmp_path / "all.log").read_text()
    events = max(
        (path for path in (tmp_path / "events").rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )
    assert told["metrics"][0]["filesSkipped"] == ["number of files skipped", 8]
    for text in (log, events.read_text(), json.dumps(told), printed):
        assert BOUND not in text

    records = [record.split("@@", 1) for record in log.split("@@", 1)[1].replace("\n@@", "\0").split("\0")]
    speakers = Counter(name.split()[-1] for name, said in records if LITERAL in said)
    assert any(name.endswith("FileSourceStrategy") for name in speakers)  # the level is Spark's for filters
    assert not [name for name in speakers if name.startswith("io.sparkcrypt")]
    own = [said for name, said in records if name.endswith("io.sparkcrypt.FileSkipper")]
    assert any("0 of 8 files are opened" in said for said in own)
    assert any("no file is skipped, since its store cannot be used" in said for said in own)

    with_store, without = told["explained"]
    assert "Location: SkippingFileIndex" in with_store
    assert same_plan(with_store) == same_plan(without)
    assert LITERAL not in told["redacted"] and "Location: SkippingFileIndex" in told["redacted"]
    assert LITERAL not in json.dumps([told["metrics"], told["reports"]]) + printed
    check_events(events)


def check_events(events: Path) -> None:
    """See that skipping adds no literal to Spark's event log: as many are in a query with it and without."""
    counts = []
    for line in events.read_text().splitlines():
        event = json.loads(line)
        name = event["Event"].rpartition(".")[2]
        if LITERAL in line:
            assert name == "SparkListenerSQLExecutionStart", name
            if event["description"].startswith("collect"):
                counts.append(line.count(LITERAL))
    with_store, without = counts[:2]
    assert with_store == without

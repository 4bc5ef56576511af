"""Tables with stores, and checks of queries that use them: fewer files, and always the same rows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from sparkcrypt import names, skipping_report
from sparkcrypt.cli.main import cli
from sparkcrypt.policy.load import load_policy
from sparkcrypt.spark.setup.read import ScanReport
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import Lake, data_files, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES, ROWS = 8, 240


def settle(folder: Path) -> None:
    """Make the files of a table old enough to be indexed."""
    for file in data_files(folder):
        past = file.stat().st_mtime - 60
        os.utime(file, (past, past))


def policy_file(lake: Lake) -> str:
    """Return the file of the last created policy."""
    return str(max(lake.root.glob("policy-*")) / "policy.yaml")


def index(lake: Lake, table: str, *columns: str, verb: str = "create", more: Sequence[str] = ()) -> None:
    """Create or refresh a table's store by the command."""
    settle(lake.path(table))
    wanted = [part for column in columns for part in ("--column", column)]
    place = ("--path", str(lake.path(table)), "--policy", policy_file(lake))
    done = CliRunner().invoke(cli, ["index", verb, *place, *wanted, *more])
    assert done.exit_code == 0, done.output
    lake.sql(f"REFRESH TABLE {table}")


def make(lake: Lake, name: str = "t", *, columns: str = "(id INT, email STRING, plain STRING) USING parquet") -> None:
    """Create a table of eight files, its column ``email`` under a key, with bounds of all columns."""
    lake.sql(f"CREATE TABLE {name} {columns}")
    set_tags(lake.spark, name, {"email": ["pii"]}, None)
    append(lake, name, 0, ROWS)
    index(lake, name, "id", "email", "plain")
    lake.spark.conf.set(names.SKIPPING, "true")


def append(lake: Lake, name: str, start: int, end: int, files: int = FILES) -> None:
    """Append rows to a table, clustered by their id."""
    made = lake.spark.range(start, end).selectExpr(
        "CAST(id AS INT) id", "concat('e', lpad(id, 4, '0')) email", "concat('p', lpad(id, 4, '0')) plain"
    )
    made.repartitionByRange(files, "id").write.insertInto(name)


def store_of(lake: Lake, table: str = "t") -> Path:
    """Return the folder of a table's store."""
    policy = load_policy(policy_file(lake))
    return Path(str(policy.index_location)) / str(Catalog(lake.spark).table(table).uuid)


def report(frame: DataFrame) -> ScanReport:
    """Return the skipping report of the only scan of a query that ran once; Spark's count of files must agree."""
    (scan,) = [leaf for leaf in leaves(frame._jdf.queryExecution().executedPlan()) if is_scan(leaf)]
    (found,) = skipping_report(frame)
    assert scan.metrics().apply("numFiles").value() == found.opened
    assert found.skipped == sum(found.by.values())
    by = Counter[str]()
    for index, files in found.by.items():
        by["several" if " and " in index else index] += files
    assert skipped_files(scan) == (found.skipped, by)
    return found


def skipped_files(scan: Any) -> tuple[int, dict[str, int]]:
    """Return a scan's metrics of the files that it did not open: their number, and the number by index."""
    counts = {}
    keys = scan.metrics().keys().iterator()
    while keys.hasNext():
        key = keys.next()
        if key.startswith("filesSkipped"):
            counts[key] = scan.metrics().apply(key).value()
    whole = counts.pop("filesSkipped")
    return whole, {key.removeprefix("filesSkippedBy:"): count for key, count in counts.items() if count}


def is_scan(plan: Any) -> bool:
    """Return whether a node of a physical plan reads files."""
    return str(plan.getClass().getSimpleName()) == "FileSourceScanExec"


def leaves(plan: Any) -> list[Any]:
    """Return the leaves of a physical plan, including those of an adaptive plan."""
    if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
        return leaves(plan.executedPlan())
    if plan.getClass().getSimpleName().endswith("QueryStageExec"):
        return leaves(plan.plan())
    children = plan.children()
    return [leaf for i in range(children.size()) for leaf in leaves(children.apply(i))] or [plan]


@contextmanager
def heard(lake: Lake, name: str = "io.sparkcrypt.FileSkipper") -> Iterator[Any]:
    """Yield a writer that gets the warnings of a class."""
    log4j = lake.jvm.org.apache.logging.log4j
    writer = lake.jvm.java.io.StringWriter()
    logger = log4j.LogManager.getLogger(name)
    appender = log4j.core.appender.WriterAppender.createAppender(None, None, writer, "heard", False, True)
    appender.start()
    level = logger.getLevel()
    logger.addAppender(appender)
    logger.setLevel(log4j.Level.WARN)
    try:
        yield writer
    finally:
        logger.setLevel(level)
        logger.removeAppender(appender)


def without_skipping(spark: SparkSession, query: str) -> list[Any]:
    """Return the rows of a query that opens every file."""
    spark.conf.set(names.SKIPPING, "false")
    try:
        frame = spark.sql(query)
        assert skipping_report(frame) == ()
        return rows_of(frame)
    finally:
        spark.conf.set(names.SKIPPING, "true")


def check(lake: Lake, query: str, session: SparkSession | None = None) -> ScanReport:
    """Compare a query's rows with those without skipping; return the skipping report."""
    spark = session or lake.spark
    frame = spark.sql(query)
    assert rows_of(frame) == without_skipping(spark, query), query
    return report(frame)

"""One table, one policy, the same answer by every route: rows, the error of a denied column, and nulls in its place."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyspark
import pytest

from sparkcrypt.arrow import GuardedTable, open_table
from sparkcrypt.arrow.table import SCANS_NEED_FEW_KEYS
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.setup.options import defaults_lines, launch_conf
from tests.conftest import or_skip
from tests.services.connect import start_connect_server
from tests.services.installed import ROOT, spark_home
from tests.services.metastore import Metastore
from tests.services.thrift import start_thrift_server
from tests.spark.route_scripts import ALLOWED, CLASSIC, CONNECT, DENIED, IN_PYTHON, MASKED, OWNER, SHELL
from tests.spark.support import make_policy, with_keys, without_keys

pytestmark = [pytest.mark.spark, pytest.mark.sparks, pytest.mark.services, pytest.mark.slow]
IS_SPARK_35 = pyspark.__version__.startswith("3.5.")
TAGS = """
  pii: {key: pii}
  fin: {key: fin}
"""
RULES = "  default.customers: {require_encryption: true, tags: {email: pii, salary: fin}}\n"
ASK = "write to keys@example.org"
ROWS = [[2, 20, "Lima"], [3, 30, None]]
NULLS = [[2, None], [3, None]]
SAID = (
    "column email of table default.customers cannot be read by ann: its key 'pii' is not there. To get access, " + ASK
)


@dataclass(frozen=True, slots=True)
class Site:
    """The table as its owner made it, and its analyst, who lacks the key of one column."""

    folder: Path
    poor: Policy
    environment: Mapping[str, str]
    conf: Mapping[str, str]
    path: str
    properties: Mapping[str, str]
    classic: Mapping[str, Mapping[str, Any]]

    def run(self, command: list[str | Path], text: str | None = None, **more: str) -> str:
        """Run a program that must succeed, and return its output."""
        return run(command, self.folder, {**self.environment, **more}, text)

    def open(self, **options: Any) -> GuardedTable:
        """Open the table for pyarrow."""
        return open_table(
            self.path, self.poor, table="default.customers", properties=self.properties, principal="ann", **options
        )


def run(command: list[str | Path], folder: Path, environment: Mapping[str, str], text: str | None = None) -> str:
    """Run a program that must succeed, and return its output; one that hangs ends with all that it started."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(text, timeout=240)
    except BaseException:
        os.killpg(process.pid, 9)
        process.communicate()
        raise
    assert process.returncode == 0, f"{output[-2000:]}\n{errors[-4000:]}"
    return output


@pytest.fixture(scope="module")
def site(
    java: dict[str, str], private_jar: Path, metastore: Metastore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """Make the table, and ask by the routes of a classic session in the same JVM."""
    folder = tmp_path_factory.mktemp("routes")
    policy = make_policy(folder / "p", TAGS, RULES, more=f"ask_for_access: {ASK}\n")
    poor = with_keys(policy, folder / "poor", without_keys("pii"))
    text = (folder / "p" / "policy.yaml").read_text()
    (folder / "poor.yaml").write_text(text.replace("path: keys/", "path: poor/"))
    conf = {
        **metastore.spark_conf(),
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sparkcrypt.principal": "ann",
        "spark.log.level": "ERROR",
    }
    environment = {**java, "PYTHONPATH": str(ROOT), "SPARKCRYPT_JAR": str(private_jar)}
    (folder / "classic.py").write_text(OWNER + IN_PYTHON + CLASSIC)
    arguments: list[str | Path] = [json.dumps(conf), folder / "p" / "policy.yaml", folder / "poor.yaml"]
    run([sys.executable, folder / "classic.py", *arguments], folder, environment)
    table = json.loads((folder / "table.json").read_text())
    launched = {**launch_conf(poor, str(private_jar), sys.executable), **conf}
    classic = json.loads((folder / "classic.json").read_text())
    yield Site(folder, poor, environment, launched, table["path"], table["properties"], classic)


def assert_answers(found: Mapping[str, Any], said: str = SAID) -> None:
    """Assert of one route's answers that they are those of all routes."""
    assert found["allowed"] == ROWS
    assert said in (found["denied"] or "read")
    assert found["masked"] == NULLS


@pytest.mark.parametrize("route", ["Spark SQL", "DataFrame", "pandas of a DataFrame", "pandas API on Spark", "stream"])
def test_classic_session(site: Site, route: str) -> None:
    """The routes of a classic session of Spark give the same answers."""
    assert_answers(site.classic[route])


def test_spark_connect(site: Site) -> None:
    """A client of a Connect server that was launched with jar and conf gets the same answers."""
    server = or_skip(start_connect_server, site.folder / "connect", site.conf)
    try:
        (site.folder / "connect.py").write_text(IN_PYTHON + CONNECT)
        site.run([sys.executable, site.folder / "connect.py", server.url])
    finally:
        server.stop()
    found = json.loads((site.folder / "connect.json").read_text())
    # Spark 3.5 cuts what its client is told before the cause.
    assert_answers(found, "Encountered error while reading file" if IS_SPARK_35 else SAID)
    assert [said for said in found["named"] if "strict_projection of this session" not in (said or "read")] == []
    assert found["stars"] == [True] * 5


def test_thrift_with_beeline(site: Site) -> None:
    """Beeline gets the same answers of a Thrift server that was launched with jar and conf."""
    server = or_skip(start_thrift_server, site.folder / "thrift", site.conf)
    try:
        done = server.ask(ALLOWED, DENIED, "SET spark.sparkcrypt.on_denied=mask", MASKED)
    finally:
        server.stop()
    assert "id,salary,city" in done.stdout, done.stderr[:4000]
    lines = [line.rpartition("> ")[2] for line in done.stdout.splitlines()]  # less beeline's prompts
    first, last = lines.index("id,salary,city") + 1, lines.index("id,email") + 1
    assert lines[first : first + 2] == ["2,20,Lima", "3,30,NULL"], done.stdout
    assert lines[last : last + 2] == ["2,NULL", "3,NULL"], done.stdout
    assert SAID in done.stderr


def test_spark_shell_with_jar_and_conf_alone(site: Site) -> None:
    """spark-shell, without this package on any path, gets the same answers by lines of configuration alone."""
    folder = site.folder / "conf"
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text(defaults_lines(site.conf) + "\n")
    output = site.run([spark_home() / "bin" / "spark-shell"], SHELL, SPARK_CONF_DIR=str(folder), PYTHONPATH="")
    found = dict(re.findall(r"(ALLOWED|DENIED|MASKED)=(.*)", output))
    assert set(found) == {"ALLOWED", "DENIED", "MASKED"}, output
    assert (found["ALLOWED"], found["MASKED"]) == ("2|20|Lima;3|30|NULL", "2|NULL;3|NULL")
    assert SAID in found["DENIED"]


def by_pyarrow(table: GuardedTable, columns: list[str], condition: pc.Expression) -> pa.Table:
    """Ask pyarrow."""
    return table.to_table(columns, condition)


def by_dataset(table: GuardedTable, columns: list[str], condition: pc.Expression) -> pa.Table:
    """Ask a dataset of pyarrow; masked columns, and some columns by an old pyarrow, come from a scan alone."""
    if table.masked or not SCANS_NEED_FEW_KEYS:
        return table.scan(columns, condition).read_all()
    return table.dataset([*columns, "salary", "p"]).to_table(columns=columns, filter=condition)


def by_pandas(table: GuardedTable, columns: list[str], condition: pc.Expression) -> pa.Table:
    """Ask pandas."""
    return pa.Table.from_pandas(table.to_table(columns, condition).to_pandas(), preserve_index=False)


def by_polars(table: GuardedTable, columns: list[str], condition: pc.Expression) -> pa.Table:
    """Ask polars, into which the same condition is written in its own words."""
    wanted = (pl.col("salary") > 10) & (pl.col("p") < 3)
    wanted = wanted & pl.col("email").is_null() if table.masked else wanted
    return pl.scan_pyarrow_dataset(table).filter(wanted).select(columns).collect().to_arrow()


def by_duckdb(table: GuardedTable, columns: list[str], condition: pc.Expression) -> pa.Table:
    """Ask DuckDB, in SQL over a stream of the columns."""
    where = "salary > 10 AND p < 3" + (" AND email IS NULL" if table.masked else "")
    with duckdb.connect() as connection:
        connection.register("customers", table.scan(list(dict.fromkeys([*columns, "salary", "p"]))))
        return connection.sql(f"SELECT {', '.join(columns)} FROM customers WHERE {where}").to_arrow_table()


@pytest.mark.parametrize("route", [by_pyarrow, by_dataset, by_pandas, by_polars, by_duckdb])
def test_outside_spark(site: Site, route: Callable[[GuardedTable, list[str], pc.Expression], pa.Table]) -> None:
    """pyarrow, pandas, polars and DuckDB give the answers of Spark."""
    where = (pc.field("salary") > 10) & (pc.field("p") < 3)
    strict, soft = site.open(), site.open(on_denied="mask")

    def rows(table: GuardedTable, columns: list[str], condition: pc.Expression = where) -> list[list[Any]]:
        found = route(table, columns, condition).to_pylist()
        assert all(list(row) == columns for row in found)
        return [list(row.values()) for row in sorted(found, key=lambda row: int(row["id"]))]

    with pytest.raises(Exception, match="its key 'pii'") as caught:
        rows(strict, ["id", "email"])
    assert_answers(
        {
            "allowed": rows(strict, ["id", "salary", "city"]),
            "denied": str(caught.value),
            "masked": rows(soft, ["id", "email"], where & pc.field("email").is_null()),
        }
    )

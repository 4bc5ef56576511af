"""Several readers of ORC tables: what is null in place of denied columns, and which access events reads leave."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkcrypt import configure, masked_columns
from sparkcrypt.decide.access_log import read_accesses
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.fixtures import new_lake
from tests.spark.support import Lake, refusal, with_keys, without_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.sparks]

TAGS = """
  pii: {key: pii}
  fin: {key: fin}
  strict: {key: strict, on_denied: error}
"""
MORE = "formats: [parquet, orc]\naccess_log: {location: log/, required: true}\n"
NESTED = "s STRUCT<a: INT, b: INT>, l ARRAY<STRUCT<x: INT, y: INT>>, m MAP<STRING, STRUCT<x: INT, y: INT>>"
COLUMNS = f"id INT, email STRING, salary INT, secret STRING, {NESTED}"
VALUES = (
    "(1, 'a', 10, 'x', struct(1, 2), array(struct(1, 2), null), map('k', struct(5, 6))), "
    "(2, 'b', 20, 'y', null, null, null), (3, null, 30, 'z', struct(3, 4), array(), map())"
)
LEAVES = {
    "email": ["pii"],
    "salary": ["fin"],
    "secret": ["strict"],
    "s.a": ["pii"],
    "l.element.x": ["pii"],
    "m.value.x": ["pii"],
}
MASKED: list[Any] = [
    (1, None, 10, (None, 2), [(None, 2), None], {"k": (None, 6)}),
    (2, None, 20, None, None, None),
    (3, None, 30, (None, 4), [], {}),
]
READ = "id, email, salary, s, l, m"
TABLES = {"using": "USING orc", "hive": "STORED AS ORC"}
WAIT_SECONDS = 60.0


class Site:
    """A table in each way, a session whose keys are all there, and a policy that lacks one key."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.policy = lake.policy(TAGS, more=MORE)
        for name, how in TABLES.items():
            lake.sql(f"CREATE TABLE {name} ({COLUMNS}) {how}")
            set_tags(lake.spark, name, LEAVES, self.policy)
            lake.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM VALUES {VALUES} AS v")
        self.lacking = with_keys(self.policy, lake.root / "poor", without_keys("pii", "strict"))
        self.poor = self.session(self.lacking, "mask")

    def session(self, policy: Policy, on_denied: Any = None) -> SparkSession:
        """Return a further session under a policy."""
        session = self.lake.spark.newSession()
        configure(session, policy, on_denied=on_denied)
        session.sql(f"USE {self.lake.database}")
        return session

    def accesses(self, column: str) -> set[tuple[str, str, str]]:
        """Return outcome, key and route of what the log has of a column."""
        assert self.policy.access_log is not None
        folder, today = Path(self.policy.access_log.location), datetime.now(timezone.utc).date()
        found = read_accesses(folder, f"{self.lake.name('using')}.{column}", today).accesses if folder.is_dir() else []
        return {(access["outcome"], access["key"], access["route"]) for access in found}


@pytest.fixture(scope="module")
def site(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Both tables, for all tests of this module."""
    with new_lake(spark, tmp_path_factory.mktemp("orc")) as lake:
        yield Site(lake)


def masked_of(columns: list[str]) -> list[str]:
    """Return the leaves of some columns that are masked."""
    return [leaf for leaf, tags in LEAVES.items() if tags == ["pii"] and leaf.split(".")[0] in columns]


@pytest.mark.parametrize("name", TABLES)
def test_denied_leaves_are_null_and_others_keep_their_values(site: Site, name: str) -> None:
    """By table, by path, with either of Spark's readers; a reader with all keys caches the rows before."""
    rich = site.lake.spark.table(name).select(*READ.split(", ")).orderBy("id").cache()
    assert [tuple(row)[:3] for row in rich.collect()] == [(1, "a", 10), (2, "b", 20), (3, None, 30)]
    assert rich.collect()[0].s == (1, 2)
    folder = site.lake.path(name)
    shown = READ.split(", ")
    for vectorised in ("true", "false"):
        site.poor.conf.set("spark.sql.orc.enableVectorizedReader", vectorised)
        routes = {"path": site.poor.read.orc(folder.as_uri()), "table": site.poor.table(name)}
        for route, found in routes.items():
            # Of Hive's tables Spark asks for a part of structs alone, as in Parquet.
            count = 4 if (name, route) == ("hive", "table") else len(shown)
            frame = found.select(*shown[:count]).orderBy("id")
            assert frame.collect() == [row[:count] for row in MASKED]
            assert set(masked_columns(frame)) == set(masked_of(shown[:count]))
    site.poor.conf.unset("spark.sql.orc.enableVectorizedReader")
    rich.unpersist()


def test_a_filter_sees_of_a_masked_column_what_its_reader_sees(site: Site) -> None:
    """No value of it decides anything; filters on other columns give each reader the same rows."""
    for condition, rows in {
        "email = 'a'": [],
        "email IS NULL": [1, 2, 3],
        "email IN ('a', 'b') OR s.a = 1": [],
        "salary > 10": [2, 3],
        "s.b = 4": [3],
        "email <=> NULL AND salary = 10": [1],
    }.items():
        asked = f"SELECT id FROM using WHERE {condition} ORDER BY id"
        assert [row.id for row in site.poor.sql(asked).collect()] == rows, condition
    plan = site.poor.sql("SELECT id FROM using WHERE email = 'a' OR salary = 1")._jdf.queryExecution().toString()
    assert "EqualTo(email" not in plan and "EqualTo(salary,1)" in plan


def test_an_error_stays_one(site: Site) -> None:
    """A tag's own word goes before the session's; a session that asks for nothing gets errors."""
    assert "'strict'" in refusal(lambda: site.poor.sql("SELECT secret FROM using").collect())
    plain = site.session(site.lacking)
    assert "KeyNotFoundError" in refusal(lambda: plain.sql("SELECT email FROM using").collect())
    said = refusal(lambda: site.poor.sql("CREATE TABLE made USING orc AS SELECT id, email FROM using").collect())
    assert "masked" in said


def test_reads_leave_access_events_where_the_log_is_required(site: Site) -> None:
    """Who had a column's key opened, was refused, or got nulls: with table, column and key."""
    site.lake.spark.sql("SELECT salary FROM using").collect()
    site.poor.sql("SELECT email FROM using").collect()
    refusal(lambda: site.poor.sql("SELECT secret FROM using").collect())
    wanted = {
        "salary": ("opened", "fin", "sql"),
        "email": ("masked", "pii", "driver"),
        "secret": ("refused", "strict", "sql"),
    }
    deadline = time.monotonic() + WAIT_SECONDS
    for column, access in wanted.items():
        while access not in site.accesses(column) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert access in site.accesses(column), site.accesses(column)


def test_hives_reader_is_refused_where_it_would_leave_no_events(site: Site) -> None:
    """It shows nobody its files; columns in plaintext are read."""
    site.lake.spark.conf.set("spark.sql.hive.convertMetastoreOrc", "false")
    try:
        assert site.lake.spark.sql("SELECT id FROM hive").count() == 3
        said = refusal(lambda: site.lake.spark.sql("SELECT salary FROM hive").collect())
        assert "access_log is required" in said and "spark.sql.hive.convertMetastoreOrc=true" in said
    finally:
        site.lake.spark.conf.unset("spark.sql.hive.convertMetastoreOrc")

"""Strict projection: a query that names a masked column is refused by that name; one that does not gets nulls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkcrypt
from sparkcrypt import configure, names, read_table
from sparkcrypt.errors import ConfigError
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.fixtures import new_lake
from tests.spark.support import Lake, refusal, with_keys, without_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.sparks]
TAGS = """
  pii: {key: pii}
"""
ASK = "write to keys@example.org"
COLUMNS = "id INT, ssn STRING, s STRUCT<a:INT,b:INT>, l ARRAY<STRUCT<x:INT,y:INT>>, m MAP<STRING,STRUCT<x:INT,y:INT>>"
ROW = "(1, 'secret', struct(1, 2), array(struct(3, 4)), map('k', struct(5, 6)))"
NULLS = [(1, None, (None, 2), [(None, 4)], {"k": (None, 6)})]
TAGGED = {"ssn": ["pii"], "s.a": ["pii"], "l.element.x": ["pii"], "m.value.x": ["pii"]}


class Site:
    """A table ``t`` with a view and another table, as one reader sees them who lacks a key and gets nulls."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.policy = lake.policy(TAGS, more=f"ask_for_access: {ASK}\n")
        self.poor_policy = with_keys(self.policy, lake.root / "poor", without_keys("pii"))
        self.rich = sparkcrypt.session(self.policy)
        self.poor = sparkcrypt.session(self.poor_policy, on_denied="mask", strict_projection=True)
        for session in (self.rich, self.poor):
            session.sql(f"USE {lake.database}")
        self.rich.sql(f"CREATE TABLE t ({COLUMNS}) USING parquet")
        set_tags(self.rich, "t", TAGGED, self.policy)
        self.rich.sql(f"INSERT INTO t VALUES {ROW}")
        self.rich.table("t").select("*").createOrReplaceGlobalTempView("of_rich")
        self.rich.sql("CREATE TABLE u (id INT, ssn STRING) USING parquet")
        self.rich.sql("INSERT INTO u VALUES (1, 'open')")
        self.rich.sql("CREATE VIEW v AS SELECT id, ssn, upper(ssn) AS shout, s FROM t WHERE ssn IS NULL OR id > 0")

    def ask(self, query: str) -> list[Any]:
        """Return what the poor reader gets of a query."""
        return self.poor.sql(query).collect()

    @property
    def frame(self) -> DataFrame:
        """The table as a frame, whose columns nobody has named."""
        return self.poor.table("t")


@pytest.fixture(scope="module")
def site(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Both readers, beside each other."""
    with new_lake(spark, tmp_path_factory.mktemp("strict")) as lake:
        yield Site(lake)


NAMING = {
    "column": "SELECT ssn FROM t",
    "other case": "SELECT SSN FROM t",
    "beside a star": "SELECT *, ssn FROM t",
    "qualified": "SELECT x.ssn FROM t x",
    "identifier": "SELECT IDENTIFIER('ssn') FROM t",
    "computed identifier": "SELECT IDENTIFIER('s' || 'sn') FROM t",
    "qualified identifier": "SELECT IDENTIFIER('x.ssn') FROM t x",
    "identifier of a field": "SELECT IDENTIFIER('s.a') FROM t",
    "function of an identifier": "SELECT max(IDENTIFIER('s' || 'sn')) FROM t",
    "order by an identifier": "SELECT id FROM t ORDER BY IDENTIFIER('ssn')",
    "group by an identifier": "SELECT count(*) FROM t GROUP BY IDENTIFIER('ssn')",
    "window over an identifier": "SELECT row_number() OVER (PARTITION BY IDENTIFIER('ssn') ORDER BY id) FROM t",
    "identifiers of table and column": "SELECT IDENTIFIER('ssn') FROM IDENTIFIER('t')",
    "alias": "SELECT ssn AS word FROM t",
    "function": "SELECT upper(ssn) FROM t",
    "condition": "SELECT id FROM t WHERE ssn = 'secret'",
    "order": "SELECT id FROM t ORDER BY ssn",
    "group": "SELECT count(*) FROM t GROUP BY ssn",
    "having": "SELECT id FROM t GROUP BY id HAVING max(ssn) IS NULL",
    "aggregate": "SELECT count(ssn) FROM t",
    "window": "SELECT row_number() OVER (PARTITION BY id ORDER BY ssn) FROM t",
    "join key": "SELECT t.id FROM t JOIN u ON t.ssn = u.ssn",
    "using": "SELECT id FROM (SELECT * FROM t) JOIN (SELECT ssn FROM u) USING (ssn)",
    "subquery": "SELECT id FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.ssn = u.ssn)",
    "scalar subquery": "SELECT id, (SELECT max(ssn) FROM t) FROM u",
    "outer reference": "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.ssn = t.ssn)",
    "of a subquery": "SELECT ssn FROM (SELECT * FROM t)",
    "CTE": "WITH c AS (SELECT * FROM t) SELECT ssn FROM c",
    "in a CTE": "WITH c AS (SELECT ssn AS word FROM t) SELECT 1 FROM c",
    "union": "SELECT ssn FROM u UNION ALL SELECT ssn FROM t",
    "view": "SELECT ssn FROM v",
    "another's global view": "SELECT ssn FROM global_temp.of_rich",
    "lateral": "SELECT word FROM t LATERAL VIEW explode(split(ssn, ',')) AS word",
    "path": "SELECT ssn FROM parquet.`{path}`",
    "temporary view": "CREATE OR REPLACE TEMPORARY VIEW mine AS SELECT ssn FROM t",
    "field": "SELECT s.a FROM t",
    "field in a function": "SELECT abs(s.a) FROM t",
    "field of a view": "SELECT s.a FROM v",
    "array's field": "SELECT l.x FROM t",
    "element's field": "SELECT l[0].x FROM t",
    "value's field": "SELECT m['k'].x FROM t",
    "lambda": "SELECT transform(l, e -> e.x) FROM t",
    "column in a lambda": "SELECT transform(l, e -> length(ssn)) FROM t",
    "natural": "SELECT 1 FROM u NATURAL JOIN t",
    "unpivot": "SELECT * FROM (SELECT id, ssn, ssn AS b FROM t) UNPIVOT (v FOR n IN (ssn, b))",
    "whole table renamed": "SELECT b FROM t AS x(a, b, c, d, e)",
    "renamed by a CTE": "WITH c(a, b, c, d, e) AS (SELECT * FROM t) SELECT b FROM c",
    "grouping sets": "SELECT count(*) FROM t GROUP BY GROUPING SETS ((ssn), (id))",
    "pivot": "SELECT * FROM v PIVOT (count(id) FOR ssn IN ('a'))",
    "sort of a group": "SELECT id FROM t GROUP BY id ORDER BY max(ssn)",
    "exploded": "SELECT e.x FROM t LATERAL VIEW explode(l) AS e",
}


@pytest.mark.parametrize("query", NAMING.values(), ids=NAMING)
def test_queries_that_name_a_masked_column(site: Site, query: str) -> None:
    """Each is refused by column, table, key and principal, before it runs."""
    said = refusal(site.ask, query.format(path=site.lake.path("t")))
    assert "strict_projection" in said, said[:600]
    column = "s.a" if "s.a" in query else ".x" if ".x" in query or "e.x" in query else "ssn"
    assert column.lower() in said.lower().split(" cannot be named by ")[0]
    assert "key pii of tag pii is" in said
    assert f"To get access, {ASK}" in said


def other(frame: DataFrame) -> DataFrame:
    """Return the table ``u``, which has a column of the same name."""
    return frame.sparkSession.table("u")


FRAMES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "select": lambda frame: frame.select("id", "ssn"),
    "col": lambda frame: frame.select(F.col("ssn")),
    "frame.ssn": lambda frame: frame.select(frame.ssn),
    "frame['ssn']": lambda frame: frame.select(frame["ssn"]),
    "frame['s.a']": lambda frame: frame.select(frame["s.a"]),
    "field": lambda frame: frame.select(frame.s.a),
    "col of field": lambda frame: frame.select("s.a"),
    "filter": lambda frame: frame.filter(F.col("ssn").isNull()),
    "filter of frame": lambda frame: frame.filter(frame.ssn.isNull()),
    "filter by text": lambda frame: frame.filter("ssn IS NULL"),
    "expression": lambda frame: frame.selectExpr("upper(ssn)"),
    "computed": lambda frame: frame.withColumn("shout", F.upper("ssn")),
    "order": lambda frame: frame.orderBy("ssn"),
    "group": lambda frame: frame.groupBy("ssn").count(),
    "aggregate": lambda frame: frame.agg(F.max("ssn")),
    "join": lambda frame: frame.join(other(frame), "ssn"),
    "join by condition": lambda frame: frame.join(other(frame).alias("u"), F.expr("u.ssn") == frame.ssn),
    "rows without nulls": lambda frame: frame.dropna(subset=["ssn"]),
    "nulls filled": lambda frame: frame.fillna("none", subset=["ssn"]),
    "all nulls filled": lambda frame: frame.fillna("none"),
    "values replaced": lambda frame: frame.replace("a", "b", subset=["ssn"]),
    "regex of one name": lambda frame: frame.select(frame.colRegex("ssn")),
    "function of whole rows": lambda frame: frame.mapInPandas(lambda rows: rows, frame.schema),
    "duplicates": lambda frame: frame.dropDuplicates(["ssn"]),
    "repartition": lambda frame: frame.repartition("ssn"),
    "later": lambda frame: frame.filter("id > 0").withColumn("more", F.lit(1)).select("more", "ssn"),
    "renamed": lambda frame: frame.withColumnRenamed("ssn", "word").select("word"),
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_frames_that_name_a_masked_column(site: Site, make: Callable[[DataFrame], DataFrame]) -> None:
    """The DataFrame API is refused as SQL is."""
    said = refusal(lambda: make(site.frame).collect())
    assert "strict_projection" in said, said[:600]


STARS = {
    "star": ("SELECT * FROM t", NULLS),
    "qualified star": ("SELECT x.* FROM t x JOIN u USING (id)", NULLS),
    "view": ("SELECT * FROM v", [(1, None, None, (None, 2))]),
    "view's computed column": ("SELECT shout FROM v", [(None,)]),
    "others": ("SELECT id, s.b, l.y FROM t", [(1, 2, [4])]),
    "subquery": ("SELECT id FROM (SELECT * FROM t) WHERE id > 0", [(1,)]),
    "struct": ("SELECT s FROM t", [((None, 2),)]),
    "struct's star": ("SELECT s.* FROM t", [(None, 2)]),
    "of another table": ("SELECT u.ssn FROM u JOIN t USING (id)", [("open",)]),
    "in another's scope": ("SELECT ssn FROM u WHERE id IN (SELECT id FROM t)", [("open",)]),
    "a computed name": ("SELECT concat('x', id) AS ssn FROM t ORDER BY ssn", [("x1",)]),
    "count": ("SELECT count(*) FROM t", [(1,)]),
    "other identifiers": ("SELECT IDENTIFIER('i' || 'd'), IDENTIFIER('s.b') FROM IDENTIFIER('t')", [(1, 2)]),
    "identifier of a function": ("SELECT IDENTIFIER('cou' || 'nt')(*) FROM t", [(1,)]),
    "path": ("SELECT * FROM parquet.`{path}`", NULLS),
    "another's global view": ("SELECT * FROM global_temp.of_rich", NULLS),
}


@pytest.mark.parametrize(("query", "rows"), STARS.values(), ids=STARS)
def test_queries_that_name_none(site: Site, query: str, rows: list[Any]) -> None:
    """Nulls come with a star, and other columns of the same name are nobody's business."""
    assert site.ask(query.format(path=site.lake.path("t"))) == rows


STAR_FRAMES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "table": lambda frame: frame,
    "star": lambda frame: frame.select("*"),
    "filter": lambda frame: frame.filter("id = 1"),
    "with a column": lambda frame: frame.withColumn("more", F.lit(1)).drop("more"),
    "duplicates of rows by others": lambda frame: frame.dropDuplicates(["id"]),
    "order": lambda frame: frame.orderBy("id"),
    "distinct": lambda frame: frame.select("*").limit(5),
    "alias": lambda frame: frame.alias("x").select("x.*"),
    "union": lambda frame: frame.union(frame).limit(1),
}


@pytest.mark.parametrize("make", STAR_FRAMES.values(), ids=STAR_FRAMES)
def test_frames_that_name_none(site: Site, make: Callable[[DataFrame], DataFrame]) -> None:
    """What goes on with whole rows, or with other columns, gets nulls."""
    assert make(site.frame).collect() == NULLS


def test_a_denied_column_may_be_left_out_by_its_name(site: Site) -> None:
    """Whoever drops a column does not ask for it."""
    assert site.frame.drop("ssn").columns == ["id", "s", "l", "m"]
    assert site.frame.drop("ssn", "l", "m").collect() == [(1, (None, 2))]


def test_streams(site: Site) -> None:
    """A stream that names a masked column ends with that error, and one that names none has nulls."""

    def streamed(*columns: str) -> list[Any]:
        name = f"of_{len(columns)}"
        rows = site.poor.readStream.table("t").select(*columns)
        query = rows.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        query.awaitTermination(120)
        return site.poor.table(name).collect()

    assert streamed("*") == NULLS
    said = refusal(streamed, "id", "ssn")
    assert "column ssn of table" in said
    assert "strict_projection of this session" in said


def test_who_asks_for_it(site: Site) -> None:
    """A session may ask for it and take its own word back; what the policy says, no session takes back."""
    poor, query = site.poor.newSession(), "SELECT ssn FROM t"
    policy = replace(site.poor_policy, strict_projection=True)
    configure(poor, site.poor_policy, on_denied="mask")
    poor.sql(f"USE {site.lake.database}")
    assert poor.sql(query).collect() == [(None,)]
    poor.sql(f"SET {names.STRICT_PROJECTION}=true")
    said = refusal(lambda: poor.sql(query).collect())
    assert "strict_projection of this session" in said
    assert f"or SET {names.STRICT_PROJECTION}=false" in said
    poor.sql(f"SET {names.STRICT_PROJECTION}=false")
    assert poor.sql(query).collect() == [(None,)]
    poor.sql(f"SET {names.STRICT_PROJECTION}=maybe")
    assert "'maybe'; allowed: true, false" in refusal(lambda: poor.sql(query).collect())
    poor.sql(f"SET {names.STRICT_PROJECTION}=false")
    configure(poor, policy, on_denied="mask")
    said = refusal(lambda: poor.sql(query).collect())
    assert "strict_projection of the policy" in said
    assert "SET spark" not in said.split("strict_projection of the policy")[1]
    assert poor.sql("SELECT * FROM t").collect() == NULLS
    with pytest.raises(ConfigError, match="which no session takes back"):
        configure(poor, policy, on_denied="mask", strict_projection=False)


def test_columns_that_may_be_read_are_named_as_ever(site: Site) -> None:
    """Whoever holds the key names what he likes, and without nulls the error stays that of the denied key."""
    policy = replace(site.policy, strict_projection=True)
    rich = sparkcrypt.session(policy, on_denied="mask")
    rich.sql(f"USE {site.lake.database}")
    assert rich.sql("SELECT upper(ssn) FROM t WHERE ssn = 'secret'").collect() == [("SECRET",)]
    rich.table("t").select("id", "ssn").createOrReplaceGlobalTempView("named")
    poor = sparkcrypt.session(replace(site.poor_policy, strict_projection=True), on_denied="error")
    poor.sql(f"USE {site.lake.database}")
    said = refusal(lambda: poor.sql("SELECT ssn FROM t").collect())
    assert "column ssn of table" in said
    assert "strict_projection" not in said
    poor.sql(f"SET {names.ON_DENIED}=mask")
    assert poor.sql("SELECT * FROM global_temp.named").collect() == [(1, None)]


def test_frames_of_read_table(site: Site) -> None:
    """Its frame has nulls, or lacks the column, and what names the column of that frame is refused."""
    policy = replace(site.poor_policy, strict_projection=True)
    frame = read_table(site.poor, "t", policy, on_denied="mask")
    assert frame.collect() == NULLS
    assert "strict_projection" in refusal(lambda: frame.select("ssn").collect())
    assert read_table(site.poor, "t", policy, on_denied="drop").columns == ["id", "s", "l", "m"]

"""Every column that a write gets from tagged columns is encrypted by their tags, whatever query is between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import schema_from_spark
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from sparkcrypt.tags.model import TaggedColumn, tag_property, tags_of_schema
from tests.spark.fixtures import new_lake
from tests.spark.support import Lake, assert_plaintext, encrypted_columns, footers, refusal, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = [pytest.mark.spark, pytest.mark.sparks]
_NUMBERS = itertools.count()
ROWS = (
    "(1, 'a', 10, array('x', 'y'), 'n', named_struct('street', 's', 'city', 'c')),"
    " (2, 'b', 20, array('z'), 'm', named_struct('street', 't', 'city', 'd'))"
)


@dataclass(frozen=True)
class Site:
    """A lake whose table ``people`` has tagged columns, and the policy that it is under."""

    lake: Lake
    policy: Policy

    def judged(self, folder: Path) -> dict[str, str | None]:
        """Return the encrypted columns of a folder's files, by their footers."""
        (found,) = {
            tuple(sorted(encrypted_columns(footer).items())) for footer in footers(folder, self.policy) if footer.rows
        }
        return dict(found)

    def written(self, frame: DataFrame) -> dict[str, str | None]:
        """Write a frame into a new folder, and return its files' encrypted columns."""
        folder = self.lake.root / f"out-{next(_NUMBERS)}"
        frame.coalesce(1).write.parquet(str(folder))
        return self.judged(folder)


@pytest.fixture(scope="module")
def site(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One session and one set of tables for all of these tests."""
    with new_lake(spark, tmp_path_factory.mktemp("derived")) as lake:
        policy = lake.policy(tables=f"  {lake.database}.ruled:\n    tags: {{word: pii}}\n")
        lake.sql(
            "CREATE TABLE people (id INT, ssn STRING, salary INT, aliases ARRAY<STRING>, note STRING,"
            " home STRUCT<street: STRING, city: STRING>) USING parquet"
        )
        lake.sql("CREATE VIEW seen AS SELECT id, upper(ssn) AS shout, note FROM people")
        lake.sql("CREATE TABLE older USING parquet AS SELECT 1 AS id, 'a' AS ssn")
        lake.spark.table("older").createOrReplaceTempView("early")
        set_tags(lake.spark, "older", {"ssn": ["pii"]}, policy)
        set_tags(
            lake.spark,
            "people",
            {"ssn": ["pii"], "salary": ["fin"], "aliases": ["pii"], "home.street": ["pii"]},
            policy,
        )
        lake.sql(f"INSERT INTO people VALUES {ROWS}")
        lake.sql("CREATE TABLE plain (id INT, word STRING, note STRING) USING parquet")
        lake.sql("INSERT INTO plain VALUES (1, 'w', 'n'), (2, 'v', 'm')")
        lake.sql("CREATE TABLE ruled USING parquet AS SELECT * FROM plain")
        yield Site(lake, policy)


QUERIES = {
    "functions": (
        "SELECT id, upper(ssn) AS a, concat(note, '-', ssn) AS b, salary + 1 AS c, CAST(salary AS STRING) AS d,"
        " CASE WHEN id > 1 THEN ssn ELSE note END AS e, coalesce(ssn, note) AS f, to_json(struct(ssn, id)) AS g,"
        " transform(aliases, x -> concat(x, '!')) AS h, map(note, ssn) AS i, upper(note) AS j,"
        " concat(ssn, salary) AS k, IF(ssn = 'a', 1, 0) AS l, hash(ssn) AS m FROM people",
        {**dict.fromkeys(("a", "b", "e", "f", "g", "h.list.element", "k", "l", "m"), "pii"), "c": "fin", "d": "fin"}
        | {"i.key_value.key": "pii", "i.key_value.value": "pii"},
    ),
    "structs": (
        "SELECT home, home.street AS s, home.city AS c, struct(upper(ssn) AS u, id) AS made, struct(ssn, id) AS kept,"
        " array(home) AS homes, upper(home.city) AS d, CAST(home AS STRING) AS text FROM people",
        {"home.street": "pii", "s": "pii", "made.u": "pii", "made.id": "pii", "kept.ssn": "pii", "text": "pii"}
        | {"homes.list.element.street": "pii"},
    ),
    "aggregates": (
        "SELECT note, max(ssn) AS a, sum(salary) AS b, avg(salary) AS c, collect_list(ssn) AS d, first(ssn) AS e,"
        " count(ssn) AS f, count(DISTINCT salary) AS g, count(*) AS h, max(id) FILTER (WHERE ssn = 'a') AS i,"
        " max_by(note, salary) AS j FROM people GROUP BY note",
        {"a": "pii", "b": "fin", "c": "fin", "d.list.element": "pii", "e": "pii", "j": "fin"},
    ),
    "windows": (
        "SELECT id, lag(ssn) OVER (ORDER BY id) AS a, rank() OVER (ORDER BY salary) AS b,"
        " row_number() OVER (PARTITION BY ssn ORDER BY id) AS c, sum(salary) OVER (PARTITION BY note) AS d,"
        " count(ssn) OVER (ORDER BY salary) AS e, row_number() OVER (ORDER BY salary) AS f FROM people",
        {"a": "pii", "b": "fin", "d": "fin", "f": "fin"},
    ),
    "grouped by what is tagged": (
        "SELECT ssn AS g, upper(ssn) AS u, count(*) AS n FROM people GROUP BY ssn",
        {"g": "pii", "u": "pii"},
    ),
    "join": (
        "SELECT plain.word, lower(people.ssn) AS a FROM plain JOIN people ON plain.note = people.note",
        {"a": "pii"},
    ),
    "join on a tagged key": ("SELECT plain.word FROM plain JOIN people ON plain.word <> people.ssn", {}),
    "full join using": (
        "SELECT * FROM (SELECT word AS ssn, id AS one FROM plain)"
        " FULL JOIN (SELECT ssn, id AS two FROM people) USING (ssn)",
        {"ssn": "pii"},
    ),
    "self-join": ("SELECT a.id, b.ssn AS other FROM people a JOIN people b ON a.id = b.id", {"other": "pii"}),
    "union": ("SELECT word AS w FROM plain UNION ALL SELECT ssn FROM people", {"w": "pii"}),
    "union, tagged first": ("SELECT ssn FROM people UNION SELECT word FROM plain", {"ssn": "pii"}),
    "union of structs": (
        "SELECT named_struct('street', word, 'city', note) AS h FROM plain UNION ALL SELECT home FROM people",
        {"h.street": "pii", "h.city": "pii"},
    ),
    "except": ("SELECT ssn AS x FROM people EXCEPT SELECT word FROM plain", {"x": "pii"}),
    "except what is tagged": ("SELECT word AS x FROM plain EXCEPT SELECT ssn FROM people", {}),
    "intersect": ("SELECT word AS x FROM plain INTERSECT SELECT ssn FROM people UNION ALL SELECT 'q'", {"x": "pii"}),
    "subqueries": (
        "SELECT id, (SELECT max(ssn) FROM people) AS a, (SELECT max(salary) FROM people q WHERE q.note = p.note) AS b,"
        " note IN (SELECT ssn FROM people) AS c, (SELECT count(ssn) FROM people) AS d FROM plain p",
        {"a": "pii", "b": "fin", "c": "pii"},
    ),
    "exists as a filter": (
        "SELECT word FROM plain p WHERE EXISTS (SELECT * FROM people q WHERE q.ssn = p.word) OR id > 0",
        {},
    ),
    "common table expressions": (
        "WITH one AS (SELECT id, trim(ssn) AS t FROM people), two AS (SELECT * FROM one)"
        " SELECT a.t AS a, b.t AS b, a.id FROM one a JOIN two b ON a.id = b.id",
        {"a": "pii", "b": "pii"},
    ),
    "explode": (
        "SELECT id, e, f.street AS s, f.city AS c, k, v FROM people LATERAL VIEW explode(aliases) x AS e"
        " LATERAL VIEW explode(array(home)) y AS f LATERAL VIEW explode(map(note, salary)) z AS k, v",
        {"e": "pii", "s": "pii", "k": "fin", "v": "fin"},
    ),
    "inline and posexplode": (
        "SELECT id, pos, col, street, city FROM people LATERAL VIEW posexplode(aliases) x AS pos, col"
        " LATERAL VIEW inline(array(home)) y AS street, city",
        {"pos": "pii", "col": "pii", "street": "pii"},
    ),
    "lateral join": (
        "SELECT plain.id, l.u FROM plain, LATERAL (SELECT upper(ssn) AS u FROM people WHERE people.id = plain.id) l",
        {"u": "pii"},
    ),
    "pivot": (
        "SELECT * FROM (SELECT id, note, salary FROM people) PIVOT (max(salary) FOR note IN ('n' AS n, 'm' AS m))",
        {"n": "fin", "m": "fin"},
    ),
    "unpivot": (
        "SELECT id, what, value FROM (SELECT id, note, ssn FROM people) UNPIVOT (value FOR what IN (note, ssn))",
        {"value": "pii"},
    ),
    "grouping sets": (
        "SELECT note, ssn AS s, sum(salary) AS t, grouping(ssn) AS g FROM people"
        " GROUP BY GROUPING SETS ((note), (ssn))",
        {"s": "pii", "t": "fin"},
    ),
    "view": ("SELECT * FROM seen", {"shout": "pii"}),
    "view from before the tags": ("SELECT upper(ssn) AS u, ssn, id FROM early", {"u": "pii", "ssn": "pii"}),
    "distinct, order and limit": ("SELECT DISTINCT lower(ssn) AS l FROM people ORDER BY l LIMIT 1", {"l": "pii"}),
    "rule of the policy": ("SELECT upper(word) AS u, id FROM ruled", {"u": "pii"}),
    "untagged": ("SELECT id, upper(note) AS n FROM people", {}),
}  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
def test_queries(site: Site, query: str) -> None:
    """Exactly the columns that have values of tagged ones are encrypted, by the footers of the written files."""
    text, expected = QUERIES[query]
    assert site.written(site.lake.sql(text)) == expected


def test_frames(site: Site) -> None:
    """So are columns of frames that no SQL makes: functions of Python, rows without repeats, checkpoints, caches."""
    spark = site.lake.spark
    people = spark.table("people").select("id", "ssn", "salary")
    shout = F.udf(lambda text: text.upper())

    def renamed(parts: Any) -> Any:
        return (part[["ssn"]].set_axis(["x"], axis=1) for part in parts)

    ways = {
        "user function": (people.select("id", shout("ssn").alias("u")), {"u": "pii"}),
        "whole rows in Python": (people.select("id", "ssn").mapInPandas(renamed, "x string"), {"x": "pii"}),
        "without repeats": (people.dropDuplicates(["id"]), {"ssn": "pii", "salary": "fin"}),
        "filled": (people.select(F.upper("ssn").alias("u")).fillna("none"), {"u": "pii"}),
        "described": (people.select("salary").describe(), {"salary": "fin"}),
        "checkpoint": (people.select(F.lower("ssn").alias("l"), "id").localCheckpoint(), {"l": "pii"}),
        "cached": (people.select(F.lower("ssn").alias("l"), "id").cache(), {"l": "pii"}),
        "union checkpoint": (
            spark.table("plain").select("word").union(people.select("ssn")).localCheckpoint(),
            {"word": "pii"},
        ),
        "folder of a table with a rule": (
            spark.read.parquet(str(site.lake.path("ruled"))).select(F.upper("word").alias("u"), "id"),
            {"u": "pii"},
        ),
    }
    assert {way: site.written(frame) for way, (frame, _) in ways.items()} == {
        way: keys for way, (_, keys) in ways.items()
    }
    assert people.select(F.upper("ssn").alias("u")).schema["u"].metadata == {"tags": ["pii"]}


DERIVED = "SELECT id, upper(ssn) AS shout, note FROM people"
MADE = {
    "USING parquet": "CREATE TABLE {} USING parquet AS " + DERIVED,
    "STORED AS PARQUET": "CREATE TABLE {} STORED AS PARQUET AS " + DERIVED,
    "Hive's SerDe": "CREATE TABLE {} STORED AS PARQUET AS " + DERIVED,
    "saveAsTable": None,
    "writeTo": None,
}


@pytest.mark.parametrize("way", MADE)
def test_new_tables(site: Site, way: str) -> None:
    """A table that a query makes has the tags in its schema and its properties, and later writes go by them."""
    name, lake = f"made{next(_NUMBERS)}", site.lake
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", str(way != "Hive's SerDe").lower())
    lake.spark.conf.set("spark.sql.hive.convertMetastoreCtas", str(way != "Hive's SerDe").lower())
    if way == "saveAsTable":
        lake.sql(DERIVED).write.saveAsTable(name)
    elif way == "writeTo":
        lake.sql(DERIVED).writeTo(name).using("parquet").create()
    else:
        statement = MADE[way]
        assert statement is not None
        lake.sql(statement.format(name))
    assert site.judged(lake.path(name)) == {"shout": "pii"}
    table = Catalog(lake.spark).table(name)
    assert tags_of_schema(schema_from_spark(table.schema_json)) == (
        TaggedColumn(("shout",), ("pii",), "schema metadata"),
    )
    assert table.options[tag_property(("shout",))] == "pii"
    lake.sql(f"INSERT INTO {name} VALUES (3, 'by hand', 'p')")
    assert site.judged(lake.path(name)) == {"shout": "pii"}
    assert lake.spark.table(name).count() == 3


@pytest.mark.parametrize("way", ["USING parquet", "Hive's SerDe", "path", "directory"])
def test_writes_into_what_is_there(site: Site, way: str) -> None:
    """Files of a table or folder without tags are encrypted by the tags of what is written, and can be read."""
    name, lake = f"old{next(_NUMBERS)}", site.lake
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", str(way != "Hive's SerDe").lower())
    if way == "directory":
        lake.sql(f"INSERT OVERWRITE DIRECTORY '{lake.path(name).as_uri()}' USING parquet {DERIVED}")
    elif way == "path":
        lake.sql(DERIVED).write.parquet(str(lake.path(name)))
    else:
        stored = "USING parquet" if way == "USING parquet" else "STORED AS PARQUET"
        lake.sql(f"CREATE TABLE {name} (id INT, shout STRING, note STRING) {stored}")
        lake.sql(f"INSERT INTO {name} {DERIVED}")
    assert site.judged(lake.path(name)) == {"shout": "pii"}
    read = lake.spark.read.parquet(str(lake.path(name))) if way in ("path", "directory") else lake.spark.table(name)
    assert rows_of(read) == [(1, "A", "n"), (2, "B", "m")]


def test_streams(site: Site) -> None:
    """A stream's file sink, ``foreachBatch`` and ``toTable`` encrypt what they derive."""
    lake = site.lake
    rows = lake.spark.readStream.schema(lake.spark.table("people").schema).parquet(str(lake.path("people")))
    rows = rows.select("id", F.upper("ssn").alias("shout"))

    def batch(frame: DataFrame, number: int) -> None:
        frame.select(F.lower("shout").alias("low")).write.parquet(str(lake.root / "batches" / str(number)))

    def ended(query: StreamingQuery) -> None:
        assert query.awaitTermination(120)

    def writer(name: str) -> DataStreamWriter:
        return rows.writeStream.option("checkpointLocation", str(lake.root / "progress" / name)).trigger(
            availableNow=True
        )

    ended(writer("files").format("parquet").start(str(lake.root / "sink")))
    ended(writer("batches").foreachBatch(batch).start())
    ended(writer("table").toTable("streamed"))
    assert site.judged(lake.root / "sink") == {"shout": "pii"}
    assert site.judged(lake.root / "batches") == {"low": "pii"}
    assert site.judged(lake.path("streamed")) == {"shout": "pii"}


def test_folders_are_not_named_after_what_is_derived(site: Site) -> None:
    """A derived column as a partition column is refused by its name, as the one that it comes from is."""
    frame = site.lake.sql(DERIVED)
    said = refusal(lambda: frame.write.partitionBy("shout").parquet(str(site.lake.root / "folders")))
    assert "column shout is a partition column and carries the tag 'pii'" in said
    frame.write.partitionBy("note").parquet(str(site.lake.root / "folders"))
    assert site.judged(site.lake.root / "folders") == {"shout": "pii"}


def test_new_sessions(site: Site) -> None:
    """Sessions that are made from a configured one have the rule too."""
    session = site.lake.spark.newSession()
    session.sql(f"USE {site.lake.database}")
    session.sql(DERIVED).write.parquet(str(site.lake.root / "other"))
    assert site.judged(site.lake.root / "other") == {"shout": "pii"}


def test_rows_that_scala_collects(site: Site) -> None:
    """Scala's and Java's ``collect``, whose encoder analyses a plan of its own, takes rows of tagged columns."""
    found = site.lake.sql(DERIVED)
    assert found._jdf.collectAsList().size() == found.count() > 0


def test_tags_that_cannot_be_told(site: Site) -> None:
    """A table whose tag property is damaged fails the write of what comes from it, and nothing is written."""
    lake = site.lake
    lake.sql("CREATE TABLE damaged (word STRING) USING parquet OPTIONS ('parquet.sparkcrypt.tags.word' = 'pii,,')")
    said = refusal(lambda: lake.sql("SELECT upper(word) AS u FROM damaged").write.parquet(str(lake.root / "none")))
    assert "parquet.sparkcrypt.tags.word" in said and "is not a list of tags" in said
    assert not (lake.root / "none").exists()


def test_safe_aggregates(site: Site) -> None:
    """Results of the aggregates that the policy names are open, by themselves, in expressions and over windows."""
    text = (
        "SELECT note, avg(salary) * 2 AS a, sum(salary) + max(salary) AS b, count(ssn) AS c,"
        " stddev(salary) AS d FROM people GROUP BY note"
    )
    assert site.written(site.lake.sql(text)) == {"a": "fin", "b": "fin", "d": "fin"}
    policy = site.lake.changed("version: 1\n", "version: 1\nsafe_aggregates: [avg, stddev_samp]\n")
    try:
        changed = Site(site.lake, policy)
        assert changed.written(site.lake.sql(text)) == {"b": "fin", "c": "pii"}
        over = site.lake.sql("SELECT id, avg(salary) OVER (PARTITION BY note) AS a FROM people")
        assert changed.written(over) == {}
    finally:
        site.lake.changed("safe_aggregates: [avg, stddev_samp]\n", "")


def test_untagged_frames_cost_no_projection(site: Site) -> None:
    """The plan of a write without tagged columns stays as it was."""
    site.lake.sql("CREATE TABLE free USING parquet AS SELECT id, upper(note) AS n FROM people")
    assert_plaintext(site.lake.path("free"))
    plan = site.lake.sql("SELECT id, upper(note) AS n FROM people")._jdf.queryExecution().analyzed().toString()
    assert plan.count("Project") == 1

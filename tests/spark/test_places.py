"""A tagged table's folder under each of its names, and what shares files with it: nothing in clear gets there."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import PLAIN, SECRET, Lake, assert_encrypted, data_files, refusal, rows_of

pytestmark = pytest.mark.spark
ROW = f"1, '{SECRET}', '{PLAIN}'"
COLUMNS = "id INT, email STRING, note STRING"


def rows(lake: Lake) -> DataFrame:
    """A frame without tags that has the columns of the tables."""
    return lake.sql(f"SELECT {ROW}").toDF("id", "email", "note")


def tagged(lake: Lake, table: str = "t", where: str = "") -> None:
    """Make a table whose column ``email`` has a tag; its policy is the session's last."""
    lake.sql(f"CREATE TABLE {table} ({COLUMNS}) USING parquet {where}")


@pytest.mark.parametrize("rule", [False, True], ids=["tags", "rule"])
def test_write_by_links(lake: Lake, rule: bool) -> None:
    """A write through a link to a table's folder, or to one above it, and a read through it, are the table's."""
    overlay = f"  {lake.database}.t:\n    require_encryption: true\n    tags: {{email: pii}}\n"
    policy = lake.policy(tables=overlay if rule else "")
    lake.sql(f"CREATE TABLE t ({COLUMNS}, p INT) USING parquet PARTITIONED BY (p)")
    if not rule:
        set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    rows(lake).selectExpr("*", "0 AS p").write.mode("append").insertInto("t")
    (lake.root / "to-folder").symlink_to(lake.path("t"))
    (lake.root / "above").symlink_to(lake.root / "db")
    (lake.root / "hidden").symlink_to(lake.path("t") / "p=0")
    places = ("to-folder/p=1", "above/t/p=2", "above/t/new/p=3", "hidden")
    for place in places:
        rows(lake).write.mode("append").parquet(str(lake.root / place))
    assert len(assert_encrypted(lake.path("t"), policy, {"email": "pii"})) == 1 + len(places)
    for place in (*places, "to-folder/p=0"):
        assert set(rows_of(lake.spark.read.parquet(str(lake.root / place)))) == {(1, SECRET, PLAIN)}


def test_write_by_a_link_to_a_table_that_was_just_made_anew(lake: Lake) -> None:
    """What was known of its folder while it was made is not believed any more, by whatever name it is written to."""
    policy = lake.policy()
    lake.sql(f"CREATE TABLE t ({COLUMNS}) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    lake.sql("DROP TABLE t")
    lake.sql(f"CREATE TABLE t USING parquet AS SELECT 1 AS id, '{SECRET}' AS email, '{PLAIN}' AS note")
    (lake.root / "link").symlink_to(lake.path("t"))
    rows(lake).write.mode("append").parquet(str(lake.root / "link"))
    assert len(assert_encrypted(lake.path("t"), policy, {"email": "pii"})) == 2


def test_link_that_names_another_partition(lake: Lake) -> None:
    """A link shows no file as one of another partition than it was written for."""
    policy = lake.policy()
    lake.sql(f"CREATE TABLE t ({COLUMNS}, p INT) USING parquet PARTITIONED BY (p)")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    rows(lake).selectExpr("*", "0 AS p").write.mode("append").insertInto("t")
    (lake.root / "forged").mkdir()
    (lake.root / "forged" / "p=1").symlink_to(lake.path("t") / "p=0")
    for folder in ("forged", "forged/p=1"):
        path = str(lake.root / folder)
        assert "moved to another" in refusal(lambda path=path: lake.spark.read.parquet(path).collect())


def test_table_declared_through_a_link(lake: Lake) -> None:
    """A write by path into the real folder of a table whose location is a link is the table's."""
    policy = lake.policy()
    (lake.root / "real").mkdir()
    (lake.root / "link").symlink_to(lake.root / "real")
    tagged(lake, where=f"LOCATION '{lake.root / 'link'}'")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    rows(lake).write.mode("append").parquet(str(lake.root / "real"))
    assert_encrypted(lake.root / "real", policy, {"email": "pii"})
    lake.sql("REFRESH TABLE t")
    assert rows_of(lake.spark.table("t")) == [(1, SECRET, PLAIN)]


@pytest.mark.parametrize("rule", [False, True], ids=["tags", "rule"])
def test_partitions_that_are_tables(lake: Lake, rule: bool) -> None:
    """A write whose partitions can be a table's folder or partitions is refused by the table's name; others are not."""
    overlay = f"  {lake.database}.t:\n    tags: {{email: pii}}\n"
    policy = lake.policy(tables=overlay if rule else "")
    tagged(lake, where=f"LOCATION '{lake.root / 'top' / 'P=1' / 'q=x'}'")
    if not rule:
        set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    frame = rows(lake).selectExpr("*", "1 AS p", "'x' AS q", "'y' AS r")
    lake.sql(
        f"CREATE TABLE above ({COLUMNS}, p INT, q STRING) USING parquet PARTITIONED BY (p, q) "
        f"LOCATION '{lake.root / 'top'}'"
    )
    ways = (
        lambda: frame.write.mode("append").partitionBy("p", "q", "r").parquet(str(lake.root / "top")),
        lambda: frame.drop("r").write.mode("append").partitionBy("p", "q").parquet(str(lake.root / "top")),
        lambda: frame.drop("p", "r").write.mode("append").partitionBy("q").parquet(str(lake.root / "top" / "P=1")),
        lambda: lake.sql(f"INSERT INTO above PARTITION (p = 1, q) SELECT {ROW}, 'x'"),
    )
    for way in ways:
        said = refusal(way)
        assert lake.name("t") in said and "PlanError" in said
    assert data_files(lake.root / "top") == []
    frame.write.mode("append").partitionBy("q", "p").parquet(str(lake.root / "top"))
    frame.write.mode("append").partitionBy("p").parquet(str(lake.root / "top"))


@pytest.mark.parametrize("kind", ["USING parquet", "STORED AS PARQUET", "serde"])
def test_second_table_over_a_tagged_one(lake: Lake, kind: str) -> None:
    """Rows that another table writes into a tagged table's folder, or one below it, are under its tags and identity."""
    policy = lake.policy()
    lake.sql(f"CREATE TABLE t ({COLUMNS}, p INT) USING parquet PARTITIONED BY (p)")
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", str(kind != "serde").lower())
    stored = "STORED AS PARQUET" if kind == "serde" else kind
    for name, place in {"below": "p=1", "deep": "p=2/sub", "same": "p=3"}.items():
        lake.sql(f"CREATE TABLE {name} ({COLUMNS}) {stored} LOCATION '{lake.path('t') / place}'")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    for name in ("below", "deep", "same"):
        lake.sql(f"INSERT INTO {name} VALUES ({ROW})")
        assert rows_of(lake.spark.table(name)) == [(1, SECRET, PLAIN)]
    assert len(assert_encrypted(lake.path("t"), policy, {"email": "pii"})) == 3
    lake.sql("MSCK REPAIR TABLE t")
    assert len(rows_of(lake.spark.table("t").where("p <> 2"))) == 2


@pytest.mark.parametrize("rule", [False, True], ids=["tags", "rule"])
def test_what_another_name_does_not_hide(lake: Lake, rule: bool) -> None:
    """Neither an option that names another table nor values that were read by a second table lose the tags."""
    overlay = f"  {lake.database}.t:\n    tags: {{email: pii}}\n"
    policy = lake.policy(tables=overlay if rule else "", more="sinks: deny")
    tagged(lake)
    tagged(lake, "second", f"LOCATION '{lake.path('t')}'")
    if not rule:
        set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    said = refusal(
        lambda: rows(lake).write.mode("append").option("parquet.sparkcrypt.table", "a.b").parquet(str(lake.path("t")))
    )
    assert lake.name("t") in said and "'a.b'" in said
    assert data_files(lake.path("t")) == []
    rows(lake).write.mode("append").insertInto("second")
    assert_encrypted(lake.path("t"), policy, {"email": "pii"})
    said = refusal(lambda: lake.spark.table("second").write.csv(str(lake.root / "csv")))
    assert "carries the tag 'pii'" in said


def test_second_table_with_its_own_tags(lake: Lake) -> None:
    """Tags of both tables count; where one would not read the other's files, the write is refused by name."""
    policy = lake.policy()
    tagged(lake)
    for name, place in {"u": "", "deep": "sub"}.items():
        tagged(lake, name, f"LOCATION '{lake.path('t') / place}'")
        set_tags(lake.spark, name, {"note": ["fin"]}, policy)
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    for name, other in (("u", "t"), ("t", "u")):
        said = refusal(lambda name=name: lake.sql(f"INSERT INTO {name} VALUES ({ROW})"))
        assert lake.name(name) in said and lake.name(other) in said and "PlanError" in said
    assert data_files(lake.path("t")) == []
    lake.sql(f"INSERT INTO deep VALUES ({ROW})")
    assert_encrypted(lake.path("t"), policy, {"email": "pii", "note": "fin"}, visible=())
    assert rows_of(lake.spark.table("deep")) == [(1, SECRET, PLAIN)]


def test_table_made_of_a_query_in_a_tagged_folder(lake: Lake) -> None:
    """A CREATE TABLE AS SELECT whose files a tagged table would read is refused; elsewhere below, its tags count."""
    policy = lake.policy()
    lake.sql(f"CREATE TABLE t ({COLUMNS}, p INT) USING parquet PARTITIONED BY (p)")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    for using in ("USING parquet", "STORED AS PARQUET"):
        for place in ("", "p=1"):
            text = f"CREATE TABLE u {using} LOCATION '{lake.path('t') / place}' AS SELECT 1 AS id, '{SECRET}' AS email"
            said = refusal(lambda text=text: lake.sql(text))
            assert lake.name("t") in said and lake.name("u") in said and "PlanError" in said
    assert data_files(lake.path("t")) == []
    lake.sql(f"CREATE TABLE u USING parquet LOCATION '{lake.path('t') / 'sub'}' AS SELECT 1 AS id, '{SECRET}' AS email")
    assert_encrypted(Path(lake.path("t")), policy, {"email": "pii"}, visible=())


def test_write_by_an_alias(lake: Lake) -> None:
    """What the policy says is another name of a table's folder has the table's tags."""
    policy = lake.policy(more=f"aliases:\n  file:{lake.root}/mirror: file:{lake.root}/db")
    tagged(lake)
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    rows(lake).write.mode("append").parquet(str(lake.root / "mirror" / "t"))
    assert_encrypted(lake.root / "mirror", policy, {"email": "pii"})


@pytest.mark.parametrize("rule", [False, True], ids=["tags", "rule"])
def test_write_by_a_mount(lake: Lake, rule: bool) -> None:
    """A folder of viewfs is what is mounted there, for writes, and for reads of tables that require encryption."""
    overlay = f"  {lake.database}.t:\n    require_encryption: true\n    tags: {{email: pii}}\n"
    policy = lake.policy(tables=overlay if rule else "")
    conf = lake.spark.sparkContext._jsc.hadoopConfiguration()
    conf.set(f"fs.viewfs.mounttable.{lake.database}.link./data", (lake.root / "db").as_uri())
    tagged(lake)
    if not rule:
        set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    path = f"viewfs://{lake.database}/data/t"
    rows(lake).write.mode("append").parquet(path)
    assert_encrypted(lake.path("t"), policy, {"email": "pii"})
    assert rows_of(lake.spark.read.parquet(path)) == [(1, SECRET, PLAIN)]
    if rule:
        with lake.stranger() as stranger:
            stranger.sql(f"SELECT {ROW}").toDF("id", "email", "note").write.mode("append").parquet(path)
        assert "requires encryption" in refusal(lambda: lake.spark.read.parquet(path).collect())


@pytest.mark.sparks
def test_streams(lake: Lake) -> None:
    """Streams by a link, into a second table, and with partitions that are a table, do as other writes."""
    policy = lake.policy()
    lake.sql(f"CREATE TABLE t ({COLUMNS}, p INT) USING parquet PARTITIONED BY (p) LOCATION '{lake.root / 'q=1'}'")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    tagged(lake, "second", f"LOCATION '{lake.root / 'q=1' / 'p=2'}'")
    (lake.root / "link").symlink_to(lake.root / "q=1")
    (lake.root / "in").mkdir()
    (lake.root / "in" / "0.txt").write_text(f"{SECRET}\n")
    streamed = lake.spark.readStream.text(str(lake.root / "in")).selectExpr(
        "1 AS id", "value AS email", f"'{PLAIN}' AS note", "1 AS q"
    )

    def stream(frame: DataFrame) -> DataStreamWriter:
        progress = str(lake.root / f"progress-{len(list(lake.root.glob('progress-*')))}")
        return frame.writeStream.option("checkpointLocation", progress).trigger(availableNow=True).format("parquet")

    plain = streamed.drop("q")
    assert stream(plain).start(str(lake.root / "link" / "p=1")).awaitTermination(120)
    assert stream(plain).toTable("second").awaitTermination(120)
    assert len(assert_encrypted(lake.root / "q=1", policy, {"email": "pii"})) == 2
    said = refusal(lambda: stream(streamed).partitionBy("q").start(str(lake.root)).awaitTermination(120))
    assert lake.name("t") in said and "PlanError" in said
    assert len(data_files(lake.root / "q=1")) == 2


def test_calls_of_the_metastore(lake: Lake) -> None:
    """What a write asks the metastore grows with its databases and not with its tables, and is asked once a minute."""
    ruled = "".join(f"  {lake.database}.r{number}: {{require_encryption: true}}\n" for number in range(9))
    lake.policy(tables=ruled)
    counter = lake.jvm.org.apache.spark.metrics.source.HiveCatalogMetrics.METRIC_HIVE_CLIENT_CALLS()

    def count(path: str) -> int:
        frame, before = rows(lake), counter.getCount()
        frame.write.parquet(str(lake.root / path))
        return int(counter.getCount() - before)

    def forget_all() -> None:
        lake.sql(f"CREATE DATABASE IF NOT EXISTS {lake.database}")

    forget_all()
    few = count("few")
    assert count("again") == 0
    for number in range(3):
        tagged(lake, f"r{number}")
    of_one_database = count("after a table was made")
    forget_all()
    assert count("more") == few
    assert 0 < of_one_database < few

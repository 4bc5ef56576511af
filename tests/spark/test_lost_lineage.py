"""Rows that left the plan and came back: refused where encryption is required and a name tells what they may be."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql import functions as F

import sparkcrypt
from sparkcrypt.policy.model import DeclassifyRule, Policy
from sparkcrypt.spark.tables.tagging import set_tags, unset_tags
from tests.spark.fixtures import new_lake
from tests.spark.support import PLAIN, SECRET, Lake, assert_encrypted, assert_plaintext, data_files, refusal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.sparks]
_NUMBERS = itertools.count()
ROWS = [(1, SECRET, PLAIN)]
NAMES = ["id", "ssn", "note"]


class Site:
    """A table ``people`` whose column ``ssn`` is tagged and was read, and names of tables that require encryption."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.spark = lake, lake.spark
        rules = "".join(
            f"  {lake.name(f'strict{i}')}: {{require_encryption: true, tags: {{note: fin}}}}\n" for i in range(40)
        )
        self.folder = lake.root / "folder"
        rules += f"  dataset: {{require_encryption: true, tags: {{note: fin}}, location: '{self.folder.as_uri()}'}}\n"
        log = (lake.root / "log").as_uri()
        principals = f"[root, {lake.spark.sparkContext.sparkUser()}]"
        more = f"access_log: {{location: '{log}'}}\ndeclassify: {{principals: {principals}, tags: [pii, public]}}\n"
        self.policy: Policy = lake.policy(tables=rules, more=more)
        lake.sql("CREATE TABLE people (id INT, ssn STRING, note STRING) USING parquet")
        set_tags(lake.spark, "people", {"ssn": ["pii"]}, self.policy)
        lake.sql(f"INSERT INTO people VALUES (1, '{SECRET}', '{PLAIN}')")
        lake.spark.table("people").collect()

    def name(self) -> str:
        """Return the name of another table that requires encryption."""
        return f"strict{next(_NUMBERS)}"

    def make(self, tags: dict[str, list[str]] | None = None, column: str = "ssn") -> str:
        """Make an empty table that requires encryption, whose second column has this name."""
        name = self.name()
        self.lake.sql(f"CREATE TABLE {name} (id INT, {column} STRING, note STRING) USING parquet")
        if tags:
            set_tags(self.spark, name, tags, self.policy)
        return name

    def local(self, names: list[str] | None = None) -> DataFrame:
        """Return a frame of a list, which says of no column where it comes from."""
        return self.spark.createDataFrame(ROWS, names or NAMES)

    def files(self, name: str) -> list[Path]:
        """Return a table's data files."""
        return data_files(self.lake.path(name))


@pytest.fixture(scope="module")
def site(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One session and its tables for all of these tests."""
    with new_lake(spark, tmp_path_factory.mktemp("lost")) as lake:
        yield Site(lake)


FRAMES: dict[str, Callable[[Site], DataFrame]] = {
    "list": Site.local,
    "pandas": lambda site: site.spark.createDataFrame(pd.DataFrame(ROWS, columns=NAMES)),
    "collected": lambda site: site.spark.createDataFrame(site.spark.table("people").collect(), NAMES),
    "toPandas": lambda site: site.spark.createDataFrame(site.spark.table("people").toPandas()),
    "RDD": lambda site: site.spark.createDataFrame(site.spark.table("people").rdd, NAMES),
    "RDD of tuples": lambda site: site.spark.sparkContext.parallelize(ROWS).toDF(NAMES),
    "other case": lambda site: site.local(["id", "SSN", "note"]),
    "computed": lambda site: site.local().withColumn("ssn", F.upper("ssn")),
    "union": lambda site: site.spark.range(1).selectExpr("id", "'x' AS ssn", "'y' AS note").union(site.local()),
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_rows_without_lineage_are_refused_by_name(site: Site, make: Callable[[Site], DataFrame]) -> None:
    """The message names table, column, the tagged column and what to do, and nothing is written."""
    name = site.make()
    frame = make(site)
    said = refusal(lambda: frame.withColumn("id", F.col("id").cast("int")).write.insertInto(name))
    assert f"{site.lake.name(name)}: column ssn is written from rows that do not say where they come from" in said
    assert f"the name of {site.lake.database}.people." in said
    assert f"sparkcrypt tags set {site.lake.name(name)} ssn pii" in said
    assert site.files(name) == []


def writes(site: Site) -> dict[str, Callable[[DataFrame], Any]]:
    """Return ways to write a frame into a place that requires encryption."""
    names = [site.name() for _ in range(4)]
    table, other = site.make(), site.make(column="word")
    site.local().createOrReplaceTempView("local")
    return {
        "saveAsTable": lambda frame: frame.write.format("parquet").saveAsTable(names[0]),
        "CTAS": lambda _: site.lake.sql(f"CREATE TABLE {names[1]} USING parquet AS SELECT * FROM local"),
        "Hive CTAS": lambda _: site.lake.sql(f"CREATE TABLE {names[2]} STORED AS PARQUET AS SELECT * FROM local"),
        "writeTo": lambda frame: frame.writeTo(names[3]).using("parquet").create(),
        "INSERT": lambda _: site.lake.sql(f"INSERT INTO {table} SELECT CAST(id AS INT), ssn, note FROM local"),
        "another column": lambda _: site.lake.sql(f"INSERT INTO {other} SELECT CAST(id AS INT), ssn, note FROM local"),
        "folder": lambda frame: frame.write.parquet(str(site.folder / "a")),
        "table's folder": lambda frame: frame.write.mode("append").parquet(str(site.lake.path(table))),
    }


def test_every_way_to_write(site: Site) -> None:
    """Tables that are there, tables that are made, and folders are judged alike, and no file is left."""
    actions = writes(site)
    said = {way: refusal(write, site.local()) for way, write in actions.items()}
    assert [way for way, text in said.items() if "do not say where they come from" not in text] == []
    assert "column word is written" in said["another column"]
    assert data_files(site.folder) == [] if site.folder.exists() else True
    assert [path for path in data_files(site.lake.root / "db") if "people" not in str(path)] == []


def test_what_goes_through(site: Site) -> None:
    """Names that nobody tagged, values of SQL, counts, and tables that do not require encryption; by their footers."""
    untagged, table, counted = site.name(), site.make(), site.name()
    site.local(["id", "word", "note"]).write.format("parquet").saveAsTable(untagged)
    site.lake.sql(f"INSERT INTO {table} VALUES (1, 'x', 'y')")
    counts = site.local().select(F.count("ssn").alias("people"), F.max("note").alias("note"))
    counts.write.format("parquet").saveAsTable(counted)
    for name in (untagged, table, counted):
        assert_encrypted(site.lake.path(name), site.policy, {"note": "fin"}, hidden=(), visible=())
    site.local().write.format("parquet").saveAsTable("free")
    assert_plaintext(site.lake.path("free"))


def test_ways_out(site: Site) -> None:
    """A tag of the table, the schema of what was read and a tag of the column encrypt it; others say it is harmless."""
    frame, read = site.local().withColumn("id", F.col("id").cast("int")), site.spark.table("people")
    tagged, kept, alias = site.make({"ssn": ["pii"]}), site.name(), site.name()
    frame.write.insertInto(tagged)
    site.spark.createDataFrame(read.rdd, read.schema).write.format("parquet").saveAsTable(kept)
    column = F.col("ssn").alias("ssn", metadata={"tags": ["pii"]})
    frame.select("id", column, "note").write.format("parquet").saveAsTable(alias)
    for name in (tagged, kept, alias):
        assert_encrypted(site.lake.path(name), site.policy, {"ssn": "pii", "note": "fin"}, visible=())
    public, harmless = site.make({"ssn": ["public"]}), site.name()
    frame.write.insertInto(public)
    shown = sparkcrypt.declassify(F.col("ssn"), "no value of a person").alias("ssn")
    frame.select("id", shown, "note").write.format("parquet").saveAsTable(harmless)
    for name in (public, harmless):
        assert_encrypted(site.lake.path(name), site.policy, {"note": "fin"}, hidden=(PLAIN,), visible=(SECRET,))


def test_nobody_declassifies_without_leave(site: Site) -> None:
    """What may have lost a tag is handed on by those alone whom the policy allows that for this tag."""
    policy = replace(site.policy, declassify=DeclassifyRule(principals=("somebody else",), tags=("pii",)))
    session, name = sparkcrypt.session(policy), site.name()
    session.sql(f"USE {site.lake.database}")
    session.table("people").collect()
    frame = session.createDataFrame(ROWS, NAMES)
    shown = frame.select(sparkcrypt.declassify(F.col("ssn"), "no value of a person").alias("ssn"), "note")
    assert "somebody else" in refusal(lambda: shown.write.format("parquet").saveAsTable(name))
    assert site.files(name) == []


def test_a_tag_that_was_taken_off_is_forgotten(site: Site) -> None:
    """Once the table is read without the tag, its column's name is nobody's any more."""
    site.lake.sql("CREATE TABLE former (id INT, phone STRING) USING parquet")
    set_tags(site.spark, "former", {"phone": ["pii"]}, site.policy)
    site.spark.table("former").collect()
    frame, name = site.local(["id", "phone", "note"]), site.name()
    assert "former.phone" in refusal(lambda: frame.write.format("parquet").saveAsTable(name))
    unset_tags(site.spark, "former", ["phone"])
    site.spark.table("former").collect()
    frame.write.format("parquet").saveAsTable(name)
    assert_encrypted(site.lake.path(name), site.policy, {"note": "fin"}, hidden=(PLAIN,), visible=(SECRET,))


def test_a_name_is_held_against_each_tag_that_was_seen(site: Site) -> None:
    """A column that is public in one table may come from another all the same, whichever was read first or last."""
    for name, tags in (("first", ["public"]), ("middle", ["pii"]), ("last", ["public"])):
        site.lake.sql(f"CREATE TABLE {name} (id INT, mail STRING) USING parquet")
        set_tags(site.spark, name, {"mail": tags}, site.policy)
        site.spark.table(name).collect()
    frame, target = site.local(["id", "mail", "note"]), site.name()
    assert "middle.mail" in refusal(lambda: frame.write.format("parquet").saveAsTable(target))
    assert site.files(target) == []

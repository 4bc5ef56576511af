"""What a write derives from, leaf by leaf, and rows whose origin is not known."""

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
from sparkcrypt.runs.keys.shredding_plan import Export
from sparkcrypt.runs.passes.lineage import trace_lineage
from sparkcrypt.spark.tables.tagging import set_tags, unset_tags
from tests.spark.fixtures import new_lake
from tests.spark.shredding import plan_shredding
from tests.spark.support import PLAIN, SECRET, Lake, assert_encrypted, assert_plaintext, data_files, notes_of, refusal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

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


@pytest.mark.sparks
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


@pytest.mark.sparks
def test_every_way_to_write(site: Site) -> None:
    """Tables that are there, tables that are made, and folders are judged alike, and no file is left."""
    actions = writes(site)
    said = {way: refusal(write, site.local()) for way, write in actions.items()}
    assert [way for way, text in said.items() if "do not say where they come from" not in text] == []
    assert "column word is written" in said["another column"]
    assert data_files(site.folder) == [] if site.folder.exists() else True
    assert [path for path in data_files(site.lake.root / "db") if "people" not in str(path)] == []


@pytest.mark.sparks
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


@pytest.mark.sparks
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


@pytest.mark.sparks
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


@pytest.mark.sparks
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


@pytest.mark.sparks
def test_a_name_is_held_against_each_tag_that_was_seen(site: Site) -> None:
    """A column that is public in one table may come from another all the same, whichever was read first or last."""
    for name, tags in (("first", ["public"]), ("middle", ["pii"]), ("last", ["public"])):
        site.lake.sql(f"CREATE TABLE {name} (id INT, mail STRING) USING parquet")
        set_tags(site.spark, name, {"mail": tags}, site.policy)
        site.spark.table(name).collect()
    frame, target = site.local(["id", "mail", "note"]), site.name()
    assert "middle.mail" in refusal(lambda: frame.write.format("parquet").saveAsTable(target))
    assert site.files(target) == []


NUMBER, MAIL, CODE = "passenger.phones.list.element.number", "passenger.email", "codes.key_value.value"
QUERIES = {
    "whole": "SELECT id, passenger AS p FROM people",
    "names": "SELECT passenger.name AS name, passenger.phones.kind, passenger.phones[0].kind AS first FROM people",
    "mails": "SELECT upper(passenger.email) AS mail FROM people",
    "phones": "SELECT passenger.phones AS phones FROM people",
    "made": "SELECT named_struct('a', passenger.name, 'b', passenger.email) AS s FROM people",
    "exploded": "SELECT ph.number AS n, ph.kind AS k FROM people LATERAL VIEW explode(passenger.phones) AS ph",
    "coded": "SELECT codes['x'] AS code, codes AS all FROM people",
    "text": "SELECT to_json(passenger) AS j FROM people",
    "cast_by_place": "SELECT q.b AS b FROM (SELECT CAST(passenger AS STRUCT<a: STRING, b: STRING, "
    "c: ARRAY<STRUCT<d: STRING, e: STRING>>>) AS q FROM people)",
    "sorted": "SELECT array_sort(transform(passenger.phones, x -> named_struct('number', x.kind, 'kind', x.number)))"
    ".kind AS kinds FROM people",
    "chosen": "SELECT passenger.name AS name FROM people WHERE passenger.email > ''",
    "second": "SELECT p.name AS name, p.phones.number AS numbers FROM whole",
}


def make(lake: Lake) -> Policy:
    """Make a table of a struct with two tagged leaves, and tables of queries over it."""
    policy = lake.policy()
    lake.sql(
        "CREATE TABLE people (id INT, passenger STRUCT<name: STRING, email: STRING, phones: "
        "ARRAY<STRUCT<number: STRING, kind: STRING>>>, codes MAP<STRING, STRING>) USING parquet"
    )
    tags = {MAIL: ["pii"], "passenger.phones.element.number": ["fin"], "codes.value": ["fin"]}
    set_tags(lake.spark, "people", tags, policy)
    lake.sql(
        "INSERT INTO people SELECT id, named_struct('name', n, 'email', n || '@x', 'phones', "
        "array(named_struct('number', n, 'kind', 'k'))), map('x', n) FROM VALUES (1, 'a'), (2, 'b') v(id, n)"
    )
    for name, query in QUERIES.items():
        lake.sql(f"CREATE TABLE {name} USING parquet AS {query}")
    return policy


def exports(found: tuple[Export, ...], lake: Lake) -> set[tuple[str, ...]]:
    """Return the exports, without the database's name."""
    texts = ((export.source, export.place, export.state) for export in found)
    return {tuple(text.removeprefix(f"{lake.database}.") for text in each) for each in texts}


def test_lineage_and_exports_go_by_leaves(lake: Lake) -> None:
    """Each query notes the tagged leaves that it took, and where in its columns they are."""
    policy, people = make(lake), lake.name("people")

    def of(*columns: str) -> dict[str, list[str]]:
        return {people: list(columns)}

    found: dict[str, Any] = {name: notes_of(lake.path(name), policy) for name in QUERIES}
    assert found["whole"] == {"p": {"into": {"email": of(MAIL), "phones.list.element.number": of(NUMBER)}}}
    assert found["names"] == {}
    assert found["mails"] == {"mail": {"from": of(MAIL)}}
    assert found["phones"] == {"phones": {"into": {"list.element.number": of(NUMBER)}}}
    assert found["made"] == {"s": {"into": {"b": of(MAIL)}}}
    assert found["exploded"] == {"n": {"from": of(NUMBER)}}
    assert found["coded"] == {"code": {"from": of(CODE)}, "all": {"into": {"key_value.value": of(CODE)}}}
    assert found["text"] == {"j": {"from": of(MAIL, NUMBER)}}
    assert found["cast_by_place"]["b"] == {"from": of(MAIL, NUMBER)}  # not told apart, so all of them
    assert found["sorted"] == {"kinds": {"into": {"list.element": of(NUMBER)}}}
    assert found["chosen"] == {"name": {"conditions": of(MAIL)}}
    assert found["second"] == {
        "numbers": {"into": {"list.element": {lake.name("whole"): ["p.phones.list.element.number"]}}}
    }

    traced = trace_lineage(lake.spark, policy, tables=["whole", "second", "made"])
    text = traced.to_text().replace(f"{lake.database}.", "")
    assert f"  p.email (pii) <- people.{MAIL}\n" in text
    assert f"  p.phones.list.element.number (fin) <- people.{NUMBER}\n" in text
    assert "  numbers.list.element (fin) <- whole.p.phones.list.element.number\n" in text
    assert f"  {MAIL} -> made.s.b, whole.p.email\n" in text

    pii, fin = (plan_shredding(lake, policy, key_id=key).keys[0] for key in ("pii", "fin"))
    columns = {table.table.removeprefix(f"{lake.database}."): table.columns for table in fin.dark}
    assert columns["whole"] == ("p.phones.list.element.number",)
    assert (exports(pii.exports, lake), pii.defeated_by) == (set(), ())
    known = {(f"people.{NUMBER}", place, "under key 'pii'") for place in ("text.j", "cast_by_place.b")}
    assert exports(fin.exports, lake) == known

    with lake.stranger() as stranger:  # as earlier releases noted it: top-level columns
        note = {"lineage": {"from": {people: ["passenger"]}}}
        frame = stranger.sql("SELECT named_struct('x', 'a', 'y', 'b') AS s").select(
            F.col("s").alias("s", metadata=note)
        )
        frame.write.format("parquet").saveAsTable("earlier")
    (again,) = plan_shredding(lake, policy, key_id="fin").keys
    assert exports(again.exports, lake) == known | {
        (f"people.{NUMBER}", f"earlier.s.{leaf}", "not encrypted") for leaf in ("x", "y")
    }

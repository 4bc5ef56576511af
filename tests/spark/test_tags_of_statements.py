"""Tags follow data through statements of several inserts, recursive queries, functions in SQL and nested structs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.fixtures import new_lake
from tests.spark.support import Lake, encrypted_columns, footers, refusal, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.sparks]


@dataclass(frozen=True)
class Site:
    """A lake whose table ``people`` has tagged columns, and the policy that it is under."""

    lake: Lake
    policy: Policy

    def judged(self, table: str) -> dict[str, str | None]:
        """Return the encrypted columns of a table's files, by their footers."""
        found = {}
        for footer in footers(self.lake.path(table), self.policy):
            found.update(encrypted_columns(footer))
        return found

    def made(self, table: str, query: str) -> dict[str, str | None]:
        """Make a table of a query, and return its files' encrypted columns."""
        self.lake.sql(f"CREATE TABLE {table} USING parquet AS {query}")
        return self.judged(table)


@pytest.fixture(scope="module")
def site(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One session and one set of tables for all of these tests."""
    with new_lake(spark, tmp_path_factory.mktemp("statements")) as lake:
        policy = lake.policy(more="sinks: deny\n")
        lake.sql(
            "CREATE TABLE people (id INT, ssn STRING, salary INT, home STRUCT<street: STRING, city: STRING>,"
            " owner STRUCT<name: STRING>, pet STRUCT<name: STRING>) USING parquet"
        )
        tags = {"ssn": ["pii"], "salary": ["fin"], "home.street": ["pii"], "owner.name": ["pii"]}
        set_tags(lake.spark, "people", tags, policy)
        lake.sql(
            "INSERT INTO people VALUES (1, 'a', 10, struct('s', 'c'), struct('o'), struct('p')),"
            " (2, 'b', 20, struct('t', 'd'), struct('q'), struct('r'))"
        )
        yield Site(lake, policy)


def test_each_insert_of_one_statement(site: Site) -> None:
    """Every table of a statement that inserts into several is written by the tags of its own query."""
    lake = site.lake
    lake.sql("CREATE TABLE numbers (id INT) USING parquet")
    lake.sql("CREATE TABLE words (word STRING, id INT) USING parquet")
    lake.sql("FROM people INSERT INTO numbers SELECT id INSERT INTO words SELECT upper(ssn), id")
    assert site.judged("numbers") == {}
    assert site.judged("words") == {"word": "pii"}
    assert rows_of(lake.spark.table("words")) == [("A", 1), ("B", 2)]
    lake.sql("CREATE TABLE lines (line STRING) USING csv")
    lake.sql("CREATE TABLE parts (id INT, word STRING) USING parquet PARTITIONED BY (word)")
    several = "FROM people INSERT INTO numbers SELECT id INSERT INTO "
    assert "is written to csv" in refusal(lambda: lake.sql(several + "lines SELECT lower(ssn)"))
    assert "is a partition column" in refusal(lambda: lake.sql(several + "parts SELECT id, lower(ssn)"))
    assert list(lake.path("parts").glob("word=*")) == []


def test_places_in_structs(site: Site) -> None:
    """A field's tag counts by its place: a union does not take it for that of another field of the same name."""
    of_owner = "named_struct('owner', owner, 'pet', pet)"
    of_pet = "named_struct('owner', pet, 'pet', owner)"
    found = site.made("unions", f"SELECT {of_owner} AS both FROM people UNION ALL SELECT {of_pet} FROM people")
    assert found == {"both.owner.name": "pii", "both.pet.name": "pii"}


def test_orders_of_windows(site: Site) -> None:
    """What counts rows by an order of tagged values has their tags, however many arguments it takes."""
    text = "SELECT id, ntile(2) OVER (ORDER BY salary) AS part, ntile(2) OVER (ORDER BY id) AS free FROM people"
    assert site.made("windows", text) == {"part": "fin"}


def test_changed_structs(site: Site) -> None:
    """Structs with fields added or dropped can be asked for, and are tagged as what functions make of their input."""
    people = site.lake.spark.table("people")
    changed = people.select(F.col("home").withField("city", F.col("ssn")).alias("home"), "id")
    changed.write.saveAsTable("changed")
    people.select(F.col("home").dropFields("street").alias("home")).write.saveAsTable("dropped")
    assert site.judged("changed") == {"home.street": "pii", "home.city": "pii"}
    assert site.judged("dropped") == {"home.city": "pii"}


@pytest.mark.newest
def test_recursive_queries(site: Site) -> None:
    """Values that a round moves to another column take their tags along, and counters stay open."""
    text = (
        "WITH RECURSIVE rounds(n, a, b, c) AS (SELECT 1, 'x', 'y', upper(ssn) FROM people"
        " UNION ALL SELECT n + 1, b, c, 'z' FROM rounds WHERE n < 4) SELECT n, a, b, c FROM rounds"
    )
    assert site.made("recursive", text) == {"a": "pii", "b": "pii", "c": "pii"}


@pytest.mark.newest
def test_functions_in_sql(site: Site) -> None:
    """A function whose body reads tagged columns can be called, and its result has their tags."""
    site.lake.sql("CREATE FUNCTION peek(one INT) RETURNS STRING RETURN (SELECT max(ssn) FROM people WHERE id = one)")
    assert rows_of(site.lake.sql("SELECT id, peek(id) AS word FROM people")) == [(1, "a"), (2, "b")]
    assert site.made("called", "SELECT id, peek(id) AS word FROM people") == {"word": "pii"}


@pytest.mark.newest
def test_variables(site: Site) -> None:
    """A variable has the tags of the query that it was set from, until its session ends; others have none."""
    sql = site.lake.sql
    for name in ("most", "asked", "free"):
        sql(f"DECLARE OR REPLACE VARIABLE {name} STRING")
    assert site.made("before", "SELECT most AS a, id FROM people") == {}
    sql("SET VAR (most, free) = (SELECT max(ssn), string(count(*)) FROM people)")
    sql("EXECUTE IMMEDIATE 'SELECT upper(max(ssn)) FROM people' INTO asked")
    assert site.made("after", "SELECT most AS a, concat(asked, '!') AS b, free AS c") == {"a": "pii", "b": "pii"}
    sql("SET VAR free = most")
    assert site.made("handed_on", "SELECT free AS c, id FROM people") == {"c": "pii"}
    other = site.lake.spark.newSession()
    other.sql("DECLARE VARIABLE most STRING DEFAULT 'mine'")
    other.sql(f"USE {site.lake.database}")
    other.sql("CREATE TABLE of_another USING parquet AS SELECT most AS a")
    assert site.judged("of_another") == {}

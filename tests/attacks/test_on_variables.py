"""Values of SQL variables that were set from tagged columns, where Spark evaluates them before a plan is resolved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.sql import functions as F

from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.fixtures import new_lake
from tests.spark.support import Lake, encrypted_columns, footers, refusal, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.sparks, pytest.mark.newest]
VALUE = "canaryofavariable"
IN_CLEAR = "which encrypts, and is written to csv"
REPLACED = "before tags can follow it"


@dataclass(frozen=True)
class Site:
    """A lake whose table ``people`` has a tagged column, a session with a variable set from it, and their policy."""

    lake: Lake
    policy: Policy

    def run(self, statements: str) -> None:
        """Run statements that are separated by lines."""
        for statement in statements.strip().splitlines():
            self.lake.sql(statement.strip())

    def judged(self, table: str) -> dict[str, str | None]:
        """Return the encrypted columns of a table's files, by their footers."""
        found = {}
        for footer in footers(self.lake.path(table), self.policy):
            found.update(encrypted_columns(footer))
        return found


@pytest.fixture(scope="module")
def site(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One session and one set of tables for all of these tests."""
    with new_lake(spark, tmp_path_factory.mktemp("variables")) as lake:
        policy = lake.policy(more="sinks: deny\n")
        lake.sql("CREATE TABLE people (id INT, email STRING) USING parquet")
        set_tags(lake.spark, "people", {"email": ["pii"]}, policy)
        lake.sql(f"INSERT INTO people VALUES (1, '{VALUE}')")
        set_variables(lake.spark)
        lake.sql("CREATE TABLE texts (word STRING) USING csv")
        lake.sql("CREATE TABLE parts (id INT, word STRING) USING parquet PARTITIONED BY (word)")
        yield Site(lake, policy)


def set_variables(session: SparkSession) -> None:
    """Declare two variables, and set one of them from the tagged column."""
    for variable in ("v", "w"):
        session.sql(f"DECLARE OR REPLACE VARIABLE {variable} STRING")
    session.sql("SET VAR v = (SELECT max(email) FROM people)")


CURSORS = "SET spark.sql.scripting.cursorEnabled=true\n"
OF_CURSORS = {
    "a row of a cursor": (
        "BEGIN DECLARE four STRING; DECLARE c CURSOR FOR SELECT email FROM people; OPEN c; FETCH c INTO four; "
        "INSERT INTO texts SELECT four; END",
        IN_CLEAR,
    ),
    "a row of a cursor, in a session's variables": (
        "DECLARE OR REPLACE VARIABLE one INT\n DECLARE OR REPLACE VARIABLE five STRING\n"
        "BEGIN DECLARE c CURSOR FOR SELECT id, upper(email) FROM people; OPEN c; "
        "FETCH c INTO session.one, session.five; CLOSE c; END\n"
        "INSERT INTO texts SELECT string(one)\n INSERT INTO texts SELECT five",
        IN_CLEAR,
    ),
    "a row of a cursor whose view is replaced": (
        "CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT email FROM people\n"
        "BEGIN DECLARE six STRING; DECLARE c CURSOR FOR SELECT * FROM seen; OPEN c; "
        "CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT 'a' AS email; FETCH c INTO six; "
        "INSERT INTO texts SELECT six; END",
        IN_CLEAR,
    ),
    "an argument of a cursor": (
        "BEGIN DECLARE seven STRING; DECLARE c CURSOR FOR SELECT ?; OPEN c USING v; FETCH c INTO seven; "
        "INSERT INTO texts SELECT seven; END",
        REPLACED,
    ),
}
ATTACKS = {
    "an inline table": ("INSERT INTO texts VALUES (v)", IN_CLEAR),
    "an inline table by other names": ("INSERT INTO texts VALUES (session.v), (upper(`V`))", IN_CLEAR),
    "an inline table by IDENTIFIER": ("INSERT INTO texts VALUES (IDENTIFIER('v'))", IN_CLEAR),
    "into a table by IDENTIFIER": ("INSERT INTO IDENTIFIER('texts') VALUES (v)", IN_CLEAR),
    "an inline table of a subquery": (
        "INSERT INTO texts SELECT (SELECT max(x) FROM VALUES ('a'), (upper(v)) AS t(x)) AS word",
        IN_CLEAR,
    ),
    "an inline table of a common table expression": (
        "WITH q AS (SELECT * FROM VALUES (v) AS t(x)) INSERT INTO texts SELECT x FROM q",
        IN_CLEAR,
    ),
    "a new table": ("CREATE TABLE c USING csv AS SELECT concat(x, '') AS x FROM VALUES (1, v) AS t(i, x)", IN_CLEAR),
    "another variable's default": (
        "DECLARE OR REPLACE VARIABLE of_default STRING DEFAULT lower(v)\n INSERT INTO texts SELECT of_default",
        IN_CLEAR,
    ),
    "a variable of a script": (
        "BEGIN DECLARE one STRING DEFAULT v; DECLARE two STRING; SET two = one; INSERT INTO texts SELECT two; END",
        IN_CLEAR,
    ),
    "an inline table of a script": (
        "BEGIN DECLARE three STRING DEFAULT v; INSERT INTO texts VALUES (three); END",
        IN_CLEAR,
    ),
    **{name: (CURSORS + text, told) for name, (text, told) in OF_CURSORS.items() if pyspark.__version__ >= "4.3"},
    "an argument of EXECUTE IMMEDIATE": ("EXECUTE IMMEDIATE 'CREATE TABLE c USING csv AS SELECT ?' USING v", REPLACED),
    "an argument by name": ("EXECUTE IMMEDIATE 'INSERT INTO texts SELECT :a' USING upper(v) AS a", REPLACED),
    "INTO another variable": ("EXECUTE IMMEDIATE 'SELECT ?' INTO w USING v", REPLACED),
    "the text of a statement": (
        "EXECUTE IMMEDIATE 'CREATE TABLE c USING csv AS SELECT ''' || v || ''''",
        REPLACED,
    ),
    "the text by way of another variable": (
        "SET VAR w = 'INSERT INTO texts SELECT ''' || v || ''''\n EXECUTE IMMEDIATE w",
        REPLACED,
    ),
    "a comment": ("EXECUTE IMMEDIATE 'COMMENT ON TABLE people IS ''' || v || ''''", REPLACED),
    "a partition": (
        "EXECUTE IMMEDIATE 'INSERT INTO parts PARTITION (word = ''' || v || ''') SELECT 1'",
        REPLACED,
    ),
    "a table's name": ("CREATE TABLE IDENTIFIER('zz_' || v) (a INT) USING parquet", REPLACED),
    "a column's name": (
        "CREATE TABLE c USING parquet AS SELECT IDENTIFIER('id' || left(v, 0)) AS a FROM people",
        REPLACED,
    ),
    "a field's name": ("CREATE TABLE c USING parquet AS SELECT named_struct(v, 1) AS a", REPLACED),
    "a name in a schema": ("CREATE TABLE c USING parquet AS SELECT from_json('{}', v || ' STRING') AS a", REPLACED),
    "a name in a type": (
        "CREATE TABLE c USING parquet AS SELECT variant_get(parse_json('{}'), '$', 'struct<' || v || ':int>') AS a",
        REPLACED,
    ),
    "a name of a pivot": (
        "CREATE TABLE c USING parquet AS SELECT * FROM (SELECT id, 'a' AS e FROM people) PIVOT (max(id) FOR e IN (v))",
        REPLACED,
    ),
    "declassified by a variable": ("SET VAR w = (SELECT declassify(max(email), 'why') FROM people)", "declassif"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_values_of_variables_are_followed_or_refused(site: Site, name: str) -> None:
    """Nothing of the value is in a file, a name or the catalog."""
    statements, told = ATTACKS[name]
    assert told in refusal(site.run, statements)
    assert not site.lake.spark.catalog.tableExists("c")
    found = [path for path in (site.lake.root / "db").rglob("*") if VALUE in path.name.lower()]
    assert found == []
    for file in site.lake.path("texts").rglob("*"):
        assert VALUE.encode() not in file.read_bytes().lower()


@pytest.mark.parametrize("by_name", [True, False])
def test_arguments_of_statements(site: Site, by_name: bool) -> None:
    """Spark evaluates them before it parses the statement."""
    text = f"CREATE TABLE c USING csv AS SELECT {':a' if by_name else '?'} AS x"
    values = {"a": F.expr("upper(v)")} if by_name else [F.expr("v")]
    assert REPLACED in refusal(lambda: site.lake.spark.sql(text, args=values))
    assert not site.lake.spark.catalog.tableExists("c")


def test_new_sessions(site: Site) -> None:
    """They have the rules from their start; variables of another session have no tags there."""
    other = Lake(site.lake.spark.newSession(), site.lake.database, site.lake.root)
    other.sql(f"USE {other.database}")
    other.sql("DECLARE VARIABLE v STRING DEFAULT 'mine'")
    assert other.sql("EXECUTE IMMEDIATE 'SELECT ?' USING v").collect()[0][0] == "mine"
    set_variables(other.spark)
    for name in ("an inline table", "an argument of EXECUTE IMMEDIATE", "another variable's default"):
        statements, told = ATTACKS[name]
        assert told in refusal(Site(other, site.policy).run, statements)


def test_tags_of_inline_tables(site: Site) -> None:
    """Each column has the tags of its own values, and is written and read as such."""
    sql = site.lake.sql
    sql("CREATE TABLE inlines USING parquet AS SELECT * FROM VALUES (v, 1, 'a'), ('b', 2, 'c') AS t(x, i, y)")
    assert site.judged("inlines") == {"x": "pii"}
    assert rows_of(site.lake.spark.table("inlines")) == sorted([(VALUE, 1, "a"), ("b", 2, "c")], key=repr)
    sql("DROP TABLE inlines")


def test_what_people_do_with_variables(site: Site) -> None:
    """Queries that name a variable, in a statement's text too, work as before, and so do those without tagged ones."""
    sql = site.lake.sql
    sql("INSERT INTO people VALUES (2, v), (3, DEFAULT)")
    assert sql("EXECUTE IMMEDIATE 'SELECT count(*) FROM people WHERE email = v'").collect()[0][0] == 2
    sql("EXECUTE IMMEDIATE 'SELECT max(email) FROM people WHERE id = ?' INTO w USING 1")
    assert sql("SELECT w, x FROM VALUES (w), ('b') AS t(x)").count() == 2
    assert sql("SELECT * FROM IDENTIFIER('peo' || 'ple') WHERE email = v").count() == 2
    assert site.lake.spark.sql("SELECT :a AS x", args={"a": 1}).collect()[0][0] == 1
    assert sql("SELECT * FROM (SELECT id, email FROM people) PIVOT (max(id) FOR email IN (v AS mine))").columns == [
        "mine"
    ]
    assert "is a partition column" in refusal(sql, "INSERT INTO parts SELECT 1, v")

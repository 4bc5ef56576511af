"""A table that takes the name of an earlier one: it gets its tags and requirements, or is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkcrypt import encrypt_table
from sparkcrypt.ledger.audit.audit import list_entries
from sparkcrypt.ledger.state.store import open_state_store
from sparkcrypt.names import PREDECESSOR, REQUIRE_ENCRYPTION
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.planning import plan_table
from sparkcrypt.spark.tables.tagging import set_tags, unset_tags
from tests.spark.support import PLAIN, SECRET, Lake, assert_encrypted, assert_plaintext, data_files, refusal, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.sparks]
COLUMNS = "(id INT, email STRING, note STRING)"
ROW = f"SELECT 2 AS id, '{SECRET}' AS email, '{PLAIN}' AS note"


def overwrite(lake: Lake, rows: str = ROW, **options: str) -> None:
    """Overwrite ``t`` by the writer of a frame, as a nightly job does."""
    lake.sql(rows).write.mode("overwrite").format("parquet").options(**options).saveAsTable("t")


def drop_and_select(lake: Lake) -> None:
    """DROP, and CREATE TABLE AS SELECT."""
    lake.sql("DROP TABLE t")
    lake.sql(f"CREATE TABLE t USING parquet AS {ROW}")


def drop_and_select_for_hive(lake: Lake) -> None:
    """DROP, and CREATE TABLE AS SELECT of a table of Hive."""
    lake.sql("DROP TABLE t")
    lake.sql(f"CREATE TABLE t STORED AS PARQUET AS {ROW}")


def drop_and_insert(lake: Lake) -> None:
    """DROP, CREATE TABLE and INSERT."""
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql("DROP TABLE IF EXISTS t")
    lake.sql(f"CREATE TABLE t {COLUMNS} USING parquet")
    lake.sql(f"INSERT INTO t {ROW}")


def drop_and_insert_for_hive(lake: Lake) -> None:
    """DROP, CREATE TABLE and INSERT of a table of Hive."""
    lake.sql("DROP TABLE t")
    lake.sql(f"CREATE TABLE t {COLUMNS} STORED AS PARQUET")
    lake.sql(f"INSERT INTO t {ROW}")


def drop_and_write_to(lake: Lake) -> None:
    """DROP, and the second writer of frames."""
    lake.sql("DROP TABLE t")
    lake.sql(ROW).writeTo("t").using("parquet").create()


def rename_and_select(lake: Lake) -> None:
    """RENAME away, and CREATE TABLE AS SELECT."""
    lake.sql("ALTER TABLE t RENAME TO t_old")
    lake.sql(f"CREATE TABLE t USING parquet AS {ROW}")


def drop_database(lake: Lake) -> None:
    """DROP DATABASE CASCADE, and all anew."""
    lake.sql(f"DROP DATABASE {lake.database} CASCADE")
    lake.sql(f"CREATE DATABASE {lake.database} LOCATION '{(lake.root / 'db').as_uri()}'")
    lake.sql(f"CREATE TABLE t USING parquet AS {ROW}")


def stream(lake: Lake) -> None:
    """DROP, and a stream that makes the table."""
    lake.sql("DROP TABLE t")
    (lake.root / "in").mkdir()
    (lake.root / "in" / "1.txt").write_text(f"{SECRET}\n")
    rows = lake.spark.readStream.text(str(lake.root / "in")).selectExpr("value AS email", f"'{PLAIN}' AS note")
    writer = rows.writeStream.option("checkpointLocation", str(lake.root / "checkpoint")).format("parquet")
    assert writer.trigger(availableNow=True).toTable("t").awaitTermination(120)


WAYS = [
    overwrite,
    drop_and_select,
    drop_and_select_for_hive,
    drop_and_insert,
    drop_and_insert_for_hive,
    drop_and_write_to,
    rename_and_select,
    drop_database,
    stream,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_tags_and_requirements_come_back_with_the_name(lake: Lake, way: Callable[[Lake], None]) -> None:
    """Rows without tags are encrypted as the earlier table's were, under a new UUID, and both stores have the tags."""
    policy = lake.policy()
    first = made(lake, policy)
    Catalog(lake.spark).set_options(Catalog(lake.spark).table("t"), {REQUIRE_ENCRYPTION: "true"})
    way(lake)
    table = Catalog(lake.spark).table("t")
    assert table.uuid not in (None, first)
    assert table.options[REQUIRE_ENCRYPTION] == "true"
    assert table.properties[PREDECESSOR] == first
    assert_encrypted(lake.path("t"), policy, {"email": "pii"})
    plan = plan_table(lake.spark, "t", policy)
    assert [(column.leaf.dotted, column.sources) for column in plan.encrypted] == [
        ("email", ("schema metadata", "table property"))
    ]
    assert plan.differences == ()
    assert [row.email for row in lake.sql("SELECT email FROM t").collect()] == [SECRET]


def test_every_night(lake: Lake) -> None:
    """The second and the third overwrite are as the first, whatever the case of names; tags that were unset stay so."""
    policy = lake.policy()
    made(lake, policy)
    overwrite(lake)
    overwrite(lake, ROW.replace("email", "EMAIL"))
    assert_encrypted(lake.path("t"), policy, {"EMAIL": "pii"})
    unset_tags(lake.spark, "t", ["EMAIL"])
    overwrite(lake)
    assert_plaintext(lake.path("t"))


def test_columns_that_come_and_go(lake: Lake) -> None:
    """A column that is left out for a night has its tags when it is back; a nested one hands them upwards."""
    policy = lake.policy()
    lake.sql(
        "CREATE TABLE t (id INT, email STRING, who STRUCT<name: STRING, phones: ARRAY<STRUCT<n: STRING>>>, "
        "note STRING) USING parquet"
    )
    set_tags(lake.spark, "t", {"email": ["pii"], "who.phones.element.n": ["fin"], "who.name": ["pii"]}, policy)
    whole = (
        f"named_struct('name', '{SECRET}', 'phones', array(named_struct('n', '{SECRET}')))",
        f"named_struct('name', '{SECRET}', 'phones', array('{SECRET}'))",
    )
    overwrite(lake, f"SELECT 1 AS id, {whole[0]} AS who, '{PLAIN}' AS note")
    assert_encrypted(lake.path("t"), policy, {"who.name": "pii", "who.phones.list.element.n": "fin"})
    overwrite(lake, f"SELECT 1 AS id, '{SECRET}' AS email, {whole[1]} AS who, '{PLAIN}' AS note")
    expected = {"email": "pii", "who.name": "pii", "who.phones.list.element": "fin"}
    assert_encrypted(lake.path("t"), policy, expected)


@pytest.mark.parametrize("required", [False, True], ids=["", "required"])
def test_tags_of_the_new_rows_count_too(lake: Lake, required: bool) -> None:
    """The new table has the earlier tags, and those that its rows bring, which the earlier one lacked."""
    policy = lake.policy(tables=f"  {lake.database}.t: {{require_encryption: {str(required).lower()}}}\n")
    made(lake, policy)
    lake.sql("CREATE TABLE source (note STRING) USING parquet")
    set_tags(lake.spark, "source", {"note": ["fin"]}, policy)
    lake.sql(f"INSERT INTO source VALUES ('{SECRET}')")
    overwrite(lake, f"SELECT 2 AS id, '{SECRET}' AS email, note FROM source")
    assert_encrypted(lake.path("t"), policy, {"email": "pii", "note": "fin"}, visible=())


def test_audit_names_the_predecessor(lake: Lake) -> None:
    """The audit of the new table begins anew, and says whose name the table took."""
    policy = lake.policy()
    made(lake, policy)
    set_tags(lake.spark, "t", {"note": ["fin"]}, policy)
    encrypt_table(lake.spark, "t", policy)
    first = str(Catalog(lake.spark).table("t").uuid)
    overwrite(lake)
    set_tags(lake.spark, "t", {"id": ["fin"]}, policy)
    encrypt_table(lake.spark, "t", policy)
    table = Catalog(lake.spark).table("t")
    entries = [signed.entry for signed in list_entries(open_state_store(policy.run_state), str(table.uuid), None)]
    assert [entry["predecessor"] for entry in entries] == [first]
    assert rows_of(lake.spark.table("t")) == [(2, SECRET, PLAIN)]


@pytest.mark.parametrize("sink", ["folder's name", "csv"])
def test_refusal(lake: Lake, sink: str) -> None:
    """Tagged values become no folder's name and no text file; where Spark drops late, the old rows are still there."""
    policy = lake.policy(more="sinks: deny\n")
    made(lake, policy)
    writer = lake.sql(ROW).write.mode("overwrite").format("csv" if sink == "csv" else "parquet")
    said = refusal((writer if sink == "csv" else writer.partitionBy("email")).saveAsTable, "t")
    assert "email" in said and "pii" in said
    assert not [file for file in lake.path("t").rglob("*") if SECRET in file.name or file.suffix == ".csv"]
    if lake.spark.version >= "4.1":
        assert rows_of(lake.spark.table("t")) == [(1, SECRET, PLAIN)]
    if sink == "csv":
        lake.sql("DROP TABLE IF EXISTS t")
        for kind in ("USING csv", "STORED AS TEXTFILE"):
            said = refusal(lake.sql, f"CREATE TABLE t {COLUMNS} {kind}")
            assert "email" in said and "pii" in said


def test_swap_by_rename(lake: Lake) -> None:
    """A table without the tags does not take the name; a table that has them does, and one that only comes back."""
    policy = lake.policy()
    made(lake, policy)
    lake.sql(f"CREATE TABLE fresh USING parquet AS {ROW}")
    lake.sql("ALTER TABLE t RENAME TO t_old")
    said = refusal(lake.sql, "ALTER TABLE fresh RENAME TO t")
    assert f"sparkcrypt tags set {lake.name('fresh')} email pii" in said
    assert not lake.spark.catalog.tableExists("t")
    assert_plaintext(lake.path("fresh"))
    set_tags(lake.spark, "t_old", {"email": ["fin"]}, policy)
    lake.sql("ALTER TABLE t_old RENAME TO t")
    assert_encrypted(lake.path("t"), policy, {"email": "pii"})
    lake.sql("ALTER TABLE t RENAME TO t_old")
    set_tags(lake.spark, "fresh", {"email": ["public"]}, policy)
    said = refusal(lake.sql, "ALTER TABLE fresh RENAME TO t")
    assert f"sparkcrypt tags set {lake.name('fresh')} email public,fin,pii" in said
    set_tags(lake.spark, "fresh", {"email": ["public", "fin", "pii"]}, policy)
    lake.sql("ALTER TABLE fresh RENAME TO t")
    assert Catalog(lake.spark).table("t_old").uuid != Catalog(lake.spark).table("t").uuid


def test_like(lake: Lake) -> None:
    """CREATE TABLE LIKE a table without the tags is refused, and like one that has them is done."""
    policy = lake.policy()
    made(lake, policy)
    lake.sql(f"CREATE TABLE plain {COLUMNS} USING parquet")
    lake.sql("CREATE TABLE same LIKE t")
    lake.sql("DROP TABLE t")
    assert f"sparkcrypt tags set {lake.name('plain')} email pii" in refusal(lake.sql, "CREATE TABLE t LIKE plain")
    assert not lake.spark.catalog.tableExists("t")
    lake.sql("CREATE TABLE t LIKE same")
    lake.sql(f"INSERT INTO t {ROW}")
    assert_encrypted(lake.path("t"), policy, {"email": "pii"})


def test_like_has_an_identity_of_its_own(lake: Lake) -> None:
    """Files of a table that was made LIKE another are bound to a UUID of its own: people go on with both."""
    policy = lake.policy()
    made(lake, policy)
    overwrite(lake)
    lake.sql("CREATE TABLE same LIKE t")
    lake.sql("CREATE TABLE IF NOT EXISTS same LIKE t")
    lake.sql("INSERT INTO same SELECT * FROM t")
    uuids = {name: Catalog(lake.spark).table(name).uuid for name in ("t", "same")}
    assert all(uuids.values()) and uuids["t"] != uuids["same"]
    for name, uuid in uuids.items():
        set_tags(lake.spark, name, {"note": ["fin"]}, policy)
        lake.sql(f"INSERT INTO {name} {ROW}")
        assert Catalog(lake.spark).table(name).uuid == uuid
    assert lake.spark.table("same").count() == lake.spark.table("t").count() == 2


@pytest.mark.parametrize("kind", ["USING parquet", "STORED AS PARQUET"])
def test_requirement_of_a_name(lake: Lake, kind: str) -> None:
    """A table with the tags that does not require encryption takes no name that did, until it does too."""
    policy = lake.policy()
    for name in ("t", "other", "model"):
        lake.sql(f"CREATE TABLE {name} {COLUMNS} {kind}")
        set_tags(lake.spark, name, {"email": ["pii"]}, policy)
    catalog = Catalog(lake.spark)
    catalog.set_options(catalog.table("t"), {REQUIRE_ENCRYPTION: "true"})
    lake.sql("DROP TABLE t")
    said = refusal(lake.sql, "ALTER TABLE other RENAME TO t")
    assert "required encryption, which it does not" in said and "tags set" not in said
    assert f"CREATE TABLE {lake.name('t')} (columns)" in refusal(lake.sql, "CREATE TABLE t LIKE model")
    assert not lake.spark.catalog.tableExists("t")
    (step,) = [part for part in said.split("`, and encrypt")[0].split(": `")[1:] if part.startswith("ALTER TABLE")][:1]
    lake.sql(step)
    lake.sql("ALTER TABLE other RENAME TO t")
    assert catalog.table("t").options[REQUIRE_ENCRYPTION] == "true"


def test_drop_by_another_session(lake: Lake) -> None:
    """A session of this application without the policy frees the name, and one under the policy takes it."""
    policy = lake.policy()
    made(lake, policy)
    with lake.stranger() as stranger:
        stranger.sql("DROP TABLE t")
    lake.sql(f"CREATE TABLE t USING parquet LOCATION '{(lake.root / 'x').as_uri()}' AS {ROW}")
    assert_encrypted(lake.root / "x", policy, {"email": "pii"})
    lake.sql("DROP TABLE t")
    lake.sql(f"CREATE TABLE t {COLUMNS} USING parquet LOCATION '{(lake.root / 'x').as_uri()}'")
    lake.sql(f"INSERT INTO t {ROW}")
    assert len(data_files(lake.root / "x")) == 2
    assert_encrypted(lake.root / "x", policy, {"email": "pii"})


def made(lake: Lake, policy: Policy) -> str:
    """Make table ``t`` with a tag and a row, and return its UUID."""
    lake.sql(f"CREATE TABLE t {COLUMNS} USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    lake.sql(f"INSERT INTO t {ROW.replace('2 AS id', '1 AS id')}")
    return str(Catalog(lake.spark).table("t").uuid)

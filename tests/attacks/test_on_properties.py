"""Attacks by the properties of a table, whose author may ALTER it and write files into its folder, and has no keys."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sparkcrypt import encrypt_table, names, skipping_report
from sparkcrypt.cli.main import cli
from sparkcrypt.errors import PlanError, VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.identity import mark_of
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.stored_tables import append, policy_file, settle
from tests.spark.support import (
    SECRET,
    Lake,
    assert_encrypted,
    data_files,
    refusal,
    rows_of,
)

pytestmark = pytest.mark.spark
COLUMNS = "(id INT, email STRING)"
FORGED = "forged@example.org"
STRICT = "  {}: {{require_encryption: true, tags: {{email: pii}}}}\n"


def ruled(lake: Lake, stored: str = "USING parquet") -> Policy:
    """Make a table with a rule in the policy that requires encryption, with one row."""
    policy = lake.policy(tables=STRICT.format(lake.name("t")))
    lake.sql(f"CREATE TABLE t {COLUMNS} {stored}")
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}')")
    return policy


def alter(lake: Lake, properties: dict[str, str], *, kind: str = "SERDEPROPERTIES", table: str = "t") -> None:
    """Set properties of a table by SQL."""
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    lake.sql(f"ALTER TABLE {table} SET {kind} ({listed})")
    lake.sql(f"REFRESH TABLE {table}")


def plant(lake: Lake) -> Path:
    """Put a plaintext file with a forged row into the table's folder."""
    file = lake.path("t") / "part-00000-forged.parquet"
    pq.write_table(pa.table({"id": pa.array([99], pa.int32()), "email": [FORGED]}), file)
    lake.sql("REFRESH TABLE t")
    return file


@pytest.mark.parametrize("own", [False, True], ids=["rule", "the table's own requirement"])
def test_history_of_a_table_admits_no_forged_file(lake: Lake, own: bool) -> None:
    """Readers go by the policy's history alone, and a run does not make the planted rows authentic."""
    if own:
        policy = lake.policy()
        lake.sql(f"CREATE TABLE t {COLUMNS} USING parquet OPTIONS ('{names.REQUIRE_ENCRYPTION}' = 'true')")
        set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
        lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}')")
    else:
        policy = ruled(lake)
    planted = plant(lake)
    alter(lake, {f"{names.HISTORY_PREFIX}email": "plaintext"})
    assert "VerificationError" in refusal(lake.spark.table("t").collect)
    with pytest.raises(VerificationError, match="may be a forgery"):
        encrypt_table(lake.spark, "t", policy)
    planted.unlink()
    lake.sql("REFRESH TABLE t")
    assert rows_of(lake.spark.table("t")) == [(1, SECRET)]


@pytest.mark.parametrize(
    ("stored", "kind", "convert"),
    [
        ("USING parquet", "SERDEPROPERTIES", "true"),
        ("STORED AS PARQUET", "TBLPROPERTIES", "true"),
        ("STORED AS PARQUET", "TBLPROPERTIES", "false"),
        ("STORED AS PARQUET", "SERDEPROPERTIES", "false"),
    ],
)
def test_another_crypto_factory_of_a_table_turns_nothing_off(lake: Lake, stored: str, kind: str, convert: str) -> None:
    """Writes by name are encrypted, and a forged plaintext file is refused as before."""
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", convert)
    policy = ruled(lake, stored)
    alter(
        lake,
        {
            names.CRYPTO_FACTORY: names.STOCK_CRYPTO_FACTORY_CLASS,
            names.KMS_CLIENT: names.KMS_CLIENT_CLASS,
        },
        kind=kind,
    )
    lake.sql(f"INSERT INTO t VALUES (2, '{SECRET}')")
    lake.spark.createDataFrame([(3, SECRET)], "id int, mail string").write.insertInto("t")
    assert len(assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=())) >= 3
    assert len(rows_of(lake.spark.table("t"))) == 3
    plant(lake)
    assert "VerificationError" in refusal(lake.spark.table("t").collect)


def test_another_crypto_factory_by_option_or_set_turns_nothing_off(lake: Lake) -> None:
    """A write or read by path that names it, and SET, leave the table's own factory in force."""
    policy = ruled(lake)
    plant(lake)
    stock = {names.CRYPTO_FACTORY: names.STOCK_CRYPTO_FACTORY_CLASS, names.KMS_CLIENT: names.KMS_CLIENT_CLASS}
    path = str(lake.path("t"))
    read = lake.spark.read.options(**stock).schema("id int, email string")
    assert "VerificationError" in refusal(read.parquet(path).collect)
    (lake.path("t") / "part-00000-forged.parquet").unlink()
    row = lake.spark.createDataFrame([(2, SECRET)], "id int, email string").coalesce(1)
    row.write.options(**stock).mode("append").parquet(path)
    for name, value in stock.items():
        lake.spark.conf.set(name, value)
    row.write.insertInto("t")
    assert len(assert_encrypted(path, policy, {"email": "pii"}, visible=())) == 3


def test_an_option_takes_no_write_away_from_the_table_that_owns_the_folder(lake: Lake) -> None:
    """Its tags hold for a write by path that names another table, or that names it as only runs may."""
    policy = lake.policy()
    lake.sql(f"CREATE TABLE t {COLUMNS} USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    row, folder = lake.spark.createDataFrame([(2, SECRET)], "id int, email string").coalesce(1), str(lake.path("t"))
    assert "which would list the files" in refusal(row.write.option(names.TABLE, "zzz").mode("append").parquet, folder)
    row.write.option(names.TABLE, lake.name("t")).mode("append").parquet(folder)
    assert len(assert_encrypted(folder, policy, {"email": "pii"}, visible=())) == 1


def test_a_partition_of_a_tables_properties_is_not_believed(lake: Lake) -> None:
    """Rows of an honest INSERT stay readable, with the property and after it is gone."""
    ruled(lake)
    alter(lake, {names.PARTITION: "p=9"})
    lake.sql(f"INSERT INTO t VALUES (2, '{SECRET}')")
    assert len(rows_of(lake.spark.table("t"))) == 2
    alter(lake, {names.PARTITION: ""})
    assert len(rows_of(lake.spark.table("t"))) == 2


def test_tags_that_no_writer_reads_are_refused_when_the_table_is_made(lake: Lake) -> None:
    """TBLPROPERTIES of a data source table reach no writer: its columns would silently be plaintext."""
    lake.policy()
    said = refusal(
        lambda: lake.sql(f"CREATE TABLE t {COLUMNS} USING parquet TBLPROPERTIES ('{names.TAGS_PREFIX}email' = 'pii')")
    )
    assert "reach no writer" in said
    assert not lake.spark.catalog.tableExists("t")
    said = refusal(
        lambda: lake.sql(
            f"CREATE TABLE t USING parquet TBLPROPERTIES ('{names.TAGS_PREFIX}email' = 'pii') AS SELECT 'x' AS email"
        )
    )
    assert "reach no writer" in said
    assert data_files(lake.root / "db") == []


@pytest.mark.parametrize("marked", [False, True], ids=["uuid", "uuid and mark"])
def test_a_copied_uuid_gets_no_store_of_its_owner(lake: Lake, marked: bool) -> None:
    """A table with a victim's UUID, and with the mark of an owner, neither replaces nor drops the victim's store."""
    policy = lake.policy(more=f"index: {{location: {lake.root / 'index'}}}\n")
    for table in ("t", "evil"):
        lake.sql(f"CREATE TABLE {table} (id INT, email STRING, plain STRING) USING parquet")
        set_tags(lake.spark, table, {"email": ["pii"]}, policy)
        if table == "evil":
            alter(lake, {names.TABLE_UUID: str(Catalog(lake.spark).table("t").uuid)}, table="evil")
        append(lake, table, 0, 16, 2)
        settle(lake.path(table))
        time.sleep(1)  # the metastore's times have seconds
    if marked:
        alter(lake, {names.TABLE_MARK: mark_of(Catalog(lake.spark).table("evil"))}, kind="TBLPROPERTIES", table="evil")

    def run(verb: str, table: str, *more: str) -> tuple[int, str]:
        done = CliRunner().invoke(
            cli, ["index", verb, "--table", lake.name(table), "--policy", policy_file(lake), *more]
        )
        return done.exit_code, f"{done.output} {done.exception}"

    assert run("create", "t", "--column", "id")[0] == 0
    stored = {file: file.read_bytes() for file in (lake.root / "index").rglob("*") if file.is_file()}
    for verb, more in (("create", ("--column", "id")), ("refresh", ()), ("drop", ())):
        code, said = run(verb, "evil", *more)
        assert (code != 0, "has the UUID of" in said) == (True, True), (verb, said)
        assert {file: file.read_bytes() for file in (lake.root / "index").rglob("*") if file.is_file()} == stored
    assert run("refresh", "t")[0] == 0


def test_a_forged_mark_gets_no_records_of_the_owner(lake: Lake) -> None:
    """A table with a victim's UUID, and with the mark of an owner, is encrypted under no records of the victim."""
    policy = lake.policy()
    for table in ("t", "evil"):
        lake.sql(f"CREATE TABLE {table} (id INT, email STRING) USING parquet")
        with lake.stranger() as stranger:
            stranger.sql(f"INSERT INTO {table} VALUES (1, '{SECRET}')")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    set_tags(lake.spark, "evil", {"email": ["pii"]}, policy)
    alter(lake, {names.TABLE_UUID: str(Catalog(lake.spark).table("t").uuid)}, table="evil")
    alter(lake, {names.TABLE_MARK: mark_of(Catalog(lake.spark).table("evil"))}, kind="TBLPROPERTIES", table="evil")
    state = lake.root / "policy-0" / "state"
    records = [sorted((state / kind).rglob("*")) for kind in ("log", "keys")]
    with pytest.raises(PlanError, match=r"evil has the UUID of .*\.t "):
        encrypt_table(lake.spark, "evil", policy)
    assert [sorted((state / kind).rglob("*")) for kind in ("log", "keys")] == records
    lake.sql("ALTER TABLE t RENAME TO renamed")
    assert encrypt_table(lake.spark, "renamed", policy).outcome == "nothing to do"


def test_options_of_a_table_turn_no_skipping_on(lake: Lake) -> None:
    """Only the reader's own call or session asks for stores."""
    policy = lake.policy(more=f"index: {{location: {lake.root / 'index'}}}\n")
    lake.sql("CREATE TABLE t (id INT, email STRING, plain STRING) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    append(lake, "t", 0, 16, 2)
    settle(lake.path("t"))
    done = CliRunner().invoke(
        cli, ["index", "create", "--table", lake.name("t"), "--policy", policy_file(lake), "--column", "id"]
    )
    assert done.exit_code == 0, done.output
    alter(lake, {names.SKIPPING: "true"})
    frame = lake.spark.table("t").where("id = 3")
    assert rows_of(frame.select("id")) == [(3,)]
    assert skipping_report(frame) == ()
    lake.spark.conf.set(names.SKIPPING, "true")
    assert skipping_report(lake.spark.table("t").where("id = 3")) != ()

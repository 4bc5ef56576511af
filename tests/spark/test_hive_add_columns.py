"""Hive's own ADD COLUMNS, by the metastore's Thrift client: Spark then takes Hive's columns, without their metadata."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import FreshJvm
from tests.services.metastore import Metastore
from tests.spark.support import PLAIN, SECRET, assert_encrypted, data_files, make_policy

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]

SCRIPT = """
import json, sys
from pyspark.sql import SparkSession, functions as F
import sparkcrypt
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from sparkcrypt.tags.model import tag_property
from tests.spark.support import said_of
builder = SparkSession.builder
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.enableHiveSupport().getOrCreate()
spark.sparkContext.setLogLevel("OFF")
policy, uri, secret, plain = sparkcrypt.load_policy(sys.argv[2]), *sys.argv[3:6]
machine = spark._jvm

def add_columns(name, kind):
    "What Hive's ALTER TABLE ADD COLUMNS does: the table's columns change, Spark's own copy of the schema does not."
    conf = machine.org.apache.hadoop.hive.conf.HiveConf()
    conf.set("hive.metastore.uris", uri)
    client = machine.org.apache.hadoop.hive.metastore.HiveMetaStoreClient(conf)
    database, own = table.split(".")
    held = client.getTable(database, own)
    held.getSd().addToCols(machine.org.apache.hadoop.hive.metastore.api.FieldSchema(name, kind, None))
    client.alter_table(database, own, held)
    client.close()

def tags_of_schema():
    return {field.name: field.metadata.get("tags") for field in spark.table(table).schema}

def attempt(action):
    try:
        action()
    except Exception as error:
        return said_of(error)
    return None

sparkcrypt.configure(spark, policy)

table, told = "both.t", {}
spark.sql("CREATE DATABASE both")
spark.sql(f"CREATE TABLE {table} (id INT, email STRING, note STRING) STORED AS PARQUET")
set_tags(spark, table, {"email": ["pii"]}, policy)
spark.sql(f"INSERT INTO {table} VALUES (1, '{secret}', '{plain}')")
told["before"] = tags_of_schema()
add_columns("phone", "string")
spark.catalog.refreshTable(table)
told["after"] = tags_of_schema()
told["differences"] = sparkcrypt.plan_table(spark, table, policy).differences
spark.sql(f"INSERT INTO {table} VALUES (2, '{secret}', '{plain}', '1')")
told["read"] = [list(row) for row in spark.table(table).orderBy("id").select("id", "email", "phone").collect()]
print(json.dumps(told))

table, told = "alone.t", {}
spark.sql("CREATE DATABASE alone")
email = F.lit(secret).alias("email", metadata={"tags": ["pii"]})
frame = spark.range(1).coalesce(1).select(F.col("id").cast("int"), email, F.lit(plain).alias("note"))
frame.createOrReplaceTempView("tagged")
spark.sql(f"CREATE TABLE {table} STORED AS PARQUET AS SELECT * FROM tagged")
own = tag_property(("email",))
spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('{own}')")
told["before"] = tags_of_schema()
told["encrypted before"] = [c.leaf.dotted for c in sparkcrypt.plan_table(spark, table, policy).encrypted]
add_columns("phone", "string")
spark.catalog.refreshTable(table)
told["after"] = tags_of_schema()
told["plan"] = attempt(lambda: sparkcrypt.plan_table(spark, table, policy))
told["insert"] = attempt(lambda: spark.sql(f"INSERT INTO {table} VALUES (2, '{secret}', '{plain}', '1')"))
spark.conf.set("spark.sql.hive.convertMetastoreParquet", "false")
told["serde"] = attempt(lambda: spark.sql(f"INSERT INTO {table} VALUES (3, '{secret}', '{plain}', '1')"))
print(json.dumps(told))
"""


def test_tags_in_both_stores_survive_in_one_and_those_of_the_schema_alone_are_missed(
    fresh_jvm: FreshJvm, private_jar: Path, metastore: Metastore, tmp_path: Path
) -> None:
    """The properties' tags still mark the column and encrypt later writes, and the plan names the schema's loss.

    Where these were none and encryption is required, neither Spark's writer nor Hive's SerDe writes in clear; the plan
    says why.
    """
    rules = "".join(f"  {name}.t: {{require_encryption: true}}\n" for name in ("both", "alone"))
    policy = make_policy(tmp_path / "p", tables=rules)
    conf = {
        **metastore.spark_conf(),
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.sql.parquet.compression.codec": "uncompressed",
        "spark.hadoop.parquet.compression": "uncompressed",
    }
    file, environment = tmp_path / "p" / "policy.yaml", {"SPARKCRYPT_JAR": str(private_jar)}
    done = fresh_jvm(SCRIPT, json.dumps(conf), file, metastore.uri, SECRET, PLAIN, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    both, alone = map(json.loads, done.stdout.splitlines()[-2:])
    assert both["before"]["email"] == ["pii"]
    assert both["after"] == {"id": None, "email": ["pii"], "note": None, "phone": None}
    assert len(both["differences"]) == 1
    assert "email" in both["differences"][0]
    assert both["read"] == [[1, SECRET, None], [2, SECRET, "1"]]
    assert len(assert_encrypted(metastore.warehouse / "both.db" / "t", policy, {"email": "pii"})) == 2
    assert alone["before"]["email"] == ["pii"]
    assert alone["encrypted before"] == ["email"]
    assert alone["after"] == {"id": None, "email": None, "note": None, "phone": None}
    for refused in ("plan", "insert", "serde"):
        assert "require" in alone[refused], refused
        assert "tag" in alone[refused], refused
    folder = metastore.warehouse / "alone.db" / "t"
    assert len(data_files(folder)) == 1
    assert_encrypted(folder, policy, {"email": "pii"})

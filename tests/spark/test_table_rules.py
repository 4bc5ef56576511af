"""Rules of the policy for tables, by configure and by the lines of a launch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.setup.options import launch_conf
from sparkcrypt.spark.tables.tagging import set_tags
from tests.conftest import FreshJvm, or_skip
from tests.services.connect import start_connect_server
from tests.spark.support import (
    PLAIN,
    SECRET,
    Lake,
    assert_encrypted,
    assert_plaintext,
    data_files,
    make_policy,
    refusal,
    rows_of,
)

pytestmark = pytest.mark.spark

KINDS = ["USING parquet", "STORED AS PARQUET", "serde"]
ROW = f"1, '{SECRET}', '{PLAIN}'"


def rules(lake: Lake) -> str:
    """A rule for table ``t`` of the lake: tagged by overlay, and encryption required."""
    return f"  {lake.database}.t:\n    require_encryption: true\n    tags: {{email: pii}}\n"


def create(lake: Lake, kind: str, more: str = "") -> None:
    """Make table ``t``; kind ``serde`` is a Hive table written by Hive's own SerDe."""
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", str(kind != "serde").lower())
    stored = "STORED AS PARQUET" if kind == "serde" else kind
    columns = "id INT, email STRING, note STRING"
    if "PARTITIONED" in more and stored == "USING parquet":
        columns, more = f"{columns}, p INT", more.replace("p INT", "p")
    clauses = f"{stored} {more}" if stored == "USING parquet" else f"{more} {stored}"
    if "LOCATION" in more and stored != "USING parquet":
        clauses = f"{stored} {more}"
    lake.sql(f"CREATE TABLE t ({columns}) {clauses}")


@pytest.mark.parametrize("kind", KINDS)
def test_table_made_elsewhere_after_configure(lake: Lake, kind: str) -> None:
    """An external table that is made after ``configure`` is under its rule by its name."""
    policy = lake.policy(tables=rules(lake))
    create(lake, kind, f"LOCATION '{(lake.root / 'elsewhere').as_uri()}'")
    lake.sql(f"INSERT INTO t VALUES ({ROW})")
    assert_encrypted(lake.root / "elsewhere", policy, {"email": "pii"})
    assert rows_of(lake.spark.table("t")) == [(1, SECRET, PLAIN)]


@pytest.mark.parametrize("kind", KINDS)
def test_partitions_elsewhere(lake: Lake, kind: str) -> None:
    """Partitions in custom places, and where runs swap them to, are under the table's rule, writes and reads."""
    policy = lake.policy(tables=rules(lake))
    create(lake, kind, "PARTITIONED BY (p INT)")
    places = (lake.root / "custom", lake.path(".sparkcrypt") / "t" / "run-1" / "p=1")
    for number, place in enumerate(places):
        lake.sql(f"ALTER TABLE t ADD PARTITION (p = {number}) LOCATION 'file:{place}'")
        lake.sql(f"INSERT INTO t PARTITION (p = {number}) SELECT {ROW}")
        assert_encrypted(place, policy, {"email": "pii"})
    assert len(rows_of(lake.spark.table("t"))) == 2
    with lake.stranger() as stranger:
        stranger.sql(f"SELECT {ROW.replace(',', ' AS a,', 1)}").toDF("id", "email", "note").write.parquet(
            str(lake.root / "forged")
        )
    (forged,) = data_files(lake.root / "forged")
    for number, place in enumerate(places):
        twin = Path(shutil.copy(forged, place / "part-forged.parquet"))
        lake.sql("REFRESH TABLE t")
        said = refusal(lambda number: lake.sql(f"SELECT email FROM t WHERE p = {number}").collect(), number)
        assert "requires encryption" in said
        twin.unlink()


def test_rule_follows_the_table_s_name(lake: Lake) -> None:
    """After RENAME the rule of the earlier name does not, and that of the new name does, hold for writes by name."""
    policy = lake.policy(tables=rules(lake))
    lake.sql("CREATE TABLE other (id INT, email STRING, note STRING) USING parquet")
    lake.sql(f"INSERT INTO other VALUES ({ROW})")
    assert_plaintext(lake.path("other"))
    lake.sql("TRUNCATE TABLE other")
    lake.sql("ALTER TABLE other RENAME TO t")
    lake.sql(f"INSERT INTO t VALUES ({ROW})")
    assert_encrypted(lake.path("t"), policy, {"email": "pii"})


def test_save_as_table_elsewhere(lake: Lake) -> None:
    """``saveAsTable`` with a path of its own is under the rule of the table's name from its first file on."""
    policy = lake.policy(tables=rules(lake))
    rows = lake.sql(f"SELECT {ROW}").toDF("id", "email", "note")
    rows.write.option("path", str(lake.root / "elsewhere")).saveAsTable("t")
    assert_encrypted(lake.root / "elsewhere", policy, {"email": "pii"})
    rows.write.mode("append").saveAsTable("t")
    assert len(assert_encrypted(lake.root / "elsewhere", policy, {"email": "pii"})) == 2


def test_folder_of_no_table(lake: Lake) -> None:
    """A write and a read by path in a folder of no table is under no table's rule."""
    lake.policy(tables=rules(lake))
    create(lake, "USING parquet")
    rows = lake.sql(f"SELECT {ROW}").toDF("id", "email", "note")
    for folder in (lake.root / "free", lake.path("tt")):
        rows.write.parquet(str(folder))
        assert_plaintext(folder)
        assert rows_of(lake.spark.read.parquet(str(folder))) == [(1, SECRET, PLAIN)]


def test_path_below_a_table_with_a_rule(lake: Lake) -> None:
    """A write by path into the table's folder, a custom partition or what a run made of it, is under its rule."""
    policy = lake.policy(tables=rules(lake))
    create(lake, "USING parquet", "PARTITIONED BY (p INT)")
    run = lake.path(".sparkcrypt") / "t" / "20260101T000000000Z-abcdef-1-1-00000000"
    places = (lake.root / "custom", run / "p=1", lake.path("t") / "p=2")
    for number, place in enumerate(places[:2]):
        lake.sql(f"ALTER TABLE t ADD PARTITION (p = {number}) LOCATION 'file:{place}'")
    for place in places:
        lake.sql(f"SELECT {ROW}").toDF("id", "email", "note").write.mode("append").parquet(str(place))
        assert_encrypted(place, policy, {"email": "pii"})


def test_another_session_tags_a_cached_table(lake: Lake) -> None:
    """A session that knows a table from before its tags were set encrypts its next INSERT all the same."""
    policy = lake.policy()
    for kind in KINDS:
        create(lake, kind)
        lake.sql("SELECT * FROM t").collect()
        other = lake.spark.newSession()
        other.sql(f"USE {lake.database}")
        set_tags(other, "t", {"email": ["pii"]}, policy)
        lake.sql(f"INSERT INTO t VALUES ({ROW})")
        assert_encrypted(lake.path("t"), policy, {"email": "pii"})
        lake.sql("DROP TABLE t")


@pytest.mark.parametrize("kind", KINDS)
def test_path_append_into_a_tagged_table(lake: Lake, kind: str) -> None:
    """An untagged frame appended by path to a tagged table's folder is encrypted under the table's identity."""
    policy = lake.policy()
    create(lake, kind)
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    rows = lake.sql(f"SELECT {ROW}").toDF("id", "email", "note")
    rows.write.mode("append").parquet(str(lake.path("t")))
    assert_encrypted(lake.path("t"), policy, {"email": "pii"})
    lake.sql("REFRESH TABLE t")
    assert rows_of(lake.spark.table("t")) == [(1, SECRET, PLAIN)]


@pytest.mark.parametrize("folder", ["", "p=1"])
def test_path_append_right_after_a_table_was_made(lake: Lake, folder: str) -> None:
    """What a CREATE TABLE AS SELECT looked up before its table was there hides the table from nobody after it."""
    policy = lake.policy()
    tagged = F.col("email").alias("email", metadata={"tags": ["pii"]})
    frame = lake.sql(f"SELECT {ROW.replace(',', ' AS id,', 1)} AS note, 1 AS p").toDF("id", "email", "note", "p")
    writer = frame.select("id", tagged, "note", "p").write
    (writer.partitionBy("p") if folder else writer).saveAsTable("t")
    columns = ("id", "email", "note") if folder else ("id", "email", "note", "p")
    frame.select(*columns).write.mode("append").parquet(str(lake.path("t") / folder))
    assert len(data_files(lake.path("t"))) == 2
    assert_encrypted(lake.path("t"), policy, {"email": "pii"})


def test_partition_by_a_tagged_column(lake: Lake) -> None:
    """A tagged column as a partition column is refused by its name on each way; one with a plaintext tag is not."""
    lake.policy()
    rows = lake.sql(f"SELECT {ROW}, 'x' AS open").toDF("id", "email", "note", "open")
    rows = rows.withColumn("email", F.col("email").alias("email", metadata={"tags": ["pii"]}))
    rows = rows.withColumn("open", F.col("open").alias("open", metadata={"tags": ["public"]}))
    rows.createOrReplaceTempView("source")
    (lake.root / "in").mkdir()
    (lake.root / "in" / "0.txt").write_text(f"{SECRET}\n")
    email = F.col("value").alias("email", metadata={"tags": ["pii"]})
    streamed = lake.spark.readStream.text(str(lake.root / "in")).select(F.lit(1).alias("id"), email)

    def stream() -> DataStreamWriter:
        progress = str(lake.root / f"progress-{len(list(lake.root.glob('progress-*')))}")
        return streamed.writeStream.option("checkpointLocation", progress).trigger(availableNow=True).format("parquet")

    ways = (
        lambda: rows.write.partitionBy("email").parquet(str(lake.root / "out")),
        lambda: rows.write.partitionBy("email").saveAsTable("s"),
        lambda: lake.sql("CREATE TABLE c USING parquet PARTITIONED BY (email) AS SELECT * FROM source"),
        lambda: lake.sql("CREATE TABLE h STORED AS PARQUET PARTITIONED BY (email) AS SELECT * FROM source"),
        lambda: stream().partitionBy("email").start(str(lake.root / "streamed")).awaitTermination(120),
        lambda: stream().partitionBy("email").toTable("streamed").awaitTermination(120),
    )
    for way in ways:
        said = refusal(way)
        assert "email" in said and "is a partition column" in said
    assert not [path for path in lake.root.rglob("*") if SECRET in path.name]
    rows.write.partitionBy("open").parquet(str(lake.root / "open"))


def test_streams_by_path(lake: Lake) -> None:
    """A stream of untagged rows into a tagged table's folder encrypts by the table's tags."""
    policy = lake.policy()
    create(lake, "USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    (lake.root / "in").mkdir()
    (lake.root / "in" / "0.txt").write_text(f"{SECRET}\n")
    rows = lake.spark.readStream.text(str(lake.root / "in")).selectExpr(
        "1 AS id", "value AS email", f"'{PLAIN}' AS note"
    )
    writer = rows.writeStream.option("checkpointLocation", str(lake.root / "progress")).trigger(availableNow=True)
    assert writer.format("parquet").start(str(lake.path("t"))).awaitTermination(120)
    assert_encrypted(lake.path("t"), policy, {"email": "pii"})


def test_hive_serde_keeps_the_tags_of_a_query(lake: Lake) -> None:
    """CTAS and INSERT DIRECTORY by Hive's SerDe encrypt by the tags of what they select."""
    policy = lake.policy()
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", "false")
    lake.spark.conf.set("spark.sql.hive.convertMetastoreInsertDir", "false")
    rows = lake.sql(f"SELECT {ROW}").toDF("id", "email", "note")
    rows.withColumn("email", F.col("email").alias("email", metadata={"tags": ["pii"]})).createOrReplaceTempView("rows")
    lake.sql("CREATE TABLE h STORED AS PARQUET AS SELECT * FROM rows")
    assert_encrypted(lake.path("h"), policy, {"email": "pii"})
    folder = lake.root / "folder"
    lake.sql(f"INSERT OVERWRITE DIRECTORY '{folder.as_uri()}' STORED AS PARQUET SELECT * FROM rows")
    assert_encrypted(folder, policy, {"email": "pii"})


RULES = "  default.t: {require_encryption: true, tags: {email: pii}}\n"
WRITE = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession

root, secret = Path(sys.argv[1]), sys.argv[2]
{session}
spark.sql(f"CREATE TABLE t (id INT, email STRING, p INT) USING parquet PARTITIONED BY (p) LOCATION 'file:{{root}}/t'")
spark.sql(f"ALTER TABLE t ADD PARTITION (p = 1) LOCATION 'file:{{root}}/custom'")
spark.sql(f"INSERT INTO t VALUES (1, '{{secret}}', 0), (2, '{{secret}}', 1)")
spark.sql(f"SELECT 3 AS id, '{{secret}}' AS email").write.mode("append").parquet(f"{{root}}/t/p=2")
spark.sql(f"SELECT 4 AS id, 'open' AS email").write.parquet(f"{{root}}/free")
assert len(spark.table("t").where("email IS NOT NULL").collect()) == 2
"""
OVERWRITE = """
spark.sql("CREATE TABLE o (id INT, email STRING) USING parquet OPTIONS ('parquet.sparkcrypt.tags.email' = 'pii')")
for night in range(2):
    spark.sql(f"SELECT {night} AS id, '{secret}' AS email").write.mode("overwrite").saveAsTable("o")
assert len(spark.table("o").where("email IS NOT NULL").collect()) == 1
"""
CLASSIC = """
builder = SparkSession.builder.master("local[2]")
for name, value in json.loads((root / "conf.json").read_text()).items():
    builder = builder.config(name, value)
spark = builder.config("spark.sql.warehouse.dir", f"{root}/warehouse").getOrCreate()
"""
CONNECT = "spark = SparkSession.builder.remote(sys.argv[3]).getOrCreate()"


def assert_under_rule(root: Path, policy: Policy) -> None:
    """Assert that what the script wrote into the table's folders is encrypted, and what it wrote elsewhere is not."""
    for folder in ("t/p=0", "custom", "t/p=2"):
        assert_encrypted(root / folder, policy, {"email": "pii"}, hidden=(SECRET,), visible=())
    assert all(file.read_bytes()[-4:] == b"PAR1" for file in (root / "free").glob("*.parquet"))


@pytest.mark.services
def test_rules_hold_by_launch_lines_alone(fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> None:
    """With the lines of ``sparkcrypt conf`` a table's rule holds by its name, in its partitions and by their paths.

    A table that a frame overwrites each night keeps its tags.
    """
    policy = make_policy(tmp_path / "policy", tables=RULES)
    (tmp_path / "conf.json").write_text(json.dumps(launch_conf(policy, str(private_jar))))
    done = fresh_jvm(WRITE.format(session=CLASSIC) + OVERWRITE, tmp_path, SECRET)
    assert done.returncode == 0, done.stderr[-4000:]
    assert_under_rule(tmp_path, policy)
    assert_encrypted(tmp_path / "warehouse" / "o", policy, {"email": "pii"}, visible=())


@pytest.mark.services
def test_rules_hold_on_connect(fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> None:
    """The same on a Connect server that was launched with these lines."""
    policy = make_policy(tmp_path / "policy", tables=RULES)
    work = tmp_path / "server"
    work.mkdir()
    server = or_skip(start_connect_server, work, launch_conf(policy, str(private_jar)))
    try:
        done = fresh_jvm(WRITE.format(session=CONNECT), tmp_path, SECRET, server.url)
    finally:
        server.stop()
    assert done.returncode == 0, done.stderr[-4000:]
    assert_under_rule(tmp_path, policy)

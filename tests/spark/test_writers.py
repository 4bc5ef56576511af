"""Every way by which Spark writes Parquet: encrypted by tag, unreadable without keys, equal to what was written."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkcrypt.files.parquet import inspect_file, read_footer
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import (
    PLAIN,
    SECRET,
    Lake,
    assert_encrypted,
    data_files,
    quiet,
    read_options,
    refusal,
    retriever,
    rows_of,
    swapped,
    with_keys,
    without_keys,
)

pytestmark = pytest.mark.spark
KEYS = {"email": "pii", "salary": "fin"}
COLUMNS = "id INT, email STRING, salary STRING, note STRING"
VALUES = f"'{SECRET}', '{SECRET}', '{PLAIN}'"


def tagged_rows(lake: Lake, count: int = 6) -> DataFrame:
    """Rows whose columns carry their tags as metadata."""
    return lake.spark.range(count).select(
        F.col("id").cast("int"),
        F.lit(SECRET).alias("email", metadata={"tags": ["pii"]}),
        F.lit(SECRET).alias("salary", metadata={"tags": "fin"}),
        F.lit(PLAIN).alias("note"),
        (F.col("id") % 2).cast("int").alias("p"),
    )


def assert_keys_matter(lake: Lake, policy: Policy, path: object, rows: list[object]) -> None:
    """Assert that the right keys give the rows, swapped keys and missing keys an error, and no keys nothing at all."""

    def read(chosen: Policy) -> DataFrame:
        return lake.spark.read.options(**read_options(chosen)).parquet(str(path))

    assert rows_of(read(policy)) == rows
    other = with_keys(policy, lake.root / "swapped-keys", swapped("pii", "fin"))
    assert "KeyServiceError" in refusal(lambda: read(other).collect())
    none = with_keys(policy, lake.root / "no-column-keys", without_keys("pii"))
    assert "KeyNotFoundError" in refusal(lambda: read(none).collect())
    with lake.stranger() as stranger:
        assert "No keys available" in refusal(lambda: stranger.read.parquet(str(path)).collect())


def test_write_parquet_by_path(lake: Lake) -> None:
    """``df.write.parquet`` encrypts the columns that carry tags; keys decide who reads."""
    policy = lake.policy()
    path = lake.root / "out"
    rows = tagged_rows(lake)
    rows.write.partitionBy("p").parquet(str(path))
    assert_encrypted(path, policy, KEYS)
    assert_keys_matter(lake, policy, path, rows_of(rows))


def test_save_as_table_create_append_overwrite(lake: Lake) -> None:
    """``saveAsTable`` encrypts when it makes, appends to and overwrites a table from a tagged frame."""
    policy = lake.policy()
    rows = tagged_rows(lake)
    for mode in ("errorifexists", "append", "overwrite"):
        rows.write.mode(mode).saveAsTable("t")
        assert_encrypted(lake.path("t"), policy, KEYS)
    assert_keys_matter(lake, policy, lake.path("t"), rows_of(rows))
    assert rows_of(lake.spark.table("t")) == rows_of(rows)


def test_create_table_as_select(lake: Lake) -> None:
    """CTAS encrypts by the tags of what it selects, into ``USING parquet`` and ``STORED AS PARQUET`` tables."""
    policy = lake.policy()
    tagged_rows(lake).createOrReplaceTempView("source")
    lake.sql("CREATE TABLE c USING parquet PARTITIONED BY (p) AS SELECT * FROM source")
    lake.sql("CREATE TABLE h STORED AS PARQUET AS SELECT * FROM source")
    for table in ("c", "h"):
        assert_encrypted(lake.path(table), policy, KEYS)
        assert rows_of(lake.spark.table(table)) == rows_of(tagged_rows(lake))


@pytest.mark.parametrize("convert", ["true", "false"])
@pytest.mark.parametrize("kind", ["USING parquet", "STORED AS PARQUET"])
def test_insert_into_unpartitioned_table(lake: Lake, kind: str, convert: str) -> None:
    """INSERT INTO and OVERWRITE encrypt right after tagging, on each kind of table and on the Hive SerDe's way."""
    policy = lake.policy()
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", convert)
    lake.sql(f"CREATE TABLE t ({COLUMNS}) {kind}")
    set_tags(lake.spark, "t", {"email": ["pii"], "salary": ["fin"]}, policy)
    lake.sql(f"INSERT INTO t VALUES (1, {VALUES})")
    lake.sql(f"INSERT INTO t SELECT 2, {VALUES}")
    assert len(assert_encrypted(lake.path("t"), policy, KEYS)) == 2
    lake.sql(f"INSERT OVERWRITE t VALUES (3, {VALUES})")
    assert len(assert_encrypted(lake.path("t"), policy, KEYS)) == 1
    assert rows_of(lake.spark.table("t")) == [(3, SECRET, SECRET, PLAIN)]


@pytest.mark.parametrize("convert", ["true", "false"])
@pytest.mark.parametrize("kind", ["USING parquet", "STORED AS PARQUET"])
def test_insert_into_partitions(lake: Lake, kind: str, convert: str) -> None:
    """INSERT INTO and OVERWRITE, static and dynamic, encrypt; each file's AAD prefix names its table and partition.

    Only a static insert by Hive's SerDe shows its writer no partition, so its prefix has none.
    """
    policy = lake.policy()
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", convert)
    lake.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    if kind == "USING parquet":
        lake.sql(f"CREATE TABLE t ({COLUMNS}, p INT) USING parquet PARTITIONED BY (p)")
    else:
        lake.sql(f"CREATE TABLE t ({COLUMNS}) PARTITIONED BY (p INT) STORED AS PARQUET")
    set_tags(lake.spark, "t", {"email": ["pii"], "salary": ["fin"]}, policy)
    uuid = Catalog(lake.spark).table("t").uuid
    hides_partition = kind != "USING parquet" and convert == "false"
    for statement in (
        f"INTO t PARTITION (p = 1) SELECT 1, {VALUES}",
        f"INTO t PARTITION (p) SELECT 2, {VALUES}, 2",
        f"OVERWRITE t PARTITION (p = 1) SELECT 3, {VALUES}",
        f"OVERWRITE t PARTITION (p) SELECT 4, {VALUES}, 3",
    ):
        lake.sql(f"INSERT {statement}")
        files = assert_encrypted(lake.path("t"), policy, KEYS)
        for file in files:
            hidden = hides_partition and file.parent.name == "p=1"
            middle = "" if hidden else f"{file.parent.name}/"
            assert inspect_file(file).aad_prefix == f"{uuid}/{middle}{file.name}\0".encode()
    assert [row[0] for row in rows_of(lake.spark.table("t"))] == [2, 3, 4]


@pytest.mark.parametrize("kind", ["USING parquet", "STORED AS PARQUET"])
def test_insert_into_custom_partition_location(lake: Lake, kind: str) -> None:
    """A partition elsewhere is encrypted under its own identity, read back, overwritten and read back again."""
    policy = lake.policy()
    if kind == "USING parquet":
        lake.sql(f"CREATE TABLE t ({COLUMNS}, p INT) USING parquet PARTITIONED BY (p)")
    else:
        lake.sql(f"CREATE TABLE t ({COLUMNS}) PARTITIONED BY (p INT) STORED AS PARQUET")
    set_tags(lake.spark, "t", {"email": ["pii"], "salary": ["fin"]}, policy)
    for number, folder in enumerate(("elsewhere/p=1", "custom")):
        lake.sql(f"ALTER TABLE t ADD PARTITION (p = {number}) LOCATION 'file:{lake.root / folder}'")
        lake.sql(f"INSERT INTO t SELECT 1, {VALUES}, {number}")
        assert_encrypted(lake.root / folder, policy, KEYS)
        lake.sql(f"INSERT OVERWRITE t PARTITION (p = {number}) SELECT 2, {VALUES}")
        assert_encrypted(lake.root / folder, policy, KEYS)
    assert rows_of(lake.spark.table("t")) == [(2, SECRET, SECRET, PLAIN, 0), (2, SECRET, SECRET, PLAIN, 1)]
    assert data_files(lake.path("t")) == []


def test_streaming_file_sink(lake: Lake) -> None:
    """A structured streaming query encrypts every micro-batch of its file sink, which reads back as a whole."""
    policy = lake.policy()
    (lake.root / "in").mkdir()
    out, checkpoint = str(lake.root / "out"), str(lake.root / "checkpoint")
    for number in range(2):
        (lake.root / "in" / f"{number}.txt").write_text(f"{SECRET}{number}\n")
        rows = lake.spark.readStream.text(str(lake.root / "in")).select(
            F.col("value").alias("email", metadata={"tags": ["pii"]}), F.lit(PLAIN).alias("note")
        )
        writer = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        assert writer.start(out).awaitTermination(120)
    assert len(assert_encrypted(out, policy, {"email": "pii"})) == 2
    assert rows_of(lake.spark.read.parquet(out)) == [(f"{SECRET}0", PLAIN), (f"{SECRET}1", PLAIN)]


def test_new_session_obeys_the_policy(lake: Lake) -> None:
    """A session that ``newSession`` makes after ``configure`` encrypts and reads as well."""
    policy = lake.policy()
    session = lake.spark.newSession()
    quiet(session)
    path = str(lake.root / "out")
    tagged_rows(lake).createOrReplaceGlobalTempView(f"rows_{lake.database}")
    session.table(f"global_temp.rows_{lake.database}").write.parquet(path)
    assert_encrypted(path, policy, KEYS)
    assert rows_of(session.read.parquet(path)) == rows_of(tagged_rows(lake))


def test_footer_says_which_policy_made_it(lake: Lake) -> None:
    """The policy's digest stands in the key-value metadata of encrypted and of plaintext files."""
    policy = lake.policy()
    tagged_rows(lake).coalesce(1).write.parquet(str(lake.root / "secret"))
    tagged_rows(lake).select("id", "note").coalesce(1).write.parquet(str(lake.root / "open"))
    for folder in ("secret", "open"):
        (file,) = data_files(lake.root / folder)
        metadata = read_footer(file, retrieve_key=retriever(policy)).metadata
        assert metadata is not None
        noted = {pair.key: pair.value for pair in metadata.key_value_metadata or ()}
        assert noted["sparkcrypt.policy.digest"] == policy.digest()

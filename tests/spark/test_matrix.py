"""Footer modes x algorithms x key lengths over one wide table: every shape and type that Spark can write to Parquet."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tasks.digest import digest_rows
from tests.spark.support import (
    PLAIN,
    SECRET,
    Lake,
    assert_encrypted,
    data_files,
    footers,
    read_options,
    refusal,
    swapped,
    with_keys,
    without_keys,
)

pytestmark = pytest.mark.spark

TYPES = {
    "c_boolean": "id % 2 = 0",
    "c_byte": "CAST(id AS TINYINT)",
    "c_short": "CAST(id AS SMALLINT)",
    "c_int": "CAST(id AS INT)",
    "c_long": "id",
    "c_float": "CAST(id AS FLOAT) / 3",
    "c_double": "IF(id = 1, DOUBLE('NaN'), id / 3)",
    "c_decimal9": "CAST(id AS DECIMAL(9,2))",
    "c_decimal18": "CAST(id AS DECIMAL(18,4))",
    "c_decimal38": "CAST(id AS DECIMAL(38,10))",
    "c_string": f"concat('{SECRET}', id)",
    "c_binary": f"CAST('{SECRET}' AS BINARY)",
    "c_date": "date_add(DATE '1582-10-20', CAST(id AS INT))",
    "c_timestamp": "timestamp_seconds(id)",
    "c_timestamp_ntz": "TIMESTAMP_NTZ '2026-01-01 00:00:00'",
    "c_time": "TIME '12:34:56.789'",
    "c_day_interval": "make_dt_interval(CAST(id AS INT))",
    "c_year_interval": "make_ym_interval(CAST(id AS INT))",
    "c_variant": f'parse_json(\'{{"k": "{SECRET}"}}\')',
    "c_null": "CAST(NULL AS STRING)",
    "c_some_null": "IF(id % 3 = 0, NULL, id)",
    "struct": f"named_struct('a', id, 'b', named_struct('c', '{SECRET}', 'd', CAST(NULL AS INT)))",
    "array": "array(id, NULL, id + 1)",
    "empty_array": "CAST(array() AS ARRAY<STRING>)",
    "array_of_structs": f"array(named_struct('x', '{SECRET}', 'y', array(id)))",
    "map": f"map('{SECRET}', id, 'k', NULL)",
    "map_of_structs": "map(id, named_struct('z', array(map('k', id))))",
    "null_struct": "CAST(NULL AS STRUCT<a:INT>)",
    "null_map": "CAST(NULL AS MAP<STRING,INT>)",
}
CELLS = [
    ("encrypted", "AES_GCM_V1", 128),
    ("encrypted", "AES_GCM_CTR_V1", 192),
    ("encrypted", "AES_GCM_V1", 256),
    ("plaintext", "AES_GCM_CTR_V1", 128),
    ("plaintext", "AES_GCM_V1", 192),
    ("plaintext", "AES_GCM_CTR_V1", 256),
]
"""Each pair of two of these values is in one of them."""


def wide(lake: Lake, rows: int = 7) -> DataFrame:
    """The wide table: every column tagged, pii and fin in turn, and one that is not."""
    lake.spark.conf.set("spark.sql.timeType.enabled", "true")
    plain = lake.spark.range(rows).selectExpr("id", *(f"{expression} AS {name}" for name, expression in TYPES.items()))
    tagged = [F.col(name).alias(name, metadata={"tags": [tag_of(name)]}) for name in TYPES]
    return plain.select("id", F.lit(PLAIN).alias("note"), *tagged).coalesce(1)


def tag_of(name: str) -> str:
    """Return the tag of a column."""
    return ("pii", "fin")[list(TYPES).index(name) % 2]


def reader(lake: Lake, policy: Policy, frame: DataFrame) -> DataFrame:
    """Read with a policy's keys, by the schema that was written."""
    options = read_options(policy)
    return lake.spark.read.schema(frame.schema).options(**options).parquet(str(lake.root / "out"))


@pytest.mark.parametrize(("mode", "algorithm", "bits"), CELLS)
def test_matrix(lake: Lake, mode: str, algorithm: str, bits: int) -> None:
    """Each cell: exactly the tagged leaves are encrypted, and no key, swapped keys and right keys do what they must."""
    policy = lake.policy(footer_mode=mode, algorithm=algorithm, bits=bits)
    frame, path = wide(lake), lake.root / "out"
    frame.write.parquet(str(path))
    (summary,) = footers(path, policy)
    leaves = {".".join(leaf): tag_of(leaf[0]) for leaf in summary.columns or {} if leaf[0] in TYPES}
    assert len(leaves) > len(TYPES)
    assert {leaf.split(".")[0] for leaf in leaves} == set(TYPES)
    assert_encrypted(path, policy, leaves)
    assert digest_rows(reader(lake, policy, frame)) == digest_rows(frame)
    swap = with_keys(policy, lake.root / "swapped", swapped("pii", "fin"))
    none = with_keys(policy, lake.root / "none", without_keys("pii", "fin"))
    assert "KeyServiceError" in refusal(reader(lake, swap, frame).collect)
    assert "KeyNotFoundError" in refusal(reader(lake, none, frame).collect)
    assert reader(lake, none, frame).select("id", "note").count() == 7
    assert_unreadable_without_factory(lake, frame, mode)


def assert_unreadable_without_factory(lake: Lake, frame: DataFrame, mode: str) -> None:
    """Assert what a session without any crypto factory can do: nothing, or read plaintext columns."""
    with lake.stranger() as stranger:
        stranger.conf.set("spark.sql.timeType.enabled", "true")
        read: Any = stranger.read.schema(frame.schema).parquet(str(lake.root / "out"))
        said = refusal(read.select("c_string").collect)
        assert ("No keys available" if mode == "encrypted" else "Null File Decryptor") in said
        if mode == "plaintext":
            assert read.select("note").first()[0] == PLAIN


@pytest.mark.parametrize("mode", ["encrypted", "plaintext"])
def test_empty_table(lake: Lake, mode: str) -> None:
    """A table without rows is written and read back; the schema in an encrypted footer stays hidden."""
    policy = lake.policy(footer_mode=mode)
    frame = wide(lake).limit(0)
    frame.write.parquet(str(lake.root / "out"))
    (file,) = data_files(lake.root / "out")
    assert file.read_bytes()[-4:] == (b"PARE" if mode == "encrypted" else b"PAR1")
    assert (b"c_decimal38" in file.read_bytes()) == (mode == "plaintext")
    assert reader(lake, policy, frame).collect() == []
    read = lake.spark.read.options(**read_options(policy)).parquet(str(lake.root / "out"))
    assert read.schema.simpleString() == frame.schema.simpleString()
    none = with_keys(policy, lake.root / "none", without_keys("footer"))
    assert "KeyNotFoundError" in refusal(
        lambda: lake.spark.read.options(**read_options(none)).parquet(str(lake.root / "out"))
    )


def test_legacy_layouts(lake: Lake) -> None:
    """``writeLegacyFormat`` names groups otherwise; the same leaves are encrypted and read back."""
    policy = lake.policy()
    lake.spark.conf.set("spark.sql.parquet.writeLegacyFormat", "true")
    frame = wide(lake).drop("c_variant", "c_day_interval", "c_year_interval", "c_time")
    frame.write.parquet(str(lake.root / "out"))
    (summary,) = footers(lake.root / "out", policy)
    columns = summary.columns or {}
    assert {leaf[0] for leaf, column in columns.items() if column.encrypted} == set(frame.columns) - {"id", "note"}
    assert ("array", "bag", "array") in columns or ("array", "bag", "array_element") in columns
    assert digest_rows(reader(lake, policy, frame)) == digest_rows(frame)


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip"])
def test_codecs_bloom_filters_and_pages(lake: Lake, codec: str) -> None:
    """Compressed columns with bloom filters, dictionaries, several pages and row groups read back, filters pushed."""
    policy = lake.policy()
    frame = lake.spark.range(20_000).select(
        "id", F.concat(F.lit(SECRET), F.col("id")).alias("email", metadata={"tags": "pii"}), F.lit(PLAIN).alias("note")
    )
    options = {
        "compression": codec,
        "parquet.bloom.filter.enabled#email": "true",
        "parquet.page.size": "4096",
        "parquet.block.size": "65536",
        "parquet.page.row.count.limit": "500",
    }
    frame.coalesce(1).write.options(**options).parquet(str(lake.root / "out"))
    (summary,) = footers(lake.root / "out", policy)
    assert (summary.row_groups or 0) > 1
    assert_encrypted(lake.root / "out", policy, {"email": "pii"}, visible=())
    read = lake.spark.read.parquet(str(lake.root / "out"))
    assert digest_rows(read) == digest_rows(frame)
    assert read.filter(f"email = '{SECRET}19999'").count() == 1
    assert read.filter("email = 'absent'").count() == 0

"""pyarrow over the same key services: each side reads what the other wrote, and denials are errors by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from sparkcrypt.arrow import crypto_factory, decryption_properties, encryption_properties
from sparkcrypt.errors import KeyNotFoundError, KeyServiceError, PlanError
from sparkcrypt.plan import EncryptionPlan, build_plan
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import schema_from_parquet
from sparkcrypt.tags.model import TaggedColumn
from tests.spark.support import (
    PLAIN,
    SECRET,
    Lake,
    assert_encrypted,
    data_files,
    make_policy,
    refusal,
    rows_of,
    swapped,
    with_keys,
    without_keys,
)

ROWS = {"email": [SECRET, "b"], "salary": [f"{SECRET}2", "d"], "note": [PLAIN, "f"]}
ODD_KEY = "arn:aws:kms:eu-1:1:key/ü; x,%3A"
TAGS = f"""
  pii: {{key: pii}}
  fin: {{key: "{ODD_KEY}"}}
"""
MODES = [("encrypted", "AES_GCM_V1", 128), ("plaintext", "AES_GCM_CTR_V1", 256), ("encrypted", "AES_GCM_CTR_V1", 192)]


def plan_of(policy: Policy, tags: dict[str, str], names: tuple[str, ...] = tuple(ROWS)) -> EncryptionPlan:
    """Plan a flat file of texts."""
    leaf: dict[str, Any] = {"kind": "leaf", "annotation": None, "repetition": "optional", "children": []}
    schema = schema_from_parquet([{"name": name, **leaf} for name in names])
    return build_plan(schema, [TaggedColumn((name,), (tag,), "overlay") for name, tag in tags.items()], policy)


def write_with_arrow(policy: Policy, folder: Path) -> Path:
    """Write one file with pyarrow; it knows no V2 pages that Spark could read."""
    folder.mkdir(exist_ok=True)
    properties = encryption_properties(plan_of(policy, {"email": "pii", "salary": "fin"}), policy)
    file = folder / "part-0.parquet"
    pq.write_table(pa.table(ROWS), file, encryption_properties=properties, compression="none")
    return file


@pytest.mark.parametrize(("mode", "algorithm", "bits"), MODES)
def test_arrow_reads_its_own_files(tmp_path: Path, mode: str, algorithm: str, bits: int) -> None:
    """What pyarrow writes by a plan is encrypted as planned, and equal when read again."""
    policy = make_policy(tmp_path / "p", TAGS, footer_mode=mode, algorithm=algorithm, bits=bits)
    file = write_with_arrow(policy, tmp_path / "out")
    assert_encrypted(file.parent, policy, {"email": "pii", "salary": ODD_KEY})
    assert pq.read_table(file, decryption_properties=decryption_properties(policy)).to_pydict() == ROWS


@pytest.mark.parametrize("keys", ["absent", "swapped", "other"])
def test_denied_keys_are_clear_errors(tmp_path: Path, keys: str) -> None:
    """Without a column's key that column is an error by the key's name, and the others stay readable."""
    policy = make_policy(tmp_path / "p", TAGS)
    file = write_with_arrow(policy, tmp_path / "out")
    change = {"absent": without_keys("pii"), "swapped": swapped("pii", ODD_KEY), "other": without_keys("footer")}[keys]
    poor = with_keys(policy, tmp_path / "poor", change)
    with pytest.raises(KeyServiceError, match="'footer'" if keys == "other" else "'pii'"):
        pq.read_table(file, decryption_properties=decryption_properties(poor), columns=["email"])
    if keys != "other":
        table = pq.read_table(file, decryption_properties=decryption_properties(poor), columns=["note"])
        assert table.to_pydict() == {"note": ROWS["note"]}


def test_no_properties_read_nothing(tmp_path: Path) -> None:
    """Without decryption properties the file cannot be opened."""
    file = write_with_arrow(make_policy(tmp_path / "p", TAGS), tmp_path / "out")
    with pytest.raises(OSError, match="no decryption found"):
        pq.read_table(file)


def test_key_that_is_not_there_refuses_the_write(tmp_path: Path) -> None:
    """A missing master key is KeyNotFoundError before anything is written."""
    policy = make_policy(tmp_path / "p", TAGS)
    poor = with_keys(policy, tmp_path / "poor", without_keys("pii"))
    with pytest.raises(KeyNotFoundError, match="'pii'"):
        encryption_properties(plan_of(poor, {"email": "pii"}), poor)


def test_plans_that_pyarrow_cannot_be_told(tmp_path: Path) -> None:
    """Column names with Parquet's own separators, and plans without encrypted columns, are refused by name."""
    policy = make_policy(tmp_path / "p", TAGS)
    for name in ("a.b", "a,b", "a;b", "a:b", " a"):
        with pytest.raises(PlanError, match=f"column {name}"):
            encryption_properties(plan_of(policy, {name.replace(".", "."): "pii"}, (name,)), policy)
    with pytest.raises(PlanError, match="no column is encrypted"):
        encryption_properties(plan_of(policy, {}), policy)


@pytest.mark.spark
@pytest.mark.parametrize(("mode", "algorithm", "bits"), MODES)
def test_arrow_reads_spark(lake: Lake, mode: str, algorithm: str, bits: int) -> None:
    """Pyarrow reads a partitioned dataset that Spark encrypted, nested columns and odd key ids included."""
    policy = lake.policy(TAGS, footer_mode=mode, algorithm=algorithm, bits=bits)
    secret, fin = F.lit(SECRET), {"tags": ["fin"]}
    rows = lake.spark.range(10).select(
        "id",
        secret.alias("email", metadata={"tags": ["pii"]}),
        F.struct(secret.alias("a"), F.array("id").alias("b")).alias("s", metadata=fin),
        F.create_map(secret, "id").alias("m", metadata=fin),
        (F.col("id") % 2).alias("p"),
    )
    path = lake.root / "out"
    rows.write.partitionBy("p").parquet(str(path))
    expected = {row.id: row.asDict(recursive=True) for row in rows.collect()}
    for file in data_files(path):
        for row in pq.ParquetFile(file, decryption_properties=decryption_properties(policy)).read().to_pylist():
            wanted = {**expected[row["id"]], "p": None}
            assert {**row, "m": dict(row["m"]), "p": None} == wanted
    decryption = ds.ParquetDecryptionConfig(
        crypto_factory(policy.key_service), pq.encryption.KmsConnectionConfig(), pq.encryption.DecryptionConfiguration()
    )
    options = ds.ParquetFragmentScanOptions(decryption_config=decryption)
    dataset = ds.dataset(path, format=ds.ParquetFileFormat(default_fragment_scan_options=options), partitioning="hive")
    assert sorted(dataset.to_table(columns=["id"]).column("id").to_pylist()) == list(range(10))


@pytest.mark.spark
@pytest.mark.parametrize(("mode", "algorithm", "bits"), MODES)
def test_spark_reads_arrow(lake: Lake, mode: str, algorithm: str, bits: int) -> None:
    """Spark reads what pyarrow wrote by the same policy; where encryption is required it wants an identity."""
    policy = lake.policy(TAGS, footer_mode=mode, algorithm=algorithm, bits=bits)
    file = write_with_arrow(policy, lake.root / "out")
    frame = lake.spark.read.parquet(str(file.parent))
    assert rows_of(frame) == sorted(zip(*ROWS.values(), strict=True))
    strict = lake.spark.read.option("parquet.sparkcrypt.require_encryption", "true")
    assert "has no AAD prefix" in refusal(lambda: strict.parquet(str(file.parent)).collect())

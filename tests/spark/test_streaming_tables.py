"""Structured streaming into tables of the catalog."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from sparkcrypt import configure, encrypt_table
from sparkcrypt.errors import PlanError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import PLAIN, SECRET, Lake, assert_encrypted, refusal, rows_of, with_keys, without_keys

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def stream(lake: Lake, count: int, *, tagged: bool = False) -> None:
    """Append one line in each of some micro-batches to table ``t``, with ``toTable``."""
    (lake.root / "in").mkdir(exist_ok=True)
    for number in range(count):
        (lake.root / "in" / f"{number}.txt").write_text(f"{SECRET}{number}\n")
        email = F.col("value").alias("email", metadata={"tags": ["pii"]} if tagged else {})
        rows = lake.spark.readStream.text(str(lake.root / "in")).select(email, F.lit(PLAIN).alias("note"))
        writer = rows.writeStream.option("checkpointLocation", str(lake.root / "checkpoint")).format("parquet")
        assert writer.trigger(availableNow=True).toTable("t").awaitTermination(120)


def assert_streamed(lake: Lake, policy: Policy, count: int) -> None:
    """Assert that every file is encrypted, and that the table gives every micro-batch back."""
    assert len(assert_encrypted(lake.path("t"), policy, {"email": "pii"})) >= count
    assert rows_of(lake.spark.table("t")) == [(f"{SECRET}{number}", PLAIN) for number in range(count)]


@pytest.mark.parametrize("tags", ["of both stores", "of the stored schema alone", "of the policy", "of the stream"])
def test_stream_into_a_tagged_table(lake: Lake, tags: str) -> None:
    """Each micro-batch of ``toTable`` is encrypted by the table's tags, wherever they are, or by the stream's own."""
    policy = lake.policy(tables=f"  {lake.database}.t: {{tags: {{email: [pii]}}}}\n" if tags == "of the policy" else "")
    if tags == "of the stored schema alone":
        email = F.lit("").alias("email", metadata={"tags": ["pii"]})
        lake.spark.range(0).select(email, F.lit(PLAIN).alias("note")).write.saveAsTable("t")
    elif tags != "of the stream":
        lake.sql("CREATE TABLE t (email STRING, note STRING) USING parquet")
    if tags == "of both stores":
        set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    stream(lake, 2, tagged=tags == "of the stream")
    assert_streamed(lake, policy, 2)
    poor = with_keys(policy, lake.root / "poor", without_keys("pii"))
    configure(lake.spark, poor)
    assert "KeyNotFoundError" in refusal(lake.spark.table("t").collect)


def test_job_refuses_a_table_that_a_stream_writes(lake: Lake) -> None:
    """The sink keeps its own list of files, so a run that swapped them would lose rows: it changes nothing."""
    policy = lake.policy()
    lake.sql("CREATE TABLE t (email STRING, note STRING) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    stream(lake, 1)
    set_tags(lake.spark, "t", {"note": ["fin"]}, policy)
    with pytest.raises(PlanError, match="streaming sink"):
        encrypt_table(lake.spark, "t", policy)
    assert_encrypted(lake.path("t"), policy, {"email": "pii"})

"""What stands in clear outside Parquet files, as docs/security.md says: a claim of absence would be worse than none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import FreshJvm
from tests.spark.support import SECRET, make_policy

pytestmark = [pytest.mark.spark, pytest.mark.slow]
LITERAL = "CANARY-literal-of-a-query"
SCRIPT = """
import sys
from pyspark import StorageLevel
from pyspark.sql import SparkSession, functions as F
import sparkcrypt

root, secret, literal, io_encryption = sys.argv[1:]
conf = {
    "spark.ui.enabled": "false", "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file:{root}/events",
    "spark.eventLog.compress": "false", "spark.local.dir": f"{root}/local", "spark.shuffle.compress": "false",
    "spark.io.encryption.enabled": io_encryption, "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false", "spark.sql.warehouse.dir": f"{root}/warehouse",
    "spark.sql.streaming.stateStore.compression.codec": "zstd",
}
builder = SparkSession.builder.master("local[1]")
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
sparkcrypt.configure(spark, sparkcrypt.load_policy(f"{root}/p/policy.yaml"))
made = spark.createDataFrame([(number, secret) for number in range(3)], "id INT, email STRING")
made.withMetadata("email", {"tags": ["pii"]}).write.parquet(f"{root}/files")
rows = spark.read.parquet(f"{root}/files")
assert rows.where(F.col("email") == literal).count() == 0
rows.persist(StorageLevel.DISK_ONLY).count()
rows.unpersist(False)
kept = rows.repartition(2, "email").persist(StorageLevel.DISK_ONLY)
kept.count()
spark.sparkContext.setCheckpointDir(f"{root}/checkpoint")
rows.checkpoint()
rows.write.csv(f"{root}/csv")
rows.write.json(f"{root}/json")
assert spark.read.csv(f"{root}/csv").count() == spark.read.json(f"{root}/json").count() == 3
stream = spark.readStream.schema(rows.schema).parquet(f"{root}/files").groupBy("email").count()
writer = stream.writeStream.outputMode("complete").format("noop").option("checkpointLocation", f"{root}/stream")
writer.trigger(availableNow=True).start().awaitTermination(100)
print("FOUND", sorted({file.relative_to(root).parts[0] for file in __import__("pathlib").Path(root).rglob("*")
                       if file.is_file() and secret.encode() in file.read_bytes()}))
spark.stop()
"""


@pytest.mark.parametrize("io_encryption", ["false", "true"])
def test_what_spark_keeps_beside_files(
    fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path, io_encryption: str
) -> None:
    """Caches and shuffles on disk are in clear unless Spark encrypts them; checkpoints and other formats always are."""
    make_policy(tmp_path / "p")
    for name in ("events", "local"):
        (tmp_path / name).mkdir()
    done = fresh_jvm(SCRIPT, tmp_path, SECRET, LITERAL, io_encryption, env={"SPARKCRYPT_JAR": str(private_jar)})
    assert done.returncode == 0, done.stderr[-3000:]
    (found,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND")]
    in_clear = ["checkpoint", "csv", "json", *([] if io_encryption == "true" else ["local"]), "stream"]
    assert found == f"FOUND {in_clear}"
    events = b"".join(file.read_bytes() for file in (tmp_path / "events").rglob("*") if file.is_file())
    assert LITERAL.encode() in events
    assert SECRET.encode() not in events

"""Writes the files of the corpus that Spark and fastparquet make: ``python -m tests.fuzz.make_corpus``.

It needs Spark and, for one file, fastparquet.  The corpus is committed, since writers change; run it only to add to it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sparkcrypt import configure, load_policy
from sparkcrypt.files.parquet import KeyRequest, verify_file
from sparkcrypt.keys.datakeys import DataKeyOpener
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.material import parse_key_material

CORPUS = Path(__file__).parent / "corpus"
KEYS = CORPUS / "keys.json"
VARIANTS = {
    "gcm": ("AES_GCM_V1", "encrypted", "v1"),
    "gcm_signed": ("AES_GCM_V1", "plaintext", "v1"),
    "gcm_v2": ("AES_GCM_V1", "encrypted", "v2"),
    "ctr": ("AES_GCM_CTR_V1", "encrypted", "v1"),
    "ctr_v2": ("AES_GCM_CTR_V1", "plaintext", "v2"),
}


def frame(spark: SparkSession) -> Any:
    """Return 500 rows of flat and nested columns, some null, tagged."""
    pii, fin = {"tags": ["pii"]}, {"tags": ["fin"]}
    number = F.col("id")
    return spark.range(0, 500, 1, 1).select(
        number,
        F.format_string("%09d", number).alias("ssn", metadata=pii),
        F.when(number % 3 != 0, number / 7).alias("score", metadata=fin),
        F.array_repeat(F.concat(F.lit("+"), number.cast("string")), (number % 3).cast("int")).alias(
            "phones", metadata=pii
        ),
        F.struct((number % 10).alias("age"), F.lit(None).cast("string").alias("nothing")).alias("person"),
        F.when(number % 2 == 0, F.create_map(F.lit("k"), number)).alias("labels", metadata=fin),
    )


def write(spark: SparkSession, name: str, version: str, folder: Path) -> Path:
    """Write the rows as one file of several pages and row groups, with indexes and a Bloom filter, into the corpus."""
    target = folder / name
    options = {
        "parquet.writer.version": version,
        "parquet.page.size": 1024,
        "parquet.page.size.row.check.min": 20,
        "parquet.page.row.count.limit": 100,
        "parquet.block.row.count.limit": 250,
        "parquet.bloom.filter.enabled#ssn": "true",
        "parquet.bloom.filter.expected.ndv#ssn": 50,
    }
    writer = frame(spark).write.mode("overwrite")
    for key, value in options.items():
        writer = writer.option(key, value)
    writer.parquet(str(target))
    (part,) = target.glob("part-*.parquet")
    return Path(shutil.copy(part, CORPUS / f"{name}.parquet"))


def encrypted(spark: SparkSession, folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Write each encrypted variant; yield its name and its data keys by the digest of their key metadata."""
    for name, (algorithm, footer, version) in VARIANTS.items():
        home = folder / f"policy_{name}"
        home.mkdir()
        (home / "policy.yaml").write_text(
            f"version: 1\nkey_service: {{type: local, path: keys/}}\nalgorithm: {algorithm}\ndata_key_bits: 128\n"
            f"footer: {{key: footer, mode: {footer}}}\nuntagged: plaintext\nrun_state: state/\n"
            "tags:\n  pii: {key: pii}\n  fin: {key: fin}\n"
        )
        policy = load_policy(home / "policy.yaml")
        service = LocalKeyService(policy.key_service)
        for key_id in ("footer", "pii", "fin"):
            service.create(key_id)
        configure(spark, policy)
        file = write(spark, f"spark_{name}", version, folder)
        opener = DataKeyOpener(service)
        found: dict[str, str] = {}

        def retrieve(request: KeyRequest, opener: DataKeyOpener = opener, found: dict[str, str] = found) -> bytes:
            material = request.key_metadata or b""
            key = opener.open(parse_key_material(material))
            found[hashlib.sha256(material).hexdigest()] = key.hex()
            return key

        print(file.name, file.stat().st_size, verify_file(file, retrieve_key=retrieve).to_dict())
        yield file.name, found


def main() -> None:
    """Write the corpus."""
    CORPUS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        for version in ("v1", "v2"):
            file = write(spark, f"spark_plain_{version}", version, folder)
            print(file.name, file.stat().st_size, verify_file(file).to_dict())
        KEYS.write_text(json.dumps(dict(encrypted(spark, folder)), indent=1, sort_keys=True) + "\n")
        spark.stop()


if __name__ == "__main__":
    main()

"""Writes the state directory of PROVENANCE.md, with its tables and keys: run with the release whose records are wanted.

python -m tests.state_v1.make TARGET.tar.gz
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparkcrypt import configure, encrypt_table, load_policy
from sparkcrypt.backfill.state.lock import RunLock
from sparkcrypt.backfill.work import unit_rewriter
from sparkcrypt.backfill.work.unit_rewriter import UnitRewriter
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags

ROOT = Path("/tmp/sparkcrypt-state-v1")
"""Records hold whole paths, so tables must lie where they lay when the records were written."""
TABLES = ("finished", "killed")
_POLICY = """version: 1
key_service: {type: local, path: keys/}
footer: {key: footer, mode: encrypted}
run_state: state/
untagged: plaintext
audit: {key: audit}
tags:
  pii: {key: pii}
"""


class Killed(BaseException):
    """The end of the process."""


def main(target: str) -> None:
    """Make two tables of two partitions; a run over one ends, a run over the other is killed after its first swap."""
    ROOT.mkdir()
    (ROOT / "policy.yaml").write_text(_POLICY)
    policy = load_policy(ROOT / "policy.yaml")
    for key in ("footer", "audit", "pii"):
        LocalKeyService(policy.key_service).create(key)
    spark = SparkSession.builder.master("local[2]").config("spark.sql.catalogImplementation", "hive").getOrCreate()
    spark.sql(f"CREATE DATABASE v1 LOCATION '{(ROOT / 'db').as_uri()}'")
    said: dict[str, Any] = {}
    for name in TABLES:
        spark.sql(f"CREATE TABLE v1.{name} (id INT, email STRING, note STRING, p INT) USING parquet PARTITIONED BY (p)")
        spark.sql(
            f"INSERT INTO v1.{name} SELECT /*+ REPARTITION(1) */ id, concat('e', id), concat('n', id), id % 2 "
            "FROM range(4)"
        )
    configure(spark, policy)
    for name in TABLES:
        set_tags(spark, f"v1.{name}", {"email": ["pii"]}, policy)
        if name == "killed":
            _kill_after_swap()
        with contextlib.suppress(Killed):
            encrypt_table(spark, f"v1.{name}", policy)
        table = Catalog(spark).table(f"v1.{name}")
        said[name] = {
            "options": {key: value for key, value in table.options.items() if key.startswith("parquet.")},
            "partitions": {partition.folder: partition.location for partition in Catalog(spark).partitions(table)},
        }
    spark.stop()
    (ROOT / "tables.json").write_text(json.dumps(said, indent=2, sort_keys=True) + "\n")
    shutil.rmtree(ROOT / "state" / "footers", ignore_errors=True)
    with tarfile.open(target, "w:gz") as archive:
        archive.add(ROOT, arcname=ROOT.name)


def _kill_after_swap() -> None:
    def killed(*_: Any) -> None:
        raise Killed

    patch = pytest.MonkeyPatch()  # as of a process that is gone; nothing runs after it
    patch.setattr(unit_rewriter, "record_swap", killed)
    patch.setattr(RunLock, "release", lambda lock: None)
    patch.setattr(UnitRewriter, "_give_up", lambda *_: None)


if __name__ == "__main__":
    main(sys.argv[1])

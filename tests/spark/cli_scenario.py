"""Runs the program's commands one after the other in one JVM, on a real Hive table, and prints how each ended as JSON.

Its arguments: a folder to work in.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from pyspark.sql import SparkSession

from sparkcrypt.cli.main import cli

POLICY = """
version: 1
key_service: {type: local, path: keys}
algorithm: AES_GCM_V1
data_key_bits: 128
footer: {key: footer, mode: encrypted}
untagged: plaintext
run_state: state
audit: {key: audit}
tags:
  pii: {key: pii}
  contact: {key: "contact-{p}"}
  public: plaintext
"""
AVRO = {
    "type": "record",
    "name": "customer",
    "fields": [{"name": "note", "type": "string", "confluent:tags": ["public"]}],
}


def main(home: Path) -> None:
    """Make the table and run the commands."""
    (home / "policy.yaml").write_text(POLICY)
    (home / "customer.avsc").write_text(json.dumps(AVRO))
    (home / "ssn.avsc").write_text(json.dumps(AVRO).replace("note", "ssn").replace("public", "pii"))
    spark = _session(home)
    _make(spark, home)
    policy = ("--policy", str(home / "policy.yaml"), "--json")
    table, report = ("--table", "d.t", *policy), ("--report", str(home / "report.json"))
    path = ("--path", str(home / "raw"), "--avro-schema", str(home / "ssn.avsc"), *policy)
    steps: dict[str, tuple[str, ...]] = {
        "tags set unknown": ("tags", "set", "d.t", "ssn", "nosuch", *policy),
        "tags set partition": ("tags", "set", "d.t", "p", "pii", *policy),
        "tags set nowhere": ("tags", "set", "d.nosuch", "ssn", "pii", *policy),
        "tags show before": ("tags", "show", "d.t", "--json"),
        "tags set": ("tags", "set", "d.t", "ssn", "pii", *policy),
        "tags copy": ("tags", "copy", "--avro-schema", str(home / "customer.avsc"), "--table", "d.t", *policy),
        "tags show": ("tags", "show", "d.t", *policy),
        "plan before": ("plan", *table),
        "plan text": ("plan", *table[:-1]),
        "doctor without keys": ("doctor", *table),
        "keys create": ("keys", "create", "footer", "pii", "audit", *policy),
        "doctor": ("doctor", *table),
        "doctor text": ("doctor", *table[:-1]),
        "encrypt dry run": ("encrypt", *table, "--dry-run"),
        "encrypt": ("encrypt", *table, *report, "--move-old"),
        "plan after": ("plan", *table),
        "verify": ("verify", *table),
        "encrypt again": ("encrypt", *table),
        "backfill status": ("backfill", "status", *table),
        "audit verify": ("audit", "verify", *table),
        "expire dry run": ("backfill", "expire", *table, "--older-than", "0s", "--dry-run"),
        "expire": ("backfill", "expire", *table, "--older-than", "0s"),
        "encrypt nowhere": ("encrypt", "--table", "d.nosuch", *policy, "--report", str(home / "failed.json")),
        "encrypt engine": ("encrypt", *table, "--engine", "nosuch"),
        "encrypt path": ("encrypt", *path),
        "plan path": ("plan", *path),
        "policy by uri": ("plan", "--table", "d.t", "--policy", (home / "policy.yaml").as_uri(), "--json"),
        "tags unset": ("tags", "unset", "d.t", "ssn", "--json"),
        "plan without tag": ("plan", *table),
        "verify without tag": ("verify", *table),
    }
    ended: dict[str, Any] = {}
    for name, arguments in steps.items():
        done = CliRunner().invoke(cli, list(arguments))
        ended[name] = {"code": done.exit_code, "output": done.stdout, "errors": done.stderr}
        print(f"{name}: {done.exit_code}", file=sys.stderr, flush=True)
    rows = spark.sql("SELECT count(*), sum(id), count(DISTINCT ssn) FROM d.t").first()
    ended["rows"] = [int(number) for number in rows or ()]
    ended["session lives"] = spark.range(3).count() == 3
    ended["left"] = sorted(path.name for path in (home / "probes").glob("*")) + sorted(
        path.name for path in (home / "warehouse" / "d.db").glob("*doctor*")
    )
    (home / "ended.json").write_text(json.dumps(ended))


def _session(home: Path) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{home / 'metastore'};create=true",
        "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={home / 'derby.log'}",
        "spark.log.level": "FATAL",
        "hive.exec.dynamic.partition.mode": "nonstrict",
        "spark.sparkcrypt.probe.path": str(home / "probes"),
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.enableHiveSupport().getOrCreate()


def _make(spark: SparkSession, home: Path) -> None:
    spark.sql("CREATE DATABASE d")
    spark.sql("CREATE TABLE d.t (id INT, ssn STRING, note STRING) PARTITIONED BY (p INT) STORED AS PARQUET")
    spark.conf.set("hive.exec.dynamic.partition.mode", "nonstrict")
    rows = spark.range(0, 100, 1, 1).selectExpr(
        "CAST(id AS INT)", "concat('s', id) AS ssn", "'n' AS note", "CAST(id % 2 AS INT) p"
    )
    rows.write.insertInto("d.t")
    rows.write.parquet(str(home / "raw"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

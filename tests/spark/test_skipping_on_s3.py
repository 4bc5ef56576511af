"""Data skipping for a table whose files are on a real S3 server, by Spark's own s3a; its store is on a local disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import FreshJvm
from tests.services.meddled_s3 import MeddledS3
from tests.spark.fresh_scripts import run_on_s3
from tests.spark.support import make_policy

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]
JOB = """
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.table.table_index import drop_index, open_table_index
from sparkcrypt.spark.tables.tagging import set_tags
spark = start(KEYS)
policy = sparkcrypt.load_policy(root / "p" / "policy.yaml")
sparkcrypt.configure(spark, policy)
told = {}

def append(first, last):
    rows = spark.range(first, last).selectExpr("CAST(id AS INT) id", "concat('e', lpad(id, 3, '0')) email")
    rows.repartitionByRange(4, "id").write.insertInto("t")
    time.sleep(3.2)  # S3 tells whole seconds, and younger files are left out
    spark.sql("REFRESH TABLE t")

def ask(what):
    answers = []
    for word in ("true", "false"):
        spark.conf.set("spark.sparkcrypt.skipping", word)
        frame = spark.sql("SELECT id FROM t WHERE email = 'e033' OR email = 'e055'")
        answers.append(sorted(row.id for row in frame.collect()))
        told[what] = told.get(what) or [[scan.listed, scan.opened] for scan in sparkcrypt.skipping_report(frame)]
    told[what].append(answers)

spark.sql("CREATE TABLE t (id INT, email STRING) USING parquet LOCATION 's3a://lake/t'")
set_tags(spark, "t", {"email": ["pii"]}, policy)
append(0, 40)
made = sparkcrypt.index_table(spark, "t", policy, columns=["id", "email:minmax:bloom"])
ask("created")
append(40, 80)
told["stale"] = open_table_index(spark, "t", policy).compare_listing().to_dict()
ask("appended")
told["refreshed"] = sparkcrypt.index_table(spark, "t", policy).read
ask("refreshed again")
told["fresh"] = open_table_index(spark, "t", policy).verify().is_fresh
set_tags(spark, "t", {"email": ["fin"]}, policy)
run = sparkcrypt.encrypt_table(spark, "t", policy)
told["run"] = [run.outcome, run.index]
spark.sql("REFRESH TABLE t")
ask("ran")
told["fresh after the run"] = open_table_index(spark, "t", policy).verify().is_fresh
told["read after the run"] = sparkcrypt.index_table(spark, "t", policy).read
told["back"] = rollback_run(spark, "t", policy, run.run_id).index
spark.sql("REFRESH TABLE t")
ask("rolled back")
told["dropped"] = len(drop_index(spark, policy, Path(made.store).name)[1])
print("RESULT", json.dumps({**told, "store": made.store}))
"""


def test_table_on_s3_has_a_local_store(
    s3_server: MeddledS3, fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path
) -> None:
    """Its store is made, goes stale, is refreshed, used, carried over by a run and its rollback, and dropped.

    A query finds the same rows at each step.
    """
    make_policy(tmp_path / "p", more="index: {location: indexes/}\n")
    told = run_on_s3(fresh_jvm, JOB, tmp_path, s3_server, SPARKCRYPT_JAR=str(private_jar))
    assert told["created"] == [[4, 1], [[33], [33]]]
    assert told["appended"] == [[8, 5], [[33, 55], [33, 55]]]
    assert [told["stale"][kind] for kind in ("indexed", "changed", "new", "gone")] == [4, 0, 4, 0]
    assert told["refreshed again"] == [[8, 2], [[33, 55], [33, 55]]]
    assert (told["refreshed"], told["fresh"], told["dropped"]) == (4, True, 2)
    outcome, index = told["run"]
    assert (outcome, index["state"], index["reason"], index["known"], index["generation"]) == (
        "done",
        "carried",
        None,
        8,
        3,
    )
    assert told["ran"] == [[8, 2], [[33, 55], [33, 55]]]
    assert (told["fresh after the run"], told["read after the run"]) == (True, 0)
    assert (told["back"]["state"], told["back"]["known"]) == ("carried", 8)
    assert told["rolled back"] == [[8, 2], [[33, 55], [33, 55]]]
    assert not Path(told["store"]).exists()

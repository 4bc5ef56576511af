"""Rules of tables in sessions that nothing but lines of configuration put under the policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.setup.options import launch_conf
from tests.conftest import FreshJvm, require_service
from tests.services import ServiceUnavailableError
from tests.services.connect import start_connect_server
from tests.spark.support import SECRET, assert_encrypted, make_policy

pytestmark = [pytest.mark.spark, pytest.mark.services]
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


def test_rules_hold_on_connect(fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> None:
    """The same on a Connect server that was launched with these lines."""
    policy = make_policy(tmp_path / "policy", tables=RULES)
    work = tmp_path / "server"
    work.mkdir()
    try:
        server = start_connect_server(work, launch_conf(policy, str(private_jar)))
    except ServiceUnavailableError as unavailable:
        require_service(str(unavailable))
    try:
        done = fresh_jvm(WRITE.format(session=CONNECT), tmp_path, SECRET, server.url)
    finally:
        server.stop()
    assert done.returncode == 0, done.stderr[-4000:]
    assert_under_rule(tmp_path, policy)

"""What only a fresh JVM shows: counted key-service calls, sessions by conf alone, and Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

import pytest

from sparkcrypt.decide.access_log import read_accesses
from sparkcrypt.keys.opened import KEY_LOG
from sparkcrypt.names import TAGS_PREFIX
from sparkcrypt.spark.setup.options import defaults_lines, launch_conf
from tests.conftest import FreshJvm
from tests.services.connect import start_connect_server
from tests.services.installed import ROOT, spark_home
from tests.spark.fresh_scripts import START, calls, run
from tests.spark.support import PLAIN, SECRET, assert_encrypted, data_files, make_policy

pytestmark = [pytest.mark.spark, pytest.mark.slow]
WITHOUT = ("pyspark", "py4j")


def test_wraps_and_unwraps_are_one_per_master_key(fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> None:
    """A write of 4 files with K = 2 tagged keys makes 1 + K wraps alone; a read makes 1 + K unwraps alone."""
    policy = make_policy(tmp_path / "p")
    out, write_log, read_log = tmp_path / "out", tmp_path / "write.log", tmp_path / "read.log"
    script = (
        START
        + """
sparkcrypt.configure(spark, sparkcrypt.load_policy(sys.argv[1]))
if sys.argv[3] == "write":
    tag = lambda name, tag: F.col("id").cast("string").alias(name, metadata={"tags": [tag]})
    rows = spark.range(100).repartition(4).select("id", tag("a", "pii"), tag("b", "pii"), tag("c", "fin"))
    rows.write.parquet(sys.argv[2])
else:
    print(spark.read.parquet(sys.argv[2]).agg(F.sum("a"), F.sum("b"), F.sum("c")).collect())
"""
    )
    environment = {"SPARKCRYPT_JAR": str(private_jar)}
    arguments = (tmp_path / "p" / "policy.yaml", out)
    run(fresh_jvm, script, *arguments, "write", **environment, **{KEY_LOG: str(write_log)})
    assert len(data_files(out)) == 4
    assert_encrypted(out, policy, {"a": "pii", "b": "pii", "c": "fin"}, visible=())
    assert calls(write_log, "wrap") == {"footer": 1, "pii": 1, "fin": 1}
    assert calls(write_log, "unwrap") == {}
    said = run(fresh_jvm, script, *arguments, "read", **environment, **{KEY_LOG: str(read_log)})
    assert "4950.0" in said
    assert calls(read_log, "unwrap") == {"footer": 1, "pii": 1, "fin": 1}
    assert calls(read_log, "wrap") == {}


@pytest.fixture
def conf_dir(private_jar: Path, tmp_path: Path) -> Path:
    """A folder with a spark-defaults.conf of what ``sparkcrypt conf`` prints where there is no pyspark, and a place."""
    make_policy(tmp_path / "p")
    folder = tmp_path / "conf"
    folder.mkdir()
    own = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": (tmp_path / "warehouse").as_uri(),
        "spark.sql.parquet.compression.codec": "uncompressed",
        "spark.log.level": "ERROR",
    }
    (folder / "spark-defaults.conf").write_text(printed_conf(tmp_path, private_jar) + defaults_lines(own) + "\n")
    return folder


def printed_conf(folder: Path, jar: Path) -> str:
    """Return what ``sparkcrypt conf`` prints for a policy, run by an interpreter that has no pyspark."""
    script = f"""
import sys
for name in {WITHOUT}:
    sys.modules[name] = None
from sparkcrypt.cli.main import main
main()
"""
    arguments = ["conf", "--policy", str(folder / "p" / "policy.yaml"), "--python", sys.executable]
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    environment |= {"PYTHONPATH": str(ROOT), "SPARKCRYPT_JAR": str(jar)}
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_spark(tmp_path: Path, conf_dir: Path, java: Mapping[str, str], *command: str) -> str:
    """Run a program of Spark with a configuration folder and nothing of this project on its Python path."""
    environment = {name: value for name, value in java.items() if name != "PYTHONPATH"}
    environment["SPARK_CONF_DIR"] = str(conf_dir)
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=200)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        raise
    assert process.returncode == 0, errors[-3000:]
    return output


def test_spark_sql_by_conf_alone(conf_dir: Path, java: dict[str, str], tmp_path: Path) -> None:
    """spark-sql encrypts, reads back, and keeps no statistics of encrypted columns, by conf lines alone."""
    statements = f"""
        CREATE TABLE t (id INT, email STRING, note STRING) USING parquet OPTIONS ('{TAGS_PREFIX}email' 'pii');
        INSERT INTO t VALUES (1, '{SECRET}', '{PLAIN}');
        CREATE TABLE h (email STRING) STORED AS PARQUET TBLPROPERTIES ('{TAGS_PREFIX}email'='fin');
        INSERT INTO h VALUES ('{SECRET}');
        SELECT concat('read ', t.id, ' ', t.email = h.email) FROM t JOIN h ON t.email = h.email;
        ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS id, email;
        SELECT java_method('java.lang.Thread', 'sleep', 3000L);
        DESCRIBE EXTENDED t id;
        DESCRIBE EXTENDED t email;
    """
    output = run_spark(tmp_path, conf_dir, java, str(spark_home() / "bin" / "spark-sql"), "-e", statements)
    policy = make_policy(tmp_path / "p")
    assert_encrypted(tmp_path / "warehouse" / "t", policy, {"email": "pii"})
    assert_encrypted(tmp_path / "warehouse" / "h", policy, {"email": "fin"}, visible=())
    assert "read 1 true" in output
    distinct = [line.split()[-1] for line in output.splitlines() if line.startswith("distinct_count")]
    assert distinct == ["1", "NULL"], output


def test_python_session_by_conf_alone(conf_dir: Path, java: dict[str, str], tmp_path: Path) -> None:
    """A pyspark session without this package on its path encrypts by tags in its schema, by conf lines alone.

    ``configure`` in that session passes its probe, whose tag no policy has.
    """
    script = tmp_path / "job.py"
    script.write_text(f"""
import sys
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
email = F.lit("{SECRET}").alias("email", metadata={{"tags": "pii"}})
rows = spark.range(2).select("id", email, F.lit("{PLAIN}").alias("n"))
rows.write.parquet("out")
print("read", spark.read.parquet("out").filter("email LIKE 'CANARY%'").count())
assert "sparkcrypt" not in sys.modules
sys.path.insert(0, "{ROOT}")
import sparkcrypt
sparkcrypt.configure(spark, sparkcrypt.load_policy("{tmp_path / "p" / "policy.yaml"}"))
rows.write.parquet("configured")
print("then", spark.read.parquet("configured").count())
""")
    output = run_spark(tmp_path, conf_dir, java, str(spark_home() / "bin" / "spark-submit"), str(script))
    for folder in ("out", "configured"):
        assert_encrypted(tmp_path / folder, make_policy(tmp_path / "p"), {"email": "pii"})
    assert "read 2" in output
    assert "then 2" in output


@pytest.mark.services
def test_spark_connect(fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> None:
    """A Connect client of a server launched with the lines of ``sparkcrypt conf`` encrypts, reads, and is refused.

    The server's access log has whom it read for, by which route, and digests of SQL texts.
    """
    policy = make_policy(tmp_path / "p", more="access_log: {location: log/}\n")
    script = f"""
import sys
from pyspark.sql import SparkSession, functions as F
import sparkcrypt
spark = SparkSession.builder.remote(sys.argv[1] + "/;user_id=eva").getOrCreate()
policy = sparkcrypt.load_policy(sys.argv[2])
sparkcrypt.configure(spark, policy)
spark.conf.set("spark.sql.parquet.compression.codec", "uncompressed")
def rows(tag):
    email = F.lit("{SECRET}").alias("email", metadata={{"tags": [tag]}})
    return spark.range(3).select("id", email, F.lit("{PLAIN}").alias("n"))
rows("pii").write.parquet(sys.argv[3] + "/out")
print("read", spark.read.parquet(sys.argv[3] + "/out").filter("email LIKE 'CANARY%'").count())
rows("pii").write.mode("overwrite").saveAsTable("connect_table")
print("table", spark.sql("SELECT count(email) FROM connect_table").first()[0])
location = spark.sql("DESCRIBE EXTENDED connect_table").filter("col_name = 'Location'").first()[1]
print("location", location)
try:
    rows("unknown").write.parquet(sys.argv[3] + "/refused")
except Exception as error:
    print("refused", "carries the tag 'unknown'" in str(error))
spark.sql("DROP TABLE connect_table")
spark.stop()
"""
    server = start_connect_server(tmp_path, launch_conf(policy, str(private_jar), sys.executable))
    try:
        output = run(fresh_jvm, script, server.url, tmp_path / "p" / "policy.yaml", tmp_path)
    finally:
        server.stop()
    assert_encrypted(tmp_path / "out", policy, {"email": "pii"})
    assert data_files(tmp_path / "refused") == []
    assert [line for line in output.splitlines() if "location" not in line] == ["read 3", "table 3", "refused True"]
    found = read_accesses(tmp_path / "p" / "log", "default.connect_table.email", datetime.now(timezone.utc).date())
    (access,) = found.accesses
    assert (access["route"], access["session_user"], access["outcome"]) == ("connect", "eva", "opened")
    assert access["query_digest"] is not None


def test_first_step_of_the_catalog_is_judged_though_configure_opens_none(
    fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path
) -> None:
    """The first to open the metastore is a DROP in a session that has no rules: what the table required is not lost.

    Derby's lock is there from when a JVM opens the metastore.
    """
    policy = make_policy(tmp_path / "p")
    script = f"""
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import sparkcrypt
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").enableHiveSupport().getOrCreate()
spark.conf.set("spark.sql.parquet.compression.codec", "uncompressed")
lock = Path("metastore_db/db.lck")
if sys.argv[2] == "make":
    spark.sql("CREATE TABLE t (email STRING) USING parquet OPTIONS ('{TAGS_PREFIX}email' 'pii')")
else:
    lock.unlink()
    other = spark.newSession()
    rows = spark.sql("SELECT '{SECRET}' AS email")
    sparkcrypt.configure(spark, sparkcrypt.load_policy(sys.argv[1]))
    spark.sql("SELECT 1").collect()
    print("opened", lock.exists())
    other.sql("DROP TABLE t")
    print("opened", lock.exists())
    rows.write.saveAsTable("t")
"""
    run(fresh_jvm, script, tmp_path / "p" / "policy.yaml", "make")
    said = run(fresh_jvm, script, tmp_path / "p" / "policy.yaml", "drop", SPARKCRYPT_JAR=str(private_jar))
    assert said.splitlines() == ["opened False", "opened True"]
    assert_encrypted(tmp_path / "spark-warehouse" / "t", policy, {"email": "pii"}, visible=())


def test_configure_says_what_a_session_lacks(fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> None:
    """With an interpreter that does not exist, ``configure`` is a BridgeError that names the line to set."""
    make_policy(tmp_path / "p")
    script = """
import sys
from pyspark.sql import SparkSession
import sparkcrypt
from sparkcrypt.errors import BridgeError
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.sparkcrypt.python", "/nowhere/python3").getOrCreate())
spark.sparkContext.setLogLevel("OFF")
try:
    sparkcrypt.configure(spark, sparkcrypt.load_policy(sys.argv[1]))
except BridgeError as error:
    print("BridgeError", error)
print("factory", spark.conf.get("parquet.crypto.factory.class", "none"))
"""
    output = run(fresh_jvm, script, tmp_path / "p" / "policy.yaml", SPARKCRYPT_JAR=str(private_jar))
    assert "BridgeError" in output
    assert "spark.sparkcrypt.python" in output
    assert "/nowhere/python3" in output
    assert "factory none" in output

"""What every table lives through: each format, in each place, by each swap, with the state in the same place."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from sparkcrypt import load_policy
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.setup.session import configure
from tests.conftest import FreshJvm
from tests.services.hdfs import Hdfs
from tests.services.meddled_s3 import MeddledS3
from tests.spark.fresh_scripts import run_on_s3
from tests.spark.placed_tables import FORMATS, SWAPS, PlacedTable
from tests.spark.support import Lake, make_policy

pytestmark = [pytest.mark.spark]
CELLS = [(format_name, swap) for format_name in ("parquet", "orc") for swap in SWAPS]
ON_S3 = """
from sparkcrypt.ledger.audit.audit import audit_entries
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.spark.tables.catalog import Catalog
from tests.spark.placed_tables import PlacedTable
folder, *cells = arguments
spark = start({**KEYS, "spark.hadoop.fs.s3a.bucket.lake.endpoint": endpoint})
tables = [PlacedTable(*cell.split(","), folder) for cell in cells]
for table in tables:
    table.fill(spark)
# A bucket's own settings win; with those of all buckets nobody would be reached from here on.
spark.sparkContext._jsc.hadoopConfiguration().set("fs.s3a.endpoint", "http://127.0.0.1:9")
policy = sparkcrypt.load_policy(root / "p" / "policy.yaml")
sparkcrypt.configure(spark, policy)
told = [table.live_through(spark, policy) for table in tables]
store = open_state_directory(spark, policy.run_state, outside=folder)
audited = [len(list(audit_entries(store, Catalog(spark).table(table.name).uuid))) for table in tables]
result = {"told": told, "records": store.list(""), "store": type(store).__name__, "audited": audited}
print("RESULT", json.dumps(result))
"""


@pytest.mark.parametrize(
    ("format_name", "swap", "form"),
    [
        *(pytest.param(*cell, form, marks=pytest.mark.sparks) for form in ("using", "hive") for cell in CELLS[:3]),
        *((*cell, "using") for cell in CELLS[3:]),
    ],
)
def test_table_on_local_disks(lake: Lake, format_name: str, swap: str, form: str) -> None:
    """Each step is done by the native engine, and what the metastore says is what files are."""
    policy = lake.policy(more=FORMATS)
    live(lake, PlacedTable(format_name, swap, lake.root.as_uri().replace("///", "/"), form), policy)


@pytest.mark.services
@pytest.mark.parametrize(("format_name", "swap"), CELLS)
def test_table_and_state_on_hdfs(lake: Lake, hdfs: Hdfs, format_name: str, swap: str) -> None:
    """The same over WebHDFS; the state is on HDFS too, and nothing of it on the disk."""
    lake.spark.conf.set("dfs.namenode.http-address", hdfs.http)  # where executors without libhdfs reach it
    root = f"{hdfs.uri}/{lake.database}"
    make_policy(lake.root / "p", more=FORMATS)
    policy = with_state(lake.root / "p", f"{root}-state")
    configure(lake.spark, policy)
    live(lake, PlacedTable(format_name, swap, root), policy)
    assert not list((lake.root / "p").glob("state*"))


@pytest.mark.services
@pytest.mark.slow
@pytest.mark.timeout(660)
def test_tables_and_state_on_s3(s3_server: MeddledS3, fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path) -> None:
    """The same by Spark's own s3a, in a JVM that has it; no folder is renamed there, since that copies each file."""
    make_policy(tmp_path / "p", more=FORMATS)
    folder = f"s3a://lake/{uuid.uuid4().hex}"
    with_state(tmp_path / "p", f"{folder}-state")
    cells = [cell for cell in CELLS if "renamed" not in cell[1]]
    texts = map(",".join, cells)
    result = run_on_s3(fresh_jvm, ON_S3, tmp_path, s3_server, folder, *texts, SPARKCRYPT_JAR=str(private_jar))
    for cell, told in zip(cells, result["told"], strict=True):
        assert told == PlacedTable(*cell, folder).expect()
    kinds = {name.partition("/")[0] for name in result["records"]}
    assert kinds >= {"audit", "keks", "locks", "runs"} and "probes" not in kinds
    assert result["store"] == "ObjectStateStore" and all(result["audited"])
    assert not list((tmp_path / "p").glob("state*"))


def live(lake: Lake, table: PlacedTable, policy: Policy) -> None:
    """Make a table in the place, and let it live through each step."""
    with lake.stranger() as stranger:
        table.fill(stranger)
    try:
        assert table.live_through(lake.spark, policy) == table.expect()
    finally:
        lake.sql(f"DROP DATABASE {table.database} CASCADE")


def with_state(folder: Path, uri: str) -> Policy:
    """Let the policy of a folder keep its state at a URI."""
    file = folder / "policy.yaml"
    file.write_text(file.read_text().replace("run_state: state/", f"run_state: '{uri}'"))
    return load_policy(file)

"""What every table lives through: each format, in each place, by each swap, with the state in the same place."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkcrypt import load_policy
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.setup.session import configure
from tests.services.hdfs import Hdfs
from tests.spark.placed_tables import FORMATS, SWAPS, PlacedTable
from tests.spark.support import Lake, make_policy

pytestmark = [pytest.mark.spark]
CELLS = [(format_name, swap) for format_name in ("parquet", "orc") for swap in SWAPS]


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

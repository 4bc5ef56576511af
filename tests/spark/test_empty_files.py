"""Files of 0 bytes among a table's data, which Spark leaves out: no run, verification or read fails by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkcrypt import encrypt_table, index_table, verify_table
from sparkcrypt.arrow import read_table
from sparkcrypt.cli.tables.plan import plan_text
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.rotate import rotate_key
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.passes.plan import plan_target
from sparkcrypt.runs.table.target import catalog_target
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags, unset_tags
from tests.spark.stored_tables import settle
from tests.spark.support import SECRET, Lake, data_files, rows_of

pytestmark = pytest.mark.spark
MORE = "formats: [parquet, orc]\nindex: {location: indexes/}\n"
CASES = {
    "managed": ("parquet", "", "native"),
    "partitioned": ("parquet", "PARTITIONED BY (p)", "native"),
    "by rows": ("parquet", "PARTITIONED BY (p)", "spark"),
    "orc": ("orc", "", "native"),
}


def put_empty(folders: set[Path]) -> list[Path]:
    """Put a file of 0 bytes into each folder; return them."""
    found = sorted(folder / "000009_0" for folder in folders)
    for file in found:
        file.touch()
    return found


def folders_in_use(lake: Lake) -> set[Path]:
    """Return the folders of the table's data."""
    table = Catalog(lake.spark).table("t")
    places = [part.location for part in Catalog(lake.spark).partitions(table)] if table.partition_columns else []
    return {Path(place.removeprefix("file:")) for place in places or [table.location]}


def rows_now(lake: Lake) -> list[object]:
    """Return the table's rows, by Spark."""
    lake.spark.catalog.refreshTable("t")
    return rows_of(lake.spark.table("t"))


@pytest.mark.parametrize("case", list(CASES))
def test_files_of_no_bytes_hold_up_nothing(lake: Lake, case: str) -> None:
    """They are planned by name; runs, verification, rotation, rollback and expiry do what they do without them."""
    kind, partitioned, engine = CASES[case]
    with lake.stranger() as stranger:
        stranger.sql(f"CREATE TABLE t (id INT, email STRING, p INT) USING {kind} {partitioned}")
        stranger.sql(f"INSERT INTO t VALUES (1, '{SECRET}-1', 0), (2, '{SECRET}-2', 1)")
    empty = put_empty(folders_in_use(lake))
    policy = lake.policy(more=MORE)
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    before = rows_now(lake)
    planned = plan_target(lake.spark, catalog_target(lake.spark, Catalog(lake.spark).table("t"), policy, None), policy)
    assert planned.exit_code == 2 and not planned.report.quarantined
    assert planned.to_dict()["empty_files"] == [f"file:{file}" for file in empty]
    assert f"0 bytes, which hold no row and are left out: file:{empty[0]}" in plan_text(planned)
    run = encrypt_table(lake.spark, "t", policy, engine=engine)
    assert run.outcome == "done" and not run.quarantined
    rollback_run(lake.spark, "t", policy, run.run_id)
    run = encrypt_table(lake.spark, "t", policy, engine=engine)
    empty_now = put_empty(folders_in_use(lake))
    found = verify_table(lake.spark, "t", policy)
    assert found.ok and all(f"file:{file}: has 0 bytes" in " ".join(found.notes) for file in empty_now)
    if engine == "native":
        assert not rotate_key(lake.spark, policy, "pii", tables=[lake.name("t")]).tables[0].quarantined
    expire_run(lake.spark, "t", policy)
    assert not any(file.exists() for file in empty) or not partitioned
    assert rows_now(lake) == before
    if case == "managed":
        assert_read(lake, policy)
    unset_tags(lake.spark, "t", ["email"])
    assert encrypt_table(lake.spark, "t", policy, engine=engine, allow_decrypt=True).outcome == "done"
    assert rows_now(lake) == before


def assert_read(lake: Lake, policy: Policy) -> None:
    """The table is indexed, and read without Spark, and a file that lost its bytes is no such file."""
    (folder,) = folders_in_use(lake)
    settle(folder)
    assert index_table(lake.spark, lake.name("t"), policy, columns=["id"]).objects == len(
        [file for file in data_files(folder) if file.stat().st_size]
    )
    assert read_table(str(folder), policy).num_rows == 2
    full = next(file for file in data_files(folder) if file.stat().st_size)
    kept = full.read_bytes()
    full.write_bytes(b"")
    found = verify_table(lake.spark, "t", policy, manifest=True)
    assert not found.ok and full.name in str(found.to_dict())
    full.write_bytes(kept)

"""Former homes by the location alone, and which tables leave theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkcrypt.ledger.unit import former_home
from sparkcrypt.runs.old_folders.former_homes import describe_move
from sparkcrypt.spark.tables.catalog import Table

RUN = "20260501T020000Z-31bc1c-1-1-9cf89719"
TABLE = Table("db", "t", "EXTERNAL", "parquet", "", "s3a://lake/t", "", (), {}, {}, owner="")


@pytest.mark.parametrize(
    ("location", "base", "home"),
    [
        (f"s3a://lake/.sparkcrypt/t/{RUN}", "s3a://lake/t", "s3a://lake/t"),
        (f"file:/wh/.sparkcrypt/t/{RUN}/p=0/q=1/", "file:/wh/t/", "file:/wh/t/p=0/q=1"),
        (f"file:/wh/.sparkcrypt/t/{RUN}/p=0", "file:/wh/renamed", "file:/wh/renamed/p=0"),
        ("file:/wh/.sparkcrypt/t/old-20260501T020000Z-31bc1c/p=0", "file:/wh/t", "file:/wh/t/p=0"),
        ("file:/wh/t/p=0", "file:/wh/t", None),
        ("file:/wh/.sparkcrypt/t", "file:/wh/t", None),
        ("file:/wh/.sparkcrypt/t/mine", "file:/wh/t", None),
    ],
)
def test_a_location_in_a_folder_of_runs_tells_the_former_home(location: str, base: str, home: str | None) -> None:
    """Any other location tells none."""
    assert former_home(location, base) == home


def test_which_tables_leave_their_folder() -> None:
    """External ones as a whole, once; partitions of all; a managed table without partitions stays."""
    assert "a run puts the table into a folder below s3a://lake/.sparkcrypt/t" in str(describe_move(TABLE))
    assert describe_move(replace(TABLE, location=f"s3a://lake/.sparkcrypt/t/{RUN}")) is None
    assert describe_move(replace(TABLE, kind="MANAGED")) is None
    assert "each partition" in str(describe_move(replace(TABLE, kind="MANAGED", partition_columns=("p",))))

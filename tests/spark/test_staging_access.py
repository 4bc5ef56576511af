"""Between their making and their swap, staged files are no more open than the files that they are made of."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkcrypt.ledger.unit import Folder, Unit
from sparkcrypt.runs.rewrite.engine import make_fresh_folder
from sparkcrypt.spark.files.access_rights import copy_access
from sparkcrypt.spark.files.hadoop import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


def mode_of(path: Path) -> int:
    """Return the permissions of a file or folder."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_staged_folder_is_closed_until_it_is_given_its_access(spark: SparkSession, tmp_path: Path) -> None:
    """What Spark writes there under its own umask is reached by nobody else until it has its source's access."""
    table, staged = tmp_path / "t", tmp_path / ".sparkcrypt" / "t" / "run-1"
    (table / "p=1").mkdir(parents=True)
    files, rows = HadoopFiles(spark), spark.range(3).coalesce(1)
    rows.write.parquet(f"{table}/p=1", mode="append")
    (source,) = (path for path in (table / "p=1").iterdir() if path.name.startswith("part-"))
    source.chmod(0o600)
    for folder in (table, table / "p=1"):
        folder.chmod(0o750)
    unit = Unit("t", table.as_uri(), None, "", {}, (Folder("p=1", ()),))
    make_fresh_folder(files, unit, staged.as_uri())
    assert mode_of(staged) == 0o700
    assert mode_of(staged.parent) & 0o055, "those above it are passed through by readers later"
    rows.write.parquet(f"{staged}/p=1", mode="append")
    assert mode_of(staged) == 0o700
    copy_access(files, table.as_uri(), staged.as_uri())
    assert (mode_of(staged), mode_of(staged / "p=1")) == (0o750, 0o750)
    assert {mode_of(path) for path in (staged / "p=1").iterdir() if path.name.startswith("part-")} == {0o600}

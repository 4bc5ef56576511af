"""A folder that cannot be listed is the fault of its unit: it is named, and other units and tables go on."""

from __future__ import annotations

import shutil

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import StorageError
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.check_keys import check_keys
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.passes.plan import plan_target
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.table.target import catalog_target
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from tests.spark.support import Lake, assert_plaintext
from tests.spark.tables import PARTITIONED, make_table, tagged

pytestmark = pytest.mark.spark


def dry_run(lake: Lake, policy: Policy) -> PassOptions:
    """Return the options of `sparkcrypt plan --database`."""
    return PassOptions(run=RunOptions(keep_going=True, dry_run=True))


def point_to_unlisted(lake: Lake, table: str = "t") -> str:
    """Point a partition to a folder that the file system refuses to look at, whoever asks: its name is too long."""
    place = f"file:{lake.root}/{'x' * 300}"
    lake.sql(f"ALTER TABLE {table} PARTITION (p = 1) SET LOCATION '{place}'")
    return place


def test_refused_by_the_file_system_is_an_error_of_storage(lake: Lake) -> None:
    """Whatever the file system refuses, the error says that a file cannot be reached, and ends with 71."""
    lake.policy()
    files, place = HadoopFiles(lake.spark), f"file:{lake.root}/{'x' * 300}"
    for ask in (files.exists, files.names, files.status, files.children, files.access):
        with pytest.raises(StorageError, match=r"cannot (look|list)"):
            ask(place)


def test_unit_whose_folder_cannot_be_listed_leaves_the_others_to_be_done(lake: Lake) -> None:
    """Plan, pass and verification name the unit, the other unit of its table is encrypted; a run ends before any."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    place = point_to_unlisted(lake)
    target = catalog_target(lake.spark, Catalog(lake.spark).table("t"), policy, None)
    planned = plan_target(lake.spark, target, policy)
    assert {drift.kind for drift in planned.drift} == {"unlisted_folder", "plaintext"}
    assert planned.exit_code == 74
    with pytest.raises(StorageError, match=r"p=1: .*xxx.*cannot look"):
        encrypt_table(lake.spark, "t", policy)
    assert_plaintext(lake.path("t"))
    for options in (dry_run(lake, policy), PassOptions(changed=True)):
        report = backfill(lake.spark, policy, tables=["t"], options=options)
        assert (report.exit_code, report.failed) == (74, [])
        (told,) = report.tables[0].quarantined
        assert (told["unit"], told["error"]) == ("p=1", "StorageError") and place.removeprefix("file:") in told[
            "message"
        ]
    assert [unit["unit"] for unit in report.tables[0].units] == ["p=0"]
    found = verify_table(lake.spark, "t", policy)
    assert not found.ok and [drift.kind for drift in found.drift] == ["unlisted_folder"]
    (checked,) = check_keys(lake.spark, policy, tables=["t"]).tables
    assert (checked.encrypted, [entry.error for entry in checked.unopened]) == (2, ["StorageError"])


def test_expire_keeps_old_files_of_a_unit_whose_folder_cannot_be_listed(lake: Lake) -> None:
    """They may be the only copy; those of the other unit are deleted."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    point_to_unlisted(lake)
    done = expire_run(lake.spark, "t", policy)
    assert list(done.refused) == ["p=1"] and "cannot look" in done.refused["p=1"]
    assert [folder.rpartition("/")[2] for folder in done.folders] == ["p=0"]


def test_plan_of_many_names_a_table_whose_folder_is_gone(lake: Lake) -> None:
    """Such a table ends the plan of a database with 74, as it would end the pass."""
    policy = lake.policy()
    make_table(lake, "a", partitions=0)
    make_table(lake, "b", partitions=0)
    shutil.rmtree(lake.path("a"))
    report = backfill(lake.spark, policy, databases=[lake.database], options=dry_run(lake, policy))
    assert (report.outcome, report.exit_code) == ("dry run", 74)
    a, b = report.tables
    assert "there is no such folder" in a.quarantined[0]["message"] and not b.quarantined

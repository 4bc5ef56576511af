"""Attacks by who may put an older copy of the whole state directory in its place, or may alter the table.

Each record of a copy is authentic, and none is missing in it.  What the metastore keeps of the records, by whoever may
alter it at most, tells that they are older than the table.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.names import PIN
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.apply_shredding import ShredOptions, shred_keys
from sparkcrypt.runs.keys.find_shreddable import Selection
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.past_run import past_runs
from sparkcrypt.runs.old_folders.problems import Decision
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.passes.resolve_problem import resolve_problem
from sparkcrypt.spark.tables.catalog import Catalog, PartitionMove
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.late_writers import ids, leave
from tests.spark.restored_state import restore, states
from tests.spark.support import Lake, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, fill

pytestmark = pytest.mark.spark

KINDS = {
    "partitioned": (PARTITIONED["using"], False),
    "hive partitioned": (PARTITIONED["hive"], False),
    "external": (UNPARTITIONED["using"], True),
    "managed": (UNPARTITIONED["using"], False),
}
OLDER = r"its pin names record \d+ of run .*, which the state directory has not.*Restore the newest copy"


def twice(lake: Lake, kind: str) -> tuple[Policy, str, str, Path]:
    """Run twice over a table; return its policy, the ids of the runs, and a copy of the state between them."""
    create, external = KINDS[kind]
    fill(lake, create, external=external)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    first = encrypt_table(lake.spark, "t", policy).run_id
    copy = Path(shutil.copytree(states(policy), lake.root / "last-night"))
    set_tags(lake.spark, "t", {"note": ["pii"]}, policy)
    return policy, first, encrypt_table(lake.spark, "t", policy).run_id, copy


def pins(lake: Lake) -> list[str]:
    """Return the pins of the table in the metastore."""
    catalog = Catalog(lake.spark)
    table = catalog.table("t")
    if not table.partition_columns:
        return [table.properties.get(PIN, "")]
    return [partition.pin for partition in catalog.partitions(table)]


def files_below(lake: Lake) -> set[Path]:
    """Return every data file of the table, in use or not."""
    return {file for file in lake.root.rglob("*.parquet") if "last-night" not in file.parts}


@pytest.mark.parametrize("kind", KINDS)
def test_last_nights_copy_deletes_nothing(lake: Lake, kind: str) -> None:
    """Each swap sets a pin; expire by the older records is refused, by name of pin, record and next step."""
    policy, first, second, copy = twice(lake, kind)
    assert all(f":{pin.split(':')[2]}:" in pin and pin.startswith(f"1:{second}:") for pin in pins(lake))
    rows, files = rows_of(lake.spark.table("t")), files_below(lake)
    newest = Path(shutil.copytree(states(policy), lake.root / "newest"))
    restore(policy, copy)
    with pytest.raises(VerificationError, match=OLDER):
        expire_run(lake.spark, "t", policy)
    with pytest.raises(VerificationError, match=r"which the state directory has not|later|replaced|rewritten"):
        rollback_run(lake.spark, "t", policy, first)
    assert (rows_of(lake.spark.table("t")), files_below(lake)) == (rows, files)
    restore(policy, newest)
    assert expire_run(lake.spark, "t", policy).folders
    assert rows_of(lake.spark.table("t")) == rows and verify_table(lake.spark, "t", policy).ok


def test_copy_of_the_middle_of_a_run_shreds_nothing_until_its_units_are_proven(
    lake: Lake, copies: dict[str, Path]
) -> None:
    """A shredding is refused by the pins; the run goes on, proves what is in use, and sets them again."""
    create, _ = KINDS["partitioned"]
    fill(lake, create)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    rows = rows_of(lake.spark.table("t"))
    encrypt_table(lake.spark, "t", policy)
    restore(policy, copies["unit_listed"], locks=False)
    before = pins(lake)

    def shred() -> None:
        options = ShredOptions(reason="its time is over")
        shred_keys(lake.spark, policy, Selection(key_id="fin"), options, confirm=lambda _: None)

    with pytest.raises(VerificationError, match=r"its pin names record .*nothing was deleted"):
        shred()
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    assert not set(before) & set(pins(lake))
    with pytest.raises(VerificationError, match="the key of tag 'fin' for all dates"):  # the pins refuse it no more
        shred()
    assert expire_run(lake.spark, "t", policy).folders
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == rows


def test_forged_pin_stops_deletes_and_a_removed_one_is_a_warning(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may alter the table can cause no more: runs go on, and rows stay."""
    create, _ = KINDS["hive partitioned"]
    fill(lake, create)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    with monkeypatch.context() as patch:
        patch.setattr("sparkcrypt.spark.tables.catalog.PIN", "sparkcrypt.other")
        encrypt_table(lake.spark, "t", policy)
    assert pins(lake) == ["", ""]
    report = encrypt_table(lake.spark, "t", policy)
    assert report.outcome == "nothing to do" and any("no pin in the metastore" in line for line in report.warnings)
    catalog = Catalog(lake.spark)
    table = catalog.table("t")
    first = catalog.partitions(table)[0]
    catalog.move_partitions(table, [PartitionMove(first, first.location, "forged")])
    assert catalog.partitions(table)[0] == first and pins(lake) == ["forged", ""]
    files = files_below(lake)
    with pytest.raises(VerificationError, match="its pin 'forged' is not authentic"):
        expire_run(lake.spark, "t", policy)
    assert files_below(lake) == files
    report = encrypt_table(lake.spark, "t", policy)
    assert report.outcome == "nothing to do" and any("its pin 'forged' is not" in line for line in report.warnings)
    catalog.move_partitions(table, [PartitionMove(first, first.location, " ")])
    with past_runs(lake.spark, "t", policy, "accept") as runs:
        accepted, gaps = runs.give_up_lost("the pin was damaged")
        assert [pin.name for pin in accepted] == [first.folder] and not gaps
    done = expire_run(lake.spark, "t", policy)
    assert done.folders and done.unpinned and not done.unread
    assert verify_table(lake.spark, "t", policy, manifest=True).ok


def test_table_made_like_another_is_stopped_by_no_pin_of_it(lake: Lake) -> None:
    """Hive's LIKE copies the properties of a table, its pin too; the copy is encrypted, and its old files expire."""
    fill(lake, UNPARTITIONED["using"], external=True)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    encrypt_table(lake.spark, "t", policy)
    lake.spark.sql(f"CREATE TABLE u LIKE t TBLPROPERTIES ('{PIN}' = '{pins(lake)[0]}')")
    lake.spark.sql("INSERT INTO u SELECT * FROM t")
    set_tags(lake.spark, "u", {"note": ["pii"]}, policy)
    rows = rows_of(lake.spark.table("u"))
    assert encrypt_table(lake.spark, "u", policy).outcome == "done"
    lake.spark.sql(f"ALTER TABLE u SET TBLPROPERTIES ('{PIN}' = '{pins(lake)[0]}')")  # none of u's own either
    assert expire_run(lake.spark, "u", policy).folders
    lake.spark.catalog.refreshTable("u")
    assert rows_of(lake.spark.table("u")) == rows and verify_table(lake.spark, "u", policy).ok


@pytest.mark.usefixtures("unit_a_batch")
@pytest.mark.parametrize("kind", ["unit_staged", "unit_verified"])
def test_lost_record_costs_its_own_run_alone(lake: Lake, kind: str) -> None:
    """The audit does not verify until it is given up; other runs go on.

    Without the evidence of a swap nobody can tell what came to its old folder since, so a person decides once.
    """
    policy, first, second, _ = twice(lake, "partitioned")
    rows, store = rows_of(lake.spark.table("t")), LocalStateStore(policy.run_state)
    table_id = str(Catalog(lake.spark).table("t").uuid)
    log = TableLog.open(store, table_id, None)
    lost = next(record for record in log.of_run(first) if record.kind == kind)
    store.delete(lost.name)
    with pytest.raises(VerificationError, match="is missing, though the log has had"):
        verify_table(lake.spark, "t", policy, manifest=True)
    report = encrypt_table(lake.spark, "t", policy, keep_going=True)
    assert [problem["unit"] for problem in report.problems] == ([lost.unit] if kind == "unit_verified" else [])
    assert any(f"run {first} was skipped" in line for line in report.warnings)
    for problem in report.problems:
        resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "its rows are in the table"))
    assert encrypt_table(lake.spark, "t", policy).outcome == "nothing to do"
    with past_runs(lake.spark, "t", policy, "accept") as runs:
        pins_given_up, gaps = runs.give_up_lost("the disk was damaged")
        assert not pins_given_up and [f"{lost.name}: is missing"] == gaps
    assert verify_table(lake.spark, "t", policy, manifest=True).ok
    done = expire_run(lake.spark, "t", policy)
    assert first in str(done.unread) and f"{lost.name}: is missing" in str(done.unread)
    assert done.folders and done.run_ids == (second,) and second not in str(done.unread)
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == rows


def test_last_nights_copy_carries_no_late_commit_twice(lake: Lake) -> None:
    """What was carried over after the copy was made is told, and not carried again; nor after the loss is accepted."""
    fill(lake, PARTITIONED["using"])
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    encrypt_table(lake.spark, "t", policy)
    copy = Path(shutil.copytree(states(policy), lake.root / "last-night"))
    rows, files = rows_of(lake.spark.table("t")), files_below(lake)
    leave(lake, lake.path("t") / "p=0", 50)
    assert encrypt_table(lake.spark, "t", policy).outcome == "nothing to do"
    assert ids(lake).count(50) == 1
    for file in files_below(lake) - files:
        if ".sparkcrypt" in file.parts:
            file.unlink()  # the row is erased
    restore(policy, copy)
    report = encrypt_table(lake.spark, "t", policy, keep_going=True)
    assert ids(lake).count(50) == 0
    (problem,) = report.problems
    assert problem["kind"] == "cannot be carried over" and "which the state directory has not" in problem["message"]
    assert [line for line in report.warnings if re.search(OLDER, line)]
    with past_runs(lake.spark, "t", policy, "accept") as runs:
        assert len(runs.give_up_lost("no newer copy is left")[0]) == 1
    again = encrypt_table(lake.spark, "t", policy, keep_going=True)
    assert [opened["problem"] for opened in again.problems] == [problem["problem"]]
    assert not [line for line in again.warnings if re.search(OLDER, line)]
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "its rows are in the table"))
    assert encrypt_table(lake.spark, "t", policy).outcome == "nothing to do"
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == rows

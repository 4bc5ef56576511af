"""ORC tables of which a month was shredded: what readers are told, and what runs still do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import configure, read_table, verify_table
from sparkcrypt.arrow import open_orc
from sparkcrypt.errors import KeyNotFoundError
from sparkcrypt.files.orc import inspect_orc
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.apply_shredding import ShredOptions, shred_keys
from sparkcrypt.runs.keys.check_keys import check_keys
from sparkcrypt.runs.keys.find_shreddable import Selection
from sparkcrypt.runs.keys.rotate import rotate_key
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.passes.key_status import key_statuses
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.schema import join_dotted
from sparkcrypt.spark.tables.tagging import set_tags, unset_tags
from tests.spark.restored_state import restore
from tests.spark.shredding import by_key, plan_shredding, state_of
from tests.spark.support import Lake, key_service, refusal, rows_of
from tests.unit.orc.dark_parts import parts_of

pytestmark = pytest.mark.spark
OLD, NEW = "contact_2025_01", "contact_2026_10"
"""Keys of months: the first is past a retention of 400 days."""
DAY, NEW_DAY = "2025-01-05", "2026-10-01"
TAGS = """
  pii: {key: pii}
  contact: {key: "contact_{d:%Y_%m}", retention: 400d}
"""
COLUMNS = "id INT, email STRING, ssn STRING, who STRUCT<mail: STRING, age: INT>, tels ARRAY<STRING>, d STRING"
DARK = {"email": OLD, "who.mail": OLD, "tels._elem": OLD}
WITHOUT = [1, None, "s1", {"mail": None, "age": 1}, None]
"""The row of the month that is shredded, as it can be read."""
WITH = [2, "e2", "s2", {"mail": "m2", "age": 2}, ["t2"]]


@pytest.fixture
def policy(lake: Lake) -> Policy:
    """An ORC table ``o`` of two months, one of them shredded, under a policy that has tables by their names."""
    policy = lake.policy(TAGS, keys=("audit", OLD, NEW), more="audit: {key: audit}\nformats: [parquet, orc]")
    lake.sql(f"CREATE TABLE o ({COLUMNS}) USING orc PARTITIONED BY (d)")
    tags = {"email": ["contact"], "who.mail": ["contact"], "tels": ["contact"], "ssn": ["pii"]}
    set_tags(lake.spark, "o", tags, policy)
    for day, n in ((DAY, 1), (NEW_DAY, 2)):
        who = f"named_struct('mail', 'm{n}', 'age', {n})"
        lake.sql(f"INSERT INTO o SELECT {n}, 'e{n}', 's{n}', {who}, array('t{n}'), '{day}'")
    (dark,) = by_key(plan_shredding(lake, policy, "o"))[OLD].dark
    assert (dark.partitions, dark.columns) == ((f"d={DAY}",), ("email", "tels.list.element", "who.mail"))
    assert (dark.files, dark.rows) == (1, 1)
    report = shred_keys(lake.spark, policy, Selection(("o",)), ShredOptions("over"), confirm=lambda _: None)
    assert [key.key_id for key in report.shredded] == [OLD]
    return policy


def file_of(lake: Lake, day: str) -> Path:
    """Return the one file of a day that is in use."""
    lake.sql("REFRESH TABLE o")
    (name,) = (name for name in lake.spark.table("o").inputFiles() if f"d={day}" in name)
    return Path(name.removeprefix("file://"))


def keys_of(file: Path) -> dict[str, str | None]:
    """Return the encrypted leaf columns of a file, with their keys."""
    columns = inspect_orc(file).columns.items()
    return {join_dotted(path): column.key_id for path, column in columns if column.encrypted}


def dark_parts(file: Path) -> list[object]:
    """Return all that a file holds of its dark columns."""
    return parts_of(file, [path for path, column in inspect_orc(file).columns.items() if column.key_id == OLD])


def readable(lake: Lake, policy: Policy, **more: Any) -> list[list[Any]]:
    """Return the rows as a soft read gives them."""
    lake.sql("REFRESH TABLE o")
    frame = read_table(lake.spark, "o", policy, on_denied="mask", **more).drop("d")
    rows = [list(row.asDict(recursive=True).values()) for row in rows_of(frame)]
    configure(lake.spark, policy)
    return rows


def run(**more: Any) -> PassOptions:
    """Ask for a pass."""
    return PassOptions(RunOptions(keep_going=True, **more))


def test_readers_are_told_and_read_other_columns(lake: Lake, policy: Policy) -> None:
    """By SQL and by `open_orc`: an error that says when and why, null where that is asked for; all else is read."""
    file = file_of(lake, DAY)
    for said in (
        refusal(lambda: lake.sql("SELECT email FROM o").collect()),
        refusal(lambda: lake.sql("SELECT who.mail FROM o").collect()),
        refusal(lambda: open_orc(str(file), policy, ["email"], table=lake.name("o"))),
    ):
        assert "KeyNotFoundError" in said
        assert f"cannot be read by anybody any more: its key '{OLD}' is not there" in said
        assert "the state directory says that it was shredded on 20" in said and "'over'" in said
    found = rows_of(lake.sql("SELECT id, ssn, who.age FROM o"))
    assert [tuple(row) for row in found] == [(1, "s1", 1), (2, "s2", 2)]
    assert readable(lake, policy) == [WITHOUT, WITH]
    assert open_orc(str(file), policy, ["id", "ssn"], table=lake.name("o")).to_table().to_pylist() == [
        {"id": 1, "ssn": "s1"}
    ]
    soft = open_orc(str(file), policy, on_denied="mask", table=lake.name("o"))
    assert list(soft.to_table().to_pylist()[0].values()) == WITHOUT
    assert soft.masked == dict.fromkeys(("email", "who.mail", "tels"), f"key {OLD} of tag contact is shredded")


def test_dark_files_are_verified_and_counted(lake: Lake, policy: Policy) -> None:
    """Every other stream is read, and a damaged one found; keys that are gone are counted, a missing one fails."""
    checked = verify_table(lake.spark, "o", policy)
    assert (checked.ok, checked.drift, checked.authenticated) == (True, (), "partial")
    told = [note for note in checked.notes if "cannot be read in some files" in note]
    assert len(told) == 3 and all(f"key '{OLD}' was shredded by" in note for note in told)
    counted = check_keys(lake.spark, policy, tables=["o"])
    assert (counted.exit_code, counted.tables[0].to_dict()["dark"]) == (0, {OLD: 1})
    assert OLD not in counted.tables[0].key_ids
    with pytest.raises(KeyNotFoundError, match=f"'{OLD}' was shredded by .*: over; a shredded key"):
        rotate_key(lake.spark, policy, OLD, tables=["o"])
    key_service(policy).delete_key(NEW)
    missing = verify_table(lake.spark, "o", policy)
    assert (missing.ok, [difference.kind for difference in missing.drift]) == (False, ["unreadable"])


def test_late_rows_go_under_their_own_key_and_keep_it(lake: Lake, policy: Policy) -> None:
    """Refused where the policy names none; a run that writes their files anew leaves them under the key they have."""
    key_service(policy).create("late_contact_2025_11")
    row = f"INSERT INTO o SELECT 3, 'e3', 's3', named_struct('mail', 'm3', 'age', 3), array('t3'), '{DAY}'"
    said = refusal(lambda: lake.sql(row.replace(DAY, "2025-02-05")))  # no KEK of that month's key is cached
    assert "'contact_2025_02'" in said and "KeyNotFoundError" in said
    policy = lake.changed("retention: 400d}", "retention: 400d, late_data: late_contact_2025_11}")
    lake.sql(row)
    policy = lake.changed("late_data: late_contact_2025_11", 'late_data: "late_contact_{written:%Y_%m}"')
    assert verify_table(lake.spark, "o", policy).drift == ()
    set_tags(lake.spark, "o", {"id": ["pii"]}, policy)
    done = backfill(lake.spark, policy, tables=["o"], options=run())
    assert (done.outcome, done.tables[0].files_rewritten) == ("done", 3)
    lake.sql("REFRESH TABLE o")
    files = [Path(name.removeprefix("file://")) for name in lake.spark.table("o").inputFiles() if f"d={DAY}" in name]
    keys = sorted((keys_of(file) for file in files), key=str)
    late = dict.fromkeys(DARK, "late_contact_2025_11")
    assert keys == [{"id": "pii", "ssn": "pii", **found} for found in (DARK, late)]
    assert backfill(lake.spark, policy, tables=["o"], options=run()).outcome == "nothing to do"
    (told,) = plan_shredding(lake, policy, "o").to_dict()["late_data"]
    assert (told["key_id"], told["tables"][0]["rows"]) == ("late_contact_2025_11", 1)


def test_runs_carry_dark_columns(lake: Lake, policy: Policy, copies: dict[str, Path]) -> None:
    """Others are rewrapped, get new local keys, are encrypted and decrypted; what is dark stays byte for byte."""
    before = dark_parts(file_of(lake, DAY))
    told = [{"column": column, "key_id": OLD, "files": 1, "rows": 1} for column in sorted(DARK)]
    set_tags(lake.spark, "o", {"who.age": ["pii"], "id": ["pii"]}, policy)
    unset_tags(lake.spark, "o", ["ssn"])
    dry = backfill(lake.spark, policy, tables=["o"], options=run(dry_run=True)).tables[0]
    assert "quarantine" not in {action for unit in dry.planned for action in unit["actions"]}
    done = backfill(lake.spark, policy, tables=["o"], options=run(allow_decrypt=True))
    assert (done.outcome, done.tables[0].files_rewritten, done.tables[0].quarantined) == ("done", 2, ())
    assert keys_of(file_of(lake, DAY)) == {**DARK, "id": "pii", "who.age": "pii"}
    assert dark_parts(file_of(lake, DAY)) == before
    assert readable(lake, policy) == [WITHOUT, WITH]
    assert verify_table(lake.spark, "o", policy, manifest=True).ok

    now = file_of(lake, DAY).read_bytes()
    restore(policy, copies["unit_staged"], locks=False)
    (adopted,) = backfill(lake.spark, policy, tables=["o"], options=run(allow_decrypt=True)).tables
    assert all("proven anew" in unit["notes"][0] for unit in adopted.units)
    assert [unit["dark_columns"] for unit in adopted.units if unit["unit"] == f"d={DAY}"] == [told]
    assert file_of(lake, DAY).read_bytes() == now

    done = rotate_key(lake.spark, policy, "pii", tables=["o"])
    assert (done.outcome, done.tables[0].files_rewritten, done.tables[0].quarantined) == ("done", 2, ())
    assert [unit["dark_columns"] for unit in done.tables[0].units if unit["unit"] == f"d={DAY}"] == [told]
    assert any(f"column email stayed as it is, under the shredded key '{OLD}'" in w for w in done.tables[0].warnings)
    assert dark_parts(file_of(lake, DAY)) == before

    unset_tags(lake.spark, "o", ["id", "who.age"])
    done = backfill(lake.spark, policy, tables=["o"], options=run(allow_decrypt=True))
    assert keys_of(file_of(lake, DAY)) == DARK
    assert dark_parts(file_of(lake, DAY)) == before
    assert backfill(lake.spark, policy, tables=["o"], options=run()).outcome == "nothing to do"
    rollback_run(lake.spark, "o", policy, str(done.tables[0].run_id))
    assert keys_of(file_of(lake, DAY)) == {**DARK, "id": "pii", "who.age": "pii"}
    assert readable(lake, policy) == [WITHOUT, WITH]
    statuses = {status.key_id: status for status in key_statuses(state_of(policy), key_service(policy), policy)}
    assert {key: statuses[key].amount.files for key in (OLD, NEW)} == {OLD: 1, NEW: 1}
    assert statuses[OLD].tombstone is not None and statuses[OLD].described is None


def test_purge_puts_nulls_in_their_place(lake: Lake, policy: Policy, copies: dict[str, Path]) -> None:
    """Every reader sees nulls then, without an error or a key; report and footer say which, later runs leave them."""
    dry = backfill(lake.spark, policy, tables=["o"], options=run(purge=True, dry_run=True)).tables[0]
    assert [unit["actions"].keys() for unit in dry.planned] == [{"purge"}]
    set_tags(lake.spark, "o", {"who.mail": ["pii"]}, policy)
    done = backfill(lake.spark, policy, tables=["o"], options=run(purge=True))
    assert (done.outcome, done.tables[0].quarantined) == ("done", ())
    told = [{"column": column, "key_id": OLD, "files": 1, "rows": 1} for column in sorted(DARK)]
    assert [unit["purged_columns"] for unit in done.tables[0].units if unit["unit"] == f"d={DAY}"] == [told]
    keys = {"email": "footer", "tels._elem": "footer", "who.mail": "pii", "ssn": "pii"}
    assert keys_of(file_of(lake, DAY)) == keys
    lake.sql("REFRESH TABLE o")
    rows = [list(row.asDict(recursive=True).values())[:5] for row in rows_of(lake.sql("SELECT * FROM o"))]
    assert rows == [WITHOUT, WITH]
    assert lake.sql("SELECT id FROM o WHERE email IS NULL").count() == 1
    assert lake.sql("SELECT id FROM o WHERE email = 'e1'").count() == 0
    assert verify_table(lake.spark, "o", policy, manifest=True).ok
    assert check_keys(lake.spark, policy, tables=["o"]).tables[0].to_dict()["dark"] == {}

    now = file_of(lake, DAY).read_bytes()
    restore(policy, copies["unit_staged"], locks=False)
    (adopted,) = backfill(lake.spark, policy, tables=["o"], options=run(purge=True)).tables
    assert all("proven anew" in unit["notes"][0] for unit in adopted.units)
    assert [unit["purged_columns"] for unit in adopted.units if unit["unit"] == f"d={DAY}"] == [told]
    assert file_of(lake, DAY).read_bytes() == now
    for options in (run(), run(purge=True)):
        assert backfill(lake.spark, policy, tables=["o"], options=options).outcome == "nothing to do"
    assert rotate_key(lake.spark, policy, "footer", tables=["o"]).outcome == "done"
    set_tags(lake.spark, "o", {"id": ["pii"]}, policy)
    assert backfill(lake.spark, policy, tables=["o"], options=run()).outcome == "done"
    assert keys_of(file_of(lake, DAY)) == {**keys, "id": "pii"}
    with lake.stranger() as stranger:
        stranger.sql("REFRESH TABLE o")
        (row,) = stranger.sql(f"SELECT email, who, tels FROM o WHERE d = '{DAY}'").collect()
    assert (row.email, row.who.mail, row.tels) == (None, None, None)

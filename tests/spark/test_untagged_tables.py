"""Tables and files that are odd: without tags, without rows, with tags on a part of a group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sparkcrypt
from sparkcrypt import encrypt_table, index_table, verify_table
from sparkcrypt.arrow import read_table
from sparkcrypt.errors import SparkcryptError, VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.rotate import rotate_key
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.passes.plan import plan_target
from sparkcrypt.runs.rewrite.options import Engine, RunOptions
from sparkcrypt.runs.table.target import catalog_target
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.planning import find_tags_without_effect
from sparkcrypt.spark.tables.tagging import set_tags, unset_tags
from tests.spark.stored_tables import settle
from tests.spark.support import (
    SECRET,
    Lake,
    assert_encrypted,
    assert_plaintext,
    data_files,
    footers,
    rows_of,
    with_keys,
    without_keys,
)
from tests.spark.tables import PARTITIONED, make_table, tagged

pytestmark = pytest.mark.spark


def planned(lake: Lake, policy: Policy, table: str = "t") -> Any:
    """Return the plan of a table."""
    return plan_target(lake.spark, catalog_target(lake.spark, Catalog(lake.spark).table(table), policy, None), policy)


def passed(lake: Lake, policy: Policy, **run: Any) -> Any:
    """Run a pass over the database."""
    options = PassOptions(run=RunOptions(keep_going=True, **run), changed=True)
    return backfill(lake.spark, policy, databases=[lake.database], options=options)


def test_untagged_table_is_an_outcome_of_its_own(lake: Lake) -> None:
    """With no tag, and with one that means plaintext: plan, run, verification and passes call it untagged, with 0."""
    policy = lake.policy()
    make_table(lake, "plain", partitions=0, tagged=None)
    make_table(lake, "public", partitions=0, tagged=None)
    set_tags(lake.spark, "public", {"email": ["public"]}, policy)
    make_table(lake, "secret", partitions=0)
    for name in ("plain", "public"):
        made = planned(lake, policy, name)
        assert (made.outcome, made.to_dict()["outcome"], made.exit_code) == ("untagged", "untagged", 0)
        assert "none of its 3 columns has a tag" in made.to_text() and "match" not in made.to_text()
        found = verify_table(lake.spark, name, policy)
        assert (found.untagged, found.to_dict()["verified"], found.authenticated) == (True, False, "nothing")
    report = encrypt_table(lake.spark, "public", policy)
    assert (report.outcome, report.verified, report.data_columns) == ("untagged", False, 3)
    for _ in range(2):  # a pass over what has changed names them each time
        done = passed(lake, policy)
        assert [table.table for table in done.tables if table.untagged] == [lake.name("plain"), lake.name("public")]
        assert (done.totals()["untagged"], done.exit_code) == (2, 0)
        assert f"untagged, so nothing in them is encrypted: {lake.name('plain')}" in done.to_text()
    assert not verify_table(lake.spark, "secret", policy).untagged


def unset(lake: Lake, policy: Policy) -> Policy:
    """Take the tags off the column."""
    unset_tags(lake.spark, "t", ["email"])
    return policy


def declared_plaintext(lake: Lake, policy: Policy) -> Policy:
    """Change the tag's meaning in the policy."""
    return lake.changed("pii: {key: pii}", "pii: plaintext")


@pytest.mark.parametrize("taken_away", [unset, declared_plaintext])
def test_nothing_is_decrypted_without_consent(lake: Lake, taken_away: Any) -> None:
    """The unit stays encrypted and is named with the column; with the option it is decrypted."""
    policy, before = tagged(lake, PARTITIONED["using"])
    make_table(lake, "u", partitions=0)
    encrypt_table(lake.spark, "t", policy)
    changed = taken_away(lake, policy)
    if taken_away is declared_plaintext:
        set_tags(lake.spark, "u", {"email": ["fin"]}, changed)
    dry = passed(lake, changed, dry_run=True)
    assert "without --allow-decrypt" in dry.to_text()
    report = passed(lake, changed)
    t, u = report.tables
    assert (report.exit_code, t.outcome, t.untagged, u.outcome) == (74, "incomplete", False, "done")
    assert {unit["unit"] for unit in t.quarantined} == {"p=0", "p=1"}
    assert all("column email" in unit["message"] and "--allow-decrypt" in unit["message"] for unit in t.quarantined)
    with pytest.raises(VerificationError, match="--allow-decrypt"):
        encrypt_table(lake.spark, "t", changed)
    places = [
        place.location.removeprefix("file:") for place in Catalog(lake.spark).partitions(Catalog(lake.spark).table("t"))
    ]
    for place in places:
        assert_encrypted(place, policy, {"email": "pii"}, visible=())
    if taken_away is unset:  # readers under a policy that names no history of the key refuse the files until then
        assert rows_of(lake.spark.table("t")) == before
    assert encrypt_table(lake.spark, "t", changed, allow_decrypt=True).outcome == "done"
    places = [
        place.location.removeprefix("file:") for place in Catalog(lake.spark).partitions(Catalog(lake.spark).table("t"))
    ]
    for place in places:
        assert_plaintext(place)
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert passed(lake, changed).exit_code == 0


def test_tags_without_effect_are_named(lake: Lake) -> None:
    """Where nothing reads them, for columns that are not there, in formats without keys; in another case they count."""
    policy = lake.policy()
    tag = "'parquet.sparkcrypt.tags.{}' = 'pii'"
    lake.sql("CREATE TABLE t (id INT, email STRING) USING parquet")
    lake.sql(f"ALTER TABLE t SET TBLPROPERTIES ({tag.format('email')})")
    lake.sql(f"CREATE TABLE u (id INT, email STRING) USING parquet OPTIONS ({tag.format('EMAIL')})")
    lake.sql(f"CREATE TABLE v (id INT, email STRING) USING csv OPTIONS ({tag.format('email')})")
    lake.sql(f"CREATE TABLE w (id INT, email STRING) USING parquet OPTIONS ({tag.format('mail')})")
    lake.sql(f"CREATE TABLE x (id INT) STORED AS PARQUET TBLPROPERTIES ({tag.replace('tags', 'TAGS').format('id')})")
    told = {
        name: " ".join(find_tags_without_effect(lake.spark, Catalog(lake.spark).table(name), policy))
        for name in "tuvwx"
    }
    assert "stands in TBLPROPERTIES" in told["t"] and f"`sparkcrypt tags set {lake.name('t')} email pii`" in told["t"]
    assert not told["u"] and [column.leaf.dotted for column in planned(lake, policy, "u").plan.encrypted] == ["email"]
    assert "its format is csv, so its tags would encrypt nothing" in told["v"]
    assert "column mail is tagged pii" in told["w"]
    assert "is not read: a tag's name begins with parquet.sparkcrypt.tags." in told["x"]
    assert planned(lake, policy).outcome == "untagged" and "tag without effect: " in planned(lake, policy).to_text()
    assert any("stands in TBLPROPERTIES" in text for text in encrypt_table(lake.spark, "t", policy).warnings)
    text = passed(lake, policy, dry_run=True).to_text()
    for part in ("stands in TBLPROPERTIES", "its format is csv", "failed: " + lake.name("w"), "is not read"):
        assert part in text


MORE = "formats: [parquet, orc]\nindex: {location: indexes/}\n"
CASES: dict[str, tuple[str, str, Engine]] = {
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
    assert f"0 bytes, which hold no row and are left out: file:{empty[0]}" in planned.to_text()
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


COLUMNS = (
    "k MAP<STRING, STRING>, v MAP<STRING, STRING>, l ARRAY<STRUCT<x: STRING, y: INT>>, s STRUCT<m: MAP<STRING, INT>>"
)
VALUES = f"map('{SECRET}-k', 'a'), map('b', '{SECRET}-v'), array(named_struct('x', '{SECRET}-x', 'y', 1), null), "
TAGS = {"k.key": ["pii"], "v.value": ["pii"], "l.element.x": ["fin"], "s.m.value": ["pii"]}
ENCRYPTED = {"k.key_value.key", "v.key_value.value", "l.list.element.x", "s.m.key_value.value"}


def make(lake: Lake) -> list[Any]:
    """Make a plaintext table, and return its rows."""
    with lake.stranger() as stranger:
        stranger.sql(f"CREATE TABLE t (id INT, {COLUMNS}) USING parquet")
        stranger.sql(f"INSERT INTO t SELECT 1, {VALUES} named_struct('m', map('c', 7))")
        return rows_of(stranger.table("t"))


@pytest.mark.sparks
def test_only_tagged_leaves_are_encrypted(lake: Lake) -> None:
    """Neither a map's other half nor a list's other fields get the tags, and rows stay."""
    policy, rows = lake.policy(), make(lake)
    set_tags(lake.spark, "t", TAGS, policy)
    assert encrypt_table(lake.spark, "t", policy, engine="spark").outcome == "done"
    (found,) = footers(lake.root / "db" / "t", policy)
    assert {".".join(path) for path, column in (found.columns or {}).items() if column.key_id} == ENCRYPTED
    assert rows_of(lake.spark.table("t")) == rows
    assert encrypt_table(lake.spark, "t", policy, engine="spark").outcome == "nothing to do"
    assert verify_table(lake.spark, "t", policy).ok


def test_nulls_of_a_reader_are_not_written(lake: Lake) -> None:
    """A run in a session that has nulls in place of denied columns is refused, and changes nothing."""
    policy, rows = lake.policy(), make(lake)
    set_tags(lake.spark, "t", {"k.key": ["pii"]}, policy)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    set_tags(lake.spark, "t", TAGS, policy)
    poor = with_keys(policy, lake.root / "poor", without_keys("pii"))
    session = sparkcrypt.session(poor, on_denied="mask")
    session.sql(f"USE {lake.database}")
    with pytest.raises(SparkcryptError):
        encrypt_table(session, "t", poor, engine="spark")
    assert rows_of(lake.spark.table("t")) == rows

"""Untagged is not encrypted: it is said so, tags that have no effect are named, and nothing is decrypted unasked."""

from __future__ import annotations

from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.cli.frame.pass_text import pass_text
from sparkcrypt.cli.tables.plan import plan_text
from sparkcrypt.errors import VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.passes.plan import plan_target
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.table.target import catalog_target
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.planning import find_tags_without_effect
from sparkcrypt.spark.tables.tagging import set_tags, unset_tags
from tests.spark.support import Lake, assert_encrypted, assert_plaintext, rows_of
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
        assert "none of its 3 columns has a tag" in plan_text(made) and "match" not in plan_text(made)
        found = verify_table(lake.spark, name, policy)
        assert (found.untagged, found.to_dict()["verified"], found.authenticated) == (True, False, "nothing")
    report = encrypt_table(lake.spark, "public", policy)
    assert (report.outcome, report.verified, report.data_columns) == ("untagged", False, 3)
    for _ in range(2):  # a pass over what has changed names them each time
        done = passed(lake, policy)
        assert [table.table for table in done.tables if table.untagged] == [lake.name("plain"), lake.name("public")]
        assert (done.totals()["untagged"], done.exit_code) == (2, 0)
        assert f"untagged, so nothing in them is encrypted: {lake.name('plain')}" in pass_text(done)
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
    assert "without --allow-decrypt" in pass_text(dry)
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
    assert planned(lake, policy).outcome == "untagged" and "tag without effect: " in plan_text(planned(lake, policy))
    assert any("stands in TBLPROPERTIES" in text for text in encrypt_table(lake.spark, "t", policy).warnings)
    text = pass_text(passed(lake, policy, dry_run=True))
    for part in ("stands in TBLPROPERTIES", "its format is csv", "failed: " + lake.name("w"), "is not read"):
        assert part in text

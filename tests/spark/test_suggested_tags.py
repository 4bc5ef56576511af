"""Suggestions of tags for a real table, and what `tags apply` makes of them."""

from __future__ import annotations

import json

import pytest

from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.sessions import run_command
from tests.spark.support import Lake, make_policy

pytestmark = pytest.mark.spark


def test_suggestions_of_a_real_table(lake: Lake) -> None:
    """By names and by values, which are nowhere in the answer; `tags apply` takes the file."""
    policy = make_policy(lake.root / "p")
    file, rules = ["--policy", str(lake.root / "p" / "policy.yaml")], str(lake.root / "suggested.yaml")
    with lake.stranger() as stranger:
        stranger.sql("CREATE TABLE s (id INT, c1 STRING, home STRUCT<street: STRING>, email STRING) USING parquet")
        stranger.sql(
            "INSERT INTO s SELECT int(id), concat('u', id, '@example.org'), named_struct('street', 'x'), 'n' "
            "FROM range(9)"
        )
    set_tags(lake.spark, "s", {"email": ["pii"]}, policy)
    done = run_command(lake, "tags", "suggest", lake.name("s"), *file, "--output", rules)
    assert done.exit_code == 0 and "example.org" not in done.output, done.output
    assert "c1: pii: email: 9 of 9 sampled values" in done.output and "home.street: pii: address" in done.output
    assert "example.org" not in (lake.root / "suggested.yaml").read_text()
    applied = run_command(lake, "tags", "apply", rules, *file, "--json")
    assert applied.exit_code == 0, applied.output
    (change,) = json.loads(applied.stdout)["changes"]
    assert set(change["tags"]) == {"c1", "home.street"}

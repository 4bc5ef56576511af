"""Tables that are named, selected and left out, on a real catalog."""

from __future__ import annotations

import json

import pytest

from tests.spark.sessions import run_command
from tests.spark.support import Lake, make_policy
from tests.spark.tables import make_table

pytestmark = pytest.mark.spark


def test_names_and_filters_on_a_real_catalog(lake: Lake) -> None:
    """A name without its database is found in the others; a wrong one has the similar ones; tags and names filter."""
    assert make_policy(lake.root / "p").tags
    make_table(lake, "t", partitions=2)
    make_table(lake, "only_here", partitions=0, tagged=None)
    file = ["--policy", str(lake.root / "p" / "policy.yaml")]
    current = lake.spark.catalog.currentDatabase()
    lake.spark.sql("USE default")
    try:
        found = run_command(lake, "tags", "show", "only_here", "--json")
    finally:
        lake.spark.sql(f"USE {current}")
    assert json.loads(found.stdout)["table"] == lake.name("only_here"), found.output
    wrong = run_command(lake, "tags", "show", lake.name("only_heer"))
    assert wrong.exit_code == 65 and f"did you mean {lake.name('only_here')}" in wrong.output, wrong.output
    chosen = ["plan", "--database", lake.database, *file, "--json"]
    tagged = run_command(lake, *chosen, "--select", "tag:PII")
    assert [table["table"] for table in json.loads(tagged.stdout)["tables"]] == [lake.name("t")], tagged.output
    left = run_command(lake, *chosen, "--exclude", "t")
    assert [table["table"] for table in json.loads(left.stdout)["tables"]] == [lake.name("only_here")], left.output
    view = f"CREATE VIEW v AS SELECT id FROM {lake.name('t')}"
    lake.sql(view)
    refused = run_command(lake, "tags", "set", lake.name("v"), "id", "pii")
    assert refused.exit_code == 65 and "SHOW CREATE TABLE" in refused.output, refused.output

"""What people's tags require of a name outlives a DROP by another application, until it is forgotten."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from sparkcrypt.cli.runs.past_runs import status
from sparkcrypt.cli.tables.tags import tags as command
from sparkcrypt.errors import PlanError
from sparkcrypt.names import NAME_PREFIX, PREDECESSOR, TAGS_PREFIX
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.spark.jvm.gateway import java_session
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.remembered_names import expire_names, forget_tags, remembered_names
from sparkcrypt.spark.tables.tagging import set_tags, unset_tags
from tests.spark.support import PLAIN, SECRET, Lake, assert_encrypted, assert_plaintext, refusal

pytestmark = [pytest.mark.spark, pytest.mark.sparks]
ROW = f"SELECT 1 AS id, '{SECRET}' AS email, '{PLAIN}' AS note"


def made(lake: Lake, policy: Policy) -> str:
    """Make table ``t`` with a tag and a row, and return its UUID."""
    lake.sql("CREATE TABLE t (id INT, email STRING, note STRING) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    lake.sql(f"INSERT INTO t {ROW}")
    return str(Catalog(lake.spark).table("t").uuid)


def drop_elsewhere(lake: Lake) -> None:
    """Drop ``t`` in the metastore, unnoticed by this application."""
    metastore = java_session(lake.spark).sharedState().externalCatalog().unwrapped()
    metastore.dropTable(lake.database, "t", False, False)


def passed(lake: Lake, policy: Policy, *, dry_run: bool) -> tuple[int, dict[str, str]]:
    """Run a pass over ``t``; return its exit code and the tables that it refused."""
    run = RunOptions(keep_going=True, dry_run=dry_run)
    report = backfill(lake.spark, policy, databases=[lake.database], options=PassOptions(run=run))
    return report.exit_code, dict(report.refused)


def invoke(*arguments: str) -> Any:
    """Run `sparkcrypt tags …`; return the JSON that it prints."""
    done = CliRunner().invoke(command, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def status_of(lake: Lake, table: str, *more: str) -> Any:
    """Run `sparkcrypt backfill status` under the last created policy."""
    file = max(lake.root.glob("policy-*")) / "policy.yaml"
    return CliRunner().invoke(status, ["--table", lake.name(table), "--policy", str(file), *more])


def test_name_outlives_a_drop_elsewhere(lake: Lake) -> None:
    """A table that is made here after another application dropped it has the tags that were set for its name."""
    policy = lake.policy()
    first = made(lake, policy)
    drop_elsewhere(lake)
    lake.sql(f"CREATE TABLE plain USING parquet AS {ROW}")
    assert "tags set" in refusal(lake.sql, "ALTER TABLE plain RENAME TO t")
    lake.sql(f"CREATE TABLE t USING parquet AS {ROW}")
    assert_encrypted(lake.path("t"), policy, {"email": "pii"})
    assert Catalog(lake.spark).table("t").properties[PREDECESSOR] == first
    assert set(remembered_names(lake.spark, lake.database)) == {"t"}


def test_tags_that_are_lost(lake: Lake) -> None:
    """A table made anew without the extension is refused by plans and passes, until an overwrite has the tags again."""
    policy = lake.policy()
    made(lake, policy)
    drop_elsewhere(lake)
    with lake.stranger() as stranger:
        stranger.sql(f"CREATE TABLE t USING parquet AS {ROW}")
    told = f"{lake.name('t')}: tags lost: email: pii"
    for dry_run, code_of_status in ((True, 78), (False, 74)):
        code, refused = passed(lake, policy, dry_run=dry_run)
        assert code == 74
        assert "tags lost: email: pii" in refused[lake.name("t")]
        done = status_of(lake, "t")  # without a run there is nothing else to say
        assert done.exit_code == code_of_status
        assert (told in done.output) is not dry_run
    lake.sql(ROW).write.mode("overwrite").format("parquet").saveAsTable("t")
    assert_encrypted(lake.path("t"), policy, {"email": "pii"})
    assert passed(lake, policy, dry_run=False) == (0, {})
    assert status_of(lake, "t").exit_code == 78


def test_status_names_tags_that_are_lost(lake: Lake) -> None:
    """From the pass that found it to the one that finds the tags set again, or the table gone, without Spark."""
    policy = lake.policy()
    made(lake, policy)
    backfill(lake.spark, policy, tables=["t"])
    set_tags(lake.spark, "t", {"note": ["fin"]}, policy)
    assert (passed(lake, policy, dry_run=False)[0], status_of(lake, "t").exit_code) == (0, 0)
    for setting_right in ("set", "drop"):
        drop_elsewhere(lake)
        with lake.stranger() as stranger:
            stranger.sql(f"CREATE TABLE t USING parquet AS {ROW}")
        assert passed(lake, policy, dry_run=False)[0] == 74
        done = status_of(lake, "t", "--json")
        assert done.exit_code == 74
        (line,) = json.loads(done.stdout)["tags_lost"]
        assert line.startswith(f"{lake.name('t')}: tags lost: email: pii; note: fin;") and "tags set" in line
        if setting_right == "set":
            set_tags(lake.spark, "t", {"email": ["pii"], "note": ["fin"]}, policy)
        else:
            lake.sql("DROP TABLE t")
        assert status_of(lake, "t").exit_code == 74
        assert passed(lake, policy, dry_run=False)[0] == 0
        assert json.loads(status_of(lake, "t", "--json").stdout)["tags_lost"] == []


def test_tags_of_one_column_by_names_in_two_cases_are_not_lost(lake: Lake) -> None:
    """A property that names a column in another case adds to its tags; none of them hides another."""
    policy = lake.policy()
    made(lake, policy)
    set_tags(lake.spark, "t", {"note": ["pii"]}, policy)
    lake.sql(f"ALTER TABLE t SET SERDEPROPERTIES ('{TAGS_PREFIX}NOTE' = 'fin')")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    assert remembered_names(lake.spark, lake.database)["t"].tags == {"email": ("pii",), "note": ("pii", "fin")}
    assert passed(lake, policy, dry_run=False) == (0, {})


def test_forgotten(lake: Lake) -> None:
    """`tags unset` removes what a name requires, and so does `tags forget` where the table is gone."""
    policy = lake.policy()
    made(lake, policy)
    assert "tags unset" in refusal(forget_tags, lake.spark, "t")
    lake.sql("DROP TABLE t")
    assert invoke("names", lake.database)["names"]["t"]["tags"] == {"email": ["pii"]}
    assert invoke("forget", lake.name("t"))["forgotten"] == {"email": ["pii"]}
    assert invoke("names", lake.database)["names"] == {}
    lake.sql(f"CREATE TABLE t USING parquet AS {ROW}")
    assert_plaintext(lake.path("t"))
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    unset_tags(lake.spark, "t", ["email"])
    drop_elsewhere(lake)
    lake.sql(f"CREATE TABLE t USING parquet AS {ROW}")
    assert_plaintext(lake.path("t"))


def test_names_without_a_table_expire(lake: Lake) -> None:
    """A pass notes that a table is gone, and one 91 days later forgets its name, unless it is back."""
    policy = lake.policy()
    made(lake, policy)
    lake.sql("CREATE TABLE other (id INT, email STRING) USING parquet")
    set_tags(lake.spark, "other", {"email": ["pii"]}, policy)
    drop_elsewhere(lake)
    assert passed(lake, policy, dry_run=False) == (0, {})
    record = remembered_names(lake.spark, lake.database)["t"]
    assert record.gone is not None
    day = date.fromisoformat(record.gone)
    expire_names(lake.spark, lake.database, day + timedelta(days=90))
    assert set(remembered_names(lake.spark, lake.database)) == {"other", "t"}
    expire_names(lake.spark, lake.database, day + timedelta(days=91))
    assert set(remembered_names(lake.spark, lake.database)) == {"other"}


def test_records(lake: Lake) -> None:
    """Derived tables have none, a long one is kept whole, and a damaged one refuses a table until it is forgotten."""
    policy = lake.policy()
    columns = [f"column_with_quite_a_long_name_{number}" for number in range(120)]
    lake.sql(f"CREATE TABLE t ({', '.join(f'{name} STRING' for name in columns)}) USING parquet")
    set_tags(lake.spark, "t", {name: ["pii"] for name in columns}, policy)
    lake.sql("CREATE TABLE derived USING parquet AS SELECT * FROM t")
    assert {name: set(record.tags) for name, record in remembered_names(lake.spark, lake.database).items()} == {
        "t": set(columns)
    }
    drop_elsewhere(lake)
    lake.sql(f"CREATE TABLE t USING parquet AS SELECT '{SECRET}' AS {columns[-1]}, '{PLAIN}' AS note")
    assert_encrypted(lake.path("t"), policy, {columns[-1]: "pii"})
    lake.sql("DROP TABLE t")
    for damaged in ('{"tags":{},"require_encryption":true,"uuid":null,"gone":5}', "["):
        lake.sql(f"ALTER DATABASE {lake.database} SET DBPROPERTIES ('{NAME_PREFIX}t' = '{damaged}')")
        with pytest.raises(PlanError, match="tags forget"):
            remembered_names(lake.spark, lake.database)
    assert f"sparkcrypt tags forget {lake.name('t')}" in refusal(lake.sql, f"CREATE TABLE t USING parquet AS {ROW}")
    forget_tags(lake.spark, "t")
    lake.sql(f"CREATE TABLE t USING parquet AS {ROW}")
    assert_plaintext(lake.path("t"))

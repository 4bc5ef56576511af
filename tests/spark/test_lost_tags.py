"""Tags that are lost, and names that remember them."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.cli.runs.past_runs import status
from sparkcrypt.cli.tables.tags import tags as command
from sparkcrypt.errors import PlanError, VerificationError
from sparkcrypt.names import NAME_PREFIX, PREDECESSOR, TAGS_PREFIX
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.spark.jvm.gateway import java_session
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.remembered_names import expire_names, forget_tags, remembered_names
from sparkcrypt.spark.tables.tagging import set_tags, unset_tags
from sparkcrypt.tags.model import history_property, tag_property
from tests.spark.support import PLAIN, SECRET, Lake, assert_encrypted, assert_plaintext, refusal, rows_of

pytestmark = pytest.mark.spark

COLUMNS = "id INT, email STRING, note STRING"
KINDS = pytest.mark.parametrize("kind", ["USING parquet", "STORED AS PARQUET"])


def written(lake: Lake, kind: str, more: str = "") -> Policy:
    """Make a table that was encrypted as it was written, and never by a run."""
    policy = lake.policy("\n  pii: {key: pii}\n  finance: {key: fin}\n  public: plaintext\n")
    lake.sql(f"CREATE TABLE t ({COLUMNS}) {kind} {more}")
    set_tags(lake.spark, "t", {"email": ["pii"], "note": ["finance"]}, policy)
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}-1', 'a note')")
    assert_encrypted(lake.path("t"), policy, {"email": "pii", "note": "fin"}, visible=())
    return policy


def strip(lake: Lake, kind: str, *columns: str) -> None:
    """Lose the tags of columns in both places, as a table that another engine changes does, and the name's record."""
    catalog = Catalog(lake.spark)
    table = catalog.table("t")
    catalog.unset_options(table, tuple(tag_property((column,)) for column in columns))
    schema = table.schema_json
    for tag in ("pii", "finance") if len(columns) > 1 else ("pii",):
        schema = schema.replace(f'{{"tags":["{tag}"]}}', "{}")
    catalog.set_schema_metadata(catalog.table("t"), schema)
    lake.sql(f"ALTER DATABASE {lake.database} SET DBPROPERTIES ('{NAME_PREFIX}t' = '')")


@KINDS
@pytest.mark.parametrize("lost", [("email",), ("email", "note")], ids=["one", "all"])
def test_columns_whose_tags_are_lost_stay_encrypted(lake: Lake, kind: str, lost: tuple[str, ...]) -> None:
    """Neither a pass nor a run decrypts them, though no run of the table is known; the message names the way."""
    policy = written(lake, kind)
    strip(lake, kind, *lost)
    before = {file: file.read_bytes() for file in lake.path("t").glob("part-*")}
    report = backfill(lake.spark, policy, tables=["t"])
    assert report.outcome == "incomplete"
    (quarantined,) = report.tables[0].quarantined
    assert "column email is encrypted with 'pii', and has no tag and no history" in quarantined["message"]
    with pytest.raises(VerificationError, match="its tags may be lost, and a run would decrypt it"):
        encrypt_table(lake.spark, "t", policy)
    report = backfill(
        lake.spark, policy, tables=["t"], options=PassOptions(run=RunOptions(keep_going=True, adopt=True))
    )
    assert report.outcome == "incomplete"
    assert {file: file.read_bytes() for file in lake.path("t").glob("part-*")} == before


@KINDS
@pytest.mark.parametrize("by_run", [False, True])
def test_tags_that_were_taken_off_decrypt(lake: Lake, kind: str, by_run: bool) -> None:
    """`tags unset` leaves word of it in the column's history, which goes when the whole table is done."""
    policy = written(lake, kind)
    before = rows_of(lake.spark.table("t"))
    if by_run:
        set_tags(lake.spark, "t", {"email": ["finance"]}, policy)
        assert backfill(lake.spark, policy, tables=["t"]).outcome == "done"
    unset_tags(lake.spark, "t", ["email"])
    assert Catalog(lake.spark).table("t").options[history_property(("email",))] == "plaintext"
    allowed = PassOptions(run=RunOptions(keep_going=True, allow_decrypt=True))
    report = backfill(lake.spark, policy, tables=["t"], options=allowed)
    assert (report.outcome, report.tables[0].columns) == ("done", {"note": "fin"})
    assert rows_of(lake.spark.table("t")) == before
    assert not Catalog(lake.spark).table("t").options.get(history_property(("email",)))
    again = backfill(lake.spark, policy, tables=["t"])
    assert (again.outcome, again.refused) == ("nothing to do", {})
    unset_tags(lake.spark, "t", ["note"])
    assert backfill(lake.spark, policy, tables=["t"], options=allowed).outcome == "done"
    assert_plaintext(lake.path("t"))
    assert rows_of(lake.spark.table("t")) == before


def test_column_without_tags_gets_no_history(lake: Lake) -> None:
    """There was nothing to take off."""
    written(lake, "USING parquet")
    unset_tags(lake.spark, "t", ["id"])
    assert history_property(("id",)) not in Catalog(lake.spark).table("t").options


def test_what_is_under_the_footer_key_may_become_plaintext(lake: Lake) -> None:
    """A policy that once encrypted untagged columns too may stop to: such a column never had a tag."""
    everything = lake.policy("\n  pii: {key: pii}\n", untagged="footer_key")
    lake.sql(f"CREATE TABLE t ({COLUMNS}) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, everything)
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}-1', 'a note')")
    policy = lake.changed("untagged: footer_key", "untagged: plaintext")
    with pytest.raises(VerificationError, match="column id, encrypted with 'footer', would be decrypted"):
        encrypt_table(lake.spark, "t", policy)
    assert encrypt_table(lake.spark, "t", policy, allow_decrypt=True).outcome == "done"
    assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=["a note"])
    assert verify_table(lake.spark, "t", policy).ok


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


@pytest.mark.sparks
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


@pytest.mark.sparks
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


@pytest.mark.sparks
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


@pytest.mark.sparks
def test_tags_of_one_column_by_names_in_two_cases_are_not_lost(lake: Lake) -> None:
    """A property that names a column in another case adds to its tags; none of them hides another."""
    policy = lake.policy()
    made(lake, policy)
    set_tags(lake.spark, "t", {"note": ["pii"]}, policy)
    lake.sql(f"ALTER TABLE t SET SERDEPROPERTIES ('{TAGS_PREFIX}NOTE' = 'fin')")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    assert remembered_names(lake.spark, lake.database)["t"].tags == {"email": ("pii",), "note": ("pii", "fin")}
    assert passed(lake, policy, dry_run=False) == (0, {})


@pytest.mark.sparks
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


@pytest.mark.sparks
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


@pytest.mark.sparks
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

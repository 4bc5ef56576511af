"""Rules of a policy in the tables' own properties: put there, taken back, and found missing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from sparkcrypt import encrypt_table
from sparkcrypt.cli.setup.doctor import check_properties
from sparkcrypt.cli.tables.tags import apply as command
from sparkcrypt.errors import ConfigError, PlanError
from sparkcrypt.names import REQUIRE_ENCRYPTION, RULE_MARK, TABLE_UUID, TAGS_PREFIX
from sparkcrypt.policy.load import rules_from_text
from sparkcrypt.policy.model import TableRule
from sparkcrypt.spark.jvm.jar import bring_jar
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.identity import ensure_identity
from sparkcrypt.spark.tables.table_rules import put_rule, rule_changes, rule_lines
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import SECRET, Lake, assert_encrypted, assert_plaintext, data_files, make_policy, refusal

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def jar_in_session(lake: Lake) -> None:
    """Commands bring the jar into their sessions, and so does this test's."""
    bring_jar(lake.spark)


KINDS = ["USING parquet", "STORED AS PARQUET"]
TAG = f"{TAGS_PREFIX}email"


def apply(lake: Lake, rules: str, *, remove: bool = False) -> tuple[str, ...]:
    """Put rules into their tables, and return the lines of what was done."""
    read = rules_from_text(rules, where="rules.yaml", base="/")
    changes, _ = rule_changes(lake.spark, read, remove=remove)
    for change in changes:
        put_rule(lake.spark, change)
    return tuple(line for change in changes for line in change.lines())


@pytest.mark.parametrize("kind", KINDS)
def test_rules_are_put_and_taken_back(lake: Lake, kind: str) -> None:
    """A rule's tags and requirement stand in the properties, and ``remove`` takes back those and no others."""
    lake.sql(f"CREATE TABLE t (id INT, email STRING, name STRING) {kind}")
    set_tags(lake.spark, "t", {"name": ["pii"], "email": ["own"]})
    rules = f"{lake.database}.t: {{require_encryption: true, tags: {{EMAIL: pii, name: pii}}}}"
    said = apply(lake, rules, remove=True)
    assert said == ("encryption required", "email: own,pii")
    table = Catalog(lake.spark).table("t")
    assert (table.options[TAG], table.options[REQUIRE_ENCRYPTION]) == ("own,pii", "true")
    assert json.loads(table.properties[RULE_MARK]) == {"require_encryption": True, "tags": {"email": ["pii"]}}
    assert apply(lake, f"{lake.database}.t: {{require_encryption: true, tags: {{email: pii}}}}") == ()
    assert apply(lake, "{}") == ()
    assert apply(lake, "{}", remove=True) == ("encryption no longer required", "email: own (taken back)")
    table = Catalog(lake.spark).table("t")
    assert (table.options[TAG], table.options[f"{TAGS_PREFIX}name"]) == ("own", "pii")
    assert table.options.get(REQUIRE_ENCRYPTION, "false") == "false"


def test_the_command(lake: Lake) -> None:
    """`sparkcrypt tags apply FILE`: a dry run changes nothing, a second call finds nothing, --remove takes back."""
    lake.sql("CREATE TABLE t (id INT, email STRING) USING parquet")
    name, rules = lake.name("t"), lake.root / "rules.yaml"

    def applied(text: str, *options: str) -> dict[str, Any]:
        rules.write_text(text)
        done = CliRunner().invoke(command, [str(rules), "--json", *options])
        assert done.exit_code == 0, done.output
        return dict(json.loads(done.stdout))

    def tags() -> tuple[str | None, str | None]:
        found = Catalog(lake.spark).table("t")
        return found.options.get(TAG), found.uuid

    rule = f"{name}: {{require_encryption: true, tags: {{email: pii}}}}\n{lake.name('nosuch')}: {{}}\n"
    dry = applied(rule, "--dry-run")
    assert (dry["dry_run"], dry["absent"], tags()) == (True, [lake.name("nosuch")], (None, None))
    (change,) = dry["changes"]
    assert change == {
        "table": name, "identity": True, "require_encryption": True, "tags": {"email": ["pii"]}, "taken_back": {},
        "held": [],
    }  # fmt: skip
    assert applied(rule) == {**dry, "dry_run": False}
    assert tags()[0] == "pii" and tags()[1]
    assert applied(rule)["changes"] == []
    (kept,) = applied("{}\n")["changes"]
    assert [entry["reason"] for entry in kept["held"]] == [
        "tags would be removed",
        "encryption would no longer be required",
    ]
    assert (kept["tags"], kept["taken_back"], tags()[0]) == ({}, {}, "pii")
    (back,) = applied("{}\n", "--remove", "--dry-run")["changes"]
    assert (back["taken_back"], tags()[0]) == ({"email": []}, "pii")  # what the column keeps
    text = CliRunner().invoke(command, [str(rules), "--remove"])
    assert text.stdout.splitlines()[0] == "1 table changed"
    assert not tags()[0]
    rules.write_text(f"{name}: {{tag: pii}}\n")
    assert CliRunner().invoke(command, [str(rules)]).exit_code == 78


def test_a_property_of_another_version_is_named(lake: Lake) -> None:
    """`doctor` says which of sparkcrypt's properties of a table this version refuses, before a write does."""
    lake.sql("CREATE TABLE t (id INT, email STRING) USING parquet OPTIONS ('parquet.sparkcrypt.tags.email' 'pii')")
    assert check_properties(lake.spark, lake.name("t")).endswith("all known")
    lake.sql("CREATE TABLE u (id INT) USING parquet OPTIONS ('parquet.sparkcrypt.new.thing' 'x')")
    with pytest.raises(ConfigError, match=r"parquet\.sparkcrypt\.new\.thing"):
        check_properties(lake.spark, lake.name("u"))
    lake.policy()
    assert "parquet.sparkcrypt.new.thing" in refusal(lambda: lake.sql("INSERT INTO u VALUES (1)"))


def test_a_whole_policy_is_a_file_of_rules(lake: Lake) -> None:
    """The file may be a policy; a rule that only observes puts nothing, and tables that are not there are named."""
    lake.sql("CREATE TABLE t (id INT, email STRING) USING parquet")
    rules = rules_from_text(
        "version: 1\ntables:\n"
        f"  {lake.database}.t: {{enforce: false, tags: {{email: pii}}}}\n"
        f"  {lake.database}.u: {{}}\n",
        where="policy.yaml",
        base="/",
    )
    changes, absent = rule_changes(lake.spark, rules, remove=True)
    assert (changes, absent) == ((), (f"{lake.database}.u",))


def test_rule_in_properties_holds_without_the_rule(lake: Lake) -> None:
    """What was put into a table's properties holds in a session whose policy says nothing of the table."""
    lake.sql("CREATE TABLE t (id INT, email STRING) USING parquet")
    apply(lake, f"{lake.database}.t: {{require_encryption: true, tags: {{email: pii}}}}")
    policy = lake.policy()
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}')")
    assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=())


def test_a_run_puts_the_rule_in_place(lake: Lake) -> None:
    """``plan`` says what of a rule is not in the properties, until a run has put it there."""
    lake.sql(f"CREATE TABLE t USING parquet AS SELECT 1 AS id, '{SECRET}' AS email")
    policy = lake.policy(tables=f"  {lake.database}.t: {{require_encryption: true, tags: {{email: pii}}}}\n")
    table = Catalog(lake.spark).table("t")
    assert rule_lines(lake.spark, table, policy) == ("a UUID", "encryption required", "email: pii")
    encrypt_table(lake.spark, "t", policy, engine="native", adopt=True)
    table = Catalog(lake.spark).table("t")
    assert rule_lines(lake.spark, table, policy) == ()
    assert rule_lines(lake.spark, table, replace(policy, tables=())) == ()
    assert (table.options[TAG], table.options[REQUIRE_ENCRYPTION]) == ("pii", "true")
    assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=())


@pytest.mark.parametrize("kind", ["USING orc", "USING csv", "USING json", "STORED AS ORC", "STORED AS TEXTFILE"])
def test_formats_that_nothing_encrypts(lake: Lake, kind: str) -> None:
    """Tags of a table whose format cannot be encrypted would mean nothing: they are refused with the reason."""
    lake.sql(f"CREATE TABLE t (id INT, email STRING) {kind}")
    with pytest.raises(PlanError, match=r"its format is .*allowed: parquet") as caught:
        set_tags(lake.spark, "t", {"email": ["pii"]})
    assert ("only where the policy says" in str(caught.value)) == ("orc" in kind.lower())
    assert TABLE_UUID not in Catalog(lake.spark).table("t").options
    lake.sql("CREATE VIEW v AS SELECT 1 AS id")
    with pytest.raises(PlanError, match="is a view"):
        set_tags(lake.spark, "v", {"id": ["pii"]})


def test_a_table_made_like_another_gets_its_own_identity(lake: Lake) -> None:
    """LIKE without the policy copies the UUID; the copy gets another once it is touched, and the original never."""
    policy = lake.policy()
    lake.sql("CREATE TABLE t (id INT, email STRING) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}')")
    owner = Catalog(lake.spark).table("t").uuid
    with lake.stranger() as stranger:
        stranger.sql("CREATE TABLE copy LIKE t")
    assert Catalog(lake.spark).table("copy").uuid == owner
    assert ensure_identity(lake.spark, "t").uuid == owner
    set_tags(lake.spark, "copy", {"email": ["fin"]}, policy)
    copy = Catalog(lake.spark).table("copy").uuid
    assert copy not in (None, owner)
    assert (ensure_identity(lake.spark, "t").uuid, ensure_identity(lake.spark, "copy").uuid) == (owner, copy)
    lake.sql("ALTER TABLE t RENAME TO renamed")
    assert ensure_identity(lake.spark, "renamed").uuid == owner


def test_two_tables_whose_files_are_bound_to_one_identity(lake: Lake) -> None:
    """A copy that was written to before it was touched is refused by name, by tags and by runs; the original is not."""
    policy = lake.policy()
    lake.sql("CREATE TABLE t (id INT, email STRING) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    with lake.stranger() as stranger:
        stranger.sql("CREATE TABLE copy LIKE t")
    for table in ("t", "copy"):
        lake.sql(f"INSERT INTO {table} VALUES (1, '{SECRET}')")
    owner = Catalog(lake.spark).table("t").uuid
    for touch in (
        lambda: set_tags(lake.spark, "copy", {"email": ["fin"]}, policy),
        lambda: encrypt_table(lake.spark, "copy", policy, engine="native"),
    ):
        with pytest.raises(PlanError, match=rf"copy has the UUID of {lake.database}\.t "):
            touch()
    assert Catalog(lake.spark).table("copy").uuid == owner
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    assert Catalog(lake.spark).table("t").uuid == owner


def test_observing_rule_is_no_rule(lake: Lake) -> None:
    """A rule with ``enforce: false`` has nothing to be put in place."""
    policy = make_policy(lake.root / "observing", tables=f"  {lake.database}.t: {{enforce: false, tags: {{a: pii}}}}\n")
    lake.sql("CREATE TABLE t USING parquet AS SELECT 1 AS a")
    assert policy.table(lake.name("t")) != TableRule(lake.name("t"))
    assert rule_lines(lake.spark, Catalog(lake.spark).table("t"), policy) == ()
    assert_plaintext(lake.path("t"))
    assert data_files(lake.path("t"))

"""Tagged values in columns of a table that lacks their tags: encrypted, and seen, refused or adopted by the policy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkcrypt import configure, encrypt_table, load_policy
from sparkcrypt.errors import PlanError, VerificationError
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.lineage import trace_lineage
from sparkcrypt.runs.passes.passes import backfill
from sparkcrypt.runs.passes.plan import plan_target
from sparkcrypt.runs.table.target import catalog_target
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.fixtures import new_lake
from tests.spark.support import (
    Lake,
    assert_plaintext,
    encrypted_columns,
    footers,
    notes_of,
    refusal,
    rows_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.sparks]
_NUMBERS = itertools.count()
KINDS = pytest.mark.parametrize("kind", ["USING parquet", "STORED AS PARQUET"])


@dataclass(frozen=True)
class Site:
    """A lake whose table ``people`` has a tagged column ``ssn``."""

    lake: Lake
    file: Path
    text: str

    def say(self, inherit: str | None = None) -> Policy:
        """Put the session under the same policy, which says this of inheritance, and return it."""
        self.file.write_text(self.text + (f"\ninherit: {inherit}\n" if inherit else ""))
        policy = load_policy(self.file)
        configure(self.lake.spark, policy)
        return policy

    def make_table(self, kind: str = "USING parquet", name: str | None = None) -> str:
        """Make an empty table without tags."""
        name = name or f"t{next(_NUMBERS)}"
        self.lake.sql(f"CREATE TABLE {name} (id INT, word STRING, note STRING) {kind}")
        return name

    def fill(self, name: str) -> None:
        """Write a row whose ``word`` comes from the tagged column."""
        self.lake.sql(f"INSERT INTO {name} SELECT id, upper(ssn), note FROM people WHERE ssn <> 'q' AND id > 0")

    def judged(self, name: str, policy: Policy) -> list[dict[str, str | None]]:
        """Return the encrypted columns of each of a table's files, by their footers."""
        return [encrypted_columns(footer) for footer in footers(self.lake.path(name), policy) if footer.rows]


@pytest.fixture(scope="module")
def site(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One session and one source of tagged values for all of these tests."""
    with new_lake(spark, tmp_path_factory.mktemp("inherited")) as lake:
        policy = lake.policy()
        lake.sql("CREATE TABLE people (id INT, ssn STRING, note STRING) USING parquet")
        set_tags(lake.spark, "people", {"ssn": ["pii"]}, policy)
        lake.sql("INSERT INTO people VALUES (1, 's', 'n')")
        (file,) = lake.root.glob("policy-*/policy.yaml")
        yield Site(lake, file, file.read_text())


def plan_of(site: Site, name: str, policy: Policy) -> dict[str, Any]:
    """Return what is planned for a table."""
    target = catalog_target(site.lake.spark, Catalog(site.lake.spark).table(name), policy, None)
    return plan_target(site.lake.spark, target, policy).to_dict()


@KINDS
def test_observed_columns_stay_encrypted_and_are_listed(site: Site, kind: str) -> None:
    """The file is encrypted, the plan lists the column, and no run decrypts it: not by itself, nor with other work."""
    policy, database = site.say(), site.lake.database
    name = site.make_table(kind)
    site.fill(name)
    assert site.judged(name, policy) == [{"word": "pii"}]
    (found,) = plan_of(site, name, policy)["inherited"]
    assert (found["column"], found["tags"], found["key_ids"], found["files"]) == ("word", ["pii"], ["pii"], 1)
    assert found["origins"] == [f"{database}.people.ssn"]
    report = backfill(site.lake.spark, policy, tables=[name])
    assert report.outcome == "nothing to do"
    assert any("inherited: word is encrypted in 1 file, by pii" in warning for warning in report.tables[0].warnings)
    set_tags(site.lake.spark, name, {"note": ["fin"]}, policy)  # so the file must be rewritten
    with pytest.raises(VerificationError, match=r"column word is encrypted .* it has the tags pii from .*people\.ssn"):
        encrypt_table(site.lake.spark, name, policy)
    set_tags(site.lake.spark, name, {"word": ["pii"]}, policy)
    before = rows_of(site.lake.spark.table(name))
    encrypt_table(site.lake.spark, name, policy)
    assert site.judged(name, policy) == [{"word": "pii", "note": "fin"}]
    assert rows_of(site.lake.spark.table(name)) == before
    assert plan_of(site, name, policy)["inherited"] == []


def test_owner_may_say_that_it_is_plaintext(site: Site) -> None:
    """A tag that means plaintext is an answer as well."""
    policy = site.say()
    name = site.make_table()
    site.fill(name)
    set_tags(site.lake.spark, name, {"word": ["public"]}, policy)
    encrypt_table(site.lake.spark, name, policy, allow_decrypt=True)
    assert_plaintext(site.lake.path(name))


@KINDS
def test_refused_before_anything_is_written(site: Site, kind: str) -> None:
    """By SQL, by a frame, by path: the message names table, column, tag, source, setting and command."""
    site.say("refuse")
    name = site.make_table(kind)
    lake = site.lake
    frame = lake.sql("SELECT id, ssn AS word, note FROM people")
    ways = {
        "SQL": lambda: site.fill(name),
        "frame": lambda: frame.write.insertInto(name),
        "by name": lambda: frame.write.mode("append").saveAsTable(name, format="hive" if "STORED" in kind else None),
    }
    for way, write in ways.items():
        told = refusal(write)
        assert f"{lake.database}.{name}: column word is written with values that carry the tag 'pii'" in told, way
        assert f"(read from {lake.database}.people)" in told
        assert "'inherit: refuse'" in told
        assert f"sparkcrypt tags set {lake.database}.{name} word pii" in told
    assert not list(lake.path(name).glob("part-*"))
    lake.sql(f"INSERT INTO {name} SELECT id, note, count(ssn) FROM people GROUP BY ALL")
    assert lake.spark.table(name).count() == 1


def test_streams_are_judged_in_each_batch(site: Site) -> None:
    """Into a table that was made without tags; where they are added, the batch that adds them is encrypted by them."""
    lake = site.lake
    for mode in ("refuse", "add"):
        policy = site.say(mode)
        name = site.make_table()
        rows = lake.spark.readStream.schema(lake.spark.table("people").schema).parquet(str(lake.path("people")))
        writer = rows.selectExpr("id", "ssn AS word", "note").writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(lake.root / f"checkpoint-{mode}"))
        if mode == "refuse":
            assert "column word is written" in refusal(lambda w, n: w.toTable(n).awaitTermination(), writer, name)
            continue
        writer.toTable(name).awaitTermination()
        assert tags_of(site, name) == "pii"
        assert site.judged(name, policy) == [{"word": "pii"}]


def test_path_of_a_tagged_table_is_that_table(site: Site) -> None:
    """Whoever writes into the folder of a table with tags is judged as if he named it."""
    policy = site.say("refuse")
    name = site.make_table()
    set_tags(site.lake.spark, name, {"note": ["fin"]}, policy)
    frame = site.lake.sql("SELECT id, ssn AS word, note FROM people")
    assert "column word is written" in refusal(frame.write.mode("append").parquet, str(site.lake.path(name)))


@KINDS
def test_added_tags_hold_for_later_writes(site: Site, kind: str) -> None:
    """The table's property has the tag, beside those it had; EXPLAIN adds nothing, and a later row is encrypted."""
    policy = site.say("add")
    name = site.make_table(kind)
    set_tags(site.lake.spark, name, {"word": ["public"]}, policy)
    site.lake.sql(f"EXPLAIN INSERT INTO {name} SELECT id, ssn, note FROM people").collect()
    assert tags_of(site, name) == "public"
    site.fill(name)
    assert tags_of(site, name) == "public,pii"
    site.lake.sql(f"INSERT INTO {name} VALUES (7, 'x', 'y')")
    assert site.judged(name, policy) == [{"word": "pii"}] * 2
    assert plan_of(site, name, policy)["inherited"] == []


def tags_of(site: Site, name: str) -> str:
    """Return the tags of the column ``word`` that the table's properties have."""
    return Catalog(site.lake.spark).table(name).options["parquet.sparkcrypt.tags.word"]


def test_files_say_where_their_columns_come_from(site: Site) -> None:
    """Values and conditions apart; what an earlier file said does not go on into files that are made of it."""
    lake, policy = site.lake, site.say()
    lake.sql("CREATE TABLE made USING parquet AS SELECT note, lower(ssn) AS low FROM people WHERE ssn > 'a'")
    lake.sql("CREATE TABLE again USING parquet AS SELECT note, low AS deep FROM made")
    lake.spark.read.parquet(str(lake.path("people"))).select("ssn").write.parquet(str(lake.root / "by_path"))
    people, made = f"{lake.database}.people", f"{lake.database}.made"
    assert notes_of(lake.path("made"), policy) == {
        "note": {"conditions": {people: ["ssn"]}},
        "low": {"from": {people: ["ssn"]}},
    }
    assert notes_of(lake.path("again"), policy) == {"deep": {"from": {made: ["low"]}}}
    assert notes_of(lake.root / "by_path", policy) == {"ssn": {"from": {people: ["ssn"]}}}
    traced = trace_lineage(lake.spark, policy, tables=["again"])
    assert [(table.table, table.sources) for table in traced.tables] == [
        (f"{lake.database}.again", (made,)),
        (made, (people,)),
        (people, ()),
    ]
    (derived,) = traced.tables[1].columns
    assert (derived.name, derived.tags, derived.origins, derived.files) == ("low", ("pii",), ((people, "ssn"),), 1)
    assert traced.tables[1].conditions == ((people, "ssn"),)
    assert traced.list_derived(people, "ssn") == ((made, "low"),)
    assert (traced.exit_code, traced.unknown) == (0, {})
    with pytest.raises(PlanError, match="nosuch"):
        trace_lineage(lake.spark, policy, tables=["nosuch"])

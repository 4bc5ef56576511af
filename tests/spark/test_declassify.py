"""Values that lose their tags: only where the policy allows it, and never without a record."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkcrypt
from sparkcrypt import configure, load_policy
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.lineage import trace_lineage
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.fixtures import new_lake
from tests.spark.support import Lake, encrypted_columns, footers, refusal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.sparks]
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Site:
    """A lake whose table ``people`` has tagged columns, under a policy with an access log."""

    lake: Lake
    file: Path
    text: str

    @property
    def log(self) -> Path:
        """The folder of the access log."""
        return self.lake.root / "log"

    def say(self, principals: str | None) -> Policy:
        """Put the session under a policy that lets these principals take the tag pii off."""
        rule = f"declassify: {{principals: [{principals}], tags: [pii]}}\n" if principals else ""
        self.file.write_text(f"{self.text}\naccess_log: {{location: {self.log}}}\n{rule}")
        policy = load_policy(self.file)
        configure(self.lake.spark, policy)
        return policy

    def say_me(self) -> Policy:
        """Let whoever runs these tests take the tag off."""
        return self.say(self.lake.spark.sparkContext.sparkUser())

    def written(self, frame: DataFrame, policy: Policy) -> dict[str, str | None]:
        """Write a frame into a new folder, and return its files' encrypted columns."""
        folder = self.lake.root / f"out-{next(_NUMBERS)}"
        frame.coalesce(1).write.parquet(str(folder))
        (found,) = {tuple(sorted(encrypted_columns(file).items())) for file in footers(folder, policy) if file.rows}
        return dict(found)

    def recorded(self) -> list[dict[str, Any]]:
        """Return the records of what was declassified, and forget them."""
        lines = [line for file in sorted(self.log.rglob("*.jsonl")) for line in file.read_text().splitlines()]
        records = [json.loads(line) for line in lines]
        shutil.rmtree(self.log, ignore_errors=True)
        return [record for record in records if record.get("outcome") == "declassified"]


@pytest.fixture(scope="module")
def site(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One session and one table for all of these tests."""
    with new_lake(spark, tmp_path_factory.mktemp("declassify")) as lake:
        policy = lake.policy()
        lake.sql("CREATE TABLE people (id INT, ssn STRING, salary INT) USING parquet")
        set_tags(lake.spark, "people", {"ssn": ["pii"], "salary": ["fin"]}, policy)
        lake.sql("INSERT INTO people VALUES (1, 's', 10)")
        (file,) = lake.root.glob("policy-*/policy.yaml")
        yield Site(lake, file, file.read_text())


def test_values_are_written_in_clear_and_each_use_is_recorded(site: Site) -> None:
    """By SQL and by a frame; the value itself, not only what is computed of it; other columns keep their tags."""
    policy, lake = site.say_me(), site.lake
    site.recorded()
    frame = lake.sql("SELECT declassify(ssn, 'ticket 17') AS s, upper(ssn) AS u, salary FROM people")
    assert site.written(frame, policy) == {"u": "pii", "salary": "fin"}
    assert [row.s for row in frame.collect()] == ["s"]
    frame = lake.spark.table("people").select(sparkcrypt.declassify(F.upper("ssn"), "ticket 18").alias("s"))
    assert site.written(frame, policy) == {}
    recorded = site.recorded()
    assert {record["why"] for record in recorded} == {"ticket 17", "ticket 18"}
    assert {record["table"] for record in recorded} == {f"{lake.database}.people"}
    assert all(record["columns"] == ["ssn"] and record["tags"] == ["pii"] for record in recorded)
    assert {record["principal"] for record in recorded} == {lake.spark.sparkContext.sparkUser()}


def test_files_say_what_was_declassified(site: Site) -> None:
    """So does the lineage of their table."""
    policy, lake = site.say_me(), site.lake
    lake.sql("CREATE TABLE report USING parquet AS SELECT id, declassify(ssn, 'ticket 19') AS s FROM people")
    (report, *_) = trace_lineage(lake.spark, policy, tables=["report"]).tables
    (derived,) = report.columns
    assert (derived.name, derived.tags, derived.origins) == ("s", (), ())
    assert derived.declassified == ((f"{lake.database}.people", "ssn"),)


@pytest.mark.parametrize("principals", [None, "somebody_else"])
def test_nobody_else_may(site: Site, principals: str | None) -> None:
    """Neither in a write, nor in a query whose checkpoint would have no tags, nor by the expression behind it."""
    site.say(principals)
    lake = site.lake
    behind = "IF('sparkcrypt.declassify:x' <=> 'sparkcrypt.declassify:x', ssn, NULL)"
    for text in ("declassify(ssn, 'x')", behind, "upper(concat(declassify(ssn, 'x'), 'y'))"):
        assert f"declassify({lake.database}.people.ssn, 'x')" in refusal(lake.sql, f"SELECT {text} AS s FROM people")
        assert "declassify(" in refusal(lake.sql, f"CREATE TABLE no USING parquet AS SELECT {text} AS s FROM people")
    assert not lake.spark.catalog.tableExists("no")


def test_conditions_of_queries_that_write_nothing_are_judged(site: Site) -> None:
    """A filter, a join, a group, and a subquery of a filter; others have nothing to be judged for."""
    site.say("somebody_else")
    chosen = "declassify(ssn, 'x') = 's'"
    for text in (
        f"SELECT id FROM people WHERE {chosen}",
        f"SELECT a.id FROM people a JOIN people b ON {chosen.replace('ssn', 'a.ssn')}",
        "SELECT count(1) AS n FROM people GROUP BY declassify(ssn, 'x')",
        f"SELECT id FROM people WHERE id IN (SELECT id FROM people WHERE {chosen})",
        f"SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM people WHERE people.id = p.id AND {chosen})",
    ):
        assert f"declassify({site.lake.database}.people.ssn, 'x')" in refusal(site.lake.sql, text), text
    assert site.lake.sql("SELECT id FROM people WHERE if(id > 0, ssn, 'x') = 's'").count() == 1


def test_only_allowed_tags_and_only_with_a_reason(site: Site) -> None:
    """What comes from a column with another tag is refused as a whole."""
    site.say_me()
    assert "the tag 'fin' may not be taken off" in refusal(
        site.lake.sql, "SELECT declassify(concat(ssn, salary), 'x') AS s FROM people"
    )
    assert "the reason" in refusal(site.lake.sql, "SELECT declassify(ssn, '') FROM people")
    assert "the reason" in refusal(sparkcrypt.declassify, "ssn", " ")


def test_nothing_is_declassified_that_cannot_be_recorded(site: Site) -> None:
    """A log that is a file in place of a folder ends the query before it begins."""
    site.say_me()
    site.recorded()
    site.log.write_text("in the way")
    try:
        text = "CREATE TABLE no USING parquet AS SELECT declassify(ssn, 'ticket 20') AS s FROM people"
        assert str(site.log) in refusal(site.lake.sql, text)
        assert not site.lake.spark.catalog.tableExists("no")
    finally:
        site.log.unlink()

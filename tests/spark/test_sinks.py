"""Writes of tagged columns to sinks that encrypt nothing: refused, told or allowed, as the policy's `sinks` says."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkcrypt import configure, load_policy
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.fixtures import new_lake
from tests.spark.support import Lake, refusal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Site:
    """A lake whose tables ``people`` and ``strict`` have a tagged column, and the policy file that it is under."""

    lake: Lake
    file: Path
    text: str

    def folder(self) -> str:
        """Return the URI of a folder that is not there yet."""
        return (self.lake.root / f"out-{next(_NUMBERS)}").as_uri()

    def say(self, sinks: str | None, of_tag: str | None = None) -> None:
        """Put the session under the same policy, which says this of sinks, for all and at the tag."""
        text = self.text.replace("{key: pii}", f"{{key: pii, sinks: {of_tag}}}") if of_tag else self.text
        self.file.write_text(text + (f"\nsinks: {sinks}\n" if sinks else ""))
        configure(self.lake.spark, load_policy(self.file))


@pytest.fixture(scope="module")
def site(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One session and one set of tables for all of these tests."""
    with new_lake(spark, tmp_path_factory.mktemp("sinks")) as lake:
        policy = lake.policy(tables=f"  {lake.database}.strict: {{require_encryption: true}}\n")
        for table in ("people", "strict"):
            lake.sql(f"CREATE TABLE {table} (id INT, email STRING, note STRING) USING parquet")
            set_tags(lake.spark, table, {"email": ["pii"]}, policy)
            lake.sql(f"INSERT INTO {table} VALUES (1, 'a@x', 'n')")
        lake.sql("CREATE TABLE texts (mail STRING) STORED AS TEXTFILE")
        (file,) = lake.root.glob("policy-*/policy.yaml")
        yield Site(lake, file, file.read_text())


def derived(site: Site) -> DataFrame:
    """Return a frame with one column that is computed of the tagged one."""
    return site.lake.sql("SELECT upper(email) AS mail FROM people")


def write_stream(site: Site, sink: str, **options: str) -> None:
    """Run a stream of the tagged table into a sink until it has caught up."""
    lake = site.lake
    rows = lake.spark.readStream.schema(lake.spark.table("people").schema).parquet(str(lake.path("people")))
    writer = rows.select("email").writeStream.format(sink).trigger(availableNow=True)
    for name, value in {"checkpointLocation": site.folder(), **options}.items():
        writer = writer.option(name, value)
    writer.start().awaitTermination()


def run_for_each_batch(site: Site) -> None:
    """Hand the tagged table's rows to a function batch by batch."""
    lake = site.lake
    rows = lake.spark.readStream.schema(lake.spark.table("people").schema).parquet(str(lake.path("people")))

    def count(frame: DataFrame, _batch: int) -> None:
        frame.count()

    counted = rows.writeStream.foreachBatch(count)
    counted.option("checkpointLocation", site.folder()).trigger(availableNow=True).start().awaitTermination()


SINKS: dict[str, tuple[str, Callable[[Site], object]]] = {
    "csv": ("csv", lambda site: derived(site).write.csv(site.folder())),
    "json": ("json", lambda site: derived(site).write.json(site.folder())),
    "text": ("text", lambda site: derived(site).write.text(site.folder())),
    "orc": ("orc", lambda site: derived(site).write.orc(site.folder())),
    "a folder by SQL": (
        "csv",
        lambda site: site.lake.sql(f"INSERT OVERWRITE DIRECTORY '{site.folder()}' USING csv SELECT email FROM people"),
    ),
    "a new table": ("csv", lambda site: site.lake.sql("CREATE TABLE c USING csv AS SELECT email FROM people")),
    "a table of Hive": (
        "a table of Hive's LazySimpleSerDe",
        lambda site: site.lake.sql("INSERT INTO texts SELECT email FROM people"),
    ),
    "a new table of Hive": (
        "a table of Hive's LazySimpleSerDe",
        lambda site: site.lake.sql("CREATE TABLE h STORED AS TEXTFILE AS SELECT email FROM people"),
    ),
    "jdbc": (
        "jdbc",
        lambda site: derived(site).write.format("jdbc").options(url="jdbc:derby:memory:x", dbtable="m").save(),
    ),
    "a stream to the console": ("Console", lambda site: write_stream(site, "console")),
    "a stream of files": ("json", lambda site: write_stream(site, "json", path=site.folder())),
}


@pytest.mark.parametrize("name", SINKS)
def test_tagged_columns_are_refused_by_name_where_the_policy_denies(site: Site, name: str) -> None:
    """Derived ones too, by every route; the message names column, tag, sink and the setting, and nothing is written."""
    sink, write = SINKS[name]
    site.say("deny")
    told = refusal(write, site)
    assert f"carries the tag 'pii', which encrypts, and is written to {sink}, where it would be in clear" in told
    assert "the policy says 'sinks: deny'" in told
    assert site.lake.spark.table("texts").count() == 0
    assert not site.lake.spark.catalog.tableExists("c") or site.lake.spark.table("c").count() == 0


def test_what_stores_nothing_is_no_sink(site: Site) -> None:
    """Neither is a function to which rows are handed: its own writes are judged."""
    site.say("deny")
    derived(site).write.format("noop").mode("overwrite").save()
    write_stream(site, "noop")
    run_for_each_batch(site)
    site.lake.sql("SELECT id, note, count(email) AS n FROM people GROUP BY ALL").write.csv(site.folder())
    derived(site).write.parquet(site.folder())


def test_a_tag_goes_before_the_policy(site: Site) -> None:
    """What one tag says of its columns holds, whatever is said of all."""
    site.say("deny", of_tag="allow")
    derived(site).write.csv(site.folder())


def test_by_default_it_is_told_and_written(site: Site) -> None:
    """An upgrade breaks no pipeline; but rows of a table that requires encryption stay out, cached and by path too."""
    site.say(None)
    folder = site.folder()
    derived(site).write.csv(folder)
    assert site.lake.spark.read.csv(folder).collect()[0][0] == "A@X"
    lake = site.lake
    cached = lake.sql("SELECT email FROM strict").cache()
    cached.count()
    reads = {
        "table": lake.sql("SELECT email FROM strict"),
        "subquery": lake.sql("SELECT (SELECT max(email) FROM strict) AS most"),
        "path": lake.spark.read.parquet(str(lake.path("strict"))),
        "cached": cached,
    }
    for frame in reads.values():
        assert "a table that requires encryption is read" in refusal(frame.write.csv, site.folder())
    cached.unpersist()
    site.say("warn")
    reads["table"].write.csv(site.folder())

"""Attacks by SQL and frames on the files of keys, state and stores, with the rights of the session's process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from sparkcrypt.policy.load import load_policy
from sparkcrypt.spark.setup.session import configure
from tests.spark.support import Lake, make_policy, refusal

pytestmark = pytest.mark.spark
CANARY = "CANARY-of-a-key-file"


class Site:
    """A session under a policy, and a link to its keys."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.folder = lake.root / "policy"
        make_policy(self.folder, more="index: {location: stores/}\n")
        configure(lake.spark, load_policy(self.folder / "policy.yaml"))
        (self.folder / "state").mkdir(exist_ok=True)
        (self.folder / "stores").mkdir()
        for name in ("keys", "state", "stores"):
            (self.folder / name / "canary.txt").write_text(CANARY)
        self.link = lake.root / "link"
        self.link.symlink_to(self.folder / "keys")
        self.linked = lake.root / "files"
        self.linked.mkdir()
        (self.linked / "a.txt").symlink_to(self.folder / "keys" / "canary.txt")

    def unchanged(self) -> bool:
        """Tell whether all files are still there."""
        return all((self.folder / name / "canary.txt").read_text() == CANARY for name in ("keys", "state", "stores"))


@pytest.fixture
def site(lake: Lake) -> Site:
    """A session under a policy, with files to protect."""
    return Site(lake)


READS: dict[str, Callable[[Site, str], object]] = {
    "text": lambda site, at: site.lake.sql(f"SELECT value FROM text.`{at}`").collect(),
    "binary": lambda site, at: site.lake.sql(f"SELECT content FROM binaryFile.`{at}/*`").collect(),
    "glob": lambda site, at: site.lake.spark.read.text(f"{at[:-1]}?/c*.txt").collect(),
    "csv": lambda site, at: site.lake.sql(f"SELECT * FROM csv.`file:{at}/canary.txt`").collect(),
    "subquery": lambda site, at: site.lake.sql(
        f"SELECT (SELECT max(value) FROM text.`{at}/../{at[at.rfind('/') + 1 :]}`)"
    ).collect(),
    "version 2": lambda site, at: _version2(site, at),
    "view": lambda site, at: site.lake.sql(f"CREATE TEMPORARY VIEW v USING text OPTIONS (path '{at}')"),
    "stream": lambda site, at: (
        site.lake.spark.readStream.text(at).writeStream.format("noop").start().processAllAvailable()
    ),
    "table": lambda site, at: site.lake.sql(f"CREATE TABLE t (value STRING) USING text LOCATION '{at}'"),
    "external": lambda site, at: site.lake.sql(
        f"CREATE EXTERNAL TABLE t (value STRING) STORED AS TEXTFILE LOCATION '{at}'"
    ),
    "load": lambda site, at: _load(site, at),
    "partition": lambda site, at: _partition(site, at),
    "path of a table": lambda site, at: _set_path(site, at),
    "schema": lambda site, at: (
        site.lake.spark.read.option("rowValidationXSDPath", f"{at}/canary.txt")
        .text(str(site.linked.parent / "policy" / "policy.yaml"))
        .collect()
    ),
    "add": lambda site, at: site.lake.sql(f"ADD FILE '{at}/canary.txt'"),
}


def _version2(site: Site, at: str) -> object:
    site.lake.spark.conf.set("spark.sql.sources.useV1SourceList", "")
    return site.lake.spark.read.text(at).collect()


def _load(site: Site, at: str) -> object:
    site.lake.sql("CREATE TABLE taker (value STRING) STORED AS TEXTFILE")
    return site.lake.sql(f"LOAD DATA LOCAL INPATH '{at}/canary.txt' INTO TABLE taker")


def _partition(site: Site, at: str) -> object:
    site.lake.sql("CREATE TABLE parted (value STRING, p INT) USING text PARTITIONED BY (p)")
    return site.lake.sql(f"ALTER TABLE parted ADD PARTITION (p = 1) LOCATION '{at}'")


def _set_path(site: Site, at: str) -> object:
    site.lake.sql("CREATE TABLE own (value STRING) USING text")
    return site.lake.sql(f"ALTER TABLE own SET LOCATION '{at}'")


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("place", ["keys", "link"])
def test_reads_of_keys_and_state(site: Site, read: str, place: str) -> None:
    """By whatever name a query gives the place."""
    at = site.link if place == "link" else site.folder / place
    said = refusal(lambda: READS[read](site, str(at)))
    # Spark reads lines of CSV to tell its columns, and leaves out why that failed.
    assert "neither read nor write there" in said or (read == "csv" and "direct query" in said)
    assert CANARY not in said
    assert site.unchanged()


@pytest.mark.parametrize("place", ["state", "stores"])
def test_state_and_stores(site: Site, place: str) -> None:
    """They are as far out of reach as keys are."""
    for attack in (
        *(READS[name] for name in ("text", "table", "load")),
        *(WRITES[name] for name in ("append", "parquet")),
    ):
        said = refusal(lambda attack=attack: attack(site, str(site.folder / place)))
        assert "neither read nor write there" in said
    assert site.unchanged()


def test_reads_that_list_a_place_from_above(site: Site) -> None:
    """A recursive read from above lists it, and a link among the files leads there; other reads from above do not."""
    reader = site.lake.spark.read
    recursive = reader.option("recursiveFileLookup", "true")
    for read in (
        lambda: recursive.text(str(site.folder)).collect(),
        lambda: recursive.format("binaryFile").load(str(site.lake.root)).collect(),
        lambda: site.lake.spark.read.text(f"{site.folder}/*").collect(),
        lambda: site.lake.spark.read.text(str(site.linked)).collect(),
    ):
        assert "neither read nor write there" in refusal(read)
    assert site.lake.spark.read.text(str(site.folder)).count() > 0  # policy.yaml alone


WRITES: dict[str, Callable[[Site, str], object]] = {
    "directory": lambda site, at: site.lake.sql(f"INSERT OVERWRITE DIRECTORY '{at}' USING text SELECT 'x'"),
    "local directory": lambda site, at: site.lake.sql(
        f"INSERT OVERWRITE LOCAL DIRECTORY '{at}' STORED AS TEXTFILE SELECT 'x'"
    ),
    "append": lambda site, at: site.lake.spark.range(1).select(F.lit("x")).write.mode("append").text(f"{at}/more"),
    "overwrite": lambda site, at: site.lake.spark.range(1).select(F.lit("x")).write.mode("overwrite").text(at),
    "parquet": lambda site, at: site.lake.spark.range(1).write.mode("overwrite").parquet(at),
    "table": lambda site, at: site.lake.spark.range(1).write.mode("overwrite").option("path", at).saveAsTable("made"),
    "as select": lambda site, at: site.lake.sql(f"CREATE TABLE made USING csv LOCATION '{at}' AS SELECT 1 AS a"),
    "managed": lambda site, at: _managed(site, at),
}


def _managed(site: Site, at: str) -> object:
    base = site.lake.database + "x"
    site.lake.sql(f"CREATE DATABASE {base} LOCATION '{Path(at).parent}'")
    try:
        return site.lake.sql(f"CREATE TABLE {base}.{Path(at).name} (a INT) USING csv")
    finally:
        site.lake.sql(f"USE {site.lake.database}")


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("place", ["keys", "link"])
def test_writes_over_keys_and_state(site: Site, write: str, place: str) -> None:
    """Nothing is added, replaced or deleted."""
    at = site.link if place == "link" else site.folder / place
    said = refusal(lambda: WRITES[write](site, str(at)))
    assert "neither read nor write there" in said
    assert site.unchanged()


def test_an_overwrite_from_above(site: Site) -> None:
    """It would delete all that is below."""
    for write in ("directory", "overwrite", "parquet"):
        said = refusal(lambda write=write: WRITES[write](site, str(site.folder)))
        assert "neither read nor write there" in said
    assert site.unchanged()


def test_ordinary_files_stay_in_reach(site: Site) -> None:
    """Beside a protected place sessions read, write and drop what they like."""
    folder = str(site.folder / "keys-and-more")
    site.lake.spark.range(3).write.mode("overwrite").csv(folder)
    assert site.lake.sql(f"SELECT * FROM csv.`{folder}`").count() == 3
    site.lake.sql(f"INSERT OVERWRITE DIRECTORY '{folder}' USING json SELECT 1 AS a")
    site.lake.sql(f"CREATE TABLE there (a INT) USING json LOCATION '{folder}'")
    assert site.lake.sql("SELECT * FROM there").count() == 1
    site.lake.sql("DROP TABLE there")
    site.lake.sql(f"ADD FILE '{site.folder / 'policy.yaml'}'")
    assert site.lake.sql("SELECT TRANSFORM(id) USING 'cat' FROM range(2)").count() == 2

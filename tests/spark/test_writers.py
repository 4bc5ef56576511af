"""Every way to write: tables, folders, streams, and sinks that encrypt nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkcrypt import configure, encrypt_table, load_policy
from sparkcrypt.errors import PlanError
from sparkcrypt.files.parquet import inspect_file, read_footer
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.fixtures import new_lake
from tests.spark.support import (
    PLAIN,
    SECRET,
    Lake,
    assert_encrypted,
    data_files,
    quiet,
    read_options,
    refusal,
    retriever,
    rows_of,
    swapped,
    with_keys,
    without_keys,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

KEYS = {"email": "pii", "salary": "fin"}
COLUMNS = "id INT, email STRING, salary STRING, note STRING"
VALUES = f"'{SECRET}', '{SECRET}', '{PLAIN}'"


def tagged_rows(lake: Lake, count: int = 6) -> DataFrame:
    """Rows whose columns carry their tags as metadata."""
    return lake.spark.range(count).select(
        F.col("id").cast("int"),
        F.lit(SECRET).alias("email", metadata={"tags": ["pii"]}),
        F.lit(SECRET).alias("salary", metadata={"tags": "fin"}),
        F.lit(PLAIN).alias("note"),
        (F.col("id") % 2).cast("int").alias("p"),
    )


def assert_keys_matter(lake: Lake, policy: Policy, path: object, rows: list[object]) -> None:
    """Assert that the right keys give the rows, swapped keys and missing keys an error, and no keys nothing at all."""

    def read(chosen: Policy) -> DataFrame:
        return lake.spark.read.options(**read_options(chosen)).parquet(str(path))

    assert rows_of(read(policy)) == rows
    other = with_keys(policy, lake.root / "swapped-keys", swapped("pii", "fin"))
    assert "KeyServiceError" in refusal(lambda: read(other).collect())
    none = with_keys(policy, lake.root / "no-column-keys", without_keys("pii"))
    assert "KeyNotFoundError" in refusal(lambda: read(none).collect())
    with lake.stranger() as stranger:
        assert "No keys available" in refusal(lambda: stranger.read.parquet(str(path)).collect())


def test_write_parquet_by_path(lake: Lake) -> None:
    """``df.write.parquet`` encrypts the columns that carry tags; keys decide who reads."""
    policy = lake.policy()
    path = lake.root / "out"
    rows = tagged_rows(lake)
    rows.write.partitionBy("p").parquet(str(path))
    assert_encrypted(path, policy, KEYS)
    assert_keys_matter(lake, policy, path, rows_of(rows))


def test_save_as_table_create_append_overwrite(lake: Lake) -> None:
    """``saveAsTable`` encrypts when it makes, appends to and overwrites a table from a tagged frame."""
    policy = lake.policy()
    rows = tagged_rows(lake)
    for mode in ("errorifexists", "append", "overwrite"):
        rows.write.mode(mode).saveAsTable("t")
        assert_encrypted(lake.path("t"), policy, KEYS)
    assert_keys_matter(lake, policy, lake.path("t"), rows_of(rows))
    assert rows_of(lake.spark.table("t")) == rows_of(rows)


def test_create_table_as_select(lake: Lake) -> None:
    """CTAS encrypts by the tags of what it selects, into ``USING parquet`` and ``STORED AS PARQUET`` tables."""
    policy = lake.policy()
    tagged_rows(lake).createOrReplaceTempView("source")
    lake.sql("CREATE TABLE c USING parquet PARTITIONED BY (p) AS SELECT * FROM source")
    lake.sql("CREATE TABLE h STORED AS PARQUET AS SELECT * FROM source")
    for table in ("c", "h"):
        assert_encrypted(lake.path(table), policy, KEYS)
        assert rows_of(lake.spark.table(table)) == rows_of(tagged_rows(lake))


@pytest.mark.parametrize("convert", ["true", "false"])
@pytest.mark.parametrize("kind", ["USING parquet", "STORED AS PARQUET"])
def test_insert_into_unpartitioned_table(lake: Lake, kind: str, convert: str) -> None:
    """INSERT INTO and OVERWRITE encrypt right after tagging, on each kind of table and on the Hive SerDe's way."""
    policy = lake.policy()
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", convert)
    lake.sql(f"CREATE TABLE t ({COLUMNS}) {kind}")
    set_tags(lake.spark, "t", {"email": ["pii"], "salary": ["fin"]}, policy)
    lake.sql(f"INSERT INTO t VALUES (1, {VALUES})")
    lake.sql(f"INSERT INTO t SELECT 2, {VALUES}")
    assert len(assert_encrypted(lake.path("t"), policy, KEYS)) == 2
    lake.sql(f"INSERT OVERWRITE t VALUES (3, {VALUES})")
    assert len(assert_encrypted(lake.path("t"), policy, KEYS)) == 1
    assert rows_of(lake.spark.table("t")) == [(3, SECRET, SECRET, PLAIN)]


@pytest.mark.parametrize("convert", ["true", "false"])
@pytest.mark.parametrize("kind", ["USING parquet", "STORED AS PARQUET"])
def test_insert_into_partitions(lake: Lake, kind: str, convert: str) -> None:
    """INSERT INTO and OVERWRITE, static and dynamic, encrypt; each file's AAD prefix names its table and partition.

    Only a static insert by Hive's SerDe shows its writer no partition, so its prefix has none.
    """
    policy = lake.policy()
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", convert)
    lake.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    if kind == "USING parquet":
        lake.sql(f"CREATE TABLE t ({COLUMNS}, p INT) USING parquet PARTITIONED BY (p)")
    else:
        lake.sql(f"CREATE TABLE t ({COLUMNS}) PARTITIONED BY (p INT) STORED AS PARQUET")
    set_tags(lake.spark, "t", {"email": ["pii"], "salary": ["fin"]}, policy)
    uuid = Catalog(lake.spark).table("t").uuid
    hides_partition = kind != "USING parquet" and convert == "false"
    for statement in (
        f"INTO t PARTITION (p = 1) SELECT 1, {VALUES}",
        f"INTO t PARTITION (p) SELECT 2, {VALUES}, 2",
        f"OVERWRITE t PARTITION (p = 1) SELECT 3, {VALUES}",
        f"OVERWRITE t PARTITION (p) SELECT 4, {VALUES}, 3",
    ):
        lake.sql(f"INSERT {statement}")
        files = assert_encrypted(lake.path("t"), policy, KEYS)
        for file in files:
            hidden = hides_partition and file.parent.name == "p=1"
            middle = "" if hidden else f"{file.parent.name}/"
            assert inspect_file(file).aad_prefix == f"{uuid}/{middle}{file.name}\0".encode()
    assert [row[0] for row in rows_of(lake.spark.table("t"))] == [2, 3, 4]


@pytest.mark.parametrize("kind", ["USING parquet", "STORED AS PARQUET"])
def test_insert_into_custom_partition_location(lake: Lake, kind: str) -> None:
    """A partition elsewhere is encrypted under its own identity, read back, overwritten and read back again."""
    policy = lake.policy()
    if kind == "USING parquet":
        lake.sql(f"CREATE TABLE t ({COLUMNS}, p INT) USING parquet PARTITIONED BY (p)")
    else:
        lake.sql(f"CREATE TABLE t ({COLUMNS}) PARTITIONED BY (p INT) STORED AS PARQUET")
    set_tags(lake.spark, "t", {"email": ["pii"], "salary": ["fin"]}, policy)
    for number, folder in enumerate(("elsewhere/p=1", "custom")):
        lake.sql(f"ALTER TABLE t ADD PARTITION (p = {number}) LOCATION 'file:{lake.root / folder}'")
        lake.sql(f"INSERT INTO t SELECT 1, {VALUES}, {number}")
        assert_encrypted(lake.root / folder, policy, KEYS)
        lake.sql(f"INSERT OVERWRITE t PARTITION (p = {number}) SELECT 2, {VALUES}")
        assert_encrypted(lake.root / folder, policy, KEYS)
    assert rows_of(lake.spark.table("t")) == [(2, SECRET, SECRET, PLAIN, 0), (2, SECRET, SECRET, PLAIN, 1)]
    assert data_files(lake.path("t")) == []


def test_streaming_file_sink(lake: Lake) -> None:
    """A structured streaming query encrypts every micro-batch of its file sink, which reads back as a whole."""
    policy = lake.policy()
    (lake.root / "in").mkdir()
    out, checkpoint = str(lake.root / "out"), str(lake.root / "checkpoint")
    for number in range(2):
        (lake.root / "in" / f"{number}.txt").write_text(f"{SECRET}{number}\n")
        rows = lake.spark.readStream.text(str(lake.root / "in")).select(
            F.col("value").alias("email", metadata={"tags": ["pii"]}), F.lit(PLAIN).alias("note")
        )
        writer = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        assert writer.start(out).awaitTermination(120)
    assert len(assert_encrypted(out, policy, {"email": "pii"})) == 2
    assert rows_of(lake.spark.read.parquet(out)) == [(f"{SECRET}0", PLAIN), (f"{SECRET}1", PLAIN)]


def test_new_session_obeys_the_policy(lake: Lake) -> None:
    """A session that ``newSession`` makes after ``configure`` encrypts and reads as well."""
    policy = lake.policy()
    session = lake.spark.newSession()
    quiet(session)
    path = str(lake.root / "out")
    tagged_rows(lake).createOrReplaceGlobalTempView(f"rows_{lake.database}")
    session.table(f"global_temp.rows_{lake.database}").write.parquet(path)
    assert_encrypted(path, policy, KEYS)
    assert rows_of(session.read.parquet(path)) == rows_of(tagged_rows(lake))


def test_footer_says_which_policy_made_it(lake: Lake) -> None:
    """The policy's digest stands in the key-value metadata of encrypted and of plaintext files."""
    policy = lake.policy()
    tagged_rows(lake).coalesce(1).write.parquet(str(lake.root / "secret"))
    tagged_rows(lake).select("id", "note").coalesce(1).write.parquet(str(lake.root / "open"))
    for folder in ("secret", "open"):
        (file,) = data_files(lake.root / folder)
        metadata = read_footer(file, retrieve_key=retriever(policy)).metadata
        assert metadata is not None
        noted = {pair.key: pair.value for pair in metadata.key_value_metadata or ()}
        assert noted["sparkcrypt.policy.digest"] == policy.digest()


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


def stream(lake: Lake, count: int, *, tagged: bool = False) -> None:
    """Append one line in each of some micro-batches to table ``t``, with ``toTable``."""
    (lake.root / "in").mkdir(exist_ok=True)
    for number in range(count):
        (lake.root / "in" / f"{number}.txt").write_text(f"{SECRET}{number}\n")
        email = F.col("value").alias("email", metadata={"tags": ["pii"]} if tagged else {})
        rows = lake.spark.readStream.text(str(lake.root / "in")).select(email, F.lit(PLAIN).alias("note"))
        writer = rows.writeStream.option("checkpointLocation", str(lake.root / "checkpoint")).format("parquet")
        assert writer.trigger(availableNow=True).toTable("t").awaitTermination(120)


def assert_streamed(lake: Lake, policy: Policy, count: int) -> None:
    """Assert that every file is encrypted, and that the table gives every micro-batch back."""
    assert len(assert_encrypted(lake.path("t"), policy, {"email": "pii"})) >= count
    assert rows_of(lake.spark.table("t")) == [(f"{SECRET}{number}", PLAIN) for number in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("tags", ["of both stores", "of the stored schema alone", "of the policy", "of the stream"])
def test_stream_into_a_tagged_table(lake: Lake, tags: str) -> None:
    """Each micro-batch of ``toTable`` is encrypted by the table's tags, wherever they are, or by the stream's own."""
    policy = lake.policy(tables=f"  {lake.database}.t: {{tags: {{email: [pii]}}}}\n" if tags == "of the policy" else "")
    if tags == "of the stored schema alone":
        email = F.lit("").alias("email", metadata={"tags": ["pii"]})
        lake.spark.range(0).select(email, F.lit(PLAIN).alias("note")).write.saveAsTable("t")
    elif tags != "of the stream":
        lake.sql("CREATE TABLE t (email STRING, note STRING) USING parquet")
    if tags == "of both stores":
        set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    stream(lake, 2, tagged=tags == "of the stream")
    assert_streamed(lake, policy, 2)
    poor = with_keys(policy, lake.root / "poor", without_keys("pii"))
    configure(lake.spark, poor)
    assert "KeyNotFoundError" in refusal(lake.spark.table("t").collect)


@pytest.mark.slow
def test_job_refuses_a_table_that_a_stream_writes(lake: Lake) -> None:
    """The sink keeps its own list of files, so a run that swapped them would lose rows: it changes nothing."""
    policy = lake.policy()
    lake.sql("CREATE TABLE t (email STRING, note STRING) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    stream(lake, 1)
    set_tags(lake.spark, "t", {"note": ["fin"]}, policy)
    with pytest.raises(PlanError, match="streaming sink"):
        encrypt_table(lake.spark, "t", policy)
    assert_encrypted(lake.path("t"), policy, {"email": "pii"})

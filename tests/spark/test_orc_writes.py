"""Tagged columns of ORC files that Spark writes: encrypted by every way that can, refused by every other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import Row
from pyspark.sql.functions import col

from sparkcrypt import configure, load_policy, names
from sparkcrypt.files.orc import inspect_orc, verify_orc
from sparkcrypt.files.orc.file.stripe import BLOOM_FILTERS, read_stripe_footer
from sparkcrypt.files.orc.file.tail import read_tail
from sparkcrypt.files.source import open_source
from sparkcrypt.keys.datakeys import DataKeyOpener
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.setup.options import launch_conf
from sparkcrypt.spark.tables.tagging import set_tags
from tests.conftest import FreshJvm
from tests.spark.fixtures import new_lake
from tests.spark.support import PLAIN, SECRET, Lake, key_service, make_policy, refusal, with_keys, without_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.sparks]

FORMATS = "formats: [parquet, orc]"
COLUMNS = "id BIGINT, email STRING, note STRING, phones ARRAY<STRUCT<kind: STRING, num: STRING>>"
ROWS = [Row(id=n, email=f"{SECRET} {n}", note=f"{PLAIN} {n}", phones=[("home", f"{SECRET} {n}")]) for n in range(8)]
ENCRYPTED = {("email",): "pii", ("phones", "_elem", "num"): "fin"}


@pytest.fixture(scope="module")
def site(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A database with a tagged Parquet table ``src`` to write from, under a policy that encrypts ORC."""
    with new_lake(spark, tmp_path_factory.mktemp("orc")) as lake:
        policy = lake.policy(more=FORMATS)
        lake.sql(f"CREATE TABLE src ({COLUMNS}) USING parquet")
        set_tags(lake.spark, "src", {"email": ["pii"], "phones.element.num": ["fin"]}, policy)
        lake.spark.createDataFrame(ROWS, COLUMNS).write.insertInto("src")
        yield lake


def policy_of(lake: Lake) -> Policy:
    """Return the policy that the site's session is under."""
    return load_policy(max(lake.root.glob("policy-*")) / "policy.yaml")


def by_table(create: str, insert: str = "INSERT INTO {t} SELECT * FROM src") -> Callable[[Lake, str], Path]:
    """Return a way to write that makes a table and inserts into it."""

    def write(lake: Lake, name: str) -> Path:
        lake.sql(create.format(t=name, columns=COLUMNS))
        lake.sql(insert.format(t=name))
        return lake.path(name)

    return write


def by_path(lake: Lake, name: str) -> Path:
    """Write files below a folder, and more of them beside the first."""
    path = lake.root / name
    lake.spark.table("src").write.orc(path.as_uri())
    lake.spark.table("src").write.mode("append").orc(path.as_uri())
    return path


def by_save_as_table(lake: Lake, name: str) -> Path:
    """Make a table of a frame, and append to it."""
    lake.spark.table("src").write.format("orc").saveAsTable(name)
    lake.spark.table("src").write.insertInto(name)
    return lake.path(name)


def by_options_of_somebody(lake: Lake, name: str) -> Path:
    """Write with options that take the encryption away, and ask for Bloom filters."""
    path = lake.root / name
    options = {"orc.encrypt": "", "orc.mask": "sha256:note", "orc.bloom.filter.columns": "email,id,phones"}
    lake.spark.table("src").write.options(**options).orc(path.as_uri())
    return path


def by_directory(lake: Lake, name: str) -> Path:
    """Write a folder by SQL."""
    path = lake.root / name
    lake.sql(f"INSERT OVERWRITE DIRECTORY '{path.as_uri()}' USING orc SELECT * FROM src")
    return path


def by_stream(lake: Lake, name: str) -> Path:
    """Write a folder by a stream."""
    path = lake.root / name
    rows = lake.spark.readStream.schema(lake.spark.table("src").schema).parquet(str(lake.path("src")))
    writer = rows.writeStream.format("orc").option("checkpointLocation", str(lake.root / f"{name}.checkpoint"))
    writer.trigger(availableNow=True).start(str(path)).awaitTermination()
    return path


def by_stream_into_table(lake: Lake, name: str) -> Path:
    """Write a table by a stream."""
    lake.sql(f"CREATE TABLE {name} ({COLUMNS}) USING orc")
    rows = lake.spark.readStream.schema(lake.spark.table("src").schema).parquet(str(lake.path("src")))
    writer = rows.writeStream.format("orc").option("checkpointLocation", str(lake.root / f"{name}.checkpoint"))
    writer.trigger(availableNow=True).toTable(name).awaitTermination()
    return lake.path(name)


WAYS: dict[str, Callable[[Lake, str], Path]] = {
    "path": by_path,
    "saveAsTable": by_save_as_table,
    "options": by_options_of_somebody,
    "directory": by_directory,
    "stream": by_stream,
    "stream into a table": by_stream_into_table,
    "USING orc": by_table("CREATE TABLE {t} ({columns}) USING orc"),
    "STORED AS ORC": by_table("CREATE TABLE {t} ({columns}) STORED AS ORC"),
    "CTAS": by_table("CREATE TABLE {t} USING orc AS SELECT * FROM src", "SELECT 1"),
    "Hive CTAS": by_table("CREATE TABLE {t} STORED AS ORC AS SELECT * FROM src", "SELECT 1"),
    "partition": by_table(
        "CREATE TABLE {t} ({columns}, day STRING) USING orc PARTITIONED BY (day)",
        "INSERT INTO {t} PARTITION (day = 'a') SELECT * FROM src",
    ),
    "dynamic partition": by_table(
        "CREATE TABLE {t} ({columns}) PARTITIONED BY (day STRING) STORED AS ORC",
        "INSERT OVERWRITE TABLE {t} PARTITION (day) SELECT *, CAST(id % 2 AS STRING) FROM src",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_tagged_columns_are_encrypted(site: Lake, way: str) -> None:
    """Every file has the tagged leaves under their keys, shows none of their values, verifies, and reads as before."""
    name = "t_" + way.lower().replace(" ", "_")
    folder = WAYS[way](site, name)
    files = sorted(folder.rglob("*.orc")) or sorted(path for path in folder.rglob("part-*"))
    assert files
    opener = DataKeyOpener(key_service(policy_of(site)))
    for file in files:
        summary = inspect_orc(str(file))
        found = {path: column.key_id for path, column in summary.columns.items() if column.encrypted}
        assert found.items() >= ENCRYPTED.items()
        assert found.keys() <= {*ENCRYPTED, ("phones", "_elem", "kind")}, "a table made of a query tags whole columns"
        data = file.read_bytes()
        assert SECRET.encode() not in data
        assert verify_orc(str(file), retrieve_key=lambda request: opener.open_metadata(request.key_metadata)).columns
    reader = site.spark.read.orc(folder.as_uri()).select("id", "email", "note", "phones")
    assert {tuple(row) for row in reader.select("id", "email").collect()} == {(row.id, row.email) for row in ROWS}
    assert reader.selectExpr("phones[0].num AS num").where("num IS NULL").count() == 0


@pytest.mark.parametrize(
    ("setting", "kept"),
    {
        "*": {1, 3},
        "id,email,phones": {1},
        " EMAIL , Id": {1},
        "2,`email`,email.x,note": {3},
        "phones._elem.kind": set(),
        "email,nosuch": set(),
        "id,*": {1},
    }.items(),
)
def test_bloom_filters_are_of_plaintext_columns_alone(site: Lake, setting: str, kept: set[int]) -> None:
    """ORC writes them in clear, so the setting keeps what ORC itself finds in it and is not encrypted, or nothing."""
    path = site.root / f"bloom_{abs(hash(setting))}"
    site.spark.table("src").write.option("orc.bloom.filter.columns", setting).orc(path.as_uri())
    for file in path.glob("*.orc"):
        with open_source(file) as opened:
            tail = read_tail(str(file))
            streams = [s for stripe in tail.stripes for s in read_stripe_footer(opened, tail, stripe).streams]
        assert {stream.column for stream in streams if stream.kind in BLOOM_FILTERS} == kept


@pytest.mark.parametrize("way", ["path", "saveAsTable", "USING orc", "CTAS", "stream"])
def test_hives_orc_format_is_refused(site: Lake, way: str) -> None:
    """It has the name of Spark's own, and its writer encrypts nothing."""
    site.spark.conf.set("spark.sql.orc.impl", "hive")
    name = "impl_" + way.lower().replace(" ", "_")
    try:
        said = refusal(WAYS[way], site, name)
    finally:
        site.spark.conf.unset("spark.sql.orc.impl")
    assert "PlanError" in said and "column email" in said
    for place in (site.path(name), site.root / name):
        assert not any(SECRET.encode() in file.read_bytes() for file in place.rglob("part-*"))


BY_HIVE = {
    "convertMetastoreOrc": "INSERT INTO by_hive PARTITION (day = 'a') SELECT * FROM src",
    "convertInsertingPartitionedTable": "INSERT INTO by_hive PARTITION (day = 'a') SELECT * FROM src",
    "convertMetastoreInsertDir": "INSERT OVERWRITE DIRECTORY '{folder}' STORED AS ORC SELECT * FROM src",
    "convertMetastoreCtas": "CREATE TABLE made_by_hive STORED AS ORC AS SELECT * FROM src",
}


@pytest.mark.parametrize("setting", BY_HIVE)
def test_hives_own_writer_is_refused(site: Lake, setting: str) -> None:
    """It knows no tags, so a tagged column is refused by its name, whatever the policy says of sinks."""
    site.sql(f"CREATE TABLE IF NOT EXISTS by_hive ({COLUMNS}) PARTITIONED BY (day STRING) STORED AS ORC")
    site.spark.conf.set(f"spark.sql.hive.{setting}", "false")
    try:
        said = refusal(site.sql, BY_HIVE[setting].format(folder=site.root / "hive_folder"))
    finally:
        site.spark.conf.unset(f"spark.sql.hive.{setting}")
    assert "PlanError" in said and "column email" in said and "Hive's own writer" in said
    assert not site.spark.catalog.tableExists("made_by_hive")
    for place in (site.path("by_hive"), site.path("made_by_hive"), site.root / "hive_folder"):
        assert not list(place.rglob("part-*"))


@pytest.mark.parametrize("kind", ["sources", "streaming"])
def test_another_commit_protocol_is_refused(site: Lake, kind: str) -> None:
    """Ours names the columns to each file's writer; under Spark's own they would be in clear."""
    name = f"spark.sql.{kind}.commitProtocolClass"
    own = str(site.spark.conf.get(name))
    protocols = {
        "sources": "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
        "streaming": "org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol",
    }
    site.spark.conf.set(name, protocols[kind])
    try:
        said = refusal(by_path if kind == "sources" else by_stream, site, f"other_{kind}")
        site.spark.table("src").select("id", "note").write.orc((site.root / f"untagged_{kind}").as_uri())
    finally:
        site.spark.conf.set(name, own)
    assert "commit" in said and ("ConfigError" in said or "PlanError" in said)
    assert not any(SECRET.encode() in file.read_bytes() for file in (site.root / f"other_{kind}").rglob("part-*"))


TAGGED_TABLES = {
    "native": ("", ""),
    "hive's format": ("spark.sql.orc.impl", "hive"),
    "hive's writer": ("spark.sql.hive.convertMetastoreOrc", "false"),
    "another protocol": (
        "spark.sql.sources.commitProtocolClass",
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
    ),
}


@pytest.mark.parametrize("writer", TAGGED_TABLES)
def test_tags_of_the_table_hold_for_values_without_tags(site: Lake, writer: str) -> None:
    """A literal has no tag: the table's own column is encrypted all the same, or the write is refused."""
    table = "tagged_" + "".join(letter for letter in writer if letter.isalpha())
    site.sql(f"CREATE TABLE {table} (id BIGINT, email STRING) STORED AS ORC")
    set_tags(site.spark, table, {"email": ["pii"]}, policy_of(site))
    setting, value = TAGGED_TABLES[writer]
    before = site.spark.conf.get(setting, None) if setting else None
    if setting:
        site.spark.conf.set(setting, value)
    try:
        if setting:
            said = refusal(site.sql, f"INSERT INTO {table} VALUES (1, '{SECRET}')")
            assert "PlanError: column" in said and "email" in said
        else:
            site.sql(f"INSERT INTO {table} VALUES (1, '{SECRET}')")
            assert [row.email for row in site.spark.table(table).collect()] == [SECRET]
    finally:
        if before is not None:
            site.spark.conf.set(setting, before)
        elif setting:
            site.spark.conf.unset(setting)
    files = list(site.path(table).rglob("part-*"))
    assert len(files) == (0 if setting else 1)
    assert not any(SECRET.encode() in file.read_bytes() for file in files)


def test_untagged_columns_are_in_clear(site: Lake) -> None:
    """Any reader of ORC reads what no tag encrypts."""
    path = site.root / "untagged"
    site.spark.table("src").select("id", "note").write.orc(path.as_uri())
    assert not any(
        column.encrypted for file in path.rglob("*.orc") for column in inspect_orc(str(file)).columns.values()
    )


def test_keys_of_any_name_encrypt(site: Lake, tmp_path: Path) -> None:
    """ORC's options take letters, digits and underscores as they are; other names stand in quotes."""
    odd = {"pii": "pii-2026-11", "fin": "café/fin key:1"}
    tags = "".join(f"\n  {tag}: {{key: '{key}'}}" for tag, key in odd.items()) + "\n"
    session, folder = site.spark.newSession(), tmp_path / "odd"
    configure(session, make_policy(tmp_path / "policy", tags, more=FORMATS))
    tagged = {"email": "pii", "note": "fin"}
    columns = [col(name).alias(name, metadata={"tags": [tag]}) for name, tag in tagged.items()]
    session.createDataFrame(ROWS, COLUMNS).select(*columns).write.orc(folder.as_uri())
    for file in folder.rglob("part-*"):
        found = inspect_orc(str(file)).columns
        assert {path[0]: column.key_id for path, column in found.items()} == {
            name: odd[tag] for name, tag in tagged.items()
        }
    assert session.read.orc(folder.as_uri()).where(f"email = '{SECRET} 3'").count() == 1


def test_readers_get_what_their_keys_allow(site: Lake, tmp_path: Path) -> None:
    """In one JVM, after a reader with all keys: a denied column is an error and never null; the rest is read."""
    folder = by_path(site, "read")
    poor = site.spark.newSession()
    configure(poor, with_keys(policy_of(site), tmp_path / "keys", without_keys("pii")))
    table = poor.read.orc(folder.as_uri())
    assert table.select("id", "note", "phones").count() == 2 * len(ROWS)
    assert table.selectExpr("max(phones[0].num) AS num").collect()[0].num.startswith(SECRET)
    for query in (lambda: table.select("email").collect(), lambda: table.where("email = 'x'").count()):
        said = refusal(query)
        assert "KeyNotFoundError" in said and "'pii'" in said
    ignoring = poor.read.option("ignoreCorruptFiles", "true").orc(folder.as_uri())
    assert "KeyNotFoundError" in refusal(lambda: ignoring.select("email").collect())
    rich = site.spark.read.orc(folder.as_uri())
    assert rich.where(f"email = '{SECRET} 3'").count() == 2


def test_whatever_fails_is_an_error_and_never_null(site: Lake, tmp_path: Path) -> None:
    """ORC takes an IOException of a provider for a denied key: a key service that is away must be an error."""
    folder = by_path(site, "away")
    away = site.spark.newSession()
    configure(away, with_keys(policy_of(site), tmp_path / "keys", without_keys()))
    shutil.rmtree(tmp_path / "keys")
    (tmp_path / "keys").write_text("no folder")
    said = refusal(lambda: away.read.orc(folder.as_uri()).select("email").collect())
    assert "RefusedError" in said and "Error: " in said
    (tmp_path / "keys").unlink()


def test_provider_that_somebody_sets_changes_nothing(site: Lake) -> None:
    """Neither SET nor an option of a read takes the keys away, which would show as nulls."""
    folder = by_path(site, "provider")
    own = str(site.spark.conf.get("orc.key.provider"))
    site.spark.conf.set("orc.key.provider", "hadoop")
    try:
        assert site.spark.read.orc(folder.as_uri()).where("email IS NOT NULL").count() == 2 * len(ROWS)
    finally:
        site.spark.conf.set("orc.key.provider", own)
    table = site.spark.read.option("orc.key.provider", "sparkcrypt:guess").schema(COLUMNS).orc(folder.as_uri())
    assert table.where("email IS NOT NULL").count() == 2 * len(ROWS)


def test_session_without_a_policy_gets_nulls(site: Lake) -> None:
    """ORC gives masked values to readers without keys; nothing of sparkcrypt is in such a session."""
    folder = by_path(site, "nulls")
    with site.stranger() as stranger:
        assert stranger.read.orc(folder.as_uri()).where("email IS NOT NULL").count() == 0


def test_orc_is_in_clear_where_the_policy_does_not_name_it(lake: Lake) -> None:
    """Without the opt-in a tagged column is judged as for every sink that encrypts nothing."""
    policy = lake.policy(more="sinks: deny")
    lake.sql("CREATE TABLE src (id BIGINT, email STRING) USING parquet")
    set_tags(lake.spark, "src", {"email": ["pii"]}, policy)
    lake.sql(f"INSERT INTO src VALUES (1, '{SECRET}')")
    said = refusal(lake.spark.table("src").write.orc, str(lake.root / "out"))
    assert "PlanError" in said and "written to orc" in said.lower()


def test_writer_that_nobody_prepared_writes_nothing(site: Lake) -> None:
    """A commit protocol of another name, which passes ours by, meets an option that no writer can follow."""
    folder = site.root / "unprepared"
    schema = site.spark.table("src").schema.json()
    options = {"parquet.sparkcrypt.orc.schema": schema, "orc.encrypt": "none:not.prepared.by.sparkcrypt"}
    with site.stranger() as stranger:
        rows = stranger.createDataFrame([(1, SECRET)], "id BIGINT, email STRING")
        refusal(rows.write.options(**options).orc, folder.as_uri())
    assert not any(SECRET.encode() in file.read_bytes() for file in folder.rglob("part-*"))


LAUNCHED = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
for name, value in json.loads(Path(sys.argv[1]).read_text()).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
table = spark.read.option("ignoreCorruptFiles", sys.argv[3]).orc(sys.argv[2])
print("rows", table.where("email IS NOT NULL").count())
"""


@pytest.mark.parametrize("ignoring", ["true", "false"])
def test_launch_with_a_key_service_alone_loses_no_row(
    site: Lake, fresh_jvm: FreshJvm, private_jar: Path, tmp_path: Path, ignoring: str
) -> None:
    """Without a policy keys are opened by the launch's key service; no row is missing, whatever Spark skips."""
    folder = by_path(site, f"launched-{ignoring}")
    conf = launch_conf(policy_of(site), str(private_jar))
    del conf[f"spark.hadoop.{names.POLICY}"]
    conf[f"spark.hadoop.{names.KEY_SERVICE}"] = policy_of(site).key_service.canonical()
    (tmp_path / "conf.json").write_text(json.dumps(conf))
    done = fresh_jvm(LAUNCHED, tmp_path / "conf.json", folder.as_uri(), ignoring)
    assert done.stdout.split() == ["rows", str(2 * len(ROWS))], done.stderr[-3000:]

"""Data skipping: queries of a table with a store, kept open or in parts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import sparkcrypt
from sparkcrypt import masked_columns, names, skipping_report
from sparkcrypt.cli.main import cli
from sparkcrypt.skipping.trusted import write
from sparkcrypt.skipping.trusted.sidecar import SIDECAR, PartSize
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.fixtures import new_lake
from tests.spark.stored_tables import (
    FILES,
    ROWS,
    append,
    check,
    heard,
    index,
    make,
    policy_file,
    report,
    store_of,
    without_skipping,
)
from tests.spark.support import Lake, data_files, refusal, rows_of, with_keys, without_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KINDS = """(id INT, b BOOLEAN, ti TINYINT, si SMALLINT, bi BIGINT, f FLOAT, d DOUBLE, n DECIMAL(12,2), s STRING,
    x BINARY, da DATE, ts TIMESTAMP, ntz TIMESTAMP_NTZ, plain STRING) USING parquet"""
"""Column s of file 3 has nulls alone, d of file 5 has a NaN, d of file 2 -0.0."""
VALUES = (
    "CAST(id AS INT) id",
    "id >= 120 b",
    "CAST(id - 120 AS TINYINT) ti",
    "CAST(IF(id % 7 = 0, NULL, id * 10) AS SMALLINT) si",
    "IF(id % 7 = 1, NULL, id * 10000000000) bi",
    "CAST(id / 4 AS FLOAT) f",
    "CASE WHEN id = 160 THEN double('NaN') WHEN id BETWEEN 60 AND 89 THEN double('-0.0') ELSE id - 75.5D END d",
    "CAST(id * 1.25 AS DECIMAL(12,2)) n",
    "IF(id BETWEEN 90 AND 119 OR id % 7 = 2, NULL, concat('s', lpad(id, 4, '0'), 'ü')) s",
    "CAST(lpad(id, 4, '0') AS BINARY) x",
    "date_add(DATE '2024-01-01', CAST(id AS INT)) da",
    "timestamp_micros(1700000000000000 + id * 3600000000) ts",
    "CAST(date_add(DATE '2024-01-01', CAST(id AS INT)) AS TIMESTAMP_NTZ) ntz",
    "concat('p', lpad(id, 4, '0')) plain",
)
INDEXED = ("id", "b", "ti", "si", "bi", "f", "d", "n", "s", "x", "da", "ts", "ntz", "plain")
SKIPPED = {
    "id = 31": 7,
    "31 = id": 7,
    "30 > id": 7,
    "209 < id": 7,
    "29 >= id": 7,
    "210 <= id": 7,
    "id <= 29": 7,
    "id >= 210 AND plain < 'p0215'": 7,
    "id BETWEEN 25 AND 35": 6,
    "id IN (1, 200)": 6,
    "id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)": 7,
    "id NOT IN (1, 200)": 0,
    "NOT (id >= 30)": 7,
    "id <=> 40": 7,
    "NOT (id <=> 40)": 0,
    "id = 40 OR s LIKE 's0200%'": 6,
    "NOT (id < 200 OR plain = 'p0239')": 6,
    "id = 5 AND rand(7) >= 0": 7,
    "b": 4,
    "NOT b": 4,
    "b = false": 4,
    "ti = 10Y": 7,
    "ti > -121 AND ti < -100Y": 7,
    "si = 1000": 7,
    "si > 2000S": 6,
    "bi >= 2100000000000": 7,
    "bi = 2100000000000 OR bi IS NULL": 0,
    "f < 5.5F": 7,
    "f = 2.25": 7,
    "d > 160": 0,
    "d = double('NaN')": 0,
    "d > 1e300": 0,
    "NOT (d <= 1e300)": 0,
    "d = 0": 5,
    "d < 0": 6,
    "d IN (-75.5D, -7D)": 6,
    "d IN (0.0D, 1D, 2D, 3D, 4D, 5D, 6D, 7D, 8D, 9D, 10D, 11D)": 5,
    "d NOT IN (0.0D, 1D, 2D, 3D, 4D, 5D, 6D, 7D, 8D, 9D, 10D, 11D)": 0,
    "n = 12.50": 7,
    "n >= 290.00": 7,
    "n IN (12.50, 250.00)": 6,
    "s = 's0031ü'": 7,
    "s LIKE 's02%'": 6,
    "s NOT LIKE 's02%'": 2,
    "s > 's0209ü'": 7,
    "s IS NULL": 0,
    "s IS NOT NULL": 1,
    "startswith(plain, 'p003')": 7,
    "contains(plain, '31')": 0,
    "upper(plain) = 'P0031'": 0,
    "plain LIKE '%31'": 0,
    "x = X'30303331'": 7,
    "x > X'30323330'": 7,
    "da = DATE '2024-02-01'": 7,
    "da >= '2024-08-01'": 7,
    "year(da) = 2024": 0,
    "ts < timestamp_micros(1700000000000000)": 8,
    "ts = timestamp_micros(1700000000000000 + 31 * 3600000000)": 7,
    "ntz = TIMESTAMP_NTZ '2024-02-01 00:00:00'": 7,
    "CAST(id AS STRING) = '31'": 0,
    "CAST(id AS BIGINT) = 31": 7,
    "d = id": 0,
    "id + 1 = 31": 0,
    "id = 31 AND _metadata.file_size > 0": 7,
    "_metadata.file_name = 'none'": 0,
    "id = 7 AND 1 = 1": 7,
}
"""A predicate -> how many of the eight files are skipped; the greatest double of each file may be a NaN."""


@pytest.fixture(scope="module")
def kinds(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A table with a column of every type that is indexed."""
    with new_lake(spark, tmp_path_factory.mktemp("kinds")) as lake:
        lake.policy(more="index: {location: indexes/}\n")
        lake.spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        lake.sql(f"CREATE TABLE t {KINDS}")
        set_tags(lake.spark, "t", {"s": ["pii"], "n": ["fin"], "d": ["fin"]}, None)
        lake.spark.range(ROWS).selectExpr(*VALUES).repartitionByRange(FILES, "id").write.insertInto("t")
        assert len(data_files(lake.path("t"))) == FILES
        index(lake, "t", *INDEXED)
        lake.spark.conf.set(names.SKIPPING, "true")
        yield lake


@pytest.fixture
def stored(lake: Lake) -> Lake:
    """A table of three columns with a store, in a session that goes by it."""
    lake.policy(more="index: {location: indexes/}\n")
    make(lake)
    return lake


@pytest.mark.parametrize("predicate", SKIPPED)
def test_rows_are_those_of_a_whole_scan(kinds: Lake, predicate: str) -> None:
    """Each predicate finds the rows that it finds without stores, and opens no more files than its bounds allow."""
    found = check(kinds, f"SELECT * EXCEPT (d), string(d) d FROM t WHERE {predicate}")
    assert found.skipped == SKIPPED[predicate]


def test_time_zone_of_the_session_counts(kinds: Lake) -> None:
    """A timestamp in words means another instant in another zone, and so other files."""
    query = "SELECT id FROM t WHERE ts >= TIMESTAMP '2023-11-23 02:00:00'"
    ends = set()
    for zone in ("Pacific/Auckland", "UTC", "America/Los_Angeles"):
        kinds.spark.conf.set("spark.sql.session.timeZone", zone)
        assert check(kinds, query).skipped >= 6
        ends.add(kinds.sql(query).count())
    kinds.spark.conf.unset("spark.sql.session.timeZone")
    assert len(ends) == 3


@pytest.mark.parametrize(
    ("columns", "predicate"),
    [
        ("s CHAR(8)", "s = 's0031ü'"),
        ("s STRING COLLATE UTF8_LCASE", "s = 'S0031ü'"),
        ("id BIGINT", "id = 31"),
        ("id INT, added INT", "added IS NULL"),
        ("id INT, part INT", "id = 31"),
    ],
)
def test_columns_of_other_types_are_not_judged(kinds: Lake, columns: str, predicate: str) -> None:
    """Another table over the same files reads their columns by other types: its store's indexes say nothing of them."""
    uuid = store_of(kinds).name
    place = f"LOCATION '{kinds.path('t').as_uri()}'"
    kinds.sql(f"CREATE TABLE other ({columns}) USING parquet OPTIONS ('{names.TABLE_UUID}' '{uuid}') {place}")
    try:
        found = check(kinds, f"SELECT * FROM other WHERE {predicate}")
        assert found.skipped == (7 if "part" in columns else 0)
        assert found.store is None or found.store.endswith(uuid)
    finally:
        kinds.sql("DROP TABLE other")


@pytest.mark.parametrize("name", ["spark.sql.caseSensitive", "spark.sql.parquet.fieldId.read.enabled"])
def test_columns_that_are_found_by_other_names_are_not_judged(kinds: Lake, name: str) -> None:
    """Where case tells columns apart, or ids do, no index is used, and the report says so."""
    kinds.spark.conf.set(name, "true")
    try:
        found = check(kinds, "SELECT * EXCEPT (d) FROM t WHERE id = 31")
    finally:
        kinds.spark.conf.unset(name)
    assert found.skipped == 0
    assert name in str(found.why)


def test_every_way_to_a_table_is_served(stored: Lake) -> None:
    """SQL, DataFrames, paths, views, joins, subqueries and unions open fewer files, and find the same rows."""
    spark, path = stored.spark, str(stored.path("t"))
    stored.sql("CREATE VIEW v AS SELECT id, email FROM t WHERE id < 100")
    frames = {
        "path": spark.read.parquet(path).where("id = 31"),
        "SQL path": stored.sql(f"SELECT * FROM parquet.`{path}` WHERE id = 31"),
        "DataFrame": spark.table("t").where("id = 31").select("email"),
        "view": stored.sql("SELECT email FROM v WHERE id = 31"),
        "count": stored.sql("SELECT count(*), max(email) FROM t WHERE id = 31"),
        "join": stored.sql("SELECT x.email, y.plain FROM t x JOIN t y ON x.id = y.id WHERE x.id = 31"),
        "subquery": stored.sql("SELECT email FROM t WHERE id = 31 AND email IN (SELECT email FROM t WHERE id = 31)"),
        "scalar subquery": stored.sql("SELECT (SELECT max(email) FROM t WHERE id = 31) m"),
        "union": stored.sql("SELECT id FROM t WHERE id = 31 UNION ALL SELECT id FROM t WHERE id = 200"),
    }
    for name, frame in frames.items():
        found = skipping_report(frame)
        assert found, name
        assert {(scan.listed, scan.opened) for scan in found} == {(FILES, 1)}, (name, found)
    rows = {name: rows_of(frame) for name, frame in frames.items()}
    spark.conf.set(names.SKIPPING, "false")
    assert skipping_report(spark.table("t").where("id = 31")) == ()
    assert rows["path"] == [(31, "e0031", "p0031")] == rows_of(spark.table("t").where("id = 31"))
    assert rows["join"] == [("e0031", "p0031")]
    assert rows["union"] == [(200,), (31,)]
    assert rows["scalar subquery"] == [("e0031",)] == rows["subquery"] == rows["view"] == rows["DataFrame"]


QUERIES_IN_THE_UI = {
    "one scan": ("SELECT plain FROM t WHERE id = 31", [7]),
    "aggregate": ("SELECT count(*), max(email) FROM t WHERE id = 31", [7]),
    "join": ("SELECT x.email, y.plain FROM t x JOIN t y ON x.id = y.id WHERE x.id < 60", [6, 6]),
    "scalar subquery": ("SELECT id FROM t WHERE id < 60 AND plain = (SELECT max(plain) FROM t WHERE id < 30)", [6, 7]),
}


@pytest.mark.parametrize("adapts", ["true", "false"])
@pytest.mark.parametrize("name", QUERIES_IN_THE_UI)
def test_ui_shows_how_many_files_each_index_leaves_out(stored: Lake, name: str, adapts: str) -> None:
    """Spark's own record of an execution has the metrics of each scan, by whatever rules it was planned."""
    spark, (query, skipped) = stored.spark, QUERIES_IN_THE_UI[name]
    spark.conf.set("spark.sql.adaptive.enabled", adapts)
    spark.sql(query).collect()
    assert shown_in_ui(stored, "number of files skipped") == skipped
    assert shown_in_ui(stored, "number of files skipped by id minmax") == skipped


def shown_in_ui(lake: Lake, metric: str) -> list[int]:
    """Return the values of a metric in the execution that ran last, in order, as Spark's UI has them."""
    store = lake.spark._jsparkSession.sharedState().statusStore()
    lake.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    executions = store.executionsList()
    last = max((executions.apply(i) for i in range(executions.size())), key=lambda execution: execution.executionId())
    values, found, metrics = store.executionMetrics(last.executionId()), {}, last.metrics()
    for i in range(metrics.size()):
        value = values.get(metrics.apply(i).accumulatorId())
        if metrics.apply(i).name() == metric and value.isDefined():
            found[metrics.apply(i).accumulatorId()] = int(value.get().replace(",", ""))
    return sorted(found.values())


def test_equal_scans_of_one_query_share_their_work(stored: Lake) -> None:
    """A query that scans a table twice alike still runs one exchange, and one that scans it differently runs two."""
    counts = "SELECT * FROM (SELECT id, count(*) FROM t WHERE id < {} GROUP BY id)"
    for first, second in ((10, 10), (10, 40)):
        frame = stored.sql(" UNION ALL ".join(counts.format(end) for end in (first, second)))
        assert len(rows_of(frame)) == first + second
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert ("ReusedExchange" in plan) is (first == second)


def test_query_and_session_choose(stored: Lake) -> None:
    """It is off by default; the session's word counts, an option of one read more, and other words are refused."""
    spark, path = stored.spark, str(stored.path("t"))
    spark.conf.unset(names.SKIPPING)
    assert skipping_report(spark.table("t").where("id = 31")) == ()
    assert "SkippingFileIndex" not in str(stored.sql("EXPLAIN SELECT * FROM t WHERE id = 31").collect())
    asked = spark.read.option(names.SKIPPING, "true").parquet(path).where("id = 31")
    assert skipping_report(asked)[0].opened == 1
    spark.conf.set(names.SKIPPING, "TRUE")
    assert "Location: SkippingFileIndex" in str(stored.sql("EXPLAIN SELECT * FROM t WHERE id = 31").collect())
    assert skipping_report(spark.read.option(names.SKIPPING, "false").parquet(path).where("id = 31")) == ()
    spark.conf.set(names.SKIPPING, "always")
    assert "spark.sparkcrypt.skipping is 'always'; allowed: true, false" in refusal(spark.table("t").count)


@pytest.mark.sparks
def test_each_spark_serves_or_says_that_it_cannot(stored: Lake) -> None:
    """Spark 4 opens the files that the store leaves; Spark 3.5 opens all, finds the same rows, and has a warning."""
    rule = "io.sparkcrypt.SkipRule"
    with heard(stored, rule) as writer:
        for predicate, rows in (("id = 31", 1), ("email >= 'e0200' AND id < 215", 15)):
            frame = stored.sql(f"SELECT * FROM t WHERE {predicate}")
            assert len(frame.collect()) == rows
            if stored.spark.version.startswith("3."):
                assert skipping_report(frame) == ()
            else:
                assert report(frame).opened < FILES  # with the metrics of its scan
        warned = str(writer.toString())
    assert ("skipping needs Spark 4.0 or later" in warned) is stored.spark.version.startswith("3.")


def test_policy_that_names_no_place_has_no_stores(lake: Lake) -> None:
    """Without ``index.location`` in the policy, the session's word changes nothing."""
    lake.policy()
    lake.sql("CREATE TABLE t (id INT, email STRING, plain STRING) USING parquet")
    append(lake, "t", 0, 10, 2)
    lake.spark.conf.set(names.SKIPPING, "true")
    assert skipping_report(lake.spark.table("t").where("id = 1")) == ()


def test_table_without_a_store_is_read_whole(stored: Lake) -> None:
    """A table that has no store, or no UUID to find one by, is read as ever, and the report says why."""
    stored.sql("CREATE TABLE u (id INT, email STRING, plain STRING) USING parquet")
    append(stored, "u", 0, 10, 2)
    assert "no UUID" in str(check(stored, "SELECT * FROM u WHERE id = 1").why)
    set_tags(stored.spark, "u", {"email": ["pii"]}, None)
    found = check(stored, "SELECT * FROM u WHERE id = 1")
    assert "there is no index" in str(found.why)
    assert "sparkcrypt index create" in str(found.why)


class Readers:
    """A reader who lacks the key of ``email``, and one who has it, over one table with a store."""

    def __init__(self, lake: Lake, on_denied: Any) -> None:
        policy = lake.policy(more="index: {location: indexes/}\n")
        make(lake)
        poor = with_keys(policy, lake.root / "poor", without_keys("pii"))
        self.poor = sparkcrypt.session(poor, on_denied=on_denied)
        self.poor.sql(f"USE {lake.database}")
        self.poor.conf.set(names.SKIPPING, "true")


def test_reader_without_a_key_gets_the_same_rows_and_refusals(lake: Lake) -> None:
    """Indexes of other columns serve him; a query of the denied column is refused, even where no file could match."""
    poor = Readers(lake, None).poor
    found = check(lake, "SELECT id, plain FROM t WHERE id = 31 OR plain = 'p0200'", poor)
    assert (found.opened, list(found.unused)) == (2, ["email minmax"])
    for query in (
        "SELECT id FROM t WHERE email = 'e0031'",
        "SELECT id FROM t WHERE email = 'none'",
        "SELECT id FROM t WHERE id = 31 AND email = 'none'",
        "SELECT email FROM t WHERE id = 31",
        "SELECT email FROM t WHERE id = -1",
        "SELECT count(*) FROM t WHERE id = -1 AND email IS NOT NULL",
        "SELECT * FROM t WHERE id = 1000",
    ):
        (scan,) = skipping_report(poor.sql(query))
        assert (scan.opened, scan.store) == (FILES, None)
        assert "column email is under key 'pii'" in str(scan.why)
        texts = []
        for word in ("true", "false"):
            poor.conf.set(names.SKIPPING, word)
            poor.conf.set(
                "spark.sql.parquet.filterPushdown", "false"
            )  # else Spark's own statistics may spare the column
            texts.append("column email of table" in refusal(poor.sql(query).collect))
        poor.conf.set(names.SKIPPING, "true")
        assert texts == [True, True], query


def test_masked_column_is_not_judged_by_its_values(lake: Lake) -> None:
    """Where a reader gets nulls, predicates see nulls, and no file is left out by values that he may not see."""
    poor = Readers(lake, "mask").poor
    for predicate, rows in (("email IS NULL", ROWS), ("email = 'e0031'", 0), ("id = 31 AND email IS NULL", 1)):
        query = f"SELECT id, email FROM t WHERE {predicate}"
        frame = poor.sql(query)
        assert len(rows_of(frame)) == rows == len(without_skipping(poor, query))
        assert masked_columns(frame) == {"email": "key pii of tag pii is missing"}
    assert check(lake, "SELECT id, email FROM t WHERE id = 31 AND email IS NULL", poor).opened == 1


def test_files_that_came_or_changed_since_are_opened(stored: Lake) -> None:
    """Files that were appended or overwritten are opened until the store is refreshed."""
    append(stored, "t", 1000, 1010, 2)
    found = check(stored, "SELECT * FROM t WHERE id = 1005 OR id = 31")
    assert (found.listed, found.opened) == (FILES + 2, 3)
    index(stored, "t", verb="refresh")
    found = check(stored, "SELECT * FROM t WHERE id = 1005 OR id = 31")
    assert (found.opened, found.generation) == (2, 2)
    stored.sql("INSERT OVERWRITE t SELECT id + 1500, 'e', 'p' FROM range(20)")
    found = check(stored, "SELECT * FROM t WHERE id = 1505")
    assert found.skipped == 0
    assert stored.sql("SELECT * FROM t WHERE id = 1505").count() == 1


def test_file_that_was_replaced_under_its_name_is_opened(stored: Lake) -> None:
    """Other rows under the name of an indexed file are found: its time tells, or its length."""
    first = data_files(stored.path("t"))[0]
    kept = first.stat()
    with stored.stranger() as stranger:
        rows = stranger.range(5000, 5300).selectExpr("CAST(id AS INT) id", "'x' email", "'y' plain")
        rows.coalesce(1).write.parquet(str(stored.root / "made"))
    (made,) = data_files(stored.root / "made")
    other = stored.root / "other" / first.name
    other.parent.mkdir()
    orders = ("--policy", policy_file(stored), "--column-keys", "pii:email")
    done = CliRunner().invoke(cli, ["rewrite", str(made), str(other), *orders])
    assert done.exit_code == 0, done.output
    (first.parent / f".{first.name}.crc").unlink()
    shutil.copyfile(other, first)
    for nanoseconds in (first.stat().st_mtime_ns, kept.st_mtime_ns):
        os.utime(first, ns=(nanoseconds, nanoseconds))
        assert first.stat().st_size != kept.st_size
        stored.sql("REFRESH TABLE t")
        found = check(stored, "SELECT id, email FROM t WHERE id = 5005")
        assert (found.listed, found.opened) == (FILES, 1)
        assert stored.sql("SELECT id FROM t WHERE id = 5005").collect() == [(5005,)]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("flipped", "does not authenticate"),
        ("cut", "_sparkcrypt.json"),
        ("gone", "is gone"),
        ("other", "is the store of table"),
        ("in clear", "the file is not encrypted"),
    ],
)
def test_store_that_is_not_what_was_written_is_not_used(stored: Lake, damage: str, why: str) -> None:
    """Every file is opened, with the reason in report and log; the rows are those of the table."""
    store = store_of(stored)
    (part,) = [file for file in store.iterdir() if file.suffix == ".parquet"]
    if damage == "flipped":
        content = bytearray(part.read_bytes())
        content[len(content) // 3] ^= 1
        part.write_bytes(content)
    elif damage == "cut":
        (store / SIDECAR).write_bytes((store / SIDECAR).read_bytes()[:-5])
    elif damage == "gone":
        part.unlink()
    elif damage == "other":
        make(stored, "second")
        shutil.rmtree(store)
        shutil.copytree(store_of(stored, "second"), store)
    else:
        shutil.copy(in_clear(stored), part)
    for _ in range(2):
        found = check(stored, "SELECT * FROM t WHERE id = 31")
        assert (found.opened, found.store) == (FILES, None)
        assert why in str(found.why)


def in_clear(lake: Lake) -> Path:
    """Return a plain Parquet file."""
    with lake.stranger() as stranger:
        stranger.range(3).coalesce(1).write.parquet(str(lake.root / "clear"))
    return data_files(lake.root / "clear")[0]


def test_warning_has_the_reason_and_no_literal(stored: Lake) -> None:
    """A store that cannot be used is one warning a query, in which no value of the query stands."""
    (store_of(stored) / SIDECAR).write_text("{}")
    with heard(stored) as writer:
        assert stored.sql("SELECT count(*) FROM t WHERE email = 'e0031'").collect() == [(1,)]
        (line,) = str(writer.toString()).splitlines()
    assert "no file is skipped, since its store cannot be used: FormatError: _sparkcrypt.json" in line
    assert "e0031" not in line


def test_earlier_store_is_not_used_after_a_later_one(stored: Lake) -> None:
    """A process that has used a generation refuses the files of an earlier one that somebody brought back."""
    store = store_of(stored)
    shutil.copytree(store, stored.root / "old")
    append(stored, "t", 1000, 1010, 2)
    index(stored, "t", verb="refresh")
    assert check(stored, "SELECT * FROM t WHERE id = 31").generation == 2
    shutil.rmtree(store)
    shutil.copytree(stored.root / "old", store)
    found = check(stored, "SELECT * FROM t WHERE id = 31")
    assert found.skipped == 0
    assert "is of generation 1, and 2 was written last" in str(found.why)


@pytest.mark.parametrize("kind", ["USING parquet PARTITIONED BY (day)", "PARTITIONED BY (day DATE) STORED AS PARQUET"])
def test_partitions_are_pruned_first(lake: Lake, kind: str) -> None:
    """Of a partitioned table the store is asked about the files of the partitions that are left, wherever these are."""
    lake.policy(more="index: {location: indexes/}\n")
    inside = ", day DATE" if "USING" in kind else ""
    lake.sql(f"CREATE TABLE t (id INT, email STRING{inside}) {kind}")
    set_tags(lake.spark, "t", {"email": ["pii"]}, None)
    day = "date_add(DATE '2024-01-01', CAST(id % 4 AS INT)) day"
    rows = lake.spark.range(80).selectExpr("CAST(id AS INT) id", "concat('e', lpad(id, 2, '0')) email", day)
    rows.repartitionByRange(2, "id").write.insertInto("t")
    index(lake, "t", "id", "email", more=("--partition", "day=date"))
    lake.spark.conf.set(names.SKIPPING, "true")
    found = check(lake, "SELECT * FROM t WHERE day = DATE '2024-01-02' AND id = 5")
    assert (found.listed, found.opened) == (2, 1)
    found = check(lake, "SELECT * FROM t WHERE id > 75 OR day = DATE '2024-01-02' AND id > 60")
    assert (found.listed, found.opened) == (8, 4)
    found = check(lake, "SELECT id FROM t WHERE email = 'e05' AND day >= DATE '2024-01-02'")
    assert (found.listed, found.opened) == (6, 3)
    elsewhere = lake.root / "elsewhere"
    shutil.copytree(lake.path("t") / "day=2024-01-02", elsewhere / "day=2024-01-02")
    lake.sql(f"ALTER TABLE t PARTITION (day = '2024-01-02') SET LOCATION 'file://{elsewhere}/day=2024-01-02'")
    found = check(lake, "SELECT id FROM t WHERE id = 5")
    assert (found.listed, found.opened) == (8, 5)
    assert lake.sql("SELECT id FROM t WHERE id = 5").collect() == [(5,)]


def test_hive_table_is_served_where_spark_reads_it(lake: Lake) -> None:
    """A table that Spark converts goes by its store; where Hive's SerDe reads it, nothing is skipped."""
    lake.policy(more="index: {location: indexes/}\n")
    make(lake, columns="(id INT, email STRING, plain STRING) STORED AS PARQUET")
    assert check(lake, "SELECT * FROM t WHERE id = 31 AND email > 'e'").opened == 1
    lake.spark.conf.set("spark.sql.hive.convertMetastoreParquet", "false")
    assert skipping_report(lake.sql("SELECT * FROM t WHERE id = 31")) == ()
    assert lake.sql("SELECT id FROM t WHERE id = 31").collect() == [(31,)]


def test_key_that_is_another_for_each_partition(lake: Lake) -> None:
    """Under a key template, a query that reads a partition whose key is denied opens all files, and others skip."""
    tags = """
  pay: {key: "pay-{day:%Y-%m}"}
"""
    policy = lake.policy(tags, keys=("pay-2026-01", "pay-2026-02"), more="index: {location: indexes/}\n")
    lake.sql("CREATE TABLE t (id INT, pay INT, day STRING) USING parquet PARTITIONED BY (day)")
    set_tags(lake.spark, "t", {"pay": ["pay"]}, None)
    lake.sql("INSERT INTO t VALUES (1, 10, '2026-01-05'), (2, 20, '2026-02-07')")
    index(lake, "t", "id")
    poor = sparkcrypt.session(with_keys(policy, lake.root / "poor", without_keys("pay-2026-02")))
    poor.sql(f"USE {lake.database}")
    for session in (lake.spark, poor):
        session.conf.set(names.SKIPPING, "true")
    assert check(lake, "SELECT pay FROM t WHERE id = 1").opened == 1
    assert check(lake, "SELECT id FROM t WHERE id = 1", poor).opened == 1
    (scan,) = skipping_report(poor.sql("SELECT pay FROM t WHERE id = 1"))
    assert (scan.opened, scan.listed) == (2, 2)
    assert "column pay is under key 'pay-2026-02'" in str(scan.why)
    assert check(lake, "SELECT pay FROM t WHERE id = 1 AND day < '2026-02'", poor).listed == 1


def test_filters_and_lists_serve_columns_that_are_scattered(lake: Lake) -> None:
    """Where bounds say nothing, a filter of an encrypted column and a list leave files out, with the same rows."""
    lake.policy(more="index: {location: indexes/}\n")
    lake.sql("CREATE TABLE t (id INT, email STRING, city STRING) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, None)
    rows = lake.spark.range(0, ROWS).selectExpr(
        "CAST(id AS INT) id", "concat('e', lpad(id * 7919 % 10007, 5, '0')) email", "concat('c', id DIV 30) city"
    )
    rows.repartitionByRange(FILES, "id").write.insertInto("t")
    index(lake, "t", "email:bloom", "city:values")
    lake.spark.conf.set(names.SKIPPING, "true")
    for where, by in (("email = 'e07919'", "email bloomfilter"), ("city IN ('c3', 'none')", "city valuelist")):
        scan = check(lake, f"SELECT id FROM t WHERE {where}")
        assert scan.by.get(by, 0) >= FILES - 2, scan
        assert lake.sql(f"SELECT id FROM t WHERE {where}").count() > 0


OPENED = {
    "id = 31": 1,
    "email = 'e0031' OR plain = 'p0200'": 2,
    "id BETWEEN 25 AND 35 AND NOT (email >= 'e0032')": 2,
    "email IS NULL": FILES,
    "id > 1000": 0,
}
"""Predicate -> how many of the files are opened, by a store that is kept open and by its parts."""


def enlarge(patched: pytest.MonkeyPatch, rows: int) -> None:
    """Let stores that are written have parts of so many objects, each said to hold more than is kept open."""
    patched.setattr(write, "ROWS_PER_FILE", rows)
    patched.setattr(write, "PartSize", lambda count, size, values: PartSize(count, size + (1 << 40), values))


@pytest.fixture(scope="module")
def large(spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A table of eight files, with a store of eight parts that is too large to be kept open."""
    with new_lake(spark, tmp_path_factory.mktemp("large")) as lake, pytest.MonkeyPatch.context() as patched:
        lake.policy(more="index: {location: indexes/}\n")
        enlarge(patched, 1)
        make(lake)
        yield lake


def jobs(lake: Lake) -> list[str]:
    """Return the descriptions of the jobs in which parts were judged."""
    found = lake.spark._jsc.sc().statusStore().jobsList(None)
    texts = [found.apply(number).description() for number in range(found.size())]
    return [text.get() for text in texts if text.isDefined() and "parts of the store" in text.get()]


@pytest.mark.parametrize("predicate", OPENED)
def test_tasks_leave_out_what_an_open_store_leaves_out(large: Lake, predicate: str) -> None:
    """Rows are those of a whole scan; files, metrics and report are those of a store that is kept open."""
    before = len(jobs(large))
    found = check(large, f"SELECT * FROM t WHERE {predicate}")
    assert (found.listed, found.opened, found.unused, found.generation) == (FILES, OPENED[predicate], {}, 1)
    assert "Location: SkippingFileIndex" in str(large.sql(f"EXPLAIN SELECT * FROM t WHERE {predicate}").collect())
    assert jobs(large)[before:], "no task judged a part"
    assert set(jobs(large)) == {f"sparkcrypt: judges {FILES} parts of the store of {large.name('t')}"}


def test_few_parts_are_judged_without_tasks(large: Lake) -> None:
    """The driver's helper judges up to four parts itself: those of files that are listed; a refresh keeps them true."""
    with pytest.MonkeyPatch.context() as patched:
        enlarge(patched, 2)
        make(large, "few")
        before = len(jobs(large))
        assert check(large, "SELECT * FROM few WHERE id = 31").opened == 1
        append(large, "few", 1000, 1010, 2)
        assert check(large, "SELECT * FROM few WHERE id = 31 OR id = 1005").opened == 3
        assert jobs(large)[before:] == []
        index(large, "few", verb="refresh")
        found = check(large, "SELECT * FROM few WHERE id = 31 OR id = 1005")
        assert (found.listed, found.opened, found.generation) == (FILES + 2, 2, 2)
        assert len(jobs(large)) > before


def test_reader_without_a_key_is_not_helped_by_its_index(large: Lake) -> None:
    """Tasks use his keys: other indexes serve him, the one of the denied column does not, and refusals stay."""
    policy = sparkcrypt.load_policy(policy_file(large))
    poor = sparkcrypt.session(with_keys(policy, large.root / "poor", without_keys("pii")))
    poor.sql(f"USE {large.database}")
    poor.conf.set(names.SKIPPING, "true")
    assert check(large, "SELECT id FROM t WHERE email = 'e0031'").opened == 1
    found = check(large, "SELECT id, plain FROM t WHERE id = 31 OR plain = 'p0200'", poor)
    assert (found.opened, list(found.unused)) == (2, ["email minmax"])
    (scan,) = skipping_report(poor.sql("SELECT id FROM t WHERE email = 'none'"))
    assert (scan.opened, scan.store) == (FILES, None)
    assert "column email of table" in refusal(poor.sql("SELECT id FROM t WHERE email = 'e0031'").collect)


def test_damaged_part_keeps_every_file(large: Lake) -> None:
    """Where one part of those that a query needs does not authenticate, nothing is left out; one warning says so."""
    make(large, "damaged")
    part = sorted(store_of(large, "damaged").glob("part-*"))[5]
    content = bytearray(part.read_bytes())
    content[len(content) // 3] ^= 1
    part.write_bytes(content)
    with heard(large) as writer:
        assert large.sql("SELECT count(*) FROM damaged WHERE email = 'e0031'").collect() == [(1,)]
        (line,) = str(writer.toString()).splitlines()
    assert "no file is skipped, since its store cannot be used: " in line
    assert "does not authenticate" in line
    assert "e0031" not in line
    found = check(large, "SELECT * FROM damaged WHERE id = 31")
    assert (found.opened, found.store) == (FILES, None)
    assert large.sql("SELECT * FROM damaged").count() == ROWS

"""Folders that a table or a partition has left: what jobs write there by path would be in no table."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table
from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.unit import staging_folder
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.former_homes import describe_move
from sparkcrypt.runs.old_folders.problems import Decision
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.passes.plan import plan_target
from sparkcrypt.runs.passes.resolve_problem import resolve_problem
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.table.target import catalog_target
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.late_writers import audits, ids, leave
from tests.spark.passes import the_pass, the_problem
from tests.spark.support import Lake, data_files, refusal, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, fill

pytestmark = pytest.mark.spark


def moved(lake: Lake, create: str = UNPARTITIONED["using"]) -> tuple[Policy, str]:
    """Create an external table in ``external``, tag it and encrypt it; return policy and run."""
    fill(lake, create, external=True)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    return policy, encrypt_table(lake.spark, "t", policy).run_id


def stream_into(lake: Lake, rows: Any, folder: Path) -> None:
    """Write one micro-batch into a folder by Spark's file sink."""
    rows.write.mode("overwrite").json(str(lake.root / "in"))
    source = lake.spark.readStream.schema(rows.schema).json(str(lake.root / "in"))
    writer = source.writeStream.option("checkpointLocation", str(lake.root / "checkpoint")).format("parquet")
    writer.trigger(availableNow=True).start(str(folder)).awaitTermination(120)


def ways_into(lake: Lake, home: Path) -> dict[str, Callable[[], Any]]:
    """Return the ways in which jobs write into a folder that they name themselves."""
    rows = lake.sql("SELECT 9 AS id, 'e' AS email, 'n' AS note")
    rows.createOrReplaceTempView("nine")
    place = f"LOCATION '{home.as_uri()}'"
    return {
        "append": lambda: rows.write.mode("append").parquet(str(home)),
        "overwrite": lambda: rows.write.mode("overwrite").format("parquet").save(home.as_uri()),
        "below": lambda: rows.write.parquet(str(home / "today")),
        "partitioned": lambda: rows.write.mode("append").partitionBy("id").parquet(str(home)),
        "directory": lambda: lake.sql(f"INSERT OVERWRITE DIRECTORY '{home}' USING parquet SELECT * FROM nine"),
        "Hive's directory": lambda: lake.sql(
            f"INSERT OVERWRITE DIRECTORY '{home}' STORED AS PARQUET SELECT * FROM nine"
        ),
        "table": lambda: lake.sql(f"CREATE TABLE u (id INT) USING parquet {place}"),
        "Hive's table": lambda: lake.sql(f"CREATE EXTERNAL TABLE u (id INT) STORED AS PARQUET {place}"),
        "table of rows": lambda: lake.sql(f"CREATE TABLE u USING parquet {place} AS SELECT * FROM nine"),
        "table by a frame": lambda: rows.write.mode("overwrite").option("path", str(home)).saveAsTable("u"),
        "table like another": lambda: lake.sql(f"CREATE TABLE u LIKE t {place}"),
        "stream": lambda: stream_into(lake, rows, home),
    }


def test_writes_by_path_into_the_folder_that_a_table_has_left(lake: Lake) -> None:
    """Each is refused by the names of table and run, before anything is changed; old folders of runs count too."""
    _, run_id = moved(lake)
    home, before = lake.root / "external", rows_of(lake.spark.table("t"))
    listed = data_files(lake.root)
    for way, write in ways_into(lake, home).items():
        told = refusal(write)
        assert f"{lake.name('t')} lived here until run {run_id}" in told, way
        assert f'write to the table itself, as by df.write.insertInto("{lake.name("t")}")' in told, way
    attempt = lake.root / ".sparkcrypt" / "external" / "20200101T000000000Z-abcd-1-1"
    told = refusal(ways_into(lake, attempt)["append"])
    assert f"{lake.name('t')} is not in this folder of its runs" in told
    assert data_files(lake.root) == listed
    assert not lake.spark.catalog.tableExists("u")
    assert rows_of(lake.spark.table("t")) == before


@pytest.mark.parametrize("external", [False, True], ids=["managed", "external"])
def test_writes_by_path_into_the_folder_that_a_partition_has_left(lake: Lake, external: bool) -> None:
    """The partition's folder, those below and that of the table are refused; a new partition's folder is not."""
    fill(lake, PARTITIONED["using"], external=external)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    run_id = encrypt_table(lake.spark, "t", policy, where="p = 0").run_id
    home = lake.root / "external" if external else lake.path("t")
    rows = lake.sql("SELECT 9 AS id, 'e' AS email, 'n' AS note")
    listed = data_files(lake.root)
    for folder in (home / "p=0", home / "p=0" / "x=1"):
        told = refusal(rows.write.mode("append").parquet, str(folder))
        assert f"partition p=0 of {lake.name('t')} lived here until run {run_id}" in told
    by_partition = lake.sql("SELECT 9 AS id, 'e' AS email, 'n' AS note, 0 AS p").write.partitionBy("p")
    for mode in ("append", "overwrite"):
        told = refusal(by_partition.mode(mode).parquet, str(home))
        assert f"partition p=0 of {lake.name('t')} lived below this folder until run {run_id}" in told
    assert data_files(lake.root) == listed
    rows.write.mode("append").parquet(str(home / "p=1"))
    rows.write.parquet(str(home / "p=2"))
    lake.sql("ALTER TABLE t ADD PARTITION (p = 2)")
    lake.spark.catalog.refreshTable("t")
    assert sorted(row.p for row in lake.spark.table("t").where("id = 9").collect()) == [1, 2]


def test_what_still_writes_where_a_table_was(lake: Lake) -> None:
    """Its own statements, another table that lives there, the table made anew there, and all after a rollback."""
    moved(lake)
    home = lake.root / "external"
    rows = lake.sql("SELECT 9 AS id, 'e' AS email, 'n' AS note")
    lake.sql("INSERT INTO t VALUES (7, 'e', 'n')")
    rows.write.insertInto("t")
    place = f"USING parquet LOCATION '{home.as_uri()}'"
    lake.sql(f"CREATE TABLE IF NOT EXISTS t (id INT, email STRING, note STRING) {place}")
    assert lake.spark.table("t").count() == 6
    here = Catalog(lake.spark).table("t").location
    rows.write.mode("append").parquet(here)
    lake.spark.catalog.refreshTable("t")
    assert lake.spark.table("t").count() == 7
    with lake.stranger() as stranger:
        stranger.sql(f"CREATE TABLE other (id INT, email STRING, note STRING) {place}")
    rows.write.mode("append").parquet(str(home))
    assert lake.spark.table("other").where("id = 9").count() == 1
    with lake.stranger() as stranger:
        stranger.sql("DROP TABLE other")
    rows.write.mode("overwrite").option("path", str(home)).saveAsTable("t")
    assert [row.id for row in lake.spark.table("t").collect()] == [9]
    rows.write.mode("append").parquet(str(home))


def test_write_by_path_after_a_rollback(lake: Lake) -> None:
    """Once the table is at home again, writers by path are its own."""
    policy, run_id = moved(lake)
    rollback_run(lake.spark, "t", policy, run_id)
    lake.sql("SELECT 9 AS id, 'e' AS email, 'n' AS note").write.mode("append").parquet(str(lake.root / "external"))
    lake.spark.catalog.refreshTable("t")
    assert lake.spark.table("t").count() == 5


@pytest.mark.parametrize("kind", ["external", "partitioned", "managed"])
def test_jobs_that_write_by_path_are_named_before_the_swap(lake: Lake, kind: str) -> None:
    """A dry run and the notice before a run say what to change; the report says where the new files are."""
    create = PARTITIONED["using"] if kind == "partitioned" else UNPARTITIONED["using"]
    fill(lake, create, external=kind == "external")
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    table = Catalog(lake.spark).table("t")
    notice = describe_move(table)
    dry = encrypt_table(lake.spark, "t", policy, dry_run=True)
    done = encrypt_table(lake.spark, "t", policy)
    if kind == "managed":
        assert notice is None
        assert done.new_location == table.location
        return
    assert notice is not None and notice in dry.warnings
    assert f"change jobs that write to {table.location} by path" in notice
    assert f"so that they write to {table.full_name}" in notice
    assert (done.new_location or "").startswith(staging_folder(table.location))
    assert any("DROP PARTITION" in warning for warning in done.warnings) == (kind == "partitioned")
    assert any(f"a job that writes to {table.location} by path" in warning for warning in done.warnings)
    again = describe_move(Catalog(lake.spark).table("t"))
    assert again == (notice if kind == "partitioned" else None), "a table that has left its folder is not warned of it"


def plan_code(lake: Lake, policy: Policy) -> int:
    """Return the exit code of the table's plan; a dry run of a pass has the same."""
    code = plan_target(lake.spark, catalog_target(lake.spark, Catalog(lake.spark).table("t"), policy, None), policy)
    dry = backfill(lake.spark, policy, tables=["t"], options=PassOptions(run=RunOptions(keep_going=True, dry_run=True)))
    assert dry.exit_code == code.exit_code
    return code.exit_code


def test_what_comes_to_a_former_home_after_expire(lake: Lake) -> None:
    """Every later pass and plan names it until its files are gone, or somebody has decided that they are not needed."""
    policy, run_id = moved(lake)
    home = lake.root / "external"
    leave(lake, home, 70)
    assert (plan_code(lake, policy), the_pass(lake, policy).exit_code) == (0, 0), "a late commit is no stray file"
    expire_run(lake.spark, "t", policy)
    assert (plan_code(lake, policy), the_pass(lake, policy, changed=True).exit_code) == (0, 0)
    leave(lake, home, 77)
    assert plan_code(lake, policy) == 74
    for changed in (True, False):
        problem = the_problem(the_pass(lake, policy, changed=changed))
        assert problem["kind"] == "came to a former home"
        assert f"which the table left: run {run_id} put it into {Catalog(lake.spark).table('t').location}" in str(
            problem
        )
    with pytest.raises(VerificationError, match="is in no table"):
        resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("old", "theirs"))
    for file in data_files(home):
        file.unlink()
    assert (the_pass(lake, policy).exit_code, audits(lake, policy)[-1]) == (0, "resolve")
    leave(lake, home, 78)
    problem = the_problem(the_pass(lake, policy))
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "a copy for the auditors"))
    report = the_pass(lake, policy, changed=True)
    assert (report.exit_code, plan_code(lake, policy)) == (0, 0)
    leave(lake, home, 79)
    assert len(the_problem(the_pass(lake, policy))["came"]) == 1


def test_what_comes_to_the_former_home_of_a_partition(lake: Lake) -> None:
    """Each partition has its own, also elsewhere; what is in place, and another table's folder, is nobody's concern."""
    fill(lake, PARTITIONED["using"])
    elsewhere = lake.root / "elsewhere"
    with lake.stranger() as stranger:
        stranger.sql(f"ALTER TABLE t ADD PARTITION (p = 2) LOCATION '{elsewhere.as_uri()}'")
        stranger.sql("INSERT INTO t PARTITION (p = 2) VALUES (20, 'e', 'n')")
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    encrypt_table(lake.spark, "t", policy, where="p <> 1")
    expire_run(lake.spark, "t", policy)
    with lake.stranger() as stranger:
        other = (lake.path("t") / "p=0" / "other").as_uri()
        stranger.sql(f"CREATE TABLE other (id INT) USING parquet LOCATION '{other}'")
        stranger.sql("INSERT INTO other VALUES (1)")
    leave(lake, lake.path("t") / "p=1", 76)
    assert the_pass(lake, policy, accept_path_readers=True).exit_code == 0
    leave(lake, lake.path("t") / "p=2", 79)  # it never was the partition's
    leave(lake, lake.path("t") / "p=0", 77)
    leave(lake, lake.path("t") / "p=1", 78)
    problem = the_problem(the_pass(lake, policy, accept_path_readers=True))
    assert (problem["unit"], len(problem["came"])) == ("p=0", 1)
    leave(lake, elsewhere, 80)
    (report,) = the_pass(lake, policy, accept_path_readers=True).tables
    assert sorted(problem["unit"] for problem in report.problems) == ["p=0", "p=2"]
    assert {76, 78} < set(ids(lake)), "late commits are brought into the table"


def test_former_home_is_known_without_the_state_directory(lake: Lake) -> None:
    """Where the state is lost, old files that nobody will delete are an open problem, too."""
    policy, _ = moved(lake)
    shutil.rmtree(lake.root / "policy-0" / "state")
    problem = the_problem(the_pass(lake, policy))
    assert len(problem["came"]) == len(data_files(lake.root / "external"))
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("new", "kept until May"))
    assert the_pass(lake, policy).exit_code == 0


@contextlib.contextmanager
def warnings_of(lake: Lake) -> Iterator[Any]:
    """Yield a Java writer of what is logged about former homes."""
    said, log4j = lake.jvm.java.io.StringWriter(), lake.jvm.org.apache.logging.log4j
    appender = log4j.core.appender.WriterAppender.createAppender(None, None, said, "former homes", False, True)
    appender.start()
    name = "io.sparkcrypt.FormerHomes"
    log4j.core.config.Configurator.setLevel(name, log4j.Level.WARN)
    logger = log4j.LogManager.getLogger(name)
    logger.addAppender(appender)
    try:
        yield said
    finally:
        logger.removeAppender(appender)
        log4j.core.config.Configurator.setLevel(name, log4j.Level.ERROR)


def test_reads_by_path_of_a_folder_that_a_table_has_left(lake: Lake) -> None:
    """They are warned of while files are there, and refused once those are gone, instead of finding no rows."""
    policy, run_id = moved(lake)
    home, table = lake.root / "external", lake.spark.table("t")
    with warnings_of(lake) as said:
        assert rows_of(lake.spark.read.parquet(str(home))) == rows_of(table)
    told = str(said.toString())
    assert f"{lake.name('t')} lived here until run {run_id}" in told
    assert f'read the table itself, as by spark.table("{lake.name("t")}")' in told
    expire_run(lake.spark, "t", policy)
    home.mkdir(exist_ok=True)
    empty = lake.spark.read.schema(table.schema).parquet(str(home))
    assert "its files are gone from here, so this read would miss its rows" in refusal(empty.collect)
    leave(lake, home, 77)
    assert lake.spark.read.parquet(str(home)).count() == 1


def test_reads_by_path_of_a_folder_that_a_partition_has_left(lake: Lake) -> None:
    """A read of the table's folder is refused once a partition's files are gone; one of what is in place is not."""
    fill(lake, PARTITIONED["using"])
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    run_id = encrypt_table(lake.spark, "t", policy, where="p = 0").run_id
    with warnings_of(lake) as said:
        assert lake.spark.read.parquet(str(lake.path("t"))).count() == 4
    assert f"partition p=0 of {lake.name('t')} lived below this folder until run {run_id}" in str(said.toString())
    expire_run(lake.spark, "t", policy)
    assert "this read would miss its rows" in refusal(lake.spark.read.parquet(str(lake.path("t"))).count)
    assert lake.spark.read.parquet(str(lake.path("t") / "p=1")).count() == 2


def test_streams_that_read_a_table_whose_partition_is_elsewhere(lake: Lake) -> None:
    """Spark lists the table's own folder for a stream, so it is refused once a run has put a partition elsewhere."""
    fill(lake, PARTITIONED["using"])
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)

    def copy(into: str) -> None:
        writer = lake.spark.readStream.table("t").select("id", "email").writeStream.trigger(availableNow=True)
        writer.option("checkpointLocation", str(lake.root / into)).toTable(into).awaitTermination(120)

    copy("before")
    assert lake.spark.table("before").count() == 4
    encrypt_table(lake.spark, "t", policy, where="p = 0")
    told = refusal(copy, "after")
    assert f"{lake.name('t')}: a run has put a partition into" in told
    assert "a stream reads only what is in the table's own folder" in told
    assert not lake.spark.catalog.tableExists("after")
    assert lake.spark.table("t").count() == 4
    by_path = lake.spark.readStream.schema("id INT, email STRING")
    told = refusal(by_path.parquet, str(lake.path("t")))
    assert f"partition p=0 of {lake.name('t')} lived below this folder until run" in told
    assert "so this stream would miss its rows" in told
    by_path.parquet(str(lake.path("t") / "p=1"))  # it is in its place


def test_streams_that_read_the_folder_that_a_table_has_left(lake: Lake) -> None:
    """Nothing of the table comes there any more, so a stream would wait in vain; other folders are read."""
    _, run_id = moved(lake)
    by_path = lake.spark.readStream.schema("id INT, email STRING")
    told = refusal(by_path.parquet, str(lake.root / "external"))
    assert f"{lake.name('t')} lived here until run {run_id}" in told
    (lake.root / "input").mkdir()
    by_path.parquet(str(lake.root / "input"))

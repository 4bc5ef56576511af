"""The main job: what is encrypted, what is refused, what a second run does."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import configure, encrypt_table, plan_table, verify_table
from sparkcrypt.errors import ConfigError, PlanError, PredicateError, VerificationError
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.runs.old_folders.expire import ExpiryOptions, expire_run
from sparkcrypt.runs.table import target as targets
from sparkcrypt.runs.table.target import refuse_kinds
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.setup.session import refuse_release
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.planning import plan_of
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import SECRET, Lake, assert_encrypted, assert_plaintext, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, fill, tagged

pytestmark = [pytest.mark.spark, pytest.mark.sparks]


def test_expire_carries_a_stale_writers_file_over(lake: Lake) -> None:
    """The rows of a file that came into the old folder after the run are in the table, encrypted, when it is gone."""
    fill(lake, UNPARTITIONED["using"], external=True)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    encrypt_table(lake.spark, "t", policy)
    known = {file.name for file in (lake.root / "external").glob("part-*")}
    with lake.stranger() as stranger:
        stranger.sql("SELECT 9 AS id, 'late' AS email, 'x' AS note").write.mode("append").parquet(
            str(lake.root / "external")
        )
    late = next(file.name for file in (lake.root / "external").glob("part-*") if file.name not in known)
    before = rows_of(lake.spark.table("t"))
    dry = expire_run(lake.spark, "t", policy, options=ExpiryOptions(dry_run=True))
    assert (dry.carried, dry.files, rows_of(lake.spark.table("t"))) == (1, 5, before)
    done = expire_run(lake.spark, "t", policy)
    assert (done.carried, done.files) == (1, 5)
    lake.spark.catalog.refreshTable("t")
    after = rows_of(lake.spark.table("t"))
    assert len(after) == len(before) + 1
    assert [row for row in after if row not in before] == [(9, "late", "x")]
    assert verify_table(lake.spark, "t", policy).ok
    assert not (lake.root / "external").exists()
    assert late in {file.name for file in Path(Catalog(lake.spark).table("t").location.removeprefix("file:")).glob("*")}


def test_expire_refuses_a_file_that_was_replaced(lake: Lake) -> None:
    """A file of a name that the run knew, with another length, holds rows that the run did not see."""
    fill(lake, UNPARTITIONED["using"], external=True)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    encrypt_table(lake.spark, "t", policy)
    file = next((lake.root / "external").glob("part-*"))
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(
        VerificationError, match=rf"{file.name} came to the old folder.*is gone or changed: a late commit overwrote"
    ):
        expire_run(lake.spark, "t", policy)
    assert file.exists()


def test_where_narrows_to_partitions(lake: Lake) -> None:
    """Only the partitions that the predicate chooses are rewritten; the rest follows later."""
    fill(lake, PARTITIONED["using"])
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    assert encrypt_table(lake.spark, "t", policy, where="p = 1").files_rewritten == 2
    assert {drift.kind for drift in verify_table(lake.spark, "t", policy).drift} == {"plaintext"}
    assert encrypt_table(lake.spark, "t", policy).files_rewritten == 2
    with pytest.raises(PredicateError, match=r"partition columns of .*: p \(int\)"):
        encrypt_table(lake.spark, "t", policy, where="nowhere = 1")


def test_dry_run_changes_nothing(lake: Lake) -> None:
    """A dry run gives the table no identity, writes no state and no file."""
    fill(lake, PARTITIONED["using"])
    policy = lake.policy(tables=f"  {lake.database}.t: {{tags: {{email: [pii]}}}}\n")
    report = encrypt_table(lake.spark, "t", policy, dry_run=True)
    assert report.outcome == "dry run"
    assert len(report.warnings) == 2 and "change jobs that write to" in report.warnings[1]
    assert report.warnings[0].startswith("plaintext: 4 files: the file is not encrypted: ")
    assert report.warnings[0].count("part-") == 3 and report.warnings[0].endswith(" and 1 more")
    assert Catalog(lake.spark).table("t").uuid is None
    assert not Path(policy.run_state).exists()
    assert_plaintext(lake.path("t"))


@pytest.mark.parametrize("tagged", [True, False])
def test_a_run_plans_once_and_shows_it_first(lake: Lake, monkeypatch: pytest.MonkeyPatch, tagged: bool) -> None:
    """The plan that is shown is the plan of the run; who refuses it, refuses before the table gets an identity."""
    fill(lake, UNPARTITIONED["using"])
    policy = lake.policy(tables=f"  {lake.database}.t: {{tags: {{email: [pii]}}}}\n")
    if tagged:
        set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    made: list[EncryptionPlan] = []
    shown: list[EncryptionPlan] = []

    def planned(*arguments: Any, **named: Any) -> EncryptionPlan:
        made.append(plan_of(*arguments, **named))
        return made[-1]

    monkeypatch.setattr(targets, "plan_of", planned)

    def refuse(plan: EncryptionPlan) -> None:
        assert (Catalog(lake.spark).table("t").uuid is not None) is tagged
        raise ConfigError("not this one")

    with pytest.raises(ConfigError, match="not this one"):
        encrypt_table(lake.spark, "t", policy, on_plan=refuse)
    assert not Path(policy.run_state).exists()
    made.clear()
    assert encrypt_table(lake.spark, "t", policy, on_plan=shown.append).outcome == "done"
    assert len(made) == 1 and shown == made
    assert Catalog(lake.spark).table("t").uuid is not None
    assert verify_table(lake.spark, "t", policy).ok


def test_change_of_tag_and_of_key_is_followed(lake: Lake) -> None:
    """After a tag moves to another column, or a tag to another key, one more run brings the files in line."""
    fill(lake, UNPARTITIONED["using"])
    policy = lake.policy(more="# first")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    encrypt_table(lake.spark, "t", policy)
    set_tags(lake.spark, "t", {"email": ["fin"], "note": ["pii"]}, policy)
    assert {drift.kind for drift in verify_table(lake.spark, "t", policy).drift} == {"wrong_key", "missing"}
    encrypt_table(lake.spark, "t", policy)
    assert_encrypted(lake.path("t"), policy, {"email": "fin", "note": "pii"}, visible=())
    set_tags(lake.spark, "t", {"email": ["public"], "note": ["public"]}, policy)
    encrypt_table(lake.spark, "t", policy, allow_decrypt=True)
    assert_plaintext(lake.path("t"))


def test_directory_goes_to_a_new_one(lake: Lake) -> None:
    """A bare folder is encrypted into --output, folder by folder; the source is untouched."""
    policy = lake.policy('\n  pii: {key: "pii-{p}"}\n', keys=["pii-01", "pii-a%20b"])
    with lake.stranger() as stranger:
        frame = stranger.sql(f"SELECT * FROM VALUES (1, '{SECRET}', '01'), (2, '{SECRET}', 'a b') AS v(id, email, p)")
        frame.write.partitionBy("p").parquet(str(lake.root / "in"))
    avro = {"type": "record", "name": "r", "fields": [{"name": "email", "type": "string", "confluent:tags": ["pii"]}]}
    from sparkcrypt.tags.avro import schema_from_avro

    out = str(lake.root / "out")
    report = encrypt_table(
        lake.spark, None, policy, path=str(lake.root / "in"), output=out, avro=schema_from_avro(json.dumps(avro))
    )
    assert report.outcome == "done"
    assert_plaintext(lake.root / "in")
    assert_encrypted(lake.root / "out" / "p=01", policy, {"email": "pii-01"}, visible=())
    assert_encrypted(lake.root / "out" / "p=a b", policy, {"email": "pii-a%20b"}, visible=())
    assert lake.spark.read.parquet(out).count() == 2
    with pytest.raises(ConfigError, match="is there already"):
        encrypt_table(lake.spark, None, policy, path=str(lake.root / "in"), output=out)
    with pytest.raises(ConfigError, match="--output DIR"):
        encrypt_table(lake.spark, None, policy, path=str(lake.root / "in"))


@pytest.mark.parametrize("slow", [False, True])
def test_copy_that_appears_file_by_file_is_told(lake: Lake, monkeypatch: pytest.MonkeyPatch, slow: bool) -> None:
    """Where a folder cannot be renamed in one step, the report says that readers may have seen a part of the copy."""
    monkeypatch.setattr(HadoopFiles, "renames_at_once", lambda *_: not slow)
    with lake.stranger() as stranger:
        stranger.sql(f"SELECT 1 AS id, '{SECRET}' AS email").write.parquet(str(lake.root / "in"))
    tables = f"  files.x: {{location: '{lake.root / 'in'}', tags: {{email: pii}}}}\n"
    policy, out = lake.policy(tables=tables), str(lake.root / "out")
    report = encrypt_table(lake.spark, None, policy, path=str(lake.root / "in"), output=out)
    (told,) = [warning for warning in report.warnings if "the source folder is unchanged" in warning]
    assert ("may have seen a part" in told) is slow
    assert_encrypted(lake.root / "out", policy, {"email": "pii"}, visible=())


def test_directory_is_renamed_under_exclusive(lake: Lake) -> None:
    """With --exclusive the directory itself holds the encrypted files afterwards."""
    tables = f"  files.x: {{location: '{lake.root / 'in'}', tags: {{email: pii}}}}\n"
    policy = lake.policy(tables=tables)
    with lake.stranger() as stranger:
        stranger.sql(f"SELECT 1 AS id, '{SECRET}' AS email").write.parquet(str(lake.root / "in"))
    report = encrypt_table(lake.spark, None, policy, path=str(lake.root / "in"), exclusive=True)
    assert report.swap == "rename"
    assert_encrypted(lake.root / "in", policy, {"email": "pii"}, visible=())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        ("CREATE VIEW t AS SELECT 1 AS id", "is a view"),
        ("CREATE TABLE t (id INT, email STRING) USING orc", "runs leave alone unless the policy says"),
    ],
)
def test_what_cannot_be_swapped_is_refused(lake: Lake, make: str, reason: str) -> None:
    """Views and other formats are refused with the reason, before anything is written."""
    lake.sql(make)
    with pytest.raises((PlanError, ConfigError), match=reason):
        encrypt_table(lake.spark, "t", lake.policy())


def test_a_bucketed_table_keeps_its_buckets(lake: Lake) -> None:
    """Buckets are told by file names, whose end the native engine keeps; Spark's, being refused, would not."""
    lake.sql("CREATE TABLE t (id INT, email STRING) USING parquet CLUSTERED BY (id) INTO 2 BUCKETS")
    lake.sql("INSERT INTO t SELECT id, concat('m', id) FROM range(100)")
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    before, names = rows_of(lake.spark.table("t")), sorted(file.name for file in lake.path("t").glob("part-*"))
    with pytest.raises(ConfigError, match="is bucketed"):
        encrypt_table(lake.spark, "t", policy, engine="spark")
    assert encrypt_table(lake.spark, "t", policy).files_rewritten == len(names)
    lake.sql("REFRESH TABLE t")
    assert rows_of(lake.spark.table("t")) == before
    assert sorted(re.sub("^run-[0-9a-f]{6}-", "", file.name) for file in lake.path("t").glob("run-*")) == names
    assert not list(lake.path("t").glob("part-*"))
    lake.spark.conf.set("spark.sql.sources.bucketing.autoBucketedScan.enabled", "false")
    found = lake.spark.sql("SELECT email FROM t WHERE id = 7")
    assert "SelectedBucketsCount: 1 out of 2" in found._jdf.queryExecution().toString()
    assert [row[0] for row in found.collect()] == ["m7"]


def test_acid_table_is_refused(lake: Lake) -> None:
    """A table that Hive marks as transactional is refused; the metastore lets no Parquet table be made like that."""
    lake.sql(UNPARTITIONED["hive"])
    table = replace(Catalog(lake.spark).table("t"), properties={"transactional": "true"})
    with pytest.raises(PlanError, match="ACID"):
        refuse_kinds(table, lake.policy())


@pytest.mark.parametrize("folder", ["_spark_metadata", "_delta_log", ".hoodie"])
def test_tables_that_list_their_own_files_are_refused(lake: Lake, folder: str) -> None:
    """A folder of a format that keeps its own list of files is refused by its name."""
    fill(lake, UNPARTITIONED["using"])
    (lake.path("t") / folder).mkdir()
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    with pytest.raises(PlanError, match=folder):
        encrypt_table(lake.spark, "t", policy)


def test_column_that_the_schema_lost_is_not_lost(lake: Lake) -> None:
    """A file with a column that the table no longer has is refused: rewriting by the schema would drop it."""
    fill(lake, UNPARTITIONED["hive"])
    policy = lake.policy()
    with lake.stranger() as stranger:
        stranger.sql("SELECT 1 AS id, 'e' AS email, 'n' AS note, 'kept' AS former").write.mode("append").parquet(
            str(lake.path("t"))
        )
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    with pytest.raises(PlanError, match="former"):
        encrypt_table(lake.spark, "t", policy)


def test_plaintext_on_a_table_that_requires_encryption_needs_adopt(lake: Lake) -> None:
    """A run does not make trusted what readers would refuse, unless it is told to."""
    fill(lake, UNPARTITIONED["using"])
    policy = lake.policy(tables=f"  {lake.name('t')}: {{require_encryption: true}}\n")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    with pytest.raises(VerificationError, match="--adopt"):
        encrypt_table(lake.spark, "t", policy)
    assert_plaintext(lake.path("t"))
    assert encrypt_table(lake.spark, "t", policy, adopt=True).outcome == "done"
    assert lake.spark.table("t").count() == 4


def test_state_inside_the_table_is_refused(lake: Lake) -> None:
    """Journals may not lie where INSERT OVERWRITE deletes them."""
    fill(lake, UNPARTITIONED["using"])
    policy = replace(lake.policy(), run_state=str(lake.path("t") / "state"))
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    with pytest.raises(ConfigError, match="lies inside"):
        encrypt_table(lake.spark, "t", policy)


def test_tagging_drops_statistics_of_the_column(lake: Lake) -> None:
    """Bounds and histograms that were taken before a column was tagged go from the metastore; the row count stays."""
    fill(lake, UNPARTITIONED["using"])
    policy = lake.policy()
    lake.sql("SET spark.sql.statistics.histogram.enabled=true")
    lake.sql("ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS id, email")
    lake.sql("RESET spark.sql.statistics.histogram.enabled")
    assert "email ->" in str(Catalog(lake.spark).statistics(Catalog(lake.spark).table("t")))
    set_tags(lake.spark, "t", {"EMAIL": ["pii"]}, policy)
    statistics = str(Catalog(lake.spark).statistics(Catalog(lake.spark).table("t")))
    assert "Some(4)" in statistics
    assert "id ->" in statistics
    assert "email ->" not in statistics


def leave_statistics(lake: Lake, statistics: Any) -> None:
    """Put statistics into the metastore as another application does: nobody in this one hears of it."""
    unheard = lake.spark._jsparkSession.sharedState().externalCatalog().unwrapped()
    unheard.alterTableStats(lake.database, "t", lake.jvm.scala.Some(statistics))
    lake.spark.catalog.refreshTable("t")


def test_statistics_survive_without_those_of_encrypted_columns(lake: Lake) -> None:
    """Row counts and column statistics of plaintext columns are as before the swap."""
    fill(lake, UNPARTITIONED["using"])
    policy, catalog = lake.policy(), Catalog(lake.spark)
    lake.sql("ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS id, email")
    taken = catalog.statistics(catalog.table("t"))
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    leave_statistics(lake, taken)
    assert any("column statistics" in note for note in verify_table(lake.spark, "t", policy).notes)
    encrypt_table(lake.spark, "t", policy)
    statistics = str(Catalog(lake.spark).statistics(Catalog(lake.spark).table("t")))
    assert "Some(4)" in statistics
    assert "id ->" in statistics
    assert "email ->" not in statistics


def test_mode_of_the_folder_is_kept(lake: Lake) -> None:
    """The folder that is swapped in has the mode of the one before."""
    fill(lake, UNPARTITIONED["using"])
    lake.path("t").chmod(0o750)
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    encrypt_table(lake.spark, "t", policy)
    assert lake.path("t").stat().st_mode & 0o777 == 0o750


def test_empty_table_has_nothing_to_do(lake: Lake) -> None:
    """A table without files is planned, and nothing is swapped."""
    lake.sql(UNPARTITIONED["using"])
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    assert encrypt_table(lake.spark, "t", policy).outcome == "nothing to do"
    assert plan_table(lake.spark, "t", policy).encrypted


@pytest.mark.parametrize("kind", ["USING parquet", "hive"])
def test_partitions_with_odd_values_are_found_and_swapped(lake: Lake, kind: str) -> None:
    """Spaces, slashes, quotes, percent signs, letters of other scripts, no value, and a column in capitals."""
    policy = lake.policy()
    if kind == "hive":
        lake.sql("CREATE TABLE t (id INT, email STRING) PARTITIONED BY (Region STRING, `day` INT) STORED AS PARQUET")
    else:
        lake.sql(
            "CREATE TABLE t (id INT, email STRING, Region STRING, day INT) USING parquet PARTITIONED BY (Region, day)"
        )
    lake.spark.conf.set("hive.exec.dynamic.partition.mode", "nonstrict")
    values = ["'a b'", "'x/y=z'", '"o\'clock"', "'50%25'", "'Éβ'", "NULL", "'A B'"]
    rows = ", ".join(f"({number}, '{SECRET}', {value}, {number % 2})" for number, value in enumerate(values))
    lake.sql(f"INSERT INTO t SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    before = rows_of(lake.spark.table("t"))
    report = encrypt_table(lake.spark, "t", policy)
    assert (report.outcome, report.files_rewritten) == ("done", len(values))
    assert encrypt_table(lake.spark, "t", policy).outcome == "nothing to do"
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy).ok


def test_table_has_the_names_that_spark_gives_it(lake: Lake) -> None:
    """With or without the session catalog, with or without back-quotes; a table that is not there is named."""
    policy, _ = tagged(lake, UNPARTITIONED["using"])
    database = lake.name("t").partition(".")[0]
    for name in ("t", lake.name("t"), f"spark_catalog.{lake.name('t')}", f"`spark_catalog`.`{database}`.`t`"):
        assert encrypt_table(lake.spark, name, policy, dry_run=True).table == lake.name("t")
    with pytest.raises(PlanError, match=r"spark_catalog\.x: not found"):
        encrypt_table(lake.spark, "spark_catalog.x", policy, dry_run=True)


def test_arguments_of_another_kind_are_named(lake: Lake) -> None:
    """A path without a policy, a misspelt option, and a release of Spark that the jar does not fit."""
    with pytest.raises(ConfigError, match=r"policy nosuch\.yaml: cannot be read"):
        configure(lake.spark, "nosuch.yaml")
    with pytest.raises(ConfigError, match=r"option 'paralelism' is not known; allowed: engine, .*parallelism"):
        encrypt_table(lake.spark, "t", lake.policy(), paralelism=3)  # type: ignore[call-arg]  # misspelt on purpose
    for version in ("3.4.4", "2.4.8", "3.10.0", "nightly"):
        if version == "3.10.0":
            refuse_release(version)
        else:
            with pytest.raises(ConfigError, match=rf"Spark {version} is not supported; allowed: 3.5 and 4.x"):
                refuse_release(version)

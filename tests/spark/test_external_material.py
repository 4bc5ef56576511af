"""Tables whose files have their key material beside them: read, brought to the plan, and never left half."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from sparkcrypt import configure, encrypt_table, parquet_options, verify_table
from sparkcrypt.arrow import open_table, read_table
from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.parquet import FileSummary, inspect_file
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.check_keys import check_keys
from sparkcrypt.runs.keys.rotate import rotate_key
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.old_folders.rollback import rollback_run
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.planning import plan_path
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.killing import STEPS, Clock, kill
from tests.spark.late_writers import ids
from tests.spark.support import SECRET, Lake, data_files, encrypted_columns, footers, retriever, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, tagged
from tests.unit.parquet.material_beside import material_file, put_beside

pytestmark = pytest.mark.spark

CREATE = {"partitioned": PARTITIONED["using"], "hive": PARTITIONED["hive"], "managed": UNPARTITIONED["using"]}


def write_beside(lake: Lake, policy: Policy, folder: Path, numbers: range, *, partitioned: bool) -> None:
    """Write rows by parquet-mr's own factory, which leaves the key material beside the files."""
    frame = lake.spark.range(numbers.start, numbers.stop, 1, 1).select(
        F.col("id").cast("int"),
        F.format_string(f"{SECRET}-%d", F.col("id")).alias("email", metadata={"tags": "pii"}),
        F.format_string("note %d", F.col("id")).alias("note"),
        *([(F.col("id") % 2).cast("int").alias("p")] if partitioned else []),
    )
    configure(lake.spark, policy, stock_factory=True)
    options = parquet_options(plan_path(frame.schema.json(), policy))
    options["parquet.encryption.key.material.store.internally"] = "false"
    writer = frame.write.mode("append").options(**options)
    (writer.partitionBy("p") if partitioned else writer).parquet(str(folder))


def beside(lake: Lake, create: str) -> tuple[Policy, list[Any]]:
    """Make a table of files with their key material beside them, and a tag; return its policy and rows."""
    policy = lake.policy()
    lake.sql(create)
    for numbers in (range(2), range(2, 4)):
        write_beside(lake, policy, lake.path("t"), numbers, partitioned="PARTITIONED" in create)
    if "PARTITIONED" in create:
        lake.sql("MSCK REPAIR TABLE t")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    lake.spark.catalog.refreshTable("t")
    return policy, rows_of(lake.spark.table("t"))


def material_files(lake: Lake) -> list[Path]:
    """Return the files of key material in the database's folder."""
    return sorted((lake.root / "db").rglob("_KEY_MATERIAL_FOR_*"))


def in_use(lake: Lake, policy: Policy) -> list[FileSummary]:
    """Return the footers of the files that the table points to."""
    catalog = Catalog(lake.spark)
    table = catalog.table("t")
    places = [found.location for found in catalog.partitions(table)] if table.partition_columns else [table.location]
    return [summary for place in places for summary in footers(place.removeprefix("file:"), policy)]


@pytest.mark.parametrize("kind", CREATE)
def test_run_takes_the_material_inside(lake: Lake, kind: str) -> None:
    """Spark reads the table before and after; new files hold their key material, old pairs stay and expire together."""
    policy, before = beside(lake, CREATE[kind])
    pairs = data_files(lake.path("t"))
    assert len(before) == 4 and [material_file(file) for file in pairs] == material_files(lake)
    assert all(
        encrypted_columns(found) == {"email": "pii"} and found.external_material for found in in_use(lake, policy)
    )
    assert check_keys(lake.spark, policy, tables=[lake.name("t")]).exit_code == 0
    dry = encrypt_table(lake.spark, "t", policy, dry_run=True)
    assert "external_material" in str(dry.to_dict())
    content = {file.name: file.read_bytes() for file in (*pairs, *material_files(lake))}
    report = encrypt_table(lake.spark, "t", policy)
    assert report.outcome == "done"
    assert {file.name: file.read_bytes() for file in (lake.root / "db").rglob("*") if file.name in content} == content
    assert len(material_files(lake)) == len(pairs)
    found = in_use(lake, policy)
    assert found and not any(summary.external_material for summary in found)
    assert rows_of(lake.spark.table("t")) == before
    assert verify_table(lake.spark, "t", policy).ok
    expire_run(lake.spark, "t", policy)
    assert material_files(lake) == []
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", ["partitioned", "managed"])
def test_killed_run_leaves_each_pair_whole(lake: Lake, clock: Clock, kind: str, step: str) -> None:
    """Whatever the step, every file that has its material beside it finds it there, and the next run ends right."""
    policy, before = beside(lake, CREATE[kind])
    kill(lake, policy, clock, STEPS[step])
    outside = [found for found in footers(lake.root / "db", policy) if found.external_material]
    assert len(outside) == len(material_files(lake)) == (4 if kind == "partitioned" else 2)
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    assert rows_of(lake.spark.table("t")) == before
    assert not any(found.external_material for found in in_use(lake, policy))


@pytest.mark.parametrize("move_old", [False, True])
@pytest.mark.parametrize("kind", ["partitioned", "managed"])
def test_rollback_brings_pairs_back(lake: Lake, kind: str, move_old: bool) -> None:
    """Old files come back into use with their material, from beside the table too, and are read."""
    policy, before = beside(lake, CREATE[kind])
    run_id = encrypt_table(lake.spark, "t", policy, move_old=move_old).run_id
    rollback_run(lake.spark, "t", policy, run_id)
    lake.spark.catalog.refreshTable("t")
    found = in_use(lake, policy)
    assert found and all(summary.external_material for summary in found)
    assert [material_file(file) for file in data_files(lake.path("t"))] == sorted(lake.path("t").rglob("_KEY_*"))
    assert rows_of(lake.spark.table("t")) == before


def test_lost_material_quarantines_its_unit(lake: Lake) -> None:
    """A file whose material is gone is named; nothing of its unit is swapped or deleted."""
    policy, _ = beside(lake, CREATE["partitioned"])
    lost = material_files(lake)[0]
    kept = lost.rename(lake.root / "kept")
    with pytest.raises(VerificationError, match=f"{lost.name} is not beside it"):
        encrypt_table(lake.spark, "t", policy)
    kept.rename(lost)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"


def test_material_is_found_through_hadoop(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """On file systems that only Hadoop reaches, the driver reads the material by it, and says where there is none."""
    policy, _ = beside(lake, CREATE["managed"])
    files, file = HadoopFiles(lake.spark), data_files(lake.path("t"))[0]
    monkeypatch.setattr("sparkcrypt.spark.files.hadoop.hadoop_local_path", lambda path: None)
    with files.open(file.as_uri()) as stream:
        assert inspect_file(stream, retrieve_key=retriever(policy)).external_material
    material_file(file).unlink()
    with files.open(file.as_uri()) as stream, pytest.raises(FormatError, match="is not beside it"):
        inspect_file(stream, retrieve_key=retriever(policy))


def test_late_pair_is_reconciled(lake: Lake) -> None:
    """A pair that a writer leaves in the old folder comes into the table, and neither half of it is left behind."""
    policy, _ = beside(lake, CREATE["partitioned"])
    encrypt_table(lake.spark, "t", policy)
    write_beside(lake, policy, lake.root / "late", range(7, 8), partitioned=True)
    for file in (lake.root / "late" / "p=1").glob("[!.]*"):  # as a writer does that was planned before the swap
        file.rename(lake.path("t") / "p=1" / file.name)
    assert expire_run(lake.spark, "t", policy).carried == 1
    assert ids(lake) == [0, 1, 2, 3, 7]
    assert not any(found.external_material for found in in_use(lake, policy))
    assert material_files(lake) == []


def test_own_files_hold_their_material_inside_whatever_a_session_sets(lake: Lake) -> None:
    """A write under the policy leaves no file of key material, so nothing can part it from its data file."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    lake.spark.conf.set("parquet.encryption.key.material.store.internally", "false")
    lake.sql("INSERT INTO t VALUES (9, 'nine@example.org', 'n', 5)")
    (made,) = footers(lake.path("t") / "p=5", policy)
    assert encrypted_columns(made) == {"email": "pii"} and not made.external_material
    assert material_files(lake) == []


def own_files_beside(lake: Lake) -> tuple[Policy, list[Any]]:
    """Make a table of files that are as planned, but for their key material, which stands beside them."""
    policy, before = tagged(lake, PARTITIONED["using"])
    run = encrypt_table(lake.spark, "t", policy)
    expire_run(lake.spark, "t", policy, run_id=run.run_id)
    for file in data_files(lake.root / "db"):
        put_beside(file, retriever(policy))
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    return policy, before


def test_rotation_takes_the_material_inside(lake: Lake) -> None:
    """A rotation rewraps such files as all others, page by page as they are, and the new ones hold their material."""
    policy, before = own_files_beside(lake)
    report = rotate_key(lake.spark, policy, "pii", tables=[lake.name("t")])
    assert report.exit_code == 0, report.to_dict()
    found = in_use(lake, policy)
    assert found and not any(summary.external_material for summary in found)
    versions = {wrapping.version for summary in found for wrapping in summary.wrappings if wrapping.key_id == "pii"}
    assert versions == {2}
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before


def test_rotation_of_files_of_another_identity_is_refused(lake: Lake) -> None:
    """What parquet-mr wrote has no identity; a rotation gives none, and says what does."""
    policy, _ = beside(lake, CREATE["partitioned"])
    report = rotate_key(lake.spark, policy, "pii", tables=[lake.name("t")])
    assert report.exit_code == 74
    assert "aad_mismatch" in str(report.to_dict()) and "sparkcrypt backfill" in str(report.to_dict())
    assert len(material_files(lake)) == 4


def test_files_as_planned_but_for_their_material_differ(lake: Lake) -> None:
    """A run brings the material inside, though nothing else is to do; the next one finds nothing."""
    policy, before = own_files_beside(lake)
    assert encrypt_table(lake.spark, "t", policy, rewrap=True).outcome == "done"
    assert not any(summary.external_material for summary in in_use(lake, policy))
    assert encrypt_table(lake.spark, "t", policy).outcome == "nothing to do"
    assert rows_of(lake.spark.table("t")) == before


def test_material_that_was_rotated_by_others_is_read_anew(lake: Lake) -> None:
    """Facts of such files are not kept: their material may change while the files stay."""
    policy, _ = own_files_beside(lake)
    assert encrypt_table(lake.spark, "t", policy, dry_run=True).outcome
    material = material_file(data_files(lake.root / "db")[0])
    material.write_text("{}")
    assert "has no entry 'footerKey'" in str(encrypt_table(lake.spark, "t", policy, dry_run=True).to_dict())


def test_pyarrow_reads_the_table(lake: Lake) -> None:
    """Outside Spark the same rows come."""
    policy, before = beside(lake, CREATE["partitioned"])
    read = read_table(str(lake.path("t")), policy, table="t")
    emails = sorted(row.email for row in before)
    assert sorted(read.column("email").to_pylist()) == emails
    dataset = open_table(str(lake.path("t")), policy).dataset()
    assert sorted(dataset.to_table(columns=["email"]).column("email").to_pylist()) == emails
    assert dataset.count_rows() == len(emails)


def test_folder_that_cannot_be_renamed_goes_with_its_material(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """On object stores files are deleted one by one: a data file first, then its material; nothing is left."""
    policy, before = beside(lake, CREATE["partitioned"])
    encrypt_table(lake.spark, "t", policy)
    deleted: list[str] = []
    delete_file = HadoopFiles.delete_file

    def noted(files: HadoopFiles, path: str) -> None:
        deleted.append(path.rpartition("/")[2])
        delete_file(files, path)

    monkeypatch.setattr(HadoopFiles, "renames_at_once", lambda files, path: False)
    monkeypatch.setattr(HadoopFiles, "delete_file", noted)
    expire_run(lake.spark, "t", policy)
    for name in (name for name in deleted if not name.startswith("_")):
        assert deleted.index(name) < deleted.index(f"_KEY_MATERIAL_FOR_{name}.json")
    assert material_files(lake) == [] and not (lake.path("t") / "p=0").exists()
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before

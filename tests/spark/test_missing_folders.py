"""Folders that are gone, that cannot be listed, and names that are passed over."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sparkcrypt import encrypt_table, plan_table, verify_table
from sparkcrypt.errors import StorageError, VerificationError
from sparkcrypt.files.listing import data_files as list_natively
from sparkcrypt.names import FOLDER_LISTING_CLASS
from sparkcrypt.paths import is_hidden
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.check_keys import check_keys
from sparkcrypt.runs.old_folders.expire import ExpiryOptions, expire_run
from sparkcrypt.runs.old_folders.problems import Decision
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.passes.plan import plan_target
from sparkcrypt.runs.passes.resolve_problem import resolve_problem
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.table.target import catalog_target
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.listing import list_contents
from sparkcrypt.spark.jvm.jar import bring_jar
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.passes import the_pass, the_problem
from tests.spark.support import SECRET, Lake, assert_plaintext, data_files, rows_of
from tests.spark.tables import PARTITIONED, UNPARTITIONED, make_table, tagged

pytestmark = pytest.mark.spark


def local(uri: str) -> Path:
    """Return the path of a local URI."""
    return Path(urlsplit(uri).path)


def test_missing_folder_is_drift_and_no_pass_is_done(lake: Lake) -> None:
    """A folder that a partition points to and that was removed is shown by plan and pass, and ends both badly."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    gone = next(partition.location for partition in Catalog(lake.spark).partitions(Catalog(lake.spark).table("t")))
    shutil.rmtree(local(gone))
    report = backfill(lake.spark, policy, tables=["t"])
    assert (report.outcome, report.exit_code) == ("incomplete", 74)
    (told,) = report.tables[0].quarantined
    assert told["unit"] == "p=0"
    assert gone.removeprefix("file:") in told["message"]
    assert report.tables[0].drift["before"] == {"missing_folder": 1}
    target = catalog_target(lake.spark, Catalog(lake.spark).table("t"), policy, None)
    planned = plan_target(lake.spark, target, policy)
    assert [drift.kind for drift in planned.drift] == ["missing_folder"]
    assert planned.exit_code == 74
    with pytest.raises(VerificationError, match="there is no such folder"):
        encrypt_table(lake.spark, "t", policy)
    assert plan_table(lake.spark, "t", policy) is not None


def test_untagged_table_without_its_folder_gets_no_identity(lake: Lake) -> None:
    """A table of which no run is known is reported when its folder is gone, and not touched."""
    policy = lake.policy()
    lake.sql("CREATE TABLE u (id INT) USING parquet")
    shutil.rmtree(lake.path("u"))
    report = backfill(lake.spark, policy, tables=["u"])
    assert (report.outcome, report.exit_code) == ("incomplete", 74)
    assert Catalog(lake.spark).table("u").uuid is None


@pytest.mark.parametrize("create", [PARTITIONED["using"], UNPARTITIONED["using"]])
def test_expire_never_deletes_the_only_copy(lake: Lake, create: str) -> None:
    """Where what a run wrote of a unit was removed, wholly or in part, expire says so and the unit's old files stay."""
    policy, before = tagged(lake, create)
    report = encrypt_table(lake.spark, "t", policy)
    catalog = Catalog(lake.spark)
    table = catalog.table("t")
    folder = local(catalog.partitions(table)[0].location if table.partition_columns else table.location)
    old = local(report.old_location or "") / ("p=0" if table.partition_columns else "")
    count = len(data_files(old))
    first = data_files(folder)[0]
    removals: tuple[Callable[[], object], ...] = (first.unlink, lambda: shutil.rmtree(folder))
    for remove in removals:
        remove()
        try:
            reason = expire_run(lake.spark, "t", policy).refused["p=0"]
        except VerificationError as error:  # where no other unit has old files
            reason = str(error)
        assert "may be the only copy" in reason or "its folder, is missing" in reason
        assert len(data_files(old)) == count
    assert count == len(before) // (2 if table.partition_columns else 1)


def test_expire_goes_on_after_later_writes(lake: Lake) -> None:
    """Files of a run that were replaced by an overwrite, or went with their partition, do not keep the old ones."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    lake.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    lake.sql(f"INSERT OVERWRITE t VALUES (50, '{SECRET}-50', 'new', 0)")
    lake.sql("ALTER TABLE t DROP PARTITION (p = 1)")
    done = expire_run(lake.spark, "t", policy)
    assert not done.superseded
    assert [row.id for row in lake.spark.table("t").collect()] == [50]
    assert not data_files(lake.path("t"))


def test_rows_that_were_replaced_before_a_later_run_are_no_loss(lake: Lake) -> None:
    """INSERT OVERWRITE also empties the old folder; expire and passes know that, also after a run re-keyed the rows."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    lake.sql(f"INSERT OVERWRITE t PARTITION (p = 1) VALUES (50, '{SECRET}-50', 'new')")
    assert not data_files(lake.path("t") / "p=1")
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    assert (the_pass(lake, policy).outcome, backfill(lake.spark, policy, tables=["t"]).exit_code) == ("done", 0)
    before = rows_of(lake.spark.table("t"))
    done = expire_run(lake.spark, "t", policy)
    assert (done.refused, done.superseded) == ({}, {})
    assert the_pass(lake, policy).exit_code == 0
    assert rows_of(lake.spark.table("t")) == before


def test_erased_old_files_stay_a_problem_when_a_later_run_has_expired(lake: Lake) -> None:
    """A run keeps its lists of files while an earlier one needs them; passes over the table name what is open."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    set_tags(lake.spark, "t", {"email": ["fin"]}, policy)
    encrypt_table(lake.spark, "t", policy)
    shutil.rmtree(lake.path("t") / "p=1")
    done = expire_run(lake.spark, "t", policy)
    assert list(done.refused) == ["p=1"] and done.folders
    for _ in range(2):
        report = the_pass(lake, policy)
        assert report.tables and not report.failed
        assert the_problem(report)["unit"] == "p=1"


@pytest.mark.parametrize("move_old", [False, True])
def test_old_folder_in_use_again_is_superseded(lake: Lake, move_old: bool) -> None:
    """After DROP PARTITION and an INSERT into it, expire leaves the live files alone, says so, and does the others."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy, move_old=move_old)
    lake.sql("ALTER TABLE t DROP PARTITION (p = 0)")
    lake.sql(f"INSERT OVERWRITE t PARTITION (p = 0) VALUES (60, '{SECRET}-60', 'new')")
    before = rows_of(lake.spark.table("t"))
    done = expire_run(lake.spark, "t", policy)
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert 60 in [row.id for row in before]
    if move_old:
        assert len(done.folders) == 2
    else:
        assert list(done.superseded) == ["p=0"]
        assert "is in use again" in done.superseded["p=0"]
        assert [folder.rpartition("/")[2] for folder in done.folders] == ["p=1"]
    assert expire_run(lake.spark, "t", policy).folders == ()


def test_two_runs_that_share_an_old_folder_expire_together(lake: Lake) -> None:
    """A partition was pointed back, written to and encrypted again: expire of both runs works, and works again."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    lake.sql(f"ALTER TABLE t PARTITION (p = 0) SET LOCATION 'file:{lake.path('t')}/p=0'")
    with lake.stranger() as stranger:
        stranger.sql(f"INSERT INTO t PARTITION (p = 0) VALUES (70, '{SECRET}-70', 'between')")
    lake.spark.catalog.refreshTable("t")
    before = rows_of(lake.spark.table("t"))
    options = PassOptions(run=RunOptions(keep_going=True))
    (problem,) = backfill(lake.spark, policy, tables=["t"], options=options).tables[0].problems
    told = expire_run(lake.spark, "t", policy, options=ExpiryOptions(dry_run=True))
    assert (list(told.superseded), list(told.refused)) == (["p=0"], ["p=0"])
    resolve_problem(lake.spark, "t", policy, problem["problem"], Decision("old", "it was pointed back on purpose"))
    assert backfill(lake.spark, policy, tables=["t"], options=options).outcome in ("done", "nothing to do")
    done = expire_run(lake.spark, "t", policy)
    assert len(done.run_ids) > 1
    assert "later" not in done.superseded
    lake.spark.catalog.refreshTable("t")
    assert rows_of(lake.spark.table("t")) == before
    assert not data_files(lake.path("t"))
    assert expire_run(lake.spark, "t", policy).files == 0


def dry_run(lake: Lake, policy: Policy) -> PassOptions:
    """Return the options of `sparkcrypt plan --database`."""
    return PassOptions(run=RunOptions(keep_going=True, dry_run=True))


def point_to_unlisted(lake: Lake, table: str = "t") -> str:
    """Point a partition to a folder that the file system refuses to look at, whoever asks: its name is too long."""
    place = f"file:{lake.root}/{'x' * 300}"
    lake.sql(f"ALTER TABLE {table} PARTITION (p = 1) SET LOCATION '{place}'")
    return place


def test_refused_by_the_file_system_is_an_error_of_storage(lake: Lake) -> None:
    """Whatever the file system refuses, the error says that a file cannot be reached, and ends with 71."""
    lake.policy()
    files, place = HadoopFiles(lake.spark), f"file:{lake.root}/{'x' * 300}"
    for ask in (files.exists, files.names, files.status, files.children, files.access):
        with pytest.raises(StorageError, match=r"cannot (look|list)"):
            ask(place)


def test_unit_whose_folder_cannot_be_listed_leaves_the_others_to_be_done(lake: Lake) -> None:
    """Plan, pass and verification name the unit, the other unit of its table is encrypted; a run ends before any."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    place = point_to_unlisted(lake)
    target = catalog_target(lake.spark, Catalog(lake.spark).table("t"), policy, None)
    planned = plan_target(lake.spark, target, policy)
    assert {drift.kind for drift in planned.drift} == {"unlisted_folder", "plaintext"}
    assert planned.exit_code == 74
    with pytest.raises(StorageError, match=r"p=1: .*xxx.*cannot look"):
        encrypt_table(lake.spark, "t", policy)
    assert_plaintext(lake.path("t"))
    for options in (dry_run(lake, policy), PassOptions(changed=True)):
        report = backfill(lake.spark, policy, tables=["t"], options=options)
        assert (report.exit_code, report.failed) == (74, [])
        (told,) = report.tables[0].quarantined
        assert (told["unit"], told["error"]) == ("p=1", "StorageError") and place.removeprefix("file:") in told[
            "message"
        ]
    assert [unit["unit"] for unit in report.tables[0].units] == ["p=0"]
    found = verify_table(lake.spark, "t", policy)
    assert not found.ok and [drift.kind for drift in found.drift] == ["unlisted_folder"]
    (checked,) = check_keys(lake.spark, policy, tables=["t"]).tables
    assert (checked.encrypted, [entry.error for entry in checked.unopened]) == (2, ["StorageError"])


def test_expire_keeps_old_files_of_a_unit_whose_folder_cannot_be_listed(lake: Lake) -> None:
    """They may be the only copy; those of the other unit are deleted."""
    policy, _ = tagged(lake, PARTITIONED["using"])
    encrypt_table(lake.spark, "t", policy)
    point_to_unlisted(lake)
    done = expire_run(lake.spark, "t", policy)
    assert list(done.refused) == ["p=1"] and "cannot look" in done.refused["p=1"]
    assert [folder.rpartition("/")[2] for folder in done.folders] == ["p=0"]


def test_plan_of_many_names_a_table_whose_folder_is_gone(lake: Lake) -> None:
    """Such a table ends the plan of a database with 74, as it would end the pass."""
    policy = lake.policy()
    make_table(lake, "a", partitions=0)
    make_table(lake, "b", partitions=0)
    shutil.rmtree(lake.path("a"))
    report = backfill(lake.spark, policy, databases=[lake.database], options=dry_run(lake, policy))
    assert (report.outcome, report.exit_code) == ("dry run", 74)
    a, b = report.tables
    assert "there is no such folder" in a.quarantined[0]["message"] and not b.quarantined


NAMES = {
    "part-0.parquet": False,
    "a_b.parquet": False,
    "a.b": False,
    "p=1": False,
    "_p=1": False,
    "_=": False,
    ".p=1": True,
    "_SUCCESS": True,
    "_metadata": True,
    "_common_metadata": True,
    "_temporary": True,
    "_archive": True,
    ".part-0.parquet.crc": True,
    ".sparkcrypt": True,
}
"""Name of a file or folder -> whether Spark's readers pass over it."""


def test_python_and_the_jar_pass_over_the_same_names(lake: Lake, tmp_path: Path) -> None:
    """Each listing takes the same names of files and of folders for data, and names the topmost of all others."""
    folder = tmp_path / "listed"
    for name in NAMES:
        for below in (folder / "files", folder / "folders" / name):
            below.mkdir(parents=True, exist_ok=True)
        (folder / "files" / name).write_bytes(b"x")
        (folder / "folders" / name / "part-0").write_bytes(b"x")
    visible = {name for name, hidden in NAMES.items() if not hidden}
    expected = {f"files/{name}" for name in visible} | {f"folders/{name}/part-0" for name in visible}
    beside = {f"{kind}/{name}" for kind in ("files", "folders") for name, hidden in NAMES.items() if hidden}
    bring_jar(lake.spark)
    files = HadoopFiles(lake.spark)
    listed = files.listed_in_jvm(folder.as_uri(), FOLDER_LISTING_CLASS)
    assert listed is not None

    def below_folder(paths: list[str]) -> set[str]:
        return {path.partition("/listed/")[2] for path in paths}

    assert {name for name in NAMES if not is_hidden(name)} == visible
    fields = listed.split("\0")[:-1]
    in_jvm = {name for name in beside if not name.endswith(".crc")}  # Hadoop's local file system lists no checksums
    assert below_folder(fields[::3]) == expected | in_jvm
    folders = [path for path, length in zip(fields[::3], fields[1::3], strict=True) if length == "-1"]
    assert below_folder(folders) == {name for name in in_jvm if name.startswith("folders/")}
    assert below_folder([entry.path for entry in files.walk_visible(f"file:{folder}")]) == expected | in_jvm
    contents = list_contents(files, f"file:{folder}")
    assert below_folder([file.path for file in contents.data]) == expected
    assert {entry.path for entry in contents.beside} == beside
    assert below_folder([file.path for file in files.data_files(f"file:{folder}")]) == expected
    assert set(list_natively(str(folder), {})) == expected

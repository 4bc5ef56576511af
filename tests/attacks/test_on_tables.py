"""Attacks on the folder of a table: files that lack what is tagged, and links that lead elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import VerificationError
from sparkcrypt.files.listing import data_files as native_data_files
from sparkcrypt.files.parquet import FOOTER_KEY, DataKey, FileEncryption, inspect_file, rewrite_file
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.run import encrypt_table
from sparkcrypt.runs.table.verify import verify_table
from sparkcrypt.spark.files.listing import data_files as listed_files
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import Lake, data_files, key_service, retriever, rows_of

TABLE = "CREATE TABLE t (id INT, email STRING) USING parquet"


def encrypted(lake: Lake) -> Policy:
    """Make a table that requires encryption, and encrypt its one file by a run."""
    lake.sql(TABLE)
    lake.sql("INSERT INTO t VALUES (1, 'ann@example.org')")
    policy = lake.policy(tables=f"  {lake.name('t')}: {{require_encryption: true}}\n")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    encrypt_table(lake.spark, "t", policy, adopt=True)
    return policy


def plant_under_footer_key(beside: Path, planted: Path, policy: Policy) -> None:
    """Write what a reader who holds the footer key alone can: rows without the tagged column, a dummy one beside."""
    prefix = inspect_file(beside, retrieve_key=retriever(policy)).aad_prefix
    assert prefix is not None
    clear = beside.parents[2] / "clear.parquet"
    pq.write_table(pa.table({"id": pa.array([666], pa.int32()), "dummy": ["x"]}), clear)
    maker = DataKeyMaker(key_service(policy), data_key_bits=policy.data_key_bits)
    encryption = FileEncryption(
        DataKey(*maker.make(policy.footer_key, is_footer_key=True)),
        columns={("dummy",): FOOTER_KEY},
        aad_prefix=prefix.replace(beside.name.encode(), planted.name.encode()),
    )
    rewrite_file(clear, planted, encryption=encryption)


@pytest.mark.spark
def test_a_file_without_any_tagged_column_is_found(lake: Lake) -> None:
    """Nothing in it needs a key, so its being in clear says nothing; the manifest says that no run has put it there."""
    policy = encrypted(lake)
    assert verify_table(lake.spark, "t", policy).ok
    (file,) = data_files(lake.path("t"))
    planted = file.parent / "part-00009-planted.snappy.parquet"
    pq.write_table(pa.table({"id": pa.array([666], pa.int32())}), planted)
    for manifest in (False, True):
        found = verify_table(lake.spark, "t", policy, manifest=manifest)
        assert not found.ok
        (lacking,) = found.suspicious
        assert lacking.file.endswith(planted.name)
        assert (lacking.columns, lacking.every) == (("email",), True)
        assert lacking.listed is (False if manifest else None)
        assert found.to_dict()["lacks_tagged_columns"] == [lacking.to_dict()]


@pytest.mark.spark
def test_a_folder_named_like_deltas_log_takes_no_encryption_away(lake: Lake) -> None:
    """Neither does a column that is named like one of Delta's actions: only Delta's own writer is exempt."""
    encrypted(lake)
    path = lake.root / "_delta_log" / "x"
    lake.spark.table("t").selectExpr("email AS add").write.parquet(path.as_uri())
    (file,) = data_files(path)
    assert inspect_file(file).footer == "encrypted"
    assert rows_of(lake.spark.read.parquet(path.as_uri())) == [("ann@example.org",)]


@pytest.mark.spark
def test_a_file_under_the_footer_key_without_any_tagged_column_is_found(lake: Lake) -> None:
    """With a dummy column under the footer key it passes for encrypted: readers show nulls, ``verify`` names it."""
    policy = encrypted(lake)
    (file,) = data_files(lake.path("t"))
    planted = file.parent / "part-00009-planted.snappy.parquet"
    plant_under_footer_key(file, planted, policy)
    assert inspect_file(planted, retrieve_key=retriever(policy)).footer == "encrypted"
    lake.sql("REFRESH TABLE t")
    assert rows_of(lake.spark.table("t")) == [(1, "ann@example.org"), (666, None)]
    for manifest in (False, True):
        found = verify_table(lake.spark, "t", policy, manifest=manifest)
        assert not found.ok
        (lacking,) = found.suspicious
        assert (lacking.file.endswith(planted.name), lacking.columns, lacking.every) == (True, ("email",), True)
        assert lacking.listed is (False if manifest else None)
    assert found.manifest is not None and [Path(path).name for path in found.manifest.unlisted] == [planted.name]


@pytest.mark.spark
def test_an_older_file_that_a_run_knows_is_not_taken_for_planted(lake: Lake) -> None:
    """ADD COLUMNS leaves files without a column that is tagged later: named, but the manifest vouches for them."""
    lake.sql("CREATE TABLE t (id INT, email STRING) USING parquet")
    lake.sql("INSERT INTO t VALUES (1, 'ann@example.org')")
    rule = f"  {lake.name('t')}: {{require_encryption: true}}\n"
    policy = lake.policy(tables=rule)
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    encrypt_table(lake.spark, "t", policy, adopt=True)
    lake.sql("ALTER TABLE t ADD COLUMNS (phone STRING)")
    set_tags(lake.spark, "t", {"phone": ["pii"]}, policy)
    found = verify_table(lake.spark, "t", policy, manifest=True)
    assert found.ok
    ((lacking),) = found.lacks_tagged_columns
    assert (lacking.columns, lacking.every, lacking.listed) == (("phone",), False, True)


@pytest.mark.spark
@pytest.mark.parametrize("inside", [True, False], ids=["to another file of the table", "out of the table"])
def test_a_link_among_data_files_is_refused(lake: Lake, inside: bool) -> None:
    """What it leads to is no file of the table, or one that would be rewritten twice: neither is done or verified."""
    policy = encrypted(lake)
    (file,) = data_files(lake.path("t"))
    elsewhere = lake.path("t").parent / "elsewhere.parquet"
    if not inside:
        shutil.copyfile(file, elsewhere)
    link = file.parent / "part-00001-link.snappy.parquet"
    link.symlink_to(file if inside else elsewhere)
    with pytest.raises(VerificationError, match="is a symbolic link"):
        verify_table(lake.spark, "t", policy)
    assert link.is_symlink() and file.exists()


def links(folder: Path) -> dict[str, Callable[[], None]]:
    """Return ways to put a link below a folder: to a file, to a folder, and to nothing."""
    (folder / "real").mkdir(parents=True)
    (folder / "real" / "a.parquet").write_bytes(b"x")
    return {
        "file": lambda: (folder / "b.parquet").symlink_to(folder / "real" / "a.parquet"),
        "folder": lambda: (folder / "p=1").symlink_to(folder / "real"),
        "nothing": lambda: (folder / "b.parquet").symlink_to(folder / "nowhere"),
    }


@pytest.mark.parametrize("kind", ["file", "folder", "nothing"])
def test_listings_refuse_links(tmp_path: Path, kind: str) -> None:
    """Without Spark and with it; a link under a name that no reader looks at, and a named root, are no data files."""
    folder = tmp_path / "t"
    put = links(folder)
    (folder / "_hidden").symlink_to(folder / "real")
    (tmp_path / "named").symlink_to(folder)
    assert native_data_files(str(tmp_path / "named"), {}) == ("real/a.parquet",)
    assert len(listed_files(None, str(tmp_path / "named"))) == 1  # type: ignore[arg-type]  # of no use on a local disk
    put[kind]()
    with pytest.raises(VerificationError, match="is a symbolic link"):
        native_data_files(str(folder), {})
    with pytest.raises(VerificationError, match="is a symbolic link"):
        listed_files(None, str(folder))  # type: ignore[arg-type]  # likewise

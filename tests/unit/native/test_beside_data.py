"""What lies beside data is told by its name; what is not known is foreign."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkcrypt.errors import PlanError
from sparkcrypt.files.listing import Entry, Kind, data_files, find_beside

HEX = "0123456789abcdef" * 2
FILES: dict[str, Kind] = {
    "_SUCCESS": "written",
    "._SUCCESS.crc": "written",
    ".a.parquet.crc": "written",
    f".a.parquet.{HEX}.partial": "written",
    "_KEY_MATERIAL_FOR_a.parquet.json": "written",
    "_TMP_KEY_MATERIAL_FOR_a.parquet.json": "written",
    "_KEY_MATERIAL_FOR_gone.parquet.json": "foreign",
    "_metadata": "summary",
    "_common_metadata": "summary",
    "_metadata.bak": "foreign",
    "_SUCCESS.old": "foreign",
    "_README": "foreign",
    ".env": "foreign",
    ".hoodie_partition_metadata": "format",
}
FOLDERS: dict[str, Kind] = {
    "_temporary": "writer",
    ".spark-staging-1": "writer",
    ".hive-staging_1": "writer",
    "__magic_job-1": "writer",
    "_delta_log": "format",
    ".hoodie": "format",
    "_spark_metadata": "format",
    ".sparkcrypt": "staging",
    "_checkpoint": "foreign",
    ".backup": "foreign",
    "_SUCCESS": "foreign",
    "_metadata": "foreign",
    ".a.parquet.crc": "foreign",
}


@pytest.mark.parametrize("below", ["", "p=1/", "_p=1/q=2/"])
@pytest.mark.parametrize(
    ("name", "is_folder", "kind"),
    [*((name, False, kind) for name, kind in FILES.items()), *((name, True, kind) for name, kind in FOLDERS.items())],
)
def test_each_entry_has_a_kind(below: str, name: str, is_folder: bool, kind: Kind) -> None:
    """A name counts at any depth, and a folder of a file's name is not that file."""
    listed = [Entry(f"{below}a.parquet", length=3), Entry(f"{below}{name}", is_folder, 7)]
    (found,) = find_beside(listed)
    assert (found.path, found.kind, found.length) == (f"{below}{name}", kind, 7)


def test_hidden_folder_is_one_entry() -> None:
    """Whatever is in it, also files named like data or like other formats, and whether it is listed itself or not."""
    inside = ["_archive/part-0.parquet", "_archive/_delta_log/0.json", "_archive/.x/_SUCCESS"]
    for entries in (inside, ["_archive", *inside], [*inside, "_archive"]):
        (found,) = find_beside(Entry(path) for path in entries)
        assert (found.path, found.kind) == ("_archive", "foreign")


def test_data_files_have_nothing_beside_them() -> None:
    """Visible files, folders of partitions whose names begin with an underscore, and visible folders."""
    assert find_beside([Entry("a.parquet"), Entry("_p=1/a"), Entry("empty", is_folder=True)]) == ()


@pytest.mark.parametrize(
    "mark",
    [
        "_delta_log/0.json",
        "sub/_delta_log/0.json",
        ".hoodie/hoodie.properties",
        "sub/.hoodie_partition_metadata",
        "_spark_metadata/0",
        "metadata/1.metadata.json",
    ],
)
def test_folder_with_a_list_of_its_files_is_not_listed(tmp_path: Path, mark: str) -> None:
    """Which files are the table's is in that list alone: files that it removed would be read, or be rewritten."""
    for name in ("sub/a.parquet", mark):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(PlanError, match="keeps its own list of files"):
        data_files(str(tmp_path), {})
    assert data_files(str(tmp_path / "sub" / "a.parquet"), {}) == ("",)


def test_partition_of_a_table_with_a_list_of_its_files_is_not_listed(tmp_path: Path) -> None:
    """The list is above the partitions; above other folders it is another table's."""
    for folder in (tmp_path / "t" / "p=1" / "q=2", tmp_path / "t" / "other"):
        folder.mkdir(parents=True)
        (folder / "a.parquet").write_bytes(b"x")
    (tmp_path / "t" / "_delta_log").mkdir()
    for folder in (tmp_path / "t" / "p=1", tmp_path / "t" / "p=1" / "q=2"):
        with pytest.raises(PlanError, match=f"{tmp_path}/t: has _delta_log: a Delta table"):
            data_files(str(folder), {})
    assert data_files(str(tmp_path / "t" / "other"), {}) == ("a.parquet",)


def test_file_of_no_bytes_is_left_out(tmp_path: Path) -> None:
    """Spark reads no row of it, whatever the table's format; a file that is named itself is one."""
    for name in ("a.parquet", "p=1/000000_0"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "p=1" / "000001_0").touch()
    assert data_files(str(tmp_path), {}) == ("a.parquet", "p=1/000000_0")
    assert data_files(str(tmp_path / "p=1" / "000001_0"), {}) == ("",)


@pytest.mark.parametrize("folder", ["t", "t/data", "t/data/p=1", "t/data/p=1/q=2", "."])
@pytest.mark.parametrize("name", ["v1.metadata.json", "v1.metadata.json.gz"])
def test_iceberg_is_told_from_any_folder_of_it(tmp_path: Path, folder: str, name: str) -> None:
    """Its list is beside its folder of data, and below the folder above it."""
    for file in (f"t/metadata/{name}", "t/data/p=1/q=2/a.parquet", "data/metadata/x.parquet", "data/data/x.parquet"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(b"x")
    with pytest.raises(PlanError, match=f"{tmp_path}.*: an Iceberg table keeps its own list of files"):
        data_files(str(tmp_path / folder), {})
    assert data_files(str(tmp_path / "data" / "data"), {}) == ("x.parquet",)

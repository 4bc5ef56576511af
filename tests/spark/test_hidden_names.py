"""Which files of a folder Spark reads: one rule, written in Python and in the jar."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkcrypt.files.listing import data_files as list_natively
from sparkcrypt.names import FOLDER_LISTING_CLASS
from sparkcrypt.paths import is_hidden
from sparkcrypt.spark.files.hadoop import HadoopFiles, list_contents
from sparkcrypt.spark.jvm.jar import bring_jar
from tests.spark.support import Lake

pytestmark = pytest.mark.spark

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

"""A folder is in use by each of its names: one that seems free would be deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkcrypt.paths import Place
from sparkcrypt.runs.table.in_use import Places, User

ALIASES = ((Place.of("hdfs://nn2"), Place.of("hdfs://nn1")), (Place.of("viewfs://c/data"), Place.of("hdfs://nn1/lake")))


@pytest.mark.parametrize(
    "folder",
    [
        "hdfs://nn1:8020/lake/t",
        "hdfs://NN1/lake/t/",
        "hdfs://nn1/lake/x/../t",
        "hdfs://nn2:8020/lake/t",
        "viewfs://c/data/t",
        "hdfs://nn1/lake/t/p=1",
        "hdfs://nn2/lake",
    ],
)
def test_folder_is_in_use_by_each_name(folder: str) -> None:
    """The folder, one inside it and one above it, by other names than the metastore has."""
    places = Places([("hdfs://nn1/lake/t", User("a.t"))], ALIASES)
    assert places.user_of(folder) == "a.t points to hdfs://nn1/lake/t"
    assert places.uses(folder) is folder.rstrip("/").endswith("/t")


@pytest.mark.parametrize("folder", ["hdfs://nn3/lake/t", "hdfs://nn1/lake/t2", "hdfs://nn1/lake/t/.hidden/x"])
def test_folder_that_is_free(folder: str) -> None:
    """Another store's folder, one with a longer name, and one that no reader lists."""
    assert Places([("hdfs://nn1/lake/t", User("a.t"))], ALIASES).user_of(folder) is None


def test_folder_is_in_use_by_links(tmp_path: Path) -> None:
    """A table that is declared through a link uses the folder to which that leads."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert Places([(f"file:{tmp_path}/link", User("a.t"))]).uses(f"file://{tmp_path}/real")

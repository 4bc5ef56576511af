"""What is known of a table beside its files: former homes, places in use, lost tags, lineage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sparkcrypt.ledger.unit import former_home
from sparkcrypt.paths import Place
from sparkcrypt.runs.old_folders.former_homes import describe_move
from sparkcrypt.runs.passes.html.page import draw_lineage
from sparkcrypt.runs.passes.lineage import DerivedColumn, Lineage, TableLineage
from sparkcrypt.runs.passes.lost_tags import record_lost_tags, recorded_lost_tags
from sparkcrypt.runs.table.in_use import Places, User
from sparkcrypt.spark.tables.table import Table
from tests.unit.backfill.memory_store import MemoryStore

RUN = "20260501T020000Z-31bc1c-1-1-9cf89719"
TABLE = Table("db", "t", "EXTERNAL", "parquet", "", "s3a://lake/t", "", (), {}, {}, owner="")


@pytest.mark.parametrize(
    ("location", "base", "home"),
    [
        (f"s3a://lake/.sparkcrypt/t/{RUN}", "s3a://lake/t", "s3a://lake/t"),
        (f"file:/wh/.sparkcrypt/t/{RUN}/p=0/q=1/", "file:/wh/t/", "file:/wh/t/p=0/q=1"),
        (f"file:/wh/.sparkcrypt/t/{RUN}/p=0", "file:/wh/renamed", "file:/wh/renamed/p=0"),
        ("file:/wh/.sparkcrypt/t/old-20260501T020000Z-31bc1c/p=0", "file:/wh/t", "file:/wh/t/p=0"),
        ("file:/wh/t/p=0", "file:/wh/t", None),
        ("file:/wh/.sparkcrypt/t", "file:/wh/t", None),
        ("file:/wh/.sparkcrypt/t/mine", "file:/wh/t", None),
    ],
)
def test_a_location_in_a_folder_of_runs_tells_the_former_home(location: str, base: str, home: str | None) -> None:
    """Any other location tells none."""
    assert former_home(location, base) == home


def test_which_tables_leave_their_folder() -> None:
    """External ones as a whole, once; partitions of all; a managed table without partitions stays."""
    assert "a run puts the table into a folder below s3a://lake/.sparkcrypt/t" in str(describe_move(TABLE))
    assert describe_move(replace(TABLE, location=f"s3a://lake/.sparkcrypt/t/{RUN}")) is None
    assert describe_move(replace(TABLE, kind="MANAGED")) is None
    assert "each partition" in str(describe_move(replace(TABLE, kind="MANAGED", partition_columns=("p",))))


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


def test_record_lasts_until_the_tags_are_back() -> None:
    """Each table has one record, whatever the case of its name; a damaged one is ignored, and the next replaces it."""
    store = MemoryStore({})
    record_lost_tags(store, "d.t", None)
    record_lost_tags(store, "d.t", "pii is gone")
    record_lost_tags(store, "D.T", "fin is gone")
    record_lost_tags(store, "d.other", "all are gone")
    assert sorted(recorded_lost_tags(store)) == [("D.T", "fin is gone"), ("d.other", "all are gone")]
    for content in (b"[", b"[]", b'{"version": 2}', b'{"version": 1}'):
        for name in store.list("cache/lost_tags/"):
            store.delete(name)
            store.create(name, content)
        assert list(recorded_lost_tags(store)) == []
    record_lost_tags(store, "d.other", "all are gone")
    assert list(recorded_lost_tags(store)) == [("d.other", "all are gone")]
    record_lost_tags(store, "d.other", None)
    record_lost_tags(store, "d.t", None)
    assert store.list("") == ()


SSN, LOW = ("d.people", "ssn"), ("d.made", "low")
TRACED = Lineage(
    (
        TableLineage("d.again", 2, (DerivedColumn("deep", ("pii",), (LOW,), ("pii",), 1),), (), {"/f": "torn"}),
        TableLineage(
            "d.made",
            1,
            (DerivedColumn("low", ("pii",), (SSN,), (), 1), DerivedColumn("year", (), (), (), 1, (SSN,))),
            (SSN,),
            {},
            cut=True,
        ),
        TableLineage("d.people", 3, (), (), {}),
    ),
    {"file:/x": "no such table"},
)
NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_words() -> None:
    """Each table says where its columns came from, what chose its rows, what was made of it, and what is not known."""
    assert TRACED.to_text().split("\n") == [
        "d.again: 2 files",
        "  deep (pii, pii not its table's own) <- d.made.low",
        "  not read: /f: torn",
        "",
        "d.made: 1 file",
        "  low (pii) <- d.people.ssn",
        "  year (no tag) <- declassified d.people.ssn",
        "  rows chosen by d.people.ssn",
        "  low -> d.again.deep",
        "  a file names only the first of its many sources",
        "",
        "d.people: 3 files",
        "  ssn -> d.made.low, d.made.year",
        "",
        "not looked at: file:/x: no such table",
    ]
    assert TRACED.exit_code == 74


def drawn(lineage: Lineage) -> tuple[list[str], int, list[float]]:
    """Return the texts of a picture, the number of its lines, and where its boxes begin."""
    root = ElementTree.fromstring(draw_lineage(lineage))
    texts = [text.text or "" for text in root.iter(f"{NAMESPACE}text")]
    return (
        texts,
        len(list(root.iter(f"{NAMESPACE}path"))),
        [float(box.get("x", "")) for box in root.iter(f"{NAMESPACE}rect")],
    )


def test_picture() -> None:
    """Sources are on the left of what was made of them; each origin is a line."""
    texts, lines, places = drawn(TRACED)
    assert texts == ["d.people", "ssn", "d.made", "low", "year", "d.again", "deep"]
    assert lines == 3
    assert places == sorted(set(places))


def test_picture_of_tables_that_feed_each_other_and_of_names_that_are_markup() -> None:
    """A circle ends, and names stay text."""
    first = TableLineage("d.<one>&", 1, (DerivedColumn("a", (), (("d.two", "b"),), (), 1),), (), {})
    second = TableLineage("d.two", 1, (DerivedColumn("b", (), (("d.<one>&", "a"), ("d.two", "b")), (), 1),), (), {})
    texts, lines, _ = drawn(Lineage((first, second)))
    assert sorted(texts) == ["a", "b", "d.<one>&", "d.two"]
    assert lines == 3
    assert drawn(Lineage(())) == ([], 0, [])

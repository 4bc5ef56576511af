"""The lineage of tables in words and as a picture."""

from __future__ import annotations

from xml.etree import ElementTree

from sparkcrypt.cli.tables.lineage import lineage_text
from sparkcrypt.runs.passes.html.page import draw_lineage
from sparkcrypt.runs.passes.lineage import DerivedColumn, Lineage, TableLineage

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
    assert lineage_text(TRACED).split("\n") == [
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

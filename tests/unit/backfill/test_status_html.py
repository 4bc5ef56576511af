"""The page of all tables: what is read first, that it is as long as its numbers, and that names are only text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.runs.passes.estate import EarlierTable, EstateStatus, OverdueKey, TableStatus
from sparkcrypt.runs.passes.html.page import status_html
from sparkcrypt.runs.passes.last_pass import LastPass, TagCoverage
from tests.unit.backfill.estates import estate, figures
from tests.unit.backfill.pages import ALLOWED_ELEMENTS, ATTACKS, Page, words

GOOD = LastPass("s.t", "2026-11-26T00:00:00Z", "done", figures=figures(units_left=0, drift={}, quarantined=0))


def rendered(done: EstateStatus, place: str = "/reports/status.html") -> Page:
    """Return the page, parsed."""
    return Page(status_html(done, place))


def one_table(**changes: Any) -> EstateStatus:
    """Return the status of one table that is as planned, unless it is changed."""
    table = TableStatus("s.t", "id", GOOD)
    return EstateStatus("2026-11-27T00:00:00Z", "d", tables=(replace(table, **changes),))


def poisoned(text: str) -> EstateStatus:
    """Return a status in which that text stands wherever users or other programs have a say."""
    done = estate(text)
    (table,) = done.tables
    assert table.last is not None
    own = figures(drift={text: 1}, coverage={text: TagCoverage(2, 2, 1, 1)})
    last = replace(table.last, outcome=text, reason=text, page=f"/reports/{text}", figures=own)
    problem = replace(table.problems[0], message=text)
    full = replace(table, last=last, problems=(problem,), tags_lost=text, unfinished=text)
    return replace(
        done,
        policy_digest=text,
        databases=(text,),
        tables=(full, replace(full, table=f"{text}2", tags_lost=None)),
        earlier=(EarlierTable(text, text, None, None),),
        overdue=(OverdueKey(text, "2026-11-01T00:00:00Z", text),),
        keys_unknown=text,
    )


@pytest.mark.parametrize(
    ("done", "headline", "sentence"),
    [
        (one_table(), "All as planned", "1 table."),
        (one_table(last=replace(GOOD, figures=figures())), "Some work is left", "1 table: 1 with drift."),
        (one_table(last=None), "Some work is left", "1 table: 1 not surveyed."),
        (replace(one_table(), overdue=None), "Some work is left", "1 table: rotations overdue."),
        (one_table(tags_lost="gone"), "A person must decide", "1 table."),
        (EstateStatus("2026-11-27T00:00:00Z", "d"), "Nothing is known", "No pass has recorded a table here."),
    ],
)
def test_headline_says_the_worst(done: EstateStatus, headline: str, sentence: str) -> None:
    """It is green only if every table was surveyed and nothing is left, and nobody has to decide anything."""
    page = words(rendered(done))
    assert f"{headline} {sentence}" in page
    assert ("good" in re.findall(r'class="headline (\w+)"', status_html(done, "/s.html"))) is (
        headline == "All as planned"
    )


def test_it_shows_what_is_known_with_its_age() -> None:
    """Coverage, old files, problems, keys, and each table with its last pass."""
    page = words(rendered(estate()))
    for part in (
        "pii: 80.0 % 80.0 % 80 B of 100 B 8 of 10 files",
        "s.t: 200 B 200 B 2 7 d, beyond the grace",
        "s.t incomplete 1 d ago 1 d old 10 1 unit, 20 B plaintext: 2 250 B/s",
        "Open problem s.t day=2026-01-01: rows came",
        "Tags lost s.t",
        "Next: sparkcrypt backfill expire --table s.t",
        "Rotation overdue pii",
        "Made again s.t The table with the id before had this name",
    ):
        assert part in page, part


def test_bars_are_as_long_as_their_numbers() -> None:
    """Of tags the share that matches, of old files the share of the most."""
    assert [bar["width"] for bar in rendered(estate()).all("rect") if bar["class"] == "after"] == ["80.0%", "100.0%"]


def test_tables_that_need_a_person_come_first() -> None:
    """Then those with errors, then those with the most left."""
    few, much = (replace(GOOD, figures=figures(bytes_left=left)) for left in (1, 9))
    tables = [
        TableStatus("a.good", "1", GOOD),
        TableStatus("b.few", "2", few),
        TableStatus("c.much", "3", much),
        TableStatus("d.failed", "4", replace(GOOD, outcome="failed", reason="PlanError")),
        TableStatus("e.lost", "5", GOOD, tags_lost="gone"),
    ]
    html = status_html(EstateStatus("2026-11-27T00:00:00Z", "d", tables=tuple(tables)), "/s.html")
    found = re.findall(r"<bdi>(\w\.\w+)</bdi></th><td><span", html)
    assert found == ["e.lost", "d.failed", "c.much", "b.few", "a.good"]


@pytest.mark.parametrize(
    ("page", "place", "link"),
    [
        ("/reports/night.html", "/reports/status.html", "night.html"),
        ("/reports/a b/nïght #1.html", "/reports/today/status.html", "../a%20b/n%C3%AFght%20%231.html"),
        ("/reports/javascript:x", "/reports/status.html", "javascript%3Ax"),
        ("hdfs://nn/night.html", "/reports/status.html", None),
        ("/reports/night.html", "s3a://b/status.html", None),
        (None, "/reports/status.html", None),
    ],
)
def test_links_lead_to_reports_from_where_the_page_is(page: str | None, place: str, link: str | None) -> None:
    """Relative, so that folders of reports can be moved and served; only where a browser can follow them."""
    found = rendered(one_table(last=replace(GOOD, page=page)), place).all("a")
    own = [attributes["href"] for attributes in found if not str(attributes["href"]).startswith("#")]
    assert own == ([] if link is None else [link])


@pytest.mark.parametrize("text", ATTACKS)
def test_whatever_is_recorded_is_text(text: str) -> None:
    """No name makes an element or an attribute, and no link leads elsewhere than to a file."""
    page, clean = rendered(poisoned(text)), rendered(poisoned("x"))
    assert [name for name, _ in page.elements if name != "code"] == [
        name for name, _ in clean.elements if name != "code"
    ]
    assert page.text.count(text) >= 12
    links = [str(attributes["href"]) for attributes in page.all("a")]
    assert all(link.startswith("#") or ":" not in link for link in links)


@pytest.mark.parametrize("done", [estate(), poisoned("x"), EstateStatus("2026-11-27T00:00:00Z", "d")])
def test_a_page_holds_nothing_that_runs_or_loads(done: EstateStatus) -> None:
    """As the page of a pass: no script, handler, inline style or address, and pictures and tables with titles."""
    html = status_html(done, "/reports/status.html")
    page = Page(html)
    assert {name for name, _ in page.elements} <= ALLOWED_ELEMENTS
    for _, attributes in page.elements:
        assert not any(name.startswith("on") or name in ("style", "src") for name in attributes)
    assert "https:" not in html and "http:" not in html and html.count("Content-Security-Policy") == 1
    assert html.count('role="img"') == html.count("<title") - 1
    assert len(page.all("table")) == html.count("<caption")
    names = {attributes["aria-labelledby"] for attributes in page.all("section")}
    assert names <= {attributes.get("id") for _, attributes in page.elements}
    anchors = {str(attributes["href"])[1:] for attributes in page.all("a") if str(attributes["href"])[0] == "#"}
    assert anchors <= {attributes.get("id") for _, attributes in page.elements}


def test_many_tables_are_cut_with_the_number_of_the_others() -> None:
    """The page stays one that a browser opens."""
    tables = tuple(TableStatus(f"s.t{number:05}", str(number), GOOD) for number in range(1_000))
    html = status_html(EstateStatus("2026-11-27T00:00:00Z", "d", tables=tables), str(Path("/s.html")))
    assert "… and 800 more" in html and len(html) < 200_000

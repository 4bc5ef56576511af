"""The pages of a pass and of all tables in a real browser: what is seen there, and that they load nothing."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.runs.passes.estate import EstateStatus
from sparkcrypt.runs.passes.html.page import report_html, status_html
from tests.services.chromium import Chromium, Page
from tests.unit.backfill.estates import estate
from tests.unit.backfill.pass_reports import MEGABYTE, coverage, incomplete, points, quarantined, report, table

pytestmark = pytest.mark.services

OPEN = Callable[..., Page]
BARS = """
[...document.querySelectorAll("table.coverage tbody tr td.cell svg")].map(svg => {
  const share = name => svg.querySelector(name).getBoundingClientRect().width / svg.getBoundingClientRect().width;
  return [svg.closest("tr").querySelector("th").innerText, share(".before"), share(".after")];
})
"""
REMAINING = """
[...document.querySelectorAll("table.remains tbody tr")].map(row => {
  const box = row.querySelector("svg").getBoundingClientRect();
  const part = name => {
    const found = row.querySelector(name);
    return found ? [found.getBoundingClientRect().left - box.left, found.getBoundingClientRect().width]
      .map(length => Math.round(1000 * length / box.width) / 10) : null;
  };
  return [row.querySelector("bdi").innerText, part(".finished"), part(".waiting"), part(".held")];
})
"""
LINE = """
(() => {
  const chart = document.querySelector("svg.chart"), line = chart.querySelector("polyline.line");
  const marks = [...chart.querySelectorAll("text")].filter(node => node.getAttribute("text-anchor") === "end");
  const middle = node => node.getBoundingClientRect().top + node.getBoundingClientRect().height / 2;
  const zero = middle(chart.querySelector("line.axis")), top = middle(marks.at(-1).previousElementSibling);
  const most = parseFloat(marks.at(-1).textContent.replace(",", ""));
  const scale = chart.getScreenCTM();
  const rates = [...line.points].map(spot => spot.matrixTransform(scale).y).map(y => most * (zero - y) / (zero - top));
  return {rates, label: marks.at(-1).textContent};
})()
"""
OVERFLOW = """
[...document.querySelectorAll("body *")].filter(node => {
  const box = node.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !node.closest(".scroll, .figure, .skip, .unseen");
}).map(node => node.outerHTML.slice(0, 120))
"""
CONTRAST = """
(() => {
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const linear = c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const light = found => [.2126, .7152, .0722].reduce((sum, part, i) => sum + part * linear(found[i] / 255), 0);
  const behind = node => {
    for (let at = node; at; at = at.parentElement) {
      const found = numbers(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const says = node => [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim());
  const words = [...document.querySelectorAll("body *")].filter(node => says(node) && !node.closest("title, desc"));
  return words.map(node => {
    const style = getComputedStyle(node), svg = node instanceof SVGElement;
    const [a, b] = [light(numbers(svg ? style.fill : style.color)), light(behind(node))].sort((x, y) => y - x);
    return [(a + .05) / (b + .05), node.outerHTML.slice(0, 100)];
  }).sort((x, y) => x[0] - y[0])[0];
})()
"""


class Server(ThreadingHTTPServer):
    """Serves a folder, and keeps what it was asked for."""

    asked: list[str]


class Handler(SimpleHTTPRequestHandler):
    """Notes every request."""

    server: Server

    def log_request(self, *_: object) -> None:
        """Keep the path instead of printing it."""
        self.server.asked.append(self.path)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Server]:
    """A server on 127.0.0.1 that would see every request."""
    server = Server(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path)))
    server.asked = []
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def opened(chromium: Chromium, served: Server, tmp_path: Path) -> Iterator[OPEN]:
    """Opens the page of a report or of a status as a web server serves it; nothing was complained of or loaded."""
    pages = []

    def open_report(document: dict[str, Any] | EstateStatus, **window: Any) -> Page:
        if isinstance(document, EstateStatus):
            html = status_html(document, "/reports/status.html")
        else:
            html = report_html(document)
        (tmp_path / "report.html").write_text(html, encoding="utf-8")
        page = chromium.open(f"http://127.0.0.1:{served.server_port}/report.html", **window)
        pages.append(page)
        return page

    yield open_report
    for page in pages:
        assert page.complaints() == []
        assert len(page.requests()) == 1
        page.close()
    assert set(served.asked) == {"/report.html"}


def text_of(page: Page, selector: str) -> str:
    """Return the text of an element as it is seen, in single spaces."""
    return re.sub(r"\s+", " ", page.evaluate(f"document.querySelector({selector!r}).innerText"))


def test_the_outcome_is_what_a_person_reads_first(opened: OPEN) -> None:
    """Headline, numbers and what must be looked at are seen, in this order, in the window as it opens."""
    page = opened(incomplete())
    assert text_of(page, "h1") == "Incomplete"
    assert "3 units" not in text_of(page, "#outcome")
    assert "2 quarantined units, 1 failed table and 1 refused table must be looked at." in text_of(page, "#outcome")
    assert text_of(page, ".figures").startswith("Files rewritten 16 of 32 files in 2 tables looked at")
    tops = page.evaluate(
        "['#outcome', '.figures', '.problems'].map(name => document.querySelector(name).getBoundingClientRect().top)"
    )
    assert 0 < tops[0] < tops[1] < tops[2] < 900
    assert page.evaluate("document.title") == "Backfill 20261121T101112Z-3f9a2c: incomplete"
    assert page.evaluate("document.querySelectorAll('script, img, link, iframe').length") == 0


def test_coverage_bars_are_as_long_as_their_numbers(opened: OPEN) -> None:
    """The bars that are drawn are the shares that the report says, of each table and of all."""
    page = opened(
        report(
            table("db.a", coverage={"pii": coverage(before=0.25, after=1.0), "contact": coverage(before=0, after=0.5)}),
            table("db.b", coverage={"pii": coverage(before=0.75, after=1.0)}),
        )
    )
    found = page.evaluate(BARS)
    assert [(tag, round(before, 3), round(after, 3)) for tag, before, after in found] == [
        ("pii", 0.5, 1.0),
        ("contact", 0.0, 0.5),
        ("pii", 0.25, 1.0),
        ("contact", 0.0, 0.5),
        ("pii", 0.75, 1.0),
    ]
    assert "pii 50.0 % 100 % 8.0 GB of 8.0 GB 80 of 80 files" in text_of(page, "table.coverage")
    assert page.evaluate("document.querySelector('table.coverage td svg title').textContent") == (
        "pii: 50.0 % before, 100 % after"
    )


def test_the_line_of_throughput_is_at_the_rates_of_the_report(opened: OPEN) -> None:
    """Measured on the screen against the labels of the axis."""
    page = opened(report(table(), throughput=points([20e6, 40e6, 30e6, 10e6])))
    found = page.evaluate(LINE)
    assert found["label"] == "40\N{NO-BREAK SPACE}MB/s"
    assert found["rates"] == pytest.approx([20, 20, 40, 40, 30, 30, 10, 10], abs=0.4)


def test_what_remains_is_drawn_as_parts_of_a_whole(opened: OPEN) -> None:
    """Done, waiting and quarantined units follow one another and fill the bar; colour is not what tells them apart."""
    page = opened(incomplete())
    found = {row[0]: row[1:] for row in page.evaluate(REMAINING)}
    assert found == {
        "sales.orders": [[0, 60], [60, 20], [80, 20]],
        "sales.ledger": [None, None, None],
        "sales.mirror": [None, None, None],
    }
    fills = page.evaluate("['.waiting', '.held'].map(name => getComputedStyle(document.querySelector(name)).fill)")
    assert fills == ['url("#hatch-wait")', 'url("#hatch-bad")']
    assert "sales.orders 2 waiting, 2 quarantined 4 of 10 units 8 800.0 MB" in text_of(page, "table.remains")


@pytest.mark.parametrize("dark", [False, True])
def test_it_is_a_picture_and_can_be_read_in_both_schemes(opened: OPEN, chromium: Chromium, dark: bool) -> None:
    """Neither blank nor grey on grey: every text has a contrast of 4.5 to what is behind it (WCAG 2.2, 1.4.3)."""
    page = opened(incomplete(), dark=dark)
    assert chromium.colours(page.screenshot("body")) > 200
    contrast, where = page.evaluate(CONTRAST)
    assert contrast >= 4.5, where
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is not dark


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("name", ["n" * 5_000, "a\u202eb", "بيانات.العملاء", "x y " * 200])
def test_no_name_breaks_the_layout(opened: OPEN, width: int, name: str) -> None:
    """On a desk or a telephone, whatever names are: only tables and the line scroll, each in its own frame."""
    document = report(
        table(name, columns={name: name}, quarantined=[quarantined(name, name, name)], units_left=1, warnings=[name]),
        outcome="incomplete",
        refused=[{"table": name, "reason": name}],
        unchanged=[name],
        pass_id=name,
    )
    page = opened(document, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OVERFLOW) == []


def test_markup_in_names_is_shown_and_not_obeyed(opened: OPEN, served: Server) -> None:
    """A script, a picture and a style in a table's name are letters on the screen, and nobody asks for anything."""
    name = (
        f"<script>document.title='owned'</script><img src='http://127.0.0.1:{served.server_port}/stolen'>"
        "<style>*{display:none}</style></title>"
    )
    page = opened(report(table(name), outcome="incomplete", failed=[{"table": name, "error": name, "message": name}]))
    assert name in text_of(page, "#tables + .scroll")
    assert page.evaluate("document.title") == "Backfill 20261121T101112Z-3f9a2c: incomplete"


def test_a_script_that_slipped_in_would_not_run(chromium: Chromium, served: Server, tmp_path: Path) -> None:
    """The page's policy alone stops what escaping is there to stop: a script, a handler, a style, a picture."""
    evil = (
        """<script>document.title="owned"</script><img src="stolen.png"><p onclick="x" id="evil" style="color: red">"""
    )
    html = report_html(incomplete())
    (tmp_path / "report.html").write_text(html.replace("</main>", f"{evil}</main>"))
    page = chromium.open(f"http://127.0.0.1:{served.server_port}/report.html")
    page.evaluate("document.querySelector('#evil').click()")
    assert page.evaluate("document.title") == "Backfill 20261121T101112Z-3f9a2c: incomplete"
    assert page.evaluate("getComputedStyle(document.querySelector('#evil')).color") != "rgb(255, 0, 0)"
    assert served.asked == ["/report.html"]
    assert len([complaint for complaint in page.complaints() if "Content Security Policy" in complaint]) >= 4
    page.close()


@pytest.mark.parametrize(
    "document",
    [
        {"outcome": "failed", "error": {"type": "ConfigError", "message": "no such policy", "exit_code": 78}},
        report(outcome="nothing to do", throughput=[]),
        report(table(count=1), throughput=[{"seconds": 3.0, "files": 2, "bytes": MEGABYTE}]),
        report(table(count=10_000, units_left=3, files_left=3, bytes_left=9), outcome="stopped at budget"),
    ],
    ids=["failed", "no tables", "one point", "ten thousand units"],
)
def test_small_and_large_passes_make_pages_that_show(
    opened: OPEN, chromium: Chromium, document: dict[str, Any]
) -> None:
    """Every one has its headline in the window and is more than a blank page."""
    page = opened(document)
    assert text_of(page, "h1").lower() == document["outcome"]
    assert chromium.colours(page.screenshot(".headline")) > 20
    assert page.evaluate("document.querySelectorAll('table.units tbody tr').length") <= 201


def test_it_prints_on_paper_with_what_was_folded_away(opened: OPEN) -> None:
    """Printing takes the light scheme and unfolds the details of every table, whatever the screen shows."""
    many = report(*(table(f"db.t{number}") for number in range(5)))
    page = opened(many, dark=True)
    unfolded = "[...document.querySelectorAll('details .inside')].map(node => node.checkVisibility())"
    assert page.evaluate(unfolded) == [False] * 5
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.evaluate(unfolded) == [True] * 5
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf().startswith(b"%PDF-")


def test_the_status_of_tables_says_first_what_a_person_must_do(opened: OPEN) -> None:
    """Headline, sums and what must be looked at are in the window as it opens; bars are as long as their numbers."""
    page = opened(estate(tables=30))
    assert text_of(page, "h1") == "A person must decide"
    tops = page.evaluate(
        "['#outcome', '.figures', '.problems'].map(name => document.querySelector(name).getBoundingClientRect().top)"
    )
    assert 0 < tops[0] < tops[1] < tops[2] < 900
    share = "(svg => svg.querySelector('.after').getBoundingClientRect().width / svg.getBoundingClientRect().width)"
    assert page.evaluate(f"{share}(document.querySelector('table.coverage svg'))") == pytest.approx(0.8, abs=0.01)
    assert page.evaluate("document.querySelectorAll('section[aria-labelledby=tables] tbody tr').length") == 30


@pytest.mark.parametrize("dark", [False, True])
def test_the_status_of_tables_can_be_read_in_both_schemes(opened: OPEN, chromium: Chromium, dark: bool) -> None:
    """As the page of a pass: neither blank nor grey on grey."""
    page = opened(estate(tables=3), dark=dark)
    assert chromium.colours(page.screenshot("body")) > 200
    contrast, where = page.evaluate(CONTRAST)
    assert contrast >= 4.5, where


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("name", ["sales.customers", "n" * 5_000, "بيانات.العملاء", "x y " * 200])
def test_the_status_of_tables_fits_desks_and_telephones(opened: OPEN, width: int, name: str) -> None:
    """Whatever names are, only tables scroll, each in its own frame; what needs a person does not."""
    page = opened(estate(name, tables=12), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OVERFLOW) == []

"""The page of a pass: what it says of which report, and that nothing in a report is more than text."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import errors
from sparkcrypt.ledger.unit import UnitOutcome
from sparkcrypt.runs.passes.html.content import NEXT_STEPS, UNKNOWN, next_step
from sparkcrypt.runs.passes.html.page import report_html
from sparkcrypt.runs.passes.report import PassReport
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.rewrite.schedule import FailedUnit
from tests.services.installed import ROOT
from tests.unit.backfill.pages import ALLOWED_ELEMENTS, ATTACKS, Page, words
from tests.unit.backfill.pass_reports import (
    MEGABYTE,
    PASS,
    RUN,
    coverage,
    incomplete,
    quarantined,
    report,
    table,
    unit,
)


def rendered(document: dict[str, Any]) -> Page:
    """Return the page, parsed; a report goes through JSON as it does on its way to a file."""
    return Page(report_html(json.loads(json.dumps(document))))


def poisoned(text: str) -> dict[str, Any]:
    """Return a report in which that text stands wherever users or other programs have a say."""
    swapped = unit(0, unit=text, notes=[text], engine=text, old_location=text, finished=text)
    orders = table(
        text,
        outcome=text,
        engine=text,
        run_id=text,
        swap=text,
        old_location=text,
        units=[swapped],
        columns={text: text},
        warnings=[text],
        audit={"number": text, "digest": text},
        quarantined=[quarantined(text, text, text)],
        units_left=2,
        drift={"before": {text: 1}, "after": {text: 1}},
        coverage={text: coverage(before=0.5, after=1.0)},
        planned=[{"unit": text, "location": text, "files": 1, "bytes": 1, "drift": {text: 1}, "actions": {text: {}}}],
    )
    return report(
        orders,
        outcome=text,
        pass_id=text,
        policy_digest=text,
        started=text,
        version=text,
        table=text,
        failed=[{"table": text, "error": text, "message": text}],
        refused=[{"table": text, "reason": text}],
        passed_over=[{"table": text, "reason": text}],
        unchanged=[text],
        warnings=[text],
        error={"type": text, "message": text, "exit_code": text},
    )


@pytest.mark.parametrize("text", ATTACKS)
def test_whatever_a_report_holds_is_text(text: str) -> None:
    """No text of a report makes an element, an attribute or a style, wherever it stands."""
    page = rendered(poisoned(text))
    clean = rendered(poisoned("x/" if "/" in text else "x"))  # a name with a slash is a directory
    assert [name for name, _ in page.elements] == [name for name, _ in clean.elements]
    assert [set(attributes) for _, attributes in page.elements] == [set(attributes) for _, attributes in clean.elements]
    assert page.text.count(text) >= 20


@pytest.mark.parametrize("document", [incomplete(), poisoned("x"), report(), {"outcome": "failed"}, {}])
def test_a_page_holds_nothing_that_runs_or_loads(document: dict[str, Any]) -> None:
    """There is no script, no handler, no inline style attribute, and no address but of a place in the page itself."""
    page = rendered(document)
    assert {name for name, _ in page.elements} <= ALLOWED_ELEMENTS
    for _, attributes in page.elements:
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        for name, value in attributes.items():
            if name in {"href", "src", "xlink:href", "action", "data"}:
                assert value and value.startswith("#")
            assert "url(" not in (value or "") or str(value).startswith("url(#")
    assert not re.search(r"@import|url\(|expression|https?:", report_html(document).partition("</style>")[0])


def test_the_content_policy_allows_this_style_and_nothing_else() -> None:
    """Even if something slipped through, a browser would neither run it nor load anything for it."""
    policies = [
        attributes["content"] for attributes in rendered(incomplete()).all("meta") if attributes.get("http-equiv")
    ]
    assert len(policies) == 1
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[A-Za-z0-9+/]{43}='; base-uri 'none'; form-action 'none'",
        policies[0] or "",
    )


@pytest.mark.parametrize(
    ("hidden", "written"),
    [
        ("sales\u202eredro.", "sales\\u202eredro."),
        ("a\x00b\x1b[0m", "a\\u0000b\\u001b[0m"),
        ("line\nbreak", "line\\u000abreak"),
        ("\ud800lone", "\\ud800lone"),
        ("zero\u2066width", "zero\\u2066width"),
    ],
)
def test_what_cannot_be_seen_in_a_name_is_written_out(hidden: str, written: str) -> None:
    """A name that turns text around or breaks a line cannot look like another one, nor break the page."""
    page = rendered(report(table(hidden), unchanged=[hidden]))
    assert written in page.text
    assert hidden not in page.text
    report_html(report(table(hidden))).encode()


@pytest.mark.parametrize("name", ["بيانات.العملاء", "продажи.заказы", "売上.注文", "db.naïve—table"])
def test_names_of_any_script_stand_as_they_are(name: str) -> None:
    """A name keeps its letters, in a part of its own, so that its direction changes nothing around it."""
    html = report_html(report(table(name)))
    assert f"<bdi>{name}</bdi>" in html


def test_commands_are_words_for_a_shell() -> None:
    """A name with spaces, quotes or what cannot be seen is one word of the command that is shown."""
    page = rendered(report(table("db.it's $(rm -rf ~)"), table("db.turn\u202e'd")))
    assert "--table 'db.it'\"'\"'s $(rm -rf ~)' --policy" in page.text
    assert "--table $'db.turn\\u202e\\'d' --policy" in page.text


def test_very_long_names_and_messages_are_cut() -> None:
    """A name of a hundred thousand characters does not make a page of megabytes."""
    name = "n" * 100_000
    held = [quarantined(name, "FormatError", "m" * 100_000)] * 200
    size = len(report_html(report(table("db.t", count=0, quarantined=held, units_left=200), outcome="incomplete")))
    assert size < 1_000_000
    assert "…" in report_html(report(table("db.t", columns={name: "pii"})))


def test_the_outcome_of_a_good_pass_is_said_in_words() -> None:
    """What was done, of how much, in which time: with units that people read."""
    text = words(rendered(report(table(count=1_000, files_total=3_456))))
    assert "Done 2,000 files (500.5 GB) rewritten. Every file that was looked at now matches its plan." in text
    assert f"Pass {PASS} · started 2026-11-21 10:11:12 UTC · took 5 min" in text
    assert "of 3,456 files in 1 table looked at" in text
    assert "became 500.5 GB (±0.0 %)" in text
    assert "To look at 0 no problems" in text
    assert "What remains" not in text


@pytest.mark.parametrize(
    ("outcome", "tone", "sentence"),
    [
        ("done", "good", "Every file that was looked at now matches its plan."),
        ("nothing to do", "good", "matched its plan already. Nothing was changed."),
        ("stopped at budget", "wait", "The same command goes on where this pass stopped."),
        ("dry run", "note", "Nothing was changed."),
        ("incomplete", "bad", "must be looked at."),
        ("failed", "bad", "The pass ended with an error."),
        ("something new", "note", ""),
    ],
)
def test_each_outcome_has_its_tone_and_its_sentence(outcome: str, tone: str, sentence: str) -> None:
    """Colour is never alone: the word, the sentence and an icon stand beside it."""
    html = report_html(report(table(), outcome=outcome))
    headline = html.partition('id="outcome"')[0].rpartition("<div")[2] + html.partition('id="outcome"')[2][:1500]
    assert f'class="headline {tone}"' in headline
    assert f"<h1>{outcome[:1].upper()}{outcome[1:]}</h1>" in headline
    assert sentence in headline
    assert '<svg class="icon"' in headline


def test_everything_that_must_be_looked_at_stands_with_its_message_and_next_step() -> None:
    """Failed and refused tables and quarantined units are named first, each with what a person does next."""
    text = words(rendered(incomplete()))
    assert "2 quarantined units, 1 failed table and 1 refused table must be looked at." in text
    for expected in (
        "Table failed sales.ledger KeyAccessDeniedError the key service refused Next: Let the job's credentials",
        "Unit quarantined sales.orders · day=2026-09-01 FormatError part-0.parquet: the footer ends behind the file",
        "Unit quarantined sales.orders · day=2026-09-02 SourceChangedError",
        "Table refused sales.mirror it shares a folder with sales.orders Next: Nothing was changed.",
    ):
        assert expected in text
    assert text.index("Table failed") < text.index("Coverage by tag")
    assert "Left to do 4 units 8 files, 800.0 MB" in text


def test_a_pass_that_failed_needs_no_more_than_its_error() -> None:
    """The report that is written when nothing else is known makes a page with error, exit code and next step."""
    error = {"type": "ConfigError", "message": "policy.yaml, line 3: unknown key 'tag'", "exit_code": 78}
    page = rendered({"kind": "sparkcrypt backfill", "outcome": "failed", "verified": False, "error": error})
    assert "Failed The pass ended with an error." in words(page)
    assert "ConfigError (exit code 78) policy.yaml, line 3: unknown key 'tag'" in words(page)
    assert "Next: Correct the policy, option or setting that the message names" in words(page)
    assert page.all("table") == []


def test_every_error_has_a_next_step_of_its_own() -> None:
    """Each class of the error tree is named, and no class that is not there."""
    named = {name for name, kind in vars(errors).items() if isinstance(kind, type)} - {"SparkcryptError", "ClassVar"}
    assert set(NEXT_STEPS) == named
    assert next_step("MemoryError") == UNKNOWN


def test_files_that_were_not_verified_are_a_problem() -> None:
    """A run that swapped in what it had not verified does not look like a good one."""
    text = words(rendered(report(table(verified=False))))
    assert "Not verified sales.orders" in text
    assert "Verified before the swap NO" in text


def test_what_a_person_keeps_of_a_run_is_there() -> None:
    """Run id, audit head, policy digest, the old files' place, and the commands for them."""
    text = words(rendered(report(table())))
    head = f"7:{'9f' * 32}"
    for expected in (
        f"Run {RUN}",
        f"Audit head {head}",
        f"Policy digest {'3b' * 32}",
        "Old files hdfs://nn/warehouse/sales.orders",
        f"sparkcrypt backfill rollback {RUN} --table sales.orders --policy policy.yaml",
        f"sparkcrypt backfill expire --table sales.orders --policy policy.yaml --run {RUN}",
        f"sparkcrypt audit verify --table sales.orders --policy policy.yaml --head {head}",
    ):
        assert expected in text


@pytest.mark.parametrize("changed", [{"units": []}, {"table": "hdfs://nn/data/events"}, {"run_id": None}])
def test_commands_that_would_be_refused_are_not_offered(changed: dict[str, Any]) -> None:
    """Without units there is nothing to put back, and `rollback` and `expire` take tables of the catalog alone."""
    text = rendered(report(table()) | {"tables": [{**table(), **changed}]}).text
    assert "backfill rollback" not in text
    assert "backfill expire" not in text


def test_ten_thousand_units_are_a_page_of_the_largest_two_hundred() -> None:
    """The page stays under a megabyte and is made within two seconds; what is left out is counted."""
    orders = table(count=10_000)
    orders["coverage"] = {f"tag-{number}": coverage(before=0.1, after=1.0) for number in range(500)}
    document = report(orders, *(table(f"sales.t{number}", 1) for number in range(1_000)))
    report_html(report())  # the template is compiled once for each process
    began = time.process_time()
    html = report_html(document)
    assert time.process_time() - began < 2
    assert len(html.encode()) < 1_000_000
    assert html.count("<bdi>hdfs://nn/warehouse/") == 200 + 40
    assert "… and 10,800 more; the JSON report has all of them." in html
    assert "… and 471 more" in html
    largest = re.findall(r'<td class="n">([\d.]+ GB)</td>', html.partition('id="units"')[2])
    assert largest[0] == "10.0 GB"


def test_more_quarantined_units_than_a_page_holds_are_counted() -> None:
    """Thousands of units of a broken table are not thousands of paragraphs."""
    held = [quarantined(f"p={number}", "FormatError", "damaged") for number in range(5_000)]
    text = words(rendered(report(table(quarantined=held, units_left=5_000), outcome="incomplete")))
    assert text.count("Unit quarantined") == 200
    assert "… and 4,800 more; the JSON report has all of them." in text
    assert "To look at 5,000 see below" in text


@pytest.mark.parametrize("document", [report(), report(throughput=[]), report(tables=None, failed=None), {}])
def test_a_pass_over_nothing_is_a_page_all_the_same(document: dict[str, Any]) -> None:
    """No tables, no points, nulls or nothing at all: there is a page, without empty sections."""
    page = rendered(document)
    assert page.all("h1")
    assert "Units" not in page.text
    assert "Coverage" not in page.text


UNTAGGED: dict[str, Any] = {
    "outcome": "untagged",
    "untagged": True,
    "data_columns": 3,
    "coverage": {},
    "verified": False,
}


@pytest.mark.parametrize("outcome", ["nothing to do", "done", "dry run"])
def test_untagged_tables_are_no_part_of_what_is_well(outcome: str) -> None:
    """The headline counts them and is no good one, a figure has their columns, coverage is of tagged tables alone."""
    plain = table("db.plain", 0, **UNTAGGED | ({"outcome": "dry run"} if outcome == "dry run" else {}))
    html = report_html(report(table(outcome=outcome), plain, outcome=outcome))
    text = words(rendered(report(table(outcome=outcome), plain, outcome=outcome)))
    assert 'class="headline good"' not in html
    assert "1 of 2 tables is untagged: nothing in them is encrypted." in text
    assert "Untagged 1 table 3 columns without a tag that encrypts, in clear" in text
    assert "Tagged tables alone" in text and "Every file that was looked at" not in text
    assert html.count('<span class="badge wait">') == 2


def test_a_pass_over_untagged_tables_alone_is_no_success() -> None:
    """No tick, no coverage."""
    html = report_html(report(table("db.plain", 0, **UNTAGGED), outcome="untagged"))
    assert 'class="headline wait"' in html and "<h1>Untagged</h1>" in html
    assert "matched" not in html and 'class="badge good"' not in html


def test_what_a_pass_did_not_touch_is_listed() -> None:
    """Unchanged tables and those of other formats are named, so that nobody looks for them."""
    text = words(rendered(incomplete()))
    assert "Unchanged since the last pass sales.dim_a sales.dim_b" in text
    assert "Passed over sales.daily: a view" in text
    assert "sales.orders: day=2026-01-01: compression differs between files" in text


def test_a_dry_run_says_what_would_be_done() -> None:
    """Units with action and drift; nothing that reads as if it had been done."""
    planned = [
        {
            "unit": "day=2026-01-01",
            "location": "hdfs://nn/w/orders/day=2026-01-01",
            "files": 8,
            "bytes": 800 * MEGABYTE,
            "drift": {"missing": 6, "wrong_key": 2},
            "actions": {"encrypt": {"files": 6, "bytes": 1}, "re-key": {"files": 2, "bytes": 1}},
        }
    ]
    dry = table(count=0, outcome="dry run", units_left=1, files_left=8, bytes_left=800 * MEGABYTE, planned=planned)
    page = rendered(report(dry, outcome="dry run", throughput=[]))
    text = words(page)
    assert "8 files (800.0 MB) in 1 unit differ from their plan. Nothing was changed." in text
    assert "encrypt 6, re-key 2" in text
    assert "missing: 6, wrong_key: 2" in text
    assert "rewritten" not in text.lower().replace("would be rewritten", "")


def test_a_dry_run_with_refused_tables_does_not_look_whole() -> None:
    """That no file differs is said of what was looked at, and what was not is named."""
    text = words(rendered(report(table(), outcome="dry run", refused=[{"table": "db.acid", "reason": "Hive ACID"}])))
    assert "No file that was looked at differs from its plan. Nothing was changed. 1 refused table must be" in text


def test_done_is_not_said_of_files_that_are_left() -> None:
    """A report whose numbers contradict its outcome is not made to look better."""
    text = words(rendered(report(table(units_left=1, files_left=2, bytes_left=2 * MEGABYTE))))
    assert "now matches its plan" not in text
    assert "2 files (2.0 MB) left" in text


def test_every_picture_has_a_title_and_every_table_headers() -> None:
    """Who cannot see a picture gets it in words; hidden pictures say nothing that the text beside them does not."""
    html = report_html(incomplete())
    page = Page(html)
    legends = re.findall(r'<ul class="legend" aria-hidden="true">.*?</ul>', html, re.DOTALL)
    silent = sum(legend.count("<svg>") for legend in legends)
    roles = [
        attributes.get("role") == "img" or attributes.get("aria-hidden") == "true" for attributes in page.all("svg")
    ]
    assert roles.count(False) == silent
    assert html.count('role="img"') == html.count("<title") - 1
    assert len(page.all("table")) == html.count("<caption") > 3
    assert all("scope" in attributes for attributes in page.all("th"))
    names = [attributes["aria-labelledby"] for attributes in page.all("section")]
    assert set(names) <= {attributes.get("id") for _, attributes in page.elements}


def test_the_template_is_in_the_distribution(tmp_path: Path) -> None:
    """What setup.cfg names as package data is what the page is made from."""
    configured = (ROOT / "setup.cfg").read_text()
    assert "runs/passes/html/templates/*" in configured
    assert {path.name for path in (ROOT / "sparkcrypt/runs/passes/html/templates").iterdir()} == {
        "backfill.html.j2",
        "backfill.css",
        "lineage.svg.j2",
        "parts.html.j2",
        "status.html.j2",
    }


def test_a_page_is_made_from_a_package_in_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs may get the package as a zip: the template is read through the importer, not from a folder."""
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for path in (ROOT / "sparkcrypt").rglob("*"):
            if path.suffix in {".py", ".css", ".j2"}:
                made.write(path, path.relative_to(ROOT))
    script = (
        "import sparkcrypt.runs.passes.html.page as h; "
        "print(h.__file__, len(h.report_html({'outcome': 'failed'})) > 1000)"
    )
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {script}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.split() == [f"{archive}/sparkcrypt/runs/passes/html/page.py", "True"], result.stderr


def test_reports_of_these_tests_have_the_shape_of_real_ones() -> None:
    """Every field that is made up here is one that a pass writes, of a pass, a table, a unit and a quarantined unit."""
    outcome = UnitOutcome("day=1", 1, 2, 3, 4, "old", "new", True)
    run = Report(
        "db.t", RUN, "native", 1, 1, 0, 2, 3, 4, {"email": "pii"}, True, 1.0, "old", "done", units=(outcome.to_dict(),)
    )
    real = PassReport(PASS, "3b", "2026-11-21T10:11:12+00:00", 1.0, False, tables=[run]).to_dict()
    assert set(report()) <= set(real)
    assert set(table()) <= set(real["tables"][0])
    assert set(unit(0)) <= set(real["tables"][0]["units"][0])
    assert set(quarantined("u", "e", "m")) == set(FailedUnit("u", "e", "m").to_dict())
    text = words(rendered(real))
    assert "Done 1 file (3 B) rewritten." in text
    assert "db.t · day=1" in text

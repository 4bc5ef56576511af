"""Results print themselves: their text is that of the commands, and notebooks show it, or their picture."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from sparkcrypt.plan import build_plan
from sparkcrypt.policy.load import load_policy
from sparkcrypt.runs.old_folders.expire import Expired
from sparkcrypt.runs.old_folders.rollback import RolledBack
from sparkcrypt.runs.passes.html.page import draw_lineage, report_html, status_html
from sparkcrypt.runs.passes.lineage import Lineage, TableLineage
from sparkcrypt.runs.passes.report import PassReport
from sparkcrypt.runs.table.difference import Drift
from sparkcrypt.runs.table.verify import LackingFile, TableVerification
from sparkcrypt.schema import schema_from_spark
from sparkcrypt.text import Printable
from tests.services.installed import ROOT
from tests.unit.backfill.estates import estate
from tests.unit.backfill.run_reports import report

SCHEMA = '{"type": "struct", "fields": [{"name": "email", "type": "string", "metadata": {"tags": ["pii"]}}]}'
PLAN = build_plan(schema_from_spark(SCHEMA), (), load_policy(ROOT / "conf" / "minimal.yaml"), table="s.t")
PASS = PassReport("p", "d", "2026-11-27T00:00:00Z", 1.0, dry_run=False, tables=[report()])
EXPIRED = Expired(
    table="s.t",
    run_ids=("r",),
    folders=("/old",),
    files=2,
    total_bytes=2_000,
    carried=0,
    superseded={},
    refused={},
    summaries=(),
    homes={},
    younger=0,
    dry_run=True,
    unread=(),
    unpinned=(),
)
ROLLED_BACK = RolledBack("s.t", "r", ("p=1",), 2, dry_run=True)
VERIFIED = TableVerification("s.t", 2, 4, (), (), "all", PLAN)
LINEAGE = Lineage((TableLineage("s.t", 1, (), (), {}),))
FIRST_LINES = {
    "plan": (PLAN, "s.t: 0 of 1 columns encrypted"),
    "run": (report(), "table      sales.customers"),
    "pass": (PASS, "done: 1 table, 1,000 files of 1,200, 5.0 MB rewritten in 1.0 s"),
    "expired": (EXPIRED, "s.t: 1 run: 2 files, 2.0 kB, in 1 folder would be deleted"),
    "rolled back": (ROLLED_BACK, "s.t: run r: 1 unit, 2 files would be put back"),
    "verified": (VERIFIED, "s.t: 2 files, 4 rows: as the plan says"),
    "lineage": (LINEAGE, "s.t: 1 file"),
    "status": (estate(), "1 table: 0 as planned, 1 with drift, 0 untagged, 0 not surveyed"),
}


@pytest.mark.parametrize("what", FIRST_LINES)
def test_a_result_is_its_text(what: str) -> None:
    """``str()`` gives the text of the command, and ``repr`` still all fields."""
    result, first = FIRST_LINES[what]
    assert str(result).splitlines()[0] == first
    assert repr(result).startswith(f"{type(result).__name__}(")


def test_a_notebook_shows_text_and_pictures() -> None:
    """Results with a page or a picture show it, the page in a frame of its own, and the others their text."""
    assert unescape(PASS._repr_html_()).startswith(f'<iframe srcdoc="{report_html(PASS.to_dict())[:50]}')
    assert unescape(estate()._repr_html_()).startswith(f'<iframe srcdoc="{status_html(estate(), "")[:50]}')
    assert draw_lineage(LINEAGE) == LINEAGE._repr_html_()
    shown = replace(VERIFIED, table="<b>&")._repr_html_()
    assert shown.startswith("<pre>&lt;b&gt;&amp;: 2 files") and shown.endswith("</pre>")


def test_a_page_cannot_leave_its_frame() -> None:
    """Quotes of the page do not end the attribute that holds it."""
    shown = PASS._repr_html_()
    assert shown.count('"') == 4 and shown.count("<") == 2


def test_what_controls_a_terminal_is_replaced() -> None:
    """A table's name may hold what moves the cursor or turns text round."""
    assert "\x1b" not in str(replace(ROLLED_BACK, table="t\x1b[2J"))


def test_a_result_without_text_is_an_error() -> None:
    """Whoever makes a result that is shown gives it a text."""
    with pytest.raises(NotImplementedError):
        str(Printable())


def test_a_verification_names_each_difference() -> None:
    """Drift, files that lack columns and notes have a line each, and differences are counted."""
    found: dict[str, Any] = {
        "drift": (Drift("plaintext", "/f", None, "not encrypted"),),
        "lacks_tagged_columns": (LackingFile("/old", ("email",), every=False),),
        "notes": ("a note",),
    }
    lines = str(replace(VERIFIED, **found)).splitlines()
    assert lines == [
        "s.t: 2 files, 4 rows: 1 difference found",
        "  /f: plaintext: not encrypted",
        "  note: /old: lacks_tagged_columns: email; files from before ADD COLUMNS do",
        "  note: a note",
        "  authenticated: all",
    ]

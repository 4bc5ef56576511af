"""The browser's launcher reports faults of a page, and leaves no process behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.services import ServiceFailedError
from tests.services.chromium import Chromium, start_chromium


@pytest.mark.services
@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("<script>console.error('this is told')</script>", "this is told"),
        ("<script>throw new Error('this was thrown')</script>", "this was thrown"),
        ("<img src='no-such-picture.png'>", "no-such-picture.png"),
        ("<p style='color: red'>x</p>", "Content Security Policy"),
    ],
)
def test_what_a_page_does_wrong_is_told(chromium: Chromium, tmp_path: Path, body: str, complaint: str) -> None:
    """Faults are reported; otherwise a test that finds no complaint would prove nothing."""
    policy = "default-src * 'unsafe-inline'; style-src 'none'"
    page = tmp_path / "page.html"
    page.write_text(f'<meta http-equiv="Content-Security-Policy" content="{policy}">{body}')
    opened = chromium.open(page.as_uri())
    assert complaint in " ".join(opened.complaints())
    opened.close()


@pytest.mark.services
def test_an_expression_that_throws_and_a_page_that_is_not_there_are_errors(chromium: Chromium, tmp_path: Path) -> None:
    """Neither is mistaken for an empty answer."""
    opened = chromium.open("about:blank")
    with pytest.raises(ServiceFailedError, match="no_such_name"):
        opened.evaluate("no_such_name")
    with pytest.raises(ServiceFailedError, match="could not open"):
        chromium.open((tmp_path / "absent.html").as_uri())
    opened.close()


@pytest.mark.services
def test_a_stopped_browser_leaves_no_process(chromium: Chromium, tmp_path: Path) -> None:
    """Its helpers end with it, and a second stop does nothing."""
    running = start_chromium(tmp_path)
    assert running.process is not None
    group = running.process.pid
    running.stop()
    running.stop()
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)

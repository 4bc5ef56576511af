"""Reports of runs that failed: what cannot be written never hides why the run failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.cli.frame.command_context import Document, failed_report
from sparkcrypt.errors import PlanError


class LocalPlace:
    """A place whose files are local."""

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        Path(path).write_text(text)


def fail(report: Path, page: Any) -> None:
    """Fail with a plan's error under both reports."""
    with failed_report(LocalPlace(), str(report), "db.t", page=page, kind="k"):  # type: ignore[arg-type]  # all it uses
        raise PlanError("no such column")


def test_both_reports_tell_the_error(tmp_path: Path) -> None:
    """JSON and page are of one document, and the error goes on."""
    seen: list[Document] = []

    def made(document: Document) -> str:
        seen.append(document)
        return "<html>"

    with pytest.raises(PlanError, match="no such column"):
        fail(tmp_path / "r.json", (str(tmp_path / "r.html"), made))
    document = json.loads((tmp_path / "r.json").read_text())
    assert document == seen[0]
    assert document["error"] == {"type": "PlanError", "message": "no such column", "exit_code": 65}
    assert (document["outcome"], document["table"]) == ("failed", "db.t")
    assert (tmp_path / "r.html").read_text() == "<html>"


def test_page_that_cannot_be_made_does_not_hide_the_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A template's own failure, or a folder that is not there, is told beside the error that matters."""

    def broken(_: Document) -> str:
        raise ValueError("no template")

    with pytest.raises(PlanError, match="no such column"):
        fail(tmp_path / "nowhere" / "r.json", (str(tmp_path / "r.html"), broken))
    said = capsys.readouterr().err
    assert "r.json could not be written" in said and "r.html could not be written: ValueError: no template" in said

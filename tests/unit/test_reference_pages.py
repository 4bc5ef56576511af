"""The pages that the code writes: each is as the code has it, and nothing that the code reads is missing on them."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import sparkcrypt
from sparkcrypt.policy.model import TableRule
from tools import write_reference_pages as pages

ROOT = pages.ROOT
SOURCES = [*(ROOT / "sparkcrypt").rglob("*.py"), *(ROOT / "jars" / "extension").rglob("*.java")]


def names_in_sources(pattern: str) -> set[str]:
    """Return what stands in quotes in sources of the package and the jar, and has a form."""
    return {name for source in SOURCES for name in re.findall(rf'"({pattern})"', source.read_text())}


@pytest.mark.parametrize("page", pages.PAGES)
def test_page_is_as_the_code_has_it(page: str) -> None:
    """A page that lags behind would be believed."""
    text = (ROOT / "docs" / page).read_text()
    assert text == pages.PAGES[page](), "run: python -m tools.write_reference_pages"


def test_every_setting_is_on_the_page() -> None:
    """Whichever of package and jar reads it."""
    told = pages.render_properties()
    settings = names_in_sources(r"spark\.sparkcrypt\.[a-z_.]*[a-z]")
    assert len(settings) > 8
    assert sorted(name for name in settings if f"`{name}`" not in told) == []


def test_every_variable_is_on_the_page() -> None:
    """And no variable that nothing reads."""
    assert names_in_sources("SPARKCRYPT_[A-Z_]+") == {*pages.VARIABLES}


def test_field_without_a_meaning_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new field of a policy is explained, or the page is not written; one that is gone is taken off."""
    told = dict(pages.FIELDS[TableRule])
    monkeypatch.setitem(pages.FIELDS, TableRule, {"gone": told.pop("inherit"), **told})
    with pytest.raises(ValueError, match=r"TableRule: without a text here: \['inherit'\]; .* not there: \['gone'\]"):
        pages.render_policy()


def test_error_without_a_next_step_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of errors that leaves one out helps nobody who meets it."""
    monkeypatch.delitem(pages.NEXT_STEPS, "PlanError")
    with pytest.raises(ValueError, match="PlanError"):
        pages.render_errors()


def test_allowed_values_and_defaults_are_the_codes_own() -> None:
    """They come from what reads the policy."""
    rows = pages.render_policy().splitlines()
    (mode,) = (row for row in rows if row.startswith("| `footer.mode`"))
    assert "**`encrypted`**, `plaintext`" in mode
    assert any(row.startswith("| `untagged` | required | `") for row in rows)


def test_check_names_old_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And writes nothing; without it they are written."""
    (tmp_path / "docs").mkdir()
    kept: dict[str, Any] = {"a.md": lambda: "a", "b.md": lambda: "b"}
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "PAGES", kept)
    (tmp_path / "docs" / "a.md").write_text("a")
    checked = CliRunner().invoke(pages.main, ["--check"])
    assert (checked.exit_code, checked.output) == (1, "Error: old: b.md; run: python -m tools.write_reference_pages\n")
    assert CliRunner().invoke(pages.main, []).exit_code == 0
    assert (tmp_path / "docs" / "b.md").read_text() == "b"
    assert CliRunner().invoke(pages.main, ["--check"]).exit_code == 0


def test_python_page_has_every_exported_name() -> None:
    """Each under its own name, and the docstring below it is that name's."""
    found = re.findall(r"^## sparkcrypt\.(\w+)\n\n::: ([\w.]+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    paths = dict(found)
    assert len(paths) == len(found)
    assert {*paths} == {*dir(sparkcrypt), "errors"} - {"__version__"}
    for name, path in paths.items():
        module, _, attribute = path.rpartition(".")
        assert getattr(import_module(module), attribute) is getattr(import_module("sparkcrypt"), name), path

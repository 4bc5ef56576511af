"""What the commands answer to mistakes that need no Spark to be seen: the reason, what is allowed, the next step."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparkcrypt.errors import ConfigError
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.load import load_policy

from .conftest import run


def test_tab_in_a_policy_is_named(tmp_path: Path) -> None:
    """With its line and what stands in its place, since editors do not show it."""
    (tmp_path / "policy.yaml").write_text("version: 1\ntags:\n\tpii: {key: pii}\n")
    with pytest.raises(ConfigError, match=r"policy.yaml:3: not YAML: a tab; YAML is indented by spaces alone: replace"):
        load_policy(tmp_path / "policy.yaml")


@pytest.mark.parametrize("command", ["plan --table t", "encrypt --table t", "backfill --table t", "keys create pii"])
def test_forgotten_policy_is_told_what_it_is_for(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """And which file of the present folder may be it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").mkdir()
    (tmp_path / "b.yml").write_text("version: 1\n")
    found = run(*command.split())
    assert found.code == 64
    assert "Missing option '--policy'" in found.errors
    assert "says which key each tag has: --policy FILE; policy.yaml in this folder may be it" in found.errors
    policy.unlink()
    assert "--policy FILE; such as policy.yaml" in run(*command.split()).errors


def test_key_that_the_policy_does_not_name_is_made_with_a_warning(policy: Path, keys: KeyService) -> None:
    """A misspelt id would stay without use, and nobody would see it."""
    made = run("keys", "create", "../x", "contact-2026-01", "--policy", policy)
    assert (made.code, made.output) == (0, "../x: made\ncontact-2026-01: made\n")
    (line,) = [line for line in made.errors.splitlines() if line.startswith("warning:")]
    assert "names no key '../x', so nothing is written under it; it names footer, pii" in line


def test_copied_policy_names_another_key_directory(policy: Path, keys: KeyService, tmp_path: Path) -> None:
    """Every answer names that directory and why it is another; keys that are made there are told to be new ones."""
    (tmp_path / "copy").mkdir()
    copy = shutil.copy(policy, tmp_path / "copy" / "policy.yaml")
    shown = run("keys", "show", "pii", "--policy", copy)
    why = "a relative path counts from the policy file's folder, so a copy of the policy elsewhere names another one"
    assert (shown.code, why in shown.errors, f"{tmp_path}/copy/keys" in shown.errors) == (69, True, True)
    made = run("keys", "create", "pii", "--policy", copy)
    assert made.code == 0
    assert f"{tmp_path}/copy/keys is a new key directory: keys of another" in made.errors


def test_no_store_where_index_show_looks(tmp_path: Path) -> None:
    """It names the command that makes one, and asks for no data file."""
    for folder in (tmp_path, tmp_path / "nowhere"):
        found = run("index", "show", "--path", folder)
        assert (found.code, "no index is there; `sparkcrypt index create`" in found.errors) == (
            78, True,
        )  # fmt: skip
        assert "data file" not in found.errors


@pytest.mark.parametrize("words", [["email"], ["email=pii", "pay"], ["email", "pii", "pay"], ["email,pay", "pii"]])
def test_tags_are_set_by_column_and_tag_or_by_pairs(words: list[str]) -> None:
    """Anything else is a usage error, before Spark is started, that shows both forms or the pairs to give."""
    found = run("tags", "set", "sales.t", *words)
    assert found.code == 64
    assert "COLUMN=TAG" in found.errors or "email=TAG pay=TAG" in found.errors


def test_airflow_2_is_told_what_is_needed(tmp_path: Path) -> None:
    """In place of a module that is not found."""
    operators = tmp_path / "airflow" / "providers" / "apache" / "spark" / "operators"
    operators.mkdir(parents=True)
    (tmp_path / "airflow" / "__init__.py").touch()
    (tmp_path / "airflow" / "exceptions.py").write_text("AirflowException = Exception\n")
    (operators / "spark_submit.py").write_text("class SparkSubmitOperator:\n    template_fields = ()\n")
    done = subprocess.run(
        [sys.executable, "-c", "import sparkcrypt.airflow"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ImportError: sparkcrypt.airflow needs Airflow 3.0 or later" in done.stderr, done.stderr

"""`sparkcrypt tags pull`: exports in, the file of `tags apply` out, and what is left out is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkcrypt.cli.main import cli
from sparkcrypt.policy.load import rules_from_text

from .conftest import run

HEAD = "catalog_name,schema_name,table_name,column_name,tag_name,tag_value\n"


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """Rows of Unity Catalog: a tag that the policy has, one that needs a meaning, one that has none."""
    path = tmp_path / "rows.csv"
    path.write_text(f"{HEAD}main,hr,staff,ssn,pii,\nmain,hr,staff,mail,PII.Email,\nmain,hr,staff,id,Legacy,\n")
    return path


def test_rules_are_written_and_what_is_left_out_is_named(tmp_path: Path, policy: Path, export: Path) -> None:
    """With a policy its tags alone are taken; a table keeps what no one said."""
    out = tmp_path / "pulled.yaml"
    words = ("tags", "pull", "--from", "unity", export, "--map", "PII.Email=pii,contact", "--policy", policy)
    ended = run(*words, "--output", out)
    assert (ended.code, ended.output) == (0, f"{out}: 2 columns of 1 table\n")
    assert 'left out: tag "Legacy" of 1 column' in ended.errors
    (rule,) = rules_from_text(out.read_text(), where="f", base="/")
    assert (rule.name, dict(rule.tags)) == ("hr.staff", {"mail": ("pii", "contact"), "ssn": ("pii",)})
    assert run(*words).output == out.read_text()
    assert run(*words, "--json").document == {
        "tables": {"hr.staff": {"ssn": ["pii"], "mail": ["pii", "contact"]}},
        "unknown_tags": {"Legacy": 1},
        "unknown_tables": {},
    }


def test_stdin_is_an_export(export: Path) -> None:
    """What curl prints needs no file; a table may have a name of its own."""
    words = ["tags", "pull", "--from", "unity", "-", "--table", "main.hr.staff=lake.people", "--json"]
    done = CliRunner().invoke(cli, words, input=export.read_text())
    assert list(json.loads(done.stdout)["tables"]) == ["lake.people"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--map", "pii"], 64, "give THEIRS=OURS"),
        (["--map", "A=nosuch"], 78, "is no tag of the policy; allowed: pii"),
        (["--table", "a=b"], 78, "allowed: THEIRS=DATABASE.TABLE"),
        (["hdfs://nn/rows.csv"], 78, "is no local file"),
        (["nosuch.csv"], 78, "cannot be read"),
        (["--output", "/nosuch/f.yaml"], 78, "is not there"),
    ],
)
def test_mistakes_are_named(policy: Path, export: Path, words: list[str], code: int, said: str) -> None:
    """The message says which word is wrong, and what is allowed."""
    ended = run("tags", "pull", "--from", "unity", export, "--policy", policy, *words)
    assert ended.code == code
    assert said in ended.errors


def test_too_many_rules_are_refused(policy: Path, tmp_path: Path) -> None:
    """`tags apply` would not read such a file."""
    path = tmp_path / "rows.csv"
    path.write_text(HEAD + "".join(f"main,hr,{'t' * 90}{number},ssn,pii,\n" for number in range(9_000)))
    ended = run("tags", "pull", "--from", "unity", path, "--policy", policy)
    assert (ended.code, "make several files, by --only" in ended.errors) == (78, True)
    only = run("tags", "pull", "--from", "unity", path, "--policy", policy, "--only", "hr.*7", "--json")
    assert len(only.document["tables"]) == 900

"""What the package stands on: every library with an allowed licence, and a bill of materials that is one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from cyclonedx.model.bom import Bom

import sparkcrypt
from tools.find_vulnerabilities import judge_answer
from tools.list_dependencies import Dependency, find_refused, list_dependencies, write_sbom


def test_every_licence_is_allowed() -> None:
    """Dependencies of dependencies count, and what only development needs does not."""
    found = {dependency.name: dependency for dependency in list_dependencies()}
    assert {"sparkcrypt", "cryptography", "pyspark", "urllib3", "cffi", "isal", "obstore", "pyrage"} <= set(found)
    assert not {"pytest", "mypy", "hypothesis", "moto"} & set(found)
    assert find_refused(found.values()) == []


@pytest.mark.parametrize("licence", ["", "GPL-3.0-only", "MIT AND GPL-3.0-only", "Apache-2.0 OR LGPL-2.1", "free"])
def test_other_licences_are_refused(licence: str) -> None:
    """One part that is not allowed is enough, and so is none that is named."""
    dependency = Dependency("a", "1", licence, ())
    assert find_refused([dependency, replace(dependency, licence="(MIT OR Apache-2.0)")]) == [dependency]


def test_sbom_is_valid_and_whole(tmp_path: Path) -> None:
    """The standard's own library reads it; it says of each package its version, licence and what it requires."""
    write_sbom(list_dependencies(), tmp_path / "dist" / "sbom.json")
    document = json.loads((tmp_path / "dist" / "sbom.json").read_text())
    assert document["metadata"]["component"]["version"] == sparkcrypt.__version__
    components = {component["name"]: component for component in document["components"]}
    assert components["cryptography"]["version"] == version("cryptography")
    assert all(component["licenses"] for component in components.values())
    below = {entry["ref"]: entry.get("dependsOn", []) for entry in document["dependencies"]}
    own = next(names for ref, names in below.items() if ref.startswith("pkg:pypi/sparkcrypt@"))
    assert f"pkg:pypi/cryptography@{version('cryptography')}" in own
    assert f"pkg:pypi/cffi@{version('cffi')}" in below[f"pkg:pypi/cryptography@{version('cryptography')}"]
    read = Bom.from_json(document)  # type: ignore[attr-defined]
    assert (read.validate(), len(read.components)) == (True, len(components))


def test_what_no_service_looked_up_is_not_called_safe() -> None:
    """A package that it does not know, one that it leaves out, and an answer that is none; pip-audit ends with 0."""
    asked = [Dependency("typing_extensions", "4.16.0", "MIT", ()), Dependency("jinja2", "2.4.1", "MIT", ())]

    def answer(*entries: Mapping[str, object]) -> str:
        return json.dumps({"dependencies": list(entries), "fixes": []})

    known = {"name": "typing-extensions", "version": "4.16.0", "vulns": []}
    unknown = {"name": "jinja2", "skip_reason": "Dependency not found on PyPI and could not be audited: jinja2 (2.4.1)"}
    advisory = {"id": "PYSEC-2019-217", "fix_versions": ["2.10.1"]}
    vulnerable = {"name": "jinja2", "version": "2.4.1", "vulns": [advisory]}
    assert judge_answer(answer(known, {**vulnerable, "vulns": []}), asked).exit_code == 0
    for text in (answer(known, unknown), answer(known), answer(), "", "no JSON", "[]"):
        assert judge_answer(text, asked).exit_code == 69
    assert judge_answer(answer(known, unknown), asked).unasked == (
        "jinja2 2.4.1: Dependency not found on PyPI and could not be audited: jinja2 (2.4.1)",
    )
    found = judge_answer(answer(vulnerable), asked)
    assert (found.exit_code, found.vulnerable) == (1, ("jinja2 2.4.1: PYSEC-2019-217; mended in 2.10.1",))

"""Ask pip-audit for known vulnerabilities of what an installed sparkcrypt stands on; what was not asked is no "none".

Usage:
  python -m tools.find_vulnerabilities PIP_AUDIT      # the program; `make audit` installs it into .venv-audit

Ends with 0 where every package was looked up and none has a known vulnerability, 1 where one has, and 69 where the
advisory service was not reached or does not know a package.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click
from packaging.utils import canonicalize_name

from tools.list_dependencies import ROOT, Dependency, list_dependencies

FOUND, UNAVAILABLE = 1, 69
_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Findings:
    """What an advisory service says of some packages.

    Attributes:
        vulnerable: a line for each vulnerability: package, its id, and the versions without it.
        unasked: packages that were not looked up, each with the reason.
    """

    vulnerable: tuple[str, ...]
    unasked: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """What the program ends with."""
        return FOUND if self.vulnerable else UNAVAILABLE if self.unasked else 0


def judge_answer(answer: str, asked: list[Dependency]) -> Findings:
    """Return what pip-audit's answer in JSON says; a package that it leaves out was not looked up.

    pip-audit itself ends with 0 for packages that the service does not know.
    """
    try:
        told = {canonicalize_name(entry["name"]): entry for entry in json.loads(answer)["dependencies"]}
    except (ValueError, LookupError, TypeError, AttributeError):
        told = {}
    vulnerable, unasked = [], []
    for package in asked:
        entry = told.get(canonicalize_name(package.name))
        if entry is None or "vulns" not in entry:
            reason = "no answer" if entry is None else entry.get("skip_reason", "no answer")
            unasked.append(f"{package.name} {package.version}: {reason}")
            continue
        for found in entry["vulns"]:
            mended = ", ".join(found.get("fix_versions") or ()) or "no version"
            vulnerable.append(f"{package.name} {package.version}: {found['id']}; mended in {mended}")
    return Findings(tuple(vulnerable), tuple(unasked))


def ask_pip_audit(program: Path, packages: list[Dependency]) -> tuple[str, str]:
    """Return what pip-audit writes to stdout and to stderr of packages in the versions that are installed."""
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder, "pins.txt")
        pins.write_text("".join(f"{package.name}=={package.version}\n" for package in packages))
        command = [str(program), "-r", str(pins), "--no-deps", "--disable-pip", "--format", "json"]
        try:
            done = subprocess.run(
                [*command, "--progress-spinner", "off"], capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return "", str(error)
    return done.stdout, done.stderr


@click.command()
@click.argument("program", type=click.Path(path_type=Path))
def main(program: Path) -> None:
    """Look every dependency up, and tell what was found and what could not be asked."""
    packages = [package for package in list_dependencies() if package.name != ROOT]
    answer, said = ask_pip_audit(program, packages)
    findings = judge_answer(answer, packages)
    for line in (*findings.vulnerable, *findings.unasked):
        click.echo(line, err=True)
    if findings.unasked:
        last = "" if answer.strip() else said.strip().rpartition("\n")[2]
        click.echo(
            f"{len(findings.unasked)} of {len(packages)} packages were NOT looked up: the advisory service cannot be "
            f"reached from here, or does not know them; run `make audit` where it can{f' ({last})' if last else ''}",
            err=True,
        )
    if findings.exit_code == 0:
        click.echo(f"none of {len(packages)} packages has a known vulnerability")
    raise SystemExit(findings.exit_code)


if __name__ == "__main__":
    main()

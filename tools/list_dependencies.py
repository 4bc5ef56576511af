"""List what an installed sparkcrypt stands on, see that its licences are allowed, and write it as an SBOM.

Usage:
  python tools/list_dependencies.py                  # a line each: name, version, licence
  python tools/list_dependencies.py --check          # ends with 1 where a licence is not allowed; part of `make lint`
  python tools/list_dependencies.py --sbom FILE      # CycloneDX 1.6, in JSON; `make sbom`
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import click
from packaging.requirements import Requirement

ROOT = "sparkcrypt"
EXTRAS = ("arrow", "aws", "azure", "connect", "fast-crc", "gcp", "object-store", "openlineage", "recovery", "spark")
"""Extras whose packages are installed where this project is developed; airflow and hadoop have other environments."""
BESIDE = ("docs",)
"""Extras whose licences are checked where they are installed; nothing that is released stands on them."""
ALLOWED = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC"),
    *("MIT", "MIT-0", "MPL-2.0", "PSF-2.0", "Unlicense", "Zlib"),
}
REVIEWED = {"pyrage": "MIT"}
"""Licences of packages whose metadata names none, as their own licence files do."""
_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}
_TEXTS = {"Apache 2.0": "Apache-2.0", "3-Clause BSD License": "BSD-3-Clause", "BSD": "BSD-3-Clause"}
_WORDS = re.compile(r"[()]|\s+(?:AND|OR)\s+|\s+")


@dataclass(frozen=True, slots=True)
class Dependency:
    """An installed package.

    Attributes:
        name: as its metadata spells it.
        version: installed.
        licence: an SPDX expression where one is known, else what the metadata says, or empty.
        requires: names of the packages that it requires itself, in lower case.
    """

    name: str
    version: str
    licence: str
    requires: tuple[str, ...]


def list_dependencies(root: str = ROOT, extras: Iterable[str] = EXTRAS) -> list[Dependency]:
    """Return what a package and its extras require, directly or not, and is installed; the package itself is first.

    Raises:
        PackageNotFoundError: the package itself is not installed.
    """
    found: dict[str, Dependency] = {}
    waiting = [(root, frozenset(extras))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, wanted = waiting.pop()
        if (_normal(name), wanted) in seen:
            continue
        seen.add((_normal(name), wanted))
        try:
            package = distribution(name)
        except PackageNotFoundError:
            if name == root:
                raise
            continue  # for another platform or Python
        required = list(_required(package, wanted))
        known = found.get(_normal(name))
        names = {_normal(requirement.name) for requirement in required} | set(known.requires if known else ())
        found[_normal(name)] = Dependency(
            package.metadata["Name"], package.version, licence_of(package), tuple(sorted(names))
        )
        waiting += [(requirement.name, frozenset(requirement.extras)) for requirement in required]
    first = found.pop(_normal(root))
    return [first, *(found[name] for name in sorted(found))]


def licence_of(package: Distribution) -> str:
    """Return the licence that a package's metadata names."""
    metadata: Mapping[str, str] = package.metadata  # type: ignore[assignment]
    expression = metadata.get("License-Expression")
    if expression:
        return expression
    marks = package.metadata.get_all("Classifier") or []
    named = [mark.rsplit(" :: ", 1)[1] for mark in marks if mark.startswith("License :: ") and mark.count(" :: ") > 1]
    if named:
        return " AND ".join(_CLASSIFIERS.get(text, text) for text in named)
    text = (metadata.get("License") or "").strip()
    return _TEXTS.get(text, text.split("\n")[0]) or REVIEWED.get(_normal(package.metadata["Name"]), "")


def find_refused(dependencies: Iterable[Dependency]) -> list[Dependency]:
    """Return the dependencies under a licence that is not allowed, or under none that is known."""
    return [found for found in dependencies if not found.licence or not set(_licences(found.licence)) <= ALLOWED]


def write_sbom(dependencies: list[Dependency], file: Path) -> None:
    """Write a bill of materials: each dependency with its version, licence, package URL and own dependencies."""
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    licences, components = LicenseFactory(), {}
    for found in dependencies:
        url = PackageURL("pypi", None, _normal(found.name), found.version)
        components[_normal(found.name)] = Component(
            name=found.name,
            version=found.version,
            type=ComponentType.LIBRARY,
            purl=url,
            bom_ref=str(url),
            licenses=[licences.make_from_string(found.licence)] if found.licence else [],
        )
    bom = Bom()
    bom.metadata.component = components[_normal(dependencies[0].name)]
    bom.components.update(components[_normal(found.name)] for found in dependencies[1:])
    for found in dependencies:
        below = [components[name] for name in found.requires if name in components]
        bom.register_dependency(components[_normal(found.name)], below)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(JsonV1Dot6(bom).output_as_string(indent=2) + "\n")


@click.command
@click.option("--check", is_flag=True, help="End with 1 where a licence is not allowed.")
@click.option("--sbom", type=click.Path(path_type=Path), metavar="FILE", help="Write a bill of materials.")
def main(check: bool, sbom: Path | None) -> None:
    """List what an installed sparkcrypt stands on, with licences."""
    dependencies = list_dependencies(extras=(*EXTRAS, *BESIDE) if check else EXTRAS)
    if sbom:
        write_sbom(dependencies, sbom)
        click.echo(f"{sbom}: {len(dependencies) - 1} dependencies of {ROOT} {dependencies[0].version}")
        return
    for found in find_refused(dependencies) if check else dependencies:
        said = found.licence or "no licence that its metadata names"
        click.echo(f"{found.name} {found.version}: {said}", err=check)
    if check and find_refused(dependencies):
        raise click.ClickException(
            f"the licences above are not allowed; allowed: {', '.join(sorted(ALLOWED))}; take other libraries, or "
            "review a licence and add it to this program"
        )


def _required(package: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    for line in package.requires or ():
        requirement = Requirement(line)
        environments = [{"extra": extra} for extra in extras] or [{"extra": ""}]
        if requirement.marker is None or any(requirement.marker.evaluate(found) for found in environments):
            yield requirement


def _licences(expression: str) -> list[str]:
    return [word for word in _WORDS.split(expression) if word]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()

"""Jars of Java services for tests, fetched once by the Ivy that Spark ships.

They come from Maven Central or the mirror in this machine's settings, and are used only if their digests match.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from tests.services import ServiceUnavailableError
from tests.services.cache import cache_folder, locked
from tests.services.installed import java_home, spark_home

REPOSITORY = "SPARKCRYPT_MAVEN_REPOSITORY"
"""The URL of a Maven repository to use in place of Maven Central."""
FETCH_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar by its Maven coordinates, and its digest."""

    organisation: str
    name: str
    revision: str
    sha256: str

    @property
    def file(self) -> str:
        """Its file name in Maven."""
        return f"{self.name}-{self.revision}.jar"


def fetched_folder(name: str, jars: Sequence[Jar]) -> Path:
    """Return the cache's folder with these jars; concurrent callers fetch them once.

    Raises:
        ServiceUnavailableError: a jar cannot be fetched or is not the known one.
    """
    folder = cache_folder() / name
    with locked(cache_folder() / f".{name}.lock"):
        if not folder.exists():
            _fetch(folder, jars)
    return folder


def _fetch(folder: Path, jars: Sequence[Jar]) -> None:
    """Fetch all jars into a temporary folder, and rename it once all digests match."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as name:
        aside = Path(name)
        said = _retrieve(jars, aside)
        for jar in jars:
            file = aside / "jars" / jar.file
            if not file.exists():
                raise ServiceUnavailableError(
                    f"{jar.file} cannot be fetched; name a Maven repository in {REPOSITORY}:\n{said[-2000:]}"
                )
            if hashlib.sha256(file.read_bytes()).hexdigest() != jar.sha256:
                raise ServiceUnavailableError(f"{jar.file} came with other bytes than the known ones")
        (aside / "jars").rename(folder)


def _retrieve(jars: Sequence[Jar], aside: Path) -> str:
    """Fetch jars by Ivy into a folder's ``jars/``, and return its output."""
    ivy = next(iter((spark_home() / "jars").glob("ivy-*.jar")), None)
    if ivy is None:
        raise ServiceUnavailableError("this Spark ships no Ivy to fetch jars with")
    wanted = aside / "ivy.xml"
    wanted.write_text(_module(jars))
    command = [str(java_home() / "bin" / "java"), "-cp", str(ivy), "org.apache.ivy.Main", *ivy_settings(aside)]
    command += ["-cache", str(aside / "cache"), "-ivy", str(wanted)]
    command += ["-retrieve", str(aside / "jars" / "[artifact]-[revision].[ext]")]
    try:
        done = subprocess.run(command, cwd=aside, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ServiceUnavailableError(f"{len(jars)} jars were not fetched within {FETCH_SECONDS:g} s") from error
    return done.stdout


def _module(jars: Sequence[Jar]) -> str:
    wanted = "".join(
        f'<dependency org="{jar.organisation}" name="{jar.name}" rev="{jar.revision}" transitive="false">'
        f'<artifact name="{jar.name}" type="jar" ext="jar"/></dependency>'
        for jar in jars
    )
    info = '<info organisation="here" module="tests"/>'
    return f'<ivy-module version="2.0">{info}<dependencies>{wanted}</dependencies></ivy-module>'


def ivy_settings(folder: Path) -> list[str]:
    """Return Ivy's arguments for this machine's repository: none for Maven Central.

    Args:
        folder: the folder for the settings file.
    """
    url = os.environ.get(REPOSITORY) or _maven_mirror(Path("~/.m2/settings.xml").expanduser())
    if not url:
        return []
    file = folder / "ivysettings.xml"
    file.write_text(
        '<ivysettings><settings defaultResolver="maven"/><resolvers>'
        f'<ibiblio name="maven" m2compatible="true" root={quoteattr(url)}/>'
        "</resolvers></ivysettings>"
    )
    return ["-settings", str(file)]


def _maven_mirror(settings: Path) -> str | None:
    """Return the URL of the mirror of Maven Central that a Maven settings file names."""
    if not settings.is_file():
        return None
    for mirror in ElementTree.parse(settings).getroot().findall("{*}mirrors/{*}mirror"):
        names = (mirror.findtext("{*}mirrorOf") or "").replace(" ", "").split(",")
        if "!central" not in names and {"*", "central", "external:*"} & set(names):
            return mirror.findtext("{*}url")
    return None

"""Jars of other times and makers, fetched once from Maven Central, or the mirror that this machine is set up for.

They are used only when their digests are the ones that the caller knows.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.services import ServiceUnavailableError
from tests.services.cache import cache_folder, locked
from tests.services.hdfs import REPOSITORY, ivy_settings
from tests.services.installed import java_home, spark_home

FETCH_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar by its Maven coordinates; ``classifier`` is empty for the main one."""

    organisation: str
    name: str
    revision: str
    sha256: str
    classifier: str = ""

    @property
    def file(self) -> str:
        """Its file name, as Maven has it."""
        return f"{self.name}-{self.revision}{self.classifier and '-' + self.classifier}.jar"


def fetched(jar: Jar) -> Path:
    """Return the jar's path, fetching it if need be; callers at the same time fetch once.

    Raises:
        ServiceUnavailableError: it cannot be fetched, or is not the known one.
    """
    path = cache_folder() / "jars" / jar.file
    with locked(path.with_name(f".{jar.file}.lock")):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetching-") as folder:
                found = _fetch(jar, Path(folder))
                if hashlib.sha256(found.read_bytes()).hexdigest() != jar.sha256:
                    raise ServiceUnavailableError(f"{jar.file} came with other bytes than the known ones")
                found.rename(path)
    return path


def _fetch(jar: Jar, aside: Path) -> Path:
    ivy = next(iter((spark_home() / "jars").glob("ivy-*.jar")), None)
    if ivy is None:
        raise ServiceUnavailableError("this Spark ships no Ivy to fetch jars with")
    wanted = aside / "ivy.xml"
    wanted.write_text(_module(jar))
    command = [str(java_home() / "bin" / "java"), "-cp", str(ivy), "org.apache.ivy.Main", *ivy_settings(aside)]
    command += ["-cache", str(aside / "cache"), "-ivy", str(wanted), "-retrieve", str(aside / "[artifact].[ext]")]
    try:
        done = subprocess.run(command, cwd=aside, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ServiceUnavailableError(f"{jar.file} was not fetched within {FETCH_SECONDS:g} s") from error
    found = aside / f"{jar.name}.jar"
    if done.returncode != 0 or not found.exists():
        raise ServiceUnavailableError(
            f"{jar.file} cannot be fetched; name a Maven repository in {REPOSITORY}:\n{done.stdout[-2000:]}"
        )
    return found


def _module(jar: Jar) -> str:
    classified = f'm:classifier="{jar.classifier}"' if jar.classifier else ""
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="here" module="tests"/>'
        f'<dependencies><dependency org="{jar.organisation}" name="{jar.name}" rev="{jar.revision}" transitive="false">'
        f'<artifact name="{jar.name}" type="jar" ext="jar" {classified}/></dependency></dependencies></ivy-module>'
    )

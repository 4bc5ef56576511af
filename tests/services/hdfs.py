"""HDFS in one process: a NameNode and a DataNode on 127.0.0.1, of the Hadoop release whose client Spark ships.

Its jars are fetched once by the Ivy that Spark ships, from Maven Central or the mirror that this machine is set up
for, and are used only when their digests are the ones below.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from tests.services import ServiceUnavailableError
from tests.services.cache import cache_folder, locked
from tests.services.installed import java_home, spark_environment, spark_home
from tests.services.processes import LOCAL, ServiceProcess, accepts, free_port, start_process, wait_until

REPOSITORY = "SPARKCRYPT_MAVEN_REPOSITORY"
"""The URL of a Maven repository to use in place of Maven Central."""
VERSION = "3.5.0"
START_SECONDS = 180.0
FETCH_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class _Jar:
    organisation: str
    name: str
    revision: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.name}-{self.revision}.jar"


JARS = (
    _Jar(
        "org.apache.hadoop",
        "hadoop-client-minicluster",
        VERSION,
        "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c",
    ),
    # The cluster's class is made for tests, and loads what tests are written with.
    _Jar(
        "org.junit.jupiter",
        "junit-jupiter-api",
        "5.10.2",
        "afff77c186cd317275803872fa5133aa801fd6ac40bd91c78a6cf8009b4b17cc",
    ),
    _Jar(
        "org.junit.platform",
        "junit-platform-commons",
        "1.10.2",
        "b56a5ec000a479df4973b18bba24c98fe0db8faa14c8907d3ef451d8c71fd8ae",
    ),
    _Jar(
        "org.opentest4j",
        "opentest4j",
        "1.3.0",
        "48e2df636cab6563ced64dcdff8abb2355627cb236ef0bf37598682ddf742f1b",
    ),
    _Jar(
        "org.mockito",
        "mockito-core",
        "4.11.0",
        "4b909690cab288c761eb94c0bf0e814496cf3921d8affac84cd87774530351e5",
    ),
)


@dataclass(frozen=True, slots=True)
class Hdfs:
    """A running file system; the user that started it is its superuser, ``http`` is where its NameNode serves HTTP."""

    uri: str
    http: str
    process: ServiceProcess

    def stop(self) -> None:
        """End the process; what it held is gone."""
        self.process.stop()


def start_hdfs(work_dir: Path, conf: Mapping[str, str] | None = None) -> Hdfs:
    """Start an empty file system below a folder; returns when it takes files.

    Args:
        work_dir: blocks, metadata, log.
        conf: Hadoop properties, which win over the release's defaults.

    Raises:
        ServiceUnavailableError: there is no JDK or no Spark, or the jars cannot be had.
        ServiceFailedError: it did not come up.
    """
    jars = fetched_jars()
    work_dir.mkdir(parents=True, exist_ok=True)
    details, port, http = work_dir / "hdfs.json", free_port(), free_port()
    details.unlink(missing_ok=True)
    (work_dir / "log4j2.properties").write_text(_LOGGING)
    command: list[str | Path] = [
        java_home() / "bin" / "java",
        "-Xmx512m",
        f"-Dlog4j2.configurationFile={work_dir / 'log4j2.properties'}",
        f"-Dtest.build.data={work_dir / 'data'}",
        "-cp",
        f"{jars}/*:{spark_home() / 'jars'}/*",
        "org.apache.hadoop.test.MiniDFSClusterManager",
        *("-format", "-datanodes", "1", "-nnport", str(port), "-httpport", str(http)),
        *("-writeDetails", details),
    ]
    for name, value in (conf or {}).items():
        command += ["-D", f"{name}={value}"]
    process = start_process("hdfs", command, work_dir, spark_environment())
    # The details are written when the DataNode has joined and the NameNode has left its safe mode.
    wait_until(
        lambda: details.exists() and details.read_bytes().endswith(b"}") and accepts(port), process, START_SECONDS
    )
    return Hdfs(f"hdfs://{LOCAL}:{port}", f"{LOCAL}:{http}", process)


_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c: %m%n
"""


def fetched_jars() -> Path:
    """Return the folder with the jars, fetching them if need be; callers at the same time fetch once.

    Raises:
        ServiceUnavailableError: Spark's Hadoop is another release, or a jar cannot be fetched or is not the known one.
    """
    if not (spark_home() / "jars" / f"hadoop-client-runtime-{VERSION}.jar").exists():
        raise ServiceUnavailableError(f"no HDFS: this Spark does not ship the client of Hadoop {VERSION}")
    folder = cache_folder() / f"hdfs-{VERSION}"
    with locked(cache_folder() / f".hdfs-{VERSION}.lock"):
        if not folder.exists():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    """Fetch every jar aside, and give the folder its name when all are the known ones."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as name:
        aside = Path(name)
        settings = ivy_settings(aside)
        for jar in JARS:
            _fetch_jar(jar, aside, settings)
            if hashlib.sha256((aside / "jars" / jar.file).read_bytes()).hexdigest() != jar.sha256:
                raise ServiceUnavailableError(f"no HDFS: {jar.file} came with other bytes than the known ones")
        (aside / "jars").rename(folder)


def _fetch_jar(jar: _Jar, aside: Path, settings: list[str]) -> None:
    ivy = next(iter((spark_home() / "jars").glob("ivy-*.jar")), None)
    if ivy is None:
        raise ServiceUnavailableError("no HDFS: this Spark ships no Ivy to fetch its jars with")
    command = [str(java_home() / "bin" / "java"), "-cp", str(ivy), "org.apache.ivy.Main", *settings]
    command += ["-cache", str(aside / "cache"), "-confs", "default", "-notransitive"]
    command += ["-dependency", jar.organisation, jar.name, jar.revision]
    command += ["-retrieve", str(aside / "jars" / "[artifact]-[revision].[ext]")]
    try:
        done = subprocess.run(command, cwd=aside, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ServiceUnavailableError(f"no HDFS: {jar.file} was not fetched within {FETCH_SECONDS:g} s") from error
    if done.returncode != 0 or not (aside / "jars" / jar.file).exists():
        raise ServiceUnavailableError(
            f"no HDFS: {jar.file} cannot be fetched; name a Maven repository in {REPOSITORY}:\n{done.stdout[-2000:]}"
        )


def ivy_settings(folder: Path) -> list[str]:
    """Return Ivy's arguments for the repository that this machine is set up for: none for Maven Central.

    Args:
        folder: gets the settings file.
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


if __name__ == "__main__":
    print(fetched_jars())

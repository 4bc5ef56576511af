"""HDFS in one process: a NameNode and a DataNode on 127.0.0.1, of the Hadoop release whose client Spark ships."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.services import ServiceUnavailableError
from tests.services.installed import java_home, spark_environment, spark_home
from tests.services.maven import REPOSITORY, Jar, fetched_folder, ivy_settings
from tests.services.processes import LOCAL, ServiceProcess, accepts, free_port, start_process, wait_until
from tests.services.quick_java import QUICK

__all__ = ["JARS", "REPOSITORY", "VERSION", "Hdfs", "fetched_jars", "ivy_settings", "start_hdfs"]

VERSION = "3.5.0"
START_SECONDS = 180.0
KEY_PROVIDER = "hadoop.security.key.provider.path"
# A key store's password is stretched at each load and save; 10,000 rounds are the fewest that Java takes.
JAVA_OPTIONS = (*QUICK, "-Djdk.jceks.iterationCount=10000")


JARS = (
    Jar(
        "org.apache.hadoop",
        "hadoop-client-minicluster",
        VERSION,
        "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c",
    ),
    # The cluster's class is meant for tests, and loads test libraries.
    Jar(
        "org.junit.jupiter",
        "junit-jupiter-api",
        "5.10.2",
        "afff77c186cd317275803872fa5133aa801fd6ac40bd91c78a6cf8009b4b17cc",
    ),
    Jar(
        "org.junit.platform",
        "junit-platform-commons",
        "1.10.2",
        "b56a5ec000a479df4973b18bba24c98fe0db8faa14c8907d3ef451d8c71fd8ae",
    ),
    Jar(
        "org.opentest4j",
        "opentest4j",
        "1.3.0",
        "48e2df636cab6563ced64dcdff8abb2355627cb236ef0bf37598682ddf742f1b",
    ),
    Jar(
        "org.mockito",
        "mockito-core",
        "4.11.0",
        "4b909690cab288c761eb94c0bf0e814496cf3921d8affac84cd87774530351e5",
    ),
)


@dataclass(frozen=True, slots=True)
class Hdfs:
    """A running file system; its starter is its superuser, and ``http`` is the NameNode's HTTP address."""

    uri: str
    http: str
    process: ServiceProcess

    def stop(self) -> None:
        """End the process and lose its contents."""
        self.process.stop()


def start_hdfs(
    work_dir: Path, conf: Mapping[str, str] | None = None, *, datanodes: int = 1, zone_key: str | None = None
) -> Hdfs:
    """Start an empty file system below a folder; return when it accepts files.

    Args:
        work_dir: blocks, metadata, log, and files for Hadoop's class path, such as ``ssl-server.xml``.
        conf: Hadoop properties, which override the release's defaults.
        datanodes: the number of DataNodes; each file is on one of them.
        zone_key: name of a key for encryption zones, created in a file.

    Raises:
        ServiceUnavailableError: there is no JDK or no Spark, or the jars cannot be fetched.
        ServiceFailedError: it did not become ready.
    """
    jars = fetched_jars()
    work_dir.mkdir(parents=True, exist_ok=True)
    details, port, http = work_dir / "hdfs.json", free_port(), free_port()
    details.unlink(missing_ok=True)
    (work_dir / "log4j2.properties").write_text(_LOGGING)
    if zone_key is not None:
        conf = {**(conf or {}), KEY_PROVIDER: _make_key(work_dir, jars, zone_key)}
    command: list[str | Path] = [
        java_home() / "bin" / "java",
        "-Xmx512m",
        *JAVA_OPTIONS,
        f"-Dlog4j2.configurationFile={work_dir / 'log4j2.properties'}",
        f"-Dtest.build.data={work_dir / 'data'}",
        "-cp",
        f"{work_dir}:{jars}/*:{spark_home() / 'jars'}/*",
        "org.apache.hadoop.test.MiniDFSClusterManager",
        *("-format", "-datanodes", str(datanodes), "-nnport", str(port), "-httpport", str(http)),
        *("-writeDetails", details, "-D", "dfs.replication=1"),
    ]
    for name, value in (conf or {}).items():
        command += ["-D", f"{name}={value}"]
    process = start_process("hdfs", command, work_dir, spark_environment())
    # The details are written once the DataNode has joined and the NameNode has left safe mode.
    wait_until(
        lambda: details.exists() and details.read_bytes().endswith(b"}") and accepts(port), process, START_SECONDS
    )
    return Hdfs(f"hdfs://{LOCAL}:{port}", f"{LOCAL}:{http}", process)


def _make_key(work_dir: Path, jars: Path, name: str) -> str:
    """Create a key in a Java key store below a folder; return the store's URI for Hadoop."""
    provider = f"jceks://file@{work_dir / 'zones.jceks'}"
    java = [str(java_home() / "bin" / "java"), *JAVA_OPTIONS, "-cp", f"{jars}/*:{spark_home() / 'jars'}/*"]
    shell = ["org.apache.hadoop.crypto.key.KeyShell", "create", name, "-provider", provider]
    subprocess.run([*java, *shell], env=spark_environment(), check=True, capture_output=True, timeout=START_SECONDS)
    return provider


_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c: %m%n
"""


def fetched_jars() -> Path:
    """Return the folder with the jars; concurrent callers fetch them once.

    Raises:
        ServiceUnavailableError: Spark's Hadoop is another release, or a jar cannot be fetched or is not the known one.
    """
    if not (spark_home() / "jars" / f"hadoop-client-runtime-{VERSION}.jar").exists():
        raise ServiceUnavailableError(f"no HDFS: this Spark does not ship the client of Hadoop {VERSION}")
    return fetched_folder(f"hdfs-{VERSION}", JARS)


if __name__ == "__main__":
    print(fetched_jars())

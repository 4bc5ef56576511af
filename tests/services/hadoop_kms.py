"""A real Hadoop KMS on 127.0.0.1: master keys in a Java key store, unauthenticated user names, changeable ACLs.

``hadoop_kms_jars.txt`` lists the jars that it loads classes from: organisation, name, revision, SHA-256.
"""

from __future__ import annotations

import json
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from tests.services.installed import java_home, spark_environment
from tests.services.maven import Jar, fetched_folder
from tests.services.processes import LOCAL, ServiceProcess, answers, free_port, start_process, wait_until
from tests.services.quick_java import QUICK

VERSION = "3.4.1"
"""The release of the KMS; Maven Central has none of 3.5.0, whose client Spark ships."""
START_SECONDS = 120.0
REQUEST_SECONDS = 30.0
EVERYBODY = "*"
_ACLS = ("MANAGEMENT", "GENERATE_EEK", "DECRYPT_EEK", "READ")


@dataclass(frozen=True, slots=True)
class HadoopKms:
    """A running server; its keys stay in ``work_dir``, so that another server there has them too."""

    address: str
    port: int
    process: ServiceProcess
    work_dir: Path

    def stop(self) -> None:
        """End the process."""
        self.process.stop()

    def allow(self, **users: str) -> None:
        """Set the ACLs of all keys, such as ``DECRYPT_EEK="alice"``; the server reads them within about 1 s."""
        _write_acls(self.work_dir / "conf", users)

    def delegation_token(self, user: str) -> str:
        """Return a user's new delegation token as text."""
        url = f"{self.address}/v1/?op=GETDELEGATIONTOKEN&renewer={user}&user.name={user}"
        with urllib.request.urlopen(url, timeout=REQUEST_SECONDS) as answer:
            return str(json.loads(answer.read())["Token"]["urlString"])

    def credentials_file(self, token: str, file: Path) -> Path:
        """Write a token into a credentials file by Hadoop, as YARN does for its containers."""
        shell = ["org.apache.hadoop.security.token.DtUtilShell", "import", token, "-format", "java", str(file)]
        java = [str(java_home() / "bin" / "java"), *QUICK, "-cp", _class_path(self.work_dir)]
        subprocess.run([*java, *shell], env=spark_environment(), check=True, capture_output=True, timeout=START_SECONDS)
        return file


def start_hadoop_kms(work_dir: Path, port: int | None = None) -> HadoopKms:
    """Start a server below a folder; return when it accepts requests.

    Args:
        work_dir: configuration, keys and log.
        port: the port; a free one if None.

    Raises:
        ServiceUnavailableError: there is no JDK or no Spark, or the jars cannot be fetched.
        ServiceFailedError: it did not become ready.
    """
    port, conf = port or free_port(), work_dir / "conf"
    for folder in (conf, work_dir / "temp"):
        folder.mkdir(parents=True, exist_ok=True)
    (conf / "kms-site.xml").write_text(
        _xml(
            {
                "hadoop.kms.key.provider.uri": f"jceks://file@{work_dir / 'kms.keystore'}",
                "hadoop.security.keystore.java-keystore-provider.password-file": "kms.password",
                "hadoop.kms.authentication.type": "simple",
                "hadoop.kms.http.host": LOCAL,
                "hadoop.kms.http.port": str(port),
            }
        )
    )
    (conf / "kms.password").write_text("of a test")
    # By default all servers of a user unpack their pages into one folder, so concurrent starts fail.
    (conf / "core-site.xml").write_text(_xml({"hadoop.tmp.dir": str(work_dir / "temp")}))
    (conf / "log4j.properties").write_text(_LOGGING)
    _write_acls(conf, {})
    command: list[str | Path] = [
        java_home() / "bin" / "java",
        "-Xmx256m",
        *QUICK,
        "-Djdk.jceks.iterationCount=10000",  # every write derives a key for each existing key
        "--add-opens",
        "java.base/java.lang=ALL-UNNAMED",
        f"-Dkms.config.dir={conf}",
        f"-Dkms.log.dir={work_dir}",
        f"-Dlog4j.configuration=file:{conf / 'log4j.properties'}",
        f"-Dhadoop.home.dir={work_dir}",
        *("-cp", _class_path(work_dir), "org.apache.hadoop.crypto.key.kms.server.KMSWebServer"),
    ]
    process = start_process("hadoop-kms", command, work_dir, spark_environment())
    address = f"http://{LOCAL}:{port}/kms"
    wait_until(lambda: answers(f"{address}/v1/keys/names?user.name=nobody"), process, START_SECONDS)
    return HadoopKms(address, port, process, work_dir)


def fetched_jars() -> Path:
    """Return the folder with the jars; fetch them if they are missing.

    Raises:
        ServiceUnavailableError: a jar cannot be fetched or is not the known one.
    """
    lines = Path(__file__).with_name("hadoop_kms_jars.txt").read_text().split("\n")
    return fetched_folder(f"hadoop-kms-{VERSION}", tuple(Jar(*line.split()) for line in lines if line))


def _class_path(work_dir: Path) -> str:
    return f"{work_dir / 'conf'}:{fetched_jars()}/*"


def _write_acls(conf: Path, users: dict[str, str]) -> None:
    acls = {f"default.key.acl.{name}": users.get(name, EVERYBODY) for name in _ACLS}
    whole = conf / "kms-acls.new"
    whole.write_text(_xml(acls))
    whole.replace(conf / "kms-acls.xml")  # the server reads it at any time


def _xml(properties: dict[str, str]) -> str:
    entries = "".join(f"<property><name>{n}</name><value>{v}</value></property>" for n, v in properties.items())
    return f"<configuration>{entries}</configuration>"


_LOGGING = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c: %m%n
"""

if __name__ == "__main__":
    print(fetched_jars())

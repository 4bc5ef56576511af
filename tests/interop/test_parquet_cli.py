"""parquet-cli with the jar and a site file on its class path: columns by their keys, files by their names."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from sparkcrypt.names import CRYPTO_FACTORY, CRYPTO_FACTORY_CLASS
from tests.conftest import or_skip
from tests.interop.outside_reads import HADOOP, write_site
from tests.interop.test_outside_spark import Lake, lake, moved
from tests.services.installed import java_home, spark_home
from tests.services.maven import Jar, fetched_folder
from tests.services.quick_java import QUICK

__all__ = ["lake", "moved"]

pytestmark = [pytest.mark.services, pytest.mark.slow]  # jars of Maven, and JVMs of their own
VERSION = "1.15.2"
PARQUET = {
    "parquet-avro": "ffb32d4245648338966d82c9aedd461efb8785fbea27d85b2f2d1ac2a14e6808",
    "parquet-cli": "33f84846542b9e49e553429c6341eb996bec441e859024eba7f55cf2697be810",
    "parquet-column": "856e759164450d1373e98f761968bd19a6a26899c2f93720770501a1b0e59e4c",
    "parquet-common": "a1e57537661f18f259d342a93123db10b5796e30a0585d0652af987ea7c33596",
    "parquet-encoding": "da2b2df9749cce2eee3205a6f4ec07612f985d51aebbd8f5861d8ec344824dc1",
    "parquet-format-structures": "417175f24f18e50f82873d604f36532c6b1c924611c4357dff5851c631d87a45",
    "parquet-hadoop": "a9015cbd8548a43bed459d1ee5cbc2748110f1cf484fdab785e5171e515d810f",
    "parquet-jackson": "0df26fcc7958e155da758676cdcc1028702d1876e62e4f87c406cee42cffcfe4",
}
"""Jars of parquet-java of that version, and their digests."""
JCOMMANDER = Jar("com.beust", "jcommander", "1.82", "deeac157c8de6822878d85d0c7bc8467a19cc8484d37788f7804f039dde280b1")
OF_SPARK = (*HADOOP, "guava-*.jar", "jcl-over-slf4j-*.jar", "log4j-*.jar")
CORE_SITE = f"""<configuration>
  <property><name>{CRYPTO_FACTORY}</name><value>{CRYPTO_FACTORY_CLASS}</value></property>
</configuration>
"""
LOG = """
rootLogger.level = info
rootLogger.appenderRef.all.ref = all
appender.all.type = Console
appender.all.name = all
appender.all.layout.type = PatternLayout
appender.all.layout.pattern = %m%n
"""
"""Rows are lines of the log."""
Cli: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def cli(jar: Path, lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """Run parquet-cli for an analyst who lacks the key of salaries."""
    jars = [Jar("org.apache.parquet", name, VERSION, digest) for name, digest in PARQUET.items()]
    libraries = or_skip(fetched_folder, f"parquet-cli-{VERSION}", [*jars, JCOMMANDER]).iterdir()
    shared = [found for name in OF_SPARK for found in sorted((spark_home() / "jars").glob(name))]
    site = write_site(tmp_path_factory.mktemp("site"), lake.analyst)
    (site / "core-site.xml").write_text(CORE_SITE)
    (site / "log4j2.properties").write_text(LOG)
    classpath = ":".join(map(str, [site, jar, *shared, *libraries]))

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [java_home() / "bin" / "java", *QUICK, "-cp", classpath, "org.apache.parquet.cli.Main", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    return run


def test_columns_are_shown_by_their_keys(cli: Cli, lake: Lake) -> None:
    """What is allowed is printed; the others are refused with the name of the key."""
    file = lake.folder / "a.parquet"
    shown = cli("cat", file, "--columns", "email")
    assert (shown.returncode, [line for line in shown.stdout.splitlines() if "mail" in line]) == (
        0,
        ["mail0", "mail1", "mail2"],
    )
    shown = cli("head", file, "-n", "1", "--columns", "email")
    assert (shown.returncode, [line for line in shown.stdout.splitlines() if "mail" in line]) == (0, ["mail0"])
    refused = cli("cat", file)
    assert refused.returncode == 1
    assert "column salary cannot be read: its key 'fin'" in refused.stdout + refused.stderr


def test_a_file_under_another_name_is_refused(cli: Cli, moved: Path) -> None:
    """No row of it is printed."""
    refused = cli("cat", moved, "--columns", "email")
    assert refused.returncode == 1
    assert "VerificationError" in refused.stdout + refused.stderr and "mail" not in refused.stdout.partition("Error")[0]

"""Fixtures that every kind of test uses: the jar, Spark sessions, and the real services of tests/services."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

import pytest

from tests.services import ServiceUnavailableError
from tests.services.connect import start_connect_server
from tests.services.hdfs import Hdfs, start_hdfs
from tests.services.installed import ROOT, spark_environment
from tests.services.metastore import Metastore, start_metastore
from tests.services.quick_java import quick_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Suites that test modules inherit; their assertions are rewritten like those of test modules.
pytest.register_assert_rewrite("tests.unit.backfill.lock_behaviour", "tests.unit.backfill.store_behaviour")

JAR = ROOT / "sparkcrypt" / "_jar" / "sparkcrypt.jar"
FRESH_JVM_SECONDS = 240.0
REQUIRE_SERVICES = "SPARKCRYPT_REQUIRE_SERVICES"
T = TypeVar("T")


class FreshJvm(Protocol):
    """A call that runs a Python script in a new interpreter, so that its Spark is a new JVM with empty caches."""

    def __call__(
        self, script: str, *args: object, env: dict[str, str] | None = None, timeout: float = FRESH_JVM_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a script and return its exit code, stdout and stderr; a script that hangs is killed with its JVM."""


def require_service(reason: str) -> NoReturn:
    """Skip a test whose service is unavailable; fail it under SPARKCRYPT_REQUIRE_SERVICES=1.

    Args:
        reason: the service, and why it is unavailable.
    """
    if os.environ.get(REQUIRE_SERVICES) == "1":
        pytest.fail(f"{REQUIRE_SERVICES}=1, and {reason}", pytrace=False)
    pytest.skip(reason)


def or_skip(start: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Return what a call starts or finds; skip the test where its service is unavailable, as `require_service` does."""
    try:
        return start(*arguments, **options)
    except ServiceUnavailableError as unavailable:
        require_service(str(unavailable))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collection, and keep what is loaded out of it, which stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of the whole, which take minutes each, first: parallel test processes then end together."""
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip, and an expected failure, into a failure under SPARKCRYPT_REQUIRE_SERVICES=1.

    Neither shows that anything works, however the test reached it.
    """
    report = yield
    if report.skipped and os.environ.get(REQUIRE_SERVICES) == "1":
        expected = report.__dict__.pop("wasxfail", None)
        report.outcome = "failed"
        report.longrepr = (
            f"{REQUIRE_SERVICES}=1 allows no skip: {report.longrepr}"
            if expected is None
            else f"{REQUIRE_SERVICES}=1 allows no expected failure: {expected}"
        )
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn the skip of a whole module into an error under SPARKCRYPT_REQUIRE_SERVICES=1."""
    report = yield
    if report.outcome == "skipped" and os.environ.get(REQUIRE_SERVICES) == "1":
        report.outcome = "failed"
        report.longrepr = f"{REQUIRE_SERVICES}=1 allows no skip: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def java() -> dict[str, str]:
    """The environment for Spark processes: JDK 17 or later, 127.0.0.1, this interpreter."""
    return quick_java(or_skip(spark_environment))


@pytest.fixture(scope="session")
def jar(java: dict[str, str]) -> Path:
    """The jar of this checkout, rebuilt if a Java or Python source is newer."""
    sources = [path for folder in ("jars", "sparkcrypt") for path in (ROOT / folder).rglob("*") if _is_source(path)]
    if not JAR.exists() or any(source.stat().st_mtime > JAR.stat().st_mtime for source in sources):
        subprocess.run([sys.executable, ROOT / "jars" / "build.py"], env=java, check=True)
    return JAR


@pytest.fixture(scope="session")
def spark(java: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session of the whole test run: two cores, Hive support over a Derby database of its own.

    It stays unconfigured. Its JVM, and so Parquet's static caches, are shared: a test that configures encryption, or
    reads its files with other keys, uses ``fresh_jvm``.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, value in java.items():
            patch.setenv(name, value)
        session = start_session(tmp_path_factory.mktemp("spark"))
        yield session
        session.stop()


def start_session(home: Path) -> SparkSession:
    """Start a classic session as `spark` describes it, whose warehouse and database are in a folder."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("sparkcrypt tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", (home / "warehouse").as_uri())
        # The database is not needed after its process ends, so Derby does not sync to disk; and no other process writes
        # to it, so that the metastore may keep what it has read of it.
        .config("spark.hadoop.datanucleus.cache.level2.type", "soft")
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home} -Dderby.system.durability=test")
        .config(
            "spark.hadoop.javax.jdo.option.ConnectionURL",
            f"jdbc:derby:;databaseName={home / 'metastore_db'};create=true",
        )
        .enableHiveSupport()
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    """A real Hive metastore process."""
    running = or_skip(start_metastore, tmp_path_factory.mktemp("metastore"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """A real HDFS: one NameNode, three DataNodes (what the smallest erasure code needs), and a key ``zone``."""
    running = or_skip(start_hdfs, tmp_path_factory.mktemp("hdfs"), datanodes=3, zone_key="zone")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def vault() -> Iterator[Any]:
    """A real Vault server, in memory, with its address and root token."""
    from tests.services.vault_server import start_vault

    running = or_skip(start_vault)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real browser."""
    from tests.services.chromium import start_chromium

    running = or_skip(start_chromium, tmp_path_factory.mktemp("chromium"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def s3_server() -> Iterator[Any]:
    """A real S3 server in this process, with the bucket ``lake``, empty."""
    from tests.services.meddled_s3 import MeddledS3

    running = MeddledS3()
    running.make_bucket("lake")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def connect_url(jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real Spark Connect server, launched with the jar."""
    running = or_skip(start_connect_server, tmp_path_factory.mktemp("connect"), jar=jar)
    yield running.url
    running.stop()


@pytest.fixture
def fresh_jvm(java: dict[str, str], tmp_path: Path) -> FreshJvm:
    """A call that runs a Python script in a new interpreter and JVM, with ``tmp_path`` as its working folder."""

    def run(
        script: str, *args: object, env: dict[str, str] | None = None, timeout: float = FRESH_JVM_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        file = tmp_path / f"script-{len(list(tmp_path.glob('script-*.py')))}.py"
        file.write_text(script)
        path = os.pathsep.join(filter(None, [str(ROOT), java.get("PYTHONPATH")]))
        command = [sys.executable, str(file), *map(str, args)]
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**java, "PYTHONPATH": path, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    return run


def _is_source(path: Path) -> bool:
    return path.suffix in {".java", ".py"} and "__pycache__" not in path.parts

"""JVMs of commands start from an archive, print the same with any, and never work on rows with one compiler alone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkcrypt.spark.setup import class_archive
from sparkcrypt.spark.setup.class_archive import OFF, PATIENT, archive_folder, archive_key, find_archive
from tests.conftest import or_skip
from tests.services.cache import cache_folder, locked
from tests.services.installed import ROOT, java_home, spark_environment, spark_home

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]  # an archive is made first

MAKE = """
import os
os.nice = lambda _: 0  # other tests run beside it, and this one waits for it
from sparkcrypt.spark.setup.class_archive import make_archive
make_archive()
"""
SESSIONS = """
import json, sys
from sparkcrypt.spark.setup.command_session import spark_session
for short in json.loads(sys.argv[1]):
    with spark_session("a command", master="local[1]", conf={"spark.ui.enabled": "false"}, short=short) as spark:
        print(spark.sql("SELECT 1 AS one").collect(), flush=True)
        machine = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
        print(json.dumps([machine.getName(), *machine.getInputArguments()]), file=sys.stderr, flush=True)
"""
ASK = """
import socket, struct, sys
from pathlib import Path
from pyspark import SparkContext
from sparkcrypt.spark.setup import class_archive
def ask():
    port = int(SparkContext._active_spark_context.getConf().get("spark.driver.port"))
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(struct.pack(">qbqi4s", 25, 3, 1, 4, b"work"))
        (length,) = struct.unpack(">q", connection.recv(8, socket.MSG_WAITALL))
        print(connection.recv(length - 8, socket.MSG_WAITALL).decode(errors="replace"), flush=True)
    return ()
class_archive.archive_program = ask
class_archive.run_program(Path(sys.argv[1]), Path(sys.argv[2]))
"""
"""Sends a request (type 3, number 1) to the driver as Spark's own transport frames it, without having authenticated."""
ROW = b"[Row(one=1)]\n"
ONE_COMPILER = "-XX:TieredStopAtLevel=1"


@pytest.fixture(scope="module")
def kept_archive() -> Path:
    """An archive of this machine's Spark, kept from run to run in a cache folder that others cannot change."""
    home = cache_folder() / "class-archives"
    with pytest.MonkeyPatch.context() as patch, locked(cache_folder() / "class-archives.lock"):
        home.mkdir(mode=0o700, exist_ok=True)
        for name, value in environment(home).items():
            patch.setenv(name, value)
        key = archive_key(spark_home())
        assert key is not None
        if find_archive(key) is None:
            subprocess.run([sys.executable, "-c", MAKE], check=True, env=environment(home), cwd=ROOT)
        found = find_archive(key)
        assert found is not None
        return found


@pytest.fixture
def archive(kept_archive: Path) -> Iterator[Path]:
    """A copy of it in a cache folder of the test alone, which the environment names."""
    home = cache_folder() / f"class-archives-{os.getpid()}"
    folder = home / "sparkcrypt" / "classes"
    for level in (home, folder.parent, folder):
        level.mkdir(mode=0o700)
    copy = folder / kept_archive.name
    copy.write_bytes(kept_archive.read_bytes())
    copy.chmod(0o400)
    (folder / "tried").touch()  # so that nothing makes another in the background
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home))
        yield copy
    shutil.rmtree(home)


def environment(cache: Path) -> dict[str, str]:
    """Return the environment of a command of somebody who has this cache folder, and Java as it is installed."""
    found = or_skip(spark_environment)
    java = (java_home() / "bin" / "javac").resolve().parents[1]  # not the quick one that other tests have set here
    paths = {"JAVA_HOME": str(java), "PATH": f"{java / 'bin'}{os.pathsep}{found['PATH']}", "PYTHONPATH": str(ROOT)}
    return {**{name: value for name, value in found.items() if name != OFF}, **paths, "XDG_CACHE_HOME": str(cache)}


def start(folder: Path, *short: bool, env: dict[str, str] | None = None) -> tuple[bytes, list[list[str]]]:
    """Start sessions one after the other in one process; return its stdout, and name and options of each JVM."""
    variables = {**environment(archive_folder().parents[1]), **(env or {})}
    done = subprocess.run(
        [sys.executable, "-c", SESSIONS, json.dumps(short)],
        cwd=folder,
        env={name: value for name, value in variables.items() if value},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith('["')]
    return done.stdout, [json.loads(line) for line in lines]


def uses(archive: Path, options: list[str]) -> bool:
    """Tell whether a JVM was given an archive."""
    return f"-XX:SharedArchiveFile={archive}" in options


def damage(archive: Path, *, true_digest: bool) -> Path:
    """Overwrite the middle of an archive; name it after what it now has, as only its owner could."""
    archive.chmod(0o600)
    with archive.open("r+b") as file:
        file.seek(archive.stat().st_size // 4)
        file.write(b"\xff" * (archive.stat().st_size // 2))
    archive.chmod(0o400)
    if not true_digest:
        return archive
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return archive.rename(archive.with_name(f"{archive.name.partition('-')[0]}-{digest}.jsa"))


def test_jvm_takes_its_classes_from_the_archive(archive: Path, tmp_path: Path) -> None:
    """And it truly maps the file, which a JVM that finds it unfit would not."""
    printed, (options,) = start(tmp_path, True, env={"SPARK_SUBMIT_OPTS": "-Xshare:on"})
    assert printed == ROW
    assert uses(archive, options)


def test_folder_of_settings_does_not_hide_the_archive(archive: Path, tmp_path: Path) -> None:
    """A JVM takes none whose jars come after a folder that is not empty, so settings come after the jars."""
    settings = tmp_path / "settings"
    settings.mkdir()
    (settings / "hive-site.xml").write_text("<configuration/>")
    env = {"SPARK_CONF_DIR": str(settings), "SPARK_SUBMIT_OPTS": "-Xshare:on"}
    printed, (options,) = start(tmp_path, True, env=env)
    assert printed == ROW
    assert uses(archive, options)


def test_one_compiler_is_for_short_sessions_alone(archive: Path, tmp_path: Path) -> None:
    """A session that works on rows gets a JVM of its own with all compilers, even in the process of a short one."""
    printed, (short, long) = start(tmp_path, True, False)
    assert printed == ROW * 2
    assert ONE_COMPILER in short
    assert ONE_COMPILER not in long
    assert set(PATIENT) <= set(long)
    assert not set(PATIENT) & set(short)
    assert short[0] != long[0]
    assert uses(archive, long)


def test_variable_turns_all_of_it_off(archive: Path, tmp_path: Path) -> None:
    """The JVM starts as Spark starts it."""
    printed, (options,) = start(tmp_path, True, env={OFF: "1"})
    assert printed == ROW
    assert not uses(archive, options)
    assert ONE_COMPILER not in options


def test_damaged_archive_is_not_used(archive: Path, tmp_path: Path) -> None:
    """Nor is anything printed of it."""
    damage(archive, true_digest=False)
    printed, (options,) = start(tmp_path, True)
    assert printed == ROW
    assert not any("SharedArchiveFile" in option for option in options)


def test_jvm_that_dies_of_its_archive_is_started_again_without_it(archive: Path, tmp_path: Path) -> None:
    """Its owner's own damage under a true digest: the JVM ends by a signal, and says so elsewhere than on stdout."""
    damaged = damage(archive, true_digest=True)
    printed, (options,) = start(tmp_path, True)
    assert printed == ROW
    assert not uses(damaged, options)
    assert not damaged.exists()


def test_ports_of_a_maker_ask_for_a_secret(tmp_path: Path) -> None:
    """They are open on the loopback for as long as it runs, to every user of the machine."""
    command = [sys.executable, "-c", ASK, str(spark_home()), str(tmp_path)]
    done = subprocess.run(command, env=environment(tmp_path), stdout=subprocess.PIPE, check=True)
    assert b"Expected SaslMessage" in done.stdout


def test_options_of_every_jvm_that_do_not_go_with_ours(archive: Path, tmp_path: Path) -> None:
    """The last start is Spark's own: ours reserve less than this at once; the archive is not to blame, and stays."""
    env = {"JAVA_TOOL_OPTIONS": "-XX:InitialCodeCacheSize=200m -XX:ReservedCodeCacheSize=300m"}
    printed, (options,) = start(tmp_path, True, env=env)
    assert printed == ROW
    assert ONE_COMPILER not in options
    assert not uses(archive, options)
    assert archive.exists()


def test_another_collector_ends_neither_jvm_of_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM that composes a launch takes the user's options too; two collectors would end it."""
    for name, value in {**or_skip(spark_environment), "JAVA_TOOL_OPTIONS": "-XX:+UseG1GC"}.items():
        monkeypatch.setenv(name, value)
    with class_archive.launch_options(class_archive.QUICK):
        done = subprocess.run([spark_home() / "bin" / "spark-submit", "--version"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert b"version" in done.stderr


def test_archive_of_another_class_path_is_silently_left(archive: Path, tmp_path: Path) -> None:
    """As one is that has grown stale between the look and the start: the JVM itself compares its jars."""
    extra = tmp_path / "extra"
    extra.mkdir()
    env = {"SPARK_SUBMIT_OPTS": f"-cp {extra}:{class_archive.class_path(spark_home(), {})}"}
    (extra / "a.properties").write_text("")
    printed, (options,) = start(tmp_path, True, env=env)
    assert printed == ROW
    assert uses(archive, options)

"""An archive of classes is code: what others may have put or changed, at any level, is never given to a JVM."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkcrypt.spark.setup import class_archive
from sparkcrypt.spark.setup.class_archive import (
    archive_folder,
    available_memory,
    find_archive,
    make_archive,
    make_in_background,
)
from tests.services.cache import cache_folder

KEY = "0123456789abcdef" * 2
CONTENT = b"classes" * 1000
NOBODY = 65534
ENOUGH = 2 << 30
SLEEP = """
import signal, time
from sparkcrypt.spark.setup import class_archive
{inherited}
class_archive._SECONDS_TO_MAKE = 1
class_archive._give_way()
time.sleep(60)
"""
LEAVE = """
import atexit
from sparkcrypt.spark.setup import class_archive
class_archive._CALL_MAKER = "import time; time.sleep(1)"
class_archive.available_memory = lambda: 2 << 30
atexit.register(class_archive.make_in_background)
"""
HOLD = """
import fcntl, sys, time
lock = open(sys.argv[1], "a")
fcntl.flock(lock, fcntl.LOCK_SH)
print("held", flush=True)
time.sleep(99)
"""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder that others cannot change, as those below /tmp are not."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        monkeypatch.setattr(class_archive, "available_memory", lambda: ENOUGH)
        yield Path(folder)


@pytest.fixture
def archive(home: Path) -> Path:
    """An archive as a maker leaves it."""
    archive_folder().mkdir(parents=True)
    for level in (home / "sparkcrypt", archive_folder()):
        level.chmod(0o700)
    return put(CONTENT)


def wait_for(maker: int) -> int:
    """Wait for the end of a process of this one; return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(maker, 0)[1])


def put(content: bytes, *, digest: str | None = None) -> Path:
    """Put an archive into its folder, by default under its true digest."""
    file = archive_folder() / f"{KEY}-{digest or hashlib.sha256(content).hexdigest()}.jsa"
    file.write_bytes(content)
    file.chmod(0o400)
    return file


def test_archive_of_this_user_is_found(archive: Path) -> None:
    """Nothing is wrong with it."""
    assert find_archive(KEY) == archive


def test_archive_of_another_key_is_not(archive: Path) -> None:
    """It was made for another Java, Spark or jar."""
    assert find_archive(KEY[::-1]) is None


def test_one_changed_byte_is_noticed(archive: Path) -> None:
    """Java would run it: it checks an archive's header, not its content."""
    archive.chmod(0o600)
    with archive.open("r+b") as file:
        file.seek(len(CONTENT) // 2)
        file.write(b"X")
    archive.chmod(0o400)
    assert find_archive(KEY) is None


def test_archive_that_was_cut_off_is_noticed(archive: Path) -> None:
    """So is one that is empty."""
    for length in (len(CONTENT) - 1, 0):
        os.truncate(archive, length)
        assert find_archive(KEY) is None


@pytest.mark.parametrize("mode", [0o600, 0o440, 0o404, 0o420, 0o402, 0o4400])
def test_file_with_another_mode_is_not_used(archive: Path, mode: int) -> None:
    """Only its owner may read it, and nobody may write it."""
    archive.chmod(mode)
    assert find_archive(KEY) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
@pytest.mark.parametrize("level", ["file", "classes", "sparkcrypt", "cache"])
def test_what_belongs_to_another_user_is_not_used(archive: Path, home: Path, level: str) -> None:
    """Whoever owns a level can put another archive there, with a digest that is true."""
    place = {"file": archive, "classes": archive.parent, "sparkcrypt": archive.parent.parent, "cache": home}[level]
    os.chown(place, NOBODY, -1)
    assert find_archive(KEY) is None


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o750, 0o705, 0o1777, 0o500])
def test_folder_of_archives_is_closed_to_others(archive: Path, mode: int) -> None:
    """Others could put an archive into it, or look on."""
    archive.parent.chmod(mode)
    assert find_archive(KEY) is None


@pytest.mark.parametrize("mode", [0o770, 0o720, 0o702, 0o777, 0o1777])
@pytest.mark.parametrize("level", ["sparkcrypt", "cache"])
def test_folders_above_are_not_open_to_writes_of_others(archive: Path, home: Path, level: str, mode: int) -> None:
    """They could put a folder in the place of the next; a sticky bit does not protect a name that is free."""
    {"sparkcrypt": archive.parent.parent, "cache": home}[level].chmod(mode)
    assert find_archive(KEY) is None


@pytest.mark.parametrize("mode", [0o755, 0o711])
def test_folders_above_may_be_read_by_others(archive: Path, home: Path, mode: int) -> None:
    """As home folders often may."""
    home.chmod(mode)
    assert find_archive(KEY) == archive


@pytest.mark.parametrize("level", ["file", "classes", "sparkcrypt", "cache"])
def test_links_are_not_followed_at_any_level(archive: Path, home: Path, level: str) -> None:
    """A link can be led elsewhere between the check and the use."""
    place = {"file": archive, "classes": archive.parent, "sparkcrypt": archive.parent.parent, "cache": home}[level]
    moved = place.with_name(f"{place.name}-moved")
    place.rename(moved)
    place.symlink_to(moved)
    try:
        assert find_archive(KEY) is None
    finally:
        place.unlink()
        moved.rename(place)
    assert find_archive(KEY) == archive


def test_file_with_two_names_is_not_used(archive: Path, home: Path) -> None:
    """The other name may lie where others can reach it."""
    os.link(archive, home / "other")
    assert find_archive(KEY) is None


def test_pipe_in_its_place_is_not_waited_for(archive: Path) -> None:
    """It has no end, and no writer."""
    archive.unlink()
    os.mkfifo(archive, 0o400)
    assert find_archive(KEY) is None


def test_damaged_archive_does_not_hide_a_good_one(archive: Path) -> None:
    """A maker puts another beside it."""
    put(CONTENT[1:], digest="0" * 64)
    assert find_archive(KEY) == archive


@pytest.fixture
def installed(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a Spark with two jars and of the Java that commands use."""
    spark, java = home / "spark", home / "java"
    for file in (java / "bin/java", java / "lib/modules", java / "lib/server/libjvm.so"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1")
    (spark / "jars").mkdir(parents=True)
    for name in ("a.jar", "b.jar"):
        (spark / "jars" / name).write_text("1")
    (java / "bin/java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(java))
    return home


@pytest.mark.parametrize("what", ["spark/jars/a.jar", "spark/jars/c.jar", "java/lib/modules"])
def test_key_is_stale_after_a_change(installed: Path, what: str) -> None:
    """The archive of yesterday's Spark or Java has another key, even where a file has kept its length."""
    before = class_archive.archive_key(installed / "spark")
    assert before is not None
    assert class_archive.archive_key(installed / "spark") == before
    (installed / what).write_text("2")
    os.utime(installed / what, (1, 1))
    assert class_archive.archive_key(installed / "spark") != before


def test_key_is_of_the_order_in_which_java_finds_jars(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of their folder, which a copy may have otherwise; the archive of another order does not fit."""
    entries = list(os.scandir(installed / "spark" / "jars"))
    before = class_archive.archive_key(installed / "spark")
    assert before is not None
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", lambda path: reversed(entries))
        assert class_archive.archive_key(installed / "spark") != before


def put_jar(home: Path, *names: str) -> None:
    """Put a jar with these files into a Spark that has no other."""
    (home / "spark" / "jars").mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(home / "spark" / "jars" / "a.jar", "w") as jar:
        for name in names:
            jar.writestr(name, "")


@pytest.fixture
def quick_maker(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """A maker whose job takes no JVM; the list gets the folder of each job."""
    ran: list[Path] = []

    def run(spark: Path, work: Path) -> Path:
        ran.append(work)
        (work / "made.jsa").write_bytes(CONTENT)
        return work / "made.jsa"

    put_jar(home, "org/apache/spark/core-site.xml")
    monkeypatch.setenv("SPARK_HOME", str(home / "spark"))
    monkeypatch.setattr(class_archive, "run_program", run)
    monkeypatch.setattr(class_archive, "archive_key", lambda home: KEY)
    monkeypatch.setattr(class_archive, "_give_way", lambda: None)
    mask = os.umask(0o022)
    yield ran
    os.umask(mask)


def test_maker_leaves_an_archive_and_nothing_else(quick_maker: list[Path]) -> None:
    """The second finds it, and runs nothing."""
    make_archive()
    found = find_archive(KEY)
    assert found is not None
    assert found.read_bytes() == CONTENT
    assert {file.name for file in archive_folder().iterdir()} == {found.name, "lock"}
    make_archive()
    assert len(quick_maker) == 1


def test_maker_replaces_a_damaged_archive(archive: Path, quick_maker: list[Path]) -> None:
    """It removes what it replaces: an archive takes 200 MB."""
    damaged = archive.rename(archive.with_name(f"{KEY}-{'0' * 64}.jsa"))
    make_archive()
    assert find_archive(KEY) == archive
    assert not damaged.exists()


def test_second_maker_does_not_wait_for_the_first(quick_maker: list[Path]) -> None:
    """It ends; the lock is a process's, so the first is another process here."""
    make_archive()
    for file in archive_folder().glob("*.jsa"):
        file.unlink()
    first = subprocess.Popen([sys.executable, "-c", HOLD, archive_folder() / "lock"], stdout=subprocess.PIPE)
    try:
        assert first.stdout is not None
        first.stdout.readline()
        make_archive()
        assert len(quick_maker) == 1
    finally:
        first.kill()
        first.communicate()
    make_archive()
    assert len(quick_maker) == 2


def test_maker_that_failed_leaves_no_archive(quick_maker: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what it had of one."""

    def fail(spark: Path, work: Path) -> Path:
        (work / "made.jsa").write_bytes(CONTENT[:99])
        raise OSError("no space left on device")

    monkeypatch.setattr(class_archive, "run_program", fail)
    with pytest.raises(OSError, match="no space"):
        make_archive()
    assert {file.name for file in archive_folder().iterdir()} == {"lock"}


def test_another_maker_is_not_started_at_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever became of the first, even if it died at once: else each command would start one that does so too."""
    monkeypatch.setattr(class_archive, "_CALL_MAKER", "raise SystemExit(3)")
    first = make_in_background()
    assert first is not None
    assert wait_for(first) == 3
    assert make_in_background() is None
    os.utime(archive_folder() / "tried", (time.time() - 7200,) * 2)
    later = make_in_background()
    assert later is not None
    assert wait_for(later) == 3


def test_no_maker_is_started_with_little_memory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes over a gigabyte, for which something else of the machine or container might be ended."""
    monkeypatch.setattr(class_archive, "_CALL_MAKER", "")
    monkeypatch.setattr(class_archive, "available_memory", lambda: ENOUGH - 1)
    assert make_in_background() is None
    monkeypatch.setattr(class_archive, "available_memory", lambda: ENOUGH)
    started = make_in_background()
    assert started is not None
    assert wait_for(started) == 0


@pytest.mark.parametrize("text", [None, "", "MemAvailable\n", "MemAvailable: much\n"])
def test_no_maker_is_started_where_memory_is_not_known(
    home: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    """Nor does a command end with an error of what should come after it."""
    (home / "proc").mkdir()
    if text is not None:
        (home / "proc" / "meminfo").write_text(text)
    monkeypatch.setattr(class_archive, "available_memory", lambda: available_memory(home))
    assert make_in_background() is None


FREE = "MemTotal:       24684000 kB\nMemFree:         1000 kB\nMemAvailable:   8000 kB\n"
VERSION_2 = "0::/user.slice/commands\n"
VERSION_1 = "5:cpu,cpuacct:/other\n4:memory:/docker/commands\n0::/\n"
OF_2 = "sys/fs/cgroup"
OF_1 = "sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        (None, {}, 8000 << 10),
        (VERSION_2, {}, 8000 << 10),
        (VERSION_2, {f"{OF_2}/user.slice/commands": ("max", "100")}, 8000 << 10),
        (VERSION_2, {f"{OF_2}/user.slice/commands": ("9000", "2000")}, 7000),
        (VERSION_2, {f"{OF_2}/user.slice": ("3000", "1000"), f"{OF_2}/user.slice/commands": ("9000", "10")}, 2000),
        ("0::/\n", {OF_2: ("5000", "1000")}, 4000),
        (VERSION_1, {f"{OF_1}/docker/commands": ("6000", "1000")}, 5000),
        (VERSION_1, {OF_1: ("6000", "5000")}, 1000),
        (VERSION_1, {OF_1: (str(2**63 - 4096), "5000")}, 8000 << 10),
        (VERSION_1, {"sys/fs/cgroup/other": ("6000", "5000")}, 8000 << 10),
    ],
)
def test_memory_is_the_least_that_machine_and_groups_leave(
    tmp_path: Path, groups: str | None, files: dict[str, tuple[str, str]], expected: int
) -> None:
    """A container sees its own group at the top, whatever its path is outside."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text(FREE)
    if groups is not None:
        (tmp_path / "proc" / "self" / "cgroup").write_text(groups)
    for folder, (limit, used) in files.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        names = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes") if OF_1 in folder else ("memory.max", "memory.current")
        )
        for name, value in zip(names, (limit, used), strict=True):
            (tmp_path / folder / name).write_text(f"{value}\n")
    assert available_memory(tmp_path) == expected


def test_no_maker_is_started_that_could_not_be_recorded(home: Path, archive: Path) -> None:
    """It would be started by every command."""
    mark = archive_folder() / "tried"
    mark.symlink_to("/dev/null")
    os.utime(mark, (1, 1), follow_symlinks=False)
    assert make_in_background() is None


def test_archive_that_was_removed_is_not_made_again_at_once(archive: Path) -> None:
    """A JVM has died of it, and may die of each that is made so."""
    class_archive.remove_archive(archive)
    assert not archive.exists()
    assert make_in_background() is None


def test_cache_folder_that_java_would_split_has_no_archives(
    archive: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java reads two names of archives, of a base and one above it, on either side of a colon."""
    divided = home / "a:b"
    divided.mkdir()
    archive_folder().parent.rename(divided / "sparkcrypt")
    monkeypatch.setenv("XDG_CACHE_HOME", str(divided))
    assert find_archive(KEY) is None
    assert make_in_background() is None


def test_relative_cache_folder_is_ignored(archive: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its specification demands: it would be another one in each working directory."""
    (home / ".cache").mkdir()
    archive_folder().parent.rename(home / ".cache" / "sparkcrypt")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.chdir(home)
    assert find_archive(KEY) == home / ".cache" / "sparkcrypt" / "classes" / archive.name


def test_user_without_a_home_has_no_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers whose user no file names."""

    def fail(number: int) -> None:
        raise KeyError(number)

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", fail)
    assert find_archive(KEY) is None
    assert make_in_background() is None


@pytest.mark.parametrize("name", ["HOME", "XDG_CACHE_HOME"])
def test_home_that_is_not_there_is_not_made(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It may be mounted later, or be none on purpose."""
    monkeypatch.setattr(class_archive, "_CALL_MAKER", "")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv(name, str(home / "nowhere"))
    assert make_in_background() is None
    assert not list(home.iterdir())
    (home / "nowhere").mkdir()
    started = make_in_background()
    assert started is not None
    assert wait_for(started) == 0
    assert (archive_folder() / "tried").exists()


def test_maker_that_was_killed_is_cleared_away(quick_maker: list[Path], home: Path) -> None:
    """Its lock ended with it, and its folder is removed by the next."""
    make_archive()
    shutil.rmtree(archive_folder())
    archive_folder().mkdir(mode=0o700)
    left = archive_folder() / "making-99999"
    left.mkdir(mode=0o700)
    (left / "made.jsa").write_bytes(CONTENT[:99])
    make_archive()
    assert not left.exists()
    assert find_archive(KEY) is not None


@pytest.mark.parametrize(
    "inherited",
    [
        "signal.signal(signal.SIGALRM, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})",
    ],
)
def test_maker_ends_in_time_whatever_it_inherited(inherited: str) -> None:
    """Of a shell or scheduler that ignores or blocks the signal which ends it."""
    done = subprocess.run([sys.executable, "-c", SLEEP.format(inherited=inherited)], check=False)
    assert done.returncode == -signal.SIGALRM


def test_command_that_leaves_a_maker_warns_of_nothing(home: Path) -> None:
    """Python would of a process that still runs."""
    done = subprocess.run([sys.executable, "-W", "always", "-c", LEAVE], capture_output=True, check=True)
    assert (archive_folder() / "tried").exists()
    assert done.stderr == b""


def test_jars_that_change_while_an_archive_is_made_give_none(
    quick_maker: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is of neither the old nor the new ones."""
    keys = iter((KEY, KEY[::-1]))
    monkeypatch.setattr(class_archive, "archive_key", lambda home: next(keys))
    make_archive()
    assert not list(archive_folder().glob("*.jsa"))


@pytest.mark.parametrize("name", ["log4j2.properties", "hive-site.xml", "core-site.xml", "metrics.properties"])
def test_jars_with_settings_of_their_own_give_none(quick_maker: list[Path], home: Path, name: str) -> None:
    """With an archive the jars come first, so the user's settings of that name would no longer be found."""
    put_jar(home, "org/apache/spark/Main.class", name)
    make_archive()
    assert not quick_maker
    assert not list(archive_folder().glob("*.jsa"))


def test_makers_get_no_credentials(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor a configuration: they have Spark's classes to load, and nothing else to do."""
    monkeypatch.setenv("VAULT_TOKEN", "s.canary")
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    seen = home / "seen"
    monkeypatch.setattr(
        class_archive, "_CALL_MAKER", f"import os; open({str(seen)!r}, 'w').write(repr(dict(os.environ)))"
    )
    started = make_in_background()
    assert started is not None
    assert wait_for(started) == 0
    text = seen.read_text()
    assert "PATH" in text
    assert not [name for name in ("VAULT", "SPARK_CONF_DIR", "SUBMIT_ARGS") if name in text]


def test_no_maker_is_started_where_others_may_write(archive: Path) -> None:
    """What it made could be replaced."""
    archive.parent.parent.chmod(0o777)
    assert make_in_background() is None

"""Archives of Spark's classes (JEP 350), with which JVMs of commands start sooner: used where that is safe, and made.

An archive is code: a JVM checks its header, the class path and the times of jars, and runs what else is in it.  So one
is used only from a folder that nobody but this user and root can change, at any level, and only if its SHA-256 is the
one in its name.  A process of its own makes it, after the command that found none; nothing waits for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

OFF = "SPARKCRYPT_NO_ARCHIVE"
"""The environment variable that, not empty, leaves JVMs as Spark starts them."""
SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Spark's own variable for options of a driver's JVM; what a user has in it comes after ours, so it wins."""
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=160m")
"""The first compiler alone, for JVMs that read no rows; by itself it would reserve 48 MiB for code, which may fill."""
PATIENT = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""All compilers, for JVMs that may read rows; the last one gets ten times later what is called often.

By Java's defaults it spends a quarter of a run over few files on methods that the run is about to leave.
"""
_SILENT = ("-Xlog:cds*=off", "-Xlog:class+path=off")
_LAUNCHER_OPTIONS = "SPARK_LAUNCHER_OPTS"
_LAUNCHER_QUICK = "-XX:TieredStopAtLevel=1"
_PLAIN_SETTINGS = re.compile(
    r".+-site\.xml|log4j2?\.(?:properties|xml)|metrics\.properties|fairscheduler\.xml|spark-defaults\.conf|workers"
    r"|.+\.template"
)
"""Names of settings, which may come after the jars on the class path if none of these has such a file too."""
_CHANGES_CLASS_PATH = ("extraclasspath", "driver-class-path", "properties-file", "\\")
_KEPT_FOR_MAKERS = re.compile(
    r"PATH|HOME|JAVA_HOME|SPARK_HOME|SPARK_LOCAL_IP|SPARK_LOCAL_HOSTNAME|XDG_CACHE_HOME|PYSPARK_PYTHON|LANG|LC_.*"
)
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LEAST_FREE_BYTES = 2 << 30
"""Of disk, and of memory: a maker takes up to 1.1 GB of it."""
_MEMORY_OF_GROUPS = {
    "": ("sys/fs/cgroup", "memory.max", "memory.current"),
    "memory": ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
}
"""Of Linux's control groups, by controller as ``/proc/self/cgroup`` names it: where, limit and use; version 2 first."""
_MOST_ARCHIVES = 3
_SECONDS_TO_MAKE = 900
_SECONDS_BETWEEN_TRIES = 3600
_TRIED = "tried"
"""The file whose time is that of the last try, in the folder of archives."""
_CALL_MAKER = """
import sys
sys.path[:] = sys.argv[1:]
from sparkcrypt.spark.setup.class_archive import make_archive
make_archive()
"""
"""Neither ``-m`` nor a file's name: both put a folder first in which other modules may lie."""


def archive_folder() -> Path:
    """Return the folder of archives, in the user's cache folder; it may not exist.

    Raises:
        OSError: the user has no home, or the folder's name has a colon, at which Java would split it.
    """
    return _places()[1]


def _places() -> tuple[Path, Path]:
    """Return the folder that must exist already, the user's cache or home, and that of archives below it."""
    cache = os.environ.get("XDG_CACHE_HOME") or ""
    try:
        above = Path(cache) if cache.startswith("/") else Path.home()  # a relative one is to be ignored
    except RuntimeError as error:
        raise FileNotFoundError("this user has no home") from error
    folder = above.joinpath(*([] if cache.startswith("/") else [".cache"]), "sparkcrypt", "classes")
    if ":" in str(folder) or not folder.is_absolute():
        raise NotADirectoryError(f"{folder} is no name of one folder")
    return above, folder


@contextmanager
def open_own_folder(folder: Path, *, make_below: Path | None = None) -> Iterator[int]:
    """Yield the descriptor of a folder that only this user may look into, below folders that others cannot change.

    Each level is opened without following links and must belong to this user or root; where others may write, they
    could put another folder in the place of the next, which a sticky bit does not prevent for names that are free.

    Args:
        folder: an absolute path.
        make_below: create the levels that are missing below this one.

    Raises:
        OSError: a level is missing, a link or no folder, or somebody else may change it; the folder's mode is not 0700.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open("/", flags)
    try:
        for level, name in enumerate(folder.parts[1:], start=1):
            if make_below is not None and level >= len(make_below.parts):
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=descriptor)
            below = os.open(name, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
            _refuse_others(os.fstat(descriptor), name)
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != 0o700:
            raise PermissionError(f"{folder} is not this user's alone")
        yield descriptor
    finally:
        os.close(descriptor)


def _refuse_others(found: os.stat_result, name: str) -> None:
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & _OTHERS_MAY_WRITE:
        raise PermissionError(f"others may change {name}")


def find_archive(key: str) -> Path | None:
    """Return the archive of a key, if there is one that only this user can have made and whose content is unchanged."""
    with suppress(OSError), open_own_folder(archive_folder()) as descriptor:
        for name in sorted(entry.name for entry in os.scandir(descriptor)):
            if name.startswith(f"{key}-") and name == f"{key}-{_digest_own(descriptor, name)}.jsa":
                return archive_folder() / name
    return None


def _digest_own(folder: int, name: str) -> str | None:
    """Return the SHA-256 of a file of this user that nobody can write to; None if it is anything else."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(name, flags, dir_fd=folder), "rb", buffering=0) as file:
            found = os.fstat(file.fileno())
            own = found.st_uid == os.geteuid() and found.st_nlink == 1
            if not own or found.st_mode != stat.S_IFREG | 0o400:
                return None
            digest, block = hashlib.sha256(), memoryview(bytearray(1 << 20))
            while count := file.readinto(block):
                digest.update(block[:count])
            return digest.hexdigest()
    except OSError:
        return None


def archive_key(home: Path) -> str | None:
    """Return what an archive must fit, as a name: Java, Spark's jars, and the way it is made.

    Jars are described by name, size and time, in the order of their folder, in which Java takes them too.

    Args:
        home: Spark's.

    Returns:
        None if there is no Java, or Spark's jars are not where its releases have them.
    """
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else shutil.which("java")
    try:
        installed = Path(java or "").resolve(strict=True).parents[1]
        virtual_machine = (
            _describe(installed / "lib" / "server" / "libjvm.so"),
            _describe(installed / "lib" / "modules"),
        )
        jars = [_describe(Path(entry.path)) for entry in os.scandir(home / "jars")]
    except (OSError, IndexError):
        return None
    about = (str(installed), virtual_machine, str(home), jars, archive_program(), QUICK)
    return hashlib.sha256(repr(about).encode()).hexdigest()[:32]


def _describe(file: Path) -> tuple[str, int, int]:
    found = file.stat()
    return file.name, found.st_size, found.st_mtime_ns


def class_path(home: Path, conf: Mapping[str, str]) -> str | None:
    """Return the class path that Spark would launch a driver with, folders of settings after the jars.

    A JVM takes no archive whose jars come after a folder that is not empty.

    Args:
        home: Spark's.
        conf: configuration of the launch.

    Returns:
        None where it is not certain: jars are added, a script or a class lies among the settings, they cannot be read,
        or a variable that names their folder names several, which Spark would split, or none.
    """
    try:
        folders, names, defaults = _read_settings(home)
    except OSError:
        return None
    if not all(map(_PLAIN_SETTINGS.fullmatch, names)) or any(map(os.environ.get, _CLASS_PATH_VARIABLES)):
        return None
    texts = (*conf, os.environ.get("PYSPARK_SUBMIT_ARGS", ""), defaults)
    if any(word in text.lower() for text in texts for word in _CHANGES_CLASS_PATH):
        return None
    return ":".join((jars_path(home), *(f"{str(folder).rstrip('/')}/" for folder in folders)))


def _read_settings(home: Path) -> tuple[list[Path], list[str], str]:
    """Return the folders of settings that exist, what lies in Spark's own, and the text of its defaults.

    Raises:
        OSError: they cannot be read, or a variable names several folders or none.
    """
    named = [Path(value) for name in _SETTINGS_VARIABLES if (value := os.environ.get(name))]
    for folder in named:
        if ":" in str(folder) or not folder.is_dir():
            raise NotADirectoryError(folder)
    own = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf")
    if not own.is_dir():
        return named, [], ""
    names, defaults = [entry.name for entry in own.iterdir()], own / "spark-defaults.conf"
    text = defaults.read_text(errors="replace") if defaults.name in names else ""
    return list(dict.fromkeys((own, *named))), names, text


_SETTINGS_VARIABLES = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
_CLASS_PATH_VARIABLES = ("SPARK_DIST_CLASSPATH", "SPARK_PREPEND_CLASSES", "SPARK_TESTING")


def jars_path(home: Path) -> str:
    """Return the class path of Spark's jars alone, with which every class path begins that an archive fits."""
    return ":".join((*map(str, sorted((home / "jars").glob("slf4j-api-*.jar"))), f"{home / 'jars'}/*"))


@contextmanager
def launch_options(options: tuple[str, ...]) -> Iterator[None]:
    """Give options to the JVM of a session that is started in the block, and a short start to what composes them."""
    before = {name: os.environ.get(name) for name in (SUBMIT_OPTIONS, _LAUNCHER_OPTIONS)}
    quoted = ['"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"' for option in options]
    os.environ[SUBMIT_OPTIONS] = " ".join((*quoted, before[SUBMIT_OPTIONS] or ""))
    os.environ.setdefault(_LAUNCHER_OPTIONS, _LAUNCHER_QUICK)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def archive_options(archive: Path) -> tuple[str, ...]:
    """Return the options with which a JVM takes its classes from an archive, and says nothing of one that is unfit."""
    return (f"-XX:SharedArchiveFile={archive}", *_SILENT)


def remove_archive(archive: Path) -> None:
    """Remove an archive with which a JVM did not start; the next is not made at once, as it may be no better."""
    with suppress(OSError), open_own_folder(archive.parent) as folder:
        archive.unlink()
        _mark_try(folder)


def make_in_background() -> int | None:
    """Start a process that makes the archive of this machine's Spark, unless one was tried a short time ago.

    Returns:
        The process's id, or None.
    """
    with suppress(OSError, ValueError):
        above, path = _places()
        with open_own_folder(path, make_below=above) as folder:
            free = min(shutil.disk_usage(folder).free, available_memory())
            if _tried_lately(folder) or free < _LEAST_FREE_BYTES:
                return None
            _mark_try(folder)
            kept = {name: value for name, value in os.environ.items() if _KEPT_FOR_MAKERS.fullmatch(name)}
            maker = subprocess.Popen(
                [sys.executable, "-c", _CALL_MAKER, *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=kept,
                start_new_session=True,
            )
            maker.returncode = 0  # it outlives this process, which is not to warn of that
            return maker.pid
    return None


def available_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process may still take: the machine's, and what its groups' limits leave.

    Args:
        root: where ``/proc`` and ``/sys`` are.

    Raises:
        OSError, ValueError: Linux does not say what the machine has.
    """
    fields = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text().splitlines())
    found = [int(fields.get("MemAvailable", "0 kB").split()[0]) << 10]
    groups = root / "proc/self/cgroup"
    for line in groups.read_text().splitlines() if groups.exists() else ():
        _, controller, path = line.split(":", 2)
        top, limit, used = _MEMORY_OF_GROUPS.get(controller, ("", "", ""))
        group = root / top / path.lstrip("/")
        for level in (group, *group.parents) if top else ():
            with suppress(OSError, ValueError):  # it is not seen from in here, or its limit is "max"
                found.append(int((level / limit).read_text()) - int((level / used).read_text()))
    return min(found)


def _tried_lately(folder: int) -> bool:
    with suppress(OSError):
        age = time.time() - os.stat(_TRIED, dir_fd=folder, follow_symlinks=False).st_mtime
        return 0 <= age < _SECONDS_BETWEEN_TRIES
    return False


def _mark_try(folder: int) -> None:
    """Record that an archive is tried now, of whatever Spark: where that fails, it would be tried without end."""
    os.close(os.open(_TRIED, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder))
    os.utime(_TRIED, dir_fd=folder, follow_symlinks=False)


def make_archive() -> None:
    """Make the archive of this machine's Spark, if there is none and no other process is making one.

    It runs a small job with a metastore of its own, no configuration and no credentials, and gives way to everything
    else that runs here.  A maker that was killed leaves a folder, which the next one removes.
    """
    from pyspark.find_spark_home import _find_spark_home

    _give_way()
    os.umask(0o077)
    home = Path(_find_spark_home())
    key, (above, folder) = archive_key(home), _places()
    if key is None:
        return
    with open_own_folder(folder, make_below=above) as descriptor, _only_maker(descriptor) as alone:
        if not alone or find_archive(key) is not None:
            return
        if _has_settings(home / "jars"):
            return
        for left in folder.glob("making-*"):
            shutil.rmtree(left)
        work = folder / f"making-{os.getpid()}"
        work.mkdir(mode=0o700)
        try:
            made = run_program(home, work)
            if archive_key(home) == key:
                _put_in_place(made, folder, key)
        finally:
            shutil.rmtree(work)


def _give_way() -> None:
    """Take the lowest priority, and have this process ended in time, and Java with the pipe from it.

    Whoever started it may ignore or block that signal, which a process inherits.
    """
    os.nice(19)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.alarm(_SECONDS_TO_MAKE)


def _has_settings(jars: Path) -> bool:
    """Tell whether a jar has settings at its top, which would be found there before those of a folder."""
    for jar in jars.glob("*.[jJ][aA][rR]"):
        with zipfile.ZipFile(jar) as opened:
            if any("/" not in name and _PLAIN_SETTINGS.fullmatch(name) for name in opened.namelist()):
                return True
    return False


@contextmanager
def _only_maker(folder: int) -> Iterator[bool]:
    """Hold the lock of makers, which ends with the process; yield False if another process has it."""
    lock = os.open("lock", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(lock)


def _put_in_place(made: Path, folder: Path, key: str) -> None:
    """Give a finished archive its name, which has its digest, and remove damaged ones and the oldest of too many."""
    made.chmod(0o400)
    with open_own_folder(made.parent) as work:
        digest = _digest_own(work, made.name)
    for damaged in folder.glob(f"{key}-*.jsa"):
        damaged.unlink()
    made.rename(folder / f"{key}-{digest}.jsa")
    for old in sorted(folder.glob("*.jsa"), key=lambda file: file.lstat().st_mtime, reverse=True)[_MOST_ARCHIVES:]:
        old.unlink()


def archive_program() -> tuple[str, ...]:
    """Return the statements that a maker runs: what commands do of which they have classes."""
    return (
        "CREATE TABLE t (id BIGINT, text STRING, p INT) USING parquet PARTITIONED BY (p)",
        "INSERT INTO t SELECT id, string(id), id % 2 FROM range(10)",
        "ALTER TABLE t SET TBLPROPERTIES ('a' = 'b')",
        "ALTER TABLE t CHANGE COLUMN text COMMENT 'c'",
        "SELECT t.text, count(*) FROM t JOIN t AS u ON t.id = u.id GROUP BY t.text",
        "SHOW PARTITIONS t",
        "DESCRIBE EXTENDED t",
        "DROP TABLE t",
    )


def run_program(home: Path, work: Path) -> Path:
    """Run the statements in a JVM that leaves an archive when it ends, and wait for its end.

    Args:
        home: Spark's.
        work: an empty folder, which becomes the present one.

    Returns:
        The archive, which is there if the JVM could write it.
    """
    from pyspark.sql import SparkSession

    os.chdir(work)
    made = work / "made.jsa"
    (work / "settings").mkdir()
    os.environ["SPARK_CONF_DIR"] = str(work / "settings")
    options = (
        *("-cp", jars_path(home), f"-XX:ArchiveClassesAtExit={made}", *_SILENT),
        *(*QUICK, f"-Djava.io.tmpdir={work}", f"-Dderby.system.home={work}"),
    )
    with launch_options(options):
        spark = (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.authenticate", "true")  # others of this machine reach its ports
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.local.dir", str(work))
            .config("spark.sql.warehouse.dir", (work / "warehouse").as_uri())
            .enableHiveSupport()
            .getOrCreate()
        )
    for statement in archive_program():
        spark.sql(statement).collect()
    spark.createDataFrame([(1, "x")], "id INT, text STRING").collect()
    spark.stop()
    java = end_java()
    if java is not None:
        java.wait()
    return made


def end_java() -> subprocess.Popen[bytes] | None:
    """End the JVM that pyspark started in this process, whose next session starts another; return its process."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    if gateway is None:
        return None
    java: subprocess.Popen[bytes] = gateway.proc
    with suppress(Py4JError, OSError):  # it may have ended by itself
        gateway.shutdown()
    if java.stdin is not None:
        with suppress(OSError):
            java.stdin.close()
    return java

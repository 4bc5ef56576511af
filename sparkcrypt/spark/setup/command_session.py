"""Provides the Spark session of a command or job: the active one, or a new quiet one with Hive support."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sparkcrypt import names
from sparkcrypt.errors import ConfigError, show
from sparkcrypt.spark.jvm.failures import short_text
from sparkcrypt.spark.setup.class_archive import (
    OFF,
    PATIENT,
    QUICK,
    archive_key,
    archive_options,
    class_path,
    end_java,
    find_archive,
    launch_options,
    make_in_background,
    remove_archive,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET = {"spark.log.level": "FATAL", "spark.ui.showConsoleProgress": "false"}
"""At ERROR every failed task prints its whole Java stack trace before the one line with the reason."""
_STDERR = 2
_HELD_CHUNKS, _CHUNK_BYTES = 1_000, 1 << 16
_PYTHON = "spark.pyspark.python"
_OF_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, whose JVM starts before Python does, with the logging that its user configured."""
_SHARED: ContextVar[Callable[[], SparkSession] | None] = ContextVar("_SHARED", default=None)
"""What returns the session of the commands in a `shared_session`."""


def allows_http(spark: SparkSession) -> bool:
    """Tell whether the launch configuration allows plain http to services on other machines.

    Raises:
        ConfigError: the setting is neither true nor false.
    """
    value = str(spark.sparkContext._jsc.sc().conf().get(names.ALLOW_HTTP, "false")).strip().lower()
    if value not in ("true", "false"):
        raise ConfigError(f"{names.ALLOW_HTTP} is {show(value)}; allowed: true, false")
    return value == "true"


def principal_of(spark: SparkSession) -> str:
    """Return the name of this application's reader in messages and access events."""
    named = spark.sparkContext._jsc.sc().conf().get(names.PRINCIPAL, "")
    return str(named).strip() or str(spark.sparkContext.sparkUser())


@contextmanager
def spark_session(
    app_name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    verbose: bool = False,
    short: bool = False,
) -> Iterator[SparkSession]:
    """Yield a classic session with Hive support; stop it afterwards unless its application was already running.

    A thread without an active session gets the session of the running application.

    Under ``spark-submit`` the session is that application's; elsewhere Spark is started as SPARK_HOME, SPARK_CONF_DIR
    and spark-defaults.conf configure it.

    Args:
        app_name: the application's name in Spark's UI and the resource manager.
        master: as ``spark-submit --master``; by default Spark's configuration decides.
        conf: further configuration.
        verbose: keep Spark's own logging and progress; otherwise they are off if this call starts the JVM, and nothing
            that it prints until it has its session is shown, unless it gets none.
        short: nothing in the block reads or writes rows in bulk, so a JVM that this call starts compiles with its first
            compiler alone.  It ends with the block, so that nothing else ever runs in it.

    Raises:
        ConfigError: there is no pyspark or no Java, Spark cannot be started, SPARK_REMOTE asks for Spark Connect, or
            other commands share the session and this one asks for settings of its own.
    """
    shared = _SHARED.get()
    if shared is None:
        with _own_session(app_name, master=master, conf=conf, verbose=verbose, short=short) as spark:
            yield spark
        return
    if master or conf or verbose:
        raise ConfigError(
            "this command shares its session with others, so it has no --master, --conf or --verbose of its own; give "
            "them to `sparkcrypt batch`, or run this command alone"
        )
    yield shared()


@contextmanager
def shared_session(
    app_name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None, verbose: bool = False
) -> Iterator[None]:
    """Have one session serve every `spark_session` of the block; the first starts it, with all compilers.

    Args:
        app_name: as for `spark_session`, as the others are.
        master: Spark's master.
        conf: further configuration.
        verbose: keep Spark's own logging and progress.
    """
    with ExitStack() as stack:

        @cache
        def start() -> SparkSession:
            return stack.enter_context(_own_session(app_name, master=master, conf=conf, verbose=verbose, short=False))

        outside = _SHARED.set(start)
        try:
            yield
        finally:
            _SHARED.reset(outside)


@contextmanager
def _own_session(
    app_name: str, *, master: str | None, conf: Mapping[str, str] | None, verbose: bool, short: bool
) -> Iterator[SparkSession]:
    """Yield the session that is active, or one that lives as long as the block; see `spark_session`."""
    require_pyspark()
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if os.environ.get("SPARK_REMOTE"):
        raise ConfigError(
            "SPARK_REMOTE is set, and a Spark Connect client cannot do this; unset it, or run with spark-submit on the "
            "machine of the Connect server"
        )
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    builder = SparkSession.builder.appName(app_name).enableHiveSupport()
    if master:
        builder = builder.master(master)
    quiet = {} if verbose or _OF_SPARK_SUBMIT in os.environ else _QUIET
    for name, value in {**quiet, **(conf or {})}.items():
        builder = builder.config(name, value)
    lived_before = SparkContext._active_spark_context is not None
    launches = SparkContext._gateway is None and not os.environ.get(_OF_SPARK_SUBMIT)
    starts_java = launches and not os.environ.get(OFF)
    if launches:
        require_java()
    try:
        with hold_start() if launches and not verbose else nullcontext(_STDERR) as prints_to:
            start = partial(_start, builder, conf or {}, prints_to, short=short)
            launch = partial(_launch, builder, None, prints_to)
            spark = start() if starts_java else launch() if launches else builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise ConfigError(
            f"Spark cannot be started: {short_text(error)}; look at JAVA_HOME (Java 17 or later), SPARK_HOME, the "
            "master and the configuration, or run again with --verbose"
        ) from error
    try:
        yield spark
    finally:
        if not lived_before:
            spark.stop()
        if starts_java and short:
            end_java()


@contextmanager
def hold_start() -> Iterator[int]:
    """Yield a file descriptor of which nothing is shown until the block has ended, and what was held if it failed.

    A JVM prints lines that no setting of its logging stops: of its modules, of its options, of the host's name.  What
    is written to the descriptor after the block goes to stderr.
    """
    reads, writes = os.pipe()
    held, mutex, shown = deque[bytes](maxlen=_HELD_CHUNKS), threading.Lock(), False

    def relay() -> None:
        while chunk := os.read(reads, _CHUNK_BYTES):
            with mutex:
                if shown:
                    os.write(_STDERR, chunk)
                else:
                    held.append(chunk)
        os.close(reads)

    threading.Thread(target=relay, name="lines of the JVM", daemon=True).start()
    try:
        yield writes
    except BaseException:
        with mutex:
            os.write(_STDERR, b"".join(held))
        raise
    finally:
        with mutex:
            shown = True
        os.close(writes)


def require_java() -> None:
    """Refuse to start a JVM where there is no Java, by the rules of Spark's scripts.

    Raises:
        ConfigError: JAVA_HOME names no Java, or is not set and there is no ``java`` on the PATH.
    """
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(Path(home) / "bin" / "java", os.X_OK):
        reason = f"JAVA_HOME is {home}, where there is no bin/java"
    elif not home and shutil.which("java") is None:
        reason = "JAVA_HOME is not set, and there is no java on the PATH"
    else:
        return
    raise ConfigError(
        f"Spark cannot be started without Java: {reason}; allowed: Java 17 or later; install a JDK, and set JAVA_HOME "
        "to its folder"
    )


def _start(builder: SparkSession.Builder, conf: Mapping[str, str], prints_to: int, *, short: bool) -> SparkSession:
    """Start a session and its JVM, which takes its classes from an archive if there is a safe one.

    A JVM that ends before it has a session is started again without the archive, which is removed if that was all it
    took, and at last as Spark starts it: options that a user's variables give to every JVM may not go with ours.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.find_spark_home import _find_spark_home

    home, compilers = Path(_find_spark_home()), QUICK if short else PATIENT
    path, key = class_path(home, conf), archive_key(home)
    archive = find_archive(key) if path and key else None
    attempts = [compilers]
    if archive is not None and path is not None:
        attempts.insert(0, ("-cp", path, *archive_options(archive), *compilers))
    elif path and key:
        atexit.register(make_in_background)
    for options in attempts:
        try:
            spark = _launch(builder, options, prints_to)
        except (PySparkException, Py4JError, OSError):
            if SparkContext._gateway is not None and SparkContext._gateway.proc.poll() is None:
                raise
            end_java()
        else:
            if archive is not None and options == compilers:
                remove_archive(archive)
            return spark
    return _launch(builder, None, prints_to)


def _launch(builder: SparkSession.Builder, options: tuple[str, ...] | None, prints_to: int) -> SparkSession:
    """Start a JVM and its session; what the JVM prints, such as that it dies, goes to a file descriptor.

    Without options, not even an empty tuple, what composes the launch starts as Spark starts it too.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf()
    for name, value in builder._options.items():
        conf.set(name, str(value))
    with nullcontext() if options is None else launch_options(options):
        prints = {"stdout": prints_to, "stderr": prints_to}
        gateway = launch_gateway(conf, prints)  # type: ignore[no-untyped-call]  # pyspark's
        SparkContext._ensure_initialized(gateway=gateway)
    spark = builder.getOrCreate()
    context = spark.sparkContext
    context.pythonExec = spark.conf.get(_PYTHON, context.pythonExec) or context.pythonExec  # as spark-submit takes it
    return spark


def print_error_line(text: str) -> bool:
    """Print a line to the stderr of ``spark-submit``; return False, without printing, in any other process.

    PythonRunner merges a Python driver's stderr into spark-submit's stdout, so only the JVM can write to its stderr.
    """
    if _OF_SPARK_SUBMIT not in os.environ:
        return False
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    machine = SparkContext._jvm
    if machine is None:
        return False
    machine.java.lang.System.err.println(text)
    return True


def require_pyspark() -> None:
    """Make pyspark importable: the installed one, or else the one in SPARK_HOME.

    Raises:
        ConfigError: neither exists.
    """
    if find_spec("pyspark") is not None:
        return
    python = Path(os.environ.get("SPARK_HOME") or "/nowhere") / "python"
    bridges = sorted((python / "lib").glob("py4j-*.zip"))
    if (python / "pyspark").is_dir() and bridges:
        sys.path[:0] = [str(python), str(bridges[-1])]
        return
    raise ConfigError(
        "this needs pyspark, which this interpreter does not have; run it with spark-submit, set SPARK_HOME to a Spark "
        "or pip install 'sparkcrypt[spark]'"
    )

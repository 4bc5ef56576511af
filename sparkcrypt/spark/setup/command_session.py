"""The Spark session of a command or job: the one that lives already, else one with Hive support, and quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sparkcrypt import names
from sparkcrypt.errors import ConfigError, show
from sparkcrypt.spark.jvm.failures import short_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET = {"spark.log.level": "FATAL", "spark.ui.showConsoleProgress": "false"}
"""At ERROR every task that fails prints its whole Java stack before the one line that says why."""
_OF_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, whose JVM is up before Python starts, with the logging that its user chose."""


def allows_http(spark: SparkSession) -> bool:
    """Tell whether the launch configuration lets services on other machines be spoken to over plain http.

    Raises:
        ConfigError: it says neither true nor false.
    """
    said = str(spark.sparkContext._jsc.sc().conf().get(names.ALLOW_HTTP, "false")).strip().lower()
    if said not in ("true", "false"):
        raise ConfigError(f"{names.ALLOW_HTTP} is {show(said)}; allowed: true, false")
    return said == "true"


def principal_of(spark: SparkSession) -> str:
    """Return who reads in this application, as messages and access events name him."""
    named = spark.sparkContext._jsc.sc().conf().get(names.PRINCIPAL, "")
    return str(named).strip() or str(spark.sparkContext.sparkUser())


@contextmanager
def spark_session(
    app_name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None, verbose: bool = False
) -> Iterator[SparkSession]:
    """Yield a classic session with Hive support; it is stopped afterwards unless its application ran before.

    A thread of an application that has no active session of its own gets the application's session.

    Under ``spark-submit`` the session is that application's; elsewhere Spark is started as SPARK_HOME, SPARK_CONF_DIR
    and spark-defaults.conf say.

    Args:
        app_name: shown in Spark's UI and by the resource manager.
        master: as ``spark-submit --master``; what Spark's configuration says by default.
        conf: further configuration.
        verbose: keep Spark's own logging and progress; else they are cut off where this starts the JVM.

    Raises:
        ConfigError: there is no pyspark, Spark cannot be started, or the environment asks for Spark Connect.
    """
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
    try:
        spark = builder.getOrCreate()
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


def print_error_line(text: str) -> bool:
    """Print a line to the stderr of ``spark-submit``; False elsewhere, where it is this process's own.

    PythonRunner joins a Python driver's stderr into spark-submit's stdout; only the JVM can still tell the two apart.
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
    """Make pyspark importable: the installed one, else that of SPARK_HOME.

    Raises:
        ConfigError: there is neither.
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

"""A Spark server on 127.0.0.1, launched as by an operator, with spark-submit and a conf."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.services.installed import spark_environment, spark_home
from tests.services.processes import ServiceProcess, start_process, wait_until
from tests.services.quick_java import quick_java

START_SECONDS = 180.0


def start_spark_server(
    name: str,
    main_class: str,
    ready: Callable[[], bool],
    work_dir: Path,
    conf: Mapping[str, str],
    arguments: Sequence[str] = (),
) -> ServiceProcess:
    """Start a server in local mode with two cores; return when it is ready.

    Args:
        name: the name of its log.
        main_class: the server's main class.
        ready: whether its clients can use it.
        work_dir: log, warehouse and Derby database.
        conf: Spark properties, which override those set here.
        arguments: the server's own arguments.

    Raises:
        ServiceUnavailableError: there is no JDK or no Spark.
        ServiceFailedError: it did not become ready.
    """
    properties = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": (work_dir / "warehouse").as_uri(),
        **conf,
    }
    command: list[str | Path] = [spark_home() / "bin" / "spark-submit"]
    for key, value in properties.items():
        command += ["--conf", f"{key}={value}"]
    command += ["--class", main_class, "spark-internal", *arguments]
    process = start_process(name, command, work_dir, quick_java(spark_environment()))
    wait_until(ready, process, START_SECONDS)
    return process

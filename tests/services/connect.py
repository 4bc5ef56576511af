"""A Spark Connect server on 127.0.0.1, launched with the jar and a conf, as an operator launches it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.services.installed import spark_home
from tests.services.maven import Jar, fetched_folder
from tests.services.processes import LOCAL, ServiceProcess, accepts, free_port
from tests.services.spark_server import start_spark_server

JAR = Jar(
    "org.apache.spark",
    "spark-connect_2.12",
    "3.5.7",
    "15366e21273a874c760b51fa00743a2acb8fa78642cc35d7a076a3ade0c5eef6",
)
"""For Spark 3.5."""
SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """A running Connect server and the URL that ``SparkSession.builder.remote`` takes."""

    url: str
    process: ServiceProcess

    def stop(self) -> None:
        """End the server with its sessions."""
        self.process.stop()


def start_connect_server(
    work_dir: Path, conf: Mapping[str, str] | None = None, jar: Path | None = None
) -> ConnectServer:
    """Start a server in local mode with two cores; return when it accepts connections, as its clients try again.

    Args:
        work_dir: log, warehouse and Derby database.
        conf: Spark properties, which override those set here.
        jar: added to the class path of driver and executors.

    Raises:
        ServiceUnavailableError: there is no JDK or no Spark, or Spark 3.5's jar of the server cannot be fetched.
        ServiceFailedError: it did not become ready.
    """
    port = free_port()
    given = dict(conf or {})
    jars = [*_own_jars(), *([str(jar)] if jar else []), *filter(None, [given.pop("spark.jars", "")])]
    binding = {
        "spark.connect.grpc.binding.address": LOCAL,
        "spark.connect.grpc.binding.port": str(port),
        **({"spark.jars": ",".join(jars)} if jars else {}),
    }
    process = start_spark_server("connect", SERVER_CLASS, lambda: accepts(port), work_dir, {**binding, **given})
    return ConnectServer(f"sc://{LOCAL}:{port}", process)


def _own_jars() -> list[str]:
    """Return the server's jar for a Spark before 4.0, which ships none."""
    if any((spark_home() / "jars").glob("spark-connect_*.jar")):
        return []
    return [str(fetched_folder(f"connect-{JAR.revision}", (JAR,)) / JAR.file)]

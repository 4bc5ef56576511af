"""A Spark Connect server on 127.0.0.1, launched with the jar and a conf, as an operator would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.services.processes import LOCAL, ServiceProcess, free_port
from tests.services.spark_server import start_spark_server

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
    """Start a server in local mode with two cores; returns when it takes connections.

    Args:
        work_dir: log, warehouse and Derby database.
        conf: Spark properties, which win over the ones set here.
        jar: put on the class path of driver and executors.

    Raises:
        ServiceUnavailableError: there is no JDK or no Spark.
        ServiceFailedError: it did not come up.
    """
    port = free_port()
    binding = {
        "spark.connect.grpc.binding.address": LOCAL,
        "spark.connect.grpc.binding.port": str(port),
        **({"spark.jars": str(jar)} if jar else {}),
    }
    process = start_spark_server("connect", SERVER_CLASS, port, work_dir, {**binding, **(conf or {})})
    return ConnectServer(f"sc://{LOCAL}:{port}", process)

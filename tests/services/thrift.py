"""Spark's Thrift server on 127.0.0.1, launched with the jar and a conf, and beeline as its client."""

from __future__ import annotations

import socket
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.services.installed import spark_environment, spark_home
from tests.services.processes import ANSWER_SECONDS, LOCAL, ServiceProcess, free_port
from tests.services.quick_java import quick_home
from tests.services.spark_server import start_spark_server

BEELINE_SECONDS = 180.0
SERVER_CLASS = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
SASL_START, SASL_COMPLETE = b"\x01", b"\x05"
"""The first byte of messages of a login in Thrift's transport."""


@dataclass(frozen=True, slots=True)
class ThriftServer:
    """A running Thrift server and the URL that JDBC takes."""

    url: str
    process: ServiceProcess

    def stop(self) -> None:
        """End the server with its sessions."""
        self.process.stop()

    def ask(
        self, *statements: str, user: str = "ann", conf: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run statements in order in one session of Spark's own beeline, even after a failed one.

        Args:
            statements: SQL statements.
            user: the user that beeline logs in as.
            conf: settings of the session that the client names at its login.

        Returns:
            Its output: rows as ``csv2`` below a line of column names, and error messages.
        """
        command: list[str | Path] = [
            quick_home() / "bin" / "java",
            "-Xmx256m",
            "-cp",
            f"{spark_home() / 'jars'}/*",
        ]
        command += ["org.apache.hive.beeline.BeeLine", "-u", self.url, "-n", user]
        for name, value in (conf or {}).items():
            command += ["--hiveconf", f"{name}={value}"]
        command += ["--outputformat=csv2", "--silent=true", "--force=true"]
        for statement in statements:
            command += ["-e", statement]
        return subprocess.run(
            command,
            env=spark_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BEELINE_SECONDS,
            check=False,
        )


def start_thrift_server(work_dir: Path, conf: Mapping[str, str]) -> ThriftServer:
    """Start a server in local mode with two cores; return when it answers a login, which beeline tries once.

    Args:
        work_dir: log, warehouse and Derby database.
        conf: Spark properties, which override those set here.

    Raises:
        ServiceUnavailableError: there is no JDK or no Spark.
        ServiceFailedError: it did not become ready.
    """
    port = free_port()
    binding = {"hive.server2.thrift.bind.host": LOCAL, "hive.server2.thrift.port": str(port)}
    arguments = [text for name, value in binding.items() for text in ("--hiveconf", f"{name}={value}")]
    process = start_spark_server("thrift", SERVER_CLASS, lambda: _answers_login(port), work_dir, conf, arguments)
    return ThriftServer(f"jdbc:hive2://{LOCAL}:{port}/default", process)


def _answers_login(port: int) -> bool:
    """Log in as beeline does, by SASL's mechanism PLAIN; no session is opened."""
    name, login = b"PLAIN", b"\0ann\0ann"
    try:
        with socket.create_connection((LOCAL, port), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(SASL_START + struct.pack(">I", len(name)) + name)
            connection.sendall(SASL_COMPLETE + struct.pack(">I", len(login)) + login)
            return connection.recv(1) == SASL_COMPLETE
    except OSError:
        return False

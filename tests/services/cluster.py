"""A standalone Spark cluster on 127.0.0.1: a master and its workers, each a process of its own."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.services.installed import spark_environment, spark_home
from tests.services.processes import (
    ANSWER_SECONDS,
    DIRECT,
    LOCAL,
    ServiceProcess,
    accepts,
    free_port,
    start_process,
    wait_until,
)

START_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster; executors inherit the environment that the workers were started with."""

    master_url: str
    processes: tuple[ServiceProcess, ...]

    def stop(self) -> None:
        """End the workers, with their executors, and then the master."""
        for process in reversed(self.processes):
            process.stop()


def start_cluster(
    work_dir: Path,
    env: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    workers: int = 2,
    cores: int = 1,
) -> Cluster:
    """Start a master and workers of 1 GiB each; returns when every worker is registered.

    Args:
        work_dir: logs, conf and the executors' working folders.
        env: added to the environment of master, workers and so of every executor. Where drivers are quick ones
            (`quick_java`), so must these be: a driver's file system is named to executors.
        conf: Spark properties of the daemons themselves; a job's own conf is the job's.
        workers: how many.
        cores: how many tasks each runs at a time, whatever the machine has.

    Raises:
        ServiceUnavailableError: there is no JDK or no Spark.
        ServiceFailedError: one of the processes did not come up.
    """
    own = {
        "SPARK_CONF_DIR": str(_write_conf(work_dir, conf or {})),
        "SPARK_DAEMON_MEMORY": "512m",
    }
    environment = spark_environment({**own, **(env or {})})
    started: list[ServiceProcess] = []
    try:
        port, page = free_port(), free_port()
        master = _start_daemon(
            work_dir, environment, "master", "--host", LOCAL, "--port", str(port), "--webui-port", str(page)
        )
        started.append(master)
        wait_until(lambda: accepts(port) and accepts(page), master, START_SECONDS)
        url = f"spark://{LOCAL}:{port}"
        for number in range(workers):
            folder = work_dir / f"worker-{number}"
            sizes = ("--cores", str(cores), "--memory", "1g", "--webui-port", str(free_port()))
            places = ("--host", LOCAL, "--work-dir", str(folder))
            started.append(_start_daemon(work_dir, environment, f"worker-{number}", *places, *sizes, url))
        for worker in started[1:]:
            wait_until(lambda: _alive_workers(page) >= workers, worker, START_SECONDS)
    except BaseException:
        Cluster("", tuple(started)).stop()
        raise
    return Cluster(url, tuple(started))


def _write_conf(work_dir: Path, conf: Mapping[str, str]) -> Path:
    folder = work_dir / "cluster-conf"
    folder.mkdir(parents=True, exist_ok=True)
    # The REST gateway would listen on a fixed port.
    settings = {"spark.master.rest.enabled": "false", **conf}
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    return folder


def _start_daemon(work_dir: Path, environment: Mapping[str, str], name: str, *arguments: str) -> ServiceProcess:
    kind = "master.Master" if name == "master" else "worker.Worker"
    command: list[str | Path] = [spark_home() / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *arguments]
    return start_process(name, command, work_dir, environment)


def _alive_workers(page: int) -> int:
    """Ask the master's web page, which tells its state as JSON; one that is starting answers with an empty page."""
    try:
        with DIRECT.open(f"http://{LOCAL}:{page}/json/", timeout=ANSWER_SECONDS) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, OverflowError):
        return 0

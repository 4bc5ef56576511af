"""Service processes: started in their own group, waited for with a deadline, stopped by the group's id."""

from __future__ import annotations

import http
import http.client
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.services import ServiceFailedError

LOCAL = "127.0.0.1"
STOP_SECONDS = 10.0
POLL_SECONDS = 0.1
ANSWER_SECONDS = 5.0
LOG_TAIL_CHARACTERS = 3000


@dataclass(frozen=True, slots=True)
class ServiceProcess:
    """A running process, its group (of the same id) and the file that it logs to."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its group."""
        return self.process.pid

    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def log_tail(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:] if self.log.exists() else ""

    def stop(self) -> None:
        """Terminate the whole group, and kill it after ten seconds; a second call does nothing."""
        _signal_group(self.pid, signal.SIGTERM)
        try:
            self.process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            _signal_group(self.pid, signal.SIGKILL)
            self.process.wait(timeout=STOP_SECONDS)
        _end_stragglers(self.pid)


def start_process(
    name: str, command: Sequence[str | Path], work_dir: Path, env: Mapping[str, str] | None = None
) -> ServiceProcess:
    """Start a command in its own process group, logging to ``<work_dir>/<name>.log``.

    If ``setpriv`` (util-linux) is installed, the process also ends when its starter dies without stopping it.

    Args:
        name: its name in messages and of the log.
        command: program and arguments.
        work_dir: the working folder of the process, created if missing.
        env: the complete environment; this process's if None.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    log = work_dir / f"{name}.log"
    tied = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*tied, *map(str, command)],
            cwd=work_dir,
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return ServiceProcess(name, process, log)


def wait_until(ready: Callable[[], bool], service: ServiceProcess, deadline_seconds: float) -> None:
    """Wait for a service to be ready; stop it if it is not.

    Args:
        ready: asked again and again; an error that it raises ends the wait.
        service: the process.
        deadline_seconds: how long to wait at most.

    Raises:
        ServiceFailedError: it ended, or was not ready in time; the message contains the end of its log.
    """
    end = time.monotonic() + deadline_seconds
    try:
        while service.alive() and time.monotonic() < end:
            if ready():
                return
            time.sleep(POLL_SECONDS)
    except BaseException:
        service.stop()
        raise
    what = f"was not ready within {deadline_seconds:g} s" if service.alive() else "ended before it was ready"
    service.stop()
    raise ServiceFailedError(f"{service.name} {what}; the end of {service.log}:\n{service.log_tail()}")


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is free now, and that this process has not returned before.

    It lies below the ports that the kernel gives to outgoing connections, so none takes it before the service does,
    and a client that polls it cannot connect to itself.
    """
    for port in _PORTS:
        with socket.socket() as listener, suppress(OSError):
            listener.bind((LOCAL, port))
            return port
    raise ServiceFailedError("no TCP port from 10240 to 32239 is free on 127.0.0.1")


def _ports_of_this_process() -> Iterator[int]:
    """Yield ports from an offset of this process, so that parallel processes do not use the same ones."""
    first, count, places = 10_240, 1_000, 22
    mine = os.getpid() % places
    return (first + (mine * count + number) % (count * places) for number in range(count * places))


_PORTS = _ports_of_this_process()


def accepts(port: int) -> bool:
    """Return whether something listens on this port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOCAL, port)) == 0


DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens URLs of services; a proxy of the environment would answer for a service that does not run."""


def answers(url: str) -> bool:
    """Return whether a server answers a request by HTTP, and not with an error of its own (5xx).

    A server may listen, and accept connections, before it can answer.
    """
    try:
        with DIRECT.open(url, timeout=ANSWER_SECONDS):
            return True
    except urllib.error.HTTPError as error:
        return error.code < http.HTTPStatus.INTERNAL_SERVER_ERROR
    except (OSError, http.client.HTTPException):
        return False


def _end_stragglers(group: int) -> None:
    """Kill processes that outlived the group's leader, and wait until the group has no member."""
    end = time.monotonic() + STOP_SECONDS
    while _signal_group(group, signal.SIGKILL) and time.monotonic() < end:
        time.sleep(POLL_SECONDS)


def _signal_group(group: int, number: signal.Signals) -> bool:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def has_ended(pid: int, seconds: float = 5.0) -> bool:
    """Return whether a process has ended, or is a zombie, within this time."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False

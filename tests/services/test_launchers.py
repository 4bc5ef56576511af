"""The launchers start their services, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.services import ServiceFailedError, ServiceUnavailableError
from tests.services.hdfs import JARS, REPOSITORY, Hdfs, fetched_jars
from tests.services.metastore import Metastore
from tests.services.processes import start_process, wait_until


def _eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def _runs(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _group(pid: int) -> list[int]:
    """Return every live process of the group."""
    numbers = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    return [number for number in numbers if _runs(number) and _process_group(number) == pid]


LOOPBACK = "127.0.0.1"


def _listens_on(pid: int) -> list[tuple[str, int]]:
    """Return the addresses and ports on which a process listens, of IPv4 and IPv6, from Linux's /proc."""
    sockets = {str(Path(link).readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                address, port = local.split(":")
                words = b"".join(bytes.fromhex(address[n : n + 8])[::-1] for n in range(0, len(address), 8))
                found.append(
                    (socket.inet_ntop(socket.AF_INET, words[-4:]) if _is_ipv4(words) else "IPv6", int(port, 16))
                )
    return found


def _is_ipv4(words: bytes) -> bool:
    return len(words) == 4 or words[:12] == bytes(10) + b"\xff\xff"


def _process_group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def test_a_service_that_ends_early_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    """A process that ends before it is ready raises at once, and the message contains its log."""
    process = start_process("broken", [sys.executable, "-c", "print('no such database')"], tmp_path)
    with pytest.raises(ServiceFailedError, match=r"broken ended before it was ready.*(?s:.*)no such database"):
        wait_until(lambda: False, process, 30)


def test_a_service_that_is_never_ready_is_stopped_at_its_deadline(tmp_path: Path) -> None:
    """After the deadline the process is stopped, not left behind."""
    process = start_process("slow", [sys.executable, "-c", "import time; time.sleep(600)"], tmp_path)
    with pytest.raises(ServiceFailedError, match=r"slow was not ready within 0\.3 s"):
        wait_until(lambda: False, process, 0.3)
    assert not _runs(process.pid)


@pytest.mark.slow
def test_stopping_ends_children_that_ignore_the_request(tmp_path: Path) -> None:
    """A child that ignores SIGTERM ends with its group, and a second stop does nothing."""
    script = (
        "import signal, subprocess, sys, time\n"
        "child = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); '\n"
        "child += 'print(1, flush=True); time.sleep(600)'\n"
        "process = subprocess.Popen([sys.executable, '-c', child], stdout=subprocess.PIPE)\n"
        "process.stdout.readline(); print('ready', flush=True); time.sleep(600)\n"
    )
    process = start_process("parent", [sys.executable, "-c", script], tmp_path)
    wait_until(lambda: "ready" in process.log_tail(), process, 30)
    assert len(_group(process.pid)) == 2
    process.stop()
    process.stop()
    assert _group(process.pid) == []


def test_a_service_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    """A launcher that is killed before it can stop its service leaves none behind."""
    script = (
        "import sys, time; from pathlib import Path; from tests.services.processes import start_process\n"
        "service = start_process('orphan', [sys.executable, '-c', 'import time; time.sleep(600)'], Path(sys.argv[1]))\n"
        "print(service.pid, flush=True); time.sleep(600)\n"
    )
    root = Path(__file__).resolve().parents[2]
    starter = start_process(
        "starter",
        [sys.executable, "-c", script, tmp_path],
        tmp_path,
        {**os.environ, "PYTHONPATH": str(root)},
    )
    wait_until(lambda: bool(starter.log_tail().strip()), starter, 30)
    service = int(starter.log_tail())
    assert _runs(service)
    os.kill(starter.pid, signal.SIGKILL)
    assert _eventually(lambda: not _runs(service))
    starter.stop()


@pytest.mark.services
@pytest.mark.slow
def test_services_of_java_listen_on_the_loopback_address_alone(metastore: Metastore, hdfs: Hdfs) -> None:
    """Neither the metastore, which has no setting for it, nor any port of HDFS can be reached from another machine."""
    for service in (metastore.process, hdfs.process):
        found = _listens_on(service.pid)
        assert found
        assert {address for address, _ in found} == {LOOPBACK}


@pytest.mark.slow
def test_jars_with_other_bytes_are_not_used(
    java: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A repository that serves another file under a jar's name is an error, and nothing is kept."""
    for jar in JARS:
        folder = tmp_path / "maven" / jar.organisation.replace(".", "/") / jar.name / jar.revision
        folder.mkdir(parents=True)
        (folder / jar.file).write_bytes(b"forged")
        (folder / f"{jar.name}-{jar.revision}.pom").write_text(
            f"<project><modelVersion>4.0.0</modelVersion><groupId>{jar.organisation}</groupId>"
            f"<artifactId>{jar.name}</artifactId><version>{jar.revision}</version></project>"
        )
    monkeypatch.setenv(REPOSITORY, (tmp_path / "maven").as_uri())
    monkeypatch.setenv("SPARKCRYPT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ServiceUnavailableError, match="other bytes"):
        fetched_jars()
    assert not list((tmp_path / "cache").rglob("*.jar"))

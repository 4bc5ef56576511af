"""The helper process without a JVM: what it does when its pipe, its libraries or its key service misbehave."""

from __future__ import annotations

import base64
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sparkcrypt
from sparkcrypt.bridge.client import HelperClient, helper_command
from sparkcrypt.errors import BridgeError, KeyAccessDeniedError, KeyServiceUnavailableError
from sparkcrypt.keys.opened import KEY_LOG
from tests.faults.conftest import Faults
from tests.services.processes import has_ended

KEY = bytes(range(32))


@pytest.fixture
def helper(jar: Path, faults: Faults) -> Iterator[HelperClient]:
    """A helper that runs from the jar, with the faulty key service."""
    with HelperClient(helper_command(jar), environment=faults.environment, deadline_seconds=20) as client:
        yield client


def wrap(client: HelperClient, faults: Faults, key_id: str = "a") -> str:
    """Wrap the test key."""
    key = base64.b64encode(KEY).decode()
    return str(client.call("wrap", key_service=faults.key_service, key_id=key_id, key=key)["wrapped"])


def unwrap(client: HelperClient, faults: Faults, key_id: str, wrapped: str) -> bytes:
    """Unwrap under a key id, which may ask for a fault."""
    answer = client.call("unwrap", key_service=faults.key_service, key_id=key_id, wrapped=wrapped)
    return base64.b64decode(answer["key"])


def test_wrap_and_unwrap(jar: Path, faults: Faults, tmp_path: Path) -> None:
    """A wrapped key comes back, and the log of key calls has both calls."""
    log = tmp_path / "calls.jsonl"
    environment = {**faults.environment, KEY_LOG: str(log)}
    with HelperClient(helper_command(jar), environment=environment, deadline_seconds=20) as helper:
        assert unwrap(helper, faults, "a", wrap(helper, faults)) == KEY
        pid = helper.pid
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    assert calls == [{"op": op, "key_id": "a", "pid": pid, "outcome": "ok"} for op in ("wrap", "unwrap")]


def test_helper_leaves_no_core_dump(jar: Path, faults: Faults) -> None:
    """Whatever limit it is started with, a helper sets that of its core dumps to nothing, for good."""
    started = ["sh", "-c", 'ulimit -S -c "$(ulimit -H -c)"; exec "$0" "$@"', *helper_command(jar)]
    with HelperClient(started, environment=faults.environment, deadline_seconds=20) as client:
        client.call("hello")
        limits = Path(f"/proc/{client.pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
    assert line.split()[4:6] == ["0", "0"]


def test_stray_output_does_not_reach_the_protocol(helper: HelperClient, faults: Faults) -> None:
    """A library, a child process and raw writes to descriptor 1 print to stderr; answers stay readable."""
    assert unwrap(helper, faults, "prints", wrap(helper, faults)) == KEY
    assert helper.call("hello")["pid"] == helper.pid


@pytest.mark.slow
def test_slow_unwraps_do_not_hold_up_others(helper: HelperClient, faults: Faults) -> None:
    """While one unwrap takes 3 s, seven others and a ping are answered."""
    wrapped = wrap(helper, faults)
    with ThreadPoolExecutor(8) as pool:
        slow = pool.submit(unwrap, helper, faults, "slow", wrapped)
        started = time.monotonic()
        others = [pool.submit(unwrap, helper, faults, f"k{number}", wrapped) for number in range(7)]
        assert [other.result() for other in others] == [KEY] * 7
        assert helper.call("hello")["pid"] == helper.pid
        assert time.monotonic() - started < 2
        assert not slow.done()
        assert slow.result() == KEY


@pytest.mark.slow
def test_ping_is_answered_while_every_thread_is_busy(helper: HelperClient, faults: Faults) -> None:
    """``hello`` needs no worker: it tells a slow key service from a helper that hangs."""
    wrapped = wrap(helper, faults)
    with ThreadPoolExecutor(20) as pool:
        busy = [pool.submit(unwrap, helper, faults, "slow", wrapped) for _ in range(20)]
        time.sleep(0.3)
        started = time.monotonic()
        helper.call("hello")
        assert time.monotonic() - started < 1
        assert [call.result() for call in busy] == [KEY] * 20


def test_errors_keep_their_class(helper: HelperClient, faults: Faults) -> None:
    """A denial and an unreachable service are raised as what they are."""
    wrapped = wrap(helper, faults)
    with pytest.raises(KeyAccessDeniedError, match="ask its owner"):
        unwrap(helper, faults, "denied", wrapped)
    with pytest.raises(KeyServiceUnavailableError, match="cannot be reached"):
        unwrap(helper, faults, "down", wrapped)


def test_unforeseen_error_does_not_carry_its_text(jar: Path, faults: Faults, tmp_path: Path) -> None:
    """An error that nobody foresaw, in an operation on keys, is told by class alone: in the answer and in stderr."""
    log = tmp_path / "stderr"
    command = ["/bin/sh", "-c", f'exec "$0" "$@" 2>{log}', *helper_command(jar)]
    with HelperClient(command, environment=faults.environment) as client:
        wrapped = wrap(client, faults)
        with pytest.raises(BridgeError, match="RuntimeError") as caught:
            unwrap(client, faults, "leaks", wrapped)
    assert "CANARY" not in str(caught.value)
    assert "_leaks" in log.read_text()
    assert "CANARY" not in log.read_text()


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", 2**31) + b"x",
        struct.pack(">I", 5) + b"[1,2]",
        struct.pack(">I", 7) + b"garbage",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["oversized", "not an object", "not JSON", "another protocol"],
)
def test_garbage_ends_the_helper(jar: Path, data: bytes) -> None:
    """After bytes that are no frame the helper says so and ends with BridgeError's exit code."""
    finished = subprocess.run(helper_command(jar), input=data, capture_output=True, timeout=20, check=False)
    assert finished.returncode == BridgeError.exit_code
    assert finished.stdout == b""
    assert b"frame" in finished.stderr


def test_request_without_id_or_operation_gets_an_error(helper: HelperClient) -> None:
    """An object that is no request is answered with an error, and the helper goes on."""
    with pytest.raises(BridgeError, match="not known"):
        helper.call("no_such_operation")
    assert helper.call("hello")["pid"] == helper.pid


def test_helper_ends_when_its_stdin_closes_during_a_call(jar: Path, faults: Faults) -> None:
    """It ends at once, whatever its threads are doing."""
    with HelperClient(helper_command(jar), environment=faults.environment) as client, ThreadPoolExecutor(1) as pool:
        wrapped = wrap(client, faults)
        call = pool.submit(unwrap, client, faults, "sleeps", wrapped)
        time.sleep(0.3)
        started = time.monotonic()
        client.__exit__(None, None, None)
        assert time.monotonic() - started < 2
        assert isinstance(call.exception(), BridgeError)
        assert has_ended(client.pid)


def test_interrupt_does_not_end_the_helper(helper: HelperClient) -> None:
    """Ctrl-C in a terminal reaches every process of it; the helper lives until its JVM ends."""
    helper.call("hello")
    os.kill(helper.pid, signal.SIGINT)
    assert helper.call("hello")["pid"] == helper.pid


def test_killed_helper_is_an_error_for_all_that_wait(jar: Path, faults: Faults) -> None:
    """Calls in flight and calls after it raise BridgeError; none hangs."""
    with HelperClient(helper_command(jar), environment=faults.environment) as client, ThreadPoolExecutor(4) as pool:
        wrapped = wrap(client, faults)
        waiting = [pool.submit(unwrap, client, faults, "sleeps", wrapped) for _ in range(3)]
        time.sleep(0.3)
        os.kill(client.pid, signal.SIGKILL)
        assert all(isinstance(call.exception(timeout=5), BridgeError) for call in waiting)
        with pytest.raises(BridgeError):
            client.call("hello")


@pytest.mark.slow
def test_call_has_a_deadline(jar: Path, faults: Faults) -> None:
    """A helper that stops is an error after the deadline, and is gone after the with block."""
    with HelperClient(helper_command(jar), environment=faults.environment, deadline_seconds=1) as client:
        client.call("hello")
        os.kill(client.pid, signal.SIGSTOP)
        with pytest.raises(BridgeError, match="within 1 s"):
            client.call("hello")
    assert has_ended(client.pid)


def test_missing_interpreter_is_named() -> None:
    """An interpreter that does not exist is named in the error."""
    with pytest.raises(BridgeError, match="/no/such/python"), HelperClient(helper_command(None, "/no/such/python")):
        pass


@pytest.mark.parametrize("place", ["current folder", "PYTHONPATH", "both"])
def test_decoy_package_is_not_imported(jar: Path, tmp_path: Path, place: str) -> None:
    """A package of the same name in the current folder or on PYTHONPATH does not shadow the jar's."""
    decoy = tmp_path / "sparkcrypt"
    (decoy / "bridge").mkdir(parents=True)
    for name in ("__init__.py", "errors.py", "bridge/__init__.py", "bridge/server.py", "bridge/__main__.py"):
        (decoy / name).write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n")
    environment = {**os.environ, **({} if place == "current folder" else {"PYTHONPATH": str(tmp_path)})}
    folder = None if place == "PYTHONPATH" else tmp_path
    with HelperClient(helper_command(jar), environment=environment, folder=folder) as client:
        assert client.call("hello")["version"] == sparkcrypt.__version__
        with pytest.raises(BridgeError):
            client.call("wrap", key_id="a", key="")
    assert not (tmp_path / "imported").exists()


def test_package_runs_as_a_module() -> None:
    """``python -m sparkcrypt.bridge`` serves from the package as it is installed."""
    with HelperClient(helper_command()) as client:
        assert client.call("hello")["python"] == sys.executable


def test_hello_needs_the_standard_library_alone(jar: Path, tmp_path: Path) -> None:
    """An interpreter with nothing installed starts the helper."""
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    interpreter.chmod(0o755)
    with HelperClient(helper_command(jar, str(interpreter))) as client:
        assert client.call("hello")["pid"] == client.pid

"""The helper process: it reads requests from stdin, answers them concurrently, and ends when stdin closes.

The pipe's descriptors are moved away from 0 and 1 first, so that no output of a library gets into the protocol, and no
child process inherits the pipe and keeps it open.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, BinaryIO

from sparkcrypt import names
from sparkcrypt.bridge.operations import OPERATIONS_ON_KEYS, Operations, hello
from sparkcrypt.bridge.protocol import read_frame, write_frame
from sparkcrypt.errors import BridgeError, ConfigError, SparkcryptError

MAX_THREADS = 16
ENVIRONMENT_VARIABLE = "SPARKCRYPT_ENVIRONMENT_FILE"
"""Set by the jar from the launch conf, for a file of lines ``NAME=value``."""


class Server:
    """A server that reads frames from one stream and writes answers to another, with a bounded number of threads."""

    def __init__(self, source: BinaryIO, sink: BinaryIO, operations: Operations | None = None) -> None:
        self._source = source
        self._sink = sink
        self._operations = operations or Operations()
        self._write_lock = threading.Lock()
        self._waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads = 0

    def serve(self) -> None:
        """Answer requests until the source ends.

        Raises:
            BridgeError: the source contains something that is not a frame.
        """
        while (request := read_frame(self._source)) is not None:
            if request.get("op") == "hello":
                # Answered here and not in a worker, so that a slow key service does not look like a helper that hangs.
                self._respond({"id": request.get("id"), "ok": hello()})
            else:
                self._submit(request)

    def _submit(self, request: dict[str, Any]) -> None:
        if not self._idle.acquire(blocking=False) and self._threads < MAX_THREADS:
            self._threads += 1
            threading.Thread(target=self._work, daemon=True).start()
        self._waiting.put(request)

    def _work(self) -> None:
        while True:
            self._answer(self._waiting.get())
            self._idle.release()

    def _answer(self, request: dict[str, Any]) -> None:
        number = request.get("id")
        try:
            self._respond({"id": number, "ok": self._operations.answer(request)})
        except SparkcryptError as error:
            self._respond_error(number, type(error).__name__, str(error))
        except Exception as error:  # noqa: BLE001  # answered as BridgeError: the caller must not wait
            self._respond_error(number, BridgeError.__name__, _describe_unforeseen(str(request.get("op")), error))

    def _respond_error(self, number: object, kind: str, message: str) -> None:
        self._respond({"id": number, "error": {"type": kind, "message": message}})

    def _respond(self, document: dict[str, Any]) -> None:
        with self._write_lock:
            try:
                write_frame(self._sink, document)
            except OSError:
                end_process(0)  # the other end is closed: no caller waits for this answer


def _describe_unforeseen(operation: str, error: Exception) -> str:
    """Log an unexpected error, and return a message without its text if that could contain key bytes."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    sys.stderr.write(f"sparkcrypt helper: {type(error).__name__} in {operation}\n{frames}")
    sys.stderr.flush()
    text = "" if operation in OPERATIONS_ON_KEYS else f": {error}"
    return f"{operation} failed with {type(error).__name__}{text}; its place in the code is in this process's stderr"


def end_process(code: int) -> None:
    """End the process at once: flush its output, but do not wait for any thread."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Serve on stdin and stdout until stdin closes; never returns."""
    source, sink = _take_pipes()
    _forbid_core_dumps()
    _add_environment()
    # A terminal sends Ctrl-C to every process of the session; only the JVM decides when its helper ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        Server(source, sink).serve()
    except BridgeError as error:
        sys.stderr.write(f"sparkcrypt helper: {error}\n")
        end_process(error.exit_code)
    end_process(0)


def _add_environment() -> None:
    """Add the variables of the file that the jar names: credentials that the JVM's own environment does not have."""
    path = os.environ.get(ENVIRONMENT_VARIABLE)
    if not path:
        return
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        sys.stderr.write(f"sparkcrypt helper: {path} ({names.HELPER_ENVIRONMENT}) cannot be read: {error}\n")
        end_process(ConfigError.exit_code)
    for line in lines:
        name, sign, value = line.strip().partition("=")
        if sign and not name.startswith("#"):
            os.environ[name] = value


def _forbid_core_dumps() -> None:
    """Disable core dumps, which would contain the opened keys; child processes inherit that."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # a system without such a limit
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Move the pipes to descriptors that no child inherits; 0 then reads nothing and 1 goes where 2 goes."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return os.fdopen(source, "rb"), os.fdopen(sink, "wb")

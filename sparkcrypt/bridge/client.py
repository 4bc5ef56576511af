"""A Python client of the helper: it sends what a JVM sends through the jar, without a JVM.

Verification of a run opens every key by a new helper, which shows that other processes can open what is swapped in.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast

from sparkcrypt.bridge.protocol import read_frame, write_frame
from sparkcrypt.errors import BridgeError, error_named

DEADLINE_SECONDS = 60.0
_END_SECONDS = 5.0


def helper_command(jar: Path | None = None, python: str | None = None) -> list[str]:
    """Return the command that starts a helper.

    The jar itself is run, which makes it the first place on Python's path; ``-m`` would look in the current folder
    first.

    Args:
        jar: the jar, or None for the package as it is installed here.
        python: the interpreter; this one by default.
    """
    interpreter = python or sys.executable
    return [interpreter, str(jar)] if jar is not None else [interpreter, "-m", "sparkcrypt.bridge"]


class HelperClient:
    """One helper process, ended with the ``with`` block; ``call`` may be used by many threads."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Store the settings of the process, which the ``with`` block starts.

        Args:
            command: from ``helper_command``.
            deadline_seconds: how long one call may take.
            environment: the process's environment; this one's by default.
            folder: the process's current folder; this one's by default.
        """
        self._command = list(command)
        self._deadline_seconds = deadline_seconds
        self._environment = None if environment is None else dict(environment)
        self._folder = folder
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._ended: BridgeError | None = None

    def __enter__(self) -> HelperClient:
        """Start the process.

        Raises:
            BridgeError: the interpreter cannot be started.
        """
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._environment, cwd=self._folder
            )
        except OSError as error:
            raise BridgeError(
                f"the helper {self._command} cannot be started: {error}; name an existing interpreter"
            ) from error
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the helper's stdin, which ends it; kill a helper that does not end."""
        with contextlib.suppress(BrokenPipeError):  # the helper ended before
            cast(BinaryIO, self._process.stdin).close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """The process id of the helper."""
        return self._process.pid

    def call(self, op: str, **fields: object) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Args:
            op: the operation.
            **fields: the operation's fields, with bytes as base64.

        Raises:
            SparkcryptError: the helper's error, with its class.
            BridgeError: the helper ended, or did not answer within the deadline.
        """
        number = next(self._numbers)
        answer: Future[dict[str, Any]] = Future()
        try:
            with self._lock:
                if self._ended is not None:
                    raise self._ended
                self._waiting[number] = answer
                try:
                    write_frame(cast(BinaryIO, self._process.stdin), {"id": number, "op": op, **fields})
                except OSError as error:
                    raise BridgeError(f"the helper {self._command} ended; its stderr says why") from error
            return _result(answer.result(self._deadline_seconds))
        except FutureTimeoutError as error:
            raise BridgeError(f"the helper did not answer {op!r} within {self._deadline_seconds} s") from error
        finally:
            self._waiting.pop(number, None)

    def _read(self) -> None:
        reason = BridgeError(f"the helper {self._command} ended; its stderr says why")
        try:
            while (document := read_frame(cast(BinaryIO, self._process.stdout))) is not None:
                waiting = self._waiting.get(document.get("id", 0))
                if waiting is not None:
                    waiting.set_result(document)
        except (BridgeError, OSError) as error:
            reason = BridgeError(f"the helper {self._command} cannot be understood: {error}")
        with self._lock:
            self._ended = reason
            waiting_still = list(self._waiting.values())
        for answer in waiting_still:
            if not answer.done():
                answer.set_exception(reason)


def _result(document: Mapping[str, Any]) -> dict[str, Any]:
    error = document.get("error")
    if error is not None:
        raise error_named(error["type"])(error["message"])
    result: dict[str, Any] = document["ok"]
    return result

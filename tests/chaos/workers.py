"""Workers as a round sees them: processes that take commands and answer, may be killed or paused, and are replaced."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

START_SECONDS = 180.0
ANSWER_SECONDS = 150.0
_TRIES = 5


class WorkerDiedError(Exception):
    """The process ended before it answered."""


class WorkerError(Exception):
    """The worker answered that it could not do what it was told."""


class Worker:
    """One process; `call` sends a command and waits, `send` does not wait.

    Args:
        name: of its log.
        folder: gets its log and is its working folder.
        conf: of its Spark session.
        env: its whole environment.
    """

    def __init__(self, name: str, folder: Path, conf: Mapping[str, str], env: Mapping[str, str]) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        self._numbers, self._mutex = itertools.count(1), threading.Lock()
        self._waiting: dict[int, Future[Any]] = {0: Future()}
        folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tests.chaos.worker", json.dumps(dict(conf))],
                cwd=folder,
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
            )
        self.ready: Future[Any] = self._waiting[0]
        threading.Thread(target=self._listen, daemon=True).start()

    def alive(self) -> bool:
        """Say whether it still runs."""
        return self._process.poll() is None

    def send(self, name: str, **arguments: Any) -> Future[Any]:
        """Send a command; its answer comes to the future."""
        future: Future[Any] = Future()
        with self._mutex:
            number = next(self._numbers)
            self._waiting[number] = future
            try:
                assert self._process.stdin is not None
                self._process.stdin.write(json.dumps({"number": number, "do": name, **arguments}) + "\n")
                self._process.stdin.flush()
            except (OSError, ValueError):
                if self._waiting.pop(number, None):
                    future.set_exception(WorkerDiedError(self.name))
        return future

    def call(self, name: str, **arguments: Any) -> Any:
        """Send a command and return its answer.

        Raises:
            WorkerError: it could not do it.
            WorkerDiedError: it ended.
            TimeoutError: it did not answer in time.
        """
        return self.send(name, **arguments).result(ANSWER_SECONDS)

    def kill(self) -> None:
        """Kill the process with its JVM."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def pause(self) -> None:
        """Stop the process and its JVM where they are."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._mutex:
                future = self._waiting.pop(answer["number"], None)
            if future and "error" in answer:
                future.set_exception(WorkerError(answer["error"]))
            elif future:
                future.set_result(answer["value"])
        self._process.wait()
        with self._mutex:
            for future in self._waiting.values():
                future.set_exception(WorkerDiedError(self.name))
            self._waiting.clear()


class Pool:
    """Workers that are ready, of which one is taken, used, and given back or replaced."""

    def __init__(self, start: Callable[[], Worker], size: int) -> None:
        self._start, self._size = start, size
        self._idle = [start() for _ in range(size)]
        self._taken: list[Worker] = []

    def take(self) -> Worker:
        """Return one that has started; those that could not are replaced.

        Raises:
            WorkerDiedError: some could not be started, one after the other.
        """
        for _ in range(_TRIES):
            worker = self._idle.pop(0) if self._idle else self._start()
            try:
                worker.ready.result(START_SECONDS)
            except (WorkerDiedError, WorkerError, TimeoutError):
                worker.kill()
                self._idle.append(self._start())
                continue
            self._taken.append(worker)
            return worker
        raise WorkerDiedError("drivers cannot be started; their logs say why")

    def give_back(self, worker: Worker, *, fit: bool = True) -> None:
        """Put one back; one that was killed, or is not fit any more, is replaced."""
        self._taken.remove(worker)
        enough = len(self._idle) + len(self._taken) >= self._size
        if fit and worker.alive() and not enough:
            self._idle.append(worker)
            return
        worker.kill()
        if not enough:
            self._idle.append(self._start())

    def close(self) -> None:
        """Kill all."""
        for worker in (*self._idle, *self._taken):
            worker.kill()

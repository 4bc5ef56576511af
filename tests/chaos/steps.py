"""The steps of a driver that a round may slow down or end with: journal records, swaps and renames."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any


@dataclass
class Steps:
    """Counts the steps of one command, sleeps before some, and kills the process's group before or after one.

    Attributes:
        sleeps: number of a step -> how many seconds to sleep before it.
        kill: the step to be killed at; 0 for none.
        after: be killed after that step instead of before it.
    """

    sleeps: Mapping[int, float] = field(default_factory=dict)
    kill: int = 0
    after: bool = False
    number: int = 0
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def around(self, action: Callable[..., Any]) -> Callable[..., Any]:
        """Return an action that is a step."""

        def stepped(*arguments: Any, **named: Any) -> Any:
            with self.mutex:
                self.number += 1
                number = self.number
            time.sleep(self.sleeps.get(number, 0.0))
            if number == self.kill and not self.after:
                die()
            done = action(*arguments, **named)
            if number == self.kill:
                die()
            return done

        return stepped


def die() -> None:
    """End this process, its JVM and its helpers as the kernel does when memory is short."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


class Hooks:
    """Puts the steps of each command around what a driver does at them, and takes them off again."""

    def __init__(self) -> None:
        from sparkcrypt.ledger.journal.journal import Journal
        from sparkcrypt.spark.files.hadoop import HadoopFiles
        from sparkcrypt.spark.tables.catalog import Catalog

        self._places: list[tuple[Any, str, Callable[..., Any]]] = [
            (Journal, "append_all", Journal.append_all),
            (Catalog, "set_location", Catalog.set_location),
            (Catalog, "move_partitions", Catalog.move_partitions),
            (HadoopFiles, "rename", HadoopFiles.rename),
        ]

    def put(self, steps: Steps) -> None:
        """Make steps of what comes."""
        for kind, name, action in self._places:
            setattr(kind, name, steps.around(action))

    def take_off(self) -> None:
        """Leave everything as it was."""
        for kind, name, action in self._places:
            setattr(kind, name, action)


def set_clock_and_lifetime(seconds_ahead: float, lifetime_seconds: float) -> None:
    """Let this process's clock differ from others' where locks, runs and `orphans` look at it; let locks expire sooner.

    libfaketime would do the first for all of the process, but Python's waits hang or fail under it.

    Args:
        seconds_ahead: of the machine's clock.
        lifetime_seconds: of locks; short where a paused driver is to be taken for dead within a round.
    """
    from sparkcrypt.ledger.journal.journal import new_run_id
    from sparkcrypt.ledger.state.lock import acquire
    from sparkcrypt.runs.old_folders import orphans

    def clock() -> float:
        return time.time() + seconds_ahead

    defaults = {"lifetime_seconds": lifetime_seconds, "clock": clock}
    acquire.__kwdefaults__ = {**(acquire.__kwdefaults__ or {}), **defaults}
    new_run_id.__defaults__ = (clock,)
    setattr(orphans, "time", SimpleNamespace(time=clock))  # noqa: B010  # its one way to the time


def wait_shortly_for_writers() -> None:
    """Let this process compare old folders twice within a round, not wait long for killed writers, and pack early."""
    from sparkcrypt.ledger.log import TableLog
    from sparkcrypt.runs.old_folders import old_folder

    setattr(import_module(TableLog.__module__), "MOST_PACKED", 2)  # noqa: B010  # a constant
    old_folder.APART_SECONDS, old_folder.MOST_SECONDS = 0.5, 5.0

"""A reader in a JVM of its own: whatever drivers do, it sees each row once, or an error after which it reads again."""

from __future__ import annotations

import random
import re
import threading

from tests.chaos.model import Wrong
from tests.chaos.site import Site
from tests.chaos.workers import WorkerDiedError, WorkerError

_GONE = re.compile(r"FileNotFound|NoSuchFile|FILE_NOT_EXIST|PATH_NOT_FOUND|does not exist|No such file", re.IGNORECASE)
_RENAMED = re.compile(r"TABLE_OR_VIEW_NOT_FOUND|NoSuchTable|table not found", re.IGNORECASE)
_MOST_IN_A_ROW = 6


class Readers:
    """Reads the table as long as others are at work, and holds what it sees against the model.

    Args:
        site: of the round.
    """

    def __init__(self, site: Site) -> None:
        self._site, self._over = site, threading.Event()
        self._failed = 0
        self.wrong: list[Wrong] = []
        self.threads = [threading.Thread(target=self._read_on, daemon=True)] if site.plan.reads else []

    def end(self) -> None:
        """Let the current read be the last."""
        self._over.set()

    def _read_on(self) -> None:
        dice = random.Random(self._site.plan.seed)
        while not self._over.is_set() and not self.wrong:
            self._read(dice.choice((0.0, 0.0, 0.5, 2.0)))
            self._over.wait(dice.uniform(0.1, 0.6))

    def _read(self, seconds: float) -> None:
        site = self._site
        try:
            rows = site.world.writer.call("read", table=site.table, seconds=seconds)
        except (WorkerError, WorkerDiedError, TimeoutError) as error:
            self._failure(f"{type(error).__name__}: {error}")
            return
        self._failed = 0
        wrong = site.model.judge_read([(row_id, email, p) for row_id, email, p in rows])
        site.note("read", rows=len(rows))
        if wrong:
            site.note("a reader saw wrong rows", seconds=seconds, rows=rows)
            self.wrong += wrong

    def _failure(self, error: str) -> None:
        site = self._site
        gone = _GONE.search(error) or (_RENAMED.search(error) and {"rename", "save as table"} & set(site.begun))
        site.note("read again" if gone else "read that failed", error=error[:1000])
        self._failed += 1
        another = "save as table" in site.begun  # whose files bear the dropped table's UUID until a run rewrites them
        if site.plan.fault == "none" and not another and (not gone or self._failed > _MOST_IN_A_ROW):
            self.wrong.append(Wrong("not readable", None, (error[:1500],)))

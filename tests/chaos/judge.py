"""The judgement of a round: passes until all is in order, an expiry, and what the table then holds and points to."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from tests.chaos.drivers import expire_options, in_short
from tests.chaos.model import Partition, Wrong
from tests.chaos.site import Site
from tests.chaos.workers import Worker, WorkerDiedError, WorkerError

_PASSES, _PAUSE_SECONDS = 4, 1.0
_OF_STATE = ("state restored", "state cut")
_UNIT = re.compile(r"\bp=(\d+)")
_FILE = re.compile(r"(?:file:)?(/[^\s;,'\"]+)")


class Judge:
    """Brings a round to its end and says what is wrong.

    Args:
        site: of the round; nobody writes any more, and no fault lasts.
        driver: does the passes.
    """

    def __init__(self, site: Site, driver: Worker) -> None:
        self._site, self._driver = site, driver
        self.reported: set[Partition] = set()
        self.wrong: list[Wrong] = []
        self.refused = ""

    def judge(self) -> list[Wrong]:
        """Return what is wrong; nothing where all is as it must be."""
        clean = self._passes()
        self._rows("after the passes")
        expired = self._expire()
        self._rows("after expire")
        if clean:
            self._files(expired=expired)
            self._verify()
        return self.wrong

    def _passes(self) -> bool:
        """Run the job as people do, until it says that all is done; say whether it did."""
        for number in range(_PASSES):
            time.sleep(_PAUSE_SECONDS * bool(number))
            done = self._command("backfill", "--table", self._site.table)
            if not done["code"]:
                return True
        self._take_report(done)
        if not self.reported and self._site.plan.fault in _OF_STATE:
            self.refused = in_short(done)  # as documented; the rows must be there all the same
        elif not self.reported:
            self._add("stuck", in_short(done))
        return False

    def _expire(self) -> bool:
        done = self._command("backfill", "expire", "--table", self._site.table, *expire_options())
        if done["code"]:
            self._take_report(done)
        return not done["code"]

    def _verify(self) -> None:
        done = self._command("verify", "--table", self._site.table)
        if done["code"]:
            self._add("not verified", in_short(done))

    def _command(self, *arguments: str) -> dict[str, Any]:
        try:
            done = self._site.command(self._driver, *arguments)
        except (WorkerError, WorkerDiedError, TimeoutError) as error:
            done = {"code": 1, "said": {}, "raised": repr(error), "err": "", "out": ""}
        self._site.note(f"judge: {' '.join(arguments[:2])}", code=done["code"], said=in_short(done))
        return done

    def _take_report(self, done: dict[str, Any]) -> None:
        """Note which partitions a command says are in question, and see that it names something that is there."""
        text = in_short(done) + str(done["said"])
        found: set[Partition] = {int(one) for one in _UNIT.findall(text)} if self._site.plan.partitions else {None}
        named = [Path(one.rstrip(".:")) for one in _FILE.findall(text)]
        if any(one.exists() for one in named if str(self._site.folder) in str(one)):
            self.reported |= found

    def _rows(self, when: str) -> None:
        if any(one.kind != "plaintext" for one in self.wrong):
            return
        try:
            rows = self._site.world.writer.call("read", table=self._site.table)
        except (WorkerError, WorkerDiedError, TimeoutError) as error:
            if not self.reported:
                self._add("unreadable", str(error)[:800])
            return
        found = self._site.model.judge([(one, email, p) for one, email, p in rows], self.reported)
        if found:
            self._site.note(f"judge: rows are wrong {when}", rows=rows)
        # What a stale writer left comes to the table with expire at the latest.
        self.wrong.extend(one for one in found if one.kind != "lost" or when == "after expire")

    def _files(self, *, expired: bool) -> None:
        """No file that the table points to is in clear; after an expiry no other file is there in clear either."""
        site = self._site
        places = site.world.writer.call("places", table=site.table)
        for folder, files in places.items():
            clear = [file for file, kind in files.items() if kind not in ("encrypted", "empty")]
            if clear and not any(f"p={p}" in folder for p in self.reported):
                self.wrong.append(Wrong("plaintext", None, tuple(clear)))
        used = {file for files in places.values() for file in files}
        found = {str(one) for one in (site.folder / "tables").rglob("*.parquet") if not _is_temporary(one)}
        clear = sorted(one for one in found - used if Path(one).read_bytes()[-4:] == b"PAR1")
        if expired and clear and "save as table" not in site.uses:  # a table that was dropped leaves orphans
            self.wrong.append(Wrong("left in clear", None, tuple(clear)))

    def _add(self, kind: str, what: str) -> None:
        self.wrong.append(Wrong(kind, None, (what,)))


def _is_temporary(file: Path) -> bool:
    return any(part == "_temporary" or part.startswith((".spark-staging", ".hive-staging")) for part in file.parts)

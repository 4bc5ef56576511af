"""The judgement of a round: passes until all is in order, decisions of what is open, an expiry, and what is left then.

What is left: the rows that the table holds, the files that it points to, and those that it does not.
"""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.chaos.decisions import clear_away, decide, make_empty_folders, open_problems, partition_of
from tests.chaos.drivers import expire_options, in_short
from tests.chaos.model import Partition, Wrong
from tests.chaos.site import Site
from tests.chaos.workers import Worker, WorkerDiedError, WorkerError

_PASSES, _PAUSE_SECONDS, _DECISIONS = 4, 1.0, 6
_LATER_SECONDS = 2 * 86_400.0
_OF_STATE = ("state restored", "state cut")
_HELD = re.compile(r"run again after (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00)")
_CLOSES = "--resume never"
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
        self._unknown: set[Partition] = set()

    def judge(self) -> list[Wrong]:
        """Return what is wrong; nothing where all is as it must be."""
        clean = self._passes()
        if self._site.plan.fault in _OF_STATE:
            self._accept()
        self._rows("after the passes")
        clean = clean or self._decided()
        expired = self._expire()
        self._rows("after expire")
        if clean:
            self._files()
            self._verify()
            if expired:
                self._strays()
                self._rows("after orphans")
        return self.wrong

    def _decided(self) -> bool:
        """Decide what is open, as people must, and run the job until all is done; say whether it is."""
        clear_away(self._site)
        make_empty_folders(self._site)
        for _ in range(_DECISIONS):
            done = self._command("backfill", "--table", self._site.table)
            if not done["code"]:
                self.reported.clear()
                return True
            closed = _CLOSES in in_short(done) and self._close_run(in_short(done))
            problems = open_problems(done)
            failed = [why for why in (decide(self._site, problem, self._command) for problem in problems) if why]
            if len(failed) == len(problems) and not closed:
                break
        if self._site.plan.fault == "metastore restored":
            self.refused = self.refused or "; ".join([*failed, in_short(done)])  # what it points to is of another time
        elif not self.wrong:
            self._add("not decided" if failed else "stuck after decisions", "; ".join([*failed, in_short(done)]))
        return False

    def _close_run(self, said: str) -> bool:
        """Close a run that cannot prove what is in use, as its message says, once both folders were compared.

        Returns:
            Whether it is closed, and nothing else is left to do.
        """
        for unit in {line for line in said.split("; ") if " is in use, " in line}:
            self._site.model.question(partition_of(unit) if self._site.plan.partitions else None)
        return not self._command("backfill", "--table", self._site.table, *_CLOSES.split())["code"]

    def _passes(self) -> bool:
        """Run the job as people do, until it says that all is done; say whether it did."""
        for number in range(_PASSES):
            time.sleep(_PAUSE_SECONDS * bool(number))
            done = self._command("backfill", "--table", self._site.table)
            if not done["code"]:
                return True
            _wait_for_lock(in_short(done))
        self._take_report(done)
        if not self.reported and self._site.plan.fault in _OF_STATE:
            self.refused = in_short(done)  # as documented; the rows must be there all the same
        return False

    def _accept(self) -> None:
        """Give up the records that the state directory lacks, as people must where there is no newer copy of it.

        What they told of the old folders of a unit nobody can tell then, so rows that were erased there may be in the
        table, and those of a compaction twice.  Where a partition was dropped, so was its pin; an INSERT into it finds
        the files of its first home, as each run warns.
        """
        done = self._command("audit", "accept", "--table", self._site.table, "--reason", "no newer copy is left")
        pins = done["said"].get("pins", ()) if isinstance(done["said"], dict) else ()
        dropped = {entry.get("partition") for entry in self._site.log if entry["what"] in ("drop", "drop and insert")}
        self._unknown |= {partition_of(pin["unit"]) for pin in pins} | dropped

    def _expire(self) -> bool:
        order = ["backfill", "expire", "--table", self._site.table, *expire_options()]
        done = self._command(*order)
        if done["code"] and self._site.left_by_writers():
            clear_away(self._site)
            done = self._command(*order)
        if done["code"]:
            self._take_report(done)
        return not done["code"]

    def _verify(self) -> None:
        done = self._command("verify", "--table", self._site.table)
        if done["code"]:
            self._add("not verified", in_short(done))

    def _strays(self) -> None:
        """Two days later, no folder of a run is left that is in clear, not used, and not named as one to look at."""
        before = self._on_disk()
        for more in ([], ["--delete"]):
            arguments = ["backfill", "orphans", "--database", self._site.database, "--older-than", "24h", *more]
            done = self._command(*arguments, seconds_ahead=_LATER_SECONDS)
            if done["code"]:
                self._add("orphans failed", in_short(done))
                return
            if not more and self._on_disk() != before:
                self._add("a dry run changed files", str(sorted(before ^ self._on_disk())))
        kept = [urlsplit(orphan["folder"]).path for orphan in done["said"]["orphans"] if not orphan["deleted"]]
        places = self._site.world.writer.call("places", table=self._site.table)
        used = {file for files in places.values() for file in files}
        clear = sorted(path for path in _in_clear(self._on_disk() - used) if not path.startswith(tuple(kept)))
        if clear:
            self.wrong.append(Wrong("left in clear", None, tuple(clear)))

    def _on_disk(self) -> set[str]:
        return {str(path) for path in (self._site.folder / "tables").rglob("*.parquet") if not _is_temporary(path)}

    def _command(self, *arguments: str, **hooks: Any) -> dict[str, Any]:
        try:
            done = self._site.command(self._driver, *arguments, **hooks)
        except (WorkerError, WorkerDiedError, TimeoutError) as error:
            done = {"code": 1, "said": {}, "raised": repr(error), "err": "", "out": ""}
        self._site.note(f"judge: {' '.join(arguments[:2])}", code=done["code"], said=in_short(done))
        return done

    def _take_report(self, done: dict[str, Any]) -> None:
        """Note which partitions a command says are in question, and see that it names something that is there."""
        text = in_short(done) + str(done["said"])
        found: set[Partition] = (
            {int(number) for number in _UNIT.findall(text)} if self._site.plan.partitions else {None}
        )
        named = [Path(name.rstrip(".:")) for name in _FILE.findall(text)]
        if any(path.exists() for path in named if str(self._site.folder) in str(path)):
            self.reported |= found

    def _rows(self, when: str) -> None:
        if any(finding.kind != "plaintext" for finding in self.wrong):
            return
        try:
            rows = self._site.world.writer.call("read", table=self._site.table)
        except (WorkerError, WorkerDiedError, TimeoutError) as error:
            if not self.reported:
                self._add("unreadable", str(error)[:800])
            return
        found = self._site.model.judge([(row_id, email, p) for row_id, email, p in rows], self.reported)
        found = [one for one in found if one.partition not in self._unknown or one.kind not in ("came back", "doubled")]
        if found:
            self._site.note(f"judge: rows are wrong {when}", rows=rows)
        # What a stale writer left comes to the table with expire at the latest.
        self.wrong.extend(finding for finding in found if finding.kind != "lost" or when == "after expire")

    def _files(self) -> None:
        """No file that the table points to is in clear."""
        site = self._site
        places = site.world.writer.call("places", table=site.table)
        for folder, files in places.items():
            clear = [file for file, kind in files.items() if kind not in ("encrypted", "empty")]
            if clear and not any(f"p={p}" in folder for p in self.reported):
                self.wrong.append(Wrong("plaintext", None, tuple(clear)))

    def _add(self, kind: str, what: str) -> None:
        self.wrong.append(Wrong(kind, None, (what,)))


def _in_clear(files: set[str]) -> list[str]:
    return [file for file in files if Path(file).read_bytes()[-4:] == b"PAR1"]


def _wait_for_lock(said: str) -> None:
    """Wait for the end of a lock that a command names: one that came back with a state directory has no owner."""
    held = _HELD.search(said)
    if held is not None:
        left = datetime.fromisoformat(held[1]) - datetime.now(timezone.utc)
        time.sleep(max(0.0, left.total_seconds() + _PAUSE_SECONDS))


def _is_temporary(file: Path) -> bool:
    return any(part == "_temporary" or part.startswith((".spark-staging", ".hive-staging")) for part in file.parts)

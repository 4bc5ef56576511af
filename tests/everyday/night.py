"""One night: people, passes, expires and a rotation come one after the other, drivers are killed, all is judged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sparkcrypt.errors import SparkcryptError
from tests.everyday.estate import Estate
from tests.everyday.model import Table, Wrong, find_unforeseen
from tests.everyday.seam import DELETE, FORGET, METASTORE, MKDIR, POINTS, PUT, RENAME, Ending, Kill
from tests.everyday.verbs import VERBS, Verb, run_stream
from tests.spark.support import Lake

_BACKFILL, _EXPIRE, _ROTATE = ("backfill",), ("backfill", "expire", "--older-than", "0s"), ("rotate", "--key", "pii")
_HOME = ("encrypt", "--home", "--table")
_CALLS: dict[tuple[str, ...], dict[str, int]] = {
    _BACKFILL: {RENAME: 1, MKDIR: 8, PUT: 8, FORGET: 1, METASTORE: 1},
    _EXPIRE: {RENAME: 2, DELETE: 3, MKDIR: 3, PUT: 4, FORGET: 10},
    _ROTATE: {RENAME: 1, MKDIR: 5, PUT: 8, FORGET: 1, METASTORE: 1},
    _HOME: {RENAME: 1, MKDIR: 3, PUT: 6, FORGET: 2, METASTORE: 1},
}
"""About how many calls of each kind a command makes for a table; up to there drivers are killed."""
_NIGHTS = 20
"""So many nights, from seed 1, 21, 41 and so on, reach each verb with each point: they share one layout."""
_HOMING = 3
"""Each third night brings an external table home to its former folder."""
_CLEAN = 5
"""Each fifth night is without questions."""
_ACTS = 12
"""About how often people do something before a command that is killed."""


@dataclass(slots=True)
class Plan:
    """What a night is made of; a seed and this repeat it.

    Attributes:
        seed: of all that is drawn.
        tables: how many.
        verbs: names of those that are drawn.
        points: where drivers are killed.
        turns: how often people and commands come before the second night.
        rotates: whether the key is rotated, and its older version retired.
    """

    seed: int
    tables: int = 4
    verbs: Sequence[str] = tuple(VERBS)
    points: Sequence[str] = POINTS
    turns: int = 2
    rotates: bool = True

    @property
    def is_clean(self) -> bool:
        """Whether people do nothing that a command may report, so that all commands end with 0 and a key is retired."""
        return self.seed % _CLEAN == 0

    @property
    def drawn(self) -> list[str]:
        """Names of the verbs that are drawn in this night."""
        return [name for name in self.verbs if not (self.is_clean and VERBS[name].may_report)]


@dataclass(slots=True)
class Result:
    """What became of a night.

    Attributes:
        seed: which repeats it.
        wrong: what was wrong, with the last line of the log before it; nothing where all held.
        log: what happened.
        reached: verb and point -> how many drivers were killed there after the verb, on the way to its next pass.
        done: verb -> how often it was done, and how often refused.
        seconds: how long it took.
    """

    seed: int
    wrong: list[tuple[Wrong, str]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    reached: Counter[tuple[str, str]] = field(default_factory=Counter)
    done: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Occasion:
    """What people do to which table before a command is killed, and at which point it is.

    Attributes:
        point: where; None where plans have none for the command.
        verbs: names, by the number of the table.
    """

    point: str | None
    verbs: list[list[str]]


def lay_out(plan: Plan, tables: Sequence[Table]) -> list[Occasion]:
    """Return the occasions of a night: what the nights before it, of the same score, have had least comes first.

    Nothing of how those nights went is asked, so that a seed repeats its night.
    """
    first, number = divmod(plan.seed - 1, _NIGHTS)
    random, had = Random(first), Counter[tuple[str, str]]()
    occasions: list[Occasion] = []
    for seed in range(plan.seed - number, plan.seed + 1):
        occasions, each = [], replace(plan, seed=seed).drawn
        fitting = [[name for name in each if VERBS[name].fits(table)] or ["insert"] for table in tables]
        for words in (_BACKFILL, _EXPIRE) * plan.turns:
            points = [point for point in _CALLS[words] if point in plan.points]
            met = {point: (sum(had[name, point] for name in plan.verbs), random.random()) for point in points}
            point = min(met, key=met.__getitem__, default="")
            verbs: list[list[str]] = [[] for _ in tables]
            for names, drawn in zip(fitting, verbs, strict=True):
                for _ in range(max(1, _ACTS // len(tables))):
                    drawn.append(min(names, key=lambda name: (had[name, point], random.random())))
                    had[drawn[-1], point] += 1
            occasions.append(Occasion(point or None, verbs))
    return occasions


def play(lake: Lake, outside: Path, plan: Plan, tell: Callable[[str], None] | None = None) -> Result:
    """Play a night.

    Args:
        lake: a new database.
        outside: a folder that does not exist yet.
        plan: of the night.
        tell: gets each line of the log.
    """
    began = time.monotonic()
    estate = Estate(lake, outside, Random(plan.seed))
    night = Night(estate, plan, tell)
    try:
        night.run()
    finally:
        estate.close()
    night.result.seconds = time.monotonic() - began
    return night.result


class Night:
    """A night as it is played; it ends with the first thing that is wrong, since what follows says nothing new.

    Args:
        estate: without tables.
        plan: of the night.
        tell: gets each line of the log.
    """

    def __init__(self, estate: Estate, plan: Plan, tell: Callable[[str], None] | None = None) -> None:
        self._estate, self._plan, self._random = estate, plan, estate.random
        self.result = Result(plan.seed)
        self._since_pass: set[str] = set()
        self._half_done = False
        self._began, self._tell = time.monotonic(), tell

    def run(self) -> None:
        """Play it."""
        tables = [self._estate.make(number) for number in range(self._plan.tables)]
        self._judge("the beginning")
        occasions = lay_out(self._plan, tables)
        for number in range(self._plan.turns):
            self._turn(tables, occasions[2 * number], occasions[2 * number + 1], [] if number == 0 else tables)
        self._second_night(tables)
        if self._plan.seed % _HOMING == 0:
            self._bring_home([table for table in tables if table.home])
        if self._plan.rotates:
            self._rotate(tables)

    def _turn(self, tables: list[Table], in_pass: Occasion, in_expire: Occasion, plain: list[Table]) -> None:
        """Let people work before and after a killed pass, and between a pass and a killed expire.

        Args:
            tables: on which they work.
            in_pass: what they do before the pass.
            in_expire: what they do before the expire.
            plain: those to which something plain is added first, so that there is something to do for the pass.
        """
        self._let_people_work(tables, in_pass)
        for table in plain:
            self._perform(VERBS["insert_plain"], table)
        self._command(_BACKFILL, self._kill(_BACKFILL, in_pass.point))
        for table in self._random.sample(tables, 2):
            self._perform(self._draw(table), table)
        self._command(_BACKFILL)
        self._let_people_work(tables, in_expire)
        self._command(_EXPIRE, self._kill(_EXPIRE, in_expire.point))
        self._command(_BACKFILL)
        self._command(_EXPIRE, settles=True)

    def _second_night(self, tables: list[Table]) -> None:
        """Let everybody write once more under the policy, and streams start again that have nothing new."""
        for table in tables:
            self._perform(VERBS["insert"], table)
        for source, (table, checkpoint) in list(self._estate.streams.items()):
            act = partial(_run_again, source=source, checkpoint=checkpoint)
            self._perform(Verb("the stream runs again:", act, VERBS["stream"].fits), table)
        self._command(_BACKFILL)
        self._command(_EXPIRE, settles=True)

    def _bring_home(self, tables: list[Table]) -> None:
        """Bring tables back to the folders that their creators named, of which jobs know the path, and write there."""
        for table in tables:
            words = (*_HOME, f"{self._estate.lake.database}.{table.name}")
            points = [point for point in _CALLS[_HOME] if point in self._plan.points]
            self._command(words, self._kill(_HOME, self._random.choice([*points, None])), may_refuse=True)
            ending = self._command(words, may_refuse=True)
            self.result.done["bring home", "refused" if ending.code else "done"] += 1
            if not ending.code:
                self._judge_home(table)
                self._perform(VERBS["append_partition_path" if table.partitioned else "append_path"], table)
        self._command(_BACKFILL)
        self._command(_EXPIRE, settles=True)

    def _judge_home(self, table: Table) -> None:
        away = [folder for folder in self._estate.folders(table.name) if table.home not in (folder, folder.parent)]
        if away and not self.result.wrong:
            self._wrong(Wrong("not at home", f"{table.name}: {away}"))

    def _rotate(self, tables: list[Table]) -> None:
        """Rotate a key and retire its older version, when every session that had it has ended."""
        if "derive" in self._plan.drawn:
            self._perform(VERBS["derive"], tables[0])
        self._command(_ROTATE, self._kill(_ROTATE, self._random.choice([*self._plan.points, None])))
        self._command(_ROTATE)
        self._command(_EXPIRE)
        self._estate.forget_keys()
        gone = ("--leave-out", f"{self._estate.side}.s")  # its database was dropped, with the files of earlier tables
        self._command(("keys", "retire", "pii", "--below", "2", *gone), may_refuse=not self._plan.is_clean)

    def _let_people_work(self, tables: list[Table], occasion: Occasion) -> None:
        for table, verbs in zip(tables, occasion.verbs, strict=True):
            for name in verbs:
                self._perform(VERBS[name], table)

    def _draw(self, table: Table) -> Verb:
        fitting = [name for name in self._plan.drawn if VERBS[name].fits(table)]
        return VERBS[self._random.choice(fitting or ["insert"])]

    def _kill(self, words: tuple[str, ...], point: str | None) -> Kill | None:
        """Draw the end of a driver among the calls that its command makes; early ones more often, which all make."""
        if point not in _CALLS[words]:
            return None
        tables = 1 if words == _HOME else self._plan.tables
        return Kill(point, 1 + int(self._random.random() ** 2 * _CALLS[words][point] * tables))

    def _perform(self, verb: Verb, table: Table) -> None:
        if self.result.wrong or table.name in self._estate.away:
            return
        self._since_pass.add(verb.name)
        made = None
        cleared = self._estate.folders(table.name) if verb.clears else []
        try:
            self._estate.correct(table)
            made = verb.act(self._estate, table)
            outcome = "done"
        except (PySparkException, Py4JError, SparkcryptError) as error:
            outcome = "refused"
            self._note(f"{verb.name} {table.name} is refused: {' '.join(str(error).split())[:300]}")
            if not verb.may_refuse and not (self._half_done and table.swaps_folder):
                self._wrong(Wrong("people cannot work", self.result.log[-1]))
        self._estate.forget_cleared(cleared)
        table.questionable |= verb.may_report
        self.result.done[verb.name, outcome] += 1
        self._judge(f"{verb.name} {table.name}: {outcome}", [table, *filter(None, [made])])

    def _command(
        self, words: Sequence[str], kill: Kill | None = None, *, settles: bool = False, may_refuse: bool = False
    ) -> Ending:
        if self.result.wrong:
            return Ending(0, "")
        ending = self._estate.command(*words, kill=kill)
        if words == _BACKFILL and ending.code is not None:
            self._since_pass.clear()
            self._estate.model.forget_reports()
        what = f"{' '.join(words)}: {'killed before ' + ending.killed_at if ending.code is None else ending.code}"
        self._half_done = (ending.code is None and words != _EXPIRE) or (self._half_done and words == _EXPIRE)
        if ending.code is None:
            assert kill is not None
            self.result.reached.update((verb, kill.point) for verb in self._since_pass)
        elif unforeseen := find_unforeseen(ending.text):
            self._note(what)
            self._wrong(Wrong("a command meets what nobody foresaw", f"{what}: {unforeseen}"))
        elif ending.code and not (may_refuse and ending.code == 74):
            justified = self._estate.model.report(ending.text)
            if ending.code != 74 or not justified:
                self._note(what)
                self._wrong(Wrong("a command fails", f"{what}: {ending.text[-1500:]}"))
        self._judge(what, settled=settles)
        return ending

    def _judge(self, after: str, tables: Sequence[Table] | None = None, *, settled: bool = False) -> None:
        """Judge all bytes, and the rows of some tables or all; of a folder between two renames nobody reads."""
        self._note(after)
        if self.result.wrong:
            return
        judged = list(self._estate.model.tables.values()) if tables is None else tables
        judged = [table for table in judged if not (self._half_done and table.swaps_folder)]
        for finding in self._estate.judge(judged, settled=settled):
            self._wrong(finding)

    def _note(self, what: str) -> None:
        self.result.log.append(f"{time.monotonic() - self._began:5.1f} s  {what}")
        if self._tell:
            self._tell(self.result.log[-1])

    def _wrong(self, finding: Wrong) -> None:
        self.result.wrong.append((finding, self.result.log[-1]))
        if self._tell:
            self._tell(f"WRONG {finding.kind}: {finding.what}")


def _run_again(estate: Estate, table: Table, source: str, checkpoint: str) -> None:
    run_stream(estate, table, source, checkpoint)

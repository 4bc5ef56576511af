"""Open problems of a table: findings of a run that only an operator can decide.

    problems/<table id>/<problem>.json            what was found, in which unit of which run
    problems/<table id>/<problem>-resolved.json   what was decided, by whom and why

Both records are authenticated like the audit, and never changed.  A problem is open until it has an authentic
resolution, so a forged record closes none.  If the record of a problem is deleted, the next pass finds the problem
again, since it compares old folders with what their runs had listed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from sparkcrypt.errors import RunConflictError, VerificationError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.audit.manifest import CUT_OFF as CUT_OFF
from sparkcrypt.ledger.audit.manifest import GONE as GONE
from sparkcrypt.ledger.audit.manifest import LISTED_GONE
from sparkcrypt.ledger.audit.manifest import REPLAYED as REPLAYED
from sparkcrypt.ledger.state.lock import acting_user
from sparkcrypt.ledger.state.mac import TableMac, open_sealed, seal_record
from sparkcrypt.ledger.state.store import StateStore, decode_record
from sparkcrypt.ledger.unit import moved_place
from sparkcrypt.runs.rewrite.schedule import FailedUnit

if TYPE_CHECKING:
    from sparkcrypt.runs.table.target import Target
    from sparkcrypt.spark.files.hadoop import HadoopFiles

VERSION = 1
_PURPOSE = b"sparkcrypt problem\n"
KEPT = ("new", "old")
WRITER_AT_WORK = "a writer at work"
UNDONE = "came to a swap that was undone"
EMPTIED = "came to an emptied folder"
BACK = "old files are in use again"
STRAY = "came to a former home"
OF_LIST = (LISTED_GONE, REPLAYED)
BY_SQL = (UNDONE, EMPTIED, STRAY, *OF_LIST)
"""Kinds of problems for which the operator must correct the table's rows by SQL, and then keep the new files."""
_NAME = re.compile(r"(?P<problem>[0-9a-f]{12})(?P<resolved>-resolved)?\.json")


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision on a problem, for the audit.

    Attributes:
        keep: the files that are right: ``new``, ``old``, or ``both`` if a problem has settled itself.
        reason: the reason.
        adopt: whether files in the old folder that readers refuse, because the table requires encryption, are accepted.
    """

    keep: Literal["new", "old", "both"]
    reason: str
    adopt: bool = False


@dataclass(frozen=True, slots=True)
class Problem(JsonObject):
    """A problem that a run found with one of its units.

    Attributes:
        problem: its name.
        table: the table's name.
        run_id: the id of the run whose old files are concerned.
        unit: the unit's name.
        kind: what happened, in a few words.
        old_location: the folder that was compared with what the run had listed.
        came: files that were added there since, as paths below the folder; for `BACK` the old files in use again.
        gone: listed files that are missing there or changed.
        carried: files that were added earlier and were reconciled.
        message: a full description; as `Problems` returns it, with the next step.
        opened: when it was found (ISO 8601, UTC).
        damage: why its record, or that of its resolution, is not authentic; None if both are.
        base: the table's original folder at that time.
    """

    problem: str
    table: str
    run_id: str
    unit: str
    kind: str
    old_location: str
    came: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    message: str = ""
    opened: str = ""
    damage: str | None = None
    base: str = ""

    def as_failed(self) -> FailedUnit:
        """Return it in the form in which a report lists quarantined units."""
        return FailedUnit(self.unit, "OpenProblem", self.message)

    def resolution(self, decision: Decision) -> dict[str, Any]:
        """Return the audit's record of a decision, as JSON values."""
        return {
            "unit": self.unit,
            "problem": self.problem,
            "kind": self.kind,
            "keep": decision.keep,
            "reason": decision.reason,
            "of_run": self.run_id,
            "came": list(self.came),
            "gone": list(self.gone),
        }


class Problems:
    """The problems of one table, read once: for who holds its lock, or asks once.

    Args:
        store: the state directory.
        table_id: the id of the table.
        mac: opens the MAC that authenticates records, when one is first written or checked; None to read unchecked.
        follow: returns a problem with the present names of its table and folder; see `problems_of_target`.
    """

    def __init__(
        self,
        store: StateStore,
        table_id: str,
        mac: Callable[[], TableMac] | None,
        follow: Callable[[Problem], Problem] = lambda known: known,
    ) -> None:
        self._store, self._table_id, self._mac, self._follow = store, table_id, mac, follow
        self._open: dict[str, Problem] | None = None
        self._by_unit: dict[tuple[str, str], dict[str, Problem]] = {}
        self._count = 0

    def open(self) -> list[Problem]:
        """Return the open problems, oldest first; one whose record is not authentic has its ``damage`` set."""
        return sorted(self._read_all().values(), key=lambda listed: (listed.opened, listed.problem))

    def _read_all(self) -> dict[str, Problem]:
        """Return name -> open problem."""
        if self._open is None:
            self._open, names = {}, self._names()
            self._count = len(names)
            for problem in self._find_open(names):
                self._note(problem)
        return self._open

    def _note(self, problem: Problem) -> None:
        self._read_all()[problem.problem] = problem
        self._by_unit.setdefault((problem.run_id, problem.unit), {})[problem.problem] = problem

    def _find_open(self, several: Mapping[str, set[str]]) -> Iterator[Problem]:
        for problem, names in several.items():
            resolved = self._name(problem, resolved=True)
            damage = self._damage_of_resolution(problem) if resolved in names else None
            if resolved in names and damage is None:
                continue
            opened = self._read_open(problem, names)
            if damage is not None:
                opened = replace(opened, damage=damage, message=f"{opened.message}; {damage}")
            yield opened

    def of(self, run_id: str, unit: str, like: str = "") -> Problem | None:
        """Return the open problem of a run's unit: of its old folder, or of what those of kind ``like`` are about."""
        self._read_all()
        named = self._by_unit.get((run_id, unit), {}).values()
        return next((problem for problem in named if _subject_of(problem.kind) == _subject_of(like)), None)

    def add(self, found: Problem) -> Problem:
        """Open a problem; if one is open for the unit, return that one with the present findings instead.

        Raises:
            RunConflictError: another driver opened it concurrently.
        """
        earlier = self.of(found.run_id, found.unit, found.kind)
        if earlier is not None:
            now = replace(found, problem=earlier.problem, opened=earlier.opened, damage=earlier.damage)
            return replace(now, message=_with_step(now))
        digest = hashlib.sha256(f"{found.run_id}\0{found.unit}\0{self._count}".encode()).hexdigest()
        opened = datetime.now(timezone.utc).isoformat(timespec="seconds")
        problem = replace(found, problem=digest[:12], opened=opened)
        self._write(self._name(problem.problem), "problem", problem.to_dict())
        self._count += 1
        opened_one = replace(problem, message=_with_step(problem))
        self._note(opened_one)
        return opened_one

    def close(self, problem: str, decision: Decision) -> None:
        """Record the decision on a problem, which is possible once.

        Raises:
            RunConflictError: another process recorded a decision concurrently.
        """
        who = acting_user()
        time = datetime.now(timezone.utc).isoformat(timespec="seconds")
        decided = {"problem": problem, "keep": decision.keep, "reason": decision.reason, "who": who, "time": time}
        self._write(self._name(problem, resolved=True), "resolution", decided)
        closed = None if self._open is None else self._open.pop(problem, None)
        if closed is not None:
            self._by_unit[closed.run_id, closed.unit].pop(problem)

    def _names(self) -> dict[str, set[str]]:
        names: dict[str, set[str]] = {}
        for name in self._store.list(f"problems/{self._table_id}/"):
            match = _NAME.fullmatch(name.rpartition("/")[2])
            if match:
                names.setdefault(match["problem"], set()).add(name)
        return names

    def _read_open(self, problem: str, names: set[str]) -> Problem:
        if self._name(problem) not in names:
            return _is_unknown(problem, "its record is missing")
        known = self._read(problem)
        if known.damage is not None:
            return known
        known = self._follow(known)
        return replace(known, message=_with_step(known))

    def _read(self, problem: str) -> Problem:
        name = self._name(problem)
        try:
            fields = self._read_checked(name, "problem")
            known: dict[str, Any] = {**fields, "problem": problem}
            frozen: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in known.items()
            }
            return Problem(**frozen)
        except (VerificationError, TypeError) as error:
            return _is_unknown(problem, str(error))

    def _damage_of_resolution(self, problem: str) -> str | None:
        try:
            fields = self._read_checked(self._name(problem, resolved=True), "resolution")
        except VerificationError as error:
            return str(error)
        return None if fields.get("problem") == problem else f"the resolution of {problem} belongs to another problem"

    def _write(self, name: str, what: str, fields: Mapping[str, Any]) -> None:
        if self._mac is None:
            raise VerificationError(f"{name}: cannot be authenticated without the key service, so it is not written")
        members = {"version": VERSION, "what": what, "table_id": self._table_id, "fields": dict(fields)}
        if not self._store.create(name, seal_record(_PURPOSE, members, self._mac())):
            raise RunConflictError(f"{name}: is there already, so another driver works on this table; run again")

    def _read_checked(self, name: str, what: str) -> dict[str, Any]:
        content = self._store.read(name) or b""
        expected = {"version": VERSION, "what": what, "table_id": self._table_id}
        if self._mac is None:
            members = decode_record(name, content)
        else:
            members = open_sealed(_PURPOSE, name, content, self._mac().check, expected)
        fields = members.get("fields")
        if not isinstance(fields, dict):
            raise VerificationError(f"{name}: has no fields, so it is no record of a problem; restore it from a backup")
        return fields

    def _name(self, problem: str, *, resolved: bool = False) -> str:
        return f"problems/{self._table_id}/{problem}{'-resolved' if resolved else ''}.json"


def problems_of_target(target: Target, store: StateStore, mac: Callable[[], TableMac], files: HadoopFiles) -> Problems:
    """Return the problems of a table, with the present names of the table and of its old folders.

    RENAME of a managed table also renames its folder, with the old files below it, whereas the record of a problem is
    never changed.

    Args:
        target: the table as the metastore has it.
        store: the state directory.
        mac: opens the MAC that authenticates records.
        files: the file system of the old folders.
    """

    def follow(known: Problem) -> Problem:
        place = moved_place(known.old_location, known.base, target.base) if known.base else None
        if place is None or files.exists(known.old_location) or not files.exists(place):
            return replace(known, table=target.name)
        message = f"{known.message}; the table was renamed since, so that folder is {place} now"
        return replace(known, table=target.name, old_location=place, message=message)

    return Problems(store, target.table_id, mac, follow)


def _subject_of(kind: str) -> str:
    """Return what problems of a kind are about, of which one at a time is open for a unit."""
    return "list" if kind in OF_LIST else kind if kind in (STRAY, CUT_OFF) else "old files"


def _is_unknown(problem: str, damage: str) -> Problem:
    message = (
        f"problem {problem}: {damage}; someone changed the state directory: restore it from a backup, and look at the "
        "table's old folders before anything is expired"
    )
    return Problem(problem, "", "", "", "damaged record", "", message=message, damage=damage)


def _with_step(problem: Problem) -> str:
    keep = "new" if problem.kind in BY_SQL else "new|old"
    if problem.kind == STRAY:
        what = (
            "new says that the table is right without these files, and leaves them; once they are gone it closes itself"
        )
    elif problem.kind in OF_LIST:
        what = "new says that the unit is right as it is then, and `verify --manifest` goes by that"
    elif problem.kind in BY_SQL:
        what = "new says that the table is right as it is then"
    elif problem.kind == CUT_OFF:
        what = (
            "old puts the files from before the swap back, beside what was written since (if that was an INSERT); new "
            "takes what is there now for all of the rows, and lets the others expire (if that was an overwrite)"
        )
    elif problem.kind == GONE:
        what = "new says that these rows should be gone (TRUNCATE, DELETE); old puts the old files back into use"
    elif problem.kind == BACK:
        what = "old takes these rows for the table's, and the next pass encrypts them; new moves these files out of it"
    else:
        what = f"old puts what is in {problem.old_location} now into use, new leaves the table as it is"
    return (
        f"{problem.message}; problem {problem.problem} stays open until `sparkcrypt backfill resolve {problem.problem} "
        f"--table {problem.table} --policy F --keep {keep} --reason TEXT`: {what}"
    )

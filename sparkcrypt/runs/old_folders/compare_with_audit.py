"""Comparison of old folders with the table's audit, for runs whose journals are not trusted.

A journal that is missing, lost its end or was replaced by an older copy is incomplete, so no file is reconciled, put
back or deleted because of it.  The audit, however, contains the source files of each swapped unit.  If the old folder
has other files now, a writer that was planned before the swap has committed there; if some are missing, they were
deleted.  Either opens a problem, which the operator decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.audit import AuditEntry, AuditWriter, make_entry
from sparkcrypt.ledger.audit.trust import AuditIndex
from sparkcrypt.ledger.unit import base_location, by_place, is_staged, list_folders, moved_place, path_below
from sparkcrypt.paths import comparable_path
from sparkcrypt.runs.old_folders.past_run import PastRuns
from sparkcrypt.runs.old_folders.problems import BACK, Problem, Problems
from sparkcrypt.runs.rewrite.schedule import FailedUnit

NOT_ACTED_UPON = "changed after a run that is not acted upon"


@dataclass(frozen=True, slots=True)
class _Told:
    """The audit's entries on a unit that a run has swapped.

    Attributes:
        run_id: the id of the run.
        unit: the unit's name.
        places: the folders that may contain old files: the old folder, the unit's original one, and the paths of both
            after a RENAME of the table.
        homes: the folders to which this run and later runs have swapped the unit, in comparable form.
        sources: path below the old folder -> length, of the files that were listed.
        carried: the same of late commits' files that were reconciled.
        decided: the same of the files that were there at the last resolution; None if there is none.
    """

    run_id: str
    unit: str
    places: tuple[str, ...]
    homes: frozenset[str]
    sources: Mapping[str, int]
    carried: Mapping[str, int]
    decided: Mapping[str, int] | None


def compare_unread(runs: PastRuns, readable: Collection[str]) -> list[FailedUnit]:
    """Open a problem for each unit whose old folder differs from the audit's entries.

    Args:
        runs: the table's runs, under its lock.
        readable: the ids of the runs whose journals are trusted, which are compared with their journals instead.

    Raises:
        VerificationError: the audit is not authentic.
        RunConflictError: the lock is lost.
        PlanError: the metastore cannot list the table.
    """
    units = list(_list_swapped(runs, readable))
    if not units:
        return []
    runs.lock.check()
    problems, now = runs.problems(), runs.table.in_use.units()
    found = (problem for told_unit in units for problem in _problems(runs, told_unit, now))
    return [problems.add(problem).as_failed() for problem in found]


def resolve_unread(runs: PastRuns, found: Problem, keep: str, reason: str) -> None:
    """Record the decision, on a problem of a run without a trusted journal, to leave the table unchanged.

    Raises:
        VerificationError: the decision would put old files into or out of use, which needs the run's journal.
    """
    if keep != ("old" if found.kind == BACK else "new"):
        raise VerificationError(
            f"{found.unit}: the journal of run {found.run_id} is not acted upon, so no file can be moved on its word; "
            "restore the state directory from a backup that has all of it, or change the table's rows by SQL and "
            f"resolve the problem with --keep {'old' if keep == 'new' else 'new'}; nothing was changed"
        )
    files = by_place(found.old_location, list_folders(runs.table.files, found.old_location))
    record_decision(runs, found, keep, reason, {place: file.length for place, file in files.items()})


def record_decision(runs: PastRuns, found: Problem, keep: str, reason: str, held: Mapping[str, int]) -> None:
    """Close a problem by a decision that moves no file, and put it into the audit.

    Args:
        runs: the table's runs, under its lock.
        found: the problem.
        keep: the files that are right.
        reason: the reason.
        held: path below the problem's folder -> length, of the files that the decision covers.

    Raises:
        RunConflictError: another process recorded a decision concurrently.
    """
    table_id, mac = runs.table.target.table_id, runs.table.trust.mac(renew=True)
    listing = {"old": [[place, length] for place, length in sorted(held.items())]}
    unit = {**found.resolution(keep, reason), "folder": found.old_location, "listing": listing}
    entry = make_entry("resolve", runs.table.policy.digest(), found.run_id, table=runs.table.target.name, unit=unit)
    AuditWriter(runs.table.store, table_id, mac).append(entry)
    runs.table.trust.forget_audit()
    Problems(runs.table.store, table_id, lambda: mac).close(found.problem, keep, reason)


def places_of_unread(runs: PastRuns, readable: Collection[str]) -> set[str]:
    """Return the folders, in comparable form, that `compare_unread` compares with the audit."""
    return {comparable_path(place) for unit in _list_swapped(runs, readable) for place in unit.places}


def _list_swapped(runs: PastRuns, readable: Collection[str]) -> Iterator[_Told]:
    """Yield the audit's entries on each unit that a run has swapped, except runs whose journals are trusted."""
    audit = runs.table.trust.audit()
    homes = _homes_by_unit(audit)
    for (run_id, unit), entry in audit.swaps.items():
        if run_id in readable or entry.entry["what"] != "encrypt":
            continue
        fields = dict(entry.entry["unit"])
        for moved in audit.relocated.get((run_id, unit), ()):
            fields.update(moved.entry["unit"])
        old, new = str(fields["old_location"]), str(fields["new_location"])
        if is_staged(old) or is_staged(new):  # else the run wrote a copy, which has no old folder
            sources, first = _sources(entry, str(entry.entry["unit"]["old_location"]))
            base = base_location(new if is_staged(new) else old)
            taken = (moved_place(place, base, runs.table.target.base) for place in (old, *first))
            places = {
                comparable_path(place): place
                for place in (old, *first, *(place for place in taken if place is not None))
                if comparable_path(place) != comparable_path(new)
            }
            later = audit.later.get((run_id, unit), ())
            carried, decided = _list_carried(later, old), _find_decision(later)
            later_homes = (place for number, place in homes.get(unit, ()) if number >= entry.number)
            here = frozenset(comparable_path(place) for place in (new, *later_homes))
            yield _Told(run_id, unit, tuple(places.values()), here, sources, carried, decided)


def _homes_by_unit(audit: AuditIndex) -> dict[str, list[tuple[int, str]]]:
    """Return unit -> for each run that swapped it, the number of the last audit entry and the new location."""
    homes: dict[str, list[tuple[int, str]]] = {}
    for (_, unit), entry in audit.swaps.items():
        if "new_location" in entry.entry["unit"]:
            homes.setdefault(unit, []).append((entry.number, str(entry.entry["unit"]["new_location"])))
    return homes


def _sources(entry: AuditEntry, old: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return path below the old folder -> length of a unit's source files, and the folder where they were listed."""
    known: dict[str, int] = {}
    first: tuple[str, ...] = ()
    for change in entry.entry.get("changes") or ():
        for file in change["sources"]:
            place = path_below(old, str(file["kept"]))
            known[place] = int(file["bytes"])
            first = (str(file["path"]).removesuffix(place).rstrip("/"),)
    return known, first


def _list_carried(entries: Collection[AuditEntry], old: str) -> dict[str, int]:
    changes = (change for entry in entries for change in entry.entry.get("changes") or ())
    return {path_below(old, str(file["path"])): int(file["bytes"]) for change in changes for file in change["sources"]}


def _find_decision(entries: Collection[AuditEntry]) -> dict[str, int] | None:
    decisions = [entry.entry["unit"] for entry in entries if entry.entry["what"] == "resolve"]
    if not decisions:
        return None
    listings = (decisions[-1].get("listing") or {}).values()
    return {str(place): int(length) for files in listings for place, length in files}


def _problems(runs: PastRuns, unit: _Told, now: Mapping[str, str]) -> Iterator[Problem]:
    used = {comparable_path(place) for place in now.values()}
    held = unit.sources if unit.decided is None else unit.decided
    known = {**unit.sources, **unit.carried, **held}
    for place in unit.places:
        there = {name: file.length for name, file in by_place(place, list_folders(runs.table.files, place)).items()}
        came = tuple(sorted(name for name, length in there.items() if known.get(name) != length))
        back = tuple(sorted(name for name, length in unit.sources.items() if there.get(name) == length))
        # If the folder is empty, the old files have expired or were moved.
        missing = tuple(sorted(name for name in held if name not in there)) if there else ()
        if comparable_path(place) in used:
            if back and unit.decided is None:
                yield _problem(runs, unit, place, BACK, f"the table points to {place} again, {back[0]}", back, ())
        elif came and not back and runs.table.in_use.look().has_other_user(place, runs.table.target.name, unit.unit):
            continue
        elif came:
            yield _problem(
                runs, unit, place, NOT_ACTED_UPON, f"{came[0]} came to the old folder {place}", came, missing
            )
        elif missing and comparable_path(now.get(unit.unit, "")) in unit.homes:  # else the unit's rows were replaced
            yield _problem(runs, unit, place, NOT_ACTED_UPON, f"{missing[0]} is gone from {place}", (), missing)


def _problem(
    runs: PastRuns, unit: _Told, place: str, kind: str, what: str, came: tuple[str, ...], missing: tuple[str, ...]
) -> Problem:
    why = runs.table.trust.unread.get(unit.run_id, "its journal is missing")
    also = "which run {0} had replaced, is there" if kind == BACK else "which run {0} did not leave so"
    return Problem(
        problem="",
        table=runs.table.target.name,
        run_id=unit.run_id,
        unit=unit.unit,
        kind=kind,
        old_location=place,
        came=came,
        gone=missing,
        message=(
            f"{unit.unit}: {what}, {also.format(unit.run_id)}, as the audit says; nothing is done on the word of that "
            f"run's journal ({why}); restore the state directory from a backup that has all of it, or read {place} "
            "with spark.read.parquet and bring the table's rows in order by SQL"
        ),
        base=runs.table.target.base,
    )

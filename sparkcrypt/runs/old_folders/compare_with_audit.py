"""Comparison with the audit: of old folders of runs without a trusted journal, and of units with the list of files.

A journal that is missing, lost its end or was replaced by an older copy is incomplete, so no file is reconciled, put
back or deleted because of it.  The audit, however, contains the source files of each swapped unit.  If the old folder
has other files now, a writer that was planned before the swap has committed there; if some are missing, they were
deleted.  Either opens a problem, which the operator decides.

A unit's list is replaced by the files that are there only if none of the listed ones is left, each file that is there
authenticates for this table and partition, and none is a file of an earlier entry; or if the metastore lacks the
partition.  Of an ORC file only the local keys authenticate, for its table, partition and name; so an encrypted one may
not have the name of a file of an earlier entry either.  Files that were deleted, or replayed by whoever may write to
the storage, are an open problem.  A run takes over no replayed file either: a unit's files are compared by their
digests before they are rewritten.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sparkcrypt.decide.identity import check_aad_prefix
from sparkcrypt.errors import KeyServiceError, KeyServiceUnavailableError, SparkcryptError, VerificationError
from sparkcrypt.files.footers import Depth, Found
from sparkcrypt.files.format import FORMATS
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.audit import ENCRYPT, SWAP, AuditEntry, AuditWriter, list_entries_of, make_entry
from sparkcrypt.ledger.audit.evidence import DigestSecret, list_evidence
from sparkcrypt.ledger.audit.manifest import (
    LISTED_GONE,
    REPLACED,
    REPLAYED,
    Digests,
    Manifest,
    keep_listed,
    read_every_entry,
    read_listed,
    sort_digests,
)
from sparkcrypt.ledger.audit.trust import AuditIndex
from sparkcrypt.ledger.state.mac import MasterKeys, has_mac_key
from sparkcrypt.ledger.unit import (
    Unit,
    base_location,
    by_place,
    is_staged,
    list_folders,
    list_unit,
    moved_place,
    path_below,
)
from sparkcrypt.paths import comparable_path
from sparkcrypt.runs.old_folders.old_folder import Writers
from sparkcrypt.runs.old_folders.past_run import PastRuns
from sparkcrypt.runs.old_folders.problems import BACK, OF_LIST, Decision, Problem, Problems
from sparkcrypt.runs.rewrite.context import ANSWER_SECONDS
from sparkcrypt.runs.rewrite.schedule import FailedUnit
from sparkcrypt.runs.table.difference import OF_FOLDERS
from sparkcrypt.runs.table.footers import DriverFooters, own_keys, summaries_of
from sparkcrypt.runs.table.scan import ScannedUnit, scan_footers

NOT_ACTED_UPON = "changed after a run that is not acted upon"


@dataclass(frozen=True, slots=True)
class _SwappedByAudit:
    """The audit's entries on a unit that a run has swapped.

    Attributes:
        run_id: the id of the run.
        unit: the unit's name.
        places: the folders that may contain old files: the old folder, the unit's original one, and the paths of both
            after a RENAME of the table.
        new: the folder to which the run has swapped it.
        number: the number of the entry of that.
        homes: folder to which runs have swapped the unit, in comparable form -> the number of the last entry of that.
        sources: path below the old folder -> length, of the files that were listed.
        carried: the same of late commits' files that were reconciled.
        decided: the same of the files that were there at the last resolution; None if there is none.
    """

    run_id: str
    unit: str
    places: tuple[str, ...]
    new: str
    number: int
    homes: Mapping[str, int]
    sources: Mapping[str, int]
    carried: Mapping[str, int]
    decided: Mapping[str, int] | None

    def has_home(self, folder: str) -> bool:
        """Return whether this run or a later one has swapped the unit to a folder."""
        place = comparable_path(folder)
        return place == comparable_path(self.new) or self.homes.get(place, 0) >= self.number


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
    used = {comparable_path(place) for place in now.values()}
    found = (problem for unit in units for problem in _problems(runs, unit, now, used))
    return [problems.add(problem).as_failed() for problem in found]


def resolve_unread(runs: PastRuns, found: Problem, decision: Decision) -> None:
    """Record the decision, on a problem of a run without a trusted journal, to leave the table unchanged.

    Raises:
        VerificationError: the decision would put old files into or out of use, which needs the run's journal.
    """
    if decision.keep != ("old" if found.kind == BACK else "new"):
        raise VerificationError(
            f"{found.unit}: the journal of run {found.run_id} is not acted upon, so no file can be moved on its word; "
            "restore the state directory from a backup that has all of it, or change the table's rows by SQL and "
            f"resolve the problem with --keep {'old' if decision.keep == 'new' else 'new'}; nothing was changed"
        )
    files = by_place(found.old_location, list_folders(runs.table.files, found.old_location))
    record_decision(runs, found, decision, {place: file.length for place, file in files.items()})


def record_decision(runs: PastRuns, found: Problem, decision: Decision, held: Mapping[str, int]) -> None:
    """Close a problem by a decision that moves no file, and put it into the audit.

    Args:
        runs: the table's runs, under its lock.
        found: the problem.
        decision: the decision.
        held: path below the problem's folder -> length, of the files that the decision covers.

    Raises:
        RunConflictError: another process recorded a decision concurrently.
    """
    table_id, mac = runs.table.target.table_id, runs.table.trust.mac(renew=True)
    listing = {"old": [[place, length] for place, length in sorted(held.items())]}
    unit = {**found.resolution(decision), "folder": found.old_location, "listing": listing}
    entry = make_entry("resolve", runs.table.policy.digest(), found.run_id, table=runs.table.target.name, unit=unit)
    runs.audit_writer().append(entry)
    runs.table.trust.forget_audit()
    Problems(runs.table.store, table_id, lambda: mac).close(found.problem, decision)


def places_of_unread(runs: PastRuns, readable: Collection[str]) -> set[str]:
    """Return the folders, in comparable form, that `compare_unread` compares with the audit."""
    return {comparable_path(place) for unit in _list_swapped(runs, readable) for place in unit.places}


def _list_swapped(runs: PastRuns, readable: Collection[str]) -> Iterator[_SwappedByAudit]:
    """Yield the audit's entries on each unit that a run has swapped, except runs whose journals are trusted."""
    log = runs.table.trust.log()
    if all(record.run_id in readable for record in log.records if record.kind == SWAP):
        return
    audit = runs.table.trust.audit()
    homes = _homes_by_unit(audit)
    for entry in list_entries_of(log):
        run_id, unit = str(entry.entry["why"]["run_id"]), str((entry.entry.get("unit") or {}).get("unit"))
        last = audit.swaps.get((run_id, unit))
        if run_id in readable or entry.entry["what"] != ENCRYPT or last is None or last.number != entry.number:
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
            yield _SwappedByAudit(
                run_id, unit, tuple(places.values()), new, entry.number, homes.get(unit, {}), sources, carried, decided
            )


def _homes_by_unit(audit: AuditIndex) -> dict[str, dict[str, int]]:
    """Return unit -> folder to which runs have swapped it, in comparable form -> number of the last entry of that."""
    homes: dict[str, dict[str, int]] = {}
    for (_, unit), entry in audit.swaps.items():
        if "new_location" in entry.entry["unit"]:
            place = comparable_path(str(entry.entry["unit"]["new_location"]))
            known = homes.setdefault(unit, {})
            known[place] = max(entry.number, known.get(place, 0))
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


def _problems(
    runs: PastRuns, unit: _SwappedByAudit, now: Mapping[str, str], used: Collection[str]
) -> Iterator[Problem]:
    for place in unit.places:
        found = _compare_place(runs, unit, place, is_used=comparable_path(place) in used)
        # Files that are missing are no problem where the unit's rows were replaced since.
        if found is None or (not found.came and not unit.has_home(now.get(unit.unit, ""))):
            continue
        why = runs.table.trust.unread.get(unit.run_id, "its journal is missing")
        yield replace(
            found,
            message=(
                f"{unit.unit}: {found.message}, as the audit says; nothing is done on the word of that run's journal "
                f"({why}); restore the state directory from a backup that has all of it, or read {place} with "
                "spark.read.parquet and bring the table's rows in order by SQL"
            ),
        )


def _compare_place(runs: PastRuns, unit: _SwappedByAudit, place: str, *, is_used: bool) -> Problem | None:
    """Return the problem of a folder that differs from the audit's entries, with what was found as its message."""
    held = unit.sources if unit.decided is None else unit.decided
    known = {**unit.sources, **unit.carried, **held}
    there = {name: file.length for name, file in by_place(place, list_folders(runs.table.files, place)).items()}
    came = tuple(sorted(name for name, length in there.items() if known.get(name) != length))
    back = tuple(sorted(name for name, length in unit.sources.items() if there.get(name) == length))
    # If the folder is empty, the old files have expired or were moved.
    missing = tuple(sorted(name for name in held if name not in there)) if there else ()
    found = Problem(
        problem="",
        table=runs.table.target.name,
        run_id=unit.run_id,
        unit=unit.unit,
        kind=NOT_ACTED_UPON,
        old_location=place,
        came=came,
        gone=missing,
        base=runs.table.target.base,
    )
    if is_used:
        if not back or unit.decided is not None:
            return None
        what = f"the table points to {place} again, {back[0]}, which run {unit.run_id} had replaced, is there"
        return replace(found, kind=BACK, came=back, gone=(), message=what)
    if came and not back:
        places = runs.table.in_use.look(seconds_old=ANSWER_SECONDS)
        if places.has_other_user(place, runs.table.target.name, unit.unit):
            return None
    if not (came or missing):
        return None
    what = f"{came[0]} came to the old folder {place}" if came else f"{missing[0]} is gone from {place}"
    return replace(found, message=f"{what}, which run {unit.run_id} did not leave so")


_READERS = 8


class ListedFiles:
    """The audit's list of a table's files, with which its units are compared while they are surveyed.

    Args:
        runs: the runs of the table, under its lock.
        problems: its open problems; what they decide is not decided here.

    Raises:
        VerificationError: an entry of the audit was edited, dropped or moved.
    """

    def __init__(self, runs: PastRuns, problems: Iterable[Problem]) -> None:
        self._runs, self._problems, self._manifest = runs, tuple(problems), Manifest()
        if has_mac_key(runs.table.store, runs.table.target.table_id):
            trust = runs.table.trust
            self._manifest, self._head = read_listed(runs.table.store, trust.log(), trust.mac())
        self._seen, self._settled = set[str](), set[str]()
        self._replayed = {problem.unit for problem in self._problems if problem.kind == REPLAYED}
        self._differing: list[tuple[Unit, frozenset[str]]] = []
        self._has_added = False
        self._one_at_a_time = threading.Lock()

    def compare(self, scanned: ScannedUnit) -> None:
        """Compare a unit's files with the list, by name and length."""
        unit, listed = scanned.unit, self._manifest.listed.get(scanned.unit.partition_path)
        self._seen.add(unit.partition_path)
        if not listed or any(drift.kind in OF_FOLDERS for drift in scanned.drift):
            return
        lost = self._find_lost(unit)
        if lost:
            self._differing.append((unit, frozenset(drift.kind for drift in scanned.drift)))
        elif unit.name not in self._replayed or self._has_another(unit) is False:
            self._settled.add(unit.name)
        if not lost:
            self._note_added(unit, listed)

    def _note_added(self, unit: Unit, listed: Collection[str]) -> None:
        now = by_place(unit.location, unit.folders)
        added = {place: file.length for place, file in now.items() if place not in listed}
        if added != self._manifest.beside.get(unit.partition_path, {}):
            self._manifest.beside[unit.partition_path] = added
            self._has_added = True

    def refuse_replayed(self, unit: Unit) -> None:
        """Refuse to rewrite a unit of which a file has the name and length of a listed one, and is another.

        Raises:
            VerificationError: there is such a file; a problem of it is open.
        """
        if self._manifest.listed.get(unit.partition_path) and self._has_another(unit):
            with self._one_at_a_time:
                problem = self._of_table.add(self._describe(unit, REPLAYED))
            raise VerificationError(problem.message)

    def _has_another(self, unit: Unit) -> bool | None:
        """Tell whether a file has the name and length of a listed one, and not its digest.

        Returns:
            None if that cannot be told, since a key of the audit's digests is gone.
        """
        with self._one_at_a_time:
            listed = self._history.listed[unit.partition_path]
        now = by_place(unit.location, unit.folders)
        alike = [(now[place], file) for place, file in listed.items() if place in now]
        alike = [(file, known) for file, known in alike if file.length == known.length]
        try:
            with ThreadPoolExecutor(_READERS) as pool:
                return not all(pool.map(lambda pair: self._digests.are_equal(*pair), alike))
        except KeyServiceUnavailableError:
            raise
        except KeyServiceError:
            return None

    def settle(self, *, whole: bool, adopt: bool) -> list[Problem]:
        """Record which units were replaced or dropped; open a problem for each other that differs from the list.

        Args:
            whole: every unit of the table was compared.
            adopt: files that belong elsewhere are accepted.

        Returns:
            The problems that were opened.

        Raises:
            KeyServiceUnavailableError: keys that are needed for that cannot be opened now.
        """
        opened, problems = list[Problem](), self._problems
        if self._has_added:
            runs = self._runs
            keep_listed(
                runs.table.store, runs.table.target.table_id, runs.table.trust.mac(), self._manifest, self._head
            )
        undecided = {problem.unit for problem in problems if problem.kind not in OF_LIST}
        for unit, drift in self._differing:
            kind = None if unit.name in undecided else self._judge(unit, drift, adopt=adopt)
            if kind == REPLACED:
                self._settled.add(unit.name)
            elif kind is not None:
                opened.append(self._of_table.add(self._describe(unit, kind)))
        if whole:
            self._record_dropped()
        for problem in problems:
            if problem.kind in OF_LIST and problem.unit in self._settled:
                decision = Decision("both", "its files are those of the list again, or a writer has replaced them")
                self._append("resolve", problem.resolution(decision), {})
                self._of_table.close(problem.problem, decision)
        return opened

    def _record_dropped(self) -> None:
        dropped = [name for name, files in self._manifest.listed.items() if files and name and name not in self._seen]
        in_metastore = self._runs.table.in_use.units() if dropped else {}
        for name in dropped:
            if name not in in_metastore:
                self._append(REPLACED, {"unit": name, "files": 0}, {})
                self._settled.add(name)

    def _find_lost(self, unit: Unit) -> list[str]:
        """Return which listed files are not there with their lengths, as paths below the unit."""
        now = by_place(unit.location, unit.folders)
        listed = self._manifest.listed[unit.partition_path]
        return [place for place, file in listed.items() if place not in now or now[place].length != file.length]

    def _judge(self, unit: Unit, drift: Collection[str], *, adopt: bool) -> str | None:
        """Record a unit that was replaced, and say so; return the kind of its problem otherwise, None if not known."""
        runs, added = self._runs, self._manifest.beside.get(unit.partition_path, {}).items()
        now = {(place, file.length) for place, file in by_place(unit.location, unit.folders).items()}
        is_left = len(self._find_lost(unit)) < len(self._manifest.listed[unit.partition_path])
        if is_left or not unit.files or not now.isdisjoint(added):
            return None if self._writers.find(unit.location) else LISTED_GONE
        try:
            footers = _read_footers(runs, unit, "keys")
            is_authentic = _are_authentic(runs, unit, footers)
            if not is_authentic and not drift:
                return None  # nothing rewrites it
            if ("aad_mismatch" in drift and not adopt) or self._is_replayed(unit, footers):
                return REPLAYED
            if not is_authentic:
                return None
            evidence = list_evidence(runs.table.files, unit.folders, summaries_of(footers), self._secret)
        except KeyServiceUnavailableError:
            raise
        except SparkcryptError:
            return None  # what cannot be read proves nothing: the list stays as it is
        self._append(REPLACED, {"unit": unit.name, "files": len(unit.files)}, evidence)
        return REPLACED

    def _is_replayed(self, unit: Unit, footers: Mapping[str, Found]) -> bool:
        """Tell whether a file is one of an earlier entry, by length and digest, or an encrypted ORC file by its name.

        Whoever has an ORC file can change its bytes, and so its digest, but not the name that its keys are for.
        """
        earlier = self._history.earlier.get(unit.partition_path, {})
        names = {_name_of(known.path) for files in earlier.values() for known in files}
        alike = {length: sort_digests(files) for length, files in earlier.items()}
        bound = (
            path
            for path, summary in summaries_of(footers).items()
            if not FORMATS[summary.format].authenticates and summary.encrypted
        )
        return any(_name_of(path) in names for path in bound) or any(
            self._digests.is_among(file, alike.get(file.length, ())) for file in unit.files
        )

    def _describe(self, unit: Unit, kind: str) -> Problem:
        lost, runs = self._find_lost(unit), self._runs
        if kind == REPLAYED:
            found = (
                f"files that the audit lists in {unit.location} are gone or changed, and a file there is an earlier "
                "one of this unit, or belongs elsewhere: somebody restored, replayed or moved it; the unit stays so"
            )
        else:
            more = f" and {len(lost) - 1:,} more" if len(lost) > 1 else ""
            beside = "others, or files that were beside it, are there yet" if unit.files else "nothing is there now"
            found = (
                f"{lost[0]}{more}, which the audit lists in {unit.location}, is gone or changed, and {beside}, so no "
                "writer can be said to have replaced the unit"
            )
        return Problem(
            problem="",
            table=runs.table.target.name,
            run_id=self._manifest.runs.get(unit.partition_path) or REPLACED,
            unit=unit.name,
            kind=kind,
            old_location=unit.location,
            gone=tuple(lost),
            message=f"{unit.name}: {found}; `sparkcrypt verify --manifest` ends with 74 until then",
            base=runs.table.target.base,
        )

    def _append(self, what: str, unit: Mapping[str, Any], evidence: Mapping[str, Any]) -> None:
        runs = self._runs
        entry = make_entry(
            what, runs.table.policy.digest(), REPLACED, table=runs.table.target.name, unit=unit, **evidence
        )
        self._audit.append(entry)
        runs.table.trust.forget_audit()

    @cached_property
    def _of_table(self) -> Problems:
        return self._runs.problems()

    @cached_property
    def _writers(self) -> Writers:
        return Writers(self._runs.table.files, self._runs.table.target.base)

    @cached_property
    def _audit(self) -> AuditWriter:
        return self._runs.audit_writer()

    @cached_property
    def _history(self) -> Manifest:
        return read_every_entry(self._runs.table.store, self._runs.table.target.table_id, self._runs.table.trust.mac())

    @cached_property
    def _digests(self) -> Digests:
        return Digests(self._runs.table.files, open_key_service(self._runs.table.policy.key_service))

    @cached_property
    def _secret(self) -> DigestSecret:
        """The secret of earlier passes, so that a comparison with many of their entries opens one; else a new one."""
        key_id = MasterKeys.of(self._runs.table.policy).current
        if self._history.secret.get("key_id") == key_id:
            return self._digests.open_secret(self._history.secret)
        return DigestSecret.make(open_key_service(self._runs.table.policy.key_service), key_id)


def _are_authentic(runs: PastRuns, unit: Unit, footers: Mapping[str, Found]) -> bool:
    """Tell whether each file of a unit authenticates for this table and partition, and matches the plan.

    Of an ORC file the local keys do: they are wrapped for its table, partition and name.
    """
    scanned = scan_footers(unit, footers, runs.table.target, tell_shredded=runs.table.trust.shredded.select)
    if scanned.drift or len(summaries_of(footers)) < len(unit.files):
        return False
    for path, summary in summaries_of(footers).items():
        try:
            if not summary.encrypted:
                return False
            if check_aad_prefix(summary.aad_prefix, path, table_uuid=runs.table.target.uuid, strict=True) is not None:
                return False
        except VerificationError:
            return False
    return True


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


def resolve_listed(runs: PastRuns, found: Problem, decision: Decision) -> None:
    """Record the decision that a unit is right as it is now; its files become those of the list.

    Raises:
        VerificationError: the decision would put other files into use.
    """
    if decision.keep != "new":
        raise VerificationError(
            f"{found.unit}: no run has the files that are gone, so none can put them back; restore them from a backup, "
            "and the next pass closes the problem, or bring the table's rows in order by SQL and resolve it with "
            "--keep new; nothing was changed"
        )
    named = [unit for unit in runs.table.target.units(None) if unit.name == found.unit]
    evidence: dict[str, Any] = {}
    for unit in (list_unit(runs.table.files, unit) for unit in named):
        summaries = summaries_of(_read_footers(runs, unit))
        folders = tuple(
            replace(folder, files=tuple(file for file in folder.files if file.path in summaries))
            for folder in unit.folders
        )
        service = open_key_service(runs.table.policy.key_service)
        secret = DigestSecret.make(service, MasterKeys.of(runs.table.policy).current)
        evidence = list_evidence(runs.table.files, folders, summaries, secret)
    unit_fields = found.resolution(decision)
    entry = make_entry(
        "resolve", runs.table.policy.digest(), REPLACED, table=runs.table.target.name, unit=unit_fields, **evidence
    )
    runs.audit_writer().append(entry)
    runs.table.trust.forget_audit()
    runs.problems().close(found.problem, decision)


def _read_footers(runs: PastRuns, unit: Unit, depth: Depth = "footer") -> Mapping[str, Found]:
    reader = DriverFooters(runs.table.files, own_keys(runs.table.policy.key_service), depth=depth)
    return reader.read(unit.files)

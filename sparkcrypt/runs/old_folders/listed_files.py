"""Compares the units of a table with the audit's list of their files, and records those that writers have replaced.

A unit's list is replaced by the files that are there only if none of the listed ones is left, each file that is there
authenticates for this table and partition, and none is a file of an earlier entry; or if the metastore lacks the
partition.  Of an ORC file only the local keys authenticate, for its table, partition and name; so an encrypted one may
not have the name of a file of an earlier entry either.  Files that were deleted, or replayed by whoever may write to
the storage, are an open problem.  A run takes over no replayed file either: a unit's files are compared by their
digests before they are rewritten.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any

from sparkcrypt.decide.identity import check_aad_prefix
from sparkcrypt.errors import KeyServiceError, KeyServiceUnavailableError, SparkcryptError, VerificationError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.audit import AuditWriter, make_entry
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
)
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.ledger.unit import Unit, by_place, list_unit
from sparkcrypt.runs.old_folders.ended_writers import writers_folder
from sparkcrypt.runs.old_folders.past_run import PastRuns
from sparkcrypt.runs.old_folders.problems import OF_LIST, Problem
from sparkcrypt.runs.table.difference import OF_FOLDERS
from sparkcrypt.runs.table.footers import DriverFooters, Footers, own_keys, sort_footers
from sparkcrypt.runs.table.scan import ScannedUnit, scan_footers

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
        if runs.table.store.list(f"audit/{runs.table.target.table_id}/"):
            self._manifest, self._head = read_listed(
                runs.table.store, runs.table.target.table_id, runs.table.trust.mac()
            )
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
                problem = self._runs.problems().add(self._describe(unit, REPLAYED))
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
                opened.append(self._runs.problems().add(self._describe(unit, kind)))
        if whole:
            self._record_dropped()
        for problem in problems:
            if problem.kind in OF_LIST and problem.unit in self._settled:
                reason = "its files are those of the list again, or a writer has replaced them"
                self._append("resolve", problem.resolution("both", reason), {})
                self._runs.problems().close(problem.problem, "both", reason)
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
            return None if writers_folder(runs.table.files, unit.location, runs.table.target.base) else LISTED_GONE
        try:
            footers = _read_footers(runs, unit, every_key=True)
            is_authentic = _are_authentic(runs, unit, footers)
            if not is_authentic and not drift:
                return None  # nothing rewrites it
            if ("aad_mismatch" in drift and not adopt) or self._is_replayed(unit, footers):
                return REPLAYED
            if not is_authentic:
                return None
            evidence = list_evidence(runs.table.files, unit.folders, footers.summaries, self._secret)
        except KeyServiceUnavailableError:
            raise
        except SparkcryptError:
            return None  # what cannot be read proves nothing: the list stays as it is
        self._append(REPLACED, {"unit": unit.name, "files": len(unit.files)}, evidence)
        return REPLACED

    def _is_replayed(self, unit: Unit, footers: Footers) -> bool:
        """Tell whether a file is one of an earlier entry, by length and digest, or an encrypted ORC file by its name.

        Whoever has an ORC file can change its bytes, and so its digest, but not the name that its keys are for.
        """
        earlier = self._history.earlier.get(unit.partition_path, {})
        names = {_name_of(known.path) for files in earlier.values() for known in files}
        bound = (path for path, summary in footers.summaries.items() if summary.format == "orc" and summary.encrypted)
        return any(_name_of(path) in names for path in bound) or any(
            self._digests.are_equal(file, known) for file in unit.files for known in earlier.get(file.length, ())
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
    def _audit(self) -> AuditWriter:
        return AuditWriter(
            self._runs.table.store, self._runs.table.target.table_id, self._runs.table.trust.mac(renew=True)
        )

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


def _are_authentic(runs: PastRuns, unit: Unit, footers: Footers) -> bool:
    """Tell whether each file of a unit authenticates for this table and partition, and matches the plan.

    Of an ORC file the local keys do: they are wrapped for its table, partition and name.
    """
    scanned = scan_footers(unit, footers, runs.table.target, tell_shredded=runs.table.trust.shredded.select)
    if scanned.drift or len(footers.summaries) < len(unit.files):
        return False
    for path, summary in footers.summaries.items():
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


def resolve_listed(runs: PastRuns, found: Problem, keep: str, reason: str) -> None:
    """Record the decision that a unit is right as it is now; its files become those of the list.

    Raises:
        VerificationError: the decision would put other files into use.
    """
    if keep != "new":
        raise VerificationError(
            f"{found.unit}: no run has the files that are gone, so none can put them back; restore them from a backup, "
            "and the next pass closes the problem, or bring the table's rows in order by SQL and resolve it with "
            "--keep new; nothing was changed"
        )
    named = [unit for unit in runs.table.target.units(None) if unit.name == found.unit]
    evidence: dict[str, Any] = {}
    for unit in (list_unit(runs.table.files, unit) for unit in named):
        summaries = _read_footers(runs, unit).summaries
        folders = tuple(
            replace(folder, files=tuple(file for file in folder.files if file.path in summaries))
            for folder in unit.folders
        )
        service = open_key_service(runs.table.policy.key_service)
        secret = DigestSecret.make(service, MasterKeys.of(runs.table.policy).current)
        evidence = list_evidence(runs.table.files, folders, summaries, secret)
    unit_fields = found.resolution(keep, reason)
    entry = make_entry(
        "resolve", runs.table.policy.digest(), REPLACED, table=runs.table.target.name, unit=unit_fields, **evidence
    )
    AuditWriter(runs.table.store, runs.table.target.table_id, runs.table.trust.mac(renew=True)).append(entry)
    runs.table.trust.forget_audit()
    runs.problems().close(found.problem, keep, reason)


def _read_footers(runs: PastRuns, unit: Unit, *, every_key: bool = False) -> Footers:
    reader = DriverFooters(runs.table.files, own_keys(runs.table.policy.key_service), every_key=every_key)
    return sort_footers(reader.read(unit.files), unit.files)

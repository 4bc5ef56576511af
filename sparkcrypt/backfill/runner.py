"""The steps of one unit, journalled: list, stage, verify, recheck, swap, recheck, audit; and recovery after a crash."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sparkcrypt.backfill.audit import append_entry
from sparkcrypt.backfill.check import StagedUnit
from sparkcrypt.backfill.evidence import DigestSecret, evidence_of, files_of
from sparkcrypt.backfill.footers import fresh_keys
from sparkcrypt.backfill.journal import SWAPPED, Journal, UnitState, state_of_units
from sparkcrypt.backfill.lock import RunLock
from sparkcrypt.backfill.mac import MasterKeys, TableMac, open_mac
from sparkcrypt.backfill.move import move_old
from sparkcrypt.backfill.outcome import UnitOutcome
from sparkcrypt.backfill.progress import Progress
from sparkcrypt.backfill.scan import ScannedUnit, refuse_unreadable
from sparkcrypt.backfill.staging import Proof, StagedWork, Stager
from sparkcrypt.backfill.store import StateStore
from sparkcrypt.backfill.swap import Swap
from sparkcrypt.backfill.targets import CatalogTarget, Target
from sparkcrypt.backfill.units import Folder, SourceFile, Unit, list_folders, old_folder
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.errors import RunConflictError, VerificationError
from sparkcrypt.keys.service import open_key_service
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.catalog import Catalog, Partition
from sparkcrypt.spark.files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Runner:
    """Takes units through their steps; every step is in the journal before the next begins."""

    def __init__(
        self,
        spark: SparkSession,
        target: Target,
        policy: Policy,
        stager: Stager,
        swap: Swap,
        store: StateStore,
        journal: Journal,
        lock: RunLock,
        progress: Progress,
    ) -> None:
        self._spark, self._target, self._policy = spark, target, policy
        self._stager, self.swap, self._store = stager, swap, store
        self.journal, self._lock, self._progress = journal, lock, progress
        self._files = HadoopFiles(spark)
        self._service, self._masters = open_key_service(policy.key_service), MasterKeys.of(policy)

    @cached_property
    def _secret(self) -> DigestSecret:
        """The secret under which this execution's digests are made."""
        return DigestSecret.make(self._service, self._masters.current)

    @cached_property
    def _mac(self) -> TableMac:
        """What authenticates the audit; under the table's lock nobody else gives it a new key."""
        return open_mac(self._store, self._target.table_id, self._service, self._masters, renew=True)

    @property
    def moves_old(self) -> bool:
        """The run was asked to move old files out of the table's folder."""
        return bool(self.journal.run.options.get("move_old"))

    def process(self, scanned: ScannedUnit) -> UnitOutcome:
        """Take one unit from listed to swapped.

        Raises:
            SparkcryptError: a step failed; the unit is as it was before, and the staged files are gone.
        """
        refuse_unreadable(scanned)
        unit = scanned.unit
        staged = unit.staging(self._target.base, self.journal.run.run_id)
        self.journal.append("unit_listed", unit=unit.name, staged=staged, **_described(unit))
        try:
            work, proof, evidence = self._stage(scanned, staged)
            old = self._swap_in(unit, staged, proof.unit)
        except BaseException as error:
            self._give_up(unit, staged, error)
            raise
        outcome = UnitOutcome(
            name=unit.name,
            files=len(unit.files),
            rows=proof.rows,
            bytes_before=unit.total_bytes,
            bytes_after=proof.unit.total_bytes,
            old_location=old,
            new_location=self.swap.final_location(unit, staged),
            verified=True,
            not_authenticated=proof.unit.not_authenticated,
            codec=work.codec,
            notes=work.notes,
            engine=work.engine,
        )
        self._record(unit, staged, outcome, evidence)
        outcome = self._moved(outcome, unit.partition_path)
        self._progress.advance(outcome.files, outcome.bytes_before)
        return outcome

    def _stage(self, scanned: ScannedUnit, staged: str) -> tuple[StagedWork, Proof, dict[str, Any]]:
        unit = scanned.unit
        self._progress.step(unit.name, "staging")
        sources = files_of(self._files, unit.folders, scanned.summaries, self._secret)
        work = self._stager.stage(scanned, staged)
        self._files.copy_access(unit.location, staged)
        folders = list_folders(self._files, staged)
        self.journal.append("unit_staged", unit=unit.name, staged=staged, files=_listed(folders))
        self._progress.step(unit.name, "verifying")
        with fresh_keys(self._policy.key_service) as keys:
            proof = work.prove(folders, keys)
        differing = self._files.same_access(unit.location, staged)
        if differing:
            raise VerificationError(
                f"{unit.name}: the staged folder's access differs: {'; '.join(differing)}; nothing was swapped"
            )
        targets = files_of(self._files, folders, proof.unit.summaries, self._secret)
        evidence = evidence_of(sources, targets, proof, self._secret)
        about = {"codec": work.codec, "notes": list(work.notes), "engine": work.engine}
        self.journal.append(
            "unit_verified", unit=unit.name, rows=proof.rows, staged=staged, evidence=evidence, about=about
        )
        return work, proof, evidence

    def _swap_in(self, unit: Unit, staged: str, verified: StagedUnit) -> str:
        self._progress.step(unit.name, "swapping")
        self._recheck(unit, unit.location)
        self.journal.append("unit_swapping", unit=unit.name, staged=staged, **_described(unit))
        catalog = Catalog(self._spark) if isinstance(self._target, CatalogTarget) else None
        statistics = (
            catalog.statistics(self._target.table) if catalog and isinstance(self._target, CatalogTarget) else None
        )
        self._lock.check()
        old = self.swap.swap(unit, staged)
        try:
            self._recheck(unit, old)
        except VerificationError:
            if _names(list_folders(self._files, self.swap.final_location(unit, staged))) == _names(verified.folders):
                self.swap.undo(unit, staged)
            raise
        if catalog and isinstance(self._target, CatalogTarget) and statistics is not None:
            encrypted = frozenset(column.leaf.logical[0] for column in self._target.plan.encrypted)
            catalog.restore_statistics(self._target.table, statistics, encrypted)
        return old

    def _recheck(self, unit: Unit, location: str) -> None:
        """See that the source is as it was listed, wherever it is now.

        Raises:
            VerificationError: a file came, went or changed.
        """
        now = {
            _relative(location, file): file for folder in list_folders(self._files, location) for file in folder.files
        }
        then = {_relative(unit.location, file): file for file in unit.files}
        for name in sorted(now.keys() | then.keys()):
            new, known = now.get(name), then.get(name)
            if new is None or known is None or (new.length, new.modified_ms) != (known.length, known.modified_ms):
                what = "is gone" if new is None else "is new" if known is None else "changed"
                raise VerificationError(
                    f"{unit.name}: file {name} {what} since the listing, so someone writes to it; the unit is left as "
                    "it was, run again"
                )

    def _give_up(self, unit: Unit, staged: str, error: BaseException) -> None:
        """Leave no staged files behind, unless they are in use already, or another driver goes on with this run."""
        if isinstance(error, RunConflictError):
            return
        if not self.swap.in_effect(unit, staged):
            self._files.delete_tree(staged)
        self.journal.append("unit_failed", unit=unit.name, error=f"{type(error).__name__}: {error}")

    def _record(self, unit: Unit, staged: str, outcome: UnitOutcome, evidence: Mapping[str, Any]) -> None:
        """Write the audit entry, then the journal's last word on the swap."""
        entry = {
            "who": f"{getpass.getuser()}@{socket.gethostname()}",
            "what": "encrypt",
            "why": {"policy_digest": self._policy.digest(), "run_id": self.journal.run.run_id},
            "table": self._target.name,
            "engine": outcome.engine,
            "unit": outcome.to_dict(),
            "digests": evidence.get("digests"),
            "changes": placed(evidence.get("changes", ()), unit, staged, outcome),
        }
        head = append_entry(self._store, self._target.table_id, entry, mac=self._mac)
        self.journal.append("unit_swapped", unit=unit.name, outcome=outcome.to_dict(), audit=head.to_dict())

    def _moved(self, outcome: UnitOutcome, partition_path: str) -> UnitOutcome:
        """Move a swapped unit's old files out of the table's folder, if the run was asked to."""
        if not self.moves_old:
            return outcome
        self._lock.check()
        to = old_folder(self._target.base, self.journal.run.run_id, partition_path)
        move_old(self._files, outcome.name, outcome.old_location, to)
        outcome = replace(outcome, old_location=to)
        self.journal.append("unit_moved", unit=outcome.name, outcome=outcome.to_dict())
        return outcome

    def recover(self) -> list[UnitOutcome]:
        """Bring the units of an interrupted run to a clean state: swapped ones stay, others lose their staged files.

        Returns:
            What was swapped already.
        """
        outcomes = []
        for name, last in state_of_units(self.journal.records).items():
            state = last.failed_at or last
            if state.step in SWAPPED:
                outcomes.append(self._recover_move(state))
            elif state.step == "unit_swapping":
                outcomes.extend(self._recover_swap(name, state.fields))
            elif "staged" in state.fields:
                self._files.delete_tree(str(state.fields["staged"]))
        return outcomes

    def _recover_move(self, state: UnitState) -> UnitOutcome:
        outcome = UnitOutcome.from_dict(state.fields["outcome"])
        if state.step == "unit_moved":
            return outcome
        return self._moved(outcome, str(state.fields["partition_path"]))

    def _recover_swap(self, name: str, fields: Mapping[str, Any]) -> list[UnitOutcome]:
        unit, staged = _restored(name, fields), str(fields["staged"])
        if not self.swap.in_effect(unit, staged):
            self._files.delete_tree(staged)
            return []
        new, about = self.swap.final_location(unit, staged), fields.get("about", {})
        after = list_folders(self._files, new)
        outcome = UnitOutcome(
            name=name,
            files=len(unit.files),
            rows=int(fields.get("rows", 0)),
            bytes_before=unit.total_bytes,
            bytes_after=sum(file.length for folder in after for file in folder.files),
            old_location=self.swap.old_location(unit),
            new_location=new,
            verified=True,
            codec=about.get("codec"),
            notes=tuple(about.get("notes", ())),
            engine=about.get("engine", "spark"),
        )
        self._record(unit, staged, outcome, fields.get("evidence", {}))
        return [self._moved(outcome, unit.partition_path)]


def placed(changes: Iterable[Mapping[str, Any]], unit: Unit, staged: str, outcome: UnitOutcome) -> list[dict[str, Any]]:
    """Return a unit's changes with the places of its files after the swap.

    A source keeps the path at which it was listed as ``path`` and is at ``kept`` now; a target was made at ``staged``
    and is at ``path`` now.
    """

    def at(location: str, file: Mapping[str, Any], below: str) -> str:
        return f"{location.rstrip('/')}/{_below(below, str(file['path']))}"

    return [
        {
            **change,
            "sources": [{**file, "kept": at(outcome.old_location, file, unit.location)} for file in change["sources"]],
            "targets": [
                {**file, "staged": file["path"], "path": at(outcome.new_location, file, staged)}
                for file in change["targets"]
            ],
        }
        for change in changes
    ]


def _described(unit: Unit) -> dict[str, Any]:
    """Return what a journal needs to know a unit again."""
    return {
        "location": unit.location,
        "partition": None if unit.partition is None else [list(pair) for pair in unit.partition.values],
        "serde": "" if unit.partition is None else unit.partition.serde,
        "partition_path": unit.partition_path,
        "files": _listed(unit.folders),
    }


def _restored(name: str, fields: Mapping[str, Any]) -> Unit:
    values = tuple((pair[0], pair[1]) for pair in fields["partition"] or ())
    location = str(fields["location"])
    return Unit(
        name=name,
        location=location,
        partition=Partition(values, location, str(fields["serde"])) if values else None,
        partition_path=str(fields["partition_path"]),
        values=dict(values),
        folders=tuple(Folder(one[0], tuple(SourceFile(*file) for file in one[1])) for one in fields["files"]),
    )


def _listed(folders: tuple[Folder, ...]) -> list[Any]:
    return [[folder.relative, [file.to_list() for file in folder.files]] for folder in folders]


def _names(folders: tuple[Folder, ...]) -> set[tuple[str, str, int]]:
    return {(folder.relative, file.path.rpartition("/")[2], file.length) for folder in folders for file in folder.files}


def _relative(location: str, file: SourceFile) -> str:
    return _below(location, file.path)


def _below(location: str, path: str) -> str:
    """Return a file's path below its unit; the URI forms of the two may differ (``file:/x`` and ``file:///x``)."""
    return comparable_path(path).removeprefix(comparable_path(location)).lstrip("/")

"""What the records of a table are believed by: the MAC of its audit, the audit itself, and where its folders are.

The state directory is not trusted.  A journal is acted upon once

- each record bears the audit's MAC, or is of version 1 and pinned by an audit entry (``migrate``),
- no record is missing after which an audit entry was written, so that what was cut off its end is no more than what a
  crash might have kept from being written,
- each path that it names is inside the folders in which the table's runs work.

Whoever deletes old files, or puts them back, demands the unit's own audit entry besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache

from sparkcrypt.backfill.audit.audit import AuditEntry
from sparkcrypt.backfill.audit.audit_index import AuditIndex
from sparkcrypt.backfill.audit.confined_paths import RunFolders, refuse_outside
from sparkcrypt.backfill.audit.shredded_keys import ShreddedKeys
from sparkcrypt.backfill.journal.journal import Journal
from sparkcrypt.backfill.journal.run_steps import has_ended
from sparkcrypt.backfill.journal.settled_runs import is_settled, settle
from sparkcrypt.backfill.journal.unit_steps import UnitState
from sparkcrypt.backfill.state.mac import MasterKeys, TableMac, open_mac
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.backfill.target.unit import base_location, is_staged, old_folder
from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.paths import comparable_path
from sparkcrypt.policy.model import Policy


@dataclass(slots=True)
class TableTrust:
    """Opens the journals of one table for whoever acts on them; keys and the audit are opened when first needed.

    Attributes:
        store: the state directory.
        table_id: which table.
        policy: names the master keys of the audit.
        base: the table's original folder.
        locations: returns where the metastore has the table and its partitions, and the copy that a run was asked for,
            whose place is its argument.
        is_free: tells whether no other table points to a folder, into it or above it.
        unread: run id -> why its records are not acted upon, of those that were looked at.
    """

    store: StateStore
    table_id: str
    policy: Policy
    base: str
    locations: Callable[[str | None], Iterable[str]]
    is_free: Callable[[str], bool] = field(default=lambda _: False)
    _mac: TableMac | None = None
    _renewed: bool = False
    _audit: AuditIndex | None = None
    _named: dict[str | None, tuple[str, ...]] = field(default_factory=dict)
    _shredded: ShreddedKeys | None = None
    unread: dict[str, str] = field(default_factory=dict)

    def mac(self, *, renew: bool = False) -> TableMac:
        """Return the MAC of the table's audit.

        Args:
            renew: under the policy's master key; for who is about to write, under the table's lock.

        Raises:
            KeyServiceError: the key service did not unwrap.
            VerificationError: a MAC key is gone or damaged.
        """
        if self._mac is None or (renew and not self._renewed):
            service, masters = open_key_service(self.policy.key_service), MasterKeys.of(self.policy)
            self._mac, self._renewed = open_mac(self.store, self.table_id, service, masters, renew=renew), renew
        return self._mac

    @property
    def shredded(self) -> ShreddedKeys:
        """Tells which master keys were shredded; the audit of keys is read when it is first needed."""
        if self._shredded is None:
            self._shredded = ShreddedKeys(self.store, self.policy)
        return self._shredded

    def audit(self) -> AuditIndex:
        """Return what the table's audit says, once each entry is authentic.

        Raises:
            VerificationError: one is not; it is named.
        """
        if self._audit is None:
            self._audit = AuditIndex.of(self.store, self.table_id, self.mac().check)
        return self._audit

    def forget_audit(self) -> None:
        """Read the audit again when it is needed next, since an entry was added."""
        self._audit = None
        self._named.clear()

    def look_again(self) -> None:
        """Forget what was seen before the table's lock was held, when another driver may have worked on it."""
        self.forget_audit()
        self.unread.clear()

    def journal(self, run_id: str) -> Journal:
        """Open the journal of a run, to act on it.

        Raises:
            VerificationError: it is damaged, not authentic, cut, or names folders of others; nothing may be done on
                its word.
        """
        audit = self.audit()  # before the journal, whose records are there before the entries that name them
        journal = Journal.open(self.store, self.table_id, run_id, self.mac(), audit.pins.get)
        audit.refuse_cut(journal)
        refuse_outside(journal.records, self.places(journal))
        return journal

    def places(self, journal: Journal) -> RunFolders:
        """Return the folders in which a run of the table works, or worked before the table was renamed."""
        output = journal.run.output
        return RunFolders(self.base, lambda: self._folders(output), cache(lambda: self._find_earlier_bases(journal)))

    def find_unfinished(self) -> str | None:
        """Return the latest run that has not ended and can be continued.

        What cannot be read, or is not believed, is noted in ``unread`` and skipped.
        """
        names = self.store.list(f"runs/{self.table_id}/")
        if not names or is_settled(self.store, self.table_id, names, self.mac().check):
            return None
        for run_id in reversed(Journal.runs(self.store, self.table_id, archived=False)):
            try:
                if not Journal.has_ended(self.store, self.table_id, run_id, self.mac()):
                    journal = self._opened_for_later(run_id)
                    self._refuse_earlier_keys(journal)
                    if not has_ended(journal):
                        return run_id
            except VerificationError as error:
                self.unread[run_id] = str(error)
        if not self.unread:
            settle(self.store, self.table_id, names, self.mac())
        return None

    def unread_runs(self) -> tuple[str, ...]:
        """Return what people must know of runs on whose records nothing is done."""
        return tuple(f"run {run_id} was skipped: {why}" for run_id, why in sorted(self.unread.items()))

    def refuse_unaudited(self, journal: Journal, name: str, state: UnitState) -> None:
        """Refuse a unit whose swap, or rollback, the audit does not tell as the journal does.

        Raises:
            VerificationError: the audit has no entry of it, or one of other folders.
        """
        entry = self.audit().swaps.get((journal.run.run_id, name))
        if not self._tells_the_same(entry, journal, state):
            told = "no entry" if entry is None else f"the entry {entry.name}"
            raise VerificationError(
                f"{name}: the journal of run {journal.run.run_id} says {state.step.replace('_', ' ')}, and the audit "
                f"has {told} of it, which does not say so; nothing was changed; see `sparkcrypt audit verify`"
            )

    def _opened_for_later(self, run_id: str) -> Journal:
        """Open an unfinished run, whose records of version 1 may still be migrated before it is continued."""
        if self.audit().has_version_2:
            return self.journal(run_id)
        unchecked = Journal.open(self.store, self.table_id, run_id)
        return unchecked if unchecked.records[0].version == 1 else self.journal(run_id)

    def _refuse_earlier_keys(self, journal: Journal) -> None:
        """Refuse to continue a run of which a record is under a key that the audit has given up.

        What such a record says has no audit entry yet, and whoever holds the weaker key could have written it.

        Raises:
            VerificationError: one is.
        """
        newest = len(self.mac().key_ids)
        for record in journal.records:
            if journal.authenticated and 0 < record.generation < newest:
                raise VerificationError(
                    f"{record.name}: is under a MAC key that the audit has given up since, so the run is not continued"
                )

    def _tells_the_same(self, entry: AuditEntry | None, journal: Journal, state: UnitState) -> bool:
        """Tell whether an entry says of a unit what its journal does; a rollback begins before it has its own entry."""
        if entry is None:
            return False
        if entry.entry["what"] != "encrypt":
            return state.step in ("unit_rolling_back", "unit_rolled_back")
        run_id, unit = journal.run.run_id, str(entry.entry["unit"]["unit"])
        relocated = [later for later in self.audit().relocated.get((run_id, unit), ()) if later.number > entry.number]
        told = [audited.entry["unit"] for audited in (entry, *relocated)]
        bases = {
            self.base,
            base_location(state.staged),
            *(told_unit["base"] for told_unit in told if "base" in told_unit),
        }
        moved = [old_folder(base, run_id, state.partition_path) for base in bases]
        old = {comparable_path(str(place)) for place in (*moved, *(unit["old_location"] for unit in told))}
        new = {comparable_path(str(unit["new_location"])) for unit in told}
        return (
            state.swapped and comparable_path(state.new_location) in new and comparable_path(state.old_location) in old
        )

    def _find_earlier_bases(self, journal: Journal) -> set[str]:
        """Return the original folders that the table had before it was renamed.

        The audit tells of them, or the metastore, whose partitions point below ``.sparkcrypt`` beside them.  Of a run
        that was killed before either could, its own authentic records do, as far as the folder is beside the table's
        and no other table's by now.
        """
        output = journal.run.output
        known = self.audit().bases() | {base_location(folder) for folder in self._folders(output) if is_staged(folder)}
        told = {base_location(record.staged) for record in journal.records if record.staged is not None}
        beside = {base for base in told - known if _is_beside(base, self.base) and base != self.base}
        return known | {base for base in beside if journal.authenticated and self.is_free(base)}

    def _folders(self, output: str | None) -> tuple[str, ...]:
        if output not in self._named:
            self._named[output] = (*self.locations(output), *self.audit().folders)
        return self._named[output]


def _is_beside(folder: str, base: str) -> bool:
    parent, other = (comparable_path(place).rstrip("/").rpartition("/")[0] for place in (folder, base))
    return parent == other

"""Checks of a table's records before anything acts on them: by its audit's MAC, its audit, and its folders.

The state directory is not trusted.  A journal is acted on only if

- each record has the audit's MAC,
- every record after which an audit entry was written is present, so that no more can be missing at its end than a
  crash might have prevented from being written,
- each path in it is inside the folders in which the table's runs work.

Code that deletes old files, or puts them back, also requires the unit's own audit entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache

from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.audit import AuditEntry
from sparkcrypt.ledger.audit.audit_index import AuditIndex
from sparkcrypt.ledger.audit.confined_paths import RunFolders, refuse_outside
from sparkcrypt.ledger.audit.shredded_keys import ShreddedKeys
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.journal.run_status import has_ended
from sparkcrypt.ledger.journal.settled_runs import is_settled, settle
from sparkcrypt.ledger.journal.unit_status import UnitStatus
from sparkcrypt.ledger.state.mac import MasterKeys, TableMac, open_mac
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.ledger.unit import base_location, is_staged, old_folder
from sparkcrypt.paths import comparable_path
from sparkcrypt.policy.model import Policy


@dataclass(slots=True)
class TableTrust:
    """Opens the journals of one table for code that acts on them; keys and the audit are opened when first needed.

    Attributes:
        store: the state directory.
        table_id: the table's id.
        policy: names the master keys of the audit.
        base: the table's original folder.
        locations: called with the folder of a run's copy, or None; returns the folders of the table and its partitions
            in the metastore, and that of the copy.
        is_free: returns whether no other table uses a folder, one inside it or one above it.
        unread: run id -> why its records are not acted on, for the runs that were read.
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
            renew: make a new MAC key if the policy's master key or key service has changed; for writers, who hold the
                table's lock.

        Raises:
            KeyServiceError: the key service failed to wrap or unwrap.
            VerificationError: a MAC key is missing or damaged, or its master key is not allowed.
        """
        if self._mac is None or (renew and not self._renewed):
            service, masters = open_key_service(self.policy.key_service), MasterKeys.of(self.policy)
            self._mac, self._renewed = open_mac(self.store, self.table_id, service, masters, renew=renew), renew
        return self._mac

    @property
    def shredded(self) -> ShreddedKeys:
        """The shredded master keys; the audit of keys is read when it is first needed."""
        if self._shredded is None:
            self._shredded = ShreddedKeys(self.store, self.policy)
        return self._shredded

    def audit(self) -> AuditIndex:
        """Return the index of the table's audit, all entries of which were authenticated.

        Raises:
            VerificationError: an entry is not authentic; the message names it.
        """
        if self._audit is None:
            self._audit = AuditIndex.of(self.store, self.table_id, self.mac().check)
        return self._audit

    def forget_audit(self) -> None:
        """Discard the cached audit, since an entry was added; it is read again when next needed."""
        self._audit = None
        self._named.clear()

    def look_again(self) -> None:
        """Discard what was read before the table's lock was held, when another driver may have changed the table."""
        self.forget_audit()
        self.unread.clear()

    def journal(self, run_id: str) -> Journal:
        """Open the journal of a run, to act on it.

        Raises:
            VerificationError: it is damaged, not authentic, cut, or names folders outside the table's; it must not be
                acted on.
        """
        audit = self.audit()  # before the journal, whose records are written before the entries that name them
        journal = Journal.open(self.store, self.table_id, run_id, self.mac())
        audit.refuse_cut(journal)
        refuse_outside(journal.records, self.places(journal))
        return journal

    def places(self, journal: Journal) -> RunFolders:
        """Return the folders in which a run works, including those from before the table was renamed."""
        output = journal.run.output
        return RunFolders(self.base, lambda: self._folders(output), cache(lambda: self._find_earlier_bases(journal)))

    def find_unfinished(self) -> str | None:
        """Return the id of the latest run that has not ended and can be continued; None if there is none.

        A run whose records are damaged or not trusted is noted in ``unread`` and skipped.
        """
        names = self.store.list(f"runs/{self.table_id}/")
        if not names or is_settled(self.store, self.table_id, names, self.mac().check):
            return None
        for run_id in reversed(Journal.runs(self.store, self.table_id, archived=False)):
            try:
                if not Journal.has_ended(self.store, self.table_id, run_id, self.mac()):
                    journal = self.journal(run_id)
                    if not has_ended(journal):
                        self._refuse_earlier_keys(journal)
                        return run_id
            except VerificationError as error:
                self.unread[run_id] = str(error)
        if not self.unread:
            settle(self.store, self.table_id, names, self.mac())
        return None

    def unread_runs(self) -> tuple[str, ...]:
        """Return notes for the report on the runs that were skipped since their records are not trusted."""
        return tuple(f"run {run_id} was skipped: {why}" for run_id, why in sorted(self.unread.items()))

    def refuse_unaudited(self, journal: Journal, name: str, status: UnitStatus) -> None:
        """Refuse a unit for whose swap, or rollback, the audit has no entry that agrees with the journal.

        Raises:
            VerificationError: the audit has no entry of it, or one with other folders.
        """
        entry = self.audit().swaps.get((journal.run.run_id, name))
        if not self._tells_the_same(entry, journal, status):
            entry_text = "no entry" if entry is None else f"the entry {entry.name}"
            raise VerificationError(
                f"{name}: the journal of run {journal.run.run_id} says {status.step.replace('_', ' ')}, and the audit "
                f"has {entry_text} of it, which does not say so; nothing was changed; see `sparkcrypt audit verify`"
            )

    def _refuse_earlier_keys(self, journal: Journal) -> None:
        """Refuse to continue a run that has a record under an earlier MAC key of the audit.

        Such a record may have no audit entry yet, and anyone with the weaker, earlier key could have written it.

        Raises:
            VerificationError: a record is under an earlier MAC key.
        """
        for record in journal.records:
            if record.generation < self.mac().newest:
                raise VerificationError(
                    f"{record.name}: is under a MAC key that the audit has given up since, so the run is not continued"
                )

    def _tells_the_same(self, entry: AuditEntry | None, journal: Journal, status: UnitStatus) -> bool:
        """Return whether an entry agrees with a unit's journal; a rollback begins before it has its own entry."""
        if entry is None:
            return False
        if entry.entry["what"] != "encrypt":
            return status.step in ("unit_rolling_back", "unit_rolled_back")
        run_id, unit = journal.run.run_id, str(entry.entry["unit"]["unit"])
        relocated = [later for later in self.audit().relocated.get((run_id, unit), ()) if later.number > entry.number]
        told_units = [audited.entry["unit"] for audited in (entry, *relocated)]
        bases = {
            self.base,
            base_location(status.staged),
            *(told_unit["base"] for told_unit in told_units if "base" in told_unit),
        }
        moved = [old_folder(base, run_id, status.partition_path) for base in bases]
        old = {comparable_path(str(place)) for place in (*moved, *(unit["old_location"] for unit in told_units))}
        new = {comparable_path(str(unit["new_location"])) for unit in told_units}
        return (
            status.swapped
            and comparable_path(status.new_location) in new
            and comparable_path(status.old_location) in old
        )

    def _find_earlier_bases(self, journal: Journal) -> set[str]:
        """Return the original folders that the table had before it was renamed.

        They come from the audit, or from the metastore, where partitions are below ``.sparkcrypt`` beside them.  If a
        run was killed before either had them, they come from its own authentic records, provided that the folder is
        beside the table's and no other table uses it now.
        """
        output = journal.run.output
        bases = self.audit().bases() | {base_location(folder) for folder in self._folders(output) if is_staged(folder)}
        staged_bases = {base_location(record.staged) for record in journal.records if record.staged is not None}
        beside = {base for base in staged_bases - bases if _is_beside(base, self.base) and base != self.base}
        return bases | {base for base in beside if journal.authenticated and self.is_free(base)}

    def _folders(self, output: str | None) -> tuple[str, ...]:
        if output not in self._named:
            self._named[output] = (*self.locations(output), *self.audit().folders)
        return self._named[output]


def _is_beside(folder: str, base: str) -> bool:
    parent, other = (comparable_path(place).rstrip("/").rpartition("/")[0] for place in (folder, base))
    return parent == other

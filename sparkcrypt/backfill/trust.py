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

from sparkcrypt.backfill.audit import AuditEntry
from sparkcrypt.backfill.audit_index import AuditIndex
from sparkcrypt.backfill.confine import Places, refuse_outside
from sparkcrypt.backfill.journal import Journal
from sparkcrypt.backfill.mac import MasterKeys, TableMac, open_mac
from sparkcrypt.backfill.run_state import ended
from sparkcrypt.backfill.settled import is_settled, settle
from sparkcrypt.backfill.store import StateStore
from sparkcrypt.backfill.unit_state import UnitState
from sparkcrypt.backfill.units import old_folder
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.service import open_key_service
from sparkcrypt.policy.model import Policy


@dataclass(slots=True)
class TableTrust:
    """Opens the journals of one table for whoever acts on them; keys and the audit are opened when first needed.

    Attributes:
        store: the state directory.
        table_id: which table.
        policy: names the master keys of the audit.
        base: the table's original folder.
        locations: returns where the table and its partitions are by the metastore, and the copy that a run was asked
            for, which it is given.
        unread: run id -> why its records are not acted upon, of those that were looked at.
    """

    store: StateStore
    table_id: str
    policy: Policy
    base: str
    locations: Callable[[str | None], Iterable[str]]
    _mac: TableMac | None = None
    _renewed: bool = False
    _audit: AuditIndex | None = None
    _named: dict[str | None, tuple[str, ...]] = field(default_factory=dict)
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

    def places(self, journal: Journal) -> Places:
        """Return the folders in which a run of the table works."""
        output = journal.run.options.get("output")
        return Places(self.base, lambda: self._folders(output))

    def unfinished(self) -> str | None:
        """Return the latest run that has not ended and can be continued.

        What cannot be read, or is not believed, is noted in ``unread`` and passed over.
        """
        names = self.store.list(f"runs/{self.table_id}/")
        if not names or is_settled(self.store, self.table_id, names, self.mac().check):
            return None
        for run_id in reversed(Journal.runs(self.store, self.table_id, archived=False)):
            try:
                if not Journal.has_ended(self.store, self.table_id, run_id, self.mac()):
                    journal = self._opened_for_later(run_id)
                    self._refuse_earlier_keys(journal)
                    if not ended(journal):
                        return run_id
            except VerificationError as error:
                self.unread[run_id] = str(error)
        if not self.unread:
            settle(self.store, self.table_id, names, self.mac())
        return None

    def unread_runs(self) -> tuple[str, ...]:
        """Return what people must know of runs on whose records nothing is done."""
        return tuple(f"run {run_id} was passed over: {why}" for run_id, why in sorted(self.unread.items()))

    def refuse_unaudited(self, journal: Journal, name: str, state: UnitState) -> None:
        """Refuse a unit whose swap, or rollback, the audit does not tell as the journal does.

        Raises:
            VerificationError: the audit has no entry of it, or one of other folders.
        """
        entry = self.audit().swaps.get((journal.run.run_id, name))
        if not self._says(entry, journal, state):
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

        What such a record says has no audit entry yet, and who holds the weaker key could have written it.

        Raises:
            VerificationError: one is.
        """
        newest = len(self.mac().key_ids)
        for record in journal.records:
            if journal.authenticated and 0 < record.generation < newest:
                raise VerificationError(
                    f"{record.name}: is under a MAC key that the audit has given up since, so the run is not continued"
                )

    def _says(self, entry: AuditEntry | None, journal: Journal, state: UnitState) -> bool:
        """Tell whether an entry says of a unit what its journal does; a rollback was begun before it has its own."""
        if entry is None:
            return False
        if entry.entry["what"] != "encrypt":
            return state.step in ("unit_rolling_back", "unit_rolled_back")
        unit, outcome = entry.entry["unit"], state.fields["outcome"]
        moved = old_folder(self.base, journal.run.run_id, str(state.fields.get("partition_path", "")))
        old = {comparable_path(str(one)) for one in (unit["old_location"], moved)}
        new = comparable_path(str(unit["new_location"]))
        return (
            state.swapped
            and comparable_path(outcome["new_location"]) == new
            and (comparable_path(outcome["old_location"]) in old)
        )

    def _folders(self, output: str | None) -> tuple[str, ...]:
        if output not in self._named:
            self._named[output] = (*self.locations(output), *self.audit().folders)
        return self._named[output]

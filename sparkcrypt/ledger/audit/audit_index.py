"""An index of a table's authenticated audit entries, against which journal records are checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.audit import AuditEntry, authentic_entries
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.state.mac import CheckMac, TableMac
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.ledger.unit import base_location, is_staged

RELOCATE = "relocate"
"""``what`` of the entry that has a unit's folders after its table was renamed."""
_SWAPS = ("encrypt", "roll back")
_LATER = ("carry over", "resolve")


@dataclass(frozen=True, slots=True)
class AuditIndex:
    """The entries of an audit, indexed for lookups.

    Attributes:
        digests: number of an entry -> SHA-256 of its bytes.
        swaps: run id and unit -> the last entry of the unit's swap or rollback.
        marks: run id -> number and digest of the journal's last record when an entry was written, oldest first.
        folders: the folders of units and files in the entries.
        relocated: run id and unit -> the entries that have its folders after its table was renamed.
        later: run id and unit -> the entries about files of late commits: reconciled, or decided by the operator.
    """

    digests: dict[int, str] = field(default_factory=dict)
    swaps: dict[tuple[str, str], AuditEntry] = field(default_factory=dict)
    marks: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    relocated: dict[tuple[str, str], list[AuditEntry]] = field(default_factory=dict)
    later: dict[tuple[str, str], list[AuditEntry]] = field(default_factory=dict)

    @classmethod
    def of(cls, store: StateStore, table_id: str, check_mac: CheckMac) -> AuditIndex:
        """Read a table's audit.

        Raises:
            VerificationError: an entry is not authentic, missing, or under another's name; the message names it.
        """
        index = cls()
        for entry, digest in authentic_entries(store, table_id, check_mac):
            index._take(entry, digest)
        return index

    def bases(self) -> set[str]:
        """Return the original folders that the table has had, according to the entries."""
        own = {base_location(folder) for folder in self.folders if is_staged(folder)}
        return own | {str(entry.entry["unit"]["base"]) for entries in self.relocated.values() for entry in entries}

    def refuse_cut(self, journal: Journal) -> None:
        """Refuse a journal that lacks a record after which an audit entry was written.

        Raises:
            VerificationError: its end was cut off, or it was replaced by an older copy.
        """
        records = journal.records
        for number, digest in self.marks.get(journal.run.run_id, ()):
            if number > len(records) or records[number - 1].digest != digest:
                raise VerificationError(
                    f"runs/{journal.run.table_id}/{journal.run.run_id}/: has not the record {number} after which an "
                    "audit entry was written: its end was cut off, or an older copy took its place; nothing is done "
                    "on its word; restore the state directory"
                )

    def _take(self, entry: AuditEntry, digest: str) -> None:
        fields = entry.entry
        run_id, unit = str(fields["why"]["run_id"]), fields.get("unit") or {}
        self.digests[entry.number] = digest
        if fields["what"] in _SWAPS:
            self.swaps[run_id, str(unit.get("unit"))] = entry
        if fields["what"] in _LATER:
            self.later.setdefault((run_id, str(unit.get("unit"))), []).append(entry)
        if fields["what"] == RELOCATE:
            self.relocated.setdefault((run_id, str(unit.get("unit"))), []).append(entry)
        mark = fields.get("journal")
        if isinstance(mark, Mapping):
            self.marks.setdefault(run_id, []).append((int(mark["number"]), str(mark["digest"])))
        self.folders.update(_folders(unit, fields.get("changes") or ()))


def verify_journals(store: StateStore, table_id: str, mac: TableMac) -> None:
    """Check that the journal, or the archive, of each run in a table's audit is authentic and whole.

    Raises:
        VerificationError: a journal is missing, or was cut, edited, or replaced by an older copy.
    """
    index = AuditIndex.of(store, table_id, mac.check)
    for run_id in sorted(index.marks):
        index.refuse_cut(Journal.open(store, table_id, run_id, mac))


def _folders(unit: Mapping[str, Any], changes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the folders in an entry: those of the unit, and those of the files in its changes."""
    yield from (str(unit[name]) for name in ("old_location", "new_location") if name in unit)
    for change in changes:
        for file in (*change.get("sources", ()), *change.get("targets", ())):
            for name in ("path", "kept", "staged"):
                if name in file:
                    yield str(file[name]).rpartition("/")[0]

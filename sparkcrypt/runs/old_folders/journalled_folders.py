"""Folders in journals: those that `expire` handles, and those of tables that no longer exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.trust import AuditIndex
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.journal.unit_status import UnitStatus, has_ended, has_expired, status_of_units
from sparkcrypt.ledger.state.mac import MasterKeys, open_mac
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.ledger.unit import UnitOutcome, base_location, list_folders, moved_place, old_folder
from sparkcrypt.paths import comparable_path
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.changes import changes_at, expired_folders
from sparkcrypt.runs.old_folders.reconcile import old_locations
from sparkcrypt.spark.files.hadoop import HadoopFiles


@dataclass(frozen=True, slots=True)
class Leftover:
    """A folder that a run left.

    Attributes:
        folder: its path.
        kind: as in `Orphan`.
        base: the original folder of its table, beside which runs put their files.
        why_kept: why it is not deleted; None if it may be.
        since_ms: when the run last wrote to its journal, in milliseconds since the epoch; 0 if that is not known.
        run_id: the run, if only the names of folders tell of it; empty otherwise.
    """

    folder: str
    kind: str
    base: str
    why_kept: str | None = None
    since_ms: int = 0
    run_id: str = ""


def leftovers_of_journals(
    store: StateStore, policy: Policy, files: HadoopFiles, tables: Mapping[str, str]
) -> tuple[set[str], dict[str, Leftover]]:
    """Return the folders that journals name, in comparable form.

    Args:
        store: the state directory.
        policy: the policy whose key service authenticates journals.
        files: the file system.
        tables: table id -> original folder, of the tables that exist.

    Returns:
        The folders of existing tables' runs, which `expire` handles; and folder -> leftover, for other tables.
    """
    looked_after: set[str] = set()
    leftovers: dict[str, Leftover] = {}
    for table_id in sorted({name.split("/")[1] for name in store.list("runs/")}):
        if table_id in tables:
            for run_id in Journal.runs(store, table_id, archived=False):
                try:
                    looked_after |= _list_looked_after(Journal.open(store, table_id, run_id), tables[table_id])
                except (VerificationError, LookupError, TypeError, ValueError):  # damaged or forged: `expire` names it
                    looked_after.add(_comparable(old_folder(tables[table_id], run_id)))
        else:
            found = left_of_table(store, policy, table_id, files)
            leftovers |= {_comparable(leftover.folder): leftover for leftover in found}
    return looked_after, leftovers


def left_of_table(store: StateStore, policy: Policy, table_id: str, files: HadoopFiles) -> Iterator[Leftover]:
    """Yield the folders that the runs of a dropped table left, as far as its audit or their paths confirm them.

    Raises:
        KeyServiceError: the key service did not unwrap the MAC key that authenticates the journals.
    """
    if not store.list(f"audit/{table_id}/mac-key"):
        return  # its journals cannot be authenticated
    mac = open_mac(store, table_id, open_key_service(policy.key_service), MasterKeys.of(policy))
    try:
        audit = AuditIndex.of(store, table_id, mac.check)
    except VerificationError:
        return
    named = {_comparable(folder) for folder in audit.folders}
    for run_id in Journal.runs(store, table_id, archived=False):
        try:
            journal = Journal.open(store, table_id, run_id, mac)
            audit.refuse_cut(journal)
        except VerificationError:
            continue
        for leftover in _find_left_by(journal, files):
            if _comparable(leftover.folder) in named or old_folder(leftover.base, run_id) in leftover.folder:
                yield leftover


def _list_looked_after(journal: Journal, base: str) -> set[str]:
    """Return the folders of a run whose table exists, without those of new files, which are in use or were dropped.

    Old folders are included by their former and by their present path, if a RENAME of the table has moved them.
    """
    if has_expired(journal):
        return set()
    found = set()
    for status in status_of_units(journal.records).values():
        if status.swapped:
            old = old_locations(status)
            moved = [moved_place(place, status.base, base) or place for place in old]
            found |= {_comparable(place) for place in (*old, *moved)}
        elif status.step == "unit_rolled_back":
            found.add(_comparable(status.outcome.new_location))
    outcomes = [
        UnitOutcome.from_dict(record.fields["outcome"])
        for record in journal.records
        if record.unit is not None and "outcome" in record.fields
    ]
    new = {_comparable(outcome.new_location) for outcome in outcomes}
    staged = {_comparable(record.staged) for record in journal.records if record.staged is not None}
    return found | (staged - new if has_ended(journal) else staged)


def _find_left_by(journal: Journal, files: HadoopFiles) -> Iterator[Leftover]:
    """Yield the folders of units that a run of a dropped table swapped; those rolled back belonged to the table."""
    if journal.run.options.get("output"):
        return  # its source is no old folder
    since = int(datetime.fromisoformat(journal.records[-1].time).timestamp() * 1000)
    expired = expired_folders(journal.records)
    for status in status_of_units(journal.records).values():
        if not status.swapped:
            continue
        old, base = status.outcome.old_location, base_location(status.staged)
        if comparable_path(old) not in expired:
            yield Leftover(old, "old", base, _find_unknown(files, status, old), since)
        if "/" not in journal.run.table:  # a bare folder is in use, although no table refers to it
            yield Leftover(status.outcome.new_location, "new", base, None, since)


def _find_unknown(files: HadoopFiles, status: UnitStatus, old: str) -> str | None:
    """Return why an old folder must stay: it contains files that its run does not know; None if it may go."""
    came = changes_at(status.unit, old, list_folders(files, old), status).places
    if not came:
        return None
    return (
        f"{came[0]} is in it, which its run does not know; read it with spark.read.parquet, insert what is missing "
        "into a table, and only then delete it"
    )


def _comparable(folder: str) -> str:
    return comparable_path(folder).rstrip("/")

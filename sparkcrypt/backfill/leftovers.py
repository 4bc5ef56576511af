"""What journals know of folders: those that `expire` looks after, and those of tables that are there no more."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from sparkcrypt.backfill.audit_index import AuditIndex
from sparkcrypt.backfill.carry import old_locations
from sparkcrypt.backfill.journal import Journal
from sparkcrypt.backfill.mac import MasterKeys, open_mac
from sparkcrypt.backfill.old_changes import changes_at, expired_folders
from sparkcrypt.backfill.run_state import ended, expired
from sparkcrypt.backfill.store import StateStore
from sparkcrypt.backfill.unit_record import restored
from sparkcrypt.backfill.unit_state import UnitState, state_of_units
from sparkcrypt.backfill.units import base_location, list_folders, old_folder
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.service import open_key_service
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.files import HadoopFiles


@dataclass(frozen=True, slots=True)
class Leftover:
    """A folder that a run left.

    Attributes:
        folder: which.
        kind: ``old``, ``staged`` or ``new``.
        base: the original folder of its table, beside which runs put their files.
        why_kept: why it is not deleted; None where it may be.
        since_ms: when the run wrote last, in milliseconds since the epoch.
    """

    folder: str
    kind: str
    base: str
    why_kept: str | None = None
    since_ms: int = 0


def leftovers_of_journals(
    store: StateStore, policy: Policy, files: HadoopFiles, tables: Collection[str]
) -> tuple[set[str], dict[str, Leftover]]:
    """Return what journals know of folders, in a form that compares.

    Args:
        store: the state directory.
        policy: whose key service authenticates journals.
        files: the file system.
        tables: the ids of the tables that are there.

    Returns:
        The folders of live runs, and of those that `expire` disposes of; and the other folders of runs, each with what
        is known of it.
    """
    known: set[str] = set()
    left: dict[str, Leftover] = {}
    for table_id in sorted({name.split("/")[1] for name in store.list("runs/")}):
        if table_id in tables:
            for run_id in Journal.runs(store, table_id, archived=False):
                try:
                    known |= _looked_after(Journal.open(store, table_id, run_id))
                except VerificationError:
                    continue
        else:
            found = left_of_table(store, policy, table_id, files)
            left |= {comparable_path(one.folder).rstrip("/"): one for one in found}
    return known, left


def left_of_table(store: StateStore, policy: Policy, table_id: str, files: HadoopFiles) -> Iterator[Leftover]:
    """Yield the folders that runs of a table left which is gone; what the audit does not name is not deleted.

    Raises:
        KeyServiceError: the key service did not unwrap what authenticates the journals.
    """
    if not store.list(f"audit/{table_id}/mac-key"):
        return  # nothing says that its journals are genuine
    mac = open_mac(store, table_id, open_key_service(policy.key_service), MasterKeys.of(policy))
    try:
        audit = AuditIndex.of(store, table_id, mac.check)
    except VerificationError:
        return
    named = {comparable_path(one).rstrip("/") for one in audit.folders}
    for run_id in Journal.runs(store, table_id, archived=False):
        try:
            journal = Journal.open(store, table_id, run_id, mac, audit.pins.get)
            audit.refuse_cut(journal)
        except VerificationError:
            continue
        for one in _left_by(journal, files):
            if comparable_path(one.folder).rstrip("/") in named or old_folder(one.base, run_id) in one.folder:
                yield one


def _looked_after(journal: Journal) -> set[str]:
    """Return the folders of a run whose table is there, less new ones: those are in use, or were dropped."""
    if expired(journal):
        return set()
    found = set()
    for state in state_of_units(journal.records).values():
        if state.swapped:
            found |= {comparable_path(one).rstrip("/") for one in old_locations(state)}
        elif state.step == "unit_rolled_back":
            found.add(comparable_path(str(state.fields["outcome"]["new_location"])).rstrip("/"))
    new = {
        comparable_path(str(record.fields["outcome"]["new_location"])).rstrip("/")
        for record in journal.records
        if "outcome" in record.fields and isinstance(record.fields["outcome"], dict)
    }
    staged = {
        comparable_path(str(one.fields["staged"])).rstrip("/") for one in journal.records if "staged" in one.fields
    }
    return found | (staged - new if ended(journal) else staged)


def _left_by(journal: Journal, files: HadoopFiles) -> Iterator[Leftover]:
    """Yield the folders of a run whose table is gone; old ones that were put back into use were the table's own."""
    if journal.run.options.get("output"):
        return  # its source is no old folder
    since = int(datetime.fromisoformat(journal.records[-1].time).timestamp() * 1000)
    gone = expired_folders(journal.records)
    for name, state in state_of_units(journal.records).items():
        if not state.swapped:
            continue
        old, base = str(state.fields["outcome"]["old_location"]), base_location(str(state.fields["staged"]))
        if comparable_path(old) not in gone:
            yield Leftover(old, "old", base, _unknown(files, name, state, old), since)
        if "/" not in journal.run.table:  # a bare directory is in use, though no table says so
            yield Leftover(str(state.fields["outcome"]["new_location"]), "new", base, None, since)


def _unknown(files: HadoopFiles, name: str, state: UnitState, old: str) -> str | None:
    """Return why an old folder stays: it holds what its run does not know."""
    came = changes_at(restored(name, state.fields), old, list_folders(files, old), state).places
    if not came:
        return None
    return (
        f"{came[0]} is in it, which its run does not know; look at it with spark.read.parquet, and delete it yourself"
    )

"""Orphans: folders of runs whose table was dropped or re-created, or whose state directory was lost.

`expire` works from the journals of a table that exists.  Orphans are the folders that it cannot reach: below the
``.sparkcrypt`` folders beside tables, among the old folders in journals whose table no longer exists, and in a
partition's default folder if the partition points below ``.sparkcrypt``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkcrypt.errors import ConfigError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.ledger.audit.audit import AuditWriter, make_entry
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.lock import acquire, acting_user
from sparkcrypt.ledger.state.mac import MasterKeys, open_mac
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.ledger.unit import is_staged
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.ended_writers import writers_folder
from sparkcrypt.runs.old_folders.orphan_search import ASIDE, Orphan, OrphanSearch
from sparkcrypt.runs.table.disposal import Disposal
from sparkcrypt.spark.files.hadoop import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_SECONDS = 24 * 3600
"""The minimum age of listed orphans: folders that runs of another state directory are staging look the same."""

_YOUNG = (
    "something in it changed since --older-than; this state directory does not know its run: restore it from a backup, "
    "or correct run_state; if there is none, give the command again later"
)
ORPHANS = "orphans"
"""Used as the table id if the table is not known."""
DELETE = "delete"


def find_orphans(
    spark: SparkSession,
    policy: Policy,
    *,
    databases: tuple[str, ...] = (),
    path: str | None = None,
    older_than_seconds: float = 7 * 86_400,
    delete: bool = False,
) -> list[Orphan]:
    """Find orphans, and optionally delete those that may go.

    Args:
        spark: a classic session.
        policy: the policy whose state directory contains the live runs.
        databases: the databases beside whose tables to search; all of them by default.
        path: search below this folder instead.
        older_than_seconds: list only folders in which nothing has changed for this time, except old files of a run
            that the state directory does not know, which are listed at once, and kept until then.
        delete: delete old files, and audit each deletion.  Files that a run staged are never deleted, since they may be
            the only copy of the rows of a dropped external table.

    Raises:
        RunConflictError: another process deletes orphans under the same state directory.
        KeyServiceError: the key service did not open the audit; nothing was deleted.
        ConfigError: ``older_than_seconds`` is less than a day.
        PlanError: the partitions of a table could not be listed, so it is not known which folders are in use.
    """
    if older_than_seconds < LEAST_SECONDS:
        raise ConfigError(
            f"--older-than of {older_than_seconds:,.0f} seconds: allowed: 24h or more, since what runs of another "
            "state directory are staging looks the same"
        )
    search = OrphanSearch(spark, policy)
    before_ms = int((time.time() - older_than_seconds) * 1000)
    found = []
    for orphan in search.find_all(databases, path):
        if orphan.newest_ms < before_ms:
            found.append(orphan)
        elif orphan.kind == "old" and orphan.of_unknown_run and orphan.files:
            found.append(replace(orphan, why_kept=orphan.why_kept or _YOUNG))
    return _delete(search, found, ORPHANS) if delete else found


def expire_left(
    spark: SparkSession, policy: Policy, table_id: str, *, older_than_seconds: float, dry_run: bool
) -> list[Orphan]:
    """Delete the old files of runs whose table no longer exists, or of a bare folder; each deletion is audited.

    Args:
        spark: a classic session.
        policy: the policy whose state directory contains the journals.
        table_id: the table's UUID, or the folder's id.
        older_than_seconds: a run that wrote to its journal more recently keeps its old files.
        dry_run: report, and change nothing.

    Raises:
        RunConflictError: a run holds the table.
        ConfigError: no run of it is known.
        PlanError: the partitions of a table could not be listed, so it is not known which folders are in use.
    """
    store = open_state_directory(spark, policy.run_state)
    if not store.list(f"runs/{table_id}/"):
        raise ConfigError(f"{table_id}: no run is known in this state directory; `sparkcrypt backfill list` lists them")
    search = OrphanSearch(spark, policy)
    before_ms = int((time.time() - older_than_seconds) * 1000)
    found = [orphan for orphan in search.find_left_of(table_id) if orphan.newest_ms <= before_ms]
    return found if dry_run else _delete(search, found, table_id)


def _delete(search: OrphanSearch, found: list[Orphan], table_id: str) -> list[Orphan]:
    """Delete those orphans that may go; each deletion is recorded in the audit of ``table_id``."""
    if all(orphan.why_kept for orphan in found):
        return found
    with deletion_audit(search.store, search.policy, table_id) as audit:
        return _delete_audited(search, found, audit)


def _delete_audited(search: OrphanSearch, found: list[Orphan], audit: DeletionAudit) -> list[Orphan]:
    """Delete orphans that may go, unless they are in use or anything in them has changed."""
    going = {orphan.folder: orphan for orphan in found if orphan.why_kept is None}
    kept = {folder: _find_writer(search.files, folder, orphan.base) for folder, orphan in going.items()}
    bases = {folder: orphan.base for folder, orphan in going.items()}
    disposal = Disposal(search.files, search.in_use, "", ASIDE, audit.check_lock, bases, asks_all=True)

    def inspect(folder: str, place: str) -> str | None:
        if search.list_contents(place) != going[folder].contents:
            return f"{folder}: files came or went since it was looked at; it stays, run again"
        return _find_writer(search.files, folder, going[folder].base)

    def note_deletion(folder: str) -> None:
        audit.note_deletion(folder, going[folder].kind, going[folder].files, going[folder].total_bytes)

    wanted = [folder for folder, why in kept.items() if why is None]
    kept |= disposal.delete(wanted, inspect=inspect, deleted=note_deletion)
    return [
        orphan
        if orphan.why_kept
        else replace(orphan, why_kept=kept[orphan.folder], deleted=kept[orphan.folder] is None)
        for orphan in found
    ]


def _find_writer(files: HadoopFiles, folder: str, base: str) -> str | None:
    """Return the message that a writer may commit to a folder; to an orphan below ``.sparkcrypt`` none does."""
    writing = None if is_staged(folder) else writers_folder(files, folder, base)
    if writing is None:
        return None
    return f"{writing} is there, so a writer may still commit to {folder}; delete that if its writer was killed"


@dataclass(frozen=True, slots=True)
class DeletionAudit:
    """A writer of audit entries on deletions; ``check_lock`` checks that the audit's lock is still held."""

    check_lock: Callable[[], None]
    _audit: AuditWriter
    _policy: Policy
    _command: str

    def note_deletion(self, folder: str, kind: str, files: int, total_bytes: int) -> None:
        """Record that a folder was deleted.

        Args:
            folder: its path.
            kind: the kind of files in it.
            files: the number of files in it.
            total_bytes: their length in bytes.

        Raises:
            RunConflictError: another driver wrote to the audit.
        """
        unit = {"unit": folder, "kind": kind, "files": files, "bytes": total_bytes}
        self._audit.append(make_entry(DELETE, self._policy.digest(), self._command, unit=unit))


@contextmanager
def deletion_audit(store: StateStore, policy: Policy, table_id: str) -> Iterator[DeletionAudit]:
    """Yield a writer of audit entries on deletions, under the audit's lock.

    Args:
        store: the state directory.
        policy: the policy whose key service authenticates entries.
        table_id: the id of the audit's table; `ORPHANS` if the table is not known.

    Raises:
        RunConflictError: another process holds the lock.
        KeyServiceError: the key service did not open the audit's keys.
        VerificationError: a key of the audit is missing or damaged.
    """
    command = ORPHANS if table_id == ORPHANS else "expire"
    with acquire(store, table_id, run_id=command, owner=acting_user()) as lock:
        lock.keep_alive()
        service, masters = open_key_service(policy.key_service), MasterKeys.of(policy)
        mac = open_mac(store, table_id, service, masters, renew=True)
        yield DeletionAudit(lock.check, AuditWriter(store, table_id, mac), policy, command)

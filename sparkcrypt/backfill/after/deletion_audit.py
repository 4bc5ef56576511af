"""Audit entries on folders that are deleted without a run: orphans, and old files of tables that no longer exist.

    audit/<table id>/00000007.json    of a dropped table, or a bare folder, in its own audit
    audit/orphans/00000001.json       of folders whose table is not known

``what`` is ``delete``, ``why.run_id`` the command (``expire`` or ``orphans``); ``unit`` contains the folder (``unit``),
its ``kind``, ``files`` and ``bytes``.  The audit is opened, and its lock acquired, before anything is deleted; an entry
is written right after the deletion of its folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sparkcrypt.backfill.audit.audit import AuditWriter, make_entry
from sparkcrypt.backfill.state.actor import acting_user
from sparkcrypt.backfill.state.lock import acquire
from sparkcrypt.backfill.state.mac import MasterKeys, open_mac
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.policy.model import Policy

ORPHANS = "orphans"
"""Used as the table id if the table is not known."""
DELETE = "delete"


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

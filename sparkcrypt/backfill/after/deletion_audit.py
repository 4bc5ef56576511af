"""What the audit says of folders that are deleted without a run: orphans, and old files of a table that is gone.

    audit/<table id>/00000007.json    of a dropped table, or a bare folder, in its own audit
    audit/orphans/00000001.json       of folders of which nobody can tell the table

``what`` is ``delete``, ``why.run_id`` the command (``expire`` or ``orphans``); ``unit`` names the folder (``unit``),
its ``kind``, ``files`` and ``bytes``.  An entry is written right after its folder is gone; the audit is opened, and
its lock held, before anything is.
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
"""Stands for a table's id where nobody can tell the table."""
DELETE = "delete"


@dataclass(frozen=True, slots=True)
class DeletionAudit:
    """Writes down what was deleted, under a lock that `check_lock` sees to be held."""

    check_lock: Callable[[], None]
    _audit: AuditWriter
    _policy: Policy
    _command: str

    def note_deletion(self, folder: str, kind: str, files: int, total_bytes: int) -> None:
        """Write down that a folder was deleted.

        Args:
            folder: which.
            kind: of files in it.
            files: how many.
            total_bytes: their length.

        Raises:
            RunConflictError: another driver wrote to the audit.
        """
        unit = {"unit": folder, "kind": kind, "files": files, "bytes": total_bytes}
        self._audit.append(make_entry(DELETE, self._policy.digest(), self._command, unit=unit))


@contextmanager
def deletion_audit(store: StateStore, policy: Policy, table_id: str) -> Iterator[DeletionAudit]:
    """Yield what writes deletions into an audit, under its lock.

    Args:
        store: the state directory.
        policy: whose key service authenticates entries.
        table_id: which audit; `ORPHANS` where nobody can tell the table.

    Raises:
        RunConflictError: somebody else holds the lock.
        KeyServiceError: the key service did not open the audit's keys.
        VerificationError: its keys are gone or damaged.
    """
    command = ORPHANS if table_id == ORPHANS else "expire"
    with acquire(store, table_id, run_id=command, owner=acting_user()) as lock:
        lock.keep_alive()
        service, masters = open_key_service(policy.key_service), MasterKeys.of(policy)
        mac = open_mac(store, table_id, service, masters, renew=True)
        yield DeletionAudit(lock.check, AuditWriter(store, table_id, mac), policy, command)

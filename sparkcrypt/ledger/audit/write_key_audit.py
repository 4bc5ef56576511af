"""Writing the audit of keys: holds, their release, steps of retirements and of shreddings; one writer at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sparkcrypt.errors import ConfigError, KeyNotFoundError
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.keys.tombstones import TOMBSTONE_VERSION, tombstone_name
from sparkcrypt.ledger.audit.audit import AuditWriter, make_entry
from sparkcrypt.ledger.audit.read_key_audit import (
    BRING_BACK,
    DESTROY,
    HEAD_PURPOSE,
    HEAD_VERSION,
    HOLD,
    KEYS,
    RELEASE,
    RETIRE,
    SHRED,
    TOMBSTONE,
    Hold,
    KeyFacts,
    Retirement,
    head_record,
    read_key_facts,
)
from sparkcrypt.ledger.journal.entries import AuditHead
from sparkcrypt.ledger.state.actor import acting_user
from sparkcrypt.ledger.state.lock import RunLock, acquire
from sparkcrypt.ledger.state.mac import MasterKeys, TableMac, open_mac
from sparkcrypt.ledger.state.sealed_record import seal_record
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.policy.model import Policy

_PURPOSE = b"sparkcrypt tombstone\n"


class KeyAudit:
    """A writer of the audit of keys, under its lock; `key_audit` opens it.

    Attributes:
        facts: the contents of the audit, including appended entries.
    """

    def __init__(
        self, store: StateStore, policy: Policy, service: KeyService, lock: RunLock, mac: TableMac, command: str
    ) -> None:
        self._store, self._policy, self._service, self._lock, self._mac = store, policy, service, lock, mac
        self._writer, self._command = AuditWriter(store, KEYS, mac), command
        self.facts = self._read()

    def check_lock(self) -> None:
        """Check that this process still holds the audit's lock; call this before what cannot be undone.

        Raises:
            RunConflictError: the lock was lost.
        """
        self._lock.check()

    def hold(self, key_id: str, reason: str) -> Hold:
        """Add a hold to a key, which may have others.

        Raises:
            KeyNotFoundError: the key service has no such key, or it was shredded: a hold on it would protect nothing.
            KeyServiceError: the key service did not answer.
        """
        tombstone = self.facts.tombstones.get(key_id)
        try:
            self._service.describe(key_id)
        except KeyNotFoundError as error:
            if tombstone is not None:
                raise KeyNotFoundError(f"{tombstone.to_text()}; there is nothing left to hold") from error
            raise
        head = self._append(HOLD, key_id, reason)
        return next(hold for hold in self.facts.holds[key_id] if hold.number == head.number)

    def release(self, key_id: str, reason: str, number: int | None = None) -> Hold:
        """Release a hold.

        Args:
            key_id: the master key.
            reason: why it is released.
            number: the hold's number; needed if the key has several.

        Raises:
            ConfigError: the key has no hold, none of that number, or several and no number was given.
        """
        holds = self.facts.holds.get(key_id, ())
        chosen = [hold for hold in holds if number in (None, hold.number)]
        if not chosen:
            holds_text = "; ".join(hold.to_text() for hold in holds) or "none"
            which = "no hold" if number is None else f"no hold {number}"
            raise ConfigError(f"key {key_id!r} has {which}; its holds: {holds_text}")
        if len(chosen) > 1:
            holds_text = "; ".join(hold.to_text() for hold in chosen)
            raise ConfigError(f"key {key_id!r} has {len(chosen)} holds: {holds_text}; give the number of one as --hold")
        self._append(RELEASE, key_id, reason, hold=chosen[0].number)
        return chosen[0]

    def retire(self, key_id: str, below: int, until: str) -> Retirement:
        """Record that versions of a key are about to be set aside.

        Args:
            key_id: the master key.
            below: the first version that stays.
            until: the end of the grace (ISO 8601, UTC).
        """
        self._append(RETIRE, key_id, f"versions below {below} are not needed", below=below, until=until)
        return self.facts.retired[key_id]

    def bring_back(self, key_id: str) -> None:
        """Record that the versions that were set aside are about to be brought back."""
        self._append(BRING_BACK, key_id, "the retirement is undone")

    def destroy(self, key_id: str) -> Retirement:
        """Record that the versions that were set aside are about to be destroyed."""
        self._append(DESTROY, key_id, "the grace is over")
        return self.facts.retired[key_id]

    def begin(self, key_id: str, reason: str, probe: str | None, dark: Sequence[Mapping[str, Any]]) -> None:
        """Record that a key is about to be deleted.

        Args:
            key_id: the master key.
            reason: why it is deleted.
            probe: random bytes that it wrapped; None if it no longer exists.
            dark: the columns that go dark, table by table, as JSON values.
        """
        self._append(SHRED, key_id, reason, probe=probe, dark=[dict(table) for table in dark])

    def bury(
        self, key_id: str, reason: str, effective_at: str, dark: Sequence[Mapping[str, Any]], promise: str
    ) -> None:
        """Write the tombstone of a deleted key, and its record for readers.

        Args:
            key_id: the master key.
            reason: why it was deleted.
            effective_at: from when on the key is unusable (ISO 8601, UTC).
            dark: the columns that went dark, table by table, as JSON values.
            promise: what the key service guarantees about the deletion.
        """
        self._append(
            TOMBSTONE, key_id, reason, effective_at=effective_at, dark=[dict(table) for table in dark], deletion=promise
        )
        self.mark(key_id)

    def mark(self, key_id: str) -> None:
        """Write the record of a tombstone for readers, unless it exists."""
        tombstone, name = self.facts.tombstones[key_id], tombstone_name(key_digest(key_id))
        members = {"version": TOMBSTONE_VERSION, **{k: v for k, v in tombstone.to_dict().items() if k != "dark"}}
        content = seal_record(_PURPOSE, members, self._mac)
        if not self._store.create(name, content) and self._store.read(name) != content:
            self._store.delete(name)  # a record of an earlier shredding of this id, or a forged one
            self._store.create(name, content)

    def _append(self, what: str, key_id: str, reason: str, **about: Any) -> AuditHead:
        if not reason.strip():
            raise ConfigError(f"{what} of key {key_id!r}: the reason is empty; say why, for those who read the audit")
        self._lock.check()
        if self.facts.head is None:  # the record of the audit's length exists from before the first entry on
            self._keep_head(AuditHead(0, ""))
        entry = make_entry(what, self._policy.digest(), self._command, key_id=key_id, reason=reason, **about)
        head = self._writer.append(entry)
        self._keep_head(head)
        self.facts = self._read()
        return head

    def _keep_head(self, head: AuditHead) -> None:
        members = {"version": HEAD_VERSION, "table_id": KEYS, **head.to_dict()}
        head_record(self._store).replace(seal_record(HEAD_PURPOSE, members, self._mac))

    def _read(self) -> KeyFacts:
        return read_key_facts(self._store, self._service, MasterKeys.of(self._policy))


@contextmanager
def key_audit(store: StateStore, policy: Policy, command: str) -> Iterator[KeyAudit]:
    """Lock and verify the audit of keys, and yield it for writing.

    Args:
        store: the state directory.
        policy: names the key service and the master keys of the audit.
        command: the command that writes, such as ``keys hold``.

    Raises:
        RunConflictError: another process writes to it.
        VerificationError: it was changed or cut.
        KeyServiceError: its MAC key cannot be unwrapped.
    """
    with acquire(store, KEYS, run_id=command, owner=acting_user()) as lock:
        lock.keep_alive()
        service, masters = open_key_service(policy.key_service), MasterKeys.of(policy)
        read_key_facts(store, service, masters)  # before a MAC key is made: refuses an audit that was deleted
        mac = open_mac(store, KEYS, service, masters, renew=True)
        yield KeyAudit(store, policy, service, lock, mac, command)

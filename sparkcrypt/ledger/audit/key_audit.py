"""The audit of keys: which master keys are held, which have retired versions, which were shredded, and why.

A key service cannot store this, so the audit of keys does: an audit like that of a table, under the id `KEYS`.  Its
entries are chained and authenticated; removing a hold from it, or its end together with the head, is detected.

    log/keys/00000001.json                        a hold, its release, a step of a retirement or of a shredding, …
    keys/heads/keys/00000001.json                 the length of that audit, in a record with its MAC
    keys/tombstones/<digest of the key id>.json   for messages to readers, who cannot open the audit; else not trusted

A state directory that was replaced as a whole by an earlier copy of itself, or deleted as a whole, is not detected.  To
detect that, keep the head that each command prints, and pass it as ``--head``.

A key that is not found may be due to an outage, a wrong credential or a mistake.  A column is dark only if the audit
has a tombstone of its key, and the key service answers that it has no such key (``ShreddedKeys``).
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, KeyNotFoundError, VerificationError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.keys.tombstones import TOMBSTONE_VERSION, tombstone_name
from sparkcrypt.ledger.audit.audit import AuditEntry, AuditWriter, list_entries_of, make_entry, open_audit, verify_heads
from sparkcrypt.ledger.journal.entries import AuditHead
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.lock import RunLock, acquire, acting_user
from sparkcrypt.ledger.state.mac import (
    FOUND,
    CheckMac,
    MasterKeys,
    TableMac,
    has_mac_key,
    open_mac,
    open_sealed,
    seal_record,
)
from sparkcrypt.ledger.state.store import LatestRecord, StateStore
from sparkcrypt.policy.model import Policy

KEYS = "keys"
"""The id of the audit of keys, in place of a table's id."""
HOLD, RELEASE, SHRED, TOMBSTONE = "hold", "release", "shred", "tombstone"
RETIRE, BRING_BACK, DESTROY = "retire", "bring back", "destroy"
HEAD_PURPOSE = b"sparkcrypt head of the audit of keys\n"
HEAD_VERSION = 1


@dataclass(frozen=True, slots=True)
class Hold(JsonObject):
    """A legal hold: the key may not be shredded until it is released.

    Attributes:
        number: the number of its entry, used to release it if a key has several holds.
        reason: the reason that the operator gave.
        who: ``user@host`` who set it.
        time: when it was set (ISO 8601, UTC).
    """

    number: int
    reason: str
    who: str
    time: str

    def to_text(self) -> str:
        """Return the hold as text for messages."""
        return f"hold {self.number} of {self.who} since {self.time}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Retirement(JsonObject, json_names={"key_id": None}):
    """A retirement of older versions of a key, which set them aside, and can be undone until they are destroyed.

    Attributes:
        key_id: the master key.
        below: the first version that stays.
        who: ``user@host`` who retired them.
        time: when (ISO 8601, UTC).
        until: the end of the grace, before which they are not destroyed (ISO 8601, UTC).
        destroyed: when they were destroyed, or were about to be; None if they were not.
    """

    key_id: str
    below: int
    who: str
    time: str
    until: str
    destroyed: str | None = None

    def to_text(self) -> str:
        """Return it as a sentence: what to do within the grace, and what after it."""
        name = shlex.quote(self.key_id)
        if self.destroyed is not None:
            return f"versions below {self.below} were destroyed on {self.destroyed}"
        return (
            f"versions below {self.below} were retired by {self.who} on {self.time}, and unwrap nothing; `sparkcrypt "
            f"keys retire {name} --undo` brings them back; from {self.until} on `sparkcrypt keys retire {name} --below "
            f"{self.below}` destroys them"
        )


@dataclass(frozen=True, slots=True)
class Shredding:
    """A shredding as recorded before the key service was asked to delete the key.

    Attributes:
        key_id: the master key.
        reason: the reason that the operator gave.
        who: ``user@host`` who began it.
        time: when it began (ISO 8601, UTC).
        probe: random bytes that the key wrapped before its deletion, used to prove the deletion; None if the key no
            longer existed.
        dark: the columns that go dark, table by table, as JSON values.
    """

    key_id: str
    reason: str
    who: str
    time: str
    probe: str | None
    dark: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Tombstone(JsonObject):
    """A key that was shredded; its id is never used again.

    Attributes:
        key_id: the master key.
        reason: why it was shredded.
        who: ``user@host`` who shredded it.
        time: when the deletion was proven (ISO 8601, UTC).
        effective_at: from when on the key is unusable: no cache has it and its deletion cannot be undone.
        dark: the columns that went dark, table by table, as JSON values.
    """

    key_id: str
    reason: str
    who: str
    time: str
    effective_at: str
    dark: tuple[Mapping[str, Any], ...] = ()

    def to_text(self) -> str:
        """Return the tombstone as text for messages."""
        return f"key {self.key_id!r} was shredded by {self.who} on {self.time}: {self.reason}"


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """The contents of the audit of keys, all of it authenticated.

    Attributes:
        holds: key id -> the holds that are not released.
        begun: key id -> its shredding, if no tombstone followed it.
        tombstones: key id -> its last tombstone.
        head: the head of the audit; None if no key was ever held or shredded.
        weakness: a warning about the audit's master key; None if there is none.
        retired: key id -> the last retirement of its older versions, unless they were brought back.
    """

    holds: Mapping[str, tuple[Hold, ...]] = field(default_factory=dict)
    begun: Mapping[str, Shredding] = field(default_factory=dict)
    tombstones: Mapping[str, Tombstone] = field(default_factory=dict)
    head: AuditHead | None = None
    weakness: str | None = None
    retired: Mapping[str, Retirement] = field(default_factory=dict)

    @property
    def head_text(self) -> str:
        """The head as a value of ``--head``."""
        return "none" if self.head is None else self.head.to_text()

    def describe_state(self, key_id: str) -> str | None:
        """Return what the audit says of a key that was not shredded; None if it says nothing."""
        if key_id in self.holds:
            return f"it has {self.holds[key_id][0].to_text()}"
        if key_id in self.begun:
            return f"its shredding began on {self.begun[key_id].time}, and is not proven"
        return self.retired[key_id].to_text() if key_id in self.retired else None

    def refuse_shredded(self, key_id: str, doing: str) -> None:
        """Refuse to create a shredded key again.

        Args:
            key_id: the master key.
            doing: the refused operation as a participle for the message, such as ``made``.

        Raises:
            KeyNotFoundError: the key was shredded; the message names when, by whom and why.
        """
        tombstone = self.tombstones.get(key_id)
        if tombstone is not None:
            raise KeyNotFoundError(
                f"{tombstone.to_text()}; a shredded key is not {doing} again under its id: give what is written from "
                "now on another key id in the policy"
            )


def read_key_facts(
    store: StateStore, service: KeyService, masters: MasterKeys, *, expected: AuditHead | None = None
) -> KeyFacts:
    """Verify the whole audit of keys and return its contents.

    Args:
        store: the state directory.
        service: the key service, which unwraps the audit's MAC key.
        masters: the master keys that may wrap the MAC key.
        expected: a head that was kept elsewhere, which the audit must contain; the number 0 means that the audit must
            have no entries, unless a shredding is unfinished and nothing but shreddings was ever recorded: the command
            to which no head was known yet goes on then.

    Raises:
        VerificationError: the audit was changed or cut, or its head or all of it is missing.
        KeyServiceError: its MAC key cannot be unwrapped.
    """
    records = store.list(f"log/{KEYS}/")
    if not records and not has_mac_key(store, KEYS):
        leftovers = [*store.list(f"keys/heads/{KEYS}/"), *store.list("keys/tombstones/")]
        if leftovers or (expected is not None and expected.number):
            raise _lost_error(f"{leftovers[0]} is there" if leftovers else "its head was kept")
        return KeyFacts()
    mac = open_mac(store, KEYS, service, masters)
    kept = _read_head(store, mac.check)
    if kept is None and records:
        raise VerificationError(
            f"keys/heads/{KEYS}: is gone, so nobody can tell how long the audit of keys is; {FOUND}"
        )
    heads = [head for head in (kept, expected) if head is not None and head.number]
    log = open_audit(store, KEYS, mac)  # a torn or planted end is superseded; the heads find a cut one
    head, entries = verify_heads(log, heads), _Entries()
    for entry in list_entries_of(log):
        entries.take(entry)
    goes_on = bool(entries.begun) and entries.kinds <= {SHRED, TOMBSTONE}
    if head is not None and expected is not None and not expected.number and not goes_on:
        raise VerificationError(
            f"audit of {KEYS}: has {head.number} entries, where none is expected; look at them with `sparkcrypt audit "
            f"show --table {KEYS}`, and give --head {head.to_text()} if they are right"
        )
    if store.list("keys/tombstones/") and not entries.tombstones:
        raise _lost_error(f"{store.list('keys/tombstones/')[0]} is there")
    return entries.facts(head, masters.weakness(mac.key_ids[-1]))


def _lost_error(why: str) -> VerificationError:
    return VerificationError(f"audit of {KEYS}: is gone, though {why}; holds and tombstones are lost; {FOUND}")


def head_record(store: StateStore) -> LatestRecord:
    """Return the record of the length of the audit of keys, which is kept outside of the audit."""
    return LatestRecord(store, f"keys/heads/{KEYS}/")


def _read_head(store: StateStore, check_mac: CheckMac) -> AuditHead | None:
    """Return the recorded head of the audit, which may have one more entry after a crash; None if there is none.

    Raises:
        VerificationError: the record is not authentic.
    """
    content = next(head_record(store).read(), None)
    if content is None:
        return None
    expected = {"version": HEAD_VERSION, "table_id": KEYS}
    members = open_sealed(HEAD_PURPOSE, f"keys/heads/{KEYS}", content, check_mac, expected)
    return AuditHead.from_dict(members)


@dataclass(slots=True)
class _Entries:
    """What the entries of the audit of keys say, as far as they were taken, oldest first; see `KeyFacts`."""

    holds: dict[str, tuple[Hold, ...]] = field(default_factory=dict)
    begun: dict[str, Shredding] = field(default_factory=dict)
    tombstones: dict[str, Tombstone] = field(default_factory=dict)
    retired: dict[str, Retirement] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)

    def take(self, entry: AuditEntry) -> None:
        """Take an entry.

        Raises:
            VerificationError: it is of an unknown kind.
        """
        fields, what = entry.entry, entry.entry["what"]
        key_id, reason, who = str(fields["key_id"]), str(fields["reason"]), str(fields["who"])
        self.kinds.add(what)
        if what == HOLD:
            held = Hold(entry.number, reason, who, entry.time)
            self.holds[key_id] = (*self.holds.get(key_id, ()), held)
        elif what == RELEASE:
            left = tuple(hold for hold in self.holds.pop(key_id, ()) if hold.number != int(fields["hold"]))
            self.holds |= {key_id: left} if left else {}
        elif what == SHRED:
            begun = Shredding(key_id, reason, who, entry.time, fields.get("probe"), tuple(fields["dark"]))
            self.begun[key_id] = begun
        elif what == TOMBSTONE:
            self.begun.pop(key_id, None)
            self.retired.pop(key_id, None)
            effective = str(fields["effective_at"])
            self.tombstones[key_id] = Tombstone(key_id, reason, who, entry.time, effective, tuple(fields["dark"]))
        elif what == RETIRE:
            until = str(fields["until"])
            self.retired[key_id] = Retirement(key_id, int(fields["below"]), who, entry.time, until)
        elif what == BRING_BACK:
            self.retired.pop(key_id, None)
        elif what == DESTROY and key_id in self.retired:
            self.retired[key_id] = replace(self.retired[key_id], destroyed=entry.time)
        elif what != DESTROY:
            raise VerificationError(
                f"{entry.name}: says {what!r}, which this release does not know; use the release that wrote it"
            )

    def facts(self, head: AuditHead | None, weakness: str | None) -> KeyFacts:
        """Return what they say, to which what is taken later is added."""
        return KeyFacts(self.holds, self.begun, self.tombstones, head, weakness, self.retired)


_TOMBSTONE_PURPOSE = b"sparkcrypt tombstone\n"


class KeyAudit:
    """A writer of the audit of keys, under its lock; `key_audit` opens it.

    Attributes:
        facts: the contents of the audit, including appended entries.
    """

    def __init__(
        self, store: StateStore, policy: Policy, service: KeyService, lock: RunLock, mac: TableMac, command: str
    ) -> None:
        self._store, self._policy, self._service, self._lock, self._mac = store, policy, service, lock, mac
        self._log, self._command = TableLog.open(store, KEYS, mac), command
        self._writer, self._entries = AuditWriter(self._log, lock.token), _Entries()
        self.facts = read_key_facts(store, service, MasterKeys.of(policy))
        for entry in list_entries_of(self._log):
            self._entries.take(entry)

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
        content = seal_record(_TOMBSTONE_PURPOSE, members, self._mac)
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
        self._take(head)
        return head

    def _take(self, head: AuditHead) -> None:
        """Add the entry that was just appended to the facts."""
        record = self._log.records[-1]
        self._entries.take(AuditEntry.of(record, record.kind, record.fields))
        self.facts = self._entries.facts(head, MasterKeys.of(self._policy).weakness(self._mac.key_ids[-1]))

    def _keep_head(self, head: AuditHead) -> None:
        members = {"version": HEAD_VERSION, "table_id": KEYS, **head.to_dict()}
        head_record(self._store).replace(seal_record(HEAD_PURPOSE, members, self._mac))


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


class ShreddedKeys:
    """Finds which master keys were shredded; answers are cached for the lifetime of the object.

    The records for readers (``keys/tombstones/``) only select the keys to check; they are not trusted otherwise.

    Args:
        store: the state directory.
        policy: names the key service that has the audit's key.
    """

    def __init__(self, store: StateStore, policy: Policy) -> None:
        self._store, self._policy = store, policy
        self._marks: frozenset[str] | None = None
        self._facts: KeyFacts | None = None
        self._known: dict[str, bool] = {}

    def select(self, key_ids: Collection[str]) -> frozenset[str]:
        """Return those of some master keys that were shredded and no longer exist.

        Raises:
            VerificationError: the audit of keys was changed or cut.
            KeyServiceError: the key service does not answer.
        """
        for key_id in set(key_ids) - self._known.keys():
            self._known[key_id] = self._is_marked(key_id) and self._is_shredded(key_id)
        return frozenset(key_id for key_id in key_ids if self._known[key_id])

    def list_all(self) -> frozenset[str]:
        """Return every master key that was shredded and no longer exists.

        Raises:
            VerificationError, KeyServiceError: as `select`.
        """
        return self.select(self._read().tombstones) if self._list_marks() else frozenset()

    def tombstone(self, key_id: str) -> Tombstone:
        """Return the tombstone of a key that `select` returned."""
        return self._read().tombstones[key_id]

    def _is_marked(self, key_id: str) -> bool:
        return tombstone_name(key_digest(key_id)) in self._list_marks()

    def _list_marks(self) -> frozenset[str]:
        if self._marks is None:
            self._marks = frozenset(self._store.list("keys/tombstones/"))
        return self._marks

    def _is_shredded(self, key_id: str) -> bool:
        if key_id not in self._read().tombstones:
            return False
        try:
            self._service.describe(key_id)
        except KeyNotFoundError:
            return True
        except KeyAccessDeniedError:  # unknown whether it still exists
            return False
        return False  # the operator created a key under its id again

    def _read(self) -> KeyFacts:
        if self._facts is None:
            try:
                self._facts = read_key_facts(self._store, self._service, MasterKeys.of(self._policy))
            except KeyAccessDeniedError:  # this user may not open audits: no key counts as shredded
                self._facts = KeyFacts()
        return self._facts

    @cached_property
    def _service(self) -> KeyService:
        return open_key_service(self._policy.key_service)


def describe_refused(shredded: ShreddedKeys, key_id: str, error: KeyNotFoundError) -> KeyNotFoundError:
    """Return the error for a missing key; if the key was shredded, its message names when and why.

    Raises:
        VerificationError, KeyServiceError: as `ShreddedKeys.select`.
    """
    if not shredded.select((key_id,)):
        return error
    return KeyNotFoundError(f"{shredded.tombstone(key_id).to_text()}; a shredded key has no versions any more")

"""Reading the audit of keys: which master keys are held, which have retired versions, which were shredded, and why.

A key service cannot store this, so the audit of keys does: an audit like that of a table, under the id `KEYS`.  Its
entries are chained and authenticated; removing a hold from it, or its end together with the head, is detected.

    audit/keys/00000001.json                 a hold, its release, a step of a retirement or of a shredding, a tombstone
    heads/keys/00000001.json                 the length of that audit, in a record with its MAC
    tombstones/<digest of the key id>.json   for messages to readers, who cannot open the audit; not trusted otherwise

A state directory that was replaced as a whole by an earlier copy of itself, or deleted as a whole, is not detected.  To
detect that, keep the head that each command prints, and pass it as ``--head``.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sparkcrypt.errors import KeyNotFoundError, VerificationError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.audit import AuditEntry, authentic_entries, verify_audit
from sparkcrypt.ledger.journal.entries import AuditHead
from sparkcrypt.ledger.state.latest_record import LatestRecord
from sparkcrypt.ledger.state.mac import FOUND, CheckMac, MasterKeys, is_mac_key, open_mac
from sparkcrypt.ledger.state.sealed_record import open_sealed
from sparkcrypt.ledger.state.store import StateStore

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
    records = store.list(f"audit/{KEYS}/")
    if not records:
        leftovers = [*store.list(f"heads/{KEYS}/"), *store.list("tombstones/")]
        if leftovers or (expected is not None and expected.number):
            raise _lost_error(f"{leftovers[0]} is there" if leftovers else "its head was kept")
        return KeyFacts()
    mac = open_mac(store, KEYS, service, masters)
    kept = _read_head(store, mac.check)
    if kept is None and any(not is_mac_key(name.rpartition("/")[2]) for name in records):
        raise VerificationError(f"heads/{KEYS}: is gone, so nobody can tell how long the audit of keys is; {FOUND}")
    heads = [head for head in (kept, expected) if head is not None and head.number]
    head = verify_audit(store, KEYS, check_mac=mac.check, expected=heads)
    entries = [entry for entry, _ in authentic_entries(store, KEYS, mac.check)]
    facts = _sum_up(entries)
    goes_on = bool(facts[1]) and all(entry.entry["what"] in (SHRED, TOMBSTONE) for entry in entries)
    if head is not None and expected is not None and not expected.number and not goes_on:
        raise VerificationError(
            f"audit of {KEYS}: has {head.number} entries, where none is expected; look at them with `sparkcrypt audit "
            f"show --table {KEYS}`, and give --head {head.to_text()} if they are right"
        )
    if store.list("tombstones/") and not facts[2]:
        raise _lost_error(f"{store.list('tombstones/')[0]} is there")
    return KeyFacts(*facts, head, masters.weakness(mac.key_ids[-1]), _find_retired(entries))


def _lost_error(why: str) -> VerificationError:
    return VerificationError(f"audit of {KEYS}: is gone, though {why}; holds and tombstones are lost; {FOUND}")


def head_record(store: StateStore) -> LatestRecord:
    """Return the record of the length of the audit of keys, which is kept outside of the audit."""
    return LatestRecord(store, f"heads/{KEYS}/")


def _read_head(store: StateStore, check_mac: CheckMac) -> AuditHead | None:
    """Return the recorded head of the audit, which may have one more entry after a crash; None if there is none.

    Raises:
        VerificationError: the record is not authentic.
    """
    content = next(head_record(store).read(), None)
    if content is None:
        return None
    expected = {"version": HEAD_VERSION, "table_id": KEYS}
    members = open_sealed(HEAD_PURPOSE, f"heads/{KEYS}", content, check_mac, expected)
    return AuditHead.from_dict(members)


def _sum_up(
    entries: list[AuditEntry],
) -> tuple[dict[str, tuple[Hold, ...]], dict[str, Shredding], dict[str, Tombstone]]:
    holds: dict[str, dict[int, Hold]] = {}
    begun: dict[str, Shredding] = {}
    tombstones: dict[str, Tombstone] = {}
    for entry in entries:
        fields, what = entry.entry, entry.entry["what"]
        key_id, reason, who = str(fields["key_id"]), str(fields["reason"]), str(fields["who"])
        if what == HOLD:
            holds.setdefault(key_id, {})[entry.number] = Hold(entry.number, reason, who, entry.time)
        elif what == RELEASE:
            holds.get(key_id, {}).pop(int(fields["hold"]), None)
        elif what == SHRED:
            begun[key_id] = Shredding(key_id, reason, who, entry.time, fields.get("probe"), tuple(fields["dark"]))
        elif what == TOMBSTONE:
            begun.pop(key_id, None)
            effective = str(fields["effective_at"])
            tombstones[key_id] = Tombstone(key_id, reason, who, entry.time, effective, tuple(fields["dark"]))
        elif what not in (RETIRE, BRING_BACK, DESTROY):
            raise VerificationError(
                f"{entry.name}: says {what!r}, which this release does not know; use the release that wrote it"
            )
    standing = {key_id: tuple(found.values()) for key_id, found in holds.items() if found}
    return standing, begun, tombstones


def _find_retired(entries: list[AuditEntry]) -> dict[str, Retirement]:
    retired: dict[str, Retirement] = {}
    for entry in entries:
        fields, what = entry.entry, entry.entry["what"]
        key_id = str(fields["key_id"])
        if what == RETIRE:
            until = str(fields["until"])
            retired[key_id] = Retirement(key_id, int(fields["below"]), str(fields["who"]), entry.time, until)
        elif what in (BRING_BACK, TOMBSTONE):
            retired.pop(key_id, None)
        elif what == DESTROY and key_id in retired:
            retired[key_id] = replace(retired[key_id], destroyed=entry.time)
    return retired

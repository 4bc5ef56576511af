"""What is known of master keys beyond their key service: which are held, and which were shredded, when and why.

A key service has no place for this, so the audit of keys tells it: an audit like that of a table, under the id `KEYS`.
Its entries are chained and authenticated; a hold that was taken out of it, or its end with the head, is found.

    audit/keys/00000001.json                 a hold, its release, a shredding that begins, or a tombstone
    heads/keys/00000001.json                 how long that audit is, in a record with its MAC
    tombstones/<digest of the key id>.json   for messages to readers, who cannot open the audit; nothing else goes by it

Not found is a state directory that was replaced as a whole by an earlier copy of itself, or deleted as a whole; against
that, keep the head that each command prints, and give it back as ``--head``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkcrypt.backfill.audit.audit import AuditEntry, authentic_entries, verify_audit
from sparkcrypt.backfill.journal.entries import AuditHead
from sparkcrypt.backfill.state.latest_record import LatestRecord
from sparkcrypt.backfill.state.mac import FOUND, CheckMac, MasterKeys, is_mac_key, open_mac
from sparkcrypt.backfill.state.sealed_record import open_sealed
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.errors import KeyNotFoundError, VerificationError
from sparkcrypt.keys.service import KeyService

KEYS = "keys"
"""Stands for a table's id in the audit of keys."""
HOLD, RELEASE, SHRED, TOMBSTONE = "hold", "release", "shred", "tombstone"
HEAD_PURPOSE = b"sparkcrypt head of the audit of keys\n"
HEAD_VERSION = 1


@dataclass(frozen=True, slots=True)
class Hold:
    """A legal hold: the key may not be shredded until it is released.

    Attributes:
        number: of its entry, by which it is released where a key has several.
        reason: why, as somebody gave it.
        who: ``user@host`` who put it on.
        time: when (ISO 8601, UTC).
    """

    number: int
    reason: str
    who: str
    time: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"number": self.number, "reason": self.reason, "who": self.who, "time": self.time}

    def to_text(self) -> str:
        """Return it as people read it."""
        return f"hold {self.number} of {self.who} since {self.time}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Shredding:
    """A shredding as it was written down before the key service was asked to delete the key.

    Attributes:
        key_id: the master key.
        reason: why.
        who: ``user@host`` who began it.
        time: when (ISO 8601, UTC).
        probe: what the key wrapped before its deletion: random bytes, by which the deletion is proven.
        dark: what goes dark, table by table, as JSON values.
    """

    key_id: str
    reason: str
    who: str
    time: str
    probe: str | None
    dark: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A key that was shredded; its id is never used again.

    Attributes:
        key_id: the master key.
        reason: why it was shredded.
        who: ``user@host`` who did it.
        time: when the deletion was proven (ISO 8601, UTC).
        effective_at: when nothing serves the key any more, neither a cache nor whoever undoes a deletion.
        dark: what went dark, table by table, as JSON values.
    """

    key_id: str
    reason: str
    who: str
    time: str
    effective_at: str
    dark: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "key_id": self.key_id,
            "reason": self.reason,
            "who": self.who,
            "time": self.time,
            "effective_at": self.effective_at,
            "dark": [dict(table) for table in self.dark],
        }

    def to_text(self) -> str:
        """Return it as people read it."""
        return f"key {self.key_id!r} was shredded by {self.who} on {self.time}: {self.reason}"


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """What the audit of keys says, once all of it is authentic.

    Attributes:
        holds: key id -> the holds that stand.
        begun: key id -> its shredding, where no tombstone came after it.
        tombstones: key id -> its last tombstone.
        head: of the audit; None where nobody ever held or shredded a key.
        weakness: what people must know of the audit's key; None: nothing.
    """

    holds: Mapping[str, tuple[Hold, ...]] = field(default_factory=dict)
    begun: Mapping[str, Shredding] = field(default_factory=dict)
    tombstones: Mapping[str, Tombstone] = field(default_factory=dict)
    head: AuditHead | None = None
    weakness: str | None = None

    @property
    def head_text(self) -> str:
        """The head as ``--head`` takes it."""
        return "none" if self.head is None else self.head.to_text()

    def refuse_shredded(self, key_id: str, doing: str) -> None:
        """Refuse to bring a shredded key back.

        Args:
            key_id: the master key.
            doing: what was about to be done, such as ``made``.

        Raises:
            KeyNotFoundError: it was shredded; when, by whom and why.
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
    """Return what the audit of keys says, once it is seen to be whole.

    Args:
        store: the state directory.
        service: the key service, which opens the audit's MAC key.
        masters: the master keys that may wrap that.
        expected: a head that was kept elsewhere, which the audit must hold; with the number 0, that there is none.

    Raises:
        VerificationError: the audit was changed or cut, or what should lie beside it is gone.
        KeyServiceError: its MAC key cannot be opened.
    """
    records = store.list(f"audit/{KEYS}/")
    if not records:
        left = [*store.list(f"heads/{KEYS}/"), *store.list("tombstones/")]
        if left or (expected is not None and expected.number):
            raise _lost_error(f"{left[0]} is there" if left else "its head was kept")
        return KeyFacts()
    mac = open_mac(store, KEYS, service, masters)
    kept = _read_head(store, mac.check)
    if kept is None and any(not is_mac_key(name.rpartition("/")[2]) for name in records):
        raise VerificationError(f"heads/{KEYS}: is gone, so nobody can tell how long the audit of keys is; {FOUND}")
    heads = [head for head in (kept, expected) if head is not None and head.number]
    head = verify_audit(store, KEYS, check_mac=mac.check, expected=heads)
    if head is not None and expected is not None and not expected.number:
        raise VerificationError(
            f"audit of {KEYS}: has {head.number} entries, where none is expected; look at them with `sparkcrypt audit "
            f"show --table {KEYS}`, and give --head {head.to_text()} if they are right"
        )
    facts = _sum_up([entry for entry, _ in authentic_entries(store, KEYS, mac.check)])
    if store.list("tombstones/") and not facts[2]:
        raise _lost_error(f"{store.list('tombstones/')[0]} is there")
    return KeyFacts(*facts, head, masters.weakness(mac.key_ids[-1]))


def _lost_error(why: str) -> VerificationError:
    return VerificationError(f"audit of {KEYS}: is gone, though {why}; holds and tombstones are lost; {FOUND}")


def head_record(store: StateStore) -> LatestRecord:
    """Return where the length of the audit of keys is kept, beside the audit."""
    return LatestRecord(store, f"heads/{KEYS}/")


def _read_head(store: StateStore, check_mac: CheckMac) -> AuditHead | None:
    """Return the head that was written beside the audit, which is as long as this, or longer by one after a crash.

    Raises:
        VerificationError: the record does not authenticate.
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
        said, what = entry.entry, entry.entry["what"]
        key_id, reason, who = str(said["key_id"]), str(said["reason"]), str(said["who"])
        if what == HOLD:
            holds.setdefault(key_id, {})[entry.number] = Hold(entry.number, reason, who, entry.time)
        elif what == RELEASE:
            holds.get(key_id, {}).pop(int(said["hold"]), None)
        elif what == SHRED:
            begun[key_id] = Shredding(key_id, reason, who, entry.time, said.get("probe"), tuple(said["dark"]))
        elif what == TOMBSTONE:
            begun.pop(key_id, None)
            effective = str(said["effective_at"])
            tombstones[key_id] = Tombstone(key_id, reason, who, entry.time, effective, tuple(said["dark"]))
        else:
            raise VerificationError(
                f"{entry.name}: says {what!r}, which this release does not know; use the release that wrote it"
            )
    standing = {key_id: tuple(found.values()) for key_id, found in holds.items() if found}
    return standing, begun, tombstones

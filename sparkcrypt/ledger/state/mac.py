"""The MAC keys that authenticate a table's audit: wrapped by master keys, each used from its first entry on.

    keys/macs/<table id>/mac-key.json     the first MAC key, wrapped by a master key
    keys/macs/<table id>/mac-key-2.json   its successor, made after the policy named another master key, or another key
                                      service

Anyone who can unwrap a MAC key can write entries that verify.  Readers of a table may unwrap with its footer key, so a
policy names a master key for audits alone (``audit.key``); without one the footer key is used, and verification warns
of that.  An audit that began under the footer key continues under a successor: the entries before it are pinned by
those after, and a weaker key is not accepted again, neither for a later entry nor as a later MAC key.

Other records than the audit's have a MAC by these keys too, so that write access to the state directory alone is not
enough to forge one (``seal_record``):

    {…the record's members…, "mac": MAC over a purpose and the canonical JSON of the members}

The purpose separates the kinds of records that one MAC key authenticates: a record of one kind is never accepted as
another kind.  A record's members must contain what it is about (table, run, number), and the code that opens it passes
the expected values: a MAC shows that a record is authentic, not that it is stored under the name of its writer.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.open_service import needs_moving
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.state.store import StateStore, decode_record, encode_decoded, encode_record
from sparkcrypt.policy.model import Policy

VERSION = 1
MAC_KEY_BYTES = 32
FOUND = "someone changed the audit, or the state directory was damaged; compare it with a backup"
Mac: TypeAlias = Callable[[bytes], str]
CheckMac: TypeAlias = Callable[[bytes, str], int]
"""Returns the number of the MAC key that made a MAC of bytes, counted from 1; 0 if none did."""

_NAME = re.compile(r"mac-key(?:-(?P<generation>[2-9]|[1-9]\d+))?\.json")


class TableMac:
    """Makes MACs with the newest of a table's MAC keys, and checks MACs with all of them: HMAC-SHA256, in hex.

    Args:
        *keys: the MAC keys, oldest first.
        key_ids: the ids of the master keys that wrap them.
    """

    def __init__(self, *keys: bytes, key_ids: Sequence[str] = ()) -> None:
        self._keys, self.key_ids = keys, tuple(key_ids)

    def __repr__(self) -> str:
        return f"TableMac(key_ids={self.key_ids!r})"

    @property
    def newest(self) -> int:
        """The number of the newest key, counted from 1."""
        return len(self._keys)

    def has_keys_of(self, other: TableMac) -> bool:
        """Return whether it has the same keys as another, none more and none fewer."""
        return self._keys == other._keys

    def __call__(self, content: bytes) -> str:
        """Return the MAC of bytes, by the newest key."""
        return _mac(self._keys[-1], content)

    def check(self, content: bytes, mac: str) -> int:
        """Return the number of the key that made a MAC, counted from 1; 0 if none did.  Compares in constant time."""
        made = [hmac.compare_digest(_mac(key, content).encode(), mac.encode()) for key in self._keys]
        return made.index(True) + 1 if any(made) else 0


@dataclass(frozen=True, slots=True)
class MasterKeys:
    """The master keys that may wrap MAC keys: the current one, its predecessors, and those that readers may use."""

    current: str
    earlier: tuple[str, ...] = ()
    held_by_readers: tuple[str, ...] = ()

    @classmethod
    def of(cls, policy: Policy) -> MasterKeys:
        """Return the master keys that a policy names."""
        footer = (policy.footer_key, *policy.footer_key_history)
        return cls(policy.audit_key or policy.footer_key, policy.audit_key_history, footer)

    def strength(self, key_id: str) -> int | None:
        """Return the strength of a master key relative to the others; None if it is not one of them."""
        if key_id == self.current:
            return 2
        if key_id in self.held_by_readers:
            return 0
        return 1 if key_id in self.earlier else None

    def weakness(self, key_id: str) -> str | None:
        """Return a warning if a master key that wraps an audit's newest MAC key may be used by readers."""
        if key_id not in self.held_by_readers:
            return None
        return (
            f"audit: its MAC key is wrapped by the footer key {key_id!r}, which every reader may use, so a reader who "
            "may also write to the state directory could forge entries; name a key in the policy that readers may not "
            "use, such as audit: {key: audit}, and the next run goes on under it"
        )


def open_mac(
    store: StateStore, table_id: str, service: KeyService, masters: MasterKeys, *, renew: bool = False
) -> TableMac:
    """Unwrap the MAC keys of a table; the first call creates the first one.

    Args:
        store: the state directory.
        table_id: the table's id.
        service: the key service.
        masters: the master keys that may wrap them.
        renew: create a successor if the newest MAC key is not under the current master key, or is under a former key
            service; for callers that are about to write.

    Raises:
        VerificationError: a MAC key is missing, damaged, or under a master key that is not, or no longer, allowed.
        KeyServiceError: the key service failed to wrap or unwrap.
    """
    if not _generations(store, table_id):
        _make(store, table_id, service, masters.current, 1)
    names = _generations(store, table_id)
    key_ids = [_key_id(store, table_id, name, masters) for name in names]
    strengths = [masters.strength(key_id) or 0 for key_id in key_ids]
    for name, before, after in zip(names[1:], strengths, strengths[1:], strict=False):
        if after < before:
            raise VerificationError(f"{name}: is wrapped by a weaker master key than the one before it; {FOUND}")
    if renew and (key_ids[-1] != masters.current or _is_moving(store, names[-1], service)):
        _make(store, table_id, service, masters.current, len(names) + 1)
        return open_mac(store, table_id, service, masters)
    return TableMac(*(_unwrap(store, name, service) for name in names), key_ids=key_ids)


def has_mac_key(store: StateStore, table_id: str) -> bool:
    """Return whether a table has a MAC key; opening it would make one otherwise."""
    return bool(store.list(f"keys/macs/{table_id}/mac-key"))


def is_mac_key(name: str) -> bool:
    """Return whether the last part of a record's name is that of a MAC key's."""
    return _NAME.fullmatch(name) is not None


def _mac(key: bytes, content: bytes) -> str:
    return hmac.new(key, content, hashlib.sha256).hexdigest()


def _generations(store: StateStore, table_id: str) -> list[str]:
    """Return the names of a table's MAC keys, oldest first.

    Raises:
        VerificationError: a MAC key is missing.
    """
    there = {name for name in store.list(f"keys/macs/{table_id}/mac-key") if is_mac_key(name.rpartition("/")[2])}
    names = [_name(table_id, generation) for generation in range(1, len(there) + 1)]
    for name in names:
        if name not in there:
            raise VerificationError(f"{name}: is gone, and entries cannot be checked without it; {FOUND}")
    return names


def _make(store: StateStore, table_id: str, service: KeyService, key_id: str, generation: int) -> None:
    name = _name(table_id, generation)
    wrapped = service.wrap(key_id, secrets.token_bytes(MAC_KEY_BYTES))
    if generation == 1 and _was_used(store, table_id) and store.read(name) is None:
        raise VerificationError(f"{name}: is gone, and the audit's entries cannot be checked without it; {FOUND}")
    store.create(name, encode_record({"version": VERSION, "table_id": table_id, "key_id": key_id, "wrapped": wrapped}))


def _was_used(store: StateStore, table_id: str) -> bool:
    """Return whether a log was written under a MAC key, and not only planted before there was one."""
    others = (f"keys/keks/{table_id}/", f"keys/heads/{table_id}/")
    return bool(store.list(f"log/{table_id}/")) and any(store.list(other) for other in others)


def _key_id(store: StateStore, table_id: str, name: str, masters: MasterKeys) -> str:
    body = decode_record(name, store.read(name) or b"")
    used, wrapped = body.get("key_id"), body.get("wrapped")
    if body.get("version") != VERSION or body.get("table_id") != table_id or not isinstance(wrapped, str):
        raise VerificationError(f"{name}: is not the MAC key of this table; {FOUND}")
    if not isinstance(used, str) or masters.strength(used) is None:
        raise VerificationError(
            f"{name}: is wrapped by master key {used!r}, where {masters.current!r} is expected; when the policy's key "
            "has changed, name the earlier one under audit.history; else someone replaced the MAC key"
        )
    return used


def _unwrap(store: StateStore, name: str, service: KeyService) -> bytes:
    body = decode_record(name, store.read(name) or b"")
    key = service.unwrap(str(body["key_id"]), str(body["wrapped"]))
    if len(key) != MAC_KEY_BYTES:
        raise VerificationError(f"{name}: holds a key of {len(key)} bytes; allowed: {MAC_KEY_BYTES}; {FOUND}")
    return key


def _is_moving(store: StateStore, name: str, service: KeyService) -> bool:
    body = decode_record(name, store.read(name) or b"")
    return needs_moving(service, str(body["key_id"]), str(body["wrapped"]))


def _name(table_id: str, generation: int) -> str:
    return f"keys/macs/{table_id}/mac-key{'' if generation == 1 else f'-{generation}'}.json"


def seal_record(purpose: bytes, members: Mapping[str, Any], mac: Mac) -> bytes:
    """Return the bytes of a record with its MAC.

    Args:
        purpose: the kind of record; ends with a line feed.
        members: JSON values, without ``mac``.
        mac: makes the MAC, with the newest MAC key of the table's audit.
    """
    return encode_record({**members, "mac": mac(purpose + encode_record(members))})


def open_sealed(
    purpose: bytes, name: str, content: bytes, check_mac: CheckMac, expected: Mapping[str, Any]
) -> dict[str, Any]:
    """Authenticate a record and return its members.

    Args:
        purpose: the purpose with which it was sealed.
        name: the record's name, for messages.
        content: its bytes.
        check_mac: returns the number of the MAC key that made a MAC, 0 if none did.
        expected: members that it must have: the version, and what the record is about.

    Raises:
        VerificationError: it was edited, moved or forged; the message names it.
    """
    members = decode_record(name, content)
    mac = members.pop("mac", None)
    if not isinstance(mac, str) or not check_mac(purpose + encode_decoded(members), mac):
        raise VerificationError(
            f"{name}: does not authenticate: it was edited, or written by someone else; nothing is done on its word; "
            "restore the state directory's copy of it"
        )
    for key, value in expected.items():
        if members.get(key) != value:
            raise VerificationError(
                f"{name}: has {key} {members.get(key)!r}, where {value!r} is expected, so it was moved or copied; "
                "restore the state directory's copy of it"
            )
    return members

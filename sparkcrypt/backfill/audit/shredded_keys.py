"""Which master keys were shredded, for runs over files that still hold columns under them.

A key that is not found may be an outage, a wrong credential or a mistake.  A column is dark only where the audit of
keys, all of it authentic, has a tombstone of its key, and the key service says that it has no such key.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from sparkcrypt.backfill.audit.read_key_audit import KeyFacts, Tombstone, read_key_facts
from sparkcrypt.backfill.state.mac import MasterKeys
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.errors import KeyAccessDeniedError, KeyNotFoundError
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.keys.tombstones import tombstone_name
from sparkcrypt.policy.model import Policy


class ShreddedKeys:
    """Tells which of some master keys were shredded; what it was told of a key stands as long as it lives.

    The records that are there for readers say of which keys it is worth asking: nothing else goes by them.

    Args:
        store: the state directory.
        policy: whose key service has the audit's key.
    """

    def __init__(self, store: StateStore, policy: Policy) -> None:
        self._store, self._policy = store, policy
        self._marks: frozenset[str] | None = None
        self._facts: KeyFacts | None = None
        self._known: dict[str, bool] = {}

    def select(self, key_ids: Collection[str]) -> frozenset[str]:
        """Return which of some master keys were shredded and are gone.

        Raises:
            VerificationError: the audit of keys was changed or cut.
            KeyServiceError: the key service does not answer.
        """
        for key_id in set(key_ids) - self._known.keys():
            self._known[key_id] = self._is_marked(key_id) and self._is_shredded(key_id)
        return frozenset(key_id for key_id in key_ids if self._known[key_id])

    def list_all(self) -> frozenset[str]:
        """Return every master key that was shredded and is gone.

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
            self._marks = frozenset(self._store.list("tombstones/"))
        return self._marks

    def _is_shredded(self, key_id: str) -> bool:
        if key_id not in self._read().tombstones:
            return False
        try:
            self._service.describe(key_id)
        except KeyNotFoundError:
            return True
        except KeyAccessDeniedError:  # nobody says that it is gone
            return False
        return False  # made again under its id, by hand

    def _read(self) -> KeyFacts:
        if self._facts is None:
            try:
                self._facts = read_key_facts(self._store, self._service, MasterKeys.of(self._policy))
            except KeyAccessDeniedError:  # who may not open audits is told nothing, and what he cannot open stays so
                self._facts = KeyFacts()
        return self._facts

    @cached_property
    def _service(self) -> KeyService:
        return open_key_service(self._policy.key_service)


def describe_refused(shredded: ShreddedKeys, key_id: str, error: KeyNotFoundError) -> KeyNotFoundError:
    """Return the error of a key that is not there, with when and why it was shredded where that is so.

    Raises:
        VerificationError, KeyServiceError: as `ShreddedKeys.select`.
    """
    if not shredded.select((key_id,)):
        return error
    return KeyNotFoundError(f"{shredded.tombstone(key_id).to_text()}; a shredded key has no versions any more")

"""The shredded master keys, for runs over files that still have columns under them.

A key that is not found may be due to an outage, a wrong credential or a mistake.  A column is dark only if the
authenticated audit of keys has a tombstone of its key, and the key service answers that it has no such key.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from sparkcrypt.errors import KeyAccessDeniedError, KeyNotFoundError
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.keys.tombstones import tombstone_name
from sparkcrypt.ledger.audit.read_key_audit import KeyFacts, Tombstone, read_key_facts
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.policy.model import Policy


class ShreddedKeys:
    """Finds which master keys were shredded; answers are cached for the lifetime of the object.

    The records for readers (``tombstones/``) only select the keys to check; they are not trusted otherwise.

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
            self._marks = frozenset(self._store.list("tombstones/"))
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

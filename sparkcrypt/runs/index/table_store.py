"""The store of one table, found by the table's UUID in the policy's folder of stores, and the keys of its indexes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkcrypt.errors import KeyAccessDeniedError
from sparkcrypt.files.parquet import RetrieveKey
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.index.store_generation import StoreGeneration
from sparkcrypt.runs.table.footers import own_keys
from sparkcrypt.skipping.indexes.build import keys_of_store
from sparkcrypt.skipping.trusted.folder import StoreFolder, open_folder
from sparkcrypt.skipping.trusted.sidecar import Sidecar
from sparkcrypt.skipping.trusted.store_keys import StoreKeys
from sparkcrypt.skipping.trusted.trust import Expected, TrustedStore, open_manifest, open_parts
from sparkcrypt.skipping.trusted.write import standing_generation


@dataclass(frozen=True, slots=True)
class TableStore:
    """A table's store, which may not exist.

    Attributes:
        policy: names the keys.
        uuid: the UUID of the table.
        folder: the folder of the store.
        record: the record of its last generation.
        service: wraps and unwraps keys.
    """

    policy: Policy
    uuid: str
    folder: StoreFolder
    record: StoreGeneration
    service: KeyService
    _retrieve: RetrieveKey = field(repr=False)

    def open(self, generation: int) -> TrustedStore:
        """Open the store, which may not be older than a generation; its labels name the keys of its indexes.

        Raises:
            As `open_parts`.
        """
        return open_parts(self.folder, self._retrieve, Expected.of(self.policy, self.uuid, None, generation or None))

    def open_manifest(self) -> Sidecar | None:
        """Open only the sidecar; None if there is no store that sparkcrypt wrote, or the footer's key is denied.

        Raises:
            As `open_manifest`.
        """
        if standing_generation(self.folder) is None:
            return None
        try:
            return open_manifest(self.folder, self._retrieve, Expected.of(self.policy, self.uuid, None))
        except KeyAccessDeniedError:
            return None

    def choose_keys(self, opened: TrustedStore, plan: EncryptionPlan) -> StoreKeys:
        """Return the keys to encrypt the store with: for each index, the key that the plan gives its column.

        If that key is a template, which gives each partition another key, the index stays under its current key.
        """
        before = keys_of_store(opened.store, self.policy.footer_key)
        planned = {column.leaf.logical[0]: column for column in plan.columns if len(column.leaf.logical) == 1}
        keys: dict[str, str] = {}
        for column in {entries.index.columns[0] for entries in opened.store.indexes}:
            found = planned.get(column)
            key = None if found is None else found.key
            if key is not None and not key.columns:
                keys[column] = key.text
            elif (found is None or key is not None) and column in before:
                keys[column] = before[column]
        return self.make_keys(keys)

    def make_keys(self, columns: Mapping[str, str]) -> StoreKeys:
        """Return the keys to encrypt a store with, from the master keys of its columns."""
        own = {column: key for column, key in columns.items() if key != self.policy.footer_key}
        maker = DataKeyMaker(self.service, data_key_bits=self.policy.data_key_bits)
        return StoreKeys(maker, self.policy.footer_key, own)


def find_store(policy: Policy, uuid: str | None, state_store: StateStore) -> TableStore | None:
    """Return the store of a table; None if the policy has no folder of stores, or the table no UUID.

    Args:
        policy: has the folder of stores.
        uuid: the UUID of the table.
        state_store: the state directory.

    Raises:
        ConfigError: stores are not supported on that file system.
    """
    if policy.index_location is None or uuid is None:
        return None
    folder = open_folder(f"{policy.index_location.rstrip('/')}/{uuid}", {})
    service = open_key_service(policy.key_service)
    record = StoreGeneration(state_store, uuid, service, MasterKeys.of(policy))
    return TableStore(policy, uuid, folder, record, service, own_keys(policy.key_service))

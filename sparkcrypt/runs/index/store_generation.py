"""The record of the last generation of a table's store for data skipping, so that an older store is not used again.

    indexes/<table id>/00000003.json    the generation, under its own MAC key

A store's sidecar authenticates its generation, but does not show whether there is a later one: anyone who can write to
the storage could restore an older store, with which queries would miss rows that were added since.  The record is
written after the store, so a killed writer leaves a store that is later than the record, which is accepted, and never
an older one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.state.latest_record import LatestRecord
from sparkcrypt.ledger.state.mac import MasterKeys, TableMac, open_mac
from sparkcrypt.ledger.state.sealed_record import open_sealed, seal_record
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.paths import comparable_path

VERSION = 1
_PURPOSE = b"sparkcrypt index generation\n"


def data_folder_id(path: str) -> str:
    """Return the id of a bare folder in these records: a digest of its path."""
    return hashlib.sha256(comparable_path(path).encode()).hexdigest()[:32]


class StoreGeneration:
    """The last generation of one table's store.

    Args:
        store: the state directory.
        table_id: the table's UUID, or `data_folder_id` of a bare folder.
        service: the key service.
        masters: the master keys that may wrap the record's MAC key, which is not the audit's: the existence of an
            audit's MAC key means that the table had runs.
    """

    def __init__(self, store: StateStore, table_id: str, service: KeyService, masters: MasterKeys) -> None:
        self._store, self._table_id = store, table_id
        self._record = LatestRecord(store, f"indexes/{table_id}/")
        self._open: Callable[[bool], TableMac] = lambda renew: open_mac(
            store, f"index-{table_id}", service, masters, renew=renew
        )

    def read(self) -> int:
        """Return the generation that was written last; 0 if none is recorded.

        Raises:
            VerificationError: the record is not authentic.
            KeyServiceError: its MAC key cannot be unwrapped.
        """
        content = next(self._record.read(), None)
        if content is None:
            return 0
        name, expected = f"indexes/{self._table_id}", {"version": VERSION, "table_id": self._table_id}
        found = open_sealed(_PURPOSE, name, content, self._open(False).check, expected)["generation"]
        if type(found) is not int or found < 1:
            raise VerificationError(f"{name}: has the generation {found!r}; restore the state directory's copy of it")
        return found

    def keep(self, generation: int) -> None:
        """Record that a generation was written, unless a later one is recorded.

        Raises:
            VerificationError, KeyServiceError: as `read`.
        """
        mac = self._open(True)
        while self.read() < generation:
            members = {"version": VERSION, "table_id": self._table_id, "generation": generation}
            self._record.replace(seal_record(_PURPOSE, members, mac))

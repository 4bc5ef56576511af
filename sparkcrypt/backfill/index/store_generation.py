"""Which generation of a table's store for data skipping was written last, so that an older one is not used again.

    indexes/<table id>/00000003.json    the generation, under a MAC key of its own

A store's sidecar authenticates its generation, and says nothing of those after it: whoever may write to the storage
could bring an older store back, under which rows that came since are left out.  This record is written after the swap,
so that a killed writer leaves a store that is later than the record, which is in order; never the other way round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from sparkcrypt.backfill.state.latest_record import LatestRecord
from sparkcrypt.backfill.state.mac import MasterKeys, TableMac, open_mac
from sparkcrypt.backfill.state.sealed_record import open_sealed, seal_record
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.service import KeyService
from sparkcrypt.paths import comparable_path

VERSION = 1
_PURPOSE = b"sparkcrypt index generation\n"


def data_folder_id(path: str) -> str:
    """Return what a bare folder is called here: a digest of its path."""
    return hashlib.sha256(comparable_path(path).encode()).hexdigest()[:32]


class StoreGeneration:
    """The last generation of one table's store.

    Args:
        store: the state directory.
        table_id: the table's UUID, or `data_folder_id` of a bare folder.
        service: the key service.
        masters: the master keys that may wrap the record's MAC key.  It is apart from the audit's, of which its mere
            presence says that the table had runs.
    """

    def __init__(self, store: StateStore, table_id: str, service: KeyService, masters: MasterKeys) -> None:
        self._store, self._table_id = store, table_id
        self._record = LatestRecord(store, f"indexes/{table_id}/")
        self._open: Callable[[bool], TableMac] = lambda renew: open_mac(
            store, f"index-{table_id}", service, masters, renew=renew
        )

    def read(self) -> int:
        """Return the generation that was written last; 0 where none is known.

        Raises:
            VerificationError: the record does not authenticate.
            KeyServiceError: its MAC key cannot be opened.
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
        """Note that a generation was written, unless a later one is noted.

        Raises:
            VerificationError, KeyServiceError: as `read`.
        """
        mac = self._open(True)
        while self.read() < generation:
            members = {"version": VERSION, "table_id": self._table_id, "generation": generation}
            self._record.replace(seal_record(_PURPOSE, members, mac))

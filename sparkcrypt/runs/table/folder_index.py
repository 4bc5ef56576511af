"""Opens the index of a folder, and finds the store of an index by the policy, with the record of its last generation.

    keys/indexes/<table id>/00000003.json    the generation, under its own MAC key, in the state directory

A store's sidecar authenticates its generation, but does not show whether there is a later one: anyone who can write to
the storage could restore an older store, with which queries would miss rows that were added since.  The record is
written after the store, so a killed writer leaves a store that is later than the record, which is accepted, and never
an older one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence

from sparkcrypt.decide.identity import check_claims
from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.files.listing import ListedFile
from sparkcrypt.files.parquet import FileSummary, RetrieveKey
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.opened import open_data_keys
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.state.mac import MasterKeys, TableMac, open_mac, open_sealed, seal_record
from sparkcrypt.ledger.state.store import LatestRecord, StateStore
from sparkcrypt.paths import comparable_path, is_within
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.skipping.indexes.files import DataFolder, ReadRow, RowReader, RowsWanted, Told, read_rows, tell_nobody
from sparkcrypt.skipping.indexes.indexed import Indexed, IndexStore, folder_source
from sparkcrypt.skipping.trusted.folder import NO_LOCATION, open_folder

VERSION = 1
_PURPOSE = b"sparkcrypt index generation\n"


def open_folder_index(
    path: str,
    to: str | None,
    policy: Policy,
    state_store: StateStore,
    retrieve: RetrieveKey,
    progress: Progress | None = None,
) -> Indexed:
    """Return the index of a folder of files, without reading either.

    Args:
        path: the absolute path or URI of the folder.
        to: that of the store's folder; None: the one by the policy.
        policy: has the place of stores, and names the keys.
        state_store: the state directory.
        retrieve: opens data keys.
        progress: receives the number of files that are read.

    Raises:
        ConfigError: the store's folder overlaps with the files'.
    """

    def check_file(file: str, summary: FileSummary) -> None:
        if summary.footer != "plaintext":
            check_claims(policy, file, summary.aad_prefix, summary.algorithm, place=file)

    def find(table_uuid: str | None) -> IndexStore:
        uri = to if to is not None else _place_by_policy(path, policy, table_uuid)
        if is_within(uri, path) or is_within(path, uri):
            raise ConfigError(f"{uri}: is the data's folder, inside or above it; give the index a folder of its own")
        return _make_store(policy, table_uuid, table_uuid or data_folder_id(path), uri, state_store, retrieve)

    if to is not None:
        find(None)  # refuses its folder before a file is read
    data = DataFolder(path, retrieve, check_file)
    return Indexed(folder_source(policy, data, report_reading(read_rows, path, progress)), find)


def find_store(policy: Policy, table_uuid: str | None, state_store: StateStore) -> IndexStore | None:
    """Return the store of a table; None if the policy has no folder of stores, or the table no UUID.

    Args:
        policy: has the folder of stores.
        table_uuid: the UUID of the table.
        state_store: the state directory.

    Raises:
        ConfigError: stores are not supported on that file system.
    """
    if policy.index_location is None or table_uuid is None:
        return None
    uri = f"{policy.index_location.rstrip('/')}/{table_uuid}"
    return _make_store(policy, table_uuid, table_uuid, uri, state_store, open_data_keys(policy.key_service))


def report_reading(read: RowReader, target: str, progress: Progress | None) -> RowReader:
    """Return a reader of rows that also reports the number of files and bytes that are read.

    Args:
        read: reads the rows.
        target: the name of the table or folder.
        progress: receives the numbers; None: nobody does.
    """
    if progress is None:
        return read
    reported = progress

    def read_and_report(
        wanted: RowsWanted, files: Sequence[ListedFile], progress: Told = tell_nobody
    ) -> Iterator[ReadRow]:
        done = 0

        def tell(number: int) -> None:
            nonlocal done
            progress(number)
            further = files[done : min(number, len(files))]
            if further:
                done += len(further)
                reported.advance(len(further), sum(file.length for file in further))

        reported.start(target, 0, len(files), sum(file.length for file in files))
        try:
            yield from read(wanted, files, tell)
            tell(len(files))
        finally:
            reported.finish()

    return read_and_report


def _place_by_policy(path: str, policy: Policy, table_uuid: str | None) -> str:
    location = policy.index_location
    if location is None:
        raise ConfigError(f"{NO_LOCATION}, or give --to")
    if table_uuid is None:
        raise ConfigError(
            f"{path}: no file says of which table it is, so its index has no folder below {location}; give --to"
        )
    return f"{location.rstrip('/')}/{table_uuid}"


def _make_store(
    policy: Policy, table_uuid: str | None, record_id: str, uri: str, state_store: StateStore, retrieve: RetrieveKey
) -> IndexStore:
    folder, service = open_folder(uri, {}), open_key_service(policy.key_service)
    record = StoreGeneration(state_store, record_id, service, MasterKeys.of(policy))
    return IndexStore(policy, table_uuid, folder, record, service, retrieve)


def data_folder_id(path: str) -> str:
    """Return the id of a bare folder in records of generations: a digest of its path."""
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
        self._record = LatestRecord(store, f"keys/indexes/{table_id}/")
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
        name, expected = f"keys/indexes/{self._table_id}", {"version": VERSION, "table_id": self._table_id}
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

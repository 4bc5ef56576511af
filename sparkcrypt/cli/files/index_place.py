"""Finds without Spark a folder's files, their store by an option or the policy, and the store's last generation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.named_files import policy_keys
from sparkcrypt.decide.claims import check_claims
from sparkcrypt.errors import ConfigError
from sparkcrypt.files.open_places import WEB_HDFS
from sparkcrypt.files.parquet import FileSummary, RetrieveKey
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.paths import full_path, is_local, is_within, local_path, split_path
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.index.store_generation import StoreGeneration, data_folder_id
from sparkcrypt.skipping.indexes.build import keys_of_store
from sparkcrypt.skipping.indexes.files import DataFolder, find_uuid, list_folder
from sparkcrypt.skipping.trusted.folder import StoreFolder, open_folder
from sparkcrypt.skipping.trusted.store_keys import StoreKeys
from sparkcrypt.skipping.trusted.trust import Expected, TrustedStore, open_parts


@dataclass(frozen=True, slots=True)
class Desk:
    """The files of a folder, with everything that commands need to work on their store.

    Attributes:
        workplace: opens the state directory.
        policy: defines the keys, and the location of stores.
        data: the files.
        to: the store's folder; None: the one by the policy.
    """

    workplace: Workplace
    policy: Policy
    data: DataFolder
    to: str | None
    service: KeyService
    retrieve: RetrieveKey = field(repr=False)

    def find_uuid(self) -> str | None:
        """Return the UUID of the files' table; None for a bare folder."""
        return find_uuid(self.data, list_folder(self.data).settled)

    def folder(self, table_uuid: str | None) -> StoreFolder:
        """Return the store's folder.

        Raises:
            ConfigError: its location is unknown, or it overlaps the files' folder.
        """
        uri = self.to if self.to is not None else self._by_policy(table_uuid)
        uri = _make_absolute(uri)
        if is_within(uri, self.data.path) or is_within(self.data.path, uri):
            raise ConfigError(f"{uri}: is the data's folder, inside or above it; give the store a folder of its own")
        return open_folder(uri, self.data.settings)

    def generation(self, table_uuid: str | None) -> StoreGeneration:
        """Return the record of the store's last generation."""
        table_id = table_uuid or data_folder_id(self.data.path)
        state_store = self.workplace.state_directory(self.policy.run_state)
        return StoreGeneration(state_store, table_id, self.service, MasterKeys.of(self.policy))

    def keys(self, columns: dict[str, str]) -> StoreKeys:
        """Return the keys for a store, given column -> master key."""
        return StoreKeys(
            DataKeyMaker(self.service, data_key_bits=self.policy.data_key_bits), self.policy.footer_key, columns
        )

    def open_store(self, folder: StoreFolder, table_uuid: str | None, generation: int) -> TrustedStore:
        """Open the store; its generation must not be earlier than this one."""
        return open_parts(folder, self.retrieve, Expected.of(self.policy, table_uuid, None, generation or None))

    def keys_of(self, opened: TrustedStore) -> StoreKeys:
        """Return the keys of an existing store."""
        return self.keys(keys_of_store(opened.store, self.policy.footer_key))

    def user_of(self, folder: str) -> str | None:
        """Return a text about the table whose location in the policy overlaps a folder, or None."""
        for rule in self.policy.tables:
            if rule.location and (is_within(rule.location, folder) or is_within(folder, rule.location)):
                return f"table {rule.name} is at {rule.location} by the policy"
        return None

    def _by_policy(self, table_uuid: str | None) -> str:
        location = self.policy.index_location
        if location is None:
            raise ConfigError(
                "the policy does not say where stores are; set index: {location: FOLDER} in it, or give --to"
            )
        if table_uuid is None:
            raise ConfigError(
                f"{self.data.path}: no file says of which table it is, so its store has no folder below {location}; "
                "give --to"
            )
        return f"{location.rstrip('/')}/{table_uuid}"


def open_desk(workplace: Workplace, path: str, to: str | None, policy: str) -> Desk:
    """Return the files of a folder with everything that a command needs to work on their store.

    Args:
        workplace: the command's workplace.
        path: the folder of the files.
        to: the store's folder; None: the one by the policy.
        policy: the policy's path or URI.

    Raises:
        ConfigError: the policy cannot be read, or the files' file system cannot be accessed without Spark.
    """
    loaded = workplace.policy(policy)
    if not is_local(path) and split_path(path)[0] not in WEB_HDFS:
        raise ConfigError(
            f"{path}: is not reached without Spark's configuration; allowed: a local path, file:, "
            f"{', '.join(f'{name}:' for name in WEB_HDFS)}"
        )
    retrieve = policy_keys(loaded)
    data = DataFolder(_make_absolute(path), retrieve, _checker(loaded))
    return Desk(workplace, loaded, data, to, open_key_service(loaded.key_service), retrieve)


@dataclass(frozen=True, slots=True)
class KnownStore:
    """The store of existing files, with everything that is needed to work on it.

    Attributes:
        desk: the files.
        uuid: the UUID of the files' table; None for a bare folder.
        folder: the store's folder.
        record: the record of its last generation.
    """

    desk: Desk
    uuid: str | None
    folder: StoreFolder
    record: StoreGeneration

    def open(self, generation: int) -> TrustedStore:
        """Open the store; its generation must not be earlier than this one."""
        return self.desk.open_store(self.folder, self.uuid, generation)


def find_known_store(workplace: Workplace, path: str, to: str | None, policy: str) -> KnownStore:
    """Find the store of a folder's files.

    Args:
        workplace: the command's workplace.
        path: the folder of the files.
        to: the store's folder; None: the one by the policy.
        policy: the policy's path or URI.

    Raises:
        ConfigError: as `open_desk`, or the location of the store is unknown.
    """
    desk = open_desk(workplace, path, to, policy)
    uuid = desk.find_uuid()
    return KnownStore(desk, uuid, desk.folder(uuid), desk.generation(uuid))


def _checker(policy: Policy) -> Callable[[str, FileSummary], None]:
    def check(path: str, summary: FileSummary) -> None:
        if summary.footer != "plaintext":
            check_claims(policy, path, summary.aad_prefix, summary.algorithm, place=full_path(path))

    return check


def _make_absolute(uri: str) -> str:
    return full_path(local_path(uri)) if is_local(uri) else uri.rstrip("/")

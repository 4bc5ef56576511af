"""Provides pyarrow with the keys of one file, as the judged footer names them, and reports refused keys."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow.parquet.encryption as pe

from sparkcrypt.arrow.access_events import ReadEvents
from sparkcrypt.decide.denied import refused_key
from sparkcrypt.decide.read_checks import check_footer_key
from sparkcrypt.errors import (
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyRetiredError,
    KeyServiceError,
    VerificationError,
)
from sparkcrypt.keys.expiring_cache import ExpiringCache
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.keys.material import KeyMaterial, parse_key_material
from sparkcrypt.keys.opened import OpenedKeyService
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import join_dotted

_OPENED: ExpiringCache[KeyServiceConfig, OpenedKeyService] = ExpiringCache(float("inf"))
FOOTER = "the footer"


def opened_key_service(config: KeyServiceConfig) -> OpenedKeyService:
    """Return the key service of a configuration, shared by all tables that this process reads with it.

    Raises:
        ConfigError: its type or options are invalid.
    """
    return _OPENED.get(config, lambda: OpenedKeyService(config))


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of a table: its policy, and the names that messages use.

    Attributes:
        policy: names the key service.
        table: the table's name; None if it has none.
        principal: the reader's name in messages; the key service authorises by credential, not by this name.
        lifetime_seconds: how long an opened KEK is cached at most; None: the default.
    """

    policy: Policy
    table: str | None
    principal: str
    lifetime_seconds: float | None = None

    def open(self, material: KeyMaterial, owner: str, path: str, *, kek: bool = False) -> bytes:
        """Return the data key in key material, or the KEK that wraps it.

        Raises:
            KeyAccessDeniedError, KeyNotFoundError, KeyRetiredError: the message names the owner, table, key, principal
                and file.
            KeyServiceError: the key service did not unwrap the key.
            FormatError: the material is damaged.
        """
        opener = opened_key_service(self.policy.key_service).opener
        try:
            return (opener.open_kek if kek else opener.open)(material, lifetime_seconds=self.lifetime_seconds)
        except (KeyAccessDeniedError, KeyNotFoundError, KeyRetiredError) as error:
            facts = {"owner": owner, "path": path, "table": self.table, "principal": self.principal}
            request = {**facts, "policy": self.policy.canonical()}
            raise refused_key(request, material.master_key_id, error) from error


class FileKeys(pe.KmsClient):  # type: ignore[misc]  # pyarrow ships no types
    """A pyarrow KMS client that returns only the keys of one file that were opened before; thread-safe.

    Keys are opened before pyarrow reads: it aborts the process if a key is refused while it tests a filter against a
    column's statistics.

    Args:
        reader: the reader and its policy.
        path: the file's path.
        events: records each key that is opened or refused.
    """

    def __init__(self, reader: Reader, path: str, events: ReadEvents) -> None:
        super().__init__()
        self._reader = reader
        self._path = path
        self._events = events
        self._keys: dict[tuple[str, str], bytes] = {}

    def __repr__(self) -> str:
        return f"FileKeys({self._path!r})"

    def open_footer(self, key_metadata: bytes) -> bytes:
        """Open the footer's key and return the data key.

        Raises:
            KeyServiceError, FormatError: as `Reader.open`.
            VerificationError: the policy and its history name other master keys; the key service is not asked.
            StorageError: the policy's access_log is required, and the event could not be written.
        """
        check_footer_key(self._reader.policy, self._path, parse_key_material(key_metadata).master_key_id)
        self._open(key_metadata, None)
        return self._reader.open(parse_key_material(key_metadata), FOOTER, self._path)

    def open_column(self, key_metadata: bytes, column: tuple[str, ...]) -> None:
        """Open the key of a column that will be read.

        Args:
            key_metadata: the column's key metadata in the judged footer.
            column: the column's Parquet path.

        Raises:
            KeyServiceError, FormatError: as `Reader.open`.
            StorageError: as `open_footer`.
        """
        self._open(key_metadata, join_dotted(column))

    def data_key(self, key_metadata: bytes, column: tuple[str, ...] | None) -> bytes:
        """Return the data key of the footer, or of a column, whose key was opened before.

        Raises:
            KeyServiceError, FormatError: as `Reader.open`.
        """
        material = parse_key_material(key_metadata)
        if material.wrapped_kek is None:
            return self._keys[material.master_key_id, material.wrapped_dek]
        return self._reader.open(material, FOOTER if column is None else f"column {join_dotted(column)}", self._path)

    def _open(self, key_metadata: bytes, column: str | None) -> None:
        material = parse_key_material(key_metadata)
        is_double = material.wrapped_kek is not None
        wrapped = material.wrapped_kek if material.wrapped_kek is not None else material.wrapped_dek
        entry = (material.master_key_id, wrapped)
        key, owner = self._keys.get(entry), FOOTER if column is None else f"column {column}"
        try:
            opened = self._reader.open(material, owner, self._path, kek=is_double) if key is None else key
        except KeyServiceError as error:
            self._events.note_refused(material.master_key_id, column, error)
            raise
        if column is not None:  # the footer's key decrypts no values, so only its refusal is an event
            self._events.note_opened(material.master_key_id, column)
        self._keys[entry] = opened

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        """Refuse to wrap a key, since the file is only read."""
        raise VerificationError(f"{self._path}: is read, so no key is wrapped under {master_key_identifier!r}")

    def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:
        """Return a key that was opened before.

        Raises:
            VerificationError: it was not: its column was not requested, or the footer is not the judged one.
        """
        text = wrapped_key.decode() if isinstance(wrapped_key, bytes) else wrapped_key
        key = self._keys.get((decode_key_id(master_key_identifier), text))
        if key is None:
            raise VerificationError(
                f"{self._path}: a key under {master_key_identifier!r} was not opened for this read: the file was "
                "rewritten meanwhile, or this pyarrow takes a column for another than Spark does; read it again, or "
                "with Spark"
            )
        return key

    def properties(self) -> Any:
        """Return the properties with which ``pyarrow.parquet.ParquetFile`` decrypts this file.

        pyarrow caches KEKs by an id that another file may claim falsely, so each file has its own factory and cache.
        """
        return pe.CryptoFactory(lambda _: self).file_decryption_properties(pe.KmsConnectionConfig(), _configuration())

    def dataset_config(self) -> Any:
        """Return the configuration with which a fragment of ``pyarrow.dataset`` decrypts this file."""
        from pyarrow.dataset import ParquetDecryptionConfig

        return ParquetDecryptionConfig(pe.CryptoFactory(lambda _: self), pe.KmsConnectionConfig(), _configuration())


def _configuration() -> Any:
    return pe.DecryptionConfiguration(cache_lifetime=timedelta(seconds=600))


def encode(value: bytes | None) -> str | None:
    """Return bytes in base64, as requests contain them."""
    return None if value is None else base64.b64encode(value).decode()

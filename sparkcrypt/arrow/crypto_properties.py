"""Connects pyarrow to key services, so that it reads what Spark encrypted and writes what Spark can read.

pyarrow decrypts and authenticates, but does not judge files: it accepts a file whose columns are plaintext, or that was
moved, as long as it can be opened.  If that matters, read with `sparkcrypt.arrow.open_table`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol

import pyarrow.parquet.encryption as pe

from sparkcrypt.errors import PlanError
from sparkcrypt.keys.ids import decode_key_id, encode_key_id
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.load import PolicySource, policy_of

DEFAULT_LIFETIME_SECONDS = 600.0


class FileProperties(Protocol):
    """The type of pyarrow's ``FileDecryptionProperties`` and ``FileEncryptionProperties``, which it does not export."""


class ArrowKmsClient(pe.KmsClient):  # type: ignore[misc]  # pyarrow ships no types
    """A pyarrow KMS client over a key service; key ids are percent-encoded in files, as in Spark's."""

    def __init__(self, service: KeyService) -> None:
        super().__init__()
        self._service = service

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        """Wrap a key; errors of the key service reach pyarrow's caller unchanged."""
        return self._service.wrap(decode_key_id(master_key_identifier), key_bytes).encode()

    def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:
        """Unwrap a key; errors of the key service reach pyarrow's caller unchanged."""
        text = wrapped_key.decode() if isinstance(wrapped_key, bytes) else wrapped_key
        return self._service.unwrap(decode_key_id(master_key_identifier), text)


def crypto_factory(config: KeyServiceConfig) -> pe.CryptoFactory:
    """Return a pyarrow ``CryptoFactory`` over a key service, for ``pyarrow.dataset.ParquetDecryptionConfig``.

    Each factory has its own caches, so keys of one key service or credential are never served through another one.  The
    address of a key service in a file is ignored.

    Raises:
        ConfigError: the key service's type or options are invalid.
    """
    service = open_key_service(config)
    return pe.CryptoFactory(lambda _: ArrowKmsClient(service))


def decryption_properties(
    policy: PolicySource, *, lifetime_seconds: float = DEFAULT_LIFETIME_SECONDS
) -> FileProperties:
    """Return the properties with which ``pyarrow.parquet`` reads encrypted files; they can be used for many files.

    Example: ``pyarrow.parquet.read_table(file, decryption_properties=decryption_properties(policy))``.  Reading a
    column whose key is denied raises KeyAccessDeniedError, one whose key is missing KeyNotFoundError; select other
    columns with ``columns=``.

    Args:
        policy: names the key service; or the path of its file.
        lifetime_seconds: how long an unwrapped KEK is cached.

    Raises:
        ConfigError: the policy cannot be read, or the key service's type or options are invalid.
    """
    lifetime = pe.DecryptionConfiguration(cache_lifetime=timedelta(seconds=lifetime_seconds))
    made: FileProperties = crypto_factory(policy_of(policy).key_service).file_decryption_properties(
        _connection(), lifetime
    )
    return made


def encryption_properties(
    plan: EncryptionPlan, policy: PolicySource, partition: Mapping[str, str] | None = None
) -> FileProperties:
    """Return the properties with which ``pyarrow.parquet`` writes ONE file under a plan; its data keys are for it only.

    pyarrow gives such files no AAD prefix, so they are not bound to a table: readers refuse them in tables that require
    encryption.

    Args:
        plan: the plan of columns and keys.
        policy: names the key service; or the path of its file.
        partition: partition column -> value, for key templates.

    Raises:
        PlanError: no column is encrypted, or pyarrow does not support a column's name.
        KeyServiceError: a key cannot be wrapped; KeyNotFoundError if it does not exist.
    """
    columns: dict[str, list[str]] = {}
    for path, key in plan.key_ids(partition or {}).items():
        if any(sign in name for name in path for sign in ".,;:") or any(name != name.strip() for name in path):
            raise PlanError(
                f"column {'.'.join(path)}: pyarrow cannot name a column that holds '.', ',', ';', ':' or spaces "
                "around it; write with Spark, or rename the column"
            )
        columns.setdefault(encode_key_id(key or plan.footer_key), []).append(".".join(path))
    if not columns:
        raise PlanError(
            f"{plan.table or 'the plan'}: no column is encrypted; write without encryption, or tag a column first"
        )
    configuration = pe.EncryptionConfiguration(
        footer_key=encode_key_id(plan.footer_key),
        column_keys=columns,
        encryption_algorithm=plan.algorithm,
        plaintext_footer=plan.footer_mode == "plaintext",
        data_key_length_bits=plan.data_key_bits,
    )
    factory = crypto_factory(policy_of(policy).key_service)
    made: FileProperties = factory.file_encryption_properties(_connection(), configuration)
    return made


def _connection() -> Any:
    return pe.KmsConnectionConfig()

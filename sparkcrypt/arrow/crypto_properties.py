"""Key services for pyarrow: it reads what Spark encrypted, and writes what Spark reads, with the same master keys.

pyarrow decrypts and authenticates, and judges nothing else: it takes a file whose columns are plaintext, or that was
moved, as long as it opens.  Where that matters, read with `sparkcrypt.arrow.open_table`.
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
from sparkcrypt.policy.model import Policy

DEFAULT_LIFETIME_SECONDS = 600.0


class FileProperties(Protocol):
    """pyarrow's ``FileDecryptionProperties`` or ``FileEncryptionProperties``, which it does not export."""


class ArrowKmsClient(pe.KmsClient):  # type: ignore[misc]  # pyarrow ships no types
    """pyarrow's door to a key service; key ids stand percent-encoded in files, as Spark's do."""

    def __init__(self, service: KeyService) -> None:
        super().__init__()
        self._service = service

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        """Wrap a key; the key service's errors reach pyarrow's caller as they are."""
        return self._service.wrap(decode_key_id(master_key_identifier), key_bytes).encode()

    def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:
        """Unwrap a key; the key service's errors reach pyarrow's caller as they are."""
        text = wrapped_key.decode() if isinstance(wrapped_key, bytes) else wrapped_key
        return self._service.unwrap(decode_key_id(master_key_identifier), text)


def crypto_factory(config: KeyServiceConfig) -> pe.CryptoFactory:
    """Return a pyarrow ``CryptoFactory`` over a key service, for ``pyarrow.dataset.ParquetDecryptionConfig``.

    Each has caches of its own, so keys of one key service or credential are never found through another's.  The
    address of a key service that a file names is not used.

    Raises:
        ConfigError: the key service's type or options are not right.
    """
    service = open_key_service(config)
    return pe.CryptoFactory(lambda _: ArrowKmsClient(service))


def decryption_properties(policy: Policy, *, lifetime_seconds: float = DEFAULT_LIFETIME_SECONDS) -> FileProperties:
    """Return what ``pyarrow.parquet`` reads encrypted files with.

    Example: ``pyarrow.parquet.read_table(file, decryption_properties=decryption_properties(policy))``; one value serves
    many files.  Reading a column whose key is denied raises KeyAccessDeniedError, a missing key KeyNotFoundError;
    ``columns=`` leaves such columns out.

    Args:
        policy: names the key service.
        lifetime_seconds: how long an unwrapped key-encryption key is kept.

    Raises:
        ConfigError: the key service's type or options are not right.
    """
    lifetime = pe.DecryptionConfiguration(cache_lifetime=timedelta(seconds=lifetime_seconds))
    made: FileProperties = crypto_factory(policy.key_service).file_decryption_properties(_connection(), lifetime)
    return made


def encryption_properties(
    plan: EncryptionPlan, policy: Policy, partition: Mapping[str, str] | None = None
) -> FileProperties:
    """Return what ``pyarrow.parquet`` writes ONE file with, as a plan says: its keys are for that file alone.

    pyarrow gives such files no AAD prefix, so nothing ties them to a table: readers refuse them on tables that require
    encryption.

    Args:
        plan: which columns are encrypted, with which keys.
        policy: names the key service.
        partition: values for key templates.

    Raises:
        PlanError: no column is encrypted, or a column's name cannot be told to pyarrow.
        KeyServiceError: a key cannot be wrapped; KeyNotFoundError where it is not there.
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
    factory = crypto_factory(policy.key_service)
    made: FileProperties = factory.file_encryption_properties(_connection(), configuration)
    return made


def _connection() -> Any:
    return pe.KmsConnectionConfig()

"""Encrypted files of a table, made as Spark's writers name and encrypt them, without Spark."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.files.parquet import DataKey, FileEncryption, rewrite_file
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.policy.model import Policy
from tests.spark.support import key_service

UUID = "11111111-2222-4333-8444-555555555555"


class TableWriter:
    """Writes files of one table: data keys under one KEK for each master key, as one job does.

    Args:
        folder: of the table.
        policy: its footer, algorithm and key service.
        uuid: of the table.
    """

    def __init__(self, folder: Path, policy: Policy, uuid: str | None = UUID) -> None:
        self.folder = folder
        self._policy = policy
        self._uuid = uuid
        self._maker = DataKeyMaker(key_service(policy), data_key_bits=policy.data_key_bits)

    def write(self, name: str, rows: pa.Table, keys: Mapping[str, str], partition: str = "") -> Path:
        """Write a file.

        Args:
            name: of the file.
            rows: what it holds.
            keys: dotted Parquet path -> key id of its encrypted columns.
            partition: its folders, such as ``p=1``.
        """
        plain = io.BytesIO()
        pq.write_table(rows, plain, compression="none", row_group_size=2)
        return self.encrypt(plain.getvalue(), name, keys, partition)

    def encrypt(self, plain: bytes, name: str, keys: Mapping[str, str], partition: str = "") -> Path:
        """Write an encrypted file with the content of a plaintext one; the other arguments are those of `write`."""
        target = self.folder / partition / name
        target.parent.mkdir(parents=True, exist_ok=True)
        encryption = FileEncryption(
            footer=self._key(self._policy.footer_key, is_footer_key=True),
            algorithm=self._policy.algorithm,
            footer_mode=self._policy.footer_mode,
            columns={tuple(path.split(".")): self._key(key_id) for path, key_id in keys.items()},
            aad_prefix=FileIdentity(self._uuid, partition, name).to_aad_prefix(),
        )
        rewrite_file(plain, str(target), encryption=encryption)
        return target

    def _key(self, key_id: str, *, is_footer_key: bool = False) -> DataKey:
        return DataKey(*self._maker.make(key_id, is_footer_key=is_footer_key))

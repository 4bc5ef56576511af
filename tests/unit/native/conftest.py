"""Orders to rewrite a small file, over a local key service that counts its calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.files import rewrite as work
from sparkcrypt.files.orders import EncryptionOrder, FileOrder, KeySettings
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.opened import KEY_LOG
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.key_service import KeyServiceConfig

TABLE = pa.table({"id": [1, 2, 3], "ssn": ["a", "b", None], "tel": [["1"], [], None]})


@dataclass(frozen=True)
class Bench:
    """A folder with a plaintext file, keys, and what is needed to give orders."""

    folder: Path
    service: KeyService
    keys: KeySettings
    log: Path

    @property
    def source(self) -> str:
        """The plaintext file."""
        return str(self.folder / "source.parquet")

    def order(self, name: str = "out.parquet", **columns: str | None) -> FileOrder:
        """Return the order to encrypt the source, ``ssn`` under ``pii`` if nothing else is said."""
        wanted: dict[tuple[str, ...], str | None] = {
            (column,): key for column, key in (columns or {"ssn": "pii"}).items()
        }
        encryption = EncryptionOrder(
            wanted, f"-/{name}".encode() + b"\0", "footer", key_values={"sparkcrypt.policy.digest": "d"}
        )
        return FileOrder(self.source, str(self.folder / name), "encrypt", encryption)

    def calls(self) -> list[str]:
        """Return the operations that reached the key service, in order."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(line)["op"] for line in lines]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Keys ``footer``, ``pii`` and ``other``; the worker of an earlier test is forgotten."""
    config = KeyServiceConfig.from_dict({"type": "local", "path": str(tmp_path / "keys")})
    service = open_key_service(config)
    for key in ("footer", "pii", "other"):
        service.create(key)
    log = tmp_path / "calls.jsonl"
    monkeypatch.setenv(KEY_LOG, str(log))
    work._worker.cache_clear()
    pq.write_table(TABLE, tmp_path / "source.parquet")
    yield Bench(tmp_path, service, KeySettings(config.canonical(), 128), log)
    work._worker.cache_clear()

"""The program in this process, a policy over a local key service, and files that it encrypts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from click.testing import CliRunner

from sparkcrypt.cli.main import cli
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.load import load_policy

POLICY = """
version: 1
key_service: {type: local, path: keys}
algorithm: AES_GCM_V1
data_key_bits: 128
footer: {key: footer, mode: encrypted}
untagged: plaintext
run_state: state
tags:
  pii: {key: pii}
  contact: {key: "contact-{day:%Y-%m}"}
  public: plaintext
tables:
  sales.customers: {tags: {email: [pii]}}
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    output: str
    errors: str

    @property
    def document(self) -> Any:
        """Standard output, which must be one JSON document."""
        return json.loads(self.output)


Run = Callable[..., Ended]


def run(*arguments: object, command: Any = cli) -> Ended:
    """Run the program with arguments."""
    done = CliRunner().invoke(command, [str(argument) for argument in arguments])
    return Ended(done.exit_code, done.stdout, done.stderr)


def rewrite(*arguments: object) -> Ended:
    """Run ``sparkcrypt rewrite`` in this process: to start those that share a folder takes most of a test's time."""
    return run("rewrite", *arguments, "--workers", 1)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy whose keys and state lie beside it; no key exists yet."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


@pytest.fixture
def keys(policy: Path) -> KeyService:
    """The policy's key service with the keys ``footer`` and ``pii``."""
    service = open_key_service(load_policy(policy).key_service)
    for key_id in ("footer", "pii"):
        service.create(key_id)
    return service


def write_encrypted(path: Path, service: KeyService, *, plaintext_footer: bool = False) -> Path:
    """Write three rows, ``ssn`` under ``pii`` and the footer under ``footer``, by pyarrow over the same key service."""

    class Kms(pe.KmsClient):  # type: ignore[misc]  # pyarrow has no types
        def __init__(self, _config: object) -> None:
            pe.KmsClient.__init__(self)

        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return service.wrap(master_key_identifier, key_bytes).encode()

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            return service.unwrap(master_key_identifier, wrapped_key.decode())

    configuration = pe.EncryptionConfiguration(
        footer_key="footer", column_keys={"pii": ["ssn"]}, plaintext_footer=plaintext_footer
    )
    properties = pe.CryptoFactory(Kms).file_encryption_properties(pe.KmsConnectionConfig(), configuration)
    pq.write_table(rows(), path, encryption_properties=properties)
    return path


def relabel(path: Path) -> None:
    """Change the one byte by which a file with an encrypted footer says that it is under GCM: it says CTR then."""
    content = bytearray(path.read_bytes())
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    assert content[footer : footer + 2] == b"\x1c\x1c"  # FileCryptoMetaData 1, EncryptionAlgorithm 1
    content[footer + 1] = 0x2C  # EncryptionAlgorithm 2: AES_GCM_CTR_V1
    path.write_bytes(bytes(content))


def rows() -> pa.Table:
    """Return the three rows."""
    return pa.table({"id": [1, 2, 3], "ssn": ["a", "b", "c"]})

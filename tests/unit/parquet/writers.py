"""Encrypted Parquet files that pyarrow writes at test time, and the keys that open them."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from sparkcrypt.files.parquet import KeyRequest, read_footer

FOOTER_MODES = (False, True)
ALGORITHMS = ("AES_GCM_V1", "AES_GCM_CTR_V1")
KEY_BITS = (128, 192, 256)
ROWS = 300


class PlainKms(pe.KmsClient):  # type: ignore[misc]  # pyarrow has no types
    """A key service that only encodes: what it wraps is the key and the master key's id."""

    def __init__(self, _config: object = None) -> None:
        pe.KmsClient.__init__(self)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        """Return the key and the id as text."""
        return base64.b64encode(key_bytes) + b"@" + master_key_identifier.encode()

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        """Return the key."""
        key, _, owner = wrapped_key.decode().partition("@")
        assert owner == master_key_identifier
        return base64.b64decode(key)


@dataclass
class Keys:
    """Answers key requests for files of `write_encrypted`, and remembers who asked."""

    asked: list[KeyRequest] = field(default_factory=list)
    change: Callable[[KeyRequest, bytes], bytes] = lambda _request, key: key

    def __call__(self, request: KeyRequest) -> bytes:
        """Return the data key that the key metadata holds."""
        self.asked.append(request)
        material = json.loads(request.key_metadata or b"{}")
        return self.change(request, PlainKms().unwrap_key(material["wrappedDEK"].encode(), material["masterKeyID"]))


def table(rows: int = ROWS) -> pa.Table:
    """Return ten columns: flat ones of many types, a struct, a list, a map, an all-null column, a dotted name."""
    numbers = range(rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "ssn": [f"{number:09d}" for number in numbers],
            "amount": pa.array([decimal.Decimal(number) / 100 for number in numbers], pa.decimal128(12, 2)),
            "day": pa.array([datetime.date(2020, 1, 1)] * rows),
            "score": pa.array([None if number % 3 == 0 else number / 7 for number in numbers], pa.float64()),
            "nothing": pa.array([None] * rows, pa.int32()),
            "person": pa.array([{"name": f"n{number}", "age": number} for number in numbers]),
            "phones": pa.array([[f"+{number}", None] for number in numbers]),
            "labels": pa.array([[("k", number)] for number in numbers], pa.map_(pa.string(), pa.int32())),
            "a.b%": pa.array([number % 2 == 0 for number in numbers]),
        }
    )


def write_encrypted(
    path: Path,
    *,
    plaintext_footer: bool = False,
    algorithm: str = "AES_GCM_V1",
    bits: int = 128,
    column_keys: dict[str, list[str]] | None = None,
    rows: int = ROWS,
    **options: Any,
) -> Path:
    """Write `table` with column keys through pyarrow's CryptoFactory, in row groups of 100 rows."""
    configuration = pe.EncryptionConfiguration(
        footer_key="footer key",
        column_keys=column_keys or {"pii%3A1": ["ssn", "person.name", "labels.key_value.value"], "fin": ["amount"]},
        encryption_algorithm=algorithm,
        plaintext_footer=plaintext_footer,
        double_wrapping=False,
        data_key_length_bits=bits,
    )
    factory = pe.CryptoFactory(PlainKms)
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), configuration)
    options.setdefault("row_group_size", 100)
    pq.write_table(table(rows), path, encryption_properties=properties, **options)
    if int(pa.__version__.partition(".")[0]) < 26 and read_footer(path).algorithm != algorithm:
        pytest.xfail("pyarrow before 26 writes AES_GCM_V1 into the signed footer of a file whose pages are CTR's")
    return path


def write_uniform(path: Path, key: bytes, **options: Any) -> Path:
    """Write `table` with one key for everything, and whatever `create_encryption_properties` takes."""
    writing = {
        name: options.pop(name)
        for name in ("data_page_version", "write_page_index", "row_group_size")
        if name in options
    }
    pq.write_table(table(), path, encryption_properties=pe.create_encryption_properties(key, **options), **writing)
    return path

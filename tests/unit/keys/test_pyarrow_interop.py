"""Key material between this package and Arrow's own key tools, both ways, over the same key service."""

from __future__ import annotations

import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet import KeyRequest, inspect_file, verify_file
from sparkcrypt.keys.datakeys import DataKeyMaker, DataKeyOpener
from sparkcrypt.keys.ids import decode_key_id, encode_key_id
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.service import KeyService

TABLE = pa.table({"id": [1, 2, 3], "ssn": ["a", "b", "c"]})
FOOTER_KEY = "footer"
COLUMN_KEY = "arn:aws:kms:x/pii é"


class ServiceKms(pe.KmsClient):  # type: ignore[misc]  # pyarrow has no types
    """Arrow's KmsClient over a key service; Arrow's key ids are the percent-encoded ones."""

    def __init__(self, service: KeyService) -> None:
        pe.KmsClient.__init__(self)
        self._service = service

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        """Wrap by the key service."""
        return self._service.wrap(decode_key_id(master_key_identifier), key_bytes)

    def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:
        """Unwrap by the key service."""
        text = wrapped_key.decode() if isinstance(wrapped_key, bytes) else wrapped_key
        return self._service.unwrap(decode_key_id(master_key_identifier), text)


@pytest.fixture
def with_keys(storing: KeyService) -> KeyService:
    """A key service, local or Vault, with the keys of the test."""
    storing.create(FOOTER_KEY)
    storing.create(COLUMN_KEY)
    return storing


def factory(service: KeyService) -> Any:
    """Return Arrow's crypto factory over a key service."""
    return pe.CryptoFactory(lambda _config: ServiceKms(service))


def written_by_arrow(service: KeyService, path: Path, **options: Any) -> None:
    """Write the table by pyarrow with a footer key and a column key."""
    options.setdefault("column_keys", {encode_key_id(COLUMN_KEY): ["ssn"]})
    configuration = pe.EncryptionConfiguration(footer_key=FOOTER_KEY, **options)
    properties = factory(service).file_encryption_properties(pe.KmsConnectionConfig(), configuration)
    with pq.ParquetWriter(path, TABLE.schema, encryption_properties=properties) as writer:
        writer.write_table(TABLE)


@pytest.mark.parametrize("double_wrapping", [True, False])
@pytest.mark.parametrize("bits", [128, 256])
def test_data_keys_that_arrow_wrapped_are_opened(
    with_keys: KeyService, tmp_path: Path, double_wrapping: bool, bits: int
) -> None:
    """Arrow writes a file, and our opener gives the data keys of its footer and column: every module authenticates."""
    written_by_arrow(with_keys, tmp_path / "arrow", double_wrapping=double_wrapping, data_key_length_bits=bits)
    opener = DataKeyOpener(with_keys)
    asked: dict[str, bool] = {}

    def retrieve(request: KeyRequest) -> bytes:
        material = parse_key_material(request.key_metadata or b"")
        asked[material.master_key_id] = material.double_wrapped
        key = opener.open(material)
        assert len(key) * 8 == bits
        return key

    assert verify_file(str(tmp_path / "arrow"), retrieve_key=retrieve).authenticated == "all"
    assert asked == {FOOTER_KEY: double_wrapping, COLUMN_KEY: double_wrapping}


def with_key_metadata(content: bytes, old: bytes, new: bytes) -> bytes:
    """Return a file with an encrypted footer whose footer key has other key metadata.

    FileCryptoMetaData is not encrypted; its binary field is a varint length and the bytes, and the length of the whole
    footer stands before the last magic (Parquet format, Encryption.md 5.1).
    """

    def varint(number: int) -> bytes:
        return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)

    framed = varint(len(old)) + old
    assert content.count(framed) == 1
    length = int.from_bytes(content[-8:-4], "little") + len(varint(len(new)) + new) - len(framed)
    return content[:-8].replace(framed, varint(len(new)) + new) + length.to_bytes(4, "little") + content[-4:]


def test_key_material_that_we_made_is_read_by_arrow(with_keys: KeyService, tmp_path: Path) -> None:
    """Arrow's key tools read a file whose data key we wrapped again, under another master key."""
    written_by_arrow(with_keys, tmp_path / "arrow", column_keys={}, uniform_encryption=True)
    old = read_footer_key_metadata(tmp_path / "arrow")
    dek = DataKeyOpener(with_keys).open(parse_key_material(old))
    new = DataKeyMaker(with_keys, data_key_bits=128).wrap(dek, COLUMN_KEY, is_footer_key=True)
    (tmp_path / "ours").write_bytes(with_key_metadata((tmp_path / "arrow").read_bytes(), old, new))
    assert inspect_file(str(tmp_path / "ours")).footer_key == COLUMN_KEY
    properties = factory(with_keys).file_decryption_properties(
        pe.KmsConnectionConfig(), pe.DecryptionConfiguration(cache_lifetime=timedelta(seconds=60))
    )
    assert pq.ParquetFile(tmp_path / "ours", decryption_properties=properties).read().equals(TABLE)


def read_footer_key_metadata(path: Path) -> bytes:
    """Return the footer key's metadata as our footer reader asks for it."""
    asked: list[bytes] = []

    def retrieve(request: KeyRequest) -> bytes:
        asked.append(request.key_metadata or b"")
        raise FormatError("only looking")

    with pytest.raises(FormatError):
        verify_file(str(path), retrieve_key=retrieve)
    return asked[0]


def test_key_material_outside_the_file_is_refused(with_keys: KeyService, tmp_path: Path) -> None:
    """Key metadata that Arrow's reader could resolve, but that is only a reference, is a clear FormatError."""
    reference = b'{"keyMaterialType":"PKMT1","internalStorage":false,"keyReference":"footerKey"}'
    written_by_arrow(with_keys, tmp_path / "arrow")
    assert inspect_file(str(tmp_path / "arrow")).footer == "encrypted"
    with pytest.raises(FormatError, match="outside the file"):
        DataKeyOpener(with_keys).open(parse_key_material(reference))


def test_arrow_gets_the_error_of_a_key_that_is_gone(with_keys: KeyService, tmp_path: Path) -> None:
    """When the key service refuses, so does Arrow: it never reads without the key."""
    written_by_arrow(with_keys, tmp_path / "arrow")

    class Empty(ServiceKms):
        def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:
            return self._service.unwrap(secrets.token_hex(4), "local:v1:AAAA")

    properties = pe.CryptoFactory(lambda _config: Empty(with_keys)).file_decryption_properties(pe.KmsConnectionConfig())
    with pytest.raises(Exception, match="is not"):
        pq.ParquetFile(tmp_path / "arrow", decryption_properties=properties)

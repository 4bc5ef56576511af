"""What an attacker does to files on disk, with no key or with the keys that they lawfully hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sparkcrypt.files.parquet import KeyRequest, read_footer
from sparkcrypt.files.parquet.file.modules import ModuleCipher, ModuleType, module_aad
from sparkcrypt.files.parquet.thrift.compact import (
    BINARY,
    STRUCT,
    Struct,
    Value,
    decode_struct,
    encode_struct,
    field_key,
)
from sparkcrypt.files.parquet.thrift.metadata import FileCryptoMetaData, FileMetaData

CRYPTO = field_key(8, STRUCT)
ENCRYPTED_META_DATA = field_key(9, BINARY)
OWN_KEY = field_key(2, STRUCT)
KEY_METADATA = field_key(2, BINARY)
GCM, CTR = field_key(1, STRUCT), field_key(2, STRUCT)
ALGORITHM = field_key(1, STRUCT)
PREFIX, UNIQUE = field_key(1, BINARY), field_key(2, BINARY)


def put(file: Path, content: bytes) -> None:
    """Replace a file's content as an attacker would: Hadoop's checksum beside it is no obstacle."""
    file.write_bytes(content)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def flip(file: Path, offset: int) -> None:
    """Change one bit of a byte; a negative offset counts from the end."""
    content = bytearray(file.read_bytes())
    content[offset] ^= 1
    put(file, bytes(content))


def footer_start(file: Path) -> int:
    """Return where the footer begins."""
    content = file.read_bytes()
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")


def replace_footer(file: Path, footer: bytes, magic: bytes) -> None:
    """Put other bytes in the place of the footer."""
    body = file.read_bytes()[: footer_start(file)]
    put(file, body + footer + len(footer).to_bytes(4, "little") + magic)


def change_crypto_metadata(file: Path, change: Callable[[Struct], None]) -> None:
    """Rewrite what stands in clear before an encrypted footer; no key is needed for it."""
    footer = file.read_bytes()[footer_start(file) : -8]
    struct, end = decode_struct(footer)
    change(struct)
    replace_footer(file, encode_struct(struct) + footer[end:], b"PARE")


def parameters(crypto: Struct) -> Struct:
    """Return AesGcmV1 inside FileCryptoMetaData."""
    return _struct(_struct(crypto[ALGORITHM])[GCM])


def change_footer(file: Path, retrieve_key: Callable[[KeyRequest], bytes], change: Callable[[Struct], None]) -> None:
    """Rewrite an encrypted footer, as whoever holds the footer key can."""
    footer = read_footer(file, retrieve_key=retrieve_key)
    data = file.read_bytes()[footer.offset : -8]
    struct, end = decode_struct(data)
    cipher = ModuleCipher(retrieve_key(KeyRequest(str(file), None, FileCryptoMetaData(struct).key_metadata)))
    aad = module_aad(footer.file_aad or b"", ModuleType.FOOTER)
    plain, _ = decode_struct(cipher.decrypt(data[end:], aad, "footer"))
    change(plain)
    replace_footer(file, data[:end] + cipher.encrypt(encode_struct(plain), aad), b"PARE")


def chunks(footer: Struct) -> list[Struct]:
    """Return the column chunks of all row groups."""
    return [chunk.struct for group in FileMetaData(footer).row_groups for chunk in group.columns]


def own_key(chunk: Struct) -> Struct:
    """Return EncryptionWithColumnKey of a column chunk."""
    return _struct(_struct(chunk[CRYPTO])[OWN_KEY])


def _struct(value: Value) -> Struct:
    assert isinstance(value, Struct)
    return value

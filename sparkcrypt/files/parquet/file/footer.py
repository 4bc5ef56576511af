"""Reads a file's footer: plaintext, signed or encrypted, with or without its key."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from sparkcrypt.errors import ConfigError, FormatError, VerificationError
from sparkcrypt.files.parquet.file.columns import ColumnCrypto, column_crypto, marks_encryption
from sparkcrypt.files.parquet.file.key_material import KeyMaterials
from sparkcrypt.files.parquet.file.keys import FileCiphers, RetrieveKey, VerifyAad
from sparkcrypt.files.parquet.file.modules import (
    NONCE_BYTES,
    SIGNATURE_BYTES,
    TAG_BYTES,
    ModuleType,
    module_aad,
    unframe,
)
from sparkcrypt.files.parquet.thrift.compact import MAX_VALUES, decode_struct
from sparkcrypt.files.parquet.thrift.metadata import EncryptionAlgorithm, FileCryptoMetaData, FileMetaData
from sparkcrypt.files.source import Input, Source, naming, open_source
from sparkcrypt.names import Algorithm

Mode = Literal["encrypted", "plaintext_signed", "plaintext"]

PLAINTEXT_MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
MAGIC_BYTES = 4
TRAILER_BYTES = 4 + MAGIC_BYTES
TAIL_BYTES = 64 * 1024
"""The number of bytes first read at the end of a file; most footers are shorter."""
BYTES_PER_VALUE = 48
"""A footer may have one value for each this many bytes of its file, and always `MAX_VALUES`: so its decoded values take
at most about twice the file's size, whatever it claims."""


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of a file.

    ``aad_prefix`` is the stored prefix.  ``aad_file_unique`` may have any length: before trusting the prefix, the
    caller must refuse a file whose file-unique is not 8 bytes long.  ``metadata`` is None if the footer is encrypted
    and no key was given.  ``footer_authenticated`` is True if a key was given and a holder of that key wrote the
    footer.  ``file_aad`` (prefix, then file-unique) begins the AAD of every module; None if a prefix is needed and
    unknown.  ``columns`` are the leaves in schema order; None if hidden.  ``external_material`` is True if key material
    is in a file beside this one; key metadata are then given as if the material was inside.
    """

    file: str
    size: int
    offset: int
    mode: Mode
    algorithm: Algorithm | None = None
    aad_prefix: bytes | None = None
    supply_aad_prefix: bool = False
    aad_file_unique: bytes | None = None
    footer_key_metadata: bytes | None = None
    metadata: FileMetaData | None = field(default=None, repr=False)
    columns: tuple[ColumnCrypto, ...] | None = field(default=None, repr=False)
    footer_authenticated: bool = False
    file_aad: bytes | None = None
    external_material: bool = False


def read_footer(
    source: Source,
    *,
    retrieve_key: RetrieveKey | None = None,
    aad_prefix: bytes | None = None,
    verify_aad: VerifyAad | None = None,
) -> Footer:
    """Read the footer of a file.

    Args:
        source: a path, a (pyarrow filesystem, path), an open binary file, or the bytes of a whole file.
        retrieve_key: called for the footer's key if the file is encrypted; the footer is then authenticated.
        aad_prefix: the AAD prefix, for files that do not store it.
        verify_aad: called with the AAD prefix before any key is requested; raises if it is not the expected one.

    Raises:
        FormatError: not a Parquet file, or the footer violates the specification; also if the footer has encrypted
            columns but no algorithm or signature.
        VerificationError: the footer does not authenticate, ``aad_prefix`` is not the file's, or ``verify_aad`` is
            given and there is no prefix to verify.
        ConfigError: ``retrieve_key`` is given, but not the prefix, which the file does not store; or the key's length
            is wrong.
    """
    with open_source(source) as file:
        ciphers = None if retrieve_key is None else FileCiphers(file.name, retrieve_key)
        return footer_of(file, ciphers, aad_prefix, verify_aad)


def footer_of(
    file: Input, ciphers: FileCiphers | None, aad_prefix: bytes | None, verify_aad: VerifyAad | None
) -> Footer:
    """Read the footer of an open file; see `read_footer`."""
    with naming(file.name):
        data, offset, encrypted = _tail(file)
        place = _Place(file.name, file.size, offset, aad_prefix, verify_aad, KeyMaterials(file))
        return _parse_encrypted(data, place, ciphers) if encrypted else _plaintext(data, place, ciphers)


@dataclass(frozen=True, slots=True)
class _Place:
    """A footer's file and offset, the caller's expectations of its AAD prefix, and the file's key material."""

    file: str
    size: int
    offset: int
    aad_prefix: bytes | None
    verify_aad: VerifyAad | None
    materials: KeyMaterials

    @property
    def max_values(self) -> int:
        return max(MAX_VALUES, self.size // BYTES_PER_VALUE)


def _tail(file: Input) -> tuple[bytes, int, bool]:
    """Return the bytes between data and trailer, their offset, and whether the footer in them is encrypted."""
    least = MAGIC_BYTES + TRAILER_BYTES
    if file.size < least:
        raise FormatError(f"{file.size} bytes; expected a Parquet file, which has at least {least}")
    start = max(0, file.size - TAIL_BYTES)
    tail = file.read(start, file.size - start, "the end of the file")
    magic = tail[-MAGIC_BYTES:]
    if magic not in (PLAINTEXT_MAGIC, ENCRYPTED_MAGIC):
        raise FormatError(f"offset {file.size - MAGIC_BYTES}: not a Parquet file; expected it to end with PAR1 or PARE")
    end = file.size - TRAILER_BYTES
    length = int.from_bytes(tail[-TRAILER_BYTES:-MAGIC_BYTES], "little")
    offset = end - length
    if offset < MAGIC_BYTES:
        raise FormatError(
            f"offset {end}: a footer of {length} bytes is announced; expected at most {end - MAGIC_BYTES}"
        )
    data = tail[offset - start : -TRAILER_BYTES] if offset >= start else file.read(offset, length, "the footer")
    return data, offset, magic == ENCRYPTED_MAGIC


def _plaintext(data: bytes, place: _Place, ciphers: FileCiphers | None) -> Footer:
    struct, end = decode_struct(data, origin=place.offset, max_values=place.max_values)
    metadata = FileMetaData(struct)
    algorithm = metadata.encryption_algorithm
    rest = len(data) - end
    if algorithm is None:
        _check_unencrypted(metadata, rest, place)
        columns = _columns(metadata, place)
        return Footer(place.file, place.size, place.offset, "plaintext", metadata=metadata, columns=columns)
    if rest != SIGNATURE_BYTES:
        raise FormatError(
            f"offset {place.offset + end}: {rest} bytes follow the footer; expected its signature of {SIGNATURE_BYTES}"
        )
    key_metadata = metadata.footer_signing_key_metadata
    footer = _identify_keys(place, "plaintext_signed", algorithm, key_metadata)
    if ciphers is not None:
        aad = module_aad(known_aad(footer), ModuleType.FOOTER)
        ciphers.cipher(None, footer.footer_key_metadata).verify_signature(data[:end], data[end:], aad)
    return _reveal_columns(footer, metadata, place, authenticated=ciphers is not None)


def _check_unencrypted(metadata: FileMetaData, rest: int, place: _Place) -> None:
    for mark in marks_encryption(metadata):
        raise FormatError(
            f"the footer has {mark} but no encryption_algorithm; expected both: it was stripped or altered"
        )
    if rest:
        raise FormatError(
            f"{rest} bytes follow the footer; expected none without encryption_algorithm: it was stripped or altered"
        )
    if place.verify_aad is not None or place.aad_prefix is not None:
        raise VerificationError(
            "the file is not encrypted, so it has no AAD prefix; it is not the file that is expected here"
        )


def _parse_encrypted(data: bytes, place: _Place, ciphers: FileCiphers | None) -> Footer:
    struct, end = decode_struct(data, origin=place.offset)
    crypto = FileCryptoMetaData(struct)
    module, what = data[end:], "the footer"
    unframe(module, NONCE_BYTES + TAG_BYTES, what)
    footer = _identify_keys(place, "encrypted", crypto.encryption_algorithm, crypto.key_metadata)
    if ciphers is None:
        return footer
    aad = module_aad(known_aad(footer), ModuleType.FOOTER)
    plaintext = ciphers.cipher(None, footer.footer_key_metadata).decrypt(module, aad, what)
    # More bytes may follow: parquet-mr encrypts its whole serialisation buffer, including the unused end.
    struct, _ = decode_struct(plaintext, max_values=place.max_values)
    return _reveal_columns(footer, FileMetaData(struct), place, authenticated=True)


def _reveal_columns(footer: Footer, metadata: FileMetaData, place: _Place, *, authenticated: bool) -> Footer:
    columns = _columns(metadata, place)
    return replace(
        footer,
        metadata=metadata,
        columns=columns,
        footer_authenticated=authenticated,
        external_material=place.materials.external,
    )


def _columns(metadata: FileMetaData, place: _Place) -> tuple[ColumnCrypto, ...]:
    """Return the columns of a footer, with their key material, after checking the footer's row count."""
    if metadata.num_rows < 0:
        raise FormatError(f"the footer announces {metadata.num_rows} rows; expected a count")
    columns = column_crypto(metadata, place.size)
    inlined = [place.materials.inline(column.key_metadata) for column in columns]
    if not place.materials.external:
        return columns
    return tuple(replace(column, key_metadata=key) for column, key in zip(columns, inlined, strict=True))


def _identify_keys(place: _Place, mode: Mode, algorithm: EncryptionAlgorithm, key_metadata: bytes | None) -> Footer:
    """Return the footer as far as it is known without a key, after checking the AAD prefix with the caller."""
    name, parameters = algorithm.choose_algorithm()
    stored, supply = parameters.aad_prefix, bool(parameters.supply_aad_prefix)
    prefix = _agreed_prefix(place, stored, supply)
    unique, key_metadata = parameters.aad_file_unique, place.materials.inline(key_metadata)
    return Footer(
        *(place.file, place.size, place.offset, mode, name, stored, supply, unique, key_metadata),
        file_aad=None if prefix is None else prefix + (unique or b""),
        external_material=place.materials.external,
    )


def _agreed_prefix(place: _Place, stored: bytes | None, supply: bool) -> bytes | None:
    """Return the file's AAD prefix: empty if it has none, None if it must be supplied and is not."""
    expected = place.aad_prefix
    if expected is not None and stored is None and not supply:
        raise VerificationError(
            "an AAD prefix is given, but the file was encrypted without one; it is not the file that is expected here"
        )
    if expected is not None and stored is not None and expected != stored:
        raise VerificationError(
            "the AAD prefix stored in the file is not the given one; it is not the file that is expected here"
        )
    prefix = expected if stored is None else stored
    if place.verify_aad is not None:
        if prefix is None:
            raise VerificationError(
                "the file has no AAD prefix to verify, or does not store it; pass aad_prefix if you know it"
            )
        place.verify_aad(prefix)
    return b"" if prefix is None and not supply else prefix


def known_aad(footer: Footer) -> bytes:
    """Return the beginning of every module's AAD.

    Raises:
        ConfigError: the file does not store its AAD prefix and none was given.
    """
    if footer.file_aad is None:
        raise ConfigError(f"{footer.file}: the AAD prefix is not stored in the file; pass aad_prefix")
    return footer.file_aad

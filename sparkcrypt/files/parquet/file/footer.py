"""Reads a file's footer: plaintext, signed or encrypted, with or without its key, and how each column is encrypted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sparkcrypt.errors import ConfigError, FormatError, VerificationError
from sparkcrypt.files.parquet.file.modules import (
    FILE_UNIQUE_BYTES,
    NONCE_BYTES,
    SIGNATURE_BYTES,
    TAG_BYTES,
    AadPrefix,
    FileCiphers,
    ModuleType,
    RetrieveKey,
    VerifyAad,
    module_aad,
    unframe,
)
from sparkcrypt.files.parquet.file.schema import PATHS_SIZE, Path, leaf_paths
from sparkcrypt.files.parquet.thrift.compact import BINARY, MAX_VALUES, List, Struct, decode_struct
from sparkcrypt.files.parquet.thrift.metadata import (
    ColumnChunk,
    ColumnMetaData,
    EncryptionAlgorithm,
    EncryptionWithColumnKey,
    FileCryptoMetaData,
    FileMetaData,
)
from sparkcrypt.files.source import Input, Source, naming, open_source
from sparkcrypt.keys.external_material import inline_material, name_material_files, parse_material_file, read_reference
from sparkcrypt.names import Algorithm
from sparkcrypt.schema import join_dotted


@dataclass(frozen=True, slots=True)
class ColumnCrypto:
    """The encryption of a column.

    ``encrypted`` is None if the file has no row group, and so no data of the column.  ``own_key`` is False for the
    footer's key; ``key_metadata`` belongs to the column's own key and may be None or empty even then.
    """

    path: Path
    encrypted: bool | None
    own_key: bool = False
    key_metadata: bytes | None = None


def column_crypto(metadata: FileMetaData, file_bytes: int) -> tuple[ColumnCrypto, ...]:
    """Return the encryption of each leaf column, in schema order.

    Args:
        metadata: the footer.
        file_bytes: the file's size, which bounds the paths of all leaves together.

    Raises:
        FormatError: the paths are too long, a row group's chunks are not the schema's leaves in order, a chunk
            contradicts itself, or a column is encrypted differently in two row groups.
    """
    paths = leaf_paths(metadata, max_size=max(PATHS_SIZE, file_bytes))
    columns: tuple[ColumnCrypto, ...] | None = None
    wires = _wires(paths)
    for index, row_group in enumerate(metadata.row_groups):
        chunks = row_group.columns
        if len(chunks) != len(paths):
            raise FormatError(
                f"row group {index} has {len(chunks)} column chunks; expected {len(paths)}, one for each leaf"
            )
        found = tuple([_chunk_crypto(*entry) for entry in zip(chunks, paths, wires, strict=True)])
        if columns is not None and found != columns:
            other = next(entry for entry, now in zip(columns, found, strict=True) if entry != now)
            raise FormatError(
                f"row group {index}: column {join_dotted(other.path)} is encrypted unlike in row group 0; expected "
                "alike"
            )
        columns = found
    return tuple([ColumnCrypto(path, None) for path in paths]) if columns is None else columns


def _wires(paths: tuple[Path, ...]) -> list[List]:
    """Return the paths as a file stores them; leaves below the same name share its bytes object."""
    raw: dict[str, bytes] = {}
    for path in paths:
        for name in path:
            if name not in raw:
                raw[name] = name.encode()
    return [List(BINARY, [raw[name] for name in path]) for path in paths]


@dataclass(frozen=True, slots=True)
class KnownColumns:
    """What is known of columns of a file before it is verified or its keys are rewrapped.

    Attributes:
        dark: columns whose keys can no longer be opened.
        nulls: columns that must hold only nulls; in ORC with all columns below them.
        check: called with the summary of the file's footer before a column is read; raises to refuse the file.
        purged: dark columns that a rewrite of the file is about to replace by nulls.
        will_encrypt: the columns that a rewrite of an ORC file is about to encrypt, maybe none; None if the file is not
            about to be rewritten.
    """

    dark: Collection[Path] = ()
    nulls: Collection[Path] = ()
    check: Callable[[Any], None] | None = None
    purged: Collection[Path] = ()
    will_encrypt: Collection[Path] | None = None


NOTHING_KNOWN = KnownColumns()


def check_dark(columns: tuple[ColumnCrypto, ...], dark: Collection[Path]) -> None:
    """Check that columns given as dark have keys of their own: no other column may be left unopened.

    Args:
        columns: the columns of the file.
        dark: the paths of columns whose keys can no longer be opened.

    Raises:
        ConfigError: one is not in the file, is in plaintext or under the footer's key, or occurs twice.
    """
    counts = Counter(column.path for column in columns)
    own = {column.path for column in columns if column.own_key and counts[column.path] == 1}
    wrong = sorted(map(join_dotted, set(dark) - own))
    if wrong:
        allowed = ", ".join(sorted(map(join_dotted, own))) or "none"
        raise ConfigError(f"dark columns {', '.join(wrong)}; allowed: columns with a key of their own, here {allowed}")


def marks_encryption(metadata: FileMetaData) -> Iterator[str]:
    """Yield the parts of a footer, other than the algorithm, that only an encrypted file has."""
    if metadata.footer_signing_key_metadata is not None:
        yield "footer_signing_key_metadata"
    for index, row_group in enumerate(metadata.row_groups):
        for ordinal, chunk in enumerate(row_group.columns):
            if not _ENCRYPTED_KEYS.isdisjoint(chunk.struct):
                yield f"encryption of column chunk {ordinal} in row group {index}"


_ENCRYPTED_KEYS = frozenset({ColumnChunk.crypto_metadata.key, ColumnChunk.encrypted_column_metadata.key})
_META_DATA_KEY = ColumnChunk.meta_data.key
_PATH_KEY = ColumnMetaData.path_in_schema.key


def _chunk_crypto(chunk: ColumnChunk, path: Path, wire: List) -> ColumnCrypto:
    fields = chunk.struct
    meta_data = fields.get(_META_DATA_KEY)
    if isinstance(meta_data, Struct):
        _same_path(meta_data.get(_PATH_KEY, wire), wire, path)
    if _ENCRYPTED_KEYS.isdisjoint(fields):
        if meta_data is None:
            raise FormatError(f"column {join_dotted(path)} has neither meta_data nor crypto_metadata; expected one")
        return ColumnCrypto(path, False)
    crypto = chunk.crypto_metadata
    if crypto is None:
        raise FormatError(f"column {join_dotted(path)} has encrypted_column_metadata; expected crypto_metadata with it")
    own = crypto.column_key()
    if own is None:
        return ColumnCrypto(path, True)
    _same_path(own.struct.get(EncryptionWithColumnKey.path_in_schema.key), wire, path)
    if chunk.encrypted_column_metadata is None:
        raise FormatError(
            f"column {join_dotted(path)} has a key of its own; expected encrypted_column_metadata with it"
        )
    return ColumnCrypto(path, True, True, own.key_metadata)


def _same_path(found: object, wire: List, path: Path) -> None:
    if found != wire:
        raise FormatError(
            f"a column chunk stands where {join_dotted(path)} belongs; expected path_in_schema to be the leaf's"
        )


LEAST_BOUND = 1 << 20
MOST_BYTES = 64 << 20
BYTES_PER_BYTE = 4
"""A file of key material may be at most this many times as long as its data file, or `LEAST_BOUND` if that is more:
each key's chunks take some hundred bytes of the data file, and its key material about twice as many."""


class KeyMaterials:
    """The key material of one open file; the file beside it is read once, when a reference to it is found.

    As with key material inside a file, nothing authenticates it.  A wrong key opens no module.

    Attributes:
        external: whether some of it is in a file beside.
    """

    __slots__ = ("_file", "_found", "_known", "external")

    def __init__(self, file: Input) -> None:
        self._file = file
        self._known: dict[bytes, bytes] = {}
        self._found: tuple[str, Mapping[str, str]] | None = None
        self.external = False

    def inline(self, key_metadata: bytes | None) -> bytes | None:
        """Return key metadata in the form with the material inside; if it is no reference, it is returned unchanged.

        Raises:
            FormatError: the file of key material is missing, too long, or not what parquet-mr writes.
            StorageError: that file cannot be reached.
        """
        reference = _reference(key_metadata)
        if key_metadata is None or reference is None:
            return key_metadata
        self.external = True
        if key_metadata not in self._known:
            if self._found is None:
                self._found = self._read()
            name, materials = self._found
            try:
                self._known[key_metadata] = inline_material(reference, materials)
            except FormatError as error:
                raise FormatError(f"its key material file {name}: {error}") from error
        return self._known[key_metadata]

    def _read(self) -> tuple[str, Mapping[str, str]]:
        beside = self._file.beside
        if beside is None:
            raise FormatError(
                "its key material stands outside of it, in a file _KEY_MATERIAL_FOR_<its name>.json, and only its "
                "bytes were given; give the path at which both are"
            )
        usual, temporary = name_material_files(beside.name)
        most = min(MOST_BYTES, max(LEAST_BOUND, BYTES_PER_BYTE * self._file.size))
        for name in (usual, temporary, usual):  # a concurrent rotation may rename one to the other
            content = beside.read(name, most)
            if content is None:
                continue
            if len(content) > most:
                raise FormatError(f"its key material file {name} has more than {most:,} bytes, which is the most here")
            try:
                return name, parse_material_file(content)
            except FormatError as error:
                raise FormatError(f"its key material file {name}: {error}") from error
        raise FormatError(
            f"its key material file {usual} is not beside it, so nothing opens it; restore that file from where the "
            "data file came from"
        )


def _reference(key_metadata: bytes | None) -> str | None:
    try:
        return read_reference(key_metadata)
    except FormatError:
        return None  # foreign key metadata: the code that opens the key decides


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
    aad_prefix: AadPrefix | None = None,
) -> Footer:
    """Read the footer of a file.

    Args:
        source: a path, a (pyarrow filesystem, path), an open binary file, or the bytes of a whole file.
        retrieve_key: called for the footer's key if the file is encrypted; the footer is then authenticated.
        aad_prefix: the AAD prefix, for files that do not store it; or a function that is called with the stored one
            before any key is requested, and raises if it is not the expected one.

    Raises:
        FormatError: not a Parquet file, or the footer violates the specification; also if the footer has encrypted
            columns but no algorithm or signature.
        VerificationError: the footer does not authenticate, ``aad_prefix`` is not the file's, or verifies a prefix
            that the file does not store.
        ConfigError: ``retrieve_key`` is given, but not the prefix, which the file does not store; or the key's length
            is wrong.
    """
    with open_source(source) as file:
        ciphers = None if retrieve_key is None else FileCiphers(file.name, retrieve_key)
        return footer_of(file, ciphers, aad_prefix)


def footer_of(file: Input, ciphers: FileCiphers | None, aad_prefix: AadPrefix | None = None) -> Footer:
    """Read the footer of an open file; see `read_footer`."""
    with naming(file.name):
        data, offset, encrypted = _tail(file)
        prefix, verify_aad = (None, aad_prefix) if callable(aad_prefix) else (aad_prefix, None)
        place = _Place(file.name, file.size, offset, prefix, verify_aad, KeyMaterials(file))
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


def check_magic_and_unique(file: Input, footer: Footer) -> None:
    """Check the first magic, and that an encrypted file's file-unique has the length that every writer gives it.

    Raises:
        FormatError: the file's first magic differs from its last.
        VerificationError: the file-unique is missing or has another length: a prefix could pass for part of it.
    """
    expected = ENCRYPTED_MAGIC if footer.mode == "encrypted" else PLAINTEXT_MAGIC
    if file.read(0, MAGIC_BYTES, "the start of the file") != expected:
        raise FormatError(f"offset 0: expected {expected.decode()}, with which the file ends")
    unique = footer.aad_file_unique
    if footer.mode != "plaintext" and (unique is None or len(unique) != FILE_UNIQUE_BYTES):
        found = "missing" if unique is None else f"{len(unique)} bytes"
        raise VerificationError(
            f"the file-unique is {found}; expected {FILE_UNIQUE_BYTES}, since a prefix could pass for part of it"
        )

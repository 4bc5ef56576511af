"""Reads the encryption part of a footer: keys, masks, and the variants that hold columns encrypted.

Source: ORC specification v1, "Column Encryption"; ``ReaderEncryption`` and ``StripeInformation`` of ORC's Java reader.

Encrypts and decrypts streams under local keys; the only module of this package that does cryptography.  AES in counter
mode: encryption and decryption are the same operation, and nothing is authenticated.  A stream's first counter block is
``column (3 bytes) | kind (2) | stripe id (3) | 0 (8)``, big endian; statistics use the number of stripes plus one as
stripe id.  Source: ORC specification v1, "Stream Encryption"; ``CryptoUtils`` of ORC's Java code.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.orc.file.protobuf import Message
from sparkcrypt.files.orc.file.schema import Column
from sparkcrypt.files.parquet.file.modules import KeyRequest, RetrieveKey
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.schema import Path, join_dotted

ALGORITHMS = {1: ("AES_CTR_128", 16), 2: ("AES_CTR_256", 32)}
"""Number -> (name, number of bytes of a local key)."""
NULLIFY = "nullify"
MOST_COVERED = 16
"""The most variants that may cover a column, on average; a column has one for each key that opens it."""
MASK_NAME, MASK_PARAMETERS, MASK_COLUMNS = 1, 2, 3
KEY_NAME, KEY_VERSION, KEY_ALGORITHM = 1, 2, 3
VARIANT_ROOT, VARIANT_KEY, VARIANT_ENCRYPTED_KEY, VARIANT_STRIPE_STATISTICS, VARIANT_FILE_STATISTICS = range(1, 6)
ENCRYPTION_MASK, ENCRYPTION_KEY, ENCRYPTION_VARIANTS, ENCRYPTION_PROVIDER = range(1, 5)
STREAM_KIND, STREAM_COLUMN, STREAM_LENGTH = 1, 2, 3
STRIPE_STATISTICS_KIND, FILE_STATISTICS_KIND = 100, 101


@dataclass(frozen=True, slots=True)
class MasterKey:
    """A master key as a file names it; ``key_bytes`` is the length of local keys under it."""

    name: str
    version: int
    algorithm: str
    key_bytes: int

    @property
    def key_id(self) -> str:
        """The key id: the name, decoded if it is percent-encoded, as this project writes it."""
        try:
            return decode_key_id(self.name)
        except FormatError:
            return self.name


@dataclass(frozen=True, slots=True)
class Mask:
    """The mask that made the unencrypted form of columns: its name, its parameters, and the columns' roots."""

    name: str
    parameters: tuple[str, ...]
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """The encrypted form, under one local key, of a column and all columns below it.

    ``stripe_statistics`` are (column, length) of consecutive streams, which follow those of the previous variants.
    ``file_statistics`` and those streams are encrypted under the key of ``encrypted_key``.
    """

    number: int
    root: Column
    key: MasterKey
    encrypted_key: bytes = field(repr=False)
    stripe_statistics: tuple[tuple[int, int], ...]
    file_statistics: bytes | None = field(repr=False)

    def covers(self, column: int) -> bool:
        """Return whether a column is the root or below it."""
        return self.root.number <= column <= self.root.last


@dataclass(frozen=True, slots=True)
class Encryption:
    """The encryption of a file.

    ``by_column`` maps each covered column to the first variant that covers it, ``by_root`` each root to its first mask.
    """

    keys: tuple[MasterKey, ...]
    variants: tuple[Variant, ...]
    by_column: Mapping[int, Variant] = field(repr=False)
    by_root: Mapping[int, Mask] = field(repr=False)

    def variant_of(self, column: int) -> Variant | None:
        """Return the first variant that covers a column, which readers with its key use, or None."""
        return self.by_column.get(column)

    def mask_of(self, variant: Variant) -> Mask | None:
        """Return the mask that was applied to a variant's root, or None if the file names none."""
        return self.by_root.get(variant.root.number)


def variants_holding(encryption: Encryption | None, leaf_columns: Collection[Path]) -> frozenset[int]:
    """Return the numbers of the variants that hold some leaf columns.

    Raises:
        VerificationError: a column is in no variant.
    """
    wanted, found = set(leaf_columns), set()
    for variant in () if encryption is None else encryption.variants:
        root = variant.root.path
        below = {path for path in leaf_columns if path[: len(root)] == root}
        if below:
            found.add(variant.number)
            wanted -= below
    if wanted:
        raise VerificationError(
            f"column {', '.join(map(join_dotted, sorted(wanted)))} is not encrypted in the file; someone replaced it"
        )
    return frozenset(found)


def read_encryption(message: Message, columns: Sequence[Column]) -> Encryption:
    """Return the encryption that a footer describes.

    Raises:
        FormatError: it names a key, an algorithm or a column that does not exist, a variant lacks its key, or the
            variants cover too many columns.
    """
    keys = tuple(map(_key, message.messages(ENCRYPTION_KEY, "an encryption key")))
    masks = tuple(
        Mask(entry.text(MASK_NAME) or NULLIFY, tuple(entry.texts(MASK_PARAMETERS)), tuple(entry.integers(MASK_COLUMNS)))
        for entry in message.messages(ENCRYPTION_MASK, "a data mask")
    )
    described = message.messages(ENCRYPTION_VARIANTS, "an encryption variant")
    variants = tuple(_variant(number, part, keys, columns) for number, part in enumerate(described))
    covered = sum(variant.root.last - variant.root.number + 1 for variant in variants)
    if covered > MOST_COVERED * len(columns):
        raise FormatError(
            f"the variants have {covered} columns together; expected at most {MOST_COVERED} times the {len(columns)} "
            "that there are"
        )
    by_column: dict[int, Variant] = {}
    for variant in variants:
        for column in range(variant.root.number, variant.root.last + 1):
            by_column.setdefault(column, variant)
    by_root: dict[int, Mask] = {}
    for mask in masks:
        for column in mask.columns:
            by_root.setdefault(column, mask)
    return Encryption(keys, variants, by_column, by_root)


def read_stream(message: Message, columns: int) -> tuple[int, int, int]:
    """Return kind, column and length of a stream.

    Raises:
        FormatError: the column is not one of the file's ``columns``.
    """
    kind, column = message.integer(STREAM_KIND, bits=16), message.integer(STREAM_COLUMN, bits=32)
    if column >= columns:
        raise FormatError(f"a stream is of column {column}; expected at most {columns - 1}")
    return kind, column, message.integer(STREAM_LENGTH, bits=63)


def _key(message: Message) -> MasterKey:
    number = message.integer(KEY_ALGORITHM, bits=31)
    if number not in ALGORITHMS:
        allowed = ", ".join(f"{code} ({name})" for code, (name, _) in ALGORITHMS.items())
        raise FormatError(f"an encryption key is for algorithm {number}; expected {allowed}")
    name = message.text(KEY_NAME)
    if not name:
        raise FormatError("an encryption key has no name; expected the master key's")
    return MasterKey(name, message.integer(KEY_VERSION, bits=32), *ALGORITHMS[number])


def _variant(number: int, message: Message, keys: Sequence[MasterKey], columns: Sequence[Column]) -> Variant:
    what = f"encryption variant {number}"
    root, key = message.integer(VARIANT_ROOT, bits=32), message.integer(VARIANT_KEY, bits=32)
    encrypted_key = message.data(VARIANT_ENCRYPTED_KEY)
    if root >= len(columns) or key >= len(keys):
        raise FormatError(
            f"{what} is of column {root} under key {key}; expected at most {len(columns) - 1} and {len(keys) - 1}"
        )
    if not encrypted_key:
        raise FormatError(f"{what} has no local key; expected a wrapped one")
    streams = [
        read_stream(part, len(columns)) for part in message.messages(VARIANT_STRIPE_STATISTICS, "a statistics stream")
    ]
    for kind, column, _ in streams:
        if kind != STRIPE_STATISTICS_KIND or not root <= column <= columns[root].last:
            raise FormatError(
                f"{what} has a stream of kind {kind} of column {column} among its stripe statistics; expected kind "
                f"{STRIPE_STATISTICS_KIND} and column {root} to {columns[root].last}"
            )
    return Variant(
        number,
        columns[root],
        keys[key],
        encrypted_key,
        tuple((column, length) for _, column, length in streams),
        message.data(VARIANT_FILE_STATISTICS),
    )


BLOCK_BYTES = 16


class StreamCipher:
    """The cipher of one stream, used front to back; ``skipped`` bytes of the first keystream block are discarded."""

    __slots__ = ("_context",)

    def __init__(self, key: bytes, counter: bytes, skipped: int = 0) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._context = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
        self._context.update(bytes(skipped))

    def update(self, data: bytes) -> bytes:
        """Return the next bytes, encrypted or decrypted."""
        return self._context.update(data)


class LocalKey:
    """A local key that makes stream ciphers.  Its bytes are not in its repr."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def stream(self, column: int, kind: int, stripe_id: int, offset: int = 0) -> StreamCipher:
        """Return the cipher of one stream, starting at a byte offset in it."""
        blocks, rest = divmod(offset, BLOCK_BYTES)
        place = column.to_bytes(3, "big") + kind.to_bytes(2, "big") + stripe_id.to_bytes(3, "big")
        return StreamCipher(self._key, place + blocks.to_bytes(8, "big"), rest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalKey) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class LocalKeys:
    """The local keys of one file; each is requested once, when it is first needed."""

    __slots__ = ("_file", "_keys", "_retrieve_key")

    def __init__(self, file: str, retrieve_key: RetrieveKey) -> None:
        self._file = file
        self._retrieve_key = retrieve_key
        self._keys: dict[tuple[int, bytes], LocalKey] = {}

    def open(self, variant: Variant, wrapped: bytes) -> LocalKey:
        """Return a local key of a variant.

        Raises:
            FormatError: its length is not that of the variant's algorithm.
        """
        local_key = self._keys.get((variant.number, wrapped))
        if local_key is None:
            key = self._retrieve_key(KeyRequest(self._file, variant.root.path, wrapped))
            if len(key) != variant.key.key_bytes:
                raise FormatError(
                    f"the local key of variant {variant.number} has {len(key)} bytes; expected "
                    f"{variant.key.key_bytes} for {variant.key.algorithm}"
                )
            local_key = self._keys[variant.number, wrapped] = LocalKey(key)
        return local_key

"""Describes how a new file is to be encrypted, and derives its ciphers and AADs."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from sparkcrypt.errors import ConfigError
from sparkcrypt.files.parquet.file.modules import FILE_UNIQUE_BYTES, ModuleCipher, ModuleType, module_aad
from sparkcrypt.files.parquet.file.schema import Path
from sparkcrypt.names import AES_GCM_V1, ALGORITHMS, Algorithm
from sparkcrypt.schema import join_dotted

FooterMode = Literal["encrypted", "plaintext"]


class Protection(Enum):
    """The protection of a column without a key of its own."""

    FOOTER_KEY = "footer key"
    PLAINTEXT = "plaintext"


FOOTER_KEY: Final = Protection.FOOTER_KEY
PLAINTEXT: Final = Protection.PLAINTEXT


@dataclass(frozen=True, slots=True)
class DataKey:
    """A data encryption key of one file.

    Attributes:
        key: 16, 24 or 32 random bytes, made for this file.
        key_metadata: what readers use to find the key: for parquet-mr's tools, its PKMT1 key material.
    """

    key: bytes = field(repr=False)
    key_metadata: bytes


ColumnKey: TypeAlias = DataKey | Protection


class SingleUse:
    """A thread-safe flag that records whether the keys of one file were taken."""

    __slots__ = ("_lock", "_taken")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False

    def take(self) -> bool:
        """Take the keys; return whether this is the first call."""
        with self._lock:
            taken, self._taken = self._taken, True
        return not taken


@dataclass(frozen=True, slots=True)
class FileEncryption:
    """The encryption of one new file, and of no other: its keys are never used twice.

    Attributes:
        footer: encrypts the footer, or signs it, and encrypts the columns that are given `FOOTER_KEY`.
        algorithm: ``AES_GCM_CTR_V1`` leaves page bodies unauthenticated.
        footer_mode: ``plaintext`` leaves schema, sizes and unencrypted columns readable without keys.
        columns: leaf column path -> its key, `FOOTER_KEY` or `PLAINTEXT`.
        default: the protection of columns that ``columns`` does not name.
        aad_prefix: the file's identity, or None; it is always followed by a new random file-unique.
        store_aad_prefix: False leaves the prefix out of the file, so that readers must supply it.
        key_values: entries to set in the footer's key-value metadata; they replace entries of the same key.
    """

    footer: DataKey
    algorithm: Algorithm = AES_GCM_V1
    footer_mode: FooterMode = "encrypted"
    columns: Mapping[Path, ColumnKey] = field(default_factory=lambda: MappingProxyType({}))
    default: Protection = PLAINTEXT
    aad_prefix: bytes | None = None
    store_aad_prefix: bool = True
    key_values: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    _use: SingleUse = field(default_factory=SingleUse, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ConfigError: unknown algorithm or footer mode, or ``store_aad_prefix`` is False without a prefix.
        """
        if self.algorithm not in ALGORITHMS:
            raise ConfigError(f"algorithm {self.algorithm!r}; allowed: {', '.join(ALGORITHMS)}")
        if self.footer_mode not in ("encrypted", "plaintext"):
            raise ConfigError(f"footer_mode {self.footer_mode!r}; allowed: encrypted, plaintext")
        if not self.store_aad_prefix and not self.aad_prefix:
            raise ConfigError("store_aad_prefix is False without an aad_prefix; give one, or leave it stored")

    def take(self) -> None:
        """Claim the keys for the file that is about to be written.

        Raises:
            ConfigError: they were claimed before.
        """
        if not self._use.take():
            raise ConfigError(
                "this FileEncryption was used for a file before; make a new one, with new data keys, for each file"
            )


@dataclass(frozen=True, slots=True)
class ChunkSeal:
    """The cipher and AAD parts that encrypt the modules of one column chunk; ``own`` is None under the footer's key."""

    cipher: ModuleCipher
    file_aad: bytes
    algorithm: Algorithm
    row_group: int
    column: int
    own: DataKey | None = None

    def aad(self, module: ModuleType, *page: int) -> bytes:
        """Return the AAD of a module of this chunk."""
        return module_aad(self.file_aad, module, self.row_group, self.column, *page)

    def seal(self, plaintext: bytes, module: ModuleType) -> bytes:
        """Return the framed GCM module of an index, a Bloom filter or metadata."""
        return self.cipher.encrypt(plaintext, self.aad(module))


class FileCipherSuite:
    """The ciphers of one target: one for each data key, so that all its uses are counted together."""

    __slots__ = ("_chosen", "columns", "encryption", "file_aad", "file_unique", "footer")

    def __init__(self, encryption: FileEncryption, paths: Sequence[Path]) -> None:
        """Take the encryption's keys for a file whose leaf columns are ``paths``.

        Raises:
            ConfigError: it was taken before, names a column that the file does not have, or a key's length is wrong.
        """
        unknown = sorted(join_dotted(path) for path in encryption.columns.keys() - set(paths))
        if unknown:
            raise ConfigError(
                f"the encryption names {', '.join(unknown)}; allowed: leaf columns of the file, as path tuples: "
                f"{', '.join(map(join_dotted, paths))}"
            )
        encryption.take()
        self.encryption = encryption
        self.file_unique = os.urandom(FILE_UNIQUE_BYTES)
        self.file_aad = (encryption.aad_prefix or b"") + self.file_unique
        ciphers: dict[bytes, ModuleCipher] = {}

        def cipher(key: DataKey) -> ModuleCipher:
            known = ciphers.get(key.key)
            if known is None:
                known = ciphers[key.key] = ModuleCipher(key.key)
            return known

        self.footer = cipher(encryption.footer)
        self._chosen = tuple(encryption.columns.get(path, encryption.default) for path in paths)
        self.columns: tuple[ModuleCipher | None, ...] = tuple(
            cipher(chosen) if isinstance(chosen, DataKey) else None if chosen is PLAINTEXT else self.footer
            for chosen in self._chosen
        )

    def seal(self, row_group: int, column: int) -> ChunkSeal | None:
        """Return what encrypts a column chunk of the target; None if the column is in plaintext."""
        used, chosen = self.columns[column], self._chosen[column]
        own = chosen if isinstance(chosen, DataKey) else None
        if used is None:
            return None
        return ChunkSeal(used, self.file_aad, self.encryption.algorithm, row_group, column, own)

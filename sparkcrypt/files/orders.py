"""Orders that workers receive and outcomes that they return, as JSON, so that no pickled class travels to executors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from sparkcrypt.errors import VerificationError
from sparkcrypt.files.orc import OrcSummary
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.files.parquet.rewrite.encryption import FooterMode
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.datakeys import RewrappedKek, WrappedKek
from sparkcrypt.names import Algorithm, FileFormat
from sparkcrypt.schema import Path, join_dotted

_NONE: Mapping[Path, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EncryptionOrder(JsonObject):
    """How to encrypt a file.

    Attributes:
        columns: column -> the id of its master key, decoded; None encrypts the column with the footer's data key. In an
            ORC file, a column includes all columns below it; for ``rewrap`` they are leaf columns, since the file
            determines which columns share a local key.
        aad_prefix: the AAD prefix; in an ORC file, what the local keys are bound to.
        footer_key: the id of the footer's master key, decoded; empty for ORC, whose footer is never encrypted, and
            which has none of the further attributes either.
    """

    columns: Mapping[Path, str | None]
    aad_prefix: bytes
    footer_key: str = ""
    footer_mode: FooterMode = "encrypted"
    algorithm: Algorithm = "AES_GCM_V1"
    key_values: Mapping[str, str] = field(default_factory=dict)

    @property
    def masters(self) -> dict[Path, str]:
        """The master key of each column."""
        return {path: key or self.footer_key for path, key in self.columns.items()}

    def describe_difference(self, found: FileSummary, dark: Mapping[Path, str] = _NONE) -> str | None:
        """Return a description of how a file differs from the order, or None.

        Args:
            found: the summary of its footer.
            dark: columns that were to stay unchanged -> the master key that each is under.
        """
        if (found.footer, found.algorithm) != (
            "encrypted" if self.footer_mode == "encrypted" else "plaintext_signed",
            self.algorithm,
        ):
            return f"its footer is {found.footer} under {found.algorithm}"
        if found.footer_key != self.footer_key or (found.aad_prefix or b"") != self.aad_prefix:
            return "its footer key or AAD prefix is another"
        masters = self.masters
        for path, column in (found.columns or {}).items():
            wanted = masters.get(path, dark.get(path))
            if column.encrypted is not None and column.key_id != wanted:
                return f"column {'.'.join(path)} is under {column.key_id!r}, not {wanted!r}"
        return None


Action = Literal["encrypt", "decrypt", "rewrap", "copy"]


@dataclass(frozen=True, slots=True)
class FileOrder(JsonObject):
    """An order to write one file: encrypted under new data keys, decrypted, rewrapped, or copied byte for byte.

    Attributes:
        source, target: paths as Hadoop prints them.
        action: what to do.
        encryption: for ``encrypt``, how to encrypt; for ``rewrap``, the new master keys, None to keep the source's. For
            an ORC file that is decrypted, it has no columns, but what the local keys of dark columns stay bound to.
        source_prefix: the source's AAD prefix when it was listed, or what its local keys were bound to; None if there
            was none or it was not read.
        source_algorithm: the source's algorithm when it was listed, which nothing in the file authenticates; None if it
            was plaintext or ORC.
        replace: an earlier attempt's target may be replaced, because only this run uses it.
        dark: columns whose master keys were shredded -> those keys.
        purges: whether nulls replace the dark columns, which otherwise stay unchanged; a Parquet file can keep them for
            ``rewrap`` and ``copy`` only. Those of an ORC file may be among the columns to encrypt too.
        format: of both files.
    """

    source: str
    target: str
    action: Action
    encryption: EncryptionOrder | None = None
    source_prefix: bytes | None = None
    source_algorithm: Algorithm | None = None
    replace: bool = False
    dark: Mapping[Path, str] = field(default_factory=dict)
    purges: bool = False
    format: FileFormat = "parquet"

    @property
    def carried(self) -> Mapping[Path, str]:
        """The dark columns that stay unchanged."""
        return _NONE if self.purges else self.dark

    @property
    def purged(self) -> Mapping[Path, str]:
        """The dark columns that nulls replace."""
        return self.dark if self.purges else _NONE

    def refuse_changed(self, found: FileSummary | OrcSummary) -> None:
        """Refuse a source that is not as it was listed.

        Raises:
            VerificationError: its algorithm is another, or a dark column is not under the shredded key, or local keys
                of an ORC file with a dark column are bound to another file; the message names both.
        """
        if isinstance(found, FileSummary) and found.algorithm != self.source_algorithm:
            raise VerificationError(
                f"{self.source}: its algorithm is {found.algorithm or 'none'}, and was "
                f"{self.source_algorithm or 'none'} when it was listed; someone replaced the file"
            )
        keys = {path: column.key_id for path, column in (found.columns or {}).items()}
        for path, key_id in self.dark.items():
            if keys.get(path) != key_id:
                raise VerificationError(
                    f"{self.source}: column {join_dotted(path)} is under {keys.get(path)!r}, and was under the "
                    f"shredded {key_id!r} when it was listed; someone replaced the file"
                )
        if isinstance(found, OrcSummary) and self.dark and found.identity != self.source_prefix:
            raise VerificationError(
                f"{self.source}: its local keys are bound to another file than when it was listed; someone replaced it"
            )

    def master_keys(self) -> set[str]:
        """Return the master keys that keys of the target will be wrapped by."""
        if self.encryption is None:
            return set()
        return {key for key in (self.encryption.footer_key, *self.encryption.columns.values()) if key}


@dataclass(frozen=True, slots=True)
class KeySettings(JsonObject):
    """Where a worker gets its keys.

    Attributes:
        key_service: its configuration, as canonical JSON.
        data_key_bits: the size of new data keys.
        keks: the KEKs of the table, wrapped as they are stored.
        rewrapped: KEKs that files may have already, with their form rewrapped by the key service; they stay unopened.
    """

    key_service: str
    data_key_bits: int
    keks: tuple[WrappedKek, ...] = ()
    rewrapped: tuple[RewrappedKek, ...] = ()

    def to_json(self) -> str:
        """Return the settings as canonical JSON."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> KeySettings:
        """Return the settings that `to_json` gave."""
        return cls.from_dict(json.loads(text))


@dataclass(frozen=True, slots=True)
class FileOutcome(JsonObject):
    """The outcome of one order: a target proven equal page by page, or the reason why there is none.

    Attributes:
        unauthenticated: what nothing authenticates in the target and, after ``source:``, in the source.
        refused: why the file cannot be rewritten page by page, or not from this machine, although it may be valid.
        error: (class name, message) of any other error.
        unopened: columns that keep their data keys and KEKs, and whose keys were not opened.
    """

    source: str
    target: str
    rows: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    unauthenticated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refused: str | None = None
    error: tuple[str, str] | None = None
    unopened: tuple[Path, ...] = ()

    def to_json(self) -> str:
        """Return the outcome as JSON."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> FileOutcome:
        """Return the outcome that `to_json` gave."""
        return cls.from_dict(json.loads(text))

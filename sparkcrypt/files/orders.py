"""Orders that workers receive and outcomes that they return, as JSON, so that no pickled class travels to executors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

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
        footer_key: the id of the footer's master key, decoded.
        columns: column -> the id of its master key, decoded; None encrypts the column with the footer's data key.
    """

    footer_key: str
    footer_mode: FooterMode
    algorithm: Algorithm
    columns: Mapping[Path, str | None]
    aad_prefix: bytes
    key_values: Mapping[str, str] = field(default_factory=dict)

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
        for path, column in (found.columns or {}).items():
            wanted = (self.columns[path] or self.footer_key) if path in self.columns else dark.get(path)
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
        encryption: for ``encrypt``, how to encrypt; for ``rewrap``, the new master keys, None to keep the source's.
        source_prefix: the source's AAD prefix when it was listed; None if it had none or was not read.
        source_algorithm: the source's algorithm when it was listed, which nothing in the file authenticates; None if it
            was plaintext.
        replace: an earlier attempt's target may be replaced, because only this run uses it.
        dark: columns whose master keys were shredded -> those keys: ``rewrap`` and ``copy`` leave the columns
            unchanged, ``encrypt`` and ``decrypt`` replace them by nulls.
    """

    source: str
    target: str
    action: Action
    encryption: EncryptionOrder | None = None
    source_prefix: bytes | None = None
    source_algorithm: Algorithm | None = None
    replace: bool = False
    dark: Mapping[Path, str] = field(default_factory=dict)

    @property
    def carried(self) -> Mapping[Path, str]:
        """The dark columns that stay unchanged."""
        return self.dark if self.action in ("rewrap", "copy") else _NONE

    @property
    def purged(self) -> Mapping[Path, str]:
        """The dark columns that nulls replace."""
        return self.dark if self.action in ("encrypt", "decrypt") else _NONE

    @property
    def format(self) -> FileFormat:
        """The format of the file."""
        return "parquet"

    def refuse_changed(self, found: FileSummary) -> None:
        """Refuse a source that is not as it was listed.

        Raises:
            VerificationError: its algorithm is another, or a dark column is not under the shredded key; names both.
        """
        if found.algorithm != self.source_algorithm:
            raise VerificationError(
                f"{self.source}: its algorithm is {found.algorithm or 'none'}, and was "
                f"{self.source_algorithm or 'none'} when it was listed; someone replaced the file"
            )
        _refuse_other_keys(self.source, {path: item.key_id for path, item in (found.columns or {}).items()}, self.dark)

    def master_keys(self) -> set[str]:
        """Return the master keys that keys of the target will be wrapped by."""
        encryption = self.encryption
        if encryption is None:
            return set()
        return {encryption.footer_key, *(key for key in encryption.columns.values() if key is not None)}


@dataclass(frozen=True, slots=True)
class OrcOrder(JsonObject):
    """An order to write one ORC file: encrypted under new local keys, decrypted, rewrapped, or copied byte for byte.

    Attributes:
        source, target: paths as Hadoop prints them.
        action: what to do.
        columns: column, which includes all columns below it -> the master key that wraps its local key in the target;
            empty for ``decrypt``. For ``rewrap`` they are leaf columns, since the file determines which columns share a
            local key.
        identity: the identity that the target's local keys are bound to, in the form of an AAD prefix; ``copy`` keeps
            the source's.
        source_identity: the identity that the source's local keys were bound to when it was listed; None if none.
        replace: as in `FileOrder`.
        carried: leaf columns whose master keys were shredded -> those keys; they stay unchanged.
        purged: such columns that are replaced by nulls; they may be among ``columns`` too.
    """

    source: str
    target: str
    action: Action
    columns: Mapping[Path, str]
    identity: bytes
    source_identity: bytes | None
    replace: bool = False
    carried: Mapping[Path, str] = field(default_factory=dict)
    purged: Mapping[Path, str] = field(default_factory=dict)

    @property
    def format(self) -> FileFormat:
        """The format of the file."""
        return "orc"

    def refuse_changed(self, found: OrcSummary) -> None:
        """Refuse a source whose dark columns, or the identity of its local keys, differ from what was listed.

        Raises:
            VerificationError: a dark column is not under the shredded key (names the column and both keys), or the
                local keys are bound to another file.
        """
        dark = {**self.carried, **self.purged}
        _refuse_other_keys(self.source, {path: item.key_id for path, item in found.columns.items()}, dark)
        if dark and found.identity != self.source_identity:
            raise VerificationError(
                f"{self.source}: its local keys are bound to another file than when it was listed; someone replaced it"
            )

    def master_keys(self) -> set[str]:
        """Return the master keys that keys of the target will be wrapped by."""
        return set() if self.action == "copy" else set(self.columns.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the order as JSON values."""
        return {"format": self.format, **JsonObject.to_dict(self)}


def _refuse_other_keys(source: str, found: Mapping[Path, str | None], dark: Mapping[Path, str]) -> None:
    for path, key_id in dark.items():
        if found.get(path) != key_id:
            raise VerificationError(
                f"{source}: column {join_dotted(path)} is under {found.get(path)!r}, and was under the shredded "
                f"{key_id!r} when it was listed; someone replaced the file"
            )


Order: TypeAlias = FileOrder | OrcOrder


def order_from_dict(values: Mapping[str, Any]) -> Order:
    """Return the order, of either format, that its ``to_dict`` gave."""
    return OrcOrder.from_dict(values) if values.get("format") == "orc" else FileOrder.from_dict(values)


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

"""What a worker is told and what it answers, as JSON, so that it travels to executors without pickled classes."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.datakeys import RewrappedKek, WrappedKek
from sparkcrypt.names import Algorithm
from sparkcrypt.parquet import FileSummary
from sparkcrypt.parquet.rewrite.encryption import FooterMode
from sparkcrypt.schema import Path

_NONE: Mapping[Path, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EncryptionOrder:
    """How a file is to be encrypted: by master key ids, decoded; None stands for the footer's."""

    footer_key: str
    footer_mode: FooterMode
    algorithm: Algorithm
    columns: Mapping[Path, str | None]
    aad_prefix: bytes
    key_values: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the order as JSON values."""
        return {
            "footer_key": self.footer_key,
            "footer_mode": self.footer_mode,
            "algorithm": self.algorithm,
            "columns": [[list(path), key] for path, key in self.columns.items()],
            "aad_prefix": base64.b64encode(self.aad_prefix).decode(),
            "key_values": dict(self.key_values),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EncryptionOrder:
        """Return the order that `to_dict` gave."""
        return cls(
            values["footer_key"],
            values["footer_mode"],
            values["algorithm"],
            {tuple(path): key for path, key in values["columns"]},
            base64.b64decode(values["aad_prefix"]),
            values["key_values"],
        )

    def unmet(self, found: FileSummary, dark: Mapping[Path, str] = _NONE) -> str | None:
        """Return in words how a file differs from the order, or None.

        Args:
            found: what its footer says.
            dark: columns that were to stay as they are, and the master keys that they are under.
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
_ORC = "orc"


@dataclass(frozen=True, slots=True)
class FileOrder:
    """One file to make: encrypted anew, in plaintext, with its keys wrapped anew, or as it is, byte for byte.

    Attributes:
        source, target: paths as Hadoop prints them.
        action: what to do.
        encryption: what to encrypt with, for ``encrypt``; for ``rewrap`` the master keys, where they are others than
            those of the source.
        source_prefix: the AAD prefix that the source was seen to have; None when it had none or was not looked at.
        source_algorithm: the algorithm that it was seen to have, which nothing in the file authenticates; None when it
            was plaintext.
        replace: an earlier attempt's target may be replaced, because nobody but this run knows of it.
        dark: columns whose master keys were shredded, and these: ``rewrap`` and ``copy`` leave them as they are,
            ``encrypt`` and ``decrypt`` put nulls in their place.
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
        """The dark columns that stay as they are."""
        return self.dark if self.action in ("rewrap", "copy") else _NONE

    @property
    def purged(self) -> Mapping[Path, str]:
        """The dark columns that nulls replace."""
        return self.dark if self.action in ("encrypt", "decrypt") else _NONE

    def refuse_algorithm(self, found: Algorithm | None) -> None:
        """Refuse a source under another algorithm than the one that it was seen to have.

        Raises:
            VerificationError: it names both.
        """
        if found != self.source_algorithm:
            raise VerificationError(
                f"{self.source}: its algorithm is {found or 'none'}, and was {self.source_algorithm or 'none'} when it "
                "was listed; someone replaced the file"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the order as JSON values."""
        prefix = self.source_prefix
        return {
            "source": self.source,
            "target": self.target,
            "action": self.action,
            "encryption": None if self.encryption is None else self.encryption.to_dict(),
            "source_prefix": None if prefix is None else base64.b64encode(prefix).decode(),
            "source_algorithm": self.source_algorithm,
            "replace": self.replace,
            "dark": [[list(path), key] for path, key in self.dark.items()],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FileOrder:
        """Return the order that `to_dict` gave."""
        encryption, prefix = values["encryption"], values["source_prefix"]
        return cls(
            values["source"],
            values["target"],
            values["action"],
            None if encryption is None else EncryptionOrder.from_dict(encryption),
            None if prefix is None else base64.b64decode(prefix),
            values["source_algorithm"],
            values["replace"],
            {tuple(path): key for path, key in values["dark"]},
        )

    def master_keys(self) -> set[str]:
        """Return the master keys that keys of the target will be wrapped by."""
        encryption = self.encryption
        if encryption is None:
            return set()
        return {encryption.footer_key, *(key for key in encryption.columns.values() if key is not None)}


@dataclass(frozen=True, slots=True)
class OrcOrder:
    """One ORC file to make: encrypted anew, in plaintext, with its keys wrapped anew, or as it is, byte for byte.

    Attributes:
        source, target: paths as Hadoop prints them.
        action: what to do.
        columns: column, with all below it -> the master key that its local key is wrapped by in the target; none for
            ``decrypt``, and leaf columns for ``rewrap``, which leaves it to the file what stands under one local key.
        identity: what the target's local keys are bound to, as an AAD prefix; ``copy`` leaves the source's.
        source_identity: what the source's were seen to be bound to; None for nothing.
        replace: as in `FileOrder`.
        carried: leaf columns whose master keys were shredded, and these: they stay as they are.
        purged: such columns that nulls replace, which may be among ``columns``.
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

    def master_keys(self) -> set[str]:
        """Return the master keys that keys of the target will be wrapped by."""
        return set() if self.action == "copy" else set(self.columns.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the order as JSON values."""
        before = self.source_identity
        return {
            "format": _ORC,
            "source": self.source,
            "target": self.target,
            "action": self.action,
            "columns": [[list(path), key] for path, key in self.columns.items()],
            "identity": base64.b64encode(self.identity).decode(),
            "source_identity": None if before is None else base64.b64encode(before).decode(),
            "replace": self.replace,
            "carried": [[list(path), key] for path, key in self.carried.items()],
            "purged": [[list(path), key] for path, key in self.purged.items()],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> OrcOrder:
        """Return the order that `to_dict` gave."""
        columns, before = {tuple(path): key for path, key in values["columns"]}, values["source_identity"]
        return cls(
            values["source"],
            values["target"],
            values["action"],
            columns,
            base64.b64decode(values["identity"]),
            None if before is None else base64.b64decode(before),
            values["replace"],
            {tuple(path): key for path, key in values["carried"]},
            {tuple(path): key for path, key in values["purged"]},
        )


Order: TypeAlias = FileOrder | OrcOrder


def order_from_dict(values: Mapping[str, Any]) -> Order:
    """Return the order of either format that its own ``to_dict`` gave."""
    return OrcOrder.from_dict(values) if values.get("format") == _ORC else FileOrder.from_dict(values)


@dataclass(frozen=True, slots=True)
class KeySettings:
    """Where a worker gets its keys: the key service, and the KEKs of the table, wrapped as they are stored.

    ``rewrapped`` are KEKs that files may have already, with what the key service made of them: those stay unopened.
    """

    key_service: str
    data_key_bits: int
    keks: tuple[WrappedKek, ...] = ()
    rewrapped: tuple[RewrappedKek, ...] = ()

    def to_json(self) -> str:
        """Return the settings as canonical JSON."""
        keks = [_list_kek(kek) for kek in self.keks]
        again = [[*_list_kek(kek.before), kek.wrapped_kek] for kek in self.rewrapped]
        told = [self.key_service, self.data_key_bits, keks, again]
        return json.dumps(told, ensure_ascii=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> KeySettings:
        """Return the settings that `to_json` gave."""
        key_service, bits, keks, again = json.loads(text)
        rewrapped = tuple(RewrappedKek(WrappedKek(*kek), wrapped) for *kek, wrapped in again)
        return cls(key_service, bits, tuple(WrappedKek(*kek) for kek in keks), rewrapped)


def _list_kek(kek: WrappedKek) -> list[str]:
    return [kek.master_key_id, kek.kek_id, kek.wrapped_kek]


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """What became of one file: proven equal page by page, or not done with the reason.

    ``unauthenticated`` tells what nothing authenticates in the target, and after ``source:`` what nothing authenticated
    in what it was made of.  ``unopened`` are columns that have their data keys and KEKs as before, and of which no key
    was opened.  ``refused`` says why the file cannot be rewritten page by page, or not from here, although
    it may be right; ``error`` is (class name, message) of anything else.
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

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        return {
            "source": self.source,
            "target": self.target,
            "rows": self.rows,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "unauthenticated": list(self.unauthenticated),
            "notes": list(self.notes),
            "refused": self.refused,
            "error": None if self.error is None else list(self.error),
            "unopened": [list(path) for path in self.unopened],
        }

    def to_json(self) -> str:
        """Return the outcome as JSON."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> FileOutcome:
        """Return the outcome that `to_json` gave."""
        values = json.loads(text)
        error = values.pop("error")
        values["unauthenticated"], values["notes"] = tuple(values["unauthenticated"]), tuple(values["notes"])
        values["unopened"] = tuple(map(tuple, values["unopened"]))
        return cls(**values, error=None if error is None else (error[0], error[1]))

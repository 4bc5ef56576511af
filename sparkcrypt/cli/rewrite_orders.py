"""What `sparkcrypt rewrite` orders for each file, and the KEKs that all of them share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from sparkcrypt import names
from sparkcrypt.bridge.identity import check_identity, identity_of_write, partition_values, trailing_partition
from sparkcrypt.cli.files import check_claims, full_path, policy_keys
from sparkcrypt.errors import ConfigError, PlanError
from sparkcrypt.keys.datakeys import DataKeyMaker, WrappedKek
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.keys.service import open_key_service
from sparkcrypt.native.orders import EncryptionOrder, FileOrder
from sparkcrypt.native.places import Settings, place
from sparkcrypt.parquet import FileSummary, RetrieveKey, inspect_file
from sparkcrypt.policy.model import Policy
from sparkcrypt.policy.template import KeyTemplate
from sparkcrypt.schema import Path, dotted, split_dotted


def parse_column_keys(text: str) -> dict[Path, str]:
    """Parse Parquet's own syntax, ``key:column,column;key:column``; key ids may be percent-encoded.

    Raises:
        PlanError: it is not of that form, or a column has two keys.
    """
    keys: dict[Path, str] = {}
    for part in filter(str.strip, text.split(";")):
        key, colon, columns = part.partition(":")
        named = [name.strip() for name in columns.split(",") if name.strip()]
        if not colon or not key.strip() or not named:
            raise PlanError(f"--column-keys has {part.strip()!r}; allowed: KEY:COLUMN,COLUMN;KEY:COLUMN")
        for name in named:
            path = split_dotted(name)
            if path in keys:
                raise PlanError(f"--column-keys names column {name} twice; give it one key")
            keys[path] = decode_key_id(key.strip())
    if not keys:
        raise PlanError("--column-keys names no column; allowed: KEY:COLUMN,COLUMN;KEY:COLUMN")
    return keys


@dataclass(frozen=True, slots=True)
class Orders:
    """Makes the order of each file.

    Attributes:
        policy: whose footer key, algorithm and key service they are.
        action: what to do.
        wanted: column -> key template, to encrypt.
        settings: how to reach the files.
        retrieve_key: opens the keys of sources.
    """

    policy: Policy
    action: Literal["encrypt", "decrypt", "rewrap"]
    wanted: Mapping[Path, str]
    settings: Settings
    retrieve_key: RetrieveKey

    @classmethod
    def of(cls, policy: Policy, column_keys: str | None, *, decrypt: bool, settings: Settings) -> Orders:
        """Return what makes the orders of a command line.

        Raises:
            PlanError: as `parse_column_keys`.
        """
        wanted = {} if column_keys is None else parse_column_keys(column_keys)
        action: Literal["encrypt", "decrypt", "rewrap"] = "encrypt" if wanted else "decrypt" if decrypt else "rewrap"
        return cls(policy, action, wanted, settings, policy_keys(policy))

    def order(self, source: str, target: str) -> FileOrder:
        """Return the order of one file.

        Raises:
            VerificationError: an encrypted source is under another algorithm than the policy's, or was moved.
            PlanError: it lacks a column that is to be encrypted.
            ConfigError: it is encrypted, and columns of it would lose their keys.
        """
        where = place(source, self.settings)
        found = inspect_file(where)
        order = FileOrder(source, target, self.action, None, found.aad_prefix, found.algorithm)
        if found.footer != "plaintext":
            check_claims(self.policy, source, found.aad_prefix, found.algorithm)
            if self.action == "rewrap":  # which keeps the file's identity
                check_identity(found.aad_prefix, full_path(target), table_uuid=None, strict=False)
            if self.action != "decrypt":
                found = inspect_file(where, retrieve_key=self.retrieve_key)
        if self.action == "encrypt":
            return replace(order, encryption=self._encryption(found, full_path(target)))
        if self.action == "rewrap" and found.footer_key is not None:
            return replace(order, encryption=self._as_it_is(found, found.footer_key))
        return order

    def _encryption(self, found: FileSummary, target: str) -> EncryptionOrder:
        policy, known = self.policy, found.columns or {}
        partition = partition_values(trailing_partition(target.split("/")[:-1]))
        columns: dict[Path, str | None] = {}
        for path, key in self.wanted.items():
            covered = [leaf for leaf in known if leaf[: len(path)] == path]
            if not covered:
                allowed = ", ".join(map(dotted, known))
                raise PlanError(f"{found.path}: has no column {dotted(path)}; allowed: {allowed}")
            columns.update(dict.fromkeys(covered, KeyTemplate(key).render(partition)))
        lost = sorted(dotted(path) for path, column in known.items() if column.encrypted and path not in columns)
        if lost:
            raise ConfigError(
                f"{found.path}: is encrypted, and these columns of it would lose their keys: {', '.join(lost)}; name "
                "them in --column-keys too, or write plaintext with --decrypt"
            )
        prefix = identity_of_write(target, target=None, table_uuid=None, partition=None).to_aad_prefix()
        return EncryptionOrder(
            policy.footer_key, policy.footer_mode, policy.algorithm, columns, prefix, self._key_values()
        )

    def _as_it_is(self, found: FileSummary, footer_key: str) -> EncryptionOrder:
        """Return the order by which a file keeps all but the wrapping of its data keys."""
        encrypted = {path: column.key_id for path, column in (found.columns or {}).items() if column.encrypted}
        mode: Literal["encrypted", "plaintext"] = "encrypted" if found.footer == "encrypted" else "plaintext"
        algorithm = found.algorithm or self.policy.algorithm
        return EncryptionOrder(footer_key, mode, algorithm, encrypted, found.aad_prefix or b"", self._key_values())

    def _key_values(self) -> dict[str, str]:
        return {names.POLICY_DIGEST: self.policy.digest()}


def shared_keks(orders: Iterable[FileOrder], policy: Policy) -> tuple[WrappedKek, ...]:
    """Return one new KEK for each master key, so that readers ask the key service once for all files.

    Raises:
        KeyServiceError: one could not be wrapped.
    """
    encryptions = [order.encryption for order in orders if order.encryption is not None]
    masters = {key for one in encryptions for key in (one.footer_key, *one.columns.values()) if key is not None}
    maker = DataKeyMaker(open_key_service(policy.key_service), data_key_bits=policy.data_key_bits)
    for key in sorted(masters):
        maker.make(key, is_footer_key=False)
    return maker.wrapped_keks()

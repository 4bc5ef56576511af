"""Opens a store that may be used: one of this table and generation, whole, and encrypted as the policy has it.

A store says which files a query leaves out, so whoever could write one could make rows vanish.  Every file must be in
the sidecar, with its length and file-unique; every byte must be authenticated by the footer's key or a column's; and an
index is used only under the key that its column is to have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO

from sparkcrypt.errors import FormatError, StorageError, VerificationError
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.names import AES_GCM_V1
from sparkcrypt.parquet.file.columns import ColumnCrypto
from sparkcrypt.parquet.file.footer import Footer
from sparkcrypt.parquet.file.keys import RetrieveKey
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import join_dotted
from sparkcrypt.skipping.format.description import Index
from sparkcrypt.skipping.format.merge import Store, merge_parts
from sparkcrypt.skipping.format.naming import field_name
from sparkcrypt.skipping.format.store import IndexEntries, StoreFile, StorePart, read_part
from sparkcrypt.skipping.format.values import Budget
from sparkcrypt.skipping.trusted.folder import StoreFolder
from sparkcrypt.skipping.trusted.sidecar import MAX_BYTES, SIDECAR, Sidecar, open_sidecar
from sparkcrypt.skipping.trusted.write import StoreIdentity

OTHER_KEY = "it is under another key than its column is to have; index the table again"
_AGAIN = "it is not used; index the table again"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a store must be.

    Attributes:
        table_uuid: of the table; None of a bare folder.
        footer_keys: master keys that may be the footer's: the policy's, and those of its history.
        column_keys: column -> the master key that its indexes must be under; other columns' are under a footer key.
            None takes the keys that the store's own labels name, for those who keep it and compare them with the files.
        generation: the one that was written last, where that is kept elsewhere; a later one is a store whose writer was
            killed before he noted it.  None takes any.
    """

    table_uuid: str | None
    footer_keys: tuple[str, ...]
    column_keys: Mapping[str, str] | None
    generation: int | None = None

    @classmethod
    def of(
        cls,
        policy: Policy,
        table_uuid: str | None,
        column_keys: Mapping[str, str] | None,
        generation: int | None = None,
    ) -> Expected:
        """Return what a policy makes one expect."""
        return cls(table_uuid, (policy.footer_key, *policy.footer_key_history), column_keys, generation)


@dataclass(frozen=True, slots=True)
class TrustedStore:
    """A store that may be used, and what its objects were when they were indexed."""

    store: Store
    sidecar: Sidecar


def open_store(
    folder: StoreFolder, retrieve_key: RetrieveKey, expected: Expected, *, budget: Budget | None = None
) -> TrustedStore:
    """Open a store that sparkcrypt wrote.

    Args:
        folder: where it is.
        retrieve_key: asked for data keys.  An index whose key it denies is left out.
        expected: what the store must be.
        budget: what its columns may take.

    Raises:
        FormatError: there is no store, or it is damaged.
        VerificationError: it is of another table, an older one, forged, cut, or in clear.
        KeyServiceError: the footer's key is denied, or the key service cannot be reached.
    """
    sidecar = open_manifest(folder, retrieve_key, expected)
    identity, limits = StoreIdentity(sidecar.table_uuid, sidecar.generation), budget or Budget()
    parts: list[StorePart] = []
    for name, (length, unique) in sidecar.files.items():
        part = read_part(
            StoreFile(name, partial(_open_part, folder, name)),
            retrieve_key=retrieve_key,
            verify_aad=partial(_check_prefix, name, identity.aad_prefix(name)),
            check_footer=partial(_check_footer, name, unique, expected),
            budget=limits,
        )
        if part.size != length:
            raise VerificationError(f"{folder.uri}/{name}: has {part.size} bytes, and had {length}; {_AGAIN}")
        parts.append(part)
    store = merge_parts(parts)
    if store is None or not set(store.objects) <= sidecar.objects.keys() or store.repeated:
        raise VerificationError(f"{folder.uri}: its objects are not those of its sidecar; {_AGAIN}")
    checked = tuple(_check_index(index, parts, expected) for index in store.indexes)
    return TrustedStore(replace(store, indexes=checked), sidecar)


def open_manifest(folder: StoreFolder, retrieve_key: RetrieveKey, expected: Expected) -> Sidecar:
    """Open a store's sidecar alone, which says what its objects were; as `open_store`, and no file of it is read."""
    sidecar = open_sidecar(_sidecar_bytes(folder), retrieve_key, expected.footer_keys.__contains__)
    _check_identity(folder, sidecar, expected)
    return sidecar


def _sidecar_bytes(folder: StoreFolder) -> bytes:
    try:
        with folder.open(SIDECAR) as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FormatError(
            f"{folder.uri}/{SIDECAR}: cannot be read ({error.strerror or error}); a store without it is "
            "shown, not used: index the table with sparkcrypt"
        ) from error


def _open_part(folder: StoreFolder, name: str) -> AbstractContextManager[BinaryIO]:
    try:
        return folder.open(name)
    except FileNotFoundError as error:
        raise VerificationError(f"{folder.uri}/{name}: is gone, and the sidecar names it; {_AGAIN}") from error
    except OSError as error:
        raise StorageError(
            f"{folder.uri}/{name}: cannot be read ({error.strerror or error}); see that its storage lets you read"
        ) from error


def _check_identity(folder: StoreFolder, sidecar: Sidecar, expected: Expected) -> None:
    if sidecar.table_uuid != expected.table_uuid:
        raise VerificationError(
            f"{folder.uri}: is the store of table {sidecar.table_uuid}, not of {expected.table_uuid}; {_AGAIN}"
        )
    if expected.generation is not None and sidecar.generation < expected.generation:
        raise VerificationError(
            f"{folder.uri}: is of generation {sidecar.generation}, and {expected.generation} was written last; {_AGAIN}"
        )


def _check_prefix(name: str, wanted: bytes, prefix: bytes) -> None:
    if prefix != wanted:
        raise VerificationError(f"{name}: was written as another file, table or generation of a store; {_AGAIN}")


def _check_footer(name: str, unique: str, expected: Expected, footer: Footer) -> None:
    if footer.mode != "encrypted" or footer.algorithm != AES_GCM_V1 or not footer.footer_authenticated:
        raise VerificationError(
            f"{name}: is {footer.mode} under {footer.algorithm}; expected all of it under {AES_GCM_V1}; {_AGAIN}"
        )
    if (footer.aad_file_unique or b"").hex() != unique:
        raise VerificationError(f"{name}: is another file than the sidecar names; {_AGAIN}")
    if _master_key(footer.footer_key_metadata) not in expected.footer_keys:
        raise VerificationError(f"{name}: its footer is under a master key that the policy does not name; {_AGAIN}")
    for column in footer.columns or ():
        if column.encrypted is False:
            raise VerificationError(f"{name}: column {join_dotted(column.path)} is in clear; {_AGAIN}")


def _check_index(entries: IndexEntries, parts: list[StorePart], expected: Expected) -> IndexEntries:
    """Return an index, without its entries where it is not under its column's key or not in its own field."""
    if entries.unused is not None:
        return entries
    (column,) = entries.index.columns
    if entries.index.field != field_name(entries.index.columns, entries.index.kind):
        return IndexEntries(entries.index, unused="its field is named after another column")
    own = key_of(entries.index) if expected.column_keys is None else expected.column_keys.get(column)
    held = [leaf for part in parts for leaf in part.footer.columns or () if leaf.path[0] == entries.index.field]
    right: Callable[[ColumnCrypto], bool] = (
        (lambda leaf: not leaf.own_key)
        if own is None or own in expected.footer_keys
        else (lambda leaf: leaf.encrypted is None or (leaf.own_key and _master_key(leaf.key_metadata) == own))
    )
    return entries if all(map(right, held)) else IndexEntries(entries.index, unused=OTHER_KEY)


def key_of(index: Index) -> str | None:
    """Return the master key that an index's label names."""
    return None if index.key is None else decode_key_id(index.key)


def _master_key(key_metadata: bytes | None) -> str:
    return parse_key_material(key_metadata or b"").master_key_id

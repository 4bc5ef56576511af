"""Opens a store after checking that it is complete, of this table and generation, and encrypted as the policy requires.

A store decides which files a query skips, so a forged store could hide rows.  Therefore every file must be in the
sidecar, with its length and file-unique; every byte must be authenticated by the footer's key or a column's; and an
index is used only if it is under the key that its column must have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import BinaryIO

from sparkcrypt.errors import FormatError, StorageError, VerificationError
from sparkcrypt.files.parquet.file.footer import ColumnCrypto, Footer
from sparkcrypt.files.parquet.file.modules import RetrieveKey
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.names import AES_GCM_V1
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import join_dotted
from sparkcrypt.skipping.format.description import Index, field_name
from sparkcrypt.skipping.format.store import (
    IndexEntries,
    Store,
    StorePart,
    merge_parts,
    read_part,
    with_rows,
)
from sparkcrypt.skipping.format.values import Budget, part_budget
from sparkcrypt.skipping.trusted.folder import StoreFolder
from sparkcrypt.skipping.trusted.sidecar import MAX_BYTES, SIDECAR, Sidecar, StoreIdentity, open_sidecar

OTHER_KEY = "it is under another key than its column is to have; index the table again"
_AGAIN = "it is not used; index the table again"


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected identity and keys of a store.

    Attributes:
        table_uuid: the table's UUID; None for a bare folder.
        footer_keys: allowed master keys of the footer: the policy's, and those of its history.
        column_keys: column -> the master key that its indexes must be under; indexes of other columns must be under a
            footer key.  None accepts the keys in the store's own labels, for maintenance that compares them with the
            files.
        generation: the last written generation, if it is recorded elsewhere.  A later one is accepted too, since its
            writer may have been killed before recording it.  None accepts any.
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
        """Return the expectations for a store under a policy."""
        return cls(table_uuid, (policy.footer_key, *policy.footer_key_history), column_keys, generation)


@dataclass(frozen=True, slots=True)
class PartIdentity:
    """The identity of a store's file in the authenticated sidecar, with which another process can verify the file.

    Attributes:
        table_uuid: the table's UUID; None for a bare folder.
        generation: the store's generation.
        name: the file's name.
        length: the file's length in bytes.
        unique: the file's file-unique in hexadecimal.
        objects: `digest_names` of the objects of its rows.
    """

    table_uuid: str | None
    generation: int
    name: str
    length: int
    unique: str
    objects: str


@dataclass(frozen=True, slots=True)
class TrustedStore:
    """A store that passed all checks, and its sidecar.

    Attributes:
        store: the store's content; without rows if it is read part by part.
        sidecar: the store's manifest.
        read: reads the parts if ``store`` has no rows, else None.
    """

    store: Store
    sidecar: Sidecar
    read: Callable[[], Iterator[Store]] | None = None

    def parts(self) -> Iterator[Store]:
        """Yield the store's content, one part at a time.

        Raises:
            As `read_store`.
        """
        return iter((self.store,)) if self.read is None else self.read()


def read_store(
    folder: StoreFolder, sidecar: Sidecar, retrieve_key: RetrieveKey, expected: Expected, budget: Budget
) -> TrustedStore:
    """Read a store that sparkcrypt wrote as a whole, given its opened sidecar.

    Args:
        folder: the store's folder.
        sidecar: its opened sidecar.
        retrieve_key: returns data keys.  An index whose key is denied has no entries.
        expected: the expected identity and keys.
        budget: the limits for its columns.

    Raises:
        FormatError: there is no store, it is damaged, or it exceeds the budget.
        VerificationError: it belongs to another table, is older than expected, forged, incomplete, or not encrypted.
        KeyServiceError: the footer's key is denied, or the key service cannot be reached.
    """
    parts = [open_part(folder, part, retrieve_key, expected, budget) for part in list_parts(sidecar)]
    return TrustedStore(_merge_known(folder, parts, sidecar), sidecar)


def open_parts(folder: StoreFolder, retrieve_key: RetrieveKey, expected: Expected) -> TrustedStore:
    """Open a store that sparkcrypt wrote, of any size; its ``parts`` reads the parts one by one.

    Raises:
        As `read_store`; errors of a part are raised when it is read.
    """
    sidecar = open_manifest(folder, retrieve_key, expected)
    read = partial(_read_part, folder, retrieve_key, expected, sidecar)
    identities = list_parts(sidecar)
    shape = with_rows(read(identities[0]), ())
    return TrustedStore(shape, sidecar, partial(_read_parts, folder, shape, identities, read))


def list_parts(sidecar: Sidecar) -> tuple[PartIdentity, ...]:
    """Return the identities of a store's files, in the sidecar's order.

    Raises:
        FormatError: there is no file.
    """
    if not sidecar.files:
        raise FormatError(f"{SIDECAR}: names no file of the store; expected one or more")
    names = iter(sidecar.objects)
    return tuple(
        PartIdentity(
            sidecar.table_uuid,
            sidecar.generation,
            name,
            length,
            unique,
            digest_names(islice(names, sidecar.sizes[name].rows)),
        )
        for name, (length, unique) in sidecar.files.items()
    )


def digest_names(names: Iterable[str]) -> str:
    """Return a digest of a sequence of objects: SHA-256 of their names, each after its length, in hexadecimal."""
    found = hashlib.sha256()
    for name in names:
        text = name.encode("utf-8", "surrogatepass")
        found.update(len(text).to_bytes(4, "big") + text)
    return found.hexdigest()


def open_part(
    folder: StoreFolder, part: PartIdentity, retrieve_key: RetrieveKey, expected: Expected, budget: Budget
) -> StorePart:
    """Read one file of a store that sparkcrypt wrote, and verify its identity.

    Args:
        folder: the store's folder.
        part: the file's identity.
        retrieve_key: returns data keys.  An index whose key is denied has no entries.
        expected: the expected keys; table and generation are those of the part.
        budget: the limits for its columns.

    Raises:
        As `read_store`.
    """
    name, prefix = part.name, StoreIdentity(part.table_uuid, part.generation).aad_prefix(part.name)
    found = read_part(
        name,
        partial(_open_file, folder, name),
        retrieve_key=retrieve_key,
        verify_aad=partial(_check_prefix, name, prefix),
        check_footer=partial(_check_footer, name, part.unique, expected),
        budget=budget,
    )
    if found.size != part.length:
        raise VerificationError(f"{folder.uri}/{name}: has {found.size} bytes, and had {part.length}; {_AGAIN}")
    if digest_names(found.objects) != part.objects:
        raise _other_objects(folder)
    return replace(found, indexes=tuple([_check_index(held, found, expected) for held in found.indexes]))


def _read_part(
    folder: StoreFolder, retrieve_key: RetrieveKey, expected: Expected, sidecar: Sidecar, part: PartIdentity
) -> Store:
    return _merge_known(folder, [open_part(folder, part, retrieve_key, expected, part_budget())], sidecar)


def _read_parts(
    folder: StoreFolder, shape: Store, identities: Sequence[PartIdentity], read: Callable[[PartIdentity], Store]
) -> Iterator[Store]:
    for identity in identities:
        store = read(identity)
        if with_rows(store, ()) != shape:
            raise VerificationError(f"{folder.uri}/{identity.name}: does not go with the other files of it; {_AGAIN}")
        yield store


def _merge_known(folder: StoreFolder, parts: Sequence[StorePart], sidecar: Sidecar) -> Store:
    store = merge_parts(parts)
    if store is None or not set(store.objects) <= sidecar.objects.keys() or store.repeated:
        raise _other_objects(folder)
    return store


def _other_objects(folder: StoreFolder) -> VerificationError:
    return VerificationError(f"{folder.uri}: its objects are not those of its sidecar; {_AGAIN}")


def open_manifest(folder: StoreFolder, retrieve_key: RetrieveKey, expected: Expected) -> Sidecar:
    """Open only a store's sidecar, without reading a file of the store; as `read_store`."""
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


def _open_file(folder: StoreFolder, name: str) -> AbstractContextManager[BinaryIO]:
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


def _check_index(entries: IndexEntries, part: StorePart, expected: Expected) -> IndexEntries:
    """Return an index; without its entries if it is not under its column's key or not in its own field."""
    if entries.unused is not None:
        return entries
    (column,) = entries.index.columns
    if entries.index.field != field_name(entries.index.columns, entries.index.kind):
        return IndexEntries(entries.index, unused="its field is named after another column")
    own = key_of(entries.index) if expected.column_keys is None else expected.column_keys.get(column)
    held = [leaf for leaf in part.footer.columns or () if leaf.path[0] == entries.index.field]
    right: Callable[[ColumnCrypto], bool] = (
        (lambda leaf: not leaf.own_key)
        if own is None or own in expected.footer_keys
        else (lambda leaf: leaf.encrypted is None or (leaf.own_key and _master_key(leaf.key_metadata) == own))
    )
    return entries if all(map(right, held)) else IndexEntries(entries.index, unused=OTHER_KEY)


def key_of(index: Index) -> str | None:
    """Return the master key in an index's label, or None if it has no label."""
    return None if index.key is None else decode_key_id(index.key)


def _master_key(key_metadata: bytes | None) -> str:
    return parse_key_material(key_metadata or b"").master_key_id

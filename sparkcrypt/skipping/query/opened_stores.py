"""A cache of the stores that a process has opened for queries, with limits of bytes and age.

Of a store above the limit only the sidecar is opened; tasks then judge its parts, one at a time (`judge_part`).
"""

from __future__ import annotations

import hashlib
import threading
import time
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice

from sparkcrypt.errors import FormatError, SparkcryptError
from sparkcrypt.files.parquet import RetrieveKey
from sparkcrypt.skipping.format.decode_chunk import Budget
from sparkcrypt.skipping.format.merge import Store
from sparkcrypt.skipping.format.naming import object_name
from sparkcrypt.skipping.query.skipper import Listed, Skipper
from sparkcrypt.skipping.trusted.folder import StoreFolder
from sparkcrypt.skipping.trusted.sidecar import MAX_BYTES, SIDECAR, Sidecar
from sparkcrypt.skipping.trusted.trust import (
    Expected,
    PartIdentity,
    TrustedStore,
    list_parts,
    open_manifest,
    read_store,
)

MOST_BYTES = 512 * 1024 * 1024
"""Limit of memory for all cached stores together, and for a single one."""
LIFETIME_SECONDS = 600.0
"""Time for which a store, with values under its keys, stays cached; rights to the keys are checked in each query."""
_VALUE_BYTES = 200
"""Approximate memory of an entry of an index in Python."""
_ROW_BYTES = 200
"""Approximate memory of an object's name, row and length in Python, in addition to the name's characters."""
_MOST_TABLES = 10_000


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader of a store, and the checks that the store must pass.

    Attributes:
        credential: identifies the credential whose keys open the store (`sparkcrypt.keys.opened.access_token`).
        expected: the expected identity and keys of the store.
        types: column -> its Spark type in the table.
        retrieve_key: opens data keys.
    """

    credential: str
    expected: Expected
    types: Mapping[str, str]
    retrieve_key: RetrieveKey = field(repr=False)


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """A store that was read as a whole.

    Attributes:
        skipper: finds files that need not be opened.
        generation: the store's generation.
        unused: index (``column kind``) -> reason why it is not used.
    """

    skipper: Skipper
    generation: int
    unused: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part of a store: its identity, and its range of rows in the whole store."""

    identity: PartIdentity
    first: int
    rows: int


class PartedStore:
    """A store that is too large to be read as a whole: a map from files to rows of its parts.

    Args:
        sidecar: the store's sidecar, with the sizes of its parts.
    """

    def __init__(self, sidecar: Sidecar) -> None:
        self.generation = sidecar.generation
        sizes = [size.rows for size in sidecar.sizes.values()]
        firsts = [0, *accumulate(sizes)]
        self._parts = tuple(map(StoredPart, list_parts(sidecar), firsts, sizes))
        self._rows = {name: row for row, name in enumerate(islice(sidecar.objects, firsts[-1]))}
        self._lengths = array("q", [facts.length for facts in islice(sidecar.objects.values(), firsts[-1])])

    @property
    def bytes(self) -> int:
        """The approximate memory that it takes in Python."""
        return sum(map(len, self._rows)) + _ROW_BYTES * len(self._rows)

    def row_of(self, file: Listed) -> int:
        """Return the row of a listed file's object, by name, modification time and length; -1 if there is none."""
        row = self._rows.get(object_name(file.path, file.modified_ms), -1)
        return row if row >= 0 and self._lengths[row] == file.length else -1

    def parts_of(self, rows: Iterable[int]) -> Iterator[StoredPart]:
        """Return the parts that contain any of these rows."""
        wanted, ends = set(rows), [part.first + part.rows for part in self._parts]
        numbers = {bisect_right(ends, row) for row in wanted if row >= 0}
        return (self._parts[number] for number in sorted(numbers))


@dataclass(slots=True)
class _Kept:
    store: OpenedStore | PartedStore
    bytes: int
    made: float


class OpenedStores:
    """A cache that opens stores; thread-safe.

    A store is identified by the digest of its sidecar, so a rewritten store is opened again.  The latest generation
    of each store is remembered, and this process opens no earlier one.
    """

    def __init__(self, *, most_bytes: int = MOST_BYTES, lifetime_seconds: float = LIFETIME_SECONDS) -> None:
        self._most_bytes, self._lifetime_seconds = most_bytes, lifetime_seconds
        self._lock = threading.Lock()
        self._kept: dict[bytes, _Kept] = {}
        self._generations: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"OpenedStores({len(self._kept)} stores)"

    def open(
        self, folder: StoreFolder, reader: Reader, *, lifetime_seconds: float | None = None
    ) -> OpenedStore | PartedStore | None:
        """Return a table's store: a `PartedStore` if it is too large to be read as a whole; None if there is none.

        Args:
            folder: the store's folder.
            reader: the reader.
            lifetime_seconds: maximum age of a cached store that this reader accepts.

        Raises:
            As `read_store`.
        """
        digest = _sidecar_digest(folder)
        if digest is None:
            return None
        lifetime = self._lifetime_seconds if lifetime_seconds is None else min(lifetime_seconds, self._lifetime_seconds)
        key = _cache_key(folder.uri, digest, reader)
        with self._lock:
            kept, latest = self._kept.get(key), self._generations.get(folder.uri, 0)
        if kept is not None and time.monotonic() < kept.made + lifetime and kept.store.generation >= latest:
            return kept.store
        try:
            return self._open(folder, key, reader)
        except SparkcryptError:
            again = _sidecar_digest(folder)
            if again in (None, digest):
                raise
            return self._open(folder, _cache_key(folder.uri, again or digest, reader), reader)  # rewritten meanwhile

    def _open(self, folder: StoreFolder, key: bytes, reader: Reader) -> OpenedStore | PartedStore:
        with self._lock:
            latest = self._generations.get(folder.uri)
        opened, size = self._read(folder, replace(reader, expected=replace(reader.expected, generation=latest)))
        with self._lock:
            self._generations[folder.uri] = max(opened.generation, self._generations.pop(folder.uri, 0))
            self._kept.pop(key, None)
            self._kept[key] = _Kept(opened, size, time.monotonic())
            self._forget()
        return opened

    def _read(self, folder: StoreFolder, reader: Reader) -> tuple[OpenedStore | PartedStore, int]:
        """Return a store and its approximate memory; a store above the limit is not read as a whole."""
        sidecar = open_manifest(folder, reader.retrieve_key, reader.expected)
        if sum(size.bytes + _VALUE_BYTES * size.values for size in sidecar.sizes.values()) > self._most_bytes:
            parted = PartedStore(sidecar)
            return parted, parted.bytes
        budget, whole = Budget(), Budget()
        trusted = read_store(folder, sidecar, reader.retrieve_key, reader.expected, budget)
        size = whole.bytes - budget.bytes + _VALUE_BYTES * (whole.values - budget.values)
        return _prepare_store(trusted, reader.types), size

    def _forget(self) -> None:
        """Remove stores that are too old, then the oldest ones until the rest fits the limit."""
        now = time.monotonic()
        for key in [key for key, kept in self._kept.items() if now >= kept.made + self._lifetime_seconds]:
            del self._kept[key]
        while sum(kept.bytes for kept in self._kept.values()) > self._most_bytes:
            del self._kept[next(iter(self._kept))]
        while len(self._generations) > _MOST_TABLES:
            del self._generations[next(iter(self._generations))]


def _prepare_store(trusted: TrustedStore, types: Mapping[str, str]) -> OpenedStore:
    store = trusted.store
    known = {entries.index.columns[0] for entries in store.indexes if entries.unused is None}
    skipper = Skipper(
        store, trusted.sidecar.objects, {column: kind for column, kind in types.items() if column in known}
    )
    return OpenedStore(skipper, trusted.sidecar.generation, name_unused(store))


def name_unused(store: Store) -> dict[str, str]:
    """Return index (``column kind``) -> reason why it is not used, for unused indexes."""
    return {
        f"{','.join(entries.index.columns)} {entries.index.kind}": entries.unused
        for entries in store.indexes
        if entries.unused is not None
    }


def _sidecar_digest(folder: StoreFolder) -> bytes | None:
    """Return the digest of a store's sidecar, or None if there is no sidecar."""
    with suppress(FileNotFoundError):
        try:
            with folder.open(SIDECAR) as file:
                return hashlib.sha256(file.read(MAX_BYTES + 1)).digest()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise FormatError(
                f"{folder.uri}/{SIDECAR}: cannot be read ({error.strerror or error}); see that its storage lets you "
                "read"
            ) from error
    return None


def _cache_key(uri: str, digest: bytes, reader: Reader) -> bytes:
    parts = (
        uri,
        digest.hex(),
        reader.credential,
        str(reader.expected.table_uuid),
        repr(reader.expected.footer_keys),
        repr(sorted((reader.expected.column_keys or {}).items())),
        repr(sorted(reader.types.items())),
    )
    return hashlib.sha256("\n".join(parts).encode()).digest()

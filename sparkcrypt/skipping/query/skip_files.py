"""Determines, when a query is planned, which of a table's listed files it need not open, with the table's store.

A file is kept unless its exclusion is certain.  A query that reads a column whose key is denied gets all files, so that
it fails with the same refusal as without a store.

A process keeps the stores that it has opened, with limits of bytes and age.  Of a store that is too large for that only
the sidecar is kept, and its parts are judged one at a time: each task of a query requests that for another part, whose
identity it has from the driver's helper.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import accumulate, islice
from typing import Any

from sparkcrypt.decide.context import TableContext, context_of_request, require_text, require_texts
from sparkcrypt.decide.denied import plan_leaves, wrapped_keks
from sparkcrypt.errors import BridgeError, FormatError, PlanError, SparkcryptError
from sparkcrypt.files.parquet import KeyRequest, RetrieveKey
from sparkcrypt.keys.access_decisions import KeyDecisions
from sparkcrypt.keys.datakeys import DataKeyOpener
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.opened import OpenedKeyService, access_token
from sparkcrypt.paths import partition_values, trailing_partition
from sparkcrypt.plan import ColumnPlan
from sparkcrypt.skipping.format.description import object_name
from sparkcrypt.skipping.format.store import Store, merge_parts
from sparkcrypt.skipping.format.values import Budget, part_budget
from sparkcrypt.skipping.query.skipper import Listed, Predicate, Skipper, read_predicate
from sparkcrypt.skipping.trusted.folder import NO_LOCATION, StoreFolder, open_folder
from sparkcrypt.skipping.trusted.sidecar import MAX_BYTES, SIDECAR, Sidecar
from sparkcrypt.skipping.trusted.trust import (
    Expected,
    PartIdentity,
    TrustedStore,
    list_parts,
    open_manifest,
    open_part,
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


class PartedStore:
    """A store that is too large to be read as a whole: a map from files to rows of its parts.

    Args:
        sidecar: the store's sidecar, with the sizes of its parts.
    """

    def __init__(self, sidecar: Sidecar) -> None:
        self.generation = sidecar.generation
        sizes = [size.rows for size in sidecar.sizes.values()]
        firsts = [0, *accumulate(sizes)]
        self._parts, self._ends = tuple(zip(firsts, list_parts(sidecar))), firsts[1:]  # noqa: B905  # one end more
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

    def parts_of(self, rows: Iterable[int]) -> Iterator[tuple[int, PartIdentity]]:
        """Return the parts that contain any of these rows, each after the number of its first row."""
        numbers = {bisect_right(self._ends, row) for row in rows if row >= 0}
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


_PLAINTEXT = "plaintext"


def skip_files(
    request: Mapping[str, Any],
    service: OpenedKeyService,
    stores: OpenedStores,
    *,
    lifetime_seconds: float | None = None,
) -> dict[str, Any]:
    """Decide which files a query need not open.

    Args:
        request: ``policy``, ``path`` (of the table), ``properties``, ``schema`` (Spark schema JSON without partition
            columns), ``types`` (column -> Spark type, for the columns of the predicate), ``read`` (columns that the
            query reads), ``predicate`` (`read_predicate`), ``folders`` (paths), ``files`` (for each: number of its
            folder, name, modification time in milliseconds and length), ``key_metadata`` (of some columns of some
            files, base64).
        service: the policy's key service.
        stores: the stores that this process has opened.
        lifetime_seconds: maximum age of opened keys that this session accepts.

    Returns:
        ``skipped``: numbers of the files to skip, in order; ``by``: index -> number of them that it excluded;
        ``unused``: index -> reason why it is not used; ``store`` and ``generation``; ``why``: reason why no store was
        consulted, else None; ``undecided``: ids of keys whose access cannot be decided without a key that they wrapped;
        nothing is skipped then; ``parts``: for a store that is too large to be kept open, the parts for `judge_part`,
        each with its ``part`` and the number of its ``first`` row; ``rows``: in that case the row of each file, or -1.

    Raises:
        SparkcryptError: the store cannot be used, or access to a key cannot be checked.
    """
    context, files, types = context_of_request(request), _listed_files(request), column_types(request)
    folder = _find_folder(context)
    if isinstance(folder, str):
        return _keep_all(folder)
    plan = plan_leaves(context, require_text(request, "schema"))
    undecided, why = _find_denied(request, context, plan, files, service.decisions)
    if undecided or why is not None:
        return _keep_all(why, undecided)
    credential = access_token(context.policy.key_service, service.service)
    retrieve = partial(retrieve_key, service.opener, lifetime_seconds)
    reader = Reader(credential, _expect(context, plan), types, retrieve)
    opened = stores.open(folder, reader, lifetime_seconds=lifetime_seconds)
    if opened is None:
        return _keep_all(f"there is no index at {folder.uri}; make one with `sparkcrypt index create`")
    predicate = read_predicate(request.get("predicate"), types)
    found = _list_rows(opened, files) if isinstance(opened, PartedStore) else _select(opened, files, predicate)
    return {**_keep_all(None), **found, "store": folder.uri, "generation": opened.generation}


def _select(opened: OpenedStore, files: Sequence[Listed], predicate: Predicate) -> dict[str, Any]:
    named = list(opened.skipper.name_indexes(files, predicate))
    skipped = [number for number, names in enumerate(named) if names is not None]
    by = Counter(" and ".join(names) for names in named if names is not None)
    return {"skipped": skipped, "by": dict(by), "unused": dict(opened.unused)}


def _list_rows(opened: PartedStore, files: Sequence[Listed]) -> dict[str, Any]:
    """Return the row of each file in the store, and the parts that contain these rows."""
    rows = [opened.row_of(file) for file in files]
    parts = [{"first": first, "part": asdict(part)} for first, part in opened.parts_of(rows)]
    return {"rows": rows, "parts": parts}


def _keep_all(why: str | None, undecided: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "skipped": [],
        "by": {},
        "unused": {},
        "why": why,
        "undecided": list(undecided),
        "store": None,
        "generation": None,
        "parts": [],
        "rows": [],
    }


def _find_denied(
    request: Mapping[str, Any],
    context: TableContext,
    plan: Sequence[ColumnPlan],
    files: Sequence[Listed],
    decisions: KeyDecisions,
) -> tuple[list[str], str | None]:
    """Return the keys whose access is undecided, and the reason to keep all files if a key that is read is denied."""
    read = frozenset(require_texts(request, "read"))
    keys: dict[str, str] = {context.policy.footer_key: "the footer"}
    for column in plan:
        if column.leaf.logical[0] in read:
            for key_id in _keys_of(column, files):
                keys.setdefault(key_id, f"column {column.leaf.dotted}")
    found = decisions.decide(keys, wrapped_keks(request))
    denied = [key_id for key_id, decision in found.items() if decision != "allowed"]
    if denied:
        return [], f"{keys[denied[0]]} is under key {denied[0]!r}, which is {found[denied[0]]}, so files decide"
    return [key_id for key_id in keys if key_id not in found and key_id != context.policy.footer_key], None


def _keys_of(column: ColumnPlan, files: Sequence[Listed]) -> Iterator[str]:
    """Yield the keys that may encrypt a column in files; partitions whose values yield no key are left out."""
    yield from (decode_key_id(key_id) for key_id in column.history if key_id != _PLAINTEXT)
    if column.key is None:
        return
    if not column.key.columns:
        yield column.key.text
        return
    for folder in {file.path.rpartition("/")[0] for file in files}:
        try:
            yield column.key.render(partition_values(trailing_partition(folder.split("/"))))
        except PlanError:
            continue


def _listed_files(request: Mapping[str, Any]) -> list[Listed]:
    folders = require_texts(request, "folders")
    try:
        return [
            Listed(f"{folders[folder]}/{name}", int(modified), int(length))
            for folder, name, modified, length in request["files"]
        ]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise BridgeError(
            "the request's 'files' are not as expected; the jar and this helper do not belong together"
        ) from error


def judge_part(
    request: Mapping[str, Any], service: OpenedKeyService, *, lifetime_seconds: float | None = None
) -> dict[str, Any]:
    """Decide which objects of one part of a store a query need not open.

    Args:
        request: as for `skip_files` without ``folders`` and ``files``, and with ``part`` from its answer.
        service: the policy's key service.
        lifetime_seconds: maximum age of opened keys that this session accepts.

    Returns:
        ``rows``: index -> the base64 of a bitmap; its bit *n*, counted from the lowest of the first byte, is set if by
        this index no row of the object in row *n* can match; ``unused``: index -> reason why it is not used.

    Raises:
        SparkcryptError: the part is not the one in the store's sidecar, or cannot be read.
    """
    context, part, types = context_of_request(request), _unpack_part(request.get("part")), column_types(request)
    folder = _find_folder(context)
    if isinstance(folder, str):
        raise BridgeError(f"a part of a store is asked for, and {folder}")
    expected = _expect(context, plan_leaves(context, require_text(request, "schema")))
    if part.table_uuid != expected.table_uuid:
        raise BridgeError("a part of another table's store is asked for; ask for those of the table that is read")
    retrieve = partial(retrieve_key, service.opener, lifetime_seconds)
    store = merge_parts([open_part(folder, part, retrieve, expected, part_budget())])
    if store is None:  # unreachable: a footer whose key is denied was refused above
        raise BridgeError(f"{part.name}: was read without keys")
    predicate, bitmaps = read_predicate(request.get("predicate"), types), dict[str, bytearray]()
    for row, names in enumerate(Skipper(store, {}, types).name_rows(predicate)):
        if names is not None:
            bitmap = bitmaps.setdefault(" and ".join(names), bytearray((len(store.objects) + 7) // 8))
            bitmap[row >> 3] |= 1 << (row & 7)
    rows = {index: base64.b64encode(bitmap).decode() for index, bitmap in bitmaps.items()}
    return {"rows": rows, "unused": name_unused(store)}


def _unpack_part(packed: Any) -> PartIdentity:
    try:
        part = PartIdentity(**packed)
        texts = (part.name, part.unique, part.objects, part.table_uuid)
        if not all(isinstance(text, str) for text in texts) or {type(part.length), type(part.generation)} != {int}:
            raise TypeError
    except TypeError as error:
        raise BridgeError(
            "the request's 'part' is not as expected; the jar and this helper do not belong together"
        ) from error
    return part


def _find_folder(context: TableContext) -> StoreFolder | str:
    """Return the folder of a table's store by the policy, or the reason why there is none."""
    location = context.policy.index_location
    if location is None:
        return NO_LOCATION
    if context.uuid is None:
        return "the table has no UUID, by which its index would be found; tag it, or run `encrypt_table`"
    return open_folder(f"{location.rstrip('/')}/{context.uuid}", {})


def _expect(context: TableContext, plan: Sequence[ColumnPlan]) -> Expected:
    """Return the expected identity and keys of a table's store.

    A key template yields another key for each partition, so its text is no key, and such an index is not used.
    """
    keys = {column.leaf.logical[0]: column.key.text for column in plan if column.key and len(column.leaf.logical) == 1}
    return Expected.of(context.policy, context.uuid, keys)


def column_types(request: Mapping[str, Any]) -> dict[str, str]:
    """Return column -> Spark type of a request's ``types``.

    Raises:
        BridgeError: it is no object of strings.
    """
    types = request.get("types")
    if not isinstance(types, dict) or not all(isinstance(kind, str) for kind in types.values()):
        raise BridgeError("the request's 'types' are not as expected; the jar and this helper do not belong together")
    return types


def retrieve_key(opener: DataKeyOpener, lifetime_seconds: float | None, request: KeyRequest) -> bytes:
    """Return a data key of a store, opened with a KEK that is not older than the session accepts."""
    return opener.open(parse_key_material(request.key_metadata or b""), lifetime_seconds=lifetime_seconds)

"""Updates a table's store after a run, with new file names by the run's proof and new keys by its plan; reads no rows.

New and old files with the same rows form pairs, from the evidence of a run's units before their swap: only files that
were rewritten one by one.  Files that Spark's engine rewrote have the same rows only as a whole, and a file with a
purged column has other values than its old file.

A stale store never makes queries wrong: every query opens a file that is not in it.  Errors here therefore do not fail
the run; the report contains that the store is stale, and why.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sparkcrypt.errors import FormatError, SparkcryptError
from sparkcrypt.files.parquet import read_footer
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.evidence import DigestSecret
from sparkcrypt.ledger.journal.unit_status import UnitStatus
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.ledger.unit import SourceFile, by_place, list_folders
from sparkcrypt.paths import is_hidden
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.index.open_index import find_store
from sparkcrypt.runs.index.table_index import planned_keys
from sparkcrypt.runs.table.target import Target
from sparkcrypt.skipping.format.description import object_name
from sparkcrypt.skipping.indexes.build import carry_store
from sparkcrypt.skipping.indexes.files import SETTLED_SECONDS
from sparkcrypt.skipping.indexes.indexed import IndexStore
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts, keyed_digest
from sparkcrypt.skipping.trusted.trust import TrustedStore
from sparkcrypt.skipping.trusted.write import standing_generation
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS, read_java_error

_READERS = 4
_Placed: TypeAlias = "tuple[str, Mapping[str, Any]]"
"""A file's path below its unit, and its evidence in an audit."""


def carry_index(
    target: Target,
    policy: Policy,
    state_store: StateStore,
    files: HadoopFiles,
    units: Iterable[UnitStatus],
    *,
    back: bool,
) -> dict[str, Any] | None:
    """Update the store of a table for the files that a run, or its rollback, has put into use.

    Args:
        target: the table.
        policy: has the folder of stores, and names the keys.
        state_store: the state directory.
        files: the file system.
        units: the statuses of the units that were swapped, by the run's journal.
        back: whether they were rolled back since.

    Returns:
        ``state`` (``carried``, or ``stale``), ``reason`` (why it is stale, else None), ``store``, ``generation``, and
        ``known``: the number of the units' files in it.  None if the table has no store, or no unit was swapped.
    """
    swapped = tuple(units)
    if not swapped:
        return None
    where = f"{policy.index_location}/{target.uuid}"
    try:
        store = find_store(policy, target.uuid, state_store)
        if store is None:
            return None
        where = store.folder.uri
        if standing_generation(store.folder) is None:
            return None
        return _carry(store, target, files, list_replaced(files, store.service, swapped, back=back))
    except (SparkcryptError, OSError) as error:
        return _describe(where, None, 0, f"{type(error).__name__}: {error}")
    except JVM_ERRORS as error:
        return _describe(where, None, 0, ": ".join(read_java_error(error)))


def explain_stale(table: str, index: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return a warning for the report if a store is stale."""
    if index is None or index["reason"] is None:
        return ()
    return (
        f"{table}: its data-skipping index is stale: {index['reason']}; queries open every file that it does not "
        "know; `sparkcrypt index refresh` makes it known",
    )


def _carry(store: IndexStore, target: Target, files: HadoopFiles, replaced: Replaced) -> dict[str, Any]:
    last = store.record.read()
    opened = store.open(last)
    objects = opened.sidecar.objects
    there = [found for found in replaced.proven if found.before in objects]
    _wait_until_settled(there)
    renamed = read_objects(files, there, opened.sidecar.digest_key)
    removed = {name for name in replaced.gone if name in objects} - renamed.keys()
    current, generation = store.keys_of(opened), opened.sidecar.generation
    keys = store.make_keys(planned_keys(target.plan, opened.store, current))
    in_order = keys.columns == current and not _has_leftovers(store, opened)
    if renamed or removed or not in_order:
        written = carry_store(store.folder, opened, renamed, removed, keys, generation=last)
        objects, generation = written.objects, written.generation
    store.record.keep(generation)
    names = [found.name for found in replaced.proven]
    count = sum(name in objects for name in names)
    unknown = len(names) + len(replaced.others) - count
    why = None if unknown == 0 else _explain_unknown(unknown, len(names) + len(replaced.others))
    return _describe(store.folder.uri, generation, count, why)


def _has_leftovers(store: IndexStore, opened: TrustedStore) -> bool:
    """Return whether a killed writer left files beside the store, which may be under a column's former key."""
    there = (name for name in store.folder.names() if not is_hidden(name))
    return any(name not in opened.sidecar.files for name in there)


def _explain_unknown(unknown: int, total: int) -> str:
    return (
        f"it does not know {unknown:,} of {total:,} files: their old files were not in it, or no new file was proven "
        "to hold the rows of one old file alone"
    )


def _describe(where: str, generation: int | None, known: int, reason: str | None) -> dict[str, Any]:
    state = "carried" if reason is None else "stale"
    return {"state": state, "reason": reason, "store": where, "generation": generation, "known": known}


def _wait_until_settled(found: Iterable[ProvenFile]) -> None:
    """Wait until files are so old that a file that replaces one would have another modification time."""
    newest = max((proven.file.modified_ms for proven in found), default=0) / 1000
    time.sleep(min(SETTLED_SECONDS, max(0.0, newest + SETTLED_SECONDS - time.time())))


@dataclass(frozen=True, slots=True)
class ProvenFile:
    """A file that a swap or a rollback has put into use.

    Attributes:
        before: the name in a store of the file that had the same rows before.
        file: the file as listed now.
        digest: the digest of its length and footer when it was verified.
        secret: the secret key of that digest.
    """

    before: str
    file: SourceFile
    digest: str
    secret: DigestSecret = field(repr=False)

    @property
    def name(self) -> str:
        """The name of the file in a store."""
        return object_name(self.file.path, self.file.modified_ms)


@dataclass(frozen=True, slots=True)
class Replaced:
    """The replaced and the current files of some units.

    Attributes:
        proven: current files, each paired with the file that had the same rows before.
        gone: names in a store of the files that are no longer in use, including those paired in ``proven``.
        others: paths of current files without a pair.
    """

    proven: tuple[ProvenFile, ...]
    gone: frozenset[str]
    others: tuple[str, ...]


def list_replaced(files: HadoopFiles, service: KeyService, statuses: Iterable[UnitStatus], *, back: bool) -> Replaced:
    """List the current files of swapped units, each with the file that it replaced.

    Args:
        files: the file system.
        service: unwraps the secrets of digests.
        statuses: the statuses of units that were swapped.
        back: whether they were rolled back since, so that old files have replaced new ones.

    Raises:
        SparkcryptError: a folder cannot be listed.
        KeyServiceError: a secret cannot be unwrapped.
    """
    proven: list[ProvenFile] = []
    removed: set[str] = set()
    others: list[str] = []
    secrets: dict[str, DigestSecret] = {}
    for status in statuses:
        before, after = _places(status, back=back)
        there = by_place(after, list_folders(files, after))
        changes = status.evidence.get("changes", ())
        removed |= {
            object_name(f"{before.rstrip('/')}/{place}", int(file["modified_ms"]))
            for change in changes
            for place, file in _files(change, "targets" if back else "sources")
        }
        for (place, file), (old_place, old_file) in _pairs(changes, back=back):
            now = there.pop(place, None)
            if now is None:
                continue
            if (now.length, now.modified_ms) != (int(file["bytes"]), int(file["modified_ms"])):
                others.append(now.path)
                continue
            name = object_name(f"{before.rstrip('/')}/{old_place}", int(old_file["modified_ms"]))
            secret = _open_secret(status.evidence["digests"]["secret"], service, secrets)
            proven.append(ProvenFile(name, now, str(file["digest"]), secret))
        others += [file.path for file in there.values()]
    return Replaced(tuple(proven), frozenset(removed), tuple(others))


def read_objects(
    files: HadoopFiles, proven: Iterable[ProvenFile], digest_key: bytes
) -> dict[str, tuple[str, ObjectFacts]]:
    """Return name of the replaced file -> name and facts of the file that replaced it; one small read for each.

    A file that is not the verified one, or no longer exists, is left out.

    Args:
        files: the file system.
        proven: the files.
        digest_key: the store's key for digests of footers.

    Raises:
        SparkcryptError, OSError: a file cannot be reached.
    """

    def read_object(found: ProvenFile) -> tuple[str, ObjectFacts] | None:
        with suppress(FormatError, FileNotFoundError), files.open(found.file.path) as stream:
            if found.secret.of_file(stream) != found.digest:
                return None
            footer = read_footer(stream)
            stream.seek(footer.offset)
            digest = keyed_digest(digest_key, stream.read(footer.size - footer.offset))
            unique = None if footer.aad_file_unique is None else footer.aad_file_unique.hex()
            return found.name, ObjectFacts(footer.size, unique, digest)
        return None

    wanted = tuple(proven)
    with ThreadPoolExecutor(_READERS) as pool:
        objects = pool.map(read_object, wanted)
        return {found.before: made for found, made in zip(wanted, objects, strict=True) if made is not None}


def _places(status: UnitStatus, *, back: bool) -> tuple[str, str]:
    """Return the folder of a unit's replaced files, and that of the files in use."""
    return (status.new_location, status.location) if back else (status.location, status.new_location)


def _pairs(changes: Iterable[Mapping[str, Any]], *, back: bool) -> Iterator[tuple[_Placed, _Placed]]:
    """Yield each file in use, paired with the replaced file that has the same rows."""
    for change in changes:
        sources, targets = (tuple(_files(change, side)) for side in ("sources", "targets"))
        if "pages" in change and "purged_columns" not in change and len(sources) == len(targets) == 1:
            yield (sources[0], targets[0]) if back else (targets[0], sources[0])


def _files(change: Mapping[str, Any], side: str) -> Iterator[_Placed]:
    """Yield the files of one side of a change, each with its path below its unit."""
    for file in change[side]:
        yield f"{change['folder']}/{str(file['path']).rpartition('/')[2]}".lstrip("/"), file


def _open_secret(record: Mapping[str, str], service: KeyService, known: dict[str, DigestSecret]) -> DigestSecret:
    wrapped, key_id = record["wrapped"], record["key_id"]
    if wrapped not in known:
        known[wrapped] = DigestSecret(key_id, wrapped, service.unwrap(key_id, wrapped))
    return known[wrapped]

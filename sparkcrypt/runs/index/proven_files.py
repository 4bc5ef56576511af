"""Pairs of new and old files with the same rows, from the evidence of a run's units before their swap.

Only files that were rewritten one by one form pairs.  Files that Spark's engine rewrote have the same rows only as a
whole, and a file with a purged column has other values than its old file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet import read_footer
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.evidence import DigestSecret
from sparkcrypt.ledger.journal.unit_status import UnitStatus
from sparkcrypt.ledger.unit import SourceFile, list_folders
from sparkcrypt.ledger.unit_record import by_place
from sparkcrypt.skipping.format.naming import object_name
from sparkcrypt.skipping.indexes.build import NewObject
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts, keyed_digest
from sparkcrypt.spark.files.hadoop import HadoopFiles

_READERS = 4
_Placed: TypeAlias = "tuple[str, Mapping[str, Any]]"
"""A file's path below its unit, and its evidence in an audit."""


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


def read_objects(files: HadoopFiles, proven: Iterable[ProvenFile], digest_key: bytes) -> dict[str, NewObject]:
    """Return name of the replaced file -> the store's facts about the file that replaced it; one small read for each.

    A file that is not the verified one, or no longer exists, is left out.

    Args:
        files: the file system.
        proven: the files.
        digest_key: the store's key for digests of footers.

    Raises:
        SparkcryptError, OSError: a file cannot be reached.
    """

    def read_object(found: ProvenFile) -> NewObject | None:
        with suppress(FormatError, FileNotFoundError), files.open(found.file.path) as stream:
            if found.secret.of_file(stream) != found.digest:
                return None
            footer = read_footer(stream)
            stream.seek(footer.offset)
            digest = keyed_digest(digest_key, stream.read(footer.size - footer.offset))
            unique = None if footer.aad_file_unique is None else footer.aad_file_unique.hex()
            return NewObject(found.name, ObjectFacts(footer.size, unique, digest))
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

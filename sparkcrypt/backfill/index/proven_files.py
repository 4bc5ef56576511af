"""Which new file holds the rows of which old one, by what was proven of a run's units before their swap.

Only files that were rewritten one by one have a pair each.  Of files that Spark's engine wrote anew the rows are
equal as a whole, and nothing says which of them are in which; so too where nulls replaced a column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sparkcrypt.backfill.audit.evidence import DigestSecret
from sparkcrypt.backfill.journal.unit_steps import UnitState
from sparkcrypt.backfill.target.record import by_place
from sparkcrypt.backfill.target.unit import SourceFile, list_folders
from sparkcrypt.errors import FormatError
from sparkcrypt.keys.service import KeyService
from sparkcrypt.parquet import read_footer
from sparkcrypt.skipping.format.naming import object_name
from sparkcrypt.skipping.keep.carry import NewObject
from sparkcrypt.skipping.trusted.sidecar import ObjectFacts, keyed_digest
from sparkcrypt.spark.files.hadoop import HadoopFiles

_READERS = 4
_Placed: TypeAlias = "tuple[str, Mapping[str, Any]]"
"""A file's place below its unit, and what an audit says of it."""


@dataclass(frozen=True, slots=True)
class ProvenFile:
    """A file that a swap or a rollback has put into use.

    Attributes:
        before: what a store calls the file whose rows it holds.
        file: as it is listed now.
        digest: of its length and footer, when it was proven.
        secret: under which that digest was made.
    """

    before: str
    file: SourceFile
    digest: str
    secret: DigestSecret = field(repr=False)

    @property
    def name(self) -> str:
        """What a store calls it."""
        return object_name(self.file.path, self.file.modified_ms)


@dataclass(frozen=True, slots=True)
class Replaced:
    """What became of the files of some units.

    Attributes:
        proven: files that are there, each with the one whose rows it holds.
        gone: what a store calls files that are in use no more, those of ``proven`` included.
        others: paths of files that are there, of which nobody knows whose rows they hold.
    """

    proven: tuple[ProvenFile, ...]
    gone: frozenset[str]
    others: tuple[str, ...]


def list_replaced(files: HadoopFiles, service: KeyService, states: Iterable[UnitState], *, back: bool) -> Replaced:
    """List the files of swapped units as they are now, each with the file that it took the place of.

    Args:
        files: the file system.
        service: opens the secrets of digests.
        states: of units that were swapped.
        back: they were rolled back since, so that old files took the place of new ones.

    Raises:
        SparkcryptError: a folder cannot be listed.
        KeyServiceError: a secret cannot be opened.
    """
    proven: list[ProvenFile] = []
    gone: set[str] = set()
    others: list[str] = []
    secrets: dict[str, DigestSecret] = {}
    for state in states:
        before, after = _places(state, back=back)
        there = by_place(after, list_folders(files, after))
        changes = state.evidence.get("changes", ())
        gone |= {
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
            secret = _open_secret(state.evidence["digests"]["secret"], service, secrets)
            proven.append(ProvenFile(name, now, str(file["digest"]), secret))
        others += [file.path for file in there.values()]
    return Replaced(tuple(proven), frozenset(gone), tuple(others))


def read_objects(files: HadoopFiles, proven: Iterable[ProvenFile], digest_key: bytes) -> dict[str, NewObject]:
    """Return what a store is to say of files, by the names of those whose rows they hold; one small read for each.

    A file that is not the one that was proven is left out, and so is one that is gone.

    Args:
        files: the file system.
        proven: the files.
        digest_key: the store's, under which footers are digested.

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


def _places(state: UnitState, *, back: bool) -> tuple[str, str]:
    """Return where a unit's files were, and where those are that took their place."""
    return (state.new_location, state.location) if back else (state.location, state.new_location)


def _pairs(changes: Iterable[Mapping[str, Any]], *, back: bool) -> Iterator[tuple[_Placed, _Placed]]:
    """Yield each file that is in use now with the file whose rows it holds."""
    for change in changes:
        sources, targets = (tuple(_files(change, side)) for side in ("sources", "targets"))
        if "pages" in change and "purged_columns" not in change and len(sources) == len(targets) == 1:
            yield (sources[0], targets[0]) if back else (targets[0], sources[0])


def _files(change: Mapping[str, Any], side: str) -> Iterator[_Placed]:
    """Yield the files of one side of a change, each with its place below its unit."""
    for file in change[side]:
        yield f"{change['folder']}/{str(file['path']).rpartition('/')[2]}".lstrip("/"), file


def _open_secret(said: Mapping[str, str], service: KeyService, known: dict[str, DigestSecret]) -> DigestSecret:
    wrapped, key_id = said["wrapped"], said["key_id"]
    if wrapped not in known:
        known[wrapped] = DigestSecret(key_id, wrapped, service.unwrap(key_id, wrapped))
    return known[wrapped]

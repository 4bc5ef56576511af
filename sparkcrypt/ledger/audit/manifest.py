"""The list of a table's files in its audit, used to detect deleted, replayed and foreign files.

Nothing in a Parquet file shows that it is the newest version under its name, or that another file should be beside it.
The audit's entries name every file that runs have put into use, with a keyed digest of its length and footer (whose
file-unique value distinguishes versions), or of a whole ORC file; the entries and their order are authenticated.  Where
a writer has replaced all files of a unit since, the entry of the pass that found that names the writer's files.

The list as of one entry is kept, so that a pass need not read the entries before that one:

    cache/listed/<table id>/<number of the entry>.json     version, table_id, number, entry (its SHA-256), units, mac

It has the MAC of the table's audit, and lists names and lengths alone.  One that is not authentic, or is not of an
entry that the audit has, is ignored: then every entry is read.  It also has the files that passes saw beside all listed
ones: they were added, and have replaced nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.audit import (
    ENCRYPT,
    AuditEntry,
    list_entries,
    list_entries_of,
    refuse_damage,
    refuse_gaps,
)
from sparkcrypt.ledger.audit.evidence import DigestSecret
from sparkcrypt.ledger.journal.entries import AuditHead
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import TableMac, open_sealed, seal_record
from sparkcrypt.ledger.state.store import MOST_BYTES, StateStore
from sparkcrypt.ledger.unit import Unit, by_place
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.listing import SourceFile

REPLACED = "replaced"
"""``what`` of the entry that a unit's files were replaced by a writer, or dropped; it lists those that are there."""
GONE, CUT_OFF = "new files are gone", "a swap was cut off"
LISTED_GONE, REPLAYED = "listed files are gone", "earlier files are there again"
"""Kinds of problems: of a run's new files, and of units whose files may not replace those of the list."""
_NONE: Mapping[str, str] = MappingProxyType({})
_SETS = (ENCRYPT, "roll back", REPLACED)
"""Kinds of entries that list all of a unit's files; other kinds add files."""


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One file in the audit; ``secret`` is the record of the secret key of its digest."""

    path: str
    length: int
    digest: str
    secret: Mapping[str, str]


@dataclass(slots=True)
class Manifest:
    """The files that an audit lists, of each unit by its partition path, empty for a table without partitions.

    Attributes:
        listed: partition path -> path below the unit -> file.
        earlier: partition path -> length -> the files of that length that entries name, whether still listed or not.
        runs: partition path -> the last run that put files of the unit into use.
        secret: the record of the secret of the last digests that a pass has made; empty if none has made any.
        beside: partition path -> path below the unit -> length, of files that passes saw beside all listed ones.
        keeps_past: whether digests and ``earlier`` are kept; if not, files have names and lengths alone.
    """

    listed: dict[str, dict[str, ManifestFile]] = field(default_factory=dict)
    earlier: dict[str, dict[int, list[ManifestFile]]] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    secret: Mapping[str, str] = field(default_factory=dict)
    beside: dict[str, dict[str, int]] = field(default_factory=dict)
    keeps_past: bool = True

    @classmethod
    def of(cls, entries: Iterable[AuditEntry]) -> Manifest:
        """Return the files that all entries of an audit list, which are given in their order."""
        manifest = cls()
        for entry in entries:
            manifest.take(entry.entry)
        return manifest

    def take(self, entry: Mapping[str, Any]) -> None:
        """Take one entry of the audit, after all earlier ones."""
        unit, changes = entry.get("unit") or {}, entry.get("changes") or ()
        if entry["what"] == ENCRYPT and not changes:
            return  # its evidence is lost, and a person has given it up
        name = str(unit.get("unit", ""))
        partition = name if "=" in name and "/" not in name.partition("=")[0] else ""
        secret = (entry.get("digests") or {}).get("secret", {})
        old, new = (self._list_files(changes, side, secret) for side in ("sources", "targets"))
        for file in (*old.values(), *new.values()) if self.keeps_past else ():
            self.earlier.setdefault(partition, {}).setdefault(file.length, []).append(file)
        listed = self.listed.get(partition, {})
        if entry["what"] == REPLACED:
            self.secret = secret or self.secret
        elif new:
            self.runs[partition] = str(entry["why"]["run_id"])
        if entry["what"] in _SETS or _is_decided(unit, (LISTED_GONE, REPLAYED), "new"):
            self.beside.pop(partition, None)
            self.listed[partition] = {**(_find_lost(listed, old) if entry["what"] == ENCRYPT else {}), **new}
        elif _is_decided(unit, (GONE,), "new"):
            self.listed[partition] = _leave_out_gone(listed, unit)
        elif entry["what"] == "resolve" and (unit.get("keep") == "old" or _is_decided(unit, (CUT_OFF,), "new")):
            self.listed[partition] = {}  # what is there is right, and the next run lists what it makes of that
        elif new:
            self.listed.setdefault(partition, {}).update(new)

    def _list_files(
        self, changes: Iterable[Mapping[str, Any]], side: str, secret: Mapping[str, str]
    ) -> dict[str, ManifestFile]:
        found: dict[str, ManifestFile] = {}
        for change in changes:
            for file in change[side]:
                place = f"{change['folder']}/{str(file['path']).rpartition('/')[2]}".lstrip("/")
                known = (str(file["path"]), int(file["bytes"]), str(file["digest"]), secret)
                found[place] = ManifestFile(*known) if self.keeps_past else ManifestFile(place, known[1], "", _NONE)
        return found


_Alike: TypeAlias = "tuple[Mapping[str, str], Collection[str]]"
"""The record of a secret, and digests under it."""


def sort_digests(files: Iterable[ManifestFile]) -> Sequence[_Alike]:
    """Return the digests of files, each secret once."""
    found: dict[str, tuple[Mapping[str, str], set[str]]] = {}
    for file in files:
        found.setdefault(file.secret["wrapped"], (file.secret, set()))[1].add(file.digest)
    return tuple(found.values())


class Digests:
    """The digests of files under the secrets of entries; each secret is opened when it is first needed."""

    def __init__(self, files: HadoopFiles, service: KeyService) -> None:
        self._files, self._service = files, service
        self._secrets: dict[str, DigestSecret] = {}
        self._made: dict[tuple[str, str], str | None] = {}

    def are_equal(self, file: SourceFile, known: ManifestFile) -> bool:
        """Tell whether a file is the one that an entry names.

        Raises:
            KeyServiceError: the secret cannot be opened.
        """
        return file.length == known.length and self._make(file.path, known.secret) == known.digest

    def is_among(self, file: SourceFile, alike: Iterable[_Alike]) -> bool:
        """Tell whether a file is one of several of its length, by `sort_digests` of these.

        Raises:
            KeyServiceError: a secret cannot be opened.
        """
        return any(self._make(file.path, secret) in digests for secret, digests in alike)

    def open_secret(self, record: Mapping[str, str]) -> DigestSecret:
        """Return the secret of which an entry has the record.

        Raises:
            KeyServiceError: it cannot be unwrapped.
        """
        wrapped, key_id = record["wrapped"], record["key_id"]
        if wrapped not in self._secrets:
            self._secrets[wrapped] = DigestSecret(key_id, wrapped, self._service.unwrap(key_id, wrapped))
        return self._secrets[wrapped]

    def _make(self, path: str, record: Mapping[str, str]) -> str | None:
        made = (path, record["wrapped"])
        if made not in self._made:
            try:
                with self._files.open(path) as stream:
                    self._made[made] = self.open_secret(record).of_file(stream)
            except FormatError:
                self._made[made] = None
        return self._made[made]


@dataclass(frozen=True, slots=True)
class ManifestCheck(JsonObject):
    """The differences between a table's files and its manifest.

    Attributes:
        files: the number of files in the manifest.
        missing: listed files that do not exist: deleted, or replaced by a writer that overwrote the unit.
        changed: listed files with another length or digest: replayed, or altered.
        unlisted: existing files that are not listed: written since by a legitimate writer, or foreign.
    """

    files: int
    missing: tuple[str, ...]
    changed: tuple[str, ...]
    unlisted: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every listed file exists and is unchanged."""
        return not self.missing and not self.changed


def read_manifest(log: TableLog) -> Manifest:
    """Return the files that the audit in a table's log lists, if all of the log is whole.

    The paths are relative, since a table that was renamed, or moved with all of its files, keeps them.

    Raises:
        VerificationError: the audit was changed or cut.
    """
    refuse_damage(log)
    return Manifest.of(list_entries_of(log))


def check_manifest(digests: Digests, manifest: Manifest, units: Iterable[Unit]) -> ManifestCheck:
    """Compare the current files of units with the manifest; the files of units that no run swapped are unlisted.

    Args:
        digests: of the files.
        manifest: from `read_manifest`.
        units: the units to check; a partition of the manifest that no longer exists is a unit without files.
    """
    missing: list[str] = []
    changed: list[str] = []
    unlisted: list[str] = []
    count = 0
    for unit in units:
        listed_files = dict(manifest.listed.get(unit.partition_path, {}))
        count += len(listed_files)
        for place, file in by_place(unit.location, unit.folders).items():
            listed = listed_files.pop(place, None)
            if listed is None:
                unlisted.append(file.path)
            elif not digests.are_equal(file, listed):
                changed.append(file.path)
        missing.extend(lost.path for lost in listed_files.values())
    return ManifestCheck(count, tuple(missing), tuple(changed), tuple(unlisted))


def _find_lost(listed: Mapping[str, ManifestFile], sources: Mapping[str, ManifestFile]) -> dict[str, ManifestFile]:
    """Return the listed files that a run did not find while it found others of them: nobody has replaced the unit."""
    found = {(place, file.length) for place, file in sources.items()}
    lost = {place: file for place, file in listed.items() if (place, file.length) not in found}
    return {} if len(lost) == len(listed) else lost


def _leave_out_gone(listed: Mapping[str, ManifestFile], unit: Mapping[str, Any]) -> dict[str, ManifestFile]:
    """Return the listed files without those of which a person has said that they should be gone."""
    there = (unit.get("listing") or {}).get("new")
    if there is None:  # the journal of their run was not trusted
        return {place: file for place, file in listed.items() if place not in unit["gone"]}
    kept = {(str(place), int(length)) for place, length in there}
    return {place: file for place, file in listed.items() if (place, file.length) in kept}


def _is_decided(unit: Mapping[str, Any], kinds: tuple[str, ...], keep: str) -> bool:
    """Tell whether an entry is a person's decision on a problem of one of these kinds."""
    return unit.get("kind") in kinds and unit.get("keep") == keep


_VERSION = 1
_PURPOSE = b"sparkcrypt listed files\n"


def read_listed(store: StateStore, log: TableLog, mac: TableMac) -> tuple[Manifest, AuditHead]:
    """Return the files that the audit in a table's log lists, by names and lengths, and its head.

    Only newer entries than those of the list that was kept are taken; no file of the past is known.

    Raises:
        VerificationError: an entry was edited, dropped or moved.
    """
    refuse_gaps(log)
    manifest, known = _find_known(store, log, mac)
    for entry in list_entries_of(log, after=known):
        manifest.take(entry.entry)
    head = AuditHead(*log.head)
    if known != head.number:
        keep_listed(store, log.table_id, mac, manifest, head)
    return manifest, head


def keep_listed(store: StateStore, table_id: str, mac: TableMac, manifest: Manifest, head: AuditHead) -> None:
    """Keep a manifest as of an entry of the audit, in place of what was kept before; one that is too large is not."""
    for name in store.list(f"cache/listed/{table_id}/"):
        store.delete(name)
    if sum(len(place) for files in manifest.listed.values() for place in files) > MOST_BYTES:
        return
    units = {
        partition: {
            "run": manifest.runs.get(partition, ""),
            "files": [[place, file.length] for place, file in sorted(files.items())],
            "beside": sorted(map(list, manifest.beside.get(partition, {}).items())),
        }
        for partition, files in manifest.listed.items()
        if files
    }
    members = {"version": _VERSION, "table_id": table_id, "number": head.number, "entry": head.digest, "units": units}
    content = seal_record(_PURPOSE, members, mac)
    if len(content) <= MOST_BYTES:
        store.create(f"cache/listed/{table_id}/{head.number:08d}.json", content)


def read_every_entry(store: StateStore, table_id: str, mac: TableMac) -> Manifest:
    """Return all that a table's audit has of files, those of the past too.

    Raises:
        VerificationError: an entry was edited, dropped or moved.
    """
    return Manifest.of(list_entries(store, table_id, mac))


def _find_known(store: StateStore, log: TableLog, mac: TableMac) -> tuple[Manifest, int]:
    """Return the last manifest that was kept, and the number of the entry as of which it was; 0 if there is none."""
    for name in sorted(store.list(f"cache/listed/{log.table_id}/"), reverse=True):
        try:
            expected = {"version": _VERSION, "table_id": log.table_id}
            members = open_sealed(_PURPOSE, name, store.read(name) or b"", mac.check, expected)
        except VerificationError:
            continue
        number, manifest = int(members["number"]), Manifest(keeps_past=False)
        record = log.find(number)
        if record is None or (record.number, record.digest) != (number, members["entry"]):
            continue
        for partition, unit in members["units"].items():
            manifest.runs[partition] = str(unit["run"])
            files = ((place, ManifestFile(place, length, "", _NONE)) for place, length in unit["files"])
            manifest.listed[partition] = dict(files)
            manifest.beside[partition] = {place: length for place, length in unit["beside"]}
        return manifest, number
    return Manifest(keeps_past=False), 0

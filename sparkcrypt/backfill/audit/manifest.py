"""The list of a table's files in its audit, used to detect deleted, replayed and foreign files.

Nothing in a Parquet file shows that it is the newest version under its name, or that another file should be beside it.
The audit's entries name every file that runs have put into use, with a keyed digest of its length and footer (whose
file-unique value distinguishes versions), or of a whole ORC file; the entries and their order are authenticated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sparkcrypt.backfill.audit.audit import audit_entries, journalled_head, verify_audit
from sparkcrypt.backfill.audit.evidence import DigestSecret
from sparkcrypt.backfill.state.mac import MasterKeys, open_mac
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.backfill.target.record import by_place
from sparkcrypt.backfill.target.unit import Unit
from sparkcrypt.errors import ConfigError, FormatError
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.files.hadoop import HadoopFiles

_SETS = ("encrypt", "roll back")
"""Kinds of entries that list all of a unit's files; other kinds add files."""


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One file in the audit, and the secret key of its digest."""

    path: str
    length: int
    digest: str
    secret: DigestSecret


@dataclass(frozen=True, slots=True)
class ManifestCheck:
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

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "files": self.files,
            "missing": list(self.missing),
            "changed": list(self.changed),
            "unlisted": list(self.unlisted),
        }


def read_manifest(
    store: StateStore, table_id: str, service: KeyService, policy: Policy
) -> dict[str, dict[str, ManifestFile]]:
    """Verify a table's audit and return its files: partition path -> relative path below the partition -> file.

    The paths are relative, since a table that was renamed, or moved with all of its files, keeps them.

    Raises:
        ConfigError: the table has no audit.
        VerificationError: the audit was changed or cut.
        KeyServiceError: its keys cannot be unwrapped.
    """
    expected = journalled_head(store, table_id)
    if not store.list(f"audit/{table_id}/"):
        verify_audit(store, table_id, check_mac=lambda *_: 0, expected=[expected] if expected else [])
        raise ConfigError("there is no audit of this table in the policy's state directory; a run makes it")
    mac = open_mac(store, table_id, service, MasterKeys.of(policy))
    verify_audit(store, table_id, check_mac=mac.check, expected=[expected] if expected else [])
    secrets: dict[str, DigestSecret] = {}
    manifest: dict[str, dict[str, ManifestFile]] = {}
    for audit_entry in audit_entries(store, table_id):
        entry = audit_entry.entry
        unit = str((entry.get("unit") or {}).get("unit", ""))
        partition = unit if "=" in unit and "/" not in unit.partition("=")[0] else ""
        if entry["what"] in _SETS:
            manifest[partition] = {}
        changes = entry.get("changes") or ()
        if changes:
            secret = _secret(entry["digests"]["secret"], service, secrets)
            manifest.setdefault(partition, {}).update(_list_files(changes, secret))
    return manifest


def check_manifest(
    files: HadoopFiles, manifest: Mapping[str, Mapping[str, ManifestFile]], units: Iterable[Unit]
) -> ManifestCheck:
    """Compare the current files of units with the manifest; the files of units that no run swapped are unlisted.

    Args:
        files: the file system.
        manifest: from `read_manifest`.
        units: the units to check; a partition of the manifest that no longer exists is a unit without files.
    """
    missing: list[str] = []
    changed: list[str] = []
    unlisted: list[str] = []
    count = 0
    for unit in units:
        listed_files = dict(manifest.get(unit.partition_path, {}))
        count += len(listed_files)
        for place, file in by_place(unit.location, unit.folders).items():
            listed = listed_files.pop(place, None)
            if listed is None:
                unlisted.append(file.path)
            elif listed.length != file.length or _digest(files, file.path, listed.secret) != listed.digest:
                changed.append(file.path)
        missing.extend(lost.path for lost in listed_files.values())
    return ManifestCheck(count, tuple(missing), tuple(changed), tuple(unlisted))


def _list_files(changes: Iterable[Mapping[str, Any]], secret: DigestSecret) -> dict[str, ManifestFile]:
    return {
        f"{change['folder']}/{str(file['path']).rpartition('/')[2]}".lstrip("/"): ManifestFile(
            str(file["path"]), int(file["bytes"]), str(file["digest"]), secret
        )
        for change in changes
        for file in change["targets"]
    }


def _digest(files: HadoopFiles, path: str, secret: DigestSecret) -> str | None:
    try:
        with files.open(path) as stream:
            return secret.of_file(stream)
    except FormatError:
        return None


def _secret(record: Mapping[str, str], service: KeyService, known: dict[str, DigestSecret]) -> DigestSecret:
    wrapped, key_id = record["wrapped"], record["key_id"]
    if wrapped not in known:
        known[wrapped] = DigestSecret(key_id, wrapped, service.unwrap(key_id, wrapped))
    return known[wrapped]

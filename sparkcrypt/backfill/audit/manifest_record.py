"""A table's manifest as of one entry of its audit, so that a pass need not read the entries before that one.

    listed/<table id>/<number of the entry>.json     version, table_id, number, entry (its SHA-256), units, mac

It has the MAC of the table's audit, and lists names and lengths alone.  One that is not authentic, or is not of an
entry that the audit has, is ignored: then every entry is read.
"""

from __future__ import annotations

from sparkcrypt.backfill.audit.audit import authentic_entries
from sparkcrypt.backfill.audit.chain import AuditChain, AuditRecords
from sparkcrypt.backfill.audit.manifest import Manifest, ManifestFile
from sparkcrypt.backfill.journal.record import digest_of
from sparkcrypt.backfill.state.mac import TableMac
from sparkcrypt.backfill.state.sealed_record import open_sealed, seal_record
from sparkcrypt.backfill.state.store import MOST_BYTES, StateStore
from sparkcrypt.errors import VerificationError

_VERSION = 1
_PURPOSE = b"sparkcrypt listed files\n"


def read_listed(store: StateStore, table_id: str, mac: TableMac) -> Manifest:
    """Return the names and lengths of the files that a table's audit lists, and keep them; only newer entries are read.

    Raises:
        VerificationError: an entry was edited, dropped or moved.
    """
    records = AuditRecords.of(store, table_id, mac.check)
    names = store.list(f"listed/{table_id}/")
    chain, manifest, known = _find_known(store, table_id, mac, records, names)
    last = len(records.numbers)
    for number in range(known + 1, last + 1):
        content = records.entry(number)
        manifest.take(chain.entry(number, content)["entry"])
        if number == last:
            _keep(store, table_id, mac, manifest, number, digest_of(content))
            for name in names:
                store.delete(name)
    return manifest


def read_every_entry(store: StateStore, table_id: str, mac: TableMac) -> Manifest:
    """Return all that a table's audit has of files, those of the past too.

    Raises:
        VerificationError: an entry was edited, dropped or moved.
    """
    manifest = Manifest()
    for entry, _ in authentic_entries(store, table_id, mac.check):
        manifest.take(entry.entry)
    return manifest


def _find_known(
    store: StateStore, table_id: str, mac: TableMac, records: AuditRecords, names: tuple[str, ...]
) -> tuple[AuditChain, Manifest, int]:
    """Return the manifest that was kept last, the chain after its entry, and the number of that entry."""
    for name in reversed(sorted(names)):
        chain, manifest = AuditChain(table_id, mac.check), Manifest()
        try:
            expected = {"version": _VERSION, "table_id": table_id}
            members = open_sealed(_PURPOSE, name, store.read(name) or b"", mac.check, expected)
            number = int(members["number"])
            content = records.entry(number)
            if digest_of(content) != members["entry"]:
                continue
            chain.begin_after(number, content)
        except VerificationError:
            continue
        for partition, (run_id, files) in members["units"].items():
            manifest.runs[partition] = run_id
            manifest.listed[partition] = {place: ManifestFile(place, length, "", {}) for place, length in files}
        return chain, manifest, number
    return AuditChain(table_id, mac.check), Manifest(), 0


def _keep(store: StateStore, table_id: str, mac: TableMac, manifest: Manifest, number: int, digest: str) -> None:
    units = {
        partition: [manifest.runs.get(partition, ""), [[place, file.length] for place, file in sorted(files.items())]]
        for partition, files in manifest.listed.items()
        if files
    }
    members = {"version": _VERSION, "table_id": table_id, "number": number, "entry": digest, "units": units}
    content = seal_record(_PURPOSE, members, mac)
    if len(content) <= MOST_BYTES:
        store.create(f"listed/{table_id}/{number:08d}.json", content)

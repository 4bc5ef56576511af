"""A table's manifest as of one entry of its audit, so that a pass need not read the entries before that one.

    listed/<table id>/<number of the entry>.json     version, table_id, number, entry (its SHA-256), units, mac

It has the MAC of the table's audit, and lists names and lengths alone.  One that is not authentic, or is not of an
entry that the audit has, is ignored: then every entry is read.  It also has the files that passes saw beside all listed
ones: they were added, and have replaced nothing.
"""

from __future__ import annotations

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.audit.audit import authentic_entries
from sparkcrypt.ledger.audit.chain import AuditChain, AuditRecords
from sparkcrypt.ledger.audit.manifest import Manifest, ManifestFile
from sparkcrypt.ledger.journal.entries import AuditHead
from sparkcrypt.ledger.journal.record import digest_of
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.sealed_record import open_sealed, seal_record
from sparkcrypt.ledger.state.store import MOST_BYTES, StateStore

_VERSION = 1
_PURPOSE = b"sparkcrypt listed files\n"


def read_listed(store: StateStore, table_id: str, mac: TableMac) -> tuple[Manifest, AuditHead]:
    """Return the files that a table's audit lists, by names and lengths, and its head; only newer entries are read.

    Raises:
        VerificationError: an entry was edited, dropped or moved.
    """
    records = AuditRecords.of(store, table_id, mac.check)
    chain, manifest, known = _find_known(store, table_id, mac, records)
    last = len(records.numbers)
    for number in range(known + 1, last + 1):
        manifest.take(chain.entry(number, records.entry(number))["entry"])
    head = AuditHead(last, digest_of(records.entry(last)) if last else "")
    if known != last:
        keep_listed(store, table_id, mac, manifest, head)
    return manifest, head


def keep_listed(store: StateStore, table_id: str, mac: TableMac, manifest: Manifest, head: AuditHead) -> None:
    """Keep a manifest as of an entry of the audit, in place of what was kept before."""
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
    for name in store.list(f"listed/{table_id}/"):
        store.delete(name)
    content = seal_record(_PURPOSE, members, mac)
    if len(content) <= MOST_BYTES:
        store.create(f"listed/{table_id}/{head.number:08d}.json", content)


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
    store: StateStore, table_id: str, mac: TableMac, records: AuditRecords
) -> tuple[AuditChain, Manifest, int]:
    """Return the manifest that was kept last, the chain after its entry, and the number of that entry."""
    for name in sorted(store.list(f"listed/{table_id}/"), reverse=True):
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
        for partition, unit in members["units"].items():
            manifest.runs[partition] = str(unit["run"])
            manifest.listed[partition] = {place: ManifestFile(place, length, "", {}) for place, length in unit["files"]}
            manifest.beside[partition] = {place: length for place, length in unit["beside"]}
        return chain, manifest, number
    return AuditChain(table_id, mac.check), Manifest(), 0

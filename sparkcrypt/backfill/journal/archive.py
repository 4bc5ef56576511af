"""The one record that is left of a run when its old files have expired: all of its journal but the lists of files.

    archive/<table id>/<run id>.json     version, table_id, run_id, records (each with the SHA-256 of what it was), mac

It bears the MAC of the table's audit under a purpose of its own.  It is made whole before the first record of the
journal is deleted, oldest first, so that a run of which both are there has ended by either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkcrypt.backfill.journal.record import VERSION, Record
from sparkcrypt.backfill.state.mac import CheckMac, TableMac
from sparkcrypt.backfill.state.sealed_record import open_sealed, seal_record
from sparkcrypt.backfill.state.store import StateStore, decode_record
from sparkcrypt.errors import VerificationError

_VERSION = 1
_PURPOSE = b"sparkcrypt archived run\n"
_LISTS = ("files", "made", "evidence")
"""What is long, and of use only while old files are there."""


def archive_records(store: StateStore, table_id: str, run_id: str, records: tuple[Record, ...], mac: TableMac) -> None:
    """Put one record in the place of a run's journal; done again, it ends what was begun.

    Args:
        store: the state directory.
        table_id: which table.
        run_id: a run that has ended, and whose old files are gone.
        records: its whole journal, which was authenticated.
        mac: the MAC of the table's audit.
    """
    kept = [
        {
            "number": record.number,
            "time": record.time,
            "kind": record.kind,
            "fencing_token": record.fencing_token,
            "fields": {name: value for name, value in record.fields.items() if name not in _LISTS},
            "digest": record.digest,
        }
        for record in records
    ]
    members = {"version": _VERSION, "table_id": table_id, "run_id": run_id, "records": kept}
    store.create(_name(table_id, run_id), seal_record(_PURPOSE, members, mac))
    clear_archived(store, table_id, run_id, mac.check)


def clear_archived(store: StateStore, table_id: str, run_id: str, check_mac: CheckMac) -> None:
    """Delete the records of a journal, oldest first, once the run has its archive, and that is authentic."""
    try:
        archived = read_archive(store, table_id, run_id, check_mac)
    except VerificationError:
        return  # someone else wrote it; the journal stays
    if archived is not None:
        for name in sorted(store.list(f"runs/{table_id}/{run_id}/")):
            store.delete(name)


def list_archived_runs(store: StateStore, table_id: str) -> tuple[str, ...]:
    """Return the ids of a table's runs that have an archive, oldest first."""
    return tuple(name.rpartition("/")[2].removesuffix(".json") for name in store.list(f"archive/{table_id}/"))


def read_archive(
    store: StateStore, table_id: str, run_id: str, check_mac: CheckMac | None
) -> tuple[Record, ...] | None:
    """Return what is left of a run's records; None when the run has no archive.

    Args:
        store: the state directory.
        table_id: which table.
        run_id: which run.
        check_mac: tells which MAC key made a MAC; None takes the archive as it stands, not authenticated.

    Raises:
        VerificationError: it is damaged, or not authentic.
    """
    name = _name(table_id, run_id)
    content = store.read(name)
    if content is None:
        return None
    expected = {"version": _VERSION, "table_id": table_id, "run_id": run_id}
    if check_mac is None:
        members = decode_record(name, content)
        if any(members.get(key) != value for key, value in expected.items()):
            raise VerificationError(f"{name}: is not the archive of this run; restore the state directory's copy of it")
    else:
        members = open_sealed(_PURPOSE, name, content, check_mac, expected)
    return tuple(_restore_record(name, run_id, record) for record in members["records"])


def _restore_record(name: str, run_id: str, told: Mapping[str, Any]) -> Record:
    return Record(
        name=name,
        run_id=run_id,
        previous="",
        supersedes=None,
        checksum="",
        version=VERSION,
        **told,
    )


def _name(table_id: str, run_id: str) -> str:
    return f"archive/{table_id}/{run_id}.json"

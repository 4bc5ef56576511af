"""The archive of a run whose old files have expired: one record of its whole journal without the lists of files.

    archive/<table id>/<run id>.json     version, table_id, run_id, records (each with the SHA-256 of the original), mac

It has the MAC of the table's audit, under its own purpose.  It is written before the records of the journal are
deleted, which happens oldest first: while both exist, either shows that the run has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.journal.record import Record
from sparkcrypt.ledger.state.mac import CheckMac, TableMac
from sparkcrypt.ledger.state.sealed_record import open_sealed, seal_record
from sparkcrypt.ledger.state.store import StateStore, decode_record

_VERSION = 1
_PURPOSE = b"sparkcrypt archived run\n"
_LISTS = ("files", "made", "evidence")
"""Fields that are long, and needed only while old files exist."""


def archive_records(store: StateStore, table_id: str, run_id: str, records: tuple[Record, ...], mac: TableMac) -> None:
    """Replace a run's journal by one record; a second call completes a call that was interrupted.

    Args:
        store: the state directory.
        table_id: the table's id.
        run_id: a run that has ended, and whose old files no longer exist.
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
    """Delete the records of a journal, oldest first, if the run has an authentic archive."""
    try:
        archived = read_archive(store, table_id, run_id, check_mac)
    except VerificationError:
        return  # the archive is not authentic, so the journal stays
    if archived is not None:
        for name in sorted(store.list(f"runs/{table_id}/{run_id}/")):
            store.delete(name)


def list_archived_runs(store: StateStore, table_id: str) -> tuple[str, ...]:
    """Return the ids of a table's runs that have an archive, oldest first."""
    return tuple(name.rpartition("/")[2].removesuffix(".json") for name in store.list(f"archive/{table_id}/"))


def read_archive(
    store: StateStore, table_id: str, run_id: str, check_mac: CheckMac | None
) -> tuple[Record, ...] | None:
    """Return the archived records of a run; None if the run has no archive.

    Args:
        store: the state directory.
        table_id: the table's id.
        run_id: the run's id.
        check_mac: returns the number of the MAC key that made a MAC; with None the archive is not authenticated.

    Raises:
        VerificationError: the archive is damaged, of another run, or not authentic.
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


def _restore_record(name: str, run_id: str, fields: Mapping[str, Any]) -> Record:
    return Record(
        name=name,
        run_id=run_id,
        previous="",
        supersedes=None,
        checksum="",
        **fields,
    )


def _name(table_id: str, run_id: str) -> str:
    return f"archive/{table_id}/{run_id}.json"

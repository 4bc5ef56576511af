"""Fingerprints of tables in which a pass found no drift, by which ``--changed`` skips tables that have not changed.

passes/<table id>/00000004.json    a digest of tags, schema, policy and files; a newer record replaces it
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import Any

from sparkcrypt.backfill.state.latest_record import LatestRecord
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.backfill.target.target import CatalogTarget
from sparkcrypt.backfill.target.unit import list_unit
from sparkcrypt.errors import StorageError
from sparkcrypt.spark.files.hadoop import HadoopFiles

VERSION = 1


class PassFingerprint:
    """The fingerprint that a table had when a pass last found no drift in it."""

    def __init__(self, store: StateStore, table_id: str) -> None:
        self._record = LatestRecord(store, f"passes/{table_id}/")

    def read(self) -> str | None:
        """Return the recorded fingerprint; None if no pass found the table without drift."""
        for content in self._record.read():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                record: dict[str, Any] = json.loads(content)
                if record["version"] == VERSION:
                    return str(record["fingerprint"])
        return None

    def keep(self, fingerprint: str) -> None:
        """Record the fingerprint after a pass that ended without drift."""
        self._record.replace(json.dumps({"version": VERSION, "fingerprint": fingerprint}).encode())


def fingerprint(target: CatalogTarget, files: HadoopFiles) -> str:
    """Return a digest of everything that determines a table's drift: plan, properties, schema, folders and files.

    A folder that cannot be listed makes it differ from every digest that a pass without drift has kept.
    """
    digest = hashlib.sha256()
    plan, options = target.plan.to_dict(), dict(sorted(target.options().items()))
    digest.update(json.dumps([plan, options, target.table.schema_json], sort_keys=True).encode())
    for unit in target.units(None):
        digest.update(json.dumps([unit.name, unit.location]).encode())
        try:
            listed = list_unit(files, unit)
        except StorageError:
            digest.update(b"not listed")
            continue
        for folder in listed.folders:
            for file in folder.files:
                digest.update(json.dumps(file.to_list()).encode())
        summaries = [[entry.path, entry.length] for entry in listed.beside if entry.kind == "summary"]
        digest.update(json.dumps(summaries).encode())
    return digest.hexdigest()

"""Requests of queries over a small table, as the jar sends them."""

from __future__ import annotations

import json
from typing import Any

from sparkcrypt import names
from sparkcrypt.policy import Policy, policy_from_document
from tests.unit.skipping.tables import UUID, Table

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "ssn", "type": "string", "nullable": True, "metadata": {"tags": ["pii"]}},
    ],
}


def policy(table: Table, **more: Any) -> Policy:
    """Return the policy that the table is under."""
    document = {
        "version": 1,
        "key_service": {"type": "local", "path": str(table.root / "keys")},
        "footer": {"key": "footer"},
        "untagged": "plaintext",
        "run_state": str(table.root / "state"),
        "index": {"location": str(table.root / "indexes")},
        "tags": {"pii": {"key": "pii"}},
        **more,
    }
    return policy_from_document(document, locate=str)


def request(table: Table, predicate: Any, **more: Any) -> dict[str, Any]:
    """Return the request of a query that reads both columns."""
    listed = sorted((table.root / "data").iterdir())
    files = [[0, file.name, file.stat().st_mtime_ns // 1_000_000, file.stat().st_size] for file in listed]
    return {
        "op": "skip_files",
        "policy": policy(table).canonical(),
        "path": str(table.root / "data"),
        "properties": {names.TABLE_UUID: UUID},
        "schema": json.dumps(SCHEMA),
        "types": {"id": "long", "ssn": "string"},
        "read": ["id", "ssn"],
        "predicate": predicate,
        "folders": [str(table.root / "data")],
        "files": files,
        **more,
    }

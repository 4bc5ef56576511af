"""Entries of an audit as runs give them, and records of it that were changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import encode_record
from tests.unit.backfill.conftest import RUN, TABLE

FOLDER = f"log/{TABLE}/"


MAC = TableMac(b"k" * 32)


def entry(number: int = 0, run_id: str = RUN) -> dict[str, Any]:
    """An entry as a run gives it."""
    files = [{"source": f"/old/{number}", "target": f"/new/{number}", "keys": ["pii"], "before": "aa", "after": "bb"}]
    why = {"policy_digest": "digest-1", "run_id": run_id}
    return {"what": "encrypt", "why": why, "files": files}


def rewritten(content: bytes, change: Callable[[dict[str, Any]], None], mac: TableMac | None = None) -> bytes:
    """Return a record with a change, in canonical form, with its old MAC or one of another key."""
    body = json.loads(content)
    change(body)
    if mac is not None:
        body.pop("mac")
        body["mac"] = mac(encode_record(body))
    return encode_record(body)

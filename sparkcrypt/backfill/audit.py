"""The audit of a table: who changed which files when and why; append-only, chained, each entry authenticated."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.backfill.store import StateStore
from sparkcrypt.errors import RunConflictError, VerificationError
from sparkcrypt.keys.service import KeyService

Mac = Callable[[bytes], str]
_KEY_BYTES = 32


def key_service_mac(service: KeyService, key_id: str) -> Callable[[StateStore, str], Mac]:
    """Return what makes a table's MAC: HMAC-SHA256 under a key that is kept wrapped by a master key.

    Only who may unwrap that master key can write an entry that verifies.
    """

    def for_table(store: StateStore, table_id: str) -> Mac:
        name = f"audit/{table_id}/mac-key.json"
        kept = store.read(name)
        if kept is None:
            wrapped = service.wrap(key_id, os.urandom(_KEY_BYTES))
            store.create(name, json.dumps({"key_id": key_id, "wrapped": wrapped}).encode())
            kept = store.read(name) or b"{}"
        document = json.loads(kept)
        key = service.unwrap(document["key_id"], document["wrapped"])
        return lambda content: base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()

    return for_table


def append_entry(store: StateStore, table_id: str, entry: dict[str, Any], *, mac: Mac) -> int:
    """Append an entry; return its number.

    Raises:
        RunConflictError: another driver wrote the entry of this number.
    """
    names = _entries(store, table_id)
    last = (store.read(names[-1]) or b"") if names else b""
    number = len(names) + 1
    body = {
        "version": 1,
        "number": number,
        "time": datetime.now(timezone.utc).isoformat(),
        "previous": hashlib.sha256(last).hexdigest(),
        "entry": entry,
    }
    text = json.dumps(body, sort_keys=True, ensure_ascii=False)
    content = json.dumps({"record": text, "mac": mac(text.encode())}, ensure_ascii=False).encode()
    if not store.create(f"audit/{table_id}/{number:08d}.json", content):
        raise RunConflictError(f"audit of {table_id}: another driver wrote entry {number}; this one stops")
    head = f"{number}:{hashlib.sha256(content).hexdigest()}"
    store.create(f"audit/{table_id}/head-{number:08d}.json", json.dumps({"head": head, "mac": mac(head.encode())}).encode())
    return number


def verify_audit(store: StateStore, table_id: str, *, check_mac: Callable[[bytes, str], bool]) -> int:
    """Verify the whole audit; return the number of entries.

    An entry that was edited, dropped or moved is found, and so is a cut end, as long as one head above it is left.  Who can
    delete both an end and its heads removes it unseen; keep the number that this returns elsewhere to find that too.

    Raises:
        VerificationError: it names the entry.
    """
    last = b""
    names = _entries(store, table_id)
    digests: dict[int, str] = {}
    for number, name in enumerate(names, 1):
        content = store.read(name) or b""
        document = _parsed(name, content)
        text = document.get("record", "")
        if not check_mac(text.encode(), document.get("mac", "")):
            raise VerificationError(f"{name}: its authentication is wrong: it was edited, or written by someone else")
        body = _parsed(name, text.encode())
        if body.get("number") != number or body.get("previous") != hashlib.sha256(last).hexdigest():
            raise VerificationError(f"{name}: does not follow the entry before it: one was dropped, moved or changed")
        last, digests[number] = content, hashlib.sha256(content).hexdigest()
    for name in store.list(f"audit/{table_id}/head-"):
        document = _parsed(name, store.read(name) or b"")
        head = document.get("head", "")
        number, _, digest = head.partition(":")
        if not check_mac(head.encode(), document.get("mac", "")) or digests.get(int(number or 0)) != digest:
            raise VerificationError(f"{name}: entry {number or '?'} is missing or changed: the end of the audit was cut")
    return len(names)


def same_mac(mac: Mac) -> Callable[[bytes, str], bool]:
    """Return what compares MACs in constant time."""
    return lambda content, found: hmac.compare_digest(mac(content), found)


def _entries(store: StateStore, table_id: str) -> list[str]:
    names = store.list(f"audit/{table_id}/")
    return [name for name in names if name.rpartition("/")[2].removesuffix(".json").isdigit()]


def _parsed(name: str, content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError as error:
        raise VerificationError(f"{name}: is not an audit entry; it was damaged") from error
    if not isinstance(document, dict):
        raise VerificationError(f"{name}: is not an audit entry; it was damaged")
    return document

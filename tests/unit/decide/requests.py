"""Requests as the jar makes them: a policy, a file's columns, and the footer that a write of it would have."""

from __future__ import annotations

import base64
import json
from typing import Any

from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.keys.material import KeyMaterial
from sparkcrypt.policy import policy_from_document
from tests.unit.schema.message_types import fields_of

UUID = "11111111-2222-3333-4444-555555555555"
OTHER_UUID = "99999999-2222-3333-4444-555555555555"
RANDOM = "0c7ebd5e-90f2-4b0e-a1a1-6f7f9a2b4c3d"
NAME = f"part-00000-{RANDOM}.c000.snappy.parquet"
JOB = "_temporary/0/_temporary/attempt_202601010000000000000000000000000_0001_m_000000_1"
PREFIX = "parquet.sparkcrypt."
TABLE = {
    PREFIX + "table": "a.b",
    PREFIX + "table.uuid": UUID,
    PREFIX + "tags.ssn": "pii",
    PREFIX + "tags.pay": "finance",
}
STRICT = {**TABLE, PREFIX + "require_encryption": "true"}


def policy(**changes: Any) -> str:
    """Return canonical JSON of a policy with three tags."""
    document: dict[str, Any] = {
        "version": 1,
        "key_service": {"type": "own"},
        "footer": {"key": "footer"},
        "untagged": "plaintext",
        "run_state": "/state",
        "tags": {
            "pii": {"key": "pii"},
            "finance": {"key": "fin:1"},
            "monthly": {"key": "m-{day:%Y-%m}"},
            "public": "plaintext",
        },
        **changes,
    }
    return policy_from_document(document, locate=lambda _: "policy").canonical()


def leaf(name: str) -> dict[str, Any]:
    """Return a leaf field of a message type."""
    return {"name": name, "kind": "leaf", "annotation": None, "repetition": "optional", "children": []}


def schema(**tags: Any) -> str:
    """Return Spark schema JSON of text columns with tags."""
    fields = [
        {"name": name, "type": "string", "nullable": True, "metadata": {"tags": names} if names else {}}
        for name, names in tags.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


def write(path: str, columns: tuple[str, ...] = ("id", "ssn", "pay"), **changes: Any) -> dict[str, Any]:
    """Return a request to write a file."""
    return {
        "policy": policy(),
        "path": path,
        "target": None,
        "schema": None,
        "message_type": [leaf(name) for name in columns],
        "properties": TABLE,
        **changes,
    }


def material(key_id: str, *, footer: bool = False) -> str:
    """Return key metadata that names a master key."""
    made = KeyMaterial(footer, "DEFAULT" if footer else None, "DEFAULT" if footer else None, key_id, "d3JhcHBlZA==")
    return base64.b64encode(made.to_bytes()).decode()


def footer_of(
    answer: dict[str, Any], columns: tuple[str, ...] = ("id", "ssn", "pay"), **changes: Any
) -> dict[str, Any]:
    """Return the footer of the file that an answer makes."""
    keys = {tuple(column["path"]): column["key"] for column in answer["columns"]}
    return {
        "mode": "encrypted",
        "algorithm": answer["algorithm"],
        "aad_prefix": answer["aad_prefix"],
        "supply_aad_prefix": False,
        "aad_file_unique": base64.b64encode(b"12345678").decode(),
        "footer_key_metadata": material(decode_key_id(answer["footer_key"]), footer=True),
        "columns": [column((name,), keys) for name in columns],
        **changes,
    }


def column(path: tuple[str, ...], keys: dict[tuple[str, ...], str | None]) -> dict[str, Any]:
    """Return one column of a footer."""
    key = keys.get(path)
    return {
        "path": list(path),
        "encrypted": path in keys,
        "key_metadata": None if key is None else material(decode_key_id(key)),
    }


def read(path: str, footer: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a request to read a file, whose message type is that of its columns unless the footer has another."""
    if "fields" not in footer:
        footer = {**footer, "fields": fields_of(column["path"] for column in footer["columns"])}
    return {
        "policy": policy(),
        "path": path,
        "properties": STRICT,
        "requested_schema": None,
        "footer": footer,
        **changes,
    }

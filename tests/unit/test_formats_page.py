"""The page of formats: its examples are what the code writes and reads, and no property is left out."""

from __future__ import annotations

import json
import re
from pathlib import Path

from sparkcrypt import names
from sparkcrypt.decide.identity import FileIdentity
from sparkcrypt.keys.material import KeyMaterial, parse_key_material
from sparkcrypt.ledger.log import TableLog
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import LocalStateStore
from tests.services.installed import ROOT

PAGE = (ROOT / "docs" / "formats.md").read_text()
MATERIAL, IDENTITY, RECORD = re.findall(r"^```(?:json)?\n(.*?)\n```", PAGE, re.MULTILINE | re.DOTALL)
UUID = "6f1d9a52-7c57-4f3e-9d0e-3c1f0a6b8e21"
STORED = (
    *(names.TAGS_PREFIX, names.HISTORY_PREFIX, names.REQUIRE_ENCRYPTION, names.TABLE_UUID, names.TABLE_MARK),
    *(names.PREDECESSOR, names.RULE_MARK, names.PIN, names.NAME_PREFIX, names.POLICY_DIGEST, names.PURGED),
)
"""What stays in the metastore and in footers."""


def test_key_material() -> None:
    """It is written as the page shows it, and read back."""
    material = KeyMaterial(
        is_footer_key=False,
        kms_instance_id=None,
        kms_instance_url=None,
        master_key_id="pii",
        wrapped_dek="d3JhcHBlZA==",
        kek_id="a2VrLWlkLTE2LWJ5dGVzIQ==",
        wrapped_kek="local:v1:d3JhcHBlZA==",
    )
    assert material.to_bytes().decode() == MATERIAL
    assert parse_key_material(MATERIAL.encode()) == material


def test_identity() -> None:
    """The parts of the AAD prefix are in the order of the page, and end with a byte 0."""
    identity = FileIdentity(UUID, "day=2026-11-27", "part-00000.parquet")
    assert identity.to_aad_prefix() == IDENTITY.encode() + b"\0"


def test_record(tmp_path: Path) -> None:
    """The record of the page is authentic, and the next one goes on after it in the same form."""
    store = LocalStateStore(tmp_path)
    assert store.create(f"log/{UUID}/00000001.json", f"{RECORD}\n".encode())
    log = TableLog.open(store, UUID, TableMac(bytes(32)))
    (record,) = log.records
    assert (record.kind, record.run_id) == ("accept", "20261127T083857Z-3f9a2c")
    assert dict(record.fields) == {"reason": "example"}
    log.append("accept", "another", 2, {})
    written = json.loads(store.read(f"log/{UUID}/00000002.json") or "")
    assert written.keys() == json.loads(RECORD).keys() and written["version"] == json.loads(RECORD)["version"]


def test_every_stored_property_is_on_the_page() -> None:
    """By its name, or by its prefix."""
    assert [name for name in STORED if f"`{name}" not in PAGE] == []

"""A policy with keys of its own, and the folders of a table whose records are believed or refused."""

from __future__ import annotations

from pathlib import Path

from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.load import policy_from_text
from sparkcrypt.policy.model import Policy
from tests.unit.backfill.conftest import RUN

BASE = "/warehouse/db/t"
STAGED = f"/warehouse/db/.sparkcrypt/t/{RUN}-1/p=0"
POLICY = """version: 1
key_service: {type: local, path: keys/}
footer: {key: footer, mode: encrypted}
untagged: plaintext
run_state: state/
tags:
  pii: {key: pii}
"""


def make_service(tmp_path: Path) -> KeyService:
    """Return a real key service with the keys of the policy, with an audit's key and without."""
    opened = open_key_service(policy_of(tmp_path).key_service)
    for key_id in ("footer", "audit", "pii"):
        opened.create(key_id)
    return opened


def policy_of(tmp_path: Path, more: str = "") -> Policy:
    """Return a policy, with further lines."""
    return policy_from_text(POLICY + more, where="policy.yaml", base=str(tmp_path))

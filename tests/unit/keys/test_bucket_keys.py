"""Keys that the first write into a bucket makes, and those that no write makes."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from sparkcrypt.errors import KeyNotFoundError
from sparkcrypt.keys.bucket_keys import make_bucket_keys
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.tombstones import tombstone_name
from sparkcrypt.policy.load import policy_from_text
from sparkcrypt.policy.model import Policy

NOW = datetime(2026, 11, 23, tzinfo=timezone.utc)


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    """A policy under which months make their keys, and nothing else does."""
    text = (
        f"version: 1\nkey_service: {{type: local, path: {tmp_path}/keys}}\nfooter: {{key: footer}}\n"
        f"untagged: plaintext\nrun_state: {tmp_path}/state\ntags:\n"
        "  contact: {key: 'contact-{d:%Y-%m}', retention: 400d, create_keys: true}\n"
        "  other: {key: 'other-{d:%Y-%m}', retention: 400d}\n"
        "  pii: {key: pii}\n"
    )
    return policy_from_text(text, where="policy", base="/")


def test_write_makes_the_key_of_its_month_once(policy: Policy) -> None:
    """Of the keys that a write needs it makes those of such a tag that are not there; the policy says it anywhere."""
    service = LocalKeyService(policy.key_service)
    needed = ["footer", "pii", "other-2026-11", "contact-2026-11", "contact-2026-10"]
    assert make_bucket_keys(policy, service, needed, now=NOW) == ("contact-2026-10", "contact-2026-11")
    assert make_bucket_keys(policy, service, needed, now=NOW) == ()
    assert [key.key_id for key in service.list_keys()] == ["contact-2026-10", "contact-2026-11"]
    assert '"create_keys":true' in policy.canonical()
    assert policy.canonical().count("create_keys") == 1


def test_month_past_retention_gets_no_key(policy: Policy) -> None:
    """Whoever deleted the state directory cannot have a writer bring a shredded month back."""
    service = LocalKeyService(policy.key_service)
    for key_id, why in (("contact-2025-01", "its retention is over since 2026-03-08"), ("contact-2026-13", "no date")):
        with pytest.raises(KeyNotFoundError, match=f"'{key_id}' is not there, and no write makes it: .*{why}"):
            make_bucket_keys(policy, service, [key_id], now=NOW)
    service.create("contact-2025-01")
    assert make_bucket_keys(policy, service, ["contact-2025-01"], now=NOW) == ()


def test_tombstone_is_a_reason_too(policy: Policy) -> None:
    """Where it can be read, a month whose retention was lengthened since is not brought back either."""
    service, key_id = LocalKeyService(policy.key_service), "contact-2026-11"
    file = Path(policy.run_state) / tombstone_name(key_digest(key_id))
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"key_id": key_id, "time": "2026-11-23T04:51:08Z", "reason": "case 4711"}))
    with pytest.raises(KeyNotFoundError, match=r"no write makes it: .*shredded on 2026-11-23T04:51:08Z: 'case 4711'"):
        make_bucket_keys(policy, service, [key_id], now=NOW)
    assert service.list_keys() == ()

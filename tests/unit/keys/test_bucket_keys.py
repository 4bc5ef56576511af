"""Keys that the first write into a bucket makes, and those that no write makes."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from sparkcrypt.errors import KeyNotFoundError
from sparkcrypt.keys.bucket_keys import make_bucket_keys, route_late_keys
from sparkcrypt.keys.ids import key_digest
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.tombstones import tombstone_name
from sparkcrypt.policy.build import policy_from_canonical
from sparkcrypt.policy.key_retention import retention_of_key
from sparkcrypt.policy.load import policy_from_text
from sparkcrypt.policy.model import Policy, allowed_key_ids

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
    service.create("footer")
    needed = ["footer", "pii", "other-2026-11", "contact-2026-11", "contact-2026-10"]
    assert make_bucket_keys(policy, service, needed, now=NOW) == ("contact-2026-10", "contact-2026-11")
    assert make_bucket_keys(policy, service, needed, now=NOW) == ()
    assert [key.key_id for key in service.list_keys()] == ["contact-2026-10", "contact-2026-11", "footer"]
    assert '"create_keys":true' in policy.canonical()
    assert policy.canonical().count("create_keys") == 1


def test_no_key_is_made_where_even_the_footer_key_is_missing(policy: Policy) -> None:
    """As in a key directory that is not mounted: the month's key may be there, and its import would be refused."""
    with pytest.raises(KeyNotFoundError, match="'footer'"):
        make_bucket_keys(policy, LocalKeyService(policy.key_service), ["contact-2026-11"], now=NOW)
    assert not Path(str(policy.key_service.options["path"])).exists()


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


@pytest.fixture
def routing(tmp_path: Path) -> Policy:
    """A policy whose late data have a key for each month of writing, one key for all, and none."""
    text = (
        f"version: 1\nkey_service: {{type: local, path: {tmp_path}/keys}}\nfooter: {{key: footer}}\n"
        f"untagged: plaintext\nrun_state: {tmp_path}/state\ntags:\n"
        "  contact: {key: 'contact-{d:%Y-%m}', retention: 400d, late_data: 'late-contact-{written:%Y-%m}'}\n"
        "  call: {key: 'call-{d:%Y-%m}', retention: 400d, late_data: late-call, create_keys: true}\n"
        "  other: {key: 'other-{d:%Y-%m}', retention: 400d}\n"
    )
    return policy_from_text(text, where="policy", base="/")


def test_keys_that_are_gone_are_replaced_by_those_of_late_data(routing: Policy) -> None:
    """A bucket's key is gone when it is past retention and not there: neither alone, and only where the policy says."""
    service = LocalKeyService(routing.key_service)
    asked = ["contact-2025-01", "call-2025-01", "other-2025-01", "contact-2026-11", "footer"]
    late = {"contact-2025-01": "late-contact-2026-11", "call-2025-01": "late-call"}
    assert route_late_keys(routing, service, asked, now=NOW) == late
    service.create("contact-2025-01")
    assert route_late_keys(routing, service, asked, now=NOW) == {"call-2025-01": "late-call"}
    service.delete_key("contact-2025-01")
    before = datetime(2026, 3, 7, 23, 59, tzinfo=timezone.utc)
    assert route_late_keys(routing, service, asked, now=before) == {}
    assert policy_from_canonical(routing.canonical()) == routing


def test_keys_of_late_data_have_a_retention_of_their_own(routing: Policy) -> None:
    """It counts from the month of writing; a key for all of them has no end, and may be shredded by name."""
    dated, fixed = retention_of_key(routing, "late-contact-2026-11"), retention_of_key(routing, "late-call")
    assert (dated.over_at, dated.tags) == (datetime(2028, 1, 5, tzinfo=timezone.utc), ("contact",))
    assert (fixed.over_at, fixed.by_name) == (None, True)
    assert allowed_key_ids(routing, "late-call")
    assert allowed_key_ids(routing, "late-contact-2026-11")
    assert not allowed_key_ids(routing, "late-other")


def test_write_makes_no_key_of_late_data_without_end(routing: Policy) -> None:
    """Of such a key nobody can tell whether it was shredded."""
    with pytest.raises(KeyNotFoundError, match="'late-call' is not there, and no write makes it: no date stands in it"):
        make_bucket_keys(routing, LocalKeyService(routing.key_service), ["late-call"], now=NOW)

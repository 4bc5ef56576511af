"""Keys of a template that are made by the first write into their bucket, where the policy says so.

A writer cannot open the audit of keys, so what keeps it from bringing a shredded key back is told by the policy: a
bucket past its retention gets no key, and nothing else is ever due.  Where the state directory is a folder that this
process can read, a tombstone there is a reason too.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from sparkcrypt.errors import KeyNotFoundError
from sparkcrypt.keys.service import KeyService
from sparkcrypt.keys.tombstones import describe_tombstone
from sparkcrypt.policy.bucket import retention_of_key
from sparkcrypt.policy.model import Policy
from sparkcrypt.text import utc_text


def make_bucket_keys(
    policy: Policy, service: KeyService, key_ids: Iterable[str], *, now: datetime | None = None
) -> tuple[str, ...]:
    """Make the keys that are not there, of those that the policy lets be made by a write.

    Args:
        policy: whose tags say it (``create_keys``).
        service: its key service.
        key_ids: the master keys that a write needs; others than such are left alone.
        now: by which time a retention is over.

    Returns:
        The keys that were made.

    Raises:
        KeyNotFoundError: a key is not there, and was shredded, or its data would be past their retention.
        KeyAccessDeniedError: these credentials may not make it.
    """
    return tuple(key_id for key_id in sorted(set(key_ids)) if _make_key(policy, service, key_id, now))


def _make_key(policy: Policy, service: KeyService, key_id: str, now: datetime | None) -> bool:
    rules = [rule for rule in policy.tags if rule.key is not None and rule.key.matches(key_id)]
    if not rules or not all(rule.create_keys for rule in rules):
        return False
    try:
        service.describe(key_id)
    except KeyNotFoundError as absent:
        kept = retention_of_key(policy, key_id)
        if kept.over_at is None or kept.is_over(now or datetime.now(timezone.utc)):
            why = kept.reason if kept.over_at is None else f"its retention is over since {utc_text(kept.over_at)}"
            raise KeyNotFoundError(
                f"key {key_id!r} is not there, and no write makes it: {why}; what is past its retention is not written"
            ) from absent
        shredded = describe_tombstone(policy.run_state, key_id)
        if shredded is not None:
            raise KeyNotFoundError(f"key {key_id!r} is not there, and no write makes it: {shredded}") from absent
    else:
        return False
    service.create(key_id)
    return True

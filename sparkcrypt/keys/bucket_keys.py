"""Keys of buckets as writes need them: made by the first write, and replaced by that of late data once they are gone.

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
from sparkcrypt.policy.key_retention import retention_of_key
from sparkcrypt.policy.model import Policy
from sparkcrypt.policy.template import WRITTEN
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


def route_late_keys(
    policy: Policy, service: KeyService, key_ids: Iterable[str], *, now: datetime | None = None
) -> dict[str, str]:
    """Return under which key rows go whose bucket's own key is gone, where the policy has one for late data.

    A bucket's key is gone when the key service has none of its id and its data are past their retention by the policy:
    a key that nobody made yet is no such key, nor is one whose deletion still waits for `sparkcrypt shred`.

    Args:
        policy: whose tags say it (``late_data``).
        service: its key service.
        key_ids: the master keys that a write needs.
        now: by which time a retention is over, and on which day rows are written.

    Returns:
        Key id of a bucket -> key id of late data; key ids that are not in it stay as they are.
    """
    moment = now or datetime.now(timezone.utc)
    return {key_id: late for key_id in sorted(set(key_ids)) if (late := _late_key(policy, service, key_id, moment))}


def _late_key(policy: Policy, service: KeyService, key_id: str, now: datetime) -> str | None:
    rules = [rule for rule in policy.tags if rule.key is not None and rule.key.matches(key_id)]
    templates = {rule.late_data for rule in rules}
    late = templates.pop() if len(templates) == 1 else None
    if late is None or not retention_of_key(policy, key_id).is_over(now):
        return None
    try:
        service.describe(key_id)
    except KeyNotFoundError:
        return late.render({WRITTEN: f"{now.astimezone(timezone.utc):%Y-%m-%d}"})
    return None


def _make_key(policy: Policy, service: KeyService, key_id: str, now: datetime | None) -> bool:
    rules = [rule for rule in policy.tags if rule.template_of(key_id) is not None]
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

"""Keys of buckets for writes: created by the first write, replaced by the key of late data once they no longer exist.

A writer cannot open the audit of keys, so the policy keeps it from re-creating a shredded key: a bucket past its
retention gets no key, and no other key is ever due to be shredded.  If the state directory is a folder that this
process can read, a tombstone there also prevents it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timezone

from sparkcrypt.errors import KeyAccessDeniedError, KeyNotFoundError
from sparkcrypt.keys.service import KeyService
from sparkcrypt.keys.tombstones import describe_tombstone
from sparkcrypt.policy.key_retention import retention_of_key
from sparkcrypt.policy.model import Policy
from sparkcrypt.policy.template import WRITTEN
from sparkcrypt.text import utc_text


def make_bucket_keys(
    policy: Policy, service: KeyService, key_ids: Iterable[str], *, now: datetime | None = None
) -> tuple[str, ...]:
    """Create the missing keys that the policy lets a write create.

    Args:
        policy: its tags allow it (``create_keys``).
        service: its key service.
        key_ids: the master keys that a write needs; keys that a write may not create are ignored.
        now: the time at which retentions are judged.

    Returns:
        The keys that were created.

    Raises:
        KeyNotFoundError: a missing key was shredded, or its data are past their retention, or the end of it is not
            known; or the footer's key is missing too.
        KeyAccessDeniedError: these credentials may not create it.
    """
    return tuple(key_id for key_id in sorted(set(key_ids)) if _make_key(policy, service, key_id, now))


def route_late_keys(
    policy: Policy, service: KeyService, key_ids: Iterable[str], *, now: datetime | None = None
) -> dict[str, str]:
    """Return the key of late data for each bucket whose own key is gone, if the policy has one.

    A bucket's key is gone if the key service does not have it and its data are past their retention by the policy.
    A key that was not created yet is not gone, nor is one that `sparkcrypt shred` has yet to delete.

    Args:
        policy: its tags name the key (``late_data``).
        service: its key service.
        key_ids: the master keys that a write needs.
        now: the time at which retentions are judged, and the day on which rows are written.

    Returns:
        Key id of a bucket -> key id of late data; key ids that are not in it are unchanged.
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
    if not is_made_by_write(policy, service, key_id, now=now):
        return False
    service.create(key_id)
    return True


def is_made_by_write(policy: Policy, service: KeyService, key_id: str, *, now: datetime | None = None) -> bool:
    """Return whether a key is missing that the policy lets a write create; nothing is created.

    Raises:
        KeyNotFoundError: as `make_bucket_keys`.
    """
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
        with suppress(KeyAccessDeniedError):  # where even the footer's key is missing, keys are lost or not mounted
            service.describe(policy.footer_key)
        return True
    return False

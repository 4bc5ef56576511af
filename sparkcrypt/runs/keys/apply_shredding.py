"""Shredding of the keys of data past their retention, one after the other, so that a second command can continue.

Under the lock of the audit of keys, tables, records and holds are surveyed again.  Each key is deleted within
`FRESH_SECONDS` of the end of such a survey, or within the time that it took if that is longer; then follows another:
so surveys, which look at all tables, take at most half of a command's time, however many keys there are.  For each key:

1. it is still due, and nothing stands against it, by that survey;
2. an audit entry records what is about to be done, and why;
3. the key service deletes the key;
4. a new process proves that it cannot unwrap what the key had wrapped, since the key no longer exists;
5. the tombstone is written to the audit, and a copy of it for readers.

If the command is killed after 2, the key still exists, and everything is surveyed again; after 3, the key no longer
exists, and 4 and 5 follow.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from sparkcrypt import names
from sparkcrypt.bridge.client import HelperClient, helper_command
from sparkcrypt.errors import ConfigError, KeyNotFoundError, KeyServiceError, VerificationError
from sparkcrypt.keys.ids import encode_key_id, key_digest
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyDeletion, KeyService
from sparkcrypt.keys.tombstones import tombstone_name
from sparkcrypt.ledger.audit.key_audit import KeyAudit, KeyFacts, key_audit, read_key_facts
from sparkcrypt.ledger.journal.entries import AuditHead
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.find_shreddable import Selection, Survey
from sparkcrypt.runs.keys.shredding_plan import DarkTable, ShreddableKey, ShreddedKey, ShredPlan, ShredReport
from sparkcrypt.runs.passes.run_events import events_of_shredding
from sparkcrypt.runs.table.in_use import FRESH_SECONDS
from sparkcrypt.text import utc_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkcrypt.ledger.state.store import StateStore

COMMAND = "shred apply"
OVERDUE = "its retention is over"
_CACHE_SECONDS = 600
"""How long processes cache opened keys by default."""
_REMAINS = (
    "backups of the key service, and exports of its keys, that hold the key",
    "copies of the values elsewhere: caches and checkpoints of applications, exports, results that people kept",
    "applications that were launched with a longer parquet.encryption.cache.lifetime.seconds, and tasks that have "
    "opened a file already",
)

Confirm = Callable[[ShredPlan], None]
"""Asks the operator to confirm a plan; raises an error if the plan is not confirmed."""
_PROBE_BYTES = 16
_NO_PROBE = "nothing that a key service wrapped"
_SHREDDED = "another command shredded it meanwhile"


@dataclass(frozen=True, slots=True)
class ShredOptions:
    """The options of shredding.

    Attributes:
        reason: the reason, for the audit; required if the retention of a named key has no date.
        expected: a head of the audit of keys that was kept elsewhere.
        attended: whether an operator confirms the plan, and is told if no holds are recorded.
    """

    reason: str | None = None
    expected: AuditHead | None = None
    attended: bool = True


def shred_keys(
    spark: SparkSession,
    policy: Policy,
    selection: Selection,
    options: ShredOptions,
    *,
    confirm: Confirm,
    progress: Callable[[ShreddedKey], None] = lambda _: None,
) -> ShredReport:
    """Delete the keys that are due, or the one that is named, in the steps listed above.

    Args:
        spark: a classic session.
        policy: the policy that names the keys.
        selection: the keys and tables to select.
        options: the reason, and what is known of the audit of keys.
        confirm: called once with the plan, before any key is deleted.
        progress: called with each key after it was shredded.

    Raises:
        ConfigError: the key service cannot delete keys through sparkcrypt, holds are not known, or a reason is missing.
        VerificationError: the audit of keys was changed or cut, the state directory may be an earlier copy, the named
            key is held or needed, or a deletion is not proven.
        KeyServiceError: the key service failed or refused.
    """
    store = open_state_directory(spark, policy.run_state)
    service = open_key_service(policy.key_service)
    facts = read_key_facts(store, service, MasterKeys.of(policy), expected=options.expected)
    _refuse_unknown_holds(facts, options)
    _mark_tombstones(store, policy, facts)
    survey = Survey(spark, policy, store, service, selection)
    plan = survey.plan(expected=options.expected)
    _refuse(plan, selection, service)
    reason = options.reason or OVERDUE
    report = ShredReport(plan, reason, head=plan.head)
    if not plan.chosen:
        return report
    if options.reason is None and any(key.retention.over_at is None and not key.begun for key in plan.chosen):
        raise ConfigError(f"key {selection.key_id!r} has no date; give --reason, for those who read the audit")
    confirm(plan)
    lifetime = _cache_seconds(spark, service)
    with events_of_shredding(spark) as events:

        def tell(key: ShreddedKey) -> None:
            events.tell_shredded(key.key_id, {table.table: table.columns for table in key.dark})
            progress(key)

        waiting = deque(plan.chosen)
        while waiting:
            with key_audit(store, policy, COMMAND) as audit:
                began = time.monotonic()
                now = survey.plan(
                    expected=options.expected, facts=audit.facts, key_ids={confirmed.key_id for confirmed in waiting}
                )
                found, until = {key.key_id: key for key in now.keys}, _fresh_until(began)
                while waiting:
                    confirmed = waiting.popleft()
                    key = found.get(confirmed.key_id)
                    change = _find_change(confirmed, key, now.doubts)
                    if key is None or change is not None:
                        report.left[confirmed.key_id] = change or _SHREDDED
                        continue
                    report.shredded.append(_shred_key(audit, policy, service, key, reason, lifetime))
                    report.head = audit.facts.head_text
                    tell(report.shredded[-1])
                    if time.monotonic() >= until:
                        break
    return report


def _fresh_until(began: float) -> float:
    """Return until when keys may be deleted by a survey that has just ended, in seconds of the monotonic clock."""
    ended = time.monotonic()
    return ended + max(FRESH_SECONDS, ended - began)


def _shred_key(
    audit: KeyAudit, policy: Policy, service: KeyService, key: ShreddableKey, reason: str, lifetime: float
) -> ShreddedKey:
    """Delete one key, under the lock of the audit."""
    key_id, config = key.key_id, policy.key_service
    begun = audit.facts.begun.get(key_id)
    dark = [table.to_dict() for table in key.dark]
    if begun is None:
        audit.begin(key_id, reason, make_probe(service, config, key_id) if key.is_there else None, dark)
        begun = audit.facts.begun[key_id]
    audit.check_lock()
    deletion = _delete(service, key_id)
    prove_gone(config, key_id, begun.probe)
    uncached = utc_text(datetime.now(timezone.utc) + timedelta(seconds=lifetime))
    effective = max(uncached, deletion.final_at or "")
    audit.bury(key_id, begun.reason, effective, begun.dark, deletion.promise)
    exports = (f"known export: {export.to_text()}" for export in key.exports)
    remains = (*key.defeated_by, *exports, *_REMAINS)
    return ShreddedKey(key_id, effective, deletion.promise, key.dark, remains)


def _delete(service: KeyService, key_id: str) -> KeyDeletion:
    if service.offers("delete_key"):
        with contextlib.suppress(KeyNotFoundError):  # an earlier command, or an operator, deleted it
            return service.delete_key(key_id)
    return KeyDeletion(key_id, None, "the key service had the key no more")


def _refuse(plan: ShredPlan, selection: Selection, service: KeyService) -> None:
    """Raise an error if the plan permits no deletion.

    Raises:
        VerificationError, ConfigError: as `shred_keys`.
    """
    if plan.doubts:
        raise VerificationError(f"{'; '.join(plan.doubts)}; nothing was deleted")
    if selection.key_id is not None:
        for key in plan.keys:
            against = [*(f"is under {hold.to_text()}" for hold in key.holds), *key.refused]
            if against:
                raise VerificationError(f"key {key.key_id!r} is not shredded: {'; '.join(against)}")
    there = [key.key_id for key in plan.chosen if key.is_there]
    if there and not service.offers("delete_key"):
        raise ConfigError(
            f"this policy's key service ({service.provider}) does not delete keys here; delete "
            f"{', '.join(map(repr, there))} with the service's own tools once `sparkcrypt shred plan` refuses none of "
            "them, and give this command again, which proves it and writes the tombstones"
        )


def _refuse_unknown_holds(facts: KeyFacts, options: ShredOptions) -> None:
    if facts.head is None and options.expected is None and not options.attended:
        raise ConfigError(
            "the state directory has no audit of keys, so nobody can tell whether there were holds; where no key was "
            "ever held or shredded, give --head none; else restore the state directory's newest copy"
        )


def _mark_tombstones(store: StateStore, policy: Policy, facts: KeyFacts) -> None:
    """Write the copies of tombstones for readers that a killed command did not write."""
    unmarked = [key_id for key_id in facts.tombstones if store.read(tombstone_name(key_digest(key_id))) is None]
    if unmarked:
        with key_audit(store, policy, COMMAND) as audit:
            for key_id in unmarked:
                audit.mark(key_id)


def _find_change(confirmed: ShreddableKey, key: ShreddableKey | None, doubts: Sequence[str]) -> str | None:
    """Return why a confirmed key must not be deleted after all, by the survey right before; None if it may be."""
    if key is None:
        return _SHREDDED
    if not key.may_go:
        return "; ".join([*(hold.to_text() for hold in key.holds), *key.refused])
    if doubts:
        return "; ".join(doubts)
    more = _list_places(key.dark) - _list_places(confirmed.dark)
    if more:
        places = ", ".join(" of ".join(place) for place in sorted(more))
        return f"more came under it since it was confirmed: {places}; look at it with `sparkcrypt shred plan`"
    return None


def _list_places(dark: Sequence[DarkTable]) -> set[tuple[str, str]]:
    return {(column, table.table) for table in dark for column in table.columns}


def _cache_seconds(spark: SparkSession, service: KeyService) -> float:
    """Return for how many seconds after its deletion processes may still use a key that they have cached."""
    configured = spark.sparkContext.getConf().get(f"spark.hadoop.{names.CACHE_LIFETIME}", str(_CACHE_SECONDS))
    try:
        lifetime = max(float(_CACHE_SECONDS), float(configured or _CACHE_SECONDS))
    except ValueError:
        lifetime = float(_CACHE_SECONDS)
    return lifetime + float(getattr(service, "serve_stale_seconds", 0))


def make_probe(service: KeyService, config: KeyServiceConfig, key_id: str) -> str:
    """Return random bytes wrapped by a key, after another process has unwrapped them.

    Args:
        service: the key service.
        config: the configuration of the same key service, for the other process.
        key_id: the master key.

    Raises:
        KeyServiceError: the key does not wrap, or these credentials may not wrap or unwrap with it.
        VerificationError: the other process unwrapped other bytes.
    """
    secret = secrets.token_bytes(_PROBE_BYTES)
    try:
        probe = service.wrap(key_id, secret)
        opened = _unwrap_elsewhere(config, key_id, probe)
    except KeyServiceError as error:
        raise type(error)(
            f"{error}; who shreds a key must be able to wrap and unwrap with it, since its deletion is proven by what "
            "it wrapped before; nothing was deleted"
        ) from error
    if opened != secret:
        raise VerificationError(f"key {key_id!r} did not unwrap what it had wrapped; nothing was deleted")
    return probe


def prove_gone(config: KeyServiceConfig, key_id: str, probe: str | None) -> None:
    """Check that a new process cannot unwrap with a key because the key does not exist.

    Args:
        config: the configuration of the key service.
        key_id: the master key.
        probe: the text from `make_probe`; None if the key did not exist when its shredding began.

    Raises:
        VerificationError: the key service still has the key, or gives another reason.
    """
    try:
        _unwrap_elsewhere(config, key_id, probe or _NO_PROBE)
    except KeyNotFoundError:
        return
    except KeyServiceError as error:
        raise VerificationError(
            f"key {key_id!r}: its deletion is not proven, since the key service does not say that it is gone: {error}; "
            "give the command again, which goes on"
        ) from error
    raise VerificationError(
        f"key {key_id!r} still unwraps what it wrapped, though its key service was told to delete it; look there, and "
        "give the command again, which goes on"
    )


def _unwrap_elsewhere(config: KeyServiceConfig, key_id: str, wrapped: str) -> bytes:
    with HelperClient(helper_command()) as helper:
        answer = helper.call("unwrap", key_service=config.canonical(), key_id=encode_key_id(key_id), wrapped=wrapped)
        return base64.b64decode(answer["key"])

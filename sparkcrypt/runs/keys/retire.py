"""Retirement of older versions of a master key in two steps, since not everything that needs one can be known.

1. Once nothing that is known needs the versions, they are set aside: they unwrap nothing, and can be brought back.
2. After a grace, in which a copy, a backup or another metastore that needs one is refused by name, they are destroyed.

The audit of keys records each step before it is taken, and with the first the end of the grace; that versions were
brought back it records afterwards.  So every command may be given again, also after it was killed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sparkcrypt.errors import ConfigError, KeyNotFoundError, RunConflictError, VerificationError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyDescription, KeyService, OptionalVerb
from sparkcrypt.ledger.audit.key_audit import (
    KeyAudit,
    Retirement,
    ShreddedKeys,
    describe_refused,
    key_audit,
    read_key_facts,
)
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.keys_by_catalog import find_keys_in_use, find_needs
from sparkcrypt.runs.passes.keys_in_use import Coverage
from sparkcrypt.text import UTC_TIME, utc_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMAND = "keys retire"
GRACE_SECONDS = 30 * 86_400
_SHOWN = 10
_VERBS: tuple[OptionalVerb, ...] = ("set_aside", "bring_back", "destroy_versions")

State: TypeAlias = Literal["set aside", "destroyed", "brought back", "nothing retired"]


@dataclass(frozen=True, slots=True)
class Retired:
    """The result of a step of a retirement.

    Attributes:
        described: the key service's description of the key.
        state: what has become of the versions.
        retirement: the retirement by the audit of keys; None if nothing is retired.
        coverage: what was looked at for files that need the versions; None if nothing had to be.
    """

    described: KeyDescription
    state: State
    retirement: Retirement | None = None
    coverage: Coverage | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            **self.described.to_dict(),
            "first_usable": self.described.first_usable,
            "state": self.state,
            "retirement": None if self.retirement is None else self.retirement.to_dict(),
            "coverage": None if self.coverage is None else self.coverage.to_dict(),
        }


def retire_versions(
    spark: SparkSession,
    policy: Policy,
    key_id: str,
    below: int,
    *,
    grace_seconds: float = GRACE_SECONDS,
    leave_out: Collection[str] = (),
) -> Retired:
    """Set a master key's versions below a number aside, or destroy those whose grace is over.

    Before each of these the footers of all tables of the catalog are read again, and of the folders on which runs
    worked.  Other files are not known: copies, backups, and tables of other catalogs.

    Args:
        spark: a classic session.
        policy: the policy whose key service has the key.
        key_id: the master key.
        below: the first version that stays.
        grace_seconds: how long versions that this call sets aside can be brought back.
        leave_out: tables to ignore, by their names in messages or their ids, such as tables that were dropped.

    Raises:
        ConfigError: the key service does not set versions aside, or there are none below that number.
        VerificationError: a version is needed; the message names what needs it and what to do.
        KeyServiceError: the key does not exist, or these credentials may not describe or change it.
        RunConflictError: another command retires versions of it.
    """
    service = _open(policy)
    store = open_state_directory(spark, policy.run_state)
    try:
        described = service.describe(key_id)
    except KeyNotFoundError as error:
        raise describe_refused(ShreddedKeys(store, policy), key_id, error) from error
    standing = read_key_facts(store, service, MasterKeys.of(policy)).retired.get(key_id)
    _refuse_number(described, standing, below)
    if standing is None or not standing.below == below <= described.first_usable:
        coverage = _refuse_needed(spark, policy, key_id, below, leave_out)
        with _unchanged_audit(store, policy, key_id, standing) as audit:
            until = utc_text(datetime.now(timezone.utc) + timedelta(seconds=grace_seconds))
            retirement = audit.retire(key_id, below, until)
            return Retired(service.set_aside(key_id, below), "set aside", retirement, coverage)
    if standing.destroyed is not None:  # an earlier command may have been killed before it destroyed them
        return Retired(service.destroy_versions(key_id, below), "destroyed", standing)
    if datetime.now(timezone.utc) < datetime.strptime(standing.until, UTC_TIME).replace(tzinfo=timezone.utc):
        return Retired(described, "set aside", standing)
    coverage = _refuse_needed(spark, policy, key_id, below, leave_out)
    with _unchanged_audit(store, policy, key_id, standing) as audit:
        retirement = audit.destroy(key_id)
        audit.check_lock()
        return Retired(service.destroy_versions(key_id, below), "destroyed", retirement, coverage)


def bring_versions_back(store: StateStore, policy: Policy, key_id: str) -> Retired:
    """Undo a retirement: let the versions of a master key that it set aside unwrap again.

    Raises:
        ConfigError: the key service does not set versions aside.
        KeyServiceError: the key does not exist, the versions were destroyed, or these credentials may not change it.
    """
    service = _open(policy)
    with key_audit(store, policy, COMMAND) as audit:
        standing = audit.facts.retired.get(key_id)
        if standing is None:
            return Retired(service.describe(key_id), "nothing retired")
        described = service.bring_back(key_id)
        if standing.destroyed is not None and described.first_usable >= standing.below:
            raise KeyNotFoundError(
                f"key {key_id!r}: {standing.to_text()}; a backup of them brings them back (`sparkcrypt keys import` "
                "for a local key service, else the service's own tools)"
            )
        audit.bring_back(key_id)
    return Retired(described, "brought back")


def _open(policy: Policy) -> KeyService:
    service = open_key_service(policy.key_service)
    if not all(service.offers(verb) for verb in _VERBS):
        raise ConfigError(
            f"this policy's key service ({service.provider}) cannot set versions of a key aside, and sparkcrypt "
            "destroys none that it cannot bring back; keep them, or disable them with the service's own tools, in a "
            "way that can be undone, once `sparkcrypt keys status` tells of no file under them"
        )
    return service


@contextmanager
def _unchanged_audit(store: StateStore, policy: Policy, key_id: str, standing: Retirement | None) -> Iterator[KeyAudit]:
    """Yield the audit of keys for writing, if it says of a key's retirement what it said before.

    Raises:
        RunConflictError: another command retires versions of the key.
    """
    with key_audit(store, policy, COMMAND) as audit:
        if audit.facts.retired.get(key_id) != standing:
            raise RunConflictError(f"key {key_id!r}: another command retired versions of it meanwhile; repeat this one")
        yield audit


def _refuse_number(described: KeyDescription, standing: Retirement | None, below: int) -> None:
    """Check the first version that stays.

    Raises:
        ConfigError: it does not exist, or more is retired already.
    """
    key_id, newest = described.key_id, described.versions
    if not 1 < below <= newest:
        raise ConfigError(
            f"--below {below}: key {key_id!r} has versions up to {newest}; allowed: 2 to {newest}, which stays"
            if newest > 1
            else f"--below {below}: key {key_id!r} has one version, which wraps and stays; rotate it first"
        )
    if standing is not None and below < standing.below and described.first_usable >= standing.below:
        raise ConfigError(f"--below {below}: key {key_id!r}: {standing.to_text()}")


def _refuse_needed(
    spark: SparkSession, policy: Policy, key_id: str, below: int, leave_out: Collection[str]
) -> Coverage:
    """Check that nothing that is known needs versions of a master key; return what was looked at.

    Raises:
        VerificationError: something needs them, or nobody can tell.
    """
    found = find_keys_in_use(spark, policy, leave_out=leave_out, anew=True)
    needs = list(find_needs(spark, policy, key_id, below, found))
    if needs:
        more = f"; and {len(needs) - _SHOWN} more" if len(needs) > _SHOWN else ""
        reasons = "; ".join(f"{need.what}: {need.reason}" for need in needs[:_SHOWN])
        raise VerificationError(
            f"versions of {key_id!r} below {below} are needed: {reasons}{more}; nothing was changed"
        )
    return found.coverage

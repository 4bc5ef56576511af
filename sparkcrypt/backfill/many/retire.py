"""Retirement of older versions of a master key, after a check that no file, old file or record needs them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from sparkcrypt.backfill.audit.shredded_keys import ShreddedKeys, describe_refused
from sparkcrypt.backfill.many.key_needs import find_needs
from sparkcrypt.backfill.many.keys_by_catalog import find_keys_in_use
from sparkcrypt.backfill.state.directory import open_state_directory
from sparkcrypt.errors import ConfigError, KeyNotFoundError, VerificationError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyDescription, Retiring
from sparkcrypt.policy.model import Policy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHOWN = 10


def retire_versions(
    spark: SparkSession, policy: Policy, key_id: str, below: int, *, leave_out: Collection[str] = ()
) -> KeyDescription:
    """Retire a master key's versions below a number, if nothing that is known needs them.

    The footers of all tables of the catalog are read again, and of the folders that the state directory knows.  Other
    files are not known: copies, backups, and tables of other catalogs.

    Args:
        spark: a classic session.
        policy: the policy whose key service has the key.
        key_id: the master key.
        below: the first version that stays.
        leave_out: tables to ignore, by their names in messages or their ids, such as tables that were dropped.

    Raises:
        ConfigError: the key service does not retire versions, or there are none below that number to retire.
        VerificationError: a version is needed; the message names what needs it and what to do.
        KeyServiceError: the key does not exist, or these credentials may not describe or change it.
    """
    service = open_key_service(policy.key_service)
    if not isinstance(service, Retiring):
        raise ConfigError(
            f"this policy's key service ({type(service).__name__}) does not retire versions here; disable them with "
            "the service's own tools, once `sparkcrypt keys status` tells of no file under them"
        )
    store = open_state_directory(spark, policy.run_state)
    try:
        newest = service.describe(key_id).versions
    except KeyNotFoundError as error:
        raise describe_refused(ShreddedKeys(store, policy), key_id, error) from error
    if not 1 < below <= newest:
        raise ConfigError(
            f"--below {below}: key {key_id!r} has versions up to {newest}; allowed: 2 to {newest}, which stays"
            if newest > 1
            else f"--below {below}: key {key_id!r} has one version, which wraps and stays; rotate it first"
        )
    found = find_keys_in_use(spark, policy, leave_out=leave_out, anew=True)
    needs = list(find_needs(spark, policy, key_id, below, found))
    if needs:
        more = f"; and {len(needs) - _SHOWN} more" if len(needs) > _SHOWN else ""
        reasons = "; ".join(f"{need.what}: {need.reason}" for need in needs[:_SHOWN])
        raise VerificationError(
            f"versions of {key_id!r} below {below} are needed: {reasons}{more}; nothing was changed"
        )
    return service.retire(key_id, below)

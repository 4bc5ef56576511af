"""Retirement of older versions of a master key, after a check that no file, old file or record needs them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkcrypt.backfill.audit.shredded_keys import ShreddedKeys, describe_refused
from sparkcrypt.backfill.drift.footers import DriverFooters, TaskFooters, own_keys
from sparkcrypt.backfill.many.check_keys import Unopened, list_batches
from sparkcrypt.backfill.many.keys_in_use import TableUse, list_key_uses
from sparkcrypt.backfill.old_files.awaiting_expiry import count_awaiting_expiry
from sparkcrypt.backfill.report.amount import Amount
from sparkcrypt.backfill.state.directory import open_state_directory
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.backfill.target.target import catalog_target
from sparkcrypt.errors import ConfigError, KeyNotFoundError, VerificationError
from sparkcrypt.keys.material import version_of
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyDescription, Retiring
from sparkcrypt.native.footers import FooterFacts
from sparkcrypt.policy.former_services import kind_of, split_former
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.text import count_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = ("audit/", "runs/", "archive/", "indexes/")
"""Folders of the state directory with wrapped MAC keys of audits and wrapped secrets of runs' digests.

A table's KEKs do not need a version: under an older one they wrap nothing new, and files contain those that they need.
"""
_SHOWN = 10
_OLDER = "under an older version, or one that its key service keeps to itself"


@dataclass(frozen=True, slots=True)
class Need:
    """A table or record that needs older versions, and the reason, with what removes it."""

    what: str
    reason: str

    def to_dict(self) -> dict[str, str]:
        """Return it as JSON values."""
        return {"what": self.what, "reason": self.reason}


def retire_versions(
    spark: SparkSession, policy: Policy, key_id: str, below: int, *, leave_out: Collection[str] = ()
) -> KeyDescription:
    """Retire a master key's versions below a number, if nothing that is known needs them.

    The footers of all tables that the state directory knows are read again.  Other files are not known: copies,
    backups, and tables that no run has surveyed.

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
    needs = list(find_needs(spark, policy, key_id, below, leave_out=leave_out))
    if needs:
        more = f"; and {len(needs) - _SHOWN} more" if len(needs) > _SHOWN else ""
        reasons = "; ".join(f"{need.what}: {need.reason}" for need in needs[:_SHOWN])
        raise VerificationError(
            f"versions of {key_id!r} below {below} are needed: {reasons}{more}; nothing was changed"
        )
    return service.retire(key_id, below)


def find_needs(
    spark: SparkSession, policy: Policy, key_id: str, below: int, *, leave_out: Collection[str] = ()
) -> Iterator[Need]:
    """Yield every known reason to keep a master key's versions below a number; see `retire_versions`."""
    store = open_state_directory(spark, policy.run_state)
    for use in list_key_uses(store):
        if not {use.name, use.table_id} & set(leave_out):
            yield from _find_in_table(spark, policy, store, use, key_id, below)
    yield from find_records(store, key_id, below, split_former(policy.key_service)[0].type)


def find_records(store: StateStore, key_id: str, below: int, service_type: str) -> Iterator[Need]:
    """Yield the records of a state directory that contain a key or secret wrapped by an older version of a master key.

    Texts in the form of another type of key service than ``service_type`` are ignored: a former one wrapped them.
    """
    for kind in RECORDS:
        for name in store.list(kind):
            with contextlib.suppress(ValueError):  # a torn record is not used for anything
                objects = walk_objects(json.loads(store.read(name) or b""))
                if any(_is_needed(record, key_id, below, service_type) for record in objects):
                    yield Need(
                        name,
                        "holds a MAC key or a digest secret under an older version; audits are proven with it, so the "
                        "key of audits keeps its versions",
                    )


def _find_in_table(
    spark: SparkSession, policy: Policy, store: StateStore, use: TableUse, key_id: str, below: int
) -> Iterator[Need]:
    catalog, files = Catalog(spark), HadoopFiles(spark)
    if use.table is None or "/" in use.table or not catalog.exists(use.table):
        cached = use.keys.get(key_id)
        if not use.keys or (cached is not None and any(version < below for version in cached.versions)):
            yield Need(
                use.name,
                f"is no table of this catalog now, and {_OLDER}, or nobody can tell; give --leave-out with its name if "
                "its files are gone",
            )
        return
    target = catalog_target(spark, catalog.table(use.table), policy, None)
    reader = TaskFooters(spark, policy.key_service, DriverFooters(files, own_keys(policy.key_service)))
    needed, unread, holds = Amount(), 0, key_id in use.keys
    unlisted: list[Unopened] = []
    for some in list_batches(target, files, unlisted):
        found = reader.read(some)
        for file in some:
            facts = found[file.path]
            if not isinstance(facts, FooterFacts):
                unread += 1
                continue
            versions = [wrapping.version for wrapping in facts.summary.wrappings if wrapping.key_id == key_id]
            holds = holds or bool(versions)
            needed += Amount(1, file.length) if any(version < below for version in versions) else Amount()
    if needed.files:
        yield Need(
            use.name, f"{count_of(needed.files, 'file')} under an older version; `sparkcrypt rotate` rewraps them"
        )
    if unread or unlisted:
        what = f"{count_of(unread, 'file')} cannot be read, and {count_of(len(unlisted), 'folder')} cannot be listed"
        yield Need(use.name, f"{what}, so nobody can tell; see `sparkcrypt keys check`")
    waiting = count_awaiting_expiry(store, use.table_id, files, policy.grace_seconds).files if holds else 0
    if waiting:
        yield Need(
            use.name,
            f"{count_of(waiting, 'old file')} may be under an older version until `sparkcrypt backfill expire` deletes "
            "them",
        )


def walk_objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object inside a JSON value, also in strings of JSON, as which packs contain entries."""
    if isinstance(value, str) and value.startswith("{"):
        with contextlib.suppress(ValueError):
            yield from walk_objects(json.loads(value))
    elif isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from walk_objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk_objects(inner)


def _is_needed(record: dict[str, Any], key_id: str, below: int, service_type: str) -> bool:
    wrapped = record.get("wrapped")
    if record.get("key_id") != key_id or not isinstance(wrapped, str):
        return False
    return kind_of(wrapped) in ("", service_type) and version_of(wrapped) < below

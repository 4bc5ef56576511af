"""What needs older versions of a master key: files, old files that wait for expiry, records of the state directory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.material import version_of
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.policy.former_services import kind_of, split_former
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.old_folder import count_awaiting_expiry
from sparkcrypt.runs.passes.keys_by_catalog import KeysInUse
from sparkcrypt.runs.passes.keys_in_use import read_key_use
from sparkcrypt.runs.table.unit_survey import Amount
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.text import count_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = ("audit/", "runs/", "archive/", "indexes/")
"""Folders of the state directory with wrapped MAC keys of audits and wrapped secrets of runs' digests.

A table's KEKs do not need a version: under an older one they wrap nothing new, and files contain those that they need.
"""
_NO_TABLE = "which belong to no table, so a rotation does not rewrap them"
_OLDER = "under an older version, or one that its key service keeps to itself"


@dataclass(frozen=True, slots=True)
class Need(JsonObject):
    """A table or record that needs older versions, and the reason, with what removes it."""

    what: str
    reason: str


def find_needs(spark: SparkSession, policy: Policy, key_id: str, below: int, found: KeysInUse) -> Iterator[Need]:
    """Yield every known reason to keep a master key's versions below a number.

    Args:
        spark: a classic session.
        policy: the policy whose key service has the key.
        key_id: the master key.
        below: the first version that would stay.
        found: the keys in use.
    """
    store, files = open_state_directory(spark, policy.run_state), HadoopFiles(spark)
    for use in found.tables:
        held = use.keys.get(key_id)
        amount = Amount() if held is None else held.count_below(below)
        if amount.files:
            text = f"{count_of(amount.files, 'file')} under an older version"
            yield Need(use.name, f"{text}; {_NO_TABLE if '/' in use.name else '`sparkcrypt rotate` rewraps them'}")
        before = read_key_use(store, use.table_id)  # a later run may have brought its files under another key
        waiting = count_awaiting_expiry(store, use.table_id, files, policy.grace_seconds).files
        if waiting and (use.holds(key_id) or before.holds(key_id)):
            yield Need(
                use.name,
                f"{count_of(waiting, 'old file')} may be under an older version until `sparkcrypt backfill expire` "
                "deletes them",
            )
    for table, reason in found.coverage.not_looked_at.items():
        step = "see `sparkcrypt keys check`, or give --leave-out with its name if nothing of it is under the key"
        yield Need(table, f"{reason}; {step}")
    for use in found.recorded:
        cached = use.keys.get(key_id)
        if not use.keys or (cached is not None and cached.count_below(below).files):
            yield Need(
                use.name,
                f"is no table of this catalog now, and {_OLDER}, or nobody can tell; give --leave-out with its name if "
                "its files are gone",
            )
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

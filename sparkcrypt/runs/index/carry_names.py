"""Updating a table's store after a run, with new file names by the run's proof and new keys by its plan; reads no rows.

A stale store never makes queries wrong: every query opens a file that is not in it.  Errors here therefore do not fail
the run; the report contains that the store is stale, and why.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from sparkcrypt.errors import SparkcryptError
from sparkcrypt.ledger.journal.unit_status import UnitStatus
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.paths import is_hidden
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.index.proven_files import ProvenFile, Replaced, list_replaced, read_objects
from sparkcrypt.runs.index.table_store import TableStore, find_store
from sparkcrypt.runs.table.target import Target
from sparkcrypt.skipping.indexes.build import carry_store, keys_of_store
from sparkcrypt.skipping.indexes.files import SETTLED_SECONDS
from sparkcrypt.skipping.trusted.trust import TrustedStore
from sparkcrypt.skipping.trusted.write import standing_generation
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS, read_java_error


def carry_index(
    target: Target,
    policy: Policy,
    state_store: StateStore,
    files: HadoopFiles,
    units: Iterable[UnitStatus],
    *,
    back: bool,
) -> dict[str, Any] | None:
    """Update the store of a table for the files that a run, or its rollback, has put into use.

    Args:
        target: the table.
        policy: has the folder of stores, and names the keys.
        state_store: the state directory.
        files: the file system.
        units: the statuses of the units that were swapped, by the run's journal.
        back: whether they were rolled back since.

    Returns:
        ``state`` (``carried``, or ``stale``), ``reason`` (why it is stale, else None), ``store``, ``generation``, and
        ``known``: the number of the units' files in it.  None if the table has no store, or no unit was swapped.
    """
    swapped = tuple(units)
    if not swapped:
        return None
    where = f"{policy.index_location}/{target.uuid}"
    try:
        store = find_store(policy, target.uuid, state_store)
        if store is None:
            return None
        where = store.folder.uri
        if standing_generation(store.folder) is None:
            return None
        return _carry(store, target, files, list_replaced(files, store.service, swapped, back=back))
    except (SparkcryptError, OSError) as error:
        return _describe(where, None, 0, f"{type(error).__name__}: {error}")
    except JVM_ERRORS as error:
        return _describe(where, None, 0, ": ".join(read_java_error(error)))


def explain_stale(table: str, index: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return a warning for the report if a store is stale."""
    if index is None or index["reason"] is None:
        return ()
    return (
        f"{table}: its store for data skipping is stale: {index['reason']}; queries open every file that it does not "
        "know; `sparkcrypt index refresh` makes it known",
    )


def _carry(store: TableStore, target: Target, files: HadoopFiles, replaced: Replaced) -> dict[str, Any]:
    last = store.record.read()
    opened = store.open(last)
    objects = opened.sidecar.objects
    there = [found for found in replaced.proven if found.before in objects]
    _wait_until_settled(there)
    renamed = read_objects(files, there, opened.sidecar.digest_key)
    removed = {name for name in replaced.gone if name in objects} - renamed.keys()
    keys, generation = store.choose_keys(opened, target.plan), opened.sidecar.generation
    in_order = keys.columns == keys_of_store(opened.store, store.policy.footer_key) and not _has_leftovers(
        store, opened
    )
    if renamed or removed or not in_order:
        written = carry_store(store.folder, opened, renamed, removed, keys, generation=last)
        objects, generation = written.objects, written.generation
    store.record.keep(generation)
    names = [found.name for found in replaced.proven]
    count = sum(name in objects for name in names)
    unknown = len(names) + len(replaced.others) - count
    why = None if unknown == 0 else _explain_unknown(unknown, len(names) + len(replaced.others))
    return _describe(store.folder.uri, generation, count, why)


def _has_leftovers(store: TableStore, opened: TrustedStore) -> bool:
    """Return whether a killed writer left files beside the store, which may be under a column's former key."""
    there = (name for name in store.folder.names() if not is_hidden(name))
    return any(name not in opened.sidecar.files for name in there)


def _explain_unknown(unknown: int, total: int) -> str:
    return (
        f"it does not know {unknown:,} of {total:,} files: their old files were not in it, or no new file was proven "
        "to hold the rows of one old file alone"
    )


def _describe(where: str, generation: int | None, known: int, reason: str | None) -> dict[str, Any]:
    state = "carried" if reason is None else "stale"
    return {"state": state, "reason": reason, "store": where, "generation": generation, "known": known}


def _wait_until_settled(found: Iterable[ProvenFile]) -> None:
    """Wait until files are so old that a file that replaces one would have another modification time."""
    newest = max((proven.file.modified_ms for proven in found), default=0) / 1000
    time.sleep(min(SETTLED_SECONDS, max(0.0, newest + SETTLED_SECONDS - time.time())))

"""Folders of runs that nobody knows any more: their table was dropped or made anew, or the state directory was lost.

`expire` works from the journals of a table that is there.  What it cannot reach is found here: below the
``.sparkcrypt`` folders beside tables, among the old folders of journals whose table is gone, and where a partition
points below ``.sparkcrypt`` while files are in the folder that it would have by its name.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkcrypt.backfill.after.deletion_audit import ORPHANS, DeletionAudit, deletion_audit
from sparkcrypt.backfill.after.orphan_search import ASIDE, Orphan, OrphanSearch
from sparkcrypt.backfill.old_files.ended_writers import writers_folder
from sparkcrypt.backfill.state.directory import open_states
from sparkcrypt.backfill.target.disposal import Disposal
from sparkcrypt.backfill.target.unit import is_staged
from sparkcrypt.errors import ConfigError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.files.hadoop import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_SECONDS = 24 * 3600
"""The youngest that is ever listed: what another state directory's runs are staging looks the same."""


def find_orphans(
    spark: SparkSession,
    policy: Policy,
    *,
    databases: tuple[str, ...] = (),
    path: str | None = None,
    older_than_seconds: float = 7 * 86_400,
    delete: bool = False,
) -> list[Orphan]:
    """Find folders of runs that nobody knows, and delete those that may go, if that is asked.

    Args:
        spark: a classic session.
        policy: whose state directory tells of live runs.
        databases: beside whose tables to look; all of them by default.
        path: look below this folder instead.
        older_than_seconds: nothing in it changed for so long.
        delete: delete old and staged files, and audit each deletion.  New files are never deleted, since the rows of a
            dropped external table may be there alone.

    Raises:
        RunConflictError: somebody else deletes orphans under the same state directory.
        KeyServiceError: the key service did not open the audit; nothing was deleted.
        ConfigError: less than a day was asked for.
        PlanError: the partitions of a table could not be listed, so nobody can tell what is in use.
    """
    if older_than_seconds < LEAST_SECONDS:
        raise ConfigError(
            f"--older-than of {older_than_seconds:,.0f} seconds: allowed: 24h or more, since what runs of another "
            "state directory are staging looks the same"
        )
    search = OrphanSearch(spark, policy)
    before_ms = int((time.time() - older_than_seconds) * 1000)
    found = [orphan for orphan in search.find_all(databases, path) if orphan.newest_ms < before_ms]
    return _delete(search, found, ORPHANS) if delete else found


def expire_left(
    spark: SparkSession, policy: Policy, table_id: str, *, older_than_seconds: float, dry_run: bool
) -> list[Orphan]:
    """Delete the old files of runs whose table is gone, or of a bare folder; each deletion is audited.

    Args:
        spark: a classic session.
        policy: whose state directory holds the journals.
        table_id: the table's UUID, or the folder's id.
        older_than_seconds: a run that wrote later keeps its old files.
        dry_run: tell, and change nothing.

    Raises:
        RunConflictError: a run holds the table.
        ConfigError: no run of it is known.
        PlanError: the partitions of a table could not be listed, so nobody can tell what is in use.
    """
    store = open_states(spark, policy.run_state, outside=f"{policy.run_state}/.nothing")
    if not store.list(f"runs/{table_id}/"):
        raise ConfigError(f"{table_id}: no run is known in this state directory; `sparkcrypt backfill list` lists them")
    search = OrphanSearch(spark, policy)
    before_ms = int((time.time() - older_than_seconds) * 1000)
    found = [orphan for orphan in search.find_left_of(table_id) if orphan.newest_ms <= before_ms]
    return found if dry_run else _delete(search, found, table_id)


def _delete(search: OrphanSearch, found: list[Orphan], table_id: str) -> list[Orphan]:
    """Delete those orphans that may go; each deletion stands in the audit of a table."""
    if all(orphan.why_kept for orphan in found):
        return found
    with deletion_audit(search.store, search.policy, table_id) as audit:
        return _delete_audited(search, found, audit)


def _delete_audited(search: OrphanSearch, found: list[Orphan], audit: DeletionAudit) -> list[Orphan]:
    """Delete orphans, unless somebody uses them or anything in them changed."""
    going = {orphan.folder: orphan for orphan in found if orphan.why_kept is None}
    kept = {folder: _find_writer(search.files, folder, orphan.base) for folder, orphan in going.items()}
    bases = {folder: orphan.base for folder, orphan in going.items()}
    disposal = Disposal(search.files, search.in_use, "", ASIDE, audit.check_lock, bases, asks_all=True)

    def inspect(folder: str, place: str) -> str | None:
        if search.list_contents(place) != going[folder].contents:
            return f"{folder}: files came or went since it was looked at; it stays, run again"
        return _find_writer(search.files, folder, going[folder].base)

    def note_deletion(folder: str) -> None:
        audit.note_deletion(folder, going[folder].kind, going[folder].files, going[folder].total_bytes)

    wanted = [folder for folder, why in kept.items() if why is None]
    kept |= disposal.delete(wanted, inspect=inspect, deleted=note_deletion)
    return [
        orphan
        if orphan.why_kept
        else replace(orphan, why_kept=kept[orphan.folder], deleted=kept[orphan.folder] is None)
        for orphan in found
    ]


def _find_writer(files: HadoopFiles, folder: str, base: str) -> str | None:
    """Say which writer may commit to a folder; nobody does below ``.sparkcrypt``, where no partition points."""
    writing = None if is_staged(folder) else writers_folder(files, folder, base)
    if writing is None:
        return None
    return f"{writing} is there, so a writer may still commit to {folder}; delete that if its writer was killed"

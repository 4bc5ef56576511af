"""Expiry of many tables, by name, pattern, database or the UUID of a dropped table, and of a bare folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkcrypt.json_objects import JsonObject
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.expire import Expired, expire_run
from sparkcrypt.runs.old_folders.orphans import Orphan, expire_left
from sparkcrypt.runs.passes.chosen_tables import Choice, choose_tables
from sparkcrypt.runs.passes.table_failures import TableError, TableFailures
from sparkcrypt.runs.table.open_table import Progress
from sparkcrypt.runs.table.target import target_folder_id
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class ManyExpired(JsonObject):
    """The result of the expiry of many tables.

    Attributes:
        tables: the results of existing tables.
        left: UUID of a dropped table, or path of a bare folder -> its old folders.
        failed: the tables that failed, each with its error.
    """

    tables: tuple[Expired, ...] = ()
    left: Mapping[str, tuple[Orphan, ...]] = field(default_factory=dict)
    failed: tuple[TableError, ...] = ()


def expire_many(
    spark: SparkSession,
    policy: Policy,
    choice: Choice,
    *,
    path: str | None = None,
    older_than_seconds: float,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ManyExpired:
    """Delete old files of several tables; an existing table that fails keeps its old files, and the others are done.

    Args:
        spark: a classic session.
        policy: the policy under which the runs were made.
        choice: tables, patterns, UUIDs of dropped tables, databases; existing tables without a known run are skipped.
        path: a bare folder that was rewritten with ``--exclusive``.
        older_than_seconds: runs with a more recent swap, or of dropped tables with a more recent record, keep their old
            files.
        dry_run: report, and change nothing.
        progress: receives progress updates.

    Raises:
        PlanError: a table or database does not exist.
        KeyServiceUnavailableError, BridgeError: an error that every other table would meet too.
    """
    ids = [chosen for chosen in choice.tables if _UUID.fullmatch(chosen)]
    named = Choice(tuple(chosen for chosen in choice.tables if chosen not in ids), choice.databases)
    names = {table.uuid: table.full_name for table in _tables(spark)} if ids else {}
    found = {
        chosen.table.full_name: chosen.table.uuid
        for chosen in (choose_tables(spark, named) if named != Choice() else ())
    }
    found |= {names[table_id]: table_id for table_id in ids if table_id in names}
    store = open_state_directory(spark, policy.run_state)
    done, failures = list[Expired](), TableFailures()
    for name, uuid in found.items():
        with failures.of(name):
            if uuid is not None and Journal.runs(store, uuid):
                done.append(
                    expire_run(
                        spark, name, policy, older_than_seconds=older_than_seconds, dry_run=dry_run, progress=progress
                    )
                )
    dropped = {table_id: table_id for table_id in ids if table_id not in names}
    if path is not None:
        qualified = HadoopFiles(spark).qualify(path.rstrip("/"))
        dropped[qualified] = target_folder_id(qualified)
    leftovers = {
        name: tuple(expire_left(spark, policy, table_id, older_than_seconds=older_than_seconds, dry_run=dry_run))
        for name, table_id in dropped.items()
    }
    return ManyExpired(tuple(done), leftovers, tuple(failures.found))


def _tables(spark: SparkSession) -> Iterator[Any]:
    catalog = Catalog(spark)
    for database in catalog.databases():
        yield from catalog.all_of(database)

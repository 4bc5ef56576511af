"""Expiry of many tables at once: by name, pattern or database, by the UUID of a dropped table, or of a directory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkcrypt.backfill.choice import Choice, chosen_tables
from sparkcrypt.backfill.expire import Expired, expire_run
from sparkcrypt.backfill.journal import Journal
from sparkcrypt.backfill.orphans import Orphan, expire_left
from sparkcrypt.backfill.pass_report import TableError
from sparkcrypt.backfill.progress import Progress
from sparkcrypt.backfill.states import open_states
from sparkcrypt.backfill.targets import directory_id
from sparkcrypt.errors import BridgeError, KeyServiceUnavailableError, SparkcryptError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.catalog import Catalog
from sparkcrypt.spark.files import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class ManyExpired:
    """What was disposed of: of tables, of those that are gone and of directories, and which could not be."""

    tables: tuple[Expired, ...] = ()
    left: Mapping[str, tuple[Orphan, ...]] = field(default_factory=dict)
    failed: tuple[TableError, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "tables": [one.to_dict() for one in self.tables],
            "left": {name: [one.to_dict() for one in found] for name, found in self.left.items()},
            "failed": [one.to_dict() for one in self.failed],
        }


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
    """Delete old files of several tables; one that cannot be done keeps its own, and the others are done.

    Args:
        spark: a classic session.
        policy: under which the runs were made.
        choice: tables, patterns, UUIDs of dropped tables, databases; those without a known run are passed over.
        path: a bare directory that was rewritten with ``--exclusive``.
        older_than_seconds: runs that wrote later keep their old files.
        dry_run: tell, and change nothing.
        progress: hears what is done.

    Raises:
        PlanError: a table or database is not there.
        KeyServiceUnavailableError, BridgeError: nothing can be done for any table.
    """
    ids = [one for one in choice.tables if _UUID.fullmatch(one)]
    named = Choice(tuple(one for one in choice.tables if one not in ids), choice.databases)
    names = {table.uuid: table.full_name for table in _tables(spark)} if ids else {}
    found = {one.table.full_name: one.table.uuid for one in (chosen_tables(spark, named) if named != Choice() else ())}
    found |= {names[one]: one for one in ids if one in names}
    store = open_states(spark, policy.run_state, outside=f"{policy.run_state}/.nothing")
    done, failed = list[Expired](), list[TableError]()
    for name, uuid in found.items():
        if uuid is None or not Journal.runs(store, uuid):
            continue
        try:
            done.append(
                expire_run(
                    spark, name, policy, older_than_seconds=older_than_seconds, dry_run=dry_run, progress=progress
                )
            )
        except (KeyServiceUnavailableError, BridgeError):
            raise
        except SparkcryptError as error:
            failed.append(TableError(name, type(error).__name__, str(error)))
    gone = {one: one for one in ids if one not in names}
    if path is not None:
        qualified = HadoopFiles(spark).qualified(path.rstrip("/"))
        gone[qualified] = directory_id(qualified)
    left = {
        name: tuple(expire_left(spark, policy, one, older_than_seconds=older_than_seconds, dry_run=dry_run))
        for name, one in gone.items()
    }
    return ManyExpired(tuple(done), left, tuple(failed))


def _tables(spark: SparkSession) -> Iterator[Any]:
    catalog = Catalog(spark)
    for database in catalog.databases():
        yield from catalog.all_of(database)

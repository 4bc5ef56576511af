"""A table or folder that is opened for a command, with all that work on it needs, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sparkcrypt.ledger.audit.trust import TableTrust
from sparkcrypt.ledger.state.directory import open_state_directory
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.table.in_use import InUse, OtherTables
from sparkcrypt.runs.table.progress import Progress
from sparkcrypt.runs.table.target import Target, locations_of, pin_places_of
from sparkcrypt.spark.files.hadoop import HadoopFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SessionUnderPolicy:
    """A classic session, and the policy that says what tags mean in it."""

    spark: SparkSession
    policy: Policy


@dataclass(frozen=True, slots=True)
class OpenTable(SessionUnderPolicy):
    """A table or bare folder, opened once, with the session and policy; `open_target` creates it.

    Attributes:
        target: the table or folder.
        files: the file system.
        store: the state directory.
        trust: opens its journals, and authenticates its records.
        in_use: looks up which folders are in use, by the metastore.
        progress: receives progress updates.
    """

    target: Target
    files: HadoopFiles
    store: StateStore
    trust: TableTrust
    in_use: InUse
    progress: Progress


def open_target(
    spark: SparkSession,
    target: Target,
    policy: Policy,
    progress: Progress | None = None,
    others: OtherTables | None = None,
) -> OpenTable:
    """Open a target; no file of it is read, and nothing is written.

    Args:
        spark: a classic session that is configured with the policy.
        target: the table or folder.
        policy: what its tags mean.
        progress: by default, nothing receives updates.
        others: the folders of other tables, which the tables of a pass share; by default, listed when first needed.

    Raises:
        ConfigError: the state directory cannot be opened.
    """
    store = open_state_directory(spark, policy.run_state, outside=target.base)
    in_use = InUse(spark, target, others or OtherTables(spark, policy.aliases))
    locations = partial(locations_of, spark, target)
    pins = partial(pin_places_of, spark, target)
    trust = TableTrust(store, target.table_id, policy, target.base, locations, in_use.is_free, pins)
    return OpenTable(spark, policy, target, HadoopFiles(spark), store, trust, in_use, progress or Progress())

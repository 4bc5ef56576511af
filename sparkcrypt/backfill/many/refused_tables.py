"""What a pass does not begin: tables of other kinds, tables that lost their tags, tables that share a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkcrypt.backfill.journal.journal import Journal
from sparkcrypt.backfill.many.chosen_tables import Chosen
from sparkcrypt.backfill.state.store import StateStore
from sparkcrypt.backfill.target.shared_folders import folders_of_tables, shared_with
from sparkcrypt.backfill.target.target import Target, refuse_kinds
from sparkcrypt.errors import PlanError, VerificationError
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class TurnedAway:
    """Tables that were not begun: table -> reason.

    ``refused`` should have been done; ``passed_over`` are what a database holds besides tables that the
    policy has encrypted.
    """

    refused: dict[str, str] = field(default_factory=dict)
    passed_over: dict[str, str] = field(default_factory=dict)


class Gate:
    """Decides which tables a pass may work on, and notes the others."""

    def __init__(self, spark: SparkSession, policy: Policy, *, accept_path_readers: bool) -> None:
        self._spark, self._policy, self._accept = spark, policy, accept_path_readers
        self.away = TurnedAway()
        self._known: dict[str, dict[str, frozenset[str]]] = {}

    def of_kind(self, chosen: Chosen) -> bool:
        """Tell whether a table is of a kind that can be rewritten; one that was named itself should be."""
        try:
            refuse_kinds(chosen.table, self._policy)
        except PlanError as error:
            away = self.away.refused if chosen.named else self.away.passed_over
            away[chosen.table.full_name] = str(error)
            return False
        return True

    def safe(self, target: Target, store: StateStore) -> bool:
        """Tell whether a run would do what it should, and nothing else."""
        reason = _describe_lost(lost_tags(store, target.table_id, target.plan)) or self._find_shared(target.table)
        if reason is not None:
            self.away.refused[target.name] = reason
        return reason is None

    def _find_shared(self, table: Table | None) -> str | None:
        if table is None or self._accept:
            return None
        partitions = Catalog(self._spark).partitions(table) if table.partition_columns else ()
        shared = shared_with(table, [partition.location for partition in partitions], self._folders(table))
        if shared is None:
            return None
        return (
            f"{shared}: whoever reads the other would find old files, or none; move one of them, or run with "
            "--accept-path-readers"
        )

    def _folders(self, table: Table) -> dict[str, frozenset[str]]:
        if table.database not in self._known:
            self._known[table.database] = folders_of_tables(self._spark, table.database)
        return self._known[table.database]


def lost_tags(store: StateStore, table_id: str, plan: EncryptionPlan) -> tuple[str, ...]:
    """Return the columns of a table whose tags vanished since its last run.

    ``sparkcrypt tags unset`` leaves the old key in the column's history, so a column without tags and without history
    lost them otherwise: by ADD COLUMNS through Hive, or in a table that was made again.

    This spares a look at the files.  Nothing depends on it: a run refuses each unit in which such a column is encrypted
    (`refuse_untagged`), whatever journals say, so here they are taken as they stand, and damaged ones are skipped.
    """
    columns = _newest_plan(store, table_id)
    before = {str(column["column"]) for column in columns if column["tags"] and column["action"] != "plaintext"}
    return tuple(
        column.leaf.dotted
        for column in plan.columns
        if column.leaf.dotted in before and not column.tags and not column.history
    )


def _newest_plan(store: StateStore, table_id: str) -> list[dict[str, Any]]:
    """Return the columns of the plan of the newest run that can be read."""
    for run_id in reversed(Journal.runs(store, table_id)):
        try:
            return list(Journal.open(store, table_id, run_id).run.plan["columns"])
        except VerificationError:
            continue
    return []


def _describe_lost(columns: tuple[str, ...]) -> str | None:
    if not columns:
        return None
    return (
        f"the tags of {', '.join(columns)} are gone, and were not taken off by `sparkcrypt tags unset`, so a run would "
        "decrypt what should stay encrypted; set them again with `sparkcrypt tags set`, and then unset them if they "
        "should go"
    )

"""Tables that a pass does not begin: tables of other kinds, tables that lost tags, tables that share a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkcrypt.errors import PlanError
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.paths import PlaceIndex
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.chosen_tables import Chosen
from sparkcrypt.runs.passes.lost_tags import lost_tags, record_lost_tags
from sparkcrypt.runs.rewrite.run_report import WITHOUT_EFFECT
from sparkcrypt.runs.table.in_use import describe_sharing, folders_of_tables
from sparkcrypt.runs.table.target import Target, refuse_kinds
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.remembered_names import lost_tags_of_name
from sparkcrypt.spark.tables.table import Table
from sparkcrypt.spark.tables.tags_without_effect import find_tags_without_effect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class TurnedAway:
    """Tables that were not begun.

    Attributes:
        refused: table -> reason, of tables that should have been done.
        passed_over: table -> reason, of other tables and views in a database, which the policy does not encrypt.
        warnings: the tags of such tables, which have no effect.
    """

    refused: dict[str, str] = field(default_factory=dict)
    passed_over: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class Gate:
    """A filter of the tables on which a pass may work; it records the others."""

    def __init__(self, spark: SparkSession, policy: Policy, *, accept_path_readers: bool) -> None:
        self._spark, self._policy, self._accept = spark, policy, accept_path_readers
        self.away = TurnedAway()
        self._known: dict[str, PlaceIndex[str]] = {}

    def of_kind(self, chosen: Chosen) -> bool:
        """Tell whether a table is of a kind that can be rewritten; if not and it was named, record it as refused."""
        try:
            refuse_kinds(chosen.table, self._policy)
        except PlanError as error:
            away = self.away.refused if chosen.named else self.away.passed_over
            away[chosen.table.full_name] = str(error)
            lines = find_tags_without_effect(self._spark, chosen.table, self._policy)
            self.away.warnings += [f"{WITHOUT_EFFECT} {line}" for line in lines]
            return False
        return True

    def may_run(self, target: Target, store: StateStore, *, dry_run: bool) -> bool:
        """Tell whether a run may begin: the table lost no tags and shares no folder; if not, record it as refused.

        Args:
            target: the table.
            store: the state directory, which then also has what tags it lost, unless ``dry_run``.
            dry_run: whether nothing is to be changed.
        """
        lost = _describe_lost(lost_tags(store, target.table_id, target.plan)) or self._find_lost_by_name(target.table)
        if not dry_run:
            record_lost_tags(store, target.name, lost)
        reason = lost or self._find_shared(target.table)
        if reason is not None:
            self.away.refused[target.name] = reason
        return reason is None

    def _find_lost_by_name(self, table: Table | None) -> str | None:
        if table is None:
            return None
        lost = lost_tags_of_name(self._spark, table)
        if not lost:
            return None
        columns = "; ".join(f"{column}: {','.join(tags)}" for column, tags in lost.items())
        return (
            f"tags lost: {columns}; they were set for this name, and the table was made anew without them, so its rows "
            "may be in clear; set them again with `sparkcrypt tags set`; if they should go, set and then unset them"
        )

    def _find_shared(self, table: Table | None) -> str | None:
        if table is None or self._accept:
            return None
        partitions = Catalog(self._spark).partitions(table) if table.partition_columns else ()
        places, aliases = [partition.location for partition in partitions], self._policy.aliases
        shared = describe_sharing(table, places, self._folders(table), aliases)
        if shared is None:
            return None
        return (
            f"{shared}: whoever reads the other would find old files, or none; move one of them, or run with "
            "--accept-path-readers"
        )

    def _folders(self, table: Table) -> PlaceIndex[str]:
        if table.database not in self._known:
            self._known[table.database] = folders_of_tables(self._spark, table.database, self._policy.aliases)
        return self._known[table.database]


def _describe_lost(columns: tuple[str, ...]) -> str | None:
    if not columns:
        return None
    return (
        f"the tags of {', '.join(columns)} are gone, and were not taken off by `sparkcrypt tags unset`, so a run would "
        "decrypt what should stay encrypted; set them again with `sparkcrypt tags set`, and then unset them if they "
        "should go"
    )

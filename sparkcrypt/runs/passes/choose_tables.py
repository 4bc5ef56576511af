"""Choice of the tables of a pass, by name, pattern or database; those on which no run may begin are recorded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from sparkcrypt.errors import PlanError
from sparkcrypt.paths import PlaceIndex
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.lost_tags import lost_tags, record_lost_tags
from sparkcrypt.runs.rewrite.run_report import WITHOUT_EFFECT
from sparkcrypt.runs.table.in_use import describe_sharing, folders_of_tables
from sparkcrypt.runs.table.open_table import OpenTable
from sparkcrypt.runs.table.target import refuse_kinds
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.planning import find_tags_without_effect
from sparkcrypt.spark.tables.remembered_names import lost_tags_of_name
from sparkcrypt.spark.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_WILD = "*?["


@dataclass(frozen=True, slots=True)
class Choice:
    """The tables and databases that the operator named.

    Attributes:
        tables: ``db.table``, or patterns such as ``sales.cust*``.
        databases: databases whose tables are all chosen; views and tables of other formats are skipped.
    """

    tables: tuple[str, ...] = ()
    databases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """A chosen table; ``named`` if its full name was given, so that an unsuitable table is an error."""

    table: Table
    named: bool


def choose_tables(spark: SparkSession, choice: Choice) -> tuple[Chosen, ...]:
    """Return the tables of a choice, each once, in the order of their names.

    Raises:
        PlanError: a table or database does not exist, or a pattern matches no table.
    """
    catalog = Catalog(spark)
    found: dict[str, Chosen] = {}
    for database in choice.databases:
        for table in catalog.all_of(database):
            _add(found, Chosen(table, named=False))
    for pattern in choice.tables:
        if any(sign in pattern for sign in _WILD):
            fitting = list(_find_matching_tables(catalog, pattern, spark.catalog.currentDatabase()))
            if not fitting:
                bare = "" if "." in pattern else f"in the current database; '*.{pattern}' looks in all; "
                raise PlanError(f"--table {pattern}: fits no table; {bare}SHOW TABLES IN … lists what is there")
            for table in fitting:
                _add(found, Chosen(table, named=False))
        else:
            _add(found, Chosen(catalog.table(pattern), named=True))
    return tuple(found[name] for name in sorted(found))


def _add(found: dict[str, Chosen], chosen: Chosen) -> None:
    name = chosen.table.full_name
    if chosen.named or name not in found:
        found[name] = chosen


def _find_matching_tables(catalog: Catalog, pattern: str, current: str) -> Iterator[Table]:
    database, dot, table = pattern.replace("`", "").lower().rpartition(".")
    for name in catalog.databases() if dot else (current,):
        if not dot or fnmatchcase(name.lower(), database):
            for found in catalog.all_of(name):
                if fnmatchcase(found.name.lower(), table):
                    yield found


@dataclass(slots=True)
class Gate:
    """A filter of the tables on which a pass may work; it records the others.  Threads may ask concurrently.

    Attributes:
        accepts_path_readers: whether a table that shares a folder with another may be done.
        refused: table -> reason, of tables that should have been done.
        passed_over: table -> reason, of other tables and views in a database, which the policy does not encrypt.
        warnings: the tags of such tables, which have no effect.
    """

    accepts_path_readers: bool = True
    refused: dict[str, str] = field(default_factory=dict)
    passed_over: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    _folders: dict[str, PlaceIndex[str]] = field(default_factory=dict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def of_kind(self, spark: SparkSession, policy: Policy, chosen: Chosen) -> bool:
        """Tell whether a table is of a kind that can be rewritten; if not and it was named, record it as refused."""
        try:
            refuse_kinds(chosen.table, policy)
        except PlanError as error:
            away = self.refused if chosen.named else self.passed_over
            away[chosen.table.full_name] = str(error)
            lines = find_tags_without_effect(spark, chosen.table, policy)
            self.warnings += [f"{WITHOUT_EFFECT} {line}" for line in lines]
            return False
        return True

    def may_run(self, opened: OpenTable, *, dry_run: bool) -> bool:
        """Tell whether a run may begin: the table lost no tags and shares no folder; if not, record it as refused.

        Args:
            opened: the table; its state directory then also has what tags it lost, unless ``dry_run``.
            dry_run: whether nothing is to be changed.
        """
        target = opened.target
        lost = _describe_lost(lost_tags(opened.store, target.table_id, target.plan)) or _find_lost_by_name(opened)
        if not dry_run:
            record_lost_tags(opened.store, target.name, lost)
        reason = lost or self._find_shared(opened)
        if reason is not None:
            self.refused[target.name] = reason
        return reason is None

    def _find_shared(self, opened: OpenTable) -> str | None:
        table, aliases = opened.target.table, opened.policy.aliases
        if table is None or self.accepts_path_readers:
            return None
        with self._mutex:
            if table.database not in self._folders:
                self._folders[table.database] = folders_of_tables(opened.spark, table.database, aliases)
        partitions = Catalog(opened.spark).partitions(table) if table.partition_columns else ()
        places = [partition.location for partition in partitions]
        shared = describe_sharing(table, places, self._folders[table.database], aliases)
        if shared is None:
            return None
        return (
            f"{shared}: whoever reads the other would find old files, or none; move one of them, or run with "
            "--accept-path-readers"
        )


def _find_lost_by_name(opened: OpenTable) -> str | None:
    lost = None if opened.target.table is None else lost_tags_of_name(opened.spark, opened.target.table)
    if not lost:
        return None
    columns = "; ".join(f"{column}: {','.join(tags)}" for column, tags in lost.items())
    return (
        f"tags lost: {columns}; they were set for this name, and the table was made anew without them, so its rows "
        "may be in clear; set them again with `sparkcrypt tags set`; if they should go, set and then unset them"
    )


def _describe_lost(columns: tuple[str, ...]) -> str | None:
    if not columns:
        return None
    return (
        f"the tags of {', '.join(columns)} are gone, and were not taken off by `sparkcrypt tags unset`, so a run would "
        "decrypt what should stay encrypted; set them again with `sparkcrypt tags set`, and then unset them if they "
        "should go"
    )

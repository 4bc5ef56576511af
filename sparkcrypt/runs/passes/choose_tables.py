"""Choice of the tables of a pass, by name, pattern, database or tag; those on which no run may begin are recorded."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from sparkcrypt.errors import ConfigError, PlanError, SparkcryptError
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
from sparkcrypt.spark.tables.tagging import tags_of_table
from sparkcrypt.tags.model import tags_of_overlay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_WILD = "*?["


@dataclass(frozen=True, slots=True)
class Filters:
    """What the operator keeps of the tables that are chosen.

    Attributes:
        select: ``tag:NAME``: only tables of which a column has one of these tags, the policy's overlay counted.
        exclude: ``db.table``, or patterns; one without a database fits tables of any.
    """

    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def keep(self, spark: SparkSession, chosen: Sequence[Chosen], policy: Policy) -> Sequence[Chosen]:
        """Return the tables that are kept.

        A table whose tags cannot be read is kept, so that whoever works on it reports that.

        Raises:
            ConfigError: ``select`` is no ``tag:NAME``.
            PlanError: the policy does not define the tag, no table has it, or an excluded name is none of the tables.
        """
        tags = {_tag_of(text, policy) for text in self.select}
        for pattern in self.exclude:
            if not any(sign in pattern for sign in _WILD) and not any(_fits(pattern, entry.table) for entry in chosen):
                names = ", ".join(entry.table.full_name for entry in chosen[:_SHOWN]) or "there is none"
                raise PlanError(f"--exclude {pattern}: is none of the tables that are chosen: {names}")
        left = [entry for entry in chosen if not any(_fits(pattern, entry.table) for pattern in self.exclude)]
        found = [entry for entry in left if not tags or _has_tag(spark, entry.table, tags, policy)]
        if self.select and not found:
            raise PlanError(
                f"--select {' '.join(self.select)}: none of {len(left):,} tables has a column with it; `sparkcrypt "
                "tags show` lists the tags of a table"
            )
        return found


_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Choice:
    """The tables and databases that the operator named.

    Attributes:
        tables: ``db.table``, or patterns such as ``sales.cust*``.
        databases: databases whose tables are all chosen; views and tables of other formats are skipped.
        filters: what is kept of them.
    """

    tables: tuple[str, ...] = ()
    databases: tuple[str, ...] = ()
    filters: Filters = field(default_factory=Filters)

    @property
    def is_empty(self) -> bool:
        """Whether no table and no database is named."""
        return not self.tables and not self.databases

    def or_all(self, spark: SparkSession) -> Choice:
        """Return this choice, or every database where none and no table is named."""
        return replace(self, databases=Catalog(spark).databases()) if self.is_empty else self


@dataclass(frozen=True, slots=True)
class Chosen:
    """A chosen table; ``named`` if its full name was given, so that an unsuitable table is an error."""

    table: Table
    named: bool


def choose_tables(spark: SparkSession, choice: Choice, policy: Policy) -> tuple[Chosen, ...]:
    """Return the tables of a choice, each once, in the order of their names; an empty choice has none.

    Args:
        spark: a classic session.
        choice: what the operator named.
        policy: has the tags by which tables are selected.

    Raises:
        PlanError: a table or database does not exist, a pattern matches no table, or as `Filters.keep`.
        ConfigError: as `Filters.keep`.
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
    return tuple(choice.filters.keep(spark, [found[name] for name in sorted(found)], policy))


def _tag_of(text: str, policy: Policy) -> str:
    kind, _, name = text.partition(":")
    if kind != "tag" or not name:
        raise ConfigError(f"--select {text!r}: allowed: tag:NAME, such as tag:{policy.tags[0].name}")
    rule = policy.find_tag(name)
    if rule is None:
        known = ", ".join(rule.name for rule in policy.tags)
        raise PlanError(f"--select {text}: the policy does not define that tag; allowed: {known}")
    return rule.name


def _fits(pattern: str, table: Table) -> bool:
    database, _, name = pattern.replace("`", "").lower().rpartition(".")
    return fnmatchcase(table.name.lower(), name) and fnmatchcase(table.database.lower(), database or "*")


def _has_tag(spark: SparkSession, table: Table, tags: set[str], policy: Policy) -> bool:
    overlay = tags_of_overlay(dict(policy.table(table.full_name).tags))
    try:
        found = (*tags_of_table(spark, table), *overlay)
    except SparkcryptError:
        return True
    return any(tag in tags for column in found for tag in column.tags)


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
        places = opened.in_use.units(seconds_old=10.0).values() if table.partition_columns else ()
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

"""Writes a policy's rule for a table into the table's properties, for sessions that read only those.

A further property records what a rule wrote, so that it can be removed once the policy no longer has it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from sparkcrypt.errors import PlanError
from sparkcrypt.names import REQUIRE_ENCRYPTION, RULE_MARK
from sparkcrypt.policy.model import Policy, TableRule, normalized_table
from sparkcrypt.schema import join_dotted
from sparkcrypt.spark.tables.catalog import Catalog, Table
from sparkcrypt.spark.tables.identity import ensure_identity
from sparkcrypt.spark.tables.remembered_names import remember_name
from sparkcrypt.spark.tables.tagging import (
    refuse_formats_without_keys,
    resolved_paths,
    set_tags,
    tags_of_table,
    unset_tags,
)

Tags = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class RuleChange:
    """The changes that make a table's properties match its rule.

    ``tags`` and ``taken`` are dotted column path -> all tags that the column has after the change.
    ``require_encryption`` is None if it does not change.
    """

    table: str
    identity: bool
    require_encryption: bool | None
    tags: Tags
    taken: Tags
    mark: str

    @property
    def is_needed(self) -> bool:
        """Whether the table's properties need any change."""
        return self.identity or self.require_encryption is not None or bool(self.tags or self.taken)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "table": self.table,
            "identity": self.identity,
            "require_encryption": self.require_encryption,
            "tags": {column: list(names) for column, names in self.tags.items()},
            "taken_back": {column: list(names) for column, names in self.taken.items()},
        }

    def lines(self) -> Iterator[str]:
        """Yield a line for each change."""
        if self.identity:
            yield "a UUID"
        if self.require_encryption is not None:
            yield "encryption required" if self.require_encryption else "encryption no longer required"
        yield from (f"{column}: {','.join(names)}" for column, names in self.tags.items())
        yield from (f"{column}: {','.join(names) or 'no tags'} (taken back)" for column, names in self.taken.items())


def rule_change(
    spark: SparkSession, table: Table, rule: TableRule, policy: Policy | None = None, *, prune: bool = False
) -> RuleChange:
    """Compare a table's properties with its rule.

    Args:
        spark: a classic session.
        table: the table from the catalog.
        rule: the policy's rule for it; a rule with ``enforce: false`` adds nothing.
        policy: defines which formats runs encrypt; None: only Parquet.
        prune: remove what an earlier rule wrote and this one does not have.

    Raises:
        PlanError: the rule names a column that the table lacks or that is a partition column.
    """
    wanted = rule if rule.enforce else TableRule(rule.name)
    if wanted.tags or wanted.require_encryption:
        refuse_formats_without_keys(table, policy)
    laid, required_by_rule = _read_mark(table)
    present = _read_present_tags(spark, table)
    overlay = {join_dotted(path): tags for path, tags in resolved_paths(table, dict(wanted.tags)).items()}
    tags, now_laid = _tags_to_add(overlay, present, laid)
    taken = _tags_to_remove(overlay, present, laid) if prune else {}
    kept = {column: names for column, names in laid.items() if column not in taken}
    required = table.options.get(REQUIRE_ENCRYPTION, "").lower() == "true"
    change: bool | None = None
    if wanted.require_encryption and not required:
        change, required_by_rule = True, True
    elif prune and required and required_by_rule and not wanted.require_encryption:
        change, required_by_rule = False, False
    mark = {"require_encryption": required_by_rule, "tags": {**kept, **now_laid}}
    needed = bool(wanted.tags or wanted.require_encryption)
    return RuleChange(table.full_name, needed and not table.uuid, change, tags, taken, json.dumps(mark, sort_keys=True))


def put_rule(spark: SparkSession, change: RuleChange, policy: Policy | None = None) -> None:
    """Apply a change to the table's properties.

    Args:
        spark: a classic session.
        change: from ``rule_change``.
        policy: if given, tags that it does not define are refused, and earlier keys are added to the history.
    """
    if not change.is_needed:
        return
    catalog = Catalog(spark)
    ensure_identity(spark, change.table)
    table = catalog.table(change.table)
    # The mark is written first: what it names can be removed again even if it was not written yet.
    catalog.set_properties(table, {RULE_MARK: change.mark})
    if change.require_encryption is not None:
        catalog.set_options(table, {REQUIRE_ENCRYPTION: str(change.require_encryption).lower()})
    set_again = {column: names for column, names in {**change.tags, **change.taken}.items() if names}
    if set_again:
        set_tags(spark, change.table, set_again, policy)
    untagged = [column for column, names in change.taken.items() if not names]
    if untagged:
        unset_tags(spark, change.table, untagged)
    remember_name(spark, catalog.table(change.table))


def rule_lines(spark: SparkSession, table: Table, policy: Policy) -> tuple[str, ...]:
    """Return the changes that the policy's rule needs in the properties, which sessions without the extension read.

    A policy without a rule for the table asks for none: what is there may come from another file of `tags apply`.
    """
    rule = policy.table(table.full_name)
    if all(normalized_table(known.name) != normalized_table(table.full_name) for known in policy.tables):
        return ()
    change = rule_change(spark, table, rule, policy, prune=True)
    return tuple(change.lines()) if change.is_needed else ()


def rule_changes(
    spark: SparkSession, rules: Iterable[TableRule], policy: Policy | None = None, *, prune: bool
) -> tuple[tuple[RuleChange, ...], tuple[str, ...]]:
    """Compare many tables with their rules.

    Returns:
        The changes that are needed, and the names of tables that do not exist; with ``prune`` also the changes of
        tables that no rule names any more.
    """
    catalog = Catalog(spark)
    named = {rule.name: rule for rule in rules if rule.location is None or catalog.exists(rule.name)}
    absent = tuple(name for name in named if not catalog.exists(name))
    tables = {catalog.table(name).quoted: rule for name, rule in named.items() if name not in absent}
    if prune:
        for table in catalog.find_tables_with_text(RULE_MARK):
            tables.setdefault(table.quoted, TableRule(table.full_name))
    changes = (rule_change(spark, catalog.table(name), rule, policy, prune=prune) for name, rule in tables.items())
    return tuple(change for change in changes if change.is_needed), absent


def _read_mark(table: Table) -> tuple[dict[str, tuple[str, ...]], bool]:
    """Return what rules wrote: column -> tags, and whether a rule made encryption required."""
    text = table.properties.get(RULE_MARK)
    try:
        mark = json.loads(text) if text else {}
        tags = {str(column): tuple(map(str, names)) for column, names in mark.get("tags", {}).items()}
        return tags, bool(mark.get("require_encryption", False))
    except (ValueError, AttributeError, TypeError) as error:
        raise PlanError(
            f"{table.full_name}: table property {RULE_MARK} is not what sparkcrypt wrote there; remove it with ALTER "
            f"TABLE {table.quoted} UNSET TBLPROPERTIES ('{RULE_MARK}'): tags stay, and are then the table's own"
        ) from error


def _read_present_tags(spark: SparkSession, table: Table) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for column in tags_of_table(spark, table):
        for path in resolved_paths(table, {join_dotted(column.path): column.tags}, lenient=True):
            found[join_dotted(path)] = tuple(dict.fromkeys((*found.get(join_dotted(path), ()), *column.tags)))
    return found


def _tags_to_add(
    overlay: Tags, present: Tags, laid: Tags
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    tags, marks = {}, {}
    for column, names in overlay.items():
        missing = tuple(name for name in names if name not in present.get(column, ()))
        if missing:
            tags[column] = (*present.get(column, ()), *missing)
            marks[column] = tuple(dict.fromkeys((*laid.get(column, ()), *missing)))
    return tags, marks


def _tags_to_remove(overlay: Tags, present: Tags, laid: Tags) -> dict[str, tuple[str, ...]]:
    taken = {}
    for column, names in laid.items():
        stale = [name for name in names if name not in overlay.get(column, ()) and name in present.get(column, ())]
        if stale:
            taken[column] = tuple(name for name in present.get(column, ()) if name not in stale)
    return taken

"""Puts policies' rules for tables into their properties, for sessions that read only these, and takes them back.

A further property records what a rule wrote, so that it can be removed once the policy no longer has it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pyspark.sql import SparkSession

from sparkcrypt.errors import PlanError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.names import REQUIRE_ENCRYPTION, RULE_MARK
from sparkcrypt.policy.model import Policy, TableRule, normalized_table
from sparkcrypt.schema import join_dotted
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.identity import ensure_identity
from sparkcrypt.spark.tables.remembered_names import remember_name
from sparkcrypt.spark.tables.table import Table
from sparkcrypt.spark.tables.tagging import (
    as_policy_writes,
    first_rule,
    refuse_formats_without_keys,
    resolved_paths,
    set_tags,
    tags_of_table,
    unset_tags,
)

Tags = Mapping[str, tuple[str, ...]]
Effect = Literal["add", "guarded", "whole"]
"""How much of a rule is put into a table: ``add`` puts what is missing, and removes nothing.

``guarded`` also holds back what would weaken a column, and names that with what would be removed.  ``whole`` does all.
"""


@dataclass(frozen=True, slots=True)
class HeldChange(JsonObject):
    """A change that was held back: the column, all tags that it would have, and the reason.

    ``column`` is None for the requirement that the table is encrypted.
    """

    column: str | None
    tags: tuple[str, ...]
    reason: str

    def line(self) -> str:
        """Return it as a line."""
        return (
            self.reason if self.column is None else f"{self.column}: {','.join(self.tags) or 'no tags'}: {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class RuleChange(JsonObject, json_names={"taken": "taken_back", "mark": None}):
    """The changes that make a table's properties match its rule.

    ``tags`` and ``taken`` are dotted column path -> all tags that the column has after the change; ``taken`` has the
    columns that lose some.  ``require_encryption`` is None if it does not change.
    """

    table: str
    identity: bool
    require_encryption: bool | None
    tags: Tags
    taken: Tags
    held: tuple[HeldChange, ...]
    mark: str

    @property
    def is_needed(self) -> bool:
        """Whether the table's properties need any change."""
        return self.identity or self.require_encryption is not None or bool(self.tags or self.taken)

    def lines(self) -> Iterator[str]:
        """Yield a line for each change that is not held back."""
        if self.identity:
            yield "a UUID"
        if self.require_encryption is not None:
            yield "encryption required" if self.require_encryption else "encryption no longer required"
        yield from (f"{column}: {','.join(names)}" for column, names in self.tags.items())
        yield from (f"{column}: {','.join(names) or 'no tags'} (taken back)" for column, names in self.taken.items())


@dataclass(frozen=True, slots=True)
class TableState:
    """What a table's properties say, as far as rules change it.

    Attributes:
        tags: dotted column path -> tags.
        laid: those of them that rules put there.
        required: whether encryption is required.
        required_by_rule: whether a rule required it.
    """

    tags: Tags
    laid: Tags
    required: bool = False
    required_by_rule: bool = False


def rule_change(
    spark: SparkSession, table: Table, rule: TableRule, policy: Policy | None = None, *, effect: Effect = "add"
) -> RuleChange:
    """Compare a table's properties with its rule.

    Args:
        spark: a classic session.
        table: the table from the catalog.
        rule: the policy's rule for it; a rule with ``enforce: false`` adds nothing.
        policy: defines which formats runs encrypt, and which tags mean plaintext; None: only Parquet, and no tag's
            meaning is known.
        effect: how much of the rule is put there.

    Raises:
        PlanError: the rule names a column that the table lacks or that is a partition column.
    """
    wanted = rule if rule.enforce else TableRule(rule.name)
    if wanted.tags or wanted.require_encryption:
        refuse_formats_without_keys(table, policy)
    laid, required_by_rule = _read_mark(table)
    required = table.options.get(REQUIRE_ENCRYPTION, "").lower() == "true"
    state = TableState(_read_present_tags(spark, table), laid, required, required_by_rule)
    overlay = {join_dotted(path): tags for path, tags in resolved_paths(table, dict(wanted.tags)).items()}
    needed = bool(wanted.tags or wanted.require_encryption)
    change = compare_rule(state, overlay, policy, requires=wanted.require_encryption, effect=effect)
    return replace(change, table=table.full_name, identity=needed and not table.uuid)


def compare_rule(
    state: TableState, overlay: Tags, policy: Policy | None, *, requires: bool = False, effect: Effect = "add"
) -> RuleChange:
    """Compare what a table has with the tags of its rule, and return the changes; the table has no name yet.

    Args:
        state: what the table has.
        overlay: dotted column path -> tags of the rule.
        policy: defines which tags mean plaintext.
        requires: whether the rule requires encryption.
        effect: how much of the rule is put there.
    """
    tags, taken, laid = dict[str, tuple[str, ...]](), dict[str, tuple[str, ...]](), dict(state.laid)
    held: list[HeldChange] = []
    for column in dict.fromkeys((*overlay, *state.laid)):
        names, before, by_rule = overlay.get(column, ()), state.tags.get(column, ()), state.laid.get(column, ())
        missing = tuple(name for name in names if name not in before)
        stale = {name for name in by_rule if name in before and name not in names}
        wanted = (*(name for name in before if name not in stale), *missing)
        weakening = _find_weakening(policy, before, (*before, *missing)) if missing else None
        if stale and effect == "whole":
            taken[column] = wanted
            laid[column] = tuple(name for name in dict.fromkeys((*by_rule, *missing)) if name not in stale)
        elif missing and (weakening is None or effect != "guarded"):
            tags[column] = (*before, *missing)
            laid[column] = tuple(dict.fromkeys((*by_rule, *missing)))
        if effect == "guarded" and (stale or weakening):
            held.append(HeldChange(column, wanted, weakening or _REMOVED))
    required, by_rule_required = _compare_requirement(state, requires=requires, effect=effect, held=held)
    mark = {"require_encryption": by_rule_required, "tags": {column: names for column, names in laid.items() if names}}
    return RuleChange("", False, required, tags, taken, tuple(held), json.dumps(mark, sort_keys=True))


_REMOVED = "tags would be removed"


def _compare_requirement(
    state: TableState, *, requires: bool, effect: Effect, held: list[HeldChange]
) -> tuple[bool | None, bool]:
    """Return the new requirement (None if it does not change), and whether a rule made it."""
    if requires and not state.required:
        return True, True
    if requires or not (state.required and state.required_by_rule):
        return None, state.required_by_rule
    if effect == "guarded":
        held.append(HeldChange(None, (), "encryption would no longer be required"))
    return (False, False) if effect == "whole" else (None, True)


def _find_weakening(policy: Policy | None, before: tuple[str, ...], after: tuple[str, ...]) -> str | None:
    """Return why a column with further tags may be plaintext though it is encrypted now; None if it is not so."""
    if policy is None:
        return "without --policy it is not known whether it would be plaintext" if before else None
    if _is_encrypted(policy, before) and not _is_encrypted(policy, after):
        return "it would be plaintext"
    return None


def _is_encrypted(policy: Policy, tags: tuple[str, ...]) -> bool:
    rule = first_rule(policy, tags)
    return policy.untagged == "footer_key" if rule is None else rule.key is not None


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
    """Return what the properties lack of the policy's rule, for sessions without the extension, which read them.

    A policy without a rule for the table asks for none: what is there may come from another file of `tags apply`.
    """
    rule = policy.table(table.full_name)
    if all(normalized_table(known.name) != normalized_table(table.full_name) for known in policy.tables):
        return ()
    change = rule_change(spark, table, rule, policy)
    return tuple(change.lines()) if change.is_needed else ()


def rule_changes(
    spark: SparkSession, rules: Iterable[TableRule], policy: Policy | None = None, *, remove: bool
) -> tuple[tuple[RuleChange, ...], tuple[str, ...]]:
    """Compare many tables with their rules, also those that earlier rules named and these do not.

    Args:
        spark: a classic session.
        rules: the rules; those of one table are united.
        policy: as for ``rule_change``.
        remove: do what removes or weakens tags too, which is held back and named otherwise.

    Returns:
        The changes that are needed or held back, and the names of tables that do not exist.
    """
    catalog = Catalog(spark)
    if policy is not None:
        rules = [_with_tags_of(rule, policy) for rule in rules]
    ruled: dict[str, tuple[Table, TableRule]] = {}
    absent = []
    for rule in _unite_rules(rules):
        table = catalog.find(rule.name)
        if table is not None:
            ruled[table.quoted] = table, rule
        elif rule.location is None:
            absent.append(rule.name)
    for table in catalog.find_tables_with_text(RULE_MARK):
        ruled.setdefault(table.quoted, (table, TableRule(table.full_name)))
    effect: Effect = "whole" if remove else "guarded"
    changes = (rule_change(spark, table, rule, policy, effect=effect) for table, rule in ruled.values())
    return tuple(change for change in changes if change.is_needed or change.held), tuple(absent)


def _with_tags_of(rule: TableRule, policy: Policy) -> TableRule:
    """Return a rule with its tags as a policy writes them."""
    return replace(rule, tags=tuple((column, as_policy_writes(names, policy)) for column, names in rule.tags))


def _unite_rules(rules: Iterable[TableRule]) -> tuple[TableRule, ...]:
    """Return one rule for each table, with the tags of all its rules that are in force."""
    by_table: dict[str, TableRule] = {}
    for rule in rules:
        name = normalized_table(rule.name)
        first = by_table.get(name)
        if first is None or not first.enforce:
            by_table[name] = rule
        elif rule.enforce:
            tags = {column: names for column, names in first.tags}
            for column, names in rule.tags:
                tags[column] = tuple(dict.fromkeys((*tags.get(column, ()), *names)))
            required = first.require_encryption or rule.require_encryption
            by_table[name] = replace(first, tags=tuple(tags.items()), require_encryption=required)
    return tuple(by_table.values())


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

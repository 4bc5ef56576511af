"""Judges writes of tagged values into columns that lack these tags, before any file is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sparkcrypt.decide.context import TableContext, table_context
from sparkcrypt.decide.request import require_properties, require_text, require_texts
from sparkcrypt.errors import PlanError
from sparkcrypt.plan import ColumnPlan, build_plan
from sparkcrypt.schema import Schema, join_dotted, schema_from_spark
from sparkcrypt.tags.model import TaggedColumn, tag_property, tags_of_properties
from sparkcrypt.tags.unite import unite_tags


def check_inherited(request: Mapping[str, Any]) -> dict[str, Any]:
    """Find the columns of a table that get values whose tags they lack, and judge that by the policy's ``inherit``.

    A column lacks tags where by its own it would have another key, or none.

    Args:
        request: ``policy``, ``path``, ``properties`` (what is known of the table), ``table_schema`` and ``schema``
            (Spark schema JSON of the table, and of what is written), ``sources`` (names of the tables that are read).

    Returns:
        ``mode``: ``observe`` or ``add``; ``columns``: of each such column its ``path`` (logical names), ``tags`` (those
        that it lacks), ``property`` and ``value`` (the table property that would give it these tags).

    Raises:
        PlanError: the policy refuses such writes.
    """
    context = table_context(require_text(request, "policy"), require_text(request, "path"), require_properties(request))
    written = schema_from_spark(require_text(request, "schema"))
    table = schema_from_spark(require_text(request, "table_schema"))
    mode = context.policy.inherit_mode(context.rule, requires_encryption=context.require_encryption)
    lacking = list(_find_lacking(context, written, table)) if context.rule.enforce else []
    if lacking and mode == "refuse":
        raise PlanError(_refusal(context, lacking[0], require_texts(request, "sources")))
    properties = {column.path: column.tags for column in tags_of_properties(require_properties(request))}
    return {
        "mode": mode,
        "columns": [
            {
                "path": list(column.path),
                "tags": list(column.tags),
                "property": tag_property(column.path),
                "value": ",".join(dict.fromkeys((*properties.get(column.path, ()), *column.tags))),
            }
            for column in lacking
        ],
    }


def _find_lacking(context: TableContext, written: Schema, table: Schema) -> Iterator[TaggedColumn]:
    """Yield the columns that lack tags, each with those that it lacks."""
    own = unite_tags(schemas=[table], known=context.tagged)
    by_own = {column.path: _target(column) for column in _plan(context, written, own)}
    with_all = _plan(context, written, unite_tags(schemas=[written], known=own))
    lacking = [column for column in with_all if column.action != "plaintext" and by_own[column.path] != _target(column)]
    known = {(column.path, tag) for column in own for tag in column.tags}
    for column in unite_tags(schemas=[written]):
        tags = tuple(tag for tag in column.tags if (column.path, tag) not in known)
        if tags and any(leaf.leaf.logical[: len(column.path)] == column.path for leaf in lacking):
            yield replace(column, tags=tags)


def _plan(context: TableContext, schema: Schema, tagged: tuple[TaggedColumn, ...]) -> tuple[ColumnPlan, ...]:
    policy = replace(context.policy, untagged="plaintext") if context.policy.untagged == "deny" else context.policy
    return build_plan(schema, tagged, policy, table=None, partition_columns=None, skip_absent=True).columns


def _target(column: ColumnPlan) -> tuple[str, str | None]:
    return column.action, column.key.text if column.key else None


def _refusal(context: TableContext, column: TaggedColumn, sources: tuple[str, ...]) -> str:
    said = context.rule.inherit or context.policy.inherit
    why = "the policy says 'inherit: refuse'" if said else "the table requires encryption, and the policy says no more"
    name, table = join_dotted(column.path), context.name or "the table"
    return (
        f"{table}: column {name} is written with values that carry the tag {column.tags[0]!r} (read from "
        f"{', '.join(sources) or 'no table'}), which the column itself lacks, so that later rows of it may be in "
        f"clear: {why}; run `sparkcrypt tags set {table} {name} {','.join(column.tags)}`, write another column, or "
        "have the policy's owner say inherit: add or observe, for all or at the table"
    )

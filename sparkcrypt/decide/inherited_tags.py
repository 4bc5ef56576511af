"""Checks of writes of tagged values into columns that lack these tags, before any file is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sparkcrypt.decide.context import TableContext, table_context
from sparkcrypt.decide.request import optional_text, require_properties, require_text, require_texts
from sparkcrypt.errors import BridgeError, PlanError, show
from sparkcrypt.plan import ColumnPlan, plan_columns
from sparkcrypt.schema import Schema, join_dotted, schema_from_spark
from sparkcrypt.tags.model import TaggedColumn, tag_property, tags_of_properties
from sparkcrypt.tags.unite import unite_tags


def check_inherited(request: Mapping[str, Any]) -> dict[str, Any]:
    """Find the columns of a table that get values whose tags they lack, and apply the policy's ``inherit``.

    A column lacks tags if its own tags give it another key, or none.

    Args:
        request: ``policy``, ``path``, ``properties`` (of the table), ``table_schema`` and ``schema`` (Spark schema JSON
            of the table and of the written rows), ``sources`` (names of the tables that are read).

    Returns:
        ``mode``: ``observe`` or ``add``; ``columns``: for each such column its ``path`` (logical names), ``tags``
        (those that it lacks), ``property`` and ``value`` (the table property that would give it these tags).

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
    """Yield the columns that lack tags, each with the tags that it lacks."""
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
    return plan_columns(schema, tagged, context.policy)


def _target(column: ColumnPlan) -> tuple[str, str | None]:
    return column.action, column.key.text if column.key else None


def _refusal(context: TableContext, column: TaggedColumn, sources: tuple[str, ...]) -> str:
    rule = context.rule.inherit or context.policy.inherit
    why = "the policy says 'inherit: refuse'" if rule else "the table requires encryption, and the policy says no more"
    name, table = join_dotted(column.path), context.name or "the table"
    return (
        f"{table}: column {name} is written with values that carry the tag {column.tags[0]!r} (read from "
        f"{', '.join(sources) or 'no table'}), which the column itself lacks, so that later rows of it may be in "
        f"clear: {why}; run `sparkcrypt tags set {table} {name} {','.join(column.tags)}`, write another column, or "
        "have the policy's owner say inherit: add or observe, for all or at the table"
    )


def check_lost(request: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse values without lineage in an untagged column named as a tagged one of their source; return ``{}``.

    Only tables that require encryption are checked.  A column that carries any tag, even one that means plaintext, is
    not refused, since its owner has decided.

    Args:
        request: ``policy``, ``path``, ``properties`` (of the table), ``schema`` (Spark schema JSON of the written
            rows), ``table_schema`` (of the table, or None), ``lost``: for each such value the ``column`` that is
            written, the column it may come ``from``, and the ``tags`` of that one.

    Raises:
        PlanError: the column would be encrypted, or under another key, if it had these tags.
    """
    context = table_context(require_text(request, "policy"), require_text(request, "path"), require_properties(request))
    if not context.require_encryption:
        return {}
    written, table = schema_from_spark(require_text(request, "schema")), optional_text(request, "table_schema")
    own = unite_tags(schemas=[written, *([schema_from_spark(table)] if table else [])], known=context.tagged)
    by_own = {column.path: _target(column) for column in _plan(context, written, own)}
    decided = {column.path[0].lower() for column in own}
    for name, source, tags in _read_lost(request, context):
        if name.lower() in decided or not tags:
            continue
        lost = TaggedColumn((name,), tags, "schema metadata")
        if any(by_own[column.path] != _target(column) for column in _plan(context, written, (*own, lost))):
            raise PlanError(_lost_refusal(context, lost, source))
    return {}


def _read_lost(request: Mapping[str, Any], context: TableContext) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield column, source and those of its tags that the policy defines."""
    entries = request.get("lost")
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise BridgeError(f"the request's 'lost' is {show(entries)}; allowed: a list of mappings")
    for entry in entries:
        tags = tuple(tag for tag in require_texts(entry, "tags") if context.policy.tag(tag) is not None)
        yield require_text(entry, "column"), require_text(entry, "from"), tags


def _lost_refusal(context: TableContext, column: TaggedColumn, source: str) -> str:
    name, tag, table = join_dotted(column.path), column.tags[0], context.name or "the table"
    return (
        f"{table}: column {name} is written from rows that do not say where they come from (of an RDD, of pandas, of "
        f"a list) and have the name of {source}, which carries the tag {tag!r}. The column itself carries no tag, so "
        "it would be in clear in a table that requires encryption. Make the frame with the schema of the one that was "
        f"read (createDataFrame(rows, frame.schema)), or tag the column: `sparkcrypt tags set {table} {name} {tag}` "
        f"or col({name!r}).alias({name!r}, metadata={{'tags': [{tag!r}]}}). Where the values are harmless, give it a "
        "tag that means plaintext, or hand them on by sparkcrypt.declassify"
    )

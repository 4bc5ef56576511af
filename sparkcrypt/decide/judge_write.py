"""What is judged of a write before its files, and of declassified values.

A request has one question for each moment at which Spark plans the write.

`resolve_write` judges each file again, and trusts no answer of this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sparkcrypt.decide.context import (
    TableContext,
    context_of_request,
    optional_text,
    parse_policy,
    require_mapping,
    require_properties,
    require_text,
    require_texts,
)
from sparkcrypt.decide.values_in_clear import check_bucketing, check_written, refuse_naming
from sparkcrypt.errors import BridgeError, PlanError, show
from sparkcrypt.plan import ColumnPlan, plan_columns
from sparkcrypt.policy.model import Policy, TagRule
from sparkcrypt.schema import ColumnIndex, Node, Path, Schema, join_dotted, schema_from_spark, walk_down
from sparkcrypt.tags.model import TaggedColumn, tag_property, tags_of_properties, tags_of_schema, unite_tags

_WHAT_TO_DO = (
    "write a Parquet table, leave the column out, or have the policy's owner allow it: sinks: warn or allow, at the "
    "tag or for all"
)
_ORC = re.compile(r"\borc|\bOrcSerde\b", re.IGNORECASE)
_NOT_CONVERTED = (
    "the policy's formats have orc, and this write is one by Hive's own writer, or by another commit protocol than "
    "sparkcrypt's, which encrypt no ORC; leave spark.sql.hive.convertMetastoreOrc and its like at true, say USING orc "
    "where a folder is written, or leave the column out"
)
_NOT_SERVED = "the format loses tags, and its log would hold values of encrypted columns in clear"


def check_partitioning(request: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse partition columns whose tags encrypt, since their values would be names of folders; return ``{}``.

    Args:
        request: ``policy``, ``target`` (what is written), ``columns``: ``name`` and ``metadata`` (JSON) of each.

    Raises:
        PlanError: a column's tag encrypts, or is not known.
    """
    policy, target = parse_policy(require_text(request, "policy")), require_text(request, "target")
    for name, tags in _read_tagged(request):
        rule = _rule(policy, name, tags)
        if rule.key is not None and policy.table(target).enforce:
            raise PlanError(
                f"{target}: column {name} is a partition column and carries the tag {rule.name!r}, which encrypts; its "
                "values would be names of folders, in clear; partition by a column that is not sensitive"
            )
    return {}


def check_format(request: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse tagged columns in a table format that ignores tags; return ``{}``.

    Args:
        request: ``policy``, ``format``, ``schemas``: Spark schema JSON of the written rows and of the target.

    Raises:
        PlanError: a column's tag encrypts, or the policy denies columns without tags.
    """
    policy, name = parse_policy(require_text(request, "policy")), require_text(request, "format")
    schemas = require_texts(request, "schemas")
    if policy.untagged == "deny":
        raise PlanError(f"{name}: {_NOT_SERVED}, and the policy says 'untagged: deny'; write a Parquet table")
    for schema in schemas:
        for column in tags_of_schema(schema_from_spark(schema)):
            rule = _rule(policy, join_dotted(column.path), column.tags)
            if rule.key is not None:
                raise PlanError(format_text(name, join_dotted(column.path), rule.name))
    return {}


def check_sink(request: Mapping[str, Any]) -> dict[str, Any]:
    """Check a write to a sink that encrypts nothing, and return ``{"warnings": [text, ...]}``.

    Args:
        request: ``policy``, ``sink`` (its name), ``schema`` (Spark schema JSON of the written rows), ``sources`` (names
            of the tables that are read), ``requires_encryption`` (whether the properties of one of them require it).

    Raises:
        PlanError: a column's tag encrypts and may not be written there, or a tag is not known.
    """
    policy, sink = parse_policy(require_text(request, "policy")), require_text(request, "sink")
    sources, requires = require_texts(request, "sources"), request.get("requires_encryption")
    requiring = requires is True or any(policy.table(name).require_encryption for name in sources)
    of_orc, warnings = "orc" in policy.formats and _ORC.search(sink) is not None, []
    for column in tags_of_schema(schema_from_spark(require_text(request, "schema"))):
        rule = _rule(policy, join_dotted(column.path), column.tags)
        mode = "deny" if of_orc else policy.sink_mode(rule, requires_encryption=requiring)
        if rule.key is None or mode == "allow":
            continue
        what = (
            f"column {join_dotted(column.path)} carries the tag {rule.name!r}, which encrypts, and is written to {sink}"
        )
        if mode == "deny":
            why = _NOT_CONVERTED if of_orc else f"{_say_why(policy, rule)}; {_WHAT_TO_DO}"
            raise PlanError(f"{what}, where it would be in clear: {why}")
        warnings.append(f"{what}, where it is in clear; say sinks: allow or deny in the policy, or at the tag")
    return {"warnings": warnings}


def _say_why(policy: Policy, rule: TagRule) -> str:
    if rule.sinks or policy.sinks:
        return f"the policy says 'sinks: deny'{' at this tag' if rule.sinks else ''}"
    return "a table that requires encryption is read, and the policy does not say 'sinks: warn' or 'allow'"


def table_tags(request: Mapping[str, Any]) -> dict[str, Any]:
    """Unite the tags of a table that is read: ``{"columns": [{"path": [name, ...], "tags": [tag, ...]}, ...]}``.

    Paths are logical ones.  Tags of columns that the schema lacks are ignored.

    Args:
        request: ``policy``, ``path`` (a folder that is read, or ``/``), ``properties`` (of the session and the table),
            ``schema`` (Spark schema JSON of what is read).

    Raises:
        ConfigError, PlanError: a property has a value that is not allowed; it is named.
    """
    context = context_of_request(request)
    schema = schema_from_spark(require_text(request, "schema"))
    index, united = ColumnIndex(schema), dict[Path, dict[str, None]]()
    for column in unite_tags(schemas=[schema], known=context.tagged):
        for path in index.find(column.path):
            united.setdefault(path, {}).update(dict.fromkeys(column.tags))
    return {"columns": [{"path": list(path), "tags": list(tags)} for path, tags in united.items()]}


def format_text(name: str, column: str, tag: str) -> str:
    """Return the message that a tagged column cannot be written in a table format."""
    return (
        f"column {column} carries the tag {tag!r}, which encrypts, and is written to {name}: {_NOT_SERVED}; write a "
        "Parquet table, or write without this column"
    )


def _rule(policy: Policy, name: str, tags: tuple[str, ...]) -> TagRule:
    unknown = [tag for tag in tags if policy.tag(tag) is None]
    if unknown:
        known = ", ".join(rule.name for rule in policy.tags) or "none"
        raise PlanError(
            f"column {name} carries the tag {unknown[0]!r}, which the policy does not define; allowed: {known}"
        )
    return policy.rules_of(tags)[0]


def _read_tagged(request: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    columns = request.get("columns")
    if not isinstance(columns, list) or not all(isinstance(column, Mapping) for column in columns):
        raise BridgeError(
            f"the request's 'columns' are {show(columns)}; allowed: a list; the jar and this helper do not belong "
            "together"
        )
    for column in columns:
        name, metadata = require_text(column, "name"), json.loads(require_text(column, "metadata"))
        field = {"name": name, "type": "string", "nullable": True, "metadata": metadata}
        (node,) = schema_from_spark(json.dumps({"type": "struct", "fields": [field]})).fields
        if node.tags:
            yield name, node.tags


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
    context = context_of_request(request)
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
    above = {path for column in lacking for path in walk_down(column.leaf.logical)}
    known = {(column.path, tag) for column in own for tag in column.tags}
    for column in unite_tags(schemas=[written]):
        tags = tuple(tag for tag in column.tags if (column.path, tag) not in known)
        if tags and column.path in above:
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
    context = context_of_request(request)
    if not context.require_encryption:
        return {}
    written, table = schema_from_spark(require_text(request, "schema")), optional_text(request, "table_schema")
    own = unite_tags(schemas=[written, *([schema_from_spark(table)] if table else [])], known=context.tagged)
    by_own = {column.path: _target(column) for column in _plan(context, written, own)}
    decided, named = {column.path[0].lower() for column in own}, dict[str, tuple[Node, ...]]()
    for node in written.fields:
        named[node.name.lower()] = (*named.get(node.name.lower(), ()), node)
    for name, source, tags in _read_lost(request, context):
        if name.lower() in decided or not tags:
            continue
        lost = TaggedColumn((name,), tags, "schema metadata")
        concerned = Schema(named.get(name.lower(), ()))  # no other column is planned by it
        if any(by_own[column.path] != _target(column) for column in _plan(context, concerned, (lost,))):
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


def check_declassified(request: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse to declassify values if the policy does not allow it; return ``{}``.

    Args:
        request: ``policy``, ``principal``, ``reason``, ``tags`` (that the value would have), ``columns`` (table, or
            folder, -> names of the columns that it comes from).

    Raises:
        PlanError: the policy allows it to nobody, not to this principal, or not for one of the tags.
    """
    policy, principal = parse_policy(require_text(request, "policy")), require_text(request, "principal")
    tags, rule = require_texts(request, "tags"), policy.declassify
    what = f"declassify({', '.join(list_columns(request)) or 'a column'}, {require_text(request, 'reason')!r})"
    if rule is None:
        raise PlanError(
            f"{what}: the policy allows nobody to take tags off; have its owner add declassify: {{principals: [...], "
            "tags: [...]}"
        )
    if principal not in rule.principals:
        raise PlanError(
            f"{what}: {principal} may not take tags off; allowed: {', '.join(rule.principals)}; ask the policy's owner"
        )
    for tag in tags:
        if tag not in rule.tags:
            raise PlanError(
                f"{what}: the tag {tag!r} may not be taken off; allowed: {', '.join(rule.tags)}; ask the policy's owner"
            )
    return {}


def list_columns(request: Mapping[str, Any]) -> list[str]:
    """Return the columns of a request, each with its table.

    Raises:
        BridgeError: they are not lists of names by table.
    """
    columns = request.get("columns")
    if not isinstance(columns, Mapping) or not all(isinstance(names, list) for names in columns.values()):
        raise BridgeError(
            f"the request's 'columns' are {show(columns)}; allowed: lists of names by tables; the jar and this helper "
            "do not belong together"
        )
    return [f"{table}.{name}" for table, names in columns.items() for name in names]


_JUDGES = {
    "sink": check_sink,
    "lost": check_lost,
    "inherited": check_inherited,
    "partitioning": check_partitioning,
    "bucketing": check_bucketing,
    "written": check_written,
    "format": check_format,
    "naming": refuse_naming,
}


def judge_write(request: Mapping[str, Any]) -> dict[str, Any]:
    """Judge the aspects of a write that a request names, in its order, and return aspect -> answer.

    Args:
        request: ``aspects``: aspect -> the fields that its function has for itself.  All others are of every aspect:
            ``policy``, ``path``, ``properties``, ``schema``, ``table_schema``, ``sources``.

    Raises:
        PlanError, ConfigError: the first aspect that is refused; the message names what is refused, and why.
        BridgeError: there is no aspect, or one that is not known, by which nothing would be judged.
    """
    aspects = require_mapping(request, "aspects")
    if not aspects or not aspects.keys() <= _JUDGES.keys():
        raise BridgeError(f"the request's aspects are {', '.join(aspects) or 'none'}; allowed: {', '.join(_JUDGES)}")
    return {name: _JUDGES[name]({**request, **require_mapping(aspects, name)}) for name in aspects}

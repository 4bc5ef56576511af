"""Checks of planned writes on the driver, for what no writer of a single file could refuse in time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sparkcrypt.decide.context import parse_policy, table_context
from sparkcrypt.decide.request import require_properties, require_text, require_texts
from sparkcrypt.errors import BridgeError, PlanError, show
from sparkcrypt.policy.model import Policy, TagRule
from sparkcrypt.schema import Path, join_dotted, schema_from_spark
from sparkcrypt.tags.find_column import ColumnIndex
from sparkcrypt.tags.model import tags_of_schema
from sparkcrypt.tags.unite import unite_tags

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
    context = table_context(require_text(request, "policy"), require_text(request, "path"), require_properties(request))
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
    return next(rule for rule in policy.tags if rule.name in tags)


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

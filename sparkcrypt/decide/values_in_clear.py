"""Refusal of what would say values of encrypted columns beside the data: metadata, statistics, names of files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sparkcrypt import names
from sparkcrypt.decide.context import TableContext, context_of_request, require_properties, require_text, require_texts
from sparkcrypt.errors import ConfigError, PlanError, show
from sparkcrypt.plan import ColumnPlan, plan_columns
from sparkcrypt.schema import SHREDDED, Path, join_dotted, schema_from_spark, walk_down
from sparkcrypt.tags.field_metadata import known_metadata, unknown_metadata, walk_fields
from sparkcrypt.tags.model import unite_tags

_SPATIAL = ("geometry", "geography")
_NO_SHREDDING = {"spark.sql.variant.inferShreddingSchema": "false"}


def check_written(request: Mapping[str, Any]) -> dict[str, Any]:
    """Check on the driver what a write would say of encrypted columns.

    Args:
        request: ``policy``, ``path``, ``properties`` (of the table), ``schema`` (Spark schema JSON of the written
            rows), ``is_parquet`` (whether they are written as Parquet).

    Returns:
        ``metadata``: top-level column -> its metadata, as JSON, without what may reveal values, where that differs;
        ``options``: those that the write needs, by name.

    Raises:
        PlanError: a field's metadata may reveal values, or a plaintext footer would; the column is named.
    """
    context, text = context_of_request(request), require_text(request, "schema")
    columns, options = _plan(context, text), dict[str, str]()
    kept = keep_known_metadata(columns, text, require_properties(request))
    if request.get("is_parquet"):
        if footer_mode_of(context) == "plaintext":
            refuse_in_plaintext_footer(columns, text)
        options |= _NO_SHREDDING if any(kind == "variant" for _, kind, _ in _find_concerned(columns, text)) else {}
    return {"metadata": {path[0]: json.dumps(own) for path, own in kept.items()}, "options": options}


def check_bucketing(request: Mapping[str, Any]) -> dict[str, Any]:
    """Judge the columns whose hash names the files of a bucketed table, and return ``{"warnings": [text, ...]}``.

    Args:
        request: as of ``check_written``, and ``target`` (the table), ``columns`` (those that it is bucketed by),
            ``is_new`` (whether the table is being made), ``table_schema`` (of the table).

    Raises:
        PlanError: a column's tag encrypts, and the table is new or the policy denies it.
    """
    context, warnings = context_of_request(request), []
    columns = [*_plan(context, require_text(request, "table_schema")), *_plan(context, require_text(request, "schema"))]
    for name, tag in find_buckets(columns, require_texts(request, "columns")):
        text = bucketing_text(require_text(request, "target"), name, tag)
        if request.get("is_new") or context.policy.bucketing == "deny":
            raise PlanError(text)
        warnings.append(text)
    return {"warnings": warnings}


def find_buckets(columns: Iterable[ColumnPlan], bucketed_by: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the columns that a table is bucketed by and whose tags encrypt, each with its tag."""
    tags = {column.leaf.logical[0].lower(): column.tag or "" for column in _find_encrypted(columns)}
    for name in bucketed_by:
        if name.lower() in tags:
            yield name, tags[name.lower()]


def bucketing_text(table: str, name: str, tag: str) -> str:
    """Return the message that a table's files are named by a hash of a tagged column."""
    return (
        f"{table}: it is bucketed by column {name}, which carries the tag {tag!r}, which encrypts; the names of its "
        "files have a hash of the values without a key, by which few values can be guessed; make the table again "
        "without buckets, or bucketed by another column: CREATE TABLE … AS SELECT, then drop the old one"
    )


def refuse_naming(request: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse a query that collects values of a tagged column to name columns by them; return ``{}``.

    Args:
        request: as of ``check_written``; ``operation``: what asks for the values.

    Raises:
        PlanError: the column's tag encrypts.
    """
    for column in _find_encrypted(_plan(context_of_request(request), require_text(request, "schema"))):
        raise PlanError(
            f"{require_text(request, 'operation')} would name columns by values that carry the tag {column.tag!r}, "
            f"which encrypts (column {column.leaf.dotted}); names of columns are in clear in the catalog, in footers "
            "and in logs; list the values, as in pivot(column, [value, …]), or name columns by another column"
        )
    return {}


def keep_known_metadata(
    columns: Iterable[ColumnPlan], text: str, properties: Mapping[str, str]
) -> dict[Path, dict[str, Any]]:
    """Return path -> known metadata of each top-level field with a tag that encrypts, where it has more.

    Args:
        columns: the plan of the written columns.
        text: Spark schema JSON of the written rows.
        properties: properties of the write, which may say that other metadata is left out.

    Raises:
        PlanError: there is other metadata, and nothing says so, or it is of a field inside another.
        ConfigError: the option is neither refuse nor drop.
    """
    mode = properties.get(names.FIELD_METADATA, "refuse").strip().lower()
    if mode not in ("refuse", "drop"):
        raise ConfigError(f"{names.FIELD_METADATA} is {show(mode)}; allowed: refuse, drop")
    kept: dict[Path, dict[str, Any]] = {}
    for path, _, metadata in _find_concerned(columns, text):
        unknown = unknown_metadata(metadata)
        if unknown and (mode == "refuse" or len(path) > 1):
            way = f"set the option {names.FIELD_METADATA} of this write to drop, to write without it, or "
            raise PlanError(
                f"column {join_dotted(path)} has a tag that encrypts, and metadata that is not known to hide its "
                f"values: {', '.join(unknown)}; schemas of footers and of the catalog would have it for readers "
                f"without the column's key; {way if len(path) == 1 else ''}take it away: "
                f"withMetadata({path[0]!r}, {{}})"
            )
        if len(path) == 1 and known_metadata(metadata) != metadata:
            kept[path] = known_metadata(metadata)
    return kept


def redact_written_schema(columns: Iterable[ColumnPlan], text: str, properties: Mapping[str, str]) -> str:
    """Return the schema that a file may say of the written rows; raises as ``keep_known_metadata``."""
    kept = keep_known_metadata(columns, text, properties)
    if not kept:
        return text
    schema = json.loads(text)
    for field in schema["fields"]:
        field["metadata"] = kept.get((field["name"],), field["metadata"])
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def refuse_in_plaintext_footer(columns: Iterable[ColumnPlan], text: str) -> None:
    """Refuse what a plaintext footer would say of encrypted columns: bounding boxes, and keys of objects.

    Raises:
        PlanError: a column's type has them; it is named.
    """
    columns = tuple(columns)
    leaves = (column.leaf for column in columns if SHREDDED in column.leaf.parquet[:-1])
    shredded = {path for leaf in leaves for path in walk_down(leaf.logical)}
    way = "write with encrypted footers (footer: {mode: encrypted} in the policy), or leave the column out"
    for path, kind, _ in _find_concerned(columns, text):
        if isinstance(kind, str) and kind.startswith(_SPATIAL):
            raise PlanError(
                f"column {join_dotted(path)} has a tag that encrypts and the type {kind}, whose bounding box would be "
                f"in clear in the file's plaintext footer; {way}"
            )
        if kind == "variant" and path in shredded:
            raise PlanError(
                f"column {join_dotted(path)} has a tag that encrypts, and its VARIANT is shredded: keys of its objects "
                f"would be in clear in the file's plaintext footer; set {next(iter(_NO_SHREDDING))} to false; {way}"
            )


def footer_mode_of(context: TableContext) -> str:
    """Return the mode of footers of a table."""
    return context.rule.footer_mode or context.policy.footer_mode


def _plan(context: TableContext, text: str) -> tuple[ColumnPlan, ...]:
    """Plan the columns of a schema by all tags that are known; what they lack is for the writer to refuse."""
    if not context.rule.enforce:
        return ()
    schema = schema_from_spark(text)
    tagged = unite_tags(schemas=[schema], known=context.tagged)
    return plan_columns(schema, tagged, context.policy)


def _find_encrypted(columns: Iterable[ColumnPlan]) -> tuple[ColumnPlan, ...]:
    return tuple(column for column in columns if column.tag is not None and column.action != "plaintext")


def _find_concerned(columns: Iterable[ColumnPlan], text: str) -> Iterator[tuple[Path, Any, Mapping[str, Any]]]:
    """Yield path, type and metadata of each field that is, is in, or holds a column whose tag encrypts."""
    encrypted = {column.leaf.logical for column in _find_encrypted(columns)}
    above = {path for leaf in encrypted for path in walk_down(leaf)}
    for path, kind, metadata in walk_fields(json.loads(text)) if encrypted else ():
        if path in above or any(outer in encrypted for outer in walk_down(path)):
            yield path, kind, metadata

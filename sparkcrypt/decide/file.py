"""Decisions for one file: how it is encrypted when it is written, and whether it may be trusted when it is read.

These functions answer the bridge's ``resolve_write``, ``resolve_read`` and ``encrypted_columns``.  They handle no key:
the jar wraps and unwraps by separate calls.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from sparkcrypt import names
from sparkcrypt.decide.context import (
    RouteKeys,
    TableContext,
    keep_keys,
    refuse_keys_by_hand,
    table_context,
    unescape_json,
)
from sparkcrypt.decide.identity import (
    check_aad_prefix,
    identity_of_write,
    is_temporary,
    partition_of,
    table_location,
)
from sparkcrypt.decide.masked_writes import refuse_masked
from sparkcrypt.decide.planned_writes import format_text
from sparkcrypt.decide.read_checks import FileRead, check_columns, check_footer
from sparkcrypt.decide.request import decode_base64, optional_text, require_properties, require_text
from sparkcrypt.decide.values_in_clear import footer_mode_of, redact_written_schema, refuse_in_plaintext_footer
from sparkcrypt.errors import BridgeError, PlanError, show
from sparkcrypt.keys.ids import encode_key_id
from sparkcrypt.keys.sealed_history import Unwrap, no_unwrap
from sparkcrypt.parquet_schema import schema_from_parquet
from sparkcrypt.paths import partition_values
from sparkcrypt.plan import EncryptionPlan, build_plan
from sparkcrypt.schema import Schema, schema_from_spark, shown_path
from sparkcrypt.tags.model import TaggedColumn
from sparkcrypt.tags.unite import unite_tags

_DELTA_LOG = "_delta_log"
_DELTA_ACTIONS = frozenset(
    {
        "txn",
        "add",
        "remove",
        "metaData",
        "protocol",
        "cdc",
        "commitInfo",
        "domainMetadata",
        "checkpointMetadata",
        "sidecar",
    }
)
"""Delta's protocol, "Checkpoint Schema": the columns of a checkpoint and of its sidecars."""


def resolve_write(request: Mapping[str, Any], route_keys: RouteKeys = keep_keys) -> dict[str, Any]:
    """Decide how one file is encrypted.

    Args:
        request: ``policy`` (canonical JSON), ``path``, ``target`` (final path or None), ``schema`` (Spark schema JSON
            or None), ``message_type`` (the file's fields), ``properties``.
        route_keys: returns the keys of buckets that are replaced by keys of late data.

    Returns:
        ``{"encrypt": False, "policy_digest"}``, or with ``encrypt`` true the footer key, columns, AAD prefix, and the
        ``schema`` that the file may have in its metadata.

    Raises:
        ConfigError, PlanError: the file may not be written like this; the message names column or option.
    """
    path, properties = require_text(request, "path"), require_properties(request)
    context = table_context(require_text(request, "policy"), path, properties)
    refuse_keys_by_hand(properties)
    digest = context.policy.digest()
    if not context.rule.enforce:
        return {"encrypt": False, "policy_digest": digest}
    schema, name = _message_type(request), optional_text(request, "format")
    written = _written_tags(request, properties, path)
    is_log = _is_log(path, (field.name for field in schema.fields), (*written, *context.tagged))
    if is_log and name == "Delta" and not written:
        return {"encrypt": False, "policy_digest": digest}
    plan = _plan_of_file(context, schema, written)
    for column in plan.encrypted if name else ():
        if column.tag is not None:
            raise PlanError(format_text(name or "", column.leaf.dotted, column.tag))
    _refuse_untold_stream(request, path, name)
    if not plan.encrypted:
        return {"encrypt": False, "policy_digest": digest}
    _refuse_summary_files(properties, plan)
    described = optional_text(request, "schema")
    if described and footer_mode_of(context) == "plaintext":
        refuse_in_plaintext_footer(plan.columns, described)
    identity = identity_of_write(
        path, target=optional_text(request, "target"), table_uuid=context.uuid, partition=context.partition
    )
    around = partition_values(partition_of(table_location(path).split("/")))
    keys = plan.key_ids({**around, **identity.partition})
    routed = route_keys({key for key in keys.values() if key is not None})
    return {
        "encrypt": True,
        "policy_digest": digest,
        "schema": described and redact_written_schema(plan.columns, described, properties),
        "key_service": plan.key_service_json,
        "footer_key": encode_key_id(plan.footer_key),
        "plaintext_footer": plan.footer_mode == "plaintext",
        "algorithm": plan.algorithm,
        "data_key_bits": plan.data_key_bits,
        "aad_prefix": base64.b64encode(identity.to_aad_prefix()).decode(),
        "columns": [
            {"path": list(column), "key": None if key is None else encode_key_id(routed.get(key, key))}
            for column, key in keys.items()
        ],
    }


def resolve_read(request: Mapping[str, Any], unwrap: Unwrap = no_unwrap) -> dict[str, Any]:
    """Decide whether one file may be read, by its footer's description of its encryption.

    Args:
        request: ``policy``, ``path``, ``properties``, ``requested_schema`` (Spark schema JSON or None), ``footer``
            (mode, algorithm, AAD prefix and file-unique, footer key metadata, and per column whether and how it is
            encrypted).
        unwrap: opens the seals of histories in the table's properties.

    Returns:
        ``{"key_service": canonical JSON, "aad_prefix": the prefix that the reader must use, base64 or None, "table":
        the name used to look up rules, or None}``; and ``warnings``, if the footer has bounds of encrypted columns.

    Raises:
        VerificationError: the file is not what the policy, its history and the file's place allow.
    """
    read = FileRead.of_request(request, unwrap)
    footer, context = read.footer, read.context
    if context.rule.enforce and not _is_read_of_log(read):
        check_footer(read)
        if footer["mode"] != "plaintext":
            prefix = decode_base64(footer.get("aad_prefix"), "aad_prefix")
            check_aad_prefix(prefix, read.path, table_uuid=context.uuid, strict=context.require_encryption)
            check_columns(read)
    warnings = [
        f"{read.path}: bounds of the encrypted column {shown_path(tuple(column['path']))} are in clear in its footer; "
        "`sparkcrypt rewrite` writes the file without them"
        for column in footer["columns"]
        if column.get("bounds")
    ]
    return {
        "key_service": context.policy.key_service.canonical(),
        "aad_prefix": footer.get("aad_prefix"),
        "table": context.name,
        **({"warnings": warnings} if warnings else {}),
    }


def encrypted_columns(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the top-level columns of a table of which any leaf is encrypted: ``{"columns": [name, …]}``.

    Args:
        request: ``policy``, ``path``, ``schema`` (Spark schema JSON), ``properties``; ``table`` where it is known.
    """
    properties, table = require_properties(request), optional_text(request, "table")
    named = {**properties, names.TABLE: table} if table else properties
    context = table_context(require_text(request, "policy"), require_text(request, "path"), named)
    schema = schema_from_spark(require_text(request, "schema"))
    plan = build_plan(
        schema,
        unite_tags(schemas=[schema], known=context.tagged),
        context.policy,
        table=context.name,
        partition_columns=None,
    ).require(context.require_encryption)
    return {"columns": sorted({column.leaf.logical[0] for column in plan.encrypted})}


def _message_type(request: Mapping[str, Any]) -> Schema:
    fields = request.get("message_type")
    if not isinstance(fields, list) or not fields:
        raise BridgeError(
            f"the request's 'message_type' is {show(fields)}; allowed: a list of fields; the jar and this helper do "
            "not belong together"
        )
    written = optional_text(request, "schema")
    return schema_from_parquet(fields, schema_from_spark(written) if written else None)


def _written_tags(request: Mapping[str, Any], properties: Mapping[str, str], path: str) -> tuple[TaggedColumn, ...]:
    """Return the tags of the written rows, after refusing masked columns."""
    texts = (optional_text(request, "schema"), unescape_json(properties.get(names.QUERY_SCHEMA)))
    schemas = [schema_from_spark(text) for text in texts if text]
    for schema in schemas:
        refuse_masked(schema, properties, path)
    return unite_tags(schemas=schemas)


def _plan_of_file(context: TableContext, schema: Schema, written: tuple[TaggedColumn, ...]) -> EncryptionPlan:
    return build_plan(
        schema,
        unite_tags(known=(*written, *context.tagged)),
        context.policy,
        table=context.name,
        partition_columns=None,
        history=context.history,
    ).require(context.require_encryption)


def _refuse_untold_stream(request: Mapping[str, Any], path: str, table_format: str | None) -> None:
    """Refuse a file of a stream's sink with another commit protocol, since the table that it writes is not known here.

    The sink writes files to their final path; files of ``foreachBatch`` are staged like those of any other write.
    Formats with their own protocol never stage.
    """
    if request.get("untold_stream") and not is_temporary(path):
        if table_format:
            raise PlanError(
                f"{path} is written by a stream to {table_format}: the format loses tags, and a stream's writer is not "
                "told whether its table has tagged columns; allowed: streams into Parquet tables, and writes to "
                f"{table_format} outside streams"
            )
        raise PlanError(
            f"{path} is written by a stream that was started before its session was put under the policy, or whose "
            f"session has another {names.STREAM_COMMIT_PROTOCOL}, so the tags of its table are not known; allowed: "
            f"{names.STREAM_COMMIT_PROTOCOL_CLASS}; call sparkcrypt.configure with the session, and start the "
            "stream again"
        )


def _refuse_summary_files(properties: Mapping[str, str], plan: EncryptionPlan) -> None:
    level = properties.get(names.SUMMARY_LEVEL, "NONE").strip().upper()
    enabled = properties.get(names.SUMMARY_ENABLED, "false").strip().lower()
    if level != "NONE" or enabled != "false":
        setting = f"{names.SUMMARY_LEVEL} is {level}" if level != "NONE" else f"{names.SUMMARY_ENABLED} is {enabled}"
        raise PlanError(
            f"{setting}: the summary file would hold minimum and maximum of encrypted columns, such as "
            f"{plan.encrypted[0].leaf.dotted}, in clear; set {names.SUMMARY_LEVEL} to NONE and unset "
            f"{names.SUMMARY_ENABLED}"
        )


def _is_read_of_log(read: FileRead) -> bool:
    """Return whether a plaintext file is a checkpoint of Delta's log, read as Delta reads it: by its actions alone."""
    columns = [field.name for field in schema_from_parquet(read.footer["fields"]).fields]
    if read.requested is not None:  # None: its schema is read
        columns += [field.name for field in read.requested.fields] or ["*"]
    return read.footer["mode"] == "plaintext" and _is_log(read.path, columns, read.context.tagged)


def _is_log(path: str, columns: Iterable[str], tagged: Iterable[TaggedColumn]) -> bool:
    """Return whether a file has the place and the columns of a checkpoint of Delta's log, none of them tagged."""
    is_of_actions = set(columns) <= _DELTA_ACTIONS and _DELTA_ACTIONS.isdisjoint(column.path[0] for column in tagged)
    return _DELTA_LOG in path.split("/")[:-1] and is_of_actions

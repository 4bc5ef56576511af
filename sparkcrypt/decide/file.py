"""Decisions for one file: how it is encrypted when it is written, and whether it may be trusted when it is read.

These functions answer the bridge's ``resolve_write``, ``resolve_read`` and ``encrypted_columns``, and their equals for
ORC.  They handle no key: the jar wraps and unwraps by separate calls.
Decisions for writers of ORC have the form of ORC's own options.
Source: ``orc.encrypt`` and ``orc.mask`` as ``OrcUtils`` of ORC's Java library reads them, names as its ``ParserUtils``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any

from sparkcrypt import names
from sparkcrypt.decide.context import (
    RouteKeys,
    TableContext,
    context_of_request,
    decode_base64,
    keep_keys,
    optional_text,
    refuse_keys_by_hand,
    require_properties,
    require_text,
    table_context,
    unescape_json,
)
from sparkcrypt.decide.identity import (
    FileIdentity,
    check_aad_prefix,
    check_orc_identity,
    identity_of_write,
    is_temporary,
    partition_of,
    table_location,
)
from sparkcrypt.decide.judge_write import format_text
from sparkcrypt.decide.read_checks import FileRead, check_columns, check_footer
from sparkcrypt.decide.values_in_clear import footer_mode_of, redact_written_schema, refuse_in_plaintext_footer
from sparkcrypt.errors import BridgeError, ConfigError, FormatError, PlanError, VerificationError, show
from sparkcrypt.keys.ids import decode_key_id, encode_key_id
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.sealed_history import Unwrap, no_unwrap
from sparkcrypt.paths import partition_values
from sparkcrypt.plan import EncryptionPlan, build_plan
from sparkcrypt.plan.orc import cover_columns, name_orc_columns, refuse_orc_plan
from sparkcrypt.schema import Path, Schema, schema_from_parquet, schema_from_spark, shown_path
from sparkcrypt.tags.model import TaggedColumn, masked_of_schema, unite_tags

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
    identity, keys = _bind_file(request, context, plan, route_keys)
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
            {"path": list(column), "key": None if key is None else encode_key_id(key)} for column, key in keys.items()
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


def _bind_file(
    request: Mapping[str, Any], context: TableContext, plan: EncryptionPlan, route_keys: RouteKeys
) -> tuple[FileIdentity, dict[Path, str | None]]:
    """Return the identity of a request's file, and column -> its key in that partition, None for the footer's."""
    path = require_text(request, "path")
    identity = identity_of_write(
        path, target=optional_text(request, "target"), table_uuid=context.uuid, partition=context.partition
    )
    around = partition_values(partition_of(table_location(path).split("/")))
    keys = plan.key_ids({**around, **identity.partition})
    routed = route_keys({key for key in keys.values() if key is not None})
    return identity, {column: routed.get(key, key) if key else key for column, key in keys.items()}


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


_PLAIN = re.compile(r"[A-Za-z0-9_]+")
_RESERVED = ",;:`"


def resolve_orc_write(request: Mapping[str, Any], route_keys: RouteKeys = keep_keys) -> dict[str, Any]:
    """Decide how one ORC file is encrypted.

    Args:
        request: ``policy`` (canonical JSON), ``path``, ``target`` (final path or None), ``schema`` (Spark schema JSON
            of the file's content), ``properties``.
        route_keys: returns the keys of buckets that are replaced by keys of late data.

    Returns:
        ``{"encrypt": False}``; or with ``encrypt`` true ``orc_encrypt`` and ``orc_mask`` in the form of ORC's options,
        ``columns``, those that are encrypted with all below them, ``keys``, their percent-encoded key ids, and
        ``file_identity``, base64, to which each local key of the file is bound.

    Raises:
        ConfigError, PlanError: the file may not be written like this; the message names column or option.
    """
    path, properties = require_text(request, "path"), require_properties(request)
    context = table_context(require_text(request, "policy"), path, properties)
    refuse_keys_by_hand(properties)
    schema = schema_from_spark(require_text(request, "schema"))
    refuse_masked(schema, properties, path)
    if not context.rule.enforce:
        return {"encrypt": False}
    plan = _plan_of_file(context, schema, unite_tags(schemas=[schema]))
    if not plan.encrypted:
        return {"encrypt": False}
    refuse_orc_plan(plan)
    identity, keys = _bind_file(request, context, plan, route_keys)
    bound = base64.b64encode(identity.to_aad_prefix()).decode()
    return {"encrypt": True, "file_identity": bound, **_options(plan, keys)}


def resolve_orc_read(request: Mapping[str, Any], unwrap: Unwrap = no_unwrap) -> dict[str, Any]:
    """Decide whether one ORC file may be read, by its tail's description of its encryption.

    Args:
        request: ``policy``, ``path``, ``properties``, ``requested_schema`` (Spark schema JSON or None), ``footer``
            (``mode``, and ``columns`` with paths in Parquet's form: for each whether it is encrypted and, if it is,
            ``key_metadata``, a wrapped local key, and ``key_name``, its master key in the file's spelling; one entry
            for each of its local keys).
        unwrap: opens the seals of histories in the table's properties.

    Returns:
        ``{"table": the name used to look up rules, or None}``.

    Raises:
        VerificationError: the file is not what the policy, its history and the file's place allow.
    """
    read = FileRead.of_request(request, unwrap)
    context = read.context
    wrapped = [column for column in read.footer["columns"] if column["encrypted"]]
    for metadata, name in dict.fromkeys(
        (require_text(key, "key_metadata"), require_text(key, "key_name")) for key in wrapped
    ):
        check_local_key(metadata, name, read.path, table_uuid=context.uuid, strict=context.require_encryption)
    if context.rule.enforce and "orc" in context.policy.formats:
        if read.footer["mode"] == "plaintext":
            check_footer(read)
        else:
            check_columns(read)
    return {"table": context.name}


def check_orc_reader(request: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse an ORC reader that checks no file, if the table requires encryption; return ``{}``.

    Args:
        request: ``policy``, ``path`` of the table's folder, ``properties``.

    Raises:
        PlanError: the table requires encryption.
    """
    context = context_of_request(request)
    if context.require_encryption:
        raise PlanError(
            f"{context.name or require_text(request, 'path')} requires encryption, and Hive's own reader of ORC would "
            "take a file in plaintext for one of the table's; allowed: spark.sql.orc.impl=native and "
            "spark.sql.hive.convertMetastoreOrc=true"
        )
    return {}


def check_local_key(
    key_metadata: str, key_name: str, path: str, *, table_uuid: str | None = None, strict: bool = False
) -> None:
    """Check that a wrapped local key is bound to its file; opening the key authenticates that binding.

    Args:
        key_metadata: base64 of the wrapped key.
        key_name: the master key that the file names for it.
        path: the file's path.
        table_uuid: as `check_orc_identity`.
        strict: as `check_orc_identity`.

    Raises:
        VerificationError: it is bound to another file, or to none, or another master key wrapped it.
    """
    try:
        material = parse_key_material(decode_base64(key_metadata, "key_metadata") or b"")
    except FormatError as error:
        raise VerificationError(f"{path}: a local key cannot be read: {error}") from error
    if decode_key_id(key_name) != material.master_key_id:
        raise VerificationError(
            f"{path}: a local key is wrapped by master key {material.master_key_id!r}, and the file names "
            f"{decode_key_id(key_name)!r}; restore the file, or write it again"
        )
    check_orc_identity(material.file_identity, path, table_uuid=table_uuid, strict=strict)


def _options(plan: EncryptionPlan, keys: Mapping[Path, str | None]) -> dict[str, Any]:
    of_orc = name_orc_columns(plan.schema)
    wanted = {of_orc[path]: key or plan.footer_key for path, key in keys.items()}
    columns: dict[str, list[str]] = {}
    for root, key_id in sorted(cover_columns(of_orc.values(), wanted).items()):
        columns.setdefault(encode_key_id(key_id), []).append(_spell(root))
    covered = [column for of_key in columns.values() for column in of_key]
    return {
        "orc_encrypt": ";".join(f"{_quote(key)}:{','.join(of_key)}" for key, of_key in columns.items()),
        "orc_mask": f"nullify:{','.join(covered)}",
        "columns": covered,
        "keys": list(columns),
    }


def _spell(path: Path) -> str:
    """Return a column's name in the form of ORC's options.

    Raises:
        PlanError: a name in it has a character that ends a name in these options, quoted or not.
    """
    for name in path:
        if any(sign in name for sign in _RESERVED):
            raise PlanError(
                f"column {'.'.join(path)}: a name with '{''.join(_RESERVED)}' cannot stand in the options by which ORC "
                "encrypts; rename the column, or write Parquet"
            )
    return ".".join(map(_quote, path))


def _quote(name: str) -> str:
    """Return a name in the form of ORC's options: quoted if it is more than letters, digits and underscores."""
    return name if _PLAIN.fullmatch(name) else f"`{name}`"


def refuse_masked(schema: Schema, properties: Mapping[str, str], path: str) -> None:
    """Refuse a write of masked columns unless its properties allow it.

    Args:
        schema: schema of the written rows.
        properties: properties of the write.
        path: the path that is written, for the message.

    Raises:
        PlanError: a column is masked; it is named.
        ConfigError: the option is neither true nor false.
    """
    allowed = properties.get(names.ALLOW_MASKED, "false").strip().lower()
    if allowed not in ("true", "false"):
        raise ConfigError(f"{names.ALLOW_MASKED} is {show(allowed)}; allowed: true, false")
    masked = masked_of_schema(schema)
    if masked and allowed == "false":
        raise PlanError(
            f"{path}: column {', '.join(masked)} holds nulls in place of values whose key is denied to this reader, "
            "and such nulls are not data; write without it, have it written by somebody who may read it, or set the "
            f"option {names.ALLOW_MASKED} of this write to true to store nulls"
        )

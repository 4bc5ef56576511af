"""Checks of a reader, which refuse a file whose encryption the policy and its history do not allow.

The algorithm in a footer is not authenticated, and anyone with the footer key alone can write a footer in which an
encrypted column is plaintext; so a file's own description of its encryption is never enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.decide.context import (
    TableContext,
    decode_base64,
    optional_text,
    require_footer,
    require_properties,
    require_text,
    table_context,
)
from sparkcrypt.errors import FormatError, PlanError, VerificationError, show
from sparkcrypt.keys.ids import decode_key_id
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.sealed_history import SealedHistories, Unwrap, no_unwrap
from sparkcrypt.paths import partition_values, trailing_partition
from sparkcrypt.plan import ColumnPlan, plan_columns
from sparkcrypt.policy.model import PLAINTEXT, Policy, allowed_key_ids
from sparkcrypt.schema import Path, Schema, fold, schema_from_parquet, schema_from_spark, shown_path
from sparkcrypt.tags.model import unite_tags

FILE_UNIQUE_BYTES = 8
_PART = "__VARIANT_METADATA_KEY"
"""Key of the metadata that says which part of a VARIANT a field is (``VariantMetadata.METADATA_KEY`` of Spark)."""
_NEXT = "if an earlier policy allowed it, name it under 'history' in the policy; else restore or rewrite the file"


@dataclass(frozen=True, slots=True)
class FileRead:
    """One file as its reader sees it.

    Attributes:
        path: the file's path.
        footer: the file's description of itself.
        context: its table.
        requested: the columns that are read, if they are known.  A reader gets the tags of these and of the table's
            properties, so an untagged column that is not among them is not judged by its missing tag.
        unwrap: opens the seals of histories in the table's properties.
    """

    path: str
    footer: Mapping[str, Any]
    context: TableContext
    requested: Schema | None = None
    unwrap: Unwrap = no_unwrap

    @classmethod
    def of_request(cls, request: Mapping[str, Any], unwrap: Unwrap) -> FileRead:
        """Return the read that a request describes.

        Args:
            request: ``policy``, ``path``, ``properties``, ``requested_schema`` (Spark schema JSON or None), ``footer``.
            unwrap: opens the seals of histories in the table's properties.

        Raises:
            BridgeError, ConfigError, PlanError: the request is malformed, or its properties are.
        """
        path, footer = require_text(request, "path"), require_footer(request)
        context = table_context(require_text(request, "policy"), path, require_properties(request))
        text = optional_text(request, "requested_schema")
        if not text:
            return cls(path, footer, context, unwrap=unwrap)
        requested = schema_from_spark(text, object_hook=_join_parts)
        tagged = unite_tags(schemas=[requested], known=context.tagged)
        return cls(path, footer, replace(context, tagged=tagged), requested, unwrap)


def _join_parts(kind: dict[str, Any]) -> Any:
    """Return VARIANT for the struct that Spark reads in its place where a query names parts of it alone."""
    fields = kind.get("fields")
    is_parts = isinstance(fields, list) and all(
        isinstance(field, Mapping) and _PART in (field.get("metadata") or ()) for field in fields
    )
    return "variant" if fields and is_parts else kind


def check_footer(read: FileRead) -> None:
    """Check mode, algorithm, file-unique and footer key.

    Raises:
        VerificationError: one of them is not allowed.
    """
    path, footer, policy = read.path, read.footer, read.context.policy
    if footer["mode"] == "plaintext":
        _refuse_plaintext_file(read, "is plaintext")
        return
    allowed = policy.readable_algorithms
    if footer.get("algorithm") not in allowed:
        raise VerificationError(
            f"{path}: its algorithm is {show(footer.get('algorithm'))}; allowed: {', '.join(allowed)}; {_NEXT} "
            "(algorithm_history)"
        )
    unique = decode_base64(footer.get("aad_file_unique"), "aad_file_unique") or b""
    if len(unique) != FILE_UNIQUE_BYTES:
        raise VerificationError(
            f"{path}: its AAD file-unique has {len(unique)} bytes; allowed: {FILE_UNIQUE_BYTES}; restore or rewrite "
            "the file"
        )
    check_footer_key(policy, path, _key_id(path, "the footer", footer.get("footer_key_metadata")))


def check_footer_key(policy: Policy, path: str, key_id: str) -> None:
    """Check the master key of a file's footer.

    Raises:
        VerificationError: neither the policy nor its history names it.
    """
    if key_id not in (policy.footer_key, *policy.footer_key_history):
        raise VerificationError(
            f"{path}: its footer key is {show(key_id)}; allowed: {policy.footer_key!r}; {_NEXT} (footer.history)"
        )


def check_columns(read: FileRead) -> None:
    """Check every column's key against the plan of the file's own columns.

    Raises:
        VerificationError: a column is plaintext, or under a key, that neither plan nor history allows.
    """
    path, footer, context = read.path, read.footer, read.context
    if footer["columns"] and not any(column["encrypted"] for column in footer["columns"]):
        _refuse_plaintext_file(read, "has no encrypted column")
    planned = _plan_columns(read)
    values = partition_values(trailing_partition(path.split("/")[:-1]))
    wanted = _names_of(read.requested)
    for column in footer["columns"]:
        plan = planned.get(tuple(column["path"]))
        if plan is None:
            name = shown_path(tuple(column["path"]))
            raise VerificationError(f"{path}: column {name} is not in the file's schema; restore the file")
        if not column["encrypted"]:
            _check_plaintext(context, path, plan, wanted)
            continue
        metadata = column.get("key_metadata")
        key_id = None if metadata is None else _key_id(path, f"column {plan.leaf.dotted}", metadata)
        _check_key(context, path, plan, key_id, values)


def _refuse_plaintext_file(read: FileRead, what: str) -> None:
    if not read.context.require_encryption:
        return
    planned = _plan_columns(read).values()
    history = [PLAINTEXT in plan.history for plan in planned if plan.action != "plaintext"]
    if not history or not all(history):
        raise VerificationError(
            f"{read.path}: {what}, and {read.context.name or 'its table'} requires encryption; `sparkcrypt verify` "
            "lists such files, `encrypt_table` encrypts them"
        )


def _check_key(
    context: TableContext, path: str, plan: ColumnPlan, key_id: str | None, values: Mapping[str, str]
) -> None:
    """Check the key of an encrypted column; None is the footer key, which every reader has: it proves nothing."""
    known = key_id is None or allowed_key_ids(context.policy, key_id)
    if known and (plan.action != "encrypt" or not context.require_encryption):
        return  # a column that anyone may write, or drift, which a backfill repairs
    footer_keys = (context.policy.footer_key, *context.policy.footer_key_history)
    names = footer_keys if key_id is None else (key_id,)
    if any(_is_allowed(plan, name, values) for name in names):
        return
    found = "the footer key" if key_id is None else show(key_id)
    wanted = plan.key.text if plan.key is not None else "no key"
    raise VerificationError(
        f"{path}: column {plan.leaf.dotted} is encrypted with {found}; the policy wants {wanted!r}; {_NEXT}"
    )


def _is_allowed(plan: ColumnPlan, key_id: str, values: Mapping[str, str]) -> bool:
    if key_id in (decode_key_id(entry) for entry in plan.history if entry != PLAINTEXT):
        return True
    if plan.key is None:
        return False
    if not set(plan.key.columns) <= set(values):  # a custom location: the folder does not show the partition
        return plan.key.matches(key_id) or (plan.late_data is not None and plan.late_data.matches(key_id))
    try:
        bucket_key = plan.key.render(values)
        return key_id == bucket_key or plan.takes_late(key_id, bucket_key, datetime.now(timezone.utc))
    except PlanError:
        return False


def _check_plaintext(context: TableContext, path: str, plan: ColumnPlan, read: frozenset[Path]) -> None:
    if not context.require_encryption or plan.action == "plaintext" or PLAINTEXT in plan.history:
        return
    if plan.tag is None and read.isdisjoint(_names_of_plan(plan)):
        return
    tag = f"tag {plan.tag!r}" if plan.tag else "rule for untagged columns"
    raise VerificationError(
        f"{path}: column {plan.leaf.dotted} is plaintext, and the {tag} of {context.name or 'its table'} encrypts it; "
        f"{_NEXT}"
    )


def _names_of(schema: Schema | None) -> frozenset[Path]:
    leaves = schema.leaves() if schema is not None else ()
    return frozenset(fold(name) for leaf in leaves for name in (leaf.logical, leaf.parquet))


def _plan_columns(read: FileRead) -> dict[Path, ColumnPlan]:
    """Plan the file's columns by the tags that the reader has, which may not be all."""
    context = read.context
    guide = read.requested if context.require_encryption else None
    try:
        schema = schema_from_parquet(read.footer["fields"], guide)
        columns = plan_columns(schema, context.tagged, context.policy, context.history)
    except PlanError as error:
        raise VerificationError(
            f"{read.path}: cannot be checked, since its table's tags make no plan for it: {error}"
        ) from error
    if not context.require_encryption:
        return {column.path: column for column in columns}
    wanted = _names_of(read.requested)
    histories = SealedHistories(
        context.policy,
        context.uuid,
        read.unwrap,
        lambda column: bool(wanted) and wanted.isdisjoint(_names_of_plan(column)),
    )
    return {column.path: column for column in histories.judge(columns)}


def _names_of_plan(plan: ColumnPlan) -> tuple[Path, Path]:
    return fold(plan.leaf.logical), fold(plan.leaf.parquet)


def _key_id(path: str, what: str, key_metadata: str | None) -> str:
    try:
        return str(parse_key_material(decode_base64(key_metadata, "key_metadata") or b"").master_key_id)
    except FormatError as error:
        raise VerificationError(f"{path}: the key metadata of {what} cannot be read: {error}") from error

"""Decisions for one ORC file: which columns are encrypted when Spark writes it, and whether a reader may trust it.

Decisions for writers have the form of ORC's own options.
Source: ``orc.encrypt`` and ``orc.mask`` as ``OrcUtils`` of ORC's Java library reads them, names as its ``ParserUtils``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from sparkcrypt.decide.context import RouteKeys, keep_keys, refuse_keys_by_hand, table_context
from sparkcrypt.decide.identity import check_orc_identity, identity_of_write, partition_of, table_location
from sparkcrypt.decide.masked_writes import refuse_masked
from sparkcrypt.decide.read_checks import FileRead, check_columns, check_footer
from sparkcrypt.decide.request import decode_base64, optional_text, require_properties, require_text
from sparkcrypt.errors import FormatError, PlanError, VerificationError
from sparkcrypt.keys.ids import decode_key_id, encode_key_id
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.sealed_history import Unwrap, no_unwrap
from sparkcrypt.paths import partition_values
from sparkcrypt.plan import EncryptionPlan, build_plan
from sparkcrypt.plan.orc import cover_columns, name_orc_columns, refuse_orc_plan
from sparkcrypt.schema import Path, schema_from_spark
from sparkcrypt.tags.unite import unite_tags

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
    plan = build_plan(
        schema,
        unite_tags(schemas=[schema], known=context.tagged),
        context.policy,
        table=context.name,
        partition_columns=None,
        history=context.history,
    ).require(context.require_encryption)
    if not plan.encrypted:
        return {"encrypt": False}
    refuse_orc_plan(plan)
    identity = identity_of_write(
        path, target=optional_text(request, "target"), table_uuid=context.uuid, partition=context.partition
    )
    around = partition_values(partition_of(table_location(path).split("/")))
    bound = base64.b64encode(identity.to_aad_prefix()).decode()
    options = _options(plan, {**around, **identity.partition}, route_keys)
    return {"encrypt": True, "file_identity": bound, **options}


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


def check_orc_reader(request: Mapping[str, Any]) -> None:
    """Refuse an ORC reader that checks no file, if the table requires encryption.

    Args:
        request: ``policy``, ``path`` of the table's folder, ``properties``.

    Raises:
        PlanError: the table requires encryption.
    """
    path, properties = require_text(request, "path"), require_properties(request)
    context = table_context(require_text(request, "policy"), path, properties)
    if context.require_encryption:
        raise PlanError(
            f"{context.name or path} requires encryption, and Hive's own reader of ORC would take a file in plaintext "
            "for one of the table's; allowed: spark.sql.orc.impl=native and spark.sql.hive.convertMetastoreOrc=true"
        )


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


def _options(plan: EncryptionPlan, partition: Mapping[str, str], route_keys: RouteKeys) -> dict[str, Any]:
    names = name_orc_columns(plan.schema)
    keys = plan.key_ids(partition)
    routed = route_keys({key for key in keys.values() if key is not None})
    wanted = {names[path]: routed.get(key, key) if key else plan.footer_key for path, key in keys.items()}
    columns: dict[str, list[str]] = {}
    for root, key_id in sorted(cover_columns(names.values(), wanted).items()):
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

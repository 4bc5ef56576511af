"""Decides, for one ORC file that Spark writes, which columns stand encrypted in it, in the words of ORC's own options.

Source: ``orc.encrypt`` and ``orc.mask`` as ``OrcUtils`` of ORC's Java library reads them, names as its ``ParserUtils``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sparkcrypt.decide.context import refuse_keys_by_hand, table_context
from sparkcrypt.decide.identity import identity_of_write, table_location
from sparkcrypt.decide.masked_writes import refuse_masked
from sparkcrypt.decide.request import optional_text, require_properties, require_text
from sparkcrypt.errors import PlanError
from sparkcrypt.keys.ids import encode_key_id
from sparkcrypt.paths import partition_values, trailing_partition
from sparkcrypt.plan import EncryptionPlan, build_plan
from sparkcrypt.plan.orc import cover_columns, name_orc_columns, refuse_orc_plan
from sparkcrypt.schema import Path, schema_from_spark
from sparkcrypt.tags.unite import unite_tags

_PLAIN = re.compile(r"[A-Za-z0-9_]+")
_RESERVED = ",;:`"


def resolve_orc_write(request: Mapping[str, Any]) -> dict[str, Any]:
    """Decide how one ORC file is encrypted.

    Args:
        request: ``policy`` (canonical JSON), ``path``, ``target`` (final path or None), ``schema`` (Spark schema JSON
            of what the file holds), ``properties``.

    Returns:
        ``{"encrypt": False}``; or with ``encrypt`` true ``orc_encrypt`` and ``orc_mask`` as ORC's options have them,
        ``columns``, those that stand encrypted with all below them, and ``keys``, their percent-encoded key ids.

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
        require_encryption=context.require_encryption,
        history=context.history,
    )
    if not plan.encrypted:
        return {"encrypt": False}
    refuse_orc_plan(plan)
    identity = identity_of_write(
        path, target=optional_text(request, "target"), table_uuid=context.uuid, partition=context.partition
    )
    around = partition_values(trailing_partition(table_location(path).split("/")))
    return {"encrypt": True, **_options(plan, {**around, **identity.partition})}


def _options(plan: EncryptionPlan, partition: Mapping[str, str]) -> dict[str, Any]:
    names = name_orc_columns(plan.schema)
    wanted = {names[path]: key or plan.footer_key for path, key in plan.key_ids(partition).items()}
    columns: dict[str, list[str]] = {}
    for root, key_id in sorted(cover_columns(names.values(), wanted).items()):
        columns.setdefault(encode_key_id(key_id), []).append(_spell(root))
    covered = [column for of_key in columns.values() for column in of_key]
    return {
        "orc_encrypt": ";".join(f"{key}:{','.join(of_key)}" for key, of_key in columns.items()),
        "orc_mask": f"nullify:{','.join(covered)}",
        "columns": covered,
        "keys": list(columns),
    }


def _spell(path: Path) -> str:
    """Return a column as ORC's options name it.

    Raises:
        PlanError: a name in it has a character that ends a name in these options, quoted or not.
    """
    for name in path:
        if any(sign in name for sign in _RESERVED):
            raise PlanError(
                f"column {'.'.join(path)}: a name with '{''.join(_RESERVED)}' cannot stand in the options by which ORC "
                "encrypts; rename the column, or write Parquet"
            )
    return ".".join(name if _PLAIN.fullmatch(name) else f"`{name}`" for name in path)

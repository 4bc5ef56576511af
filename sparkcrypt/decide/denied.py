"""Columns whose keys a reader may not use: which leaves are nulls in their place, and the messages that refuse them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from sparkcrypt.decide.context import (
    TableContext,
    context_of_request,
    decode_base64,
    optional_text,
    parse_policy,
    require_text,
)
from sparkcrypt.errors import (
    BridgeError,
    ConfigError,
    FormatError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyRetiredError,
    KeyServiceError,
    PlanError,
    show,
)
from sparkcrypt.keys.access_decisions import KeyDecisions
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.service import Decision
from sparkcrypt.keys.tombstones import describe_tombstone, reason_of_absence
from sparkcrypt.names import IN_SOME_PARTITIONS, STRICT_PROJECTION
from sparkcrypt.plan import ColumnPlan, plan_columns
from sparkcrypt.policy.model import ON_DENIED, Policy
from sparkcrypt.schema import Path, join_dotted, schema_from_spark
from sparkcrypt.tags.model import unite_tags

_ASK = "ask whoever grants the use of keys in the key service"


def refused_key(request: Mapping[str, Any], key_id: str, error: KeyServiceError) -> KeyServiceError:
    """Return the refusal of a key, or of its version, with a message for its reader, which quotes the key service.

    Args:
        request: ``owner`` (a column or the footer), ``path``, ``table``, ``principal`` and ``policy``, if known.
        key_id: the master key.
        error: the key service's error.
    """
    owner = optional_text(request, "owner")
    if owner is None:
        return error  # a program that opens keys by itself
    table, path = optional_text(request, "table"), optional_text(request, "path")
    whose = f"{owner} of table {table}" if table else owner
    principal = optional_text(request, "principal") or "this process"
    shredded = _find_tombstone(request, key_id) if isinstance(error, KeyNotFoundError) else None
    where = f" (file {path})" if path else ""
    if isinstance(error, KeyRetiredError):
        return KeyRetiredError(f"{whose} cannot be read: {error}{where}")
    if shredded is not None:
        return KeyNotFoundError(
            f"{whose} cannot be read by anybody any more: its key {key_id!r} is not there, and {shredded}. Other "
            f"columns can be read{where}"
        )
    if isinstance(error, KeyNotFoundError):
        what = f"{whose} cannot be read by {principal}: its key {key_id!r} is not there"
    else:
        what = f"{whose} cannot be read: its key {key_id!r} is denied to {principal}"
    return type(error)(f"{what}. To get access, {how_to_ask(request)}. {error}{where}")


def refuse_named(request: Mapping[str, Any]) -> NoReturn:
    """Refuse a query that names a column which is null for its reader, under strict projection.

    Args:
        request: ``owner`` (the column), ``table`` if it is known, ``principal``, ``policy``, ``reason`` (why it is
            null, from its metadata), ``of_policy`` (whether the policy asks for strict projection, or the session).

    Raises:
        KeyAccessDeniedError: the reader may not use the column's key.
        KeyNotFoundError: the key does not exist.
    """
    owner, reason = require_text(request, "owner"), require_text(request, "reason")
    table, principal = optional_text(request, "table"), optional_text(request, "principal") or "this process"
    denied = reason.removesuffix(IN_SOME_PARTITIONS).endswith("denied")
    by, off = "this session", f", or SET {STRICT_PROJECTION}=false"
    if request.get("of_policy") is True:
        by, off = "the policy", ""
    raise (KeyAccessDeniedError if denied else KeyNotFoundError)(
        f"{owner}{f' of table {table}' if table else ''} cannot be named by {principal}: {reason}, and "
        f"strict_projection of {by} makes naming it an error. To get access, {how_to_ask(request)}. A star "
        f"(`SELECT *`) gives null in its place; leave it out of what the query names{off}"
    )


def how_to_ask(request: Mapping[str, Any]) -> str:
    """Return the policy's text on how to ask for access, or a general one."""
    text = optional_text(request, "policy")
    try:
        return (parse_policy(text).ask_for_access if text else None) or _ASK
    except ConfigError:
        return _ASK


def _find_tombstone(request: Mapping[str, Any], key_id: str) -> str | None:
    """Return the description of a missing key's tombstone in the policy's state directory; None if there is none."""
    text = optional_text(request, "policy")
    try:
        return describe_tombstone(parse_policy(text).run_state, key_id) if text else None
    except ConfigError:
        return None


def decide(request: Mapping[str, Any], decisions: KeyDecisions) -> dict[str, Any]:
    """Decide on the leaves of a table whose reader asked for nulls in place of an error.

    Args:
        request: ``policy``, ``path``, ``properties``, ``schema`` (Spark schema JSON, less partition columns),
            ``on_denied`` (the session's setting, or empty), ``partitions`` (list of ``{column: value}``, or None),
            ``key_metadata`` (of some columns of some files, base64).
        decisions: decisions of the policy's key service.

    Returns:
        ``columns``: for each leaf, or VARIANT, that is masked somewhere its ``path`` (logical), ``column`` (as text),
        ``key``, ``tag``, ``why``, and ``partitions``: the numbers of those it is masked in, None for all;
        ``partition_columns``: what key templates need, when the request has no partitions;
        ``undecided``: key ids on which the key service does not decide without a key that they wrapped;
        ``table``: the name used to look up rules, or None.

    Raises:
        KeyAccessDeniedError, KeyNotFoundError: the footer key is denied, so nothing can be read.
        KeyServiceUnavailableError: the key service does not answer.
    """
    context = context_of_request(request)
    columns = _list_maskable(context, request) if context.rule.enforce else []
    fixed = [column for column in columns if column.key is not None and not column.key.columns]
    rendered = _render_keys([column for column in columns if column not in fixed], _partitions(request))
    key_ids = [column.key.text for column in fixed if column.key] + [key for keys in rendered.values() for key in keys]
    if not columns:
        return {"table": context.name, "columns": [], "partition_columns": [], "undecided": []}
    found = decisions.decide(dict.fromkeys((context.policy.footer_key, *key_ids)), wrapped_keks(request))
    _refuse_footer(context, request, found)
    masked = [
        _answer(context.policy, column, key, found[key], None)
        for column in fixed
        if _is_refused(found, key := _key(column))
    ]
    masked += [
        _answer(context.policy, column, key, found[key], places)
        for column in columns
        for key, places in rendered.get(column.path, {}).items()
        if _is_refused(found, key)
    ]
    needed = dict.fromkeys(name for column in columns if column.key for name in column.key.columns)
    return {
        "table": context.name,
        "columns": _join_variants(masked, schema_from_spark(require_text(request, "schema")).variants()),
        "partition_columns": list(needed) if request.get("partitions") is None else [],
        "undecided": [key for key in dict.fromkeys(key_ids) if key not in found],
    }


def _list_maskable(context: TableContext, request: Mapping[str, Any]) -> list[ColumnPlan]:
    """Return the columns that may be masked: the session or a tag asks for it, and no tag forbids it."""
    on_denied = optional_text(request, "on_denied")
    if on_denied is not None and on_denied not in ON_DENIED:
        raise BridgeError(f"on_denied is {show(on_denied)}; allowed: {', '.join(ON_DENIED)}")
    leaves = plan_leaves(context, require_text(request, "schema"))
    return [entry for entry in leaves if asks_for_nulls(context.policy, entry, on_denied)]


def plan_leaves(context: TableContext, schema_json: str) -> list[ColumnPlan]:
    """Return the leaves of a table that have their own keys.

    Args:
        context: context of the table.
        schema_json: Spark schema JSON, less partition columns.
    """
    schema = schema_from_spark(schema_json)
    tagged = unite_tags(schemas=[schema], known=context.tagged)
    columns = plan_columns(schema, tagged, context.policy, context.history)
    return [column for column in columns if column.action == "encrypt"]


def asks_for_nulls(policy: Policy, column: ColumnPlan, on_denied: str | None) -> bool:
    """Tell whether a denied column is null and no error: the session or a tag asks for it, and neither forbids it."""
    words = [rule.on_denied for rule in map(policy.tag, column.tags) if rule is not None]
    if on_denied == "error" or "error" in words:
        return False
    return on_denied == "mask" or "mask" in words


def _partitions(request: Mapping[str, Any]) -> list[Mapping[str, str]]:
    value = request.get("partitions") or []
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise BridgeError(f"the request's 'partitions' are {show(value)}; allowed: a list of mappings")
    return value


def _render_keys(
    columns: list[ColumnPlan], partitions: list[Mapping[str, str]]
) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return column -> key id -> numbers of its partitions, without those whose value gives no key (a read fails)."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for column in columns:
        for number, values in enumerate(partitions):
            try:
                key = column.key.render(values) if column.key else ""
            except PlanError:
                continue
            found.setdefault(column.path, {}).setdefault(key, []).append(number)
    return found


def _key(column: ColumnPlan) -> str:
    return column.key.text if column.key else ""


def _is_refused(found: Mapping[str, Decision], key_id: str) -> bool:
    return found.get(key_id, "allowed") != "allowed"


def _join_variants(leaves: list[dict[str, Any]], variants: Collection[Path]) -> list[dict[str, Any]]:
    """Return one answer for the leaves of a VARIANT, which is one value."""
    found = {}
    for leaf in leaves:
        path = tuple(leaf["path"])
        whole = path[:-1] if path[:-1] in variants else path
        found[whole, leaf["key"]] = {**leaf, "path": list(whole), "column": join_dotted(whole)}
    return list(found.values())


def _answer(
    policy: Policy, column: ColumnPlan, key_id: str, decision: Decision, places: list[int] | None
) -> dict[str, Any]:
    why = reason_of_absence(policy.run_state, key_id) if decision == "shredded" else decision
    return {
        "path": list(column.leaf.logical),
        "column": join_dotted(column.leaf.logical),
        "key": key_id,
        "tag": column.tag,
        "why": why,
        "partitions": places,
    }


def wrapped_keks(request: Mapping[str, Any]) -> dict[str, str]:
    """Return key id -> a KEK that this key wrapped, from the key metadata of files in a request."""
    found: dict[str, str] = {}
    for text in request.get("key_metadata") or ():
        try:
            material = parse_key_material(decode_base64(text, "key_metadata") or b"")
        except FormatError:
            continue  # reading that file raises the error
        found.setdefault(material.master_key_id, material.wrapped_kek or material.wrapped_dek)
    return found


def _refuse_footer(context: TableContext, request: Mapping[str, Any], found: Mapping[str, Decision]) -> None:
    key_id = context.policy.footer_key
    if not _is_refused(found, key_id):
        return
    error = KeyAccessDeniedError if found[key_id] == "denied" else KeyNotFoundError
    refusal = {**request, "owner": "the footer", "table": context.name}
    raise refused_key(refusal, key_id, error("Without the footer's key no column can be read, masked or not."))

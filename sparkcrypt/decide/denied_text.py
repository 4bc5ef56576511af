"""What a reader is told whose credentials may not use a column's key: which, of what, to whom, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from sparkcrypt.decide.context import parse_policy
from sparkcrypt.decide.request import optional_text, require_text
from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, KeyNotFoundError, KeyServiceError
from sparkcrypt.keys.tombstones import describe_tombstone
from sparkcrypt.names import IN_SOME_PARTITIONS, STRICT_PROJECTION

_ASK = "ask whoever grants the use of keys in the key service"


def refused_key(request: Mapping[str, Any], key_id: str, error: KeyServiceError) -> KeyServiceError:
    """Return the refusal of a key as its reader is told it, with the words of the key service.

    Args:
        request: ``owner`` (a column or the footer), ``path``, ``table``, ``principal`` and ``policy``, where known.
        key_id: the master key.
        error: what the key service said.
    """
    owner = optional_text(request, "owner")
    if owner is None:
        return error  # a program that opens keys by itself
    table, path = optional_text(request, "table"), optional_text(request, "path")
    whose = f"{owner} of table {table}" if table else owner
    principal = optional_text(request, "principal") or "this process"
    shredded = _find_tombstone(request, key_id) if isinstance(error, KeyNotFoundError) else None
    where = f" (file {path})" if path else ""
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
        request: ``owner`` (the column), ``table`` where it is known, ``principal``, ``policy``, ``reason`` (why it is
            null, as its metadata says), ``of_policy`` (whether the policy asks for strict projection, or the session).

    Raises:
        KeyAccessDeniedError: the reader may not use the column's key.
        KeyNotFoundError: the key is not there.
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
    """Return what the policy says of asking for access, or what always holds."""
    text = optional_text(request, "policy")
    try:
        return (parse_policy(text).ask_for_access if text else None) or _ASK
    except ConfigError:
        return _ASK


def _find_tombstone(request: Mapping[str, Any], key_id: str) -> str | None:
    """Return what the state directory of the policy says of a key that is gone; None where that cannot be told."""
    text = optional_text(request, "policy")
    try:
        return describe_tombstone(parse_policy(text).run_state, key_id) if text else None
    except ConfigError:
        return None

"""Messages for a reader whose credentials may not use a column's key: the key, the column, the reader, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from sparkcrypt.decide.context import parse_policy
from sparkcrypt.decide.request import optional_text, require_text
from sparkcrypt.errors import ConfigError, KeyAccessDeniedError, KeyNotFoundError, KeyRetiredError, KeyServiceError
from sparkcrypt.keys.tombstones import describe_tombstone
from sparkcrypt.names import IN_SOME_PARTITIONS, STRICT_PROJECTION

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

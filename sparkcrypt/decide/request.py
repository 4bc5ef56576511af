"""Parsing of the bridge's requests: every part is checked before a decision uses it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from sparkcrypt.errors import BridgeError, show

_MODES = ("encrypted", "plaintext_signed", "plaintext")
_HINT = "the jar and this helper do not belong together"


def require_text(request: Mapping[str, object], name: str) -> str:
    """Return a text field of a request.

    Raises:
        BridgeError: it is missing or empty.
    """
    value = request.get(name)
    if not isinstance(value, str) or not value:
        raise BridgeError(f"the request's {name!r} is {show(value)}; allowed: a text that is not empty; {_HINT}")
    return value


def optional_text(request: Mapping[str, object], name: str) -> str | None:
    """Return a text field of a request, or None if it is missing, null or empty.

    Raises:
        BridgeError: it is something else.
    """
    return require_text(request, name) if request.get(name) not in (None, "") else None


def require_texts(request: Mapping[str, object], name: str) -> tuple[str, ...]:
    """Return a field of a request that is a list of texts.

    Raises:
        BridgeError: it is something else.
    """
    value = request.get(name)
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise BridgeError(f"the request's {name!r} are {show(value)}; allowed: a list of texts; {_HINT}")
    return tuple(value)


def require_mapping(request: Mapping[str, object], name: str) -> Mapping[str, Any]:
    """Return a field of a request that has fields of its own.

    Raises:
        BridgeError: it is something else.
    """
    value = request.get(name)
    if not isinstance(value, Mapping):
        raise BridgeError(f"the request's {name!r} is {show(value)}; allowed: a mapping; {_HINT}")
    return value


def require_properties(request: Mapping[str, object]) -> dict[str, str]:
    """Return the configuration entries of a request.

    Raises:
        BridgeError: they are not a mapping of texts to texts.
    """
    value = request.get("properties")
    if not isinstance(value, Mapping) or not all(isinstance(entry, str) for pair in value.items() for entry in pair):
        raise BridgeError(f"the request's 'properties' are {show(value)}; allowed: names with texts; {_HINT}")
    return dict(value)


def require_footer(request: Mapping[str, object]) -> Mapping[str, Any]:
    """Return the footer in a request.

    Raises:
        BridgeError: a part of it is missing or invalid.
    """
    footer = request.get("footer")
    if not isinstance(footer, Mapping) or footer.get("mode") not in _MODES:
        raise BridgeError(f"the request's 'footer' is {show(footer)}; allowed modes: {', '.join(_MODES)}; {_HINT}")
    for name in ("aad_prefix", "aad_file_unique", "footer_key_metadata"):
        decode_base64(footer.get(name), name)
    for name in ("columns", "fields"):
        if not isinstance(footer.get(name), list):
            raise BridgeError(f"the footer's {name!r} are {show(footer.get(name))}; allowed: a list; {_HINT}")
    for column in footer["columns"]:
        _check_column(column)
    return footer


def _check_column(column: object) -> None:
    path = column.get("path") if isinstance(column, Mapping) else None
    if not (
        isinstance(column, Mapping)
        and isinstance(path, list)
        and path
        and all(isinstance(name, str) for name in path)
        and isinstance(column.get("encrypted"), bool)
    ):
        raise BridgeError(f"a column of the footer is {show(column)}; allowed: its path and 'encrypted'; {_HINT}")
    decode_base64(column.get("key_metadata"), "key_metadata")


def decode_base64(text: object, name: str) -> bytes | None:
    """Return the bytes of a base64 field; null is None.

    Raises:
        BridgeError: it is not base64.
    """
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else _refuse(name)
    except ValueError as error:
        raise BridgeError(f"the footer's {name!r} is not base64; {_HINT}") from error


def _refuse(name: str) -> bytes:
    raise BridgeError(f"the footer's {name!r} is not a text in base64; {_HINT}")

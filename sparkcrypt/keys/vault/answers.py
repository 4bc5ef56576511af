"""Strict parsing of the transit engine's answers: another service at that address must not pass for Vault."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime, timezone
from typing import Any

from sparkcrypt.errors import KeyServiceUnavailableError
from sparkcrypt.keys.service import KeyDescription
from sparkcrypt.text import utc_text


def data_of(answer: Any) -> dict[str, Any]:
    """Return the ``data`` of an answer; empty for one that has none, such as 204."""
    data = answer.get("data") if isinstance(answer, dict) else None
    return data if isinstance(data, dict) else {}


def text_of(data: dict[str, Any], name: str, key_id: str) -> str:
    """Return a field that contains text.

    Raises:
        KeyServiceUnavailableError: the field is missing or is not text.
    """
    value = data.get(name)
    if not isinstance(value, str) or not value:
        raise _not_transit(key_id)
    return value


def key_of(data: dict[str, Any], key_id: str) -> bytes:
    """Return the bytes of a ``plaintext`` field.

    Raises:
        KeyServiceUnavailableError: the field does not contain base64.
    """
    try:
        return base64.b64decode(text_of(data, "plaintext", key_id), validate=True)
    except binascii.Error:
        raise _not_transit(key_id) from None


def description_of(data: dict[str, Any], key_id: str) -> KeyDescription:
    """Return the description in an answer of ``GET <mount>/keys/<name>``.

    Raises:
        KeyServiceUnavailableError: the answer contains none.
    """
    try:
        times = [data["keys"][number] for number in sorted(data["keys"], key=int)]
        # A symmetric key's version is a Unix time, an asymmetric one's an object.
        created, rotated = (_utc(moment) if isinstance(moment, int) else None for moment in (times[0], times[-1]))
        usable = max(int(data.get("min_decryption_version") or 1), int(data.get("min_available_version") or 1))
        return KeyDescription(key_id, int(data["latest_version"]), created, rotated, usable)
    except (LookupError, TypeError, ValueError) as error:
        raise _not_transit(key_id) from error


def _utc(seconds: int) -> str:
    return utc_text(datetime.fromtimestamp(seconds, timezone.utc))


def _not_transit(key_id: str) -> KeyServiceUnavailableError:
    return KeyServiceUnavailableError(
        f"what answered for key {key_id!r} is not Vault's transit engine; check that address leads to an active "
        "Vault (redirects are not followed) and that mount_point is a transit mount"
    )

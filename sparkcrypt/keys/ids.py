"""How a key id is written inside Parquet properties and key material: percent-encoded, by every writer alike.

Parquet's own syntax gives ``:``, ``;`` and ``,`` a meaning, so an AWS ARN cannot stand there as it is.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote, unquote_to_bytes

from sparkcrypt.errors import ConfigError, FormatError

_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def check_key_id(key_id: str) -> bytes:
    """Return a key id's UTF-8 bytes.

    Args:
        key_id: any text that is not empty.

    Raises:
        ConfigError: it is empty, or holds a lone surrogate, which no encoding can carry.
    """
    if not key_id:
        raise ConfigError("a key id is empty; allowed: any text of at least one character")
    try:
        return key_id.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"key id {key_id!r} holds a lone surrogate; allowed: any valid Unicode text") from error


def encode_key_id(key_id: str) -> str:
    """Return a key id percent-encoded: ``A-Z a-z 0-9 - _ . ~`` stay, every other UTF-8 byte becomes ``%XX``.

    Raises:
        ConfigError: the key id is empty or is not valid Unicode.
    """
    return quote(check_key_id(key_id), safe="")


def decode_key_id(text: str) -> str:
    """Return the key id that a percent-encoded text stands for.

    A character that needed no escape but has none is taken as it is, since other writers do not encode.

    Raises:
        FormatError: the text is empty, a ``%`` is not followed by two hex digits, or the bytes are not UTF-8.
    """
    if not text or _ESCAPE.search(text):
        raise FormatError(f"key id {text!r} is not percent-encoded; allowed: text in which every '%' begins '%XX'")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeError as error:
        raise FormatError(f"key id {text!r} does not decode to UTF-8; allowed: percent-encoded UTF-8") from error


def key_digest(key_id: str) -> str:
    """Return what a master key is called in names of the state directory: 32 hex digits."""
    return hashlib.sha256(key_id.encode()).hexdigest()[:32]

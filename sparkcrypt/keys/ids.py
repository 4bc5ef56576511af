"""Encodings of key ids: percent-encoded in Parquet properties and key material, and as names in key services.

Parquet's own syntax gives ``:``, ``;`` and ``,`` a meaning, so an AWS ARN cannot be written there unencoded.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from sparkcrypt.errors import ConfigError, FormatError

_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def check_key_id(key_id: str) -> bytes:
    """Return a key id's UTF-8 bytes.

    Args:
        key_id: any text that is not empty.

    Raises:
        ConfigError: it is empty, or contains a lone surrogate, which cannot be encoded.
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

    A character that needs an escape but has none is accepted, since other writers do not encode.

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
    """Return a master key's name in the state directory: 32 hex digits of its id's SHA-256."""
    return hashlib.sha256(key_id.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class NameRule:
    """A rule for one key service's names: different key ids have different names, whatever characters they contain.

    Attributes:
        literal: characters that stand for themselves, as a regular expression's class.
        escape: the character before two hex digits of every other UTF-8 byte; it is not in ``literal``.
        longest: maximum length of a name.
        service: the key service, for messages.
    """

    literal: str
    escape: str
    longest: int
    service: str

    def encode(self, key_id: str) -> str:
        """Return the name of a key id.

        Raises:
            ConfigError: the key id is empty, is not Unicode, or has a name that is too long.
        """
        check_key_id(key_id)
        literal = re.compile(f"[{self.literal}]", re.ASCII)
        name = "".join(
            character if literal.fullmatch(character) else "".join(f"{self.escape}{b:02x}" for b in character.encode())
            for character in key_id
        )
        if len(name) > self.longest:
            raise ConfigError(
                f"key id {key_id[:40]!r}… has a name of {len(name):,} characters in {self.service}; allowed: "
                f"{self.longest}, of which each byte that does not stand for itself takes three; use a shorter id"
            )
        return name

    def decode(self, name: str) -> str | None:
        """Return the key id of a name, or None if no key id has that name."""
        text = re.sub(
            f"{re.escape(self.escape)}([0-9a-f]{{2}})", lambda match: chr(int(match[1], 16)), name, flags=re.ASCII
        )
        try:
            key_id = text.encode("latin-1").decode()
            return key_id if key_id and self.encode(key_id) == name else None
        except (UnicodeError, ConfigError):
            return None

"""Key ids as names that a key service takes: different ids have different names, whatever characters they hold."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass

from sparkcrypt.keys.ids import check_key_id

_DIGEST_CHARACTERS = 52


@dataclass(frozen=True, slots=True)
class NameRule:
    """How one key service's names are made.

    Attributes:
        literal: characters that stand for themselves, as a regular expression's class.
        escape: the character before two hex digits of every other UTF-8 byte; it is not in ``literal``.
        longest: characters that a name may have; a longer one becomes its beginning, the escape twice, and the SHA-256
            of the key id in base32.
    """

    literal: str
    escape: str
    longest: int

    def encode(self, key_id: str) -> str:
        """Return the name of a key id.

        Raises:
            ConfigError: the key id is empty or is not Unicode.
        """
        raw = check_key_id(key_id)
        literal = re.compile(f"[{self.literal}]", re.ASCII)
        name = "".join(
            character if literal.fullmatch(character) else "".join(f"{self.escape}{b:02x}" for b in character.encode())
            for character in key_id
        )
        if len(name) <= self.longest:
            return name
        digest = base64.b32encode(hashlib.sha256(raw).digest()).decode().rstrip("=").lower()
        # An escape is never followed by another in the name of a short id.
        return f"{name[: self.longest - _DIGEST_CHARACTERS - 2]}{self.escape * 2}{digest}"

    def decode(self, name: str) -> str | None:
        """Return the key id of a name, None for one that no id has or whose id does not follow from it."""
        text = re.sub(
            f"{re.escape(self.escape)}([0-9a-f]{{2}})", lambda match: chr(int(match[1], 16)), name, flags=re.ASCII
        )
        try:
            key_id = text.encode("latin-1").decode()
            return key_id if key_id and self.encode(key_id) == name else None
        except UnicodeError:
            return None

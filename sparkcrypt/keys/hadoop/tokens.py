"""Delegation tokens of Hadoop, read from the binary credentials file that YARN gives to each container.

Source: Hadoop, ``Credentials.readTokenStorageStream``, ``Token.write`` and ``WritableUtils.readVLong``, format 0.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from sparkcrypt.errors import ConfigError

TOKENS_VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"
KMS_KIND = b"kms-dt"
_MAGIC = b"HDTS"
_WRITABLE = 0


@dataclass(frozen=True, slots=True)
class _Token:
    identifier: bytes = field(repr=False)
    password: bytes = field(repr=False)
    kind: bytes
    service: bytes

    def url_string(self) -> str:
        """Return the token as ``Token.encodeToUrlString`` writes it, which HTTP headers carry."""
        parts = (self.identifier, self.password, self.kind, self.service)
        whole = b"".join(_written_length(len(part)) + part for part in parts)
        return base64.urlsafe_b64encode(whole).decode().rstrip("=")


def read_kms_token(path: str, address: str) -> str:
    """Return the delegation token for a KMS in a credentials file.

    Args:
        path: the file.
        address: the KMS's address; of several tokens, the one whose service contains its host is taken.

    Raises:
        ConfigError: the file cannot be read, is of another format, or contains no token for this KMS.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the credentials file {path!r} (auth.token_file or {TOKENS_VARIABLE}) cannot be read: {error.strerror}"
        ) from error
    tokens = [token for token in _tokens(content, path) if token.kind == KMS_KIND]
    host = (urlsplit(address).hostname or "").encode()
    chosen = next((token for token in tokens if host in token.service), tokens[0] if len(tokens) == 1 else None)
    if chosen is None:
        raise ConfigError(
            f"the credentials file {path!r} holds {len(tokens)} delegation tokens of kind kms-dt and none for "
            f"{host.decode()}; get one by `hadoop dtutil get kms://… {path}`"
        )
    return chosen.url_string()


def _tokens(content: bytes, path: str) -> list[_Token]:
    if content[:4] != _MAGIC or content[4:5] != bytes([_WRITABLE]):
        raise ConfigError(
            f"{path!r} is no credentials file of Hadoop in its format 'java'; write one by `hadoop dtutil get "
            "-format java …`"
        )
    reader = _Reader(content[5:])
    try:
        found = []
        for _ in range(reader.number()):
            reader.part()  # the alias
            found.append(_Token(reader.part(), reader.part(), reader.part(), reader.part()))
        return found
    except IndexError:
        raise ConfigError(f"the credentials file {path!r} is cut; write it again") from None


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def number(self) -> int:
        first = self._take(1)[0]
        if first < 0x80:
            return first
        signed = first - 256
        if signed >= -112:
            return signed
        return int.from_bytes(self._take(-112 - signed if signed >= -120 else -120 - signed), "big")

    def part(self) -> bytes:
        return self._take(max(0, self.number()))

    def _take(self, count: int) -> bytes:
        if self._at + count > len(self._content):
            raise IndexError
        self._at += count
        return self._content[self._at - count : self._at]


def _written_length(length: int) -> bytes:
    if length < 0x80:
        return bytes([length])
    raw = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([256 - 112 - len(raw)]) + raw

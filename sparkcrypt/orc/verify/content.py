"""Digests what a file says, whatever it is encrypted with and wherever its parts lie.

Equal for a file and its rewrite.  The parts: ``schema`` (types), ``layout`` (codec, rows, stride, time zones,
calendar), ``streams`` (encodings and bytes of each column's streams, as readers with the keys see them),
``bloom_filters`` (that stand in clear), ``statistics`` (as readers with the keys see them) and ``user_metadata``.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

DIGEST_PARTS = ("schema", "layout", "streams", "bloom_filters", "statistics", "user_metadata")


class ContentDigest:
    """The digests of a file's parts while it is read; a key makes them HMACs."""

    __slots__ = ("_key", "_parts")

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key
        self._parts = {part: self.fresh() for part in DIGEST_PARTS}

    def fresh(self) -> hmac.HMAC:
        """Return a digest of its own, for one stream."""
        return hmac.new(self._key or b"sparkcrypt orc", digestmod=hashlib.sha256)

    def add(self, part: str, *values: bytes | int | str) -> None:
        """Append values to a part, each with its length."""
        digest = self._parts[part]
        for value in values:
            data = value if isinstance(value, bytes) else str(value).encode()
            digest.update(len(data).to_bytes(8, "big") + data)

    def digests(self) -> Mapping[str, str]:
        """Return the parts' digests, hexadecimal."""
        return {part: digest.hexdigest() for part, digest in self._parts.items()}

"""Digests of a file's content, independent of its encryption and of the offsets of its parts.

They are equal for a file and its rewrite.  The parts: ``schema`` (types), ``layout`` (codec, rows, stride, time zones,
calendar), ``streams`` (encodings and bytes of each column's streams, as readers with the keys see them),
``bloom_filters`` (as readers with the keys see them), ``statistics`` (likewise), ``user_metadata`` (without this
package's own) and ``unopened``: all bytes, wrapped keys and masks of dark columns, whose keys no longer exist.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from sparkcrypt.files.parquet.file.modules import SecretFingerprint

_FINGERPRINT = b"sparkcrypt orc 1 stream bytes "
DIGEST_PARTS = ("schema", "layout", "streams", "bloom_filters", "statistics", "user_metadata", "unopened")
STREAMS_SEEN = ("streams", "bloom_filters")
STREAM_PARTS = (*STREAMS_SEEN, "unopened")


class StreamDigest:
    """The digest of one stream, updated piece by piece; under a key it digests the fingerprint of each piece."""

    __slots__ = ("_fingerprint", "_hash")

    def __init__(self, digest: hmac.HMAC, fingerprint: SecretFingerprint | None) -> None:
        self._hash = digest
        self._fingerprint = fingerprint

    def update(self, piece: bytes) -> None:
        """Add the next bytes."""
        self._hash.update(piece if self._fingerprint is None else self._fingerprint.next_fingerprint(piece))

    def digest(self) -> bytes:
        """Return the digest."""
        return self._hash.digest()


class ContentDigest:
    """The digests of a file's parts, updated while it is read; a key makes them HMACs.

    Under a key, streams are digested as fingerprints of their pieces (GMAC under a key derived from it), which takes a
    tenth of the time.  For equal digests, streams of a part must then be added in the same order, in pieces of the same
    lengths.
    """

    __slots__ = ("_fingerprints", "_key", "_parts")

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key
        self._parts = {part: self._new_digest() for part in DIGEST_PARTS}
        self._fingerprints = {
            part: None if key is None else SecretFingerprint(hmac.digest(key, _FINGERPRINT + part.encode(), "sha256"))
            for part in STREAM_PARTS
        }

    def open_stream(self, part: str) -> StreamDigest:
        """Return the digest of the next stream of a part, which is one of `STREAM_PARTS`."""
        return StreamDigest(self._new_digest(), self._fingerprints[part])

    def _new_digest(self) -> hmac.HMAC:
        return hmac.new(self._key or b"sparkcrypt orc", digestmod=hashlib.sha256)

    def add(self, part: str, *values: bytes | int | str) -> None:
        """Append values to a part, each with its length."""
        digest = self._parts[part]
        for value in values:
            data = value if isinstance(value, bytes) else str(value).encode()
            digest.update(len(data).to_bytes(8, "big") + data)

    def digests(self) -> Mapping[str, str]:
        """Return the digest of each part, in hexadecimal."""
        return {part: digest.hexdigest() for part, digest in self._parts.items()}

"""What wraps the data keys of a file: which master key, in which version as far as that can be told, by which KEK."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Any

from sparkcrypt.keys.material import KeyMaterial

_TOLD = re.compile(r"(?:local|vault):v([1-9][0-9]{0,8}):", re.ASCII)
_HADOOP, _HADOOP_VERSION_BYTES = "hadoop:v1:", 4
"""What a Hadoop KMS is asked to open begins with the number of its version; ``v1`` is that of the form."""
_DIGEST_CHARACTERS = 32


@dataclass(frozen=True, slots=True, order=True)
class Wrapping:
    """One text that a master key wrapped, and that a reader has to have unwrapped by a call of its own.

    Attributes:
        key_id: the master key's id, decoded.
        version: which of its versions wrapped; 0 where the key service keeps that to itself.
        digest: tells what was wrapped from all else: a KEK, or a data key where there is no KEK.
    """

    key_id: str
    version: int
    digest: str

    def to_list(self) -> list[Any]:
        """Return it as JSON values."""
        return [self.key_id, self.version, self.digest]


def wrapping_of(material: KeyMaterial) -> Wrapping:
    """Return what wraps the data key inside key material.

    Key material is not authenticated: a version that somebody wrote there opens nothing, and counts until then.
    """
    return wrapping_of_kek(material.master_key_id, material.kek_id or "", material.wrapped_kek or material.wrapped_dek)


def wrapping_of_kek(key_id: str, kek_id: str, wrapped: str) -> Wrapping:
    """Return the wrapping of a KEK by what the key service gave for it."""
    told = f"{kek_id}\n{wrapped}".encode("utf-8", "surrogatepass")
    return Wrapping(key_id, version_of(wrapped), hashlib.sha256(told).hexdigest()[:_DIGEST_CHARACTERS])


def version_of(wrapped: str) -> int:
    """Return the version of the master key that wrapped a text; 0 where the text does not tell.

    Vault (``vault:v3:…``), the local key service (``local:v3:…``) and Hadoop KMS tell; AWS KMS and Google Cloud KMS
    keep it inside their ciphertext.
    """
    told = _TOLD.match(wrapped)
    if told is not None:
        return int(told[1])
    if not wrapped.startswith(_HADOOP):
        return 0
    try:
        blob = base64.b64decode(wrapped.removeprefix(_HADOOP), validate=True)
    except (binascii.Error, ValueError):
        return 0
    return int.from_bytes(blob[:_HADOOP_VERSION_BYTES], "big")

"""Parquet key material (PKMT1), in parquet-mr's JSON inside a file's key metadata, and what wrapped the keys in it.

Source: parquet-java, ``KeyMaterial`` and ``KeyMetadata`` in ``org.apache.parquet.crypto.keytools``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkcrypt.errors import FormatError
from sparkcrypt.keys.ids import decode_key_id, encode_key_id
from sparkcrypt.policy.key_service import kind_of

MATERIAL_TYPE = "PKMT1"
_TOLD = re.compile(r"(?:local|vault):v([1-9][0-9]{0,8}):", re.ASCII)
_HADOOP, _HADOOP_VERSION_BYTES = "hadoop:v1:", 4
"""The wrapped bytes begin with the number of the master key's version; ``v1`` is the version of the format."""
_DIGEST_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A wrapped DEK and what is needed to unwrap it.

    Attributes:
        is_footer_key: whether it is the footer's; only then the instance's id and URL are written.
        kms_instance_id: the writer's name for its key service.  Never trusted to choose one.
        kms_instance_url: likewise.
        master_key_id: the master key's id, decoded.
        wrapped_dek: under double wrapping base64 of nonce, ciphertext and tag under the KEK; else what the key service
            returned.
        kek_id: base64 of the KEK's 16 random id bytes under double wrapping, else None.
        wrapped_kek: the KEK as the key service wrapped it under double wrapping, else None.
        file_identity: the identity of the only file that the DEK is for, which the wrapping authenticates; None in
            Parquet files, where every module is bound to the AAD prefix instead.
    """

    is_footer_key: bool
    kms_instance_id: str | None
    kms_instance_url: str | None
    master_key_id: str
    wrapped_dek: str
    kek_id: str | None = None
    wrapped_kek: str | None = None
    file_identity: bytes | None = None

    @property
    def double_wrapped(self) -> bool:
        """Whether the DEK is wrapped by a KEK, which is wrapped by the master key."""
        return self.kek_id is not None

    def to_bytes(self) -> bytes:
        """Return the UTF-8 JSON that goes into key metadata."""
        document: dict[str, Any] = {
            "keyMaterialType": MATERIAL_TYPE,
            "internalStorage": True,
            "isFooterKey": self.is_footer_key,
        }
        if self.is_footer_key:
            document |= {"kmsInstanceID": self.kms_instance_id, "kmsInstanceURL": self.kms_instance_url}
        document |= {
            "masterKeyID": encode_key_id(self.master_key_id),
            "wrappedDEK": self.wrapped_dek,
            "doubleWrapping": self.double_wrapped,
        }
        if self.double_wrapped:
            document |= {"keyEncryptionKeyID": self.kek_id, "wrappedKEK": self.wrapped_kek}
        if self.file_identity is not None:
            document["fileIdentity"] = base64.b64encode(self.file_identity).decode()
        return json.dumps(document, separators=(",", ":")).encode()


def parse_key_material(key_metadata: bytes) -> KeyMaterial:
    """Parse key material from key metadata; unknown fields are ignored, as in parquet-mr.

    Raises:
        FormatError: it is not PKMT1 JSON, a field is missing or of another type, or the material is stored outside the
            file.
    """
    document = parse_json_object(key_metadata)
    kind = document.get("keyMaterialType")
    if kind != MATERIAL_TYPE:
        raise FormatError(
            f"key metadata is of type {repr(kind)[:40]}; allowed: {MATERIAL_TYPE}, which Parquet's key tools write"
        )
    if not _field(document, "internalStorage", bool):
        raise FormatError(
            "key metadata refers to key material outside the file (_KEY_MATERIAL_FOR_*.json), and that was not read; "
            "allowed here: material stored in the file, as sparkcrypt writes it, and others do with "
            "parquet.encryption.key.material.store.internally=true"
        )
    is_footer_key = _field(document, "isFooterKey", bool)
    double = _field(document, "doubleWrapping", bool)
    return KeyMaterial(
        is_footer_key=is_footer_key,
        kms_instance_id=_optional_text(document, "kmsInstanceID") if is_footer_key else None,
        kms_instance_url=_optional_text(document, "kmsInstanceURL") if is_footer_key else None,
        master_key_id=decode_key_id(_field(document, "masterKeyID", str)),
        wrapped_dek=_field(document, "wrappedDEK", str),
        kek_id=_field(document, "keyEncryptionKeyID", str) if double else None,
        wrapped_kek=_field(document, "wrappedKEK", str) if double else None,
        file_identity=_file_identity(document),
    )


def parse_json_object(data: bytes, what: str = "key metadata") -> dict[str, Any]:
    """Parse a JSON object that has no field twice.

    Args:
        data: the object in UTF-8.
        what: name of the data, for messages.

    Raises:
        FormatError: the data are no such object.
    """
    try:
        document = json.loads(data.decode(), object_pairs_hook=_build_object)
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"{what} of {len(data)} bytes is not key material; allowed: {MATERIAL_TYPE} JSON, which Parquet's key "
            "tools write"
        ) from error
    if not isinstance(document, dict):
        raise FormatError(f"{what} is a JSON {type(document).__name__}; allowed: an object of type {MATERIAL_TYPE}")
    return document


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object without duplicate fields, which different readers read differently."""
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a field stands twice")
    return document


def _field(document: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    value = document.get(name)
    if not isinstance(value, kind):
        what = "is missing" if value is None else f"is a JSON {type(value).__name__}"
        raise FormatError(f"key material: {name} {what}; allowed: {'true or false' if kind is bool else 'text'}")
    return value


def _optional_text(document: Mapping[str, Any], name: str) -> str | None:
    value: str | None = None if document.get(name) is None else _field(document, name, str)
    return value


def _file_identity(document: Mapping[str, Any]) -> bytes | None:
    text = _optional_text(document, "fileIdentity")
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError("key material: fileIdentity is not base64; allowed: base64") from error


@dataclass(frozen=True, slots=True, order=True)
class Wrapping:
    """A text that a master key wrapped, and that a reader needs one key-service call to unwrap.

    Attributes:
        key_id: the master key's id, decoded.
        version: the version that wrapped it; 0 if the text does not show it.
        digest: identifies what was wrapped: a KEK, or a data key if there is no KEK.
        kind: the type of key service whose form the text has; empty if it has the form of none.
    """

    key_id: str
    version: int
    digest: str
    kind: str = field(default="", compare=False)

    def to_list(self) -> list[Any]:
        """Return it as JSON values."""
        return [self.key_id, self.version, self.digest, self.kind]


def wrapping_of(material: KeyMaterial) -> Wrapping:
    """Return the wrapping of the data key in key material.

    Key material is not authenticated: a forged version opens nothing, but is counted until a reader tries to open it.
    """
    return wrapping_of_kek(material.master_key_id, material.kek_id or "", material.wrapped_kek or material.wrapped_dek)


def wrapping_of_kek(key_id: str, kek_id: str, wrapped: str) -> Wrapping:
    """Return the wrapping of a KEK from the text that the key service returned for it."""
    text = f"{kek_id}\n{wrapped}".encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(text).hexdigest()[:_DIGEST_CHARACTERS]
    return Wrapping(key_id, version_of(wrapped), digest, kind_of(wrapped))


def version_of(wrapped: str) -> int:
    """Return the version of the master key that wrapped a text; 0 if the text does not show it.

    Texts of Vault (``vault:v3:…``), the local key service (``local:v3:…``) and Hadoop KMS show it; AWS KMS and Google
    Cloud KMS keep it inside their ciphertext.
    """
    match = _TOLD.match(wrapped)
    if match is not None:
        return int(match[1])
    if not wrapped.startswith(_HADOOP):
        return 0
    try:
        blob = base64.b64decode(wrapped.removeprefix(_HADOOP), validate=True)
    except (binascii.Error, ValueError):
        return 0
    return int.from_bytes(blob[:_HADOOP_VERSION_BYTES], "big")

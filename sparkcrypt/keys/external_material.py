"""Key material in a separate file beside the data file, as parquet-mr and Arrow can be configured to store it.

    part-0.parquet                              its key metadata are references: {"keyReference": "footerKey", …}
    _KEY_MATERIAL_FOR_part-0.parquet.json       {"footerKey": "<key material>", "columnKey0": "<key material>", …}

This package reads such pairs and never writes one: its own files contain their key material.

Source: parquet-java, ``HadoopFSKeyMaterialStore``, ``KeyMetadata`` and ``KeyMaterial`` in
``org.apache.parquet.crypto.keytools``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from sparkcrypt.errors import FormatError
from sparkcrypt.keys.material import MATERIAL_TYPE, parse_json_object

_PREFIX, _SUFFIX = "_KEY_MATERIAL_FOR_", ".json"
_TEMPORARY = "_TMP"
_REFERENCE = b'"keyReference"'


def name_material_files(data_file: str) -> tuple[str, str]:
    """Return the names under which the key material of a data file may be found, the usual one first.

    parquet-mr's rotation writes the second, deletes the first, and renames the second.  So if the first is missing,
    a rotation was killed, and the second is complete.
    """
    usual = f"{_PREFIX}{data_file}{_SUFFIX}"
    return usual, _TEMPORARY + usual


def is_material_file(name: str) -> bool:
    """Return whether a file of this name contains the key material of a data file beside it."""
    return find_data_file(name) is not None


def find_data_file(name: str) -> str | None:
    """Return the name of the data file whose key material a file of this name contains; None if it contains none."""
    usual = name.removeprefix(_TEMPORARY)
    if not (usual.startswith(_PREFIX) and usual.endswith(_SUFFIX)):
        return None
    return usual.removeprefix(_PREFIX).removesuffix(_SUFFIX)


def read_reference(key_metadata: bytes | None) -> str | None:
    """Return the reference in key metadata to an entry of the file of key material; None if the material is inside.

    Raises:
        FormatError: it is not JSON, or its reference is not text.
    """
    if key_metadata is None or _REFERENCE not in key_metadata:
        return None
    document = parse_json_object(key_metadata)
    if document.get("keyMaterialType") != MATERIAL_TYPE or document.get("internalStorage") is not False:
        return None
    reference = document.get("keyReference")
    if not isinstance(reference, str):
        raise FormatError(f"key metadata: keyReference is a JSON {type(reference).__name__}; allowed: text")
    return reference


def parse_material_file(content: bytes) -> Mapping[str, str]:
    """Parse a file of key material: reference -> key material, each not parsed further.

    Raises:
        FormatError: it is not a JSON object of texts.
    """
    document = parse_json_object(content, "a text")
    for reference, material in document.items():
        if not isinstance(material, str):
            raise FormatError(f"entry {reference[:40]!r} is a JSON {type(material).__name__}; allowed: text")
    return document


def inline_material(reference: str, materials: Mapping[str, str]) -> bytes:
    """Return the key metadata that a file would have if it contained the material.

    Args:
        reference: the reference in its key metadata.
        materials: the entries of its file of key material.

    Raises:
        FormatError: the reference has no entry, or the entry is not a JSON object.
    """
    text = materials.get(reference)
    if text is None:
        raise FormatError(f"has no entry {reference[:40]!r}, to which the file's key metadata refer")
    document = parse_json_object(text.encode("utf-8", "surrogatepass"), f"entry {reference[:40]!r}")
    inside = {"keyMaterialType": document.pop("keyMaterialType", None), **document, "internalStorage": True}
    return json.dumps(inside, separators=(",", ":")).encode()

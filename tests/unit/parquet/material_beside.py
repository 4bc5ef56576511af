"""Puts the key material of an encrypted file beside it, as parquet-mr leaves both."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from sparkcrypt.files.parquet import KeyRequest, NewKeys, rewrap_file


def material_file(file: Path) -> Path:
    """Return where the key material of a file is."""
    return file.with_name(f"_KEY_MATERIAL_FOR_{file.name}.json")


def put_beside(file: Path, retrieve_key: Callable[[KeyRequest], bytes]) -> Path:
    """Take the key material out of a file, and return the file that holds it then."""
    materials: dict[str, str] = {}

    def refer(request: KeyRequest, _: bytes) -> bytes:
        name = "footerKey" if request.column is None else f"columnKey{len(materials)}"
        document = json.loads(request.key_metadata or b"")
        del document["internalStorage"]
        materials[name] = json.dumps(document)
        return json.dumps({"keyMaterialType": "PKMT1", "internalStorage": False, "keyReference": name}).encode()

    moved = file.with_name("moved")
    rewrap_file(str(file), str(moved), retrieve_key=retrieve_key, new_keys=NewKeys(refer))
    moved.replace(file)
    material_file(file).write_text(json.dumps(materials))
    return material_file(file)

"""Every key that a run used, in the forms in which it could get out, and where they are looked for."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from sparkcrypt.files.parquet import KeyRequest, read_footer
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.opened import OpenedKeyService
from sparkcrypt.policy.model import Policy

SHORTEST = 16
"""Bytes; no key is shorter, and no shorter piece is looked for."""


class Keys:
    """The keys of files and of a state directory, opened with the policy's own credential."""

    def __init__(self, policy: Policy) -> None:
        self._service = OpenedKeyService(policy.key_service)
        self.found: set[bytes] = set()

    def take_from_file(self, file: Path) -> None:
        """Add the data keys of a Parquet file, and the KEKs that wrap them."""
        footer = read_footer(str(file), retrieve_key=self._open)
        for column in footer.columns or ():
            if column.key_metadata:
                self._open_material(column.key_metadata)

    def take_from_state(self, folder: Path) -> None:
        """Add what records of a state directory hold wrapped: keys of MACs, secrets of digests, KEKs."""
        for file in folder.rglob("*.json*"):
            for line in file.read_text().splitlines():
                with suppress(ValueError):
                    for key_id, wrapped in _wrapped_below(json.loads(line)):
                        self.found.add(self._service.service.unwrap(key_id, wrapped))

    def _open(self, request: KeyRequest) -> bytes:
        return self._open_material(request.key_metadata or b"")

    def _open_material(self, key_metadata: bytes) -> bytes:
        material = parse_key_material(key_metadata)
        key = self._service.opener.open(material)
        self.found.add(key)
        if material.wrapped_kek is not None:
            self.found.add(self._service.opener.open_kek(material))
        return key


def forms_of(key: bytes) -> dict[str, bytes]:
    """Return the forms in which a key could stand in a text or a memory image, named."""
    plain, safe = base64.b64encode(key), base64.urlsafe_b64encode(key)
    return {
        "bytes": key,
        "repr": repr(key)[2:-1].encode(),
        "hex": key.hex().encode(),
        "HEX": key.hex().upper().encode(),
        "base64": plain.rstrip(b"="),
        "base64 for URLs": safe.rstrip(b"="),
        "list": ", ".join(map(str, key)).encode(),
        "signed list": ", ".join(str(byte - 256 if byte > 127 else byte) for byte in key).encode(),
    }


def find_forms(secrets: Iterable[bytes], texts: Iterable[tuple[str, bytes]]) -> list[str]:
    """Return where a secret stands: the name of the text and of the form."""
    wanted = {form: name for secret in secrets for name, form in forms_of(secret).items() if len(form) >= SHORTEST}
    return [f"{place}: {name}" for place, text in texts for form, name in wanted.items() if form in text]


def read_files(*folders: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every file below folders."""
    for folder in folders:
        yield from ((str(file), file.read_bytes()) for file in sorted(folder.rglob("*")) if file.is_file())


class Processes:
    """The command lines and environments of all processes that work below a folder, looked at again and again."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder).encode()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.seen: dict[tuple[str, bytes], None] = {}

    def __enter__(self) -> Processes:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._thread.join()

    def texts(self, name: str) -> list[tuple[str, bytes]]:
        """Return the ``cmdline`` or ``environ`` of each process."""
        return [(place, text) for place, text in self.seen if place.endswith(name)]

    def _look(self) -> None:
        own = str(os.getpid())
        while not self._ended.wait(0.2):
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    environment = (process / "environ").read_bytes()
                    if process.name != own and self._folder in environment:
                        self.seen[f"{process.name}/environ", environment] = None
                        self.seen[f"{process.name}/cmdline", (process / "cmdline").read_bytes()] = None


def _wrapped_below(record: object) -> Iterator[tuple[str, str]]:
    """Yield key id and wrapped text of each pair of these in a record."""
    if isinstance(record, dict):
        if isinstance(record.get("wrapped"), str) and isinstance(record.get("key_id"), str):
            yield record["key_id"], record["wrapped"]
        for value in record.values():
            yield from _wrapped_below(value)
    elif isinstance(record, list):
        for value in record:
            yield from _wrapped_below(value)

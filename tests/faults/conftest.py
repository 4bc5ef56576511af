"""Fixtures with a faulty key service for the helper."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


@dataclass
class Faults:
    """A folder with the faulty key service, laid out like an installed distribution."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def key_service(self) -> str:
        """Its configuration, as JSON."""
        return json.dumps({"type": "faulty", "folder": str(self.folder)})

    def policy(self, **more: Any) -> str:
        """A policy on it: tags ``pii`` and ``fin``, footer key ``footer``."""
        document = {
            "version": 1,
            "key_service": json.loads(self.key_service),
            "footer": {"key": "footer", "mode": "encrypted"},
            "untagged": "plaintext",
            "run_state": str(self.folder / "state"),
            "tags": [["pii", {"key": "pii"}], ["fin", {"key": "fin"}]],
            **more,
        }
        return json.dumps(document)

    def events(self) -> list[tuple[int, str]]:
        """The events that the service recorded, as (process id of the helper, event)."""
        path = self.folder / "events"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(line.split(" ", 1)[0]), line.split(" ", 1)[1]) for line in lines]

    def count(self, event: str) -> int:
        """Return how often an event was recorded."""
        return sum(1 for _, noted in self.events() if noted.startswith(event))

    def helpers(self) -> set[int]:
        """Process ids of every helper that opened the service."""
        return {pid for pid, _ in self.events()}


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    """A fresh faulty key service."""
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(HERE / "faulty_service.py", site / "faulty_service.py")
    information = site / "faulty_service-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty-service\nVersion: 1.0\n")
    entry_point = "faulty = faulty_service:FaultyKeyService"
    (information / "entry_points.txt").write_text(f"[sparkcrypt.key_services]\n{entry_point}\n")
    folder = tmp_path / "faults"
    folder.mkdir()
    python_path = os.pathsep.join([str(site), *filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])])
    return Faults(folder, {**os.environ, "PYTHONPATH": python_path})

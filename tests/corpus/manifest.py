"""The list of the corpus's files: ``python make_….py FOLDER | python -m tests.corpus.manifest`` adds what was made.

Each maker prints a line of JSON for each file: its name, writer, the writer's version, and what is odd about it.
What is expected of a file is written into the manifest by hand; it stays when a file is made anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FILES = Path(__file__).parent / "files"
MANIFEST = Path(__file__).parent / "manifest.json"


def load() -> dict[str, dict[str, Any]]:
    """Return file name -> its entry."""
    found: dict[str, dict[str, Any]] = json.loads(MANIFEST.read_text()) if MANIFEST.exists() else {}
    return found


def add(lines: list[str]) -> None:
    """Add files to the manifest, or change who wrote them."""
    entries = load()
    for line in lines:
        entry = json.loads(line)
        entries.setdefault(entry.pop("file"), {}).update(entry)
    save(entries)


def save(entries: dict[str, dict[str, Any]]) -> None:
    """Write the manifest, a line for each file."""
    lines = [f"{json.dumps(name)}: {json.dumps(entries[name], ensure_ascii=False)}" for name in sorted(entries)]
    MANIFEST.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    add(sys.stdin.readlines())

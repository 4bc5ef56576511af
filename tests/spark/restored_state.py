"""Copies of a state directory from the middle of a run, and the state directory put back to one of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.policy.model import Policy


def states(policy: Policy) -> Path:
    """Return the state directory."""
    return Path(policy.run_state or "")


def restore(policy: Policy, copy: Path, *, locks: bool = True) -> None:
    """Put a copy of the state directory in its place; without its locks, tokens begin again."""
    shutil.rmtree(states(policy))
    shutil.copytree(copy, states(policy))
    if not locks:
        shutil.rmtree(states(policy) / "locks")


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Copies of the state directory right after the first records of each kind: kind -> copy."""
    append, kept = Journal.append_all, dict[str, Path]()

    def appended(journal: Journal, records: Any) -> Any:
        written = append(journal, records)
        for kind in {kind for kind, _ in records} - kept.keys():
            root = journal.log._store._root  # type: ignore[attr-defined]
            kept[kind] = Path(shutil.copytree(root, tmp_path / f"copy-{kind}"))
        return written

    monkeypatch.setattr(Journal, "append_all", appended)
    yield kept

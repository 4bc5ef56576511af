from __future__ import annotations

from pathlib import Path

from tests.unit.skipping.differential import run


def test_rows_are_the_same_with_and_without_an_index(tmp_path: Path) -> None:
    """Random predicates over random files find the same rows, and a good part of the files is left out."""
    told = run(seed=1, predicates=400, root=tmp_path)
    assert told.predicates == 400
    assert told.skipped > told.skippable / 8

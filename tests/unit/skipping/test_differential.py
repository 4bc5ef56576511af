from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.skipping.differential import PARTITIONS, run
from tests.unit.skipping.random_rows import COLUMNS

PREDICATES = 10_000


@pytest.mark.slow
def test_rows_are_the_same_with_and_without_an_index(tmp_path: Path) -> None:
    """Thousands of random predicates over files of all types that come, go and change places lose no row.

    A good part of the files without a row is left out, so the predicates are not merely ones that skip nothing.
    """
    told = run(seed=1, predicates=PREDICATES, root=tmp_path)
    assert told.predicates == PREDICATES
    assert told.skipped > told.skippable / 8
    assert told.types == {kind for kind, *_ in (*COLUMNS.values(), *PARTITIONS.values())}

"""What became of a unit, as anybody may have written it into the state directory."""

from __future__ import annotations

from typing import Any

import pytest

from sparkcrypt.errors import VerificationError
from sparkcrypt.ledger.unit import UnitOutcome

WHOLE = UnitOutcome("p=0", 1, 2, 3, 4, "/t/p=0", "/new/p=0", True, finished="2026-05-03T10:00:00+00:00")


def test_outcome_is_read_as_it_was_written() -> None:
    """Lists become tuples."""
    assert UnitOutcome.from_dict(WHOLE.to_dict()) == WHOLE


@pytest.mark.parametrize(
    "values",
    [
        None,
        [],
        "p=0",
        {},
        {"unit": "p=0"},
        {**WHOLE.to_dict(), "more": 1},
        {**WHOLE.to_dict(), "finished": "soon"},
        {**WHOLE.to_dict(), "seconds": "3"},
        {**WHOLE.to_dict(), "bytes_before": None},
    ],
)
def test_what_no_release_wrote_is_refused(values: Any) -> None:
    """It is an error that says so, and no accident of Python."""
    with pytest.raises(VerificationError, match="which no release wrote"):
        UnitOutcome.from_dict(values)

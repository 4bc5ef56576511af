from __future__ import annotations

from collections import Counter

import pytest

from tests.fuzz.orc_cases import DAMAGES, attempt, make_case, original
from tests.unit.orc.corpus import NAMES

CASES, SLICES = 800, 4


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
def test_damaged_orc_files_are_refused_or_read(part: int) -> None:
    """Damaged files of two writers give nothing but errors of this layer, each in time and within memory."""
    outcomes: Counter[str] = Counter()
    for number in range(part, CASES, SLICES):
        outcomes.update(attempt(make_case(20261122, number), measured=number % 60 == part).values())
    assert set(outcomes) - {"UnsupportedFileError", "VerificationError"} == {"read", "FormatError"}


def test_every_damage_changes_something() -> None:
    """No way of damaging leaves every file as it was."""
    for way in range(len(DAMAGES)):
        cases = [make_case(1, number) for number in range(way * len(NAMES), (way + 1) * len(NAMES))]
        assert any(case.data != original(case.name) for case in cases)

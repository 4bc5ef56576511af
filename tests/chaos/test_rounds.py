from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.faults import available
from tests.chaos.round import play
from tests.chaos.world import World
from tests.conftest import or_skip

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]


@pytest.fixture(scope="module")
def world(jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A metastore, a Vault, a writer and two drivers, each a process of its own."""
    made = or_skip(World, tmp_path_factory.mktemp("chaos"), drivers=2)
    yield made
    made.close()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_round_loses_doubles_and_betrays_nothing(world: World, seed: int) -> None:
    """After writers, passes, kills and a fault at the same time every row is there once, and no tagged one in clear."""
    result = play(world, seed, available(world))
    assert [finding.to_dict() for finding in result.wrong] == [], result.account

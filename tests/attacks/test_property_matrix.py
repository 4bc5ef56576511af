"""Every property in every place: decided in a table, and tried on tables whose rule requires encryption."""

from __future__ import annotations

import os
import random

import pytest

from tests.attacks.hostile_properties import HostileProperties
from tests.attacks.property_matrix import NOT_OF_A_TABLE, PLACES, SESSIONS, Place, decide, read_rows
from tests.attacks.property_names import find_names
from tests.spark.support import Lake

DRAWN = 60
TRIED: tuple[Place, ...] = tuple(place for place in PLACES if place != "launch")


def test_every_property_in_the_sources_has_a_row() -> None:
    """A property that jar or package come to read is decided here before it is released, and no row is left over."""
    assert find_names() == {*read_rows(), *NOT_OF_A_TABLE}
    assert not read_rows().keys() & NOT_OF_A_TABLE.keys()


def test_a_table_decides_its_identity_and_adds_protection_and_nothing_else() -> None:
    """Nothing else counts from a table's properties, whatever the session."""
    marks = {"sparkcrypt.rule", "sparkcrypt.table", "sparkcrypt.predecessor", "parquet.sparkcrypt.table.uuid"}
    for place in ("tblproperties", "serdeproperties"):
        for session in SESSIONS:
            counting = {name for name in read_rows() if decide(name, place, session) == "c"}
            assert counting <= marks, (place, session)


def test_nobody_but_the_launch_chooses_keys() -> None:
    """Neither SET, nor options, nor tables name a policy, a key service or a token, in any session."""
    for name in ("policy", "key_service", "session_token"):
        found = {decide(f"parquet.sparkcrypt.{name}", place, session) for place in TRIED for session in SESSIONS}
        assert found == {"r"}


@pytest.mark.spark
@pytest.mark.timeout(3600)
def test_cells_in_spark(lake: Lake) -> None:
    """Hostile values in drawn cells, or in all of them, neither bring plaintext nor let forged rows in."""
    cells = [(name, place) for name in sorted(read_rows()) for place in TRIED]
    seed = int(os.environ.get("SPARKCRYPT_ATTACK_SEED", "1"))
    if not os.environ.get("SPARKCRYPT_ALL_CELLS"):
        cells = random.Random(seed).sample(cells, DRAWN)
    tables = HostileProperties(lake)
    wrong = []
    for name, place in cells:
        cell = decide(name, place, "classic")
        outcome, said = tables.try_cell(name, place, refused=cell == "r")
        if (outcome == "refused") is not (cell == "r"):
            wrong.append(f"{name} by {place}: {outcome}, and the matrix says {cell}: {said[:300]}")
        tables.end_cell(keeps=cell != "c")
    assert wrong == [], "\n".join(wrong)

"""Which folders the journals of tables that exist keep from being taken for orphans."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.ledger.unit import UnitOutcome
from sparkcrypt.runs.old_folders.orphans import leftovers_of_journals
from tests.journals import start_run
from tests.unit.backfill.conftest import RUN, TABLE, run_record

BASE = "file:/warehouse/db/t"
OLD = f"file:/warehouse/db/.sparkcrypt/t/old-{RUN}"
STAGED = f"file:/warehouse/db/.sparkcrypt/t/{RUN}-1"
LISTED = {"staged": STAGED, "location": BASE, "partition_path": "", "files": []}
OUTCOME = UnitOutcome("all", 1, 1, 1, 1, OLD, BASE, True).to_dict()


def known(store: LocalStateStore, outcome: Any, **listed: Any) -> set[str]:
    """Journal a swap with this outcome, and return the folders that are no orphans."""
    journal = start_run(store, run_record())
    journal.append("unit_listed", unit="all", **listed)
    journal.append("unit_swapped", unit="all", outcome=outcome)
    return leftovers_of_journals(store, cast("Any", None), cast("Any", None), {TABLE: BASE})[0]


def test_folders_of_an_existing_tables_run_are_known(store: LocalStateStore) -> None:
    """The old folder, and what is staged while the run goes on."""
    assert known(store, OUTCOME, **LISTED) == {OLD, STAGED}


@pytest.mark.parametrize(
    ("outcome", "listed"), [({}, LISTED), (3, LISTED), ({"old_location": OLD}, LISTED), (OUTCOME, {})]
)
def test_old_folder_of_a_run_that_cannot_be_read_is_known(
    store: LocalStateStore, outcome: Any, listed: dict[str, Any]
) -> None:
    """A record that says nothing ends no search, and does not give up the run's old folder."""
    assert known(store, outcome, **listed) == {OLD}

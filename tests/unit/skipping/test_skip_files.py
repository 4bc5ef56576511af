"""What the helper answers of the files that a query has listed."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import names
from sparkcrypt.bridge.operations import Operations
from sparkcrypt.errors import BridgeError
from sparkcrypt.keys.access_decisions import KeyDecisions
from sparkcrypt.keys.opened import OpenedKeyService
from sparkcrypt.keys.service import DelegatingKeyService, KeyService
from sparkcrypt.skipping.query.skip_files import OpenedStores, skip_files
from tests.unit.skipping.keys import Keys
from tests.unit.skipping.requests import policy, request
from tests.unit.skipping.tables import UUID, Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three encrypted files, with a store where the policy says."""
    keys = Keys(tmp_path / "keys")
    made = Table(tmp_path, keys, keys)
    for number in range(3):
        made.write(f"{number}.parquet", number * 10, number * 10 + 5, uuid=UUID, key="pii")
    made.create("id", "ssn")
    (tmp_path / "indexes").mkdir()
    (tmp_path / "store").rename(tmp_path / "indexes" / UUID)
    return made


def test_files_are_named_by_their_numbers(table: Table) -> None:
    """The answer has the files that cannot match, and by which index; what was new since is not among them."""
    operations = Operations()
    answer = operations.answer(request(table, ["=", "id", 15]))
    assert (answer["skipped"], answer["by"], answer["generation"]) == ([0, 2], {"id minmax": 2}, 1)
    table.write("0.parquet", 15, 16, uuid=UUID, key="pii", at=table.clock)
    assert operations.answer(request(table, ["=", "id", 15]))["skipped"] == [2]
    assert operations.answer(request(table, ["unknown"]))["skipped"] == []


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"properties": {}}, "no UUID"),
        ({"properties": {names.TABLE_UUID: "another"}}, "there is no index at"),
        ({"policy": None}, "does not say where indexes are"),
    ],
)
def test_without_a_store_nothing_is_skipped(table: Table, more: dict[str, Any], why: str) -> None:
    """The reason is part of the answer, and no error."""
    if "policy" in more:
        more = {"policy": replace(policy(table), index_location=None).canonical()}
    answer = Operations().answer({**request(table, ["=", "id", 15]), **more})
    assert answer["skipped"] == []
    assert why in answer["why"]


def test_key_service_that_needs_a_key_is_asked_with_one(table: Table) -> None:
    """Where nothing tells a right beforehand, the key metadata of files do; until then nothing is skipped."""
    service = OpenedKeyService(policy(table).key_service)

    class Unwrapping(DelegatingKeyService):
        """A key service that says nothing of rights."""

        may = KeyService.may

    service.decisions = KeyDecisions(Unwrapping(service.service))
    stores, asked = OpenedStores(), request(table, ["=", "id", 15])
    first = skip_files(asked, service, stores)
    assert (first["skipped"], first["undecided"]) == ([], ["pii"])
    _, material = table.keys.keys.maker.make("pii", is_footer_key=False)
    again = skip_files({**asked, "key_metadata": [base64.b64encode(material).decode()]}, service, stores)
    assert (again["skipped"], again["undecided"]) == ([0, 2], [])
    unread = skip_files({**asked, "read": ["id"]}, service, stores)
    assert unread["skipped"] == [0, 2]


def test_index_under_another_key_than_the_plan_gives_is_not_used(table: Table) -> None:
    """A column that was tagged otherwise since has no index, whoever wrote the one that is there."""
    other = policy(table, tags={"pii": {"key": "other"}}).canonical()
    answer = Operations().answer(request(table, ["=", "ssn", "015-secret"], policy=other))
    assert answer["skipped"] == []
    assert answer["unused"]["ssn minmax"].startswith("it is under another key")
    assert Operations().answer(request(table, ["=", "id", 15], policy=other))["skipped"] == [0, 2]


@pytest.mark.parametrize(
    "more",
    [
        {"files": [[1, "0.parquet", 1, 1]]},
        {"files": [["0.parquet"]]},
        {"files": None},
        {"types": ["id"]},
        {"read": "id"},
        {"predicate": ["like", "id", 1]},
    ],
)
def test_what_no_jar_sends_is_refused(table: Table, more: dict[str, Any]) -> None:
    """A request in another form is an error, which keeps every file."""
    with pytest.raises(BridgeError, match="do not belong together"):
        Operations().answer({**request(table, ["=", "id", 15]), **more})

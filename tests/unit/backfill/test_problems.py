"""Open problems: they stay until a resolution authenticates, and no record that somebody planted closes one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from sparkcrypt.errors import RunConflictError, VerificationError
from sparkcrypt.ledger.audit.manifest import LISTED_GONE, REPLAYED
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import LocalStateStore, encode_record
from sparkcrypt.runs.old_folders.problems import BACK, STRAY, Decision, Problem, Problems, problems_of_target

MAC = TableMac(b"m" * 32)
FOUND = Problem("", "db.t", "run-1", "p=0", "removed", "/t/p=0", gone=("a.parquet",), message="p=0: a.parquet is gone")


@pytest.fixture
def store(tmp_path: Path) -> LocalStateStore:
    """An empty state directory."""
    return LocalStateStore(tmp_path)


def problems(store: LocalStateStore, table: str = "t1", mac: TableMac = MAC) -> Problems:
    """The problems of a table."""
    return Problems(store, table, lambda: mac)


def test_a_problem_stays_open_until_it_is_resolved(store: LocalStateStore) -> None:
    """It is listed as it was found, once, whoever finds it again; and not after its resolution."""
    opened = problems(store).add(FOUND)
    assert problems(store).open() == [opened]
    assert problems(store).add(FOUND) == opened
    assert len(opened.problem) == 12
    for part in (opened.problem, "--table db.t", "--keep new|old", "p=0: a.parquet is gone"):
        assert part in opened.message
    problems(store).close(opened.problem, Decision("new", "a reason"))
    assert problems(store).open() == []
    assert problems(store).add(FOUND).problem != opened.problem
    with pytest.raises(RunConflictError):
        problems(store).close(opened.problem, Decision("old", "another"))


def test_what_is_found_again_is_told_as_it_is_now(store: LocalStateStore) -> None:
    """The name stays, and what else has gone since is told."""
    opened = problems(store).add(FOUND)
    more = Problem("", "db.t", "run-1", "p=0", "removed", "/t/p=0", gone=("a", "b"), message="two are gone")
    again = problems(store).add(more)
    assert (again.problem, again.gone) == (opened.problem, ("a", "b"))
    assert again.message.startswith("two are gone")


@pytest.mark.parametrize("kind", [LISTED_GONE, REPLAYED, STRAY])
def test_one_unit_may_have_problems_of_different_things(store: LocalStateStore, kind: str) -> None:
    """What its old files need a decision on is not what the list lacks or a former home has; each stays open."""
    other = problems(store).add(replace(FOUND, kind=kind))
    opened = problems(store).add(FOUND)
    assert {problem.problem for problem in problems(store).open()} == {opened.problem, other.problem}
    assert "--keep new|old" in opened.message and "--keep new " in other.message
    problems(store).close(other.problem, Decision("new", "a reason"))
    assert problems(store).open() == [opened]


@pytest.mark.parametrize("planted", ["the problem itself", "edited", "of another table", "of another key", "no record"])
def test_no_planted_resolution_closes_a_problem(store: LocalStateStore, planted: str) -> None:
    """A resolution that the table's key did not authenticate leaves the problem open, and is named."""
    opened = problems(store).add(FOUND)
    name = f"problems/t1/{opened.problem}-resolved.json"
    other = problems(store, "t2", TableMac(b"x" * 32) if planted == "of another key" else MAC)
    if planted == "the problem itself":
        content = store.read(f"problems/t1/{opened.problem}.json") or b""
    elif planted == "no record":
        content = b"{}"
    else:
        other.close(opened.problem, Decision("new", "a reason"))
        content = store.read(f"problems/t2/{opened.problem}-resolved.json") or b""
    if planted == "edited":
        content = encode_record({**json.loads(content), "table_id": "t1"})
    store.create(name, content)
    (still,) = problems(store).open()
    assert still.problem == opened.problem
    assert name in (still.damage or "")


@pytest.mark.parametrize("how", ["edited", "cut", "unknown field"])
def test_damaged_record_is_a_problem_of_its_own(store: LocalStateStore, how: str) -> None:
    """Nobody can hide a problem by damaging its record: it is listed, and says what to do."""
    opened = problems(store).add(FOUND)
    name = f"problems/t1/{opened.problem}.json"
    content = store.read(name) or b""
    store.delete(name)
    body = json.loads(content)
    body["fields"]["gone" if how == "edited" else "gonne"] = []
    store.create(name, content[:40] if how == "cut" else encode_record(body))
    (found,) = problems(store).open()
    assert (found.kind, found.problem) == ("damaged record", opened.problem)
    assert "restore it from a backup" in found.message


def test_resolution_without_its_problem_is_told(store: LocalStateStore) -> None:
    """A genuine resolution closes; the record of the problem may be gone then, and nothing else is closed by it."""
    problems(store).close("0" * 12, Decision("new", "a reason"))
    assert problems(store).open() == []


def test_without_a_key_service_problems_are_shown_and_none_is_written(store: LocalStateStore) -> None:
    """Status goes on where nothing can be authenticated, and says so itself; nothing is opened or closed then."""
    opened = problems(store).add(FOUND)
    blind = Problems(store, "t1", None)
    assert blind.open() == [opened]
    with pytest.raises(VerificationError, match="cannot be authenticated"):
        blind.close(opened.problem, Decision("new", "a reason"))


def test_old_rows_that_are_back_have_a_step_of_their_own(store: LocalStateStore) -> None:
    """What --keep means there is said in the message."""
    found = Problem("", "db.t", "run-1", "p=0", BACK, "/t/p=0", came=("a.parquet",), message="p=0: old rows")
    assert "new moves these files out of it" in problems(store).add(found).message


@pytest.mark.parametrize(
    "there", [{"/u/p=0"}, {"/t/p=0", "/u/p=0"}, set()], ids=["moved", "another table is there", "gone"]
)
def test_a_problem_is_told_by_the_names_of_now(store: LocalStateStore, there: set[str]) -> None:
    """After a RENAME, which takes old folders along; never by a guess: the folder is there, and no other is left."""
    opened = problems(store).add(replace(FOUND, base="/t"))
    target, files = Mock(base="/u", table_id="t1"), Mock(exists=there.__contains__)
    target.name = "db.u"
    (told,) = problems_of_target(target, store, lambda: MAC, files).open()
    assert (told.problem, told.table) == (opened.problem, "db.u")
    assert "--table db.u " in told.message
    moved = there == {"/u/p=0"}
    assert told.old_location == ("/u/p=0" if moved else "/t/p=0")
    assert ("that folder is /u/p=0 now" in told.message) is moved
    assert problems(store).open() == [opened]

"""Reports of runs and passes, and the problems that stay open after them."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from sparkcrypt.errors import BridgeError, ConfigError, KeyServiceUnavailableError, RunConflictError, VerificationError
from sparkcrypt.keys.material import Wrapping
from sparkcrypt.ledger.audit.manifest import LISTED_GONE, REPLAYED
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import LocalStateStore, encode_record
from sparkcrypt.ledger.unit import Unit, UnitOutcome
from sparkcrypt.plan import build_plan
from sparkcrypt.policy.load import policy_from_text
from sparkcrypt.runs.old_folders.problems import BACK, STRAY, Decision, Problem, Problems, problems_of_target
from sparkcrypt.runs.passes.report import PassReport, TableError, TableFailures
from sparkcrypt.runs.passes.result import RunResult
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.table.amount import Amount
from sparkcrypt.runs.table.difference import Drift
from sparkcrypt.runs.table.unit_survey import FileAction, UnitSurvey
from sparkcrypt.schema import schema_from_spark
from tests.unit.backfill.run_reports import report

POLICY = """
version: 1
key_service: {type: local, path: /keys}
footer: {key: footer}
untagged: plaintext
tags: {pii: {key: pii}}
"""
FIELDS = [
    "table", "run_id", "engine", "files_total", "files_rewritten", "files_skipped", "rows",
    "bytes_before", "bytes_after", "columns", "verified", "seconds", "old_location",
    "outcome", "swap", "units", "warnings", "audit",
    "files_left", "bytes_left", "units_left", "quarantined", "drift", "coverage", "planned",
    "estimated_seconds", "this_pass", "earlier", "problems", "awaiting_expiry", "key_calls", "index", "new_location",
    "untagged", "data_columns",
    "missing_keys", "key_ids",
]  # fmt: skip


def test_the_promised_fields_are_there_in_order() -> None:
    """Field names are what others parse."""
    assert [field.name for field in fields(Report)] == FIELDS
    assert list(report().to_dict()) == FIELDS


def test_a_report_is_json_as_it_stands() -> None:
    """It goes through JSON unchanged, and its parts are copies."""
    made = report()
    document = made.to_dict()
    assert json.loads(json.dumps(document)) == document
    document["columns"]["x"] = "y"
    document["units"][0]["rows"] = 0
    document["audit"]["number"] = 0
    assert made == report()


def test_a_report_cannot_be_changed() -> None:
    """Values are frozen."""
    with pytest.raises(FrozenInstanceError):
        report().rows = 1  # type: ignore[misc]


def test_people_read_a_table_that_lines_up() -> None:
    """Every fact is in the text, large numbers with separators, no line ends in a space."""
    text = report().to_text()
    for part in (
        "table      sales.customers",
        "outcome    done",
        "files      1,200: 1,000 rewritten, 200 matched already",
        "bytes      5,000,000 became 5,100,000",
        "verified   yes",
        "old files  /warehouse/customers",
        "new files  /.sparkcrypt/customers/run",
        "column               key id",
        "phones.list.element  contact-2026-01",
        "unit  files  rows",
        "p=1   1000   336776",
        "warning: readers in flight fail",
        "audit      head 7:ab12",
    ):
        assert part in text.splitlines()
    assert all(line == line.rstrip() for line in text.splitlines())


def test_a_run_that_did_nothing_says_so_in_few_lines() -> None:
    """Empty parts leave no empty tables."""
    text = report(outcome="nothing to do", columns={}, units=(), warnings=(), old_location=None, swap=None).to_text()
    assert "old files  none" in text and "swap       none" in text
    assert "" not in text.splitlines()


def test_what_was_not_verified_stands_out() -> None:
    """A reader does not overlook it."""
    assert "verified   NO" in report(verified=False, outcome="failed").to_text().splitlines()


def test_an_untagged_table_is_never_said_to_be_verified_or_to_match() -> None:
    """Nothing of it is encrypted, and the text says so with the next step."""
    made = report(
        outcome="untagged", untagged=True, data_columns=3, verified=False, columns={}, units=(), files_rewritten=0
    )
    text = made.to_text()
    assert "outcome    untagged" in text and "none of its 3 columns has a tag that encrypts" in text
    assert "`sparkcrypt tags set`" in text
    assert "yes" not in text and "matched" not in text
    assert (made.to_dict()["outcome"], made.to_dict()["verified"]) == ("untagged", False)


def test_what_is_still_encrypted_is_not_called_untagged() -> None:
    """After tags were taken off, files that nobody has decrypted yet differ from the plan."""
    schema = schema_from_spark({"type": "struct", "fields": [{"name": "email", "type": "string", "nullable": True}]})
    target: Any = SimpleNamespace(
        name="db.t", plan=build_plan(schema, (), policy_from_text(POLICY, where="", base="/"))
    )
    unit = Unit("db.t", "/t", None, "", {})
    kept = UnitSurvey(unit, Amount(1, 9), (Drift("extra", "/t/f", "email", "encrypted with 'pii'"),))
    clear = UnitSurvey(unit, Amount(1, 9), ())
    for survey, outcome, untagged in ((kept, "incomplete", False), (clear, "nothing to do", True)):
        made = RunResult("run", outcome, [survey]).report(target, "native", 1.0)  # type: ignore[arg-type]
        assert (made.untagged, made.outcome) == (untagged, "untagged" if untagged else outcome)
        assert made.data_columns == 1


def test_keys_of_files_are_by_the_plan_where_all_were_rewritten() -> None:
    """Of a unit of which files matched already, and of one that was left, they are also those in the files."""
    schema = schema_from_spark({"type": "struct", "fields": [{"name": "email", "type": "string", "nullable": True}]})
    plan = build_plan(schema, (), policy_from_text(POLICY, where="", base="/"))
    target: Any = SimpleNamespace(name="db.t", plan=plan)
    old, kept, left = (frozenset({Wrapping(key_id, 1, "x", "local")}) for key_id in ("old", "kept", "left"))
    drift = (Drift("wrong_key", "/t/f", "email", "encrypted with another key"),)

    def survey(name: str, wrappings: frozenset[Wrapping], rewritten: int) -> UnitSurvey:
        unit = Unit(name, "/t", None, "", {})
        actions: dict[FileAction, Amount] = {"re-key": Amount(rewritten, 9)}
        return UnitSurvey(unit, Amount(2, 9), drift, actions, wrappings=wrappings, keys=frozenset({"pii"}))

    surveys = [survey("whole", old, 2), survey("part", kept, 1), survey("left", left, 2)]
    done = [UnitOutcome(name, 2, 5, 9, 9, "/t", "/new", verified=True) for name in ("whole", "part")]
    made = RunResult("run", "incomplete", surveys, done).report(target, "native", 1.0)
    assert made.key_ids == ("footer", "kept", "left", "pii")


FAILED = {"failed": [TableError("s.t", "PlanError", "no tag x")]}
REFUSED = {"refused": {"s.t": "the tags of ssn are gone"}}


def made(*, dry_run: bool = False, **fields: Any) -> PassReport:
    """Return the report of a pass."""
    return PassReport("p", "digest", "2026-11-21T10:00:00+00:00", 1.0, dry_run, **fields)


@pytest.mark.parametrize("fields", [FAILED, REFUSED, {**FAILED, "tables": [report(outcome="dry run", units_left=2)]}])
def test_dry_run_that_could_not_look_at_a_table_ends_with_74(fields: dict[str, Any]) -> None:
    """Silence about a table would be taken for a match, and 2 for all the drift that there is."""
    done = made(dry_run=True, **fields)
    assert (done.outcome, done.exit_code) == ("dry run", 74)


def test_dry_run_ends_with_2_on_drift_alone() -> None:
    """Drift is a plan's news; without it, and with tables that are of another kind or unchanged, all is well."""
    drifting = report(outcome="dry run", units_left=1)
    assert made(dry_run=True, tables=[report(outcome="dry run"), drifting]).exit_code == 2
    well = made(dry_run=True, tables=[report(outcome="dry run")], passed_over={"s.v": "a view"}, unchanged=["s.u"])
    assert well.exit_code == 0


@pytest.mark.parametrize("fields", [FAILED, REFUSED, {"tables": [report(), report(outcome="incomplete")]}])
def test_pass_that_left_something_out_ends_with_74(fields: dict[str, Any]) -> None:
    """Tables that failed or were refused, and units that were quarantined."""
    done = made(**fields)
    assert (done.outcome, done.exit_code) == ("incomplete", 74)


@pytest.mark.parametrize("outcome", ["done", "nothing to do", "stopped at budget"])
def test_pass_that_did_what_it_could_ends_well(outcome: Any) -> None:
    """What a budget left is the next pass's; only a dry run ends with 2 on drift."""
    done = made(tables=[report(outcome=outcome, units_left=3)])
    assert (done.outcome, done.exit_code) == (outcome, 0)


CONFLICT = {"failed": [TableError("s.t", "RunConflictError", "another run holds it")]}
PROBLEM = {"problems": ({"problem": "0f"},)}


@pytest.mark.parametrize("dry_run", [False, True])
def test_pass_that_waits_for_other_runs_alone_ends_with_75(dry_run: bool) -> None:
    """A scheduler may try again by itself, unless something is left that does not end by itself: an open problem."""
    outcome: Any = "dry run" if dry_run else "done"
    assert made(dry_run=dry_run, **CONFLICT, tables=[report(outcome=outcome)]).exit_code == 75
    troubled = report(outcome=outcome if dry_run else "incomplete", **PROBLEM)
    assert made(dry_run=dry_run, **CONFLICT, tables=[troubled]).exit_code == 74


CONFIG: dict[str, Any] = {"failed": [TableError("s.t", "ConfigError", "no state")]}


def test_pass_in_which_every_table_met_an_error_of_the_set_up_ends_with_78() -> None:
    """If any table could be worked on, it is the fault of the one that could not."""
    assert made(**CONFIG).exit_code == 78
    assert made(**CONFIG, tables=[report()]).exit_code == 74
    assert made(failed=[*CONFIG["failed"], TableError("s.u", "PlanError", "no tag x")]).exit_code == 74


def test_dry_run_that_misses_a_folder_ends_with_74() -> None:
    """The pass would quarantine that unit, so its plan is no mere drift."""
    lost = report(outcome="dry run", quarantined=({"unit": "p=1", "error": "StorageError", "message": "no"},))
    assert made(dry_run=True, tables=[lost]).exit_code == 74


UNTAGGED: Any = {"outcome": "untagged", "untagged": True}


def test_untagged_tables_are_counted_and_end_no_pass_badly() -> None:
    """They are an outcome of their own, and no success: what is encrypted elsewhere is not theirs."""
    alone = made(tables=[report(**UNTAGGED)])
    assert (alone.outcome, alone.exit_code, alone.totals()["untagged"]) == ("untagged", 0, 1)
    assert made(tables=[report(**UNTAGGED), report(outcome="nothing to do")]).outcome == "nothing to do"
    assert made(tables=[report(**UNTAGGED), report()]).outcome == "done"


def test_text_of_a_pass_counts_and_names_untagged_tables() -> None:
    """Their rows do not say that they match, in a plan and in a pass."""
    dry = report(outcome="dry run", untagged=True, data_columns=3, table="s.plain")
    text = made(dry_run=True, tables=[dry, report(outcome="dry run")]).to_text()
    assert "2 tables (1 untagged)" in text and "s.plain" in text and "no tag on 3 columns" in text
    assert "untagged, so nothing in them is encrypted: s.plain" in text
    assert text.count("matches") == 1
    assert made(tables=[report(**UNTAGGED)]).to_text().startswith("untagged: 1 table (1 untagged)")


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


def _fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "name", "part"),
    [
        (ConfigError("no state"), "ConfigError", "no state"),
        (KeyError("files"), "KeyError", "(test_report.py, line"),
        (RuntimeError("ParquetCryptoRuntimeException: KeyNotFoundError: no key"), "KeyNotFoundError", "no key"),
    ],
)
def test_error_of_a_table_is_recorded(error: Exception, name: str, part: str) -> None:
    """Also one that nothing foresaw, with its place in the code, and one that Java carried."""
    failures = TableFailures()
    with failures.of("db.t"):
        _fail(error)
    with failures.of("db.u"):
        pass
    (found,) = failures.found
    assert (found.table, found.error) == ("db.t", name) and part in found.message


@pytest.mark.parametrize("kind", [KeyServiceUnavailableError, BridgeError])
def test_error_that_all_would_meet_is_recorded_and_raised(kind: type[Exception]) -> None:
    """The report then names the table at which the command ended."""
    failures = TableFailures()
    with pytest.raises(kind), failures.of("db.t"):
        raise kind("no answer")
    assert [found.table for found in failures.found] == ["db.t"]


def test_interruption_is_no_error_of_a_table() -> None:
    """Ctrl-C ends the command."""
    failures = TableFailures()
    with pytest.raises(KeyboardInterrupt), failures.of("db.t"):
        raise KeyboardInterrupt
    assert failures.found == []


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


def test_problems_that_one_command_opens_and_closes_are_told_apart(store: LocalStateStore) -> None:
    """Of one unit: what is open is found again, what was closed is opened anew, and each has a name of its own."""
    own = problems(store)
    first, other = own.add(FOUND), own.add(replace(FOUND, kind=STRAY))
    assert own.add(FOUND) == first and own.of(FOUND.run_id, FOUND.unit, STRAY) == other
    own.close(first.problem, Decision("new", "a reason"))
    again = own.add(FOUND)
    assert len({first.problem, other.problem, again.problem}) == 3
    assert {problem.problem for problem in problems(store).open()} == {other.problem, again.problem}


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

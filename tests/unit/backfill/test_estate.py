"""The state of all tables: from which records it is, how old each figure is said to be, and what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkcrypt.errors import ConfigError, KeyServiceUnavailableError
from sparkcrypt.keys.service import KeyDescription
from sparkcrypt.ledger.journal.entries import RunExpired, RunFinished
from sparkcrypt.ledger.journal.journal import Journal
from sparkcrypt.ledger.state.mac import TableMac
from sparkcrypt.ledger.state.store import StateStore
from sparkcrypt.policy.load import policy_from_text
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.old_folders.old_folder import count_awaiting_expiry
from sparkcrypt.runs.old_folders.problems import Decision, Problem, Problems
from sparkcrypt.runs.passes import estate
from sparkcrypt.runs.passes.estate import EstateStatus, TableStatus, read_status, status
from sparkcrypt.runs.passes.last_pass import PassRecord
from sparkcrypt.runs.passes.lost_tags import record_lost_tags
from sparkcrypt.runs.passes.report import PassReport, TableError
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.table.target import id_of_name
from tests.growth import Work, assert_linear
from tests.unit.backfill.conftest import TABLE
from tests.unit.backfill.memory_store import MemoryStore
from tests.unit.backfill.pass_reports import coverage
from tests.unit.backfill.records import Records, name_run
from tests.unit.backfill.run_reports import report

NAME = "sales.customers"


class CountingStore(MemoryStore):
    """A store in memory that counts what is asked of it."""

    def __init__(self, records: dict[str, bytes]) -> None:
        super().__init__(records)
        self.listed, self.read_names = Counter[str](), Counter[str]()

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return names, and count."""
        self.listed[prefix] += 1
        return super().list(prefix)

    def read(self, name: str) -> bytes | None:
        """Return a record, and count."""
        self.read_names[name] += 1
        return super().read(name)


def policy_with(text: str = "") -> Policy:
    """Return a policy with a local key service that is not there."""
    base = "version: 1\nkey_service: {type: local, path: /nowhere/keys}\nfooter: {key: footer}\nuntagged: plaintext\n"
    return policy_from_text(f"{base}tags: {{pii: {{key: pii}}}}\n{text}", where="", base="/")


def keep(store: StateStore, table_id: str, **changes: Any) -> None:
    """Record a pass over a table that left it as planned."""
    found: dict[str, Any] = {"coverage": {"pii": coverage(before=0, after=1)}, "awaiting_expiry": None, **changes}
    PassRecord(store, table_id).keep(report(**found))


def read(store: StateStore, *databases: str, policy: Policy | None = None, **more: Any) -> EstateStatus:
    """Return the status."""
    return read_status(store, policy or policy_with(), databases, **more)


def table_of(found: EstateStatus, name: str = NAME) -> TableStatus:
    """Return the status of one table."""
    return next(table for table in found.tables if table.table == name)


def problem(unit: str = "p=1") -> Problem:
    """Return a problem, as a run finds it."""
    return Problem("", NAME, "r1", unit, "rows came", "/old", message="rows came to /old")


def test_an_empty_state_directory_has_no_table() -> None:
    """Nothing was run yet, and that is no error."""
    found = read(MemoryStore({}))
    assert (found.tables, found.earlier, found.exit_code, found.totals()["tables"]) == ((), (), 0, 0)


def test_coverage_is_summed_over_tables() -> None:
    """Of each tag, by what the last survey of each table found; an untagged table is counted and adds nothing."""
    store = MemoryStore({})
    keep(
        store, "a", table="s.a", coverage={"pii": coverage(before=0, after=0.5), "contact": coverage(before=0, after=1)}
    )
    keep(store, "b", table="s.b")
    keep(store, "c", table="s.c", coverage={}, untagged=True, outcome="untagged")
    keep(store, "d", table="other.d", units_left=3, drift={"after": {"plaintext": 2}})
    found = read(store)
    assert [(tag, own.files, own.matching_files) for tag, own in found.coverage.items()] == [
        ("contact", 40, 40),
        ("pii", 120, 100),
    ]
    totals = found.totals()
    assert (totals["tables"], totals["untagged"], totals["drifting"], totals["surveyed"]) == (4, 1, 1, 4)
    assert [table.table for table in read(store, "S").tables] == ["s.a", "s.b", "s.c"]
    assert found.exit_code == 0


def test_open_problems_and_lost_tags_need_a_person() -> None:
    """They are as of now, also of a table of which no pass is recorded; what was decided is not open."""
    records, store = problem(), MemoryStore({})
    known = Problems(store, "a", lambda: TableMac(b"k" * 32))
    first, _ = known.add(records), known.add(problem("p=2"))
    known.close(first.problem, Decision("new", "ours"))
    keep(store, "a")
    record_lost_tags(store, "sales.orders", "tags lost: email")
    found = read(store)
    assert [one.unit for one in table_of(found).problems] == ["p=2"]
    assert table_of(found, "sales.orders").tags_lost == "tags lost: email"
    assert (found.exit_code, read(store, "other").exit_code) == (74, 0)


def swapped(tmp_path: Path) -> Records:
    """Return a state directory with an ended run of one unit, whose old file was in clear."""
    records = Records(tmp_path)
    records.write_units(1).write(RunFinished("done"))
    return records


def awaiting_of(records: Records) -> dict[str, Any]:
    """Return what a report says of the old files as of now."""
    return count_awaiting_expiry(records.open(), lambda _: True, 1e9).to_dict()


def test_old_files_are_those_that_the_last_survey_counted(tmp_path: Path) -> None:
    """If nothing was done since, no log is read; whether they are beyond their grace is judged now."""
    records = swapped(tmp_path)
    keep(records.store, TABLE, awaiting_expiry=awaiting_of(records))
    store = CountingStore({name: records.store.read(name) or b"" for name in records.store.list("")})
    table = table_of(read(store))
    assert table.awaiting is not None and table.figures is not None and table.awaiting_at == table.figures.at
    assert (table.awaiting.plaintext_files, table.awaiting.plaintext_bytes) == (1, 1234)
    assert table.awaiting.plaintext_since == table.awaiting.since is not None
    assert not [name for name in store.read_names if name.startswith("log/")]
    assert not table.awaiting.beyond_grace
    late = read(store, policy=policy_with("old_files: {grace: 0s}"))
    assert late.totals()["beyond_grace"] == 1


def test_what_was_done_after_the_survey_is_read_from_the_log(tmp_path: Path) -> None:
    """After an expiry no old file awaits one, and the figures are said to be older than the log."""
    records = swapped(tmp_path)
    keep(records.store, TABLE, awaiting_expiry=awaiting_of(records))
    Journal.open(records.open(), name_run(0)).write(RunExpired((f"{records.base}/p=0",)))
    table = table_of(read(records.store))
    assert table.awaiting is not None and table.awaiting.files == 0
    assert (table.records_since, table.unfinished) == (1, None)


def test_a_state_directory_of_an_earlier_release_is_read_from_its_logs(tmp_path: Path) -> None:
    """No pass is recorded there: names, old files and unfinished runs are those of journals."""
    records = Records(tmp_path)
    records.write_units(1)
    (table,) = read(records.store).tables
    assert (table.table, table.table_id, table.last, table.unfinished) == (NAME, TABLE, None, name_run(0))
    assert table.awaiting is not None and table.awaiting.plaintext_files == 1


def test_a_table_that_was_made_again_is_told_from_the_earlier_one() -> None:
    """Two ids had one name: the one that a pass worked on last has it; an id made of the name itself is no other."""
    store = MemoryStore({})
    for table_id, tried in (("old", "2026-01-01T00:00:00Z"), (id_of_name(NAME), "2026-03-01T00:00:00Z")):
        record = PassRecord(store, table_id)
        record.note(NAME, "failed", "PlanError")
        assert record.last is not None
        record._replace(replace(record.last, tried=tried), None)
    keep(store, "new")
    found = read(store)
    assert [table.table_id for table in found.tables] == ["new"]
    assert [(one.table, one.table_id, one.tried) for one in found.earlier] == [(NAME, "old", "2026-01-01T00:00:00Z")]


def test_a_scan_takes_the_place_of_what_was_recorded() -> None:
    """Its figures are of now; what the last pass did stays, and tables that it could not look at are named."""
    store = MemoryStore({})
    keep(store, "a", table="s.a")
    scanned = report(table="s.a", outcome="dry run", run_id="dry-run", units_left=4, drift={"after": {"plaintext": 8}})
    found = read(store, found=pass_report([scanned, replace(scanned, table="s.new")], {"s.shared": "shares a folder"}))
    assert found.fresh and [table.table for table in found.tables] == ["s.a", "s.bad", "s.new", "s.shared"]
    first, bad, new, shared = found.tables
    assert first.last is not None and first.figures is not None and new.last is not None and new.table_id is None
    assert (first.last.outcome, first.last.run_id, first.figures.units_left) == ("done", "20261121T101112Z-3f9a2c", 4)
    assert (new.last.outcome, new.last.run_id) == ("dry run", None)
    assert bad.last is not None and (bad.last.outcome, bad.last.reason) == ("failed", "PlanError")
    assert shared.last is not None and (shared.last.outcome, shared.last.reason) == ("refused", "shares a folder")
    assert len(store.records) == 1


def pass_report(tables: list[Report], refused: Mapping[str, str]) -> PassReport:
    """Return the report of a scan that could not plan one table."""
    failed = [TableError("s.bad", "PlanError", "no tag x")]
    return PassReport("p", "d", "2026-11-21T10:00:00+00:00", 1.0, True, tables, failed, refused)


def test_keys_whose_rotation_is_overdue_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key service is asked now, and only for keys of files that have a rotation period."""
    store, asked = MemoryStore({}), list[str]()

    def describe(key_id: str) -> KeyDescription:
        asked.append(key_id)
        return KeyDescription(key_id, 1, "2020-01-01T00:00:00Z")

    monkeypatch.setattr(estate, "open_key_service", lambda _: SimpleNamespace(describe=describe))
    keep(store, "a", key_ids=("pii",))
    assert (read(store).overdue, asked) == ((), [])
    found = read(store, policy=policy_with("rotate_every: 30d"))
    assert [(key.key_id, key.since) for key in found.overdue or ()] == [("pii", "2020-01-31T00:00:00Z")]
    assert asked == ["pii"] and found.exit_code == 0


def test_keys_that_the_service_does_not_tell_of_are_not_said_to_be_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is shown in their place, and everything else is there."""
    store = MemoryStore({})
    keep(store, "a", key_ids=("pii",))

    def fail(_: object) -> None:
        raise KeyServiceUnavailableError("no answer")

    monkeypatch.setattr(estate, "open_key_service", fail)
    found = read(store, policy=policy_with("rotate_every: 30d"))
    assert (found.overdue, found.keys_unknown, len(found.tables)) == (None, "no answer", 1)


def test_a_fresh_scan_needs_a_session() -> None:
    """The error says what can be left out."""
    with pytest.raises(ConfigError, match="leave fresh out"):
        status(policy_with(), fresh=True)


def test_a_session_is_not_needed_for_what_is_recorded(tmp_path: Path) -> None:
    """The state directory on a local disk is read as it is."""
    found = status(policy_with(f"run_state: {tmp_path}"))
    assert found.tables == () and found.to_dict()["kind"] == "sparkcrypt status"


def test_each_kind_of_record_is_listed_once() -> None:
    """However many tables there are; of each one record is read where nothing happened since its survey."""
    store = CountingStore({})
    for number in range(20):
        waiting = {"files": 0, "bytes": 0, "plaintext_files": 0, "plaintext_bytes": 0, "since": None}
        waiting |= {"beyond_grace": False, "plaintext_since": None, "as_of": 0}
        keep(store, f"t{number}", table=f"s.t{number}", awaiting_expiry=waiting)
    store.listed.clear()
    store.read_names.clear()
    assert len(read(store).tables) == 20
    assert store.listed == {"log/": 1, "problems/": 1, "cache/passes/": 1, "cache/lost_tags/": 1}
    assert sorted(store.read_names) == [
        f"cache/passes/t{number}/00000001.json" for number in sorted(map(str, range(20)))
    ]


def test_cost_grows_with_the_tables() -> None:
    """Each has its record, a problem, and an earlier table of its name."""

    def prepare(number: int) -> Work:
        store = MemoryStore({})
        for place in range(number):
            keep(store, f"t{place:04}", table=f"s.t{place:04}")
            keep(store, f"u{place:04}", table=f"s.t{place:04}")
        return lambda: read(store, policy=policy).to_dict()

    policy = policy_with()
    prepare(1)()
    assert_linear(prepare, 30, most=2.1)

"""The log's reader: who is found by column and day, and what becomes of lines that are no records."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.decide.access import read as read_module
from sparkcrypt.decide.access.log import AccessLog
from sparkcrypt.decide.access.read import AccessReport, read_accesses, read_declassified, read_tables_read
from sparkcrypt.errors import ConfigError
from tests.unit.access.events import DAY, record

TODAY = date.fromisoformat(DAY)


def asked(folder: Path, column: str = "sales.customers.email") -> AccessReport:
    """Return what a log says of a column on the tests' day."""
    return read_accesses(folder, column, TODAY)


def counts(report: AccessReport) -> list[tuple[Any, ...]]:
    """Return who, what and how often, in order of time."""
    return [(entry["principal"], entry["outcome"], entry["execution"], entry["count"]) for entry in report.accesses]


def test_events_of_one_execution_are_added_up(tmp_path: Path) -> None:
    """Batches of one execution, JVM and key are one access; another execution, JVM, key or outcome is another."""
    log = AccessLog(tmp_path, owner="app")
    log.append([record(0, "12:00:00", count=3), record(1, "12:00:05", count=4)])
    log.append([record(2, "12:00:01", execution="8"), record(0, "12:00:02", process="host-2")])
    log.append([record(3, "12:00:03", outcome="refused", why="denied", principal="bob")])
    report = asked(tmp_path)
    assert counts(report) == [
        ("ann", "opened", "7", 7),
        ("ann", "opened", "8", 1),
        ("ann", "opened", "7", 1),
        ("bob", "refused", "7", 1),
    ]
    first = report.accesses[0]
    assert (first["time"], first["last"]) == (f"{DAY}T12:00:00.000Z", f"{DAY}T12:00:05.000Z")


def test_a_batch_that_came_twice_counts_once(tmp_path: Path) -> None:
    """A JVM that was not answered gives its events again, under the same numbers."""
    for owner in ("app-a", "app-b"):
        AccessLog(tmp_path, owner=owner).append([record(0, count=5)])
    assert counts(asked(tmp_path)) == [("ann", "opened", "7", 5)]


def test_columns_and_days_are_told_apart(tmp_path: Path) -> None:
    """Another day, table or column is not reported; a column stands for those below it, in either form of its path."""
    log = AccessLog(tmp_path, owner="app")
    log.append(
        [
            record(0, columns=["people.list.element.ssn", "email"]),
            record(1, "2026-11-24T00:00:01"),
            record(2, table="sales.customers2"),
            record(3, columns=["email2"]),
            record(4, columns=["m.key_value.value.x"], execution="9"),
        ]
    )
    assert counts(asked(tmp_path)) == [("ann", "opened", "7", 1)]
    for column in ("people", "people.element.ssn", "people.list.element.ssn", "PEOPLE.Element"):
        report = asked(tmp_path, f"spark_catalog.Sales.customers.{column}")
        assert [entry["columns"] for entry in report.accesses] == [["people.list.element.ssn"]], column
    assert counts(asked(tmp_path, "sales.customers.m.value.x")) == [("ann", "opened", "9", 1)]
    assert counts(asked(tmp_path, "sales.customers.p")) == []


def test_tables_are_listed_with_their_keys_and_last_day(tmp_path: Path) -> None:
    """Each table and key once, over all days of the log, with the last; a query is not an access to a table."""
    log = AccessLog(tmp_path, owner="app")
    log.append(
        [record(0, "2026-11-20T10:00:00"), record(1), record(2, table="mart.gone", key="fin"), record(3, table=None)]
    )
    assert read_tables_read(tmp_path) == {("sales.customers", "pii"): DAY, ("mart.gone", "fin"): DAY}


def test_declassified_leaves_are_told_apart(tmp_path: Path) -> None:
    """A leaf counts under its path, and under each column above it, which is all that earlier releases recorded."""
    log = AccessLog(tmp_path, owner="app")
    columns = ["s.phones.list.element.number", "s.mail", "s"]
    log.append([record(n, outcome="declassified", columns=[name], why=name) for n, name in enumerate(columns)])
    wanted = [f"sales.customers.{column}" for column in (*columns[:2], "t")]
    assert read_declassified(tmp_path, wanted, []) == {
        (wanted[0], "ann", columns[0]): 1,
        (wanted[0], "ann", "s"): 1,
        (wanted[1], "ann", columns[1]): 1,
        (wanted[1], "ann", "s"): 1,
    }


def test_a_refused_footer_is_a_refusal_of_every_column(tmp_path: Path) -> None:
    """Without the footer's key nothing can be read, so whoever was refused it was refused the column."""
    AccessLog(tmp_path, owner="app").append([record(0, outcome="refused", why="denied", columns=[], footer=True)])
    assert [(entry["outcome"], entry["columns"]) for entry in asked(tmp_path).accesses] == [("refused", [])]


def test_what_the_listener_heard_is_added(tmp_path: Path) -> None:
    """The digest, the route and the user of an execution are added to its accesses, though it ended on the next day."""
    heard = {"kind": "query", "route": "thrift", "session_user": "eva", "query_digest": "d1"}
    AccessLog(tmp_path, owner="executor").append([record(0), record(1, execution="stage 3")])
    AccessLog(tmp_path, owner="driver").append([record(0, "2026-11-24T00:00:10", process="driver", **heard)])
    found = [(entry["query_digest"], entry["route"], entry["session_user"]) for entry in asked(tmp_path).accesses]
    assert found == [("d1", "thrift", "eva"), (None, "sql", None)]


def test_lost_events_are_counted(tmp_path: Path) -> None:
    """What a process could not record is said, whichever column it was of."""
    log = AccessLog(tmp_path, owner="app")
    log.append([record(0), record(1, kind="lost", count=12), record(2, kind="lost", count=3)])
    assert asked(tmp_path).lost == 15


HOSTILE = {
    "cut off": b'{"v":1,"kind":"acc',
    "not JSON": b"\xff\xfe\n",
    "nested": b"[" * 100_000 + b"\n",
    "a number": b"1\n",
    "another version": b'{"v":2,"kind":"access"}\n',
    "no time": b'{"v":1,"kind":"lost","count":1,"number":1}\n',
    "a list as outcome": json.dumps({**record(9), "outcome": []}).encode() + b"\n",
    "an object as execution": json.dumps({**record(9), "execution": {}}).encode() + b"\n",
    "a number as column": json.dumps({**record(9), "columns": [1]}).encode() + b"\n",
    "an object as process": json.dumps({**record(9), "kind": "lost", "process": {}}).encode() + b"\n",
    "a long line": b"x" * 3_000_000 + b"\n",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_line_that_is_no_record_is_told_and_left_out(tmp_path: Path, what: str) -> None:
    """Each such line is counted and named once, and those before and after it are read."""
    AccessLog(tmp_path, owner="app").append([record(0)])
    file = next(tmp_path.rglob("*.jsonl"))
    file.write_bytes(file.read_bytes() + HOSTILE[what])
    AccessLog(tmp_path, owner="other").append([record(0, process="host-2")])
    report = asked(tmp_path)
    assert len(report.accesses) == 2
    assert report.unreadable == 1
    assert report.unreadable_at[0].startswith(f"{file}:2: ")


def test_places_of_unreadable_lines_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are counted, and no more than some are named."""
    monkeypatch.setattr(read_module, "MOST_NAMED", 3)
    (tmp_path / f"day={DAY}").mkdir()
    (tmp_path / f"day={DAY}" / "a.jsonl").write_bytes(b"x\n" * 10)
    report = asked(tmp_path)
    assert (report.unreadable, len(report.unreadable_at)) == (10, 3)


def test_logs_of_several_machines_below_one_folder(tmp_path: Path) -> None:
    """The days of each machine are found, however deep they lie."""
    for machine in ("one", "two"):
        AccessLog(tmp_path / machine, owner="app").append([record(0, process=machine)])
    report = asked(tmp_path)
    assert (report.files, len(report.accesses)) == (2, 2)


def test_a_log_that_is_not_there_is_no_empty_log(tmp_path: Path) -> None:
    """A folder that is not on this machine is an error; a day without events is not."""
    with pytest.raises(ConfigError, match="no folder on this machine"):
        asked(tmp_path / "none")
    assert asked(tmp_path).files == 0


def test_removed_events_are_missed(tmp_path: Path) -> None:
    """A number that no file has, between others of its process, is counted; also if the day itself is gone."""
    log = AccessLog(tmp_path, owner="app", most_bytes=1)
    log.append([record(0, "2026-11-22T23:59:00")])
    for number in (1, 2, 3):
        log.append([record(number)])
    log.append([record(4, "2026-11-24T00:01:00"), record(7, process="host-2")])
    assert asked(tmp_path).missing == 0
    files = sorted((tmp_path / f"day={DAY}").iterdir())
    files[1].unlink()
    assert asked(tmp_path).missing == 1
    for file in files[:1] + files[2:]:
        file.unlink()
    report = asked(tmp_path)
    assert (report.files, report.missing, report.to_dict()["missing"]) == (0, 3, 3)


@pytest.mark.parametrize("kind", ["pipe", "link", "device", "endless"])
def test_what_is_no_file_of_a_log_is_named_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    """Whoever may write the log can put anything into it: it is named, and the other files are read."""
    AccessLog(tmp_path, owner="app").append([record(0)])
    planted = tmp_path / f"day={DAY}" / "planted.jsonl"
    if kind == "pipe":
        os.mkfifo(planted)
    elif kind == "endless":
        with planted.open("wb") as stream:
            stream.truncate(60 << 30)
    else:
        planted.symlink_to("/dev/zero" if kind == "device" else tmp_path / "elsewhere")
    report = asked(tmp_path)
    assert counts(report) == [("ann", "opened", "7", 1)]
    assert any(str(planted) in line for line in report.unreadable_at)

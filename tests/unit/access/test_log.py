"""The access log: events as they are written, bounded, synced and read."""

from __future__ import annotations

import json
import os
import threading
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.decide.access_log import (
    MOST_CHARACTERS,
    MOST_COLUMNS,
    AccessLog,
    AccessReport,
    make_record,
    read_accesses,
    read_declassified,
    read_tables_read,
)
from sparkcrypt.errors import BridgeError, ConfigError, StorageError
from tests.unit.access.events import DAY, event, record


def files(folder: Path) -> list[str]:
    """Return the files of a log, each with its day."""
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*.jsonl"))


def test_events_stand_in_the_folder_of_the_day_on_which_they_began(tmp_path: Path) -> None:
    """A batch over midnight is told apart by UTC day; each day goes on in one file of this process."""
    log = AccessLog(tmp_path / "log", owner="app/1:host")
    log.append([record(0, "23:59:59"), record(1, "2026-11-24T00:00:01")])
    log.append([record(2, "23:59:59")])
    assert files(tmp_path / "log") == [
        "day=2026-11-23/app_1_host-000000.jsonl",
        "day=2026-11-24/app_1_host-000001.jsonl",
    ]
    lines = (tmp_path / "log" / "day=2026-11-23" / "app_1_host-000000.jsonl").read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines] == [0, 2]
    assert json.loads(lines[0])["time"] == "2026-11-23T23:59:59.000Z"


def test_a_file_is_followed_by_another_when_it_has_grown(tmp_path: Path) -> None:
    """No file grows beyond the bound, and no line is split between two."""
    log = AccessLog(tmp_path, owner="app", most_bytes=1000)
    for number in range(10):
        log.append([record(number)])
    assert len(files(tmp_path)) > 2
    found = [tmp_path / name for name in files(tmp_path)]
    assert all(file.stat().st_size <= 1000 for file in found)
    numbers = [json.loads(line)["number"] for file in found for line in file.read_text().splitlines()]
    assert numbers == list(range(10))


def test_a_file_that_was_moved_away_is_followed_by_another(tmp_path: Path) -> None:
    """Whoever collects logs may take a file at any time; what comes later is not written into its place."""
    log = AccessLog(tmp_path, owner="app")
    log.append([record(0)])
    (tmp_path / files(tmp_path)[0]).rename(tmp_path / "taken")
    log.append([record(1)])
    assert files(tmp_path) == [f"day={DAY}/app-000001.jsonl"]


def test_a_file_of_another_process_is_never_appended_to(tmp_path: Path) -> None:
    """A name that is taken, by a file or by a link, is left alone."""
    folder = tmp_path / f"day={DAY}"
    folder.mkdir()
    (folder / "app-000000.jsonl").write_text("theirs")
    (folder / "app-000001.jsonl").symlink_to(tmp_path / "elsewhere")
    AccessLog(tmp_path, owner="app").append([record(0)])
    assert (folder / "app-000000.jsonl").read_text() == "theirs"
    assert not (tmp_path / "elsewhere").exists()
    assert (folder / "app-000002.jsonl").exists()


def test_a_file_that_was_cut_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a disk is full in the middle of a line, the next batch begins a file of its own, with that line whole."""
    log = AccessLog(tmp_path, owner="app")
    log.append([record(0)])
    write = os.write
    calls = iter([10])

    def full(descriptor: int, content: bytes) -> int:
        length = next(calls, None)
        if length is None:
            raise OSError(28, "No space left on device")
        return write(descriptor, bytes(content)[:length])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError, match=rf"{tmp_path}.*No space left"):
        log.append([record(1)])
    monkeypatch.setattr(os, "write", write)
    log.append([record(1)])
    assert [(tmp_path / name).read_text().count("\n") for name in files(tmp_path)] == [1, 1]


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """A log below what is no folder is an error that says where and what to see to."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=rf"{tmp_path}/file.*access_log"):
        AccessLog(tmp_path / "file", owner="app").append([record(0)])


def test_access_rights(tmp_path: Path) -> None:
    """A log that is made is its owner's alone; days of one that is shared are shared alike."""
    AccessLog(tmp_path / "own", owner="app").append([record(0)])
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o3770)
    AccessLog(tmp_path / "shared", owner="app").append([record(0)])
    day = tmp_path / "shared" / f"day={DAY}"
    assert day.stat().st_mode & 0o7777 == 0o3770
    assert [file.stat().st_mode & 0o137 for file in day.iterdir()] == [0]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What is synced to the disk, in order."""
    found: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        found.append(str(Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(tmp_path)))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return found


def test_a_durable_event_is_in_folders_that_are_synced(tmp_path: Path, synced: list[str]) -> None:
    """The first durable event of a file syncs its name and those of all folders that are new, the next its content."""
    day = f"a/log/day={DAY}"
    log = AccessLog(tmp_path / "a" / "log", owner="app")
    log.append([record(0)])
    assert synced == []
    log.append([record(1)], durable=True)
    assert synced == [f"{day}/app-000000.jsonl", day, "a/log", "a", "."]
    synced.clear()
    log.append([record(2)], durable=True)
    assert synced == [f"{day}/app-000000.jsonl"]
    synced.clear()
    AccessLog(tmp_path / "a" / "log", owner="two").append([record(3)], durable=True)
    assert synced == [f"{day}/two-000000.jsonl", day, "a/log", "a"]


def test_folders_that_may_only_be_written_to_are_synced_with_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that its writers may not list is as durable, and no read fails for it."""
    calls: list[str] = []
    monkeypatch.setattr(os, "sync", lambda: calls.append("sync"))

    def forbidden(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("sparkcrypt.decide.access_log.sync_folder", forbidden)
    AccessLog(tmp_path, owner="app").append([record(0)], durable=True)
    assert calls == ["sync"] and len(files(tmp_path)) == 1


def test_many_threads_write_whole_lines(tmp_path: Path) -> None:
    """Every event of every thread is there once."""
    log = AccessLog(tmp_path, owner="app", most_bytes=5_000)

    def work(start: int) -> None:
        for number in range(start, start + 50):
            log.append([record(number)], durable=number % 10 == 0)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(0, 400, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [line for name in files(tmp_path) for line in (tmp_path / name).read_text().splitlines()]
    assert sorted(json.loads(line)["number"] for line in lines) == list(range(400))


def test_a_record_is_bounded_and_holds_known_fields_alone() -> None:
    """Long texts are cut, columns are limited, half characters replaced, and nothing unknown gets into the log."""
    made = make_record(
        event(1, table="t" * 5_000, columns=["c"] * 1_000, principal="\ud800", query="SELECT 1", key_bytes="x"),
        process="p",
    )
    assert len(made["table"]) == MOST_CHARACTERS + 1
    assert len(made["columns"]) == MOST_COLUMNS
    assert made["principal"] == "?"
    assert "SELECT 1" not in json.dumps(made) and "key_bytes" not in made


@pytest.mark.parametrize(
    ("field", "value"),
    [("kind", "other"), ("outcome", "seen"), ("count", -1), ("count", True), ("number", None), ("first_ms", 1 << 52)],
)
def test_what_is_no_event_is_refused(field: str, value: object) -> None:
    """A jar of another version is told which field it got wrong."""
    with pytest.raises(BridgeError, match="access event"):
        make_record({**event(1), field: value}, process="p")


def test_a_day_that_another_user_has_made_is_not_written_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner, or whoever made it a link, could remove the events: they go to a folder of this user, or nowhere."""
    log, day = tmp_path / "log", f"day={DAY}"
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    log.mkdir(mode=0o700)
    (log / day).symlink_to(tmp_path / "elsewhere")
    AccessLog(log, owner="app").append([record(0)])
    own = f"user={os.geteuid()}"
    assert files(log) == [f"{own}/{day}/app-000000.jsonl"]
    (log / own).rename(log / "aside")
    (log / own).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=rf"{day} and {own} in it are links"):
        AccessLog(log, owner="b").append([record(1)])
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("taken", ["day", "mode"])
def test_a_day_of_another_owner_or_mode(tmp_path: Path, taken: str) -> None:
    """Only folders of this user, of root, or of the log's owner with the log's mode are written into."""
    log, day = tmp_path / "log", tmp_path / "log" / f"day={DAY}"
    log.mkdir()
    log.chmod(0o1777)
    day.mkdir()
    day.chmod(0o1777 if taken == "day" else 0o777)
    if taken == "day":
        os.chown(day, 12345, -1)
    AccessLog(log, owner="app").append([record(0)])
    assert files(log) == [f"user=0/day={DAY}/app-000000.jsonl"]
    os.chown(log, 12345, -1)
    if taken == "day":
        AccessLog(log, owner="b").append([record(0)])
        assert (day / "b-000000.jsonl").exists()


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
    assert read_declassified(tmp_path).of(wanted, []) == {
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
    monkeypatch.setattr("sparkcrypt.decide.access_log.MOST_NAMED", 3)
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

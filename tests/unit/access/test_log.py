"""The log's writer: one file for a process and day, bounded, whole lines, and an error that names the folder."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from sparkcrypt.decide.access.log import MOST_CHARACTERS, MOST_COLUMNS, AccessLog, make_record
from sparkcrypt.errors import BridgeError, StorageError
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

    monkeypatch.setattr("sparkcrypt.decide.access.log.sync_folder", forbidden)
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

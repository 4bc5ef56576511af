"""State directories: records, the folders that they may name, and the generations of indexes."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.trust import RunFolders, refuse_outside
from sparkcrypt.ledger.journal.journal import Record
from sparkcrypt.ledger.record import Fields
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.ledger.state.store import LocalStateStore, decode_record, encode_record, open_state_store
from sparkcrypt.ledger.unit import staging_folder
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.runs.table.folder_index import StoreGeneration
from tests.services.installed import ROOT
from tests.unit.backfill.conftest import Together
from tests.unit.backfill.store_behaviour import RACE, StoreBehaviour

DIES_BEFORE_LINK = """
import os, signal, sys
from sparkcrypt.ledger.state.store import LocalStateStore
os.link = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
LocalStateStore(sys.argv[1]).create("runs/t/000001.json", b"content")
"""

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class TestLocalStore(StoreBehaviour):
    """The behaviours of every store, in a local folder."""


def test_records_are_private(store: LocalStateStore, tmp_path: Path) -> None:
    """Others than the owner read neither folder nor record."""
    store.create("a/b", b"1")
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state/a/b").stat().st_mode) == 0o600


def test_of_racing_processes_exactly_one_creates_each_record(together: Together, tmp_path: Path) -> None:
    """Four processes create the same forty names: each name has one winner and whole content, nothing is left over."""
    won = Counter(number for output in together(RACE) for number in output.split())
    assert won == Counter({str(number): 1 for number in range(40)})
    folder = tmp_path / "state" / "runs" / "t"
    assert {len(path.read_bytes()) for path in folder.iterdir()} == {len(b"<stdin>" * 1000)}
    assert len(list(folder.iterdir())) == 40


def test_a_process_killed_before_the_link_leaves_no_record(store: LocalStateStore, tmp_path: Path) -> None:
    """After kill -9 between the temporary file and the link the name is free, and the leftover is not listed."""
    command = [sys.executable, "-c", DIES_BEFORE_LINK, str(tmp_path / "state")]
    died = subprocess.run(command, cwd=ROOT, check=False)
    assert died.returncode == -signal.SIGKILL
    assert [path.suffix for path in (tmp_path / "state/runs/t").iterdir()] == [".tmp"]
    assert store.list("") == ()
    assert store.read("runs/t/000001.json") is None
    assert store.create("runs/t/000001.json", b"again")


def test_content_and_folders_are_synced_before_success_is_said(
    store: LocalStateStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The content is synced before it gets its name; afterwards the folder is, and all above it up to the root's."""
    events: list[str] = []
    fsync, link = os.fsync, os.link

    def synced(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        events.append("content" if path.suffix == ".tmp" else str(path.relative_to(tmp_path)))
        fsync(descriptor)

    def linked(*names: Any) -> None:
        events.append("link")
        link(*names)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    store.create("runs/t/1.json", b"x")
    assert events.index("content") < events.index("link")
    assert events[events.index("link") + 1 :] == ["state/runs/t"]
    assert set(events[: events.index("content")]) == {"state/runs/t", "state/runs", "state", "."}


def test_a_link_whose_answer_got_lost_counts_as_made(store: LocalStateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS may repeat a link and answer that it exists: when it is this file's own, this caller created the record."""
    link = os.link

    def answered_twice(*names: Any) -> None:
        link(*names)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(os, "link", answered_twice)
    assert store.create("a/b", b"mine")
    assert store.read("a/b") == b"mine"


def test_a_file_system_without_hard_links_is_refused(store: LocalStateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be created conditionally, no record is, and the message says where to go."""

    def refuse(*names: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(ConfigError, match=r"no hard links.*run_state"):
        store.create("a/b", b"x")
    assert store.list("") == ()


def test_a_root_that_is_a_file_is_a_config_error(tmp_path: Path) -> None:
    """A state directory that cannot be made is named."""
    (tmp_path / "state").write_text("a file")
    with pytest.raises(ConfigError, match=r"state directory .*/state: cannot create a/b"):
        LocalStateStore(tmp_path / "state").create("a/b", b"x")


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_empty(
    store: LocalStateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permission denied on a folder must not look like a table without a lock."""
    store.create("locks/t/1.json", b"x")
    scandir = os.scandir

    def denied(path: Any) -> Any:
        if str(path).endswith("/t"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(ConfigError, match="cannot list locks/t/"):
        store.list("locks/t/")


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}", "FILE:{}"])
def test_local_forms_open_the_same_directory(tmp_path: Path, form: str) -> None:
    """A path and every file: form of it are one directory, and nothing in it is unescaped."""
    root = tmp_path / "a%20b"
    open_state_store(form.format(root)).create("x", b"1")
    assert (root / "x").read_bytes() == b"1"


@pytest.mark.parametrize("uri", ["s3://bucket/state", "s3a://b/x", "gs://b/x", "abfs://x@y/z", "http://h/x"])
def test_schemes_without_conditional_create_are_refused_by_name(uri: str) -> None:
    """The message names the scheme and what is allowed."""
    scheme = uri.partition(":")[0]
    with pytest.raises(ConfigError, match=f"'{scheme}'.*allowed: an absolute path, file:/path.*hdfs:, viewfs:, s3:"):
        open_state_store(uri)


@pytest.mark.parametrize("uri", ["", "file:", "file:relative", "file://other-host/state"])
def test_what_is_no_local_directory_is_refused(uri: str) -> None:
    """Another host's files, a relative file: URI and nothing at all are errors."""
    with pytest.raises(ConfigError, match="run_state"):
        open_state_store(uri)


@pytest.mark.slow
@given(st.dictionaries(st.text() | st.integers(), JSON_VALUES))
def test_every_json_object_is_a_record_with_one_text(body: dict[Any, Any]) -> None:
    """Encoding is one line that decodes to what encodes alike."""
    content = encode_record(body)
    assert content.count(b"\n") == 1 and content.endswith(b"\n")
    assert encode_record(decode_record("x", content)) == content


@given(st.dictionaries(st.text(), JSON_VALUES), st.data())
def test_every_changed_byte_of_a_record_is_found_or_makes_another_value(
    body: dict[str, Any], data: st.DataObject
) -> None:
    """No two texts are the same record: damage either does not decode or decodes to something else."""
    content = bytearray(encode_record(body))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    try:
        decoded = decode_record("x", bytes(content))
    except VerificationError:
        return
    assert encode_record(decoded) != encode_record(body)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]\n", b'{"a": 1}\n', b'{"a":1}\n\n', b'{"a":NaN}\n', b'{"a":1,"a":1}\n']
)
def test_other_spellings_of_a_record_are_refused(content: bytes) -> None:
    """Only the canonical text is a record."""
    with pytest.raises(VerificationError, match=r"^some/name"):
        decode_record("some/name", content)


BASE = "hdfs://nn/warehouse/db/t"
STAGED = "hdfs://nn/warehouse/db/.sparkcrypt/t/run-1/p=0"


def record(**fields: Any) -> Record:
    """A record with these fields."""
    return Record("log/t/00000002.json", 2, "", "unit_listed", "r", 2, 1, "", Fields(fields), "", "", 0)


def refused(named: tuple[str, ...] = (), **fields: Any) -> bool:
    """Tell whether a record is refused, where the metastore names these folders."""
    try:
        refuse_outside([record(unit="p=0", **fields)], RunFolders(BASE, lambda: named))
    except VerificationError as error:
        assert "log/t/00000002.json" in str(error)
        return True
    return False


def nested(path: str) -> list[dict[str, Any]]:
    """Return every way in which a record can name a path."""
    return [
        {"location": path},
        {"from": path},
        {"base": path},
        {"to": path},
        {"outcome": {"old_location": path}},
        {"outcome": {"new_location": path}},
        {"files": [["", [[path, 1, 2]]]]},
        {"made": [["a=1", [[path, 1, 2]]]]},
        *({"evidence": {"changes": [{"sources": [{name: path}], "targets": []}]}} for name in ("path", "kept")),
        *({"evidence": {"changes": [{"sources": [], "targets": [{name: path}]}]}} for name in ("path", "staged")),
    ]


@pytest.mark.parametrize("path", [BASE, f"{BASE}/p=0/part-0", STAGED, f"{BASE}//p=0", "hdfs://nn/warehouse/db/t/"])
def test_what_is_inside_is_taken(path: str) -> None:
    """The table's folder, what is below it, and what is below the folder beside it."""
    assert not any(refused(**fields) for fields in nested(path))


@pytest.mark.parametrize(
    "path",
    [
        "hdfs://nn/warehouse/db/other",
        "hdfs://nn/warehouse/db/t2/p=0",
        "hdfs://nn/warehouse/db/.sparkcrypt/t2/run-1",
        "hdfs://nn/warehouse/db",
        f"{BASE}/../other",
        f"{BASE}/p=0/../../other",
        f"{BASE}/./p=0",
        "hdfs://other/warehouse/db/t",
        "file:/warehouse/db/t",
        "/warehouse/db/t",
        "warehouse/db/t",
        "",
        "hdfs:warehouse/db/t",
    ],
)
def test_what_is_outside_is_refused(path: str) -> None:
    """Another folder, table, scheme or authority, a way up, or no absolute path, wherever a record names it."""
    assert all(refused(**fields) for fields in nested(path))
    assert refused(staged=path)


def test_what_runs_make_is_in_their_folder() -> None:
    """A staging folder inside the table itself is refused: it would be live rows."""
    assert not refused(staged=STAGED)
    assert refused(staged=f"{BASE}/p=0") and refused(staged=BASE) and refused(staged=staging_folder(BASE))


def test_what_was_made_before_a_rename_is_taken() -> None:
    """Below an earlier folder of the table, and the one beside it; not below that of another, or as staged files."""
    before, other = "hdfs://nn/warehouse/db/before", "hdfs://nn/warehouse/db/other"
    folders = RunFolders(BASE, tuple, lambda: frozenset([before]))
    assert folders.hold(f"{before}/p=0") and folders.hold(staging_folder(before))
    assert folders.hold_staged(f"{staging_folder(before)}/run-1") and not folders.hold_staged(staging_folder(before))
    assert not folders.hold_staged(f"{before}/p=0")
    assert not folders.hold(f"{other}/p=0") and not folders.hold_staged(f"{staging_folder(other)}/run-1")


def test_what_somebody_else_names_is_taken() -> None:
    """A partition that the metastore has elsewhere may be named, and a path out of it may not."""
    named = ("s3a://bucket/p=0",)
    assert not refused(named, location="s3a://bucket/p=0", files=[["", [["s3a://bucket/p=0/f", 1, 2]]]])
    assert refused(named, location="s3a://bucket/p=1") and refused(named, location="s3a://bucket/p=0/../p=1")


@pytest.mark.parametrize("path", ["..", "../other", "/etc", "a=1/../..", "a//b", "a/./b", "a\0b"])
def test_relative_folders_stay_below_the_unit(path: str) -> None:
    """Folders of files, and partition paths, lead nowhere up."""
    assert refused(files=[[path, []]]) and refused(made=[[path, []]]) and refused(partition_path=path)
    assert refused(evidence={"changes": [{"folder": path}]})


MASTERS = MasterKeys("audit", (), ("footer",))


@pytest.fixture
def service(tmp_path: Path) -> KeyService:
    """A key service with the audit's key."""
    made = open_key_service(KeyServiceConfig.from_dict({"type": "local", "path": str(tmp_path / "keys")}))
    made.create("audit")
    return made


def generation(tmp_path: Path, service: KeyService, table: str = "t") -> StoreGeneration:
    """Return the record of a table's store."""
    return StoreGeneration(LocalStateStore(tmp_path / "state"), table, service, MASTERS)


def test_the_last_generation_is_kept(tmp_path: Path, service: KeyService) -> None:
    """What was noted last is told to whoever asks next, and an earlier one does not take its place."""
    assert generation(tmp_path, service).read() == 0
    assert not (tmp_path / "state").exists()
    for noted, last in ((1, 1), (3, 3), (2, 3), (4, 4)):
        generation(tmp_path, service).keep(noted)
        assert generation(tmp_path, service).read() == last
    assert generation(tmp_path, service, "u").read() == 0
    assert len(list((tmp_path / "state" / "keys" / "indexes" / "t").iterdir())) == 1


def test_a_record_that_was_forged_or_moved_is_refused(tmp_path: Path, service: KeyService) -> None:
    """Who can only write to the state directory cannot say that an older store is the last one."""
    generation(tmp_path, service).keep(7)
    (record,) = (tmp_path / "state" / "keys" / "indexes" / "t").iterdir()
    content = record.read_bytes()
    record.write_bytes(content.replace(b'"generation":7', b'"generation":6'))
    with pytest.raises(VerificationError, match="keys/indexes/t: does not authenticate"):
        generation(tmp_path, service).read()
    record.write_bytes(content)
    generation(tmp_path, service, "u").keep(9)
    (other,) = (tmp_path / "state" / "keys" / "indexes" / "u").iterdir()
    other.write_bytes(content)
    with pytest.raises(VerificationError, match="does not authenticate"):
        generation(tmp_path, service, "u").read()


def test_a_record_leaves_no_trace_of_an_audit(tmp_path: Path, service: KeyService) -> None:
    """A table whose audit is there had runs: the record's MAC key is kept apart."""
    generation(tmp_path, service).keep(1)
    assert LocalStateStore(tmp_path / "state").list("audit/t/") == ()

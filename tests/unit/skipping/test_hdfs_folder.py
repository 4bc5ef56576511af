"""A store on HDFS over WebHDFS: against the protocol itself, spoken by a server of this process over a local folder."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import ConfigError, RunConflictError
from sparkcrypt.files import open_places
from sparkcrypt.skipping.format.store import Bounds
from sparkcrypt.skipping.indexes.build import Wanted, create_store, plan_store, refresh_store
from sparkcrypt.skipping.indexes.files import DataFolder
from sparkcrypt.skipping.indexes.indexed import compare_files
from sparkcrypt.skipping.trusted import folder as store_folder
from sparkcrypt.skipping.trusted.folder import LOCK, STALE_SECONDS, open_folder
from sparkcrypt.skipping.trusted.sidecar import SIDECAR, StoreKeys
from sparkcrypt.skipping.trusted.trust import Expected, TrustedStore
from sparkcrypt.skipping.trusted.write import drop_store
from tests.unit.skipping.keys import Keys
from tests.unit.skipping.whole_stores import open_store

Reply = tuple[int, dict[str, str], bytes]


class Hdfs:
    """What NameNode and DataNode answer, over a folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.address = root, ""

    def answer(self, path: str, query: dict[str, str], body: bytes) -> Reply:
        """Do an operation, or say which of Hadoop's exceptions it ends with."""
        try:
            operation: Callable[..., Reply] = getattr(self, "_" + query["op"].lower())
            return operation(self.root / path.lstrip("/"), path, query, body)
        except FileNotFoundError:
            return self.failed(404, "FileNotFoundException", path)
        except FileExistsError:
            return self.failed(403, "FileAlreadyExistsException", path)

    def failed(self, status: int, kind: str, path: str) -> Reply:
        """Answer with an exception."""
        return status, {}, json.dumps({"RemoteException": {"exception": kind, "message": path}}).encode()

    def status(self, place: Path, suffix: str = "") -> dict[str, Any]:
        """Describe a file or folder."""
        found = place.stat()
        kind = "DIRECTORY" if place.is_dir() else "FILE"
        return {
            "type": kind,
            "length": found.st_size,
            "modificationTime": found.st_mtime_ns // 1_000_000,
            "pathSuffix": suffix,
            "permission": "755",
        }

    def _getfilestatus(self, place: Path, *rest: Any) -> Reply:
        return 200, {}, json.dumps({"FileStatus": self.status(place)}).encode()

    def _liststatus(self, place: Path, *rest: Any) -> Reply:
        listed = [self.status(entry, entry.name) for entry in sorted(place.iterdir())]
        return 200, {}, json.dumps({"FileStatuses": {"FileStatus": listed}}).encode()

    def _mkdirs(self, place: Path, *rest: Any) -> Reply:
        place.mkdir(parents=True, exist_ok=True)
        return 200, {}, b'{"boolean": true}'

    def _setpermission(self, *rest: Any) -> Reply:
        return 200, {}, b""

    def _delete(self, place: Path, *rest: Any) -> Reply:
        (shutil.rmtree if place.is_dir() else lambda path: path.unlink(missing_ok=True))(place)
        return 200, {}, b'{"boolean": true}'

    def _rename(self, place: Path, path: str, query: dict[str, str], _: bytes) -> Reply:
        target = self.root / query["destination"].lstrip("/")
        if target.exists() and query["renameoptions"] == "NONE":
            raise FileExistsError
        place.replace(target)
        return 200, {}, b""

    def _open(self, place: Path, path: str, query: dict[str, str], _: bytes) -> Reply:
        if "here" not in query:
            return self.redirected(path, query)
        return 200, {}, place.read_bytes()[int(query["offset"]) :]

    def _create(self, place: Path, path: str, query: dict[str, str], body: bytes) -> Reply:
        if "here" not in query:
            return self.redirected(path, query)
        if place.exists() and query["overwrite"] == "false":
            raise FileExistsError
        place.write_bytes(body)
        return 201, {}, b""

    def redirected(self, path: str, query: dict[str, str]) -> Reply:
        """Send to the DataNode, which is this server too."""
        more = "&".join(f"{name}={value}" for name, value in query.items())
        return 307, {"Location": f"{self.address}/webhdfs/v1{path}?here=1&{more}"}, b""


def handler_of(hdfs: Hdfs) -> type[BaseHTTPRequestHandler]:
    """Return what answers requests."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            body = b""
            while self.headers.get("Transfer-Encoding") == "chunked":
                length = int(self.rfile.readline(), 16)
                body += self.rfile.read(length)
                self.rfile.readline()
                if not length:
                    break
            status, headers, content = hdfs.answer(unquote(parts.path).removeprefix("/webhdfs/v1"), query, body)
            self.close_connection = True
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(content))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_DELETE = answer

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler


@pytest.fixture
def hdfs(tmp_path: Path) -> Iterator[Hdfs]:
    """An HDFS with two files of a table."""
    made = Hdfs(tmp_path / "hdfs")
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(made))
    made.address = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    (made.root / "t").mkdir(parents=True)
    for number in range(2):
        put(made, number)
    yield made
    server.shutdown()
    server.server_close()
    open_places._file_system.cache_clear()


def put(hdfs: Hdfs, number: int) -> None:
    """Write a file of the table, long ago."""
    path = hdfs.root / "t" / f"{number}.parquet"
    pq.write_table(pa.table({"id": [number * 10, number * 10 + 5]}), path)
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """The keys of the policy."""
    return Keys(tmp_path_factory.mktemp("keys"))


def uri(hdfs: Hdfs, name: str) -> str:
    """Return the URI of a folder."""
    return f"webhdfs://{hdfs.address.removeprefix('http://')}/{name}"


def opened(hdfs: Hdfs, keys: Keys) -> TrustedStore:
    """Open the store."""
    return open_store(open_folder(uri(hdfs, "i/s"), {}), keys, Expected(None, ("footer",), None))


def test_a_store_lives_on_hdfs(hdfs: Hdfs, keys: Keys) -> None:
    """It is made, used, refreshed, verified and dropped as on a local disk; the files are there too."""
    data, folder = DataFolder(uri(hdfs, "t"), keys, lambda *_: None), open_folder(uri(hdfs, "i/s"), {})
    own = StoreKeys(keys.keys.maker, "footer", {})
    create_store(folder, plan_store(data, Wanted({"id": ("minmax",)})), own)
    assert opened(hdfs, keys).store.objects == ("/t/0.parquet#1700000000000", "/t/1.parquet#1700000001000")
    put(hdfs, 2)
    assert refresh_store(folder, data, opened(hdfs, keys), own).read == 1
    found = opened(hdfs, keys)
    assert found.store.indexes[0].entries == (Bounds(0, 5), Bounds(10, 15), Bounds(20, 25))
    assert compare_files(data, found.sidecar).is_fresh
    assert sorted(path.name[:4] for path in (hdfs.root / "i" / "s").iterdir()) == [SIDECAR[:4], "part"]
    drop_store(folder, None, lambda _: None, lambda _: None)
    assert not (hdfs.root / "i" / "s").exists()


def test_one_writer_at_a_time_on_hdfs(hdfs: Hdfs, keys: Keys) -> None:
    """A file that one alone can create stands for the lock; one that a killed writer left is taken over in time."""
    folder, lock = open_folder(uri(hdfs, "i/s"), {}), hdfs.root / "i" / "s" / LOCK
    with folder.lock():
        with pytest.raises(RunConflictError, match="another process writes this store, or was killed"), folder.lock():
            pass
        assert lock.exists()
    assert not lock.exists()
    lock.write_bytes(b"killed")
    with pytest.raises(RunConflictError), folder.lock():
        pass
    old = time.time() - STALE_SECONDS - 5
    os.utime(lock, (old, old))
    with folder.lock():
        assert lock.read_bytes() != b"killed"


def test_of_two_who_find_a_killed_writers_file_one_writes(
    hdfs: Hdfs, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was slow to rename it finds that the other has its own by then, and leaves that alone."""
    slow, fast = (open_folder(uri(hdfs, "i/s"), {}) for _ in range(2))
    lock = hdfs.root / "i" / "s" / LOCK
    lock.parent.mkdir(parents=True)
    lock.write_bytes(b"killed")
    old = time.time() - STALE_SECONDS - 5
    os.utime(lock, (old, old))
    with ExitStack() as stack:
        rename = Hdfs._rename

        def overtaken(self: Hdfs, *arguments: Any) -> Reply:
            monkeypatch.setattr(Hdfs, "_rename", rename)
            stack.enter_context(fast.lock())
            return rename(self, *arguments)

        monkeypatch.setattr(Hdfs, "_rename", overtaken)
        with pytest.raises(RunConflictError, match="another process writes this store"), slow.lock():
            pass
        own = lock.read_bytes()
        assert own != b"killed"
        fast.replace("part", b"whole")
    assert not lock.exists()
    fast.delete("part")
    fast.delete_folder()
    assert not lock.parent.exists()


def test_writer_whose_folder_was_taken_over_replaces_nothing(hdfs: Hdfs, keys: Keys) -> None:
    """One that slept for longer than a lock holds stops before it replaces a file, and leaves the other's lock."""
    folder, lock = open_folder(uri(hdfs, "i/s"), {}), hdfs.root / "i" / "s" / LOCK
    with folder.lock():
        folder.replace("part", b"first")
        lock.write_bytes(b"of another")
        with pytest.raises(RunConflictError, match="since this one was silent"):
            folder.replace("part", b"second")
    assert lock.read_bytes() == b"of another"
    assert (lock.parent / "part").read_bytes() == b"first"
    assert sorted(path.name for path in lock.parent.iterdir()) == [LOCK, "part"]


def test_writer_at_work_is_not_taken_for_a_killed_one(hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock is written again in time, under its own token; where another has the folder it stops."""
    folder, lock = open_folder(uri(hdfs, "i/s"), {}), hdfs.root / "i" / "s" / LOCK
    with folder.lock():
        own, old = lock.read_bytes(), time.time() - STALE_SECONDS - 5
        os.utime(lock, (old, old))
        folder.keep_lock()
        assert lock.stat().st_mtime < old + 1  # it is young by the writer's own clock
        monkeypatch.setattr(store_folder, "RENEW_SECONDS", 0)
        folder.keep_lock()
        assert (lock.read_bytes(), lock.stat().st_mtime > old + 1) == (own, True)
        with pytest.raises(RunConflictError), open_folder(uri(hdfs, "i/s"), {}).lock():
            pass
        lock.write_bytes(b"of another")
        with pytest.raises(RunConflictError, match="since this one was silent"):
            folder.keep_lock()
    assert [path.name for path in lock.parent.iterdir()] == [LOCK]


def test_lock_that_cannot_be_renewed_leaves_nothing_behind(hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was to replace it is deleted when the rename fails, and the lock is what it was."""
    folder, lock = open_folder(uri(hdfs, "i/s"), {}), hdfs.root / "i" / "s" / LOCK
    monkeypatch.setattr(store_folder, "RENEW_SECONDS", 0)
    with folder.lock():
        own = lock.read_bytes()
        with monkeypatch.context() as refusing:
            refusing.setattr(hdfs, "_rename", lambda *_: hdfs.failed(403, "SafeModeException", "safe"))
            with pytest.raises(OSError, match="SafeMode"):
                folder.keep_lock()
        assert {path.name: path.read_bytes() for path in lock.parent.iterdir()} == {LOCK: own}


@pytest.mark.parametrize("scheme", ["s3a", "gs", "abfs", "ftp"])
def test_other_file_systems_are_refused_by_name(scheme: str) -> None:
    """Where two writers could not be kept apart there are no stores."""
    with pytest.raises(ConfigError, match=rf"stores are not kept on {scheme}:.*allowed: a local path, file:, hdfs:"):
        open_folder(f"{scheme}://bucket/i", {})

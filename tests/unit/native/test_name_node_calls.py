"""What a small file on HDFS costs its NameNode: each operation of WebHDFS that is asked for, counted."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from sparkcrypt.files import rewrite as work
from sparkcrypt.files.footers import Depth, FooterFacts, read_facts
from sparkcrypt.files.open_places import place
from sparkcrypt.files.orders import FileOrder
from sparkcrypt.files.output import open_target
from sparkcrypt.files.webhdfs.system import SKIP_BYTES
from tests.unit.native.conftest import Bench


class SmallHdfs(ThreadingHTTPServer):
    """A NameNode and a DataNode in one, with files in memory."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, tuple[bytes, str]] = {}
        self.folders: dict[str, str] = {"/": "755", "/t": "750"}
        self.asked: Counter[str] = Counter()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.server_address[1]}"

    def uri(self, path: str) -> str:
        """Return the URI of a path."""
        return f"webhdfs://{self.address}{path}"

    def took(self) -> dict[str, int]:
        """Return what was asked of the NameNode since the last call."""
        found = dict(self.asked)
        self.asked.clear()
        return found


class _Handler(BaseHTTPRequestHandler):
    server: SmallHdfs

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path.removeprefix("/webhdfs/v1"))
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if "datanode" in query:
            self._serve_data(path, query)
        else:
            self.server.asked[query["op"]] += 1
            self._serve_name(path, query)

    do_GET = do_PUT = do_DELETE = _answer

    def _serve_data(self, path: str, query: dict[str, str]) -> None:
        if query["op"] == "OPEN":
            self._send(200, self.server.files[path][0][int(query["offset"]) :])
            return
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.server.files[path] = content, query["permission"]
        self._send(201)

    def _serve_name(self, path: str, query: dict[str, str]) -> None:
        operation, files = query["op"], self.server.files
        if operation in ("OPEN", "CREATE"):
            self._send(307, location=f"http://{self.server.address}{self.path}&datanode=1")
        elif operation == "GETFILESTATUS" and path in files:
            content, mode = files[path]
            self._tell({"type": "FILE", "length": len(content), "modificationTime": 0, "permission": mode})
        elif operation == "GETFILESTATUS" and path in self.server.folders:
            mode = self.server.folders[path]
            self._tell({"type": "DIRECTORY", "length": 0, "modificationTime": 0, "permission": mode})
        elif operation == "RENAME" and query["destination"] in files:
            self._send_error("FileAlreadyExistsException")
        elif operation == "RENAME":
            files[query["destination"]] = files.pop(path)
            self._send(200)
        elif operation == "SETPERMISSION":
            files[path] = files[path][0], query["permission"]
            self._send(200)
        elif operation == "MKDIRS":
            self.server.folders[path] = query["permission"]
            self._send(200, b'{"boolean": true}')
        elif operation == "DELETE":
            self._send(200, json.dumps({"boolean": files.pop(path, None) is not None}).encode())
        else:
            self._send_error("FileNotFoundException")

    def _tell(self, status: dict[str, Any]) -> None:
        self._send(200, json.dumps({"FileStatus": status}).encode())

    def _send_error(self, kind: str) -> None:
        self._send(404, json.dumps({"RemoteException": {"exception": kind, "message": kind}}).encode())

    def _send(self, status: int, body: bytes = b"", location: str | None = None) -> None:
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if location is not None:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def hdfs(bench: Bench) -> Iterator[SmallHdfs]:
    """An HDFS with a small file that its group may read."""
    with SmallHdfs() as served:
        threading.Thread(target=served.serve_forever, args=(0.05,), daemon=True).start()
        served.files["/t/source.parquet"] = Path(bench.source).read_bytes(), "640"
        place(served.uri("/t"), {})
        assert served.took() == {"GETFILESTATUS": 1}
        yield served
        served.shutdown()


def order_of(bench: Bench, hdfs: SmallHdfs, target: str) -> FileOrder:
    """Return the order to encrypt the file."""
    order = bench.order(Path(target).name)
    return replace(order, source=hdfs.uri("/t/source.parquet"), target=hdfs.uri(target))


def encrypt(bench: Bench, order: FileOrder) -> None:
    """Carry out an order."""
    done = work.rewrite(order, bench.keys, {})
    assert (done.error, done.refused) == (None, None)
    assert done.bytes_before and done.bytes_after


def test_rewrite_of_a_small_file(bench: Bench, hdfs: SmallHdfs) -> None:
    """It is looked at before all else, and when it is verified and rewritten; its target when that is proven."""
    encrypt(bench, order_of(bench, hdfs, "/t/out.parquet"))
    assert hdfs.took() == {"GETFILESTATUS": 6, "OPEN": 3, "CREATE": 1, "SETPERMISSION": 1, "RENAME": 1}
    assert hdfs.files["/t/out.parquet"][1] == "640"
    hdfs.files["/t/source.parquet"] = hdfs.files["/t/source.parquet"][0], "600"
    encrypt(bench, order_of(bench, hdfs, "/t/private.parquet"))
    assert hdfs.took() == {"GETFILESTATUS": 6, "OPEN": 3, "CREATE": 1, "RENAME": 1}


def test_new_folder_is_as_narrow_as_the_source_s(bench: Bench, hdfs: SmallHdfs) -> None:
    """The modes of the source's folders are asked for only then."""
    encrypt(bench, order_of(bench, hdfs, "/new/t/out.parquet"))
    assert hdfs.folders["/new/t"] == "750"
    assert hdfs.took()["GETFILESTATUS"] == 6 + 1


@pytest.mark.parametrize("depth", ["footer", "keys", "modules"])
def test_small_file_is_read_at_once(bench: Bench, hdfs: SmallHdfs, depth: Depth) -> None:
    """However much of it is read, and however often its reader turns."""
    encrypt(bench, order_of(bench, hdfs, "/t/out.parquet"))
    hdfs.took()
    where, retrieve = place(hdfs.uri("/t/out.parquet"), {}), work._worker(bench.keys.to_json()).retrieve
    found = read_facts("f", where, retrieve, depth=depth)
    assert isinstance(found, FooterFacts) and (found.proof is not None) == (depth == "modules")
    assert found.proof is None or found.proof.error is None
    assert hdfs.took() == {"GETFILESTATUS": 1, "OPEN": 1}


def test_large_file_is_not_held_in_memory(hdfs: SmallHdfs) -> None:
    """Each part of it that lies apart is a stream of its own."""
    content = bytes(range(256)) * (SKIP_BYTES // 256) + b"end"
    hdfs.files["/t/large"] = content, "600"
    where = place(hdfs.uri("/t/large"), {})
    assert isinstance(where, tuple)
    with where[0].open_input_file(where[1]) as file:
        for offset in (len(content) - 3, 0):
            file.seek(offset)
            assert file.read(3) == content[offset : offset + 3]
    assert hdfs.took() == {"GETFILESTATUS": 1, "OPEN": 2}


def test_name_that_is_taken_is_refused_without_a_look(hdfs: SmallHdfs) -> None:
    """The rename itself refuses it, nothing is replaced, and no hidden file is left."""
    where = place(hdfs.uri("/t/source.parquet"), {})
    before = dict(hdfs.files)
    with pytest.raises(Exception, match="is there already, and files are never replaced"), open_target(where) as output:
        output.write(b"other")
    assert hdfs.files == before
    assert hdfs.took() == {"CREATE": 1, "RENAME": 1, "DELETE": 1}

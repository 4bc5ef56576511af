"""What an HDFS does when a part of it fails; one that works is asked in ``test_webhdfs_on_hdfs``."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pyarrow.fs import FileSystem

from sparkcrypt.errors import ConfigError, UnsupportedFileError
from sparkcrypt.files import open_places
from sparkcrypt.files.open_places import place
from sparkcrypt.files.orders import FileOrder
from sparkcrypt.files.output import open_target
from sparkcrypt.files.rewrite import rewrite
from sparkcrypt.files.source import open_source
from sparkcrypt.files.webhdfs.client import NameNodes
from sparkcrypt.files.webhdfs.system import open_webhdfs
from tests.unit.native.conftest import Bench

Reply = tuple[int, dict[str, str], bytes]
CONTENT = bytes(range(256)) * 4096


def json_reply(status: int, content: dict[str, Any]) -> Reply:
    """Return an answer of JSON."""
    return status, {}, json.dumps(content).encode()


STANDBY = json_reply(403, {"RemoteException": {"exception": "StandbyException", "message": "not me"}})
FOLDER = json_reply(200, {"FileStatus": {"type": "DIRECTORY", "length": 0, "modificationTime": 0}})
FILE = json_reply(200, {"FileStatus": {"type": "FILE", "length": len(CONTENT), "modificationTime": 0}})
MISSING = json_reply(404, {"RemoteException": {"exception": "FileNotFoundException", "message": ""}})
NO_ANSWER: Reply = (0, {}, b"")


@dataclass
class Node:
    """A node of HDFS that answers as it is told, and what it was asked."""

    answer: Callable[[str, dict[str, str]], Reply]
    port: int = 0
    asked: list[str] = field(default_factory=list)
    queries: list[dict[str, str]] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving(*answers: Callable[[str, dict[str, str]], Reply]) -> Iterator[list[Node]]:
    """Have nodes answer: (status, headers, body), where a ``Content-Length`` beyond the body breaks it off."""
    nodes = [Node(answer) for answer in answers]
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _handler(node)) for node in nodes]
    for node, server in zip(nodes, servers, strict=True):
        node.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield nodes
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def _handler(node: Node) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            node.asked.append(query["op"])
            node.queries.append(query)
            status, headers, body = node.answer(parts.path, query)
            self.close_connection = True
            if not status:
                return
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_DELETE = answer

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler


def always(answer: Reply) -> Callable[[str, dict[str, str]], Any]:
    """Return a node that always answers so."""
    return lambda path, query: answer


def nobody() -> str:
    """Return an address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def opened(*addresses: str) -> FileSystem:
    """Open the file system of NameNodes."""
    return open_webhdfs(NameNodes(addresses, "someone"))


@pytest.mark.parametrize("first", ["standby", "nobody", "silent"])
def test_first_name_node_that_answers(first: str) -> None:
    """One on standby, one that is not there and one that does not answer are passed over, and not asked again."""
    with serving(always(STANDBY if first == "standby" else NO_ANSWER), always(FOLDER)) as (passive, active):
        system = opened(nobody() if first == "nobody" else passive.address, active.address)
        before = len(passive.asked)
        assert system.get_file_info("/x").is_file is False
        assert len(passive.asked) == before <= 1
        assert active.queries[-1]["user.name"] == "someone"


def test_name_node_that_becomes_passive() -> None:
    """When the active NameNode changes, the next request finds the other."""
    roles = [FOLDER, STANDBY]
    with serving(lambda path, query: roles[0], lambda path, query: roles[1]) as (first, second):
        system = opened(first.address, second.address)
        roles.reverse()
        system.create_dir("/x")
        assert (first.asked, second.asked) == (["GETFILESTATUS", "MKDIRS"], ["MKDIRS"])


def test_no_name_node_that_answers() -> None:
    """The message tells of each."""
    gone = nobody()
    with serving(always(STANDBY)) as (passive,), pytest.raises(OSError, match="is on standby") as caught:
        opened(gone, passive.address)
    assert f"{gone} cannot be reached" in str(caught.value)


def test_change_that_was_not_answered_is_not_sent_again() -> None:
    """A rename may have been done, so no other NameNode is asked for it."""

    def silent(path: str, query: dict[str, str]) -> Reply:
        return NO_ANSWER if query["op"] == "RENAME" else FOLDER

    with serving(silent, always(FOLDER)) as (first, second):
        system = opened(first.address, second.address)
        with pytest.raises(OSError, match="did not answer"):
            system.move("/a", "/b")
        assert second.asked == [] and first.asked.count("RENAME") == 1


def test_answer_that_is_not_of_hdfs() -> None:
    """A proxy's page is told by its status, and its text is not."""
    with serving(always((502, {}, b"<html>secret</html>"))) as (node,), pytest.raises(OSError, match="502") as caught:
        opened(node.address)
    assert "secret" not in str(caught.value)


def redirecting(*locations: str) -> Callable[[str, dict[str, str]], Any]:
    """Return a NameNode of one file that sends to DataNodes in turn, the last one for good."""
    left = list(locations)

    def answer(path: str, query: dict[str, str]) -> Reply:
        if query["op"] not in ("OPEN", "CREATE"):
            return {"f": FILE, "": FOLDER}.get(path.rpartition("/")[2], MISSING)
        location = left.pop(0) if len(left) > 1 else left[0]
        if query["op"] == "CREATE":
            return 307, {"Location": f"{location}{path}?op=CREATE"}, b""
        return 307, {"Location": f"{location}{path}?op=OPEN&offset={query['offset']}"}, b""

    return answer


def whole(path: str, query: dict[str, str]) -> Reply:
    """Serve the file as a DataNode."""
    return 200, {}, CONTENT[int(query["offset"]) :]


@pytest.mark.parametrize("at", [0, 1, 300_000])
def test_data_node_that_breaks_off(at: int) -> None:
    """The rest comes from another DataNode, from where the first ended; the first is excluded from the choice."""

    def broken(path: str, query: dict[str, str]) -> Reply:
        offset = int(query["offset"])
        return 200, {"Content-Length": str(len(CONTENT) - offset)}, CONTENT[offset : offset + at]

    with serving(broken, whole) as (bad, good), serving(redirecting(bad.address, good.address)) as (name_node,):
        system = opened(name_node.address)
        with open_source((system, "/t/f")) as file:
            assert file.read(7, 600_000, "all of it") == CONTENT[7:600_007]
        assert good.queries[0]["offset"] == str(7 + at)
        opens = [query.get("excludedatanodes") for query in name_node.queries if query["op"] == "OPEN"]
        assert opens == [None, "127.0.0.1"]


def test_file_that_shrank() -> None:
    """Fewer bytes than the NameNode told of are an error, and no endless loop."""

    def short(path: str, query: dict[str, str]) -> Reply:
        return 200, {}, CONTENT[int(query["offset"]) : 1000]

    with serving(short) as (bad,), serving(redirecting(bad.address)) as (name_node,):
        system = opened(name_node.address)
        with system.open_input_file("/t/f") as file, pytest.raises(OSError, match="ended it at byte 1000 of 1048576"):
            file.read(2000)


def test_reads_that_follow_each_other_share_a_stream() -> None:
    """Small gaps are read over, and what lies behind or far ahead is asked for anew."""
    with serving(whole) as (data_node,), serving(redirecting(data_node.address)) as (name_node,):
        with open_source((opened(name_node.address), "/t/f")) as file:
            for offset in (0, 100, 100_000, 0, 900_000):
                assert file.read(offset, 50, "a part") == CONTENT[offset : offset + 50]
        assert [query["offset"] for query in data_node.queries] == ["0", "0", "900000"]


def test_reads_in_turns_keep_their_streams() -> None:
    """Pages and their indexes, each from front to back, are two streams, however often the reader turns."""
    with serving(whole) as (data_node,), serving(redirecting(data_node.address)) as (name_node,):
        with open_source((opened(name_node.address), "/t/f")) as file:
            for turn in range(50):
                for start in (0, 150_000):  # near enough for one stream to be mistaken for the other
                    offset = start + 1000 * turn
                    assert file.read(offset, 900, "a part") == CONTENT[offset : offset + 900]
        assert len(data_node.queries) <= 3


@pytest.mark.parametrize("location", ["https://127.0.0.1:1", "", "file:///etc/passwd"])
def test_redirection_that_is_not_followed(location: str) -> None:
    """A NameNode can send to DataNodes of its own protocol alone."""
    with serving(redirecting(location)) as (name_node,):
        system = opened(name_node.address)
        with system.open_input_file("/t/f") as file, pytest.raises(OSError, match="expected one over http"):
            file.read(1)


def test_data_nodes_that_cannot_be_reached(bench: Bench) -> None:
    """The order is refused with the reason, so that another engine can do it."""
    gone = nobody()
    with serving(redirecting(gone)) as (name_node,):
        source = f"webhdfs://127.0.0.1:{name_node.port}/t/f"
        outcome = rewrite(FileOrder(source, str(bench.folder / "out"), "decrypt"), bench.keys, {})
        assert outcome.error is None and outcome.refused is not None
        assert f"DataNode {gone} cannot be reached" in outcome.refused and "open the DataNodes' HTTP" in outcome.refused
        with pytest.raises(UnsupportedFileError), open_target((opened(name_node.address), "/t/new")):
            pass
        assert not (bench.folder / "out").exists()


def test_file_that_a_data_node_refuses() -> None:
    """What HDFS says is told, nothing gets the target's name, and the hidden file is removed."""
    full = {"RemoteException": {"exception": "DSQuotaExceededException", "message": "full\n\tat org.apache"}}

    def refusing(path: str, query: dict[str, str]) -> Reply:
        return 403, {}, json.dumps(full).encode()

    with (
        serving(refusing) as (data_node,),
        serving(redirecting(data_node.address)) as (name_node,),
    ):
        system = opened(name_node.address)
        with (
            pytest.raises(OSError, match=r"DSQuotaExceededException: full$"),
            open_target((system, "/t/new")) as output,
        ):
            for _ in range(64):
                output.write(CONTENT)
        assert "RENAME" not in name_node.asked and name_node.asked[-1] == "DELETE"


def test_file_system_that_is_not_there_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next file is refused at once with the same words; a minute later it is tried again."""
    address = nobody().removeprefix("http://")
    with pytest.raises(ConfigError, match="cannot be reached") as first:
        place(f"webhdfs://{address}/a", {})
    monkeypatch.setattr(open_places, "_file_system", lambda *_: ("opened", ""))
    with pytest.raises(ConfigError) as second:
        place(f"webhdfs://{address}/b", {})
    assert str(first.value) == str(second.value)
    monkeypatch.setattr(open_places, "UNREACHABLE_SECONDS", -1.0)
    open_places._unreachable.clear()
    assert place(f"webhdfs://{address}/b", {}) == ("opened", "/b")


def test_mount_tables_are_refused() -> None:
    """``viewfs`` needs libhdfs, and the message says so."""
    with pytest.raises(ConfigError, match=r"without libhdfs .* WebHDFS has no mount tables"):
        place("viewfs://table/a", {})

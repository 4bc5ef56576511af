"""The helper: its frames, its client, its operations, and how it is built into the jar."""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
import struct
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sparkcrypt.bridge import protocol
from sparkcrypt.bridge.client import HelperClient, helper_command
from sparkcrypt.bridge.operations import Operations
from sparkcrypt.bridge.protocol import read_frame, write_frame
from sparkcrypt.errors import BridgeError, ConfigError


def test_frames_come_back_in_order() -> None:
    """Two objects written one after another are read as they were, then None at the end."""
    stream = io.BytesIO()
    documents = [{"id": 1, "text": "ä\u2028$"}, {"id": 2, "list": [1, None]}]
    for document in documents:
        write_frame(stream, document)
    stream.seek(0)
    assert [read_frame(stream), read_frame(stream), read_frame(stream)] == [*documents, None]


def test_length_is_four_bytes_big_endian() -> None:
    """The length field is what the Java half reads with readInt."""
    stream = io.BytesIO()
    write_frame(stream, {})
    assert stream.getvalue() == b"\0\0\0\2{}"


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0",
        b"\0\0\0\5{}",
        struct.pack(">I", protocol.MAX_FRAME_BYTES + 1) + b"{}",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\0",
        b"\0\0\0\2[]",
        b"\0\0\0\4null",
        b"\0\0\0\3{\xff}",
    ],
    ids=["cut length", "cut body", "oversized", "another protocol", "empty", "a list", "null", "not UTF-8"],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    """Anything but a whole frame of one JSON object within the limit is a BridgeError."""
    with pytest.raises(BridgeError):
        read_frame(io.BytesIO(data))


def test_oversized_message_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message over the limit is refused before a byte of it is written, so that the stream stays usable."""
    monkeypatch.setattr(protocol, "MAX_FRAME_BYTES", 20)
    stream = io.BytesIO()
    with pytest.raises(BridgeError, match="allowed: 20"):
        write_frame(stream, {"text": "x" * 20})
    write_frame(stream, {"id": 1})
    assert json.loads(stream.getvalue()[4:]) == {"id": 1}


def test_a_request_that_is_not_sent_waits_for_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request over the limit is refused and forgotten, and the helper goes on answering others."""
    monkeypatch.setattr(protocol, "MAX_FRAME_BYTES", 1000)
    with HelperClient(helper_command()) as client:
        with pytest.raises(BridgeError, match="allowed: 1000"):
            client.call("nothing", text="x" * 1000)
        assert not client._waiting
        with pytest.raises(BridgeError, match="operation 'nothing' is not known"):
            client.call("nothing")


def test_unknown_operation_names_the_known_ones() -> None:
    """An operation of another version's jar is refused with what is allowed."""
    with pytest.raises(BridgeError, match=r"'resolve'.*resolve_write"):
        Operations().answer({"op": "resolve"})


@pytest.mark.parametrize("op", ["wrap", "unwrap"])
def test_request_without_key_service_is_refused(op: str) -> None:
    """A request that names neither a key service nor a policy names the property to set."""
    with pytest.raises(BridgeError, match=r"parquet\.sparkcrypt\.key_service"):
        Operations().answer({"op": op, "key_id": "a", "key": "", "wrapped": ""})


def test_key_service_without_type_is_refused() -> None:
    """A key service's JSON that has no type is a ConfigError."""
    with pytest.raises(ConfigError, match="type"):
        Operations().answer({"op": "wrap", "key_service": "{}", "key_id": "a", "key": ""})


@pytest.mark.parametrize("field", ["key_service", "policy"])
@pytest.mark.parametrize("text", ["", "{", "[]", "1", '"local"', "null"])
def test_what_is_no_configuration_is_refused(field: str, text: str) -> None:
    """A key service or policy that is not what it must be is a ConfigError that names the property."""
    with pytest.raises(ConfigError, match=rf"parquet\.sparkcrypt\.{field}"):
        Operations().answer({"op": "wrap", field: text, "key_id": "a", "key": ""})


def test_key_service_comes_out_of_a_policy() -> None:
    """A request may carry the whole policy, as reads do; its key service is the one that is opened."""
    policy = json.dumps({"key_service": {"type": "no-such-service"}})
    with pytest.raises(ConfigError, match="no-such-service"):
        Operations().answer({"op": "wrap", "policy": policy, "key_id": "a", "key": ""})


ROOT = Path(__file__).resolve().parents[3]


def load_build() -> ModuleType:
    """Load the build script, which lives beside the Java sources, outside every package."""
    spec: Any = importlib.util.spec_from_file_location("build_jar", ROOT / "jars" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load_build()


@pytest.mark.slow
def test_builds_are_byte_reproducible(jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the sources, of other paths and times, gives the jar's bytes: what is shipped can be checked."""
    unwanted = shutil.ignore_patterns("_jar", "__pycache__")
    for name, folder in (("SOURCES", "bridge"), ("PACKAGE", "sparkcrypt")):
        shutil.copytree(getattr(build, name), tmp_path / folder, ignore=unwanted, copy_function=shutil.copyfile)
        monkeypatch.setattr(build, name, tmp_path / folder)
    build.build(build.installed_pyspark(), tmp_path / "sparkcrypt.jar")
    assert jar.read_bytes() == (tmp_path / "sparkcrypt.jar").read_bytes()


def test_jar_holds_both_halves(jar: Path) -> None:
    """Java classes, the starter, and the package with the helper are in it; Spark's side and command line are not."""
    names = zipfile.ZipFile(jar).namelist()
    assert {"__main__.py", "io/sparkcrypt/SchemaTagCryptoFactory.class", "sparkcrypt/bridge/server.py"} <= set(names)
    assert not {name.split("/")[1] for name in names if "/" in name} & {"spark", "cli", "backfill", "airflow", "_jar"}
    assert len(names) == len(set(names))


def test_missing_compiler_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a Java compiler the build says what to install and leaves no jar."""
    with pytest.raises(SystemExit, match="69"):
        build.build(build.installed_pyspark(), tmp_path / "sparkcrypt.jar", javac="no-such-javac")
    assert "JDK 17" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_folder_without_jars_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is not a pyspark is named."""
    with pytest.raises(SystemExit, match="69"):
        build.build(tmp_path, tmp_path / "sparkcrypt.jar")
    assert str(tmp_path) in capsys.readouterr().err

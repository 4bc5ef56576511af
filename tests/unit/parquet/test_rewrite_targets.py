from __future__ import annotations

import base64
import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    SparkcryptError,
    UnsupportedFileError,
    VerificationError,
)
from sparkcrypt.files.parquet import (
    FOOTER_KEY,
    DataKey,
    FileEncryption,
    KeyRequest,
    NewKeys,
    folders_synced_once,
    rewrap_file,
    rewrite_file,
    verify_file,
)
from sparkcrypt.files.source import Source
from sparkcrypt.keys.material import KeyMaterial
from tests.unit.parquet.rewriting import (
    AMOUNT,
    SSN,
    left_over,
    new_encryption,
    new_key,
    write_plain,
)
from tests.unit.parquet.writers import Keys, table, write_encrypted

ROOT = Path(__file__).resolve().parents[3]


def rewrap(request: KeyRequest, key: bytes) -> bytes:
    """Return other key metadata for a data key."""
    return new_key("new").key_metadata


class Failing:
    """Keys that fail at a given request."""

    def __init__(self, number: int, error: BaseException) -> None:
        self.number, self.error, self.keys = number, error, Keys()

    def __call__(self, request: KeyRequest) -> bytes:
        """Answer or fail."""
        if len(self.keys.asked) == self.number:
            raise self.error
        return self.keys(request)


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("error", [KeyAccessDeniedError("no"), KeyboardInterrupt(), OSError("gone")], ids=type)
def test_retriever_that_fails_leaves_nothing(tmp_path: Path, number: int, error: BaseException) -> None:
    """Whatever a retriever raises at whichever key reaches the caller as it is, and no file is left."""
    source = write_encrypted(tmp_path / "src")
    with pytest.raises(type(error)) as caught:
        rewrite_file(source, tmp_path / "out", retrieve_key=Failing(number, error))
    assert caught.value is error
    with pytest.raises(type(error)):
        rewrap_file(source, tmp_path / "out", retrieve_key=Failing(number, error), new_keys=NewKeys(rewrap))
    assert left_over(tmp_path) == ["src"]


def test_page_that_fails_late_leaves_nothing(tmp_path: Path) -> None:
    """A page of the last row group that does not authenticate removes all that was written before it."""
    source = write_encrypted(tmp_path / "src", column_keys={"k": ["a.b%"]}, rows=20_000, row_group_size=5_000)
    content = bytearray(source.read_bytes())
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[end - 100] ^= 1
    source.write_bytes(content)
    seen: list[list[str]] = []

    def watching(request: KeyRequest) -> bytes:
        seen.append(left_over(tmp_path))
        return Keys()(request)

    with pytest.raises(VerificationError, match="row group 3"):
        rewrite_file(source, tmp_path / "out", retrieve_key=watching)
    assert len(seen[-1]) == 2 and ".out." in seen[-1][0]  # it had begun to write
    assert left_over(tmp_path) == ["src"]


@pytest.mark.parametrize("kind", ["file", "folder", "link", "dangling link", "source"])
@pytest.mark.parametrize("operation", ["rewrite", "rewrap"])
def test_targets_are_never_replaced(tmp_path: Path, kind: str, operation: str) -> None:
    """A target that is there, be it a link to nowhere or the source itself, is ConfigError and untouched."""
    source = write_encrypted(tmp_path / "src")
    target = tmp_path / "out"
    if kind == "file":
        target.write_bytes(b"mine")
    elif kind == "folder":
        target.mkdir()
    elif kind == "source":
        target = source
    else:
        target.symlink_to(tmp_path / ("src" if kind == "link" else "nowhere"))
    before = (left_over(tmp_path), source.read_bytes())
    with pytest.raises(ConfigError, match="is there already"):
        if operation == "rewrite":
            rewrite_file(source, target, retrieve_key=Keys())
        else:
            rewrap_file(source, target, retrieve_key=Keys(), new_keys=NewKeys(rewrap))
    assert (left_over(tmp_path), source.read_bytes()) == before
    assert kind != "file" or target.read_bytes() == b"mine"


@pytest.mark.parametrize("on", ["local", "arrow"])
def test_a_target_that_appears_meanwhile_is_kept(tmp_path: Path, on: str) -> None:
    """A file that another process puts there while ours is written stays, and ours goes."""
    source = write_encrypted(tmp_path / "src")

    def late(request: KeyRequest) -> bytes:
        if request.column == AMOUNT:
            (tmp_path / "out").write_bytes(b"theirs")
        return Keys()(request)

    path = str(tmp_path / "out")
    with pytest.raises(ConfigError, match="is there already"):
        rewrite_file(source, path if on == "local" else (pafs.LocalFileSystem(), path), retrieve_key=late)
    assert (tmp_path / "out").read_bytes() == b"theirs" and left_over(tmp_path) == ["out", "src"]


@pytest.mark.parametrize("on", ["local", "arrow"])
def test_targets_that_cannot_be_written(tmp_path: Path, on: str) -> None:
    """A folder that is not there is ConfigError by the target's name."""
    path = str(tmp_path / "no" / "out")
    with pytest.raises(ConfigError, match=r"no/out: cannot be written"):
        rewrite_file(write_plain(tmp_path / "src"), path if on == "local" else (pafs.LocalFileSystem(), path))


def test_target_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    """Until the end nothing stands under the target's name, and no reader lists what is under way."""
    source = write_encrypted(tmp_path / "src")
    seen: list[bool] = []

    def watching(request: KeyRequest) -> bytes:
        seen.append((tmp_path / "out").exists())
        assert all(name.startswith(".") or name == "src" for name in left_over(tmp_path))
        return Keys()(request)

    rewrite_file(source, tmp_path / "out", retrieve_key=watching)
    assert seen and not any(seen) and left_over(tmp_path) == ["out", "src"]


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from sparkcrypt.files.parquet import rewrite_file
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    rewrite_file(sys.argv[1], sys.argv[2])
except OSError as error:
    print(type(error).__name__, error)
"""


def test_disk_that_is_full(tmp_path: Path) -> None:
    """When the disk takes no more, the error is the system's, and no part of a target is left."""
    source = write_plain(tmp_path / "src", table(5000), compression="none")
    assert source.stat().st_size > 200_000
    found = subprocess.run(
        [sys.executable, "-c", LIMITED, source, tmp_path / "out"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "OSError" in found.stdout and left_over(tmp_path) == ["src"]


@pytest.mark.parametrize("most", [1, 1000])
def test_system_that_takes_less_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Where the system writes only a part of what it is given, as it may, the rest follows."""
    source = write_plain(tmp_path / "src", table(20))
    digest, write = verify_file(source).digest, os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data[: 100 * most])))
    rewrite_file(source, tmp_path / "out", encryption=new_encryption(SSN))
    verify_file(tmp_path / "out", retrieve_key=Keys(), equal_to=digest)


@pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="this Python has no copy_file_range: it is Linux's")
@pytest.mark.parametrize("how", ["pieces", "nothing", "not here", "gives up"])
def test_kernel_that_copies_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Where the kernel copies a part, nothing, or not between these file systems, the rest is copied all the same."""
    content = pa.table({"a": np.random.default_rng(1).random(60_000), "b": range(60_000)})
    source = write_plain(tmp_path / "src", content, row_group_size=50_000, compression="none", use_dictionary=False)
    digest, copied, copy_range = verify_file(source).digest, [0], os.copy_file_range

    def less(source: int, target: int, count: int, offset: int) -> int:
        if how == "not here" or (how == "gives up" and copied[0]):
            raise OSError(errno.EXDEV, "other file system")
        copied[0] += 1
        return 0 if how == "nothing" else copy_range(source, target, min(count, 70_001), offset)

    monkeypatch.setattr(os, "copy_file_range", less)
    rewrite_file(source, tmp_path / "out", encryption=new_encryption(("b",)))
    verify_file(tmp_path / "out", retrieve_key=Keys(), equal_to=digest)
    assert copied[0] > (3 if how == "pieces" else -1)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is made safe on the disk, in its order: names of files and folders."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("only Linux tells the name of an open file")
    made: list[str] = []
    fsync = os.fsync

    def watching(descriptor: int) -> None:
        made.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watching)
    return made


def test_files_are_safe_before_their_names_and_folders_after(tmp_path: Path, synced: list[str]) -> None:
    """Each file is synced under its hidden name and then its folder; of files that are written together, once."""
    source = write_plain(tmp_path / "src", table(20))
    there = tmp_path / "there"
    there.mkdir()
    rewrite_file(source, there / "0")
    assert [Path(name).parent for name in synced] == [there, tmp_path] and synced[0].endswith(".partial")
    synced.clear()
    with folders_synced_once():
        for number in (1, 2):
            rewrite_file(source, there / str(number))
        with pytest.raises(ConfigError):
            rewrite_file(source, there / "1")
        assert all(name.endswith(".partial") for name in synced) and left_over(there) == ["0", "1", "2"]
    assert synced[2:] == [str(there)]
    rewrite_file(source, there / "3")
    assert synced[-1] == str(there)


def test_folders_that_wait_and_errors(tmp_path: Path, synced: list[str]) -> None:
    """They are made safe when the block fails too, and one that is gone by then is passed over."""
    source = write_plain(tmp_path / "src", table(20))
    for name in ("kept", "gone"):
        (tmp_path / name).mkdir()
    with pytest.raises(KeyError), folders_synced_once():
        for name in ("kept", "gone"):
            rewrite_file(source, tmp_path / name / "file")
        (tmp_path / "gone" / "file").unlink()
        (tmp_path / "gone").rmdir()
        raise KeyError
    assert synced[-1] == str(tmp_path / "kept")


def local(folder: Path) -> tuple[Any, str]:
    """Return pyarrow's local file system."""
    return pafs.LocalFileSystem(), f"{folder}/"


def subtree(folder: Path) -> tuple[Any, str]:
    """Return a file system below a folder."""
    return pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem()), ""


def memory(_folder: Path) -> tuple[Any, str]:
    """Return pyarrow's handler of an fsspec file system, the one in memory."""
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.makedirs("/m", exist_ok=True)
    return pafs.PyFileSystem(pafs.FSSpecHandler(filesystem)), "/m/"


FILE_SYSTEMS: list[Callable[[Path], tuple[Any, str]]] = [local, subtree, memory]


@pytest.mark.parametrize("make", FILE_SYSTEMS)
def test_file_systems(tmp_path: Path, make: Callable[[Path], tuple[Any, str]]) -> None:
    """Source and target may be on any file system of pyarrow's; failure leaves nothing there, a target is kept."""
    filesystem, folder = make(tmp_path)
    source, target, back = ((filesystem, f"{folder}{name}") for name in ("src", "out", "back"))
    with filesystem.open_output_stream(source[1], compression=None) as stream:
        stream.write(write_plain(tmp_path / "plain").read_bytes())
    digest = verify_file(source).digest
    rewrite_file(source, target, encryption=new_encryption(SSN))
    assert verify_file(target, retrieve_key=Keys(), equal_to=digest).authenticated == "all"
    with pytest.raises(ConfigError, match="is there already"):
        rewrite_file(source, target, encryption=new_encryption(SSN))
    with pytest.raises(KeyAccessDeniedError):
        rewrite_file(target, back, retrieve_key=Failing(1, KeyAccessDeniedError("no")))
    wrapped: list[KeyRequest] = []

    def wrap(request: KeyRequest, key: bytes) -> bytes:
        wrapped.append(request)
        return DataKey(key, new_key_metadata(key)).key_metadata

    rewrap_file(target, back, retrieve_key=Keys(), new_keys=NewKeys(wrap))
    assert len(wrapped) == 2
    verify_file(back, retrieve_key=Keys(), equal_to=digest)
    found = filesystem.get_file_info(pafs.FileSelector(folder, recursive=True))
    names = sorted(info.base_name for info in found)
    assert [name for name in names if name != "plain"] == ["back", "out", "src"]


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """A real S3 server, in memory."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while server.poll() is None and not _listens(port):
            time.sleep(0.1)
        yield pafs.S3FileSystem(
            access_key="test",
            secret_key="test",
            region="us-east-1",
            scheme="http",
            endpoint_override=f"127.0.0.1:{port}",
            allow_bucket_creation=True,
        )
    finally:
        server.kill()
        server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.services
def test_s3(s3: Any, tmp_path: Path) -> None:
    """On S3 a target appears whole or not at all, is never replaced, and no multipart upload's file is left."""
    s3.create_dir("bucket")
    plain = write_plain(tmp_path / "plain", table(2000))
    with s3.open_output_stream("bucket/t/src", compression=None) as stream:
        stream.write(plain.read_bytes())
    digest = verify_file(plain).digest
    rewrite_file((s3, "bucket/t/src"), (s3, "bucket/t/out"), encryption=new_encryption(SSN))
    assert verify_file((s3, "bucket/t/out"), retrieve_key=Keys(), equal_to=digest).authenticated == "all"
    with pytest.raises(ConfigError, match="is there already"):
        rewrite_file((s3, "bucket/t/src"), (s3, "bucket/t/out"))
    with pytest.raises(KeyAccessDeniedError):
        rewrite_file((s3, "bucket/t/out"), (s3, "bucket/t/b"), retrieve_key=Failing(1, KeyAccessDeniedError("no")))
    with pytest.raises(ConfigError, match="no-such-bucket/out: cannot be written"):
        rewrite_file((s3, "bucket/t/src"), (s3, "no-such-bucket/out"))
    rewrite_file((s3, "bucket/t/out"), tmp_path / "back", retrieve_key=Keys())
    verify_file(tmp_path / "back", equal_to=digest)
    found = s3.get_file_info(pafs.FileSelector("bucket", recursive=True))
    assert sorted(info.path for info in found if info.is_file) == ["bucket/t/out", "bucket/t/src"]


@pytest.mark.services
def test_s3_takes_no_larger_object(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target larger than what S3 copies at once ends as one for Spark's engine, early, and leaves nothing."""
    monkeypatch.setattr("sparkcrypt.files.output.S3_MOST_BYTES", 20_000)
    monkeypatch.setattr("sparkcrypt.files.output.GATHER_BYTES", 4_000)
    s3.create_dir("largest")
    plain = write_plain(tmp_path / "plain", table(5000), compression="none")
    assert plain.stat().st_size > 200_000
    with pytest.raises(UnsupportedFileError, match=r"plain: .* larger than 20000 bytes.*Spark engine"):
        rewrite_file(plain, (s3, "largest/out"), encryption=new_encryption(SSN))
    assert s3.get_file_info(pafs.FileSelector("largest", recursive=True)) == []
    small = write_plain(tmp_path / "small", table(1), compression="none")
    rewrite_file(small, (s3, "largest/out"))


@pytest.mark.services
def test_s3_finishes_what_failed(s3: Any) -> None:
    """Why a file gets its name on S3 by a copy: pyarrow completes an upload whatever happened inside."""
    s3.create_dir("finishing")
    with pytest.raises(KeyError), s3.open_output_stream("finishing/out", compression=None) as stream:
        stream.write(bytes(20_000_000))
        raise KeyError
    assert s3.get_file_info("finishing/out").size == 20_000_000


def new_key_metadata(key: bytes) -> bytes:
    """Return key metadata of the tests' key service for a key."""
    wrapped = base64.b64encode(key).decode() + "@moved"
    return KeyMaterial(False, None, None, "moved", wrapped, None, None).to_bytes()


def test_sources_of_every_kind(tmp_path: Path) -> None:
    """A path as text, a path, an open file and bytes give the same target."""
    path = write_plain(tmp_path / "src", pa.table({"a": range(1000)}))
    digest = verify_file(path).digest
    with path.open("rb") as opened:
        sources: tuple[Source, ...] = (str(path), path, opened, path.read_bytes())
        for number, source in enumerate(sources):
            rewrite_file(source, tmp_path / str(number), encryption=new_encryption(("a",)))
            verify_file(tmp_path / str(number), retrieve_key=Keys(), equal_to=digest)
        assert not opened.closed


def test_encryption_is_for_one_file(tmp_path: Path) -> None:
    """A second file, a copy of the value, or a retry after a failure takes new keys."""
    source = write_plain(tmp_path / "src")
    encryption = new_encryption(SSN)
    rewrite_file(source, tmp_path / "a", encryption=encryption)
    for again in (encryption, copy(encryption), lambda _: encryption):
        with pytest.raises(ConfigError, match="new data keys"):
            rewrite_file(source, tmp_path / "b", encryption=again)
    failed = new_encryption(SSN)
    with pytest.raises(ConfigError, match="is there already"):
        rewrite_file(source, tmp_path / "a", encryption=failed)
    with pytest.raises(ConfigError, match="new data keys"):
        rewrite_file(source, tmp_path / "c", encryption=failed)
    assert left_over(tmp_path) == ["a", "src"]


def test_encryption_that_cannot_be(tmp_path: Path) -> None:
    """Unknown columns, groups, algorithms, modes, key lengths and prefixes are ConfigError, and nothing is written."""
    source = write_plain(tmp_path / "src")
    for path in (("no",), ("person",), ("person.name",), ("phones",), ("SSN",), ()):
        with pytest.raises(ConfigError, match="allowed: leaf columns of the file"):
            rewrite_file(source, tmp_path / "out", encryption=new_encryption(columns={path: FOOTER_KEY}))
    for length in (0, 15, 17, 33):
        with pytest.raises(ConfigError, match="16, 24 or 32"):
            encryption = FileEncryption(new_key(), columns={SSN: DataKey(bytes(length), b"")})
            rewrite_file(source, tmp_path / "out", encryption=encryption)
    wrong: list[dict[str, Any]] = [
        {"algorithm": "AES_CBC"},
        {"footer_mode": "none"},
        {"store_aad_prefix": False},
        {"store_aad_prefix": False, "aad_prefix": b""},
    ]
    for options in wrong:
        with pytest.raises(ConfigError):
            FileEncryption(new_key(), **options)
    assert left_over(tmp_path) == ["src"]


def test_errors_of_the_callable_reach_the_caller(tmp_path: Path) -> None:
    """What the encryption's callable raises is not wrapped, and nothing is written."""

    def choose(_summary: object) -> FileEncryption:
        raise SparkcryptError("mine")

    with pytest.raises(SparkcryptError, match=r"^mine$"):
        rewrite_file(write_plain(tmp_path / "src"), tmp_path / "out", encryption=choose)
    assert left_over(tmp_path) == ["src"]


MEMORY = """
import pathlib, re, sys
from sparkcrypt.files.parquet import DataKey, FileEncryption, FOOTER_KEY, rewrite_file
small, large, folder = sys.argv[1:]
def run(source, name):
    keys = FileEncryption(DataKey(bytes(range(32)), b"k"), default=FOOTER_KEY)
    rewrite_file(source, f"{folder}/{name}.enc", encryption=keys)
    rewrite_file(f"{folder}/{name}.enc", f"{folder}/{name}.dec", retrieve_key=lambda _: bytes(range(32)))
    return re.search("VmHWM:\\s*([0-9]+) kB", pathlib.Path("/proc/self/status").read_text())[1]
before = run(small, "small")
print(before, run(large, "large"))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the most memory that this process alone had")
def test_memory_is_bounded(tmp_path: Path) -> None:
    """A file of 300 MB is encrypted and decrypted with less than 200 MB more than a small one takes."""
    generator = np.random.default_rng(1)
    small, large = tmp_path / "small", tmp_path / "large"
    pq.write_table(pa.table({"a": generator.random(1000)}), small)
    with pq.ParquetWriter(large, pa.schema({"a": pa.float64(), "b": pa.float64()}), compression="none") as writer:
        for _ in range(3):
            rows = {"a": generator.random(6_500_000), "b": generator.random(6_500_000)}
            writer.write_table(pa.table(rows), row_group_size=6_500_000)
    assert large.stat().st_size > 300_000_000
    found = subprocess.run(
        [sys.executable, "-c", MEMORY, small, large, tmp_path], cwd=ROOT, capture_output=True, text=True, check=True
    )
    before, after = map(int, found.stdout.split())
    print(before, after)
    assert after - before < 200_000
    assert (tmp_path / "large.dec").stat().st_size > 300_000_000

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileInfo, FileSelector, FileType

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError
from sparkcrypt.files.open_places import place
from sparkcrypt.files.output import open_target
from sparkcrypt.files.parquet import KeyRequest, rewrite_file, verify_file
from sparkcrypt.files.source import open_source
from sparkcrypt.files.webhdfs.client import HADOOP_USER
from tests.conftest import or_skip
from tests.services.hdfs import Hdfs, start_hdfs
from tests.services.processes import free_port
from tests.unit.parquet.rewriting import AMOUNT, SSN, new_encryption, write_plain
from tests.unit.parquet.writers import Keys, table, write_encrypted

pytestmark = [pytest.mark.services, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
NAME = "p=1 %2F+&#?é/ä b.parquet"
"""Of a file: what a URL must escape, and what it must not unescape."""


class Sea:
    """A folder of HDFS of one test's own, as workers see it."""

    def __init__(self, hdfs: Hdfs, folder: str) -> None:
        self.settings = {"fs.defaultFS": hdfs.uri, "dfs.namenode.http-address": hdfs.http}
        self.uri = f"{hdfs.uri}/{folder}"
        self.system, self.folder = self.at("")
        self.system.create_dir(self.folder)

    def at(self, name: str, **more: str) -> tuple[Any, str]:
        """Return the place of a name below it."""
        found = place(f"{self.uri}/{name}", self.settings | more)
        assert isinstance(found, tuple)
        return found

    def names(self) -> list[str]:
        """Return the paths of all files below it, hidden ones included."""
        found = self.system.get_file_info(FileSelector(self.folder, recursive=True))
        return sorted(info.path.removeprefix(self.folder) for info in found if info.type == FileType.File)

    def put(self, name: str, content: bytes) -> tuple[Any, str]:
        """Write a file."""
        with open_target(self.at(name)) as output:
            output.write(content)
        return self.at(name)


@pytest.fixture
def sea(hdfs: Hdfs, request: pytest.FixtureRequest) -> Sea:
    """A folder of its own."""
    return Sea(hdfs, request.node.name.partition("[")[0])


class LooksTooEarly:
    """A file system on which nothing is there yet when one looks."""

    def __init__(self, system: Any) -> None:
        self._system = system

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)

    def get_file_info(self, path: str) -> FileInfo:
        """Say that there is nothing."""
        return FileInfo(path, FileType.NotFound)


def test_file_there_and_back(sea: Sea, tmp_path: Path) -> None:
    """A file is encrypted and decrypted on HDFS, under names with any character; a target is never replaced."""
    plain = write_plain(tmp_path / "plain", table(2000))
    source, target, back = sea.put(NAME, plain.read_bytes()), sea.at(f"out/{NAME}"), sea.at("back")
    digest = verify_file(plain).digest
    rewrite_file(source, target, encryption=new_encryption(SSN))
    assert verify_file(target, retrieve_key=Keys(), equal_to=digest).authenticated == "all"
    with pytest.raises(ConfigError, match="is there already"):
        rewrite_file(source, target, encryption=new_encryption(SSN))
    rewrite_file(target, back, retrieve_key=Keys())
    verify_file(back, equal_to=digest)
    assert sea.names() == sorted([f"{NAME}", "back", f"out/{NAME}"])
    assert sea.system.get_file_info(source[1]).size == plain.stat().st_size


def test_failure_leaves_nothing(sea: Sea, tmp_path: Path) -> None:
    """A key that is denied late reaches the caller, and neither a target nor its hidden file is left."""
    source = sea.put("src", write_encrypted(tmp_path / "src").read_bytes())
    seen: list[list[str]] = []

    def denied(request: KeyRequest) -> bytes:
        if request.column == AMOUNT:
            seen.append(sea.names())
            raise KeyAccessDeniedError("no")
        return Keys()(request)

    with pytest.raises(KeyAccessDeniedError):
        rewrite_file(source, sea.at("out"), retrieve_key=denied)
    assert seen and "out" not in seen[0]
    assert sea.names() == ["src"]


def test_target_that_appears_meanwhile_is_kept(sea: Sea) -> None:
    """HDFS itself refuses the rename, also when the other file came after the last look."""
    system, path = sea.at("out")
    with pytest.raises(ConfigError, match="is there already"), open_target((system, path)) as output:
        output.write(b"ours")
        sea.put("out", b"theirs")
    with pytest.raises(ConfigError, match="is there already"), open_target((LooksTooEarly(system), path)) as output:
        output.write(b"ours")
    with open_source((system, path)) as file:
        assert file.read(0, file.size, "it") == b"theirs"
    assert sea.names() == ["out"]


def test_user_without_rights(sea: Sea) -> None:
    """HDFS knows the session's user by name, and what it does not allow is told in its own words."""
    system, path = sea.at("out", **{HADOOP_USER: "nobody-known"})
    with pytest.raises(PermissionError, match=r"AccessControlException: .*user=nobody-known"):
        system.create_dir(f"{sea.folder}sub")
    with pytest.raises(PermissionError, match="Permission denied"), open_target((system, path)) as output:
        output.write(b"x")
    assert sea.names() == []


def test_what_is_not_there(sea: Sea) -> None:
    """Files that are missing and folders are told apart from files."""
    system, path = sea.at("nothing")
    assert system.get_file_info(path).type == FileType.NotFound
    assert system.get_file_info(FileSelector(path, allow_not_found=True)) == []
    with pytest.raises(FileNotFoundError):
        system.get_file_info(FileSelector(path))
    with pytest.raises(FileNotFoundError):
        system.open_input_file(path)
    with pytest.raises(OSError, match="is a folder"):
        system.open_input_file(sea.folder)


def test_what_a_folder_holds_is_deleted_and_the_folder_stays(sea: Sea) -> None:
    """Files, hidden ones and folders below it go; one that is missing is an error unless it may be."""
    for name in ("a", "d/b", "d/.c"):
        sea.put(name, b"x")
    system, folder = sea.at("d")
    system.delete_dir_contents(folder)
    assert sea.names() == ["a"]
    assert system.get_file_info(folder).type == FileType.Directory
    with pytest.raises(FileNotFoundError):
        system.delete_dir_contents(sea.at("none")[1])
    system.delete_dir_contents(sea.at("none")[1], missing_dir_ok=True)


def test_what_webhdfs_cannot_do_is_refused_as_an_os_error(sea: Sea) -> None:
    """A copy, an append and deleting everything there is change nothing, and say what to do instead."""
    system, path = sea.put("a", b"content")
    with pytest.raises(io.UnsupportedOperation, match="no copy within the cluster"):
        system.copy_file(path, f"{path}-2")
    with pytest.raises(io.UnsupportedOperation, match="cannot be appended to"):
        system.open_append_stream(path)
    with pytest.raises(io.UnsupportedOperation, match="name a folder"):
        system.delete_dir_contents("/", accept_root_dir=True)
    assert sea.names() == ["a"]


def test_empty_file(sea: Sea) -> None:
    """A file without bytes is written and read."""
    with open_source(sea.put("empty", b"")) as file:
        assert (file.size, file.read(0, 0, "nothing")) == (0, b"")


MEMORY = """
import json, resource, sys
from sparkcrypt.files.open_places import place
from sparkcrypt.files.parquet import rewrite_file, verify_file
from tests.unit.parquet.rewriting import new_encryption
from tests.unit.parquet.writers import Keys
from sparkcrypt.files.output import open_target
settings, small, large, out = json.loads(sys.argv[1]), *sys.argv[2:]
def carry(local, name):
    there, encrypted, decrypted = (place(f"{out}/{name}{kind}", settings) for kind in ("", ".enc", ".dec"))
    with open(local, "rb") as file, open_target(there) as output:
        while piece := file.read(1 << 20):
            output.write(piece)
    rewrite_file(there, encrypted, encryption=new_encryption(("a",)))
    rewrite_file(encrypted, decrypted, retrieve_key=Keys())
    assert verify_file(decrypted, equal_to=verify_file(there).digest)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(carry(small, "small"), carry(large, "large"))
"""


def test_memory_is_bounded(sea: Sea, tmp_path: Path) -> None:
    """A file of 200 MB is encrypted, decrypted and verified there with less than 100 MB more than a small one takes."""
    generator = np.random.default_rng(1)
    small, large = tmp_path / "small", tmp_path / "large"
    pq.write_table(pa.table({"a": generator.random(1000)}), small)
    pq.write_table(
        pa.table({"a": generator.random(13_000_000), "b": generator.random(13_000_000)}),
        large,
        compression="none",
        use_dictionary=False,
        row_group_size=6_500_000,
    )
    assert large.stat().st_size > 200_000_000
    command = [sys.executable, "-c", MEMORY, json.dumps(sea.settings), str(small), str(large), sea.uri]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    before, after = map(int, found.stdout.split())
    assert after - before < 100_000
    assert sea.system.get_file_info(sea.at("large.dec")[1]).size > 200_000_000


KEYSTORE = """
<configuration>
<property><name>ssl.server.keystore.type</name><value>PKCS12</value></property>
<property><name>ssl.server.keystore.location</name><value>{}</value></property>
<property><name>ssl.server.keystore.password</name><value>changeit</value></property>
<property><name>ssl.server.keystore.keypassword</name><value>changeit</value></property>
</configuration>
"""


def make_certificate(folder: Path, java_home: str) -> Path:
    """Make a key for 127.0.0.1 and Hadoop's files that name it; return the certificate."""
    store, keytool = folder / "keys.p12", f"{java_home}/bin/keytool"
    common = ["-alias", "node", "-keystore", str(store), "-storepass", "changeit"]
    made = [keytool, "-genkeypair", *common, "-storetype", "PKCS12", "-keyalg", "EC", "-dname", "CN=localhost"]
    subprocess.run([*made, "-ext", "san=dns:localhost,ip:127.0.0.1"], check=True, capture_output=True)
    shown = subprocess.run([keytool, "-exportcert", "-rfc", *common], check=True, capture_output=True)
    for name in ("ssl-server.xml", "ssl-client.xml"):
        (folder / name).write_text(KEYSTORE.format(store))
    (folder / "certificate.pem").write_bytes(shown.stdout)
    return folder / "certificate.pem"


def test_https(java: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HDFS that serves HTTPS alone is written and read where its certificate is trusted, and refused elsewhere."""
    certificate, address = make_certificate(tmp_path, java["JAVA_HOME"]), f"127.0.0.1:{free_port()}"
    policy = {"dfs.http.policy": "HTTPS_ONLY", "dfs.namenode.https-address": address}
    running = or_skip(start_hdfs, tmp_path, policy | {"dfs.datanode.https.address": "127.0.0.1:0"})
    try:
        with pytest.raises(ConfigError, match="certificate verify failed"):
            place(f"{running.uri}/f", policy)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        where = place(f"{running.uri}/f", policy | {"fs.defaultFS": running.uri})
        assert isinstance(where, tuple)
        content = bytes(range(256)) * 20_000
        with open_target(where) as output:
            output.write(content)
        with open_source(where) as file:
            assert file.read(0, file.size, "all of it") == content
    finally:
        running.stop()

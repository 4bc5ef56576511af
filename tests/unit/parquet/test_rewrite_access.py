"""What is made of a file is never wider than it: from the first moment of its hidden name, and its folders with it."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from sparkcrypt.files.access_rights import access_of, make_folders
from sparkcrypt.files.output import open_target
from sparkcrypt.files.parquet import FOOTER_KEY, KeyRequest, NewKeys, rewrap_file, rewrite_file
from sparkcrypt.files.source import open_source
from tests.unit.parquet.rewriting import new_encryption
from tests.unit.parquet.writers import Keys

MODES = (0o600, 0o640, 0o444, 0o660, 0o664)
ACL = "system.posix_acl_access"


@pytest.fixture(autouse=True)
def everybody() -> Iterator[None]:
    """Let the process make files that everybody may write, unless it is told otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    """Return the permissions of a file or folder."""
    return stat.S_IMODE(path.stat().st_mode)


def source_of(path: Path, mode: int) -> Path:
    """Write a file of this mode."""
    pq.write_table(pa.table({"n": [1, 2, 3]}), path)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", MODES, ids=oct)
def test_targets_have_their_sources_mode(tmp_path: Path, mode: int) -> None:
    """Encrypted, decrypted and wrapped anew, a file may be read by whom its source may be."""
    source = source_of(tmp_path / "source", mode)
    rewrite_file(source, tmp_path / "encrypted", encryption=new_encryption(default=FOOTER_KEY))
    rewrite_file(tmp_path / "encrypted", tmp_path / "decrypted", retrieve_key=Keys())

    def wrap(request: KeyRequest, _: bytes) -> bytes:
        return request.key_metadata or b""

    rewrap_file(tmp_path / "encrypted", tmp_path / "rewrapped", retrieve_key=Keys(), new_keys=NewKeys(wrap))
    assert {mode_of(path) for path in tmp_path.iterdir()} == {mode}


@pytest.mark.parametrize("mode", MODES, ids=oct)
def test_on_pyarrows_file_system_too(tmp_path: Path, mode: int) -> None:
    """A local file that pyarrow opens has its source's mode likewise."""
    source = source_of(tmp_path / "source", mode)
    local = LocalFileSystem()
    rewrite_file((local, str(source)), (local, str(tmp_path / "out")))
    assert mode_of(tmp_path / "out") == mode


@pytest.mark.parametrize("on_pyarrow", [False, True])
def test_the_hidden_file_is_its_owners_alone(tmp_path: Path, on_pyarrow: bool) -> None:
    """While it is written nobody else may open it, however wide it becomes."""
    source = source_of(tmp_path / "source", 0o666)
    target = (LocalFileSystem(), str(tmp_path / "out")) if on_pyarrow else tmp_path / "out"
    with open_source(source) as file, open_target(target, file.access) as output:
        output.write(b"x")
        (hidden,) = (path for path in tmp_path.iterdir() if path != source)
        assert mode_of(hidden) == 0o600
    assert mode_of(tmp_path / "out") == 0o666


def test_bytes_have_no_mode_of_their_own(tmp_path: Path) -> None:
    """What is made of bytes in memory has the mode that the process gives its files."""
    os.umask(0o027)
    rewrite_file(source_of(tmp_path / "source", 0o600).read_bytes(), tmp_path / "out")
    assert mode_of(tmp_path / "out") == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owner_and_group_come_along(tmp_path: Path) -> None:
    """The group's bits are of use to the source's group alone, so the target belongs to it."""
    source = source_of(tmp_path / "source", 0o640)
    os.chown(source, 12345, 23456)
    rewrite_file(source, tmp_path / "out")
    found = (tmp_path / "out").stat()
    assert (found.st_uid, found.st_gid, mode_of(tmp_path / "out")) == (12345, 23456, 0o640)


def test_a_group_that_cannot_be_given_loses_its_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is no member of the source's group cannot give it the target, and does not open it to his own."""
    source = source_of(tmp_path / "source", 0o640)

    def refuse(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    found = source.stat()
    monkeypatch.setattr(os, "fchown", refuse)
    with open_source(source) as file:
        assert file.access is not None
        other = type(file.access)(file.access.mode, found.st_uid, found.st_gid + 1)
        with open_target(tmp_path / "out", other):
            pass
    assert mode_of(tmp_path / "out") == 0o600


def test_an_acl_comes_along(tmp_path: Path) -> None:
    """With an ACL the group's bits of the mode are its mask, and alone would open the file to the group."""
    source = source_of(tmp_path / "source", 0o640)
    entries = [(1, 6, 0xFFFFFFFF), (2, 4, 12345), (4, 0, 0xFFFFFFFF), (16, 4, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(source, ACL, acl)
    except OSError as error:
        pytest.skip(f"this file system keeps no ACLs: {error}")
    rewrite_file(source, tmp_path / "out")
    assert os.getxattr(tmp_path / "out", ACL) == os.getxattr(source, ACL)
    with open_source(source) as original, open_source(tmp_path / "out") as other:
        assert original.descriptor is not None and other.descriptor is not None
        assert access_of(original.descriptor) == access_of(other.descriptor)


def test_folders_are_made_like_the_sources(tmp_path: Path) -> None:
    """Folders of the same names get the same modes, and those above them the last's."""
    source = tmp_path / "source" / "p=1" / "q=2"
    source.mkdir(parents=True)
    for folder, mode in ((source, 0o755), (source.parent, 0o750), (source.parent.parent, 0o700)):
        folder.chmod(mode)
    make_folders(str(tmp_path / "new" / "target" / "p=1" / "q=2"), str(source))
    made = tmp_path / "new"
    names = (made, made / "target", made / "target" / "p=1", made / "target" / "p=1" / "q=2")
    assert [mode_of(path) for path in names] == [0o700, 0o700, 0o750, 0o755]
    make_folders(str(tmp_path / "alone" / "a"), None)
    assert [mode_of(path) for path in (tmp_path / "alone", tmp_path / "alone" / "a")] == [0o700, 0o700]

"""Files that appear whole or not at all, whatever ends the process."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sparkcrypt.durable import replace_file, write_new
from tests.services.installed import ROOT

DIES_AT_SYNC = """
import os, signal, sys
from pathlib import Path
from sparkcrypt import durable
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
getattr(durable, sys.argv[1])(Path(sys.argv[2]), b"new")
"""


@pytest.mark.parametrize("verb", ["write_new", "replace_file"])
def test_a_process_killed_while_it_writes_leaves_what_was_there(verb: str, tmp_path: Path) -> None:
    """Neither a part of a new file under its name, nor a part in the place of an old one."""
    file = tmp_path / "file"
    if verb == "replace_file":
        file.write_bytes(b"old")
    command = [sys.executable, "-c", DIES_AT_SYNC, verb, str(file)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert (file.read_bytes() if file.exists() else None) == (b"old" if verb == "replace_file" else None)
    left = [path.name for path in tmp_path.iterdir() if path != file]
    assert all(name.startswith(".") and name.endswith(".tmp") for name in left)


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_exists_is_not_written_again(links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the file system has no hard links; nothing is left behind."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    write_new(tmp_path / "file", b"first")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "file", b"second")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"first"]


@pytest.mark.parametrize(("mode", "expected"), [(0o600, 0o600), (0o644, 0o644), (None, 0o640)])
def test_modes(mode: int | None, expected: int, tmp_path: Path) -> None:
    """A mode is given whatever the process's umask; without one the umask decides."""
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "file", b"", mode=mode)
        write_new(tmp_path / "own", b"")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("file", "own")]
    assert modes == [expected, 0o600]

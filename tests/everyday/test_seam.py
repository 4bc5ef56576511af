from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection

from tests.everyday.seam import DELETE, FORGET, METASTORE, MKDIR, PUT, RENAME, Kill, Seam


def fork(root: Path, kill: Kill | None, action: Callable[[], Any]) -> tuple[int, str]:
    """Do something in a fork that a seam watches; return the signal that ended it, and what it told or counted."""
    told = root.parent / "told"

    def tell(last: dict[str, Any]) -> None:
        told.write_text(last["killed_at"])

    child = os.fork()
    if not child:
        seam = Seam(root, root / "state", kill, tell)
        ClientServerConnection.send_command = lambda connection, command: "yv"
        seam.watch()
        try:
            action()
        except OSError:
            told.write_text("it went on")
        told.write_text(" ".join(sorted(seam.calls)))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, told.read_text()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An estate of one file, and its state directory with one record."""
    made = tmp_path / "estate"
    (made / "state").mkdir(parents=True)
    (made / "file").touch()
    (made / "state" / "record").touch()
    return made


@pytest.mark.parametrize(
    ("action", "point"),
    [
        (lambda root: (root / "file").rename(root / "other"), RENAME),
        (lambda root: (root / "file").unlink(), DELETE),
        (lambda root: (root / "folder").mkdir(), MKDIR),
        (lambda root: os.link(root / "state" / "record", root / "state" / "next"), PUT),
        (lambda root: (root / "state" / "record").unlink(), FORGET),
    ],
)
def test_a_driver_is_killed_before_what_it_would_have_changed(
    root: Path, action: Callable[[Path], Any], point: str
) -> None:
    """A killed process has changed nothing more, and no handler of its own has run; one that lives is counted."""
    before = sorted(root.rglob("*"))
    number, told = fork(root, Kill(point, 1), lambda: action(root))
    assert (number, sorted(root.rglob("*"))) == (signal.SIGKILL, before)
    assert str(root) in told
    assert fork(root, Kill(point, 2), lambda: action(root)) == (0, point)
    assert sorted(root.rglob("*")) != before


def test_calls_into_the_jvm_are_counted_by_their_names(root: Path) -> None:
    """Files of Hadoop and changes of the metastore count, whatever object they are asked of; queries do not."""

    def call() -> None:
        for text in ("rename\nro2\nro3", "sql\nsALTER TABLE t SET LOCATION 'x'", "sql\nsSELECT 1", "exists\nro2"):
            ClientServerConnection.send_command(None, f"c\no1\n{text}\ne\n")

    assert fork(root, None, call) == (0, f"{RENAME} {METASTORE}")


def test_what_is_not_of_the_estate_does_not_count(root: Path) -> None:
    """Files elsewhere, and the hidden files that a record is made of, are no steps."""

    def elsewhere() -> None:
        (root.parent / "folder").mkdir()
        (root / "state" / ".new").touch()
        (root / "state" / ".new").unlink()

    assert fork(root, Kill(DELETE, 1), elsewhere) == (0, "")

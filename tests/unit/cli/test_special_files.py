"""Pipes, links and endless files in the places of files: each is named, nothing waits, and nothing else is hidden."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.arrow import open_orc, open_table
from sparkcrypt.errors import ConfigError, FormatError, VerificationError
from sparkcrypt.files.orc import inspect_orc
from sparkcrypt.files.parquet import inspect_file
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.journal.journal import Journal, RunRecord
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.policy.load import load_policy
from sparkcrypt.regular_files import read_regular
from sparkcrypt.skipping.trusted.folder import LOCK, LocalFolder

from .conftest import run

pytestmark = pytest.mark.timeout(60)


def make_pipe(path: Path) -> None:
    """Make a pipe that nobody writes into."""
    os.mkfifo(path)


def link_device(path: Path) -> None:
    """Make a link to a device without an end."""
    path.symlink_to("/dev/zero")


def make_endless(path: Path) -> None:
    """Make a regular file of 60 GB that takes no room."""
    with path.open("wb") as stream:
        stream.truncate(60 << 30)


KINDS = [make_pipe, link_device, make_endless]


@pytest.mark.parametrize("plant", KINDS)
@pytest.mark.parametrize("opened", [inspect_file, inspect_orc])
def test_data_file(tmp_path: Path, plant: Callable[[Path], None], opened: Callable[[str], object]) -> None:
    """A file that is named for reading is refused by what it is, or as no file of the format."""
    plant(tmp_path / "f")
    with pytest.raises(FormatError, match=str(tmp_path / "f")):
        opened(str(tmp_path / "f"))


@pytest.mark.parametrize("plant", [make_pipe, link_device])
def test_commands_about_files(policy: Path, tmp_path: Path, plant: Callable[[Path], None]) -> None:
    """``inspect`` and ``verify`` name the file, whether it is given or found in a folder."""
    (tmp_path / "d").mkdir()
    plant(tmp_path / "d" / "part-0.parquet")
    for place in (tmp_path / "d", tmp_path / "d" / "part-0.parquet"):
        for command in ("inspect", "verify"):
            done = run(command, place, "--policy", policy)
            assert done.code != 0 and "part-0.parquet" in done.errors + done.output, (command, done)
    loop = tmp_path / "d" / "loop"
    (tmp_path / "d" / "part-0.parquet").unlink()
    loop.symlink_to(tmp_path / "d")
    assert f"{loop}: is a symbolic link" in run("verify", tmp_path / "d", "--policy", policy).errors


@pytest.mark.parametrize("plant", [make_pipe, make_endless])
@pytest.mark.parametrize("suffix", ["parquet", "orc"])
def test_table_outside_spark(policy: Path, tmp_path: Path, plant: Callable[[Path], None], suffix: str) -> None:
    """Pyarrow would wait for a pipe; a link is refused by the listing."""
    (tmp_path / "d").mkdir()
    plant(tmp_path / "d" / f"part-0.{suffix}")
    opened = open_table if suffix == "parquet" else open_orc
    with pytest.raises((FormatError, ConfigError)):
        opened(str(tmp_path / "d" / ("" if suffix == "parquet" else "part-0.orc")), load_policy(policy))


@pytest.mark.parametrize("plant", KINDS)
def test_state_record(policy: Path, tmp_path: Path, plant: Callable[[Path], None]) -> None:
    """Its run is listed as damaged with the record's name, and the others as they are."""
    store, options = LocalStateStore(tmp_path / "state"), {"engine": "spark", "where": None, "output": None}
    for run_id in ("20260101T000000000Z-aaaaaa", "20260201T000000000Z-bbbbbb"):
        plain: dict[str, Any] = {**options, "exclusive": False}
        begun = Journal.start(store, RunRecord("uuid-1", "sales.customers", run_id, "digest", {}, plain, 1))
        begun.append("unit_listed", unit="p=0", files=[])
    record = tmp_path / "state/runs/uuid-1/20260101T000000000Z-aaaaaa/000002.json"
    record.unlink()
    plant(record)
    with pytest.raises(VerificationError, match=r"000002\.json"):
        store.read("runs/uuid-1/20260101T000000000Z-aaaaaa/000002.json")
    found = run("backfill", "list", "--policy", policy, "--json").document
    assert [listed["state"] for listed in found] == ["damaged", "unfinished"]
    assert "000002.json" in found[0]["damage"]


def test_record_is_never_larger_than_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that could not be read again is not written."""
    monkeypatch.setattr("sparkcrypt.ledger.state.store.MOST_BYTES", 100)
    made = LocalStateStore(tmp_path)
    assert made.create("a", b"x" * 100) and made.read("a") == b"x" * 100
    with pytest.raises(ConfigError, match="would have 101 bytes; allowed: 100"):
        made.create("b", b"x" * 101)
    (tmp_path / "c").write_bytes(b"x" * 101)
    with pytest.raises(VerificationError, match="more than 100 bytes"):
        made.read("c")


@pytest.mark.parametrize("plant", KINDS)
def test_sidecar_of_a_store(policy: Path, keys: KeyService, tmp_path: Path, plant: Callable[[Path], None]) -> None:
    """Commands about the store name it, and end."""
    (tmp_path / "d").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "d" / "f.parquet")
    os.utime(tmp_path / "d" / "f.parquet", (1_700_000_000, 1_700_000_000))  # younger files are left out
    options = ["--path", tmp_path / "d", "--to", tmp_path / "s", "--policy", policy]
    assert run("index", "create", *options, "--column", "id").code == 0
    sidecar = tmp_path / "s" / "_sparkcrypt.json"
    sidecar.unlink()
    plant(sidecar)
    for verb in ("verify", "refresh", "drop"):
        done = run("index", verb, *options)
        assert done.code != 0 and "_sparkcrypt.json" in done.errors, (verb, done)


def test_lock_of_a_store(tmp_path: Path) -> None:
    """A pipe in its place is no lock."""
    os.mkfifo(tmp_path / LOCK)
    with pytest.raises(FormatError, match="is a pipe"), LocalFolder(tmp_path).lock():
        pass


@pytest.mark.parametrize("content", [b"", b"12345678"])
def test_regular_file(tmp_path: Path, content: bytes) -> None:
    """It is read whole up to the limit; folders of its path may be links."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "f").write_bytes(content)
    assert read_regular(tmp_path / "link" / "f", 8) == content
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path / "real", 8)

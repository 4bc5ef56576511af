"""Commands that show and verify files, and files that are none."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from sparkcrypt.arrow import open_orc, open_table
from sparkcrypt.errors import ConfigError, FormatError, VerificationError
from sparkcrypt.files.orc import inspect_orc
from sparkcrypt.files.parquet import inspect_file
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.key_audit import key_audit
from sparkcrypt.ledger.journal.journal import RunRecord
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.policy.load import load_policy
from sparkcrypt.regular_files import read_regular
from sparkcrypt.skipping.trusted.folder import LOCK, LocalFolder
from tests.journals import start_run
from tests.unit.parquet.handmade import data_page, index_page, make_file

from .conftest import relabel, rows, run, write_encrypted

FIELDS = {"path", "footer", "algorithm", "footer_key", "aad_prefix", "rows", "row_groups", "columns"}


def test_an_encrypted_footer_needs_no_key_and_tells_little(tmp_path: Path, keys: KeyService) -> None:
    """Without keys the algorithm and the footer key are told, and the rest is null."""
    path = write_encrypted(tmp_path / "a.parquet", keys)
    found = run("inspect", path, "--json").document
    assert found == [
        {
            "path": str(path),
            "footer": "encrypted",
            "algorithm": "AES_GCM_V1",
            "footer_key": "footer",
            "aad_prefix": None,
            "rows": None,
            "row_groups": None,
            "columns": None,
        }
    ]


def test_a_policy_reveals_what_the_footer_hides(tmp_path: Path, policy: Path, keys: KeyService) -> None:
    """With the policy's keys every column is told with its key."""
    path = write_encrypted(tmp_path / "a.parquet", keys)
    (found,) = run("inspect", path, "--policy", policy, "--json").document
    assert set(found) == FIELDS
    assert (found["rows"], found["row_groups"]) == (3, 1)
    assert found["columns"] == {
        "id": {"encrypted": False, "key_id": None},
        "ssn": {"encrypted": True, "key_id": "pii"},
    }


def test_a_signed_footer_tells_all(tmp_path: Path, keys: KeyService) -> None:
    """A footer in clear tells its columns without a key."""
    path = write_encrypted(tmp_path / "a.parquet", keys, plaintext_footer=True)
    (found,) = run("inspect", path, "--json").document
    assert found["footer"] == "plaintext_signed"
    assert found["columns"]["ssn"] == {"encrypted": True, "key_id": "pii"}


def test_a_folder_is_read_as_spark_reads_it(tmp_path: Path) -> None:
    """Below a folder every data file is found, and nothing that is hidden."""
    folder = tmp_path / "table"
    for name in ("p=1/b.parquet", "p=1/.hidden.parquet", "_tmp/c.parquet", "_q=2/d.parquet", "a.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows(), folder / name)
    (folder / "_SUCCESS").touch()
    (folder / "p=1" / "000001_0").touch()
    (folder / "_delta_log").mkdir()
    done = run("inspect", folder, "--json")
    assert done.code == 0 and f"note: {folder}/p=1/000001_0: has 0 bytes" in done.errors
    assert f"note: {folder}/_delta_log: a Delta table keeps its own list of files there; some of" in done.errors
    found = done.document
    assert [file["path"] for file in found] == [
        str(folder / n) for n in ("_q=2/d.parquet", "a.parquet", "p=1/b.parquet")
    ]
    assert {file["footer"] for file in found} == {"plaintext"}


def test_a_file_of_no_bytes_that_is_named_is_66(tmp_path: Path) -> None:
    """It is left out of folders alone."""
    (tmp_path / "a.parquet").touch()
    assert run("inspect", tmp_path / "a.parquet").code == 66


def test_the_text_names_each_column(tmp_path: Path, policy: Path, keys: KeyService) -> None:
    """For a person each column has a line with its state and key."""
    path = write_encrypted(tmp_path / "a.parquet", keys)
    lines = run("inspect", path, "--policy", policy).output.splitlines()
    assert lines[0] == f"{path}: footer encrypted, AES_GCM_V1, footer key footer; 3 rows in 1 row group"
    assert [line.split() for line in lines[1:]] == [
        ["column", "state", "key"],
        ["id", "plaintext", "-"],
        ["ssn", "encrypted", "pii"],
    ]


def test_a_key_that_is_gone_names_the_file(tmp_path: Path, policy: Path, keys: KeyService) -> None:
    """When the footer key cannot be had, the error is the key service's and names the file."""
    path = write_encrypted(tmp_path / "a.parquet", keys)
    next((tmp_path / "keys").glob("footer*")).unlink()
    done = run("inspect", path, "--policy", policy)
    assert (done.code, done.output) == (69, "")
    assert "footer" in done.errors


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not a parquet file at all", b"PAR1" + b"\xff" * 40 + b"PAR1"])
def test_what_is_no_parquet_file_is_66(tmp_path: Path, content: bytes) -> None:
    """Other bytes end with 66, and the message names the file."""
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    done = run("inspect", path)
    assert done.code == 66
    assert str(path) in done.errors


def test_what_is_not_there_is_78(tmp_path: Path) -> None:
    """A path that is not there, and a folder without files, are told by name."""
    assert run("inspect", tmp_path / "nosuch").code == 78
    empty = tmp_path / "empty"
    empty.mkdir()
    done = run("inspect", empty)
    assert done.code == 78
    assert str(empty) in done.errors


def test_names_control_no_terminal(tmp_path: Path, policy: Path) -> None:
    """Columns, files and errors of any name are printed without escapes; JSON has the names, escaped."""
    hostile = "\x1b[2J\x9b31m\u202ename"
    path = tmp_path / f"{hostile}.parquet"
    pq.write_table(pa.table({hostile: [1]}), path)
    ended = [run("inspect", path), run("inspect", path, "--json"), run("inspect", tmp_path / f"{hostile}2")]
    assert [done.code for done in ended] == [0, 0, 78]
    for done in ended:
        assert "name" in done.output + done.errors
        assert not set("\x1b\x9b\u202e") & set(done.output + done.errors)
    assert ended[1].document[0]["path"] == str(path)


@pytest.mark.parametrize("foreign", ["footer", "pii"])
@pytest.mark.parametrize("command", ["inspect", "verify", "rewrite --decrypt", "rewrite --rewrap", "index create"])
def test_a_key_that_only_the_file_names_is_not_asked_for(
    tmp_path: Path, policy: Path, keys: KeyService, monkeypatch: pytest.MonkeyPatch, foreign: str, command: str
) -> None:
    """Its id may be one of another account: it is refused by name, unless that is wanted."""
    (tmp_path / "d").mkdir()
    path = write_encrypted(tmp_path / "d" / "f.parquet", keys)
    os.utime(path, (1_700_000_000, 1_700_000_000))  # an index leaves younger files out
    policy.write_text(
        policy.read_text().replace(f"key: {foreign},", "key: other,").replace(f"key: {foreign}}}", "key: other}")
    )
    asked: list[str] = []
    unwrap = LocalKeyService.unwrap

    def note(self: LocalKeyService, key_id: str, wrapped: str) -> bytes:
        asked.append(key_id)
        return unwrap(self, key_id, wrapped)

    monkeypatch.setattr(LocalKeyService, "unwrap", note)
    verb, *options = command.split()
    arguments = {
        "rewrite": [path, tmp_path / "made.parquet", *options],
        "index": [*options, "--path", tmp_path / "d", "--column", "ssn:values", "--to", tmp_path / "s"],
    }.get(verb, [path])
    done = run(verb, *arguments, "--policy", policy)
    if (verb, foreign) == ("inspect", "pii"):
        assert done.code == 0  # shows ids, and opens no column's key
    else:
        assert f"names the master key '{foreign}'" in done.errors + done.output
    assert (done.code == 0) is ((verb, foreign) == ("inspect", "pii"))
    assert foreign not in asked
    if verb != "index":
        assert run(verb, *arguments, "--policy", policy, "--any-key").code == 0


def test_a_footer_key_that_only_the_file_names_opens_no_table(
    tmp_path: Path, policy: Path, keys: KeyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``open_table`` refuses it as a reader does, before the key service is asked."""
    (tmp_path / "d").mkdir()
    write_encrypted(tmp_path / "d" / "f.parquet", keys)
    policy.write_text(policy.read_text().replace("key: footer,", "key: other,"))
    asked: list[str] = []
    monkeypatch.setattr(LocalKeyService, "unwrap", lambda self, key_id, wrapped: asked.append(key_id))
    with pytest.raises(VerificationError, match="its footer key is 'footer'; allowed: 'other'"):
        open_table(str(tmp_path / "d"), load_policy(policy)).to_table()
    assert asked == []


def test_a_file_as_it_was_written_is_authentic(tmp_path: Path, policy: Path, keys: KeyService) -> None:
    """Every module of an untouched file authenticates."""
    path = write_encrypted(tmp_path / "a.parquet", keys)
    done = run("verify", path, "--policy", policy, "--json")
    assert (done.code, done.document["verified"]) == (0, True)
    (found,) = done.document["files"]
    assert (found["file"], found["authenticated"], found["rows"], found["error"]) == (str(path), "all", 3, None)


def test_one_changed_byte_is_74(tmp_path: Path, policy: Path, keys: KeyService) -> None:
    """A flipped bit in an encrypted page ends with 74; the other files are still reported."""
    good, bad = write_encrypted(tmp_path / "a.parquet", keys), write_encrypted(tmp_path / "b.parquet", keys)
    content = bytearray(bad.read_bytes())
    content[len(content) // 2] ^= 1
    bad.write_bytes(content)
    done = run("verify", good, bad, "--policy", policy, "--json")
    assert done.code == 74
    assert [file["error"] is None for file in done.document["files"]] == [True, False]
    assert done.errors == "error: 1 difference found\n"


def test_a_file_in_clear_is_told_to_be_that(tmp_path: Path, policy: Path, keys: KeyService) -> None:
    """A file that is not encrypted is no failure for itself, and is not called authentic."""
    pq.write_table(rows(), tmp_path / "a.parquet")
    done = run("verify", tmp_path / "a.parquet", "--policy", policy)
    assert done.code == 0
    assert "plaintext: not encrypted" in done.output
    assert "authenticated: all" not in done.output


def test_a_file_in_clear_is_never_called_verified(tmp_path: Path, policy: Path, keys: KeyService) -> None:
    """Whoever can write can put a file in clear there, so one among others is enough; the outcome says what it is."""
    (tmp_path / "d").mkdir()
    write_encrypted(tmp_path / "d" / "a.parquet", keys)
    pq.write_table(rows(), tmp_path / "d" / "b.parquet")
    done = run("verify", tmp_path / "d", "--policy", policy, "--json")
    assert (done.code, done.document["verified"], done.document["outcome"]) == (0, False, "not encrypted")


@pytest.mark.parametrize("page", [False, True])
def test_a_relabelled_file_is_74(tmp_path: Path, policy: Path, keys: KeyService, page: bool) -> None:
    """Nothing in a file authenticates its algorithm, so the policy's word holds; a history allows what it names."""
    path = write_encrypted(tmp_path / "a.parquet", keys)
    if page:  # a file that is wholly under CTR, and so has nothing that would not authenticate
        policy.write_text(policy.read_text().replace("AES_GCM_V1", "AES_GCM_CTR_V1"))
        pq.write_table(rows(), tmp_path / "plain.parquet")
        path = tmp_path / "b.parquet"
        run("rewrite", tmp_path / "plain.parquet", path, "--policy", policy, "--column-keys", "pii:ssn")
        policy.write_text(policy.read_text().replace("AES_GCM_CTR_V1", "AES_GCM_V1"))
    else:
        relabel(path)
    done = run("verify", path, "--policy", policy, "--json")
    assert (done.code, done.document["verified"], done.document["outcome"]) == (74, False, "failed")
    assert "its algorithm is AES_GCM_CTR_V1" in done.document["files"][0]["error"]
    if page:
        allowed = "algorithm_history: [AES_GCM_CTR_V1]\ndata_key_bits"
        policy.write_text(policy.read_text().replace("data_key_bits", allowed))
        assert run("verify", path, "--policy", policy).code == 0


@pytest.mark.parametrize("to", ["day=1/b.parquet", "day=2/a.parquet", "a.parquet"])
def test_a_file_that_was_moved_is_74(tmp_path: Path, policy: Path, keys: KeyService, to: str) -> None:
    """Its name and partition are those that it was written for; in its place it is verified."""
    (tmp_path / "t" / "day=1").mkdir(parents=True)
    pq.write_table(rows(), tmp_path / "plain.parquet")
    path = tmp_path / "t" / "day=1" / "a.parquet"
    run("rewrite", tmp_path / "plain.parquet", path, "--policy", policy, "--column-keys", "pii:ssn")
    assert run("verify", path, "--policy", policy, "--json").document["verified"]
    moved = tmp_path / "t" / to
    moved.parent.mkdir(exist_ok=True)
    path.rename(moved)
    done = run("verify", tmp_path / "t", "--policy", policy, "--json")
    assert (done.code, done.document["verified"]) == (74, False)
    assert str(moved) in done.document["files"][0]["error"]


def test_a_file_that_cannot_be_rewritten_is_named_too(tmp_path: Path, policy: Path, keys: KeyService) -> None:
    """A file with an index page is a difference by its name, not the end of the command."""
    path = tmp_path / "a.parquet"
    path.write_bytes(make_file([[[index_page(), data_page()]]]))
    done = run("verify", path, "--policy", policy)
    assert done.code == 74
    assert f"{path}: FAIL" in done.output


def test_a_key_that_is_gone_is_the_key_services_error(tmp_path: Path, policy: Path, keys: KeyService) -> None:
    """A missing column key ends with 69, since nothing could be checked."""
    path = write_encrypted(tmp_path / "a.parquet", keys)
    next((tmp_path / "keys").glob("pii*")).unlink()
    assert run("verify", path, "--policy", policy).code == 69


@pytest.mark.parametrize("name", ["a.parquet", "a.orc"])
def test_a_column_under_a_shredded_key_is_named(tmp_path: Path, policy: Path, keys: KeyService, name: str) -> None:
    """All else of its file is verified: a changed bit elsewhere is found; without a tombstone the key is missing."""
    path = tmp_path / name
    if path.suffix == ".orc":
        pyarrow.orc.write_table(rows(), tmp_path / "plain.orc")
        command = ("rewrite", tmp_path / "plain.orc", path, "--policy", policy, "--column-keys")
        assert run(*command, "pii:ssn;footer:id").code == 0
    else:
        write_encrypted(path, keys)
    shred(policy, "pii", "case 4711")
    done = run("verify", path, "--policy", policy, "--json")
    (found,) = done.document["files"]
    (dark,) = found["dark_columns"]
    assert (done.code, dark["column"], dark["key_id"], "case 4711" in dark["why"]) == (0, "ssn", "pii", True)
    assert "column ssn cannot be read: key 'pii' was shredded by" in run("verify", path, "--policy", policy).output
    content = bytearray(path.read_bytes())
    path.write_bytes(content[:4] + bytes([content[4] ^ 1]) + content[5:])
    assert run("verify", path, "--policy", policy).code == 74
    path.write_bytes(content)
    for tombstone in (tmp_path / "state" / "keys" / "tombstones").iterdir():
        tombstone.unlink()
    assert run("verify", path, "--policy", policy).code == 69


def shred(policy: Path, key_id: str, reason: str) -> None:
    """Delete a key as `sparkcrypt shred apply` does, which needs Spark, and leave its tombstone."""
    loaded = load_policy(policy)
    with key_audit(LocalStateStore(policy.parent / "state"), loaded, "shred apply") as audit:
        audit.begin(key_id, reason, "probe", [])
        audit.bury(key_id, reason, "2026-12-01T00:00:00Z", [], "told")
    LocalKeyService(loaded.key_service).delete_key(key_id)


def test_the_report_is_written(tmp_path: Path, policy: Path, keys: KeyService) -> None:
    """--report holds the same document as standard output, and says first what it is."""
    path, report = write_encrypted(tmp_path / "a.parquet", keys), tmp_path / "report.json"
    done = run("verify", path, "--policy", policy, "--json", "--report", report)
    assert json.loads(report.read_text()) == {"kind": "sparkcrypt verify", "version": 1, **json.loads(done.output)}


def test_a_failure_is_reported_too(tmp_path: Path, policy: Path) -> None:
    """A command that fails leaves a report with its outcome, the error and the exit code."""
    report = tmp_path / "report.json"
    done = run("verify", tmp_path / "nosuch", "--policy", policy, "--json", "--report", report)
    assert done.code == 78
    import json

    found = json.loads(report.read_text())
    assert (found["outcome"], found["verified"]) == ("failed", False)
    assert found["error"] == {**done.document["error"], "exit_code": 78}


def test_a_report_that_could_not_be_written_is_refused_first(tmp_path: Path, policy: Path) -> None:
    """A report in a folder that is not there ends the command before it does anything."""
    done = run("verify", tmp_path / "nosuch", "--policy", policy, "--report", tmp_path / "no" / "report.json")
    assert done.code == 78
    assert "--report" in done.errors


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


@pytest.mark.timeout(60)
@pytest.mark.parametrize("plant", KINDS)
@pytest.mark.parametrize("opened", [inspect_file, inspect_orc])
def test_data_file(tmp_path: Path, plant: Callable[[Path], None], opened: Callable[[str], object]) -> None:
    """A file that is named for reading is refused by what it is, or as no file of the format."""
    plant(tmp_path / "f")
    with pytest.raises(FormatError, match=str(tmp_path / "f")):
        opened(str(tmp_path / "f"))


@pytest.mark.timeout(60)
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


@pytest.mark.timeout(60)
@pytest.mark.parametrize("plant", [make_pipe, make_endless])
@pytest.mark.parametrize("suffix", ["parquet", "orc"])
def test_table_outside_spark(policy: Path, tmp_path: Path, plant: Callable[[Path], None], suffix: str) -> None:
    """Pyarrow would wait for a pipe; a link is refused by the listing."""
    (tmp_path / "d").mkdir()
    plant(tmp_path / "d" / f"part-0.{suffix}")
    opened = open_table if suffix == "parquet" else open_orc
    with pytest.raises((FormatError, ConfigError)):
        opened(str(tmp_path / "d" / ("" if suffix == "parquet" else "part-0.orc")), load_policy(policy))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("plant", KINDS)
def test_state_record(policy: Path, tmp_path: Path, plant: Callable[[Path], None]) -> None:
    """Its run is listed as damaged with the record's name, and the others as they are."""
    store, options = LocalStateStore(tmp_path / "state"), {"engine": "spark", "where": None, "output": None}
    for run_id in ("20260101T000000000Z-aaaaaa", "20260201T000000000Z-bbbbbb"):
        plain: dict[str, Any] = {**options, "exclusive": False}
        begun = start_run(store, RunRecord("uuid-1", "sales.customers", run_id, "digest", {}, plain, 1))
        begun.append("unit_listed", unit="p=0", files=[])
    record = tmp_path / "state/log/uuid-1/00000002.json"
    record.unlink()
    plant(record)
    with pytest.raises(VerificationError, match=r"000002\.json"):
        store.read("log/uuid-1/00000002.json")
    found = run("backfill", "list", "--policy", policy, "--json").document
    assert [listed["state"] for listed in found] == ["damaged", "unfinished"]
    assert "000002.json" in found[0]["damage"]


@pytest.mark.timeout(60)
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


@pytest.mark.timeout(60)
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


@pytest.mark.timeout(60)
def test_lock_of_a_store(tmp_path: Path) -> None:
    """A pipe in its place is no lock."""
    os.mkfifo(tmp_path / LOCK)
    with pytest.raises(FormatError, match="is a pipe"), LocalFolder(tmp_path).lock():
        pass


@pytest.mark.timeout(60)
@pytest.mark.parametrize("content", [b"", b"12345678"])
def test_regular_file(tmp_path: Path, content: bytes) -> None:
    """It is read whole up to the limit; folders of its path may be links."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "f").write_bytes(content)
    assert read_regular(tmp_path / "link" / "f", 8) == content
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path / "real", 8)

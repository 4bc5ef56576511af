from __future__ import annotations

from pathlib import Path

import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.audit.key_audit import key_audit
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.policy.load import load_policy
from tests.unit.parquet.handmade import data_page, index_page, make_file

from .conftest import relabel, rows, run, write_encrypted


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
    for tombstone in (tmp_path / "state" / "tombstones").iterdir():
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
    """--report holds the same document as standard output."""
    path, report = write_encrypted(tmp_path / "a.parquet", keys), tmp_path / "report.json"
    done = run("verify", path, "--policy", policy, "--json", "--report", report)
    assert report.read_text() == done.output


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

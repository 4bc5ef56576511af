from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from sparkcrypt.keys.service import KeyService

from .conftest import rows, run, write_encrypted


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
    assert [one["error"] is None for one in done.document["files"]] == [True, False]
    assert done.errors == "error: 1 difference found\n"


def test_a_file_in_clear_is_told_to_be_that(tmp_path: Path, policy: Path, keys: KeyService) -> None:
    """A file that is not encrypted is no failure for itself, and is not called authentic."""
    pq.write_table(rows(), tmp_path / "a.parquet")
    done = run("verify", tmp_path / "a.parquet", "--policy", policy)
    assert done.code == 0
    assert "not encrypted" in done.output
    assert "authenticated: all" not in done.output


def test_a_key_that_is_gone_is_the_key_services_error(tmp_path: Path, policy: Path, keys: KeyService) -> None:
    """A missing column key ends with 69, since nothing could be checked."""
    path = write_encrypted(tmp_path / "a.parquet", keys)
    next((tmp_path / "keys").glob("pii*")).unlink()
    assert run("verify", path, "--policy", policy).code == 69


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

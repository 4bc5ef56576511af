from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.arrow import open_table
from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.load import load_policy

from .conftest import rows, run, write_encrypted

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

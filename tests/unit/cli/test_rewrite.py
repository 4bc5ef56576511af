from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.keys.service import KeyService

from .conftest import run

TABLE = pa.table({"id": [1, 2, 3], "ssn": ["a", "b", None], "tel": [{"home": "1", "work": "2"}] * 3})


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A folder of two partitions, a file each, and a file that no reader would list."""
    for day in ("2026-01-05", "2026-02-05"):
        folder = tmp_path / "plain" / f"day={day}"
        folder.mkdir(parents=True)
        pq.write_table(TABLE, folder / "part-0.parquet")
    (tmp_path / "plain" / "_SUCCESS").touch()
    return tmp_path / "plain"


def states(path: Path, policy: Path) -> dict[str, str | None]:
    """Return column -> key id of every encrypted column below a path."""
    found = run("inspect", path, "--policy", policy, "--json").document
    return {
        f"{Path(one['path']).parent.name}/{name}": column["key_id"]
        for one in found
        for name, column in one["columns"].items()
        if column["encrypted"]
    }


def test_a_folder_goes_there_and_back(tmp_path: Path, plain: Path, policy: Path, keys: KeyService) -> None:
    """Files keep their places, columns and groups get their keys, and what is decrypted again is as it was."""
    done = run("rewrite", plain, tmp_path / "e", "--policy", policy, "--column-keys", "pii:ssn,tel.home", "--json")
    assert done.code == 0, done.errors
    assert [one["rows"] for one in done.document] == [3, 3]
    assert states(tmp_path / "e", policy) == {
        f"day={day}/{name}": "pii" for day in ("2026-01-05", "2026-02-05") for name in ("ssn", "tel.home")
    }
    assert run("rewrite", tmp_path / "e", tmp_path / "p", "--policy", policy, "--decrypt").code == 0
    for day in ("2026-01-05", "2026-02-05"):
        assert pq.ParquetFile(tmp_path / "p" / f"day={day}" / "part-0.parquet").read().equals(TABLE)
    assert not (tmp_path / "p" / "_SUCCESS").exists()


def test_rewrapped_files_have_other_key_material_and_the_same_data(
    tmp_path: Path, plain: Path, policy: Path, keys: KeyService
) -> None:
    """--rewrap keeps every byte before the footer and each column's key id."""
    encrypted, again = tmp_path / "e", tmp_path / "r"
    assert run("rewrite", plain, encrypted, "--policy", policy, "--column-keys", "pii:ssn").code == 0
    assert run("rewrite", encrypted, again, "--policy", policy, "--rewrap").code == 0
    assert states(again, policy) == states(encrypted, policy)
    for file in encrypted.rglob("*.parquet"):
        before, after = file.read_bytes(), (again / file.relative_to(encrypted)).read_bytes()
        assert before != after
        assert before[: len(before) // 4] == after[: len(before) // 4]


def test_a_rewrapped_file_keeps_its_name(tmp_path: Path, plain: Path, policy: Path, keys: KeyService) -> None:
    """Its name is part of its identity, which no new footer changes, so under another name readers would refuse it."""
    run("rewrite", plain, tmp_path / "e", "--policy", policy, "--column-keys", "pii:ssn")
    source = tmp_path / "e" / "day=2026-01-05" / "part-0.parquet"
    done = run("rewrite", source, tmp_path / "x" / "other.parquet", "--policy", policy, "--rewrap")
    assert (done.code, "part-0.parquet" in done.errors) == (74, True)
    assert not (tmp_path / "x").exists()


def test_a_moved_file_is_not_decrypted(tmp_path: Path, plain: Path, policy: Path, keys: KeyService) -> None:
    """A file that was renamed after it was encrypted is refused."""
    run("rewrite", plain, tmp_path / "e", "--policy", policy, "--column-keys", "pii:ssn")
    source = tmp_path / "e" / "day=2026-01-05" / "part-0.parquet"
    source.rename(source.with_name("renamed.parquet"))
    done = run("rewrite", tmp_path / "e", tmp_path / "p", "--policy", policy, "--decrypt")
    assert (done.code, "renamed.parquet" in done.errors) == (74, True)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ((), 64, "--column-keys"),
        (("--decrypt", "--rewrap"), 64, "--column-keys"),
        (("--column-keys", "pii"), 65, "KEY:COLUMN"),
        (("--column-keys", ";"), 65, "names no column"),
        (("--column-keys", "pii:ssn;pii:ssn"), 65, "ssn twice"),
        (("--column-keys", "pii:nope"), 65, "no column nope"),
        (("--column-keys", "nokey:ssn"), 69, "nokey"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path, plain: Path, policy: Path, keys: KeyService, options: tuple[str, ...], code: int, said: str
) -> None:
    """Each with its exit code, the reason, and no target."""
    done = run("rewrite", plain, tmp_path / "e", "--policy", policy, *options)
    assert (done.code, said in done.errors) == (code, True), done.errors
    assert not list((tmp_path / "e").rglob("*.parquet"))


def test_nothing_is_ever_replaced(tmp_path: Path, plain: Path, policy: Path, keys: KeyService) -> None:
    """A target with data in it is refused, and stays as it is."""
    target = tmp_path / "e" / "mine.parquet"
    target.parent.mkdir()
    target.write_bytes(b"mine")
    done = run("rewrite", plain, target.parent, "--policy", policy, "--column-keys", "pii:ssn")
    assert (done.code, "is there already" in done.errors) == (78, True)
    assert [file.read_bytes() for file in target.parent.iterdir()] == [b"mine"]


def test_an_encrypted_file_is_not_encrypted_again(tmp_path: Path, plain: Path, policy: Path, keys: KeyService) -> None:
    """--column-keys would silently drop the keys of its other columns."""
    run("rewrite", plain, tmp_path / "e", "--policy", policy, "--column-keys", "pii:ssn")
    done = run("rewrite", tmp_path / "e", tmp_path / "f", "--policy", policy, "--column-keys", "pii:id")
    assert (done.code, "encrypted already" in done.errors) == (78, True)


def test_one_bad_file_does_not_hold_up_the_others(tmp_path: Path, plain: Path, policy: Path, keys: KeyService) -> None:
    """The others are written and proven; the bad one has no target and decides the exit code."""
    bad = plain / "day=2026-01-05" / "part-0.parquet"
    content = bytearray(bad.read_bytes())
    content[4:40] = bytes(36)
    bad.write_bytes(bytes(content))
    done = run("rewrite", plain, tmp_path / "e", "--policy", policy, "--column-keys", "pii:ssn,id", "--workers", 1)
    assert (done.code, "1 file of 2 failed" in done.errors) == (66, True), done.errors
    assert [file.parent.name for file in (tmp_path / "e").rglob("*.parquet")] == ["day=2026-02-05"]
    assert not list((tmp_path / "e").rglob("*.partial"))

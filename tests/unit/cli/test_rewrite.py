from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.cli.frame.named_files import policy_keys
from sparkcrypt.files.parquet import KeyRequest, inspect_file, read_footer, verify_file
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.load import load_policy

from .conftest import relabel, rewrite, run

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
        f"{Path(file['path']).parent.name}/{name}": column["key_id"]
        for file in found
        for name, column in file["columns"].items()
        if column["encrypted"]
    }


def test_a_folder_goes_there_and_back(tmp_path: Path, plain: Path, policy: Path, keys: KeyService) -> None:
    """Files keep their places, columns and groups get their keys, and what is decrypted again is as it was."""
    done = run("rewrite", plain, tmp_path / "e", "--policy", policy, "--column-keys", "pii:ssn,tel.home", "--json")
    assert done.code == 0, done.errors
    assert [file["rows"] for file in done.document] == [3, 3]
    assert states(tmp_path / "e", policy) == {
        f"day={day}/{name}": "pii" for day in ("2026-01-05", "2026-02-05") for name in ("ssn", "tel.home")
    }
    assert run("rewrite", tmp_path / "e", tmp_path / "p", "--policy", policy, "--decrypt").code == 0
    for day in ("2026-01-05", "2026-02-05"):
        assert pq.ParquetFile(tmp_path / "p" / f"day={day}" / "part-0.parquet").read().equals(TABLE)
    assert not (tmp_path / "p" / "_SUCCESS").exists()


def test_a_folder_with_a_list_of_its_files_is_refused(
    tmp_path: Path, plain: Path, policy: Path, keys: KeyService
) -> None:
    """A copy of all files there would have rows again that the list has left out."""
    (plain / "_delta_log").mkdir()
    (plain / "_delta_log" / "00000000000000000000.json").write_text("{}")
    done = run("rewrite", plain, tmp_path / "e", "--policy", policy, "--column-keys", "pii:ssn")
    assert done.code == 65 and "has _delta_log: a Delta table keeps its own list of files" in done.errors
    assert not (tmp_path / "e").exists()


def test_rewrapped_files_have_other_key_material_and_the_same_data(
    tmp_path: Path, plain: Path, policy: Path, keys: KeyService
) -> None:
    """--rewrap keeps every byte before the footer and each column's key id."""
    encrypted, again = tmp_path / "e", tmp_path / "r"
    assert rewrite(plain, encrypted, "--policy", policy, "--column-keys", "pii:ssn").code == 0
    assert rewrite(encrypted, again, "--policy", policy, "--rewrap").code == 0
    assert states(again, policy) == states(encrypted, policy)
    for file in encrypted.rglob("*.parquet"):
        before, after = file.read_bytes(), (again / file.relative_to(encrypted)).read_bytes()
        assert before != after
        assert before[: len(before) // 4] == after[: len(before) // 4]


def test_a_rewrapped_file_keeps_its_name(tmp_path: Path, plain: Path, policy: Path, keys: KeyService) -> None:
    """Its name is part of its identity, which no new footer changes, so under another name readers would refuse it."""
    rewrite(plain, tmp_path / "e", "--policy", policy, "--column-keys", "pii:ssn")
    source = tmp_path / "e" / "day=2026-01-05" / "part-0.parquet"
    done = rewrite(source, tmp_path / "x" / "other.parquet", "--policy", policy, "--rewrap")
    assert (done.code, "part-0.parquet" in done.errors) == (74, True)
    assert not (tmp_path / "x").exists()


def test_a_moved_file_is_not_decrypted(tmp_path: Path, plain: Path, policy: Path, keys: KeyService) -> None:
    """A file that was renamed after it was encrypted is refused."""
    rewrite(plain, tmp_path / "e", "--policy", policy, "--column-keys", "pii:ssn")
    source = tmp_path / "e" / "day=2026-01-05" / "part-0.parquet"
    source.rename(source.with_name("renamed.parquet"))
    done = rewrite(tmp_path / "e", tmp_path / "p", "--policy", policy, "--decrypt")
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
    done = rewrite(plain, tmp_path / "e", "--policy", policy, *options)
    assert (done.code, said in done.errors) == (code, True), done.errors
    assert not list((tmp_path / "e").rglob("*.parquet"))


def test_nothing_is_ever_replaced(tmp_path: Path, plain: Path, policy: Path, keys: KeyService) -> None:
    """A target with data in it is refused, and stays as it is."""
    target = tmp_path / "e" / "mine.parquet"
    target.parent.mkdir()
    target.write_bytes(b"mine")
    done = rewrite(plain, target.parent, "--policy", policy, "--column-keys", "pii:ssn")
    assert (done.code, "is there already" in done.errors) == (78, True)
    assert [file.read_bytes() for file in target.parent.iterdir()] == [b"mine"]


def test_no_column_loses_its_key_silently(tmp_path: Path, plain: Path, policy: Path, keys: KeyService) -> None:
    """--column-keys over an encrypted source must name every column that has a key; those it does not are told."""
    rewrite(plain, tmp_path / "e", "--policy", policy, "--column-keys", "pii:ssn,tel")
    done = rewrite(tmp_path / "e", tmp_path / "f", "--policy", policy, "--column-keys", "pii:id,tel.home")
    assert (done.code, "lose their keys: ssn, tel.work" in done.errors) == (78, True), done.errors
    assert not (tmp_path / "f").exists()


def test_an_encrypted_file_gets_new_data_keys(tmp_path: Path, plain: Path, policy: Path, keys: KeyService) -> None:
    """--column-keys re-keys where it names them all: under other master keys, with no plaintext on the way."""
    keys.create("other")
    rewrite(plain, tmp_path / "e", "--policy", policy, "--column-keys", "pii:ssn")
    done = rewrite(tmp_path / "e", tmp_path / "f", "--policy", policy, "--column-keys", "other:ssn,id")
    assert done.code == 0, done.errors
    assert set(states(tmp_path / "f", policy).values()) == {"other"}
    assert len(states(tmp_path / "f", policy)) == 4
    rewrite(tmp_path / "f", tmp_path / "p", "--policy", policy, "--decrypt", "--any-key")
    assert pq.ParquetFile(tmp_path / "p" / "day=2026-01-05" / "part-0.parquet").read().equals(TABLE)


@pytest.mark.parametrize("how", ["relabelled", "renamed"])
def test_a_source_that_is_not_what_it_was_is_not_re_keyed(
    tmp_path: Path, plain: Path, policy: Path, keys: KeyService, how: str
) -> None:
    """New keys would make an altered file authentic."""
    rewrite(plain, tmp_path / "e", "--policy", policy, "--column-keys", "pii:ssn")
    source = tmp_path / "e" / "day=2026-01-05" / "part-0.parquet"
    if how == "renamed":
        source.rename(source.with_name("renamed.parquet"))
    else:
        relabel(source)
    done = rewrite(tmp_path / "e", tmp_path / "f", "--policy", policy, "--column-keys", "pii:ssn")
    assert done.code == 74, done.errors
    assert not (tmp_path / "f").exists()


def test_what_nothing_authenticated_is_printed(tmp_path: Path, plain: Path, policy: Path, keys: KeyService) -> None:
    """Pages that were under CTR are named, although what they became is under GCM."""
    gcm = policy.read_text()
    policy.write_text(gcm.replace("AES_GCM_V1", "AES_GCM_CTR_V1"))
    rewrite(plain, tmp_path / "e", "--policy", policy, "--column-keys", "pii:ssn")
    policy.write_text(gcm.replace("data_key_bits", "algorithm_history: [AES_GCM_CTR_V1]\ndata_key_bits"))
    done = rewrite(tmp_path / "e", tmp_path / "f", "--policy", policy, "--column-keys", "pii:ssn")
    assert done.code == 0, done.errors
    assert "not authenticated: source: pages of column ssn" in done.output


@pytest.mark.parametrize("rewrap", [False, True])
def test_readers_ask_once_for_each_master_key(
    tmp_path: Path, plain: Path, policy: Path, keys: KeyService, rewrap: bool
) -> None:
    """However many processes wrote the files, they share a KEK for each master key."""
    made = tmp_path / "e"
    run("rewrite", plain, made, "--policy", policy, "--column-keys", "pii:ssn", "--workers", 2)
    if rewrap:
        before, made = made, tmp_path / "r"
        assert run("rewrite", before, made, "--policy", policy, "--rewrap", "--workers", 2).code == 0
        assert not set(keks(made, policy)) & set(keks(before, policy))
    found = keks(made, policy)
    assert len(list(made.rglob("*.parquet"))) == 2
    assert sorted(key_id for key_id, _ in found) == ["footer", "pii"], found


@pytest.mark.parametrize("rewrap", [False, True])
def test_footers_tell_under_which_policy_they_were_made(
    tmp_path: Path, plain: Path, policy: Path, keys: KeyService, rewrap: bool
) -> None:
    """Every file has the policy's digest."""
    loaded, made = load_policy(policy), tmp_path / "e"
    rewrite(plain, made, "--policy", policy, "--column-keys", "pii:ssn")
    if rewrap:
        rewrite(made, tmp_path / "r", "--policy", policy, "--rewrap")
        made = tmp_path / "r"
    for file in made.rglob("*.parquet"):
        metadata = read_footer(file, retrieve_key=policy_keys(loaded)).metadata
        assert metadata is not None
        assert loaded.digest() in str(metadata.struct)


def test_files_of_the_current_folder(
    tmp_path: Path, plain: Path, policy: Path, keys: KeyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bare name has the partition of the folder that one is in, for writing and for reading."""
    monkeypatch.chdir(plain / "day=2026-01-05")
    done = rewrite("part-0.parquet", "e.parquet", "--policy", policy, "--column-keys", "pii:ssn")
    assert done.code == 0, done.errors
    assert run("verify", "e.parquet", "--policy", policy).code == 0
    assert rewrite("e.parquet", "p.parquet", "--policy", policy, "--decrypt").code == 0
    found = inspect_file("e.parquet")
    assert found.aad_prefix == b"-/day=2026-01-05/e.parquet\0"


def test_help_does_not_promise_revocation() -> None:
    """--rewrap is not what to do with a compromised key, and says so."""
    assert "revokes nothing" in run("rewrite", "--help").output


def keks(path: Path, policy: Path) -> set[tuple[str, str | None]]:
    """Return (master key id, wrapped KEK) of all key material below a path."""
    found: set[tuple[str, str | None]] = set()
    open_key = policy_keys(load_policy(policy))

    def retrieve(request: KeyRequest) -> bytes:
        material = parse_key_material(request.key_metadata or b"")
        found.add((material.master_key_id, material.wrapped_kek))
        return open_key(request)

    for file in path.rglob("*.parquet"):
        verify_file(file, retrieve_key=retrieve)
    return found


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

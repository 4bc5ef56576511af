from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from sparkcrypt.cli.frame.named_files import policy_keys
from sparkcrypt.files.orc import inspect_orc, read_tail, verify_orc
from sparkcrypt.files.orc.file.encryption import StreamCipher
from sparkcrypt.files.orc.file.stripe import DATA, Stream, read_pieces
from sparkcrypt.files.orc.rewrite import stripe
from sparkcrypt.files.source import Input
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.load import load_policy
from sparkcrypt.schema import join_dotted
from tests.unit.orc.corpus import file

from .conftest import rewrite, run

ROWS = pa.table({"id": [1, 2, 3], "ssn": ["a", "b", None], "tel": [{"home": "1", "work": "2"}] * 3})


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A folder with an ORC file in a partition, and a Parquet file in another."""
    for day in ("2026-01-05", "2026-02-05"):
        (tmp_path / "plain" / f"day={day}").mkdir(parents=True)
    pyarrow.orc.write_table(ROWS, tmp_path / "plain" / "day=2026-01-05" / "part-0", compression="zstd")
    pq.write_table(ROWS, tmp_path / "plain" / "day=2026-02-05" / "part-0")
    return tmp_path / "plain"


def orc_file(folder: Path) -> Path:
    """Return the ORC file of a folder."""
    return folder / "day=2026-01-05" / "part-0"


def key_ids(folder: Path) -> dict[str, str | None]:
    """Return column -> key id of what the ORC file of a folder encrypts."""
    columns = inspect_orc(orc_file(folder)).columns
    return {join_dotted(path): column.key_id for path, column in columns.items() if column.encrypted}


def test_a_folder_of_both_formats_goes_there_and_back(
    tmp_path: Path, plain: Path, policy: Path, keys: KeyService
) -> None:
    """The ORC file is told by its first bytes, keeps its place, opens by the policy's keys, and reads as it was."""
    done = run("rewrite", plain, tmp_path / "e", "--policy", policy, "--column-keys", "pii:ssn,tel", "--json")
    assert done.code == 0, done.errors
    assert [entry["rows"] for entry in done.document] == [3, 3]
    assert done.document[0]["unauthenticated"] == ["all of it: ORC authenticates nothing"]
    assert key_ids(tmp_path / "e") == {"ssn": "pii", "tel.home": "pii", "tel.work": "pii"}
    masked = pyarrow.orc.read_table(orc_file(tmp_path / "e"))
    assert (masked.column("id").to_pylist(), masked.column("ssn").null_count) == ([1, 2, 3], 3)
    assert run("verify", "--policy", policy, tmp_path / "e").code == 0
    assert run("rewrite", tmp_path / "e", tmp_path / "p", "--policy", policy, "--decrypt").code == 0
    assert pyarrow.orc.read_table(orc_file(tmp_path / "p")).equals(ROWS)
    assert pq.ParquetFile(tmp_path / "p" / "day=2026-02-05" / "part-0").read().equals(ROWS)


@pytest.mark.slow
def test_keys_are_wrapped_again_and_made_anew(tmp_path: Path, plain: Path, policy: Path, keys: KeyService) -> None:
    """--rewrap keeps every byte before the footer; --column-keys over an encrypted file changes each."""
    keys.create("other")
    rewrite(plain, tmp_path / "e", "--policy", policy, "--column-keys", "pii:ssn,tel.home")
    done = rewrite(tmp_path / "e", tmp_path / "r", "--policy", policy, "--rewrap")
    assert done.code == 0, done.errors
    before, after = orc_file(tmp_path / "e").read_bytes(), orc_file(tmp_path / "r").read_bytes()
    end = read_tail(before).footer_offset
    assert before[:end] == after[:end] and before != after
    assert key_ids(tmp_path / "r") == key_ids(tmp_path / "e") == {"ssn": "pii", "tel.home": "pii"}
    done = rewrite(tmp_path / "r", tmp_path / "k", "--policy", policy, "--column-keys", "other:ssn,tel.home")
    assert done.code == 0, done.errors
    assert "not authenticated: source: all of it" in done.output
    assert set(key_ids(tmp_path / "k").values()) == {"other"}
    made = orc_file(tmp_path / "k").read_bytes()
    assert made[: end // 2] != before[: end // 2]
    open_key = policy_keys(load_policy(policy), any_key=True)
    digests = verify_orc(orc_file(plain)).digests
    verify_orc(made, retrieve_key=open_key, equal_to=digests)


@pytest.mark.parametrize(
    ("source", "options", "code", "said"),
    [
        ("java_zlib", ("--rewrap",), 78, "is not encrypted"),
        ("java_zlib", ("--column-keys", "pii:nope"), 65, "no column nope; allowed: id, name, st.x"),
        ("java_zlib", ("--column-keys", "pii:st,st.x"), 78, "cannot nest encrypted columns"),
        ("java_zlib", ("--column-keys", "nokey:name"), 69, "nokey"),
        (
            "java_zlib_encrypted",
            ("--column-keys", "pii:name", "--any-key"),
            78,
            "would lose their keys: dec, li._elem.n, st.y, ts",
        ),
        ("java_zlib_encrypted", ("--decrypt", "--any-key"), 66, "is not key material"),
        ("java_types", ("--column-keys", "pii:kv._key"), 78, "the key of a map"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    tmp_path: Path, policy: Path, keys: KeyService, source: str, options: tuple[str, ...], code: int, said: str
) -> None:
    """Each with its exit code, the reason, and no target."""
    done = rewrite(file(source), tmp_path / "out", "--policy", policy, *options)
    assert (done.code, said in done.errors) == (code, True), (done.code, done.errors)
    assert not (tmp_path / "out").exists()


def test_lost_bloom_filters_are_told(tmp_path: Path, policy: Path, keys: KeyService) -> None:
    """The command prints what the target has not, and proves the rest."""
    rows = pa.table({"id": list(range(100)), "name": [str(n) for n in range(100)]})
    pyarrow.orc.write_table(rows, tmp_path / "s", bloom_filter_columns=[1, 2])
    done = rewrite(tmp_path / "s", tmp_path / "e", "--policy", policy, "--column-keys", "pii:name")
    assert done.code == 0, done.errors
    assert "note: the Bloom filter of name was left out" in done.output and "filter of id" not in done.output


def test_a_target_that_is_not_equal_is_removed(
    tmp_path: Path, policy: Path, keys: KeyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof is not the rewrite's own: a rewrite that alters a stream is found out."""

    def altered(opened: Input, stream: Stream, cipher: StreamCipher | None) -> Iterator[bytes]:
        for piece in read_pieces(opened, stream, cipher):
            yield bytes([piece[0] ^ (stream.kind == DATA)]) + piece[1:]

    monkeypatch.setattr(stripe, "read_pieces", altered)
    done = rewrite(file("java_none"), tmp_path / "e", "--policy", policy, "--column-keys", "pii:name")
    assert (done.code, "another in streams" in done.errors) == (74, True), done.errors
    assert not (tmp_path / "e").exists()


def test_a_file_that_was_moved_is_74(tmp_path: Path, policy: Path, keys: KeyService) -> None:
    """`verify` and each action of `rewrite` refuse it, and `rewrap` a target elsewhere; in its place it is right."""
    (tmp_path / "p=1").mkdir()
    made, options = tmp_path / "p=1" / "a.orc", ("--policy", policy)
    assert rewrite(file("java_zlib"), made, *options, "--column-keys", "pii:name").code == 0
    assert run("inspect", made, "--json").document[0]["identity"] == "-/p=1/a.orc\0"
    assert run("verify", made, *options).code == 0
    (tmp_path / "p=2").mkdir()
    for place, said in {
        "p=2/a.orc": "was written for partition 'p=1' and moved",
        "p=1/b.orc": "was written as 'a.orc' and renamed",
    }.items():
        moved = Path(shutil.copy(made, tmp_path / place))
        done = run("verify", moved, *options, "--json")
        assert (done.code, said in done.document["files"][0]["error"]) == (74, True), done.errors
        for action in (("--rewrap",), ("--decrypt",), ("--column-keys", "pii:name")):
            done = rewrite(moved, tmp_path / "out.orc", *options, *action)
            assert (done.code, said in done.errors) == (74, True), done.errors
        moved.unlink()
    done = rewrite(made, tmp_path / "out.orc", *options, "--rewrap")
    assert (done.code, "was written as 'a.orc'" in done.errors) == (74, True), done.errors
    assert not (tmp_path / "out.orc").exists()

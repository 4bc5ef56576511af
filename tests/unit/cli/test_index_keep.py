from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.files.parquet import DataKey, FileEncryption, rewrite_file
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.service import KeyService
from sparkcrypt.text import size_of

from .conftest import Ended, run

UUID = "0a1b2c3d-0000-4000-8000-000000000001"


@pytest.fixture
def table(policy: Path, keys: KeyService) -> Path:
    """A folder of encrypted files of one table, and a policy that says where indexes are."""
    policy.write_text(policy.read_text() + "index: {location: indexes}\n")
    folder = policy.parent / "data"
    for number in range(3):
        write(folder, f"day={number}/f.parquet", keys, number)
    return folder


def write(folder: Path, name: str, keys: KeyService, number: int, at: int = 1_700_000_000) -> Path:
    """Write an encrypted file of ten rows."""
    path, plain = folder / name, folder.parent / "plain"
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = range(number * 10, number * 10 + 10)
    pq.write_table(pa.table({"id": list(ids), "ssn": [f"{row:03}-secret" for row in ids]}), plain)
    maker = DataKeyMaker(keys, data_key_bits=128)
    footer, own = (DataKey(*maker.make(key, is_footer_key=key == "footer")) for key in ("footer", "pii"))
    prefix = f"{UUID}/{name}".encode() + b"\0"
    path.unlink(missing_ok=True)
    rewrite_file(plain, path, encryption=FileEncryption(footer, columns={("ssn",): own}, aad_prefix=prefix))
    os.utime(path, (at, at))
    return path


def index(verb: str, table: Path, policy: Path, *more: object) -> Ended:
    """Run a command over the table's store."""
    return run("index", verb, "--path", table, "--policy", policy, "--json", *more)


def create(table: Path, policy: Path, *more: object) -> Any:
    """Make the store."""
    return index("create", table, policy, "--column", "id", "--column", "ssn", *more)


def test_the_store_is_where_the_policy_says(table: Path, policy: Path) -> None:
    """Below the policy's place each table has a folder of its UUID, which the files tell."""
    made = create(table, policy, "--partition", "day=integer").document
    assert (made["store"], made["table_uuid"], made["objects"]) == (str(policy.parent / "indexes" / UUID), UUID, 3)
    shown = run("index", "show", "--path", made["store"], "--policy", policy, "--json").document
    assert shown["partitions"] == [{"column": "day", "type": "integer"}]


def test_a_store_is_made_kept_checked_and_dropped(table: Path, policy: Path, keys: KeyService) -> None:
    """The life of a store: what each command says of it, and that its generation goes on after it was dropped."""
    create(table, policy)
    write(table, "day=3/f.parquet", keys, 3)
    (table / "day=0" / "f.parquet").unlink()
    stale = index("verify", table, policy).document
    assert (stale["fresh"], stale["same"], stale["new"]) == (False, 2, [str(table / "day=3" / "f.parquet")])
    assert [name.partition("#")[0] for name in stale["gone"]] == [str(table / "day=0" / "f.parquet")]
    made = index("refresh", table, policy).document
    assert (made["generation"], made["read"], made["objects"], made["written"]) == (2, 1, 3, True)
    assert index("verify", table, policy).document["fresh"] is True
    assert index("refresh", table, policy).document["written"] is False
    dropped = index("drop", table, policy).document
    assert (len(dropped["deleted"]), Path(dropped["store"]).exists()) == (2, False)
    assert index("refresh", table, policy).code == 66
    assert create(table, policy).document["generation"] == 4


def test_a_replayed_store_is_not_used(table: Path, policy: Path, keys: KeyService) -> None:
    """A store of before, brought back with all its files, ends with 74: the state directory knows a later one."""
    store = Path(create(table, policy).document["store"])
    shutil.copytree(store, policy.parent / "kept")
    write(table, "day=3/f.parquet", keys, 3)
    index("refresh", table, policy)
    shutil.rmtree(store)
    shutil.copytree(policy.parent / "kept", store)
    for verb in ("refresh", "verify"):
        done = index(verb, table, policy)
        assert done.code == 74 and "is of generation 1, and 2 was written last" in done.errors
    assert create(table, policy).document["generation"] == 3
    shutil.rmtree(store)
    index("create", table, policy, "--column", "id")
    index("drop", table, policy)
    shutil.copytree(policy.parent / "kept", store)
    assert index("verify", table, policy).code == 74


def test_altered_files_end_with_74(table: Path, policy: Path, keys: KeyService) -> None:
    """A file with the name, time and length of the one that was indexed is found by its footer's digest."""
    create(table, policy)
    path = table / "day=1" / "f.parquet"
    length = path.stat().st_size
    write(table, "day=1/f.parquet", keys, 1)
    assert path.stat().st_size == length
    done = index("verify", table, policy)
    assert done.code == 74 and "has the name, time and length of the file that was indexed" in done.errors
    text = run("index", "verify", "--path", table, "--policy", policy)
    assert f"    {path}" in text.output.splitlines()


def test_a_store_is_not_dropped_where_a_table_is(table: Path, policy: Path) -> None:
    """The policy says where tables are; a store in such a place stays."""
    store = create(table, policy).document["store"]
    policy.write_text(policy.read_text().replace("{email: [pii]}", f"{{email: [pii]}}, location: {store}/part"))
    done = index("drop", table, policy)
    assert done.code == 74 and "table sales.customers is at" in done.errors
    assert Path(store).exists()


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (("--partition", "day=decimal(5,2)"), 78, "values of type 'decimal(5,2)' are not compared by their text"),
        (("--partition", "hour=integer"), 78, "'hour': is told by no folder; allowed: day"),
        (("--value", "day=5"), 78, "'day': folders tell its value, and it is given"),
        (("--column", "Day"), 78, "'Day': is a partition column, which every index has"),
        (("--partition", "day"), 64, "--partition day: is not COL=TEXT"),
        (("--to", "s3a://bucket/indexes"), 78, "stores are not kept on s3a:"),
    ],
)
def test_what_a_store_cannot_have_is_refused(
    table: Path, policy: Path, more: tuple[str, ...], code: int, said: str
) -> None:
    """Partitions that are not there or not compared, and file systems without a swap, are refused by name."""
    done = create(table, policy, *more)
    assert (done.code, said in done.errors) == (code, True), done.errors
    assert not (policy.parent / "indexes").exists()


def test_where_a_store_is_must_be_said(table: Path, policy: Path) -> None:
    """Without a place in the policy, or without a table's identity in the files, --to says it."""
    policy.write_text(policy.read_text().replace("index: {location: indexes}\n", ""))
    done = create(table, policy)
    assert done.code == 78 and "set index: {location: FOLDER} in it, or give --to" in done.errors
    policy.write_text(policy.read_text() + "index: {location: indexes}\n")
    bare = table.parent / "bare"
    bare.mkdir()
    pq.write_table(pa.table({"id": [1]}), bare / "a.parquet")
    os.utime(bare / "a.parquet", (1_700_000_000, 1_700_000_000))
    done = index("create", bare, policy, "--column", "id")
    assert done.code == 78 and "no file says of which table it is" in done.errors
    done = run("index", "refresh", "--path", "hdfs://nn/t", "--policy", policy)
    assert done.code == 78 and "is not reached without Spark's configuration" in done.errors


def test_progress_is_told_on_stderr(table: Path, policy: Path, keys: KeyService) -> None:
    """Where nobody looks at a terminal, lines say how many files are to be indexed and are; JSON stays alone."""
    made = create(table, policy)
    size = sum(file.stat().st_size for file in table.rglob("*.parquet"))
    assert made.document["objects"] == 3
    first, last = made.errors.splitlines()[0], made.errors.splitlines()[-1]
    assert first == f"{table}: 3 files, {size_of(size)} to index"
    assert last.startswith(f"3 of 3 files, {size_of(size)} of {size_of(size)}, ")
    write(table, "day=3/f.parquet", keys, 3)
    told = index("refresh", table, policy).errors.splitlines()
    assert told[0].startswith(f"{table}: 1 file, ")
    assert told[-1].startswith("1 of 1 file, ")
    assert index("refresh", table, policy).errors == ""

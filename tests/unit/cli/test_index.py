from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.cli.frame.named_files import policy_keys
from sparkcrypt.files.parquet import FOOTER_KEY, DataKey, FileEncryption, read_footer, rewrite_file
from sparkcrypt.files.parquet.rewrite.encryption import Protection
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.load import load_policy
from sparkcrypt.skipping.trusted.folder import LOCK, LocalFolder
from sparkcrypt.skipping.trusted.trust import Expected
from sparkcrypt.text import size_of
from tests.unit.skipping.stores import TABLE, bounds_of, index_field, list_type, minmax_type, schema_json, store_bytes
from tests.unit.skipping.whole_stores import open_store

from .conftest import Ended, run

UUID = "0a1b2c3d-0000-4000-8000-000000000001"

FIELDS = [
    index_field("ssn_minmax_3", minmax_type("string"), "minmax", ["ssn"], key_metadata="pii"),
    index_field("city_valuelist_4", list_type("string"), "valuelist", ["city"]),
    index_field("place_geo_5", "binary", "geo", ["place"]),
]
COLUMNS = {
    "ssn_minmax_3": bounds_of([("001-secret", "900-secret"), None, ("1", "2")], pa.string()),
    "city_valuelist_4": pa.array([["Oslo"], ["Lima"], None]),
    "place_geo_5": pa.array([b"", b"", b""]),
}
LABELS = {"encryption.column.keys": "pii:ssn_minmax_3.min", "encryption.footer.key": "footer"}


@pytest.fixture
def store(tmp_path: Path, keys: KeyService) -> Path:
    """A folder with an encrypted store: ``ssn`` under ``pii``, everything else under ``footer``."""
    folder = tmp_path / "store"
    folder.mkdir()
    maker = DataKeyMaker(keys, data_key_bits=128)
    footer, own = DataKey(*maker.make("footer", is_footer_key=True)), DataKey(*maker.make("pii", is_footer_key=False))
    columns: dict[tuple[str, ...], DataKey | Protection] = {("ssn_minmax_3", side): own for side in ("min", "max")}
    how = FileEncryption(footer, columns=columns, default=FOOTER_KEY)
    rewrite_file(
        store_bytes(schema_json(FIELDS, encryption=LABELS), COLUMNS), folder / "part-0.parquet", encryption=how
    )
    (folder / "_SUCCESS").touch()
    return folder


def test_a_store_in_clear_needs_no_key(tmp_path: Path) -> None:
    """Version, table, objects and indexes of a plaintext store are told, those that are not used with the reason."""
    (tmp_path / "part-0.parquet").write_bytes(store_bytes(schema_json(FIELDS, 3), COLUMNS))
    found = run("index", "show", "--path", tmp_path, "--json").document
    assert (found["version"], found["table"], found["objects"], found["labels"]) == (3, TABLE, 3, None)
    told = [(index["columns"], index["kind"], index["entries"], index["keys"]) for index in found["indexes"]]
    assert told == [
        (["ssn"], "minmax", 2, [None]),
        (["city"], "valuelist", 2, [None]),
        (["place"], "geo", None, [None]),
    ]
    assert "not known" in found["indexes"][2]["unused"]


def test_an_encrypted_store_takes_a_policy(store: Path, policy: Path) -> None:
    """Without keys the footer's key is all that is told; with them the store and the key of each index."""
    hidden = run("index", "show", "--path", store, "--json").document
    assert (hidden["version"], hidden["indexes"], hidden["files"][0]["footer_key"]) == (None, None, "footer")
    found = run("index", "show", "--path", store, "--policy", policy, "--json").document
    assert [(index["keys"], index["label"]) for index in found["indexes"]] == [
        (["pii"], "pii"),
        (["footer"], None),
        (["footer"], None),
    ]
    assert found["labels"] == {
        "footer_key": "footer",
        "column_keys": "pii:ssn_minmax_3.min",
        "footer_mode": "encrypted",
    }


def test_no_value_is_shown(store: Path, policy: Path) -> None:
    """What an index holds is a column's content: neither text nor JSON has it."""
    for more in ((), ("--json",)):
        done = run("index", "show", "--path", store, "--policy", policy, *more)
        assert done.code == 0
        assert "secret" not in done.output + done.errors and "Oslo" not in done.output + done.errors


def test_the_text_has_a_line_for_each_index(store: Path, policy: Path) -> None:
    """For a person each index has a line with its key and of how many objects it says something."""
    lines = run("index", "show", "--path", store, "--policy", policy).output.splitlines()
    assert lines[0].startswith(f"{store}: 1 file, ") and lines[0].endswith("; footers encrypted under footer")
    assert lines[1] == f"  version 4, of {TABLE}: 3 objects"
    assert [line.split()[:5] for line in lines[2:4]] == [
        ["index", "column", "type", "key", "objects"],
        ["minmax", "ssn", "string", "pii", "2"],
    ]


def test_an_index_whose_key_is_gone_is_listed(store: Path, policy: Path, tmp_path: Path) -> None:
    """Who may not use a column's key still sees the rest of the store."""
    next((tmp_path / "keys").glob("pii*")).unlink()
    found = run("index", "show", "--path", store, "--policy", policy, "--json").document
    assert [index["entries"] for index in found["indexes"]] == [None, 2, None]
    assert "denied" in found["indexes"][0]["unused"]


def test_a_folder_without_a_store_is_66(tmp_path: Path) -> None:
    """A file that is no store's ends with 66, and is named."""
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + b"\xff" * 40 + b"PAR1")
    done = run("index", "show", "--path", tmp_path)
    assert (done.code, done.output) == (66, "")
    assert "a.parquet" in done.errors


@pytest.fixture
def data(tmp_path: Path, keys: KeyService) -> Path:
    """Five files of ten rows: four encrypt ``ssn`` under ``pii``, the oldest is plaintext and has no ``score``."""
    folder = tmp_path / "data"
    for number in range(5):
        name, columns = f"day=1/{number}.parquet", ("id", "ssn", "score") if number else ("id", "ssn")
        write(folder, name, keys if number else None, number, at=1_700_000_000 + number, uuid=None, columns=columns)
    return folder


def write(
    folder: Path,
    name: str,
    keys: KeyService | None,
    number: int,
    *,
    at: int = 1_700_000_000,
    uuid: str | None = UUID,
    columns: Sequence[str] = ("id", "ssn"),
    key: str = "pii",
) -> Path:
    """Write a file of ten rows, encrypted if there are keys, and for a table if there is a UUID."""
    path, plain = folder / name, folder.parent / "plain"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    ids = [*range(number * 10, number * 10 + 10)]
    rows = {"id": ids, "ssn": [f"{row:03}-secret" for row in ids], "score": [row / 2 for row in ids]}
    pq.write_table(pa.table(rows).select(list(columns)), plain)
    how = None
    if keys is not None:
        maker = DataKeyMaker(keys, data_key_bits=128)
        footer, own = (DataKey(*maker.make(name, is_footer_key=name == "footer")) for name in ("footer", key))
        prefix = None if uuid is None else f"{uuid}/{name}".encode() + b"\0"
        how = FileEncryption(footer, columns={("ssn",): own}, aad_prefix=prefix)
    rewrite_file(plain, path, encryption=how)
    os.utime(path, (at, at))
    return path


def aged(path: Path) -> None:
    """Give a file a time of change long ago."""
    os.utime(path, (1_700_000_100, 1_700_000_100))


def created(data: Path, policy: Path, *columns: str, to: Path | None = None) -> Any:
    """Create a store beside the data."""
    chosen = [word for column in columns for word in ("--column", column)]
    return run(
        "index", "create", "--path", data, "--to", to or data.parent / "st", *chosen, "--policy", policy, "--json"
    )


def test_a_store_is_created_from_footers(data: Path, policy: Path) -> None:
    """Bounds of all files are in it, each index under its column's key, and it may be trusted."""
    made = created(data, policy, "id", "ssn", "score").document
    assert (made["generation"], made["objects"], made["left_out"]) == (1, 5, [])
    assert made["unknown"] == {"score": {"the file does not have the column": 1}}
    found = run("index", "show", "--path", data.parent / "st", "--policy", policy, "--json").document
    assert [(index["columns"], index["type"], index["keys"], index["entries"]) for index in found["indexes"]] == [
        (["id"], "long", ["footer"], 4),
        (["ssn"], "string", ["pii"], 4),
        (["score"], "double", ["footer"], 4),
    ]
    assert not any(b"secret" in path.read_bytes() for path in (data.parent / "st").iterdir())
    loaded = load_policy(policy)
    opened = open_store(LocalFolder(data.parent / "st"), policy_keys(loaded), Expected.of(loaded, None, {"ssn": "pii"}))
    assert len(opened.sidecar.objects) == 5
    for name, facts in opened.sidecar.objects.items():
        path = Path(name.partition("#")[0])
        assert (facts.length, facts.file_unique is None) == (path.stat().st_size, path.name == "0.parquet")
        assert name == f"{path}#{1_700_000_000_000 + 1000 * int(path.stem)}"
        footer = read_footer(path)
        assert facts.footer_digest == opened.sidecar.footer_digest(path.read_bytes()[footer.offset :])


def test_a_file_that_was_just_written_is_left_out(data: Path, policy: Path) -> None:
    """A file may be written again within the moment that its time of change tells."""
    (data / "day=1" / "3.parquet").touch()
    made = created(data, policy, "id").document
    assert (made["objects"], [Path(path).name for path in made["left_out"]]) == (4, ["3.parquet"])


def test_what_cannot_be_indexed_is_refused_by_name(data: Path, policy: Path) -> None:
    """A column that is nowhere or has no bounds, and a store among the data, end with 78 and leave nothing."""
    pq.write_table(pa.table({"id": pa.array([1]), "kind": pa.array([[1]])}), data / "day=1" / "a.parquet")
    aged(data / "day=1" / "a.parquet")
    for columns, said in ((("nosuch",), "'nosuch': is in none"), (("kind",), "'kind': cannot be indexed")):
        done = created(data, policy, *columns)
        assert done.code == 78 and said in done.errors
    for folder in (data, data / "store", data.parent):
        assert created(data, policy, "id", to=folder).code == 78
    assert not (data.parent / "st").exists()


def test_a_column_under_two_keys_is_refused(data: Path, policy: Path, keys: KeyService) -> None:
    """An index is under one key, so that a column of several has none."""
    keys.create("other")
    write(data, "day=1/b.parquet", keys, 9, uuid=None, key="other")
    done = created(data, policy, "ssn")
    assert done.code == 78 and "other, pii" in done.errors


def test_lists_and_filters_are_made_by_name(data: Path, policy: Path) -> None:
    """Kinds follow a column's name; a refresh keeps them, and each index is under its column's key."""
    made = created(data, policy, "ssn:bloom", "score:values:minmax", "ssn:values").document
    assert made["unknown_values"] == made["unknown"] == {"score": {"the file does not have the column": 1}}
    assert (made["unknown_filters"], made["objects"]) == ({}, 5)

    def shown() -> list[tuple[Any, ...]]:
        found = run("index", "show", "--path", data.parent / "st", "--policy", policy, "--json").document
        return [(*index["columns"], index["kind"], index["type"], *index["keys"]) for index in found["indexes"]]

    wanted = [
        ("ssn", "bloomfilter", "string", "pii"),
        ("ssn", "valuelist", "string", "pii"),
        ("score", "valuelist", "double", "footer"),
        ("score", "minmax", "double", "footer"),
    ]
    assert shown() == wanted
    aged(data / "day=1" / "3.parquet")
    at = ("--path", data, "--to", data.parent / "st", "--policy", policy, "--json")
    assert run("index", "refresh", *at).document["read"] == 1
    assert shown() == wanted
    assert not any(b"secret" in path.read_bytes() for path in (data.parent / "st").iterdir())


def test_limits_of_lists_and_filters_are_options(data: Path, policy: Path) -> None:
    """A file with more values than the limit is told; a larger share makes smaller filters; others are refused."""
    place = ("--path", data, "--to", data.parent / "st", "--policy", policy, "--json")
    few = run("index", "create", *place, "--column", "id:values", "--most-values", 9).document
    assert few["unknown_values"] == {"id": {"it has more than 9 distinct values": 5}}
    enough = run("index", "create", *place, "--column", "id:values", "--most-values", 10).document
    assert enough["unknown_values"] == {}
    text = run("index", "create", *place[:-1], "--column", "id:values", "--most-values", 9).output
    assert "  id: values unknown of 5 files: it has more than 9 distinct values" in text.splitlines()
    for option, wrong in (("--most-values", 0), ("--most-values", 100_001), ("--false-positives", 0.6)):
        assert run("index", "create", *place, "--column", "id:values", option, wrong).code == 64


def test_a_kind_that_a_type_does_not_have_is_refused_by_name(data: Path, policy: Path) -> None:
    """A filter of doubles ends with 78 and says what there is; a kind that is not known is part of the name."""
    done = created(data, policy, "score:bloom")
    assert done.code == 78
    assert "'score': has no Bloom filter, since it is of type double; allowed: byte, short" in done.errors
    names = {"id:blom": "id:blom", ":bloom": ":bloom", "odd:bloom::minmax:values": "odd:bloom", "odd:": "odd:"}
    for name, column in names.items():
        assert f"'{column}': is in none" in created(data, policy, name).errors
    assert not (data.parent / "st").exists()


def test_a_denied_key_of_a_list_is_an_error(data: Path, policy: Path, tmp_path: Path) -> None:
    """Without the key of a column that is to be indexed nothing is written."""
    next((tmp_path / "keys").glob("pii*")).unlink()
    done = created(data, policy, "ssn:values")
    assert done.code in (69, 77) and "pii" in done.errors
    assert [path.name for path in (data.parent / "st").iterdir()] == [LOCK]


@pytest.mark.parametrize("folder", ["data", "data/day=1"])
def test_a_table_with_a_list_of_its_files_has_no_store(data: Path, policy: Path, folder: str) -> None:
    """Neither it nor a partition of it: rows of files that the list has left out would be in the store."""
    (data / "_delta_log").mkdir()
    done = created(data.parent / folder, policy, "id", to=data.parent / "st")
    assert done.code == 65 and "has _delta_log: a Delta table keeps its own list of files" in done.errors
    (data / "_delta_log").rmdir()
    (data / "day=1" / "000000_0").touch()
    aged(data / "day=1" / "000000_0")
    assert created(data, policy, "id").document["objects"] == 5


@pytest.fixture
def table(policy: Path, keys: KeyService) -> Path:
    """A folder of encrypted files of one table, and a policy that says where indexes are."""
    policy.write_text(policy.read_text() + "index: {location: indexes}\n")
    folder = policy.parent / "data"
    for number in range(3):
        write(folder, f"day={number}/f.parquet", keys, number)
    return folder


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

    def said(errors: str) -> list[str]:
        return [line.partition(" info ")[2] for line in errors.splitlines()]

    made = create(table, policy)
    size = sum(file.stat().st_size for file in table.rglob("*.parquet"))
    assert made.document["objects"] == 3
    first, last = said(made.errors)[0], said(made.errors)[-1]
    assert first == f"{table}: 3 files, {size_of(size)} to index"
    assert last.startswith(f"{table}: 3 of 3 files, {size_of(size)} of {size_of(size)}, ")
    write(table, "day=3/f.parquet", keys, 3)
    told = said(index("refresh", table, policy).errors)
    assert told[0].startswith(f"{table}: 1 file, ")
    assert told[-1].startswith(f"{table}: 1 of 1 file, ")
    assert index("refresh", table, policy).errors == ""

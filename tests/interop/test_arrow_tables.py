"""Tables under a policy by pyarrow, pandas, polars and DuckDB: judged, decided and denied as by Spark's readers."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sparkcrypt.arrow import GuardedTable, open_table, read_table
from sparkcrypt.arrow import reader as reader_module
from sparkcrypt.arrow.denied import group_denied, kept_type, restore
from sparkcrypt.arrow.table import SCANS_NEED_FEW_KEYS
from sparkcrypt.decide.access_log import Record, read_accesses
from sparkcrypt.errors import (
    ConfigError,
    KeyNotFoundError,
    PlanError,
    SparkcryptError,
    StorageError,
    VerificationError,
)
from sparkcrypt.files.open_places import place
from sparkcrypt.files.parquet import inspect_file
from sparkcrypt.keys.opened import KEY_LOG
from sparkcrypt.names import REQUIRE_ENCRYPTION, TABLE_UUID
from sparkcrypt.policy.model import AccessLogRule, Policy
from sparkcrypt.schema import join_dotted
from tests.interop.lake_files import UUID, TableWriter
from tests.services.installed import ROOT
from tests.spark.fresh_scripts import calls
from tests.spark.support import make_policy, with_keys, without_keys
from tests.unit.schema.writers import REPEATED, canary, write_as

pytestmark = pytest.mark.sparks
TAGS = """
  pii: {key: pii}
  fin: {key: fin}
  pay: {key: "pay-{day:%Y-%m}"}
  strict: {key: strict, on_denied: error}
  soft: {key: soft, on_denied: mask}
"""
ASK = "write to keys@example.org"
RULES = "  db.t: {require_encryption: true, tags: {email: pii, salary: fin}}\n"
KEYS = {"email": "pii", "salary": "fin"}
TOLD = {TABLE_UUID: UUID}


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    """A policy with a rule for table ``db.t``."""
    return make_policy(
        tmp_path / "policy", TAGS, RULES, keys=("pay-2026-01", "pay-2026-02"), more=f"ask_for_access: {ASK}\n"
    )


def rows(start: int, count: int = 5) -> pa.Table:
    """Return rows with ids from a number on."""
    ids = list(range(start, start + count))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "email": [f"mail{number}" for number in ids],
            "salary": pa.array([number * 10 for number in ids], pa.int32()),
        }
    )


@pytest.fixture
def folder(tmp_path: Path, policy: Policy) -> Path:
    """A table of two partitions, three files in all, and what is hidden beside them."""
    writer = TableWriter(tmp_path / "t", policy)
    never_null = pa.schema([field.with_nullable(False) for field in rows(0).schema])  # as Spark writes literals
    writer.write("a.parquet", rows(0).cast(never_null), KEYS, "p=1/day=2026-01-31")
    writer.write("b.parquet", rows(5), KEYS, "p=1/day=2026-01-31")
    writer.write("c.parquet", rows(10), KEYS, "p=2/day=__HIVE_DEFAULT_PARTITION__")
    (tmp_path / "t" / "_SUCCESS").write_text("")
    (tmp_path / "t" / "p=1" / ".c.parquet.crc").write_text("x")
    return tmp_path / "t"


def open_t(folder: Path | list[str], policy: Policy, **options: Any) -> GuardedTable:
    """Open table ``db.t``."""
    path = str(folder) if isinstance(folder, Path) else folder
    return open_table(path, policy, table="db.t", properties=TOLD, principal="ann", **options)


def lacking(policy: Policy, folder: Path, *key_ids: str) -> Policy:
    """Return the policy of somebody who lacks keys."""
    return with_keys(policy, folder / f"without-{'-'.join(key_ids)}", without_keys(*key_ids))


def routes(table: GuardedTable, columns: list[str], name: str, value: Any) -> dict[str, Callable[[], list[Any]]]:
    """Return ways to the same rows, those in which a column has a value, as lists of rows."""
    condition, of_polars = pc.field(name) == value, pl.col(name) == value

    def by_duckdb(source: Any) -> list[Any]:
        with duckdb.connect() as connection:
            connection.register("source", source)
            return connection.sql(f"SELECT {', '.join(columns)} FROM source WHERE {name} = '{value}'").fetchall()

    def listed(found: pa.Table) -> list[Any]:
        return [tuple(row[column] for column in columns) for row in found.to_pylist()]

    found: dict[str, Callable[[], list[Any]]] = {
        "to_table": lambda: listed(table.to_table(columns, condition)),
        "to_batches": lambda: listed(pa.Table.from_batches(table.to_batches(columns, condition))),
        "head": lambda: listed(table.head(100, columns, condition)),
        "pandas": lambda: list(table.to_table(columns, condition).to_pandas().itertuples(index=False, name=None)),
        "polars": lambda: pl.scan_pyarrow_dataset(table).filter(of_polars).select(columns).collect().rows(),
        "DuckDB over a scan": lambda: by_duckdb(table.scan(list(dict.fromkeys([*columns, name])))),
    }
    if offers_dataset(table, [*columns, name]):
        found["DuckDB over a dataset"] = lambda: by_duckdb(table.dataset([*columns, name]))
        found["pyarrow over a dataset"] = lambda: listed(
            table.dataset([*columns, name]).to_table(columns=columns, filter=condition)
        )
    return found


def offers_dataset(table: GuardedTable, columns: list[str]) -> bool:
    """Tell whether a dataset has these columns; where this pyarrow would ask for others' keys, it must be refused."""
    if SCANS_NEED_FEW_KEYS or set(columns) - {"p", "day"} in ({"id"}, {"id", "email"}, {"id", "email", "salary"}):
        return True
    with pytest.raises(ConfigError, match=r"install pyarrow 26 or later, use scan\(\)"):
        table.dataset(columns)
    return False


def test_routes_give_the_same_rows(folder: Path, policy: Policy) -> None:
    """Projection and filter give the same rows by every library; partitions have the types that Spark gives them."""
    table = open_t(folder, policy)
    assert table.schema.names == ["id", "email", "salary", "p", "day"]
    assert [table.schema.field(name).type for name in ("p", "day")] == [pa.int32(), pa.date32()]
    assert all(field.nullable for field in table.schema)
    assert [Path(file).name for file in table.files] == ["a.parquet", "b.parquet", "c.parquet"]
    found = table.to_table()
    assert found.drop_columns(["p", "day"]).equals(pa.concat_tables([rows(0), rows(5), rows(10)]))
    assert found["p"].to_pylist() == [1] * 10 + [2] * 5
    assert found["day"].to_pylist() == [date(2026, 1, 31)] * 10 + [None] * 5
    answers = {name: route() for name, route in routes(table, ["p", "id"], "email", "mail12").items()}
    assert answers == {name: [(2, 12)] for name in answers}
    assert table.count_rows(pc.field("p") == 1) == 10
    assert table.to_table(["salary", "id"], pc.field("day").is_null() & (pc.field("id") > 12)).to_pydict() == {
        "salary": [130, 140],
        "id": [13, 14],
    }
    assert pa.table(table).equals(found)
    assert read_table(str(folder), policy, ["id"], table="db.t", properties=TOLD).num_rows == 15


def test_one_call_for_a_key_and_not_for_a_file(
    folder: Path, policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many files, scans and tables: one unwrap for each KEK, one refusal for each denied key."""
    monkeypatch.setenv(KEY_LOG, str(tmp_path / "keys.log"))
    for _ in range(2):
        table = open_t(folder, policy)
        assert (table.to_table().num_rows, table.dataset().count_rows()) == (15, 15)
    assert calls(tmp_path / "keys.log", "unwrap") == {"footer": 1, "pii": 1, "fin": 1}
    poor = lacking(policy, tmp_path, "pii")
    monkeypatch.setenv(KEY_LOG, str(tmp_path / "poor.log"))
    for _ in range(3):
        with pytest.raises(KeyNotFoundError):
            open_t(folder, poor).to_table()
    assert calls(tmp_path / "poor.log", "unwrap") == {"footer": 1, "pii": 1}


def test_denied_columns_are_errors_by_name(folder: Path, policy: Policy, tmp_path: Path) -> None:
    """A denied column that is read or filtered by is an error in Spark's words; the others stay readable."""
    table = open_t(folder, lacking(policy, tmp_path, "pii"))
    answers = {name: route() for name, route in routes(table, ["id"], "salary", 120).items()}
    assert answers == {name: [(12,)] for name in answers}
    wanted = (
        "column email of table db.t cannot be read by ann: its key 'pii' is not there. "
        f"To get access, {ASK}. key 'pii' is not in the key directory"
    )
    denied: dict[str, Callable[[], object]] = {
        **{f"read by {name}": route for name, route in routes(table, ["email"], "id", 12).items()},
        **{f"filter by {name}": route for name, route in routes(table, ["id"], "email", "mail12").items()},
        "all": table.to_table,
        "stream": lambda: pa.table(table),
        "count": lambda: table.count_rows(pc.field("email") == "mail12"),
    }
    for name, route in denied.items():
        with pytest.raises(Exception, match="its key 'pii' is not there") as caught:
            route()
        assert wanted in str(caught.value), name
        assert str(folder) in str(caught.value), name
    with pytest.raises(KeyNotFoundError, match=r"the footer of table db\.t cannot be read by ann: its key 'footer'"):
        open_t(folder, lacking(policy, tmp_path, "footer"))


PAIR = pa.struct([("x", pa.int64()), ("y", pa.int64())])
NESTED = pa.schema(
    {
        "id": pa.int64(),
        "s": pa.struct([("a", pa.int64()), ("b", pa.int64())]),
        "l": pa.list_(PAIR),
        "m": pa.map_(pa.string(), PAIR),
        "k": pa.map_(pa.string(), pa.int64()),
        "w": pa.struct([("a", pa.int64())]),
    }
)
LEAVES = {"s.a": ["pii"], "l.element.x": ["pii"], "m.value.x": ["pii"], "k.key": ["pii"], "w.a": ["pii"]}
PARQUET = ["s.a", "l.list.element.x", "m.key_value.value.x", "k.key_value.key", "w.a"]


def nested(number: int, *values: Any) -> dict[str, Any]:
    """Return a row of the nested columns."""
    return {"id": number, **dict(zip("slmkw", values, strict=True))}


FULL = [
    nested(1, {"a": 1, "b": 2}, [{"x": 1, "y": 2}, None], [("k", {"x": 5, "y": 6})], [("q", 1)], {"a": 1}),
    nested(2, *[None] * 5),
    nested(3, {"a": None, "b": 4}, [], [], [], {"a": 3}),
    nested(4, {"a": 7, "b": None}, [{"x": 7, "y": 8}], [("a", None), ("b", {"x": 1, "y": 9})], [("r", 2)], None),
]
MASKED = [
    nested(1, {"a": None, "b": 2}, [{"x": None, "y": 2}, None], [("k", {"x": None, "y": 6})], None, None),
    nested(2, *[None] * 5),
    nested(3, {"a": None, "b": 4}, [], [], None, None),
    nested(4, {"a": None, "b": None}, [{"x": None, "y": 8}], [("a", None), ("b", {"x": None, "y": 9})], None, None),
]


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_denied_leaves_are_nulls_and_siblings_stay(tmp_path: Path, policy: Policy, batch_size: int) -> None:
    """Denied leaves of structs, lists and maps are null; a map without keys, and what has no leaf left, is so whole."""
    writer = TableWriter(tmp_path / "n", policy)
    writer.write("a.parquet", pa.Table.from_pylist(FULL, NESTED), dict.fromkeys(PARQUET, "pii"))
    rich = open_table(str(tmp_path / "n"), policy, tags=LEAVES, on_denied="mask")
    assert rich.to_table().to_pylist() == FULL
    assert rich.masked == {}
    poor = open_table(str(tmp_path / "n"), lacking(policy, tmp_path, "pii"), tags=LEAVES, on_denied="mask")
    assert poor.masked == dict.fromkeys(LEAVES, "key pii of tag pii is missing")
    assert pa.Table.from_batches(poor.to_batches(batch_size=batch_size)).to_pylist() == MASKED
    assert poor.schema.equals(NESTED)
    kept = poor.to_table(["id"], pc.field("s", "a").is_null() & (pc.field("s", "b") > 3))
    assert kept.to_pydict() == {"id": [3]}
    dropped = open_table(str(tmp_path / "n"), lacking(policy, tmp_path / "d", "pii"), tags=LEAVES, on_denied="drop")
    assert dropped.schema.names == ["id", "s", "l", "m"]
    assert dropped.to_table().to_pylist() == [{name: row[name] for name in ("id", "s", "l", "m")} for row in MASKED]
    with pytest.raises(ConfigError, match="column 'k' is not in the table \\(its key is denied"):
        dropped.to_table(["k"])


def test_slices_are_restored() -> None:
    """Nulls come to their places in parts of arrays too, as batches of a file may be."""
    whole, masked = pa.Table.from_pylist(FULL, NESTED), pa.Table.from_pylist(MASKED, NESTED)
    denied = group_denied([("s", "a"), ("l", "element", "x"), ("m", "value", "x")])
    for name in "slm":
        kind = NESTED.field(name).type
        kept = kept_type(kind, denied[name])
        assert kept is not None
        read = pa.array(drop_names(whole[name].to_pylist(), {"a", "x"}), kept)
        assert restore(read.slice(1, 3), kind, denied[name]).to_pylist() == masked[name].to_pylist()[1:]
        assert restore(read.slice(3), kind, denied[name]).to_pylist() == masked[name].to_pylist()[3:]


def drop_names(value: Any, names: set[str]) -> Any:
    """Return nested values without some fields of their structs."""
    if isinstance(value, dict):
        return {name: drop_names(below, names) for name, below in value.items() if name not in names}
    if isinstance(value, list | tuple):
        return type(value)(drop_names(below, names) for below in value)
    return value


def test_masked_columns_are_null_in_filters(folder: Path, policy: Policy, tmp_path: Path) -> None:
    """A comparison with a masked column holds for no row, ``is null`` for each; no library sees a value."""
    table = open_t(folder, lacking(policy, tmp_path, "pii"), on_denied="mask")
    email = pc.field("email")
    assert table.masked == {"email": "key pii of tag pii is missing"}
    for condition, count in (
        (email == "mail3", 0),
        (email != "mail3", 0),
        (~(email == "mail3"), 0),
        (email.is_null(), 15),
        (email.is_null() & (pc.field("p") == 2), 5),
        ((email == "mail3") | (pc.field("id") < 4), 4),
        (pc.field("id") < 4, 4),
    ):
        assert table.count_rows(condition) == count, condition
        assert table.to_table(["p"], condition).num_rows == count
        assert table.to_table(["email", "id"], condition)["email"].null_count == count
    assert pl.scan_pyarrow_dataset(table).filter(pl.col("email").is_null()).select("id").collect().height == 15
    with duckdb.connect() as connection:
        connection.register("stream", table.scan(["email", "id"]))
        assert connection.sql("SELECT count(email), count(*) FROM stream").fetchall() == [(0, 15)]
    assert table.to_table().to_pandas()["email"].isna().all()
    with pytest.raises(ConfigError, match="column email is null in place of values"):
        table.dataset()
    assert table.dataset(["id"]).count_rows() == 15


def test_masked_columns_that_are_named_under_strict_projection(folder: Path, policy: Policy, tmp_path: Path) -> None:
    """Naming one is an error where the policy says so, in columns and filters; without a list of columns it is null."""
    poor = replace(lacking(policy, tmp_path, "pii"), strict_projection=True)
    table, where = open_t(folder, poor, on_denied="mask"), pc.field("email").is_null()
    for action in (
        lambda: table.to_table(["id", "email"]),
        lambda: table.head(1, ["email"]),
        lambda: table.count_rows(where),
    ):
        with pytest.raises(
            KeyNotFoundError, match=r"column email .*cannot be named by .*strict_projection of the policy"
        ):
            action()
    with pytest.raises(KeyNotFoundError, match="cannot be named"):
        pl.scan_pyarrow_dataset(table).select("email").collect()
    assert table.to_table()["email"].null_count == 15
    assert table.to_table(["id"], pc.field("id") < 4).num_rows == 4


def test_templates_and_tags_decide_as_for_spark(tmp_path: Path, policy: Policy) -> None:
    """A template's key hides its month alone; a tag's ``error`` is a ceiling, its ``mask`` yields to ``error``."""
    writer = TableWriter(tmp_path / "d", policy)
    for number, day in enumerate(("2026-01-05", "2026-02-07", "2026-02-08")):
        keys = {"pay": f"pay-{day[:7]}", "x": "strict", "y": "soft"}
        found = pa.table({"id": [number], "pay": [number * 10], "x": ["q"], "y": ["r"]})
        writer.write(f"{number}.parquet", found, keys, f"day={day}")
    poor = lacking(policy, tmp_path, "pay-2026-02", "strict", "soft")
    tags = {"pay": ["pay"], "x": ["strict"], "y": ["soft"]}

    def opened(on_denied: Any = None) -> GuardedTable:
        return open_table(str(tmp_path / "d"), poor, tags=tags, on_denied=on_denied)

    masked = opened("mask")
    assert masked.masked == {
        "pay": "key pay-2026-02 of tag pay is missing in some partitions",
        "y": "key soft of tag soft is missing",
    }
    assert masked.to_table(["id", "pay", "y"]).to_pydict() == {"id": [0, 1, 2], "pay": [0, None, None], "y": [None] * 3}
    assert masked.to_table(["id"], pc.field("pay") >= 0).to_pydict() == {"id": [0]}
    assert masked.to_table(["id", "pay"], pc.field("day") < date(2026, 2, 1)).to_pydict() == {"id": [0], "pay": [0]}
    with pytest.raises(KeyNotFoundError, match="column x cannot be read"):
        masked.to_table(["x"])
    assert opened("drop").schema.names == ["id", "pay", "x", "day"]
    assert opened().to_table(["id", "y"])["y"].null_count == 3
    with pytest.raises(KeyNotFoundError, match="column pay cannot be read"):
        opened().to_table(["pay"])
    with pytest.raises(KeyNotFoundError, match="column y cannot be read"):
        opened("error").to_table(["y"])


def _rename(folder: Path, policy: Policy) -> None:
    (folder / "p=1/day=2026-01-31/b.parquet").rename(folder / "p=1/day=2026-01-31/z.parquet")


def _move(folder: Path, policy: Policy) -> None:
    (folder / "p=1/day=2026-01-31/b.parquet").rename(folder / "p=2/day=__HIVE_DEFAULT_PARTITION__/b.parquet")


def _take_from_another_table(folder: Path, policy: Policy) -> None:
    writer = TableWriter(folder, policy, UUID.replace("1", "2"))
    writer.write("z.parquet", rows(0), KEYS, "p=1/day=2026-01-31")


def _write_plaintext(folder: Path, policy: Policy) -> None:
    pq.write_table(rows(0), folder / "p=1/day=2026-01-31/z.parquet")


def _leave_a_column_in_clear(folder: Path, policy: Policy) -> None:
    TableWriter(folder, policy).write("z.parquet", rows(0), {"salary": "fin"}, "p=1/day=2026-01-31")


def _take_another_key(folder: Path, policy: Policy) -> None:
    TableWriter(folder, policy).write("z.parquet", rows(0), {**KEYS, "email": "fin"}, "p=1/day=2026-01-31")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_rename, "was written as 'b.parquet' and renamed or copied since"),
        (_move, "was written for partition 'p=1/day=2026-01-31' and moved to another"),
        (_take_from_another_table, "belongs to table 22222222"),
        (_write_plaintext, "is plaintext, and db.t requires encryption"),
        (_leave_a_column_in_clear, "column email is plaintext, and the tag 'pii' of db.t encrypts it"),
        (_take_another_key, "column email is encrypted with 'fin'; the policy wants 'pii'"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_files_that_spark_refuses_are_refused(
    folder: Path, policy: Policy, change: Callable[[Path, Policy], None], said: str
) -> None:
    """What is not as policy, identity and place allow is refused by each route, before a row of it is read."""
    change(folder, policy)
    table = open_t(folder, policy)
    for name, route in routes(table, ["id"], "id", 99).items():
        with pytest.raises(Exception, match=said):
            route()
        assert name
    with pytest.raises(VerificationError, match=said):
        table.to_table(["id"])


def test_what_is_read_is_what_was_judged(folder: Path, policy: Policy, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is replaced or written over after it was judged gives no row of what it is now."""
    table = open_t(folder, policy)
    dataset = table.dataset()
    victim = folder / "p=2/day=__HIVE_DEFAULT_PARTITION__/c.parquet"
    judged = victim.read_bytes()
    pq.write_table(rows(10), victim)
    with pytest.raises(pa.ArrowInvalid, match="size is 0 bytes"):
        dataset.to_table()
    assert "is plaintext, and db.t requires encryption" in caplog.text
    with pytest.raises(VerificationError, match="is plaintext, and db\\.t requires encryption"):
        table.to_table()
    victim.unlink()
    other = TableWriter(folder, policy, UUID.replace("1", "2"))  # of the same size, and readable but for its place
    assert len(other.write("c.parquet", rows(10), KEYS, "p=2/day=__HIVE_DEFAULT_PARTITION__").read_bytes()) == len(
        judged
    )
    with pytest.raises(pa.ArrowInvalid, match="size is 0 bytes"):
        dataset.to_table()
    assert "belongs to table 22222222" in caplog.text
    victim.write_bytes(judged)
    assert dataset.to_table().num_rows == table.to_table().num_rows == 15
    judge = table._judge(frozenset(["id"]))
    with pa.PythonFile(judge.open(str(victim)), mode="r") as file:
        with victim.open("r+b") as stream:  # in place: the same inode
            stream.seek(-len(judged) // 2, os.SEEK_END)
            stream.write(b"x" * (len(judged) // 2))
        read = pq.ParquetFile(file, decryption_properties=judge.keys(str(victim)).properties())
        assert read.schema_arrow.names == ["id", "email", "salary"]
        assert read.read(["id"])["id"].to_pylist() == list(range(10, 15))


def test_folders_are_found_as_spark_finds_them(folder: Path, policy: Policy, tmp_path: Path) -> None:
    """Several folders, and types that are given; links, mixed depths and lists of files are refused."""
    parts = [str(folder / "p=2/day=__HIVE_DEFAULT_PARTITION__"), f"file:{folder}/p=1"]
    assert open_t(parts, policy).to_table(["p"])["p"].to_pylist() == [2] * 5 + [1] * 10
    with pytest.raises(ConfigError, match=r"the policy has no location for table 'db\.t'"):
        open_table(None, policy, table="db.t")
    given = pa.schema([("p", pa.string()), ("id", pa.int64()), ("email", pa.string()), ("added", pa.int8())])
    typed = open_t(folder, policy, schema=given)
    assert typed.schema.names == ["id", "email", "added", "p", "day"]
    assert typed.to_table(["p", "added"]).slice(14).to_pylist() == [{"p": "2", "added": None}]
    with pytest.raises(ConfigError, match="holds no data files"):
        open_t(tmp_path / "absent", policy)
    shutil.copy(folder / "p=1/day=2026-01-31/a.parquet", folder / "a.parquet")
    with pytest.raises(ConfigError, match=r"lies below partition columns p, day, and .* below none"):
        open_t(folder, policy)
    (folder / "a.parquet").unlink()
    (folder / "p=1/day=2026-01-31/d.parquet").symlink_to(folder / "p=1/day=2026-01-31/a.parquet")
    with pytest.raises(VerificationError, match="symbolic link"):
        open_t(folder, policy)
    (folder / "p=1/day=2026-01-31/0.parquet").touch()
    (folder / "p=1/day=2026-01-31/d.parquet").unlink()
    assert open_t(folder, policy).to_table(["id"]).num_rows == 15
    (folder / "_delta_log").mkdir()
    with pytest.raises(PlanError, match="has _delta_log: a Delta table keeps its own list of files"):
        open_t(folder, policy)


@pytest.mark.services
@pytest.mark.newest
@pytest.mark.parametrize("system", ["s3", "hdfs"])
def test_tables_on_remote_storage(
    system: str, folder: Path, policy: Policy, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A table there gives the same rows, denials and refusals as on a local disk."""
    uri, settings = request.getfixturevalue(f"{system}_place")
    where = place(uri, settings)
    assert not isinstance(where, str)
    storage, name = where
    for file in folder.rglob("*.parquet"):
        storage.create_dir(f"{name}/{file.relative_to(folder).parent}")
        with storage.open_output_stream(f"{name}/{file.relative_to(folder)}") as stream:
            stream.write(file.read_bytes())

    def opened(reader: Policy, **options: Any) -> GuardedTable:
        return open_t([uri], reader, settings=settings, **options)

    assert opened(policy).to_table().equals(open_t(folder, policy).to_table())
    poor = lacking(policy, tmp_path, "pii")
    with pytest.raises(KeyNotFoundError, match=rf"column email of table db\.t .* \(file {uri}/p=1/"):
        opened(poor).to_table()
    assert opened(poor, on_denied="mask").to_table(["email", "id"])["email"].null_count == 15
    storage.move(f"{name}/p=2/day=__HIVE_DEFAULT_PARTITION__/c.parquet", f"{name}/p=1/day=2026-01-31/c.parquet")
    with pytest.raises(VerificationError, match="and moved to another"):
        opened(policy).to_table(["id"])


def accesses(log: Path, column: str) -> list[Record]:
    """Return what a log has of a column of table ``db.t``, once for each read, with counts of its lines together."""
    found = read_accesses(log, f"db.t.{column}", datetime.now(timezone.utc).date())
    assert (found.unreadable, found.lost) == (0, 0)
    return found.accesses


@pytest.mark.parametrize("required", [False, True])
def test_each_read_leaves_access_events(tmp_path: Path, folder: Path, policy: Policy, required: bool) -> None:
    """A read is in the log with its reader, key and columns, counted over files; a refusal with its reason."""
    log = tmp_path / "log"
    log.mkdir()
    logged = replace(policy, access_log=AccessLogRule(str(log), required))
    table = open_t(folder, logged)
    assert accesses(log, "email") == []
    table.to_table(["id", "email"])
    table.to_table(["id"])
    table.dataset(["id", "email"]).to_table(["email"])
    scanned, asked = accesses(log, "email")
    assert scanned["execution"] != asked["execution"]
    for access in (scanned, asked):
        assert (access["principal"], access["route"], access["table"]) == ("ann", "arrow", "db.t")
        assert (access["outcome"], access["key"], access["columns"], access["count"]) == ("opened", "pii", ["email"], 3)
    poor = open_t(folder, lacking(logged, tmp_path, "pii"))
    with pytest.raises(KeyNotFoundError):
        poor.to_table()
    (refused,) = [access for access in accesses(log, "email") if access["outcome"] == "refused"]
    assert (refused["why"], refused["key"], refused["columns"]) == ("missing", "pii", ["email"])
    assert not any(b"mail1" in path.read_bytes() for path in log.rglob("*.jsonl"))


def test_nulls_in_place_of_values_are_access_events(tmp_path: Path, folder: Path, policy: Policy) -> None:
    """Whoever gets nulls is in the log with the key, for each read that asks for the column."""
    log = tmp_path / "log"
    log.mkdir()
    logged = replace(policy, access_log=AccessLogRule(str(log)))
    poor = open_t(folder, lacking(logged, tmp_path, "pii"), on_denied="mask")
    poor.to_table(["id"])
    assert accesses(log, "email") == []
    poor.to_table(["id", "email"])
    (masked,) = accesses(log, "email")
    assert (masked["outcome"], masked["why"], masked["key"], masked["count"]) == ("masked", "missing", "pii", 1)


def test_a_lost_log_stops_reads_where_it_is_required_alone(
    tmp_path: Path, folder: Path, policy: Policy, caplog: pytest.LogCaptureFixture
) -> None:
    """A log that cannot be written is one warning, and its events come later; a required one hands out no key."""
    log = tmp_path / "log"
    log.write_text("no folder")
    required = replace(policy, access_log=AccessLogRule(str(log), required=True))
    with pytest.raises(StorageError, match="access events cannot be written"):
        open_t(folder, required).to_table()
    table = open_t(folder, replace(policy, access_log=AccessLogRule(str(log))))
    assert table.to_table(["email"]).num_rows == table.to_table(["email"]).num_rows == 15
    assert len([record for record in caplog.records if "access events cannot be written" in record.message]) == 1
    log.unlink()
    table.to_table(["salary"])
    assert [access["count"] for access in accesses(log, "email")] == [3, 3]


def test_access_events_are_kept_up_to_a_bound(
    tmp_path: Path, folder: Path, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not fit into memory while the log is away is counted in it as lost."""
    log = tmp_path / "log"
    log.write_text("no folder")
    monkeypatch.setattr(reader_module, "MOST_KEPT", 2)
    table = open_t(folder, replace(policy, access_log=AccessLogRule(str(log))))
    table.to_table(["email"])
    table.to_table(["email"])
    log.unlink()
    table.to_table(["salary"])
    found = read_accesses(log, "db.t.email", datetime.now(timezone.utc).date())
    assert found.lost > 0 and found.lost + sum(access["count"] for access in found.accesses) >= 2
    table.to_table(["email"])
    assert read_accesses(log, "db.t.email", datetime.now(timezone.utc).date()).lost == found.lost


def test_names_that_differ_by_case_are_no_silent_nulls(folder: Path, policy: Policy) -> None:
    """A file whose column is the table's but for its case is refused: pyarrow would read nulls for its values."""
    found = rows(0).rename_columns(["id", "Email", "salary"])
    TableWriter(folder, policy).write("z.parquet", found, {"Email": "pii", "salary": "fin"}, "p=1/day=2026-01-31")
    with pytest.raises(PlanError, match="column Email differs from the table's email by case alone"):
        open_t(folder, policy).to_table(["id"])


@pytest.mark.newest
def test_the_examples_of_the_page_run(policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/access.md shows for pyarrow, pandas, polars and DuckDB runs as it stands, and gives what it says."""
    found = rows(0).append_column("city", [["Oslo", "Lima", "Rome", "Lima", "Bonn"]])
    TableWriter(tmp_path / "lake" / "customers", policy).write("a.parquet", found, KEYS)
    text = (ROOT / "docs" / "access.md").read_text()
    (example,) = re.findall(r"```python\n(.*?open_table.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    named: dict[str, Any] = {"policy": policy}
    exec(example, named)
    assert named["rows"].to_pydict() == {"id": [2, 3, 4], "city": ["Rome", "Lima", "Bonn"]}
    assert list(named["frame"]["city"]) == ["Oslo", "Lima", "Rome", "Lima", "Bonn"]
    assert named["cities"].to_dict(as_series=False) == {"city": ["Rome", "Lima", "Bonn"]}
    assert sorted(named["counted"]) == [("Bonn", 1), ("Lima", 2), ("Oslo", 1), ("Rome", 1)]
    assert named["found"] == [("Rome",), ("Lima",), ("Bonn",)]
    assert named["masked"].masked == {}


def test_arguments_are_checked(folder: Path, policy: Policy) -> None:
    """An unknown mode, column or form of tags is refused by name."""
    with pytest.raises(ConfigError, match="on_denied is 'null'; allowed: error, mask, drop"):
        open_t(folder, policy, on_denied="null")
    with pytest.raises(ConfigError, match="column 'mail' is not in the table; allowed: id, email"):
        open_t(folder, policy).scan(["mail"])
    with pytest.raises(ConfigError, match="columns id, id: one is named twice"):
        open_t(folder, policy).scan(["id", "id"])
    with pytest.raises(ConfigError, match="tags: column email has 'pii'; allowed: a list"):
        open_t(folder, policy, tags={"email": "pii"})
    with pytest.raises(SparkcryptError, match="is not known, and a misspelt option"):
        open_table(str(folder), policy, properties={REQUIRE_ENCRYPTION + "d": "true"})
    with pytest.raises(TypeError, match=r"option 'on_refused' is not known; allowed: .*on_denied.*schema.*tags"):
        open_t(folder, policy, on_refused="mask")


@pytest.mark.parametrize("form", [REPEATED, "new", "Hive", "Avro", "Thrift"])
def test_lists_of_any_writer_are_read_and_demanded(tmp_path: Path, policy: Policy, form: str) -> None:
    """The keys of their leaves are opened, denied and demanded whatever groups are around what repeats, if any is."""
    person = {"type": "struct", "fields": [{"name": name, "type": "string"} for name in ("name", "ssn")]}
    lists = {"phones": "string", "people": person}
    fields = [{"name": name, "type": {"type": "array", "elementType": kind}} for name, kind in lists.items()]
    plain = write_as(
        tmp_path / "plain", {"type": "struct", "fields": fields}, lambda forms: form if form in forms else forms[0]
    )
    phones, _, ssn = map(join_dotted, inspect_file(plain).columns or ())
    writer, told = TableWriter(tmp_path / "t", policy), {"phones": ["pii"], "people.element.ssn": ["fin"]}
    writer.encrypt(plain.read_bytes(), "a.parquet", {phones: "pii", ssn: "fin"})
    expected = {"phones": [canary(0)], "people": [{"name": canary(1), "ssn": canary(2)}]}
    assert open_t(tmp_path / "t", policy, tags=told).to_table().to_pylist() == [expected]
    denied = open_t(tmp_path / "t", lacking(policy, tmp_path, "fin"), tags=told, on_denied="mask")
    assert denied.to_table().to_pylist() == [{**expected, "people": [{"name": canary(1), "ssn": None}]}]
    (tmp_path / "t" / "a.parquet").unlink()
    writer.encrypt(plain.read_bytes(), "a.parquet", {ssn: "fin"})
    with pytest.raises(VerificationError, match=f"column {phones} is plaintext, and the tag 'pii'"):
        open_t(tmp_path / "t", policy, tags=told).to_table()


def test_shredded_variants_are_refused_where_they_are_read(tmp_path: Path, policy: Policy) -> None:
    """A file after the first that has one is refused by name; denied ones are null whatever their files have."""
    whole = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    shredded = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())])
    writer = TableWriter(tmp_path / "t", policy)
    for number, kind in enumerate((whole, shredded)):
        variant = {"metadata": b"m", **({"value": b"v"} if kind == whole else {"typed_value": 7})}
        nested = pa.array([{"a": number, "v": variant}], pa.struct([("a", pa.int64()), ("v", kind)]))
        rows = pa.table({"id": [number], "s": nested, "v": pa.array([variant], kind)})
        leaves = [f"{column}.{field.name}" for column in ("s.v", "v") for field in kind]
        writer.write(f"{number}.parquet", rows, dict.fromkeys(leaves, "pii"), f"p={number}")
    table = open_t(tmp_path / "t", policy, tags={"v": ["pii"], "s.v": ["pii"]})
    assert table.to_table(["id"])["id"].to_pylist() == [0, 1]
    assert table.to_table(["v"], pc.field("p") == 0).to_pylist() == [{"v": {"value": b"v", "metadata": b"m"}}]
    for column, name in {"v": "v", "s": r"s\.v"}.items():
        with pytest.raises(PlanError, match=rf"1\.parquet: column {name} is a VARIANT that is shredded"):
            table.to_table([column])
    poor = lacking(policy, tmp_path, "pii")
    for on_denied, expected in (("mask", {"v": None}), ("drop", {})):
        nulls = open_t(tmp_path / "t", poor, tags={"v": ["pii"], "s.v": ["pii"]}, on_denied=on_denied)
        found = nulls.to_table([name for name in nulls.schema.names if name != "p"]).to_pylist()
        assert found == [{"id": number, "s": {"a": number, "v": None}, **expected} for number in range(2)]

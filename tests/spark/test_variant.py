"""Tables with VARIANTs, whole and shredded in several ways: runs, masks, demands, stores, pyarrow and streams."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow.compute as pc
import pytest

import sparkcrypt
from sparkcrypt import encrypt_table, index_table, masked_columns, names, plan_table, read_table, verify_table
from sparkcrypt.arrow import open_table
from sparkcrypt.files.parquet import inspect_file
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.tagging import set_tags, unset_tags
from tests.interop.spark_rows import put_in_clear
from tests.spark.rotations import data_of, files_of, rotate
from tests.spark.stored_tables import report, settle
from tests.spark.support import (
    PLAIN,
    SECRET,
    Lake,
    assert_plaintext,
    data_files,
    encrypted_columns,
    footers,
    refusal,
    retriever,
    rows_of,
    with_keys,
    without_keys,
)

pytestmark = pytest.mark.spark

COLUMNS = "id INT, v VARIANT, s STRUCT<a: INT, v: VARIANT>, l ARRAY<STRUCT<v: VARIANT>>, m MAP<STRING, VARIANT>"
TAGS = {"v.value": ["pii"], "s.v": ["fin"], "l": ["pii"], "m": ["fin"]}
KEYS = {"v": "pii", "s": "fin", "l": "pii", "m": "fin"}
TEXTS = "SELECT id, to_json(v), s.a, to_json(s.v), transform(l, x -> to_json(x.v)), to_json(m['k']), to_json(u)"
WHOLE = "spark.sql.variant.inferShreddingSchema"
"""Set to false, a session writes VARIANTs whole."""


def write(session: Any, number: int, key: str, *, table: str = "t", whole: bool = False) -> None:
    """Write a file whose VARIANTs Spark shreds by a key of their objects, unless they are to be whole."""
    session.conf.set(WHOLE, str(not whole).lower())
    secret = f'parse_json(\'{{"{key}": "{SECRET}{number}", "n": {number}}}\')'
    session.sql(
        f"INSERT INTO {table} SELECT {number}, {secret}, named_struct('a', {number}, 'v', {secret}), "
        f"array(named_struct('v', {secret})), map('k', {secret}), parse_json('{{\"open{number}\": \"{PLAIN}\"}}'), 0"
    )


def shredded(lake: Lake, table: str = "t") -> None:
    """Make a table of three plaintext files, two of them shredded, each by other keys."""
    lake.sql(f"CREATE TABLE {table} ({COLUMNS}, u VARIANT, p INT) USING parquet PARTITIONED BY (p)")
    with lake.stranger() as stranger:
        for number, key in enumerate(("keyFirst", "keySecond", "keyThird")):
            write(stranger, number, key, table=table, whole=number == 2)


def assert_tagged_leaves(lake: Lake, policy: Policy, table: str = "t") -> None:
    """Assert that all leaves below the tagged VARIANTs are encrypted, and nothing else is."""
    files = files_of(lake, table)
    (folder,) = {file.parent for file in files}
    for file, summary in zip(data_files(folder), footers(folder, policy), strict=True):
        assert SECRET.encode() not in file.read_bytes()
        found = {path: column.key_id for path, column in (summary.columns or {}).items() if column.encrypted}
        for path in summary.columns or {}:
            concerned = path[0] in ("v", "l", "m") or path[:2] == ("s", "v")
            assert found.get(path) == (KEYS[path[0]] if concerned else None), path


def count_shredded(lake: Lake, policy: Policy) -> int:
    """Return how many files of the table have a shredded VARIANT with a tag."""
    (folder,) = {file.parent for file in files_of(lake)}
    found = (encrypted_columns(summary) for summary in footers(folder, policy))
    return sum(any("typed_value" in name for name in columns) for columns in found)


@pytest.mark.parametrize("engine", ["native", "spark"])
@pytest.mark.parametrize("mode", ["encrypted", "plaintext"])
def test_every_run_takes_a_table_of_variants(lake: Lake, mode: str, engine: Any) -> None:
    """Encrypted, verified, rewrapped, re-keyed and decrypted, with the same rows; no leaf of a VARIANT is left out."""
    policy = lake.policy(footer_mode=mode)
    shredded(lake)
    query = f"{TEXTS} FROM t"
    before = rows_of(lake.sql(query))
    assert len(before) == 3 and sum(str(row).count(SECRET) for row in before) == 12
    set_tags(lake.spark, "t", TAGS, policy)
    assert {drift.kind for drift in verify_table(lake.spark, "t", policy).drift} == {"plaintext"}
    assert {entry.path[0] for entry in plan_table(lake.spark, "t", policy).encrypted} == set(KEYS)
    report = encrypt_table(lake.spark, "t", policy, engine=engine)
    assert report.outcome == "done"
    assert_tagged_leaves(lake, policy)
    assert count_shredded(lake, policy) == (2 if (mode, engine) == ("encrypted", "native") else 0)
    assert rows_of(lake.sql(query)) == before
    assert verify_table(lake.spark, "t", policy).ok
    write(lake.spark, 3, "keyFourth")
    before = rows_of(lake.sql(query))
    assert verify_table(lake.spark, "t", policy).ok
    assert encrypt_table(lake.spark, "t", policy, engine=engine).outcome == "nothing to do"
    if mode == "plaintext":
        assert not any(b"keyF" in file.read_bytes() or b"keyS" in file.read_bytes() for file in files_of(lake))

    old = {data_of(file, policy) for file in files_of(lake)}
    assert rotate(lake, policy, tables=["t"]).outcome == "done"
    assert {data_of(file, policy) for file in files_of(lake)} == old
    assert rotate(lake, policy, tables=["t"], run={"engine": engine}, compromised=True).outcome == "done"
    assert old.isdisjoint(data_of(file, policy) for file in files_of(lake))
    assert_tagged_leaves(lake, policy)
    assert verify_table(lake.spark, "t", policy).ok
    assert rows_of(lake.sql(query)) == before
    unset_tags(lake.spark, "t", TAGS)
    assert encrypt_table(lake.spark, "t", policy, allow_decrypt=True, engine=engine).outcome == "done"
    assert_plaintext(files_of(lake)[0].parent)
    assert rows_of(lake.sql(query)) == before


def poor_session(lake: Lake, policy: Policy, **more: Any) -> Any:
    """Return a session that masks what needs the keys of tags."""
    poor = with_keys(policy, lake.root / "poor", without_keys("pii", "fin"))
    session = sparkcrypt.session(poor, on_denied="mask", **more)
    session.sql(f"USE {lake.database}")
    return session


def test_denied_variants_are_null(lake: Lake) -> None:
    """Other columns, and other fields beside them, keep their values, also where VARIANTs are asked for a part."""
    policy = lake.policy()
    shredded(lake)
    set_tags(lake.spark, "t", TAGS, policy)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    session = poor_session(lake, policy)
    opened = [f'{{"open{number}":"{PLAIN}"}}' for number in range(3)]
    answers = {
        "SELECT id FROM t": [(0,), (1,), (2,)],
        "SELECT id, v, s.a, s.v, m['k'] FROM t": [(number, None, number, None, None) for number in range(3)],
        "SELECT id, to_json(v) FROM t WHERE v IS NULL": [(0, None), (1, None), (2, None)],
        "SELECT id, variant_get(v, '$.n', 'int'), s.v:n::int FROM t": [(number, None, None) for number in range(3)],
        "SELECT id FROM t WHERE variant_get(v, '$.n', 'int') = 1": [],
        "SELECT to_json(u) FROM t": [(text,) for text in opened],
        f"SELECT u:open1::string FROM t WHERE u:open1::string = '{PLAIN}'": [(PLAIN,)],
        "SELECT s FROM t": [((number, None),) for number in range(3)],
    }
    assert {query: rows_of(session.sql(query)) for query in answers} == answers
    assert [row.v for row in session.sql("SELECT * FROM t").collect()] == [None] * 3
    assert masked_columns(session.table("t")).keys() >= {"v", "s.v", "l", "m"}
    frame = read_table(lake.spark, "t", with_keys(policy, lake.root / "p2", without_keys("pii")), on_denied="drop")
    assert frame.columns == ["id", "s", "m", "u", "p"]
    said = refusal(session.sql, "CREATE TABLE stored USING parquet AS SELECT id, v FROM t")
    assert "column v" in said and "nulls in place of values" in said
    with_errors = poor_denied(lake, policy)
    assert rows_of(with_errors.sql("SELECT id FROM t")) == [(0,), (1,), (2,)]
    for text in ("to_json(v)", "variant_get(v, '$.n', 'int')", "s.v:n::int"):
        said = refusal(with_errors.sql(f"SELECT {text} FROM t").collect)
        assert "KeyNotFoundError" in said and "column" in said


def poor_denied(lake: Lake, policy: Policy) -> Any:
    """Return a session in which what needs the keys of tags is an error."""
    poor = with_keys(policy, lake.root / "poorer", without_keys("pii", "fin"))
    session = sparkcrypt.session(poor, on_denied="error")
    session.sql(f"USE {lake.database}")
    return session


@pytest.mark.parametrize("untagged", ["plaintext", "footer_key"])
def test_parts_of_a_variant_in_clear_are_refused(lake: Lake, untagged: str) -> None:
    """Also where Spark reads parts of the VARIANT in place of it, into fields that have no names of the table's."""
    shredded(lake)
    tables = f"  {lake.name('t')}: {{require_encryption: true}}\n"
    policy = lake.policy(tables=tables, untagged=untagged)
    tags = {"v": ["pii"], "s.v": ["fin"]} if untagged == "plaintext" else {"s.v": ["fin"]}
    set_tags(lake.spark, "t", tags, policy)
    assert encrypt_table(lake.spark, "t", policy, adopt=True).outcome == "done"
    lake.sql("REFRESH TABLE t")
    texts = ("to_json(v)", "variant_get(v, '$.n', 'int')", "v:keyFirst::string")
    for text in texts:
        assert len(rows_of(lake.sql(f"SELECT {text} FROM t"))) == 3
    for file in files_of(lake):
        columns = inspect_file(file, retrieve_key=retriever(policy)).columns or {}
        put_in_clear(file, policy, *(path for path in columns if path[0] == "v" and path[-1] != "metadata"))
    lake.sql("REFRESH TABLE t")
    for text in texts:
        said = refusal(lake.sql(f"SELECT {text} FROM t").collect)
        assert "VerificationError" in said and "is plaintext, and the" in said, text


def test_parts_have_the_tags_of_their_variant(lake: Lake) -> None:
    """What a query takes out of a VARIANT is encrypted as the VARIANT is."""
    policy = lake.policy()
    shredded(lake)
    set_tags(lake.spark, "t", TAGS, policy)
    parts = "variant_get(v, '$.n', 'int') n, s.v:n::int o, to_json(m['k']) k, u, l"
    lake.sql(f"CREATE TABLE made USING parquet AS SELECT id, {parts} FROM t")
    found = {
        name: key for summary in footers(lake.path("made"), policy) for name, key in encrypted_columns(summary).items()
    }
    element = "l.list.element.v"
    assert found == {"n": "pii", "o": "fin", "k": "fin", f"{element}.value": "pii", f"{element}.metadata": "pii"}
    assert not any(SECRET.encode() in file.read_bytes() for file in data_files(lake.path("made")))


def test_stores_of_tables_with_variants(lake: Lake) -> None:
    """Queries by other columns skip files, queries by parts of VARIANTs get their rows, and no VARIANT is indexed."""
    policy = lake.policy(more="index: {location: indexes/}\n")
    shredded(lake)
    set_tags(lake.spark, "t", TAGS, policy)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    settle(files_of(lake)[0].parent)
    index_table(lake.spark, "t", policy, columns=["id"])
    lake.spark.conf.set(names.SKIPPING, "true")
    lake.sql("REFRESH TABLE t")
    frame = lake.sql("SELECT variant_get(v, '$.n', 'int') FROM t WHERE id = 1 AND variant_get(v, '$.n', 'int') = 1")
    assert frame.collect() == [(1,)]
    assert report(frame).opened == 1
    assert lake.sql("SELECT id FROM t WHERE v:n::int = 2 OR s.v:n::int = 0").count() == 2
    for column in ("v", "s.v", "v.value"):
        assert f"column {column!r}" in refusal(partial(index_table, columns=["id", column]), lake.spark, "t", policy)
    assert encrypt_table(lake.spark, "t", policy).outcome == "nothing to do"


def test_pyarrow_reads_whole_variants_alone(lake: Lake) -> None:
    """One that is shredded in a file is refused by name, denied ones are null, and other columns are read."""
    policy = lake.policy()
    shredded(lake)
    set_tags(lake.spark, "t", TAGS, policy)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    folder = str(files_of(lake)[0].parent.parent)

    def opened(policy: Policy = policy, **more: Any) -> Any:
        return open_table(folder, policy, table=lake.name("t"), tags=TAGS, **more)

    assert opened().to_table(["id", "p"]).sort_by("id").to_pylist() == [{"id": number, "p": 0} for number in range(3)]
    for column, named in {"v": "v", "s": "s.v", "u": "u"}.items():
        for read in (
            lambda table, column=column: table.to_table([column]),
            lambda table, column=column: table.to_table(["id"], pc.field(column).is_null()),
            lambda table, column=column: table.dataset([column]),
        ):
            said = refusal(read, opened())
            assert f"column {named} is a VARIANT that is shredded" in said and ".parquet: " in said
    assert "is a VARIANT that is shredded" in refusal(opened().to_table)
    (whole,) = opened().to_table(["l"], pc.field("id") == 2)["l"].to_pylist()
    assert SECRET.encode() in whole[0]["v"]["value"] and b"keyThird" in whole[0]["v"]["metadata"]
    poor = with_keys(policy, lake.root / "poor", without_keys("pii", "fin"))
    nulls = opened(poor, on_denied="mask")
    assert nulls.masked.keys() == {"v", "s.v", "l.element.v", "m.key", "m.value"}
    found = nulls.to_table(["id", "v", "s", "m"]).sort_by("id").to_pylist()
    assert found == [{"id": number, "v": None, "s": {"a": number, "v": None}, "m": None} for number in range(3)]
    assert "column u is a VARIANT" in refusal(nulls.to_table, ["u"])
    assert opened(poor, on_denied="drop").schema.names == ["id", "s", "u", "p"]
    assert "column v" in refusal(opened(poor).to_table, ["v"])
    strict = opened(replace(poor, strict_projection=True), on_denied="mask")
    assert "column v" in refusal(strict.to_table, ["v"]) and "cannot be named" in refusal(strict.to_table, ["v"])


@pytest.mark.parametrize("mode", ["encrypted", "plaintext"])
def test_streams_of_variants(lake: Lake, mode: str) -> None:
    """Keys of objects are in encrypted footers alone: with plaintext ones a stream that shreds is refused."""
    policy = lake.policy(footer_mode=mode)
    lake.sql("CREATE TABLE t (id INT, v VARIANT) USING parquet")
    set_tags(lake.spark, "t", {"v": ["pii"]}, policy)
    (lake.root / "in").mkdir()
    (lake.root / "in" / "0.txt").write_text(f'{{"{SECRET}": "{SECRET}"}}\n')

    def stream() -> None:
        rows = lake.spark.readStream.text(str(lake.root / "in")).selectExpr("1 AS id", "parse_json(value) AS v")
        writer = rows.writeStream.option("checkpointLocation", str(lake.root / "checkpoint")).format("parquet")
        writer.trigger(availableNow=True).toTable("t").awaitTermination(120)

    if mode == "plaintext":
        assert "TASK_WRITE_FAILED" in refusal(stream)
        assert not data_files(lake.path("t"))
        lake.spark.conf.set(WHOLE, "false")
    stream()
    assert rows_of(lake.sql("SELECT id, to_json(v) FROM t")) == [(1, f'{{"{SECRET}":"{SECRET}"}}')]
    for file, summary in zip(data_files(lake.path("t")), footers(lake.path("t"), policy), strict=True):
        assert SECRET.encode() not in file.read_bytes()
        leaves = {path: column.key_id for path, column in (summary.columns or {}).items() if path[0] == "v"}
        assert set(leaves.values()) == {"pii"}
        assert any(SECRET in path for path in leaves) == (mode == "encrypted")

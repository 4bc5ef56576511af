"""Types that Spark 4 brought, and those that it keeps in metadata: each works by every route, or is refused by name."""

from __future__ import annotations

from datetime import datetime, time
from typing import Any

import pytest

import sparkcrypt
from sparkcrypt import encrypt_table, plan_table, verify_table
from sparkcrypt.arrow import open_table
from sparkcrypt.files.parquet import verify_file
from sparkcrypt.spark.tables.tagging import set_tags, unset_tags
from tests.spark.rotations import files_of, rotate
from tests.spark.support import (
    PLAIN,
    Lake,
    assert_encrypted,
    assert_plaintext,
    retriever,
    rows_of,
    with_keys,
    without_keys,
)

pytestmark = pytest.mark.spark

POINT = "X'0101000000000000000000F03F0000000000000040'"
TYPES = {
    "TIME": "TIME '12:34:56.789'",
    "TIME(0)": "CAST(TIME '12:34:56' AS TIME(0))",
    "INTERVAL DAY TO SECOND": "INTERVAL '1 02:03:04' DAY TO SECOND",
    "INTERVAL MONTH": "INTERVAL '7' MONTH",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ '2026-01-01 00:00:00'",
    "CHAR(9)": "'tiny'",
    "VARCHAR(9)": "'short'",
    "STRING COLLATE UNICODE_CI": "'Collated'",
    "ARRAY<STRING COLLATE UTF8_LCASE>": "array('Nested' COLLATE UTF8_LCASE)",
    "GEOMETRY(4326)": f"st_geomfromwkb({POINT}, 4326)",
    "GEOGRAPHY(4326)": f"st_geogfromwkb({POINT})",
    "STRUCT<t: TIME, c: VARCHAR(9)>": "named_struct('t', TIME '01:02:03', 'c', 'inner')",
}
"""Type -> a value."""
COLUMNS = {f"c{number}": kind for number, kind in enumerate(TYPES)}
TAGS = {name: ["pii"] for name in COLUMNS}
SHOWN = {"INTERVAL MONTH": "CAST({} AS STRING)", "GEOMETRY(4326)": "hex(st_asbinary({}))"}
SHOWN["GEOGRAPHY(4326)"] = SHOWN["GEOMETRY(4326)"]
"""Type -> its values in SQL as something that Python has."""
ROWS = f"SELECT id, note, {', '.join(SHOWN.get(kind, '{}').format(name) for name, kind in COLUMNS.items())}, p FROM t"
WKB = bytes.fromhex(POINT[2:-1])
ARROW = [
    time(12, 34, 56, 789_000),
    time(12, 34, 56),
    93_784_000_000,
    7,
    datetime(2026, 1, 1),
    "tiny     ",
    "short",
    "Collated",
    ["Nested"],
    WKB,
    WKB,
    {"t": time(1, 2, 3), "c": "inner"},
]
"""What pyarrow reads of the values: what Parquet has of them."""


@pytest.mark.parametrize("engine", ["native", "spark"])
def test_each_type_by_every_route(lake: Lake, engine: Any) -> None:
    """Encrypted, verified, masked, re-keyed and decrypted with the same rows; pyarrow gives what is stored."""
    lake.spark.conf.set("spark.sql.timeType.enabled", "true")
    lake.spark.conf.set("spark.sql.geospatial.enabled", "true")
    policy = lake.policy()
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    lake.sql(f"CREATE TABLE t (id INT, note STRING, {columns}, p INT) USING parquet PARTITIONED BY (p)")
    insert = f"INSERT INTO t SELECT {{}}, '{PLAIN}', {', '.join(TYPES.values())}, 0"
    with lake.stranger() as stranger:
        stranger.conf.set("spark.sql.timeType.enabled", "true")
        stranger.conf.set("spark.sql.geospatial.enabled", "true")
        stranger.sql(insert.format(1))
    set_tags(lake.spark, "t", TAGS, policy)
    assert {entry.path[0] for entry in plan_table(lake.spark, "t", policy).encrypted} == set(COLUMNS)
    assert encrypt_table(lake.spark, "t", policy, engine=engine).outcome == "done"
    lake.sql(insert.format(2))
    folder = files_of(lake)[0].parent
    assert_encrypted(folder, policy, {leaf: "pii" for leaf in leaves_of()}, hidden=("Collated", "tiny", "inner"))
    assert verify_table(lake.spark, "t", policy).ok
    rows = rows_of(lake.sql(ROWS))
    assert len(rows) == 2 and rows[0][1:] == rows[1][1:] and None not in rows[0]
    assert rotate(lake, policy, tables=["t"], run={"engine": engine}, compromised=True).outcome == "done"
    assert rows_of(lake.sql(ROWS)) == rows

    poor = with_keys(policy, lake.root / "poor", without_keys("pii"))
    session = sparkcrypt.session(poor, on_denied="mask")
    session.sql(f"USE {lake.database}")
    session.conf.set("spark.sql.timeType.enabled", "true")
    session.conf.set("spark.sql.geospatial.enabled", "true")
    masked = [None] * len(COLUMNS)
    assert rows_of(session.sql(ROWS)) == [(number, PLAIN, *masked, 0) for number in (1, 2)]
    place = str(files_of(lake)[0].parent.parent)
    nulls = (
        open_table(place, poor, table=lake.name("t"), tags=TAGS, on_denied="mask")
        .to_table(["id", *COLUMNS])
        .to_pylist()
    )
    assert sorted(row["id"] for row in nulls) == [1, 2]
    assert all(row[name] is None for row in nulls for name in COLUMNS)
    read = open_table(place, policy, table=lake.name("t")).to_table(list(COLUMNS)).to_pylist()
    assert [list(row.values()) for row in read] == [ARROW] * 2
    unset_tags(lake.spark, "t", COLUMNS)
    assert encrypt_table(lake.spark, "t", policy, allow_decrypt=True, engine=engine).outcome == "done"
    assert_plaintext(files_of(lake)[0].parent)
    assert rows_of(lake.sql(ROWS)) == rows


def leaves_of() -> list[str]:
    """Return the dotted Parquet paths of the tagged columns' leaves."""
    parts = {"ARRAY": [".list.element"], "STRUCT": [".t", ".c"]}
    return [name + part for name, kind in COLUMNS.items() for part in parts.get(kind.split("<")[0], [""])]


@pytest.mark.parametrize("kind", ["GEOMETRY(4326)", "GEOGRAPHY(4326)"])
def test_bounding_boxes_stay_out_of_plaintext_footers(lake: Lake, kind: str) -> None:
    """A run leaves no statistics of an encrypted column there; writes of Spark would, and are refused."""
    policy = lake.policy(footer_mode="plaintext")
    with lake.stranger() as stranger:
        stranger.conf.set("spark.sql.geospatial.enabled", "true")
        stranger.sql(f"CREATE TABLE t (id INT, g {kind}) USING parquet")
        stranger.sql(f"INSERT INTO t SELECT 1, {TYPES[kind]}")
    lake.spark.conf.set("spark.sql.geospatial.enabled", "true")
    set_tags(lake.spark, "t", {"g": ["pii"]}, policy)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    (file,) = files_of(lake)
    assert verify_file(file, retrieve_key=retriever(policy)).in_clear == ()

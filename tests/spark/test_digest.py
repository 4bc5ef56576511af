"""Digests of rows: equal for equal contents in any order, different for every accident that may befall rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T

from sparkcrypt.spark.tasks.digest import RowsDigest, digest_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
SCHEMA = "id INT, name STRING, amount DOUBLE, tags ARRAY<INT>, props MAP<STRING,INT>, s STRUCT<a:INT,b:STRING>"
ROWS: list[tuple[Any, ...]] = [
    (1, "a", 1.5, [1, 2], {"x": 1, "y": 2}, (1, "p")),
    (2, "b", None, [1, None], {}, None),
    (3, None, 0.0, [], None, (None, None)),
]


def digest(spark: SparkSession, rows: list[tuple[Any, ...]], schema: str = SCHEMA) -> RowsDigest:
    """Digest some rows, whose order and partitions do not matter."""
    return digest_rows(spark.createDataFrame(rows, schema))


def changed(row: int, column: int, value: Any) -> list[tuple[Any, ...]]:
    """Return the rows with one value changed."""
    rows = [list(values) for values in ROWS]
    rows[row][column] = value
    return [tuple(values) for values in rows]


def test_order_and_files_do_not_matter(spark: SparkSession) -> None:
    """The same rows in another order, in other partitions, give the same digest."""
    reordered = spark.createDataFrame(ROWS[::-1], SCHEMA).repartition(3)
    assert digest_rows(reordered) == digest(spark, ROWS)
    assert digest(spark, ROWS).rows == 3


MUTATIONS: dict[str, list[tuple[Any, ...]]] = {
    "one value": changed(0, 1, "A"),
    "a value to null": changed(0, 1, None),
    "null to a value": changed(1, 2, 0.0),
    "null to empty text": changed(2, 1, ""),
    "an element to null": changed(0, 3, [1, None]),
    "null element dropped": changed(1, 3, [1]),
    "elements swapped": changed(0, 3, [2, 1]),
    "empty array to null": changed(2, 3, None),
    "a map's value": changed(0, 4, {"x": 1, "y": 3}),
    "a map's key": changed(0, 4, {"x": 1, "z": 2}),
    "a map's values swapped": changed(0, 4, {"x": 2, "y": 1}),
    "a map's value to null": changed(0, 4, {"x": 1, "y": None}),
    "empty map to null": changed(1, 4, None),
    "null struct to struct of nulls": changed(1, 5, (None, None)),
    "struct of nulls to null struct": changed(2, 5, None),
    "a struct's field": changed(0, 5, (1, "q")),
    "a row dropped": ROWS[:-1],
    "a row doubled": [*ROWS, ROWS[0]],
    "a row twice, another gone": [ROWS[0], ROWS[0], ROWS[2]],
    "two values swapped between rows": [(2, *ROWS[0][1:]), (1, *ROWS[1][1:]), ROWS[2]],
    "no rows": [],
}


def test_every_mutation_is_found(spark: SparkSession) -> None:
    """One value, nulls, elements, maps, structs, rows dropped, doubled and swapped: each changes the digest."""
    original = digest(spark, ROWS)
    found = {name: digest(spark, rows) for name, rows in MUTATIONS.items()}
    assert [name for name, value in found.items() if value == original] == []
    assert len(set(found.values())) == len(found), "two mutations give one digest"


def test_values_move_between_columns_and_neighbours(spark: SparkSession) -> None:
    """Text that moves over the border of a column or element changes the digest."""
    cases = [
        [("ab", "c", ["a", "bc"])],
        [("a", "bc", ["a", "bc"])],
        [("ab", "c", ["ab", "c"])],
        [("ab", "c", ["abc"])],
        [("ab", "c", ["a", "bc", ""])],
        [("c", "ab", ["a", "bc"])],
    ]
    assert len({digest(spark, rows, "x STRING, y STRING, z ARRAY<STRING>") for rows in cases}) == len(cases)


def test_maps_are_compared_without_order(spark: SparkSession) -> None:
    """Entries written in another order are the same map; written in SQL, since a Python dict arrives in no order."""
    expected = digest_rows(spark.sql("SELECT 1 AS id, map('x', 1, 'y', 2, 'z', NULL) AS m"))
    assert digest_rows(spark.sql("SELECT 1 AS id, map('z', NULL, 'y', 2, 'x', 1) AS m")) == expected
    assert digest_rows(spark.sql("SELECT 1 AS id, map('z', NULL, 'y', 1, 'x', 2) AS m")) != expected


def test_floating_point_corners(spark: SparkSession) -> None:
    """NaN equals itself, and NaN, null, infinities, 0.0 and -0.0 all differ."""
    values = [math.nan, None, math.inf, -math.inf, 0.0, -0.0, 5e-324]
    for kind in ("DOUBLE", "FLOAT"):
        distinct = values if kind == "DOUBLE" else values[:-1]
        found = [digest(spark, [(value,)], f"v {kind}") for value in distinct]
        assert len(set(found)) == len(distinct), kind
        assert digest(spark, [(math.nan,)], f"v {kind}") == found[0]


def test_types_with_equal_texts(spark: SparkSession) -> None:
    """Bytes that are no text, and lookalikes, differ: binary by every byte, text by case and trailing blanks."""
    binaries = [b"", b"\x00", b"\x00\x00", b"a", b"A", b"\xff", b"\xfe", None]
    assert len({digest(spark, [(value,)], "v BINARY") for value in binaries}) == len(binaries)
    texts = ["", " ", "a", "A", "a ", "61", "null", "n", None]
    assert len({digest(spark, [(value,)], "v STRING") for value in texts}) == len(texts)
    assert digest(spark, [("a",)], "v STRING") != digest(spark, [(b"a",)], "v BINARY")


def test_time_zone_does_not_matter(spark: SparkSession) -> None:
    """A timestamp's digest is that of the instant, whatever the session's time zone."""
    frame = spark.sql("SELECT TIMESTAMP '2026-10-25 01:30:00Z' AS t, TIMESTAMP_NTZ '2026-10-25 02:30:00' AS n")
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    again = session.sql("SELECT TIMESTAMP '2026-10-25 01:30:00Z' AS t, TIMESTAMP_NTZ '2026-10-25 02:30:00' AS n")
    assert digest_rows(again) == digest_rows(frame)


def test_many_equal_rows_do_not_overflow(spark: SparkSession) -> None:
    """A million equal rows are summed without overflow, and one more or less is seen."""
    frame: DataFrame = spark.range(1_000_000).selectExpr("'x' AS v")
    assert digest_rows(frame) != digest_rows(frame.limit(999_999))


def test_columns_with_odd_names_and_types(spark: SparkSession) -> None:
    """Names with dots and back-quotes, nested structs in arrays and maps, and intervals are digested."""
    schema = T.StructType(
        [
            T.StructField("a.b", T.StringType()),
            T.StructField("c`d", T.ArrayType(T.StructType([T.StructField("x.y", T.IntegerType())]))),
            T.StructField("m", T.MapType(T.StructType([T.StructField("k", T.IntegerType())]), T.BinaryType())),
        ]
    )
    rows = [("v", [(1,), None], {(1,): b"z"})]
    expected = digest_rows(spark.createDataFrame(rows, schema))
    assert expected != digest_rows(spark.createDataFrame([("v", [(1,)], {(1,): b"z"})], schema))
    interval = spark.sql("SELECT INTERVAL '1' DAY AS d, INTERVAL '2' YEAR AS y, DATE '2026-01-01' AS x, true AS b")
    assert digest_rows(interval).rows == 1

"""Values of each type, by Spark and without it: `open_table` and `open_orc` give those of Spark, or refuse by name."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pyarrow.parquet as pq
import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from sparkcrypt.arrow import open_orc, open_table
from sparkcrypt.calendars import FIRST_DAY, FIRST_GREGORIAN_DAY, SWITCHES, gregorian_days
from sparkcrypt.errors import UnsupportedFileError
from tests.spark.support import Lake

pytestmark = [pytest.mark.spark, pytest.mark.sparks]
TAGS = """
  pii: {key: pii}
"""
VERSION = tuple(map(int, pyspark.__version__.split(".")[:2]))
VALUES = {
    "BOOLEAN": ("true", "false"),
    "TINYINT": ("-128", "127"),
    "SMALLINT": ("-32768", "32767"),
    "INT": ("-2147483648", "2147483647"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807"),
    "FLOAT": ("-0.0", "CAST('NaN' AS FLOAT)", "CAST('-Infinity' AS FLOAT)", "1.1"),
    "DOUBLE": ("-0.0", "CAST('NaN' AS DOUBLE)", "1e308"),
    "DECIMAL(5,2)": ("-999.99", "0.01"),
    "DECIMAL(18,4)": ("99999999999999.9999", "-0.0001"),
    "DECIMAL(38,10)": ("9999999999999999999999999999.9999999999", "-1"),
    "STRING": ("''", "'Zürich \\0'"),
    "CHAR(5)": ("'ab'", "'abcde'"),
    "VARCHAR(5)": ("'ab'", "''"),
    "BINARY": ("X''", "X'00FF'"),
    "DATE": ("DATE'0001-01-01'", "DATE'1500-02-28'", "DATE'1582-10-15'", "DATE'9999-12-31'"),
    "TIMESTAMP": (
        "TIMESTAMP'1900-01-01 00:00:00Z'",
        "TIMESTAMP'2024-02-29 12:00:00.123456Z'",
        "TIMESTAMP'9999-12-31 23:59:59.999Z'",
    ),
    "TIMESTAMP_NTZ": ("TIMESTAMP_NTZ'0001-01-01 00:00:00'", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"),
    "STRUCT<a: DATE, b: TIMESTAMP>": (
        "named_struct('a', DATE'1500-02-28', 'b', TIMESTAMP'9999-12-31 00:00:00Z')",
        "named_struct('a', NULL, 'b', NULL)",
    ),
    "ARRAY<TIMESTAMP>": ("array(TIMESTAMP'2300-01-01 00:00:00Z', NULL)", "array()"),
    "MAP<DATE, TIMESTAMP>": ("map(DATE'1500-02-28', TIMESTAMP'2300-01-01 00:00:00Z')", "map()"),
}
LATER = {
    "STRING COLLATE UTF8_LCASE": ((4, 0), ("'Ab'", "'aB'")),
    "TIME(6)": ((4, 1), ("TIME'00:00:00'", "TIME'23:59:59.999999'")),
}
VALUES |= {kind: values for kind, (least, values) in LATER.items() if least <= VERSION}
NEW_CALENDAR = {f"spark.sql.parquet.{kind}RebaseModeInWrite": "CORRECTED" for kind in ("datetime", "int96")}
"""The default of Spark 4; Spark 3.5 refuses to write old dates."""
WAYS: dict[str, dict[str, str]] = {
    "as it is": {},
    "V2 pages, microseconds": {
        "parquet.writer.version": "v2",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    },
    "milliseconds": {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"},
    "like Hive": {"spark.sql.parquet.writeLegacyFormat": "true"},
    "old calendar": {
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    },
}


def by_spark(lake: Lake, text: str) -> pa.Table:
    """Return the rows of a query in Arrow, with times in UTC."""
    lake.spark.conf.set("spark.sql.session.timeZone", "UTC")
    frame = lake.sql(text)
    whole: Any = frame
    return whole.toArrow() if VERSION >= (4, 0) else pa.Table.from_batches(whole._collect_as_arrow())


def same(found: pa.Table, expected: pa.Table) -> bool:
    """Tell whether rows are equal, NaN and -0.0 told apart from other values."""
    rows = found.cast(expected.schema.remove_metadata())
    return bool(rows.schema.names == expected.schema.names and str(rows.to_pylist()) == str(expected.to_pylist()))


def fill(lake: Lake, name: str, conf: dict[str, str]) -> None:
    """Make a table with a column of each type, tagged, and a row for each value."""
    columns = {f"c{number}": kind for number, kind in enumerate(VALUES)}
    most = max(map(len, VALUES.values()))
    rows = []
    for row in range(most + 1):
        values = [value[row] if row < len(value) else "NULL" for value in VALUES.values()]
        cast = [f"CAST({value} AS {kind})" for value, kind in zip(values, VALUES, strict=True)]
        rows.append(f"SELECT {row} AS id, {', '.join(cast)}")
    told = ", ".join(f"{column} {kind}" for column, kind in columns.items())
    tags = ", ".join(f"'parquet.sparkcrypt.tags.{column}'='pii'" for column in columns)
    lake.sql(f"CREATE TABLE {name} (id INT, {told}) USING parquet OPTIONS ({tags})")
    for key, value in (NEW_CALENDAR | conf).items():
        lake.spark.conf.set(key, value)
    lake.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM ({' UNION ALL '.join(rows)})")
    for key in conf:
        lake.spark.conf.unset(key)


def test_each_type_has_the_values_of_spark(lake: Lake) -> None:
    """Each type, however Spark is told to write it; all ways in one table too, and filters on times and days."""
    policy = lake.policy(TAGS)
    lake.spark.conf.set("spark.sql.timeType.enabled", "true")
    for number, (way, conf) in enumerate(WAYS.items()):
        fill(lake, f"t{number}", conf)
        table = open_table(str(lake.path(f"t{number}")), policy)
        for column, kind in zip((f"c{at}" for at in range(len(VALUES))), VALUES, strict=True):
            expected = by_spark(lake, f"SELECT {column} FROM t{number} ORDER BY id")
            found = table.to_table(["id", column]).sort_by("id").select([column])
            assert same(found, expected), (way, kind, found.to_pylist(), expected.to_pylist())
    every = [str(lake.path(f"t{number}")) for number in range(len(WAYS))]
    everything = open_table(every, policy)
    assert everything.to_table().num_rows == len(WAYS) * 5
    names = dict(zip(VALUES, (f"c{at}" for at in range(len(VALUES))), strict=True))
    for kind, value in (("TIMESTAMP", "TIMESTAMP'2024-03-01 00:00:00Z'"), ("DATE", "DATE'1582-01-01'")):
        column = names[kind]
        bound = by_spark(lake, f"SELECT {value} AS v")["v"][0]
        for name, condition in ((">", pc.field(column) > bound), ("<", pc.field(column) < bound)):
            wanted = [
                by_spark(lake, f"SELECT id FROM t{n} WHERE {column} {name} {value}").num_rows for n in range(len(WAYS))
            ]
            assert everything.count_rows(condition) == sum(wanted) > 0, (kind, name, wanted)


def test_days_are_those_of_spark(lake: Lake) -> None:
    """Spark's own conversion gives the same days: around each change, and anywhere."""
    chance = random.Random(5)
    days = [FIRST_DAY + offset for offset in range(40)] + [FIRST_GREGORIAN_DAY + offset for offset in range(-40, 3)]
    days += [chance.randrange(FIRST_DAY, 40_000) for _ in range(400)]
    days += [switch - back for switch in SWITCHES.tolist()[1:] for back in (0, 1)]
    rebase = lake.jvm.org.apache.spark.sql.catalyst.util.RebaseDateTime.rebaseJulianToGregorianDays
    assert gregorian_days(np.array(days, np.int32)).tolist() == [rebase(day) for day in days]


def test_old_times_are_refused_by_name(lake: Lake) -> None:
    """What Spark wrote in the old calendar before 1900; the same times in the new one are Spark's."""
    policy, times = lake.policy(TAGS), "SELECT TIMESTAMP'0001-01-01 00:00:00Z' AS c"
    for kind in ("INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"):
        lake.spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
        for mode in ("LEGACY", "CORRECTED"):
            lake.spark.conf.set("spark.sql.parquet.int96RebaseModeInWrite", mode)
            lake.spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", mode)
            name = f"{kind}_{mode}".lower()
            lake.sql(f"CREATE TABLE {name} USING parquet AS {times}")
            table = open_table(str(lake.path(name)), policy)
            if mode == "CORRECTED":
                assert same(table.to_table(), by_spark(lake, f"SELECT * FROM {name}")), name
                continue
            with pytest.raises(UnsupportedFileError, match=r"column c has a time before 1900 .*with Spark"):
                table.to_table()


OTHERS = {
    **{f"uint{bits}": pa.array([0, 2**bits - 1, None], f"uint{bits}") for bits in (8, 16, 32, 64)},
    "half": pa.array([np.float16(0.5), None], pa.float16()),
    "millis of a day": pa.array([0, 86_399_999, None], pa.time32("ms")),
    "micros of a day": pa.array([0, 86_399_999_999, None], pa.time64("us")),
    "nanos": pa.array([1, None], pa.timestamp("ns", "UTC")),
    "nanos without a zone": pa.array([1, None], pa.timestamp("ns")),
    "millis without a zone": pa.array([-(10**13), 10**13, None], pa.timestamp("ms")),
    "small decimal": pa.array([Decimal("-999.99"), None], pa.decimal128(5, 2)),
    "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
    "large text": pa.array(["a", None], pa.large_string()),
    "fixed bytes": pa.array([b"abcd", None], pa.binary(4)),
    "fixed list": pa.array([[1, None], [2, 3]], pa.list_(pa.int32(), 2)),
    "date64": pa.array([-138_889, None], pa.int32()).cast(pa.date32()).cast(pa.date64()),
}
REFUSED = {"half", "millis of a day", "micros of a day", "nanos", "nanos without a zone"}
"""What a Spark may refuse; these have the values that Arrow has."""


def test_files_of_other_writers_have_the_values_of_spark(lake: Lake) -> None:
    """Whatever Spark reads of them."""
    policy, refusals = lake.policy(TAGS), set()
    for number, (name, values) in enumerate(OTHERS.items()):
        folder = lake.root / f"other{number}"
        folder.mkdir()
        pq.write_table(pa.table({"c": values}), folder / "a.parquet", data_page_version="2.0")
        found = open_table(str(folder), policy).to_table()
        try:
            expected = by_spark(lake, f"SELECT * FROM parquet.`{folder.as_uri()}`")
        except (PySparkException, Py4JJavaError):
            refusals.add(name)
            continue
        assert same(found, expected), (name, found.to_pylist(), expected.to_pylist())
    assert refusals <= REFUSED


def test_dates_of_orc_are_those_of_spark(lake: Lake) -> None:
    """By Spark, in either calendar that ORC can be told to use, and by a writer that names none."""
    policy, named = lake.policy(TAGS), ("0001-01-01", "1500-02-28", "1582-10-04", "1582-10-15", "2024-01-01")
    frame = lake.sql(" UNION ALL ".join(f"SELECT DATE'{day}' AS d" for day in named)).coalesce(1)
    for name in ("false", "true"):
        frame.write.option("orc.proleptic.gregorian", name).orc(str(lake.root / f"orc-{name}"))
    (lake.root / "orc-arrow").mkdir()
    rows = pa.table({"d": pa.array([-719_000, 0], pa.int32()).cast(pa.date32())})
    pa.orc.write_table(rows, lake.root / "orc-arrow" / "a.orc")
    for name in ("false", "true", "arrow"):
        (file,) = (lake.root / f"orc-{name}").glob("*.orc")
        expected = by_spark(lake, f"SELECT * FROM orc.`{file.as_uri()}`")
        assert same(open_orc(str(file), policy).to_table(), expected), (name, expected.to_pylist())

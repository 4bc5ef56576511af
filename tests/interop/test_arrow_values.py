"""Values that pyarrow alone reads otherwise than Spark, or not at all: Spark's by `open_table`, or refused by name."""

from __future__ import annotations

import io
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sparkcrypt.arrow import GuardedTable, open_table
from sparkcrypt.arrow.table import SCANS_NEED_FEW_KEYS
from sparkcrypt.policy.model import Policy
from tests.interop.lake_files import TableWriter
from tests.spark.support import make_policy, with_keys, without_keys

pytestmark = pytest.mark.sparks
TAGS = """
  pii: {key: pii}
  fin: {key: fin}
"""
MODES = [(footer, algorithm) for footer in ("encrypted", "plaintext") for algorithm in ("AES_GCM_V1", "AES_GCM_CTR_V1")]
INSTANT = pa.timestamp("us", "UTC")
ENDS = datetime(9999, 12, 31, tzinfo=timezone.utc)
NOW = datetime(2024, 1, 1, tzinfo=timezone.utc)


def open_all(folder: Path, policy: Policy, **options: Any) -> GuardedTable:
    """Open a table of no name."""
    return open_table(str(folder), policy, principal="ann", **options)


def lacking(policy: Policy, folder: Path, key_id: str) -> Policy:
    """Return the policy of somebody who lacks a key."""
    return with_keys(policy, folder / f"without-{key_id}", without_keys(key_id))


def written(rows: pa.Table, **options: Any) -> bytes:
    """Return a plaintext file."""
    plain = io.BytesIO()
    pq.write_table(rows, plain, **options)
    return plain.getvalue()


def by_duckdb(source: Any, condition: str) -> list[Any]:
    """Return the ids of the rows that meet a condition."""
    with duckdb.connect() as connection:
        connection.register("source", source)
        return connection.sql(f"SELECT id FROM source WHERE {condition} ORDER BY id").fetchall()


def int96_rows(values: list[datetime | None]) -> pa.Table:
    """Return times without a zone, as pyarrow writes them as INT96: at the top, in a struct and in a list."""
    naive = [None if value is None else value.replace(tzinfo=None) for value in values]
    kind = pa.timestamp("us")
    return pa.table(
        {
            "id": pa.array(range(len(values)), pa.int64()),
            "seen": pa.array(naive, kind),
            "s": pa.array([{"x": value} for value in naive], pa.struct([("x", kind)])),
            "l": pa.array([[value] for value in naive], pa.list_(kind)),
        }
    )


TIMES: list[datetime | None] = [ENDS, datetime(1, 1, 1, tzinfo=timezone.utc), NOW, None]


def test_int96_is_what_spark_reads(tmp_path: Path) -> None:
    """Times of all years, in microseconds of UTC, beside files with the types of other writers; filters keep rows."""
    policy, folder = make_policy(tmp_path / "p", TAGS), tmp_path / "t"
    writer, keys = TableWriter(folder, policy, None), {"seen": "pii", "s.x": "fin"}
    rows = int96_rows(TIMES)
    old = written(rows, use_deprecated_int96_timestamps=True, store_schema=False)
    instants = rows.set_column(1, "seen", rows["seen"].cast(INSTANT))
    millis = rows.slice(0, 3).set_column(1, "seen", rows["seen"].cast(pa.timestamp("ms", "UTC")).slice(0, 3))
    writer.encrypt(old, "a", keys)
    writer.encrypt(written(instants, store_schema=False), "b", keys)
    writer.encrypt(written(millis, store_schema=False), "c", keys)
    expected = [*TIMES, *TIMES, *TIMES[:3]]
    for first in ("a", "b", "c"):
        files = [str(folder / name) for name in sorted("abc", key=lambda name: (name != first, name))]
        table = open_table(files, policy)
        assert table.schema.field("seen").type == INSTANT
        found = table.to_table().sort_by("id")
        assert sorted(map(str, found["seen"].to_pylist())) == sorted(map(str, expected))
        later = pc.field("seen") > datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=timezone.utc)
        assert table.to_table(["id"], later)["id"].to_pylist() == [0, 0, 0]
        if SCANS_NEED_FEW_KEYS:
            condition = "seen > TIMESTAMPTZ '2024-01-01 00:00:00.000001+00'"
            assert by_duckdb(table.dataset(["id", "seen"]), condition) == [(0,)] * 3
    poor = open_all(folder, lacking(policy, tmp_path, "pii"), tags={"seen": ["pii"]}, on_denied="null")
    assert poor.to_table(["seen", "l"]).slice(0, 2).to_pylist() == [{"seen": None, "l": [time]} for time in TIMES[:2]]


OLD_DAYS = [date(1500, 3, 11), date(1582, 10, 14), date(1582, 10, 15), None]
"""Days that the old calendar calls 1 March 1500, and 4 and 15 October 1582, which follow each other there."""
SPARKS_DAYS = [date(1500, 3, 1), date(1582, 10, 4), date(1582, 10, 15), None]

"""Writes tests/interop/files with Polars, DuckDB and fastparquet: ``python tests/interop/make_files.py``."""

from __future__ import annotations

import datetime
from pathlib import Path

import duckdb
import fastparquet
import pandas as pd
import polars as pl

FILES = Path(__file__).parent / "files"
ROWS = 400


def frame() -> pd.DataFrame:
    """Return columns of many types, some with nulls, that all three write."""
    rows = range(ROWS)
    return pd.DataFrame(
        {
            "a": list(rows),
            "s": [f"text {n % 40}" for n in rows],
            "u": [f"unique {n:05d}" for n in rows],
            "f": [None if n % 3 == 0 else n / 7 for n in rows],
            "b": [n % 2 == 0 for n in rows],
            "t": [datetime.datetime(2020, 1, 1) + datetime.timedelta(days=n) for n in rows],
        }
    )


def with_polars() -> None:
    """Polars: every codec, statistics, nested columns, several row groups and pages."""
    wide = pl.DataFrame(frame().astype(object).where(frame().notna(), None).to_dict("list")).with_columns(
        pl.Series("l", [[n, None] if n % 3 else None for n in range(ROWS)]),
        pl.Series("st", [{"x": n, "y": [{"z": str(n)}]} for n in range(ROWS)]),
        pl.Series("c", [f"k{n % 5}" for n in range(ROWS)], dtype=pl.Categorical),
    )
    for codec in ("uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4"):
        wide.write_parquet(
            FILES / f"polars_{codec}.parquet",
            compression=codec,
            statistics="full",
            row_group_size=150,
            data_page_size=512,
        )


def with_duckdb() -> None:
    """DuckDB: every codec, both format versions, dictionaries and so Bloom filters, nested columns."""
    query = (
        "select range a, 'text ' || range % 40 s, 'unique ' || range u, "
        "case when range % 3 != 0 then range / 7.0 end f, range % 2 = 0 b, [range, null] l, "
        "{'x': range, 'y': [{'z': 'q' || range}]} st, map {'k': range} m, "
        "timestamp '2020-01-01' + to_days(range::int) t, (range * 1.5)::decimal(18, 3) d from range(400)"
    )
    for codec in ("uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4_raw"):
        for version in ("v1", "v2"):
            target = FILES / f"duckdb_{version}_{codec}.parquet"
            duckdb.sql(
                f"copy ({query}) to '{target}' (format parquet, codec '{codec}', parquet_version '{version}', "
                "row_group_size 2048)"
            )


def with_fastparquet() -> None:
    """Fastparquet: every codec, several row groups."""
    for codec in ("UNCOMPRESSED", "SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4_RAW"):
        target = FILES / f"fastparquet_{codec.lower()}.parquet"
        data = frame().assign(c=lambda rows: rows["s"].astype("category"))
        fastparquet.write(str(target), data, row_group_offsets=150, compression=codec, stats=True)


if __name__ == "__main__":
    FILES.mkdir(exist_ok=True)
    for write in (with_polars, with_duckdb, with_fastparquet):
        write()
    print({module.__name__: module.__version__ for module in (pl, duckdb, fastparquet)})

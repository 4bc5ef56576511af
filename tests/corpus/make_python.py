"""Writes files with Polars, DuckDB, fastparquet, arrow-rs (by arro3-io) and pyorc.

``pip install polars duckdb fastparquet arro3-io pyorc pandas pyarrow``, then
``python -m tests.corpus.make_python FOLDER | python -m tests.corpus.manifest``.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import arro3.io
import duckdb
import fastparquet
import pandas as pd
import polars as pl
import pyarrow as pa
import pyorc

from tests.corpus.people import FLAT, people

FOLDER = Path(sys.argv[1])
N = 24


def target(package: str, name: str, odd: str, writer: str | None = None, ending: str = "parquet") -> str:
    """Return a file's path, and print its line for the manifest."""
    file = f"{name}.{ending}"
    line = {"file": file, "writer": writer or package, "version": version(package), "odd": odd}
    print(json.dumps(line, ensure_ascii=False))
    return str(FOLDER / file)


def with_polars() -> None:
    """Polars: codecs, levels of statistics, types of its own, nested columns."""
    rows = pl.DataFrame(people(), schema_overrides={"owed": pl.Decimal(10, 2)})
    for codec in ("uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4"):
        rows.write_parquet(target("polars", f"polars_people_{codec}", f"codec {codec}"), compression=codec)
    rows.write_parquet(target("polars", "polars_groups", "row groups of 9 rows"), row_group_size=9)
    rows.write_parquet(target("polars", "polars_pages", "small pages"), data_page_size=64)
    rows.write_parquet(target("polars", "polars_no_statistics", "no statistics"), statistics=False)
    rows.write_parquet(target("polars", "polars_full_statistics", "all statistics"), statistics="full")
    rows.clear().write_parquet(target("polars", "polars_zero_rows", "no rows"))
    pl.DataFrame().write_parquet(target("polars", "polars_no_columns", "no columns"))
    rows.write_parquet(target("polars", "polars_metadata", "user metadata"), metadata={"k": "v" * 3000, "größe": "ü"})
    kinds = {f"i{b}": pl.Series(range(N), dtype=getattr(pl, f"Int{b}")) for b in (8, 16, 32, 64)}
    kinds |= {f"u{b}": pl.Series(range(N), dtype=getattr(pl, f"UInt{b}")) for b in (8, 16, 32, 64)}
    pl.DataFrame(kinds).write_parquet(target("polars", "polars_integers", "integers of all widths"))
    words = [f"w{n % 3}" if n % 4 else None for n in range(N)]
    pl.DataFrame(
        {"c": pl.Series(words, dtype=pl.Categorical), "e": pl.Series(words, dtype=pl.Enum(["w0", "w1", "w2"]))}
    ).write_parquet(target("polars", "polars_categories", "a categorical and an enum"))
    pl.DataFrame({"t": [datetime.time(n, 1, 2, 3) for n in range(N)]}).write_parquet(
        target("polars", "polars_times", "times of day in nanoseconds")
    )
    pl.DataFrame({"d": [datetime.timedelta(days=n) for n in range(N)]}).write_parquet(
        target("polars", "polars_durations", "durations")
    )
    stamps = [datetime.datetime(1900, 1, 1) + datetime.timedelta(days=700 * n) for n in range(N)]
    for unit in ("ms", "us", "ns"):
        pl.DataFrame(
            {
                "t": pl.Series(stamps, dtype=pl.Datetime(unit)),
                "z": pl.Series(stamps).cast(pl.Datetime(unit)).dt.replace_time_zone("UTC"),
            }
        ).write_parquet(target("polars", f"polars_timestamps_{unit}", f"timestamps in {unit}"))
    pl.DataFrame({"n": pl.Series([None] * N), "id": range(N)}).write_parquet(
        target("polars", "polars_null_type", "a column of the type null")
    )
    pl.DataFrame({"f": [math.nan, math.inf, -0.0, None], "b": [b"", b"\0", None, b"x"]}).write_parquet(
        target("polars", "polars_nan", "NaN, bytes")
    )
    pl.DataFrame(
        {
            "l": [[[n], [], None] if n % 3 else None for n in range(N)],
            "a": pl.Series([[n, n] for n in range(N)], dtype=pl.Array(pl.Int32, 2)),
            "s": [{"x": n, "y": {"z": [str(n)]}} for n in range(N)],
            "ls": [[{"x": n}, {"x": None}] for n in range(N)],
        }
    ).write_parquet(target("polars", "polars_nested", "lists, arrays and structs within each other"))
    pl.DataFrame({"a.b": ["1"], "a b": ["2"], "größe": ["3"], "ID": ["4"], "id": ["5"]}).write_parquet(
        target("polars", "polars_names", "odd names, two that differ by case")
    )


def with_duckdb() -> None:
    """DuckDB: both versions, types of its own, field ids, row groups, Bloom filters."""
    rows = (
        "select range::bigint id, case when range % 5 != 2 then 'user' || range % 17 || '@example.org' end email, "
        "range / 7.0::double score, range % 3 = 0 member, date '1950-02-03' + (range * 366)::int born, "
        "(timestamp '2024-02-28 23:59:58.000001' + to_hours((7 * range)::bigint)) at time zone 'UTC' seen, "
        "(range * 1.37 - 5)::decimal(10, 2) owed, case when range % 10 != 2 then ['+' || range, null] end phones, "
        "{'city': 'city ' || range % 6, 'zip': (1000 + range)::int} home from range(40)"
    )
    duckdb.sql("set timezone = 'UTC'")

    def copy(query: str, name: str, odd: str, *options: str) -> None:
        path = target("duckdb", f"duckdb_{name}", odd, "DuckDB")
        duckdb.sql(f"copy ({query}) to '{path}' ({', '.join(('format parquet', *options))})")

    for codec in ("uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4_raw"):
        copy(rows, f"people_{codec}", f"codec {codec}", f"codec '{codec}'")
    copy(rows, "people_v2", "DuckDB's V2 encodings", "parquet_version v2")
    copy(rows.replace("range(40)", "range(5000)"), "groups", "row groups of 2048 rows, V2", "row_group_size 2048",
         "parquet_version v2", "codec zstd")  # fmt: skip
    copy(rows, "field_ids", "field ids", "field_ids {id: 7, email: 8}")
    copy(rows, "metadata", "user metadata", "kv_metadata {note: 'a value', größe: 'ü'}")
    copy(f"{rows} limit 0", "zero_rows", "no rows")
    whole = ", ".join(f"range::{kind} {kind}" for kind in ("tinyint", "smallint", "int", "bigint", "utinyint",
                      "usmallint", "uinteger", "ubigint"))  # fmt: skip
    copy(f"select {whole} from range(24)", "integers", "integers of all widths")
    copy("select range::hugeint h, range::uhugeint u from range(5)", "hugeint", "128-bit integers, which are doubles")
    copy("select '00000000-0000-0000-0000-00000000000' || range u0, ('00000000-0000-0000-0000-00000000000' || range)"
         "::uuid u from range(9)", "uuid", "UUID")  # fmt: skip
    copy("select interval (range) day i, range from range(5)", "interval", "INTERVAL")
    copy("select time '01:02:03.000004' t, time '23:59:59' + to_seconds(0) t2 from range(3)", "times", "times of day")
    copy("select {'a': 1}::json j, '[]'::json k from range(3)", "json", "JSON")
    copy("select ('w' || range % 3)::enum('w0', 'w1', 'w2') e from range(9)", "enum", "ENUM")
    copy("select '\\xAA\\x00'::blob b, bitstring '0101' bits from range(3)", "blob", "bytes and bits")
    copy("select timestamp_ns '2020-01-01' n, timestamp_ms '2020-01-01' m, timestamp_s '2020-01-01' s from range(3)",
         "timestamps", "timestamps of three units")  # fmt: skip
    copy("select map {'k' || range: [range, null]} m, [map {range: {'x': range}}] lm, [[['a'], []], null] lll, "
         "[1, 2]::int[2] fixed from range(9)", "nested", "maps and lists within each other")  # fmt: skip
    copy('select 1 "a.b", 2 "größe", 3 " b", 4 "a,b"', "names", "odd names")
    copy("select 'nan'::double d, 'inf'::float f, null::int n from range(5)", "nan", "NaN and infinities")


def with_fastparquet() -> None:
    """fastparquet: codecs, INT96, categoricals, object encodings."""
    frame = pd.DataFrame({name: people()[name] for name in FLAT if name not in ("born",)})
    for codec in ("UNCOMPRESSED", "SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4_RAW", "LZ4"):
        path = target("fastparquet", f"fastparquet_{codec.lower()}", f"codec {codec}")
        try:
            fastparquet.write(path, frame, compression=codec, row_group_offsets=15)
        except Exception as error:  # noqa: BLE001 - some versions have no LZ4
            print(codec, error, file=sys.stderr)
    fastparquet.write(target("fastparquet", "fastparquet_int96", "INT96"), frame, times="int96")
    fastparquet.write(target("fastparquet", "fastparquet_no_nulls", "required columns"),
                      pd.DataFrame({"a": range(9), "b": list("abcdefghi")}), has_nulls=False)  # fmt: skip
    fastparquet.write(target("fastparquet", "fastparquet_no_statistics", "no statistics"), frame, stats=False)
    fastparquet.write(target("fastparquet", "fastparquet_category", "a categorical"),
                      frame.assign(c=frame["email"].astype("category")))  # fmt: skip
    objects = pd.DataFrame({"j": [{"a": n} for n in range(9)], "b": [b"x" * n for n in range(9)]})
    fastparquet.write(target("fastparquet", "fastparquet_json", "JSON and bytes"), objects,
                      object_encoding={"j": "json", "b": "bytes"})  # fmt: skip
    fastparquet.write(target("fastparquet", "fastparquet_fixed", "texts of fixed length"),
                      pd.DataFrame({"f": [f"{n:04}" for n in range(9)], "id": range(9)}), fixed_text={"f": 4})  # fmt: skip


def with_arrow_rs() -> None:
    """Write with arrow-rs in a wheel; the Rust program beside this writes what its options do not."""
    rows = pa.table(people())
    writer = "arrow-rs (arro3-io)"
    for page in ("parquet_1_0", "parquet_2_0"):
        arro3.io.write_parquet(rows, target("arro3-io", f"arro3_{page[8:]}", f"writer version {page}", writer),
                               writer_version=page, compression="snappy")  # fmt: skip
    arro3.io.write_parquet(rows, target("arro3-io", "arro3_bloom", "Bloom filters", writer),
                           bloom_filter_enabled=True, bloom_filter_ndv=40, compression="zstd(3)")  # fmt: skip
    arro3.io.write_parquet(rows, target("arro3-io", "arro3_pages", "small pages and row groups", writer), max_row_group_size=16,
                           data_page_size_limit=64, write_batch_size=4)  # fmt: skip


def with_pyorc() -> None:
    """Write with pyorc (ORC C++): every type, codecs, user metadata, Bloom filters, no row index."""
    stamps = [
        datetime.datetime(1980, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(days=n) for n in range(N)
    ]
    kinds: dict[str, list[Any]] = {
        "boolean": [n % 2 == 0 for n in range(N)],
        "tinyint": list(range(N)),
        "smallint": list(range(N)),
        "int": list(range(N)),
        "bigint": list(range(N)),
        "float": [n / 4 for n in range(N)],
        "double": [n / 7 for n in range(N)],
        "string": [f"s{n % 5}" for n in range(N)],
        "binary": [b"\0" * n for n in range(N)],
        "timestamp": stamps,
        "timestamp with local time zone": stamps,
        "date": [datetime.date(1960, 1, 1 + n) for n in range(N)],
        "decimal(20,3)": [decimal.Decimal(n) / 8 for n in range(N)],
        "varchar(3)": [f"v{n}" for n in range(N)],
        "char(5)": [f"c{n}" for n in range(N)],
        "array<int>": [[n] * (n % 3) for n in range(N)],
        "map<string,int>": [{f"k{n}": n} for n in range(N)],
        "struct<a:int,b:string>": [(n, str(n)) for n in range(N)],
        "uniontype<int,string>": [n if n % 2 else str(n) for n in range(N)],
    }

    def write(name: str, odd: str, columns: dict[str, list[Any]], **options: Any) -> None:
        schema = "struct<" + ",".join(f"c{n}:{kind}" for n, kind in enumerate(columns)) + ">"
        path = Path(target("pyorc", f"pyorc_{name}", odd, "pyorc (ORC C++)", "orc"))
        with path.open("wb") as out, pyorc.Writer(out, schema, **options) as writer:
            for number, row in enumerate(zip(*columns.values(), strict=True)):
                writer.write(tuple(None if (number + place) % 6 == 5 else v for place, v in enumerate(row)))
            writer.set_user_metadata(note=b"a value" * 20)

    write("types", "every type but unions", {k: v for k, v in kinds.items() if not k.startswith("union")})
    write("union", "a union", {k: v for k, v in kinds.items() if k.startswith(("union", "int"))})
    write("chars", "CHAR and VARCHAR", {k: v for k, v in kinds.items() if "char" in k})
    write("no_index", "no row index", {k: v for k, v in kinds.items() if k in ("int", "string")}, row_index_stride=0)
    many: dict[str, list[Any]] = {"int": list(range(4000)), "string": [f"s{n}" for n in range(4000)]}
    write("stripes", "many stripes, no row index", many, row_index_stride=0, stripe_size=4096, batch_size=400)
    write("bloom", "Bloom filters", many, bloom_filter_columns=[1, 2])
    write("zero_rows", "no rows", {"int": [], "string": []})


if __name__ == "__main__":
    for make in (with_polars, with_duckdb, with_fastparquet, with_arrow_rs, with_pyorc):
        make()

"""Writes files of both formats with pyarrow.

``python -m tests.corpus.make_arrow FOLDER | python -m tests.corpus.manifest``.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import sys
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

from tests.corpus.people import people

FOLDER = Path(sys.argv[1])
N = 24
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("email", pa.string()),
        ("score", pa.float64()),
        ("member", pa.bool_()),
        ("born", pa.date32()),
        ("seen", pa.timestamp("us", "UTC")),
        ("owed", pa.decimal128(10, 2)),
        ("phones", pa.list_(pa.string())),
        ("home", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
    ]
)
PEOPLE = pa.table(people(), SCHEMA)


def told(file: str, odd: str, writer: str = "pyarrow") -> None:
    """Print a file's line for the manifest."""
    print(json.dumps({"file": file, "writer": writer, "version": pa.__version__, "odd": odd}, ensure_ascii=False))


def some(values: Any, kind: Any = None, step: int = 5) -> pa.Array:
    """Return an array with nulls."""
    return pa.array([None if number % step == 3 else value for number, value in enumerate(values)], kind)


def parquet(name: str, odd: str, rows: Any, **options: Any) -> None:
    """Write a Parquet file."""
    rows = rows if isinstance(rows, pa.Table) else pa.table(rows)
    pq.write_table(rows, FOLDER / f"arrow_{name}.parquet", **{"compression": "snappy", **options})
    told(f"arrow_{name}.parquet", odd)


def orc(name: str, odd: str, rows: Any, **options: Any) -> None:
    """Write an ORC file."""
    rows = rows if isinstance(rows, pa.Table) else pa.table(rows)
    pa.orc.write_table(rows, FOLDER / f"arrow_{name}.orc", **{"compression": "zlib", **options})
    told(f"arrow_{name}.orc", odd, "pyarrow (ORC C++)")


def codecs_and_pages() -> None:
    """The same people in each codec, format version, page version and encoding."""
    for codec in ("none", "snappy", "gzip", "brotli", "zstd", "lz4"):
        parquet(f"people_{codec}", f"codec {codec}", PEOPLE, compression=codec)
    mixed = {"email": "zstd", "score": "gzip", "id": "none", "phones.list.element": "brotli"}
    parquet("people_mixed_codecs", "another codec for each column", PEOPLE, compression=mixed)
    parquet("people_v1", "format version 1.0", PEOPLE, version="1.0")
    parquet("people_v24", "format version 2.4", PEOPLE, version="2.4")
    parquet("people_v2_pages", "V2 data pages", PEOPLE, data_page_version="2.0")
    parquet("people_v2_pages_none", "V2 data pages, uncompressed", PEOPLE, data_page_version="2.0", compression="none")
    parquet("people_groups", "row groups of seven rows", PEOPLE, row_group_size=7)
    parquet("people_checksums", "checksums of pages", PEOPLE, write_page_checksum=True, data_page_size=64)
    parquet("people_indexes", "page indexes, small pages", PEOPLE, write_page_index=True, max_rows_per_page=9)
    parquet("people_no_statistics", "no statistics", PEOPLE, write_statistics=False)
    parquet("people_some_statistics", "statistics of one column", PEOPLE, write_statistics=["id"])
    parquet("people_no_schema", "no Arrow schema in the footer", PEOPLE, store_schema=False)
    parquet("people_item", "list groups called item", PEOPLE, use_compliant_nested_type=False)
    order = pq.SortingColumn.from_ordering(SCHEMA, [("id", "ascending"), ("email", "descending")])
    parquet("people_sorted", "sorting columns", PEOPLE, sorting_columns=order)
    ints = pa.table({"a": some(range(100, 100 + N), pa.int32()), "b": some([n * n * (-1) ** n for n in range(N)])})
    texts = pa.table({"a": some([f"common prefix {n:03}" for n in range(N)]), "b": some([b"\0" * n for n in range(N)])})
    floats = pa.table({"a": some([n / 3 for n in range(N)], pa.float32()), "b": some([n * 1e99 for n in range(N)])})
    flags = pa.table({"a": some([n % 4 < 2 for n in range(100)]), "b": pa.array([n % 9 == 0 for n in range(100)])})
    for version in ("1.0", "2.0"):
        for encoding, rows in (
            ("DELTA_BINARY_PACKED", ints),
            ("DELTA_LENGTH_BYTE_ARRAY", texts),
            ("DELTA_BYTE_ARRAY", texts),
            ("BYTE_STREAM_SPLIT", floats),
            ("RLE", flags),
        ):
            parquet(
                f"{encoding.lower()}_v{version[0]}",
                f"{encoding} in V{version[0]} pages",
                rows,
                column_encoding=encoding,
                use_dictionary=False,
                data_page_version=version,
            )
    parquet("byte_stream_split_ints", "BYTE_STREAM_SPLIT of integers", ints, column_encoding="BYTE_STREAM_SPLIT",
            use_dictionary=False)  # fmt: skip
    many = pa.table({"id": list(range(600)), "s": [f"value {n * 7919 % 601:05}" for n in range(600)]})
    parquet("dictionary_fallback", "a dictionary that is given up", many, dictionary_pagesize_limit=1024,
            data_page_size=1024, write_batch_size=64)  # fmt: skip
    parquet("bloom", "Bloom filters", many, bloom_filter_options={"s": {"ndv": 600, "fpp": 0.1}, "id": True})


def types() -> None:
    """Each type, with nulls."""
    signs = {f"{kind}{bits}": some(range(N), getattr(pa, f"{kind}{bits}")()) for kind in ("int", "uint")
             for bits in (8, 16, 32, 64)}  # fmt: skip
    parquet("integers", "integers of all widths, signed and not", signs)
    most = {"u8": [0, 255], "u16": [0, 65535], "u32": [0, 2**32 - 1]}
    kinds = {"u8": pa.uint8(), "u16": pa.uint16(), "u32": pa.uint32()}
    parquet("unsigned_most", "greatest unsigned integers", {k: pa.array(v, kinds[k]) for k, v in most.items()})
    parquet("uint64_most", "an unsigned integer beyond a long", {"a": pa.array([0, 2**64 - 1], pa.uint64())})
    parquet("float16", "FLOAT16", {"h": some([n / 4 for n in range(N)], pa.float16()), "id": range(N)})
    odd = [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.5, None]
    parquet("nan", "NaN, infinities, negative zero", {"d": odd, "f": pa.array(odd, pa.float32()), "n": [math.nan] * 8})
    for name, option in (("decimals", {}), ("decimals_as_integers", {"store_decimal_as_integer": True})):
        digits = {"d4": (4, 1), "d9": (9, 9), "d18": (18, 0), "d19": (19, 5), "d38": (38, 10)}
        values = [decimal.Decimal(n - 9) / 16 % 1 for n in range(16)]
        values = [value.quantize(decimal.Decimal("0.1")) if value else value for value in values]
        rows = {
            key: some([(v if scale else v.to_integral_value()) for v in values], pa.decimal128(p, scale))
            for key, (p, scale) in digits.items()
        }
        parquet(name, "decimals " + ("in integers" if option else "in fixed bytes"), rows, **option)
    parquet(
        "decimal256", "a decimal of 60 digits", {"d": pa.array([decimal.Decimal(10) ** 50, None], pa.decimal256(60, 2))}
    )
    times = {"s": pa.time32("s"), "ms": pa.time32("ms"), "us": pa.time64("us"), "ns": pa.time64("ns")}
    parquet("times", "times of day", {k: some([n * 3600 for n in range(N)], v) for k, v in times.items()})
    parquet("time_us", "microseconds of the day", {"t": some([n * 3600 for n in range(N)], pa.time64("us"))})
    for unit in ("s", "ms", "us", "ns"):
        stamps = [datetime.datetime(1969, 12, 31) + datetime.timedelta(days=n) for n in range(N)]
        rows = {"local": some(stamps, pa.timestamp(unit)), "utc": some(stamps, pa.timestamp(unit, "UTC")),
                "zone": some(stamps, pa.timestamp(unit, "America/New_York"))}  # fmt: skip
        parquet(f"timestamps_{unit}", f"timestamps in {unit}", rows)
    stamps = [datetime.datetime(2000, 1, 1) + datetime.timedelta(days=37 * n, microseconds=n) for n in range(N)]
    parquet(
        "int96", "INT96", {"t": some(stamps, pa.timestamp("ns")), "id": range(N)}, use_deprecated_int96_timestamps=True
    )
    dates = [datetime.date(1, 1, 1), datetime.date(1582, 10, 15), datetime.date(9999, 12, 31), None]
    parquet("dates", "first and last dates", {"d": dates, "d64": pa.array(dates, pa.date64())})
    parquet("durations", "durations, which are integers in the file", {"d": some(range(N), pa.duration("us"))})
    fixed = some([bytes([n]) * 5 for n in range(N)], pa.binary(5))
    parquet("bytes", "bytes, fixed and of any length", {"f": fixed, "b": some([bytes(range(n)) for n in range(N)])})
    large = {"s": some(map(str, range(N)), pa.large_string()), "b": some([b"x" * n for n in range(N)], pa.large_binary()),
             "l": some([[n] for n in range(N)], pa.large_list(pa.int32()))}  # fmt: skip
    parquet("large_types", "texts and lists with long offsets", large)
    views = {"s": some(map(str, range(N)), pa.string_view()), "b": some([b"x" * n for n in range(N)], pa.binary_view())}
    parquet("views", "texts and bytes as views", views)
    ids = pa.ExtensionArray.from_storage(pa.uuid(), some([uuid.UUID(int=n).bytes for n in range(N)], pa.binary(16)))
    parquet("uuid", "UUID", {"u": ids, "id": range(N)})
    notes = pa.ExtensionArray.from_storage(pa.json_(), some([f'{{"n": {n}}}' for n in range(N)], pa.string()))
    parquet("json", "JSON", {"j": notes, "id": range(N)})
    words = some([f"word {n % 3}" for n in range(N)]).dictionary_encode()
    parquet(
        "dictionaries", "dictionaries of Arrow", {"w": words, "n": some([n % 3 for n in range(N)]).dictionary_encode()}
    )
    parquet("null_type", "a column of the type null", {"n": pa.nulls(N), "id": range(N)})
    parquet(
        "all_null", "columns without a value", {"s": pa.nulls(N, pa.string()), "l": pa.nulls(N, pa.list_(pa.int32()))}
    )
    parquet("long_text", "a text of 20,000 characters", {"s": ["x" * 20_000, "y", None]}, compression="zstd")
    tensor = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int32(), [2]), pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))
    )
    parquet("tensor", "an extension type of Arrow", {"t": tensor})
    parquet(
        "bool8",
        "booleans in bytes",
        {"b": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8()))},
    )


def nested() -> None:
    """Structs, lists and maps within each other."""
    numbers = range(N)
    parquet("lists", "lists: null, empty, with nulls, fixed", {
        "l": [None if n % 5 == 0 else [None if m == 1 else m for m in range(n % 4)] for n in numbers],
        "fixed": some([[n, n + 1] for n in numbers], pa.list_(pa.int16(), 2)),
        "ll": [[[n], [], None] if n % 3 else None for n in numbers],
        "lll": [[[[str(n)], None], []] for n in numbers],
    })  # fmt: skip
    parquet("maps", "maps: null, empty, of lists, of maps, keys of numbers", {
        "m": pa.array([None if n % 4 == 0 else [(f"k{m}", m or None) for m in range(n % 3)] for n in numbers],
                      pa.map_(pa.string(), pa.int32())),
        "ml": pa.array([[(n, [n, None])] for n in numbers], pa.map_(pa.int32(), pa.list_(pa.int64()))),
        "mm": pa.array([[("a", [("b", n)])] for n in numbers], pa.map_(pa.string(), pa.map_(pa.string(), pa.int64()))),
        "ms": pa.array([[("k", {"x": n, "y": None})] for n in numbers],
                       pa.map_(pa.string(), pa.struct([("x", pa.int32()), ("y", pa.string())]))),
    })  # fmt: skip
    parquet("map_struct_key", "a map whose keys are structs", {
        "m": pa.array([[({"a": n}, "v")] for n in numbers], pa.map_(pa.struct([("a", pa.int32())]), pa.string()))
    })  # fmt: skip
    parquet("structs", "structs: null, within structs, with lists", {
        "s": [None if n % 6 == 0 else {"a": n, "t": {"b": None if n % 2 else str(n), "c": [n]}} for n in numbers],
        "ls": [[{"x": n, "y": [{"z": str(n)}]}, None] for n in numbers],
    })  # fmt: skip
    deep: Any = 7
    for level in range(24):
        deep = {f"l{level}": deep} if level % 2 else [deep]
    parquet("deep", "24 levels of lists and structs", {"d": [deep, None], "id": [1, 2]})
    only = pa.struct([("only", pa.int32())])
    parquet("required", "required columns, nested too", pa.table(
        [pa.array(range(N)), pa.array([[{"only": n}] for n in range(N)], pa.list_(pa.field("element", only, nullable=False)))],
        pa.schema([pa.field("id", pa.int64(), nullable=False),
                   pa.field("l", pa.list_(pa.field("element", only, nullable=False)), nullable=False)]),
    ))  # fmt: skip
    parquet("list_views", "lists as views", {"l": pa.array([[1], [], None, [2, 3]], pa.list_view(pa.int32()))})


def shapes() -> None:
    """Rows, row groups, footers and names that are unusual."""
    parquet("zero_rows", "no rows", PEOPLE.slice(0, 0))
    parquet("no_columns", "no columns", pa.table({}))
    parquet("one_row", "one row", PEOPLE.slice(0, 1))
    parquet("one_row_groups", "row groups of one row", PEOPLE.select(["id", "email"]).slice(0, 12), row_group_size=1)
    with pq.ParquetWriter(FOLDER / "arrow_empty_groups.parquet", SCHEMA) as writer:
        for rows in (
            PEOPLE.slice(0, 0),
            PEOPLE.slice(0, 5),
            PEOPLE.slice(0, 0),
            PEOPLE.slice(5, 5),
            PEOPLE.slice(0, 0),
        ):
            writer.write_table(rows)
    told("arrow_empty_groups.parquet", "row groups without rows, first, between and last")
    parquet(
        "large_metadata",
        "20 kB of user metadata",
        PEOPLE.slice(0, 3).replace_schema_metadata(
            {f"key {n}": f"value {n} " * 60 for n in range(20)} | {"": "empty key", "größe": "ü"}
        ),
    )
    with pq.ParquetWriter(FOLDER / "arrow_added_metadata.parquet", SCHEMA) as writer:
        writer.write_table(PEOPLE.slice(0, 4))
        writer.add_key_value_metadata({"added": "after the rows", "twice": "1"})
    told("arrow_added_metadata.parquet", "user metadata added at the end")
    described = pa.schema([field.with_metadata({"comment": f"about {field.name}", "PARQUET:field_id": str(n * 10)})
                           for n, field in enumerate(SCHEMA)])  # fmt: skip
    parquet("field_ids", "field ids and comments of fields", PEOPLE.cast(described))
    parquet("wide", "150 columns", {f"column_{n:03}": [n, None] for n in range(150)}, write_statistics=False)
    for name, odd, columns in (
        ("dots", "names with dots", ["a.b", "a", "b.", ".c"]),
        ("blanks", "names with blanks", [" a", "b c", "d ", "\t"]),
        ("unicode", "names in several scripts", ["größe", "名前", "🙂", "e\u0301"]),
        ("marks", "names with marks", ["a,b", "c;d", "e:f", "g%2Eh", "i`j", 'k"l', "m\\n", "o=p", "q/r", "{}()", "x\ny"]),
        ("case_twins", "names that differ by case", ["id", "ID", "Id"]),
        ("same_names", "a name twice", ["a", "a", "b"]),
        ("empty_name", "an empty name", ["", "b"]),
        ("spark_words", "names that SQL reserves", ["select", "table", "_metadata", "_c0", "NULL", "element", "key_value"]),
    ):  # fmt: skip
        rows = [pa.array([f"{name} {n} {m}" for m in range(4)]) for n, name in enumerate(columns)]
        parquet(f"names_{name}", odd, pa.Table.from_arrays(rows, columns))
    inner = pa.array([{"a.b": n, "A": str(n), "c d": [n]} for n in range(6)])
    parquet("names_inside", "odd names inside a struct", {"s.t": inner, "id": range(6)})
    words = pa.array([{"list": {"element": n}, "key_value": [{"key": n, "value": None}]} for n in range(5)])
    parquet("names_of_groups", "fields called as the groups of lists and maps", {"array": words, "bag": range(5)})
    names = [f"c{n}" for n in range(6)]
    parquet("pandas", "written from pandas, with an index", pa.Table.from_pandas(_frame()))
    parquet("tiny_pages", "pages of one value", PEOPLE.select(["id", "email", "phones"]), data_page_size=1,
            write_batch_size=1, use_dictionary=False)  # fmt: skip
    parquet("no_dictionary", "no dictionaries", PEOPLE, use_dictionary=False)
    parquet("partly_dictionary", "a dictionary of one column", PEOPLE, use_dictionary=["email"])
    parquet("wide_text", "equal texts, one run", {name: ["same"] * 500 for name in names})


def _frame() -> Any:
    import pandas as pd

    rows = {"n": pd.array([1, None, 3], "Int64"), "c": pd.Categorical(["x", "y", "x"]), "t": pd.Timestamp(2024, 5, 6)}
    return pd.DataFrame(rows, index=pd.Index(["r1", "r2", "r3"], name="row"))


def orc_files() -> None:
    """ORC by the C++ writer."""
    flat = PEOPLE
    for codec in ("uncompressed", "zlib", "snappy", "lz4", "zstd"):
        orc(f"people_{codec}", f"codec {codec}", flat, compression=codec)
    orc("people_v11", "file version 0.11", flat, file_version="0.11")
    orc("people_speed", "compression for speed", flat, compression_strategy="speed")
    orc("people_other_blocks", "compression blocks of 128 KiB", flat, compression_block_size=131_072)
    big = pa.table(
        {"id": range(9000), "s": [f"text {n % 900}" for n in range(9000)], "l": [[n] * (n % 3) for n in range(9000)]}
    )
    orc("stripes", "many stripes", big, stripe_size=1024, batch_size=500, compression="zstd")
    orc("strides", "row groups of 1000 rows", big, row_index_stride=1000, compression="zstd")
    orc("dictionary", "dictionaries of texts", big, dictionary_key_size_threshold=1.0, compression="zstd")
    orc("no_dictionary", "no dictionaries of texts", big.slice(0, 500), dictionary_key_size_threshold=0.0)
    orc("bloom", "Bloom filters", flat, bloom_filter_columns=[0, 1], bloom_filter_fpp=0.1)
    orc("zero_rows", "no rows", flat.slice(0, 0))
    orc("one_row", "one row", flat.slice(0, 1))
    orc(
        "integers",
        "integers of each width",
        {f"i{b}": some(range(-9, N), getattr(pa, f"int{b}")()) for b in (8, 16, 32, 64)},
    )
    extreme = {
        f"i{b}": pa.array([-(2 ** (b - 1)), 2 ** (b - 1) - 1, None, 0], getattr(pa, f"int{b}")())
        for b in (8, 16, 32, 64)
    }
    orc("extremes", "least and greatest integers", extreme)
    orc(
        "nan",
        "NaN, infinities, negative zero",
        {"d": [math.nan, math.inf, -0.0, None], "f": pa.array([math.nan, -math.inf, 0.5, None], pa.float32())},
    )
    digits = {
        f"d{p}": some([decimal.Decimal(n - 5).scaleb(-s) for n in range(N)], pa.decimal128(p, s))
        for p, s in ((4, 1), (18, 3), (19, 0), (38, 10))
    }
    orc("decimals", "decimals", digits)
    stamps = [
        datetime.datetime(1965, 12, 31) + datetime.timedelta(days=300 * n, microseconds=n * 1000) for n in range(N)
    ]
    orc(
        "timestamps",
        "timestamps, and instants",
        {"t": some(stamps, pa.timestamp("ns")), "z": some(stamps, pa.timestamp("ns", "UTC"))},
    )
    orc(
        "dates",
        "dates",
        {"d": [datetime.date(1582, 10, 15), datetime.date(1899, 12, 31), datetime.date(9999, 12, 31), None]},
    )
    orc("bytes", "bytes", {"b": some([bytes(range(n)) for n in range(N)])})
    orc("flags", "booleans", {"f": some([n % 3 == 0 for n in range(100)]), "g": [True] * 100})
    orc(
        "all_null",
        "columns without a value",
        {"s": pa.nulls(N, pa.string()), "i": pa.nulls(N, pa.int32()), "id": range(N)},
    )
    orc(
        "maps",
        "maps",
        {
            "m": pa.array(
                [None if n % 4 == 0 else [(f"k{m}", m) for m in range(n % 3)] for n in range(N)],
                pa.map_(pa.string(), pa.int64()),
            )
        },
    )
    orc("nested", "lists, structs and maps within each other", {
        "ls": [[{"x": n, "y": [str(n)]}, None] if n % 4 else None for n in range(N)],
        "ss": [{"a": {"b": {"c": n}}} for n in range(N)],
        "ll": [[[n], [], None] for n in range(N)],
    })  # fmt: skip
    kinds = pa.UnionArray.from_dense(
        pa.array([0, 1, 0, 1], pa.int8()),
        pa.array([0, 0, 1, 1], pa.int32()),
        [pa.array([1, None]), pa.array(["x", "y"])],
    )
    orc("union", "a union", {"u": kinds, "id": range(4)})
    for name, columns in (
        ("dots", ["a.b", "a", "c."]),
        ("blanks", [" a", "b c"]),
        ("unicode", ["größe", "🙂"]),
        ("case_twins", ["id", "ID"]),
        ("marks", ["a,b", "c;d", "e:f", "g%2Eh"]),
        ("backtick", ["i`j", "k"]),
    ):
        orc(
            f"names_{name}",
            f"names: {name}",
            pa.Table.from_arrays([pa.array([f"{c} {m}" for m in range(4)]) for c in columns], columns),
        )
    orc("wide", "120 columns", {f"c{n:03}": [n, None] for n in range(120)})
    orc(
        "runs",
        "runs, deltas and outliers",
        {
            "run": [7] * 600,
            "up": range(600),
            "out": [n % 5 if n % 97 else 2**40 for n in range(600)],
            "short": [n // 4 for n in range(600)],
        },
    )
    orc("long_text", "a text of 20,000 characters", {"s": ["x" * 20_000, "y", None]})


if __name__ == "__main__":
    for write in (codecs_and_pages, types, nested, shapes, orc_files):
        write()

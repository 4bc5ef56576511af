"""Writes files with the Spark that is installed, both formats: parquet-mr and ORC's Java writer.

``python -m tests.corpus.make_spark FOLDER | python -m tests.corpus.manifest``, once with each of 3.5, 4.0, 4.1, 4.2 and
4.3, in environments as those that ``make test-sparks`` makes, and with JAVA_HOME.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

FOLDER = Path(sys.argv[1])
VERSION = pyspark.__version__
SERIES = ".".join(VERSION.split(".")[:2])
NAME = f"spark{SERIES.replace('.', '')}"
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.ansi.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
PEOPLE = (
    "SELECT id, IF(id % 5 = 2, NULL, concat('user', id % 17, '@example.org')) email, id / 7D score, id % 3 = 0 member, "
    "date_add(DATE '1950-02-03', CAST(id * 366 AS INT)) born, "
    "TIMESTAMP '2024-02-28 23:59:58.000001' + make_interval(0, 0, 0, 0, CAST(7 * id AS INT)) seen, "
    "CAST(id * 1.37 - 5 AS DECIMAL(10, 2)) owed, "
    "IF(id % 10 = 2, NULL, transform(sequence(0, id % 4), n -> concat('+', id, n))) phones, "
    "IF(id % 13 = 2, NULL, named_struct('city', concat('city ', id % 6), 'zip', CAST(1000 + id AS INT))) home "
    "FROM range(0, 40, 1, 1)"
)


def write(name: str, odd: str, frame: DataFrame | str, kind: str = "parquet", **options: Any) -> None:
    """Write one file."""
    rows = spark.sql(frame) if isinstance(frame, str) else frame
    file = f"{NAME}_{name}.{kind}"
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "out"
        rows.coalesce(1).write.options(**{key.replace("__", "."): str(value) for key, value in options.items()}).format(
            kind
        ).save(str(target))
        (part,) = target.glob(f"*.{kind}")
        shutil.copy(part, FOLDER / file)
    maker = "Spark (parquet-mr)" if kind == "parquet" else "Spark (ORC Java)"
    print(json.dumps({"file": file, "writer": maker, "version": VERSION, "odd": odd}))


def of_every_version() -> None:
    """What each Spark writes, since parquet-mr and ORC change below it."""
    write("people", "defaults, INT96", PEOPLE)
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    write("people_v2", "V2 data pages", PEOPLE, parquet__writer__version="v2", compression="zstd")
    blooms: dict[str, Any] = {
        "parquet.bloom.filter.enabled#email": "true",
        "parquet.bloom.filter.expected.ndv#email": 20,
    }
    write("people_groups", "small row groups and pages, Bloom filters, checksums", PEOPLE, parquet__block__size=2048,
          parquet__page__size=128, parquet__block__row__count__limit=11,
          **blooms)  # fmt: skip
    write("people", "defaults", PEOPLE, "orc")
    write(
        "people_bloom", "Bloom filters, zlib", PEOPLE, "orc", compression="zlib", orc__bloom__filter__columns="email,id"
    )
    if int(SERIES[0]) >= 4:
        document = """parse_json('{"a": ' || id || ', "b": ["x", null]}')"""
        write("variant", "VARIANT", f"SELECT id, {document} v FROM range(9)")
        if float(SERIES) >= 4.1:
            write("variant_struct", "VARIANT in a struct", f"SELECT id, named_struct('v', {document}) s FROM range(9)")


def of_the_newest() -> None:
    """What depends on options rather than on the version."""
    for codec in ("none", "snappy", "gzip", "lz4", "lz4_raw", "zstd"):
        write(f"people_{codec}", f"codec {codec}", PEOPLE, compression=codec)
    for codec in ("none", "snappy", "zlib", "lz4", "zstd"):
        write(f"people_{codec}", f"codec {codec}", PEOPLE, "orc", compression=codec)
    write("people_zero_rows", "no rows", f"{PEOPLE} LIMIT 0")
    write("people_zero_rows", "no rows", f"{PEOPLE} LIMIT 0", "orc")
    write("no_dictionary", "no dictionaries", PEOPLE, parquet__enable__dictionary="false")
    write("split", "BYTE_STREAM_SPLIT", "SELECT id, id / 7D d, CAST(id / 3 AS FLOAT) f FROM range(40)",
          parquet__enable__bytestreamsplit="true")  # fmt: skip
    spark.conf.set("spark.sql.parquet.writeLegacyFormat", "true")
    write("legacy", "Spark's legacy form: lists of bag and array, decimals in fixed bytes", PEOPLE)
    spark.conf.set("spark.sql.parquet.writeLegacyFormat", "false")
    for kind in ("INT96", "TIMESTAMP_MILLIS", "TIMESTAMP_MICROS"):
        spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
        write(f"far_{kind.lower()}", f"years 1900 and 9999 as {kind}",
              "SELECT explode(array(TIMESTAMP '1900-01-01 00:00:00', TIMESTAMP '9999-12-31 23:59:59')) t")  # fmt: skip
    write("ntz", "timestamps without time zone", "SELECT id, TIMESTAMP_NTZ '2024-01-01 00:00:00' t FROM range(9)")
    for mode in ("LEGACY", "CORRECTED"):
        for name in ("spark.sql.parquet.datetimeRebaseModeInWrite", "spark.sql.parquet.int96RebaseModeInWrite"):
            spark.conf.set(name, mode)
        write(f"old_dates_{mode.lower()}", f"dates before 1582, calendar {mode}",
              "SELECT id, DATE '1500-03-01' d, TIMESTAMP '1500-03-01 00:00:00' t FROM range(9)")  # fmt: skip
        spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
        write(f"old_int96_{mode.lower()}", f"INT96 before 1582, calendar {mode}",
              "SELECT id, TIMESTAMP '1500-03-01 00:00:00' t FROM range(9)")  # fmt: skip
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    write("dates_legacy", "recent dates, calendar LEGACY", "SELECT id, DATE '2024-03-01' d FROM range(9)",
          **{"datetimeRebaseMode": "LEGACY"})  # fmt: skip
    nested = (
        "SELECT id, map('k', map(id, array(named_struct('x', id, 'y', CAST(NULL AS STRING))))) m, "
        "array(array(array(id), NULL), array()) lll, named_struct('a', named_struct('b', map(id, 'v'))) s FROM range(9)"
    )
    write("nested", "maps, lists and structs within each other", nested)
    write("nested", "maps, lists and structs within each other", nested, "orc")
    spark.conf.set("spark.sql.caseSensitive", "true")
    names = "SELECT 1 `a.b`, 2 `größe`, 3 ` b`, 4 `a,b`, 5 `ID`, 6 `id`, 7 `g%2Eh` FROM range(9)"
    write("names", "odd names, two that differ by case", names)
    kinds = (
        "SELECT CAST(id AS TINYINT) t, CAST(id AS SMALLINT) s, CAST(id AS INT) i, id l, CAST(id AS FLOAT) f, "
        "CAST(id AS BINARY) b, CAST('c' AS CHAR(5)) c, CAST('v' AS VARCHAR(3)) v, INTERVAL '1' DAY d, "
        "INTERVAL '2' MONTH m, CAST(id AS DECIMAL(4, 1)) d4, CAST(id AS DECIMAL(38, 10)) d38 FROM range(9)"
    )
    write("types", "Spark's types, intervals among them", kinds)
    write("types", "Spark's types, intervals among them", kinds, "orc")
    many = "SELECT id, concat('text ', id % 900) s, IF(id % 5 = 0, NULL, id * id) n FROM range(0, 6000, 1, 1)"
    for name, odd, options in (
        ("v11", "file version 0.11", {"orc.write.format": "0.11"}),
        ("stride", "row groups of 1000 rows, dictionaries", {"orc.row.index.stride": 1000, "orc.dictionary.key.threshold": 1}),
        ("direct", "no dictionaries, encoding for speed", {"orc.dictionary.key.threshold": 0, "orc.encoding.strategy": "SPEED"}),
        ("no_index", "no row index", {"orc.create.index": "false", "orc.row.index.stride": 0}),
        ("small_buffers", "compression chunks of 1 KiB", {"orc.compress.size": 1024}),
        ("stripes", "many stripes", {"orc.stripe.size": 4096, "orc.stripe.row.count": 1024}),
        ("utf8_bloom", "Bloom filters of both kinds", {"orc.bloom.filter.columns": "s", "orc.bloom.filter.write.version": "original"}),
    ):  # fmt: skip
        write(f"many_{name}", odd, many, "orc", **dict[str, Any](options))
    write("timestamps", "timestamps and instants, old ones too",
          "SELECT TIMESTAMP '1900-01-01 00:00:00' t, TIMESTAMP_NTZ '1500-01-01 00:00:00' n FROM range(9)", "orc")  # fmt: skip
    write("void", "a column without a type", "SELECT id, NULL n FROM range(9)", "orc") if SERIES < "4" else None


of_every_version()
if SERIES == "4.3":
    of_the_newest()
spark.stop()

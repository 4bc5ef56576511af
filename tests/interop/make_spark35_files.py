"""Writes the files of Spark 3.5: ``.venv-spark35/bin/python tests/interop/make_spark35_files.py``."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

FILES = Path(__file__).parent / "spark35_files"
ROWS = 400
SMALL = {"parquet.page.size": 512, "parquet.page.size.row.check.min": 20, "parquet.page.row.count.limit": 50}
WRITING: dict[str, dict[str, str | int]] = {
    "v1_snappy": {"compression": "snappy"},
    "v1_gzip_legacy": {"compression": "gzip"},
    "v1_lz4_bloom": {
        "compression": "lz4",
        "parquet.bloom.filter.enabled#ssn": "true",
        "parquet.bloom.filter.expected.ndv#ssn": 400,
    },
    "v1_zstd_no_dictionary": {"compression": "zstd", "parquet.enable.dictionary": "false"},
    "v2_zstd": {"compression": "zstd", "parquet.writer.version": "v2"},
    "v2_none": {"compression": "none", "parquet.writer.version": "v2"},
}


def rows(spark: SparkSession) -> DataFrame:
    """Return columns of many types, with nulls, three levels deep."""
    number = F.col("id")
    return spark.range(0, ROWS, 1, 1).select(
        number,
        F.format_string("%09d", number * 2).alias("ssn"),
        F.when(number % 3 != 0, number / 7).alias("score"),
        F.array_repeat(F.concat(F.lit("+"), number.cast("string")), (number % 3).cast("int")).alias("phones"),
        F.struct((number % 10).cast("short").alias("age"), F.array(F.struct(number.alias("z"))).alias("deep")).alias(
            "p"
        ),
        F.when(number % 2 == 0, F.create_map(F.lit("k"), number)).alias("labels"),
        (number % 5).cast("string").alias("few"),
        number.cast("decimal(30,2)").alias("wide"),
        number.cast("decimal(9,2)").alias("narrow"),
        number.cast("timestamp").alias("t"),
        F.expr("date_add(date'2020-01-01', cast(id as int))").alias("day"),
        (number % 2 == 0).alias("even"),
        number.cast("string").cast("binary").alias("raw"),
        F.lit(None).cast("double").alias("nothing"),
    )


def main() -> None:
    """Write a file in each way."""
    FILES.mkdir(exist_ok=True)
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    for name, options in WRITING.items():
        spark.conf.set("spark.sql.parquet.writeLegacyFormat", str("legacy" in name).lower())
        with tempfile.TemporaryDirectory() as folder:
            rows(spark).write.options(**SMALL, **options).parquet(f"{folder}/t")
            (file,) = Path(folder, "t").glob("part-*")
            shutil.copy(file, FILES / f"{name}.parquet")
    spark.stop()
    print(pyspark.__version__)


if __name__ == "__main__":
    main()

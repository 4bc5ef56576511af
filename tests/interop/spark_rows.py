"""Rows of many kinds for files of Spark, their encryption, and readers of parquet-mr that count what they open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sparkcrypt.files.parquet import (
    DataKey,
    FileEncryption,
    inspect_file,
    rewrite_file,
)
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.jvm.gateway import hadoop_conf
from tests.spark.support import (
    Lake,
    key_service,
    retriever,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 4_000


SSN, AGE, LABEL = ("ssn",), ("person", "age"), ("labels", "key_value", "value")


KEYS = {SSN: "pii", AGE: "fin", LABEL: "fin", ("phones", "list", "element"): "pii"}


MODES = [
    ("encrypted", "AES_GCM_V1", 256),
    ("plaintext", "AES_GCM_V1", 128),
    ("encrypted", "AES_GCM_CTR_V1", 192),
    ("plaintext", "AES_GCM_CTR_V1", 256),
]


WRITING: dict[str, str | int] = {
    "parquet.page.size": 1024,
    "parquet.page.size.row.check.min": 20,
    "parquet.page.row.count.limit": 100,
    "parquet.block.row.count.limit": 2000,
    "parquet.bloom.filter.enabled#ssn": "true",
    "parquet.bloom.filter.expected.ndv#ssn": 4000,
}


VERIFYING = {"parquet.page.verify-checksum.enabled": "true"}


def frame(spark: SparkSession) -> DataFrame:
    """Return rows with dictionaries used and fallen back from, nulls, nested columns and a column of nulls alone."""
    number = F.col("id")
    return spark.range(0, ROWS, 1, 1).select(
        number,
        F.format_string("%09d", number * 2).alias("ssn"),
        F.when(number % 3 != 0, number / 7).alias("score"),
        F.array_repeat(F.concat(F.lit("+"), number.cast("string")), (number % 3).cast("int")).alias("phones"),
        F.struct((number % 10).alias("age"), F.lit(None).cast("string").alias("nothing")).alias("person"),
        F.when(number % 2 == 0, F.create_map(F.lit("k"), number)).alias("labels"),
        (number % 5).cast("string").alias("few"),
        number.cast("decimal(30,2)").alias("d"),
        number.cast("timestamp").alias("t"),
    )


def encryption(policy: Policy, columns: dict[tuple[str, ...], Any] | None = None, **more: Any) -> FileEncryption:
    """Make the encryption of one file with key material of a policy's key service."""
    maker = DataKeyMaker(key_service(policy), data_key_bits=policy.data_key_bits)
    chosen = KEYS if columns is None else columns
    return FileEncryption(
        DataKey(*maker.make("footer", is_footer_key=True)),
        algorithm=policy.algorithm,
        footer_mode=policy.footer_mode,
        columns={
            path: DataKey(*maker.make(key, is_footer_key=False)) if isinstance(key, str) else key
            for path, key in chosen.items()
        },
        **more,
    )


def put_in_clear(file: Path, policy: Policy, *columns: tuple[str, ...]) -> None:
    """Replace a file by one that has columns in clear, as a holder of the footer's key alone could."""
    before = inspect_file(file, retrieve_key=retriever(policy))
    kept = {path: found.key_id for path, found in (before.columns or {}).items() if found.encrypted}
    for column in columns:
        del kept[column]
    forged = file.with_name("_forged")
    made = encryption(policy, kept, aad_prefix=before.aad_prefix)
    rewrite_file(file, forged, retrieve_key=retriever(policy), encryption=made)
    forged.replace(file)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


@contextlib.contextmanager
def row_reader(session: SparkSession, on: bool) -> Iterator[None]:
    """Switch Spark's vectorised reader off."""
    session.conf.set("spark.sql.parquet.enableVectorizedReader", str(not on).lower())
    session.conf.set("spark.sql.parquet.enableNestedColumnVectorizedReader", str(not on).lower())
    yield


def collected(frame: DataFrame) -> list[Any]:
    """Return the rows in the order of the file."""
    return [row.asDict(recursive=True) for row in frame.collect()]


def opened(lake: Lake, file: Path, filter_: Any, **conf: str) -> tuple[int, int]:
    """Open a file by parquet-mr's own reader under a filter: how many row groups, and rows of their pages, are left."""
    hadoop = hadoop_conf(lake.spark)
    for name, value in conf.items():
        hadoop.set(name.replace("_", "."), value)
    path = lake.jvm.org.apache.hadoop.fs.Path(file.as_uri())
    builder = lake.jvm.org.apache.parquet.HadoopReadOptions.builder(hadoop, path)
    options = builder.withRecordFilter(lake.jvm.org.apache.parquet.filter2.compat.FilterCompat.get(filter_)).build()
    hadoop_parquet = lake.jvm.org.apache.parquet.hadoop
    reader = hadoop_parquet.ParquetFileReader.open(hadoop_parquet.util.HadoopInputFile.fromPath(path, hadoop), options)
    try:
        return reader.getRowGroups().size(), reader.getFilteredRecordCount()
    finally:
        reader.close()


def is_ssn(lake: Lake, value: str) -> Any:
    """Return parquet-mr's predicate ssn = value."""
    parquet = lake.jvm.org.apache.parquet
    api = parquet.filter2.predicate.FilterApi
    return api.eq(api.binaryColumn("ssn"), parquet.io.api.Binary.fromString(value))

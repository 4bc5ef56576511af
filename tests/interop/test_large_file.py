"""A file of more than 4 GiB: places beyond 2^32 are written by a rewrite, and found by pyarrow and by Spark."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from sparkcrypt.arrow import decryption_properties
from sparkcrypt.files.parquet import read_footer, rewrite_file
from tests.interop.spark_rows import encryption, row_reader
from tests.spark.support import Lake, refusal, retriever
from tests.unit.parquet.rewriting import metadata_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]
LIMIT = 1 << 32
GROUPS, ROWS, WIDTH = 34, 1 << 17, 1 << 10
"""Row groups, rows of each, bytes of the wide column in a row: 34 times 128 MiB."""
FREE_BYTES = 6 << 30
ZEROS = bytes(4 << 20)
SCHEMA = pa.schema([("id", pa.int64()), pa.field("bulk", pa.binary(WIDTH), nullable=False), ("ssn", pa.string())])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk with room for the file and its rewrite, which are gone after the test."""
    free = shutil.disk_usage(tmp_path).free
    if free < FREE_BYTES:
        pytest.fail(
            f"{tmp_path} has {free >> 30} GiB free, and {FREE_BYTES >> 30} are needed: use --basetemp elsewhere"
        )
    folder = tmp_path / "large"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


class Sparse(io.FileIO):
    """A file in which pages of zeros are holes, so that only the rewrite costs time and disk."""

    def write(self, data: Any) -> int:
        """Write, or leave out zeros."""
        if len(data) < len(ZEROS) and data == ZEROS[: len(data)]:
            self.seek(len(data), io.SEEK_CUR)
            return len(data)
        return super().write(data)


def row_group(number: int) -> pa.Table:
    """Return the rows of a row group: their number, a text of it, and zeros."""
    numbers = np.arange(number * ROWS, (number + 1) * ROWS)
    zeros = pa.FixedSizeBinaryArray.from_buffers(pa.binary(WIDTH), ROWS, [None, pa.py_buffer(bytes(ROWS * WIDTH))])
    return pa.table([pa.array(numbers), zeros, pa.array(numbers).cast(pa.string())], schema=SCHEMA)


def write(path: Path) -> None:
    """Write the file, a row group at a time."""
    options = {"compression": "none", "use_dictionary": False, "write_statistics": ["id", "ssn"]}
    with Sparse(path, "w") as file, pq.ParquetWriter(file, SCHEMA, write_page_index=True, **options) as writer:
        for number in range(GROUPS):
            writer.write_table(row_group(number), row_group_size=ROWS)


def test_beyond_four_gigabytes(lake: Lake, place: Path) -> None:
    """The last row group, which begins beyond 4 GiB, is read by projection, by pyarrow and by both readers of Spark."""
    source, target = place / "source.parquet", place / "target.parquet"
    write(source)
    policy = lake.policy()
    rewrite_file(source, target, encryption=encryption(policy, {("ssn",): "pii"}))
    source.unlink()
    footer, chunks = read_footer(target, retrieve_key=retriever(policy)), metadata_of(target, retriever(policy))
    assert footer.metadata is not None
    last = footer.metadata.row_groups[-1]
    assert len(footer.metadata.row_groups) == GROUPS
    assert min(last.file_offset or 0, chunks[GROUPS - 1, 2].data_page_offset, footer.offset) > LIMIT
    expected = row_group(GROUPS - 1).select(["id", "ssn"])
    with pq.ParquetFile(target, decryption_properties=decryption_properties(policy)) as file:
        assert file.read_row_group(GROUPS - 1, columns=["id", "ssn"]) == expected
    first = (GROUPS - 1) * ROWS
    for by_row in (False, True):
        with row_reader(lake.spark, by_row):
            read = lake.spark.read.parquet(str(target))
            ends = read.where(f"id >= {first}").select("id", "ssn").agg(F.count("ssn"), F.min("ssn"), F.max("id"))
            assert tuple(ends.collect()[0]) == (ROWS, min(expected["ssn"].to_pylist()), GROUPS * ROWS - 1)
            found = read.where(f"ssn = '{GROUPS * ROWS - 1}'").select("id", F.length("bulk").alias("bulk"))
            assert [tuple(row) for row in found.collect()] == [(GROUPS * ROWS - 1, WIDTH)]
    with lake.stranger() as stranger:
        refusal(lambda: stranger.read.parquet(str(target)).select("ssn").collect())

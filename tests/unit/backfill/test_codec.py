"""The compression of a unit's new files is that of its old ones."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.files.parquet import read_footer
from sparkcrypt.files.parquet.summary import NAMES, codecs_of
from sparkcrypt.runs.rewrite.spark_engine import choose_codec


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_the_codec_of_a_file_is_read_from_its_footer(tmp_path: Path, codec: str) -> None:
    """Every codec that another writer has is known by its name; what pyarrow calls LZ4 is the raw one."""
    table = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})
    pq.write_table(table, tmp_path / "f", compression=codec, row_group_size=2)
    name = {"none": "uncompressed", "lz4": "lz4_raw"}.get(codec, codec)
    assert codecs_of(read_footer(tmp_path / "f")) == {name: 4}


def test_the_numbers_are_those_of_the_specification() -> None:
    """CompressionCodec in parquet.thrift: LZO is 3, LZ4 5, LZ4_RAW 7."""
    assert (NAMES.index("lzo"), NAMES.index("lz4"), NAMES.index("lz4_raw")) == (3, 5, 7)


def test_one_codec_is_taken_without_a_word() -> None:
    """Where every column chunk has it, nothing is to be told."""
    choice = choose_codec([{"gzip": 2}, {"gzip": 7}])
    assert (choice.codec, choice.note) == ("gzip", None)


def test_of_several_the_most_common_is_taken_and_told() -> None:
    """Column chunks are counted over all files; the note says how many have which; a tie goes by name."""
    choice = choose_codec([{"zstd": 2}, {"snappy": 3}, {"gzip": 1, "zstd": 2}])
    assert choice.codec == "zstd"
    assert "zstd (4), snappy (3), gzip (1); all new ones have zstd" in (choice.note or "")
    assert choose_codec([{"zstd": 1, "gzip": 1}]).codec == "gzip"


@pytest.mark.parametrize(
    ("codecs", "word"),
    [([], "do not show theirs"), ([{}], "do not show theirs"), ([{"brotli": 1}], "cannot write brotli")],
)
def test_what_cannot_be_kept_is_told(codecs: list[dict[str, int]], word: str) -> None:
    """A hidden codec, and one that Spark does not write, is left to Spark, and the report says so."""
    choice = choose_codec(codecs)
    assert choice.codec is None
    assert word in (choice.note or "")

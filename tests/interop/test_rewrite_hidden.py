"""parquet-mr over what a rewrite easily gets wrong: hidden first columns, splits, first pages, files of no rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from sparkcrypt import configure
from sparkcrypt.files.parquet import FOOTER_KEY, read_footer, rewrite_file, verify_file
from sparkcrypt.files.parquet.file.schema import leaf_paths
from sparkcrypt.files.parquet.thrift.compact import I32, List, Struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnMetaData
from tests.interop.spark_rows import MODES, ROWS, VERIFYING, WRITING, encryption, frame, is_ssn, opened, row_reader
from tests.spark.support import Lake, data_files, refusal, retriever, with_keys, without_keys
from tests.unit.parquet.handmade import RLE_DICTIONARY, MadePage, data_page, dictionary_page, make_file
from tests.unit.parquet.rewriting import metadata_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
FIRST = "id"
FORMS = [("v1", *MODES[0]), ("v2", *MODES[1]), ("v2", *MODES[2]), ("v1", *MODES[3])]
"""Version of data pages, mode of the footer, algorithm, length of data keys; two for each of two tests."""


@pytest.fixture(scope="module")
def sources(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files of four row groups as Spark writes them, with V1 and V2 pages, whose first column is `FIRST`."""
    made = {}
    for version in ("v1", "v2"):
        folder = tmp_path_factory.mktemp("plain") / version
        options = {**WRITING, "parquet.block.row.count.limit": 1000, "parquet.writer.version": version}
        frame(spark).write.options(**options).parquet(str(folder))
        (made[version],) = data_files(folder)
        metadata = pq.read_metadata(made[version])
        assert (metadata.num_row_groups, metadata.row_group(0).column(0).path_in_schema) == (4, FIRST)
    return made


def leaves(file: Path) -> tuple[tuple[str, ...], ...]:
    """Return the leaf columns of a plaintext file."""
    metadata = read_footer(file).metadata
    assert metadata is not None
    return tuple(leaf_paths(metadata))


def rows(frame: DataFrame) -> list[Any]:
    """Return the rows in an order of their own, since splits come in any."""
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=repr)


def split(lake: Lake, file: Path, parts: int) -> DataFrame:
    """Read a file in so many splits that each row group comes to a task of its own, by where the footer says it is."""
    lake.spark.conf.set("spark.sql.files.maxPartitionBytes", str(file.stat().st_size // parts))
    read = lake.spark.read.options(**VERIFYING).parquet(str(file))
    assert read.rdd.getNumPartitions() >= parts
    return read


@pytest.mark.parametrize(("version", "mode", "algorithm", "bits"), FORMS[:2])
def test_the_first_column_is_hidden(
    lake: Lake, sources: dict[str, Path], version: str, mode: str, algorithm: str, bits: int
) -> None:
    """A reader without the first column's key reads the others, from every row group, and not the first."""
    source, policy = sources[version], lake.policy(footer_mode=mode, algorithm=algorithm, bits=bits)
    target = lake.root / "part-0.parquet"
    columns: dict[tuple[str, ...], Any] = {(FIRST,): "pii", ("ssn",): "fin"}
    rewrite_file(source, target, encryption=encryption(policy, columns, default=FOOTER_KEY))
    others = ["ssn", "score", "phones", "person", "labels", "few", "d", "t"]
    plain = lake.spark.read.parquet(str(source)).select(*others)
    expected, found = rows(plain), rows(plain.where("ssn = '000003000'"))
    assert (len(expected), len(found)) == (ROWS, 1)
    configure(lake.spark, with_keys(policy, lake.root / "fewer", without_keys("pii")))
    for by_row in (False, True):
        with row_reader(lake.spark, by_row):
            read = split(lake, target, 12)
            assert rows(read.select(*others)) == expected
            tasks = (
                read.select("few", F.spark_partition_id().alias("task")).distinct().select("task").distinct().count()
            )
            assert tasks == 4
            assert rows(read.where("ssn = '000003000'").select(*others)) == found
            assert read.where("ssn = '000003001'").select("few").count() == 0
            assert read.count() == ROWS
            refusal(lambda read: read.select(FIRST).collect(), read)
            refusal(lambda read: read.where("id = 7").select("few").collect(), read)


@pytest.mark.parametrize(("version", "mode", "algorithm", "bits"), FORMS[2:])
def test_every_column_has_its_own_key(
    lake: Lake, sources: dict[str, Path], version: str, mode: str, algorithm: str, bits: int
) -> None:
    """Each leaf under a data key of its own is read whole, alone, and under filters, in one split and in many."""
    source, policy = sources[version], lake.policy(footer_mode=mode, algorithm=algorithm, bits=bits)
    target = lake.root / "part-0.parquet"
    columns = {path: ("pii", "fin")[number % 2] for number, path in enumerate(leaves(source))}
    rewrite_file(source, target, encryption=encryption(policy, columns))
    summary = verify_file(target, retrieve_key=retriever(policy))
    assert summary.row_groups == 4
    plain = lake.spark.read.parquet(str(source))
    filters = [
        "ssn > '000007990'",
        "person.age = 3 AND id < 100",
        "few = '4' AND score IS NULL",
        "id IN (0, 999, 1000)",
    ]
    expected, found = rows(plain), [rows(plain.where(condition)) for condition in filters]
    assert all(found)
    for by_row in (False, True):
        with row_reader(lake.spark, by_row):
            read = split(lake, target, 12)
            assert rows(read) == expected
            assert [rows(read.where(condition)) for condition in filters] == found
            for name in ("labels", "d", "person.nothing"):
                assert rows(read.select(name)) == rows(plain.select(name))
    only_bloom = {"parquet_filter_dictionary_enabled": "false", "parquet_filter_columnindex_enabled": "false"}
    for file in (source, target):
        groups, left = opened(lake, file, is_ssn(lake, "000003000"))
        assert groups == 1 and 0 < left <= 100, file
        assert opened(lake, file, is_ssn(lake, "000003001"), **only_bloom)[0] == 0


def longs(*values: int) -> bytes:
    """Return numbers as PLAIN has them."""
    return b"".join(value.to_bytes(8, "little", signed=True) for value in values)


def indexed(count: int, index: int) -> MadePage:
    """Make a page of one run of indices into a dictionary of two."""
    return data_page(bytes([1, count << 1, index]), values=count, encoding=RLE_DICTIONARY)


def listed(*encodings: int) -> Callable[[Struct], None]:
    """Make a change of metadata: its list of encodings."""
    return lambda metadata: metadata.update({ColumnMetaData.encodings.key: List(I32, encodings)})


def without_offset(metadata: Struct) -> None:
    """Say nothing of a dictionary's place, as old writers do: data begins where it begins."""
    listed(0, RLE_DICTIONARY)(metadata)
    begin = metadata.pop(ColumnMetaData.dictionary_page_offset.key, None)
    if begin is not None:
        metadata[ColumnMetaData.data_page_offset.key] = begin


DICTIONARY = dictionary_page(longs(5, 6))
PLAIN = data_page(longs(7, 8), values=2)
USED, MIXED, UNUSED = [DICTIONARY, indexed(2, 1)], [DICTIONARY, indexed(2, 0), PLAIN], [DICTIONARY, PLAIN]
FIRST_PAGES: dict[str, tuple[list[list[MadePage]], Any, list[int]]] = {
    "nothing but a dictionary's": ([USED, USED], listed(0, RLE_DICTIONARY), [6, 6, 6, 6]),
    "a dictionary fallen back from": ([MIXED, MIXED], listed(0, RLE_DICTIONARY), [5, 5, 7, 8] * 2),
    "a dictionary no page uses": ([UNUSED, UNUSED], None, [7, 8, 7, 8]),
    "a dictionary no page uses, listed": ([UNUSED, UNUSED], listed(0, RLE_DICTIONARY), [7, 8, 7, 8]),
    "a dictionary here, none there": ([USED, [PLAIN]], listed(0, RLE_DICTIONARY), [6, 6, 7, 8]),
    "no dictionary's place": ([USED, MIXED], without_offset, [6, 6, 5, 5, 7, 8]),
    "no place of a dictionary no page uses": ([UNUSED, USED], without_offset, [7, 8, 6, 6]),
    "a dictionary that is claimed": ([[PLAIN], [PLAIN]], listed(RLE_DICTIONARY, 0), [7, 8, 7, 8]),
}


@pytest.mark.parametrize(("mode", "algorithm", "bits"), MODES)
def test_first_pages(lake: Lake, mode: str, algorithm: str, bits: int) -> None:
    """Whatever first pages and old metadata say of dictionaries, both readers find the values in the rewrite."""
    policy = lake.policy(footer_mode=mode, algorithm=algorithm, bits=bits)
    for number, (what, (chunks, change, expected)) in enumerate(FIRST_PAGES.items()):
        target = lake.root / f"{number}.parquet"
        source = make_file([[pages, pages] for pages in chunks], change)
        rewrite_file(source, target, encryption=encryption(policy, {("c0",): "pii", ("c1",): FOOTER_KEY}))
        for by_row in (False, True):
            with row_reader(lake.spark, by_row):
                read = lake.spark.read.parquet(str(target))
                assert [(row.c0, row.c1) for row in read.collect()] == [(value, value) for value in expected], what
                assert read.where("c0 = 8").count() == expected.count(8), what


NO_ROWS: dict[str, tuple[list[list[list[MadePage]]], list[int]]] = {
    "row groups of nothing": ([[[], []]], []),
    "dictionaries alone": ([[[DICTIONARY], [DICTIONARY]]], []),
    "empty pages": ([[[data_page(b"", values=0)], [data_page(b"", values=0)]]], []),
    "none, then some": ([[[DICTIONARY], []], [USED, USED]], [6, 6]),
    "some, then none": ([[USED, USED], [[DICTIONARY], []], [USED, UNUSED]], [6, 6, 6, 6]),
}


@pytest.mark.parametrize(("mode", "algorithm", "bits"), MODES)
def test_row_groups_without_rows(lake: Lake, mode: str, algorithm: str, bits: int) -> None:
    """Row groups of no rows, with dictionaries or without, keep nobody from reading the others."""
    policy = lake.policy(footer_mode=mode, algorithm=algorithm, bits=bits)
    for number, (what, (groups, expected)) in enumerate(NO_ROWS.items()):
        target = lake.root / f"{number}.parquet"
        rewrite_file(make_file(groups), target, encryption=encryption(policy, {("c0",): "pii", ("c1",): "fin"}))
        for by_row in (False, True):
            with row_reader(lake.spark, by_row):
                read = lake.spark.read.parquet(str(target))
                assert [row.c0 for row in read.select("c0").collect()] == expected, what
                assert read.count() == len(expected), what


@pytest.mark.parametrize(("mode", "algorithm", "bits"), MODES)
def test_files_without_rows(lake: Lake, mode: str, algorithm: str, bits: int) -> None:
    """Files of no rows, with a row group or none, are read beside one with rows, and alone."""
    policy = lake.policy(footer_mode=mode, algorithm=algorithm, bits=bits)
    content = pa.table({"id": [1, 2], "ssn": ["a", "b"]})
    folder = lake.root / "out"
    folder.mkdir()
    pq.write_table(content, lake.root / "some")
    pq.write_table(content[:0], lake.root / "one")
    pq.ParquetWriter(lake.root / "none", content.schema).close()
    assert [pq.read_metadata(lake.root / name).num_row_groups for name in ("some", "none")] == [1, 0]
    lake.spark.range(2).where("id > 5").select("id", F.lit("x").alias("ssn")).coalesce(1).write.parquet(
        str(lake.root / "spark")
    )
    files = [lake.root / name for name in ("some", "one", "none")]
    for number, file in enumerate([*files, *data_files(lake.root / "spark")]):
        rewrite_file(file, folder / f"{number}.parquet", encryption=encryption(policy, {("ssn",): "pii"}))
    assert len(data_files(folder)) == 4
    for by_row in (False, True):
        with row_reader(lake.spark, by_row):
            assert [tuple(row) for row in lake.spark.read.parquet(str(folder)).collect()] == [(1, "a"), (2, "b")]
            for number in (1, 2, 3):
                assert lake.spark.read.parquet(str(folder / f"{number}.parquet")).select("ssn").collect() == []


def test_places_in_the_footer(lake: Lake, sources: dict[str, Path]) -> None:
    """The first row group begins at byte 4, each next one where its first column does, and all are numbered."""
    policy, target = lake.policy(), lake.root / "part-0.parquet"
    rewrite_file(sources["v1"], target, encryption=encryption(policy, {(FIRST,): "pii"}))
    footer, found = read_footer(target, retrieve_key=retriever(policy)), metadata_of(target, retriever(policy))
    assert footer.metadata is not None
    groups = footer.metadata.row_groups
    assert groups[0].file_offset == 4 and [group.ordinal for group in groups] == [0, 1, 2, 3]
    for number, group in enumerate(groups):
        first = found[number, 0]
        assert group.file_offset == (first.dictionary_page_offset or first.data_page_offset)
        sizes = [found[number, column].total_compressed_size for column in range(len(group.columns))]
        assert group.total_compressed_size == sum(sizes)

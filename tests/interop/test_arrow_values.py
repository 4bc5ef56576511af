"""Values that pyarrow alone reads otherwise than Spark, or not at all: Spark's by `open_table`, or refused by name."""

from __future__ import annotations

import io
import random
import re
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sparkcrypt.arrow import GuardedTable, open_table
from sparkcrypt.arrow.shape import columns_of, leaves_of, paths_in_file
from sparkcrypt.arrow.table import SCANS_NEED_FEW_KEYS
from sparkcrypt.errors import (
    ConfigError,
    FormatError,
    PlanError,
    SparkcryptError,
    UnsupportedFileError,
    VerificationError,
)
from sparkcrypt.files.parquet import message_type, read_footer
from sparkcrypt.files.parquet.thrift.compact import Struct, decode_struct, encode_struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, ColumnMetaData, FileMetaData, PageHeader, RowGroup
from sparkcrypt.policy.model import Policy
from tests.interop.lake_files import TableWriter
from tests.spark.support import make_policy, with_keys, without_keys
from tests.unit.parquet.handmade import dictionary_page
from tests.unit.schema.writers import write_as

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


def in_v2_pages(count: int = 1000) -> pa.Table:
    """Return rows with nulls, repeated and nested values, texts that repeat and texts that do not."""
    ids = range(count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "email": [None if number % 7 == 0 else f"mail{number}" for number in ids],
            "city": [f"city{number % 3}" for number in ids],
            "phones": [[f"{number}", None] if number % 2 else [] for number in ids],
            "person": [None if number % 5 == 0 else {"name": f"n{number}", "ssn": f"s{number}"} for number in ids],
        }
    )


TAGGED = {"email": ["pii"], "city": ["pii"], "phones": ["pii"], "person.ssn": ["fin"]}
V2_KEYS = {"email": "pii", "city": "pii", "phones.list.element": "pii", "person.ssn": "fin"}


@pytest.mark.parametrize(("mode", "algorithm"), MODES)
def test_pages_of_version_2_are_read(tmp_path: Path, mode: str, algorithm: str) -> None:
    """By each route, beside pages of version 1: filters, nulls for denied leaves; other keys stay closed."""
    policy, rows = make_policy(tmp_path / "p", TAGS, footer_mode=mode, algorithm=algorithm), in_v2_pages()
    writer, folder = TableWriter(tmp_path / "t", policy, None), tmp_path / "t"
    options = {"row_group_size": 300, "data_page_size": 2048, "use_dictionary": ["city"]}
    for name, version in (("a", "2.0"), ("b", "1.0"), ("c", "2.0")):
        codec = "snappy" if name == "a" else "none"
        writer.encrypt(written(rows, data_page_version=version, compression=codec, **options), name, V2_KEYS)
    table = open_all(folder, policy)
    assert table.to_table().equals(pa.concat_tables([rows] * 3))
    found = table.to_table(["phones", "id"], pc.field("email") == "mail901")
    assert found.to_pylist() == [{"phones": ["901", None], "id": 901}] * 3
    assert table.count_rows(pc.field("city") == "city1") == 3 * 333
    assert table.head(2, ["person"]).to_pylist() == [{"person": None}, {"person": {"name": "n1", "ssn": "s1"}}]
    if SCANS_NEED_FEW_KEYS:
        assert by_duckdb(table.dataset(["id", "email"]), "email = 'mail7' OR email = 'mail8'") == [(8,)] * 3
    poor = lacking(policy, tmp_path, "fin")
    assert open_all(folder, poor).to_table(["id", "email"]).num_rows == 3000
    person = open_all(folder, poor, tags=TAGGED, on_denied="mask").to_table(["person"]).slice(1, 1).to_pylist()
    assert person == [{"person": {"name": "n1", "ssn": None}}]


def joined(rows: pa.Table, lead: bytes) -> bytes:
    """Return a file of one column whose only chunk has the rows twice: in a page of version 1, then in one of 2."""
    metadata, found, chunks = None, None, [lead]
    for version in ("1.0", "2.0"):
        plain = written(rows, data_page_version=version, use_dictionary=False, compression="none")
        metadata = read_footer(plain).metadata
        assert metadata is not None
        found = metadata.row_groups[0].columns[0].meta_data
        assert found is not None
        chunks.append(plain[found.data_page_offset :][: found.total_compressed_size])
    assert metadata is not None and found is not None
    struct, group = metadata.struct, metadata.row_groups[0].struct
    size, made = sum(map(len, chunks)), Struct(found.struct)
    for key in (ColumnMetaData.encoding_stats, ColumnMetaData.statistics, ColumnMetaData.size_statistics):
        made.pop(key.key, None)
    made |= dict.fromkeys((ColumnMetaData.total_compressed_size.key, ColumnMetaData.total_uncompressed_size.key), size)
    for holder, count in (
        (made, ColumnMetaData.num_values),
        (group, RowGroup.num_rows),
        (struct, FileMetaData.num_rows),
    ):
        holder[count.key] = 2 * len(rows)
    made[ColumnMetaData.data_page_offset.key] = 4 + len(lead)
    if lead:
        made[ColumnMetaData.dictionary_page_offset.key] = 4
    metadata.row_groups[0].columns[0].struct[ColumnChunk.meta_data.key] = Struct(sorted(made.items()))
    group.pop(RowGroup.total_compressed_size.key, None)
    footer = encode_struct(struct)
    return b"".join((b"PAR1", *chunks, footer, len(footer).to_bytes(4, "little"), b"PAR1"))


@pytest.mark.parametrize("counts", [True, False])
def test_pages_of_both_versions_in_one_chunk_are_read(tmp_path: Path, counts: bool) -> None:
    """By each route, whether the chunk's metadata count its pages by version or not."""
    policy, rows = make_policy(tmp_path / "p", TAGS), in_v2_pages().select(["email"])
    lead = b"" if counts else dictionary_page(b"\1\0\0\0a\1\0\0\0b").wire  # of a dictionary that no page uses
    file = TableWriter(tmp_path / "t", policy, None).encrypt(joined(rows, lead), "a", {"email": "pii"})
    table = open_all(tmp_path / "t", policy)
    assert table.to_table().equals(pa.concat_tables([rows] * 2))
    assert table.count_rows(pc.field("email") == "mail901") == 2
    assert table.dataset().to_table().num_rows == 2 * len(rows)
    assert read_footer(file).mode == "encrypted"


def test_a_damaged_page_of_version_2_is_an_error_by_name(tmp_path: Path) -> None:
    """The error names column and file; DuckDB neither hangs nor gets rows."""
    policy, rows = make_policy(tmp_path / "p", TAGS), in_v2_pages().select(["id", "email"])
    plain = written(rows, data_page_version="2.0", use_dictionary=False, compression="none")
    file = TableWriter(tmp_path / "t", policy, None).encrypt(plain, "a", {"email": "pii"})
    data = bytearray(file.read_bytes())
    data[14_000] ^= 1  # of 1000 texts, after as many numbers of eight bytes
    file.write_bytes(data)
    table = open_all(tmp_path / "t", policy)
    with pytest.raises(VerificationError, match=rf"{file}.*email"):
        table.to_table()
    assert table.to_table(["id"]).num_rows == len(rows)
    if SCANS_NEED_FEW_KEYS:
        dataset = table.dataset(["id", "email"])
        with pytest.raises((duckdb.Error, OSError, SparkcryptError)):
            by_duckdb(dataset, "email = 'mail8'")


def test_a_page_that_promises_much_is_an_error_by_name(tmp_path: Path) -> None:
    """It takes no memory by a header's word, and the error names table and column; other columns are read."""
    policy, rows = make_policy(tmp_path / "p", TAGS), in_v2_pages(10).select(["id", "email"])
    plain = written(rows, use_dictionary=False, compression="snappy")
    metadata = read_footer(plain).metadata
    assert metadata is not None
    chunk = metadata.row_groups[0].columns[1].meta_data
    assert chunk is not None
    header, length = decode_struct(plain[chunk.data_page_offset :])
    header[PageHeader.uncompressed_page_size.key] = (1 << 31) - 1
    page = encode_struct(header) + plain[chunk.data_page_offset + length :][: chunk.total_compressed_size - length]
    chunk.struct[ColumnMetaData.total_compressed_size.key] = len(page)
    metadata.row_groups[0].struct.pop(RowGroup.total_compressed_size.key, None)
    footer = encode_struct(metadata.struct)
    end = b"".join((footer, len(footer).to_bytes(4, "little"), b"PAR1"))
    TableWriter(tmp_path / "t", policy, None).encrypt(
        plain[: chunk.data_page_offset] + page + end, "a", {"email": "pii"}
    )
    table = open_all(tmp_path / "t", policy)
    with pytest.raises(FormatError, match=rf"{tmp_path / 't'}: a page of id, email cannot be decoded"):
        table.to_table()
    assert table.to_table(["id"]).num_rows == len(rows)


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
    poor = open_all(folder, lacking(policy, tmp_path, "pii"), tags={"seen": ["pii"]}, on_denied="mask")
    assert poor.to_table(["seen", "l"]).slice(0, 2).to_pylist() == [{"seen": None, "l": [time]} for time in TIMES[:2]]


def random_kind(chance: random.Random, depth: int) -> Any:
    """Return a Spark type of texts."""
    form = chance.choice(("string", "array", "map", "struct")) if depth else "string"
    if form == "string":
        return form
    if form == "array":
        return {"type": form, "elementType": random_kind(chance, depth - 1)}
    if form == "map":
        return {"type": form, "keyType": "string", "valueType": random_kind(chance, depth - 1)}
    fields = [{"name": f"f{number}", "type": random_kind(chance, depth - 1)} for number in range(chance.choice((1, 2)))]
    return {"type": form, "fields": fields}


def _repeats_annotated(fields: Any) -> bool:
    return any(
        (field["annotation"] is not None and field["repetition"] == "repeated") or _repeats_annotated(field["children"])
        for field in fields
    )


def test_leaves_of_any_writer_are_matched_by_place(tmp_path: Path) -> None:
    """Arrow's leaves and those that keys are opened for are the same, in the same order, whatever names groups have."""
    chance, refused = random.Random(3), 0
    policy = make_policy(tmp_path / "p", TAGS)
    for number in range(150):
        document = {"type": "struct", "fields": [{"name": name, "type": random_kind(chance, 3)} for name in "ab"]}
        file = tmp_path / f"{number}.parquet"
        write_as(file, document, lambda forms: forms[0] if "upper case" in forms else chance.choice(forms))
        try:
            schema = open_table(str(file), policy).schema
        except UnsupportedFileError as error:
            assert re.search("annotated groups must", str(error)) and str(file) in str(error)
            refused += 1
            continue
        leaves = [leaf for field in schema for leaf in leaves_of(field.type, (field.name,))]
        footer = read_footer(file)
        assert footer.metadata is not None
        if SCANS_NEED_FEW_KEYS or not _repeats_annotated(
            message_type(footer.metadata)
        ):  # older ones take it as a struct
            assert leaves == list(paths_in_file(columns_of(footer)))
    assert refused < 75


def test_files_whose_types_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    """Values that the type of the table's first file does not hold: an error of this package, and no row."""
    policy, folder = make_policy(tmp_path / "p", TAGS), tmp_path / "t"
    writer = TableWriter(folder, policy, None)
    for name, unit in (("a", "us"), ("b", "ns")):
        writer.encrypt(written(pa.table({"seen": pa.array([1], pa.timestamp(unit, "UTC"))})), name, {"seen": "pii"})
    with pytest.raises(
        PlanError, match=r"/t: a file does not fit.*\(seen: timestamp\[us, tz=UTC\].*would lose data.*give `schema`"
    ):
        open_all(folder, policy).to_table()
    given = pa.schema([("seen", pa.timestamp("ns", "UTC"))])
    assert open_all(folder, policy, schema=given).to_table()["seen"].cast(pa.int64()).to_pylist() == [1000, 1]


def spark_file(rows: pa.Table, version: str | None, *entries: str, **options: Any) -> bytes:
    """Return a file with what Spark of a version says of calendars."""
    told = {"org.apache.spark.version": version} if version else {}
    told |= dict.fromkeys((f"org.apache.spark.{entry}" for entry in entries), "")
    plain = io.BytesIO()
    with pq.ParquetWriter(plain, rows.schema, store_schema=False, **options) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata(told)
    return plain.getvalue()


OLD_DAYS = [date(1500, 3, 11), date(1582, 10, 14), date(1582, 10, 15), None]
"""Days that the old calendar calls 1 March 1500, and 4 and 15 October 1582, which follow each other there."""
SPARKS_DAYS = [date(1500, 3, 1), date(1582, 10, 4), date(1582, 10, 15), None]


def dates(days: list[date | None]) -> pa.Table:
    """Return dates at the top, in a struct, a list and a map."""
    kind = pa.date32()
    return pa.table(
        {
            "id": pa.array(range(len(days)), pa.int64()),
            "born": pa.array(days, kind),
            "s": pa.array([{"x": day, "y": 1} for day in days], pa.struct([("x", kind), ("y", pa.int32())])),
            "l": pa.array([[day, None] for day in days], pa.list_(kind)),
            "m": pa.array([[(1, day)] for day in days], pa.map_(pa.int32(), kind)),
        }
    )


def test_dates_of_the_old_calendar_are_those_of_spark(tmp_path: Path) -> None:
    """The same days in the old calendar; a filter finds them, files between others keep their places."""
    policy, folder = make_policy(tmp_path / "p", TAGS), tmp_path / "t"
    writer, keys, days = TableWriter(folder, policy, None), {"born": "pii", "s.x": "fin"}, dates(OLD_DAYS)
    new = dates([date(1500, 3, 1), date(2024, 1, 1)])
    writer.encrypt(spark_file(new, "3.5.9"), "a", keys)
    writer.encrypt(spark_file(days, "2.4.8"), "b", keys)
    writer.encrypt(spark_file(new, None), "c", keys)
    writer.encrypt(spark_file(days, "4.1.0", "legacyDateTime", write_statistics=False), "d", keys)
    writer.encrypt(spark_file(dates([date(2020, 1, 1)]), "2.4.8"), "e", keys)
    table = open_all(folder, policy)
    expected = pa.concat_tables([new, dates(SPARKS_DAYS), new, dates(SPARKS_DAYS), dates([date(2020, 1, 1)])])
    assert table.to_table().to_pylist() == expected.to_pylist()
    on_day = pc.field("born") == date(1500, 3, 1)
    assert table.to_table(["id"], on_day)["id"].to_pylist() == [0] * 4
    assert table.count_rows(on_day) == 4 and table.to_table(["id"]).num_rows == 13
    assert [len(batch) for batch in table.to_batches(["id"]) if len(batch)] == [2, 4, 2, 4, 1]
    if SCANS_NEED_FEW_KEYS:
        assert len(by_duckdb(table.dataset(["id"]), "true")) == 13
        with pytest.raises(ConfigError, match=r"/b: column born .*old calendar.*scan\(\)"):
            table.dataset(["id", "born"])
    poor = open_all(folder, lacking(policy, tmp_path, "fin"), tags={"s.x": ["fin"]}, on_denied="mask")
    found = poor.to_table(["born", "s"], on_day).to_pylist()
    assert found == [{"born": date(1500, 3, 1), "s": {"x": None, "y": 1}}] * 4


def test_what_spark_reads_in_its_own_way_is_refused_by_name(tmp_path: Path) -> None:
    """Times before 1900 by old writers, whose zone decides, and dates before the year 1; later ones are read."""
    policy = make_policy(tmp_path / "p", TAGS)
    for name, rows, options in (
        ("int96", int96_rows(TIMES), {"use_deprecated_int96_timestamps": True}),
        ("micros", int96_rows(TIMES).cast(_instants()), {}),
        ("unknown", int96_rows(TIMES).cast(_instants()), {"write_statistics": False}),
    ):
        folder = tmp_path / name
        writer = TableWriter(folder, policy, None)
        writer.encrypt(spark_file(rows, "2.4.8", **options), "a", {"seen": "pii"})
        table = open_all(folder, policy)
        assert table.to_table(["id"]).num_rows == 4
        for column, leaf in (("seen", "seen"), ("s", "s.x"), ("l", "l.element")):
            for condition in (None, pc.field("id") == 0):
                with pytest.raises(UnsupportedFileError, match=rf"{folder}/a: column {leaf} .*1900.*with Spark"):
                    table.to_table([column], condition)
        writer.encrypt(spark_file(rows.slice(2), "2.4.8", **options), "later", {"seen": "pii"})
        assert open_all(folder / "later", policy).to_table(["seen"])["seen"].to_pylist() == [NOW, None]
    before = pa.table({"born": pa.array([-800_000], pa.int32()).cast(pa.date32())})
    TableWriter(tmp_path / "t", policy, None).encrypt(spark_file(before, "2.4.8"), "a", {"born": "pii"})
    with pytest.raises(UnsupportedFileError, match=r"column born .*before the year 1.*with Spark"):
        open_all(tmp_path / "t", policy).to_table()


def _instants() -> pa.Schema:
    return pa.schema(
        [("id", pa.int64()), ("seen", INSTANT), ("s", pa.struct([("x", INSTANT)])), ("l", pa.list_(INSTANT))]
    )

"""Rows of ORC files, and the runs of numbers that they are made of."""

from __future__ import annotations

import io
import math
import random
from datetime import date, datetime, timezone

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkcrypt.errors import FormatError, UnsupportedFileError
from sparkcrypt.files.orc.file.compression import Compression
from sparkcrypt.files.orc.file.encryption import LocalKey, LocalKeys
from sparkcrypt.files.orc.file.protobuf import Message
from sparkcrypt.files.orc.file.tail import CALENDAR, read_tail, tail_of
from sparkcrypt.files.orc.read.rows import GroupCount, RowsOrder, read_rows
from sparkcrypt.files.orc.read.runs import BitRuns, ByteRuns, IntegerRuns, Positions, StreamBytes, StreamCursor
from sparkcrypt.files.orc.read.stripe_streams import _decimal, find_columns, read_type
from sparkcrypt.files.orc.read.values import LAST_LISTED, find_offsets
from sparkcrypt.files.source import naming, open_source
from tests.unit.orc.corpus import CODECS, file, retrieve_key
from tests.unit.orc.generated import NESTED, ROWS, TYPES, make_array, make_nested, write_orc
from tests.unit.orc.reading import read_orc
from tests.unit.orc.rewriting import patched

HIVE_11 = Message("a type", [(1 << 3, 14)])
SLOWLY = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
FLAT = sorted(set(TYPES) - {"binary"})
SOURCES = [*(f"java_{codec}" for codec in CODECS), "java_types", "arrow_zstd"]


def read_by_pyarrow(data: bytes, columns: list[str] | None = None) -> pa.Table:
    """Return the rows as pyarrow's own reader gives them."""
    return pa.orc.ORCFile(io.BytesIO(data)).read(columns=columns)


def check_equal(found: pa.Table, expected: pa.Table) -> None:
    """Check types, values and order; NaN is equal to itself."""
    assert found.schema.types == [expected.schema.field(name).type for name in found.column_names]
    for name in found.column_names:
        found[name].validate(full=True)
        values, wanted = found[name], expected[name]
        assert values.equals(wanted) or repr(values.to_pylist()) == repr(wanted.to_pylist()), name


@pytest.mark.parametrize(("kind", "written", "number"), [("short", pa.int32(), 2), ("int", pa.int64(), 3)])
def test_integers_without_their_sign_are_what_orc_reads(kind: str, written: pa.DataType, number: int) -> None:
    """A writer stored -3,073 as 62,463; ORC's readers take the low bits, and such statistics rule out nothing."""
    bits = 16 if kind == "short" else 32
    values = [2**bits - 3073, 5, 2 ** (bits - 1), 7]
    out = io.BytesIO()
    pa.orc.write_table(pa.table({"a": pa.array(values, written)}), out)
    data = out.getvalue()
    tail = read_tail(data)
    root, column = tail.footer.messages(4, "a type")
    types = [root.encode(), column.replace_field(1, [number]).encode()]
    narrow = patched(tail, data, tail.footer.replace_field(4, types))
    expected = [-3073, 5, -(2 ** (bits - 1)), 7]
    assert read_by_pyarrow(narrow)["a"].to_pylist() == expected
    assert read_orc(narrow)["a"].to_pylist() == expected
    assert read_orc(narrow, ["a"], pc.field("a") == -3073)["a"].to_pylist() == [-3073]


@SLOWLY
@given(kind=st.sampled_from(sorted(TYPES)), rows=st.sampled_from(ROWS), chance=st.randoms(use_true_random=False))
def test_flat_columns_are_what_pyarrow_reads(kind: str, rows: int, chance: random.Random) -> None:
    """Every type, with nulls, in runs of both versions, over codecs, strides and stripes."""
    data = write_orc(pa.table({"c": make_array(kind, rows, chance)}), chance)
    check_equal(read_orc(data), read_by_pyarrow(data))


@SLOWLY
@given(kind=st.sampled_from(NESTED), rows=st.sampled_from((0, 1, 300, 2000)), chance=st.randoms(use_true_random=False))
def test_nested_columns_are_what_pyarrow_reads(kind: str, rows: int, chance: random.Random) -> None:
    """Structs, lists and maps, inside each other too, with nulls at every level."""
    data = write_orc(pa.table({"c": make_nested(kind, rows, chance)}), chance)
    check_equal(read_orc(data), read_by_pyarrow(data))


def filters(kind: str, values: pa.Array, chance: random.Random) -> pc.Expression:
    """Return a condition on the column ``c``, by one of its values where it has one."""
    column, held = pc.field("c"), values.drop_null()
    if not len(held):
        return chance.choice((column.is_null(), column.is_valid()))
    value = held[chance.randrange(len(held))]
    if kind == "boolean":
        return chance.choice((column, ~column, column == value, column.is_null()))
    made = [column == value, column != value, column < value, column >= value, ~(column < value), ~(column != value)]
    made += [column.is_null(), column.is_valid(), (column > value) | column.is_null()]
    if "decimal" not in kind:
        made.append(column.isin([value]))
    return chance.choice(made)


@SLOWLY
@given(kind=st.sampled_from(FLAT), rows=st.sampled_from((1, 300, 1000)), chance=st.randoms(use_true_random=False))
def test_filters_keep_what_pyarrow_keeps(kind: str, rows: int, chance: random.Random) -> None:
    """No row group is left out that has a row of the filter: NaN, nulls, and all other columns seek as well."""
    columns = {"c": make_array(kind, rows, chance), "d": make_array(chance.choice(FLAT), rows, chance)}
    columns["n"] = make_nested(chance.choice(NESTED), rows, chance)
    data = write_orc(pa.table(columns), chance, row_index_stride=chance.choice((7, 100, 128)))
    for _ in range(3):
        condition = filters(kind, columns["c"], chance)
        if chance.random() < 0.3:
            condition = condition & pc.field("d").is_valid()
        check_equal(read_orc(data, None, condition), read_by_pyarrow(data).filter(condition))


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.int64()], ids=str)
def test_row_groups_are_kept_for_what_bounds_do_not_say(kind: pa.DataType) -> None:
    """NaN, which no bounds have, and nulls are rows of filters that bounds alone would rule out."""
    odd = {0: 1, 149: math.nan if pa.types.is_floating(kind) else 9, 250: None}
    table = pa.table({"c": pa.array([odd.get(row, 5) for row in range(400)], kind)})
    data, column, count = write_orc(table, random.Random(1), row_index_stride=100), pc.field("c"), GroupCount()
    for condition in (column != 5, ~(column == 5), (column > 9) | column.is_null(), column.is_null(), ~(column < 9)):
        check_equal(read_orc(data, None, condition, count=count), read_by_pyarrow(data).filter(condition))
    assert 0 < count.read < count.seen


@pytest.mark.parametrize("kind", sorted(set(TYPES) - {"binary", "boolean"}))
def test_row_groups_with_nulls_are_left_out(kind: str) -> None:
    """Nulls in every row group do not hinder its bounds, whatever the type."""
    values = pa.array([None if row % 7 == 0 else row // 4 for row in range(400)], pa.int64())
    steps = values if pa.types.is_temporal(TYPES[kind]) else values.cast(pa.int8())
    if pa.types.is_timestamp(TYPES[kind]):
        steps = pc.multiply(values, 10**9)
    table = pa.table({"c": (steps.cast(pa.int32()) if kind == "date" else steps).cast(TYPES[kind])})
    data, count = write_orc(table, random.Random(1), row_index_stride=100), GroupCount()
    condition = pc.field("c") == table["c"][151]
    check_equal(read_orc(data, None, condition, count=count), read_by_pyarrow(data).filter(condition))
    assert count.read < count.seen == 4


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("wanted", [0, 1000, 2499])
def test_files_of_java_are_read_by_row_groups(name: str, wanted: int) -> None:
    """Each column of a file of the Java writer, whole and at one row, of which it reads one row group."""
    data = file(name).read_bytes()
    columns = [field.name for field in pa.orc.ORCFile(io.BytesIO(data)).schema if field.name not in ("un", "kv")]
    expected = read_by_pyarrow(data, columns)
    count, condition = GroupCount(), pc.field("id") == wanted % len(expected)
    check_equal(read_orc(data, columns), expected)
    check_equal(read_orc(data, columns, condition, count=count), expected.filter(condition))
    assert (count.read, count.seen) == (1, 3)


@pytest.mark.parametrize("codec", [*CODECS, "types"])
def test_encrypted_columns_are_read_from_their_variants(codec: str) -> None:
    """With the keys, a file of the Java writer has the rows of the same file in plaintext."""
    data = file(f"java_{codec}").read_bytes()
    columns = [field.name for field in pa.orc.ORCFile(io.BytesIO(data)).schema if field.name not in ("un", "kv")]
    encrypted, expected = file(f"java_{codec}_encrypted").read_bytes(), read_by_pyarrow(data, columns)
    check_equal(read_orc(encrypted, columns), expected)
    name = expected["name"].drop_null()[17]
    condition = pc.field("name") == name
    check_equal(read_orc(encrypted, columns, condition), expected.filter(condition))


def test_a_file_without_row_indexes_is_read_whole() -> None:
    """Without a stride there is no row group to leave out, and the filter is judged row by row."""
    count = GroupCount()
    found = read_orc(file("java_stride0"), ["id"], pc.field("id") == 77, count=count)
    assert (found["id"].to_pylist(), count.read, count.seen) == ([77], 2, 2)


@pytest.mark.parametrize(("name", "why"), [("un", "is of kind union"), ("kv", "has a key that is null")])
def test_what_is_not_decoded_is_refused_by_name(name: str, why: str) -> None:
    """Unions, and maps whose keys are null, which pyarrow's reader ends the process on."""
    with pytest.raises(UnsupportedFileError, match=rf"{file('java_types')}: column {name} {why}.*read the file with"):
        read_orc(file("java_types"), [name])


@pytest.mark.parametrize(
    ("zone", "winter", "summer"),
    [("US/Pacific", -28_800, -25_200), ("Europe/Berlin", 3_600, 7_200), ("Asia/Kolkata", 19_800, 19_800)],
)
def test_clocks_change_after_2037_too(zone: str, winter: int, summer: int) -> None:
    """Files of time zones list no change after that year; the offset in January and July of each later year is told."""
    years = range(2037, 2262)
    for month, expected in ((1, winter), (7, summer)):
        instants = [int(datetime(year, month, 15, tzinfo=timezone.utc).timestamp()) for year in years]
        assert min(instants) >= LAST_LISTED
        assert set(find_offsets(np.array(instants, np.int64), zone).tolist()) == {expected}


def test_times_beyond_nanoseconds_are_refused() -> None:
    """The reader of pyarrow lets them overflow into another time."""
    seconds = pa.array([-62_135_596_800], pa.int64()).cast(pa.timestamp("s"))  # the year 1
    data = write_orc(pa.table({"c": seconds}), random.Random(1))
    with pytest.raises(UnsupportedFileError, match="column c has a time before 1677"):
        read_orc(data)


def with_calendar(data: bytes, calendar: int) -> bytes:
    """Return a small file whose footer names a calendar."""
    at = len(data) - 1 - data[-1]
    key, length, *rest = data[at:-1]
    assert key == 8 and length < 126
    return b"".join((data[:at], bytes([CALENDAR << 3, calendar, key, length + 2, *rest]), data[-1:]))


def test_dates_are_in_the_calendar_that_the_file_names() -> None:
    """Where it names none, in that of the Java writer, as for Spark; a filter has the converted days."""
    days, data = [date(1500, 3, 11), date(1582, 10, 14), date(1582, 10, 15), None], io.BytesIO()
    pa.orc.write_table(pa.table({"d": pa.array(days, pa.date32())}), data, compression="uncompressed")
    converted = [date(1500, 3, 1), date(1582, 10, 4), date(1582, 10, 15), None]
    for source, expected in (
        (data.getvalue(), converted),
        (with_calendar(data.getvalue(), 1), converted),
        (with_calendar(data.getvalue(), 2), days),
    ):
        assert read_orc(source)["d"].to_pylist() == expected
        for day in filter(None, expected):
            assert read_orc(source, None, pc.field("d") == day)["d"].to_pylist() == [day]
    early = io.BytesIO()
    pa.orc.write_table(pa.table({"d": pa.array([-800_000], pa.int32()).cast(pa.date32())}), early)
    with pytest.raises(UnsupportedFileError, match=r"column d has a date before the year 1 .*with Spark"):
        read_orc(early.getvalue())


def test_rows_before_the_damage_are_read() -> None:
    """A batch is decoded when it is taken, so a damaged second stripe is an error there, by the file's name."""
    data = bytearray(file("java_zlib").read_bytes())
    stripe = read_tail(bytes(data)).stripes[1]
    data[stripe.offset + stripe.index_length : stripe.footer_offset] = bytes(stripe.data_length)
    with open_source(bytes(data)) as opened, naming(opened.name):
        tail = tail_of(opened)
        columns = [read_type(tail, column) for column in find_columns(tail)]
        batches = read_rows(opened, tail, LocalKeys(opened.name, retrieve_key), RowsOrder(columns))
        assert next(batches)["id"].to_pylist() == list(range(1024))
    with pytest.raises(FormatError, match=r"<bytes>: stripe 1, .*expected"):
        read_orc(bytes(data))


def test_decimals_of_hive_11_have_the_precision_of_javas_reader() -> None:
    """Their type says none; each value has a scale of its own, to which what is wider is never cut."""
    assert _decimal(HIVE_11, read_tail(file("java_types")).columns[1]) == pa.decimal128(38, 10)


PATCHED = [2030, 2000, 2020, 1_000_000, *range(2040, 2200, 10)]
OF_SPECIFICATION = [
    (1, "610007", [7] * 100),
    (1, "61ff64", list(range(100, 0, -1))),
    (1, "fb020306070b", [2, 3, 6, 7, 11]),
    (2, "0a2710", [10_000] * 5),
    (2, "5e035ca1ab1edeadbeef", [23_713, 43_806, 57_005, 48_879]),
    (2, "8e132b2107d01e00147028323c46505a646e78828c96a0aab4befce8", PATCHED),
    (2, "c609020222424246", [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]),
    (2, "8e132b2187d01e00147028323c46505a646e78828c96a0aab4befce8", [value - 4000 for value in PATCHED]),
    (2, "c6091d0b42424221", [29, 23, 19, 17, 13, 11, 7, 5, 3, 2]),
]
"""Version, bytes and values of the examples in the specification, without signs; then with a base and steps below 0."""


def cursor(content: bytes, *, key: LocalKey | None = None, codec: str = "none") -> StreamCursor:
    """Return a cursor over a stream of these bytes, decrypted under a key as stream DATA of column 1."""
    compression = Compression(codec, 64)
    with open_source(content) as file:
        start = None if key is None else lambda offset: key.stream(1, 1, 1, offset)
        return StreamCursor(StreamBytes(file, "a stream", 0, len(content), start, compression))


@pytest.mark.parametrize(("version", "raw", "values"), OF_SPECIFICATION)
def test_examples_of_the_specification_are_decoded(version: int, raw: str, values: list[int]) -> None:
    """Every kind of run, at once, value by value, and from a place inside it."""
    runs = IntegerRuns(cursor(bytes.fromhex(raw)), version, False)
    assert runs.read(len(values)).tolist() == values
    runs.seek(Positions([0, 0], None, False, "c"))
    assert [runs.read(1)[0] for _ in values] == values
    runs.seek(Positions([0, len(values) - 2], None, False, "c"))
    assert runs.read(2).tolist() == values[-2:]
    with pytest.raises(FormatError, match=r"a stream: ends \d+ bytes early; expected more values"):
        runs.read(1)


def test_bytes_and_bits_of_the_specification_are_decoded() -> None:
    """A hundred zeros, two literal bytes, and one bit of eight."""
    assert ByteRuns(cursor(bytes.fromhex("6100fe4445"))).read(102) == bytes(100) + b"\x44\x45"
    bits = BitRuns(cursor(bytes.fromhex("ff80")))
    assert bits.read(8).tolist() == [True, *[False] * 7]
    bits.seek(Positions([0, 0, 7], None, False, "c"))
    assert bits.read(1).tolist() == [False]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("9f03ff3f00", "a stream: a patch of 2 and 64 bits; expected at most 64 together"),
        ("8e002b2107d01efce8", "a stream: a patch is of value 3 of a run; expected at most 0"),
        ("c609ffffffffffffffffffff02", "a stream: an integer has more than 10 bytes"),
    ],
)
def test_runs_against_the_specification_are_refused(raw: str, why: str) -> None:
    """Patches that reach too far, and varints that do not end."""
    with pytest.raises(FormatError, match=why):
        IntegerRuns(cursor(bytes.fromhex(raw) + bytes(600)), 2, False).read(1)


@pytest.mark.parametrize("positions", [[0], [0, 1 << 21], [7, 0], [1 << 40, 0]])
def test_positions_that_lead_nowhere_are_refused(positions: list[int]) -> None:
    """Too few numbers, too many values to skip, and places after the end of the stream."""
    with pytest.raises(FormatError, match="expected"):
        IntegerRuns(cursor(bytes.fromhex("0a2710")), 2, False).seek(Positions(positions, None, False, "c"))


@given(content=st.binary(min_size=1, max_size=400), data=st.data(), codec=st.sampled_from(["none", "zlib"]))
def test_any_place_of_a_stream_is_decrypted(content: bytes, data: st.DataObject, codec: str) -> None:
    """From any byte on the content is that of the whole stream, in whatever order places are asked for."""
    key, compression = LocalKey(bytes(range(16))), Compression(codec, 64)
    stream = b"".join(compression.deflated_chunks(content))
    begins = {0: 0, len(stream): len(content)}
    for start, part in compression.located_chunks(stream, "a stream"):
        begins[start] = begins.get(start, 0)
        begins[start] = sum(len(chunk) for at, chunk in compression.located_chunks(stream, "") if at < start)
        assert part
    opened = cursor(key.stream(1, 1, 1).update(stream), key=key, codec=codec)
    for _ in range(4):
        place = data.draw(st.integers(0, len(content) - 1))
        chunk, byte = place, 0
        if codec != "none":
            chunk = max(start for start, first in begins.items() if first <= place)
            byte = place - begins[chunk]
        opened.seek(chunk, byte, None)
        count = data.draw(st.integers(0, len(content) - place))
        assert opened.take(count) == content[place : place + count]

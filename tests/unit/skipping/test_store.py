from __future__ import annotations

import datetime
import io
import math
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import FormatError, KeyAccessDeniedError, KeyServiceUnavailableError
from sparkcrypt.files.parquet import FOOTER_KEY, DataKey, FileEncryption, KeyRequest, rewrite_file
from sparkcrypt.files.parquet.rewrite.encryption import Protection
from sparkcrypt.names import SPARK_SCHEMA
from sparkcrypt.skipping.format.store import NO_KEY, UNKNOWN, Bounds, IndexEntries, merge_parts
from sparkcrypt.skipping.format.values import Budget

from .stores import (
    NAMES,
    TABLE,
    bounds_of,
    index_field,
    list_type,
    minmax_type,
    read_bytes,
    schema_json,
    spark_field,
    store_bytes,
)

DAY = datetime.date(2020, 2, 29)
NOON = datetime.datetime(2020, 2, 29, 12, 0, 0, 5)
NOON_MICROS = 1_582_977_600_000_005
TYPES: dict[str, tuple[pa.DataType, Any, Any]] = {
    "boolean": (pa.bool_(), True, True),
    "byte": (pa.int8(), -5, -5),
    "short": (pa.int16(), 300, 300),
    "integer": (pa.int32(), -70_000, -70_000),
    "long": (pa.int64(), 2**62, 2**62),
    "float": (pa.float32(), 0.5, 0.5),
    "double": (pa.float64(), -0.25, -0.25),
    "decimal(9,2)": (pa.decimal128(9, 2), Decimal("-1.05"), Decimal("-1.05")),
    "decimal(18,0)": (pa.decimal128(18, 0), Decimal("7"), Decimal("7")),
    "decimal(38,9)": (pa.decimal128(38, 9), Decimal("-123456789.000000001"), Decimal("-123456789.000000001")),
    "string": (pa.string(), "häß", "häß"),
    "binary": (pa.binary(), b"\xff\x00", b"\xff\x00"),
    "date": (pa.date32(), DAY, 18321),
    "timestamp": (pa.timestamp("us", tz="UTC"), NOON, NOON_MICROS),
    "timestamp_ntz": (pa.timestamp("us"), NOON, NOON_MICROS),
}


def one_index(data: bytes, **named: Any) -> IndexEntries:
    """Return the only index of a file."""
    (index,) = read_bytes(data, **named).indexes
    return index


def minmax(kind: str, pairs: list[Any], of: pa.DataType, **writer: Any) -> bytes:
    """Return a store with bounds of one column."""
    schema = schema_json([index_field("a_minmax_1", minmax_type(kind), "minmax", ["a"])])
    return store_bytes(schema, {"a_minmax_1": bounds_of(pairs, of)}, **writer)


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("kind", TYPES)
def test_bounds_and_values_of_every_type(kind: str, dictionary: bool) -> None:
    """Bounds and value lists of each type are what was written, from plain and from dictionary pages."""
    of, written, value = TYPES[kind]
    fields = [
        index_field("a_minmax_1", minmax_type(kind), "minmax", ["a"]),
        index_field("a_valuelist_1", list_type(kind), "valuelist", ["a"]),
    ]
    columns = {
        "a_minmax_1": bounds_of([(written, written), None, (written, None)], of),
        "a_valuelist_1": pa.array([[written, written], [], None], pa.list_(of)),
    }
    made = store_bytes(schema_json(fields), columns, use_dictionary=dictionary, store_decimal_as_integer=True)
    bounds, values = read_bytes(made).indexes
    assert bounds.entries == (Bounds(value, value), None, None)
    assert values.entries == (frozenset({value}), frozenset(), None)


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip"])
def test_codecs_and_many_pages(codec: str) -> None:
    """Thousands of rows in small pages and several row groups come back in order, under each codec that is read."""
    count = 5000
    names = [f"{TABLE}/{'x' * (number % 300)}{number}#1" for number in range(count)]
    lists = [[f"v{number % 17}", f"w{number % 300}"] * (number % 3) for number in range(count)]
    pairs = [None if number % 7 == 0 else (number, number * 3) for number in range(count)]
    schema = schema_json(
        [
            index_field("a_minmax_1", minmax_type("long"), "minmax", ["a"]),
            index_field("b_valuelist_1", list_type("string"), "valuelist", ["b"]),
        ]
    )
    columns = {"a_minmax_1": bounds_of(pairs, pa.int64()), "b_valuelist_1": pa.array(lists, pa.list_(pa.string()))}
    sizes: dict[str, Any] = {"data_page_size": 2000, "write_batch_size": 100, "row_group_size": 1700}
    part = read_bytes(store_bytes(schema, columns, names=names, compression=codec, **sizes))
    assert list(part.objects) == names
    assert part.indexes[0].entries == tuple(None if pair is None else Bounds(*pair) for pair in pairs)
    assert part.indexes[1].entries == tuple(map(frozenset, lists))


def test_a_codec_that_python_does_not_have_is_refused() -> None:
    """Zstandard is named, with what is read instead."""
    data = minmax("long", [(1, 2)] * 3, pa.int64(), compression="zstd")
    with pytest.raises(FormatError, match=r"part-0\.parquet: .*zstd.*snappy, gzip or none"):
        read_bytes(data)


def test_v2_pages_are_refused() -> None:
    """V2 pages are named, with what to write instead."""
    data = minmax("long", [(1, 2)] * 3, pa.int64(), data_page_version="2.0")
    with pytest.raises(FormatError, match=r"writer\.version=v1"):
        read_bytes(data)


def test_two_nulls_say_all_null_but_not_of_floats() -> None:
    """Upstream writes two nulls for a float column with a NaN, so they say nothing; of other types all is null."""
    nothing = [(None, None)] * 3
    assert one_index(minmax("long", nothing, pa.int64())).entries == (Bounds(None, None),) * 3
    assert one_index(minmax("double", nothing, pa.float64())).entries == (None,) * 3


def test_negative_zero_is_zero_and_nan_stays() -> None:
    """The bounds of floats are those that compare as Spark's do."""
    found = one_index(minmax("double", [(-0.0, math.nan)] * 3, pa.float64())).entries[0]
    assert isinstance(found, Bounds) and isinstance(found.least, float) and isinstance(found.greatest, float)
    assert math.copysign(1, found.least) == 1.0
    assert math.isnan(found.greatest)


def test_text_that_is_no_utf8_is_unknown() -> None:
    """A bound that is no text, such as one that was cut inside a character, says nothing."""
    data = minmax("string", [(b"a", b"\xc3"), (b"a", b"b"), None], pa.binary())
    assert one_index(data).entries == (None, Bounds("a", "b"), None)


@pytest.mark.parametrize(("spark", "known"), [("4.1.0", True), ("3.1.2", True), ("3.0.1", False), (None, False)])
def test_old_calendars_say_nothing_of_old_days(spark: str | None, known: bool) -> None:
    """Days before 1900 are used only where the writer's calendar is known to be Spark's; later ones always are."""
    days = [(datetime.date(1500, 1, 1), DAY), (DAY, DAY), None]
    found = one_index(minmax("date", days, pa.date32(), spark=spark)).entries
    assert (found[0] is not None) == known
    assert found[1] == Bounds(18321, 18321)


def test_timestamps_of_old_writers() -> None:
    """INT96 and milliseconds become microseconds."""
    for how in (
        {"use_deprecated_int96_timestamps": True},
        {"coerce_timestamps": "ms", "allow_truncated_timestamps": True},
    ):
        found = one_index(minmax("timestamp", [(NOON, NOON)] * 3, pa.timestamp("us", tz="UTC"), **how)).entries
        wanted = NOON_MICROS if "use_deprecated_int96_timestamps" in how else NOON_MICROS // 1000 * 1000
        assert found == (Bounds(wanted, wanted),) * 3


def test_partitions_of_version_4() -> None:
    """Values of partition columns are told; null is null."""
    schema = schema_json([spark_field("virtual_dt", "date"), spark_field("virtual_x", "interval")])
    columns = {"virtual_dt": pa.array([DAY, None, DAY]), "virtual_x": pa.array([1, 2, 3])}
    (days, odd) = read_bytes(store_bytes(schema, columns)).partitions
    assert days[1] == (18321, None, 18321)
    assert odd[1] == (UNKNOWN,) * 3


def test_lists_of_old_writers() -> None:
    """A list's groups may have any names, and its elements may be required."""
    schema = schema_json([index_field("a_valuelist_1", list_type("long"), "valuelist", ["a"])])
    of = pa.list_(pa.field("array", pa.int64(), nullable=False))
    columns = {"a_valuelist_1": pa.array([[1, 2], None, []], of)}
    for named in (True, False):
        found = one_index(store_bytes(schema, columns, use_compliant_nested_type=named)).entries
        assert found == (frozenset({1, 2}), None, frozenset())


@pytest.mark.parametrize(
    ("kind", "of", "said"),
    [
        ("long", pa.int32(), "physical type 1 for long"),
        ("string", pa.int64(), "physical type 2 for string"),
        ("decimal(9,2)", pa.decimal128(9, 3), "scale 3"),
        ("timestamp", pa.int64(), "unknown unit"),
    ],
)
def test_a_type_that_is_not_sparks_is_refused(kind: str, of: pa.DataType, said: str) -> None:
    """The schema's type and Parquet's must be of one kind: otherwise bytes would be taken for other values."""
    with pytest.raises(FormatError, match=said):
        read_bytes(minmax(kind, [None] * 3, of))


def test_a_missing_column_is_refused() -> None:
    """An index whose column is not in the file is a format error."""
    schema = schema_json([index_field("a_minmax_1", minmax_type("long"), "minmax", ["a"])])
    with pytest.raises(FormatError, match=r"no column a_minmax_1\.min"):
        read_bytes(store_bytes(schema, {}))


@pytest.mark.parametrize("names", [[None] * 3, [b"\xff"] * 3])
def test_rows_without_a_name_are_refused(names: list[Any]) -> None:
    """Each row must name its object."""
    table = pa.table({"obj_name": pa.array(names, pa.binary())})
    out = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({SPARK_SCHEMA: schema_json([])}), out)
    with pytest.raises(FormatError, match="without a name"):
        read_bytes(out.getvalue())


def test_another_parquet_file_is_no_store() -> None:
    """A file without Spark's schema is told apart."""
    out = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), out)
    with pytest.raises(FormatError, match="as a store's files have"):
        read_bytes(out.getvalue())


def test_a_store_beyond_the_budget_is_refused() -> None:
    """What all files of a store take together is bounded, in values and in bytes."""
    data = minmax("long", [(1, 2)] * 3, pa.int64())
    for budget in (Budget(values=8), Budget(bytes=100)):
        with pytest.raises(FormatError, match=r"than (is read at once|are left)"):
            read_bytes(data, budget=budget)


FOOTER, OWN = DataKey(b"f" * 16, b"footer"), DataKey(b"o" * 16, b"own")
ENCRYPTED = schema_json(
    [
        index_field("a_minmax_1", minmax_type("long"), "minmax", ["a"], key_metadata="own"),
        index_field("b_minmax_1", minmax_type("long"), "minmax", ["b"]),
    ]
)


def encrypted(tmp_path: Path, footer_mode: Any = "encrypted") -> bytes:
    """Return an encrypted store: ``a`` under a key of its own, the rest under the footer's."""
    column = bounds_of([(1, 2)] * 3, pa.int64())
    plain = store_bytes(ENCRYPTED, {"a_minmax_1": column, "b_minmax_1": column})
    own: dict[tuple[str, ...], DataKey | Protection] = {("a_minmax_1", side): OWN for side in ("min", "max")}
    kept = {SPARK_SCHEMA: ENCRYPTED}  # a rewrite leaves of Spark's schema what tells nothing of values
    how = FileEncryption(FOOTER, columns=own, default=FOOTER_KEY, footer_mode=footer_mode, key_values=kept)
    tmp_path.mkdir(exist_ok=True)
    rewrite_file(plain, tmp_path / "part-0.parquet", encryption=how)
    return (tmp_path / "part-0.parquet").read_bytes()


def keys(request: KeyRequest, denied: type[Exception] | None = None) -> bytes:
    """Return the key of a column or the footer; the former may be denied."""
    if request.column is None:
        return FOOTER.key
    if denied is not None:
        raise denied("no")
    return OWN.key


def test_an_encrypted_store_is_read_with_its_keys(tmp_path: Path) -> None:
    """With all keys everything is read; without any the footer's mode is all that is known."""
    data = encrypted(tmp_path)
    part = read_bytes(data, retrieve_key=keys)
    assert part.objects == NAMES
    assert [index.entries for index in part.indexes] == [(Bounds(1, 2),) * 3] * 2
    hidden = read_bytes(data)
    assert (hidden.description, hidden.footer.mode) == (None, "encrypted")
    assert merge_parts([hidden]) is None


def test_an_index_whose_key_is_denied_is_not_used(tmp_path: Path) -> None:
    """A reader without a column's key reads all other indexes."""
    part = read_bytes(encrypted(tmp_path), retrieve_key=lambda request: keys(request, KeyAccessDeniedError))
    assert [index.unused for index in part.indexes] == [NO_KEY, None]
    assert (part.indexes[0].entries, part.indexes[1].entries) == ((), (Bounds(1, 2),) * 3)
    store = merge_parts([part])
    assert store is not None and [index.unused for index in store.indexes] == [NO_KEY, None]


def test_a_key_service_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    """Only a refusal leaves an index out: otherwise one would be told that a column cannot be skipped by."""
    with pytest.raises(KeyServiceUnavailableError):
        read_bytes(encrypted(tmp_path), retrieve_key=lambda request: keys(request, KeyServiceUnavailableError))


def test_a_plaintext_footer_tells_without_keys(tmp_path: Path) -> None:
    """A footer in clear tells which indexes there are without a key; what they hold takes one."""
    part = read_bytes(encrypted(tmp_path, "plaintext"))
    assert part.description is not None and part.description.version == 4
    assert (part.objects, {index.unused for index in part.indexes}) == ((), {"no keys were given"})
    assert read_bytes(encrypted(tmp_path / "more", "plaintext"), retrieve_key=keys).objects == NAMES


def test_files_of_one_store_are_put_together() -> None:
    """Objects of all files follow each other; an index that one file lacks says nothing of its objects."""
    column = {"a_minmax_1": bounds_of([(1, 2)] * 3, pa.int64())}
    first = store_bytes(schema_json([index_field("a_minmax_1", minmax_type("long"), "minmax", ["a"])]), column)
    second = store_bytes(schema_json([]), {}, names=["/data/table/later#5", NAMES[0]])
    store = merge_parts([read_bytes(first), read_bytes(second)])
    assert store is not None
    assert store.objects == (*NAMES, "/data/table/later#5", NAMES[0])
    assert store.indexes[0].entries == (*([Bounds(1, 2)] * 3), None, None)
    assert store.repeated == 1


def test_files_of_two_tables_are_no_store() -> None:
    """A folder with stores of two tables or versions is refused, and the files are named."""
    first = read_bytes(store_bytes(schema_json([]), {}))
    for other in (schema_json([], 3), schema_json([], tableIdentifier="/data/other")):
        with pytest.raises(FormatError, match="folder of its own"):
            merge_parts([first, read_bytes(store_bytes(other, {}))])
    with pytest.raises(FormatError, match="one or more"):
        merge_parts([])


def test_int96_is_read_as_spark_reads_it() -> None:
    """The nanoseconds of a day and its Julian number make microseconds since 1970."""
    from sparkcrypt.skipping.format.values import _micros_of_int96

    assert _micros_of_int96(struct.pack("<qi", 1_500, 2_440_588)) == 1
    assert _micros_of_int96(struct.pack("<qi", 0, 2_440_587)) == -86_400_000_000

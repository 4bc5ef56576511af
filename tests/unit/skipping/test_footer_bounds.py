from __future__ import annotations

import datetime
import io
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import ConfigError, KeyAccessDeniedError
from sparkcrypt.files.parquet import DataKey, FileEncryption, KeyRequest, read_footer, rewrite_file
from sparkcrypt.files.parquet.thrift.compact import STRUCT, List, Struct, decode_struct, encode_struct, field_key
from sparkcrypt.files.parquet.thrift.metadata import FileMetaData
from sparkcrypt.names import SPARK_SCHEMA
from sparkcrypt.skipping.format.store import Bounds
from sparkcrypt.skipping.indexes.data_file import column_type
from sparkcrypt.skipping.trusted.sidecar import keyed_digest
from tests.unit.skipping.footers import DIGEST_KEY, changed, file_of, read_bounds

NOON = datetime.datetime(2020, 2, 29, 12, 0, 0, 5)


def bounds_of(data: bytes, kind: str) -> Bounds | str:
    """Return the bounds of ``c``, or why they are not known."""
    found = read_bounds(data, {"c": kind})
    bounds: Bounds | None = found.bounds["c"]
    return found.unknown["c"] if bounds is None else bounds


@pytest.mark.parametrize(
    ("kind", "of", "values", "least", "greatest"),
    [
        ("byte", pa.int8(), [-5, 5], -5, 5),
        ("short", pa.int16(), [-300, 5], -300, 5),
        ("integer", pa.int32(), [-(2**31), 0], -(2**31), 0),
        ("long", pa.int64(), [2**62, -1], -1, 2**62),
        ("boolean", pa.bool_(), [True, False], False, True),
        ("string", pa.string(), ["é", "z", ""], "", "é"),
        ("binary", pa.binary(), [b"\xff", b"\x00"], b"\x00", b"\xff"),
        ("date", pa.date32(), [datetime.date(1500, 1, 1), datetime.date(1970, 1, 2)], -171_664, 1),
        ("timestamp", pa.timestamp("us", tz="UTC"), [NOON], 1_582_977_600_000_005, 1_582_977_600_000_005),
        ("timestamp", pa.timestamp("ms", tz="UTC"), [NOON.replace(microsecond=0)], *[1_582_977_600_000_000] * 2),
        ("timestamp_ntz", pa.timestamp("us"), [NOON], 1_582_977_600_000_005, 1_582_977_600_000_005),
        ("decimal(9,2)", pa.decimal128(9, 2), [Decimal("-1.05"), Decimal("1.00")], Decimal("-1.05"), Decimal(1)),
        (
            "decimal(38,3)",
            pa.decimal128(38, 3),
            [Decimal("-1e30"), Decimal("0.001")],
            Decimal("-1e30"),
            Decimal("0.001"),
        ),
    ],
)
@pytest.mark.parametrize("small", [False, True])
def test_bounds_of_every_type(
    kind: str, of: pa.DataType, values: list[Any], least: Any, greatest: Any, small: bool
) -> None:
    """A footer's bounds are those of the values, over all row groups, nulls apart."""
    data = file_of(
        pa.array([None, *values, None], of), row_group_size=1 if small else 100, store_decimal_as_integer=small
    )
    assert bounds_of(data, kind) == Bounds(least, greatest)
    metadata = read_footer(data).metadata
    assert metadata is not None and column_type(metadata, "C") == kind


@pytest.mark.parametrize("of", [pa.int64(), pa.float64(), pa.string()])
def test_a_column_of_nulls_is_known_to_be_one(of: pa.DataType) -> None:
    """Where every value is null, or there is none, the footer says so; not where its count of nulls is gone."""
    kind = {pa.int64(): "long", pa.float64(): "double", pa.string(): "string"}[of]
    assert bounds_of(file_of(pa.nulls(3, of)), kind) == Bounds(None, None)
    assert bounds_of(file_of(pa.nulls(0, of)), kind) == Bounds(None, None)
    assert isinstance(bounds_of(changed(file_of(pa.nulls(3, of)), null_count=None), kind), str)


@pytest.mark.parametrize(("kind", "of"), [("double", pa.float64()), ("float", pa.float32())])
def test_the_greatest_of_floats_is_nan(kind: str, of: pa.DataType) -> None:
    """Arrow leaves NaN out of its bounds, so nothing is known above, unless the footer counts them to be none."""
    for values in ([-0.0, 0.5], [-0.0, 0.5, math.nan]):
        found = bounds_of(file_of(pa.array(values, of)), kind)
        assert isinstance(found, Bounds) and found.least == 0.0 and math.copysign(1, float(found.least)) == 1.0
        assert math.isnan(float(found.greatest or 0))
    assert bounds_of(changed(file_of(pa.array([0.25, 0.5], of)), nan_count=0), kind) == Bounds(0.25, 0.5)
    assert isinstance(bounds_of(file_of(pa.array([math.nan], of)), kind), str)


def test_a_least_value_that_is_nan_says_nothing() -> None:
    """Old writers put NaN where a comparison left it."""
    nan = b"\x00" * 6 + b"\xf8\x7f"
    data = changed(file_of(pa.array([0.5])), min_value=nan, max_value=nan, min=nan, max=nan)
    assert "not a number" in str(bounds_of(data, "double"))


def test_text_that_was_cut_inside_a_character_says_nothing() -> None:
    """A maximum that is no UTF-8 is not compared as text; as binary it is."""
    data = changed(file_of(pa.array(["a", "é"])), max_value=b"\xc3")
    assert "UTF-8" in str(bounds_of(data, "string"))


def test_the_old_bounds_of_bytes_are_not_used() -> None:
    """Without an order that is known, bounds of text and of decimals in bytes say nothing; old ones of numbers do."""
    old = {"min_value": None, "max_value": None}
    assert "order" in str(bounds_of(changed(file_of(pa.array(["a", "b"])), **old, min=b"a", max=b"b"), "string"))
    assert "order" in str(bounds_of(changed(file_of(pa.array(["a", "b"])), ordered=False), "string"))
    number = changed(file_of(pa.array([3, 4])), **old, min=b"\x03" + b"\x00" * 7, max=b"\x04" + b"\x00" * 7)
    assert bounds_of(number, "long") == Bounds(3, 4)
    wide = file_of(pa.array([Decimal(1)], pa.decimal128(9, 2)))
    assert "order" in str(bounds_of(changed(wide, ordered=False), "decimal(9,2)"))


def test_missing_or_mistaken_bounds_say_nothing() -> None:
    """No statistics, one bound alone, or a least above the greatest are not known, and are not null."""
    assert "no statistics" in str(bounds_of(file_of(pa.array([1]), write_statistics=False), "long"))
    half = changed(file_of(pa.array([1])), max_value=None, max=None)
    assert "no bounds" in str(bounds_of(half, "long"))
    turned = changed(file_of(pa.array([1])), max_value=b"\x00" * 8)
    assert "greater than its greatest" in str(bounds_of(turned, "long"))


def test_old_days_of_an_unknown_calendar_say_nothing() -> None:
    """Before 1900 days count only from a writer whose calendar is known."""
    old, later = datetime.date(1500, 1, 1), datetime.date(1950, 1, 1)
    for days, known in (([old, later], False), ([later], True)):
        found = bounds_of(file_of(pa.array(days), metadata={"writer": "other"}), "date")
        assert isinstance(found, Bounds) == known


def test_another_type_or_no_column_says_nothing() -> None:
    """A column that was widened since, or added with a default, is unknown in old files."""
    assert bounds_of(file_of(pa.array([1], pa.int32())), "long") == "the file has it as integer"
    assert bounds_of(file_of(pa.array([Decimal(1)], pa.decimal128(9, 2))), "decimal(10,2)").startswith("the file has")  # type: ignore[union-attr]
    found = read_bounds(file_of(pa.array([1])), {"later": "long"})
    assert (found.bounds, found.unknown) == ({"later": None}, {"later": "the file does not have the column"})


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([1], pa.uint32()), "physical|not one that is compared"),
        (pa.array([1], pa.uint64()), "not one that is compared"),
        (pa.array([b"abc"], pa.binary(3)), "not one that is compared"),
        (pa.array([1], pa.time64("us")), "not one that is compared"),
        (pa.array([1], pa.timestamp("ns")), "not one that is compared"),
        (pa.array([1.5], pa.float16()), "not one that is compared"),
        (pa.array([[1]]), "nested or repeated"),
        (pa.array([{"a": 1}]), "nested or repeated"),
        (pa.array([{"c": 1}]), "nested or repeated"),
    ],
)
def test_types_that_are_not_compared_are_refused_by_name(column: pa.Array, said: str) -> None:
    """What Spark does not compare as its bytes, or not at all, cannot be indexed; the message names the column."""
    with pytest.raises(ConfigError, match=f"column 'c': cannot be indexed.*({said})"):
        bounds_of(file_of(column), "long")


def test_int96_is_refused_by_name() -> None:
    """The old timestamps have no bounds, and the message says what to write instead."""
    with pytest.raises(ConfigError, match=r"INT96.*TIMESTAMP_MICROS"):
        bounds_of(file_of(pa.array([NOON]), use_deprecated_int96_timestamps=True), "timestamp")


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"__COLLATIONS": {"c": "icu.UNICODE_CI"}}, "collation"),
        ({"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}, "CHAR"),
        ({"parquet.field.id": 3}, "field id"),
    ],
)
def test_what_spark_compares_otherwise_is_refused_by_name(metadata: dict[str, Any], said: str) -> None:
    """Collations, CHAR and field ids stand in Spark's schema alone."""
    field = {"name": "C", "type": "string", "nullable": True, "metadata": metadata}
    schema = {SPARK_SCHEMA: json.dumps({"type": "struct", "fields": [field]})}
    with pytest.raises(ConfigError, match=f"'c'.*{said}"):
        bounds_of(file_of(pa.array(["a"]), metadata=schema), "string")
    varchar = json.dumps({"fields": [{**field, "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}}]})
    assert bounds_of(file_of(pa.array(["a"]), metadata={SPARK_SCHEMA: varchar}), "string") == Bounds("a", "a")


def test_two_spellings_of_a_column_are_refused() -> None:
    """Spark finds columns whatever their case, so that two of one name cannot be told apart."""
    out = io.BytesIO()
    pq.write_table(pa.table({"c": [1], "C": [5]}), out)
    with pytest.raises(ConfigError, match="several spellings"):
        read_bounds(out.getvalue(), {"c": "long"})


FOOTER, OWN = DataKey(b"f" * 16, b"footer"), DataKey(b"o" * 16, b"own")


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A file whose column ``a`` is under a key of its own; ``b`` is plaintext in it."""
    out = io.BytesIO()
    pq.write_table(pa.table({"a": ["x", "y"], "b": [1, 2]}), out)
    rewrite_file(out.getvalue(), tmp_path / "f.parquet", encryption=FileEncryption(FOOTER, columns={("a",): OWN}))
    return tmp_path / "f.parquet"


def test_bounds_of_an_encrypted_file_take_its_keys(sealed: Path) -> None:
    """Bounds come from the encrypted metadata of the columns that are asked for; a denied key is an error."""
    asked: list[KeyRequest] = []

    def retrieve(request: KeyRequest) -> bytes:
        asked.append(request)
        if request.column is not None and len(asked) > 3:
            raise KeyAccessDeniedError("no")
        return FOOTER.key if request.column is None else OWN.key

    both = read_bounds(sealed, {"a": "string", "b": "long"}, retrieve_key=retrieve)
    assert both.bounds == {"a": Bounds("x", "y"), "b": Bounds(1, 2)}
    only_b = read_bounds(sealed, {"b": "long"}, retrieve_key=retrieve)
    assert (only_b.bounds, len(asked)) == ({"b": Bounds(1, 2)}, 3)
    with pytest.raises(KeyAccessDeniedError):
        read_bounds(sealed, {"a": "string"}, retrieve_key=retrieve)
    with pytest.raises(ConfigError, match="no key is given"):
        read_bounds(sealed, {"b": "long"})


def test_a_file_is_told_with_its_end(sealed: Path) -> None:
    """Length, file-unique and the keyed digest of the footer are what a sidecar notes of an object."""
    facts = read_bounds(sealed, {}, retrieve_key=lambda request: FOOTER.key).file.facts
    footer = read_footer(sealed)
    assert (facts.length, facts.file_unique) == (sealed.stat().st_size, (footer.aad_file_unique or b"").hex())
    assert facts.footer_digest == keyed_digest(DIGEST_KEY, sealed.read_bytes()[footer.offset :])


def test_the_struct_of_an_order_is_what_is_looked_for() -> None:
    """An order that is no ``TypeDefinedOrder`` is not known."""
    data = file_of(pa.array(["a", "b"]))
    footer = read_footer(data)
    metadata, _ = decode_struct(data, start=footer.offset)
    other = Struct({field_key(2, STRUCT): Struct()})
    metadata[FileMetaData.column_orders.key] = List(STRUCT, [other])
    encoded = encode_struct(metadata)
    assert "order" in str(
        bounds_of(data[: footer.offset] + encoded + len(encoded).to_bytes(4, "little") + b"PAR1", "string")
    )

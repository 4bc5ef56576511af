"""Each trap of statistics, from files to what a query opens: right, or refused by name when a store is made."""

from __future__ import annotations

import datetime
import json
import math
import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkcrypt.errors import ConfigError
from sparkcrypt.names import SPARK_SCHEMA
from sparkcrypt.skipping.indexes.build import Wanted, create_store, plan_store
from sparkcrypt.skipping.indexes.files import DataFolder
from sparkcrypt.skipping.query.skipper import Compare, In, IsNull, Listed, Not, Predicate, Skipper, StartsWith
from sparkcrypt.skipping.trusted.folder import LocalFolder
from sparkcrypt.skipping.trusted.sidecar import StoreKeys
from sparkcrypt.skipping.trusted.trust import Expected
from tests.unit.skipping.footers import changed, file_of
from tests.unit.skipping.keys import Keys
from tests.unit.skipping.stores import must_open
from tests.unit.skipping.whole_stores import open_store

NAN = math.nan
OLD, NEW = datetime.date(1582, 10, 10), datetime.date(2024, 2, 29)
OLD_DAY, NEW_DAY = ((day - datetime.date(1970, 1, 1)).days for day in (OLD, NEW))
LEGACY = {"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyDateTime": ""}
NOON = datetime.datetime(2024, 2, 29, 12)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """The keys of the policy."""
    return Keys(tmp_path_factory.mktemp("keys"))


def spark(metadata: Mapping[str, Any], kind: str = "string") -> dict[str, str]:
    """Return what Spark's footer says of column ``c``."""
    field = {"name": "c", "type": kind, "nullable": True, "metadata": dict(metadata)}
    return {SPARK_SCHEMA: json.dumps({"type": "struct", "fields": [field]})}


def plan(root: Path, keys: Keys, files: Mapping[str, bytes]) -> Any:
    """Write files, the last one last, and look at them."""
    for number, (name, content) in enumerate(files.items()):
        path = root / "data" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return plan_store(DataFolder(str(root / "data"), keys, lambda *_: None), Wanted({"c": ("minmax",)}))


def opened_files(root: Path, keys: Keys, files: Mapping[str, bytes], predicate: Predicate) -> str:
    """Return the names of the files that a query opens, by an index of ``c``."""
    folder = LocalFolder(root / "store")
    create_store(folder, plan(root, keys, files), StoreKeys(keys.keys.maker, "footer", {}))
    store = open_store(folder, keys, Expected(None, ("footer",), None))
    skipper = Skipper(store.store, store.sidecar.objects)
    stamps = {name: (root / "data" / name).stat() for name in files}
    listed = [
        Listed(str(root / "data" / name), stamp.st_mtime_ns // 1_000_000, stamp.st_size)
        for name, stamp in stamps.items()
    ]
    kept = must_open(skipper, listed, predicate)
    return "".join(name for name, keep in zip(files, kept, strict=True) if keep)


DOUBLES = {"a": file_of(pa.array([1.0, NAN])), "b": file_of(pa.array([1.0, 2.0])), "c": file_of(pa.array([7.0]))}
COUNTED = {"a": changed(file_of(pa.array([1.0])), nan_count=0), "b": file_of(pa.array([9.0]))}
ZEROS = {"a": file_of(pa.array([-0.0])), "b": file_of(pa.array([0.0])), "c": file_of(pa.array([5.0]))}
CUT = {
    "a": changed(file_of(pa.array(["a", "é"])), max_value=b"\xc3"),
    "b": changed(file_of(pa.array(["abcdef", "abczzz"])), min_value=b"abc", max_value=b"abd"),
    "c": file_of(pa.array(["x"])),
}
ADDED = {"a": file_of(pa.array([1]), name="other"), "b": file_of(pa.array([9])), "c": file_of(pa.array([5]))}
DECIMALS = {
    "a": file_of(pa.array([Decimal("-0.05"), Decimal("1.00")], pa.decimal128(9, 2))),
    "b": file_of(pa.array([Decimal("2.50")], pa.decimal128(9, 2)), store_decimal_as_integer=True),
    "c": file_of(pa.array([Decimal("-3.00")], pa.decimal128(9, 2)), store_decimal_as_integer=True),
}
WIDENED = {"a": file_of(pa.array([5], pa.int32())), "b": file_of(pa.array([2**40])), "c": file_of(pa.array([7]))}
DAYS = {
    "a": file_of(pa.array([OLD]), metadata={"writer": "other"}),
    "b": file_of(
        pa.array([OLD]), metadata={"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyDateTime": ""}
    ),
    "c": file_of(pa.array([OLD])),
    "d": file_of(pa.array([NEW]), metadata={"writer": "other"}),
}
NULLS = {"a": file_of(pa.nulls(2, pa.int64())), "b": file_of(pa.array([1, None])), "c": file_of(pa.array([1]))}
NO_COUNT = {"a": changed(file_of(pa.nulls(2, pa.int64())), null_count=None), "b": file_of(pa.array([1]))}


@pytest.mark.parametrize(
    ("files", "predicate", "opened"),
    [
        pytest.param(DOUBLES, Compare("c", ">", 5.0), "abc", id="a NaN is greater, and Arrow's bounds hide it"),
        pytest.param(DOUBLES, Compare("c", "=", NAN), "abc", id="a NaN equals NaN"),
        pytest.param(DOUBLES, Compare("c", "<", 1.0), "", id="a NaN is below nothing"),
        pytest.param(DOUBLES, Not(Compare("c", "<=", 2.0)), "abc", id="a NaN makes a negation true"),
        pytest.param(COUNTED, Compare("c", ">", 5.0), "b", id="where NaN are counted to be none, bounds bound"),
        pytest.param(ZEROS, Compare("c", "=", 0.0), "ab", id="-0.0 is 0.0"),
        pytest.param(ZEROS, Compare("c", "=", -0.0), "ab", id="0.0 is -0.0"),
        pytest.param(ZEROS, Compare("c", "<", 0.0), "", id="-0.0 is not below 0.0"),
        pytest.param(CUT, Compare("c", "=", "é"), "a", id="a bound cut inside a character is none"),
        pytest.param(CUT, StartsWith("c", "abcd"), "ab", id="cut bounds still bound"),
        pytest.param(CUT, In("c", ("zz",)), "a", id="what is above a cut bound is out"),
        pytest.param(ADDED, Compare("c", "=", 3), "a", id="a column that a file lacks may read as a default"),
        pytest.param(ADDED, Not(IsNull("c")), "abc", id="and need not be null"),
        pytest.param(DECIMALS, Compare("c", "<", Decimal("0")), "ac", id="decimals in bytes and in integers compare"),
        pytest.param(DECIMALS, Compare("c", "=", Decimal("2.5")), "b", id="by value, whatever their scale is"),
        pytest.param(WIDENED, Compare("c", "=", 6), "a", id="values of before a type was widened are not known"),
        pytest.param(WIDENED, Compare("c", "=", 2**40), "ab", id="while those of its own type are"),
        pytest.param(DAYS, Compare("c", "=", NEW_DAY), "abd", id="old days of an unknown calendar are not known"),
        pytest.param(DAYS, Compare("c", "<", OLD_DAY + 1), "abc", id="those of Spark's own calendar are"),
        pytest.param(NULLS, Not(IsNull("c")), "bc", id="a column of nulls is known by its count"),
        pytest.param(NULLS, Compare("c", "=", 1), "bc", id="and equals nothing"),
        pytest.param(NO_COUNT, Compare("c", "=", 1), "ab", id="without a count nothing is known"),
    ],
)
def test_a_trap_costs_no_row(
    tmp_path: Path, keys: Keys, files: Mapping[str, bytes], predicate: Predicate, opened: str
) -> None:
    """The files that a query opens are those that may have a row for it, and no more than what is known allows."""
    assert opened_files(tmp_path, keys, files, predicate) == opened


REFUSED = {
    "INT96": (file_of(pa.array([NOON]), use_deprecated_int96_timestamps=True), "it is INT96.*TIMESTAMP_MICROS"),
    "a collation": (file_of(pa.array(["a"]), metadata=spark({"__COLLATIONS": {"c": "icu.UNICODE_CI"}})), "a collation"),
    "CHAR": (file_of(pa.array(["a"]), metadata=spark({"__CHAR_VARCHAR_TYPE_STRING": "char(5)"})), "it is CHAR"),
    "a field id": (file_of(pa.array(["a"]), metadata=spark({"parquet.field.id": 3})), "found by a field id"),
    "unsigned": (file_of(pa.array([1], pa.uint32())), "not one that is compared"),
    "fixed length": (file_of(pa.array([b"abc"], pa.binary(3))), "not one that is compared"),
    "nanoseconds": (file_of(pa.array([1], pa.timestamp("ns"))), "not one that is compared"),
    "nested": (file_of(pa.array([[1]])), "nested or repeated"),
}


@pytest.mark.parametrize("trap", REFUSED)
def test_a_trap_is_refused_by_name(tmp_path: Path, keys: Keys, trap: str) -> None:
    """What Spark compares otherwise than a footer's bounds say is refused, in whichever file it is, before a write."""
    content, said = REFUSED[trap]
    with pytest.raises(ConfigError, match=f"column 'c': cannot be indexed, since .*{said}"):
        plan(tmp_path, keys, {"a": file_of(pa.array(["b"])), "b": content})

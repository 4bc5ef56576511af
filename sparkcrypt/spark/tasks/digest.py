"""Digests of all rows of a dataset, computed in Spark: equal rows give equal digests in any order and any files.

Every row is encoded canonically (nulls marked, lengths included, maps sorted) and hashed to 64 bits by two unrelated
functions; the digest is the number of rows and the two sums of hashes, as decimals.  It detects accidents: a changed,
swapped, lost or doubled value.  It does not protect against an attacker who constructs rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

Encoder = Callable[[Column], Column]


@dataclass(frozen=True, slots=True)
class RowsDigest:
    """The number of rows, and the two sums of hashes."""

    rows: int
    sum_xxhash64: int
    sum_md5: int

    def to_dict(self) -> dict[str, str | int]:
        """Return it as JSON values; the sums are strings, since they exceed the numbers of many JSON parsers."""
        return {"rows": self.rows, "sum_xxhash64": str(self.sum_xxhash64), "sum_md5": str(self.sum_md5)}


def digest_rows(frame: DataFrame) -> RowsDigest:
    """Compute the digest of all rows and columns of a data frame."""
    encoded = F.concat(F.lit("r"), *(_encoder(field.dataType)(_column(field.name)) for field in frame.schema.fields))
    wide = T.DecimalType(38, 0)
    hashed = frame.select(encoded.alias("row")).select(
        F.xxhash64("row").cast(wide).alias("first"),
        F.conv(F.substring(F.md5(F.col("row").cast("binary")), 1, 16), 16, 10).cast(wide).alias("second"),
    )
    found = hashed.agg(
        F.count(F.lit(1)).alias("rows"), F.sum("first").alias("first"), F.sum("second").alias("second")
    ).collect()[0]
    return RowsDigest(int(found["rows"]), int(found["first"] or 0), int(found["second"] or 0))


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _encoder(kind: T.DataType) -> Encoder:
    """Return a function that encodes values of a type as text that is never null and contains its own length."""
    if isinstance(kind, T.StructType):
        return _struct(kind)
    if isinstance(kind, T.ArrayType):
        element = _encoder(kind.elementType)
        return lambda value: _or_null(
            value, "a", F.size(value), _join_texts(F.transform(value, lambda entry: element(entry)))
        )
    if isinstance(kind, T.MapType):
        key, item = _encoder(kind.keyType), _encoder(kind.valueType)
        return lambda value: _or_null(
            value,
            "m",
            F.size(value),
            _join_texts(
                F.array_sort(
                    F.transform(F.map_entries(value), lambda entry: F.concat(key(entry["key"]), item(entry["value"])))
                )
            ),
        )
    text = _text(kind)
    return lambda value: _or_null(value, "v", F.length(text(value)), text(value))


def _struct(kind: T.StructType) -> Encoder:
    fields = [(field.name, _encoder(field.dataType)) for field in kind.fields]
    return lambda value: F.when(value.isNull(), F.lit("n")).otherwise(
        F.concat(F.lit(f"s{len(fields)}:"), *(encode(value.getField(name)) for name, encode in fields))
    )


def _or_null(value: Column, sign: str, size: Column, body: Column) -> Column:
    return F.when(value.isNull(), F.lit("n")).otherwise(F.concat(F.lit(sign), size.cast("string"), F.lit(":"), body))


def _join_texts(texts: Column) -> Column:
    return F.array_join(texts, "")


def _text(kind: T.DataType) -> Encoder:
    if isinstance(kind, T.BinaryType):
        return F.hex
    if isinstance(kind, T.TimestampType):
        return lambda value: F.unix_micros(value).cast(
            "string"
        )  # the text of a timestamp would depend on the time zone
    if kind.typeName() == "variant":
        return F.to_json
    if kind.typeName() in ("geometry", "geography"):
        return lambda value: F.concat(F.hex(F.st_asbinary(value)), F.lit(" "), F.st_srid(value).cast("string"))
    return lambda value: value.cast("string")

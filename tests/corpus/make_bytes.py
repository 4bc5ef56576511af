"""Puts files together byte by byte, for what no writer at hand writes, without a library of Parquet or this package.

``python -m tests.corpus.make_bytes FOLDER | python -m tests.corpus.manifest``.
"""

from __future__ import annotations

import io
import json
import struct
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc

FOLDER = Path(sys.argv[1])
PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, RLE_DICTIONARY = 0, 2, 3, 4, 8
INT32, INT64, BYTES, FIXED = 1, 2, 6, 7
REQUIRED, OPTIONAL, REPEATED = 0, 1, 2
UTF8, MAP_CONVERTED, LIST_CONVERTED, DECIMAL, INTERVAL = 0, 1, 3, 5, 21
NONE, SNAPPY, GZIP, LZO, BROTLI, LZ4, ZSTD = range(7)


def varint(number: int) -> bytes:
    """Encode a number in groups of seven bits."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def zigzag(number: int) -> bytes:
    """Encode a number with a sign."""
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


@dataclass(frozen=True)
class Byte:
    """A number of one byte."""

    value: int


@dataclass(frozen=True)
class Long:
    """A number of 64 bits."""

    value: int


def value_of(value: Any) -> tuple[int, bytes]:
    """Return the type of a value in Thrift's compact protocol, and its bytes."""
    if isinstance(value, bool):
        return (1 if value else 2), b""
    if isinstance(value, Byte):
        return 3, bytes([value.value & 0xFF])
    if isinstance(value, int):
        return 5, zigzag(value)
    if isinstance(value, Long):
        return 6, zigzag(value.value)
    if isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        return 8, varint(len(data)) + data
    if isinstance(value, dict):
        return 12, record(value)
    items = [value_of(item) for item in value]
    kind = items[0][0] if items else 12
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + varint(len(items))
    return 9, head + b"".join(data for _, data in items)


def record(fields: dict[int, Any]) -> bytes:
    """Encode a struct: field id -> value, those that are None left out."""
    out, last = b"", 0
    for number, value in sorted(fields.items()):
        if value is None:
            continue
        kind, data = value_of(value)
        out += bytes([number - last << 4 | kind]) if number - last < 16 else bytes([kind]) + zigzag(number)
        out += data
        last = number
    return out + b"\0"


@dataclass(frozen=True)
class Column:
    """One column: its leaf, and its pages as (header fields, body, uncompressed size)."""

    path: tuple[str, ...]
    physical: int
    values: int
    pages: Sequence[tuple[dict[int, Any], bytes]]
    codec: int = NONE
    uncompressed: int | None = None
    encodings: tuple[int, ...] = (PLAIN, RLE)
    statistics: dict[int, Any] | None = None
    more: dict[int, Any] = field(default_factory=dict)
    of_chunk: dict[int, Any] = field(default_factory=dict)
    names_dictionary: bool = True


def page_v1(values: int, body: bytes, encoding: int = PLAIN, *, raw: int | None = None, crc: int | None = None,
            levels: int = RLE, statistics: dict[int, Any] | None = None) -> tuple[dict[int, Any], bytes]:  # fmt: skip
    """Make a V1 data page, whose body stands as given."""
    inner = {1: values, 2: encoding, 3: levels, 4: levels, 5: statistics}
    return {1: 0, 2: len(body) if raw is None else raw, 3: len(body), 4: crc, 5: inner}, body


def page_v2(values: int, nulls: int, rows: int, levels: tuple[bytes, bytes], data: bytes, encoding: int = PLAIN,
            *, compressed: bool | None = None, raw: int | None = None) -> tuple[dict[int, Any], bytes]:  # fmt: skip
    """Make a V2 data page."""
    body = levels[0] + levels[1] + data
    inner = {1: values, 2: nulls, 3: rows, 4: encoding, 5: len(levels[1]), 6: len(levels[0]), 7: compressed}
    whole = len(levels[0]) + len(levels[1]) + (len(data) if raw is None else raw)
    return {1: 3, 2: whole, 3: len(body), 8: inner}, body


def page_of_dictionary(values: int, body: bytes, encoding: int = PLAIN) -> tuple[dict[int, Any], bytes]:
    """Make a dictionary page."""
    return {1: 2, 2: len(body), 3: len(body), 7: {1: values, 2: encoding}}, body


def leaf(
    name: str, physical: int, repetition: int = REQUIRED, converted: int | None = None, **more: Any
) -> dict[int, Any]:
    """Make a leaf of a schema."""
    return {1: physical, 2: more.get("length"), 3: repetition, 4: name, 6: converted, 7: more.get("scale"),
            8: more.get("precision"), 9: more.get("field_id"), 10: more.get("logical")}  # fmt: skip


def group(name: str, repetition: int | None, children: int, converted: int | None = None) -> dict[int, Any]:
    """Make a group of a schema."""
    return {3: repetition, 4: name, 5: children, 6: converted}


def parquet(schema: Sequence[dict[int, Any]], groups: Sequence[tuple[int, Sequence[Column]]], *, top: int | None = None,
            created_by: str | None = "hand", key_values: Sequence[tuple[str, str | None]] = (), version: int = 1,
            rows: int | None = None, of_footer: dict[int, Any] | None = None, before: bytes = b"") -> bytes:  # fmt: skip
    """Make a file."""
    out, made = bytearray(b"PAR1" + before), []
    for count, columns in groups:
        chunks = []
        for column in columns:
            start, first_data, dictionary = len(out), None, None
            for header, body in column.pages:
                if header[1] == 2 and column.names_dictionary:
                    dictionary = len(out)
                elif first_data is None:
                    first_data = len(out)
                out += record(header) + body
            size = len(out) - start
            raw = size + sum(header[2] - header[3] for header, _ in column.pages)
            metadata = {1: column.physical, 2: list(column.encodings), 3: list(column.path), 4: column.codec,
                        5: Long(column.values), 6: Long(raw), 7: Long(size),
                        9: Long(start if first_data is None else first_data),
                        11: None if dictionary is None else Long(dictionary), 12: column.statistics, **column.more}  # fmt: skip
            chunks.append({2: Long(start), 3: metadata, **column.of_chunk})
        made.append({1: chunks, 2: Long(sum(len(body) for c in columns for _, body in c.pages)), 3: Long(count)})
    root = group("schema", None, len(schema) if top is None else top)
    total = sum(count for count, _ in groups) if rows is None else rows
    pairs = [{1: key, 2: value} for key, value in key_values]
    footer = record(
        {1: version, 2: [root, *schema], 3: Long(total), 4: made, 5: pairs or None, 6: created_by, **(of_footer or {})}
    )
    return bytes(out) + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def plain_texts(*values: str) -> bytes:
    """Encode texts in PLAIN."""
    return b"".join(len(value.encode()).to_bytes(4, "little") + value.encode() for value in values)


def plain_longs(*values: int) -> bytes:
    """Encode integers of 64 bits in PLAIN."""
    return struct.pack(f"<{len(values)}q", *values)


def runs(levels: Sequence[int], *, sized: bool = True) -> bytes:
    """Encode levels of up to eight bits as one bit-packed run of width 1, with its length before it."""
    bits = sum(level << place for place, level in enumerate(levels))
    groups = -(-len(levels) // 8)
    data = varint(groups << 1 | 1) + bits.to_bytes(groups, "little")
    return (len(data).to_bytes(4, "little") if sized else b"") + data


IDS = Column(("id",), INT64, 3, [page_v1(3, plain_longs(1, 2, 3))])
ID = leaf("id", INT64)
WORD = leaf("v", BYTES, OPTIONAL, UTF8)
WORDS = Column(("v",), BYTES, 3, [page_v1(3, runs([1, 0, 1]) + plain_texts("first", "third"))])


def put(name: str, odd: str, content: bytes, ending: str = "parquet") -> None:
    """Write a file, and print its line for the manifest."""
    (FOLDER / f"bytes_{name}.{ending}").write_bytes(content)
    print(json.dumps({"file": f"bytes_{name}.{ending}", "writer": "by hand", "version": "", "odd": odd}))


def simple(word: Column = WORDS, **options: Any) -> bytes:
    """Make a file of ids and words."""
    return parquet([ID, WORD], [(3, [IDS, word])], **options)


def compressed(codec: int, data: bytes, name: str | None = None, frame: bool = False) -> Column:
    """Return the words in a page that is compressed."""
    packed = pa.Codec(name).compress(data, asbytes=True) if name else data
    if frame:
        packed = len(data).to_bytes(4, "big") + len(packed).to_bytes(4, "big") + packed
    return Column(("v",), BYTES, 3, [page_v1(3, packed, raw=len(data))], codec=codec)


def pages() -> None:
    """Pages in forms that are allowed and rare."""
    words = runs([1, 0, 1]) + plain_texts("first", "third")
    put("plain", "the least that a file has", simple())
    put("nothing_said", "no writer named", simple(created_by=None))
    packed = bytes([0b101 << 5])
    put(
        "bit_packed_levels",
        "levels as BIT_PACKED, deprecated",
        simple(
            replace(
                WORDS,
                pages=[page_v1(3, packed + plain_texts("first", "third"), levels=BIT_PACKED)],
                encodings=(PLAIN, BIT_PACKED),
            )
        ),
    )
    put(
        "plain_dictionary",
        "PLAIN_DICTIONARY, deprecated",
        simple(
            replace(
                WORDS,
                pages=[
                    page_of_dictionary(2, plain_texts("first", "third"), PLAIN_DICTIONARY),
                    page_v1(3, runs([1, 0, 1]) + b"\x01" + runs([0, 1], sized=False), PLAIN_DICTIONARY),
                ],
                encodings=(PLAIN_DICTIONARY, RLE),
            )
        ),
    )
    put(
        "dictionary_no_offset",
        "a dictionary page at the offset of data pages, as old writers tell it",
        simple(
            replace(
                WORDS,
                pages=[
                    page_of_dictionary(2, plain_texts("first", "third")),
                    page_v1(3, runs([1, 0, 1]) + b"\x01" + runs([0, 1], sized=False), RLE_DICTIONARY),
                ],
                names_dictionary=False,
            )
        ),
    )
    v2 = page_v2(3, 1, 3, (b"", runs([1, 0, 1], sized=False)), plain_texts("first", "third"), compressed=False)
    put("v2_uncompressed", "a V2 page, uncompressed", simple(replace(WORDS, pages=[v2])))
    put(
        "v2_flag_absent",
        "a V2 page that does not say whether it is compressed",
        simple(
            replace(WORDS, pages=[page_v2(3, 1, 3, (b"", runs([1, 0, 1], sized=False)), plain_texts("first", "third"))])
        ),
    )
    put(
        "v2_uncompressed_in_codec",
        "a V2 page left uncompressed in a chunk of Snappy",
        simple(replace(WORDS, pages=[v2], codec=SNAPPY)),
    )
    put(
        "v2_all_null",
        "a V2 page of nulls, without a byte of data",
        simple(
            replace(
                WORDS, pages=[page_v2(3, 3, 3, (b"", runs([0, 0, 0], sized=False)), b"", compressed=True)], codec=SNAPPY
            )
        ),
    )
    put(
        "v1_and_v2",
        "a V1 and a V2 page in one chunk",
        parquet(
            [ID, WORD],
            [
                (
                    6,
                    [
                        Column(("id",), INT64, 6, [page_v1(6, plain_longs(*range(6)))]),
                        Column(("v",), BYTES, 6, [page_v1(3, words), v2]),
                    ],
                )
            ],
        ),
    )
    put(
        "empty_page",
        "a page without values between others",
        parquet([ID, WORD], [(3, [IDS, Column(("v",), BYTES, 3, [page_v1(0, b""), page_v1(3, words)])])]),
    )
    put(
        "crc",
        "a page with a checksum, one without",
        simple(replace(WORDS, pages=[page_v1(3, words, crc=_signed(zlib.crc32(words)))])),
    )
    put("crc_wrong", "a page whose checksum is another", simple(replace(WORDS, pages=[page_v1(3, words, crc=7)])))
    put(
        "page_statistics",
        "statistics in a page's header",
        simple(replace(WORDS, pages=[page_v1(3, words, statistics={1: b"third", 2: b"first", 3: Long(1)})])),
    )
    put("gzip", "GZIP", simple(compressed(GZIP, words, "gzip")))
    put("lz4_hadoop", "LZ4 as Hadoop frames it", simple(compressed(LZ4, words, "lz4_raw", frame=True)))
    put(
        "lz4_raw_as_lz4",
        "LZ4 without Hadoop's frame, as old parquet-cpp wrote it",
        simple(compressed(LZ4, words, "lz4_raw")),
    )
    put("lzo", "LZO, which nobody reads", simple(compressed(LZO, words)))
    put("padded", "bytes between magic and pages", simple(before=b"padding" * 9))


def _signed(number: int) -> int:
    return number - (1 << 32) if number >> 31 else number


def footers() -> None:
    """Footers in forms that are allowed and rare, and some that are not."""
    old = {1: b"third", 2: b"first", 3: Long(1)}
    new = {3: Long(1), 4: Long(2), 5: b"third", 6: b"first", 7: True, 8: True}
    put("deprecated_bounds", "only deprecated bounds", simple(replace(WORDS, statistics=old)))
    put("both_bounds", "both kinds of bounds", simple(replace(WORDS, statistics={**old, **new})))
    put(
        "inexact_bounds",
        "bounds that are cut off",
        simple(replace(WORDS, statistics={5: b"tz", 6: b"f", 7: False, 8: False})),
    )
    put("empty_statistics", "statistics that say nothing", simple(replace(WORDS, statistics={})))
    put("column_order", "an order of columns", simple(of_footer={7: [{1: {}}, {1: {}}]}))
    put(
        "unknown_fields",
        "fields that no version of the format has",
        simple(
            replace(WORDS, more={90: "of a chunk", 91: {1: 5}}), of_footer={80: "of a footer", 81: [Long(1), Long(2)]}
        ),
    )
    put(
        "large_metadata",
        "60 kB of user metadata, values empty, absent and repeated",
        simple(
            key_values=[
                ("big", "x" * 60_000),
                ("empty", ""),
                ("absent", None),
                ("twice", "1"),
                ("twice", "2"),
                ("", "no key"),
            ]
        ),
    )
    whole = simple()
    other = parquet([ID, WORD], [(3, [replace(IDS, pages=[page_v1(3, plain_longs(7, 8, 9))]), WORDS])])
    put("two_footers", "a file after a file: the last footer counts", _joined(whole, other))
    put("bytes_after", "bytes after the end", whole + b"\0" * 10)
    put("truncated", "an end that is cut off", whole[:-20])
    put("zero_length", "no bytes at all", b"")
    put("four_bytes", "the magic alone", b"PAR1")
    put("footer_too_long", "a footer longer than the file", whole[:-8] + (10**6).to_bytes(4, "little") + b"PAR1")
    put("rows_not_those", "a count of rows that is not that of its row groups", simple(rows=5))
    put("no_row_groups", "no row groups", parquet([ID, WORD], []))
    put(
        "empty_row_group",
        "a row group without rows and pages",
        parquet(
            [ID, WORD], [(0, [replace(IDS, values=0, pages=[]), replace(WORDS, values=0, pages=[])]), (3, [IDS, WORDS])]
        ),
    )
    put("file_path", "a column chunk in another file", simple(replace(WORDS, of_chunk={1: "other.parquet"})))
    put("chunk_order", "column chunks in another order than the schema's", _swapped())
    put(
        "logical_only",
        "a logical type without the converted one",
        parquet([ID, leaf("v", BYTES, OPTIONAL, logical={1: {}})], [(3, [IDS, WORDS])]),
    )
    put(
        "unknown_logical",
        "a logical type that no version has",
        parquet([ID, leaf("v", BYTES, OPTIONAL, logical={99: {}})], [(3, [IDS, WORDS])]),
    )


def _joined(first: bytes, second: bytes) -> bytes:
    """Return a file whose beginning is another whole file, and whose offsets are counted over both."""
    columns = [replace(IDS, pages=[page_v1(3, plain_longs(7, 8, 9))]), WORDS]
    assert second.startswith(b"PAR1")
    return parquet([ID, WORD], [(3, columns)], before=first[4:])


def _swapped() -> bytes:
    return parquet([WORD, ID], [(3, [WORDS, IDS])])


def schemas() -> None:
    """Schemas of old writers."""
    three = replace(IDS, values=3)

    def listed(name: str, odd: str, elements: Sequence[dict[int, Any]], path: tuple[str, ...], top: int = 2) -> None:
        column = Column(path, BYTES, 3, [page_v1(3, runs([0, 1, 0]) + runs([1, 1, 1]) + plain_texts("a", "b", "c"))])
        ids = replace(IDS, values=2, pages=[page_v1(2, plain_longs(1, 2))])
        put(name, odd, parquet([ID, *elements], [(2, [ids, column])], top=top))

    listed("repeated", "a repeated leaf without LIST", [leaf("v", BYTES, REPEATED, UTF8)], ("v",))
    listed(
        "repeated_group",
        "a repeated group without LIST",
        [group("g", REPEATED, 1), leaf("v", BYTES, REQUIRED, UTF8)],
        ("g", "v"),
    )
    listed(
        "list_two_levels",
        "a list of two levels",
        [group("l", REQUIRED, 1, LIST_CONVERTED), leaf("array", BYTES, REPEATED, UTF8)],
        ("l", "array"),
    )
    listed(
        "list_tuple",
        "a list of two levels of parquet-thrift",
        [group("l", REQUIRED, 1, LIST_CONVERTED), leaf("l_tuple", BYTES, REPEATED, UTF8)],
        ("l", "l_tuple"),
    )
    listed(
        "list_array_group",
        "a list of structs called array",
        [group("l", REQUIRED, 1, LIST_CONVERTED), group("array", REPEATED, 1), leaf("v", BYTES, REQUIRED, UTF8)],
        ("l", "array", "v"),
    )
    listed(
        "list_bag",
        "a list whose group is called bag",
        [
            group("l", REQUIRED, 1, LIST_CONVERTED),
            group("bag", REPEATED, 1),
            leaf("array_element", BYTES, REQUIRED, UTF8),
        ],
        ("l", "bag", "array_element"),
    )
    listed(
        "group_required",
        "a group that is required",
        [group("l", REQUIRED, 1), leaf("v", BYTES, REPEATED, UTF8)],
        ("l", "v"),
    )
    for name, odd, kind, body in (
        ("interval", "INTERVAL", leaf("v", FIXED, REQUIRED, INTERVAL, length=12), bytes(range(12)) * 3),
        ("decimal_legacy", "a decimal in fixed bytes of any length", leaf("v", FIXED, REQUIRED, DECIMAL, length=7, precision=9, scale=2), b"\0\0\0\0\0\1\2" * 3),
        ("fixed_one", "fixed bytes of length one", leaf("v", FIXED, REQUIRED, length=1), b"abc"),
    ):  # fmt: skip
        put(name, odd, parquet([ID, kind], [(3, [three, Column(("v",), FIXED, 3, [page_v1(3, body)])])]))
    put("empty_group", "a group without fields", parquet([ID, group("g", OPTIONAL, 0)], [(3, [IDS])]))


def orc() -> None:
    """Files that only look like ORC."""
    put("zero_length", "no bytes at all", b"", "orc")
    put("magic_alone", "the magic alone", b"ORC", "orc")
    out = io.BytesIO()
    pa.orc.write_table(pa.table({"id": [1, 2, None], "s": ["a", "b", None]}), out, compression="zlib")
    whole = out.getvalue()
    put("truncated", "an end that is cut off", whole[:-30], "orc")
    put("bytes_after", "bytes after the end", whole + b"\0\0", "orc")
    put("flipped", "a changed byte of its metadata", _flip(whole), "orc")


def _flip(content: bytes) -> bytes:
    place = len(content) - 40
    return content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :]


if __name__ == "__main__":
    for make in (pages, footers, schemas, orc):
        make()

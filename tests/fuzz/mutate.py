"""Ways to damage bytes and Thrift structs."""

from __future__ import annotations

import random
from collections.abc import Iterator, MutableMapping, MutableSequence
from typing import Any

from sparkcrypt.files.parquet.thrift.compact import List, Map, Struct, Value
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, ColumnMetaData, FileMetaData, RowGroup, SchemaElement

LONG_VARINT = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
PIECES = (
    b"\xff\xff\xff\xff\x0f",
    LONG_VARINT,
    b"\x80" * 30,
    b"\x19\xfc",
    b"\x1c" * 80,
    b"\x19" * 80,
    b"\x00",
    b"\xff" * 8,
)


def mutate_bytes(data: bytes, chance: random.Random, other: bytes) -> bytes:
    """Return bytes with one to four damages; ``other`` is what may be spliced in."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        _damage(changed or bytearray(1), chance, other)
    return bytes(changed)


def _damage(data: bytearray, chance: random.Random, other: bytes) -> None:
    at, size = chance.randrange(len(data)), chance.choice([1, 4, 20, 300])
    match chance.choice([0, 1, 2, 4, 5, 6, 7, 8]):
        case 0:
            data[at] ^= 1 << chance.randrange(8)
        case 1:
            data[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        case 2:
            del data[at : at + chance.randint(1, size)]
        case 4:
            piece = chance.choice(PIECES)
            data[at : at + len(piece)] = piece
        case 5:
            data[at:at] = chance.choice([*PIECES, chance.randbytes(size)])
        case 6:
            start = chance.randrange(len(data))
            data[at : at + size] = data[start : start + size]
        case 7:
            start = chance.randrange(len(other))
            data[at : at + size] = other[start : start + size]
        case _:
            value = chance.choice([0, 1, -1, 2**31 - 1, -(2**31), len(data), at])
            data[at : at + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")


Slot = tuple[MutableMapping[int, Any] | MutableSequence[Any], int, int]
_BITS = {3: 8, 4: 16, 5: 32, 6: 64}


def mutate_struct(struct: Struct, chance: random.Random, size: int) -> None:
    """Damage one to three values somewhere in a struct, whose file has ``size`` bytes."""
    for _ in range(chance.randint(1, 3)):
        slots = list(_slots(struct))
        if slots:
            _replace(*chance.choice(slots), chance, size, slots)


def _replace(holder: Any, key: int, kind: int, chance: random.Random, size: int, slots: list[Slot]) -> None:
    value = holder[key]
    if chance.random() < 0.15:
        del holder[key]
    elif kind in _BITS:
        holder[key] = _number(value, _BITS[kind], chance, size, slots)
    elif isinstance(value, bool):
        holder[key] = not value
    elif isinstance(value, bytes) and kind == 8:
        cut = chance.randrange(len(value) + 1)
        holder[key] = chance.choice([b"", value[:cut], value + b"\xff", value[:cut] + b"\xff" + value[cut + 1 :]])
    elif isinstance(value, List) and value:
        _damage_list(holder, key, value, chance)
    elif isinstance(value, Struct) and value:
        del value[chance.choice(list(value))]


def _damage_list(holder: Any, key: int, value: List, chance: random.Random) -> None:
    at = chance.randrange(len(value))
    match chance.randrange(4):
        case 0:
            del value[at]
        case 1:
            value.insert(at, value[at])
        case 2:
            value.reverse()
        case _:
            holder[key] = _of_another_type(value, chance)


_SAMPLES: dict[int, Value] = {
    1: True,
    3: 1,
    4: 2,
    5: 3,
    6: 1 << 40,
    7: bytes(8),
    8: b"text",
    9: List(5, [1]),
    12: Struct({0x18: b"x"}),
}


def _of_another_type(values: List, chance: random.Random) -> List:
    element = chance.choice(list(_SAMPLES))
    return List(element, [_SAMPLES[element]] * len(values))


def mutate_shape(footer: Struct, chance: random.Random) -> None:
    """Nest or multiply schema elements, multiply row groups, or let chunks claim what others claim."""
    for _ in range(chance.randint(1, 2)):
        chance.choice([_nest, _multiply_leaf, _multiply_row_group, _alias, _alias])(footer, chance)


def _lists(footer: Struct) -> tuple[list[Any], list[Any]]:
    """Return schema elements and row groups."""
    schema, groups = footer.get(FileMetaData.schema.key), footer.get(FileMetaData.row_groups.key)
    return schema if isinstance(schema, List) else [], groups if isinstance(groups, List) else []


def _nest(footer: Struct, chance: random.Random) -> None:
    """Put groups with names of any length around an element."""
    schema, _ = _lists(footer)
    if len(schema) > 1:
        name = chance.choice([b"", b"g", b"g" * 200, b"g" * 20_000])
        group = Struct(
            {SchemaElement.repetition_type.key: 0, SchemaElement.name.key: name, SchemaElement.num_children.key: 1}
        )
        at = chance.randrange(1, len(schema))
        schema[at:at] = [Struct(group) for _ in range(chance.choice([1, 3, 60, 255, 300]))]


def _multiply_leaf(footer: Struct, chance: random.Random) -> None:
    """Repeat the last element, which is a leaf, in the root, and its chunk in each row group."""
    schema, groups = _lists(footer)
    times = chance.choice([1, 10, 60])
    count = schema[0].get(SchemaElement.num_children.key) if schema else None
    if len(schema) > 1 and isinstance(count, int):
        schema.extend(schema[-1:] * times)
        schema[0][SchemaElement.num_children.key] = min(count + times, 2**31 - 1)
        for columns in (group.get(RowGroup.columns.key) for group in groups):
            if isinstance(columns, List) and chance.random() < 0.9:
                columns.extend(columns[-1:] * times)


def _multiply_row_group(footer: Struct, chance: random.Random) -> None:
    """Repeat a row group, which then claims the same bytes."""
    _, groups = _lists(footer)
    if groups:
        group, times = chance.choice(groups), chance.choice([1, 10, 20])
        if chance.random() < 0.8:
            group.pop(RowGroup.ordinal.key, None)
        groups.extend([group] * times)
        rows, more = footer.get(FileMetaData.num_rows.key), group.get(RowGroup.num_rows.key)
        if isinstance(rows, int) and isinstance(more, int):
            footer[FileMetaData.num_rows.key] = max(-(2**63), min(2**63 - 1, rows + times * more))


_PLACES = (
    ColumnMetaData.data_page_offset.key,
    ColumnMetaData.dictionary_page_offset.key,
    ColumnMetaData.total_compressed_size.key,
    ColumnMetaData.num_values.key,
    ColumnMetaData.bloom_filter_offset.key,
)
_INDEXES = (
    ColumnChunk.column_index_offset.key,
    ColumnChunk.column_index_length.key,
    ColumnChunk.offset_index_offset.key,
    ColumnChunk.offset_index_length.key,
)


def _alias(footer: Struct, chance: random.Random) -> None:
    """Give some or all chunks the pages, indexes or Bloom filter of one, or all of these."""
    _, groups = _lists(footer)
    lists = [group.get(RowGroup.columns.key) for group in groups]
    chunks = [chunk for columns in lists if isinstance(columns, List) for chunk in columns if isinstance(chunk, Struct)]
    if not chunks:
        return
    first, share = chance.choice(chunks), chance.choice([0.1, 1.0])
    keys = chance.choice([_PLACES, _INDEXES, _PLACES[-1:], _PLACES[:3], (*_PLACES, *_INDEXES)])
    for chunk in chunks:
        if chance.random() < share:
            _take_over(first, chunk, keys)
            clear, other = (struct.get(ColumnChunk.meta_data.key) for struct in (first, chunk))
            if isinstance(clear, Struct) and isinstance(other, Struct):
                _take_over(clear, other, keys)


def _take_over(first: Struct, other: Struct, keys: tuple[int, ...]) -> None:
    for key in keys:
        if key in first:
            other[key] = first[key]


def _number(value: int, bits: int, chance: random.Random, size: int, slots: list[Slot]) -> int:
    limit = 1 << bits - 1
    others = [number for holder, key, kind in slots if kind == 6 and isinstance(number := holder[key], int)]
    near = [value - 1, value + 1, value * 2, -value, value + chance.randint(-100, 100)]
    ends = [0, 1, -1, limit - 1, -limit, size, size - 8, size // 2, 4, chance.choice(others or [0])]
    found = chance.choice([*near, *ends])
    return max(-limit, min(limit - 1, found))


def _slots(value: Any) -> Iterator[Slot]:
    """Yield every place of a value inside a struct: its holder, key or index, and Thrift type."""
    if isinstance(value, Struct):
        for key, inner in value.items():
            yield value, key, key & 15
            yield from _slots(inner)
    elif isinstance(value, List) and not isinstance(value, Map):
        for index, inner in enumerate(value):
            yield value, index, value.element
            yield from _slots(inner)

"""Ways to damage bytes and Thrift structs."""

from __future__ import annotations

import random
from collections.abc import Iterator, MutableMapping, MutableSequence
from typing import Any

from sparkcrypt.parquet.thrift import List, Map, Struct

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
        at = chance.randrange(len(value))
        match chance.randrange(3):
            case 0:
                del value[at]
            case 1:
                value.insert(at, value[at])
            case _:
                value.reverse()
    elif isinstance(value, Struct) and value:
        del value[chance.choice(list(value))]


def _number(value: int, bits: int, chance: random.Random, size: int, slots: list[Slot]) -> int:
    limit = 1 << bits - 1
    others = [holder[key] for holder, key, kind in slots if kind == 6 and isinstance(holder[key], int)]
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

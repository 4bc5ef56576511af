"""The corpus, and seeded cases that are made of it.

The same seed and number give the same bytes everywhere, but for the nonces of footers that are encrypted again.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from sparkcrypt.files.parquet import KeyRequest, read_footer
from sparkcrypt.files.parquet.file.modules import ModuleCipher, ModuleType, module_aad
from sparkcrypt.files.parquet.thrift.compact import Struct, decode_struct, encode_struct
from tests.fuzz.mutate import mutate_bytes, mutate_shape, mutate_struct

CORPUS = Path(__file__).parent / "corpus"
KEYS = CORPUS / "keys.json"


@dataclass(frozen=True)
class Original:
    """A file of the corpus, what opens it, and its footer in clear."""

    name: str
    data: bytes = field(repr=False)
    keys: dict[str, bytes] = field(repr=False)

    def retrieve_key(self, request: KeyRequest) -> bytes:
        """Return the data key, or a wrong one for key metadata that was altered."""
        return self.keys.get(hashlib.sha256(request.key_metadata or b"").hexdigest(), bytes(16))


@dataclass(frozen=True)
class Case:
    """Bytes to be read, and how they came to be."""

    original: Original
    seed: int
    number: int
    how: str
    data: bytes = field(repr=False)


@cache
def corpus() -> tuple[Original, ...]:
    """Return the files of the corpus in the order of their names."""
    keys = json.loads(KEYS.read_text())
    return tuple(
        Original(path.name, path.read_bytes(), {k: bytes.fromhex(v) for k, v in keys.get(path.name, {}).items()})
        for path in sorted(CORPUS.glob("*.parquet"))
    )


def make_case(seed: int, number: int) -> Case:
    """Return a case; every file and every way has its turn."""
    chance = random.Random(f"{seed} {number}")
    originals = corpus()
    original = originals[number % len(originals)]
    name, way = WAYS[number // len(originals) % len(WAYS)]
    return Case(original, seed, number, name, way(original, chance))


def _anywhere(original: Original, chance: random.Random) -> bytes:
    other = chance.choice(corpus()).data
    return mutate_bytes(original.data, chance, other)


def _tail(original: Original, chance: random.Random) -> bytes:
    """Change the footer's bytes and say its new length."""
    start, end = _footer_range(original.data)
    footer = mutate_bytes(original.data[start:end], chance, chance.choice(corpus()).data)
    return original.data[:start] + footer + len(footer).to_bytes(4, "little") + original.data[-4:]


def _trailer(original: Original, chance: random.Random) -> bytes:
    """Cut the file, or lie about the footer's length or the magic."""
    data = original.data
    match chance.randrange(3):
        case 0:
            return data[: chance.randrange(len(data))]
        case 1:
            length = chance.choice([0, 1, len(data) - 12, len(data), 2**31 - 1, 2**32 - 1, chance.randrange(len(data))])
            return data[:-8] + length.to_bytes(4, "little") + data[-4:]
        case _:
            magic = chance.choice([b"PAR1", b"PARE"])
            return (magic if chance.random() < 0.5 else data[:4]) + data[4:-4] + magic


def _footer_fields(original: Original, chance: random.Random) -> bytes:
    """Change values of the footer's struct, and encrypt or sign it again, so that the change is reached."""
    return _with_footer(original, lambda footer: mutate_struct(footer, chance, len(original.data)))


def _footer_shape(original: Original, chance: random.Random) -> bytes:
    """Change how many elements, row groups and chunks there are, and what chunks claim; sometimes values too."""

    def change(footer: Struct) -> None:
        mutate_shape(footer, chance)
        if chance.random() < 0.3:
            mutate_struct(footer, chance, len(original.data))

    return _with_footer(original, change)


def _pages_too(original: Original, chance: random.Random) -> bytes:
    """Change values of the footer's struct and bytes before it."""
    changed = _with_footer(original, lambda footer: mutate_struct(footer, chance, len(original.data)))
    start = _footer_range(changed)[0]
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(4, start)
        changed = changed[:at] + bytes((chance.randrange(256),)) + changed[at + 1 :]
    return changed


def _header(original: Original, chance: random.Random) -> bytes:
    """Overwrite what looks like the beginning of a page header or a frame's length."""
    data = bytearray(original.data)
    start = _footer_range(original.data)[0]
    for _ in range(chance.randint(1, 3)):
        marks = [at for at in range(4, min(start, 20_000)) if data[at] == 0x15] or [4]
        at = chance.choice(marks)
        piece = chance.choice([b"\x15\x04", b"\x15\x02", b"\x15\xfe\xff\xff\xff\x0f", b"\x15\x01", b"\xff\xff\xff\x7f"])
        data[at : at + len(piece)] = piece
    return bytes(data)


def _footer_range(data: bytes) -> tuple[int, int]:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data) - 8


def _with_footer(original: Original, change: Callable[[Struct], None]) -> bytes:
    data = original.data
    footer = read_footer(data, retrieve_key=original.retrieve_key if original.keys else None)
    assert footer.metadata is not None
    change(footer.metadata.struct)
    wire = encode_struct(footer.metadata.struct)
    if footer.mode != "plaintext":
        assert footer.file_aad is not None
        cipher = ModuleCipher(original.retrieve_key(KeyRequest("", None, footer.footer_key_metadata)))
        aad = module_aad(footer.file_aad, ModuleType.FOOTER)
        if footer.mode == "encrypted":
            start, end = _footer_range(data)
            crypto_end = decode_struct(data[start:end])[1]
            wire = data[start : start + crypto_end] + cipher.encrypt(wire, aad)
        else:
            wire += cipher.sign(wire, aad)
    return data[: footer.offset] + wire + len(wire).to_bytes(4, "little") + data[-4:]


WAYS: tuple[tuple[str, Callable[[Original, random.Random], bytes]], ...] = (
    ("bytes anywhere", _anywhere),
    ("bytes of the footer", _tail),
    ("trailer", _trailer),
    ("fields of the footer", _footer_fields),
    ("shape of the footer", _footer_shape),
    ("fields of the footer and bytes of pages", _pages_too),
    ("page headers", _header),
)

"""Damaged ORC files: seeded cases that are made of the corpus, and the ways of reading them.

The same seed and number give the same bytes everywhere.
"""

from __future__ import annotations

import random
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sparkcrypt.errors import ConfigError, FormatError, SparkcryptError, UnsupportedFileError, VerificationError
from sparkcrypt.files.footers import FooterFacts, pack
from sparkcrypt.files.format import read_orc_footer
from sparkcrypt.files.orc import OrcEncryption, inspect_orc, read_tail, rewrap_orc, rewrite_orc, verify_orc
from sparkcrypt.files.orc.file.encryption import LocalKeys
from sparkcrypt.files.orc.file.protobuf import Field, Message, decode
from sparkcrypt.files.orc.file.stripe import read_stripe_footer
from sparkcrypt.files.orc.file.tail import STRIPE_FOOTER, STRIPES, Tail, tail_of
from sparkcrypt.files.orc.read.rows import RowsOrder, read_rows
from sparkcrypt.files.orc.read.stripe_streams import ReadColumn, find_columns, read_type
from sparkcrypt.files.parquet import KeyRequest, KnownColumns
from sparkcrypt.files.source import naming, open_source
from tests.fuzz.attempt import DEADLINE_SECONDS, FLOOR_BYTES, MEASURED_TIMES, deadline
from tests.fuzz.mutate import mutate_bytes
from tests.unit.orc.corpus import NAMES, file, retrieve_key
from tests.unit.orc.rewriting import OrcKeys, patched

MOST_GROWTH = 20_000_000
"""How many bytes a target may have more than thrice its source's: masks of as many rows as somebody wrote down."""
EXTREMES = (0, 1, 2, 127, 128, 1 << 31, (1 << 32) - 1, 1 << 62, (1 << 63) - 1, (1 << 64) - 1)


@dataclass(frozen=True)
class OrcCase:
    """Bytes to be read, and how they came to be."""

    name: str
    seed: int
    number: int
    how: str
    data: bytes = field(repr=False)


@cache
def original(name: str) -> bytes:
    """Return a file of the corpus."""
    return file(name).read_bytes()


def make_case(seed: int, number: int) -> OrcCase:
    """Return a case; every file and every way has its turn."""
    chance = random.Random(f"orc {seed} {number}")
    name = NAMES[number % len(NAMES)]
    how, way = DAMAGES[number // len(NAMES) % len(DAMAGES)]
    return OrcCase(name, seed, number, how, way(original(name), chance))


def mutate_message(message: Message, chance: random.Random, depth: int = 0) -> Message:
    """Return a message with one damage, in it or in a message inside it."""
    fields: list[Field] = list(message.fields)
    if not fields:
        return Message(message.name, [(chance.choice((8, 16, 24)), chance.choice(EXTREMES))])
    at = chance.randrange(len(fields))
    key, value = fields[at]
    inner = _inner(value) if depth < 5 and chance.random() < 0.8 else None
    match chance.randrange(6):
        case _ if inner is not None:
            fields[at] = (key, mutate_message(inner, chance, depth + 1).encode())
        case 0:
            del fields[at]
        case 1:
            fields.insert(chance.randrange(len(fields)), fields[at])
        case 2:
            fields[at] = (chance.choice((8, 16, 24, 32, 64, 80)), chance.choice(EXTREMES))
        case 3 if isinstance(value, bytes):
            fields[at] = (key, mutate_bytes(value or b"a", chance, b"other"))
        case 4:
            other = chance.randrange(len(fields))
            fields[at], fields[other] = fields[other], fields[at]
        case _ if isinstance(value, int):
            near = (max(0, value + chance.choice((-1, 1, 7))), chance.choice(EXTREMES))
            fields[at] = (key, chance.choice(near) & EXTREMES[-1])
        case _:
            fields += fields[at : at + 1] * chance.choice((1, 300))
    return Message(message.name, fields)


def _inner(value: int | bytes) -> Message | None:
    if not isinstance(value, bytes) or not value:
        return None
    try:
        return decode(value, "inside")
    except FormatError:
        return None


def _anywhere(data: bytes, chance: random.Random) -> bytes:
    return mutate_bytes(data, chance, original(chance.choice(NAMES)))


def _cut(data: bytes, chance: random.Random) -> bytes:
    return (
        data[: chance.randrange(len(data))] if chance.random() < 0.5 else data[:3] + data[chance.randrange(len(data)) :]
    )


def _footer(data: bytes, chance: random.Random) -> bytes:
    """Change fields of the footer, its stripes, types, keys and variants, at any depth."""
    tail = read_tail(data)
    footer = tail.footer
    for _ in range(chance.randint(1, 3)):
        footer = mutate_message(footer, chance)
    return patched(tail, data, footer)


def _postscript(data: bytes, chance: random.Random) -> bytes:
    tail = read_tail(data)
    raw = mutate_message(tail.postscript, chance).encode()
    return data[: -1 - data[-1]] + raw + bytes((len(raw) & 255,))


def _tail_bytes(data: bytes, chance: random.Random) -> bytes:
    """Change bytes of metadata and statistics, where the footer leads to them."""
    tail = read_tail(data)
    end = tail.footer_offset
    return data[: tail.statistics_offset] + _same_length(data[tail.statistics_offset : end], chance) + data[end:]


def _stripe_footer(data: bytes, chance: random.Random) -> bytes:
    """Change fields of the last stripe's footer, and say its new length in the file's."""
    tail = read_tail(data)
    stripe = tail.stripes[-1]
    what = "a stripe's footer"
    found = decode(tail.compression.inflate(data[stripe.footer_offset : stripe.end], what), what)
    raw = tail.compression.deflate(mutate_message(found, chance).encode())
    entries = tail.footer.messages(STRIPES, "a stripe")
    entries[-1] = entries[-1].replace_field(STRIPE_FOOTER, [len(raw)])
    footer = tail.footer.replace_field(STRIPES, [entry.encode() for entry in entries])
    moved = data[: stripe.footer_offset] + raw + data[stripe.end : tail.footer_offset]
    content = tail.compression.deflate(footer.encode())
    postscript = tail.postscript.replace_field(1, [len(content)]).encode()
    return moved + content + postscript + bytes((len(postscript),))


def _streams(data: bytes, chance: random.Random) -> bytes:
    """Change bytes of streams, whose places stay."""
    end = read_tail(data).statistics_offset
    return data[:3] + _same_length(data[3:end], chance) + data[end:]


def _same_length(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 6) if changed else 0):
        at = chance.randrange(len(changed))
        changed[at] = chance.choice((0, 255, changed[at] ^ 1 << chance.randrange(8)))
    return bytes(changed)


DAMAGES: tuple[tuple[str, Callable[[bytes, random.Random], bytes]], ...] = (
    ("bytes anywhere", _anywhere),
    ("cut", _cut),
    ("fields of the footer", _footer),
    ("fields of the postscript", _postscript),
    ("bytes of statistics", _tail_bytes),
    ("fields of a stripe's footer", _stripe_footer),
    ("bytes of streams", _streams),
)


def _stripes(data: bytes) -> None:
    tail = read_tail(data)
    assert decode(tail.footer.encode(), "the footer", max_fields=1 << 30) == tail.footer
    with open_source(data) as opened, naming(opened.name):
        for stripe in tail.stripes:
            read_stripe_footer(opened, tail, stripe)


def _inspect(data: bytes) -> None:
    inspect_orc(data).to_dict()


def _summarise(data: bytes) -> None:
    summary, codec = read_orc_footer("f", data, None)
    pack({"f": FooterFacts(summary, {codec: 1})})


def _verify(data: bytes) -> None:
    verify_orc(data, retrieve_key=retrieve_key).to_dict()


def _rows(data: bytes) -> None:
    """Read all rows, and those of a filter, of the columns that can be decoded."""
    with open_source(data) as opened, naming(opened.name):
        tail = tail_of(opened)
        order = RowsOrder(list(_decoded(tail)))
        keys = LocalKeys(opened.name, retrieve_key)
        for batch in read_rows(opened, tail, keys, order):
            batch.validate(full=True)
        for column in order.columns[:3]:
            condition = pc.field(column.path[0]).is_null()
            if pa.types.is_integer(column.type):
                condition = condition | (pc.field(column.path[0]) == pa.scalar(77, column.type))
            for _ in read_rows(opened, tail, keys, replace(order, condition=condition, counted={column.number})):
                pass


def _decoded(tail: Tail) -> Iterator[ReadColumn]:
    """Yield the columns that can be decoded; maps of the Java writer here have null keys."""
    for column in find_columns(tail):
        try:
            found = read_type(tail, column)
        except UnsupportedFileError:
            continue
        if found.kind != "map":
            yield found


def _roots(data: bytes) -> list[tuple[str, ...]]:
    """Return every other column of the first level."""
    columns = read_tail(data).columns
    return [columns[number].path for number in columns[0].children if number % 2]


def _rewrite(data: bytes) -> None:
    """Encrypt, or decrypt; what verified before must then verify with equal digests, and nothing else be there."""
    keys, roots = OrcKeys(), _roots(data)
    encrypts = bool(roots) and len(data) % 2 == 0
    encryption = OrcEncryption({path: keys.key() for path in roots}) if encrypts else None
    with tempfile.TemporaryDirectory(prefix="sparkcrypt-fuzz-") as folder:
        target = Path(folder) / "out"
        try:
            result = rewrite_orc(data, target, retrieve_key=keys, encryption=encryption)
        finally:
            names = [path.name for path in Path(folder).iterdir()]
            assert names in ([], ["out"]), names
        assert target.stat().st_size < MOST_GROWTH + 3 * len(data)
        _hold_equal(data, target, keys, roots if encrypts else [], dropped=bool(result.left_out))


def _rewrap(data: bytes) -> None:
    keys = OrcKeys()

    def wrap(_: KeyRequest, key: bytes) -> tuple[bytes, str]:
        made = keys.key(master="other")
        keys.made[made.wrapped] = key
        return made.wrapped, "other"

    with tempfile.TemporaryDirectory(prefix="sparkcrypt-fuzz-") as folder:
        try:
            rewrap_orc(data, Path(folder) / "out", retrieve_key=keys, wrap_key=wrap)
        except ConfigError as error:
            raise FormatError(f"<bytes>: expected an encrypted file: {error}") from error
        _hold_equal(data, Path(folder) / "out", keys, None)


def _dark(data: bytes) -> None:
    """Carry the columns under one master key as if it were gone, or purge them; what verified before must be proven."""
    keys, columns = OrcKeys(), inspect_orc(data).columns
    named = sorted({column.key_id for column in columns.values() if column.key_id is not None})
    if not named:
        raise FormatError("<bytes>: expected an encrypted file")
    gone = [path for path, column in columns.items() if column.key_id == named[0]]
    dark, purge = (gone, []) if len(data) % 2 else ([], gone)
    with tempfile.TemporaryDirectory(prefix="sparkcrypt-fuzz-") as folder:
        target = Path(folder) / "out"
        result = rewrite_orc(data, target, retrieve_key=keys, dark=dark, purge=purge)
        assert target.stat().st_size < MOST_GROWTH + 3 * len(data)
        try:
            before = verify_orc(data, retrieve_key=keys, known=KnownColumns(will_encrypt=(), dark=dark, purged=purge))
        except SparkcryptError:
            return
        equal = {part: digest for part, digest in before.digests.items() if part != "user_metadata"}
        try:
            verify_orc(
                target,
                retrieve_key=keys,
                equal_to=before.digests if not result.left_out else equal,
                known=KnownColumns(dark=dark),
            )
        except SparkcryptError as error:
            raise AssertionError(f"what was written of a good file is not good: {error}") from error
        verify_orc(
            target, retrieve_key=keys, known=KnownColumns(nulls=purge, dark=dark)
        )  # masks that are damaged may be no nulls


def _hold_equal(
    data: bytes, target: Path, keys: OrcKeys, roots: list[tuple[str, ...]] | None, *, dropped: bool = False
) -> None:
    """See that a target says what its source says, where that verifies at all."""
    try:
        digests = dict(verify_orc(data, retrieve_key=keys, known=KnownColumns(will_encrypt=roots)).digests)
    except SparkcryptError:
        return
    if dropped:
        del digests["user_metadata"]
    try:
        verify_orc(target, retrieve_key=keys, equal_to=digests)
    except SparkcryptError as error:
        raise AssertionError(f"what was written of a good file is not good: {error}") from error


READS: dict[str, Callable[[bytes], None]] = {
    "inspect": _inspect,
    "summarise": _summarise,
    "stripes": _stripes,
    "verify": _verify,
    "rewrite": _rewrite,
    "rewrap": _rewrap,
    "dark": _dark,
    "rows": _rows,
}


def attempt(case: OrcCase, *, measured: bool = False) -> dict[str, str]:
    """Read a case; return per way of reading ``read``, or the class of the error of this package's tree.

    Args:
        case: what is read.
        measured: whether what each way holds is bounded too; that takes several times as long.

    Raises:
        AssertionError: an error does not say what was expected, a deadline passed, or too much memory was held.
        Exception: whatever else a way of reading raised, which is a failure.
    """
    return {name: _measured(way, case) if measured else _outcome(way, case, 1) for name, way in READS.items()}


def _measured(way: Callable[[bytes], None], case: OrcCase) -> str:
    tracemalloc.start()
    try:
        outcome = _outcome(way, case, MEASURED_TIMES)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < max(FLOOR_BYTES, 2 * len(case.data)), f"{peak} bytes held of a file of {len(case.data)}"
    return outcome


def _outcome(way: Callable[[bytes], None], case: OrcCase, times: int) -> str:
    with deadline(times * DEADLINE_SECONDS):
        try:
            way(case.data)
        except SparkcryptError as error:
            text = str(error)
            assert isinstance(error, (FormatError, VerificationError)) and "<bytes>: " in text, repr(error)
            assert "expected" in text or type(error) in (UnsupportedFileError, VerificationError), text
            return type(error).__name__
    return "read"

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.parquet import message_type, read_footer, verify_file
from tests.unit.parquet.writers import Keys, table, write_encrypted

CASES = 1200
KINDS = ("plain", "signed", "encrypted")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One file of each footer mode."""
    folder = tmp_path_factory.mktemp("hostile")
    pq.write_table(table(), folder / "plain")
    write_encrypted(folder / "signed", plaintext_footer=True, row_group_size=300)
    write_encrypted(folder / "encrypted", row_group_size=300)
    return {kind: (folder / kind).read_bytes() for kind in KINDS}


def tail_start(data: bytes | bytearray) -> int:
    """Return where the footer begins."""
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def attempt(data: bytes) -> bool:
    """Read a footer without a key; return whether it was refused.  Anything but a FormatError is a failure."""
    try:
        footer = read_footer(data)
        if footer.metadata is not None:
            message_type(footer.metadata)
    except FormatError as error:
        assert str(error).startswith("<bytes>: ") and "expected" in str(error), str(error)
        return True
    return False


def mutations(data: bytes, seed: int) -> Iterator[bytes]:
    """Yield files with a footer that was mutated in one to four of six ways."""
    chance = random.Random(seed)
    start = tail_start(data)
    for _ in range(CASES):
        footer = bytearray(data[start:-8])
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(footer))
            match chance.randrange(6):
                case 0:
                    footer[at] = chance.randrange(256)
                case 1:
                    footer[at] ^= 1 << chance.randrange(8)
                case 2:
                    del footer[at : at + chance.randint(1, 20)]
                case 3:
                    footer[at:at] = chance.randbytes(chance.randint(1, 20))
                case 4:
                    footer[at : at + 5] = b"\xff\xff\xff\xff\x0f"
                case _:
                    footer[at:at] = footer[chance.randrange(len(footer)) :][: chance.randint(1, 50)]
            footer = footer or bytearray(1)
        yield data[:start] + footer + len(footer).to_bytes(4, "little") + data[-4:]


@pytest.mark.parametrize("kind", KINDS)
def test_every_flipped_byte_of_the_tail_is_refused_or_read(files: dict[str, bytes], kind: str) -> None:
    """Each byte of footer, length and magic inverted gives a FormatError or a clean footer."""
    data = files[kind]
    refused = sum(
        attempt(data[:index] + bytes((data[index] ^ 0xFF,)) + data[index + 1 :])
        for index in range(tail_start(data), len(data))
    )
    assert refused >= 8  # length and magic at least


@pytest.mark.parametrize("kind", KINDS)
def test_every_truncation_of_the_tail_is_refused(files: dict[str, bytes], kind: str) -> None:
    """A file cut anywhere in its tail is refused."""
    data = files[kind]
    assert all(attempt(data[:end]) for end in range(tail_start(data), len(data)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("magic", [b"PAR1", b"PARE"])
def test_every_footer_length_is_refused_or_read(files: dict[str, bytes], kind: str, magic: bytes) -> None:
    """Wrong footer lengths, and a footer under the other magic, are refused, or read cleanly where they make sense."""
    data = files[kind]
    right = int.from_bytes(data[-8:-4], "little")
    for length in [*range(64), right - 1, right + 1, len(data), 2**31 - 1, 2**31, 2**32 - 1]:
        assert attempt(data[:-8] + length.to_bytes(4, "little") + magic)


@pytest.mark.parametrize("kind", KINDS)
def test_mutated_footers_are_refused_or_read(files: dict[str, bytes], kind: str) -> None:
    """Thousands of mutated footers raise nothing but FormatError, and some of each outcome occur."""
    refused = sum(attempt(data) for data in mutations(files[kind], seed=len(kind)))
    assert 0 < refused <= CASES


@pytest.mark.parametrize("kind", ["signed", "encrypted"])
def test_no_mutated_footer_authenticates(files: dict[str, bytes], kind: str) -> None:
    """With the keys at hand a mutated footer is refused, unless the mutation left it as it was or unencrypted."""
    keys = Keys()
    known = verify_file(files[kind], retrieve_key=keys)
    held = {request.key_metadata: keys(request) for request in tuple(keys.asked)}
    for data in mutations(files[kind], seed=7):
        try:
            footer = read_footer(data, retrieve_key=lambda request: held.get(request.key_metadata, bytes(16)))
        except (FormatError, VerificationError):
            continue
        assert not footer.footer_authenticated or (data == files[kind] and footer.algorithm == known.algorithm)


def test_memory_is_bounded_by_the_file(files: dict[str, bytes]) -> None:
    """Footers that announce gigabytes allocate none of them."""
    start = tail_start(files["plain"])
    hostile = [
        b"\x18\xff\xff\xff\xff\x07",
        b"\x19\xfc\xff\xff\xff\xff\x07",
        b"\x19\xf5\xff\xff\xff\xff\x07",
        b"\x1b\xff\xff\xff\xff\x07\x55",
    ]
    tracemalloc.start()
    try:
        for opening in hostile:
            footer = opening + bytes(50)
            assert attempt(files["plain"][:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_mutated_bodies_are_refused_or_verified(files: dict[str, bytes]) -> None:
    """Hundreds of files with bytes of their data changed raise nothing but the two errors of this layer."""
    chance = random.Random(3)
    keys = Keys()
    found = 0
    for _ in range(150):
        data = bytearray(files["encrypted"])
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(tail_start(data))] = chance.randrange(256)
        try:
            verify_file(bytes(data), retrieve_key=keys)
        except (FormatError, VerificationError):
            found += 1
    assert found > 10


def test_paths_are_in_messages(tmp_path: Path) -> None:
    """A file that is refused is named."""
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no footer here PAR1")
    with pytest.raises(FormatError, match=r"bad\.parquet: offset"):
        read_footer(tmp_path / "bad.parquet")


def test_a_footer_of_more_values_than_its_file_may_have_is_refused(
    files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a footer decodes to is bounded by the file's size, once it is more than some millions of values."""
    for kind in KINDS:
        read_footer(files[kind])
    monkeypatch.setattr("sparkcrypt.parquet.footer.MAX_VALUES", 10)
    with pytest.raises(FormatError, match="too many Thrift values; expected at most"):
        read_footer(files["plain"])
    monkeypatch.setattr("sparkcrypt.parquet.footer.BYTES_PER_VALUE", 1)
    assert read_footer(files["plain"]).metadata is not None

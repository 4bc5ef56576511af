from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import FormatError, VerificationError
from sparkcrypt.files.parquet import FOOTER_KEY, leaf_paths, message_type, read_footer, rewrite_file, verify_file
from sparkcrypt.files.parquet.file.modules import ModuleCipher, ModuleType, module_aad
from sparkcrypt.files.parquet.thrift.compact import STRUCT, List, Struct, decode_struct, encode_struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, FileMetaData, RowGroup, SchemaElement
from tests.unit.parquet.rewriting import new_encryption
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


@pytest.mark.slow
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


def element(name: bytes, children: int | None = None) -> Struct:
    """Return a required leaf, or a group with so many children."""
    struct = Struct({} if children is not None else {SchemaElement.type.key: 1})
    struct |= Struct({SchemaElement.repetition_type.key: 0, SchemaElement.name.key: name})
    if children is not None:
        struct[SchemaElement.num_children.key] = children
    return Struct(struct)


def wide(groups: list[bytes], leaves: int, row_groups: List | None = None) -> bytes:
    """Return the footer of a file whose leaves are all inside the same nested groups."""
    inside = [element(name, 1) for name in groups]
    inside[-1] = element(groups[-1], leaves)
    schema = List(STRUCT, [element(b"root", 1), *inside, *(element(b"l%d" % number) for number in range(leaves))])
    footer = Struct({FileMetaData.version.key: 1, FileMetaData.schema.key: schema, FileMetaData.num_rows.key: 0})
    footer[FileMetaData.row_groups.key] = List(STRUCT) if row_groups is None else row_groups
    return encode_struct(footer)


def plain_file(footer: bytes) -> bytes:
    """Return a file of nothing but a plaintext footer."""
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def sealed_file(template: bytes, footer: bytes) -> tuple[bytes, Keys]:
    """Return an encrypted file with another footer, sealed with its key, and what answers its keys."""
    keys = Keys()
    read = read_footer(template, retrieve_key=keys)
    assert read.file_aad is not None
    start, cipher = tail_start(template), ModuleCipher(keys(keys.asked[0]))
    crypto = template[start : start + decode_struct(template[start:-8])[1]]
    tail = crypto + cipher.encrypt(footer, module_aad(read.file_aad, ModuleType.FOOTER))
    return template[:start] + tail + len(tail).to_bytes(4, "little") + b"PARE", keys


SHAPES = {"a long name over all": ([b"n" * 500_000], 20_000), "deep groups": ([b"g"] * 250, 20_000)}


@pytest.mark.slow
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_paths_that_repeat_what_is_above_them_are_refused(files: dict[str, bytes], shape: str, sealed: bool) -> None:
    """A megabyte of schema whose leaves' paths would take gigabytes is refused soon, and in memory of its own order."""
    footer = wide(*SHAPES[shape])
    data, keys = sealed_file(files["encrypted"], footer) if sealed else (plain_file(footer), None)
    assert len(data) < 2_000_000
    started = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="paths of the leaf columns have more than 8000000 characters; expected"):
            read_footer(data, retrieve_key=keys)
        assert tracemalloc.get_traced_memory()[1] < 60_000_000
    finally:
        tracemalloc.stop()
    assert time.process_time() - started < 10


@pytest.mark.slow
def test_wide_honest_tables_pass(files: dict[str, bytes]) -> None:
    """Ten thousand columns in groups with long names are read, in clear and encrypted, though no row is there."""
    footer = wide([b"a_rather_long_name_of_a_struct_%d" % level + b"x" * 60 for level in range(5)], 10_000)
    sealed, keys = sealed_file(files["encrypted"], footer)
    for read in (read_footer(plain_file(footer)), read_footer(sealed, retrieve_key=keys)):
        assert read.columns is not None and len(read.columns) == 10_000
        assert read.metadata is not None and leaf_paths(read.metadata)[-1][-1] == "l9999"


def test_names_that_many_leaves_share_are_held_once() -> None:
    """Footers within the bound hold about what they have on disk: no copy of a group's name for each leaf."""
    data = plain_file(wide([b"n" * 70_000], 100))
    tracemalloc.start()
    try:
        footer = read_footer(data)
        assert footer.columns is not None and len(footer.columns) == 100
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_long_name_in_every_chunk_of_many_is_not_written_out(tmp_path: Path) -> None:
    """Chunks that leave their path out cannot make a rewrite write or hold it once for each row group."""
    chunk = Struct({ColumnChunk.file_offset.key: 0, ColumnChunk.meta_data.key: Struct({0x15: 1})})
    group = Struct({RowGroup.columns.key: List(STRUCT, [chunk]), RowGroup.num_rows.key: 0})
    data = plain_file(wide([b"n" * 200_000], 1, List(STRUCT, [group] * 2000)))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="column paths in all row groups would take 400036000 bytes; expected"):
            rewrite_file(data, tmp_path / "out", encryption=new_encryption(default=FOOTER_KEY))
        with pytest.raises(FormatError, match=r"column n{199}… in row group 0|missing"):
            verify_file(data)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert list(tmp_path.iterdir()) == []


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
    monkeypatch.setattr("sparkcrypt.files.parquet.file.footer.MAX_VALUES", 10)
    with pytest.raises(FormatError, match="too many Thrift values; expected at most"):
        read_footer(files["plain"])
    monkeypatch.setattr("sparkcrypt.files.parquet.file.footer.BYTES_PER_VALUE", 1)
    assert read_footer(files["plain"]).metadata is not None

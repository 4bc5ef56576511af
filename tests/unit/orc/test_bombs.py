"""Small ORC files whose content is said to be large, or is: no route takes more memory than the limits say."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pytest

from sparkcrypt.errors import FormatError, SparkcryptError, UnsupportedFileError
from sparkcrypt.files.orc import inspect_orc, rewrite_orc, verify_orc
from sparkcrypt.files.orc.file.compression import MAX_BLOCK_BYTES, NAMES, Compression
from sparkcrypt.files.orc.file.encryption import LocalKeys
from sparkcrypt.files.orc.file.protobuf import encode_packed, message
from sparkcrypt.files.orc.file.stripe import DATA, LENGTH
from sparkcrypt.files.orc.file.tail import tail_of
from sparkcrypt.files.orc.read.rows import RowsOrder, read_rows
from sparkcrypt.files.orc.read.stripe_streams import find_columns, read_type
from sparkcrypt.files.orc.rewrite.mask import extent_of_present
from sparkcrypt.files.source import open_source
from tests.unit.orc.corpus import retrieve_key
from tests.unit.orc.rewriting import OrcKeys

MIB = 1 << 20
CODECS = ("zlib", "snappy", "lz4", "zstd")
_ZSTD_BLOCK = 128 * 1024


def packed(codec: str, size: int, *, announced: bool = True) -> bytes:
    """Return a chunk, with its header, of so many zeros; a Zstandard frame may not announce its size."""
    match codec:
        case "zlib":
            deflater = zlib.compressobj(9, wbits=-15)
            content = b"".join(deflater.compress(bytes(MIB)) for _ in range(size // MIB)) + deflater.flush()
        case "snappy":
            content = pa.Codec("snappy").compress(bytes(size), asbytes=True)
        case "lz4":  # one zero, as many copies of it, and five more as literals
            long = size - 6 - 19
            content = b"\x1f\0\x01\0" + b"\xff" * (long // 255) + bytes((long % 255,)) + b"\x50" + bytes(5)
        case _:
            descriptor = b"\xc0\x58" + size.to_bytes(8, "little") if announced else b"\0\x58"
            runs = [_ZSTD_BLOCK << 3 | 2] * (size // _ZSTD_BLOCK - 1) + [_ZSTD_BLOCK << 3 | 3]
            content = b"\x28\xb5\x2f\xfd" + descriptor + b"".join(run.to_bytes(3, "little") + b"\0" for run in runs)
    return (len(content) << 1).to_bytes(3, "little") + content


def made(codec: str, data: bytes, length: int, *, columns: int = 1, end: bytes = b"") -> bytes:
    """Return a file of one row of texts of a length.

    Args:
        codec: of the file.
        data: the stream of each column's text, in chunks.
        length: the length that each text is said to have.
        columns: how many there are.
        end: chunks after those of the footer.
    """
    compression = Compression(codec, MAX_BLOCK_BYTES)
    lengths = compression.deflate(b"\xff" + encode_packed([length]))
    streams = [
        (kind, column, part) for column in range(1, columns + 1) for kind, part in ((DATA, data), (LENGTH, lengths))
    ]
    body = b"".join(part for _, _, part in streams)
    described = [message("a stream", (1, kind), (2, column), (3, len(part))) for kind, column, part in streams]
    encodings = [message("an encoding", (1, 0))] * (columns + 1)
    stripe_footer = compression.deflate(
        message(
            "a stripe's footer",
            *((1, stream.encode()) for stream in described),
            *((2, encoding.encode()) for encoding in encodings),
        ).encode()
    )
    stripe = message("a stripe", (1, 3), (2, 0), (3, len(body)), (4, len(stripe_footer)), (5, 1)).encode()
    statistics = message("statistics", (1, 1)).encode()
    of_stripe = message("of a stripe", *((1, statistics),) * (columns + 1)).encode()
    metadata = compression.deflate(message("the metadata", (1, of_stripe)).encode())
    names = [(3, f"c{number}".encode()) for number in range(columns)]
    types = [message("a type", (1, 12), (2, encode_packed(range(1, columns + 1))), *names)]
    types += [message("a type", (1, 7))] * columns
    footer = compression.deflate(
        message(
            "a footer",
            (3, stripe),
            *((4, kind.encode()) for kind in types),
            (6, 1),
            *((7, statistics),) * (columns + 1),
        ).encode()
    )
    footer += end
    postscript = message(
        "a postscript",
        *((1, len(footer)), (2, NAMES.index(codec)), (3, MAX_BLOCK_BYTES), (4, encode_packed([0, 12]))),
        *((5, len(metadata)), (8000, b"ORC")),
    ).encode()
    return b"".join((b"ORC", body, stripe_footer, metadata, footer, postscript, bytes((len(postscript),))))


def read(data: bytes) -> int:
    """Read all rows as `open_orc` does, and return the bytes that they take."""
    with open_source(data) as opened:
        tail = tail_of(opened)
        order = RowsOrder([read_type(tail, column) for column in find_columns(tail)])
        return sum(batch.nbytes for batch in read_rows(opened, tail, LocalKeys(opened.name, retrieve_key), order))


def grown(action: Callable[[], Any]) -> tuple[Any, int]:
    """Return the outcome of an action, or its error, and by how many MiB the process has been larger meanwhile."""

    def peak() -> int:
        found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
        assert found is not None
        return int(found[1])

    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    before = peak()
    try:
        found = action()
    except SparkcryptError as error:  # the caller compares it
        found = error
    return found, (peak() - before) // 1024


def routes(data: bytes, folder: Path) -> dict[str, Callable[[], Any]]:
    """Return every way of reading a file."""
    target = f"{folder}/{len(data)}.orc"
    return {
        "inspect": lambda: inspect_orc(data),
        "verify": lambda: verify_orc(data),
        "read": lambda: read(data),
        "rewrite": lambda: rewrite_orc(data, target, encryption=OrcKeys().encryption(["c0"])),
    }


@pytest.mark.parametrize("codec", CODECS)
def test_a_chunk_is_no_larger_than_its_files_say(tmp_path: Path, codec: str) -> None:
    """One of 64 MiB, in the footer and in a stream: refused by each route that decompresses it."""
    chunk = packed(codec, 64 * MIB)
    for name, action in routes(made(codec, b"", 0, end=chunk), tmp_path).items():
        found, size = grown(action)
        assert isinstance(found, FormatError), (name, found)
        assert size < 32, name
    for name, action in routes(made(codec, chunk, 64 * MIB), tmp_path).items():
        found, size = grown(action)
        assert isinstance(found, FormatError) == (name in ("verify", "read")), (name, found)
        assert size < 32, name


def test_frames_that_announce_no_size_are_cut_off(tmp_path: Path) -> None:
    """A Zstandard frame of 1 GiB in 33 kB."""
    for name, action in routes(made("zstd", packed("zstd", 1024 * MIB, announced=False), 1024 * MIB), tmp_path).items():
        found, size = grown(action)
        assert isinstance(found, FormatError) == (name in ("verify", "read")), (name, found)
        assert size < 64, name


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_many_full_chunks_are_no_batch(tmp_path: Path, codec: str) -> None:
    """Texts of 1 GiB in chunks of the allowed size, in one column or in sixteen, are refused before they are read."""
    data = packed(codec, 8 * MIB) * 8
    for columns, chunks in ((1, data * 16), (16, data)):
        file = made(codec, chunks, len(chunks) // len(data) * 64 * MIB, columns=columns)
        most = max(256, 64 * len(file) // MIB)
        if most >= 1024:
            continue  # LZ4 and Snappy compress less than the limit allows
        for name, action in routes(file, tmp_path).items():
            found, size = grown(action)
            assert isinstance(found, UnsupportedFileError) == (name == "read"), (name, found)
            assert size < 1.5 * most + 64, (name, columns)


@pytest.mark.slow
def test_rows_of_much_text_come_in_small_batches() -> None:
    """As many rows as have some 64 MiB; texts compress well, and none is refused."""
    text = "x" * 100_000
    rows = pa.table({"t": [text] * 4_000, "d": [f"{number}{text}" for number in range(4_000)]})
    sink = pa.BufferOutputStream()
    with pa.orc.ORCWriter(sink, compression="zstd") as writer:
        writer.write(rows)
    data = sink.getvalue().to_pybytes()
    found, size = grown(lambda: read(data))
    assert found > 2 * 400_000_000
    assert size < 700


def test_runs_of_nulls_are_counted_within_bounds() -> None:
    """PRESENT of 1 GiB is refused; one of 24 MiB takes no more than its bytes."""
    compression, chunk = Compression("zstd", MAX_BLOCK_BYTES), packed("zstd", 8 * MIB)
    found, size = grown(lambda: extent_of_present(chunk * 128, (), compression, "it"))
    assert isinstance(found, FormatError)
    assert size < 256
    extent, size = grown(lambda: extent_of_present(chunk * 3, (), compression, "it"))
    assert extent.size == 12 * MIB * 3
    assert size < 128
    index = [message("an entry", (1, encode_packed([0, 2, 1, 0])))]
    assert extent_of_present(chunk, index, compression, "it").starts == ((3 + 1) * 8,)

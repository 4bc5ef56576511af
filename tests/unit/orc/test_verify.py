from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow
import pytest

from sparkcrypt.errors import ConfigError, FormatError, VerificationError
from sparkcrypt.files.orc import read_tail, verify_orc
from sparkcrypt.files.orc.file.compression import Compression, zstd_size
from sparkcrypt.files.orc.file.protobuf import decode, encode_packed, message
from sparkcrypt.files.orc.file.stripe import DATA, LENGTH, PRESENT, ROW_INDEX, ChunkCheck, Stream, read_stripe_footer
from sparkcrypt.files.orc.file.tail import ENCRYPTION, STRIPE_ID, STRIPE_KEYS, STRIPES, tells_nothing
from sparkcrypt.files.orc.verify import file as verify_file
from sparkcrypt.files.orc.verify.mask_check import all_zero
from sparkcrypt.files.parquet import KeyRequest
from sparkcrypt.files.source import open_source
from sparkcrypt.keys.datakeys import DataKeyMaker
from sparkcrypt.keys.service import KeyService
from sparkcrypt.schema import join_dotted
from tests.unit.cli.conftest import run
from tests.unit.orc.corpus import CODECS, NAMES, file, retrieve_key
from tests.unit.orc.rewriting import patched

ENCRYPTED = {name for name in NAMES if "encrypted" in name} | {"java_sha256", "java_stride0"}
GOOD = [name for name in NAMES if name != "java_bloom"]


@pytest.mark.parametrize("name", GOOD)
def test_files_of_other_writers_verify(name: str) -> None:
    """Every stream decrypts to whole chunks under every codec; each leaf column is told once."""
    found = verify_orc(file(name), retrieve_key=retrieve_key)
    assert found.rows == read_tail(file(name)).rows
    assert bool(found.decrypted) == bool(found.columns) == (name in ENCRYPTED)
    assert not set(found.columns) & set(found.plaintext_columns)
    assert bool(found.notes) == (name == "java_sha256")


@pytest.mark.parametrize("codec", CODECS)
def test_an_encrypted_file_says_what_the_plain_one_says(codec: str) -> None:
    """ORC's Java writer made both of the same rows: streams, encodings and statistics of all columns are equal."""
    plain = verify_orc(file(f"java_{codec}"))
    verify_orc(file(f"java_{codec}_encrypted"), retrieve_key=retrieve_key, equal_to=plain.digests)
    with pytest.raises(VerificationError, match="another in streams"):
        verify_orc(file("java_none"), equal_to={"streams": plain.digests["schema"]})
    with pytest.raises(ConfigError, match="equal_to has pages"):
        verify_orc(file("java_none"), equal_to={"pages": ""})


def test_what_another_file_proved_is_not_decompressed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that are digested; masks are still; and without the digest of the layout everything is."""
    key, checked = bytes(32), []
    source = file("java_zlib_encrypted")
    digests = verify_orc(source, retrieve_key=retrieve_key, digest_key=key).digests

    class CountedCheck(ChunkCheck):
        def finish(self) -> None:
            checked.append(self)
            super().finish()

    monkeypatch.setattr(verify_file, "ChunkCheck", CountedCheck)
    parts = {"streams": digests["streams"], "layout": digests["layout"]}
    found = verify_orc(source, retrieve_key=retrieve_key, digest_key=key, equal_to=parts)
    masks = len(checked)
    assert 0 < masks < found.streams
    verify_orc(source, retrieve_key=retrieve_key, digest_key=key, equal_to={"streams": digests["streams"]})
    assert len(checked) - masks == found.streams


@pytest.mark.parametrize("kind", [DATA, LENGTH, ROW_INDEX])
def test_one_changed_bit_of_a_stream_is_another_content(kind: int) -> None:
    """By fingerprints under a key too, where nothing is decompressed that would notice."""
    key = bytes(32)
    digests = verify_orc(file("java_none"), digest_key=key).digests
    assert digests != verify_orc(file("java_none"), digest_key=bytes(31) + b"1").digests
    stream = clear_stream("java_none", "name", kind)
    data = bytearray(file("java_none").read_bytes())
    data[stream.offset + stream.length - 1] ^= 1
    with pytest.raises(VerificationError, match="another in streams"):
        verify_orc(bytes(data), digest_key=key, equal_to=digests)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 100_000])
@pytest.mark.parametrize("codec", ["zlib", "snappy", "zstd"])
def test_chunks_are_checked_in_pieces_of_any_length(codec: str, size: int) -> None:
    """Compressed ones and stored ones; one that ends early is told, wherever the pieces end."""
    compression = Compression(codec, 1000)
    data = compression.deflate(bytes(1500) + random.Random(3).randbytes(1500))
    for content, whole in ((data, True), (data[:-1], False), (data[:-600], False), (data + b"\x00", False)):
        check = ChunkCheck(compression, "it")
        for start in range(0, len(content), size):
            check.feed(content[start : start + size])
        if whole:
            check.finish()
        else:
            with pytest.raises(FormatError, match="expected whole ones"):
                check.finish()
    with pytest.raises(FormatError, match="expected at most 1000"):
        ChunkCheck(compression, "it").feed((1001 << 1 | 1).to_bytes(3, "little"))


def test_sizes_of_zstandard_frames_are_read() -> None:
    """Those that a frame says, in each of its widths; what says none is decompressed as a stream."""
    for size in (1, 200, 255, 256, 300, 65_791, 65_792, 200_000):
        frame = pyarrow.Codec("zstd").compress(bytes(size), asbytes=True)
        assert zstd_size(frame) == size
        assert zstd_size(frame[:5]) is None and zstd_size(b"xxxx" + frame[4:]) is None
    stream = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(stream, "zstd") as written:
        written.write(bytes(700))
        written.flush()
        written.write(bytes(300))
    frame = stream.getvalue().to_pybytes()
    assert zstd_size(frame) is None
    compression = Compression("zstd", 1000)
    assert compression.inflate_chunk(frame, "it") == bytes(1000)
    with pytest.raises(FormatError, match="expected at most 999"):
        Compression("zstd", 999).inflate_chunk(frame, "it")
    altered = bytearray(pyarrow.Codec("zstd").compress(bytes(200), asbytes=True))
    altered[5] += 1
    with pytest.raises(FormatError, match="is no zstd"):
        compression.inflate_chunk(bytes(altered), "it")


def test_keys_are_asked_for_once() -> None:
    """One local key for each variant, whatever the number of stripes and streams."""
    asked: list[KeyRequest] = []

    def retrieve(request: KeyRequest) -> bytes:
        asked.append(request)
        return retrieve_key(request)

    verify_orc(file("java_zlib_encrypted"), retrieve_key=retrieve)
    assert sorted(join_dotted(request.column or ()) for request in asked) == ["dec", "li._elem.n", "name", "st.y", "ts"]
    with pytest.raises(ConfigError, match="no key is given"):
        verify_orc(file("java_zlib_encrypted"))


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrong_key_is_no_verified_file(codec: str) -> None:
    """Random bytes are no chunks, no statistics and no row index."""
    wrong = {16: os.urandom(16), 32: os.urandom(32)}
    with pytest.raises((FormatError, VerificationError)):
        verify_orc(file(f"java_{codec}_encrypted"), retrieve_key=lambda request: wrong[len(retrieve_key(request))])
    with pytest.raises(FormatError, match="has 5 bytes; expected"):
        verify_orc(file(f"java_{codec}_encrypted"), retrieve_key=lambda _: b"short")


def test_a_bloom_filter_in_clear_is_refused() -> None:
    """ORC's Java writer leaves those of encrypted columns outside of the variant, where anybody probes them."""
    with pytest.raises(VerificationError, match="Bloom filter of encrypted column name in clear"):
        verify_orc(file("java_bloom"), retrieve_key=retrieve_key)


def clear_stream(name: str, column: str, kind: int) -> Stream:
    """Return a stream in clear of the first stripe."""
    tail = read_tail(file(name))
    with open_source(file(name)) as opened:
        streams = read_stripe_footer(opened, tail, tail.stripes[0]).streams
    (number,) = (tail_column.number for tail_column in tail.columns if join_dotted(tail_column.path) == column)
    return next(stream for stream in streams if (stream.column, stream.kind, stream.variant) == (number, kind, None))


@pytest.mark.parametrize("column", ["name", "st.y", "li._elem.n"])
def test_values_in_clear_behind_a_nullifying_mask_are_refused(column: str) -> None:
    """One value that is said to be there is enough."""
    stream = clear_stream("java_none_encrypted", column, PRESENT)
    data = bytearray(file("java_none_encrypted").read_bytes())
    data[stream.offset + 1] ^= 1
    with pytest.raises(VerificationError, match=f"{column} is said to be nullified"):
        verify_orc(bytes(data), retrieve_key=retrieve_key)


def test_statistics_in_clear_behind_a_nullifying_mask_are_refused() -> None:
    """Those of row groups too."""
    stream = clear_stream("java_none_encrypted", "name", ROW_INDEX)
    data = file("java_none_encrypted").read_bytes()
    index = decode(data[stream.offset : stream.offset + stream.length], "an index")
    told = message("statistics", (1, 0), (4, message("of strings", (1, b"a")).encode()))
    assert not tells_nothing(told.encode()) and not tells_nothing(message("statistics", (1, 7)).encode())
    bounds = message("of shapes", (1, message("a box", (1, b"\0\0\0\0\0\0\xf0\x3f")).encode())).encode()
    assert not tells_nothing(message("statistics", (1, 0), (13, bounds)).encode())
    entry = message("an entry", (2, told.encode())).encode()
    rest = message("an index", *((1, b"") for _ in index.read_repeated(1)[1:])).encode()
    made = message("an index", (1, entry)).encode() + rest
    made += message("padding", (9, bytes(stream.length - len(made) - 2))).encode()
    assert len(made) == stream.length
    with pytest.raises(VerificationError, match="name is said to be nullified"):
        verify_orc(data[: stream.offset] + made + data[stream.offset + stream.length :], retrieve_key=retrieve_key)


def test_a_key_stream_that_is_used_twice_is_refused() -> None:
    """Two stripes of one id under one key, and one key for two variants."""
    data = file("java_zlib_encrypted").read_bytes()
    tail = read_tail(data)
    stripes = tail.footer.messages(STRIPES, "a stripe")
    changed = [stripes[0], stripes[1].replace_field(STRIPE_ID, [1])]
    made = patched(tail, data, tail.footer.replace_field(STRIPES, [stripe.encode() for stripe in changed]))
    with pytest.raises(VerificationError, match="two stripes of id 1"):
        verify_orc(made, retrieve_key=retrieve_key)
    same_keys = {16: bytes(16), 32: bytes(32)}
    with pytest.raises(VerificationError, match="have one local key"):
        verify_orc(data, retrieve_key=lambda request: same_keys[len(retrieve_key(request))])


def test_a_master_key_that_is_not_the_one_named_is_refused(keys: KeyService) -> None:
    """Who swaps names of keys does not change who can read, only what people think."""
    data = file("java_zlib_encrypted").read_bytes()
    tail = read_tail(data)
    wrapped = DataKeyMaker(keys, data_key_bits=128).make("footer", is_footer_key=False)[1]
    encryption = tail.footer.message(ENCRYPTION, "encryption")
    assert encryption is not None
    variants = [variant.replace_field(3, [wrapped]) for variant in encryption.messages(3, "a variant")]
    footer = tail.footer.replace_field(
        ENCRYPTION, [encryption.replace_field(3, [variant.encode() for variant in variants]).encode()]
    )
    stripes = footer.messages(STRIPES, "a stripe")
    first = stripes[0].replace_field(STRIPE_KEYS, [wrapped] * len(variants))
    footer = footer.replace_field(STRIPES, [first.encode(), *(stripe.encode() for stripe in stripes[1:])])
    with pytest.raises(VerificationError, match=r"is said to be under '\w+', and its local key is wrapped by 'footer'"):
        verify_orc(patched(tail, data, footer), retrieve_key=retrieve_key)


def test_all_zero_reads_runs_and_literals() -> None:
    """Of zeros or not, and what ends early."""
    assert all_zero(b"\x7f\x00\xfe\x00\x00", "it") and all_zero(b"", "it")
    assert not all_zero(b"\x7f\x01", "it") and not all_zero(b"\xfe\x00\x01", "it")
    with pytest.raises(FormatError, match="a run of 2 bytes"):
        all_zero(b"\xfe\x00", "it")
    assert encode_packed([300]) == b"\xac\x02"


def test_the_command_tells_what_it_checked(tmp_path: Path, policy: Path) -> None:
    """A plain file is not called verified; one that does not open fails with its reason."""
    (tmp_path / "plain.orc").write_bytes(file("java_zlib").read_bytes())
    found = run("verify", "--policy", policy, tmp_path / "plain.orc", "--json")
    assert (found.code, found.document["outcome"], found.document["files"][0]["format"]) == (0, "not encrypted", "orc")
    (tmp_path / "other.orc").write_bytes(file("java_zlib_encrypted").read_bytes())
    found = run("verify", "--policy", policy, tmp_path / "other.orc")
    assert (found.code, "FAIL" in found.output, "nothing ties its local keys to this file" in found.output) == (
        74,
        True,
        True,
    )

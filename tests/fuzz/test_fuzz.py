from __future__ import annotations

import random
import signal
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkcrypt.errors import FormatError, SparkcryptError, VerificationError
from sparkcrypt.files.parquet import (
    FOOTER_KEY,
    NewKeys,
    read_footer,
    rewrap_file,
    rewrite_file,
    verify_file,
    verify_keys,
)
from sparkcrypt.files.parquet.file.layout import Window
from sparkcrypt.files.parquet.pages.chunk import chunk_range
from sparkcrypt.files.parquet.thrift.compact import decode_struct, encode_struct
from sparkcrypt.files.parquet.thrift.metadata import FileMetaData
from sparkcrypt.files.source import open_source
from tests.fuzz.attempt import HangError, attempt, deadline
from tests.fuzz.cases import WAYS, Original, corpus, make_case
from tests.fuzz.mutate import PIECES, mutate_bytes, mutate_struct
from tests.unit.parquet.rewriting import new_encryption

KEY = b"0123456789abcdef"
CASES, SLICES = 2400, 6
NAMES = tuple(original.name for original in corpus())


def original(name: str) -> Original:
    """Return a file of the corpus."""
    return next(file for file in corpus() if file.name == f"{name}.parquet")


def verified(name: str) -> Any:
    """Verify a file of the corpus."""
    return verify_file(original(name).data, retrieve_key=original(name).retrieve_key)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
def test_damaged_files_are_refused_or_read(part: int) -> None:
    """Thousands of damaged files of six writers give nothing but errors of this layer, each in time."""
    outcomes: Counter[str] = Counter()
    for number in range(part, CASES, SLICES):
        outcomes.update(attempt(make_case(20261121, number), measured=number % 40 == part).values())
    assert set(outcomes) - {"UnsupportedFileError"} == {"read", "FormatError", "VerificationError", "ConfigError"}


def test_the_deadline_rings() -> None:
    """A way of reading that does not end is a failure, not a test that hangs; afterwards no alarm is left."""
    with pytest.raises(HangError), deadline(0.05):
        while True:
            pass
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_every_way_changes_something() -> None:
    """No way of damaging leaves every file as it was."""
    for way in range(len(WAYS)):
        numbers = range(way * len(NAMES), (way + 1) * len(NAMES))
        assert any(make_case(1, number).data != make_case(1, number).original.data for number in numbers)


@pytest.mark.parametrize("name", NAMES)
def test_the_corpus_itself_is_read(name: str) -> None:
    """Files of Spark, Arrow, fastparquet, polars and DuckDB verify, with every module that they should have."""
    file = original(name.removesuffix(".parquet"))
    found = verify_file(file.data, retrieve_key=file.retrieve_key)
    assert found.rows in (300, 500)
    assert (found.modules > 30) == bool(file.keys)
    whole = bool(file.keys) and "ctr" not in name and name != "spark_gcm_v2.parquet"
    assert found.authenticated == ("all" if whole else "partial")


@pytest.mark.parametrize("name", NAMES)
def test_footers_indexes_and_headers_are_written_back_byte_for_byte(name: str) -> None:
    """What any writer serialised encodes to the bytes that it was decoded from: footers, headers, indexes, filters."""
    file = original(name.removesuffix(".parquet"))
    footer = read_footer(file.data, retrieve_key=file.retrieve_key if file.keys else None)
    start = footer.offset
    struct, end = decode_struct(file.data, start=start)
    assert encode_struct(struct) == file.data[start:end]
    assert footer.metadata is not None
    assert decode_struct(encode_struct(footer.metadata.struct))[0] == footer.metadata.struct
    assert list(footer.metadata.struct) == sorted(footer.metadata.struct)
    counted = sum(_same_structs(file.data, footer.metadata, footer.offset))
    assert (counted > 0) == (name != "arrow_prefix.parquet")  # of which nothing but the footer is in clear


def _same_structs(data: bytes, metadata: FileMetaData, limit: int) -> list[int]:
    """Compare every struct that stands in clear; return 1 for each."""
    places = []
    for row_group in metadata.row_groups:
        for chunk in row_group.columns:
            meta = chunk.meta_data
            if meta is None or chunk.crypto_metadata is not None:
                continue
            places += [chunk.column_index_offset, chunk.offset_index_offset, meta.bloom_filter_offset]
            with open_source(data) as file:
                window = Window(file, *chunk_range(meta, limit, ""))
                while window.left:
                    places.append(window.position)
                    header = window.take_struct("")
                    size = header[53]
                    assert isinstance(size, int)
                    window.take(size, "")
    found = [place for place in places if place is not None]
    for place in found:
        struct, end = decode_struct(data, start=place)
        assert encode_struct(struct) == data[place:end]
    return [1] * len(found)


@pytest.mark.parametrize(
    ("plain", "encrypted"),
    [
        ("spark_plain_v1", "spark_gcm"),
        ("spark_plain_v1", "spark_gcm_signed"),
        ("spark_plain_v1", "spark_ctr"),
        ("spark_plain_v2", "spark_gcm_v2"),
        ("spark_plain_v2", "spark_ctr_v2"),
    ],
)
def test_parquet_mr_encrypts_what_it_writes_in_clear(plain: str, encrypted: str) -> None:
    """The same rows have one digest in clear and encrypted by parquet-mr: both algorithms, V1 and its V2 pages."""
    assert verified(encrypted).digests == verified(plain).digests
    assert verified(encrypted).digest == verified(plain).digest


def test_levels_of_parquet_mrs_v2_pages_are_called_unauthenticated() -> None:
    """Of V2 pages under GCM the columns with levels are named, the required ones are not."""
    gaps = verified("spark_gcm_v2").not_authenticated
    assert gaps and all(gap.startswith("levels of column ") for gap in gaps)
    assert all(gap.startswith("pages of column ") for gap in verified("spark_ctr_v2").not_authenticated)


@pytest.mark.slow
@given(st.integers(0, len(NAMES) - 1), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_a_changed_footer_struct_is_the_same_after_a_round_trip(which: int, chance: random.Random) -> None:
    """Whatever value of a real footer is changed, what is written is read back, in order."""
    file = corpus()[which]
    footer = read_footer(file.data, retrieve_key=file.retrieve_key if file.keys else None)
    assert footer.metadata is not None
    struct = footer.metadata.struct
    mutate_struct(struct, chance, len(file.data))
    wire = encode_struct(struct)
    decoded, end = decode_struct(wire)
    assert (decoded, list(decoded), end) == (struct, list(struct), len(wire))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A plaintext and an encrypted file of more than two megabytes."""
    folder = tmp_path_factory.mktemp("memory")
    columns = {name: pa.array([(i * 7919 + k) % 1000003 for i in range(100_000)]) for k, name in enumerate("abc")}
    for name, encryption in (("plain", None), ("encrypted", pe.create_encryption_properties(KEY))):
        pq.write_table(
            pa.table(columns),
            folder / name,
            use_dictionary=False,
            compression="none",
            data_page_size=200_000,
            write_page_index=True,
            encryption_properties=encryption,
        )
    return folder / "plain", folder / "encrypted"


def _verify(source: Path, _target: Path) -> None:
    verify_file(source, retrieve_key=lambda _: KEY)


def _rewrite(source: Path, target: Path) -> None:
    rewrite_file(source, target, retrieve_key=lambda _: KEY, encryption=new_encryption(default=FOOTER_KEY, bits=128))


def _decrypt(source: Path, target: Path) -> None:
    rewrite_file(source, target, retrieve_key=lambda _: KEY)


def _rewrap(source: Path, target: Path) -> None:
    rewrap_file(source, target, retrieve_key=lambda _: KEY, new_keys=NewKeys(lambda request, key: b"new"))


def _verify_keys(source: Path, _target: Path) -> None:
    verify_keys(source, retrieve_key=lambda _: KEY)


MEMORY_WAYS: dict[str, Callable[[Path, Path], None]] = {
    "verify": _verify,
    "rewrite": _rewrite,
    "decrypt": _decrypt,
    "rewrap": _rewrap,
    "verify keys": _verify_keys,
}


class TestMemory:
    """How much is held while damaged files of megabytes are read."""

    def damaged(self, data: bytes, chance: random.Random) -> bytes:
        """Return the file with lengths that lie: in the footer, at its beginning, in frames and page headers."""
        start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        if chance.random() < 0.5:
            footer = mutate_bytes(data[start:-8], chance, b"".join(PIECES))
            return data[:start] + footer + len(footer).to_bytes(4, "little") + data[-4:]
        at = chance.choice([4, chance.randrange(4, start), chance.randrange(start - 600, start)])
        piece = chance.choice([b"\xff\xff\xff\x7f", b"\x15\x00\x15\xfe\xff\xff\xff\x0f", *PIECES])
        return data[:at] + piece + data[at + len(piece) :]

    @pytest.mark.slow
    @pytest.mark.parametrize("which", [0, 1])
    @pytest.mark.parametrize("way", MEMORY_WAYS)
    def test_no_more_than_twice_the_file_is_held(
        self, files: tuple[Path, Path], tmp_path: Path, way: str, which: int
    ) -> None:
        """Reading or writing a damaged file of 2 MB never holds 4 MB, whatever lengths it claims."""
        data, chance, refused = files[which].read_bytes(), random.Random(which), 0
        assert len(data) > 2_000_000
        for number in range(60 if way == "verify" else 30):
            (tmp_path / "damaged").write_bytes(self.damaged(data, chance))
            tracemalloc.start()
            try:
                with deadline(60):
                    MEMORY_WAYS[way](tmp_path / "damaged", tmp_path / f"out {number}")
            except (FormatError, VerificationError):
                refused += 1
            except SparkcryptError as error:
                assert "aad_prefix" in str(error) or "is not encrypted" in str(error)
            finally:
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                (tmp_path / f"out {number}").unlink(missing_ok=True)
            assert peak < 2 * len(data)
        assert refused > (20 if way == "verify" else 5)

    @pytest.mark.parametrize("which", [0, 1])
    def test_an_intact_file_is_read_in_parts(self, files: tuple[Path, Path], which: int) -> None:
        """A whole file is verified without holding it."""
        tracemalloc.start()
        verify_file(files[which], retrieve_key=lambda _: KEY)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2 * files[which].stat().st_size

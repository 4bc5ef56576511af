"""Attacks on encrypted files before they are rewritten or wrapped anew: each is refused, or its limit is stated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from sparkcrypt.errors import FormatError, SparkcryptError, VerificationError
from sparkcrypt.files.parquet import (
    FOOTER_KEY,
    DataKey,
    FileEncryption,
    KeyRequest,
    NewKeys,
    read_footer,
    rewrap_file,
    rewrite_file,
    verify_file,
)
from sparkcrypt.files.parquet.thrift.compact import Struct, decode_struct, encode_struct, field_key
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, ColumnMetaData
from tests.attacks import forge
from tests.unit.parquet.rewriting import frames, left_over, metadata_of, write_plain

KEYS = {b"footer": b"f" * 16, b"a": b"a" * 16, b"b": b"b" * 32}
PREFIX = b"table/p=0/f.parquet\x00"


def retrieve(request: KeyRequest) -> bytes:
    """Return the key that the key metadata names; another's, if it names none."""
    return KEYS.get(request.key_metadata or b"", bytes(16))


def content(first: int = 0) -> pa.Table:
    """Return two columns of numbers as texts, which differ from row to row."""
    rows = range(first, first + 40)
    return pa.table({"a": [f"a{n:05d}" for n in rows], "b": [f"b{n:05d}" for n in rows]})


def victim(
    path: Path, *, mode: str = "encrypted", algorithm: str = "AES_GCM_V1", first: int = 0, version: str = "1.0"
) -> Path:
    """Write a file of two row groups, two pages each, with indexes and Bloom filters, encrypted in all parts."""
    plain = path.with_name(f"{path.name}.plain")
    write_plain(
        plain,
        content(first),
        row_group_size=20,
        max_rows_per_page=10,
        use_dictionary=["a"],
        data_page_version=version,
        compression="none",
        write_page_checksum=False,
        store_schema=False,
        bloom_filter_options={"a": {"ndv": 2, "fpp": 0.5}},
    )
    encryption = FileEncryption(
        DataKey(KEYS[b"footer"], b"footer"),
        footer_mode=mode,  # type: ignore[arg-type]
        algorithm=algorithm,  # type: ignore[arg-type]
        columns={("a",): DataKey(KEYS[b"a"], b"a")},
        default=FOOTER_KEY,
        aad_prefix=PREFIX,
    )
    rewrite_file(plain, path, encryption=encryption)
    plain.unlink()
    return path


def decrypt(source: Path, target: Path) -> object:
    """Decrypt a file."""
    return rewrite_file(source, target, retrieve_key=retrieve)


def encrypt_anew(source: Path, target: Path) -> object:
    """Encrypt a file under other keys."""
    encryption = FileEncryption(DataKey(b"n" * 32, b"new"), default=FOOTER_KEY)
    return rewrite_file(source, target, retrieve_key=retrieve, encryption=encryption)


def rewrap(source: Path, target: Path) -> object:
    """Wrap the keys of a file anew."""
    return rewrap_file(
        source, target, retrieve_key=retrieve, new_keys=NewKeys(lambda request, _: request.key_metadata or b"")
    )


ACTIONS = [decrypt, encrypt_anew]
Action = Callable[[Path, Path], object]


def refused(action: Action, source: Path, *kinds: type[SparkcryptError]) -> str:
    """Assert that a file is refused with one of these classes, and that nothing is left; return what was said."""
    before = left_over(source.parent)
    with pytest.raises(SparkcryptError) as caught:
        action(source, source.parent / "out")
    assert type(caught.value) in (kinds or (FormatError, VerificationError)), repr(caught.value)
    assert left_over(source.parent) == before
    assert "f" * 16 not in str(caught.value) and source.name in str(caught.value)
    return str(caught.value)


@dataclass(frozen=True)
class Module:
    """Where a framed module stands."""

    what: str
    start: int
    end: int


def modules(path: Path) -> Iterator[Module]:
    """Yield every framed module outside of the footer (V1 pages only)."""
    data, footer = path.read_bytes(), read_footer(path, retrieve_key=retrieve)
    assert footer.metadata is not None
    for (group, column), metadata in metadata_of(path, retrieve).items():
        chunk = footer.metadata.row_groups[group].columns[column]
        start = metadata.dictionary_page_offset or metadata.data_page_offset
        parts = [("page", start, metadata.total_compressed_size)]
        for what, at, size in (
            ("column index", chunk.column_index_offset, chunk.column_index_length),
            ("offset index", chunk.offset_index_offset, chunk.offset_index_length),
        ):
            assert at is not None and size is not None
            parts.append((what, at, size))
        if metadata.bloom_filter_offset is not None:
            parts.append(("Bloom filter", metadata.bloom_filter_offset, metadata.bloom_filter_length or 0))
        for what, begin, length in parts:
            for number, frame in enumerate(frames(data, begin, begin + length)):
                yield Module(f"{what} {number} of {group}/{column}", begin, begin + len(frame))
                begin += len(frame)


@pytest.mark.slow
@pytest.mark.parametrize("action", [*ACTIONS, rewrap])
@pytest.mark.parametrize("mode", ["encrypted", "plaintext"])
def test_every_byte_counts(tmp_path: Path, mode: str, action: Action) -> None:
    """A bit flipped anywhere is refused; a footer re-wrapped alone finds what is in footer and metadata."""
    source = victim(tmp_path / "src", mode=mode)
    good, offset = source.read_bytes(), read_footer(source).offset
    step = 11 if action is not rewrap else 5
    for at in [
        *range(4),
        *range(offset if action is rewrap else 4, len(good), step),
        *range(len(good) - 40, len(good)),
    ]:
        changed = bytearray(good)
        changed[at] ^= 1 << at % 8
        source.write_bytes(changed)
        refused(action, source)


@pytest.mark.parametrize("part", ["length", "nonce", "ciphertext", "tag"])
@pytest.mark.parametrize("action", ACTIONS)
def test_every_module_counts(tmp_path: Path, part: str, action: Action) -> None:
    """In each module of pages, indexes and Bloom filters: length, nonce, ciphertext and tag, each by its error."""
    source = victim(tmp_path / "src")
    good, found = source.read_bytes(), list(modules(source))
    assert len(found) == 2 * (2 + 4 + 4 + 4 + 2)
    for module in found:
        at = {"length": module.start, "nonce": module.start + 4, "ciphertext": module.start + 16, "tag": module.end - 1}
        changed = bytearray(good)
        changed[at[part]] ^= 0x80
        source.write_bytes(changed)
        refused(action, source, *(() if part == "length" else (VerificationError,)))


@pytest.mark.slow
@pytest.mark.parametrize("length", [0, 1, 11, 27, 28, 2**31 - 1, 2**31, 2**32 - 1])
def test_lengths_that_lie(tmp_path: Path, length: int) -> None:
    """A module that claims another length is refused at once, whatever the length."""
    source = victim(tmp_path / "src")
    good = source.read_bytes()
    for module in modules(source):
        changed = good[: module.start] + length.to_bytes(4, "little") + good[module.start + 4 :]
        source.write_bytes(changed)
        refused(decrypt, source)
    source.write_bytes(good[:-8] + length.to_bytes(4, "little") + good[-4:])
    refused(decrypt, source, FormatError, VerificationError)


@pytest.mark.parametrize("action", [decrypt, rewrap])
def test_truncated(tmp_path: Path, action: Action) -> None:
    """A file that is cut anywhere, at its end, its beginning or in its middle, is refused."""
    source = victim(tmp_path / "src")
    good = source.read_bytes()
    for at in range(0, len(good), 37):
        for cut in (good[:at], good[at + 1 :], good[:at] + good[at + 1 :]):
            if action is rewrap and cut == good[:at] + good[at + 1 :] and at < read_footer(good).offset:
                continue  # pages moved by a byte: their footer still opens, and pages are not what rewrap looks at
            source.write_bytes(cut)
            refused(action, source)


def swap(data: bytes, first: Module, other: Module, from_data: bytes | None = None) -> bytes:
    """Put the bytes of one module in the place of another of the same size."""
    assert first.end - first.start == other.end - other.start
    return data[: first.start] + (from_data or data)[other.start : other.end] + data[first.end :]


@pytest.mark.parametrize(
    ("place", "other"),
    [
        ("page 0 of 0/1", "page 2 of 0/1"),  # the header of another page of the chunk
        ("page 1 of 0/1", "page 3 of 0/1"),  # its body
        ("page 0 of 0/0", "page 0 of 1/0"),  # a dictionary's header of another row group
        ("page 1 of 0/0", "page 1 of 1/0"),  # a dictionary
        ("page 3 of 0/0", "page 3 of 1/0"),  # a data page of another row group
        ("page 1 of 0/1", "page 1 of 1/1"),
        ("column index 0 of 0/0", "column index 0 of 1/0"),
        ("column index 0 of 0/0", "column index 0 of 0/1"),
        ("offset index 0 of 0/0", "offset index 0 of 1/0"),
        ("Bloom filter 1 of 0/0", "Bloom filter 1 of 1/0"),
        ("Bloom filter 0 of 0/0", "Bloom filter 0 of 1/0"),
    ],
)
@pytest.mark.parametrize("action", ACTIONS)
def test_modules_swapped(tmp_path: Path, place: str, other: str, action: Action) -> None:
    """A module in another's place, in the same file or from the same place of another file, does not authenticate."""
    source, second = victim(tmp_path / "src"), victim(tmp_path / "second", first=100)
    data = source.read_bytes()
    found = {module.what: module for module in modules(source)}
    foreign = {module.what: module for module in modules(second)}
    if found[place].end - found[place].start == found[other].end - found[other].start:
        source.write_bytes(swap(data, found[place], found[other]))
        refused(action, source, VerificationError)
    if found[place].end - found[place].start == foreign[place].end - foreign[place].start:
        source.write_bytes(swap(data, found[place], foreign[place], second.read_bytes()))
        refused(action, source, VerificationError)


def test_modules_of_the_same_size_were_swapped(tmp_path: Path) -> None:
    """The sizes that the test above needs are there, so that it swaps what it says."""
    sizes = {module.what: module.end - module.start for module in modules(victim(tmp_path / "src"))}
    foreign = {module.what: module.end - module.start for module in modules(victim(tmp_path / "x", first=100))}
    assert sizes["page 1 of 0/1"] == sizes["page 3 of 0/1"] == sizes["page 1 of 1/1"] == foreign["page 1 of 0/1"]
    assert sizes["page 0 of 0/1"] == sizes["page 2 of 0/1"] and sizes["page 3 of 0/0"] == sizes["page 3 of 1/0"]
    assert sizes["page 1 of 0/0"] == sizes["page 1 of 1/0"] and sizes["page 0 of 0/0"] == sizes["page 0 of 1/0"]
    assert sizes["Bloom filter 1 of 0/0"] == sizes["Bloom filter 1 of 1/0"]
    assert sizes["column index 0 of 0/0"] == sizes["column index 0 of 1/0"] == foreign["column index 0 of 0/0"]


def test_row_groups_swapped(tmp_path: Path) -> None:
    """Data of two row groups exchanged as a whole, chunks of equal sizes, does not authenticate."""
    source = victim(tmp_path / "src")
    data, places = source.read_bytes(), metadata_of(source, retrieve)
    starts = [places[group, 0].dictionary_page_offset or 0 for group in (0, 1)]
    size = starts[1] - starts[0]
    assert places[1, 0].total_compressed_size + places[1, 1].total_compressed_size == size
    source.write_bytes(
        data[: starts[0]] + data[starts[1] : starts[1] + size] + data[starts[0] : starts[1]] + data[starts[1] + size :]
    )
    refused(decrypt, source, VerificationError)


def test_footer_of_another_file(tmp_path: Path) -> None:
    """The footer of another file under the same keys and prefix does not open this one's pages."""
    source, second = victim(tmp_path / "src"), victim(tmp_path / "second", first=100)
    data, other = source.read_bytes(), second.read_bytes()
    assert read_footer(data).offset == read_footer(other).offset
    source.write_bytes(data[: read_footer(data).offset] + other[read_footer(other).offset :])
    refused(decrypt, source, VerificationError)


@pytest.mark.parametrize("count", [1, 8, 19])
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("action", [*ACTIONS, rewrap])
def test_border_of_prefix_and_file_unique(tmp_path: Path, count: int, back: bool, action: Action) -> None:
    """Bytes moved over the border between prefix and file-unique leave every AAD as it was, and are refused."""
    source = victim(tmp_path / "src")
    before = read_footer(source).file_aad

    def shift(crypto: Struct) -> None:
        found = forge.parameters(crypto)
        both = PREFIX + found[forge.UNIQUE]  # type: ignore[operator]
        border = len(PREFIX) + min(count, 8) if back else len(PREFIX) - count
        found[forge.PREFIX], found[forge.UNIQUE] = both[:border], both[border:]

    forge.change_crypto_metadata(source, shift)
    assert read_footer(source).file_aad == before
    assert "file-unique is" in refused(action, source, VerificationError)


def test_whole_files_swapped(tmp_path: Path) -> None:
    """Another file of the same keys in this one's place is found by its prefix alone, if the caller verifies it."""
    source = victim(tmp_path / "src")

    def expect(prefix: bytes) -> None:
        if prefix != b"table/p=1/f.parquet\x00":
            raise VerificationError("another file's prefix")

    actions: tuple[Callable[[], object], ...] = (
        lambda: rewrite_file(source, tmp_path / "out", retrieve_key=retrieve, aad_prefix=expect),
        lambda: rewrap_file(
            source, tmp_path / "out", retrieve_key=retrieve, aad_prefix=expect, new_keys=NewKeys(lambda *_: b"")
        ),
    )
    for action in actions:
        with pytest.raises(VerificationError, match="another file's prefix"):
            action()
    forge.put(source, write_plain(tmp_path / "plain", content()).read_bytes())
    with pytest.raises(VerificationError, match="not encrypted"):
        rewrite_file(source, tmp_path / "out", retrieve_key=retrieve, aad_prefix=expect)
    assert rewrite_file(source, tmp_path / "out", retrieve_key=retrieve).unauthenticated == ()


def test_algorithm_changed(tmp_path: Path) -> None:
    """GCM relabelled as CTR opens what nobody wrote, and the result never calls its pages authenticated.

    The algorithm is not authenticated: callers that know which to expect compare it, as the jobs do.
    """
    source = victim(tmp_path / "src")
    good = verify_file(source, retrieve_key=retrieve)
    assert good.authenticated == "all"

    def relabel(crypto: Struct) -> None:
        algorithm = crypto[forge.ALGORITHM]
        assert isinstance(algorithm, Struct)
        algorithm[forge.CTR] = algorithm.pop(forge.GCM)

    forge.change_crypto_metadata(source, relabel)
    result = rewrite_file(source, tmp_path / "out", retrieve_key=retrieve)
    assert set(result.unauthenticated) == {"pages of column a", "pages of column b"}
    with pytest.raises(VerificationError):
        verify_file(tmp_path / "out", equal_to=good.digest)


def test_algorithm_that_is_none(tmp_path: Path) -> None:
    """No algorithm, or both, is refused."""
    for number in (0, 2):
        source = victim(tmp_path / f"src{number}")

        def change(crypto: Struct, number: int = number) -> None:
            algorithm = crypto[forge.ALGORITHM]
            assert isinstance(algorithm, Struct)
            if number:
                algorithm[forge.CTR] = algorithm[forge.GCM]
            else:
                del algorithm[forge.GCM]

        forge.change_crypto_metadata(source, change)
        refused(decrypt, source, FormatError)


@pytest.mark.parametrize("how", ["signature", "algorithm", "both", "crypto too", "all traces"])
@pytest.mark.parametrize("action", [decrypt, encrypt_anew])
def test_signed_footer_stripped(tmp_path: Path, how: str, action: Action) -> None:
    """A signed footer without signature, algorithm or both is refused.

    One stripped of every trace is a plaintext file with pages that are none, which are found though they are copied,
    and a prefix that is verified refuses it.
    """
    source = victim(tmp_path / "src", mode="plaintext")
    data = source.read_bytes()
    footer, end = decode_struct(data[forge.footer_start(source) : -8])
    signature = data[forge.footer_start(source) : -8][end:]
    if how != "signature":
        del footer[field_key(8, 12)]
    if how in ("both", "crypto too", "all traces"):
        del footer[field_key(9, 8)]
    if how in ("crypto too", "all traces"):
        for chunk in forge.chunks(footer):
            del chunk[forge.CRYPTO]
            if how == "all traces":
                del chunk[forge.ENCRYPTED_META_DATA]
    forge.replace_footer(source, encode_struct(footer) + (signature if how == "algorithm" else b""), b"PAR1")
    with pytest.raises((FormatError, VerificationError)):
        rewrite_file(source, tmp_path / "out", retrieve_key=retrieve, aad_prefix=lambda _: None)
    refused(action, source, FormatError)


def test_signed_footer_changed(tmp_path: Path) -> None:
    """A signed footer with another row count, or columns declared plaintext, is refused by its signature."""
    for change in (lambda footer: footer.update({field_key(3, 6): 39}), _declare_plaintext):
        source = victim(tmp_path / f"src{id(change)}", mode="plaintext")
        data = source.read_bytes()
        footer, end = decode_struct(data[forge.footer_start(source) : -8])
        signature = data[forge.footer_start(source) : -8][end:]
        change(footer)
        forge.replace_footer(source, encode_struct(footer) + signature, b"PAR1")
        refused(decrypt, source, VerificationError)


def _declare_plaintext(footer: Struct) -> None:
    for chunk in forge.chunks(footer):
        del chunk[forge.CRYPTO]
        del chunk[forge.ENCRYPTED_META_DATA]


def test_encrypted_column_declared_plaintext_by_the_footer_s_holder(tmp_path: Path) -> None:
    """Whoever holds the footer's key may declare a column plaintext: its pages are then no pages."""
    source = victim(tmp_path / "src")

    def change(footer: Struct) -> None:
        for chunk in forge.chunks(footer):
            if (metadata := metadata_of(source, retrieve).get((0, 0))) is not None:
                chunk.setdefault(ColumnChunk.meta_data.key, metadata.struct)
            chunk.pop(forge.CRYPTO)
            chunk.pop(forge.ENCRYPTED_META_DATA, None)

    forge.change_footer(source, retrieve, change)
    refused(encrypt_anew, source, FormatError)


def test_chunks_of_another_row_group_by_the_footer_s_holder(tmp_path: Path) -> None:
    """Sealed metadata and pages of row group 0 shown as row group 1's do not authenticate under its ordinal."""
    source = victim(tmp_path / "src")

    def change(footer: Struct) -> None:
        first, _, third, _ = forge.chunks(footer)
        third.clear()
        third.update(first)

    forge.change_footer(source, retrieve, change)
    refused(decrypt, source, VerificationError)
    refused(rewrap, source, VerificationError)


def test_offsets_by_the_footer_s_holder(tmp_path: Path) -> None:
    """Offsets and sizes beyond the file, in metadata that authenticates, are refused without reading there."""
    for key, value in (
        (ColumnMetaData.total_compressed_size.key, 2**50),
        (ColumnMetaData.data_page_offset.key, -1),
        (ColumnMetaData.num_values.key, 7),
        (ColumnMetaData.bloom_filter_offset.key, 2**50),
    ):
        source = victim(tmp_path / f"src{key}")

        def change(footer: Struct, key: int = key, value: int = value) -> None:
            for chunk in forge.chunks(footer):
                metadata = chunk.get(ColumnChunk.meta_data.key)
                if isinstance(metadata, Struct):
                    metadata[key] = value

        forge.change_footer(source, retrieve, change)
        refused(decrypt, source, FormatError)


@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
def test_what_nothing_authenticates(tmp_path: Path, algorithm: str) -> None:
    """Levels of V2 pages and pages under CTR can be altered unseen: the result of the rewrite says so."""
    source = victim(tmp_path / "src", algorithm=algorithm, version="2.0")
    good = verify_file(source, retrieve_key=retrieve)
    data = bytearray(source.read_bytes())
    start = metadata_of(source, retrieve)[0, 1].data_page_offset
    header = 4 + int.from_bytes(data[start : start + 4], "little")
    data[start + header] ^= 2  # the first byte after the header is of the levels
    source.write_bytes(data)
    result = rewrite_file(source, tmp_path / "out", retrieve_key=retrieve)
    assert "levels of V2 pages of column b" in result.unauthenticated
    assert ("pages of column b" in result.unauthenticated) == (algorithm != "AES_GCM_V1")
    with pytest.raises(VerificationError):
        verify_file(tmp_path / "out", equal_to=good.digest)

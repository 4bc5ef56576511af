from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.files.parquet import FOOTER_KEY, FileEncryption, read_footer, rewrite_file, verify_file
from sparkcrypt.files.parquet.thrift.compact import BINARY, STRUCT, List, Struct, field_key
from sparkcrypt.files.parquet.thrift.metadata import ColumnMetaData, FileMetaData, KeyValue
from tests.unit.parquet.rewriting import (
    arrow_read,
    clear_metadata,
    column_chunks,
    metadata_of,
    new_encryption,
    patch_footer,
    write_plain,
)
from tests.unit.parquet.writers import ALGORITHMS, Keys

LOW, HIGH, MIDDLE = "AAAA-canary-low", "zzzz-canary-high", "mmmm-canary-middle"
SECRETS = (LOW, HIGH, MIDDLE)
VISIBLE = "visible-canary"
GEO = '{"columns": {"place": {"bbox": [13.3777, 52.5163, 13.3778, 52.5164]}}}'


def secrets(**more: Any) -> pa.Table:
    """Return a table whose secret column has distinctive bounds, and one that is not secret."""
    return pa.table(
        {
            "secret": [LOW, MIDDLE, HIGH] * 40,
            "open": [VISIBLE, None, "x"] * 40,
            "number": pa.array([0x1122334455667788, 0x1223344556677889, 0x7766554433221100] * 40, pa.int64()),
            **more,
        }
    )


def write_secrets(path: Path, **options: Any) -> Path:
    """Write them with all that could tell of them around the pages."""
    blooms = {"secret": {"ndv": 3}, "number": {"ndv": 3}}
    return write_plain(path, secrets(), compression="none", bloom_filter_options=blooms, **options)


def texts(path: Path) -> bytes:
    """Return a file's bytes, and those that stand in it base64-encoded under ``ARROW:schema``."""
    data = path.read_bytes()
    footer = read_footer(data)
    entries = footer.metadata.key_value_metadata if footer.metadata is not None else None
    encoded = [entry.value or "" for entry in entries or () if entry.key == "ARROW:schema"]
    return data + b"".join(base64.b64decode(text) for text in encoded)


def names(path: Path, keys: Keys | None = None) -> list[str]:
    """Return the keys of a footer's key-value metadata."""
    footer = read_footer(path, retrieve_key=keys)
    assert footer.metadata is not None
    return [entry.key for entry in footer.metadata.key_value_metadata or ()]


@pytest.mark.parametrize("mode", ["encrypted", "plaintext"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_no_value_stands_in_the_file(
    tmp_path: Path, mode: str, algorithm: str, own: bool, version: str, dictionary: bool
) -> None:
    """No value of an encrypted column is anywhere in the target's bytes, whatever its pages and footer are."""
    plain = write_secrets(tmp_path / "plain", data_page_version=version, use_dictionary=dictionary)
    paths = (("secret",), ("number",))
    encryption = (
        new_encryption(*paths, footer_mode=mode, algorithm=algorithm)
        if own
        else new_encryption(footer_mode=mode, algorithm=algorithm, columns=dict.fromkeys(paths, FOOTER_KEY))
    )
    numbers = [value.to_bytes(8, "little") for value in (0x1122334455667788, 0x7766554433221100)]
    assert all(text.encode() in texts(plain) for text in SECRETS) and all(n in texts(plain) for n in numbers)
    rewrite_file(plain, tmp_path / "out", encryption=encryption)
    found = texts(tmp_path / "out")
    assert not [text for text in SECRETS if text.encode() in found] and not [n for n in numbers if n in found]
    assert VISIBLE.encode() in found
    assert (VISIBLE.encode() in found[read_footer(tmp_path / "out").offset :]) == (mode == "plaintext")


def test_what_a_redacted_chunk_says(tmp_path: Path) -> None:
    """Beside its encrypted metadata a chunk says in clear where it is and how large, and nothing of its values."""
    plain = write_secrets(tmp_path / "plain")

    def add(footer: Struct) -> None:
        for metadata in _metadata(footer):
            metadata[ColumnMetaData.geospatial_statistics.key] = Struct()
            metadata[ColumnMetaData.key_value_metadata.key] = List(12)
            metadata[field_key(77, BINARY)] = LOW.encode()

    patch_footer(plain, add)
    encryption = new_encryption(("secret",), footer_mode="plaintext", columns={("number",): FOOTER_KEY})
    rewrite_file(plain, tmp_path / "out", encryption=encryption)
    footer = read_footer(tmp_path / "out")
    assert footer.metadata is not None
    allowed = {
        field.key
        for field in (
            ColumnMetaData.type,
            ColumnMetaData.encodings,
            ColumnMetaData.path_in_schema,
            ColumnMetaData.codec,
            ColumnMetaData.num_values,
            ColumnMetaData.total_uncompressed_size,
            ColumnMetaData.total_compressed_size,
            ColumnMetaData.data_page_offset,
            ColumnMetaData.dictionary_page_offset,
        )
    }
    for chunk in footer.metadata.row_groups[0].columns[::2]:
        assert chunk.meta_data is not None and chunk.encrypted_column_metadata is not None
        assert set(chunk.meta_data.struct) <= allowed
    plaintext = footer.metadata.row_groups[0].columns[1]
    assert plaintext.crypto_metadata is None and plaintext.meta_data is not None
    assert plaintext.meta_data.statistics is not None and plaintext.meta_data.size_statistics is not None
    inside = metadata_of(tmp_path / "out", Keys())[0, 0]
    assert inside.statistics is not None and inside.statistics.min_value == LOW.encode()
    assert inside.struct[field_key(77, BINARY)] == LOW.encode()


def _metadata(footer: Struct) -> list[Struct]:
    return [clear_metadata(chunk).struct for chunk in column_chunks(footer)]


KEY, VALUE = KeyValue.key.key, KeyValue.value.key
LEAKING = {
    "PANDAS_ATTRS": "{}",
    "geo": GEO,
    "huggingface": '{"info": {"features": {"secret": {"names": ["a", "b"], "_type": "ClassLabel"}}}}',
    "r": "A\n3\nlabels",
    "hoodie_min_record_key": LOW,
    "hoodie_max_record_key": HIGH,
    "hoodie_bloom_filter_type_code": "SIMPLE",
    "org.apache.hudi.bloomfilter": "AAAA",
    "com.uber.hoodie.bloomfilter": "AAAA",
}
KEPT = {"writer.model.name": "example", "org.apache.spark.version": "4.3.0", "geometry": "x", "not pandas": "x"}


def test_key_values_of_other_tools(tmp_path: Path) -> None:
    """What geo and Hudi writers leave in the footer goes from a plaintext one, and is named; the rest stays."""
    plain = write_plain(tmp_path / "plain", secrets(), store_schema=False)
    entries = [Struct({KEY: name.encode(), VALUE: text.encode()}) for name, text in (LEAKING | KEPT).items()]
    patch_footer(plain, lambda footer: footer.update({FileMetaData.key_value_metadata.key: List(STRUCT, entries)}))
    result = rewrite_file(plain, tmp_path / "out", encryption=new_encryption(("secret",), footer_mode="plaintext"))
    assert sorted(names(tmp_path / "out")) == sorted(KEPT)
    assert all(any(repr(name) in note for note in result.notes) for name in LEAKING)


@pytest.mark.parametrize(
    "encryption",
    [None, new_encryption(("secret",)), new_encryption(footer_mode="plaintext")],
    ids=["none", "pare", "signed"],
)
def test_key_values_stay_where_nothing_is_told(tmp_path: Path, encryption: FileEncryption | None) -> None:
    """They stay in encrypted footers, and in plaintext ones of files without an encrypted column."""
    content = secrets().replace_schema_metadata({**LEAKING, **KEPT})
    plain = write_plain(tmp_path / "plain", content)
    result = rewrite_file(plain, tmp_path / "out", encryption=encryption)
    assert names(tmp_path / "out", Keys()) == names(plain) and result.notes == ()


@pytest.mark.parametrize("entry", sorted(LEAKING))
def test_arrow_schema_repeats_them(tmp_path: Path, entry: str) -> None:
    """``ARROW:schema`` holds the same entries once more, in base64, and loses them too."""
    plain = write_plain(tmp_path / "plain", secrets().replace_schema_metadata({entry: LEAKING[entry], "k": "v"}))
    told = max(entry, LEAKING[entry], key=len).encode()  # "r" alone is anywhere
    assert told in texts(plain)
    result = rewrite_file(plain, tmp_path / "out", encryption=new_encryption(("secret",), footer_mode="plaintext"))
    assert names(tmp_path / "out") == ["k", "ARROW:schema"]
    assert told not in texts(tmp_path / "out")
    assert any("ARROW:schema" in note for note in result.notes)
    assert arrow_read(tmp_path / "out").to_pydict() == secrets().to_pydict()


def test_arrow_schema_without_them_stays(tmp_path: Path) -> None:
    """An ``ARROW:schema`` without such entries stays, so that types that Parquet does not know survive."""
    content = secrets(big=pa.array(["x"] * 120, pa.large_string())).replace_schema_metadata({"geometry": "x"})
    rewrite_file(
        write_plain(tmp_path / "plain", content),
        tmp_path / "out",
        encryption=new_encryption(("secret",), footer_mode="plaintext"),
    )
    assert "ARROW:schema" in names(tmp_path / "out")
    assert arrow_read(tmp_path / "out") == content


def test_arrow_schema_that_cannot_be_read_goes(tmp_path: Path) -> None:
    """What stands under ``ARROW:schema`` and is no base64 is not trusted to tell nothing."""
    plain = write_plain(tmp_path / "plain", secrets(), store_schema=False)
    entry = Struct({KEY: b"ARROW:schema", VALUE: b"abc"})
    patch_footer(plain, lambda footer: footer.update({FileMetaData.key_value_metadata.key: List(STRUCT, [entry])}))
    rewrite_file(plain, tmp_path / "out", encryption=new_encryption(("secret",), footer_mode="plaintext"))
    assert names(tmp_path / "out") == []


def test_pandas_frames(tmp_path: Path) -> None:
    """A frame's attributes and index bounds, which pandas keeps in the footer twice, are in no plaintext footer."""
    frame = pd.DataFrame({"secret": [LOW, HIGH], "v": [1, 2]}, index=pd.RangeIndex(11235813, 11235815))
    frame.attrs = {"note": MIDDLE}
    frame.to_parquet(tmp_path / "plain")
    assert MIDDLE.encode() in texts(tmp_path / "plain")
    encryption = new_encryption(("secret",), footer_mode="plaintext")
    rewrite_file(tmp_path / "plain", tmp_path / "out", encryption=encryption)
    found = texts(tmp_path / "out")
    assert MIDDLE.encode() not in found and b"11235813" not in found
    rewrite_file(tmp_path / "plain", tmp_path / "pare", encryption=new_encryption(("secret",)))
    rewrite_file(tmp_path / "pare", tmp_path / "back", retrieve_key=Keys())
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "back"), frame)


@pytest.mark.parametrize(
    ("order", "kept"),
    [([1], [1]), ([0], []), ([1, 0], [1]), ([0, 1], []), ([1, 2, 0], [1]), ([], [])],
)
def test_sorting_columns(tmp_path: Path, order: list[int], kept: list[int]) -> None:
    """A plaintext footer keeps the sorting columns before the first encrypted one; an encrypted footer keeps all."""
    plain = write_secrets(tmp_path / "plain", sorting_columns=[pq.SortingColumn(index) for index in order] or None)
    for mode, expected in (("plaintext", kept), ("encrypted", order)):
        encryption = new_encryption(("secret",), footer_mode=mode, columns={("number",): FOOTER_KEY})
        result = rewrite_file(plain, tmp_path / mode, encryption=encryption)
        metadata = read_footer(tmp_path / mode, retrieve_key=Keys()).metadata
        assert metadata is not None
        for group in metadata.row_groups:
            assert [column.column_idx for column in group.sorting_columns or ()] == expected
        assert any("sorting columns" in note for note in result.notes) == (expected != order)


def test_redacted_file_is_whole_again_for_its_key(tmp_path: Path) -> None:
    """Decrypting a plaintext-footer file gives back what its chunks had: bounds, sizes, Bloom filters."""
    plain = write_secrets(tmp_path / "plain")
    digest = verify_file(plain).digest
    rewrite_file(plain, tmp_path / "a", encryption=new_encryption(("secret",), footer_mode="plaintext"))
    rewrite_file(tmp_path / "a", tmp_path / "b", retrieve_key=Keys())
    verify_file(tmp_path / "b", equal_to=digest)
    assert pq.read_metadata(tmp_path / "b").row_group(0).column(0).statistics.max == HIGH


def test_repr_of_encryption_holds_no_key() -> None:
    """Neither data keys nor encryptions show key bytes."""
    encryption = new_encryption(("a",))
    shown = repr(encryption) + str(encryption.columns)
    for key in (encryption.footer.key, encryption.columns["a",].key):  # type: ignore[union-attr]
        assert key.hex() not in shown and repr(key)[2:-1] not in shown

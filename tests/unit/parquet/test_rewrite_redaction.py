"""What a plaintext footer may say of encrypted columns."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.files.parquet import FOOTER_KEY, FileEncryption, read_footer, rewrite_file, verify_file
from sparkcrypt.files.parquet.rewrite import footer_writer
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


CANARY = "CANARYofValues"
AVRO = {
    "type": "record",
    "name": "People",
    "namespace": "a.b",
    "doc": CANARY,
    "fields": [
        {"name": "secret", "type": ["null", "string"], "default": CANARY, "doc": CANARY, "aliases": [CANARY]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": [CANARY, "B"], "default": CANARY}},
        {"name": "other", "type": ["null", "string", "a.b.Kind"], "order": "ignore", CANARY: CANARY},
        {"name": "day", "type": {"type": "int", "logicalType": "date", "tags": CANARY}},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "Kind"}}},
    ],
}
AVRO_KEPT = {
    "type": "record",
    "name": "People",
    "namespace": "a.b",
    "fields": [
        {"name": "secret", "type": ["null", "string"]},
        {"name": "kind", "type": "string"},
        {"name": "other", "type": ["null", "string"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
    ],
}
ICEBERG = {
    "type": "struct",
    "schema-id": 0,
    "identifier-field-ids": [1],
    "fields": [
        {"id": 1, "name": "secret", "required": True, "type": "string", "doc": CANARY, "write-default": CANARY},
        {
            "id": 2,
            "name": "l",
            "required": False,
            "initial-default": [CANARY],
            "type": {"type": "list", "element-id": 3, "element": "long", "element-required": True},
        },
    ],
}
ICEBERG_KEPT = {
    "type": "struct",
    "schema-id": 0,
    "identifier-field-ids": [1],
    "fields": [
        {"id": 1, "name": "secret", "required": True, "type": "string"},
        {
            "id": 2,
            "name": "l",
            "required": False,
            "type": {"type": "list", "element-id": 3, "element": "long", "element-required": True},
        },
    ],
}


def entries(path: Path) -> dict[str, str]:
    """Return a footer's key-value metadata."""
    metadata = read_footer(path, retrieve_key=Keys()).metadata
    assert metadata is not None
    return {entry.key: entry.value or "" for entry in metadata.key_value_metadata or ()}


def rewritten(tmp_path: Path, told: dict[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the entries, and the notes, of a file with these entries that gets a plaintext footer."""
    plain = write_plain(tmp_path / "plain", pa.table({"secret": ["x"]}), store_schema=False)
    structs = [Struct({KeyValue.key.key: k.encode(), KeyValue.value.key: v.encode()}) for k, v in told.items()]
    patch_footer(plain, lambda footer: footer.update({FileMetaData.key_value_metadata.key: List(STRUCT, structs)}))
    result = rewrite_file(plain, tmp_path / "out", encryption=new_encryption(("secret",), footer_mode="plaintext"))
    return entries(tmp_path / "out"), result.notes


@pytest.mark.parametrize(
    ("name", "schema", "kept"),
    [
        ("avro.schema", AVRO, AVRO_KEPT),
        ("parquet.avro.schema", AVRO, AVRO_KEPT),
        ("iceberg.schema", ICEBERG, ICEBERG_KEPT),
    ],
)
def test_schemas_without_docs_defaults_and_symbols(tmp_path: Path, name: str, schema: Any, kept: Any) -> None:
    """They stay, for readers that need types and ids, without what may be values; a note says so."""
    found, notes = rewritten(tmp_path, {name: json.dumps(schema)})
    assert json.loads(found[name]) == kept
    assert any(name in note for note in notes)
    (tmp_path / "again").mkdir()
    assert rewritten(tmp_path / "again", found) == (found, ())


@pytest.mark.parametrize("name", ["avro.schema", "parquet.avro.schema", "iceberg.schema", "pandas"])
@pytest.mark.parametrize("text", [CANARY, f'"{CANARY}', f'{{"type": {{"{CANARY}": 1}}}}', "[" * 100_000, "[]", "1"])
def test_schemas_that_cannot_be_read_go(tmp_path: Path, name: str, text: str) -> None:
    """What is no such schema does not stay."""
    found, _ = rewritten(tmp_path, {name: text})
    assert CANARY not in str(found)


def test_frames_of_pandas_keep_their_types(tmp_path: Path) -> None:
    """Index columns and types stay; bounds of a range, attributes and counts go, from Arrow's copy too."""
    frame = pd.DataFrame({"secret": pd.Categorical([CANARY, "x"]), "v": pd.array([1, None], "Int64")})
    frame.index = pd.Index(["a", "b"], name="row")
    frame.attrs = {"note": CANARY}
    frame.to_parquet(tmp_path / "plain", use_dictionary=False, compression="none")
    rewrite_file(tmp_path / "plain", tmp_path / "out", encryption=new_encryption(("secret",), footer_mode="plaintext"))
    found = entries(tmp_path / "out")
    assert json.loads(found["pandas"])["index_columns"] == ["row"]
    assert CANARY not in str(found) and CANARY.encode() not in base64.b64decode(found["ARROW:schema"])
    rewrite_file(tmp_path / "out", tmp_path / "back", retrieve_key=Keys())
    again = pd.read_parquet(tmp_path / "back")
    pd.testing.assert_frame_equal(again, frame)
    assert again.attrs == {}


def test_arrow_fields_lose_their_metadata(tmp_path: Path) -> None:
    """Arrow's schema keeps types and extensions; other metadata of fields, nested ones too, and leaking entries go."""
    inner = pa.struct([pa.field("x", pa.large_string(), metadata={"note": CANARY, "PARQUET:field_id": "9"})])
    schema = pa.schema(
        [
            pa.field("secret", pa.large_string(), metadata={"doc": CANARY}),
            pa.field("s", pa.list_(pa.field("element", inner, metadata={"m": CANARY}))),
            pa.field("d", pa.dictionary(pa.int8(), pa.string())),
        ],
        metadata={"geo": CANARY, "keep": "visible", "iceberg.schema": json.dumps(ICEBERG)},
    )
    content = pa.table(
        [["a"], [[{"x": "b"}]], pa.array(["c"]).dictionary_encode().cast(schema.field("d").type)], schema
    )
    pq.write_table(content, tmp_path / "plain", compression="none")
    assert CANARY.encode() in base64.b64decode(entries(tmp_path / "plain")["ARROW:schema"])
    result = rewrite_file(
        tmp_path / "plain", tmp_path / "out", encryption=new_encryption(("secret",), footer_mode="plaintext")
    )
    found = entries(tmp_path / "out")
    told = base64.b64decode(found["ARROW:schema"])
    assert CANARY.encode() not in told and b"visible" in told
    assert CANARY.encode() not in (tmp_path / "out").read_bytes()
    assert any("ARROW:schema" in note for note in result.notes)
    read = arrow_read(tmp_path / "out")
    assert read.schema.remove_metadata().equals(content.schema.remove_metadata())
    assert read.to_pydict() == content.to_pydict()
    assert read.schema.metadata[b"keep"] == b"visible"


@pytest.mark.parametrize("change", [lambda raw: raw[:40], lambda raw: raw[:60] + bytes(len(raw) - 60), lambda raw: b""])
def test_arrow_schemas_that_are_cut_go(tmp_path: Path, change: Any) -> None:
    """What cannot be followed to its end does not stay."""
    schema = pa.schema([pa.field("secret", pa.string(), metadata={"doc": CANARY})])
    told = base64.b64encode(change(b"\xff\xff\xff\xff" + schema.serialize().to_pybytes()[4:])).decode()
    found, _ = rewritten(tmp_path, {"ARROW:schema": told})
    assert "ARROW:schema" not in found or CANARY.encode() not in base64.b64decode(found["ARROW:schema"])


def test_verification_names_statistics_in_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics of an encrypted column that another writer left in a plaintext footer are named, and nothing else."""
    plain = write_plain(tmp_path / "plain", pa.table({"secret": ["x"], "open": ["y"]}))
    rewrite_file(plain, tmp_path / "good", encryption=new_encryption(("secret",), footer_mode="plaintext"))
    assert verify_file(tmp_path / "good", retrieve_key=Keys()).in_clear == ()
    told = (*footer_writer._IN_CLEAR, ColumnMetaData.statistics.key, ColumnMetaData.size_statistics.key)
    monkeypatch.setattr(footer_writer, "_IN_CLEAR", told)
    rewrite_file(plain, tmp_path / "out", encryption=new_encryption(("secret",), footer_mode="plaintext"))
    found = verify_file(tmp_path / "out", retrieve_key=Keys())
    assert found.in_clear == ("statistics of column secret", "size statistics of column secret")
    assert found.to_dict()["in_clear"] == list(found.in_clear)


def test_keys_of_a_shredded_variant(tmp_path: Path) -> None:
    """They are names in the schema, so a rewrite under a plaintext footer is refused; other VARIANTs are not."""
    part = {"value": None, "typed_value": "x"}
    rows = [
        {"v": {"metadata": b"m", "value": b"v", "typed_value": {CANARY: part}}, "w": {"metadata": b"m", "value": b"v"}}
    ]
    plain = write_plain(tmp_path / "plain", pa.Table.from_pylist(rows, _VARIANTS))
    paths = [("v", "metadata"), ("v", "value"), *((("v", "typed_value", CANARY, name)) for name in part)]
    for mode in ("encrypted", "plaintext"):
        rewrite_file(plain, tmp_path / f"w-{mode}", encryption=new_encryption(("w", "value"), footer_mode=mode))
    rewrite_file(plain, tmp_path / "pare", encryption=new_encryption(*paths))
    with pytest.raises(UnsupportedFileError, match="column v is a VARIANT"):
        rewrite_file(plain, tmp_path / "signed", encryption=new_encryption(*paths, footer_mode="plaintext"))
    assert not (tmp_path / "signed").exists()


_PART = pa.struct([("value", pa.binary()), ("typed_value", pa.string())])
_VARIANTS = pa.schema(
    [
        (
            "v",
            pa.struct(
                [("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.struct([(CANARY, _PART)]))]
            ),
        ),
        ("w", pa.struct([("metadata", pa.binary()), ("value", pa.binary())])),
    ]
)

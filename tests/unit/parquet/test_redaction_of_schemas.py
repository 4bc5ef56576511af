"""What plaintext footers keep of the schemas that Avro, Iceberg, pandas and Arrow put into key-value metadata."""

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
from sparkcrypt.files.parquet import read_footer, rewrite_file, verify_file
from sparkcrypt.files.parquet.rewrite import footer_writer
from sparkcrypt.files.parquet.thrift.compact import STRUCT, List, Struct
from sparkcrypt.files.parquet.thrift.metadata import ColumnMetaData, FileMetaData, KeyValue
from tests.unit.parquet.rewriting import arrow_read, new_encryption, patch_footer, write_plain
from tests.unit.parquet.writers import Keys

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

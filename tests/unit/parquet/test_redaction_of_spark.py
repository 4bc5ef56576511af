"""What plaintext footers say of encrypted columns in Spark's own schema, and in fields that nobody knows yet."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkcrypt.errors import UnsupportedFileError
from sparkcrypt.files.parquet import FOOTER_KEY, FileEncryption, read_footer, rewrite_file, verify_file
from sparkcrypt.files.parquet.thrift.compact import BINARY, Struct, field_key
from sparkcrypt.files.parquet.thrift.metadata import ColumnChunk, FileMetaData
from sparkcrypt.names import SPARK_SCHEMA
from tests.unit.parquet.rewriting import (
    REDACTED,
    left_over,
    new_encryption,
    patch_footer,
    source_digest,
    write_plain,
)
from tests.unit.parquet.writers import Keys

CANARY, OTHER = "CANARY-an-encrypted-value", "CANARY-a-bound"
ML = {"ml_attr": {"type": "nominal", "vals": [CANARY, "b"], "name": "secret"}}
BOUNDS = {"ml_attr": {"type": "numeric", "min": OTHER, "max": 7.5}}
KEPT: dict[str, Any] = {
    "comment": "e-mail",
    "tags": ["pii", "fin"],
    "__CHAR_VARCHAR_TYPE_STRING": "char(7)",
    "__COLLATIONS": {"secret": "icu.UNICODE_CI"},
    "parquet.field.id": 7,
}


def field(name: str, kind: Any = "string", **metadata: Any) -> dict[str, Any]:
    """Return a field as Spark writes it."""
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    """Return a struct as Spark writes it."""
    return {"type": "struct", "fields": list(fields)}


def mapping(key: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """Return a map of structs as Spark writes it."""
    return {"type": "map", "keyType": struct(key), "valueType": struct(value), "valueContainsNull": True}


def compact(schema: Any) -> str:
    """Return a schema's text as Spark writes it."""
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def rewritten(
    folder: Path, schema: str, encryption: FileEncryption | None = None, entries: dict[str, str] | None = None
) -> tuple[str, Any]:
    """Rewrite a file with such a schema in its footer; return the schema of the target, and the result."""
    content = pa.table({"secret": [CANARY, "b"], "open": [1, 2]}).replace_schema_metadata(entries)
    plain = folder / "plain"
    with pq.ParquetWriter(plain, content.schema, store_schema=bool(entries), compression="none") as writer:
        writer.write_table(content)
        writer.add_key_value_metadata({SPARK_SCHEMA: schema})
    chosen = encryption or new_encryption(("secret",), footer_mode="plaintext")
    result = rewrite_file(plain, folder / "out", encryption=chosen)
    metadata = read_footer(folder / "out", retrieve_key=Keys()).metadata
    assert metadata is not None
    found = {entry.key: entry.value or "" for entry in metadata.key_value_metadata or ()}
    return found.get(SPARK_SCHEMA, ""), result


PLACES = {
    "the encrypted field": (
        struct(field("secret", **ML), field("open", "long")),
        struct(field("secret"), field("open", "long")),
    ),
    "its index, which is in clear": (
        struct(field("secret"), field("open", "long", **ML)),
        struct(field("secret"), field("open", "long")),
    ),
    "bounds": (struct(field("secret", **BOUNDS)), struct(field("secret"))),
    "what nobody knows": (struct(field("secret", new={"deep": [CANARY]}, **KEPT)), struct(field("secret", **KEPT))),
    "a default": (
        struct(field("secret", CURRENT_DEFAULT=f"'{CANARY}'", EXISTS_DEFAULT=CANARY)),
        struct(field("secret")),
    ),
    "a struct's field": (
        struct(field("s", struct(field("secret", **ML)), tags="pii")),
        struct(field("s", struct(field("secret")), tags="pii")),
    ),
    "an element's field": (
        struct(field("a", {"type": "array", "elementType": struct(field("secret", **ML)), "containsNull": False})),
        struct(field("a", {"type": "array", "elementType": struct(field("secret")), "containsNull": False})),
    ),
    "a map's key and value": (
        struct(field("m", mapping(field("k", **ML), field("v", **ML)))),
        struct(field("m", mapping(field("k"), field("v")))),
    ),
    "a type of users": (
        struct(field("u", {"type": "udt", "class": "a.B", "pyClass": "a.B", "sqlType": struct(field("x", **ML))})),
        struct(field("u", {"type": "udt", "class": "a.B", "pyClass": "a.B", "sqlType": struct(field("x"))})),
    ),
    "beside a type's parts": (
        {**struct(field("secret")), "statistics": CANARY},
        struct(field("secret")),
    ),
    "beside a field's parts": (struct({**field("secret"), "bounds": CANARY}), struct(field("secret"))),
    "a known name over another kind": (
        struct(field("secret", tags={"x": CANARY}, comment=[CANARY], **{"parquet.field.id": CANARY})),
        struct(field("secret")),
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_metadata_of_fields(tmp_path: Path, place: str) -> None:
    """What a schema says of fields beyond types, comments and tags is in no plaintext footer, wherever it stood."""
    schema, expected = PLACES[place]
    found, result = rewritten(tmp_path, compact(schema))
    assert json.loads(found) == expected
    assert any(f"metadata of fields in {SPARK_SCHEMA}" in note for note in result.notes)
    content = (tmp_path / "out").read_bytes()
    assert CANARY.encode() not in content and OTHER.encode() not in content


UNREADABLE = {
    "no JSON": CANARY,
    "cut": compact(struct(field("secret", **ML)))[:-1],
    "an old writer's": f"StructType(List(StructField({CANARY},StringType,true)))",
    "no type": json.dumps({"fields": [CANARY]}),
    "an unknown type": json.dumps({"type": "new", "of": CANARY}),
    "fields of another kind": json.dumps({"type": "struct", "fields": {CANARY: 1}}),
    "metadata of another kind": json.dumps(struct({**field("secret"), "metadata": [CANARY]})),
    "half a character": json.dumps(struct(field("\ud800", **ML))),
    "too deep": '{"type":"array","elementType":' * 100_000,
    "empty": "",
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_schema_that_cannot_be_read(tmp_path: Path, what: str) -> None:
    """It is not trusted to tell nothing: all of it goes, and the result names it."""
    found, result = rewritten(tmp_path, UNREADABLE[what])
    assert found == ""
    assert any(repr(SPARK_SCHEMA) in note for note in result.notes)
    assert CANARY.encode() not in (tmp_path / "out").read_bytes()


def test_a_name_twice_in_the_json(tmp_path: Path) -> None:
    """Metadata that a second entry of the same name covers goes with its text, though no parser sees it."""
    text = compact(struct(field("secret"))).replace('"metadata"', f'"metadata":{{"ml_attr":"{CANARY}"}},"metadata"')
    found, _ = rewritten(tmp_path, text)
    assert found == compact(struct(field("secret")))


def test_a_schema_that_tells_nothing_stays(tmp_path: Path) -> None:
    """One of names, types, comments and tags stays as it is, byte for byte, and nothing is said."""
    text = compact(struct(field("sécret", "decimal(10,2)", **KEPT), field("open", "long")))
    found, result = rewritten(tmp_path, text)
    assert found == text and result.notes == ()


@pytest.mark.parametrize(
    "encryption",
    [new_encryption(("secret",)), new_encryption(footer_mode="plaintext")],
    ids=["encrypted footer", "no encrypted column"],
)
def test_metadata_stays_where_nothing_is_told(tmp_path: Path, encryption: FileEncryption) -> None:
    """An encrypted footer keeps it, and so does the plaintext one of a file without an encrypted column."""
    text = compact(struct(field("secret", **ML)))
    found, result = rewritten(tmp_path, text, encryption)
    assert found == text and result.notes == ()


def test_files_without_rows(tmp_path: Path) -> None:
    """The footer of a file without row groups, such as Spark writes for an empty partition, keeps no values either."""
    content = pa.table({"secret": pa.array([], pa.string())})
    with pq.ParquetWriter(tmp_path / "plain", content.schema) as writer:
        writer.add_key_value_metadata({SPARK_SCHEMA: compact(struct(field("secret", **ML)))})
    rewrite_file(tmp_path / "plain", tmp_path / "out", encryption=new_encryption(("secret",), footer_mode="plaintext"))
    assert CANARY.encode() not in (tmp_path / "out").read_bytes()


def test_arrow_repeats_the_schema(tmp_path: Path) -> None:
    """``ARROW:schema`` of what pyarrow read from Spark and wrote again repeats it in base64, and loses the same."""
    text = compact(struct(field("secret", **ML)))
    rewritten(tmp_path, text, entries={SPARK_SCHEMA: text})
    stored = pq.read_metadata(tmp_path / "plain").metadata or {}
    assert CANARY.encode() in base64.b64decode(stored[b"ARROW:schema"])
    metadata = read_footer(tmp_path / "out").metadata
    assert metadata is not None
    (told,) = [entry.value or "" for entry in metadata.key_value_metadata or () if entry.key == "ARROW:schema"]
    assert CANARY.encode() not in base64.b64decode(told)
    assert CANARY.encode() not in (tmp_path / "out").read_bytes()


def add_field(path: Path, column: int) -> Path:
    """Give the chunks of a column a field that no specification has."""

    def add(footer: Struct) -> None:
        for group in FileMetaData(footer).row_groups:
            group.columns[column].struct[field_key(10, BINARY)] = CANARY.encode()

    return patch_footer(path, add)


@pytest.mark.parametrize("own", [True, False])
def test_unknown_fields_of_an_encrypted_chunk(tmp_path: Path, own: bool) -> None:
    """They would stand in a plaintext footer, so the rewrite is refused by name, and leaves nothing."""
    plain = add_field(write_plain(tmp_path / "plain", pa.table({"open": [1, 2], "secret": ["a", "b"]})), 1)
    encryption = (
        new_encryption(("secret",), footer_mode="plaintext")
        if own
        else new_encryption(footer_mode="plaintext", columns={("secret",): FOOTER_KEY})
    )
    with pytest.raises(
        UnsupportedFileError, match=r"plain: .*column secret .*field 10 of its ColumnChunk.*Spark engine"
    ):
        rewrite_file(plain, tmp_path / "out", encryption=encryption)
    assert left_over(tmp_path) == ["plain"]


def test_unknown_fields_stay_where_nothing_is_told(tmp_path: Path) -> None:
    """They stay at a plaintext column of a plaintext footer, and at an encrypted one of an encrypted footer."""
    content = pa.table({"open": [1, 2], "secret": ["a", "b"]})
    first = add_field(write_plain(tmp_path / "first", content), 0)
    second = add_field(write_plain(tmp_path / "second", content), 1)
    rewrite_file(first, tmp_path / "a", encryption=new_encryption(("secret",), footer_mode="plaintext"))
    rewrite_file(second, tmp_path / "b", encryption=new_encryption(("secret",)))
    assert CANARY.encode() in (tmp_path / "a").read_bytes()
    assert CANARY.encode() not in (tmp_path / "b").read_bytes()
    for source, target in ((first, "a"), (second, "b")):
        verify_file(tmp_path / target, retrieve_key=Keys(), equal_to=source_digest(source))


def test_fields_that_are_known_are_no_reason(tmp_path: Path) -> None:
    """Indexes of a chunk are known, and a file with all of them is rewritten."""
    plain = write_plain(tmp_path / "plain", pa.table({"secret": ["a", "b"]}))
    rewrite_file(plain, tmp_path / "out", encryption=new_encryption(("secret",), footer_mode="plaintext"))
    metadata = read_footer(tmp_path / "out").metadata
    assert metadata is not None
    assert ColumnChunk.column_index_offset.key in metadata.row_groups[0].columns[0].struct
    parts = {k: v for k, v in verify_file(plain).digests.items() if k not in REDACTED}
    verify_file(tmp_path / "out", retrieve_key=Keys(), equal_to=parts)

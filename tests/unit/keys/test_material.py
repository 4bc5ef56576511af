"""Key material: the JSON of parquet-mr, and everything else that is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sparkcrypt.errors import FormatError
from sparkcrypt.keys.material import KeyMaterial, parse_key_material

FOOTER = KeyMaterial(True, "DEFAULT", "DEFAULT", "arn:aws:x/é", "d2Rlaw==", "a2VraWQ=", "local:v1:AAAA")
COLUMN = KeyMaterial(False, None, None, "pii", "d2Rlaw==", "a2VraWQ=", "vault:v1:AAAA")
SINGLE = KeyMaterial(False, None, None, "pii", "vault:v1:AAAA")


@pytest.mark.parametrize("material", [FOOTER, COLUMN, SINGLE])
def test_material_reads_back(material: KeyMaterial) -> None:
    """What is written is read as it was, double or single wrapped, of footer or column."""
    assert parse_key_material(material.to_bytes()) == material


def test_footer_material_has_the_fields_of_parquet_mr() -> None:
    """Names, types and order are those of KeyMaterial.createSerialized; the key id is percent-encoded."""
    assert FOOTER.to_bytes().decode() == (
        '{"keyMaterialType":"PKMT1","internalStorage":true,"isFooterKey":true,"kmsInstanceID":"DEFAULT",'
        '"kmsInstanceURL":"DEFAULT","masterKeyID":"arn%3Aaws%3Ax%2F%C3%A9","wrappedDEK":"d2Rlaw==",'
        '"doubleWrapping":true,"keyEncryptionKeyID":"a2VraWQ=","wrappedKEK":"local:v1:AAAA"}'
    )


def test_column_material_has_no_instance_and_single_wrapping_no_kek() -> None:
    """A column's material leaves the instance out, a single-wrapped one the KEK."""
    assert set(json.loads(COLUMN.to_bytes())) == {
        "keyMaterialType", "internalStorage", "isFooterKey", "masterKeyID", "wrappedDEK", "doubleWrapping",
        "keyEncryptionKeyID", "wrappedKEK",
    }  # fmt: skip
    assert set(json.loads(SINGLE.to_bytes())) == {
        "keyMaterialType", "internalStorage", "isFooterKey", "masterKeyID", "wrappedDEK", "doubleWrapping",
    }  # fmt: skip
    assert not SINGLE.double_wrapped


def test_unknown_fields_are_passed_over() -> None:
    """A later version of the key tools may add fields."""
    document = {**json.loads(COLUMN.to_bytes()), "later": [1]}
    assert parse_key_material(json.dumps(document).encode()) == COLUMN


def test_master_key_id_of_another_writer_is_read() -> None:
    """Other writers put key ids there as they are."""
    document = {**json.loads(COLUMN.to_bytes()), "masterKeyID": "arn:aws:x"}
    assert parse_key_material(json.dumps(document).encode()) == replace(COLUMN, master_key_id="arn:aws:x")


_FIELDS: dict[str, Any] = json.loads(FOOTER.to_bytes())
_OTHERS: tuple[Any, ...] = (None, 1, "yes", True, {}, ["x"])
_WRONG = [
    (name, value)
    for name in _FIELDS
    for value in _OTHERS
    if (name == "keyMaterialType" or not isinstance(value, type(_FIELDS[name])))
    and not (name.startswith("kmsInstance") and value is None)
]


@pytest.mark.parametrize(("missing", "value"), _WRONG)
def test_field_that_is_missing_or_of_another_type_is_refused(missing: str, value: Any) -> None:
    """A field that is absent, or is not what parquet-mr writes there, is a FormatError that names it."""
    document = json.loads(FOOTER.to_bytes())
    del document[missing]
    if value is not None:
        document[missing] = value
    with pytest.raises(FormatError, match=f"{missing}|PKMT1"):
        parse_key_material(json.dumps(document).encode())


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff\xfe", b"[]", b"null", b'"PKMT1"', b"NaN", b"[" * 100_000, b"0123456789abcdef", b'{"a":1,"a":2}'],
)
def test_bytes_that_are_not_key_material_are_refused(data: bytes) -> None:
    """Key metadata of another scheme, garbage and nesting without end are FormatErrors."""
    with pytest.raises(FormatError):
        parse_key_material(data)


def test_field_that_stands_twice_is_refused() -> None:
    """Readers differ on which of two equal fields counts, so neither does."""
    text = COLUMN.to_bytes().decode().replace('"masterKeyID":"pii"', '"masterKeyID":"pii","masterKeyID":"fin"')
    with pytest.raises(FormatError):
        parse_key_material(text.encode())


def test_material_outside_the_file_is_refused_with_the_property_to_set() -> None:
    """External key material is named as such."""
    document = {"keyMaterialType": "PKMT1", "internalStorage": False, "keyReference": "footerKey"}
    with pytest.raises(FormatError, match=r"material\.store\.internally=true"):
        parse_key_material(json.dumps(document).encode())

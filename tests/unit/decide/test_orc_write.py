"""What is decided for an ORC file that is written: which columns stand encrypted, in the words of ORC's options."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.bridge.operations import Operations
from sparkcrypt.decide.orc_write import resolve_orc_write
from sparkcrypt.errors import ConfigError, PlanError, VerificationError
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.policy.key_service import KeyServiceConfig
from tests.unit.decide.requests import JOB, PREFIX, TABLE, policy, schema

FILE = "part-00000-0c7ebd5e-90f2-4b0e-a1a1-6f7f9a2b4c3d-c000.snappy.orc"
FORMATS = {"formats": ["parquet", "orc"]}


def write(of: str, path: str = f"file:/w/t/{JOB}/{FILE}", **more: Any) -> dict[str, Any]:
    """Return a request about a file with this schema."""
    return {"policy": policy(**FORMATS, **more.pop("policy", {})), "path": path, "schema": of, "properties": {}, **more}


def of_types(**types: Any) -> str:
    """Return Spark schema JSON of columns tagged ``pii``, of these types."""
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {"tags": ["pii"]}} for name, kind in types.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


def test_tags_of_the_schema_and_the_properties_name_columns() -> None:
    """Keys stand percent-encoded, each with its columns; readers without them get nulls."""
    answer = resolve_orc_write(write(schema(id=[], ssn=[], pay=["finance"]), properties={PREFIX + "tags.ssn": "pii"}))
    assert answer == {
        "encrypt": True,
        "orc_encrypt": "fin%3A1:pay;pii:ssn",
        "orc_mask": "nullify:pay,ssn",
        "columns": ["pay", "ssn"],
        "keys": ["fin%3A1", "pii"],
    }


def test_untagged_file_is_in_clear() -> None:
    """Nothing of ORC's encryption is asked for."""
    assert resolve_orc_write(write(schema(id=[]))) == {"encrypt": False}


def test_columns_are_named_as_orc_names_them() -> None:
    """Elements, keys and values have names of their own; what has one key as a whole is named as a whole."""
    array = {"type": "array", "containsNull": True, "elementType": "string"}
    pair = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
    tagged = {PREFIX + "tags.a.element": "pii", PREFIX + "tags.m.value": "pii"}
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in (("a", array), ("m", pair))
    ]
    text = json.dumps({"type": "struct", "fields": fields})
    assert resolve_orc_write(write(text, properties=tagged))["columns"] == ["a", "m._value"]
    assert resolve_orc_write(write(of_types(a=array, m=pair)))["columns"] == ["a", "m"]


def test_names_that_need_quotes_have_them() -> None:
    """A dot or a space inside a name stands in backquotes."""
    assert resolve_orc_write(write(of_types(**{"a.b": "string", "c d": "string"})))["columns"] == ["`a.b`", "`c d`"]


@pytest.mark.parametrize("name", ["a,b", "a;b", "a:b", "a`b"])
def test_name_that_no_quotes_can_hold_is_refused(name: str) -> None:
    """ORC splits its options at these signs first."""
    with pytest.raises(PlanError, match=r"cannot stand in the options.*rename the column"):
        resolve_orc_write(write(of_types(**{name: "string"})))


def test_keys_of_templates_follow_the_partition() -> None:
    """The file's own place says which; where it does not, the write is refused."""
    tagged = schema(ssn=["monthly"])
    found = resolve_orc_write(write(tagged, f"file:/w/t/{JOB}/day=2026-03-04/{FILE}"))
    assert found["keys"] == ["m-2026-03"]
    moved = resolve_orc_write(write(tagged, target=f"file:/else/day=2026-05-06/{FILE}"))
    assert moved["keys"] == ["m-2026-05"]
    with pytest.raises(PlanError, match="day"):
        resolve_orc_write(write(tagged))


def test_table_that_requires_encryption_refuses_a_file_without_tags() -> None:
    """Its tags may have been lost on the way."""
    required = {PREFIX + "table": "a.b", PREFIX + "require_encryption": "true"}
    with pytest.raises(PlanError, match="requires encryption"):
        resolve_orc_write(write(schema(id=[]), properties=required))


def test_keys_by_hand_are_refused() -> None:
    """As for Parquet files."""
    with pytest.raises(ConfigError, match=r"parquet\.encryption\.column\.keys"):
        resolve_orc_write(write(schema(id=[]), properties={**TABLE, "parquet.encryption.column.keys": "k:id"}))


def test_length_that_orc_lacks_is_refused() -> None:
    """ORC has local keys of 128 and 256 bits."""
    with pytest.raises(PlanError, match="192"):
        resolve_orc_write(write(schema(ssn=["pii"]), policy={"data_key_bits": 192}))


def test_local_keys_open_under_the_key_that_the_file_names(tmp_path: Path) -> None:
    """A new key for each column; its material under another master key than the file says is refused."""
    config = KeyServiceConfig.from_dict({"type": "local", "path": str(tmp_path)})
    service = LocalKeyService(config)
    service.create("pii")
    service.create("fin")
    operations, asked = Operations(), {"key_service": config.canonical(), "policy": None}
    made = [operations.answer({"op": "make_key", "key_id": "pii", "bits": 256, **asked}) for _ in range(2)]
    assert len({answer["key"] for answer in made}) == 2
    assert [len(base64.b64decode(answer["key"])) for answer in made] == [32, 32]
    opening = {"op": "open_key", "key_metadata": made[0]["key_metadata"], "path": "f.orc", **asked}
    assert operations.answer({**opening, "expected_key_id": "pii"})["key"] == made[0]["key"]
    with pytest.raises(VerificationError, match=r"f\.orc.*'pii', and the file names 'fin'"):
        operations.answer({**opening, "expected_key_id": "fin"})

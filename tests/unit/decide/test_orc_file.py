"""What is decided for an ORC file: which columns stand encrypted in it, and whether a reader believes it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.bridge.operations import Operations
from sparkcrypt.decide.file import resolve_orc_read, resolve_orc_write
from sparkcrypt.errors import ConfigError, PlanError, VerificationError
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.material import KeyMaterial
from sparkcrypt.policy.key_service import KeyServiceConfig
from tests.unit.decide.requests import JOB, PREFIX, TABLE, policy, schema
from tests.unit.schema.message_types import fields_of

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
        "orc_encrypt": "`fin%3A1`:pay;pii:ssn",
        "orc_mask": "nullify:pay,ssn",
        "columns": ["pay", "ssn"],
        "keys": ["fin%3A1", "pii"],
        "file_identity": base64.b64encode(f"-/{FILE}\0".encode()).decode(),
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
    making = {"op": "make_key", "key_id": "pii", "bits": 256, "file_identity": bound_to("-/f.orc"), **asked}
    made = [operations.answer(making) for _ in range(2)]
    assert len({answer["key"] for answer in made}) == 2
    assert [len(base64.b64decode(answer["key"])) for answer in made] == [32, 32]
    opening = {"op": "open_key", "key_metadata": made[0]["key_metadata"], "path": "/t/f.orc", **asked}
    assert operations.answer({**opening, "expected_key_id": "pii"})["key"] == made[0]["key"]
    with pytest.raises(VerificationError, match=r"f\.orc.*'pii', and the file names 'fin'"):
        operations.answer({**opening, "expected_key_id": "fin"})
    with pytest.raises(VerificationError, match=r"/t/g\.orc: was written as 'f\.orc' and renamed or copied since"):
        operations.answer({**opening, "expected_key_id": "pii", "path": "/t/g.orc"})


def bound_to(identity: str) -> str:
    """Return what a file's keys are bound to, in base64."""
    return base64.b64encode(f"{identity}\0".encode()).decode()


UUID = "0c7ebd5e-90f2-4b0e-a1a1-6f7f9a2b4c3d"


def local_key(identity: str | None, key_id: str = "pii") -> str:
    """Return a wrapped local key, which nobody opens here."""
    bound = None if identity is None else f"{identity}\0".encode()
    material = KeyMaterial(False, None, None, key_id, "dek", "kek", "wrapped", bound)
    return base64.b64encode(material.to_bytes()).decode()


def read(*columns: dict[str, Any], path: str = "file:/w/t/f.orc", **more: Any) -> dict[str, Any]:
    """Return a request of a reader about a file with these columns, in a table of a UUID that requires encryption."""
    told = {PREFIX + "table.name": "a.b", PREFIX + "table.uuid": UUID, PREFIX + "tags.ssn": "pii"}
    required = {PREFIX + "require_encryption": "true"} if more.pop("required", True) else {}
    mode = "encrypted" if any(column["encrypted"] for column in columns) else "plaintext"
    footer = {"mode": mode, "columns": list(columns), "fields": fields_of(column["path"] for column in columns)}
    said = {"policy": policy(**{**FORMATS, **more.pop("policy", {})}), "path": path, "footer": footer}
    return {**said, "properties": {**told, **required, **more}}


def column(name: str, identity: str | None = None, key_id: str = "pii", key_name: str = "pii") -> dict[str, Any]:
    """Return an encrypted column."""
    key = local_key(identity, key_id)
    return {"path": [name], "encrypted": True, "key_metadata": key, "key_name": key_name}


def plain(name: str) -> dict[str, Any]:
    """Return a column in plaintext."""
    return {"path": [name], "encrypted": False}


def test_file_in_its_place_is_read() -> None:
    """With the key that the policy wants for its column, and bound to this table, partition and name."""
    assert resolve_orc_read(read(column("ssn", f"{UUID}/f.orc"), plain("id"))) == {"table": "a.b"}
    inside = "file:/w/t/p=1/f.orc"
    resolve_orc_read(read(column("ssn", f"{UUID}/p=1/f.orc"), path=inside))
    resolve_orc_read(read(column("ssn", f"{UUID}/*/f.orc"), path=inside))
    resolve_orc_read(read(column("ssn", "-/f.orc"), required=False))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([column("ssn")], "nothing ties its local keys to this file"),
        ([column("ssn", "f.orc/")], "belongs to table f.orc|was written as"),
        ([column("ssn", f"{UUID}/g.orc")], "was written as 'g.orc' and renamed or copied since"),
        ([column("ssn", "other/f.orc")], "belongs to table other, not to"),
        ([column("ssn", f"{UUID}/p=1/f.orc")], "was written for partition 'p=1' and moved"),
        ([column("ssn", "-/f.orc")], "with no table's identity, and this table requires one"),
        ([column("ssn", f"{UUID}/f.orc"), column("id", f"{UUID}/g.orc")], "was written as 'g.orc'"),
        (
            [column("ssn", f"{UUID}/f.orc", key_name="fin%3A1")],
            "by master key 'pii', and the file names 'fin:1'",
        ),
        ([column("ssn", f"{UUID}/f.orc", "other", "other")], "encrypted with 'other'; the policy wants 'pii'"),
        (
            [plain("ssn"), column("id", f"{UUID}/f.orc")],
            "column ssn is plaintext, and the tag 'pii'",
        ),
        ([plain("ssn"), plain("id")], "is plaintext, and a.b requires encryption"),
        ([plain("id")], "is plaintext, and a.b requires encryption"),
    ],
)
def test_file_that_is_not_what_it_should_be_is_refused(columns: list[dict[str, Any]], said: str) -> None:
    """Moved, with local keys of another file, under another key, or in plaintext; the file is named."""
    with pytest.raises(VerificationError, match=f"^file:/w/t/f.orc: .*({said})"):
        resolve_orc_read(read(*columns))


def test_plaintext_is_read_where_nothing_forbids_it() -> None:
    """In a table that requires no encryption, and where the policy leaves ORC in plaintext."""
    resolve_orc_read(read(plain("ssn"), required=False))
    resolve_orc_read(read(plain("ssn"), policy={"formats": ["parquet"]}))
    with pytest.raises(VerificationError, match="belongs to table other"):
        resolve_orc_read(read(column("ssn", "other/f.orc"), policy={"formats": ["parquet"]}))

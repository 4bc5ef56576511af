"""What a write may say of encrypted columns beside the data, and in the footer of each file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkcrypt.decide.file import resolve_read, resolve_write
from sparkcrypt.decide.values_in_clear import check_bucketing, check_written, refuse_naming
from sparkcrypt.errors import ConfigError, PlanError
from tests.unit.decide.requests import JOB, NAME, PREFIX, footer_of, policy, read, write

FILE = f"file:/w/t/{JOB}/{NAME}"
OPTION = PREFIX + "field_metadata"
PLAIN_FOOTER = {"footer": {"key": "footer", "mode": "plaintext"}}


def field(name: str, kind: Any = "string", **metadata: Any) -> dict[str, Any]:
    """Return a field as Spark writes it."""
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    """Return a struct as Spark writes it."""
    return {"type": "struct", "fields": list(fields)}


def request(*fields: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the request about a write of these fields."""
    return {
        "policy": policy(),
        "path": "file:/w/t",
        "properties": {},
        "schema": json.dumps(struct(*fields)),
        "is_parquet": True,
        **changes,
    }


@pytest.mark.parametrize(
    "entry",
    [
        {"ml_attr": {"vals": ["x"]}},
        {"note": "x"},
        {"comment": {"x": 1}},
        {"parquet.field.id": "x"},
        {"lineage": ["x"]},
        {"__COLLATIONS": {"x": 1}, "owner": 5},
    ],
)
def test_metadata_that_may_reveal_values(entry: dict[str, Any]) -> None:
    """It is refused by column and name, left out if the write says so, and nobody's business elsewhere."""
    name = next(reversed(entry))
    tagged = request(field("a", **{"tags": ["pii"], **entry}))
    with pytest.raises(PlanError, match=rf"column a has a tag that encrypts.*{name}.*{OPTION}"):
        check_written(tagged)
    kept = check_written({**tagged, "properties": {OPTION: "Drop"}})["metadata"]["a"]
    assert json.loads(kept) == {"tags": ["pii"]}
    with pytest.raises(ConfigError, match="allowed: refuse, drop"):
        check_written({**tagged, "properties": {OPTION: "dorp"}})
    for harmless in (field("a", **entry), field("a", **{"tags": ["public"], **entry})):
        assert check_written(request(harmless, field("b", tags=["pii"])))["metadata"] == {}


def test_metadata_by_tags_of_the_table() -> None:
    """Tags by properties and rules count, an observing rule refuses nothing, and an absent column is none."""
    plain = field("ssn", ml_attr={})
    for changes in (
        {"properties": {PREFIX + "tags.ssn": "pii", PREFIX + "tags.gone": "pii"}},
        {"policy": policy(tables={"a.b": {"tags": {"ssn": "pii"}, "location": "/w/t"}})},
        {"policy": policy(untagged="deny"), "properties": {PREFIX + "tags.ssn": "pii"}},
    ):
        with pytest.raises(PlanError, match="ml_attr"):
            check_written(request(plain, **changes))
    observed = policy(tables={"a.b": {"tags": {"ssn": "pii"}, "location": "/w/t", "enforce": False}})
    assert check_written(request(plain, policy=observed)) == {"metadata": {}, "options": {}}


def test_metadata_that_spark_adds_is_left_out() -> None:
    """Defaults and marks are nobody's wish, so they are left out unasked; what types and tags need stays."""
    stays = {"tags": ["pii"], "comment": "c", "__CHAR_VARCHAR_TYPE_STRING": "char(3)", "sparkcrypt.masked": "denied"}
    goes = {
        "CURRENT_DEFAULT": "'x'",
        "EXISTS_DEFAULT": "'x'",
        "scale": 3,
        "spark.watermarkDelayMs": 5,
        "delta.x": 1,
        "__any": True,
    }
    assert json.loads(check_written(request(field("a", **stays, **goes)))["metadata"]["a"]) == stays


def test_fields_inside_and_around() -> None:
    """Fields inside a tagged one, and those around one, are judged; beside it they are not."""
    for fields in (
        [field("s", struct(field("x", ml_attr={})), tags=["pii"])],
        [
            field(
                "s", {"type": "array", "elementType": struct(field("x", ml_attr={})), "containsNull": True}, tags="pii"
            )
        ],
        [field("s", {"type": "udt", "sqlType": struct(field("x", ml_attr={}))}, tags="pii")],
    ):
        with pytest.raises(PlanError, match=r"column s\.(element\.)?x"):
            check_written(request(*fields, properties={OPTION: "drop"}))
    around = struct(field("x", tags=["pii"]), field("y", ml_attr={}))
    assert check_written(request(field("s", around)))["metadata"] == {}
    with pytest.raises(PlanError, match="column s has"):
        check_written(request(field("s", around, ml_attr={})))


@pytest.mark.parametrize("kind", ["geometry(0)", "geography(4326, spherical)"])
@pytest.mark.parametrize("footer", ["encrypted", "plaintext"])
def test_bounding_boxes(kind: str, footer: str) -> None:
    """A plaintext footer would have them: refused for tagged columns of Parquet files, by the driver and the writer."""
    text = policy(footer={"key": "footer", "mode": footer})
    tagged = request(field("id"), field("g", kind, tags=["pii"]), policy=text)
    written = write(FILE, ("id", "g"), policy=text, schema=tagged["schema"], properties={PREFIX + "table": "a.b"})
    if footer == "plaintext":
        for check, asked in ((check_written, tagged), (resolve_write, written)):
            with pytest.raises(PlanError, match="column g has a tag that encrypts and the type geo"):
                check(asked)
        assert check_written({**tagged, "is_parquet": False})["options"] == {}
        assert check_written(request(field("g", kind), policy=text))["options"] == {}
    else:
        assert check_written(tagged) == {"metadata": {}, "options": {}}
        assert resolve_write(written)["encrypt"]


def test_options_of_writes() -> None:
    """A tagged VARIANT is not shredded, wherever it is."""
    shredding = "spark.sql.variant.inferShreddingSchema"
    variant = field("v", "variant", tags=["pii"])
    assert check_written(request(variant))["options"] == {shredding: "false"}
    signed = request(field("s", struct(variant)), policy=policy(**PLAIN_FOOTER))
    assert check_written(signed)["options"] == {shredding: "false"}
    assert check_written(request(field("v", "variant"), policy=policy(**PLAIN_FOOTER)))["options"] == {}


def test_file_says_what_is_known_of_its_columns() -> None:
    """The writer's schema loses defaults unasked, and other metadata if the write says so; else it is refused."""
    rows = struct(field("id", ml_attr={}), field("ssn", tags=["pii"], CURRENT_DEFAULT="'x'"))
    asked = write(FILE, ("id", "ssn"), schema=json.dumps(rows), properties={PREFIX + "table": "a.b"})
    answer = json.loads(resolve_write(asked)["schema"])
    assert [entry["metadata"] for entry in answer["fields"]] == [{"ml_attr": {}}, {"tags": ["pii"]}]
    asked["schema"] = asked["schema"].replace("CURRENT_DEFAULT", "ml_attr")
    with pytest.raises(PlanError, match="column ssn"):
        resolve_write(asked)
    asked["properties"] = {**asked["properties"], OPTION: "drop"}
    assert resolve_write(asked)["schema"] == json.dumps(json.loads(json.dumps(answer)), separators=(",", ":"))


def test_shredded_variant_in_a_plaintext_footer() -> None:
    """The writer refuses keys of objects as names; a shredded value without keys has none."""
    rows = json.dumps(struct(field("v", "variant", tags=["pii"])))
    for typed, refused in (("typed_value binary", False), ("typed_value group", True)):
        kind = typed.split()[1]
        inside = {
            "name": "typed_value",
            "kind": "leaf" if kind == "binary" else "group",
            "annotation": None,
            "repetition": "optional",
            "children": []
            if kind == "binary"
            else [{**_leaf("alice"), "kind": "group", "children": [_leaf("value"), _leaf("typed_value")]}],
        }
        message = [{**_leaf("v"), "kind": "group", "children": [_leaf("metadata"), _leaf("value"), inside]}]
        asked = write(FILE, schema=rows, message_type=message, properties={}, policy=policy(**PLAIN_FOOTER))
        if refused:
            with pytest.raises(PlanError, match=r"column v .* shredded"):
                resolve_write(asked)
        else:
            assert resolve_write(asked)["encrypt"]


def _leaf(name: str) -> dict[str, Any]:
    return {"name": name, "kind": "leaf", "annotation": None, "repetition": "optional", "children": []}


def test_buckets() -> None:
    """A new table is refused, one that is there warned of unless the policy denies it; plain columns are allowed."""
    tagged, plain = request(field("id"), field("Born", tags=["pii"])), request(field("id"), field("born"))
    asked = {**tagged, "table_schema": plain["schema"], "target": "a.b", "columns": ["born"], "is_new": False}
    (warning,) = check_bucketing(asked)["warnings"]
    assert check_bucketing({**asked, **plain, "table_schema": tagged["schema"]})["warnings"] == [warning]
    assert "a.b: it is bucketed by column born, which carries the tag 'pii'" in warning
    assert check_bucketing({**asked, "policy": policy(bucketing="warn")})["warnings"] == [warning]
    for changes in ({"is_new": True}, {"policy": policy(bucketing="deny")}):
        with pytest.raises(PlanError, match="bucketed by column born"):
            check_bucketing({**asked, **changes})
        assert check_bucketing({**asked, **changes, "columns": ["id"]}) == {"warnings": []}


def test_columns_named_by_values() -> None:
    """Values of a tagged column may name no columns."""
    asked = request(field("email", tags=["public", "pii"]), operation="pivot")
    with pytest.raises(PlanError, match=r"pivot would name columns by values that carry the tag 'pii'.*column email"):
        refuse_naming(asked)
    assert refuse_naming(request(field("email", tags=["public"]), operation="pivot")) == {}


def test_reader_is_warned_of_bounds_in_clear() -> None:
    """Bounds of an encrypted column in the footer are named, and the file is read."""
    footer = footer_of(resolve_write(write(FILE)))
    footer["columns"][1]["bounds"] = True
    (warning,) = resolve_read(read(f"file:/w/t/{NAME}", footer))["warnings"]
    assert "bounds of the encrypted column ssn" in warning

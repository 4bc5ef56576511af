"""Plans in ORC files: their names of columns, what is encrypted as a whole, and what ORC cannot hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkcrypt.errors import PlanError
from sparkcrypt.plan import EncryptionPlan, build_plan
from sparkcrypt.plan.orc import cover_columns, match_orc_columns, refuse_orc_plan
from sparkcrypt.policy import policy_from_document
from sparkcrypt.schema import Path, schema_from_spark, split_dotted
from sparkcrypt.tags.model import TaggedColumn

ADDRESS = [("street", "string"), ("zip", "integer")]
PHONES = {"type": "array", "elementType": {"type": "struct", "fields": [("num", "string"), ("kind", "string")]}}
PAIRS = {"type": "map", "keyType": "string", "valueType": "integer"}
SCHEMA = [("id", "long"), ("Email", "string"), ("addr", ADDRESS), ("phones", PHONES), ("kv", PAIRS)]


def fields(entries: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    """Return Spark's fields of names and types."""
    found = []
    for name, kind in entries:
        made = {"type": "struct", "fields": fields(kind)} if isinstance(kind, list) else kind
        if isinstance(made, dict) and isinstance(made.get("elementType"), dict):
            made = {**made, "elementType": {"type": "struct", "fields": fields(made["elementType"]["fields"])}}
        nulls = {"containsNull": True, "valueContainsNull": True} if isinstance(made, dict) else {}
        made = {**made, **nulls} if isinstance(made, dict) and made["type"] != "struct" else made
        found.append({"name": name, "type": made, "nullable": True, "metadata": {}})
    return found


def plan(bits: int = 256, **tags: str) -> EncryptionPlan:
    """Return the plan of the schema with these tags; a double underscore stands for a dot."""
    document = {
        "version": 1,
        "key_service": {"type": "own"},
        "footer": {"key": "footer"},
        "untagged": "plaintext",
        "data_key_bits": bits,
        "tags": {"pii": {"key": "pii"}, "finance": {"key": "fin"}, "public": "plaintext"},
    }
    policy = policy_from_document(document, locate=lambda _: "policy")
    schema = schema_from_spark({"type": "struct", "fields": fields(SCHEMA)})
    tagged = [TaggedColumn(split_dotted(path.replace("__", ".")), (tag,), "overlay") for path, tag in tags.items()]
    return build_plan(schema, tagged, policy, table="db.t")


def paths(*names: str) -> tuple[Path, ...]:
    """Return dotted paths as paths."""
    return tuple(map(split_dotted, names))


def matched(*names: str) -> tuple[dict[str, str], tuple[Path, ...]]:
    """Return a file's columns by the plan's logical names, and those that the plan lacks."""
    found, unknown = match_orc_columns(paths(*names), plan())
    return {".".join(path): ".".join(column.leaf.logical) for path, column in found.items()}, unknown


def test_columns_are_found_by_the_names_of_orc() -> None:
    """Elements, keys and values have names of their own, and case differs where only one column fits."""
    names = ("ID", "email", "addr.street", "addr.ZIP", "phones._elem.num", "kv._key", "kv._value")
    assert matched(*names) == (
        {
            "ID": "id",
            "email": "Email",
            "addr.street": "addr.street",
            "addr.ZIP": "addr.zip",
            "phones._elem.num": "phones.element.num",
            "kv._key": "kv.key",
            "kv._value": "kv.value",
        },
        (),
    )
    assert matched("other", "addr.country", "email") == ({"email": "Email"}, paths("other", "addr.country"))


def test_numbered_columns_go_by_position() -> None:
    """Old writers of Hive number the columns of a file; a number beyond the table's columns is unknown."""
    names = ("_col0", "_col1", "_col2.street", "_col2.zip", "_col3._elem.num", "_col4._key", "_col4._value", "_col5")
    found, unknown = matched(*names)
    assert (found["_col1"], found["_col2.street"], found["_col4._key"]) == ("Email", "addr.street", "kv.key")
    assert unknown == paths("_col5")
    assert matched("_col0", "email") == ({"email": "Email"}, paths("_col0"))  # one name, and none is a number


@pytest.mark.parametrize(
    "name", ["email.x", "addr", "phones.element.num", "phones._elem", "phones.num", "kv._elem", "kv"]
)
def test_column_that_is_nested_otherwise_is_refused(name: str) -> None:
    """A file that has another kind of column under a table's name could hide values from their tag."""
    with pytest.raises(PlanError, match=f"column {name} is read as"):
        match_orc_columns(paths(name), plan())


def test_outermost_columns_with_one_key_are_covered() -> None:
    """A list whose leaves have one key is encrypted with its lengths; where keys differ, each leaf is for itself."""
    names = paths("id", "addr.street", "addr.zip", "phones._elem.num", "phones._elem.kind", "kv._key", "kv._value")
    wanted = dict.fromkeys(names[3:], "pii") | {names[1]: "pii", names[2]: "fin"}
    assert cover_columns(names, wanted) == {
        ("addr", "street"): "pii",
        ("addr", "zip"): "fin",
        ("phones",): "pii",
        ("kv",): "pii",
    }
    assert cover_columns(names, {names[3]: "pii"}) == {names[3]: "pii"}
    assert cover_columns(names, {}) == {}


@given(
    st.lists(st.lists(st.sampled_from("abc"), min_size=3, max_size=3).map(tuple), min_size=1, unique=True),
    st.data(),
)
def test_every_leaf_is_under_its_own_key_and_no_root_is_in_another(leaves: list[Path], data: st.DataObject) -> None:
    """Whatever is wanted: what stands encrypted is what was asked for, and nothing is nested."""
    keys = data.draw(st.lists(st.sampled_from(["k", "l", None]), min_size=len(leaves), max_size=len(leaves)))
    wanted = {leaf: key for leaf, key in zip(leaves, keys, strict=True) if key is not None}
    roots = cover_columns(leaves, wanted)
    for leaf in leaves:
        covering = [key for root, key in roots.items() if leaf[: len(root)] == root]
        assert covering == ([wanted[leaf]] if leaf in wanted else [])
    assert all(root for root in roots)


def test_what_orc_cannot_hold() -> None:
    """Keys of a map under another key than its values, or alone; local keys of 192 bits; values alone are fine."""
    for tags in ({"kv__key": "pii"}, {"kv__key": "pii", "kv__value": "finance"}):
        with pytest.raises(PlanError, match="the keys of the map kv would be encrypted otherwise than its values"):
            refuse_orc_plan(plan(256, **tags))
    for allowed in ({"kv": "pii"}, {"kv__value": "pii"}, {"kv__key": "public", "kv__value": "pii"}, {}):
        refuse_orc_plan(plan(256, **allowed))
    refuse_orc_plan(plan(bits=192))  # nothing is to be encrypted
    with pytest.raises(PlanError, match=r"data_key_bits is 192; allowed for ORC: 128 and 256"):
        refuse_orc_plan(plan(bits=192, id="pii"))

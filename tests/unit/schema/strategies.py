"""Random nested Spark types, with names that look like Parquet's own groups."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

PRIMITIVES = ["string", "integer", "long", "double", "boolean", "binary", "date", "timestamp", "decimal(10,2)"]
NAMES = ["a", "b", "C", "list", "element", "array", "bag", "key_value", "key", "value", "map", "x.y", "é"]
TAGS = ["pii", "finance", "public"]


def spark_types(names: list[str] = NAMES) -> st.SearchStrategy[Any]:
    """Return types as Spark's schema JSON writes them."""
    return st.recursive(
        st.sampled_from(PRIMITIVES),
        lambda inner: st.one_of(
            inner.map(lambda element: {"type": "array", "elementType": element, "containsNull": True}),
            st.tuples(st.sampled_from(PRIMITIVES), inner).map(
                lambda pair: {"type": "map", "keyType": pair[0], "valueType": pair[1], "valueContainsNull": True}
            ),
            structs(inner, names),
        ),
        max_leaves=6,
    )


def structs(inner: st.SearchStrategy[Any], names: list[str] = NAMES) -> st.SearchStrategy[Any]:
    """Return structs of one to four fields, some with tags."""
    field = st.tuples(inner, st.lists(st.sampled_from(TAGS), max_size=1))
    return st.dictionaries(st.sampled_from(names), field, min_size=1, max_size=4).map(
        lambda fields: {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {"tags": tags} if tags else {}}
                for name, (kind, tags) in fields.items()
            ],
        }
    )


def spark_schemas(names: list[str] = NAMES) -> st.SearchStrategy[dict[str, Any]]:
    """Return whole schemas."""
    return structs(spark_types(names), names)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "fields", "name", "metadata", "tags", "elementType", "keyType", "valueType", "sqlType"]
            ),
            inner | st.sampled_from(["struct", "array", "map", "udt", "string", "variant"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkcrypt.errors import FormatError
from sparkcrypt.skipping.format.description import Labels, PartitionColumn, description_of

from .stores import TABLE, UDT, index_field, list_type, minmax_type, schema_json, spark_field

BLOOM_TYPE = {"type": "udt", "class": f"io.xskipper.metadatastore.parquet.{UDT}", "pyClass": None, "sqlType": "binary"}


def test_a_store_of_version_4_tells_all() -> None:
    """Indexes with columns, types, parameters and labels, partition columns, and the encryption block are told."""
    found = description_of(
        schema_json(
            [
                spark_field("virtual_dt", "date"),
                index_field("temp_minmax_4", minmax_type("decimal(9,2)"), "minmax", ["temp"], key_metadata="k1"),
                index_field("city_valuelist_4", list_type("string"), "valuelist", ["city"]),
                index_field(
                    "a$#$b_bloomfilter_5", BLOOM_TYPE, "bloomfilter", ["a.b"], params={"x.ndv": "9", "x.fpp": "0.1"}
                ),
            ],
            encryption={"encryption.column.keys": "k1:temp_minmax_4.min", "encryption.footer.key": "f"},
        )
    )
    assert (found.version, found.table) == (4, TABLE)
    assert found.labels == Labels("f", "k1:temp_minmax_4.min", "encrypted")
    assert found.partitions == (PartitionColumn("virtual_dt", "dt", "date"),)
    assert [(index.kind, index.columns, index.type, index.key, index.unused) for index in found.indexes] == [
        ("minmax", ("temp",), "decimal(9,2)", "k1", None),
        ("valuelist", ("city",), "string", None, None),
        ("bloomfilter", ("a.b",), "binary", None, None),
    ]
    assert found.indexes[2].params == (("x.ndv", "9"), ("x.fpp", "0.1"))


def test_parameters_up_to_version_2_are_texts() -> None:
    """Up to version 2 parameters are texts with a colon between name and value."""
    params = ["spark.ibm.metaindex.index.bloom.fpp:0.01", "odd"]
    found = description_of(
        schema_json([index_field("c_bloomfilter", BLOOM_TYPE, "bloomfilter", ["c"], params=params)], 1)
    )
    assert found.indexes[0].params == (("spark.ibm.metaindex.index.bloom.fpp", "0.01"), ("odd", ""))


def test_before_version_4_virtual_fields_are_nothing() -> None:
    """Only version 4 keeps partition columns."""
    assert description_of(schema_json([spark_field("virtual_dt", "date")], 3)).partitions == ()


def test_a_plaintext_footer_is_told() -> None:
    """The block says when its writer left the footer in clear."""
    block = {"encryption.column.keys": "", "encryption.footer.key": "f", "encryption.plaintext.footer": "true"}
    labels = description_of(schema_json([], encryption=block)).labels
    assert labels is not None and labels.footer_mode == "plaintext"


@pytest.mark.parametrize(
    ("field", "why"),
    [
        (index_field("a_geo_1", "binary", "geo", ["a"]), "kind 'geo'"),
        (index_field("a_b_minmax_1-1", minmax_type("long"), "minmax", ["a", "b"]), "2 columns"),
        (index_field("a_minmax_1", minmax_type("string collate UNICODE"), "minmax", ["a"]), "its type"),
        (index_field("a_minmax_1", minmax_type("interval"), "minmax", ["a"]), "its type"),
        (index_field("a_minmax_1", "long", "minmax", ["a"]), "its type"),
        (index_field("a_valuelist_1", list_type("void"), "valuelist", ["a"]), "its type"),
        (index_field("a_bloomfilter_1", "string", "bloomfilter", ["a"]), "its type"),
    ],
)
def test_what_is_not_known_is_listed_and_not_used(field: dict[str, Any], why: str) -> None:
    """An index of another kind, of several columns or of a type that does not compare is there with the reason."""
    (index,) = description_of(schema_json([field])).indexes
    assert why in (index.unused or "")


@pytest.mark.parametrize(
    ("version", "said"), [(None, "index the table again"), (0, "index the table again"), (5, "newer")]
)
def test_other_versions_are_refused_with_the_reason(version: int | None, said: str) -> None:
    """Version 0, which a store without a version is, and versions to come are refused."""
    with pytest.raises(FormatError, match=said):
        description_of(schema_json([], version))


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"fields": 1}', '{"fields": [1]}', '{"fields": [{"name": 1}]}', "[" * 100_000),
        '{"fields": [{"name": "obj_name", "metadata": 1}]}',
        schema_json([], True),
        schema_json([], "4"),  # type: ignore[arg-type]  # as somebody may write it
        schema_json([], encryption=1),
        schema_json([], encryption={"encryption.footer.key": "f"}),
        schema_json([spark_field("a", "long", {"index": 1})]),
        schema_json([index_field("a", "long", "minmax", [1])]),  # type: ignore[list-item]
        schema_json([index_field("a", "long", "minmax", ["a"], params=[1])]),
        schema_json([index_field("a", "long", "minmax", ["a"], key_metadata=1)]),
        schema_json([spark_field("a", "long"), spark_field("a", "long")]),
        json.dumps({"type": "struct", "fields": [spark_field("a", "long")]}),
    ],
)
def test_other_documents_are_refused(text: str) -> None:
    """What is not the JSON of a store's schema is a format error."""
    with pytest.raises(FormatError, match="expected"):
        description_of(text)

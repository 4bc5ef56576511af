"""What a store says of itself and of its objects, and rows as they are packed."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkcrypt.errors import ConfigError, FormatError, SparkcryptError
from sparkcrypt.files.footers import run_parts
from sparkcrypt.log_lines import LogSettings
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.skipping.format.description import (
    BLOOM,
    MINMAX,
    VALUES,
    Index,
    Labels,
    PartitionColumn,
    description_of,
    field_name,
    object_name,
)
from sparkcrypt.skipping.format.store import Bounds, Entry
from sparkcrypt.skipping.indexes.entries import ReadFile, make_index, pack_file, read_file, read_packed, unpack_file
from tests.unit.skipping.keys import Keys
from tests.unit.skipping.tables import UUID, Table

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


def test_the_example_of_the_specification() -> None:
    """The specification's example comes out as it stands there."""
    assert field_name(["lat#_.$_new", "$_lng.#"], "someindex") == "lat##_$#$$_new_$_lng$#$##_someindex_14-10"


@pytest.mark.parametrize(
    ("columns", "kind", "version", "name"),
    [
        (["temp"], "minmax", 1, "temp_minmax"),
        (["a", "b.c"], "idx", 1, "a_b.c_idx"),
        (["temp"], "minmax", 2, "temp_minmax_4"),
        (["a.b"], "valuelist", 4, "a$#$b_valuelist_5"),
        (["naïve"], "bloomfilter", 4, "naïve_bloomfilter_5"),
        (["\U0001f600"], "bloomfilter", 4, "\U0001f600_bloomfilter_2"),
    ],
)
def test_each_version_names_fields_in_its_way(columns: list[str], kind: str, version: int, name: str) -> None:
    """Version 1 joins names; from version 2 on they are escaped, and their lengths follow, in Java's units."""
    assert field_name(columns, kind, version) == name


def test_no_two_indexes_have_one_field() -> None:
    """Columns whose names join to the same text have fields of their own."""
    names = [["a_b", "c"], ["a", "b_c"], ["a#b_c"], ["a.b_c"], ["a$#$b_c"], ["a", "b", "c"]]
    assert len({field_name(columns, "idx") for columns in names}) == len(names)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/t/a.parquet", "/t/a.parquet#5"),
        ("file:/t/a.parquet", "/t/a.parquet#5"),
        ("file:///t/a.parquet", "/t/a.parquet#5"),
        ("s3a://bucket/t/a.parquet", "/t/a.parquet#5"),
        ("hdfs://nn:8020/t/a.parquet", "/t/a.parquet#5"),
        ("/t/at=10:00/a#b.parquet", "/t/at=10:00/a#b.parquet#5"),
        ("hdfs://nn/t/at=10:00/a.parquet", "/t/at=10:00/a.parquet#5"),
    ],
)
def test_an_object_is_its_path_and_time(path: str, name: str) -> None:
    """Scheme and bucket are left out, as upstream does; a colon in a folder's name is none of a scheme."""
    assert object_name(path, 5) == name


LIMITS: dict[str, Any] = {"most_values": 100, "false_positives": 0.01}
INDEXES = (
    make_index("id", MINMAX, "long", **LIMITS),
    make_index("id", BLOOM, "long", **LIMITS),
    make_index("ssn", VALUES, "string", **LIMITS),
    make_index("gone", MINMAX, "long", **LIMITS),
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """One file, its text under a key."""
    keys = Keys(tmp_path / "keys")
    made = Table(tmp_path, keys, keys)
    made.write("a.parquet", 1, 5, uuid=UUID, key="pii")
    return made


def test_what_a_file_holds_arrives_as_it_was(table: Table) -> None:
    """Bounds, lists, filters, the unknown with its reason, facts and summary."""
    path = str(table.root / "data" / "a.parquet")
    found = read_file(path, INDEXES, table.retrieve, b"k" * 32)
    assert found.entries[INDEXES[0]] == Bounds(1, 5)
    assert found.entries[INDEXES[2]] == frozenset({"001-secret", "005-secret"})
    assert "does not have the column" in found.unknown[INDEXES[3]]
    assert unpack_file(pack_file(path, found, INDEXES), INDEXES) == (path, found)


@pytest.mark.parametrize(
    "entry",
    [
        Bounds(None, None),
        Bounds(-0.5, math.inf),
        Bounds(b"\x00\xff", b"\xff"),
        Bounds(Decimal("-1.50"), Decimal("12345678901234567890.12")),
        Bounds(False, True),
        Bounds("", "\U0001f600\x00"),
        frozenset[Any](),
        frozenset({1.5, -2.5}),
        b"\x00filter",
        None,
    ],
)
def test_every_kind_of_value_arrives_in_its_type(table: Table, entry: Any) -> None:
    """Numbers are exact, bytes are bytes, and true is not 1."""
    path = str(table.root / "data" / "a.parquet")
    found = read_file(path, INDEXES[:1], table.retrieve, b"k" * 32)
    made = ReadFile(found.facts, found.summary, {INDEXES[0]: entry}, {})
    _, arrived = unpack_file(pack_file(path, made, INDEXES[:1]), INDEXES[:1])
    assert isinstance(arrived, ReadFile)
    got = arrived.entries[INDEXES[0]]
    assert repr(got) == repr(entry) if isinstance(entry, Bounds) else got == entry


def test_not_a_number_arrives_once(table: Table) -> None:
    """A list has one NaN, and bounds may end in one."""
    path = str(table.root / "data" / "a.parquet")
    found = read_file(path, INDEXES[:2], table.retrieve, b"k" * 32)
    entries: dict[Index, Entry | None] = {
        INDEXES[0]: Bounds(1.0, math.nan),
        INDEXES[1]: frozenset({math.nan, 1.0}),
    }
    packed = pack_file(path, ReadFile(found.facts, found.summary, entries, {}), INDEXES[:2])
    _, arrived = unpack_file(packed, INDEXES[:2])
    assert isinstance(arrived, ReadFile)
    assert repr(arrived.entries[INDEXES[0]]) == "Bounds(least=1.0, greatest=nan)"
    values = arrived.entries[INDEXES[1]]
    assert isinstance(values, frozenset)
    assert len(values) == 2


def test_error_arrives_in_its_class(table: Table) -> None:
    """What cannot be read is the file's outcome, with the class and words that the task met."""
    (table.root / "data" / "b.parquet").write_bytes(b"PAR1 no PAR1")
    chunks = [[str(table.root / "data" / name) for name in ("a.parquet", "b.parquet", "c.parquet")]]
    config = KeyServiceConfig.from_dict({"type": "local", "path": str(table.root / "keys")})
    work = partial(read_packed, INDEXES[:1], config.canonical(), {}, b"k" * 32)
    batches = run_parts(chunks, work, LogSettings(), [pa.RecordBatch.from_pydict({"id": [0]})])
    found = dict(unpack_file(batch.column(0)[0].as_py(), INDEXES[:1]) for batch in batches)
    whole, torn, missing = found.values()
    assert isinstance(whole, ReadFile)
    assert whole.entries == {INDEXES[0]: Bounds(1, 5)}
    assert (type(torn), type(missing)) == (FormatError, FormatError)
    assert "b.parquet" in str(torn)
    error: SparkcryptError = ConfigError("column 'x': cannot be indexed")
    _, arrived = unpack_file(pack_file("p", error, ()), ())
    assert (type(arrived), str(arrived)) == (ConfigError, str(error))

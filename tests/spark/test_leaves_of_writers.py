"""Tables over files whose lists and maps have other forms than Spark writes: found, encrypted, demanded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.arrow import open_table
from sparkcrypt.files.parquet import message_type, read_footer
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import schema_from_parquet, schema_from_spark
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.interop.spark_rows import put_in_clear, row_reader
from tests.spark.passes import the_pass
from tests.spark.support import (
    PLAIN,
    SECRET,
    Lake,
    assert_encrypted,
    encrypted_columns,
    footers,
    refusal,
    rows_of,
)
from tests.unit.schema.writers import LISTS, MAPS, REPEATED, canary, write_as

pytestmark = pytest.mark.spark

TEXTS: Any = {"type": "array", "elementType": "string", "containsNull": True}
PEOPLE = {"type": "struct", "fields": [{"name": name, "type": "string", "metadata": {}} for name in ("name", "ssn")]}
DOCUMENT = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "string", "metadata": {}},
        {"name": "phones", "type": TEXTS, "metadata": {}},
        {"name": "people", "type": {**TEXTS, "elementType": PEOPLE}, "metadata": {}},
    ],
}
COLUMNS = "id STRING, phones ARRAY<STRING>, people ARRAY<STRUCT<name: STRING, ssn: STRING>>"
TOLD = {"phones": ["pii"], "people.element.ssn": ["pii"]}
WANTED = {"phones": "pii", "people.ssn": "pii"}


def without_groups(lake: Lake, policy: Policy) -> list[Any]:
    """Make a table over a file whose lists have no group around them, tag it, and return its rows."""
    folder = lake.root / "external"
    folder.mkdir()
    write_as(folder / "old.parquet", DOCUMENT, partial(pick, REPEATED))
    lake.sql(f"CREATE TABLE t ({COLUMNS}) USING parquet LOCATION '{folder.as_uri()}'")
    set_tags(lake.spark, "t", TOLD, policy)
    return rows_of(lake.spark.table("t"))


def pick(form: str, forms: Sequence[str]) -> str:
    """Return a form where it is one of these, else the first."""
    return form if form in forms else forms[0]


def folder_of(lake: Lake) -> Path:
    """Return the folder that the table points to."""
    return Path(Catalog(lake.spark).table("t").location.removeprefix("file:"))


def test_lists_without_groups_are_encrypted_and_demanded(lake: Lake) -> None:
    """A run encrypts them, every route reads them, and a file with one of them in clear is refused by all."""
    policy = lake.policy()
    before = without_groups(lake, policy)
    assert [list(row) for row in before] == [[canary(0), [canary(1)], [(canary(2), canary(3))]]]
    assert [drift.kind for drift in verify_table(lake.spark, "t", policy).drift] == ["plaintext"]
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    policy = lake.changed("tags:", f"tables:\n  {lake.name('t')}: {{require_encryption: true}}\ntags:")
    lake.spark.catalog.refreshTable("t")
    hidden, visible = [canary(1), canary(3)], [canary(0), canary(2)]
    (file,) = assert_encrypted(folder_of(lake), policy, WANTED, hidden=hidden, visible=visible)
    for rows in (False, True):
        with row_reader(lake.spark, rows):
            assert rows_of(lake.spark.table("t")) == before

    def read() -> list[Any]:
        table = open_table(str(folder_of(lake)), policy, table=lake.name("t"), tags=TOLD)
        return list(table.to_table(["id", "phones"]).to_pylist())

    assert read() == [{"id": canary(0), "phones": [canary(1)]}]
    assert verify_table(lake.spark, "t", policy).ok
    put_in_clear(file, policy, ("phones",))
    lake.spark.catalog.refreshTable("t")
    refused = "column phones is plaintext, and the tag 'pii'"
    assert refused in refusal(rows_of, lake.spark.table("t").select("phones"))
    assert refused in refusal(read)
    (drift,) = verify_table(lake.spark, "t", policy).drift
    assert (drift.kind, drift.column) == ("missing", "phones")


def test_columns_of_each_form_are_those_of_sparks_own_reader(lake: Lake) -> None:
    """Inferred from a file alone, and read into a table's columns, by both of Spark's readers."""
    nested = f"{COLUMNS}, m MAP<STRING, ARRAY<STRING>>, s STRUCT<r: ARRAY<STRING>>"
    for form in (*LISTS, REPEATED, *MAPS):
        columns = nested if form == REPEATED else f"{nested}, l ARRAY<ARRAY<STRUCT<x: STRING>>>"  # Spark cannot read it
        table = lake.spark.createDataFrame([], columns).schema
        wanted = [leaf.logical for leaf in schema_from_spark(table.jsonValue()).leaves()]
        file = write_as(lake.root / f"{form}.parquet", table.jsonValue(), partial(pick, form))
        metadata = read_footer(file).metadata
        assert metadata is not None
        fields = message_type(metadata)
        inferred = schema_from_spark(lake.spark.read.parquet(str(file)).schema.jsonValue())
        for own in (inferred, schema_from_parquet(fields), schema_from_parquet(fields, inferred)):
            assert [leaf.logical for leaf in own.leaves()] == wanted, form
        for rows in (False, True):
            with row_reader(lake.spark, rows):
                (row,) = lake.spark.read.schema(table).parquet(str(file)).collect()
            assert re.findall(r"leaf (\d+)", repr(row)) == [f"{leaf:03}" for leaf in range(len(wanted))], form


def test_column_of_another_shape_and_one_that_the_table_lacks_are_refused_by_name(lake: Lake) -> None:
    """Each quarantines its unit, in a survey and in a pass, and verification names it."""
    policy = lake.policy()
    lake.sql("CREATE TABLE t (id INT, phones ARRAY<STRING>, p INT) USING parquet PARTITIONED BY (p)")
    with lake.stranger() as stranger:
        stranger.sql(f"INSERT INTO t VALUES (1, array('{SECRET}'), 0), (2, array('{SECRET}'), 1), (3, NULL, 2)")
        for number, column in ((0, "phones"), (1, "former")):
            stranger.sql(f"SELECT 1 AS id, '{SECRET}' AS {column}").write.mode("overwrite").parquet(
                str(lake.path("t") / f"p={number}")
            )
    set_tags(lake.spark, "t", {"phones": ["pii"]}, policy)
    drift = {found.kind: found for found in verify_table(lake.spark, "t", policy).drift}
    assert drift.keys() == {"plaintext", "unreadable", "unknown"}
    assert "column phones is read as a list, but" in drift["unreadable"].detail
    assert drift["unknown"].column == "former"
    (table,) = the_pass(lake, policy).tables
    said = {unit["unit"]: unit["message"] for unit in table.quarantined}
    assert said.keys() == {"p=0", "p=1"} and table.files_rewritten == 1
    assert "column phones is read as a list, but" in said["p=0"] and "holds column former" in said["p=1"]


def test_legacy_writer_of_spark_encrypts_each_tagged_leaf(lake: Lake) -> None:
    """Lists of two levels, and maps by their old names, are written under their tags."""
    policy = lake.policy()
    lake.spark.conf.set("spark.sql.parquet.writeLegacyFormat", "true")
    columns = "a ARRAY<STRING>, s ARRAY<STRUCT<x: STRING>>, m MAP<STRING, STRING>, l ARRAY<ARRAY<STRING>>, note STRING"
    lake.sql(f"CREATE TABLE t ({columns}) USING parquet")
    set_tags(lake.spark, "t", {"a": ["pii"], "s.element.x": ["pii"], "m.value": ["pii"], "l": ["fin"]}, policy)
    lake.sql(
        f"INSERT INTO t SELECT array('{SECRET}'), array(named_struct('x', '{SECRET}')), map('{PLAIN}', '{SECRET}'), "
        f"array(array('{SECRET}')), '{PLAIN}'"
    )
    (summary,) = footers(lake.path("t"), policy)
    found = encrypted_columns(summary)
    assert {name.split(".")[0]: key for name, key in found.items()} == {"a": "pii", "s": "pii", "m": "pii", "l": "fin"}
    assert not [name for name in found if ".list." in name]
    assert_encrypted(lake.path("t"), policy, {name: str(key) for name, key in found.items()})
    assert verify_table(lake.spark, "t", policy).ok

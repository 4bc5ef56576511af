"""Lineage and exports of nested columns: by leaves, so that a copy of one field is none of another."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F

from sparkcrypt.cli.tables.lineage import lineage_text
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.scan_tables import Export
from sparkcrypt.runs.passes.lineage import trace_lineage
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.shredding import plan_shredding
from tests.spark.support import Lake, notes_of

pytestmark = pytest.mark.spark

NUMBER, MAIL, CODE = "passenger.phones.list.element.number", "passenger.email", "codes.key_value.value"
QUERIES = {
    "whole": "SELECT id, passenger AS p FROM people",
    "names": "SELECT passenger.name AS name, passenger.phones.kind, passenger.phones[0].kind AS first FROM people",
    "mails": "SELECT upper(passenger.email) AS mail FROM people",
    "phones": "SELECT passenger.phones AS phones FROM people",
    "made": "SELECT named_struct('a', passenger.name, 'b', passenger.email) AS s FROM people",
    "exploded": "SELECT ph.number AS n, ph.kind AS k FROM people LATERAL VIEW explode(passenger.phones) AS ph",
    "coded": "SELECT codes['x'] AS code, codes AS all FROM people",
    "text": "SELECT to_json(passenger) AS j FROM people",
    "cast_by_place": "SELECT q.b AS b FROM (SELECT CAST(passenger AS STRUCT<a: STRING, b: STRING, "
    "c: ARRAY<STRUCT<d: STRING, e: STRING>>>) AS q FROM people)",
    "sorted": "SELECT array_sort(transform(passenger.phones, x -> named_struct('number', x.kind, 'kind', x.number)))"
    ".kind AS kinds FROM people",
    "chosen": "SELECT passenger.name AS name FROM people WHERE passenger.email > ''",
    "second": "SELECT p.name AS name, p.phones.number AS numbers FROM whole",
}


def make(lake: Lake) -> Policy:
    """Make a table of a struct with two tagged leaves, and tables of queries over it."""
    policy = lake.policy()
    lake.sql(
        "CREATE TABLE people (id INT, passenger STRUCT<name: STRING, email: STRING, phones: "
        "ARRAY<STRUCT<number: STRING, kind: STRING>>>, codes MAP<STRING, STRING>) USING parquet"
    )
    tags = {MAIL: ["pii"], "passenger.phones.element.number": ["fin"], "codes.value": ["fin"]}
    set_tags(lake.spark, "people", tags, policy)
    lake.sql(
        "INSERT INTO people SELECT id, named_struct('name', n, 'email', n || '@x', 'phones', "
        "array(named_struct('number', n, 'kind', 'k'))), map('x', n) FROM VALUES (1, 'a'), (2, 'b') v(id, n)"
    )
    for name, query in QUERIES.items():
        lake.sql(f"CREATE TABLE {name} USING parquet AS {query}")
    return policy


def exports(found: tuple[Export, ...], lake: Lake) -> set[tuple[str, ...]]:
    """Return the exports, without the database's name."""
    texts = ((export.source, export.place, export.state) for export in found)
    return {tuple(text.removeprefix(f"{lake.database}.") for text in each) for each in texts}


def test_lineage_and_exports_go_by_leaves(lake: Lake) -> None:
    """Each query notes the tagged leaves that it took, and where in its columns they are."""
    policy, people = make(lake), lake.name("people")

    def of(*columns: str) -> dict[str, list[str]]:
        return {people: list(columns)}

    found: dict[str, Any] = {name: notes_of(lake.path(name), policy) for name in QUERIES}
    assert found["whole"] == {"p": {"into": {"email": of(MAIL), "phones.list.element.number": of(NUMBER)}}}
    assert found["names"] == {}
    assert found["mails"] == {"mail": {"from": of(MAIL)}}
    assert found["phones"] == {"phones": {"into": {"list.element.number": of(NUMBER)}}}
    assert found["made"] == {"s": {"into": {"b": of(MAIL)}}}
    assert found["exploded"] == {"n": {"from": of(NUMBER)}}
    assert found["coded"] == {"code": {"from": of(CODE)}, "all": {"into": {"key_value.value": of(CODE)}}}
    assert found["text"] == {"j": {"from": of(MAIL, NUMBER)}}
    assert found["cast_by_place"]["b"] == {"from": of(MAIL, NUMBER)}  # not told apart, so all of them
    assert found["sorted"] == {"kinds": {"into": {"list.element": of(NUMBER)}}}
    assert found["chosen"] == {"name": {"conditions": of(MAIL)}}
    assert found["second"] == {
        "numbers": {"into": {"list.element": {lake.name("whole"): ["p.phones.list.element.number"]}}}
    }

    traced = trace_lineage(lake.spark, policy, tables=["whole", "second", "made"])
    text = lineage_text(traced).replace(f"{lake.database}.", "")
    assert f"  p.email (pii) <- people.{MAIL}\n" in text
    assert f"  p.phones.list.element.number (fin) <- people.{NUMBER}\n" in text
    assert "  numbers.list.element (fin) <- whole.p.phones.list.element.number\n" in text
    assert f"  {MAIL} -> made.s.b, whole.p.email\n" in text

    pii, fin = (plan_shredding(lake, policy, key_id=key).keys[0] for key in ("pii", "fin"))
    columns = {table.table.removeprefix(f"{lake.database}."): table.columns for table in fin.dark}
    assert columns["whole"] == ("p.phones.list.element.number",)
    assert (exports(pii.exports, lake), pii.defeated_by) == (set(), ())
    known = {(f"people.{NUMBER}", place, "under key 'pii'") for place in ("text.j", "cast_by_place.b")}
    assert exports(fin.exports, lake) == known

    with lake.stranger() as stranger:  # as earlier releases noted it: top-level columns
        note = {"lineage": {"from": {people: ["passenger"]}}}
        frame = stranger.sql("SELECT named_struct('x', 'a', 'y', 'b') AS s").select(
            F.col("s").alias("s", metadata=note)
        )
        frame.write.format("parquet").saveAsTable("earlier")
    (again,) = plan_shredding(lake, policy, key_id="fin").keys
    assert exports(again.exports, lake) == known | {
        (f"people.{NUMBER}", f"earlier.s.{leaf}", "not encrypted") for leaf in ("x", "y")
    }

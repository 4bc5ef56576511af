"""Runs of Spark's engine over lists and maps of which some leaves have tags and others have none."""

from __future__ import annotations

from typing import Any

import pytest

import sparkcrypt
from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import SparkcryptError
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import SECRET, Lake, footers, rows_of, with_keys, without_keys

pytestmark = pytest.mark.spark

COLUMNS = (
    "k MAP<STRING, STRING>, v MAP<STRING, STRING>, l ARRAY<STRUCT<x: STRING, y: INT>>, s STRUCT<m: MAP<STRING, INT>>"
)
VALUES = f"map('{SECRET}-k', 'a'), map('b', '{SECRET}-v'), array(named_struct('x', '{SECRET}-x', 'y', 1), null), "
TAGS = {"k.key": ["pii"], "v.value": ["pii"], "l.element.x": ["fin"], "s.m.value": ["pii"]}
ENCRYPTED = {"k.key_value.key", "v.key_value.value", "l.list.element.x", "s.m.key_value.value"}


def make(lake: Lake) -> list[Any]:
    """Make a plaintext table, and return its rows."""
    with lake.stranger() as stranger:
        stranger.sql(f"CREATE TABLE t (id INT, {COLUMNS}) USING parquet")
        stranger.sql(f"INSERT INTO t SELECT 1, {VALUES} named_struct('m', map('c', 7))")
        return rows_of(stranger.table("t"))


@pytest.mark.sparks
def test_only_tagged_leaves_are_encrypted(lake: Lake) -> None:
    """Neither a map's other half nor a list's other fields get the tags, and rows stay."""
    policy, rows = lake.policy(), make(lake)
    set_tags(lake.spark, "t", TAGS, policy)
    assert encrypt_table(lake.spark, "t", policy, engine="spark").outcome == "done"
    (found,) = footers(lake.root / "db" / "t", policy)
    assert {".".join(path) for path, column in (found.columns or {}).items() if column.key_id} == ENCRYPTED
    assert rows_of(lake.spark.table("t")) == rows
    assert encrypt_table(lake.spark, "t", policy, engine="spark").outcome == "nothing to do"
    assert verify_table(lake.spark, "t", policy).ok


def test_nulls_of_a_reader_are_not_written(lake: Lake) -> None:
    """A run in a session that has nulls in place of denied columns is refused, and changes nothing."""
    policy, rows = lake.policy(), make(lake)
    set_tags(lake.spark, "t", {"k.key": ["pii"]}, policy)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    set_tags(lake.spark, "t", TAGS, policy)
    poor = with_keys(policy, lake.root / "poor", without_keys("pii"))
    session = sparkcrypt.session(poor, on_denied="mask")
    session.sql(f"USE {lake.database}")
    with pytest.raises(SparkcryptError):
        encrypt_table(session, "t", poor, engine="spark")
    assert rows_of(lake.spark.table("t")) == rows

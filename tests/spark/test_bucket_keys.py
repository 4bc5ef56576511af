"""Months whose keys the first write makes, online and by a run."""

from __future__ import annotations

import pytest

from sparkcrypt import encrypt_table
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import Lake, encrypted_columns, footers, key_service, refusal, rows_of

pytestmark = pytest.mark.spark
TAGS = """
  contact: {key: "contact-{d:%Y-%m}", retention: 36500d, create_keys: true}
  short: {key: "short-{d:%Y-%m}", retention: 1d, create_keys: true}
"""


def test_first_write_makes_the_key_of_its_month(lake: Lake) -> None:
    """By INSERT and by a run over plaintext files; a month past its retention is refused, and leaves no key."""
    policy = lake.policy(TAGS)
    with lake.stranger() as stranger:
        stranger.sql(f"CREATE TABLE {lake.name('t')} (id INT, email STRING, d STRING) USING parquet PARTITIONED BY (d)")
        stranger.sql(f"INSERT INTO {lake.name('t')} VALUES (1, 'e1', '2026-01-05')")
    set_tags(lake.spark, "t", {"email": ["contact"]}, policy)
    lake.sql("INSERT INTO t SELECT * FROM VALUES (2, 'e2', '2026-02-05'), (3, 'e3', '2026-02-06')")

    def keys() -> list[str]:
        return [key.key_id for key in key_service(policy).list_keys() if key.key_id != "footer"]

    assert keys() == ["contact-2026-02"]
    assert encrypt_table(lake.spark, "t", policy).files_rewritten == 1
    assert keys() == ["contact-2026-01", "contact-2026-02"]
    lake.sql("REFRESH TABLE t")
    assert [row[0] for row in rows_of(lake.spark.table("t"))] == [1, 2, 3]
    assert {
        encrypted_columns(found)["email"]
        for found in footers(lake.path("t"), policy)
        if found.columns and encrypted_columns(found)
    } == {"contact-2026-02"}
    set_tags(lake.spark, "t", {"email": ["short"]}, policy)
    said = refusal(lambda: lake.sql("INSERT INTO t VALUES (4, 'e4', '2026-03-05')"))
    assert "'short-2026-03' is not there, and no write makes it: its retention is over since 2026-04-02" in said
    assert keys() == ["contact-2026-01", "contact-2026-02"]

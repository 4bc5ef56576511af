"""Tables of which a month was shredded: what readers are told, and what runs still do."""

from __future__ import annotations

from pathlib import Path

import pytest

import sparkcrypt.arrow
from sparkcrypt import configure, encrypt_table, read_table, verify_table
from sparkcrypt.backfill.many.passes import backfill
from sparkcrypt.backfill.many.rotate import rotate_key
from sparkcrypt.backfill.shred.apply import ShredOptions, shred_keys
from sparkcrypt.backfill.shred.survey import Selection
from sparkcrypt.policy.model import Policy
from tests.spark.shredding import NEXT, OLD, make_policy_of_months, make_table_of_months
from tests.spark.support import Lake, key_service, refusal, rows_of

pytestmark = pytest.mark.spark
DARK = [(1, None), (2, None), (3, None)]
READABLE = [(4, "e4"), (5, "e5")]


@pytest.fixture
def policy(lake: Lake) -> Policy:
    """A table ``t`` of three months, two of them shredded."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    options = ShredOptions("retention of contacts")
    report = shred_keys(lake.spark, policy, Selection(("t",)), options, confirm=lambda _: None)
    assert [key.key_id for key in report.shredded] == [OLD, NEXT]
    lake.jvm.org.apache.parquet.crypto.keytools.KeyToolkit.removeCacheEntriesForAllTokens()
    return policy


def test_readers_are_told_when_and_why(lake: Lake, policy: Policy) -> None:
    """By SQL and by pyarrow: the column, the key, the day and the reason; other columns and months are read."""
    for said in (
        refusal(lambda: lake.sql("SELECT email FROM t").collect()),
        refusal(lambda: sparkcrypt.arrow.open_table(str(lake.path("t")), policy, table=lake.name("t")).to_table()),
    ):
        assert "KeyNotFoundError" in said
        assert "cannot be read by anybody any more: its key 'contact-2025-0" in said
        assert "the state directory says that it was shredded on 20" in said
        assert "'retention of contacts'" in said
    assert rows_of(lake.sql("SELECT id, ssn FROM t"))[0] == (1, "s1")
    assert [tuple(row) for row in rows_of(lake.sql("SELECT id, email FROM t WHERE d = '2026-10-01'"))] == READABLE
    checked = verify_table(lake.spark, "t", policy)
    assert (checked.ok, [difference.kind for difference in checked.drift]) == (False, ["unreadable"] * 3)


def test_nulls_stand_where_they_are_asked_for(lake: Lake, policy: Policy) -> None:
    """A soft read gives null for the months that are dark, values for the other, and says why."""
    frame = read_table(lake.spark, "t", policy, on_denied="null")
    assert [tuple(row) for row in rows_of(frame.select("id", "email"))] == DARK + READABLE
    table = sparkcrypt.arrow.open_table(str(lake.path("t")), policy, table=lake.name("t"), on_denied="null")
    assert "is shredded in some partitions" in table.masked["email"]
    found = sorted(zip(*(table.to_table().column(name).to_pylist() for name in ("id", "email")), strict=True))
    assert found == DARK + READABLE
    configure(lake.spark, policy)


def bytes_of(lake: Lake) -> dict[str, bytes]:
    """Return the table's files in use, by partition and name."""
    lake.sql("REFRESH TABLE t")
    files = [Path(name.removeprefix("file://")) for name in lake.spark.table("t").inputFiles()]
    return {"/".join(file.parts[-2:]): file.read_bytes() for file in files}


def test_runs_leave_what_is_dark_as_it_is(lake: Lake, policy: Policy) -> None:
    """A run finds nothing to do.  One that needs each key of a file does the month that is readable, names the others.

    Rotations and new keys cannot reach files of which a column is dark: such a unit is quarantined, byte for byte as it
    was, and its other columns are read as before.
    """
    before = bytes_of(lake)
    assert encrypt_table(lake.spark, "t", policy).files_rewritten == 0
    assert backfill(lake.spark, policy, tables=["t"]).outcome == "nothing to do"
    assert bytes_of(lake) == before
    dark = {name: content for name, content in before.items() if name.startswith("d=2025-")}
    assert len(dark) == 3

    rotated = rotate_key(lake.spark, policy, "pii", tables=["t"])
    (table,) = rotated.tables
    assert (rotated.outcome, table.files_rewritten) == ("incomplete", 1)
    assert [(unit["unit"], unit["error"]) for unit in table.quarantined] == [
        (day, "KeyNotFoundError") for day in ("d=2025-01-05", "d=2025-01-31", "d=2025-02-01")
    ]
    key_service(policy).create("fin")
    moved = lake.changed("pii: {key: pii}", "pii: {key: fin, history: [pii]}")
    done = backfill(lake.spark, moved, tables=["t"])
    assert (done.outcome, len(done.tables[0].quarantined), done.tables[0].files_rewritten) == ("incomplete", 3, 1)
    after = bytes_of(lake)
    assert {name: after[name] for name in dark} == dark
    assert rows_of(lake.sql("SELECT id, ssn FROM t")) == [(number, f"s{number}") for number in range(1, 6)]

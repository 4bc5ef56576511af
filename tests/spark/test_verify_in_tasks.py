"""Tables verified by tasks of Spark: what is found, named and ordered is what the driver finds."""

from __future__ import annotations

import pytest

from sparkcrypt import verify_table
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.apply_shredding import ShredOptions, shred_keys
from sparkcrypt.runs.keys.find_shreddable import Selection
from sparkcrypt.runs.table import footers
from sparkcrypt.runs.table.footers import DriverFooters
from sparkcrypt.runs.table.verify import TableVerification
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.shredding import NEW, NEXT, OLD, make_policy_of_months, make_table_of_months
from tests.spark.support import Lake, data_files, key_service

pytestmark = pytest.mark.spark
DAYS = 5


def verified(lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch, table: str = "t") -> TableVerification:
    """Verify a table by the driver, and twice by tasks without the driver's help; return what all of them find."""
    by_driver = verify_table(lake.spark, table, policy)
    with monkeypatch.context() as patch:
        patch.setattr(footers, "FEW", 0)
        patch.setattr(DriverFooters, "read", lambda *_: pytest.fail("the driver has read a file"))
        for _ in range(2):
            assert verify_table(lake.spark, table, policy).to_dict() == by_driver.to_dict()
    return by_driver


@pytest.fixture
def policy(lake: Lake) -> Policy:
    """A table ``t`` of some partitions with a file each, of which one column is encrypted."""
    policy = lake.policy(footer_mode="plaintext")
    lake.sql("CREATE TABLE t (email STRING, id INT, p INT) USING parquet PARTITIONED BY (p)")
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    lake.sql(f"INSERT INTO t SELECT CAST(id AS STRING), CAST(id AS INT), CAST(id AS INT) FROM range({DAYS})")
    return policy


def test_whole_table_is_authentic(lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file was read, and all of it is authenticated."""
    found = verified(lake, policy, monkeypatch)
    assert (found.ok, found.drift, found.authenticated) == (True, (), "all")
    assert (found.files, found.rows) == (DAYS, DAYS)


def test_each_damaged_file_is_named_in_its_turn(lake: Lake, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed page, a cut file, one in plaintext, one without bytes; the others are authenticated."""
    files = data_files(lake.path("t"))
    assert len(files) == DAYS
    content = bytearray(files[0].read_bytes())
    content[40] ^= 1  # in the header of the first page, with which the file begins
    files[0].write_bytes(content)
    files[1].write_bytes(files[1].read_bytes()[:-9])
    with lake.stranger() as stranger:
        stranger.sql("INSERT INTO t VALUES ('clear', 9, 3)")
    (files[2].parent / "part-empty.parquet").touch()
    found = verified(lake, policy, monkeypatch)
    assert [difference.file for difference in found.drift][:2] == [f"file:{file}" for file in files[:2]]
    assert {difference.kind for difference in found.drift[:2]} == {"unreadable"}
    assert [difference.kind for difference in found.drift[2:]] == ["plaintext"]
    assert any("part-empty.parquet: has 0 bytes" in note for note in found.notes)
    assert found.authenticated == "partial"


@pytest.mark.parametrize("absent", [False, True])
def test_shredded_columns_are_noted_and_absent_keys_are_not(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, absent: bool
) -> None:
    """Files under a key with a tombstone are authenticated without the column; under one without, they are drift."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    shred_keys(lake.spark, policy, Selection(("t",)), ShredOptions("over"), confirm=lambda _: None)
    if absent:
        key_service(policy).delete_key(NEW)
    found = verified(lake, policy, monkeypatch)
    told = [note for note in found.notes if note.startswith("column email cannot be read in some files: key")]
    assert [OLD in told[0], NEXT in told[1], len(told)] == [True, True, 2]
    assert (found.ok, found.authenticated) == (not absent, "partial")
    assert [difference.kind for difference in found.drift] == (["unreadable"] if absent else [])
    assert all(difference.detail.startswith("KeyNotFoundError: ") for difference in found.drift)


def test_orc_is_read_stream_by_stream(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """ORC authenticates nothing, which is noted once; a file that no longer decrypts is drift."""
    policy = lake.policy(more="formats: [parquet, orc]")
    lake.sql("CREATE TABLE o (id INT, email STRING, p INT) USING orc PARTITIONED BY (p)")
    set_tags(lake.spark, "o", {"email": ["pii"]}, policy)
    lake.sql("INSERT INTO o SELECT CAST(id AS INT), CAST(id AS STRING), CAST(id AS INT) FROM range(3)")
    found = verified(lake, policy, monkeypatch, "o")
    assert (found.ok, found.files, found.authenticated) == (True, 3, "partial")
    assert len([note for note in found.notes if "ORC authenticates nothing" in note]) == 1
    damaged = sorted(lake.path("o").rglob("part-*.orc"))[1]
    damaged.write_bytes(damaged.read_bytes()[:-5])
    assert [difference.kind for difference in verified(lake, policy, monkeypatch, "o").drift] == ["unreadable"]

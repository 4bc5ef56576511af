"""Tags that are lost do not decrypt anything; tags that were taken off do, where that is allowed."""

from __future__ import annotations

import pytest

from sparkcrypt import encrypt_table, verify_table
from sparkcrypt.errors import VerificationError
from sparkcrypt.names import NAME_PREFIX
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.passes.passes import PassOptions, backfill
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags, unset_tags
from sparkcrypt.tags.model import history_property, tag_property
from tests.spark.support import SECRET, Lake, assert_encrypted, assert_plaintext, rows_of

pytestmark = pytest.mark.spark
COLUMNS = "id INT, email STRING, note STRING"
KINDS = pytest.mark.parametrize("kind", ["USING parquet", "STORED AS PARQUET"])


def written(lake: Lake, kind: str, more: str = "") -> Policy:
    """Make a table that was encrypted as it was written, and never by a run."""
    policy = lake.policy("\n  pii: {key: pii}\n  finance: {key: fin}\n  public: plaintext\n")
    lake.sql(f"CREATE TABLE t ({COLUMNS}) {kind} {more}")
    set_tags(lake.spark, "t", {"email": ["pii"], "note": ["finance"]}, policy)
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}-1', 'a note')")
    assert_encrypted(lake.path("t"), policy, {"email": "pii", "note": "fin"}, visible=())
    return policy


def strip(lake: Lake, kind: str, *columns: str) -> None:
    """Lose the tags of columns in both places, as a table that another engine changes does, and the name's record."""
    catalog = Catalog(lake.spark)
    table = catalog.table("t")
    catalog.unset_options(table, tuple(tag_property((column,)) for column in columns))
    schema = table.schema_json
    for tag in ("pii", "finance") if len(columns) > 1 else ("pii",):
        schema = schema.replace(f'{{"tags":["{tag}"]}}', "{}")
    catalog.set_schema_metadata(catalog.table("t"), schema)
    lake.sql(f"ALTER DATABASE {lake.database} SET DBPROPERTIES ('{NAME_PREFIX}t' = '')")


@KINDS
@pytest.mark.parametrize("lost", [("email",), ("email", "note")], ids=["one", "all"])
def test_columns_whose_tags_are_lost_stay_encrypted(lake: Lake, kind: str, lost: tuple[str, ...]) -> None:
    """Neither a pass nor a run decrypts them, though no run of the table is known; the message names the way."""
    policy = written(lake, kind)
    strip(lake, kind, *lost)
    before = {file: file.read_bytes() for file in lake.path("t").glob("part-*")}
    report = backfill(lake.spark, policy, tables=["t"])
    assert report.outcome == "incomplete"
    (quarantined,) = report.tables[0].quarantined
    assert "column email is encrypted with 'pii', and has no tag and no history" in quarantined["message"]
    with pytest.raises(VerificationError, match="its tags may be lost, and a run would decrypt it"):
        encrypt_table(lake.spark, "t", policy)
    report = backfill(
        lake.spark, policy, tables=["t"], options=PassOptions(run=RunOptions(keep_going=True, adopt=True))
    )
    assert report.outcome == "incomplete"
    assert {file: file.read_bytes() for file in lake.path("t").glob("part-*")} == before


@KINDS
@pytest.mark.parametrize("by_run", [False, True])
def test_tags_that_were_taken_off_decrypt(lake: Lake, kind: str, by_run: bool) -> None:
    """`tags unset` leaves word of it in the column's history, which goes when the whole table is done."""
    policy = written(lake, kind)
    before = rows_of(lake.spark.table("t"))
    if by_run:
        set_tags(lake.spark, "t", {"email": ["finance"]}, policy)
        assert backfill(lake.spark, policy, tables=["t"]).outcome == "done"
    unset_tags(lake.spark, "t", ["email"])
    assert Catalog(lake.spark).table("t").options[history_property(("email",))] == "plaintext"
    allowed = PassOptions(run=RunOptions(keep_going=True, allow_decrypt=True))
    report = backfill(lake.spark, policy, tables=["t"], options=allowed)
    assert (report.outcome, report.tables[0].columns) == ("done", {"note": "fin"})
    assert rows_of(lake.spark.table("t")) == before
    assert not Catalog(lake.spark).table("t").options.get(history_property(("email",)))
    again = backfill(lake.spark, policy, tables=["t"])
    assert (again.outcome, again.refused) == ("nothing to do", {})
    unset_tags(lake.spark, "t", ["note"])
    assert backfill(lake.spark, policy, tables=["t"], options=allowed).outcome == "done"
    assert_plaintext(lake.path("t"))
    assert rows_of(lake.spark.table("t")) == before


def test_column_without_tags_gets_no_history(lake: Lake) -> None:
    """There was nothing to take off."""
    written(lake, "USING parquet")
    unset_tags(lake.spark, "t", ["id"])
    assert history_property(("id",)) not in Catalog(lake.spark).table("t").options


def test_what_is_under_the_footer_key_may_become_plaintext(lake: Lake) -> None:
    """A policy that once encrypted untagged columns too may stop to: such a column never had a tag."""
    everything = lake.policy("\n  pii: {key: pii}\n", untagged="footer_key")
    lake.sql(f"CREATE TABLE t ({COLUMNS}) USING parquet")
    set_tags(lake.spark, "t", {"email": ["pii"]}, everything)
    lake.sql(f"INSERT INTO t VALUES (1, '{SECRET}-1', 'a note')")
    policy = lake.changed("untagged: footer_key", "untagged: plaintext")
    with pytest.raises(VerificationError, match="column id, encrypted with 'footer', would be decrypted"):
        encrypt_table(lake.spark, "t", policy)
    assert encrypt_table(lake.spark, "t", policy, allow_decrypt=True).outcome == "done"
    assert_encrypted(lake.path("t"), policy, {"email": "pii"}, visible=["a note"])
    assert verify_table(lake.spark, "t", policy).ok

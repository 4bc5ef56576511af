"""What is due for shredding, what goes dark with it, and what stands against it, on tables of a real catalog."""

from __future__ import annotations

import json
import shutil
import time
from datetime import datetime, timezone
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparkcrypt import encrypt_table
from sparkcrypt.errors import ConfigError, PlanError
from sparkcrypt.files.parquet import inspect_file
from sparkcrypt.ledger.audit.key_audit import key_audit
from sparkcrypt.ledger.state.mac import MasterKeys, open_mac
from sparkcrypt.runs.passes.passes import backfill
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.shredding import (
    AUDIT,
    KEYS,
    NEW,
    NEXT,
    OLD,
    TAGS,
    by_key,
    make_policy_of_months,
    make_table_of_months,
    plan_shredding,
    run_command,
    state_of,
)
from tests.spark.support import Lake, key_service

pytestmark = pytest.mark.spark


def test_months_past_retention_are_due(lake: Lake) -> None:
    """Two of three months are due, each with its partitions, column and rows; nothing is changed by the plan.

    A table need not be named, nor have been looked at by a run, since the catalog has it.  As of an earlier day less is
    due, and a key without a date is left out, though it may be named.
    """
    policy = make_policy_of_months(lake)
    with pytest.raises(ConfigError, match="the catalog has no table"):
        plan_shredding(lake, policy)
    make_table_of_months(lake, policy)
    assert by_key(plan_shredding(lake, policy, "t")) == by_key(plan_shredding(lake, policy))
    plan = plan_shredding(lake, policy)
    assert (plan.tables, plan.files) == (1, 4)
    assert "looked at 1 table of the catalog, 4 files" in plan.to_text()
    keys = by_key(plan)
    assert (list(keys), plan.exit_code, plan.head) == ([OLD, NEXT], 2, "none")
    (dark,) = keys[OLD].dark
    files = [file for file in lake.path("t").rglob("d=2025-01-*/*.parquet") if not file.name.startswith(".")]
    assert dark.to_dict() == {
        "table": lake.name("t"),
        "partitions": ["d=2025-01-05", "d=2025-01-31"],
        "columns": ["email"],
        "files": len(files),
        "bytes": sum(file.stat().st_size for file in files),
        "rows": 2,
    }
    assert keys[OLD].to_dict()["retention_over"] == "2026-03-08T00:00:00Z"
    assert (keys[OLD].refused, keys[OLD].defeated_by, keys[OLD].is_there) == ((), (), True)
    assert not Path(policy.run_state).exists()

    def day(text: str) -> datetime:
        return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)

    assert by_key(plan_shredding(lake, policy, as_of=day("2026-03-07"))) == {}
    assert plan_shredding(lake, policy, as_of=day("2026-03-07")).exit_code == 0
    assert list(by_key(plan_shredding(lake, policy, as_of=day("2026-03-08")))) == [OLD]
    assert list(by_key(plan_shredding(lake, policy, as_of=day("2028-01-01")))) == [OLD, NEXT, NEW]
    assert plan_shredding(lake, policy).left_out == {}
    named = by_key(plan_shredding(lake, policy, key_id="tenant-acme"))["tenant-acme"]
    assert (named.may_go, named.dark) == (True, ())
    for key_id, why in {NEW: "its retention is over on 2027-12", "pii": "for all dates", "footer": "footers"}.items():
        refused = by_key(plan_shredding(lake, policy, key_id=key_id))[key_id]
        assert why in refused.refused[0]
        assert plan_shredding(lake, policy, key_id=key_id).exit_code == 74


def test_held_key_is_no_drift(lake: Lake) -> None:
    """A held key is listed with its hold, and nothing is to be done about it."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    for key_id in (OLD, NEXT):
        with key_audit(state_of(policy), policy, "keys hold") as audit:
            audit.hold(key_id, "case 4711")
    plan = plan_shredding(lake, policy, "t")
    assert [hold.reason for hold in by_key(plan)[OLD].holds] == ["case 4711"]
    assert (list(plan.chosen), plan.exit_code) == ([], 0)


def test_other_data_under_a_due_key_refuse_it(lake: Lake) -> None:
    """A file of another month, a table that was not chosen, an unreadable file and a lost table: each is named."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    encrypt_table(lake.spark, "t", policy)
    make_table_of_months(lake, policy, "u")
    plan = plan_shredding(lake, policy, "u")
    assert by_key(plan)[OLD].refused == (
        f"{lake.name('t')}: 2 files would go dark too; choose that table as well, or leave out --table and --database",
    )
    assert by_key(plan_shredding(lake, policy, "t", "u"))[OLD].may_go

    source = next(lake.path("u").glob("d=2025-01-05/*.parquet"))
    copied = lake.path("u") / "d=2026-10-01" / "copied.parquet"
    shutil.copy(source, copied)
    refused = by_key(plan_shredding(lake, policy, "t", "u"))[OLD].refused
    assert refused == (f"{lake.name('u')}: it is needed for column email in d=2026-10-01, which is not of that bucket",)
    copied.write_bytes(b"PAR1 no footer PAR1")
    refused = by_key(plan_shredding(lake, policy, "t", "u"))[OLD].refused
    assert len(refused) == 1
    assert "of 1 file nobody can tell the keys" in refused[0]
    copied.unlink()

    uuid = str(Catalog(lake.spark).table("t").uuid)
    lake.sql("DROP TABLE t")
    plan = plan_shredding(lake, policy, "u")
    assert f"{lake.name('t')}: is no table of this catalog now; give --leave-out" in by_key(plan)[OLD].refused[0]
    assert (list(plan.not_scanned), plan.exit_code) == ([lake.name("t")], 74)
    left = plan_shredding(lake, policy, "u", leave_out=(uuid,))
    assert (by_key(left)[OLD].may_go, left.exit_code) == (True, 2)


def test_what_stays_readable_is_named(lake: Lake) -> None:
    """Files in clear, files under another key and old files that wait for expiry would defeat the shredding.

    That holds of columns that Spark reads as the table's although they are written in another case.
    """
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    with lake.stranger() as stranger:
        stranger.sql(f"INSERT INTO {lake.name('t')} PARTITION (d = '2025-01-05') VALUES (9, 'e9', 's9')")
    folder = lake.path("t") / "d=2025-01-05"
    plain = next(file for file in folder.glob("*.parquet") if inspect_file(file).footer == "plaintext")
    upper = pq.read_table(plain).rename_columns([name.upper() for name in pq.read_schema(plain).names])
    pq.write_table(upper, folder / "upper.parquet")
    assert by_key(plan_shredding(lake, policy, "t"))[OLD].defeated_by == (
        f"{lake.name('t')}: column email in d=2025-01-05 is not encrypted in 2 files; `sparkcrypt backfill` puts it "
        "under the key first",
    )
    assert backfill(lake.spark, policy, tables=["t"]).outcome == "done"
    (old,) = by_key(plan_shredding(lake, policy, "t"))[OLD].defeated_by
    assert "3 old files, 2 of them with columns in clear, stay until `sparkcrypt backfill expire`" in old

    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    lake.sql("INSERT INTO t PARTITION (d = '2025-02-01') VALUES (10, 'e10', 's10')")
    set_tags(lake.spark, "t", {"email": ["contact"]}, policy)
    assert any(
        "column email in d=2025-02-01 is under key 'pii' in 1 file" in reason
        for reason in by_key(plan_shredding(lake, policy, "t"))[NEXT].defeated_by
    )


def test_rows_without_a_date_are_never_due(lake: Lake) -> None:
    """A partition of NULL is named; its column under another key is judged, and a predicate leaves it out of runs."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    with lake.stranger() as stranger:
        stranger.sql(f"INSERT INTO {lake.name('t')} PARTITION (d = NULL) VALUES (9, 'e9', 's9')")
    plan = plan_shredding(lake, policy, "t", key_id="pii")
    (undated,) = (line for line in plan.warnings if "never due" in line)
    assert f"{lake.name('t')}: column email in d=__HIVE_DEFAULT_PARTITION__ is never due" in undated
    assert "is not a date" in undated
    assert plan.keys[0].defeated_by == (
        f"{lake.name('t')}: column ssn in d=__HIVE_DEFAULT_PARTITION__ is not encrypted in 1 file; "
        "`sparkcrypt backfill` puts it under the key first",
    )
    assert encrypt_table(lake.spark, "t", policy, where="d >= '2024-01-01'").outcome == "nothing to do"
    report = backfill(lake.spark, policy, tables=["t"])
    assert report.exit_code == 74
    assert "d=__HIVE_DEFAULT_PARTITION__" in str(report.to_dict())


def test_known_exports_are_named(lake: Lake, tmp_path: Path) -> None:
    """Copies in other tables under another key or in clear, copies of copies, and values that were declassified.

    A copy under the key itself goes dark, so it is none, and neither is what came from another column.
    """
    me = lake.spark.sparkContext.sparkUser()
    logged = f"access_log: {{location: {tmp_path}/log}}\ndeclassify: {{principals: [{me}], tags: [contact, pii]}}"
    policy = lake.policy(TAGS, keys=KEYS, more=f"{AUDIT}\n{logged}")
    make_table_of_months(lake, policy)
    lake.sql("CREATE TABLE same (email STRING, d STRING) USING parquet PARTITIONED BY (d)")
    set_tags(lake.spark, "same", {"email": ["contact"]}, policy)
    lake.sql("INSERT INTO same SELECT email, d FROM t")
    lake.sql("CREATE TABLE copy (mail STRING, ssn STRING) USING parquet")
    set_tags(lake.spark, "copy", {"mail": ["pii"]}, policy)
    lake.sql("INSERT INTO copy SELECT upper(email), ssn FROM t")
    lake.sql("CREATE TABLE far (m STRING) USING parquet")
    lake.sql("INSERT INTO far SELECT declassify(mail, 'ticket 17') FROM copy")
    lake.sql("SELECT declassify(email, 'ticket 18') AS e FROM t").write.parquet(str(tmp_path / "out"))
    end = time.monotonic() + 30
    while not any(b"ticket 18" in file.read_bytes() for file in tmp_path.rglob("*.jsonl")):
        assert time.monotonic() < end, "the event was not written"
        time.sleep(0.2)

    key = by_key(plan_shredding(lake, policy, "t", "same", "copy", "far"))[OLD]
    found = {(export.kind, export.source, export.place, export.state) for export in key.exports}
    email, mail, m = (f"{lake.name(name)}" for name in ("t.email", "copy.mail", "far.m"))
    assert found == {
        ("derived", email, mail, "under key 'pii'"),
        ("derived", mail, m, "not encrypted"),
        ("declassified", email, me, "ticket 18"),
    }
    assert all(export.count for export in key.exports)
    assert key.to_dict()["exports"][0]["place"] == mail
    assert (
        f"known export: {mail} came from {email}: under key 'pii'"
        in plan_shredding(lake, policy, "t", "same", "copy", "far").to_text()
    )


def test_key_of_records_is_refused(lake: Lake) -> None:
    """A key that wraps the MAC key of an audit is refused, with the record's name, whatever the policy says now."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    open_mac(state_of(policy), "another-table", key_service(policy), MasterKeys(OLD))
    plan = plan_shredding(lake, policy, "t")
    assert any(
        reason.endswith("mac-key.json: holds a MAC key or a digest secret under it")
        for reason in by_key(plan)[OLD].refused
    )
    assert by_key(plan)[NEXT].may_go


def test_state_that_lacks_a_run_is_doubted(lake: Lake) -> None:
    """A table points to a folder of a run of which the state directory knows nothing: it may lack holds as well."""
    policy = make_policy_of_months(lake)
    with lake.stranger() as stranger:
        stranger.sql(f"CREATE TABLE {lake.name('t')} (id INT, email STRING, d STRING) USING parquet PARTITIONED BY (d)")
        stranger.sql(f"INSERT INTO {lake.name('t')} VALUES (1, 'e1', '2025-01-05')")
    set_tags(lake.spark, "t", {"email": ["contact"]}, policy)
    encrypt_table(lake.spark, "t", policy)
    assert plan_shredding(lake, policy, "t").doubts == ()
    shutil.rmtree(policy.run_state)
    plan = plan_shredding(lake, policy, "t")
    assert len(plan.doubts) == 1
    assert "the state directory has no record of it: it is an earlier copy of itself" in plan.doubts[0]
    assert plan.exit_code == 74


def test_plan_as_a_command(lake: Lake) -> None:
    """The command says the same, as JSON and as text, and ends with 2; what was named wrongly is an error."""
    policy = make_policy_of_months(lake)
    make_table_of_months(lake, policy)
    (file,) = lake.root.glob("policy-*/policy.yaml")
    code, document, _ = run_command(file, "shred", "plan", "--table", lake.name("t"))
    assert (code, [key["key_id"] for key in document["keys"]]) == (2, [OLD, NEXT])
    to = ("--report", str(lake.root / "plan.json"))
    run_command(file, "shred", "plan", "--table", lake.name("t"), *to)
    report = json.loads((lake.root / "plan.json").read_text())
    assert (report["kind"], report["outcome"], report["keys"]) == ("sparkcrypt shred", "dry run", document["keys"])
    run_command(file, "shred", "plan", "--table", lake.name("none"), *to)
    assert json.loads((lake.root / "plan.json").read_text())["outcome"] == "failed"
    code, document, _ = run_command(file, "shred", "plan", "--table", lake.name("t"), "--as-of", "2026-03-07")
    assert (code, document["keys"], document["as_of"]) == (0, [], "2026-03-07T00:00:00Z")
    code, _, errors = run_command(file, "shred", "plan", "--table", lake.name("t"), "--as-of", "2026-13-07")
    assert (code, "'2026-13-07' is not a date" in errors) == (64, True)
    lake.sql("CREATE VIEW v AS SELECT 1 AS a")
    with pytest.raises(PlanError, match="is a view"):
        plan_shredding(lake, policy, "v")

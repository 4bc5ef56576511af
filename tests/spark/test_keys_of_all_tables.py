"""Rotation, retirement, shredding and the status of keys go by the catalog: by every table in it, whoever wrote it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sparkcrypt import configure, encrypt_table
from sparkcrypt.errors import VerificationError
from sparkcrypt.keys.local.keystore import KeyDirectory
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.runs.keys.check_keys import check_keys
from sparkcrypt.runs.keys.retire import retire_versions
from sparkcrypt.runs.old_folders.expire import expire_run
from sparkcrypt.runs.passes.key_status import key_statuses
from sparkcrypt.runs.passes.keys_by_catalog import find_keys_in_use
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.rotations import files_of, keks_of, make_tables, rotate, write
from tests.spark.sessions import run_command
from tests.spark.support import Lake, data_files, key_service, refusal, with_keys
from tests.spark.tables import PARTITIONED, fill

pytestmark = pytest.mark.spark


def set_first_aside(directory: KeyDirectory) -> None:
    """Set the first version of a key aside."""
    directory.write(replace(directory.read("pii"), retired_below=2))


def test_tables_that_lineage_encrypted_are_known(lake: Lake) -> None:
    """A table that a query made of a tagged one is rotated with it, and no version that it needs is retired."""
    policy = make_tables(lake, "t")
    for number in range(2):
        write(lake, "t", number)
    lake.sql("CREATE TABLE mart USING parquet AS SELECT id, upper(email) AS word FROM t")
    assert not Path(policy.run_state).exists()  # no run has looked at anything
    found = find_keys_in_use(lake.spark, policy, keeps=False)
    statuses = key_statuses(LocalStateStore(policy.run_state), key_service(policy), policy, found.tables)
    pii = next(status for status in statuses if status.key_id == "pii")
    files = len(files_of(lake)) + len(files_of(lake, "mart"))
    assert (pii.amount.files, set(pii.tables)) == (files, {lake.name("mart"), lake.name("t")})
    assert (found.coverage.tables, found.coverage.files, found.coverage.not_looked_at) == (2, files, {})
    key_service(policy).rotate("pii")
    with pytest.raises(VerificationError, match=rf"{lake.name('mart')}: \d files? under an older version"):
        retire_versions(lake.spark, policy, "pii", 2)
    configure(lake.spark, with_keys(policy, lake.root / "aside", set_first_aside))
    read = refusal(lake.sql("SELECT email FROM t").collect)
    for part in ("email", "version 1 of key 'pii' is retired", "keys retire pii --undo", lake.name("t"), "part-"):
        assert part in read
    configure(lake.spark, policy)
    done = rotate(lake, policy, keep_version=True)
    assert [table.table for table in done.tables] == [lake.name("mart"), lake.name("t")]
    assert done.outcome == "done"
    for table in ("mart", "t"):
        assert {version for version, _ in keks_of(files_of(lake, table), policy)["pii"]} == {2}
    assert check_keys(lake.spark, policy, tables=["mart", "t"]).exit_code == 0


def test_what_cannot_be_looked_at_is_named_and_keeps_versions(lake: Lake) -> None:
    """A damaged file of a table without tags, a dropped table and a source that is gone: each is named.

    A rotation ends with 74, and a retirement is refused, until the operator leaves the table out by its name.
    """
    policy = make_tables(lake, "t", "other")
    for table in ("t", "other"):
        write(lake, table, 0)
    lake.sql("CREATE TABLE plain USING parquet AS SELECT 1 AS id")
    lake.sql("CREATE VIEW seen AS SELECT * FROM t")
    lake.sql("CREATE TABLE words USING parquet AS SELECT id, email FROM other")
    (damaged,) = data_files(lake.path("plain"))
    damaged.write_bytes(b"PAR1 no footer PAR1")
    report = rotate(lake, policy)
    assert report.coverage is not None
    assert list(report.coverage.not_looked_at) == [lake.name("plain")]
    assert damaged.name in report.coverage.not_looked_at[lake.name("plain")]
    assert list(report.coverage.passed_over) == [lake.name("seen")]
    assert (report.outcome, report.exit_code) == ("incomplete", 74)
    assert {table.outcome for table in report.tables} == {"done"}
    assert report.to_dict()["coverage"]["not_looked_at"][0]["table"] == lake.name("plain")
    for table in ("t", "other", "words"):
        expire_run(lake.spark, table, policy)
    lake.sql("DROP TABLE other")
    recorded = find_keys_in_use(lake.spark, policy, keeps=False)
    assert [use.name for use in recorded.recorded] == [lake.name("other")]
    assert [place.name for place in recorded.coverage.by_record] == [lake.name("other")]
    assert f"the lineage of {lake.name('words')} names it" in recorded.coverage.by_record[0].to_text()
    for left_out in ((), (lake.name("other"),)):
        with pytest.raises(VerificationError, match=rf"{lake.name('plain')}: .*nobody can tell.*nothing was changed"):
            retire_versions(lake.spark, policy, "pii", 2, leave_out=left_out)
    done = retire_versions(lake.spark, policy, "pii", 2, leave_out=[lake.name("plain")])  # what went was under 2
    assert done.coverage is not None
    assert done.coverage.left_out == [lake.name("plain")]
    assert (done.state, done.described.versions) == ("set aside", 2)


def test_status_counts_what_a_first_run_has_encrypted(lake: Lake) -> None:
    """Right after the first run the catalog says what is under a key; the records alone name what they do not count."""
    fill(lake, PARTITIONED["using"])
    policy = lake.policy()
    set_tags(lake.spark, "t", {"email": ["pii"]}, policy)
    assert encrypt_table(lake.spark, "t", policy).outcome == "done"
    command = ["keys", "status", "pii", "--policy", str(lake.root / "policy-0" / "policy.yaml")]
    told = json.loads(run_command(lake, *command, "--json").stdout)
    (key,) = told["keys"]
    assert (key["files"], [use["table"] for use in key["tables"]]) == (4, [lake.name("t")])
    recorded = run_command(lake, *command, "--recorded")
    assert f"files of {lake.name('t')} are not counted" in recorded.stdout
    assert "not counted" not in run_command(lake, *command).stdout

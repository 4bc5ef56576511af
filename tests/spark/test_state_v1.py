"""A state directory that release 0.1.0 wrote: it is migrated, and its runs are then gone on with as any are."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparkcrypt import configure, encrypt_table, load_policy, verify_table
from sparkcrypt.backfill.after.expire import expire_run
from sparkcrypt.backfill.after.rollback import rollback_run
from sparkcrypt.backfill.audit.audit import audit_entries
from sparkcrypt.backfill.audit.journal_migration import Migrated
from sparkcrypt.backfill.old_files.past_run import migrate_target
from sparkcrypt.backfill.run.encrypt import find_target
from sparkcrypt.backfill.state.store import LocalStateStore
from sparkcrypt.cli.main import cli
from sparkcrypt.errors import RunConflictError, SparkcryptError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.catalog import Catalog
from tests.spark.sessions import active
from tests.spark.support import Lake, rows_of
from tests.state_v1.make import ROOT

pytestmark = pytest.mark.spark

ARCHIVE = Path(__file__).parents[1] / "state_v1" / "state.tar.gz"
COLUMNS = "id INT, email STRING, note STRING, p INT"


@dataclass(frozen=True)
class Earlier:
    """The tables in the metastore of this test, as they were in that of the release."""

    lake: Lake
    policy: Policy
    store: LocalStateStore

    def name(self, table: str) -> str:
        """Return a table's full name."""
        return self.lake.name(table)

    def table_id(self, table: str) -> str:
        """Return a table's UUID."""
        return str(Catalog(self.lake.spark).table(table).uuid)

    def runs(self, table: str) -> list[Path]:
        """Return the folders of a table's journals."""
        return sorted((ROOT / "state" / "runs" / self.table_id(table)).iterdir())

    def rows(self, table: str) -> list[Any]:
        """Return a table's rows."""
        self.lake.spark.catalog.refreshTable(table)
        return rows_of(self.lake.spark.table(table))

    def migrate(self, name: str) -> Migrated:
        """Migrate a table as `sparkcrypt backfill migrate` does."""
        configure(self.lake.spark, self.policy)
        target = find_target(self.lake.spark, name, None, self.policy, None, "native")
        return migrate_target(self.lake.spark, target, self.policy)

    def told(self, table: str) -> list[str]:
        """Return what each audit entry says was done."""
        return [signed.entry["what"] for signed in audit_entries(self.store, self.table_id(table))]


@pytest.fixture
def earlier(lake: Lake) -> Iterator[Earlier]:
    """The archive where it was written, which one test at a time may use."""
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(Path(f"{ROOT}.lock").open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(ROOT, ignore_errors=True)
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(ROOT.parent, filter="data")
        stack.callback(shutil.rmtree, ROOT)
        for table, told in json.loads((ROOT / "tables.json").read_text()).items():
            options = ", ".join(f"'{key}' = '{value}'" for key, value in told["options"].items())
            lake.sql(
                f"CREATE TABLE {table} ({COLUMNS}) USING parquet OPTIONS ({options}) PARTITIONED BY (p) "
                f"LOCATION '{ROOT.as_uri()}/db/{table}'"
            )
            for partition, location in told["partitions"].items():
                lake.sql(f"ALTER TABLE {table} ADD PARTITION ({partition}) LOCATION '{location}'")
        policy = load_policy(ROOT / "policy.yaml")
        yield Earlier(lake, policy, LocalStateStore(policy.run_state))


ROWS = [(number, f"e{number}", f"n{number}", number % 2) for number in range(4)]


def test_a_finished_run_is_migrated_and_expired(earlier: Earlier) -> None:
    """Expire checks the run against the audit, audits the cut, and deletes the old files."""
    done = expire_run(earlier.lake.spark, earlier.name("finished"), earlier.policy)
    assert (len(done.run_ids), done.files, done.unread) == (1, 2, ())
    assert not list((ROOT / "db" / "finished").rglob("*.parquet"))
    assert [tuple(row) for row in earlier.rows("finished")] == ROWS
    assert earlier.told("finished") == ["encrypt", "encrypt", "migrate"]
    assert verify_table(earlier.lake.spark, earlier.name("finished"), earlier.policy, manifest=True).ok


def test_a_finished_run_is_migrated_and_rolled_back(earlier: Earlier) -> None:
    """A rollback brings the old files back; the next run encrypts them again."""
    spark, name = earlier.lake.spark, earlier.name("finished")
    rollback_run(spark, name, earlier.policy, earlier.runs("finished")[0].name)
    assert [tuple(row) for row in earlier.rows("finished")] == ROWS
    assert earlier.told("finished") == ["encrypt", "encrypt", "migrate", "roll back", "roll back"]
    assert encrypt_table(spark, name, earlier.policy).outcome == "done"
    assert [tuple(row) for row in earlier.rows("finished")] == ROWS
    assert expire_run(spark, name, earlier.policy).unread == ()


def test_an_interrupted_run_waits_for_somebody_to_look(earlier: Earlier) -> None:
    """What only the old journal tells of a swap is not believed by itself; after `migrate` the run is finished."""
    spark, name = earlier.lake.spark, earlier.name("killed")
    for _ in range(2):
        with pytest.raises(RunConflictError, match="backfill migrate --table"):
            encrypt_table(spark, name, earlier.policy)
    with pytest.raises(RunConflictError, match="backfill migrate --table"):
        expire_run(spark, name, earlier.policy)
    assert earlier.told("killed") == []
    migrated = earlier.migrate(name)
    assert (list(migrated.runs), migrated.refused) == ([run.name for run in earlier.runs("killed")], {})
    report = encrypt_table(spark, name, earlier.policy)
    assert (report.outcome, report.run_id) == ("done", earlier.runs("killed")[0].name)
    assert [tuple(row) for row in earlier.rows("killed")] == ROWS
    assert earlier.told("killed") == ["migrate", "encrypt", "encrypt"]
    assert expire_run(spark, name, earlier.policy).files == 2
    assert [tuple(row) for row in earlier.rows("killed")] == ROWS


def test_the_command_migrates_and_says_what(earlier: Earlier) -> None:
    """`sparkcrypt backfill migrate` names the runs that may be acted upon; called again, it finds nothing to check."""
    command = ["backfill", "migrate", "--table", earlier.name("killed"), "--policy", str(ROOT / "policy.yaml")]
    with active(earlier.lake):
        done = CliRunner().invoke(cli, [*command, "--json"])
        again = CliRunner().invoke(cli, command)
    assert (done.exit_code, again.exit_code) == (0, 0), done.output
    assert json.loads(done.stdout) == {
        "table": earlier.name("killed"),
        "runs": [run.name for run in earlier.runs("killed")],
        "refused": {},
    }
    assert "0 runs of an earlier release checked" in again.output
    assert earlier.told("killed") == ["migrate"]


def test_a_journal_of_version_1_that_comes_later_is_refused(earlier: Earlier) -> None:
    """After the cut a copy of an old journal under another name, or one that was changed, is not acted upon."""
    spark, name = earlier.lake.spark, earlier.name("finished")
    earlier.migrate(name)
    (run,) = earlier.runs("finished")
    (run / "000011.json").unlink(missing_ok=True)
    last = max(run.iterdir())
    last.unlink()
    with pytest.raises(SparkcryptError, match="the table's audit does not name it"):
        expire_run(spark, name, earlier.policy, run_id=run.name)
    assert len(list((ROOT / "db" / "finished").rglob("*.parquet"))) == 2


def test_a_journal_that_the_audit_contradicts_is_not_migrated(earlier: Earlier) -> None:
    """A swap without its audit entry: the run is refused with the reason, and the cut says so."""
    spark, name = earlier.lake.spark, earlier.name("finished")
    folder = ROOT / "state" / "audit" / earlier.table_id("finished")
    for file in ("00000002.json", "head-00000002.json"):
        (folder / file).unlink()
    migrated = earlier.migrate(name)
    (run,) = earlier.runs("finished")
    assert (dict(migrated.runs), list(migrated.refused)) == ({}, [run.name])
    done = expire_run(spark, name, earlier.policy)
    assert (done.run_ids, len(done.unread)) == ((), 1)
    assert len(list((ROOT / "db" / "finished").rglob("*.parquet"))) == 2

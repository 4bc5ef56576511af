"""What the commands answer to mistakes of their users: the thing, the reason, what is allowed, and the next step."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparkcrypt.ledger.audit.key_audit import key_audit
from sparkcrypt.ledger.state.store import LocalStateStore
from sparkcrypt.runs.passes.units import UnitWork
from sparkcrypt.runs.rewrite import schedule
from sparkcrypt.runs.rewrite.keks import TableKeks
from sparkcrypt.runs.rewrite.schedule import Result
from sparkcrypt.runs.table.unit_survey import UnitSurvey
from sparkcrypt.spark.jvm.failures import list_java_errors
from sparkcrypt.spark.tables.catalog import Catalog
from tests.spark.sessions import run_command
from tests.spark.support import Lake, data_files, key_service, make_policy
from tests.spark.tables import make_table

pytestmark = pytest.mark.spark


def policy_of(lake: Lake) -> str:
    """Create a policy with its keys; return the path of its file."""
    make_policy(lake.root / "p")
    return str(lake.root / "p" / "policy.yaml")


def test_predicate_that_does_not_fit_the_table_is_a_usage_error(lake: Lake, capfd: pytest.CaptureFixture[str]) -> None:
    """It ends with 64 in one line that names option, reason and the columns that are allowed, without Java's stack."""
    policy = policy_of(lake)
    make_table(lake, "t", partitions=1)
    make_table(lake, "u", partitions=0)
    table = lake.name("t")
    reasons = {
        "dya >= 1": "`dya` is no column of the table",
        "Email = 'a'": "`Email` is in the files, and no partition column",
        "p >>= 1": "Syntax error at or near '='",
        "p = 'x": "Syntax error at or near",
        "p = 'x'": "cannot be cast",
    }
    for where, reason in reasons.items():
        for command in ("plan", "encrypt", "backfill"):
            done = run_command(lake, command, "--table", table, "--where", where, "--policy", policy)
            assert done.exit_code == 64, done.output
            line = next(line for line in done.output.splitlines() if "--where" in line and "allowed:" in line)
            assert repr(where) in line and reason in line, line
            assert f"on the partition columns of {table}: p (int); such as --where \"p = '0'\"" in line
            assert "SQLSTATE" not in done.output and "`#`" not in done.output
    assert "SQLQueryContextLogger" not in capfd.readouterr().err
    for target in (["--table", lake.name("u")], ["--path", str(lake.path("u"))]):
        done = run_command(lake, "plan", *target, "--where", "p = 1", "--policy", policy)
        assert (done.exit_code, "leave it out" in done.output) == (64, True), done.output
    both = run_command(lake, "plan", "--database", lake.database, "--where", "p = 0", "--policy", policy)
    assert both.exit_code == 74, both.output  # one of the tables fits it
    none = run_command(lake, "plan", "--table", table, "--where", "p = 7", "--policy", policy)
    assert "'p = 7' chooses no partition" in none.output


def test_plan_names_the_keys_that_are_missing(lake: Lake) -> None:
    """Each with the next step, and ends with 69: one that was never made is to be made, all others never; none is made.

    A key that files, the state directory or a tombstone know is lost, or shredded.
    """
    made = make_policy(lake.root / "p", tags="\n  pii: {key: 'pii-{p}'}\n")
    policy, service = str(lake.root / "p" / "policy.yaml"), key_service(made)
    make_table(lake, "t", partitions=4)
    table, store = lake.name("t"), LocalStateStore(lake.root / "p" / "state")
    service.create("pii-0")
    service.create("pii-2")
    TableKeks(store, "id-1", made.key_service, 128).find_or_make(service, ["pii-2"])
    with key_audit(store, made, "shred apply") as audit:
        service.create("pii-3")
        audit.begin("pii-3", "case 4711", "probe", [])
        audit.bury("pii-3", "case 4711", "2026-01-01T00:00:00Z", [], "deleted")
    for key_id in ("pii-2", "pii-3"):
        service.delete_key(key_id)
    before = [key.key_id for key in service.list_keys()]
    done = run_command(lake, "plan", "--table", table, "--policy", policy)
    assert done.exit_code == 69, done.output
    told = {line.split("'")[1]: line for line in done.output.splitlines() if line.startswith("missing key:")}
    assert set(told) == {"pii-1", "pii-2", "pii-3"}
    assert (
        "if it is new, or moves from a former key service: `sparkcrypt keys create pii-1 --policy FILE`"
        in told["pii-1"]
    )
    assert "lost, and not new: restore it" in told["pii-2"]
    assert "was shredded, and its id is never used again" in told["pii-3"]
    assert not any("keys create" in told[key] for key in ("pii-2", "pii-3"))
    document = json.loads(run_command(lake, "plan", "--table", table, "--policy", policy, "--json").stdout)
    assert [key["key_id"] for key in document["missing_keys"]] == [*told]
    for command in (["plan"], ["backfill", "--dry-run"]):
        many = run_command(lake, *command, "--database", lake.database, "--policy", policy)
        assert many.exit_code == 69, many.output
        assert sum("missing key:" in line for line in many.output.splitlines()) == 3
    assert [key.key_id for key in service.list_keys()] == before
    service.delete_key("footer")
    without = run_command(lake, "plan", "--table", table, "--policy", policy)
    assert without.exit_code == 69, without.output
    assert "missing key: 'footer'" in without.output and "keys create" not in without.output


def test_tags_that_are_set_wrongly_or_for_nothing(lake: Lake) -> None:
    """Pairs set several columns; a typo is told once, with the tag that may be meant; the policy's own tags stay."""
    made = make_policy(lake.root / "p", tables=f"  {lake.name('t')}: {{tags: {{pay: [fin]}}}}\n")
    assert made.tables
    policy, table = str(lake.root / "p" / "policy.yaml"), lake.name("t")
    make_table(lake, "t", partitions=1)
    unchecked = run_command(lake, "tags", "set", table, "id=PI", "email=pii")
    assert (unchecked.exit_code, unchecked.stdout.splitlines()[0]) == (0, f"{table}: 2 columns set")
    assert "not compared with a policy; with --policy" in unchecked.stderr
    typo = run_command(lake, "plan", "--table", table, "--policy", policy)
    assert typo.exit_code == 65
    (line,) = [line for line in typo.output.splitlines() if "'PI'" in line]
    assert "(from the schema metadata and the table property)" in line
    assert "did you mean 'pii'? allowed: pii, fin, public; correct the tag (`sparkcrypt tags set`)" in line
    unset = run_command(lake, "tags", "unset", table, "id", "pay", "--policy", policy)
    assert (unset.exit_code, unset.stdout.splitlines()[0]) == (0, f"{table}: 2 columns without tags now")
    assert "warning: pay still has fin, by the policy's 'tables'" in unset.stderr
    assert "warning: id" not in unset.stderr
    other = run_command(lake, "plan", "--table", f"other.{table}", "--policy", policy)
    assert "allowed: table, database.table, or spark_catalog.database.table" in other.output
    assert run_command(lake, "plan", "--table", f"spark_catalog.{table}", "--policy", policy).exit_code == 2
    gone = run_command(lake, "plan", "--table", "nosuch.t", "--policy", policy)
    assert gone.exit_code == 65
    assert "not found in the session catalog, " in gone.output and "SHOW TABLES lists what is there" in gone.output
    assert ("Derby" in gone.output and "hive.metastore.uris" in gone.output) or "in memory" in gone.output, gone.output


def test_plan_of_a_renamed_column(lake: Lake) -> None:
    """It says what a run would do, which is to refuse, and how the tag of the former name is taken off."""
    policy, table = policy_of(lake), lake.name("t")
    make_table(lake, "t", partitions=1)
    assert run_command(lake, "encrypt", "--table", table, "--policy", policy).exit_code == 0
    rename_column(lake, "t", "email", "mail")
    tagged = run_command(lake, "plan", "--table", table, "--policy", policy)
    assert tagged.exit_code == 65
    assert "column that was renamed by `sparkcrypt tags unset`" in tagged.output
    assert run_command(lake, "tags", "unset", table, "email").exit_code == 0
    planned = run_command(lake, "plan", "--table", table, "--policy", policy)
    assert "email: no column of the table, so that it has no tag; was it renamed?" in planned.output
    assert "quarantine 1" in planned.output and "decrypt" not in planned.output
    run = run_command(lake, "backfill", "--table", table, "--policy", policy)
    assert run.exit_code == 74
    assert "add the column to the table (ALTER TABLE … ADD COLUMNS)" in run.output, run.output


def rename_column(lake: Lake, table: str, old: str, new: str) -> None:
    """Rename a column in the catalog alone, as another engine does."""
    schema = json.loads(Catalog(lake.spark).table(table).schema_json)
    fields = [{**field, "name": new if field["name"] == old else field["name"]} for field in schema["fields"]]
    data = lake.jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps({**schema, "fields": fields[:-1]}))
    lake.spark._jsparkSession.sharedState().externalCatalog().alterTableDataSchema(lake.database, table, data)
    lake.spark.sql(f"REFRESH TABLE {table}")


def test_job_without_sparkcrypt_that_appends_is_told(lake: Lake) -> None:
    """Plans and passes say that files came in clear after a run, who may have written them, and what keeps it away."""
    policy, table = policy_of(lake), lake.name("t")
    make_table(lake, "t", partitions=1)
    before = run_command(lake, "plan", "--table", table, "--policy", policy)
    assert "written in clear since" not in before.output
    assert run_command(lake, "encrypt", "--table", table, "--policy", policy).exit_code == 0
    with lake.stranger() as stranger:
        stranger.sql("INSERT INTO t VALUES (9, 'x', 1.0, 0)")
    for command in (["plan"], ["plan", "--database", lake.database], ["backfill"]):
        target = ["--table", table] if "--database" not in command else []
        told = run_command(lake, *command, *target, "--policy", policy)
        assert "1 file was written in clear since run " in told.output, told.output
        assert "by a job without sparkcrypt" in told.output and "docs/existing-jobs.md" in told.output
    again = run_command(lake, "plan", "--table", table, "--policy", policy)
    assert (again.exit_code, "written in clear since" in again.output) == (0, False)


@pytest.mark.parametrize("command", ["encrypt", "backfill"])
def test_interrupted_run_says_how_far_it_came(lake: Lake, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """And that the same command continues, which it does."""
    policy, table = policy_of(lake), lake.name("t")
    make_table(lake, "t", partitions=3)
    options = ["--table", table, "--policy", policy] + (["--parallelism", "1"] if command == "backfill" else [])
    rewrite, begun = UnitWork.process_all, list[str]()

    def interrupt(self: UnitWork, surveys: Sequence[UnitSurvey]) -> list[Result]:
        begun.extend(survey.name for survey in surveys)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return rewrite(self, surveys)

    with monkeypatch.context() as patch:
        patch.setattr(UnitWork, "process_all", interrupt)
        patch.setattr(schedule, "MOST_UNITS", 1)
        stopped = run_command(lake, command, *options)
    assert stopped.exit_code == 130
    assert "error: interrupted: 1 of 3 units is done and stays so; the same command continues" in stopped.output
    done = run_command(lake, command, *options, "--json")
    assert done.exit_code == 0, done.output
    assert run_command(lake, "plan", "--table", table, "--policy", policy).exit_code == 0


def test_messages_of_other_programs_are_as_the_page_says(lake: Lake) -> None:
    """A session without the policy and pyarrow say of encrypted files what docs/operations.md explains."""
    policy, table = policy_of(lake), lake.name("t")
    make_table(lake, "t", partitions=0)
    assert run_command(lake, "encrypt", "--table", table, "--policy", policy).exit_code == 0
    told: list[str] = []
    with lake.stranger() as stranger, pytest.raises(Exception) as of_spark:  # of py4j or pyspark
        stranger.table("t").collect()
    told.append("\n".join([str(of_spark.value), *list_java_errors(of_spark.value)]))
    with pytest.raises(OSError, match="encrypted") as of_arrow:
        pq.read_table(data_files(lake.path("t"))[0])
    told.append(str(of_arrow.value))
    job = subprocess.run([sys.executable, "jobs/encrypt_table.py"], cwd=lake.root, capture_output=True, check=False)
    told.append(job.stderr.decode().replace(str(lake.root), "…"))
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    section = page.partition("## Messages of other programs")[2]
    quoted = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
    for quote, said in zip(quoted, told, strict=True):
        assert quote in said, said

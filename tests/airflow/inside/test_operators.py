"""What operators submit, and how they end: by the report of this submission, and by nothing else."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import fsspec
import pytest
from airflow.exceptions import AirflowException

from sparkcrypt.airflow import (
    SparkcryptBackfillOperator,
    SparkcryptCheckKeysOperator,
    SparkcryptExpireOperator,
    SparkcryptIndexOperator,
    SparkcryptOperator,
    SparkcryptPlanOperator,
    SparkcryptResolveOperator,
    SparkcryptRotateOperator,
    SparkcryptShredOperator,
    SparkcryptVerifyOperator,
    read_report,
)
from sparkcrypt.airflow.versions import ObjectStoragePath
from tests.airflow.inside.conftest import DAG, SparkSubmit, report, table, trying

try:
    from airflow.sdk.io import attach
except ModuleNotFoundError:  # Airflow 2
    from airflow.io.store import attach

BOTH = pytest.mark.parametrize("operator", [SparkcryptPlanOperator, SparkcryptBackfillOperator])


def plan_report(**fields: Any) -> dict[str, Any]:
    """Return the report of a plan that found drift."""
    return report(outcome="dry run", tables=[table(units_left=2, outcome="dry run")], **fields)


def due_key(key_id: str = "contact-2025-01", **fields: Any) -> dict[str, Any]:
    """Return what a report says of a key that is due."""
    return {"key_id": key_id, "is_there": True, "holds": [], "refused": [], **fields}


def shred_report(**fields: Any) -> dict[str, Any]:
    """Return the report of a shredding, or of its plan, with other fields."""
    return {"kind": "sparkcrypt shred", "version": 1, "outcome": "dry run", "keys": [], "head": "2:ab", **fields}


def index_report(**fields: Any) -> dict[str, Any]:
    """Return the report of a store that was refreshed, with other fields."""
    made = {"store": "/indexes/u", "generation": 3, "objects": 40, "read": 2, "written": True, "left_out": []}
    return {"kind": "sparkcrypt index", "version": 1, "table": "sales.orders", "outcome": "done", **made, **fields}


def verify_report(**fields: Any) -> dict[str, Any]:
    """Return the report of a verification, with other fields."""
    found: dict[str, Any] = {"drift": [], "manifest": None, "lacks_tagged_columns": [], "verified": True}
    return {
        "kind": "sparkcrypt verify",
        "version": 1,
        "table": "sales.orders",
        "outcome": "verified",
        **found,
        **fields,
    }


def expire_report(**fields: Any) -> dict[str, Any]:
    """Return the report of an expiry of one table, whose fields are given."""
    expired = {"table": "sales.orders", "refused": {}, "unread": [], **fields.pop("table", {})}
    head = {"kind": "sparkcrypt expire", "version": 1, "outcome": "done"}
    return {**head, "tables": [expired], "left": {}, "failed": [], **fields}


def check_report(*unopened: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the report of a check of keys."""
    head = {"kind": "sparkcrypt keys check", "version": 1, "outcome": "incomplete" if unopened else "done"}
    return {**head, "tables": [{"table": "sales.orders", "unopened": [*unopened]}], **fields}


def resolve_report(**fields: Any) -> dict[str, Any]:
    """Return the report of a problem that was resolved."""
    return {"kind": "sparkcrypt resolve", "version": 1, "outcome": "done", "keep": "new", "run": None, **fields}


def ending_of(operator: type) -> dict[str, Any]:
    """Return a report of what an operator asks for."""
    return report(outcome="dry run" if operator is SparkcryptPlanOperator else "done")


def test_plan_with_drift_succeeds_although_spark_submit_says_two(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """Drift is a plan's news and no failure: exit code 2 raises nothing, and the XCom says it."""
    spark_submit.will((plan_report(), 2))
    result = SparkcryptPlanOperator(**arguments).execute(context)
    assert result["drift"] is True
    assert result["outcome"] == "dry run"
    assert spark_submit.jobs == [["--table", "sales.orders", "--policy", "policy.yaml", "--dry-run"]]
    assert spark_submit.calls[0][:4] == ["--master", "local[2]", "--conf", "spark.yarn.maxAppAttempts=1"]


def test_plan_without_drift_says_so(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """A plan in which all files match has no drift in its XCom."""
    spark_submit.will((report(outcome="dry run", tables=[table(outcome="dry run")]), 0))
    assert SparkcryptPlanOperator(**arguments).execute(context)["drift"] is False


def test_each_submission_has_a_report_of_its_own(spark_submit: SparkSubmit, arguments: dict[str, Any]) -> None:
    """No two tries share a report's name, which says whose it is, and holds no character that a file system refuses."""
    spark_submit.will(*[(report(outcome="done"), 0)] * 3)
    for number in (1, 2, 2):
        SparkcryptBackfillOperator(**arguments).execute(trying(number))
    names = [Path(path).name for path in spark_submit.reports]
    assert len(set(names)) == 3
    assert names[1].startswith("nightly.backfill.scheduled__2026-11-21T01-00-00-00-00.2.2.")


@BOTH
def test_older_reports_are_never_taken(operator: type, spark_submit: SparkSubmit, arguments: dict[str, Any]) -> None:
    """A try that writes no report fails, however good the reports of earlier tries are."""
    spark_submit.will((ending_of(operator), 0), (None, 0))
    operator(**arguments).execute(trying(1))
    with pytest.raises(AirflowException, match=r"wrote no report to .*; is report_folder on a file system"):
        operator(**arguments).execute(trying(2))


@BOTH
def test_killed_job_fails_with_what_spark_submit_said(
    operator: type, spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """A job that was killed has no report: the task fails with the exit code."""
    spark_submit.will((None, 137))
    with pytest.raises(AirflowException, match=r"wrote no report to .*: Cannot execute: .*Error code is: 137"):
        operator(**arguments).execute(context)


@BOTH
@pytest.mark.parametrize("code", [0, 77])
def test_failed_job_fails_with_the_reports_error(
    operator: type, code: int, spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """The report's error is the task's, also where the exit code was lost."""
    error = {"type": "KeyAccessDeniedError", "message": "key pii: denied", "exit_code": 77}
    failed = {"kind": "sparkcrypt backfill", "version": 1, "table": "t", "outcome": "failed", "error": error}
    spark_submit.will((failed, code))
    with pytest.raises(AirflowException, match=r"KeyAccessDeniedError: key pii: denied \(exit code 77; report .*json"):
        operator(**arguments).execute(context)


@BOTH
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"kind": "sparkcrypt backf', "is not JSON; was it cut off"),
        ("[]", "is not a report of sparkcrypt backfill, version 1"),
        (json.dumps(report(version=2)), "is not a report of sparkcrypt backfill, version 1"),
        (json.dumps({"outcome": "done", "verified": True}), "is not a report of sparkcrypt backfill, version 1"),
    ],
)
def test_what_is_no_report_fails(
    operator: type, text: str, said: str, spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """A report that is torn, of another job or of another version is no success."""
    spark_submit.will((text, 0))
    with pytest.raises(AirflowException, match=said):
        operator(**arguments).execute(context)


@BOTH
def test_report_of_the_other_kind_fails(
    operator: type, spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """A plan is not done by a backfill, nor a backfill by a plan."""
    other = report(outcome="done" if operator is SparkcryptPlanOperator else "dry run")
    spark_submit.will((other, 0))
    with pytest.raises(AirflowException, match="is not that of a"):
        operator(**arguments).execute(context)


UNIT = {"unit": "p=1", "error": "FormatError", "message": "torn"}
QUARANTINED = table(outcome="incomplete", quarantined=[UNIT])
DIFFERENCE = {"file": "f.parquet", "column": "email", "kind": "plaintext", "detail": "not encrypted"}
FAILED_TABLE = {"table": "s.t", "error": "PlanError", "message": "no"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tables": [QUARANTINED]}, "sales.orders, p=1: FormatError: torn"),
        ({"failed": [{"table": "s.t", "error": "PlanError", "message": "no tag x"}]}, "s.t: PlanError: no tag x"),
        ({"refused": [{"table": "s.t", "reason": "shares a folder"}]}, "s.t was refused: shares a folder"),
        ({}, "it does not say what"),
    ],
)
def test_what_was_left_out_fails_unless_it_is_allowed(
    fields: dict[str, Any], said: str, spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """Quarantined units, failed and refused tables fail the task by name; or the XCom carries them downstream."""
    spark_submit.will(*[(report(outcome="incomplete", **fields), 74)] * 2)
    with pytest.raises(AirflowException, match=f"could not do everything: {said}"):
        SparkcryptBackfillOperator(**arguments).execute(context)
    result = SparkcryptBackfillOperator(**arguments, allow_incomplete=True).execute(context)
    assert result["outcome"] == "incomplete"


@pytest.mark.parametrize("code", [0, 74])
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"failed": [{"table": "s.t", "error": "PlanError", "message": "no tag x"}]}, "s.t: PlanError: no tag x"),
        ({"refused": [{"table": "s.t", "reason": "lost its tags"}]}, "s.t was refused: lost its tags"),
    ],
)
def test_plan_that_could_not_plan_a_table_fails_unless_it_is_allowed(
    code: int,
    fields: dict[str, Any],
    said: str,
    spark_submit: SparkSubmit,
    context: dict[str, Any],
    arguments: dict[str, Any],
) -> None:
    """Silence about a table without a plan would be taken for a match, also where the exit code was lost."""
    spark_submit.will(*[(plan_report(**fields), code)] * 2)
    with pytest.raises(AirflowException, match=f"could not plan everything: {said} .*the drift of others is told"):
        SparkcryptPlanOperator(**arguments).execute(context)
    result = SparkcryptPlanOperator(**arguments, allow_incomplete=True).execute(context)
    assert (result["outcome"], result["drift"]) == ("dry run", True)


def test_long_lists_are_cut_in_the_xcom_and_whole_in_the_report(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """The XCom keeps the first entries of each list, says how many it left out, and where all are."""
    units = [{"unit": f"p={n}", "notes": ["a", "b", "c"]} for n in range(7)]
    points = [{"seconds": 1, "files": 1, "bytes": 1}]
    spark_submit.will((report(outcome="done", tables=[table(units=units)], throughput=points), 0))
    result = SparkcryptBackfillOperator(**arguments, xcom_items=2).execute(context)
    (cut,) = result["tables"]
    assert [unit["unit"] for unit in cut["units"]] == ["p=0", "p=1"]
    assert (cut["units_left_out"], cut["units"][0]["notes_left_out"]) == (5, 1)
    assert "throughput" not in result
    assert "tables_left_out" not in result
    assert [unit["unit"] for unit in read_report(result["report"])["tables"][0]["units"]] == [
        f"p={n}" for n in range(7)
    ]


def test_pass_that_stopped_at_its_budget_succeeds(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """What is left is the next pass's; the XCom says that there is some."""
    spark_submit.will((report(outcome="stopped at budget", tables=[table(units_left=4)]), 0))
    result = SparkcryptBackfillOperator(**arguments).execute(context)
    assert (result["outcome"], result["drift"]) == ("stopped at budget", True)


def test_arguments_of_the_job_are_not_the_dags_to_set(arguments: dict[str, Any]) -> None:
    """A DAG that gives application_args is told where they go when it is parsed."""
    with pytest.raises(AirflowException, match="give options to add to them"):
        SparkcryptPlanOperator(**arguments, application_args=["--table", "x"])


def test_missing_spark_submit_is_named(
    monkeypatch: pytest.MonkeyPatch, spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """A worker without Spark's client says what is missing and where it is set."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(AirflowException, match="spark-submit is not on this worker's PATH; install"):
        SparkcryptPlanOperator(**arguments).execute(context)


def test_report_that_cannot_be_reached_from_here_is_told(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """A folder in a file system that this worker has no client for ends with what to do about it."""
    spark_submit.will((None, 0))
    with pytest.raises(AirflowException, match=r"nosuch://store/.*cannot be read from here .*install its Airflow"):
        SparkcryptPlanOperator(**{**arguments, "report_folder": "nosuch://store/reports"}).execute(context)


def test_report_is_read_through_airflows_object_storage() -> None:
    """A report on another file system is read by Airflow's own means."""
    attach(protocol="memory", fs=fsspec.filesystem("memory"))
    ObjectStoragePath("memory://reports/r.json").write_text(json.dumps(report(outcome="done")))
    assert read_report("memory://reports/r.json")["outcome"] == "done"
    with pytest.raises(AirflowException, match="is not there"):
        read_report("memory://reports/other.json")


def test_retry_does_not_connect_to_an_earlier_submission(arguments: dict[str, Any]) -> None:
    """The provider's way to wait for an earlier try's application would wait for another report."""
    assert SparkcryptBackfillOperator(**arguments).durable is False


def test_on_kill_ends_the_submission(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stops a task stops its spark-submit: the provider is told of the latest submission."""
    spark_submit.will((report(outcome="done"), 0))
    operator = SparkcryptBackfillOperator(**arguments)
    operator.execute(context)
    ended = []
    monkeypatch.setattr(operator._hook, "on_kill", lambda: ended.append(operator._hook._application_args))
    operator.on_kill()
    assert len(ended) == 1 and spark_submit.reports[0] in ended[0]


@pytest.mark.parametrize(
    ("operator", "foreign", "said"),
    [
        (SparkcryptPlanOperator, {"key": "pii"}, "backfill has no key; allowed: table, database, path"),
        (SparkcryptBackfillOperator, {"apply": True, "reason": "r"}, "backfill has no apply, reason"),
        (SparkcryptIndexOperator, {"where": "day > 1"}, "index has no where"),
        (SparkcryptShredOperator, {"columns": ["id"], "dry_run": True}, "shred has no columns, dry_run"),
        (
            SparkcryptVerifyOperator,
            {"database": "sales"},
            "verify has no database; allowed: table, path, policy, where",
        ),
        (SparkcryptCheckKeysOperator, {"where": "day > 1"}, "check_keys has no where"),
        (SparkcryptExpireOperator, {"changed": True}, "expire has no changed"),
        (SparkcryptOperator, {"command": "encrypt"}, "no command 'encrypt'; allowed: backfill, rotate, shred, index"),
    ],
)
def test_argument_of_another_command_is_refused(
    operator: type, foreign: dict[str, Any], said: str, arguments: dict[str, Any]
) -> None:
    """What a job does not have is refused when the DAG is parsed, and never left out silently."""
    with pytest.raises(AirflowException, match=said):
        operator(**arguments, **foreign)


def test_default_arguments_of_a_dag_may_be_those_of_several_commands(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """Each task takes from them what its job has."""
    with DAG("d", default_args={**arguments, "where": "day > 1", "key": "pii"}):
        operators: tuple[Any, ...] = (SparkcryptBackfillOperator, SparkcryptRotateOperator)
        made = [operator(task_id=operator.__name__) for operator in operators]
    spark_submit.will(*[(report(outcome="done"), 0)] * 2)
    for task in made:
        task.execute(context)
    policy = ["--policy", "policy.yaml"]
    assert spark_submit.jobs == [
        ["--table", "sales.orders", *policy, "--where", "day > 1"],
        ["--key", "pii", "--table", "sales.orders", *policy],
    ]


PLAN, BACKFILL = SparkcryptPlanOperator, SparkcryptBackfillOperator
ROTATE, SHRED, INDEX = SparkcryptRotateOperator, SparkcryptShredOperator, SparkcryptIndexOperator
VERIFY, EXPIRE = SparkcryptVerifyOperator, SparkcryptExpireOperator
CHECK, RESOLVE = SparkcryptCheckKeysOperator, SparkcryptResolveOperator
SHREDS = {"apply": True, "reason": "contract ended"}
DONE, SHREDDED = report(outcome="done"), shred_report(outcome="done", shredded=[due_key()])


def task(operator: Any, arguments: dict[str, Any], **choices: Any) -> Any:
    """Make a task; rotations and shreddings are of no table unless one is chosen, a rotation is of ``pii``."""
    chosen = dict(arguments)
    if operator in (ROTATE, SHRED):
        del chosen["table"]
    if operator is ROTATE:
        chosen["key"] = "pii"
    if operator is RESOLVE:
        chosen |= {"problem": "3f9a2c1d04b7", "keep": "new", "reason": "ours"}
    return operator(**{**chosen, **choices})


@pytest.mark.parametrize(
    ("operator", "choices", "ending", "job"),
    [
        (
            BACKFILL,
            {"table": ["sales.a*", "sales.b"], "database": "hr", "where": "day >= 1", "changed": True},
            DONE,
            "--table sales.a* --table sales.b --database hr --policy policy.yaml --where 'day >= 1' --changed",
        ),
        (BACKFILL, {"options": ["--max-duration", "4h"]}, DONE, "--table sales.orders {} --max-duration 4h"),
        (SparkcryptOperator, {"command": "backfill"}, DONE, "--table sales.orders {}"),
        (ROTATE, {}, DONE, "--key pii {}"),
        (ROTATE, {"dry_run": True}, plan_report(), "--key pii {} --dry-run"),
        (
            ROTATE,
            {"table": ["sales.a*", ""], "database": ["hr"], "options": ["--compromised"]},
            DONE,
            "--key pii --table sales.a* --database hr {} --compromised",
        ),
        (SHRED, {}, shred_report(), "plan {}"),
        (SHRED, SHREDS, SHREDDED, "apply {} --yes --reason 'contract ended'"),
        (
            SHRED,
            {"table": ["sales.a*", ""], "database": "hr", "key": "acme", "head": "7:3f", "options": ["-x"], **SHREDS},
            SHREDDED,
            "apply --table sales.a* --database hr --key acme --head 7:3f {} --yes --reason 'contract ended' -x",
        ),
        (INDEX, {}, index_report(), "refresh --table sales.orders {}"),
        (
            INDEX,
            {"columns": ["id", "", "email:bloom"], "options": ["--most-values", "5000"]},
            index_report(),
            "create --table sales.orders --column id --column email:bloom {} --most-values 5000",
        ),
        (
            VERIFY,
            {"where": "day > 1", "options": ["--manifest"]},
            verify_report(),
            "--table sales.orders {} --where 'day > 1' --manifest",
        ),
        (VERIFY, {"table": None, "path": "/data"}, verify_report(), "--path /data {}"),
        (
            EXPIRE,
            {"options": ["--older-than", "12h"]},
            expire_report(),
            "expire --table sales.orders {} --older-than 12h",
        ),
        (
            EXPIRE,
            {"database": ["sales", "hr"], "table": None, "dry_run": True},
            expire_report(outcome="dry run"),
            "expire --database sales --database hr {} --dry-run",
        ),
        (
            CHECK,
            {"table": ["a.*", "b.t"], "database": "hr"},
            check_report(),
            "--table 'a.*' --table b.t --database hr {}",
        ),
        (RESOLVE, {}, resolve_report(), "resolve 3f9a2c1d04b7 --table sales.orders --keep new --reason ours {}"),
    ],
)
def test_every_choice_reaches_the_job(
    operator: Any,
    choices: dict[str, Any],
    ending: dict[str, Any],
    job: str,
    spark_submit: SparkSubmit,
    context: dict[str, Any],
    arguments: dict[str, Any],
) -> None:
    """What is chosen stands on the job's command line; what a template left empty does not."""
    spark_submit.will((ending, 0))
    assert task(operator, arguments, **choices).execute(context)["outcome"] == ending["outcome"]
    assert spark_submit.jobs == [shlex.split(job.format("--policy policy.yaml"))]


@pytest.mark.parametrize(
    ("operator", "choices", "said"),
    [
        (BACKFILL, {"table": None}, "give table or database, or else path"),
        (BACKFILL, {"table": ["", None]}, "give table or database, or else path"),
        (BACKFILL, {"path": "/data"}, "give table or database, or else path"),
        (BACKFILL, {"options": ["--report=x"]}, "options hold --report"),
        (BACKFILL, {"options": ["--dry-run"]}, "options hold --dry-run"),
        (BACKFILL, {"report_folder": " "}, "report_folder is empty"),
        (BACKFILL, {"report_folder": "/proc/nowhere/reports"}, "cannot be made here"),
        (ROTATE, {"key": ""}, "key is empty"),
        (ROTATE, {"options": ["--dry-run"]}, "options hold --dry-run, which the task sets"),
        (SHRED, {"apply": True}, "apply and reason go together"),
        (SHRED, {"reason": "r"}, "apply and reason go together"),
        (SHRED, {"apply": True, "reason": " "}, "reason is empty"),
        (SHRED, {"options": ["--yes"]}, "options hold --yes, which the task sets"),
        (SHRED, {**SHREDS, "options": ["--reason=x"]}, "options hold --reason, which the task sets"),
        (INDEX, {"table": ""}, "table is empty"),
        (INDEX, {"options": ["--column", "x"]}, "options hold --column, which the task sets"),
        (VERIFY, {"path": "/data"}, "give table, or else path"),
        (VERIFY, {"table": ["a.t", "b.t"]}, "table is a list; name one, and expand"),
        (EXPIRE, {"table": ""}, "give table or database, or else path"),
        (CHECK, {"table": ""}, "give table or database; after templating there is none"),
        (RESOLVE, {"problem": ""}, "problem is empty"),
        (RESOLVE, {"reason": " "}, "reason is empty"),
        (RESOLVE, {"options": ["--keep", "old"]}, "options hold --keep, which the task sets"),
    ],
)
def test_what_cannot_be_submitted_is_refused_before(
    operator: Any,
    choices: dict[str, Any],
    said: str,
    spark_submit: SparkSubmit,
    context: dict[str, Any],
    arguments: dict[str, Any],
) -> None:
    """Templates that were rendered to nothing, folders that cannot be, and what the task alone sets submit nothing."""
    with pytest.raises(AirflowException, match=said):
        task(operator, arguments, **choices).execute(context)
    assert spark_submit.calls == []


@pytest.mark.parametrize(
    ("operator", "choices", "ending", "said"),
    [
        (ROTATE, {}, plan_report(), "is not that of a"),
        (
            ROTATE,
            {},
            report(outcome="incomplete", tables=[QUARANTINED]),
            r"could not do everything: sales\.orders, p=1: FormatError: torn",
        ),
        (
            SHRED,
            {},
            shred_report(keys=[due_key(refused=["t: is needed"])]),
            "contact-2025-01: t: is needed .*nothing was",
        ),
        (SHRED, {}, shred_report(not_scanned=[{"table": "t", "reason": "torn"}]), "refused to shred: t: torn"),
        (SHRED, {}, shred_report(doubts=["no record of it"]), "refused to shred: no record of it"),
        (SHRED, {}, shred_report(outcome="done"), "is not that of a plan"),
        (SHRED, {}, report(outcome="dry run"), "is not a report of sparkcrypt shred, version 1"),
        (
            SHRED,
            SHREDS,
            shred_report(outcome="incomplete", kept=[due_key(refused=["needed"])], left=[]),
            "contact-2025-01: needed .*the other keys that were due are gone",
        ),
        (
            SHRED,
            SHREDS,
            shred_report(outcome="incomplete", left=[{"key_id": "k", "reason": "is held"}]),
            "refused to shred: k: is held",
        ),
        (SHRED, SHREDS, shred_report(), "is not that of a shredding"),
        (
            SHRED,
            SHREDS,
            shred_report(outcome="failed", error={"type": "ConfigError", "message": "give --head", "exit_code": 78}),
            "ConfigError: give --head",
        ),
        (
            INDEX,
            {},
            index_report(outcome="failed", error={"type": "KeyAccessDeniedError", "message": "no", "exit_code": 77}),
            r"KeyAccessDeniedError: no \(exit code 77",
        ),
        (INDEX, {}, index_report(kind="sparkcrypt backfill"), "is not a report of sparkcrypt index, version 1"),
        (INDEX, {}, index_report(outcome="dry run"), "is not that of a store"),
        (VERIFY, {}, verify_report(outcome="drift", drift=[DIFFERENCE]), "f.parquet: email: plaintext: not encrypted"),
        (
            VERIFY,
            {},
            verify_report(outcome="drift", manifest={"missing": ["a"], "changed": ["b"]}),
            "a: missing; b: changed",
        ),
        (
            VERIFY,
            {},
            verify_report(outcome="drift", lacks_tagged_columns=[{"file": "f", "columns": ["x"]}]),
            "f: lacks x",
        ),
        (VERIFY, {}, verify_report(outcome="drift"), "it does not say what"),
        (
            EXPIRE,
            {},
            expire_report(outcome="incomplete", table={"refused": {"p=1": "a problem is open"}}),
            "left old files: sales.orders: a problem is open .*the other old files are gone",
        ),
        (EXPIRE, {}, expire_report(outcome="incomplete", table={"unread": ["run x"]}), "sales.orders: run x"),
        (EXPIRE, {}, expire_report(outcome="incomplete", failed=[FAILED_TABLE]), "s.t: PlanError: no"),
        (EXPIRE, {}, expire_report(outcome="dry run"), "is not that of an expiry"),
        (
            CHECK,
            {},
            check_report({"file": "f", "error": "KeyAccessDeniedError", "message": "no"}),
            "could not open everything: f: KeyAccessDeniedError: no",
        ),
        (
            RESOLVE,
            {},
            resolve_report(outcome="incomplete", run={"quarantined": [UNIT]}),
            "p=1: FormatError: torn .*the problem is resolved",
        ),
    ],
)
def test_report_of_what_was_not_done_fails_the_task(
    operator: Any,
    choices: dict[str, Any],
    ending: dict[str, Any],
    said: str,
    spark_submit: SparkSubmit,
    context: dict[str, Any],
    arguments: dict[str, Any],
) -> None:
    """What was left, what stood against a key that is due, and a report of something else fail with the reason."""
    spark_submit.will((ending, 74))
    with pytest.raises(AirflowException, match=said):
        task(operator, arguments, **choices).execute(context)


@pytest.mark.parametrize(
    ("operator", "templates", "rendered"),
    [
        (PLAN, {"table": "{{ params.v }}", "where": "day = '{{ params.v }}'"}, {"table": "x", "where": "day = 'x'"}),
        (ROTATE, {"key": "{{ params.v }}"}, {"key": "x"}),
        (SHRED, {"apply": True, "reason": "{{ params.v }}", "head": "{{ params.v }}"}, {"reason": "x", "head": "x"}),
        (INDEX, {"table": "{{ params.v }}", "columns": ["{{ params.v }}"]}, {"table": "x", "columns": ["x"]}),
        (RESOLVE, {"problem": "{{ params.v }}", "keep": "{{ params.v }}"}, {"problem": "x", "keep": "x"}),
    ],
)
def test_what_differs_from_night_to_night_is_templated(
    operator: Any, templates: dict[str, Any], rendered: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """Tables, keys, partitions, columns, reasons and heads can be rendered, such as from the parameters of a run."""
    with DAG("d"):
        made = task(operator, arguments, **templates)
    made.render_template_fields({"params": {"v": "x"}})
    assert {name: getattr(made, name) for name in rendered} == rendered
    assert set(made.template_fields) >= {*rendered, "policy", "options", "report_folder", "conf"}


@pytest.mark.parametrize(
    ("operator", "name"), [(BACKFILL, "where"), (ROTATE, "key"), (INDEX, "table"), (VERIFY, "table")]
)
def test_tasks_are_expanded(operator: Any, name: str, arguments: dict[str, Any]) -> None:
    """Partitions, keys and tables can be expanded into tasks."""
    rest = {key: value for key, value in arguments.items() if key != name}
    with DAG("d"):
        mapped = operator.partial(**rest).expand(**{name: ["p = 1", "p = 2"]})
    assert set(mapped.template_fields) >= {name, "policy", "options", "report_folder", "conf"}


def test_dry_runs_say_whether_anything_is_left(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """A dry run succeeds; its XCom says whether there is drift, or whether a key is due: one that is held is not."""
    held = due_key("contact-2025-02", holds=[{"number": 1}])
    spark_submit.will((plan_report(), 2), (shred_report(keys=[held, due_key()]), 2), (shred_report(keys=[held]), 0))
    assert task(ROTATE, arguments, dry_run=True).execute(context)["drift"] is True
    for due in (True, False):
        told = task(SHRED, arguments).execute(context)
        assert (told["due"], told["head"], told["outcome"]) == (due, "2:ab", "dry run")


def test_long_list_of_files_is_cut(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """The XCom of an index keeps the first of the files that were left out, and their number."""
    spark_submit.will((index_report(left_out=["a", "b", "c"]), 0))
    told = task(INDEX, arguments, xcom_items=2).execute(context)
    assert (told["generation"], told["left_out"], told["left_out_left_out"]) == (3, ["a", "b"], 1)

"""What operators submit, and how they end: by the report of this submission, and by nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.exceptions import AirflowException
from airflow.sdk import DAG

from sparkcrypt.airflow import (
    SparkcryptBackfillOperator,
    SparkcryptIndexOperator,
    SparkcryptOperator,
    SparkcryptPlanOperator,
    SparkcryptRotateOperator,
    SparkcryptShredOperator,
    read_report,
)
from tests.airflow.inside.conftest import SparkSubmit, report, table, trying

BOTH = pytest.mark.parametrize("operator", [SparkcryptPlanOperator, SparkcryptBackfillOperator])


def plan_report(**fields: Any) -> dict[str, Any]:
    """Return the report of a plan that found drift."""
    return report(outcome="dry run", tables=[table(units_left=2, outcome="dry run")], **fields)


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


def test_every_choice_reaches_the_job(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """Tables, databases, partitions and further options stand on the job's command line."""
    spark_submit.will((report(outcome="done"), 0))
    more = {
        "table": ["sales.a*", "sales.b"],
        "database": "hr",
        "where": "day >= '2026-01-01'",
        "changed": True,
        "options": ["--max-duration", "4h"],
    }
    SparkcryptBackfillOperator(**{**arguments, **more}).execute(context)
    (job,) = spark_submit.jobs
    assert job[:8] == ["--table", "sales.a*", "--table", "sales.b", "--database", "hr", "--policy", "policy.yaml"]
    assert job[8:] == ["--where", "day >= '2026-01-01'", "--changed", "--max-duration", "4h"]


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


QUARANTINED = table(outcome="incomplete", quarantined=[{"unit": "p=1", "error": "FormatError", "message": "torn"}])


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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"table": None}, "give table or database, or else path"),
        ({"table": ["", None]}, "give table or database, or else path"),
        ({"path": "/data"}, "give table or database, or else path"),
        ({"options": ["--report=x"]}, "options hold --report"),
        ({"options": ["--dry-run"]}, "options hold --dry-run"),
        ({"report_folder": " "}, "report_folder is empty"),
        ({"report_folder": "/proc/nowhere/reports"}, "cannot be made here"),
    ],
)
def test_what_cannot_be_submitted_is_refused_before(
    changes: dict[str, Any], said: str, spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """Templates that were rendered to nothing, and folders that cannot be, end before anything is submitted."""
    with pytest.raises(AirflowException, match=said):
        SparkcryptBackfillOperator(**{**arguments, **changes}).execute(context)
    assert spark_submit.calls == []


@pytest.fixture
def rotation(arguments: dict[str, Any]) -> dict[str, Any]:
    """What a rotation of one key, wherever it is known to be, is made from."""
    return {name: value for name, value in arguments.items() if name != "table"} | {"key": "pii"}


def test_rotation_of_a_key_reaches_the_job(
    spark_submit: SparkSubmit, context: dict[str, Any], rotation: dict[str, Any]
) -> None:
    """A key, tables and options stand on the job's command line; without tables those that hold the key are meant."""
    spark_submit.will(*[(report(outcome="done"), 0)] * 2)
    SparkcryptRotateOperator(**rotation).execute(context)
    more: dict[str, Any] = {
        "table": ["sales.a*", ""],
        "database": ["hr"],
        "options": ["--compromised", "--max-duration", "4h"],
    }
    SparkcryptRotateOperator(**rotation, **more).execute(context)
    assert spark_submit.jobs[0] == ["--key", "pii", "--policy", "policy.yaml"]
    assert spark_submit.jobs[1][:6] == ["--key", "pii", "--table", "sales.a*", "--database", "hr"]
    assert spark_submit.jobs[1][6:] == ["--policy", "policy.yaml", "--compromised", "--max-duration", "4h"]


def test_rotation_that_is_only_planned_says_whether_anything_is_left(
    spark_submit: SparkSubmit, context: dict[str, Any], rotation: dict[str, Any]
) -> None:
    """A dry run succeeds with what would be rewrapped, and its report is not taken for a rotation."""
    spark_submit.will((plan_report(), 2), (plan_report(), 2))
    assert SparkcryptRotateOperator(**rotation, dry_run=True).execute(context)["drift"] is True
    assert spark_submit.jobs[0][-1] == "--dry-run"
    with pytest.raises(AirflowException, match="is not that of a"):
        SparkcryptRotateOperator(**rotation).execute(context)


def test_rotation_that_left_units_fails(
    spark_submit: SparkSubmit, context: dict[str, Any], rotation: dict[str, Any]
) -> None:
    """Units under the earlier version fail the task by name, so that a try goes on with them."""
    spark_submit.will((report(outcome="incomplete", tables=[QUARANTINED]), 74))
    with pytest.raises(AirflowException, match=r"could not do everything: sales\.orders, p=1: FormatError: torn"):
        SparkcryptRotateOperator(**rotation).execute(context)


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"key": ""}, "key is empty"), ({"options": ["--dry-run"]}, "options hold --dry-run, which the task sets")],
)
def test_rotation_that_cannot_be_submitted_is_refused_before(
    changes: dict[str, Any], said: str, spark_submit: SparkSubmit, context: dict[str, Any], rotation: dict[str, Any]
) -> None:
    """A template that was rendered to no key rotates none, and the task alone chooses a dry run."""
    with pytest.raises(AirflowException, match=said):
        SparkcryptRotateOperator(**{**rotation, **changes}).execute(context)
    assert spark_submit.calls == []


def test_rotations_are_templated_and_expanded(rotation: dict[str, Any]) -> None:
    """Keys can be expanded into tasks, and be rendered."""
    with DAG("d"):
        mapped = SparkcryptRotateOperator.partial(
            **{name: value for name, value in rotation.items() if name != "key"}
        ).expand(key=["pii", "fin"])
        operator = SparkcryptRotateOperator(**{**rotation, "task_id": "r", "key": "{{ params.k }}"})
    operator.render_template_fields({"params": {"k": "pii"}})
    assert operator.key == "pii"
    assert set(mapped.template_fields) >= {"key", "table", "database", "policy", "options", "report_folder", "conf"}


@pytest.fixture
def shredding(arguments: dict[str, Any]) -> dict[str, Any]:
    """What a shredding of all that is due is made from."""
    return {name: value for name, value in arguments.items() if name != "table"}


def due_key(key_id: str = "contact-2025-01", **fields: Any) -> dict[str, Any]:
    """Return what a report says of a key that is due."""
    return {"key_id": key_id, "is_there": True, "holds": [], "refused": [], **fields}


def shred_report(**fields: Any) -> dict[str, Any]:
    """Return the report of a shredding, or of its plan, with other fields."""
    return {"kind": "sparkcrypt shred", "version": 1, "outcome": "dry run", "keys": [], "head": "2:ab", **fields}


def test_shredding_is_only_planned_unless_somebody_says_more(
    spark_submit: SparkSubmit, context: dict[str, Any], shredding: dict[str, Any]
) -> None:
    """By itself the operator plans: it succeeds, and its XCom says whether a key is due; one that is held is not."""
    held = due_key("contact-2025-02", holds=[{"number": 1}])
    spark_submit.will((shred_report(keys=[held, due_key()]), 2), (shred_report(keys=[held]), 0), (shred_report(), 0))
    for due in (True, False, False):
        told = SparkcryptShredOperator(**shredding).execute(context)
        assert (told["due"], told["head"], told["outcome"]) == (due, "2:ab", "dry run")
    assert spark_submit.jobs == [["plan", "--policy", "policy.yaml"]] * 3


def test_shredding_reaches_the_job(
    spark_submit: SparkSubmit, context: dict[str, Any], shredding: dict[str, Any]
) -> None:
    """With apply and a reason keys are deleted; which, where, and by which head stands on the job's command line."""
    spark_submit.will(*[(shred_report(outcome="done", shredded=[due_key()]), 0)] * 2)
    told = SparkcryptShredOperator(**shredding, apply=True, reason="retention of contacts").execute(context)
    assert (told["outcome"], "due" in told) == ("done", False)
    more: dict[str, Any] = {
        "table": ["sales.a*", ""],
        "database": "hr",
        "key": "tenant-acme",
        "head": "7:3f",
        "options": ["--leave-out", "sales.gone"],
    }
    SparkcryptShredOperator(**shredding, apply=True, reason="contract ended", **more).execute(context)
    ending = ["--yes", "--reason", "retention of contacts"]
    assert spark_submit.jobs[0] == ["apply", "--policy", "policy.yaml", *ending]
    assert spark_submit.jobs[1][:5] == ["apply", "--table", "sales.a*", "--database", "hr"]
    assert spark_submit.jobs[1][5:11] == ["--key", "tenant-acme", "--head", "7:3f", "--policy", "policy.yaml"]
    assert spark_submit.jobs[1][11:] == ["--yes", "--reason", "contract ended", "--leave-out", "sales.gone"]


@pytest.mark.parametrize(
    ("more", "ending", "said"),
    [
        ({}, shred_report(keys=[due_key(refused=["t: is needed"])]), "contact-2025-01: t: is needed .*nothing was"),
        ({}, shred_report(not_scanned=[{"table": "t", "reason": "torn"}]), "refused to shred: t: torn"),
        ({}, shred_report(doubts=["no record of it"]), "refused to shred: no record of it"),
        ({}, shred_report(outcome="done"), "is not that of a plan"),
        ({}, report(outcome="dry run"), "is not a report of sparkcrypt shred, version 1"),
        (
            {"apply": True, "reason": "r"},
            shred_report(outcome="incomplete", kept=[due_key(refused=["needed"])], left=[]),
            "contact-2025-01: needed .*the other keys that were due are gone",
        ),
        (
            {"apply": True, "reason": "r"},
            shred_report(outcome="incomplete", left=[{"key_id": "k", "reason": "is held"}]),
            "refused to shred: k: is held",
        ),
        ({"apply": True, "reason": "r"}, shred_report(), "is not that of a shredding"),
        (
            {"apply": True, "reason": "r"},
            shred_report(outcome="failed", error={"type": "ConfigError", "message": "give --head", "exit_code": 78}),
            "ConfigError: give --head",
        ),
    ],
)
def test_shredding_that_was_refused_fails(
    more: dict[str, Any],
    ending: dict[str, Any],
    said: str,
    spark_submit: SparkSubmit,
    context: dict[str, Any],
    shredding: dict[str, Any],
) -> None:
    """What stood against a key that is due, and a report of something else, fails the task with the reason."""
    spark_submit.will((ending, 74))
    with pytest.raises(AirflowException, match=said):
        SparkcryptShredOperator(**shredding, **more).execute(context)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"apply": True}, "apply and reason go together"),
        ({"reason": "r"}, "apply and reason go together"),
        ({"apply": True, "reason": " "}, "reason is empty"),
        ({"options": ["--yes"]}, "options hold --yes, which the task sets"),
        ({"apply": True, "reason": "r", "options": ["--reason=x"]}, "options hold --reason, which the task sets"),
    ],
)
def test_shredding_that_nobody_justifies_is_refused_before(
    changes: dict[str, Any], said: str, spark_submit: SparkSubmit, context: dict[str, Any], shredding: dict[str, Any]
) -> None:
    """No key is deleted by a flag alone, by options, or for a reason that a template left empty."""
    with pytest.raises(AirflowException, match=said):
        SparkcryptShredOperator(**{**shredding, **changes}).execute(context)
    assert spark_submit.calls == []


def test_shredding_is_templated(shredding: dict[str, Any]) -> None:
    """Reason and head can be rendered, such as from the parameters of a run."""
    with DAG("d"):
        made = {**shredding, "task_id": "s", "apply": True, "reason": "{{ params.r }}", "head": "{{ params.h }}"}
        operator = SparkcryptShredOperator(**made)
    operator.render_template_fields({"params": {"r": "over", "h": "7:3f"}})
    assert (operator.reason, operator.head) == ("over", "7:3f")


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
    from airflow.sdk import ObjectStoragePath

    ObjectStoragePath("memory://reports/r.json").write_text(json.dumps(report(outcome="done")))
    assert read_report("memory://reports/r.json")["outcome"] == "done"
    with pytest.raises(AirflowException, match="is not there"):
        read_report("memory://reports/other.json")


def test_templates_and_expansion(arguments: dict[str, Any]) -> None:
    """What differs from night to night can be templated, and partitions can be expanded into tasks."""
    with DAG("d"):
        mapped = SparkcryptBackfillOperator.partial(**{**arguments, "task_id": "m"}).expand(where=["p = 1", "p = 2"])
        operator = SparkcryptPlanOperator(**{**arguments, "table": "{{ params.t }}", "where": "day = '{{ ds }}'"})
    operator.render_template_fields({"params": {"t": "sales.x"}, "ds": "2026-11-21"})
    assert (operator.table, operator.where) == ("sales.x", "day = '2026-11-21'")
    assert set(mapped.template_fields) >= {"table", "database", "where", "policy", "options", "report_folder", "conf"}


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


def index_report(**fields: Any) -> dict[str, Any]:
    """Return the report of a store that was refreshed, with other fields."""
    made = {"store": "/indexes/u", "generation": 3, "objects": 40, "read": 2, "written": True, "left_out": []}
    return {"kind": "sparkcrypt index", "version": 1, "table": "sales.orders", "outcome": "done", **made, **fields}


def test_store_is_refreshed_unless_columns_are_named(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """Without columns the store that is there is brought up to date; with columns it is made anew."""
    spark_submit.will((index_report(left_out=["a", "b", "c"]), 0), (index_report(), 0))
    told = SparkcryptIndexOperator(**arguments, xcom_items=2).execute(context)
    assert (told["outcome"], told["generation"], told["left_out"], told["left_out_left_out"]) == (
        "done",
        3,
        ["a", "b"],
        1,
    )
    more: dict[str, Any] = {"columns": ["id", "", "email:bloom"], "options": ["--most-values", "5000"]}
    SparkcryptIndexOperator(**arguments, **more).execute(context)
    assert spark_submit.jobs[0] == ["refresh", "--table", "sales.orders", "--policy", "policy.yaml"]
    assert spark_submit.jobs[1][:5] == ["create", "--table", "sales.orders", "--column", "id"]
    assert spark_submit.jobs[1][5:] == ["--column", "email:bloom", "--policy", "policy.yaml", "--most-values", "5000"]


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (
            {
                "error": {"type": "KeyAccessDeniedError", "message": "key pii: denied", "exit_code": 77},
                "outcome": "failed",
            },
            r"KeyAccessDeniedError: key pii: denied \(exit code 77",
        ),
        ({"kind": "sparkcrypt backfill"}, "is not a report of sparkcrypt index, version 1"),
        ({"outcome": "dry run"}, "is not that of a store"),
    ],
)
def test_store_that_was_not_written_fails_the_task(
    ending: dict[str, Any], said: str, spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """The report's error is the task's, and another job's report is no store's."""
    spark_submit.will((index_report(**ending), 0))
    with pytest.raises(AirflowException, match=said):
        SparkcryptIndexOperator(**arguments).execute(context)


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"table": ""}, "table is empty"), ({"options": ["--column", "x"]}, "options hold --column, which the task sets")],
)
def test_store_that_cannot_be_submitted_is_refused_before(
    changes: dict[str, Any], said: str, spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """A template that was rendered to no table indexes none, and columns are named by the task alone."""
    with pytest.raises(AirflowException, match=said):
        SparkcryptIndexOperator(**{**arguments, **changes}).execute(context)
    assert spark_submit.calls == []


def test_stores_are_templated_and_expanded(arguments: dict[str, Any]) -> None:
    """Tables can be expanded into tasks, and be rendered."""
    rest = {name: value for name, value in arguments.items() if name != "table"}
    with DAG("d"):
        mapped = SparkcryptIndexOperator.partial(**rest).expand(table=["sales.a", "sales.b"])
        operator = SparkcryptIndexOperator(
            **{**rest, "task_id": "i", "table": "{{ params.t }}", "columns": ["{{ params.c }}"]}
        )
    operator.render_template_fields({"params": {"t": "sales.a", "c": "id:bloom"}})
    assert (operator.table, operator.columns) == ("sales.a", ["id:bloom"])
    assert set(mapped.template_fields) >= {"table", "columns", "policy", "options", "report_folder", "conf"}


@pytest.mark.parametrize(
    ("operator", "foreign", "said"),
    [
        (SparkcryptPlanOperator, {"key": "pii"}, "backfill has no key; allowed: table, database, path"),
        (SparkcryptBackfillOperator, {"apply": True, "reason": "r"}, "backfill has no apply, reason"),
        (SparkcryptIndexOperator, {"where": "day > 1"}, "index has no where"),
        (SparkcryptShredOperator, {"columns": ["id"], "dry_run": True}, "shred has no columns, dry_run"),
        (SparkcryptOperator, {"command": "expire"}, "no command 'expire'; allowed: backfill, rotate, shred, index"),
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


def test_command_may_be_given_by_name(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """The one operator does what the operator of its command does."""
    spark_submit.will((report(outcome="done"), 0))
    SparkcryptOperator(command="backfill", **arguments).execute(context)
    assert spark_submit.jobs == [["--table", "sales.orders", "--policy", "policy.yaml"]]

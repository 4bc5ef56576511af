"""When sensors are true, and what a poke costs."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.exceptions import AirflowException

from sparkcrypt.airflow import SparkcryptDriftSensor, SparkcryptProblemsSensor
from tests.airflow.inside.conftest import DAG, SparkSubmit, report, table


def plan(*, drift: bool, age: timedelta = timedelta(0), **fields: Any) -> dict[str, Any]:
    """Return a plan's report."""
    started = (datetime.now(timezone.utc) - age).isoformat(timespec="seconds")
    found = table(outcome="dry run", units_left=int(drift))
    return report(**{"outcome": "dry run", "started": started, "tables": [found], **fields})


@pytest.mark.parametrize("drift", [True, False])
def test_poke_submits_a_plan_of_what_changed(
    drift: bool, spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """Without a report to read, a poke submits a plan of tables that changed; it is true when that finds drift."""
    spark_submit.will((plan(drift=drift), 2 if drift else 0))
    found = SparkcryptDriftSensor(**arguments, spark_submit={"executor_memory": "2g"}).poke(context)
    assert bool(found) is drift
    assert (found.xcom_value or {}).get("drift") is (True if drift else None)
    assert spark_submit.jobs == [["--table", "sales.orders", "--policy", "policy.yaml", "--changed", "--dry-run"]]
    assert "--executor-memory" in spark_submit.calls[0]


@pytest.mark.parametrize("drift", [True, False])
def test_poke_reads_the_latest_plan(drift: bool, tmp_path: Path, context: dict[str, Any]) -> None:
    """With a report to read, a poke submits nothing."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan(drift=drift)))
    sensor = SparkcryptDriftSensor(task_id="s", plan_report=file.as_uri())
    assert bool(sensor.poke(context)) is drift


def test_old_and_missing_plans_tell_nothing(tmp_path: Path, context: dict[str, Any]) -> None:
    """A report that is not there yet, or older than is believed, is no drift."""
    file = tmp_path / "plan.json"
    sensor = SparkcryptDriftSensor(task_id="s", plan_report=str(file), max_age=timedelta(hours=2))
    assert not sensor.poke(context)
    file.write_text(json.dumps(plan(drift=True, age=timedelta(hours=3))))
    assert not sensor.poke(context)
    file.write_text(json.dumps(plan(drift=True, age=timedelta(hours=1))))
    assert sensor.poke(context)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"outcome": "failed", "error": {"type": "ConfigError", "message": "no"}},
            "sparkcrypt failed: ConfigError: no",
        ),
        ({"outcome": "done"}, "is not that of a plan"),
        ({"failed": [{"table": "t", "error": "PlanError", "message": "no tag"}]}, "t: PlanError: no tag"),
    ],
)
def test_plans_that_failed_fail_the_sensor(
    fields: dict[str, Any], said: str, tmp_path: Path, context: dict[str, Any]
) -> None:
    """A plan that could not be made is an error, not the absence of drift."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan(drift=False, **fields)))
    with pytest.raises(AirflowException, match=said):
        SparkcryptDriftSensor(task_id="s", plan_report=str(file)).poke(context)


@pytest.mark.parametrize(
    "given", [{}, {"plan_report": "p", "application": "a"}, {"application": "a", "policy": "p"}, {"table": "t"}]
)
def test_one_of_two_ways_must_be_given(given: dict[str, Any]) -> None:
    """A sensor that neither reads a report nor can submit a plan is refused when the DAG is parsed."""
    with pytest.raises(AirflowException, match="give plan_report, or else application, policy and report_folder"):
        SparkcryptDriftSensor(task_id="s", **given)


def test_slot_is_given_back_between_pokes_unless_asked_otherwise() -> None:
    """A wait of hours takes no worker's slot; both of Airflow's modes can be chosen."""
    sensor = SparkcryptDriftSensor(task_id="s", plan_report="p")
    assert (sensor.mode, sensor.poke_interval) == ("reschedule", 3600.0)
    poking = SparkcryptDriftSensor(task_id="s2", plan_report="p", mode="poke", poke_interval=60)
    assert (poking.mode, poking.poke_interval) == ("poke", 60.0)


def test_each_poke_reads_the_report_of_its_own_submission(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """A second poke of one sensor hands a new report to the job, and arguments may be those of the whole DAG."""
    spark_submit.will((plan(drift=False), 0), (plan(drift=True), 2))
    with DAG("d", default_args=arguments):
        sensor = SparkcryptDriftSensor(task_id="s", deploy_mode="client")
    assert [bool(sensor.poke(context)) for _ in range(2)] == [False, True]
    assert len(set(spark_submit.reports)) == 2


def test_sensor_that_reads_a_report_stops_no_application(tmp_path: Path) -> None:
    """A task that is stopped asks no Spark connection where nothing was submitted."""
    SparkcryptDriftSensor(task_id="s", plan_report=str(tmp_path), conn_id="no_such_connection").on_kill()


def status(*, problems: int = 0, tags_lost: int = 0, age: timedelta = timedelta(0)) -> dict[str, Any]:
    """Return the report of a status."""
    at = (datetime.now(timezone.utc) - age).isoformat(timespec="seconds")
    totals = {"tables": 3, "problems": problems, "tags_lost": tags_lost}
    return {"kind": "sparkcrypt status", "version": 1, "at": at, "totals": totals, "tables": []}


@pytest.mark.parametrize(("found", "met"), [({}, False), ({"problems": 2}, True), ({"tags_lost": 1}, True)])
def test_problems_and_lost_tags_are_met(
    found: dict[str, Any], met: bool, tmp_path: Path, context: dict[str, Any]
) -> None:
    """One sensor waits until a person is needed, the other until nobody is."""
    file = tmp_path / "status.json"
    file.write_text(json.dumps(status(**found)))
    result = SparkcryptProblemsSensor(task_id="s", status_report=str(file)).poke(context)
    assert bool(result) is met
    assert (result.xcom_value or {}).get("open") == (sum(found.values()) or None)
    assert bool(SparkcryptProblemsSensor(task_id="r", status_report=str(file), resolved=True).poke(context)) is not met


def test_old_status_tells_nothing(tmp_path: Path, context: dict[str, Any]) -> None:
    """It opens no gate and rings no bell."""
    file = tmp_path / "status.json"
    file.write_text(json.dumps(status(problems=1, age=timedelta(days=2))))
    for resolved in (False, True):
        sensor = SparkcryptProblemsSensor(task_id=f"s{resolved}", status_report=str(file), resolved=resolved)
        assert not sensor.poke(context)


def test_poke_submits_the_job_of_the_status(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """Without a report to read; it ends with 74 where a problem is open, which is no failure of the sensor."""
    spark_submit.will((status(problems=1), 74))
    del arguments["table"]
    assert SparkcryptProblemsSensor(**arguments, database=["sales", "hr"]).poke(context)
    assert spark_submit.jobs == [["--database", "sales", "--database", "hr", "--policy", "policy.yaml"]]


def test_sensors_are_not_deferrable(tmp_path: Path) -> None:
    """What they have in its place is named."""
    with pytest.raises(AirflowException, match="mode='reschedule' releases its slot"):
        SparkcryptDriftSensor(
            task_id="s", plan_report=str(tmp_path), deferrable=True, execution_timeout=timedelta(hours=1)
        )

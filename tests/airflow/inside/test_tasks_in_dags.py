"""What tasks are to the rest of Airflow: assets, links, deferrals, a group, and DAGs that it parses."""

from __future__ import annotations

import asyncio
import json
import shutil
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.exceptions import AirflowException, TaskDeferred
from airflow.models.dagbag import DagBag

from sparkcrypt.airflow import (
    SparkcryptBackfillOperator,
    SparkcryptVerifyOperator,
    database_group,
    table_asset,
)
from sparkcrypt.airflow.reports import LinksPlugin, ReportLink, ReportTrigger, StatusLink
from tests.airflow.inside.conftest import DAG, SparkSubmit, report, table, trying

EXAMPLES = Path(__file__).resolve().parents[3] / "conf" / "airflow"
HOUR = timedelta(hours=1)
URLS = {"report_url": "https://reports.example/spark/", "status_url": "https://reports.example/status.html"}


def test_tables_are_outlets_whose_events_tell_the_outcome(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """Beside those that the DAG gives; downstream DAGs are scheduled by the same asset."""
    spark_submit.will((report(outcome="done"), 0))
    given = table_asset("other.t")
    task = SparkcryptBackfillOperator(
        **{**arguments, "table": ["sales.Orders", "hr.people"]}, assets=True, outlets=[given]
    )
    assert task.outlets == [given, table_asset("sales.orders"), table_asset("hr.people")]
    context["outlet_events"] = {asset: SimpleNamespace(extra={}) for asset in task.outlets}
    result = task.execute(context)
    extra = {"outcome": "done", "report": result["report"]}
    assert [context["outlet_events"][asset].extra for asset in task.outlets] == [{}, extra, extra]


def test_outlets_are_only_those_that_are_asked_for(arguments: dict[str, Any]) -> None:
    """A task that names a table has no event of its own accord."""
    assert not SparkcryptBackfillOperator(**arguments).outlets


@pytest.mark.parametrize("name", ["sales.cust*", "{{ params.table }}", "orders", "sales.[ab]"])
def test_what_is_no_one_table_is_no_asset(name: str, arguments: dict[str, Any]) -> None:
    """Airflow knows outlets when it parses a DAG, so templates and patterns have none."""
    with pytest.raises(AirflowException, match="is no asset: give one table as"):
        SparkcryptBackfillOperator(**{**arguments, "table": name}, assets=True)


def test_links_lead_to_the_page_of_this_try(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed task has them too; a backfill writes the page, another job only its report."""
    spark_submit.will((None, 1), ({**report(), "kind": "sparkcrypt verify", "outcome": "verified"}, 0))
    with pytest.raises(AirflowException, match="wrote no report"):
        SparkcryptBackfillOperator(**arguments, **URLS).execute(context)
    folder, _, name = spark_submit.reports[0].rpartition("/")
    page = name.replace(".json", ".html")
    line = spark_submit.calls[0]
    assert line[line.index("--html") + 1] == f"{folder}/{page}"
    assert context["pushed"] == {
        ReportLink.key: f"https://reports.example/spark/{page}",
        StatusLink.key: "https://reports.example/status.html",
    }
    other = trying(2)
    SparkcryptVerifyOperator(**arguments, **URLS).execute(other)
    assert "--html" not in spark_submit.calls[1]
    assert other["pushed"][ReportLink.key].endswith(spark_submit.reports[1].rpartition("/")[2])
    monkeypatch.setattr("sparkcrypt.airflow.reports.XCom.get_value", lambda *, ti_key, key: context["pushed"].get(key))
    assert ReportLink().get_link(None, ti_key=None).endswith(page)


def test_tasks_without_urls_have_no_links(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written for a link, and the link is empty."""
    SparkcryptBackfillOperator(**arguments).execute(context)
    assert context["pushed"] == {} and "--html" not in spark_submit.calls[0]
    monkeypatch.setattr("sparkcrypt.airflow.reports.XCom.get_value", lambda *, ti_key, key: None)
    assert StatusLink().get_link(None, ti_key=None) == ""


def test_the_plugin_has_the_links_of_the_operators() -> None:
    """Airflow 2 shows no link that no plugin names."""
    own = [type(link) for link in SparkcryptBackfillOperator.operator_extra_links]
    assert [type(link) for link in LinksPlugin.operator_extra_links] == own == [ReportLink, StatusLink]


def test_deferred_task_waits_for_the_report_without_a_worker(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """spark-submit does not wait, the trigger does; then the report decides as ever."""
    spark_submit.will((None, 0))
    task = SparkcryptBackfillOperator(**arguments, deferrable=True, execution_timeout=HOUR)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    assert "spark.yarn.submit.waitAppCompletion=false" in spark_submit.calls[0]
    assert (deferred.value.method_name, deferred.value.timeout) == ("take_report", HOUR)
    path, values = deferred.value.trigger.serialize()
    assert path == "sparkcrypt.airflow.reports.ReportTrigger"
    trigger = ReportTrigger(**{**values, "poll_seconds": 0.01})

    async def fire() -> dict[str, Any]:
        waiting = asyncio.ensure_future(anext(trigger.run()))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        Path(values["uri"]).write_text(json.dumps(report(outcome="done")))
        return dict((await waiting).payload)

    event = asyncio.run(fire())
    assert task.take_report(context, event)["outcome"] == "done"
    Path(values["uri"]).write_text(json.dumps(report(outcome="failed", error={"type": "E", "message": "no"})))
    with pytest.raises(AirflowException, match="sparkcrypt failed: E: no"):
        task.take_report(context, event)


def test_torn_report_ends_the_wait(tmp_path: Path) -> None:
    """The task then says what is wrong with it; a trigger that waits on would end by the timeout."""
    file = tmp_path / "r.json"
    file.write_text("{")

    async def fire() -> Any:
        return await anext(ReportTrigger(str(file)).run())

    event: Any = asyncio.run(fire())
    assert event.payload == {"report": str(file)}


def test_deferrable_task_is_not_deferred_where_the_job_has_ended(
    spark_submit: SparkSubmit, context: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """As in client mode, where spark-submit is the driver; a failure of the submission is not awaited either."""
    spark_submit.will((report(outcome="done"), 0), (None, 1))
    task = SparkcryptBackfillOperator(**arguments, deferrable=True, execution_timeout=HOUR)
    assert task.execute(context)["outcome"] == "done"
    with pytest.raises(AirflowException, match="wrote no report"):
        task.execute(trying(2))


def test_deferrable_needs_a_timeout(arguments: dict[str, Any]) -> None:
    """A driver that died writes no report."""
    with pytest.raises(AirflowException, match="deferrable needs execution_timeout"):
        SparkcryptBackfillOperator(**arguments, deferrable=True)


def test_group_of_a_database(spark_submit: SparkSubmit, context: dict[str, Any], tmp_path: Path) -> None:
    """Its tasks follow one another, and verify is expanded over what was rewritten, also beyond the XCom's entries."""
    place = {"policy": "p.yaml", "report_folder": str(tmp_path), "xcom_items": 1, "retries": 2}
    with DAG("d") as dag:
        database_group("sales", database="sales", jobs="jobs/", older_than="12h", options=("-x",), **place)
    tasks = dag.task_dict
    order = ["backfill", "rewritten", "verify", "check_keys", "expire"]
    assert list(tasks) == [f"sales.{name}" for name in order]
    assert [sorted(tasks[f"sales.{name}"].upstream_task_ids) for name in order] == [
        [], ["sales.backfill"], ["sales.rewritten"], ["sales.verify"], ["sales.check_keys"],
    ]  # fmt: skip
    assert tasks["sales.expire"].options == ("--older-than", "12h")
    assert tasks["sales.expire"].trigger_rule == tasks["sales.check_keys"].trigger_rule == "none_failed"
    assert tasks["sales.backfill"].application == "jobs/backfill.py"
    spark_submit.will((report(outcome="done", tables=[table(table=f"s.{n}", files_rewritten=n) for n in range(3)]), 0))
    result = tasks["sales.backfill"].execute(context)
    assert len(result["tables"]) == 1
    assert tasks["sales.rewritten"].python_callable(result) == ["s.1", "s.2"]


def test_examples_are_parsed(tmp_path: Path) -> None:
    """By this Airflow, each to one DAG, while a file that is wrong is told."""
    for example in EXAMPLES.glob("*.py"):
        shutil.copy(example, tmp_path)
    # To Airflow a file without 'dag' is none.
    (tmp_path / "wrong.py").write_text("from sparkcrypt.airflow import NoSuchOperator  # dag")
    bag = DagBag(str(tmp_path))
    ((file, error),) = bag.import_errors.items()
    assert file.endswith("wrong.py") and "NoSuchOperator" in error
    assert sorted(bag.dags) == sorted(example.stem for example in EXAMPLES.glob("*.py"))

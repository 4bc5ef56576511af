"""A sensor that waits until files differ from their plan by tags and policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.exceptions import AirflowException
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseSensorOperator, PokeReturnValue

from sparkcrypt.airflow.job_arguments import JobArguments
from sparkcrypt.airflow.reports import find_report, shorten_report
from sparkcrypt.airflow.submission import ONE_ATTEMPT, Reported, submit_job
from sparkcrypt.airflow.verdict import check_report, drifts


class SparkcryptDriftSensor(BaseSensorOperator):
    """Waits until there is drift; the XCom is the plan's report.

    With ``plan_report`` a poke reads one small file, which another process keeps writing
    (``jobs/backfill.py … --dry-run --report URI``).  Without it each poke submits a plan, with ``--changed``: tables
    that have not changed since the last pass cost only a listing, and footers that were read before come from a cache.

    By default the sensor pokes every hour, and releases its worker slot between pokes (``mode="reschedule"``).

    Args:
        plan_report: path or URI of a plan's report. (templated)
        max_age: an older report is ignored, and the sensor keeps waiting.
        application: path or URI of `jobs/backfill.py`, to submit plans. (templated)
        policy: path or URI of the policy, as the driver opens it. (templated)
        report_folder: as for the operators. (templated)
        table: a table, a pattern such as ``sales.cust*``, or several. (templated)
        database: a database, or several. (templated)
        where: a predicate over partition columns. (templated)
        changed: leave out tables that have not changed since the last pass.
        options: further options of the job. (templated)
        allow_incomplete: keep waiting although tables could not be planned.
        conn_id: the connection to Spark.
        conf: Spark configuration. (templated)
        spark_submit: further arguments of ``SparkSubmitHook``, such as ``{"deploy_mode": "cluster"}``. (templated)
        report_conn_id: the connection for reading reports from object storage.
        xcom_items: maximum number of entries of each list in the XCom.
    """

    template_fields: Sequence[str] = (
        "plan_report",
        "application",
        "policy",
        "report_folder",
        "table",
        "database",
        "where",
        "options",
        "conf",
        "spark_submit",
    )

    def __init__(
        self,
        *,
        plan_report: str | None = None,
        max_age: timedelta = timedelta(days=1),
        application: str | None = None,
        policy: str | None = None,
        report_folder: str | None = None,
        table: str | Sequence[str] | None = None,
        database: str | Sequence[str] | None = None,
        where: str | None = None,
        changed: bool = True,
        options: Sequence[str] = (),
        allow_incomplete: bool = False,
        conn_id: str = "spark_default",
        conf: Mapping[str, Any] | None = None,
        spark_submit: Mapping[str, Any] | None = None,
        report_conn_id: str | None = None,
        xcom_items: int = 50,
        mode: str = "reschedule",
        poke_interval: timedelta | float = 3600.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(mode=mode, poke_interval=poke_interval, **kwargs)
        submits = [application, policy, report_folder]
        if (plan_report is None) == (None in submits) or (plan_report is not None and any(submits)):
            raise AirflowException("give plan_report, or else application, policy and report_folder to submit plans")
        self.plan_report = plan_report
        self.max_age = max_age
        self.application = application
        self.policy = policy
        self.report_folder = report_folder
        self.table = table
        self.database = database
        self.where = where
        self.changed = changed
        self.options = options
        self.allow_incomplete = allow_incomplete
        self.conn_id = conn_id
        self.conf = conf
        self.spark_submit = spark_submit
        self.report_conn_id = report_conn_id
        self.xcom_items = xcom_items
        self._hook: Any = None

    def poke(self, context: Any) -> PokeReturnValue:
        """Tell whether there is drift.

        Raises:
            AirflowException: the plan failed.
        """
        found = self._read() if self.plan_report else self._submit(context)
        if found is None:
            return PokeReturnValue(False)
        check_report(found.report, found.uri, dry_run=True, allow_incomplete=self.allow_incomplete)
        if not drifts(found.report):
            self.log.info("no file differs from its plan; report: %s", found.uri)
            return PokeReturnValue(False)
        return PokeReturnValue(
            True, {**shorten_report(found.report, self.xcom_items), "drift": True, "report": found.uri}
        )

    def on_kill(self) -> None:
        """Stop the submitted application."""
        if self._hook is not None:
            self._hook.on_kill()

    def _read(self) -> Reported | None:
        uri = str(self.plan_report)
        report = find_report(uri, self.report_conn_id)
        if report is None:
            self.log.info("there is no report %s yet", uri)
        elif "started" in report and _age(report) > self.max_age:
            self.log.warning("report %s is older than %s, and tells nothing", uri, self.max_age)
        else:
            return Reported(report, uri)
        return None

    def _submit(self, context: Any) -> Reported:
        options = JobArguments(
            policy=str(self.policy),
            table=self.table,
            database=self.database,
            where=self.where,
            changed=self.changed,
            options=self.options,
        )

        def submit(line: list[str]) -> None:
            self._hook = SparkSubmitHook(
                conn_id=self.conn_id,
                conf={**ONE_ATTEMPT, **(self.conf or {})},
                application_args=line,
                **{"name": "sparkcrypt drift", **(self.spark_submit or {})},
            )
            self._hook.submit(str(self.application))

        arguments = [*options.as_list(), "--dry-run"]
        return submit_job(submit, arguments, context, folder=str(self.report_folder), conn_id=self.report_conn_id)


def _age(report: Mapping[str, Any]) -> timedelta:
    ended = datetime.fromisoformat(str(report["started"])) + timedelta(seconds=float(report.get("seconds") or 0))
    return datetime.now(timezone.utc) - ended.astimezone(timezone.utc)

"""A sensor that waits until files differ from their plan by tags and policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.exceptions import AirflowException
from airflow.sdk import BaseSensorOperator, PokeReturnValue

from sparkcrypt.airflow.operators import SparkcryptPlanOperator
from sparkcrypt.airflow.reports import find_report


class SparkcryptDriftSensor(BaseSensorOperator, SparkcryptPlanOperator):
    """Waits until there is drift; the XCom is the plan's report.

    With ``plan_report`` a poke reads one small file, which another process keeps writing
    (``jobs/backfill.py … --dry-run --report URI``).  Without it each poke submits a plan as `SparkcryptPlanOperator`
    does, with its arguments and ``changed``: tables that have not changed since the last pass cost only a listing, and
    footers that were read before come from a cache.

    By default the sensor pokes every hour, and releases its worker slot between pokes (``mode="reschedule"``).

    Args:
        plan_report: path or URI of a plan's report. (templated)
        max_age: an older report is ignored, and the sensor keeps waiting.
        spark_submit: arguments of ``SparkSubmitOperator``, such as ``{"deploy_mode": "cluster"}``, which may also be
            given directly.
    """

    template_fields: Sequence[str] = (*SparkcryptPlanOperator.template_fields, "plan_report")

    def __init__(
        self,
        *,
        plan_report: str | None = None,
        max_age: timedelta = timedelta(days=1),
        spark_submit: Mapping[str, Any] | None = None,
        mode: str = "reschedule",
        poke_interval: timedelta | float = 3600.0,
        changed: bool = True,
        **arguments: Any,
    ) -> None:
        submission = {"application", "policy", "report_folder"}
        names = {*arguments} | (set() if plan_report else {*(arguments.get("default_args") or {})})
        if (submission & names) != (set() if plan_report else submission):
            raise AirflowException("give plan_report, or else application, policy and report_folder to submit plans")
        unused = dict.fromkeys(submission, "") if plan_report else {}
        arguments = {"name": "sparkcrypt drift", **unused, **arguments, **(spark_submit or {})}
        super().__init__(mode=mode, poke_interval=poke_interval, changed=changed, **arguments)
        self.plan_report = plan_report
        self.max_age = max_age

    def poke(self, context: Any) -> PokeReturnValue:
        """Tell whether there is drift.

        Raises:
            AirflowException: the plan failed.
        """
        found = self._read() if self.plan_report else SparkcryptPlanOperator.execute(self, context)
        if found is None or found["drift"]:
            return PokeReturnValue(found is not None, found)
        self.log.info("no file differs from its plan; report: %s", found["report"])
        return PokeReturnValue(False)

    def on_kill(self) -> None:
        """Stop the submitted application."""
        if not self.plan_report:
            super().on_kill()

    def _read(self) -> dict[str, Any] | None:
        uri = str(self.plan_report)
        report = find_report(uri, self.report_conn_id)
        if report is None:
            self.log.info("there is no report %s yet", uri)
        elif "started" in report and _age(report) > self.max_age:
            self.log.warning("report %s is older than %s, and tells nothing", uri, self.max_age)
        else:
            return self.judge(report, uri)
        return None


def _age(report: Mapping[str, Any]) -> timedelta:
    ended = datetime.fromisoformat(str(report["started"])) + timedelta(seconds=float(report.get("seconds") or 0))
    return datetime.now(timezone.utc) - ended.astimezone(timezone.utc)

"""Sensors for what a person or a backfill must see to: drift, and open problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.exceptions import AirflowException

from sparkcrypt.airflow.operators import SparkcryptOperator
from sparkcrypt.airflow.versions import BaseSensorOperator, PokeReturnValue

_SUBMISSION = {"application", "policy", "report_folder"}


class _ReportSensor(BaseSensorOperator, SparkcryptOperator):
    """Pokes by reading a report that another process writes, or by submitting a job that writes one.

    By default the sensor pokes every hour, and releases its worker slot between pokes (``mode="reschedule"``).
    """

    max_age: timedelta
    source: str
    """The argument that names the report to read."""

    def __init__(
        self, *, mode: str = "reschedule", poke_interval: timedelta | float = 3600.0, **arguments: Any
    ) -> None:
        super().__init__(mode=mode, poke_interval=poke_interval, **arguments)
        if self.deferrable:
            raise AirflowException("a sensor is not deferrable; mode='reschedule' releases its slot between pokes")

    def is_met(self, found: Mapping[str, Any]) -> bool:
        """Tell whether a judged report ends the wait."""
        raise NotImplementedError

    def poke(self, context: Any) -> PokeReturnValue:
        """Tell whether the wait is over; the XCom is then the report.

        Raises:
            AirflowException: the job failed.
        """
        latest = getattr(self, self.source)
        found = self._read(str(latest)) if latest else SparkcryptOperator.execute(self, context)
        if found is None:
            return PokeReturnValue(False)
        if self.is_met(found):
            return PokeReturnValue(True, found)
        self.log.info("still waiting; report: %s", found["report"])
        return PokeReturnValue(False)

    def on_kill(self) -> None:
        """Stop the submitted application."""
        if not getattr(self, self.source):
            super().on_kill()

    def _read(self, uri: str) -> dict[str, Any] | None:
        report = self.find_report(uri)
        if report is None:
            self.log.info("there is no report %s yet", uri)
        elif {"started", "at"} & report.keys() and _age(report) > self.max_age:
            self.log.warning("report %s is older than %s, and tells nothing", uri, self.max_age)
        else:
            return self.judge(report, uri)
        return None


class SparkcryptDriftSensor(_ReportSensor):
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

    template_fields: Sequence[str] = (*SparkcryptOperator.template_fields, "plan_report")
    source = "plan_report"

    def __init__(
        self,
        *,
        plan_report: str | None = None,
        max_age: timedelta = timedelta(days=1),
        spark_submit: Mapping[str, Any] | None = None,
        changed: bool = True,
        **arguments: Any,
    ) -> None:
        unused = _check_source(self.source, plan_report, arguments)
        arguments = {"name": "sparkcrypt drift", **unused, **arguments, **(spark_submit or {})}
        super().__init__(command="backfill", dry_run=True, changed=changed, **arguments)
        self.plan_report = plan_report
        self.max_age = max_age

    def is_met(self, found: Mapping[str, Any]) -> bool:
        """Tell whether the plan found drift."""
        return bool(found["drift"])


class SparkcryptProblemsSensor(_ReportSensor):
    """Waits until a problem is open or a table has lost tags, to tell a person; the XCom is the report of the status.

    With ``resolved`` it waits until there is none, to hold back what must not run before a person has decided.

    With ``status_report`` a poke reads one small file, which another process keeps writing
    (``sparkcrypt status --policy policy.yaml --report FILE``).  Without it each poke submits `jobs/show_status.py`,
    which reads the state directory and no table.

    Args:
        status_report: path or URI of the report of a status. (templated)
        resolved: wait until no problem is open and no table has lost tags.
        max_age: an older report is ignored, and the sensor keeps waiting.
    """

    template_fields: Sequence[str] = (*SparkcryptOperator.template_fields, "status_report")
    source = "status_report"

    def __init__(
        self,
        *,
        status_report: str | None = None,
        resolved: bool = False,
        max_age: timedelta = timedelta(days=1),
        **arguments: Any,
    ) -> None:
        unused = _check_source(self.source, status_report, arguments)
        super().__init__(command="status", **{"name": "sparkcrypt problems", **unused, **arguments})
        self.status_report = status_report
        self.resolved = resolved
        self.max_age = max_age

    def is_met(self, found: Mapping[str, Any]) -> bool:
        """Tell whether problems are open, or none is."""
        return bool(found["open"]) != self.resolved


def _check_source(name: str, report: str | None, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return what a sensor that only reads a report gives for the arguments of submissions.

    Raises:
        AirflowException: both a report and arguments of submissions are given, or neither.
    """
    given = {*arguments} | (set() if report else {*(arguments.get("default_args") or {})})
    if (_SUBMISSION & given) != (set() if report else _SUBMISSION):
        raise AirflowException(f"give {name}, or else application, policy and report_folder to submit jobs")
    return dict.fromkeys(_SUBMISSION, "") if report else {}


def _age(report: Mapping[str, Any]) -> timedelta:
    began = datetime.fromisoformat(str(report.get("at") or report["started"]))
    ended = began + timedelta(seconds=float(report.get("seconds") or 0))
    return datetime.now(timezone.utc) - ended.astimezone(timezone.utc)

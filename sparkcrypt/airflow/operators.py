"""Operators and a sensor that submit jobs through a Spark connection, and succeed or fail by the jobs' reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import datetime, timedelta, timezone
from inspect import Parameter, Signature, signature
from typing import Any

from airflow.exceptions import AirflowException
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseSensorOperator, PokeReturnValue

from sparkcrypt.airflow.reports import INDEX, KIND, SHRED, find_report, judge_report, new_report, shorten_report

ONE_ATTEMPT = {"spark.yarn.maxAppAttempts": "1"}
"""YARN restarts a driver that ended with another exit code than 0, such as a plan's 2 for drift, but only Airflow
should retry."""
_OPTIONS = {"columns": "--column", "apply": "--yes", "dry_run": "--dry-run"}


@dataclass(frozen=True, slots=True)
class _Command:
    """What an operator knows of a job.

    Attributes:
        kind: the kind of its report.
        arguments: the arguments that it has, in the order of its command line.
        single: the argument that must be one name.
        reserved: options that the task sets itself, besides ``--report`` and ``--dry-run``.
    """

    kind: str
    arguments: tuple[str, ...]
    single: str | None = None
    reserved: tuple[str, ...] = ()


_COMMANDS = {
    "backfill": _Command(KIND, ("table", "database", "path", "policy", "where", "changed", "dry_run")),
    "rotate": _Command(KIND, ("key", "table", "database", "policy", "dry_run"), single="key"),
    "shred": _Command(
        SHRED,
        ("table", "database", "key", "head", "policy", "apply", "reason"),
        reserved=("--yes", "--reason"),
    ),
    "index": _Command(
        INDEX, ("table", "columns", "policy"), single="table", reserved=("--table", "--column", "--path")
    ),
}


@dataclass(frozen=True, kw_only=True)
class JobArguments:
    """The arguments of the operators, besides those of ``SparkSubmitOperator``.

    Attributes:
        command: ``backfill``, ``rotate``, ``shred`` or ``index``; the operators below set it.
        application: path or URI of the command's job: `jobs/backfill.py`, `jobs/rotate_keys.py`, `jobs/shred_keys.py`
            or `jobs/index_table.py`. (templated)
        policy: path or URI of the policy, as the driver opens it. (templated)
        report_folder: path or URI of a folder that the driver writes to and this worker reads; each submission writes
            its own file there. (templated)
        table: a table, a pattern such as ``sales.cust*``, or several; to index, one ``db.table``.  To rotate, none
            means the tables that use the key by records in the state directory, and to shred every table there.
            (templated)
        database: a database, or several; not to index. (templated)
        path: to backfill a bare folder instead, with ``--output`` or ``--exclusive`` among the options. (templated)
        where: to backfill only these partitions: a predicate over partition columns. (templated; made for ``expand``)
        changed: to leave out of a backfill tables whose tags, policy and files have not changed since the last pass.
        key: the master key to rotate; to shred, only this key, such as a tenant's. (templated)
        columns: to create or re-create a store with indexes of these columns, each ``COL`` or ``COL:KIND…``; none to
            refresh the existing store. (templated)
        apply: delete the keys that are due; this cannot be undone.
        reason: the reason, for readers of the audit of keys; required with ``apply``, not allowed for a plan.
            (templated)
        head: to shred, the head of the audit of keys, as ``NUMBER:DIGEST``; ``none`` if no key was ever held or
            shredded. (templated)
        dry_run: report what a backfill or rotation would do, and change nothing.
        options: further options of the job, such as ``["--max-duration", "4h"]``. (templated)
        allow_incomplete: succeed although units, tables or keys could not be done; ``quarantined``, ``failed`` and
            ``refused``, or ``keys``, ``kept``, ``left`` and ``not_scanned`` in the XCom name them, for a downstream
            task to decide.
        report_conn_id: the connection for reading reports from object storage.
        xcom_items: maximum number of entries of each list in the XCom; the report has all.
    """

    command: str
    application: str
    policy: str
    report_folder: str
    table: str | Sequence[str] | None = None
    database: str | Sequence[str] | None = None
    path: str | None = None
    where: str | None = None
    changed: bool = False
    key: str | None = None
    columns: Sequence[str] = ()
    apply: bool = False
    reason: str | None = None
    head: str | None = None
    dry_run: bool = False
    options: Sequence[str] = ()
    allow_incomplete: bool = False
    report_conn_id: str | None = None
    xcom_items: int = 50


def _takes_job_arguments(constructor: Any) -> Any:
    """Give a constructor the signature by which Airflow checks arguments, also those of ``partial`` and ``expand``."""
    own = [
        Parameter(
            known.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if known.default is MISSING else known.default,
        )
        for known in fields(JobArguments)
    ]
    parameters = signature(constructor).parameters.values()
    constructor.__signature__ = Signature(
        [
            *(parameter for parameter in parameters if parameter.kind is not Parameter.VAR_KEYWORD),
            *own,
            *(parameter for parameter in parameters if parameter.kind is Parameter.VAR_KEYWORD),
        ]
    )
    return constructor


class SparkcryptOperator(SparkSubmitOperator):
    """Submits a job once in each try, and succeeds or fails by its report, of which the XCom has the first entries.

    A try resumes what an earlier one left unfinished, so retries are always safe.  The arguments are those of
    `JobArguments`, by keyword; further ones are those of ``SparkSubmitOperator``: connection, deploy mode, memory,
    environment and so on.
    """

    template_fields: Sequence[str] = (
        *(*SparkSubmitOperator.template_fields, "policy", "options", "report_folder", "table", "database", "path"),
        *("where", "key", "columns", "reason", "head"),
    )
    conf: dict[str, Any] | None
    _hook: Any

    @_takes_job_arguments
    def __init__(self, **arguments: Any) -> None:
        names = {known.name for known in fields(JobArguments)}
        job = JobArguments(**{name: value for name, value in arguments.items() if name in names})
        others = {name: value for name, value in arguments.items() if name not in names}
        if "application_args" in others:
            raise AirflowException("application_args are set by this operator; give options to add to them")
        if job.command not in _COMMANDS:
            raise AirflowException(f"there is no command {job.command!r}; allowed: {', '.join(_COMMANDS)}")
        if job.command == "shred" and job.apply != (job.reason is not None):
            raise AirflowException("apply and reason go together: give both to shred keys, and none to plan")
        super().__init__(application=job.application, **others)
        for name, value in vars(job).items():
            setattr(self, name, value)
        own = _COMMANDS[job.command].arguments
        every = {name for known in _COMMANDS.values() for name in known.arguments}
        shared = others.get("default_args") or {}  # of tasks with other commands too
        foreign = sorted(
            name for name in every - {*own} if getattr(job, name) not in (None, False, (), shared.get(name))
        )
        if foreign:
            raise AirflowException(f"{job.command} has no {', '.join(foreign)}; allowed: {', '.join(own)}")
        # A retry that reconnected to an earlier try's application would wait for a report of another name.  A new
        # submission resumes what an earlier try left unfinished, by its run's journal.
        self.durable = False

    def execute(self, context: Any) -> dict[str, Any]:
        """Submit the job, and return its shortened report if the job did everything.

        Raises:
            AirflowException: the job failed, was incomplete, or wrote no report.
        """
        arguments = self.list_arguments()
        uri = new_report(self.report_folder, context)
        failure = self._submit([*arguments, "--report", uri], context)
        report = find_report(uri, self.report_conn_id, (_COMMANDS[self.command].kind,))
        if report is None:
            why = (
                f": {failure}"
                if failure is not None
                else (
                    "; is report_folder on a file system that the driver writes and this worker reads, and does "
                    "spark-submit wait for the application's end?"
                )
            )
            raise AirflowException(f"the job ended and wrote no report to {uri}{why}") from failure
        if failure is not None:
            self.log.info("spark-submit ended with an error; the report tells what it means")
        return self.judge(report, uri)

    def judge(self, report: dict[str, Any], uri: str) -> dict[str, Any]:
        """Check a report, and return the XCom: the shortened report, what it means, and its URI.

        Raises:
            AirflowException: the job failed, or was incomplete.
        """
        dry_run = self.dry_run or (self.command == "shred" and not self.apply)
        verdict = judge_report(report, uri, dry_run=dry_run, allow_incomplete=self.allow_incomplete)
        self.log.info("%s; the whole report: %s", report["outcome"], uri)
        return {**shorten_report(report, self.xcom_items), **verdict, "report": uri}

    def list_arguments(self) -> list[str]:
        """Return the job's command line, without ``--report``.

        Raises:
            AirflowException: the arguments, after templating, are invalid or contradict each other.
        """
        command = _COMMANDS[self.command]
        self._check_arguments(command)
        line = {"shred": ["apply" if self.apply else "plan"]}.get(self.command, [])
        line = ["create" if _list_names(self.columns) else "refresh"] if self.command == "index" else line
        for name in command.arguments:
            value, option = getattr(self, name), _OPTIONS.get(name, f"--{name}")
            if isinstance(value, bool):
                line += [option] if value else []
            else:
                line += [part for text in _list_names(value) for part in (option, text)]
        return [*line, *(str(option) for option in self.options)]

    def _check_arguments(self, command: _Command) -> None:
        names = {str(option).partition("=")[0] for option in self.options}
        own = {"--report", "--dry-run", *command.reserved} & names
        if own:
            raise AirflowException(f"options hold {', '.join(sorted(own))}, which the task sets itself; leave it out")
        if command.single and not (isinstance(name := getattr(self, command.single), str) and name):
            raise AirflowException(f"{command.single} is empty or a list; name one; after templating there may be none")
        if self.command == "shred" and self.apply and not (self.reason or "").strip():
            raise AirflowException("reason is empty; say why keys are shredded; after templating there may be none")
        tables = [*_list_names(self.table), *_list_names(self.database)]
        if self.command == "backfill" and (not self.path) == (not tables):
            raise AirflowException("give table or database, or else path; after templating there is none, or both")

    def _submit(self, line: list[str], context: Any) -> Exception | None:
        """Submit the job, and return the provider's error if it ended with another exit code than 0."""
        self.application_args = line
        self.conf = {**ONE_ATTEMPT, **(self.conf or {})}
        self._hook = None  # the hook of an earlier submission has its arguments
        try:
            super().execute(context)
        except FileNotFoundError as error:
            raise AirflowException(
                f"{error.filename} is not on this worker's PATH; install Spark's client here, or name it in the extra "
                "spark-binary of the Spark connection"
            ) from error
        except (AirflowException, RuntimeError) as error:
            return error
        return None


class SparkcryptPlanOperator(SparkcryptOperator):
    """Finds the files that differ from their plan by tags and policy, and changes nothing.

    The task succeeds with and without drift; the XCom's ``drift`` tells whether there is any.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(command="backfill", dry_run=True, **arguments)


class SparkcryptBackfillOperator(SparkcryptOperator):
    """Rewrites the files of tables that differ from their plan by tags and policy.

    Files that match already are not rewritten.  Units that could not be done fail the task; they stay unchanged, and
    the rest is done.  A pass that stops at a budget succeeds, and ``outcome`` in the XCom tells that it stopped.

    Only one run at a time can work on a table, so mapped tasks of one table must run one after another:
    ``.partial(…, max_active_tis_per_dagrun=1).expand(where=[…])``.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(command="backfill", **arguments)


class SparkcryptRotateOperator(SparkcryptOperator):
    """Gives a master key a new version, and rewraps the data keys of every file that uses the key.

    A retry resumes under the version that the failed try made; the next run of the DAG makes the next version.  The
    XCom's ``drift`` tells of a dry run whether anything would be rewrapped.
    """

    def __init__(self, *, key: str, **arguments: Any) -> None:
        super().__init__(command="rotate", key=key, **arguments)


class SparkcryptShredOperator(SparkcryptOperator):
    """Lists the master keys that are past their retention; with ``apply`` and ``reason`` it deletes them for good.

    A plan succeeds with and without keys that are due; the XCom's ``due`` tells whether there are any.  A shredding
    deletes the keys that are due when it runs, not those of an earlier plan.  Keys with a hold are kept and do not
    fail the task; a key that is due and refused fails it.  The XCom's ``head`` is the head of the audit of keys: save
    it, and give it to the next shredding.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(command="shred", **arguments)


class SparkcryptIndexOperator(SparkcryptOperator):
    """Refreshes a table's store for data skipping; with columns, creates or re-creates it.

    A refresh reads only new and changed files, so it can follow each task that writes the table.  If the store cannot
    be written, it stays unchanged, and queries open the files that it does not cover.
    """

    def __init__(self, *, table: str, **arguments: Any) -> None:
        super().__init__(command="index", table=table, **arguments)


def _list_names(names: str | Iterable[str] | None) -> list[str]:
    """Return names as a list, without empty ones, to which templates may be rendered."""
    return [name for name in ([names] if isinstance(names, str) else names or ()) if name]


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

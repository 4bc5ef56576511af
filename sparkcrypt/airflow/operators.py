"""Operators that submit jobs through a Spark connection, and succeed or fail by the jobs' reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from inspect import Parameter, Signature, signature
from typing import Any

from airflow.exceptions import AirflowException
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from sparkcrypt.airflow.reports import (
    BACKFILL,
    CHECK,
    EXPIRE,
    INDEX,
    RESOLVE,
    SHRED,
    STATUS,
    VERIFY,
    ReportLink,
    ReportTrigger,
    StatusLink,
    find_report,
    new_report,
    shorten_report,
)
from sparkcrypt.airflow.verdicts import judge_report
from sparkcrypt.airflow.versions import Asset

ONE_ATTEMPT = {"spark.yarn.maxAppAttempts": "1"}
"""YARN restarts a driver that ended with another exit code than 0, such as a plan's 2 for drift, but only Airflow
should retry."""
NO_WAIT = {"spark.yarn.submit.waitAppCompletion": "false"}
"""What makes spark-submit end once YARN has taken the application; Spark asks for it in cluster mode alone."""
_OPTIONS = {"columns": "--column", "apply": "--yes", "dry_run": "--dry-run"}


@dataclass(frozen=True, slots=True)
class _Command:
    """What an operator knows of a job.

    Attributes:
        kind: the kind of its report.
        arguments: the arguments that it has, in the order of its command line.
        words: what begins its command line.
        single: the arguments that must be one name or text.
        reserved: options that the task sets itself, besides ``--report`` and ``--dry-run``.
    """

    kind: str
    arguments: tuple[str, ...]
    words: tuple[str, ...] = ()
    single: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()


_COMMANDS = {
    "backfill": _Command(BACKFILL, ("table", "database", "path", "policy", "where", "changed", "dry_run")),
    "rotate": _Command(BACKFILL, ("key", "table", "database", "policy", "dry_run"), single=("key",)),
    "shred": _Command(
        SHRED,
        ("table", "database", "key", "head", "policy", "apply", "reason"),
        reserved=("--yes", "--reason"),
    ),
    "index": _Command(
        INDEX, ("table", "columns", "policy"), single=("table",), reserved=("--table", "--column", "--path")
    ),
    "verify": _Command(VERIFY, ("table", "path", "policy", "where")),
    "expire": _Command(EXPIRE, ("table", "database", "path", "policy", "dry_run"), words=("expire",)),
    "check_keys": _Command(CHECK, ("table", "database", "policy")),
    "resolve": _Command(
        RESOLVE,
        ("problem", "table", "keep", "reason", "policy"),
        words=("resolve",),
        single=("problem", "table", "keep", "reason"),
        reserved=("--table", "--keep", "--reason"),
    ),
    "status": _Command(STATUS, ("database", "policy")),
}


@dataclass(frozen=True, kw_only=True)
class JobArguments:
    """The arguments of the operators, besides those of ``SparkSubmitOperator``.

    Attributes:
        command: ``backfill``, ``rotate``, ``shred``, ``index``, ``verify``, ``expire``, ``check_keys``, ``resolve`` or
            ``status``; the operators below set it.
        application: path or URI of the command's job: `jobs/backfill.py`, which also expires and resolves,
            `jobs/rotate_keys.py`, `jobs/shred_keys.py`, `jobs/index_table.py`, `jobs/verify_table.py`,
            `jobs/check_keys.py` or `jobs/show_status.py`. (templated)
        policy: path or URI of the policy, as the driver opens it. (templated)
        report_folder: path or URI of a folder that the driver writes to and this worker reads; each submission writes
            its own file there. (templated)
        table: a table, a pattern such as ``sales.cust*``, or several; to index, verify and resolve, one ``db.table``.
            To rotate, none means the tables that use the key by records in the state directory, and to shred every
            table there. (templated)
        database: a database, or several; not to index, verify and resolve. (templated)
        path: to backfill, verify or expire a bare folder instead; a backfill needs ``--output`` or ``--exclusive``
            among the options. (templated)
        where: to backfill or verify only these partitions: a predicate over partition columns. (templated; made for
            ``expand``)
        changed: to leave out of a backfill tables whose tags, policy and files have not changed since the last pass.
        key: the master key to rotate; to shred, only this key, such as a tenant's. (templated)
        columns: to create or re-create a store with indexes of these columns, each ``COL`` or ``COL:KIND…``; none to
            refresh the existing store. (templated)
        apply: delete the keys that are due; this cannot be undone.
        reason: the reason, for readers of the audit: of keys, required with ``apply`` and not allowed for a plan; of a
            table, required to resolve. (templated)
        head: to shred, the head of the audit of keys, as ``NUMBER:DIGEST``; ``none`` if no key was ever held or
            shredded. (templated)
        problem: the open problem to resolve. (templated)
        keep: to resolve, ``new`` to keep the table as it is, ``old`` to keep what is in the old folder. (templated)
        dry_run: report what a backfill, rotation or expiry would do, and change nothing.
        options: further options of the job, such as ``["--max-duration", "4h"]``. (templated)
        allow_incomplete: succeed although units, tables or keys could not be done, or files differ; ``quarantined``,
            ``failed`` and ``refused``, or ``keys``, ``kept``, ``left``, ``not_scanned``, ``unopened`` and ``drift`` in
            the XCom name them, for a downstream task to decide.
        deferrable: release the worker while an application runs on YARN in cluster mode: a trigger waits for the
            report.  Needs ``execution_timeout``, by which a driver that died without a report ends the task.
        report_conn_id: the connection for reading reports from object storage.
        report_url: URL under which browsers see the report folder: the task then links to its report, and a backfill
            also writes it there as a page. (templated)
        status_url: URL of the page that `sparkcrypt status --html` writes, to which the task then links. (templated)
        assets: give the task an outlet for each table that it names, see `table_asset`; their events have the outcome
            and the report.  Tasks that are expanded get none, since Airflow knows outlets before it expands.
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
    problem: str | None = None
    keep: str | None = None
    dry_run: bool = False
    options: Sequence[str] = ()
    allow_incomplete: bool = False
    deferrable: bool = False
    report_conn_id: str | None = None
    report_url: str | None = None
    status_url: str | None = None
    assets: bool = False
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
        *("where", "key", "columns", "reason", "head", "problem", "keep", "report_url", "status_url"),
    )
    operator_extra_links = (ReportLink(), StatusLink())
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
        assets = [table_asset(name) for name in _list_names(job.table)] if job.assets else []
        if assets:
            others["outlets"] = [*(others.get("outlets") or ()), *assets]
        super().__init__(application=job.application, **others)
        if job.deferrable and self.execution_timeout is None:
            raise AirflowException(
                "deferrable needs execution_timeout, since a driver that died writes no report, and would be awaited "
                "for ever"
            )
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
        self.table_assets = assets

    def execute(self, context: Any) -> dict[str, Any]:
        """Submit the job, and return its shortened report if the job did everything.

        Raises:
            AirflowException: the job failed, was incomplete, or wrote no report.
        """
        arguments = self.list_arguments()
        uri = new_report(self.report_folder, context)
        failure = self._submit([*arguments, "--report", uri, *self._show(uri, context)], context)
        if failure is not None:
            self.log.info("spark-submit ended with an error; the report tells what it means")
        elif self.deferrable and self.find_report(uri) is None:
            self.defer(
                trigger=ReportTrigger(uri, self.report_conn_id),
                method_name="take_report",
                timeout=self.execution_timeout,
            )
        return self._finish(uri, context, failure)

    def take_report(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:
        """Go on after the trigger has found the report of a submission; see `execute`."""
        return self._finish(str(event["report"]), context, None)

    def find_report(self, uri: str) -> dict[str, Any] | None:
        """Return a report of this command's kind; None if it does not exist."""
        return find_report(uri, self.report_conn_id, (_COMMANDS[self.command].kind,))

    def _finish(self, uri: str, context: Any, failure: Exception | None) -> dict[str, Any]:
        report = self.find_report(uri)
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
        result = self.judge(report, uri)
        for asset in self.table_assets:
            context["outlet_events"][asset].extra = {"outcome": result["outcome"], "report": uri}
        return result

    def _show(self, uri: str, context: Any) -> list[str]:
        """Give the task its links, and return the options by which the job writes the page that one leads to."""
        page = None
        if self.report_url and self.command == "backfill" and "--html" not in self._option_names():
            page = f"{uri.removesuffix('.json')}.html"
        urls = {StatusLink.key: self.status_url}
        if self.report_url:
            urls[ReportLink.key] = f"{self.report_url.rstrip('/')}/{(page or uri).rpartition('/')[2]}"
        for key, url in urls.items():
            if url:
                context["ti"].xcom_push(key=key, value=url)
        return ["--html", page] if page else []

    def _option_names(self) -> set[str]:
        return {str(option).partition("=")[0] for option in self.options}

    def judge(self, report: dict[str, Any], uri: str) -> dict[str, Any]:
        """Check a report, and return the XCom: the shortened report, what it means, and its URI.

        Raises:
            AirflowException: the job failed, or was incomplete.
        """
        dry_run = self.dry_run or (self.command == "shred" and not self.apply)
        verdict = judge_report(report, uri, dry_run=dry_run, allow_incomplete=self.allow_incomplete)
        self.log.info("%s; the whole report: %s", report.get("outcome", "read"), uri)
        return {**shorten_report(report, self.xcom_items), **verdict, "report": uri}

    def list_arguments(self) -> list[str]:
        """Return the job's command line, without ``--report``.

        Raises:
            AirflowException: the arguments, after templating, are invalid or contradict each other.
        """
        command = _COMMANDS[self.command]
        self._check_arguments(command)
        line = [*command.words]
        if self.command == "shred":
            line = ["apply" if self.apply else "plan"]
        elif self.command == "index":
            line = ["create" if _list_names(self.columns) else "refresh"]
        for name in command.arguments:
            value, option = getattr(self, name), _OPTIONS.get(name, f"--{name}")
            if isinstance(value, bool):
                line += [option] if value else []
            elif name == "problem":
                line.append(value)
            else:
                line += [part for text in _list_names(value) for part in (option, text)]
        return [*line, *(str(option) for option in self.options)]

    def _check_arguments(self, command: _Command) -> None:
        own = {"--report", "--dry-run", *command.reserved} & self._option_names()
        if own:
            raise AirflowException(f"options hold {', '.join(sorted(own))}, which the task sets itself; leave it out")
        for single in command.single:
            if not (isinstance(text := getattr(self, single), str) and text.strip()):
                raise AirflowException(f"{single} is empty or a list; name one; after templating there may be none")
        if self.command == "shred" and self.apply and not (self.reason or "").strip():
            raise AirflowException("reason is empty; say why keys are shredded; after templating there may be none")
        self._check_tables(command)

    def _check_tables(self, command: _Command) -> None:
        names = [name for name in ("table", "database") if name in command.arguments]
        chosen = [text for name in names for text in _list_names(getattr(self, name))]
        if "path" in command.arguments and (not self.path) == (not chosen):
            raise AirflowException(f"give {' or '.join(names)}, or else path; after templating there is none, or both")
        if self.command == "check_keys" and not chosen:
            raise AirflowException("give table or database; after templating there is none")
        if self.command == "verify" and len(chosen) > 1:
            raise AirflowException("table is a list; name one, and expand the task over several")

    def _submit(self, line: list[str], context: Any) -> Exception | None:
        """Submit the job, and return the provider's error if it ended with another exit code than 0."""
        self.application_args = line
        self.conf = {**ONE_ATTEMPT, **(NO_WAIT if self.deferrable else {}), **(self.conf or {})}
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


class SparkcryptVerifyOperator(SparkcryptOperator):
    """Compares every file of a table with its plan, opens every key anew, and authenticates every module.

    Differences fail the task and are named by it; ``verified`` in the XCom is false also for a table without any tag
    that encrypts, which is no failure.  ``options=["--manifest"]`` also finds deleted and replayed files.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(command="verify", **arguments)


class SparkcryptExpireOperator(SparkcryptOperator):
    """Deletes the old files of runs whose grace is over: the policy's, or ``options=["--older-than", "12h"]``.

    What must stay, such as old files of a unit with an open problem, fails the task by name; the rest is gone.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(command="expire", **arguments)


class SparkcryptCheckKeysOperator(SparkcryptOperator):
    """Proves that every file of tables opens with the keys at hand; one that does not fails the task by name."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(command="check_keys", **arguments)


class SparkcryptResolveOperator(SparkcryptOperator):
    """Decides an open problem of a table, such as in a DAG that somebody triggers with the decision and its reason."""

    def __init__(self, *, problem: str, table: str, keep: str, **arguments: Any) -> None:
        super().__init__(command="resolve", problem=problem, table=table, keep=keep, **arguments)


def table_asset(table: str) -> Asset:
    """Return the asset of a table, by which DAGs are scheduled when a task with ``assets`` has worked on the table.

    Args:
        table: ``db.table``.

    Raises:
        AirflowException: it is a pattern, a template, or has no database.
    """
    if any(sign in table for sign in "*?[{") or "." not in table:
        raise AirflowException(f"table {table!r} is no asset: give one table as db.table, no pattern and no template")
    return Asset(f"x-sparkcrypt://table/{table.lower()}")


def _list_names(names: str | Iterable[str] | None) -> list[str]:
    """Return names as a list, without empty ones, to which templates may be rendered."""
    return [name for name in ([names] if isinstance(names, str) else names or ()) if name]

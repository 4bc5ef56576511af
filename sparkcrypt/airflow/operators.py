"""Operators that submit jobs through a Spark connection, and succeed or fail by the jobs' reports."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.exceptions import AirflowException
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from sparkcrypt.airflow.job_arguments import JobArguments, list_indexing, list_rotation, list_shredding
from sparkcrypt.airflow.reports import INDEX, KIND, SHRED, shorten_report
from sparkcrypt.airflow.submission import ONE_ATTEMPT, submit_job
from sparkcrypt.airflow.verdict import check_indexing, check_report, check_shredding, drifts, is_due


class _JobOperator(SparkSubmitOperator):
    """An operator that submits its job once in each try; the operators below document the arguments."""

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "policy", "options", "report_folder")
    dry_run: bool
    kind = KIND
    conf: dict[str, Any] | None

    def __init__(
        self,
        *,
        application: str,
        policy: str,
        report_folder: str,
        options: Sequence[str] = (),
        allow_incomplete: bool = False,
        report_conn_id: str | None = None,
        xcom_items: int = 50,
        **kwargs: Any,
    ) -> None:
        if "application_args" in kwargs:
            raise AirflowException("application_args are set by this operator; give options to add to them")
        super().__init__(application=application, **kwargs)
        self.policy = policy
        self.report_folder = report_folder
        self.options = options
        self.allow_incomplete = allow_incomplete
        self.report_conn_id = report_conn_id
        self.xcom_items = xcom_items
        # A retry that reconnected to an earlier try's application would wait for a report of another name.  A new
        # submission resumes what an earlier try left unfinished, by its run's journal.
        self.durable = False

    def execute(self, context: Any) -> dict[str, Any]:
        """Submit the job, and return its shortened report if the job did everything.

        Raises:
            AirflowException: the job failed, was incomplete, or wrote no report.
        """
        arguments = self.list_job_arguments()

        def submit(line: list[str]) -> None:
            self.application_args = line
            self.conf = {**ONE_ATTEMPT, **(self.conf or {})}
            super(_JobOperator, self).execute(context)

        done = submit_job(
            submit, arguments, context, folder=self.report_folder, conn_id=self.report_conn_id, kind=self.kind
        )
        verdict = self.judge_report(done.report, done.uri)
        self.log.info("%s; the whole report: %s", done.report["outcome"], done.uri)
        return {**shorten_report(done.report, self.xcom_items), **verdict, "report": done.uri}

    def list_job_arguments(self) -> list[str]:
        """Return the job's command line, including ``--dry-run`` for a dry run."""
        return [*self.list_arguments(), *(["--dry-run"] if self.dry_run else [])]

    def judge_report(self, report: Mapping[str, Any], uri: str) -> dict[str, Any]:
        """Check the report, and return the XCom's entries besides it.

        Raises:
            AirflowException: the job failed, or was incomplete.
        """
        check_report(report, uri, dry_run=self.dry_run, allow_incomplete=self.allow_incomplete)
        return {"drift": drifts(report)}

    @abstractmethod
    def list_arguments(self) -> list[str]:
        """Return the job's command line, without ``--report`` and ``--dry-run``.

        Raises:
            AirflowException: the arguments are invalid or contradict each other.
        """


class _PassOperator(_JobOperator):
    template_fields: Sequence[str] = (*_JobOperator.template_fields, "table", "database", "path", "where")

    def __init__(
        self,
        *,
        table: str | Sequence[str] | None = None,
        database: str | Sequence[str] | None = None,
        path: str | None = None,
        where: str | None = None,
        changed: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.database = database
        self.path = path
        self.where = where
        self.changed = changed

    def list_arguments(self) -> list[str]:
        """Return the command line of `jobs/backfill.py`."""
        return JobArguments(
            policy=self.policy,
            table=self.table,
            database=self.database,
            path=self.path,
            where=self.where,
            changed=self.changed,
            options=self.options,
        ).as_list()


class SparkcryptPlanOperator(_PassOperator):
    """Finds the files that differ from their plan by tags and policy, and changes nothing.

    The task succeeds with and without drift; the XCom's ``drift`` tells whether there is any.  Further arguments are
    those of ``SparkSubmitOperator``: connection, deploy mode, memory, environment and so on.

    Args:
        application: path or URI of `jobs/backfill.py`. (templated)
        policy: path or URI of the policy, as the driver opens it. (templated)
        report_folder: path or URI of a folder that the driver writes to and this worker reads; each submission writes
            its own file there. (templated)
        table: a table, a pattern such as ``sales.cust*``, or several. (templated)
        database: a database, or several. (templated)
        path: a bare folder instead. (templated)
        where: a predicate over partition columns. (templated; made for ``expand``)
        changed: leave out tables whose tags, policy and files have not changed since the last pass.
        options: further options of the job, such as ``["--parallelism", "8"]``. (templated)
        allow_incomplete: succeed although tables could not be planned; ``failed`` and ``refused`` in the XCom name
            them.
        report_conn_id: the connection for reading reports from object storage.
        xcom_items: maximum number of entries of each list in the XCom; the report has all.
    """

    dry_run = True


class SparkcryptBackfillOperator(_PassOperator):
    """Rewrites the files of tables that differ from their plan by tags and policy.

    A try resumes what an earlier try or task left unfinished (``--resume auto``), and files that match already are not
    rewritten, so retries are always safe.  Units that could not be done fail the task; they stay unchanged, and the
    rest is done.  A pass that stops at a budget succeeds, and ``outcome`` in the XCom tells that it stopped.

    Only one run at a time can work on a table, so mapped tasks of one table must run one after another:
    ``.partial(…, max_active_tis_per_dagrun=1).expand(where=[…])``.

    Args:
        application: path or URI of `jobs/backfill.py`. (templated)
        policy: path or URI of the policy, as the driver opens it. (templated)
        report_folder: path or URI of a folder that the driver writes to and this worker reads; each submission writes
            its own file there. (templated)
        table: a table, a pattern such as ``sales.cust*``, or several. (templated)
        database: a database, or several. (templated)
        path: a bare folder instead, with ``--output`` or ``--exclusive`` among the options. (templated)
        where: a predicate over partition columns. (templated; made for ``expand``)
        changed: leave out tables whose tags, policy and files have not changed since the last pass.
        options: further options of the job, such as ``["--max-duration", "4h"]``. (templated)
        allow_incomplete: succeed although units or tables could not be done; ``quarantined``, ``failed`` and
            ``refused`` in the XCom name them, for a downstream task to decide.
        report_conn_id: the connection for reading reports from object storage.
        xcom_items: maximum number of entries of each list in the XCom; the report has all.
    """

    dry_run = False


class SparkcryptRotateOperator(_JobOperator):
    """Gives a master key a new version, and rewraps the data keys of every file that uses the key.

    A retry resumes under the version that the failed try made, so retries are safe; the next run of the DAG makes the
    next version.  Without table and database it works on the tables that use the key by records in the state directory.

    Args:
        application: path or URI of `jobs/rotate_keys.py`. (templated)
        key: the master key's id. (templated)
        policy: path or URI of the policy, as the driver opens it. (templated)
        report_folder: path or URI of a folder that the driver writes to and this worker reads; each submission writes
            its own file there. (templated)
        table: a table, a pattern such as ``sales.cust*``, or several. (templated)
        database: a database, or several. (templated)
        dry_run: report how much would be rewrapped, and change nothing; ``drift`` in the XCom tells if there is any.
        options: further options of the job, such as ``["--max-duration", "4h"]`` or ``["--compromised"]``. (templated)
        allow_incomplete: succeed although units or tables could not be done; ``quarantined``, ``failed`` and
            ``refused`` in the XCom name them.
        report_conn_id: the connection for reading reports from object storage.
        xcom_items: maximum number of entries of each list in the XCom; the report has all.
    """

    template_fields: Sequence[str] = (*_JobOperator.template_fields, "key", "table", "database")

    def __init__(
        self,
        *,
        key: str,
        table: str | Sequence[str] | None = None,
        database: str | Sequence[str] | None = None,
        dry_run: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.key = key
        self.table = table
        self.database = database
        self.dry_run = dry_run

    def list_arguments(self) -> list[str]:
        """Return the command line of `jobs/rotate_keys.py`."""
        return list_rotation(
            self.key, policy=self.policy, table=self.table, database=self.database, options=self.options
        )


class SparkcryptShredOperator(_JobOperator):
    """Lists the master keys that are past their retention; with ``apply`` and ``reason`` it deletes them for good.

    A plan succeeds with and without keys that are due; the XCom's ``due`` tells whether there are any.  A shredding
    deletes the keys that are due when it runs, not those of an earlier plan; a retry resumes a failed try.  Keys with
    a hold are kept and do not fail the task; a key that is due and refused fails it.  The XCom's ``head`` is the head
    of the audit of keys: save it, and give it to the next shredding.

    Args:
        application: path or URI of `jobs/shred_keys.py`. (templated)
        policy: path or URI of the policy, as the driver opens it. (templated)
        report_folder: path or URI of a folder that the driver writes to and this worker reads; each submission writes
            its own file there. (templated)
        apply: delete the keys; this cannot be undone.
        reason: the reason, for readers of the audit of keys; required with ``apply``, not allowed for a plan.
            (templated)
        head: the head of the audit of keys, as ``NUMBER:DIGEST``; ``none`` if no key was ever held or shredded.
            (templated)
        key: only this key, such as a tenant's. (templated)
        table: a table, a pattern such as ``sales.cust*``, or several; without table and database every table in the
            state directory. (templated)
        database: a database, or several. (templated)
        options: further options of the job, such as ``["--leave-out", "sales.gone"]``. (templated)
        allow_incomplete: succeed although keys were refused or tables could not be scanned; ``keys``, ``kept``,
            ``left`` and ``not_scanned`` in the XCom name them.
        report_conn_id: the connection for reading reports from object storage.
        xcom_items: maximum number of entries of each list in the XCom; the report has all.
    """

    template_fields: Sequence[str] = (*_JobOperator.template_fields, "reason", "head", "key", "table", "database")
    kind = SHRED

    def __init__(
        self,
        *,
        apply: bool = False,
        reason: str | None = None,
        head: str | None = None,
        key: str | None = None,
        table: str | Sequence[str] | None = None,
        database: str | Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        if apply != (reason is not None):
            raise AirflowException("apply and reason go together: give both to shred keys, and none to plan")
        super().__init__(**kwargs)
        self.apply = apply
        self.dry_run = not apply
        self.reason = reason
        self.head = head
        self.key = key
        self.table = table
        self.database = database

    def list_arguments(self) -> list[str]:
        """Return the command line of `jobs/shred_keys.py`."""
        return list_shredding(
            policy=self.policy,
            reason=self.reason,
            applies=self.apply,
            head=self.head,
            key=self.key,
            table=self.table,
            database=self.database,
            options=self.options,
        )

    def list_job_arguments(self) -> list[str]:
        """Return the job's command line, whose first word is ``plan`` or ``apply``."""
        return self.list_arguments()

    def judge_report(self, report: Mapping[str, Any], uri: str) -> dict[str, Any]:
        """Check the report, and return for a plan whether keys are due.

        Raises:
            AirflowException: the job failed, or refused a key.
        """
        check_shredding(report, uri, plans=self.dry_run, allow_incomplete=self.allow_incomplete)
        return {"due": is_due(report)} if self.dry_run else {}


class SparkcryptIndexOperator(_JobOperator):
    """Refreshes a table's store for data skipping; with columns, creates or re-creates it.

    A refresh reads only new and changed files, so it can follow each task that writes the table.  If the store cannot
    be written, it stays unchanged, and queries open the files that it does not cover, so retries are always safe.

    Args:
        application: path or URI of `jobs/index_table.py`. (templated)
        table: ``db.table``. (templated)
        columns: each ``COL`` or ``COL:KIND…``, to create the store with indexes of these columns; none to refresh the
            existing store. (templated)
        policy: path or URI of the policy, as the driver opens it. (templated)
        report_folder: path or URI of a folder that the driver writes to and this worker reads; each submission writes
            its own file there. (templated)
        options: further options of the job, such as ``["--most-values", "5000"]``. (templated)
        report_conn_id: the connection for reading reports from object storage.
        xcom_items: maximum number of entries of each list in the XCom; the report has all.
    """

    template_fields: Sequence[str] = (*_JobOperator.template_fields, "table", "columns")
    kind = INDEX
    dry_run = False

    def __init__(self, *, table: str, columns: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.columns = columns

    def list_arguments(self) -> list[str]:
        """Return the command line of `jobs/index_table.py`."""
        return list_indexing(policy=self.policy, table=self.table, columns=self.columns, options=self.options)

    def judge_report(self, report: Mapping[str, Any], uri: str) -> dict[str, Any]:
        """Check the report, and add nothing to the XCom.

        Raises:
            AirflowException: the job failed.
        """
        check_indexing(report, uri)
        return {}

"""Operators that submit jobs through a connection to Spark, and end as the jobs' reports say."""

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
    """One submission of a job a try; see the operators below for what each argument is."""

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
        # A retry that connects to the application of an earlier try would wait for a report of another name, and what
        # an earlier try left unfinished is taken up by its run's journal.
        self.durable = False

    def execute(self, context: Any) -> dict[str, Any]:
        """Submit the job, and return its report, shortened, when that says that all was done.

        Raises:
            AirflowException: the job failed, left something out, or wrote no report.
        """
        arguments = self.list_job_arguments()

        def submit(line: list[str]) -> None:
            self.application_args = line
            self.conf = {**ONE_ATTEMPT, **(self.conf or {})}
            super(_JobOperator, self).execute(context)

        done = submit_job(
            submit, arguments, context, folder=self.report_folder, conn_id=self.report_conn_id, kind=self.kind
        )
        told = self.judge_report(done.report, done.uri)
        self.log.info("%s; the whole report: %s", done.report["outcome"], done.uri)
        return {**shorten_report(done.report, self.xcom_items), **told, "report": done.uri}

    def list_job_arguments(self) -> list[str]:
        """Return the job's command line, a dry run's option included."""
        return [*self.list_arguments(), *(["--dry-run"] if self.dry_run else [])]

    def judge_report(self, report: Mapping[str, Any], uri: str) -> dict[str, Any]:
        """Return what the XCom says besides the report.

        Raises:
            AirflowException: the job failed, or left something out.
        """
        check_report(report, uri, dry_run=self.dry_run, allow_incomplete=self.allow_incomplete)
        return {"drift": drifts(report)}

    @abstractmethod
    def list_arguments(self) -> list[str]:
        """Return the job's command line, without a report.

        Raises:
            AirflowException: the arguments do not go together.
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
    """Tell which files differ from what tags and policy say, and change nothing.

    It succeeds with and without drift; the XCom says which, as ``drift``.  Arguments that are not listed here are those
    of ``SparkSubmitOperator``: connection, deploy mode, memory, environment and so on.

    Args:
        application: path or URI of `jobs/backfill.py`. (templated)
        policy: path or URI of the policy, where the driver finds it. (templated)
        report_folder: a folder that the driver writes and this worker reads, as path or URI; each submission writes a
            file of its own there. (templated)
        table: a table, a pattern such as ``sales.cust*``, or several. (templated)
        database: a database, or several. (templated)
        path: a bare folder instead. (templated)
        where: a predicate over partition columns. (templated; made for ``expand``)
        changed: pass over tables whose tags, policy and files are as the last pass left them.
        options: further options of the job, such as ``["--parallelism", "8"]``. (templated)
        allow_incomplete: succeed although tables could not be planned; ``failed`` and ``refused`` in the XCom say
            which.
        report_conn_id: the connection with which object storage is read.
        xcom_items: how many entries of each list the XCom keeps; the report has all.
    """

    dry_run = True


class SparkcryptBackfillOperator(_PassOperator):
    """Bring tables to what their tags and the policy say.

    A try takes up what an earlier one, or an earlier task, left unfinished (``--resume auto``), and files that match
    already are left alone: trying again is always safe.  Units that could not be done fail the task; they are as they
    were, and the rest is done.  A pass that stops at a budget succeeds, with ``outcome`` saying so in the XCom.

    One run at a time works on a table.  Mapped tasks of one table go one after the other:
    ``.partial(…, max_active_tis_per_dagrun=1).expand(where=[…])``.

    Args:
        application: path or URI of `jobs/backfill.py`. (templated)
        policy: path or URI of the policy, where the driver finds it. (templated)
        report_folder: a folder that the driver writes and this worker reads, as path or URI; each submission writes a
            file of its own there. (templated)
        table: a table, a pattern such as ``sales.cust*``, or several. (templated)
        database: a database, or several. (templated)
        path: a bare folder instead, with ``--output`` or ``--exclusive`` among the options. (templated)
        where: a predicate over partition columns. (templated; made for ``expand``)
        changed: pass over tables whose tags, policy and files are as the last pass left them.
        options: further options of the job, such as ``["--max-duration", "4h"]``. (templated)
        allow_incomplete: succeed although units or tables could not be done; ``quarantined``, ``failed`` and
            ``refused`` in the XCom say which, for a task downstream to decide.
        report_conn_id: the connection with which object storage is read.
        xcom_items: how many entries of each list the XCom keeps; the report has all.
    """

    dry_run = False


class SparkcryptRotateOperator(_JobOperator):
    """Give a master key a new version, and rewrap the data keys of every file that holds the key.

    A try after a failed one goes on under the version that was made, so trying again is safe; the next run of the DAG
    makes the next version.  Without table and database the tables are those of which the state directory knows that
    they hold the key.

    Args:
        application: path or URI of `jobs/rotate_keys.py`. (templated)
        key: the master key's id. (templated)
        policy: path or URI of the policy, where the driver finds it. (templated)
        report_folder: a folder that the driver writes and this worker reads, as path or URI; each submission writes a
            file of its own there. (templated)
        table: a table, a pattern such as ``sales.cust*``, or several. (templated)
        database: a database, or several. (templated)
        dry_run: say how much would be rewrapped, and change nothing; ``drift`` in the XCom tells whether anything.
        options: further options of the job, such as ``["--max-duration", "4h"]`` or ``["--compromised"]``. (templated)
        allow_incomplete: succeed although units or tables could not be done; ``quarantined``, ``failed`` and
            ``refused`` in the XCom say which.
        report_conn_id: the connection with which object storage is read.
        xcom_items: how many entries of each list the XCom keeps; the report has all.
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
    """Tell which master keys are past their retention; delete them for good where ``apply`` and ``reason`` say so.

    A plan succeeds with and without keys that are due; the XCom says which, as ``due``.  A shredding deletes what is
    due when its turn comes, not what an earlier plan showed; a try after a failed one goes on.  Holds keep keys and
    fail nothing; a key that is due and refused fails the task.  The XCom's ``head`` is that of the audit of keys: keep
    it, and give it to the next shredding.

    Args:
        application: path or URI of `jobs/shred_keys.py`. (templated)
        policy: path or URI of the policy, where the driver finds it. (templated)
        report_folder: a folder that the driver writes and this worker reads, as path or URI; each submission writes a
            file of its own there. (templated)
        apply: delete the keys; there is no way back.
        reason: why, for those who read the audit of keys; a shredding needs it, and a plan takes none. (templated)
        head: of the audit of keys, as ``NUMBER:DIGEST``; ``none`` where no key was ever held or shredded. (templated)
        key: this key alone, such as a tenant's. (templated)
        table: a table, a pattern such as ``sales.cust*``, or several; without table and database every table that the
            state directory knows. (templated)
        database: a database, or several. (templated)
        options: further options of the job, such as ``["--leave-out", "sales.gone"]``. (templated)
        allow_incomplete: succeed although keys were refused; ``keys``, ``kept`` and ``left`` in the XCom say which.
        report_conn_id: the connection with which object storage is read.
        xcom_items: how many entries of each list the XCom keeps; the report has all.
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
        """Return the job's command line, whose first word says whether it plans."""
        return self.list_arguments()

    def judge_report(self, report: Mapping[str, Any], uri: str) -> dict[str, Any]:
        """Return whether keys are due, of a plan.

        Raises:
            AirflowException: the job failed, or refused a key.
        """
        check_shredding(report, uri, plans=self.dry_run, allow_incomplete=self.allow_incomplete)
        return {"due": is_due(report)} if self.dry_run else {}


class SparkcryptIndexOperator(_JobOperator):
    """Bring a table's store for data skipping up to date; with columns, make it anew.

    A refresh reads new and changed files alone, so it fits behind whatever writes the table.  A store that could not be
    written is as it was, and queries open what it does not know: trying again is always safe.

    Args:
        application: path or URI of `jobs/index_table.py`. (templated)
        table: ``db.table``. (templated)
        columns: each ``COL`` or ``COL:KIND…``, to make the store anew with indexes of these; none to refresh the one
            that is there. (templated)
        policy: path or URI of the policy, where the driver finds it. (templated)
        report_folder: a folder that the driver writes and this worker reads, as path or URI; each submission writes a
            file of its own there. (templated)
        options: further options of the job, such as ``["--most-values", "5000"]``. (templated)
        report_conn_id: the connection with which object storage is read.
        xcom_items: how many entries of each list the XCom keeps; the report has all.
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
        """Return nothing besides the report.

        Raises:
            AirflowException: the job failed.
        """
        check_indexing(report, uri)
        return {}

"""Builds the command lines of the jobs from the arguments of a task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow.exceptions import AirflowException


@dataclass(frozen=True, slots=True)
class JobArguments:
    """The tables or the folder of a pass, its policy, and its options.

    Attributes:
        policy: path or URI of the policy, as the driver opens it.
        table: a table or pattern, or several.
        database: a database, or several.
        path: a bare folder instead.
        where: a predicate over partition columns.
        changed: leave out tables that have not changed since the last pass.
        options: further options of the job, as on its command line.
    """

    policy: str
    table: str | Iterable[str] | None = None
    database: str | Iterable[str] | None = None
    path: str | None = None
    where: str | None = None
    changed: bool = False
    options: Iterable[str] = ()

    def as_list(self) -> list[str]:
        """Return the command line without ``--report``.

        Raises:
            AirflowException: neither tables nor a folder are given, or both; or an option is reserved for the task.
        """
        tables, databases, options = _list_names(self.table), _list_names(self.database), _check_options(self.options)
        if (not self.path) == (not tables and not databases):
            raise AirflowException("give table or database, or else path; after templating there is none, or both")
        line = [*_repeat_option("--table", tables), *_repeat_option("--database", databases)]
        line += ["--path", self.path] if self.path else []
        line += ["--policy", self.policy]
        line += ["--where", self.where] if self.where else []
        line += ["--changed"] if self.changed else []
        return [*line, *options]


def list_rotation(
    key: str,
    *,
    policy: str,
    table: str | Iterable[str] | None = None,
    database: str | Iterable[str] | None = None,
    options: Iterable[str] = (),
) -> list[str]:
    """Return the command line of a rotation, without ``--report``.

    Args:
        key: the master key's id.
        policy: path or URI of the policy, as the driver opens it.
        table: a table or pattern, or several; without table and database: every table that is known to use the key.
        database: a database, or several.
        options: further options of the job, as on its command line.

    Raises:
        AirflowException: the key is empty, or an option is reserved for the task.
    """
    if not key:
        raise AirflowException("key is empty; name the master key; after templating there may be none")
    line = [
        "--key",
        key,
        *_repeat_option("--table", _list_names(table)),
        *_repeat_option("--database", _list_names(database)),
    ]
    return [*line, "--policy", policy, *_check_options(options)]


def list_shredding(
    *,
    policy: str,
    reason: str | None,
    applies: bool,
    head: str | None = None,
    key: str | None = None,
    table: str | Iterable[str] | None = None,
    database: str | Iterable[str] | None = None,
    options: Iterable[str] = (),
) -> list[str]:
    """Return the command line of a shredding, or of its plan, without ``--report``.

    Args:
        policy: path or URI of the policy, as the driver opens it.
        reason: the reason for shredding keys; required with ``applies``.
        applies: True to shred keys, False to plan.
        head: the saved head of the audit of keys; ``none`` if there was none.
        key: only this key.
        table: a table or pattern, or several; without table and database: every known table.
        database: a database, or several.
        options: further options of the job, as on its command line.

    Raises:
        AirflowException: a shredding has no reason, or an option is reserved for the task.
    """
    if applies and not (reason or "").strip():
        raise AirflowException("reason is empty; say why keys are shredded; after templating there may be none")
    line = [
        "apply" if applies else "plan",
        *_repeat_option("--table", _list_names(table)),
        *_repeat_option("--database", _list_names(database)),
    ]
    line += [
        *_repeat_option("--key", _list_names(key)),
        *_repeat_option("--head", _list_names(head)),
        "--policy",
        policy,
    ]
    line += ["--yes", "--reason", str(reason)] if applies else []
    return [*line, *_check_options(options, "--yes", "--reason")]


def list_indexing(*, policy: str, table: str, columns: Iterable[str] = (), options: Iterable[str] = ()) -> list[str]:
    """Return the command line that creates a store, or refreshes it if there are no columns, without ``--report``.

    Args:
        policy: path or URI of the policy, as the driver opens it.
        table: ``db.table``.
        columns: each ``COL`` or ``COL:KIND…``.
        options: further options of the job, as on its command line.

    Raises:
        AirflowException: the table is empty, or an option is reserved for the task.
    """
    if not table:
        raise AirflowException("table is empty; name one; after templating there may be none")
    wanted = _list_names(columns)
    line = [
        "create" if wanted else "refresh",
        "--table",
        table,
        *_repeat_option("--column", wanted),
        "--policy",
        policy,
    ]
    return [*line, *_check_options(options, "--table", "--column", "--path")]


def _check_options(options: Iterable[str], *more: str) -> list[str]:
    further = [str(option) for option in options]
    own = {"--report", "--dry-run", *more} & {option.partition("=")[0] for option in further}
    if own:
        raise AirflowException(f"options hold {', '.join(sorted(own))}, which the task sets itself; leave it out")
    return further


def _list_names(names: str | Iterable[str] | None) -> list[str]:
    """Return names as a list, without empty ones, to which templates may be rendered."""
    return [name for name in ([names] if isinstance(names, str) else names or ()) if name]


def _repeat_option(option: str, values: Iterable[str]) -> list[str]:
    return [part for value in values for part in (option, value)]

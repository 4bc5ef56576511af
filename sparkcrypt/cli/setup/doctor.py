"""`sparkcrypt doctor`: checks a set-up, and prints a line for each check, with the fix if it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import click

from sparkcrypt.cli.frame.command import Command, describe_error
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import Launch, json_option, policy_option, spark_options, table_option
from sparkcrypt.cli.frame.output import show
from sparkcrypt.cli.setup.checks import (
    check_audit,
    check_environment,
    check_key,
    check_key_service,
    check_local_directory,
    check_state,
    java_on_path,
    key_checks,
)
from sparkcrypt.errors import KeyAccessDeniedError, KeyNotFoundError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.names import HELPER_ENVIRONMENT
from sparkcrypt.policy.key_service import PRINCIPAL
from sparkcrypt.policy.model import Policy


@dataclass(frozen=True, slots=True)
class Check(JsonObject, json_names={"exit_code": None}):
    """The result of one check: a detail, or the error and the fix."""

    check: str
    ok: bool
    detail: str
    fix: str | None
    exit_code: int = 0

    def line(self) -> str:
        """Return it as one line."""
        text = " ".join(self.detail.split())
        return f"✓ ok    {self.check}: {text}" if self.ok else f"✗ FAIL  {self.check}: {text}; fix: {self.fix}"


class Examination:
    """A runner of checks that collects their results.

    Args:
        tell: called with the result of each check as soon as it is known.
    """

    def __init__(self, tell: Callable[[Check], None]) -> None:
        self.checks: list[Check] = []
        self._tell = tell

    def check(self, name: str, action: Callable[[], str], fix: str | Callable[[Exception], str]) -> bool:
        """Run a check and record its result; return True if it succeeded.

        Args:
            name: of the check.
            action: returns the detail, or raises.
            fix: what to do if it raises, or a function that returns this for an error.
        """
        try:
            made = Check(name, True, action(), None)
        except Exception as error:  # noqa: BLE001  # a broken set-up may raise any error, which is the result
            _, message, code = describe_error(error)
            made = Check(name, False, message, fix if isinstance(fix, str) else fix(error), code)
        self.checks.append(made)
        self._tell(made)
        return made.ok

    @property
    def exit_code(self) -> int:
        """0, or the exit code of the first check that failed."""
        return next((check.exit_code for check in self.checks if not check.ok), 0)


@click.command(cls=Command)
@policy_option
@table_option
@json_option
@spark_options
@click.pass_context
def doctor(context: click.Context, policy: str, table: str | None, as_json: bool, launch: Launch) -> None:
    """Check a set-up end to end: policy, key service and each key, Java, jar, helpers, state directory, and a table.

    One line a check, with the fix; exits with 0 when all is well, else with the exit code of the first failure.
    Checks that need what failed are left out.  Everything that it writes is deleted again.

    Examples:
      sparkcrypt doctor --policy policy.yaml
      sparkcrypt doctor --policy hdfs://nn/policy.yaml --table sales.customers --master yarn
    """
    examination = Examination(lambda check: None if as_json else show(None, check.line(), as_json=False))
    with Workplace("sparkcrypt doctor", launch) as workplace:
        _examine(examination, workplace, policy, table)
    if as_json:
        show([check.to_dict() for check in examination.checks], "", as_json=True)
    context.exit(examination.exit_code)


def _examine(examination: Examination, workplace: Workplace, uri: str, table: str | None) -> None:
    loaded: list[Policy] = []

    def load() -> str:
        loaded.append(workplace.policy(uri))
        return f"{uri}: {len(loaded[0].tags)} tags, key service {loaded[0].key_service.type}"

    if not examination.check(
        "policy", load, "correct the policy file at the line that is named; see the examples in conf/"
    ):
        return
    policy = loaded[0]
    usable = _examine_keys(examination, policy)
    examination.check("java", java_on_path, "install a JDK 17 or later and set JAVA_HOME to it")
    ready = examination.check(
        "spark",
        lambda: _session(workplace),
        "set SPARK_HOME or pip install 'sparkcrypt[spark]', and look at --master and --conf",
    )
    if ready:
        _examine_session(examination, workplace, policy, usable)
    examination.check(
        "state directory",
        lambda: check_state(workplace, policy.run_state),
        "make run_state of the policy a place that this user may write to, on a local disk, HDFS or an object store",
    )
    if ready:
        examination.check(
            "environment",
            lambda: check_environment(workplace.policy(uri, principal=PRINCIPAL), workplace.spark),
            f"start the server without it, and name a file of lines NAME=value for helpers by {HELPER_ENVIRONMENT}",
        )
    if ready and table is not None:
        _examine_table(examination, workplace, policy, table)


def _examine_keys(examination: Examination, policy: Policy) -> bool:
    """Check the key service and each key; return True if all keys can be used."""
    if policy.key_service.type == "local":
        examination.check(
            "key directory",
            lambda: check_local_directory(policy.key_service),
            "mount it, or give its absolute path in the policy: a relative one counts from the policy file's folder, "
            "which a copy changes; in a new set-up `sparkcrypt keys create` makes it with the right modes; on one that "
            "is there: chmod 700, and 600 on files",
        )
    if not examination.check(
        "key service",
        lambda: check_key_service(policy),
        "look at the key service's address, at this machine's way to it, and at the credentials in this environment",
    ):
        return False
    examination.check("audit", lambda: check_audit(policy), "name a master key under audit.key of the policy")
    service = open_key_service(policy.key_service)
    found = [
        examination.check(
            f"key {key.key_id}",
            lambda key=key: check_key(service, key),  # type: ignore[misc]  # bound early
            lambda error, key_id=key.key_id: _fix_of_key(error, key_id),  # type: ignore[misc]
        )
        for key in key_checks(policy)
    ]
    return all(found)


def _fix_of_key(error: Exception, key_id: str) -> str:
    if isinstance(error, KeyNotFoundError):
        return f"sparkcrypt keys create {key_id}, if it was never made; else restore it"
    if isinstance(error, KeyAccessDeniedError):
        return "renew these credentials if they have expired, or allow them to wrap and unwrap with it"
    return "see the message"


def _session(workplace: Workplace) -> str:
    spark = workplace.spark
    from sparkcrypt.spark.setup.doctor import java_of_session
    from sparkcrypt.spark.setup.session import refuse_release

    refuse_release(spark.version)
    return java_of_session(spark)


def _examine_session(examination: Examination, workplace: Workplace, policy: Policy, usable: bool) -> None:
    from sparkcrypt.spark.setup import doctor as session
    from sparkcrypt.spark.tasks.run import versions_of_tasks

    spark = workplace.spark
    interpreter = (
        "name an interpreter that has the key service's library: --conf spark.sparkcrypt.python=/path/to/python3"
    )
    if not examination.check(
        "jar", lambda: session.jar_of_session(spark), "run `make jar` in a checkout, or install the wheel again"
    ):
        return
    examination.check(
        "key services of tables",
        lambda: session.own_key_services(spark),
        "ALTER TABLE … SET SERDEPROPERTIES ('parquet.sparkcrypt.key_service' = ''), and UNSET TBLPROPERTIES for a "
        "table of Hive; the launch configuration names the key service",
    )
    examination.check(
        "table formats", lambda: session.formats_of_session(spark), "launch without them where tags must count"
    )
    examination.check("helper on the driver", lambda: session.helper_of_driver(spark), interpreter)
    examination.check(
        "tasks of the native engine",
        lambda: versions_of_tasks(spark),
        "pip install 'sparkcrypt[spark]' into the interpreter of the driver and of every executor (PYSPARK_PYTHON), or "
        "pandas and pyarrow there as this Spark asks for them; where that cannot be, use --engine spark",
    )
    well = examination.check(
        "helper on executors", lambda: session.helpers_of_executors(spark), f"{interpreter}, on every node"
    )
    if well and usable:
        examination.check(
            "write under the policy",
            lambda: session.write_under_policy(spark, policy),
            "give every executor's environment the key service's credentials, and its helper's interpreter the library",
        )


def _examine_table(examination: Examination, workplace: Workplace, policy: Policy, table: str) -> None:
    from sparkcrypt.cli.setup.checks import (
        check_names,
        check_plan,
        check_properties,
        check_rule,
        check_stores,
        check_uuid,
    )
    from sparkcrypt.spark.setup.doctor import sibling_of
    from sparkcrypt.spark.tables.catalog import Catalog

    spark = workplace.spark
    fix = f"correct tags with `sparkcrypt tags set`, or the policy; `sparkcrypt plan --table {table}` shows more"
    if not examination.check(f"plan of {table}", lambda: check_plan(spark, table, policy), fix):
        return
    examination.check(
        f"place of {table}",
        lambda: sibling_of(spark, Catalog(spark).table(table).location),
        "let this user write to the folder that holds the table's folder",
    )
    examination.check(
        f"tags of {table}",
        lambda: check_stores(spark, table, policy),
        f"`sparkcrypt tags set {table} COLUMN TAG` writes both places, or `sparkcrypt tags unset` removes from both",
    )
    examination.check(
        f"names of {table}",
        lambda: check_names(spark, table, policy),
        "make the table again without CLUSTERED BY, or with another column, as the message says",
    )
    examination.check(
        f"properties of {table}",
        lambda: check_properties(spark, table),
        "upgrade sparkcrypt wherever this table is written or read, or correct the property's name",
    )
    examination.check(
        f"identity of {table}",
        lambda: check_uuid(spark, table),
        "give each of the tables a UUID of its own, as the message says, before a run",
    )
    examination.check(
        f"rule of {table}",
        lambda: check_rule(spark, table, policy),
        "`sparkcrypt tags apply POLICY`, or a run, puts it there",
    )

"""`sparkcrypt doctor | conf | jobs`: checks a set-up, and prints what a launch needs."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

import sparkcrypt
from sparkcrypt.cli.frame.command import Command, describe_error
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import Launch, json_option, policy_option, spark_options, table_option
from sparkcrypt.cli.frame.output import say, show
from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    PlanError,
    VerificationError,
)
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.state.mac import MasterKeys
from sparkcrypt.names import HELPER_ENVIRONMENT, PREFIX
from sparkcrypt.policy.key_service import PRINCIPAL, KeyServiceConfig, credential_variables
from sparkcrypt.policy.model import Policy, named_keys
from sparkcrypt.spark.jvm.jar import jar_path
from sparkcrypt.spark.setup.options import defaults_lines, launch_conf, site_file, site_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600
_JAVA_SECONDS = 30
_ADVICE = (
    "Event logs and logs of drivers have values of tagged columns (docs/security.md, What is not protected): let only "
    "people who may read these columns read spark.eventLog.dir, as with checkpoints."
)


def check_key_service(policy: Policy) -> str:
    """Check that the key service answers; a missing or refused footer key counts as an answer, and the line says so.

    Raises:
        KeyServiceError: it cannot be reached.
        ConfigError: it cannot be opened.
    """
    service, kind = open_key_service(policy.key_service), policy.key_service.type
    try:
        service.describe(policy.footer_key)
    except KeyNotFoundError:
        return f"{kind}: answers, and has no key {policy.footer_key!r}"
    except KeyAccessDeniedError:
        return f"{kind}: answers, and refuses these credentials to look at the footer key"
    return f"{kind}: answers, and knows the footer key"


def check_key(service: KeyService, key_id: str, *, is_template: bool = False) -> str:
    """Wrap and unwrap a random key with a master key.

    Raises:
        KeyServiceError: wrapping or unwrapping failed, or returned another key.
    """
    if is_template:
        return "a template, whose keys belong to partitions: not checked"
    secret = os.urandom(16)
    if service.unwrap(key_id, service.wrap(key_id, secret)) != secret:
        raise KeyServiceError(f"key {key_id!r}: what was unwrapped is not what was wrapped")
    return "wraps and unwraps"


def check_audit(policy: Policy) -> str:
    """Return the master key that authenticates the audits of runs, or why that key is weak."""
    masters = MasterKeys.of(policy)
    return masters.weakness(masters.current) or f"authenticated under {masters.current!r}, a key of its own"


def check_environment(policy: Policy, spark: SparkSession) -> str:
    """Check that users of a server with keys of their own cannot read the key service's credential in its environment.

    Args:
        policy: the policy with ``{principal}`` where the file has it.
        spark: a session that is launched as the server is.

    Raises:
        ConfigError: a variable is set here, or for executors; the message names it.
    """
    if PRINCIPAL not in policy.key_service.options_json:
        return "the key service is the same for all users"
    found = [
        name
        for name in credential_variables(policy.key_service)
        if os.environ.get(name) or spark.sparkContext.getConf().get(f"spark.executorEnv.{name}", None)
    ]
    if found:
        raise ConfigError(f"users of a server that is started like this could read {', '.join(found)}")
    return "no credential of the key service is in it"


def check_local_directory(config: KeyServiceConfig) -> str:
    """Check that only its owner can access a local key directory.

    Raises:
        ConfigError: it does not exist, or modes give access to others.
    """
    folder = Path(str(config.options.get("path", "")))
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not there")
    wide = [
        f"{path} has mode {mode:04o}"
        for path, allowed in [(folder, _PRIVATE_FOLDER), *((file, _PRIVATE_FILE) for file in sorted(folder.iterdir()))]
        if (mode := stat.S_IMODE(path.stat().st_mode)) & ~allowed
    ]
    if wide:
        raise ConfigError(f"{wide[0]}{f', and {len(wide) - 1} more' if wide[1:] else ''}; allowed: 0700 and 0600")
    return f"{folder} is its owner's alone"


def java_on_path() -> str:
    """Return path and version of the Java that would be started.

    Raises:
        ConfigError: there is no Java, or it does not run.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise ConfigError("there is no java on PATH, and JAVA_HOME is not set")
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{java} does not run: {error}") from error
    return f"{java}: {(answer.stderr or answer.stdout).strip().splitlines()[0]}"


def check_state(workplace: Workplace, uri: str) -> str:
    """Check that the state directory refuses to create a record a second time.

    Raises:
        ConfigError: its file system has no conditional create, or needs Spark, which does not start.
        VerificationError: a record was created twice.
    """
    store = workplace.state_directory(uri)
    name = f"doctor/{uuid.uuid4()}"
    try:
        first, second = store.create(name, b"{}"), store.create(name, b"{}")
    finally:
        store.delete(name)
    if not first or second:
        raise VerificationError(f"{uri}: a record could be created twice, so two runs could hold one table")
    return f"{uri}: a record is created once"


def _refuse(problems: Iterable[str], well: str) -> str:
    """Return what is said if there are no problems.

    Raises:
        PlanError: there are some.
    """
    found = "; ".join(problems)
    if found:
        raise PlanError(found)
    return well


def check_names(spark: SparkSession, table: str, policy: Policy) -> str:
    """Check that no name of a table's files is made of values of an encrypted column.

    Raises:
        PlanError: the table is bucketed by such a column.
    """
    from sparkcrypt.spark.tables.planning import plan_table

    return _refuse(plan_table(spark, table, policy).in_clear, "no encrypted column names files")


def check_properties(spark: SparkSession, table: str) -> str:
    """Check that this version knows all of a table's sparkcrypt properties, since writers and readers refuse others.

    Raises:
        ConfigError: a property is unknown.
    """
    from sparkcrypt.decide.context import refuse_unknown
    from sparkcrypt.spark.tables.catalog import Catalog

    ours = {name: value for name, value in Catalog(spark).table(table).options.items() if name.startswith(PREFIX)}
    refuse_unknown(ours)
    return f"{len(ours)} of sparkcrypt's, all known"


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
    with Workplace("sparkcrypt doctor", launch, short=True) as workplace:
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
            f"key {key_id}",
            partial(check_key, service, key_id, is_template=is_template),
            partial(_fix_of_key, key_id),
        )
        for key_id, is_template in named_keys(policy).items()
    ]
    return all(found)


def _fix_of_key(key_id: str, error: Exception) -> str:
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
    from sparkcrypt.runs.table.target import catalog_target
    from sparkcrypt.spark.setup.doctor import sibling_of
    from sparkcrypt.spark.tables.catalog import Catalog
    from sparkcrypt.spark.tables.identity import find_sharing_tables, shared_text
    from sparkcrypt.spark.tables.planning import plan_table
    from sparkcrypt.spark.tables.table_rules import rule_lines

    spark = workplace.spark

    def check_plan() -> str:
        plan = catalog_target(spark, Catalog(spark).table(table), policy, None).plan
        problems = [] if plan.encrypted else [f"{plan.table}: no column carries a tag that encrypts"]
        return _refuse(problems, f"{len(plan.encrypted)} of {len(plan.columns)} columns are encrypted")

    def check_identity() -> str:
        found = Catalog(spark).table(table)
        others = find_sharing_tables(spark, found)  # as after CREATE TABLE LIKE
        return _refuse([shared_text(found, others)] if others else [], found.uuid or "none yet")

    def check_rule() -> str:  # one that is not there applies only in sessions with the extension
        lines = rule_lines(spark, Catalog(spark).table(table), policy)
        problems = [f"{table}: not in the table's properties: {'; '.join(lines)}"] if lines else []
        return _refuse(problems, "in place")

    fix = f"correct tags with `sparkcrypt tags set`, or the policy; `sparkcrypt plan --table {table}` shows more"
    if not examination.check(f"plan of {table}", check_plan, fix):
        return
    examination.check(
        f"place of {table}",
        lambda: sibling_of(spark, Catalog(spark).table(table).location),
        "let this user write to the folder that holds the table's folder",
    )
    examination.check(
        f"tags of {table}",
        lambda: _refuse(plan_table(spark, table, policy).differences, "both places agree"),
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
        check_identity,
        "give each of the tables a UUID of its own, as the message says, before a run",
    )
    examination.check(
        f"rule of {table}",
        check_rule,
        "`sparkcrypt tags apply POLICY`, or a run, puts it there",
    )


@click.command(cls=Command)
@policy_option
@click.option("--jar", metavar="FILE", help="Where Spark finds the jar, if elsewhere than here: a path or URI.")
@click.option(
    "--python", metavar="FILE", help="The helper's interpreter on every node; it needs the key service's library."
)
@click.option("--site", is_flag=True, help="Print sparkcrypt-site.xml instead, for readers without Spark.")
@json_option
def conf(policy: str, jar: str | None, python: str | None, site: bool, as_json: bool) -> None:
    """Print the lines for spark-defaults.conf by which sessions without this package obey a policy.

    These are spark-sql, spark-shell, the Thrift server and Connect servers.  It needs no pyspark here.

    Examples:
      sparkcrypt conf --policy policy.yaml >> $SPARK_HOME/conf/spark-defaults.conf
      sparkcrypt conf --policy policy.yaml --jar hdfs://nn/lib/sparkcrypt.jar --python /usr/bin/python3
      sparkcrypt conf --policy policy.yaml --site > /etc/hadoop/conf/sparkcrypt-site.xml
    """  # click shows the first paragraph whole
    if site and jar:
        raise click.UsageError("--jar goes with the lines for Spark alone: without Spark the jar is on the class path")
    with Workplace("sparkcrypt conf", short=True) as workplace:
        loaded = workplace.policy(policy, principal=PRINCIPAL)  # servers replace it with each user's name
    if site:
        settings = site_settings(loaded, python)
        show(settings, site_file(settings), as_json=as_json)
        return
    if PRINCIPAL in loaded.key_service.options_json and (variables := credential_variables(loaded.key_service)):
        say(
            f"users of a server can read its environment: start it and its executors without {', '.join(variables)}, "
            f"and name a file of lines NAME=value for helpers by {HELPER_ENVIRONMENT}"
        )
    found = launch_conf(loaded, jar or str(jar_path()), python)
    say(_ADVICE)
    show(found, defaults_lines(found), as_json=as_json)


@click.command(cls=Command)
@json_option
def jobs(as_json: bool) -> None:
    """Print the folder of the jobs for spark-submit, each of which takes the options of its command.

    Examples:
      sparkcrypt jobs --json
      spark-submit "$(sparkcrypt jobs)/encrypt_table.py" --table sales.customers --policy policy.yaml
    """
    package = Path(sparkcrypt.__file__).parent
    found = [folder for folder in (package / "jobs", package.parent / "jobs") if (folder / "encrypt_table.py").exists()]
    if not found:
        raise ConfigError(
            f"there are no jobs in {package}, as in a wheel, nor beside it, as in a checkout; install anew"
        )
    names = sorted(job.name for job in found[0].glob("*.py"))
    show({"folder": str(found[0]), "jobs": names}, str(found[0]), as_json=as_json)

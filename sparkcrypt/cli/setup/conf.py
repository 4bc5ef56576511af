"""`sparkcrypt conf | jobs`: prints the launch configuration of other sessions, and where the jobs are."""

from __future__ import annotations

from pathlib import Path

import click

import sparkcrypt
from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import json_option, policy_option
from sparkcrypt.cli.frame.output import say, show
from sparkcrypt.errors import ConfigError
from sparkcrypt.names import HELPER_ENVIRONMENT
from sparkcrypt.policy.key_service import PRINCIPAL, credential_variables
from sparkcrypt.spark.jvm.jar import jar_path
from sparkcrypt.spark.setup.options import defaults_lines, launch_conf

_ADVICE = (
    "Event logs and logs of drivers have values of tagged columns (docs/security.md, What is not protected): let only "
    "people who may read these columns read spark.eventLog.dir, as with checkpoints."
)


@click.command(cls=Command)
@policy_option
@click.option(
    "--jar", metavar="FILE", help="Where the jar will be for Spark, when not where it is here: a path or URI."
)
@click.option(
    "--python", metavar="FILE", help="The helper's interpreter on every node; it needs the key service's library."
)
@json_option
def conf(policy: str, jar: str | None, python: str | None, as_json: bool) -> None:
    """Print the lines for spark-defaults.conf by which sessions without this package obey a policy.

    These are spark-sql, spark-shell, the Thrift server and Connect servers.  It needs no pyspark here.

    Examples:
      sparkcrypt conf --policy policy.yaml >> $SPARK_HOME/conf/spark-defaults.conf
      sparkcrypt conf --policy policy.yaml --jar hdfs://nn/lib/sparkcrypt.jar --python /usr/bin/python3
    """  # click shows the first paragraph whole
    with Workplace("sparkcrypt conf") as workplace:
        loaded = workplace.policy(policy, principal=PRINCIPAL)  # servers replace it with each user's name
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

"""The program `sparkcrypt`: its commands, and the exit codes that all of them share."""

from __future__ import annotations

import click

import sparkcrypt
from sparkcrypt.cli.audit import audit
from sparkcrypt.cli.backfill import backfill
from sparkcrypt.cli.command import Group
from sparkcrypt.cli.conf import conf
from sparkcrypt.cli.doctor import doctor
from sparkcrypt.cli.encrypt import encrypt
from sparkcrypt.cli.inspect import inspect
from sparkcrypt.cli.keys import keys
from sparkcrypt.cli.plan import plan
from sparkcrypt.cli.rewrite import rewrite
from sparkcrypt.cli.tags import tags
from sparkcrypt.cli.verify import verify


@click.group(cls=Group)
@click.version_option(sparkcrypt.__version__, prog_name="sparkcrypt")
def cli() -> None:
    """Tag a column once; every Spark write encrypts it, every read respects its key, history follows every change.

    The result goes to stdout (as JSON with --json), everything else to stderr.  Exit codes: 0 well, 2 drift, 64 usage,
    65 tags and policy make no plan, 66 not a Parquet file, 69 key service, 70 jar or helper, 74 verification,
    75 another run holds the table, 77 key access denied, 78 configuration, 130 interrupted.

    Examples:
      sparkcrypt keys create footer pii --policy policy.yaml
      sparkcrypt tags set sales.customers ssn pii
      sparkcrypt doctor --policy policy.yaml --table sales.customers
      sparkcrypt encrypt --table sales.customers --policy policy.yaml
    """


for _command in (audit, backfill, conf, doctor, encrypt, inspect, keys, plan, rewrite, tags, verify):
    cli.add_command(_command)


def main() -> None:
    """Run the program; never returns."""
    cli.main(prog_name="sparkcrypt")

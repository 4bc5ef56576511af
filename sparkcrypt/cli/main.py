"""The program `sparkcrypt`, with all its commands."""

from __future__ import annotations

import click

import sparkcrypt
from sparkcrypt.cli.files.index import index
from sparkcrypt.cli.files.inspect import inspect
from sparkcrypt.cli.files.rewrite import rewrite
from sparkcrypt.cli.frame.command import Group
from sparkcrypt.cli.runs.backfill import backfill
from sparkcrypt.cli.runs.rotate import rotate
from sparkcrypt.cli.runs.shred import shred
from sparkcrypt.cli.runs.status import lineage, status
from sparkcrypt.cli.setup.batch import batch
from sparkcrypt.cli.setup.doctor import conf, doctor, jobs
from sparkcrypt.cli.setup.init import init
from sparkcrypt.cli.setup.keys import keys
from sparkcrypt.cli.tables.access import access
from sparkcrypt.cli.tables.audit import audit, audit_access
from sparkcrypt.cli.tables.encrypt import encrypt
from sparkcrypt.cli.tables.plan import plan
from sparkcrypt.cli.tables.tags import tags
from sparkcrypt.cli.tables.verify import verify

SECTIONS = {
    "Set up": ("init", "keys", "doctor", "conf", "jobs"),
    "Tag and encrypt": ("tags", "plan", "encrypt", "verify"),
    "Keep up": ("backfill", "rotate", "shred", "index", "batch"),
    "Look and prove": ("status", "access", "audit", "lineage"),
    "Single files": ("inspect", "rewrite"),
}
"""Heading -> commands of the help, in the order of their use."""


@click.group(cls=Group, sections=SECTIONS)
@click.version_option(sparkcrypt.__version__, prog_name="sparkcrypt")
def cli() -> None:
    """Tag a column once; every Spark write encrypts it, every read respects its key, history follows every change.

    The result goes to stdout (as JSON with --json), everything else to stderr.  SPARKCRYPT_POLICY names the policy file
    of commands without --policy; SPARKCRYPT_LOG=json makes each line on stderr a JSON object.

    Examples:
      sparkcrypt init
      export SPARKCRYPT_POLICY=policy.yaml
      sparkcrypt keys create footer audit pii
      sparkcrypt tags set sales.customers ssn pii
      sparkcrypt doctor --table sales.customers
      sparkcrypt encrypt --table sales.customers
    """


_COMMANDS = (
    access,
    audit,
    backfill,
    batch,
    conf,
    doctor,
    encrypt,
    index,
    init,
    inspect,
    jobs,
    keys,
    lineage,
    plan,
    rewrite,
    rotate,
    shred,
    status,
    tags,
    verify,
)
for _command in _COMMANDS:
    cli.add_command(_command)
audit.add_command(audit_access)


def main() -> None:
    """Run the program and exit with its exit code."""
    cli.main(prog_name="sparkcrypt")

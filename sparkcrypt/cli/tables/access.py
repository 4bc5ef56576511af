"""`sparkcrypt access`: shows what a principal would get of each column of a table, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from sparkcrypt.cli.frame.command import Command, Group
from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.options import CommandOptions, option, options_from, required_table_option, use
from sparkcrypt.cli.frame.output import show
from sparkcrypt.decide.explain_access import ColumnAccess, explain_access
from sparkcrypt.errors import ConfigError
from sparkcrypt.keys.access_decisions import KeyDecisions
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.opened import LoggingKeyService
from sparkcrypt.policy.model import ON_DENIED, OnDenied, Policy
from sparkcrypt.text import align_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHOWN_PARTITIONS = 3
_LIMITS = (
    "by the plan of the table's tags: files that a run has not followed up may be under other keys, or in clear",
    "asked now: a right that is granted or withdrawn later is not seen",
)


@click.group(cls=Group)
def access() -> None:
    """Look at who may read what."""


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(CommandOptions):
    """The options of `sparkcrypt access explain`."""

    principal: str = option("The principal who would read.", required=True, metavar="NAME")
    table: str = use(required_table_option)
    principal_policy: str | None = option(
        "A policy whose key service has the principal's own credential; needed for anybody but yourself.",
        metavar="FILE",
    )
    on_denied: OnDenied | None = option("What the principal's session asks for.", type=click.Choice(ON_DENIED))
    strict_projection: bool = option("The principal's session makes it an error to name a column that would be null.")


@access.command(cls=Command)
@options_from(ExplainOptions)
def explain(options: ExplainOptions) -> None:
    """Show what a principal would get of each column: values, nulls or an error, and why.

    The key service answers for the credential that it is asked with. For yourself that is the policy's. For anybody
    else the command needs a policy with their credential, and does not guess without one. It cannot tell whose a
    credential is: that the answer is about this principal is your word.

    Examples:
      sparkcrypt access explain --principal ann --table sales.customers --policy ann.yaml
      sparkcrypt access explain --principal bob --table sales.customers --policy policy.yaml --principal-policy bob.yaml
    """
    principal, principal_policy = options.principal, options.principal_policy
    with Workplace("sparkcrypt access", options.launch, short=True) as workplace:
        loaded = workplace.policy(options.policy)
        reader_policy = workplace.policy(principal_policy) if principal_policy else loaded
        spark = workplace.spark
        if principal_policy is None:
            _refuse_another(spark, principal)
        columns = _explain(spark, replace(loaded, key_service=reader_policy.key_service), options)
    document = {
        "principal": principal,
        "table": options.table,
        "credential_of": principal_policy or options.policy,
        "columns": [column.to_dict() for column in columns],
        "limits": list(_LIMITS),
    }
    show(document, _text(document, columns), as_json=options.as_json)


def _refuse_another(spark: SparkSession, principal: str) -> None:
    """Refuse to answer for another principal with the caller's own credential.

    Raises:
        ConfigError: the principal is not this session's.
    """
    from sparkcrypt.spark.setup.command_session import principal_of

    own = principal_of(spark)
    if principal != own:
        raise ConfigError(
            f"what {principal!r} would get cannot be said: the key service answers for the credential that it is "
            f"asked with, and the policy's is that of {own!r}; give --principal-policy with a policy whose key service "
            f"has the credential of {principal!r}, or let {principal!r} ask"
        )


def _explain(spark: SparkSession, policy: Policy, options: ExplainOptions) -> tuple[ColumnAccess, ...]:
    from sparkcrypt.spark.tables.catalog import Catalog
    from sparkcrypt.spark.tables.planning import plan_of

    found = Catalog(spark).table(options.table)
    partitions = Catalog(spark).partitions(found) if found.partition_columns else ()
    decisions = KeyDecisions(LoggingKeyService(open_key_service(policy.key_service)))
    return explain_access(
        plan_of(spark, found, policy),
        policy,
        lambda key_id: decisions.decide((key_id,), {}).get(key_id),
        partitions=[dict(partition.values) for partition in partitions],
        on_denied=options.on_denied,
        strict_projection=options.strict_projection,
    )


def _text(document: dict[str, Any], columns: tuple[ColumnAccess, ...]) -> str:
    rows = [
        (column.column, _places(column), column.tag, column.key, column.right, column.result, column.why)
        for column in columns
    ]
    head = ("column", "partitions", "tag", "key", "right", "gets", "why")
    lines = [f"{document['principal']} on {document['table']}, with the credential of {document['credential_of']}"]
    return "\n".join([*lines, align_table(rows, head=head), *document["limits"]])


def _places(column: ColumnAccess) -> str:
    if column.partitions is None:
        return "all"
    shown = ["/".join(f"{name}={value}" for name, value in place.items()) for place in column.partitions]
    more = len(shown) - _SHOWN_PARTITIONS
    return ", ".join(shown[:_SHOWN_PARTITIONS]) + (f" and {more} more" if more > 0 else "") or "none"

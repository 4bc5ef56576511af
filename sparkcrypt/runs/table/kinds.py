"""Kinds of tables: which have files that can be encrypted, and which of these a policy encrypts."""

from __future__ import annotations

from sparkcrypt.errors import PlanError
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.table import Table

LEFT_ALONE = (
    "holds ORC files, which runs leave alone unless the policy says `formats: [parquet, orc]`; say so to have its "
    "tagged columns encrypted, once its readers have what opens encrypted ORC: others see nulls there"
)


def find_other_kind(table: Table) -> str | None:
    """Return why no file of a table can be encrypted, whatever the policy says; None if it can."""
    if table.kind == "VIEW":
        return f"{table.full_name} is a view and has no files; name the tables that it reads"
    if table.format is None:
        return (
            f"{table.full_name} is a {table.provider} table, neither Parquet nor ORC; convert it first "
            "(CREATE TABLE … USING parquet AS SELECT …)"
        )
    if table.properties.get("transactional", "").lower() == "true":
        return (
            f"{table.full_name} is a Hive ACID table, whose files belong to Hive's transactions; it cannot be swapped"
        )
    return None


def refuse_kinds(table: Table, policy: Policy) -> None:
    """Refuse a view, a table in a format that the policy does not encrypt, and a Hive ACID table.

    Raises:
        PlanError: the table is refused; the message contains the reason.
    """
    if table.kind != "VIEW" and table.format == "orc" and "orc" not in policy.formats:
        raise PlanError(f"{table.full_name} {LEFT_ALONE}")
    reason = find_other_kind(table)
    if reason is not None:
        raise PlanError(reason)

"""Tags of a table that nothing reads, each with the reason and the next step."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession

from sparkcrypt.errors import PlanError
from sparkcrypt.names import TAGS_PREFIX
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import join_dotted, schema_from_spark
from sparkcrypt.spark.tables.table import Table
from sparkcrypt.spark.tables.tagging import refuse_formats_without_keys, tags_of_table
from sparkcrypt.tags.find_column import ColumnIndex

_OF_THEIR_OWN = ("iceberg", "delta", "hudi")
"""Formats that write Parquet files, which are encrypted as they are written."""


def find_unread_properties(table: Table) -> Iterator[str]:
    """Yield a line for each property that looks like a tag and that neither plans nor writers read."""
    words = ("SERDEPROPERTIES", "TBLPROPERTIES") if table.is_hive else ("TBLPROPERTIES", "SERDEPROPERTIES or OPTIONS")
    for name, value in sorted(table.unused.items()):
        if name.lower().startswith(TAGS_PREFIX) and value.strip() and table.options.get(name) != value:
            where = f"stands in {words[0]}, and of this table {words[1]} are read"
            yield f"{name} = {value!r} {where}{_advise(table, name, value)}"
    for name, value in sorted(table.options.items()):
        if name.lower().startswith(TAGS_PREFIX) and not name.startswith(TAGS_PREFIX) and value.strip():
            yield f"{name} = {value!r} is not read: a tag's name begins with {TAGS_PREFIX}{_advise(table, name, value)}"


def find_tags_without_effect(spark: SparkSession, table: Table, policy: Policy | None) -> Iterator[str]:
    """Yield a line for each tag of a table that encrypts nothing: unread, of no column, or in a format without keys.

    Args:
        spark: a classic session.
        table: the table from the catalog.
        policy: defines which formats runs encrypt; None: only Parquet.
    """
    yield from find_unread_properties(table)
    tagged = tags_of_table(spark, table)
    index = ColumnIndex(schema_from_spark(table.schema_json))
    for column in tagged:
        if not index.find(column.path):
            yield (
                f"column {join_dotted(column.path)} is tagged {','.join(column.tags)} by the {column.source}, and the "
                "table has no such column, so no plan can be made of it; correct the tag or remove it"
            )
    if tagged and table.kind != "VIEW" and table.provider not in _OF_THEIR_OWN:  # a view has those of what it reads
        try:
            refuse_formats_without_keys(table, policy)
        except PlanError as error:
            yield str(error)


def _advise(table: Table, name: str, value: str) -> str:
    return f"; set it with `sparkcrypt tags set {table.full_name} {name[len(TAGS_PREFIX) :]} {value.strip()}`"

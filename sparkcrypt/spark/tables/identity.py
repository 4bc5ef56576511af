"""A table's UUID, which its files are bound to: given once, and never shared by two tables."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparkcrypt.errors import FormatError, PlanError
from sparkcrypt.names import TABLE_MARK, TABLE_UUID
from sparkcrypt.orc import inspect_orc, is_orc
from sparkcrypt.parquet import inspect_file
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOKED_AT = 20
"""Files of a table whose AAD prefixes are looked at: one that names the UUID is enough."""


def ensure_identity(spark: SparkSession, name: str) -> Table:
    """Give a table a UUID of its own if it has none, so that its files can be tied to it.

    ``CREATE TABLE … LIKE`` copies the UUID: of two tables that have one, the later one to which no file is bound gets
    another.

    Returns:
        The table as it then is.

    Raises:
        PlanError: files of both tables are bound to the one UUID.
    """
    catalog = Catalog(spark)
    table = catalog.table(name)
    options = new_identity(spark, table)
    if options:
        catalog.set_options(table, options)
        table = catalog.table(name)
    mark = mark_of(table)
    if table.properties.get(TABLE_MARK) != mark:
        catalog.set_properties(table, {TABLE_MARK: mark})
        table = catalog.table(name)
    return table


def new_identity(spark: SparkSession, table: Table) -> Mapping[str, str]:
    """Return the option that gives a table a UUID, where it has none or only another table's; else nothing.

    Raises:
        PlanError: files of both tables are bound to the one UUID.
    """
    fresh = {TABLE_UUID: str(uuid.uuid4())}
    if not table.uuid:
        return fresh
    others = sharing(spark, table)
    if not others:
        return {}
    bound = [other for other in others if _has_bound_files(spark, other, table.uuid)]
    if _has_bound_files(spark, table, table.uuid):
        if bound:
            raise PlanError(shared_text(table, bound))
        return {}
    oldest = all(0 < table.created < other.created for other in others)
    return {} if oldest and not bound else fresh


def sharing(spark: SparkSession, table: Table) -> tuple[Table, ...]:
    """Return the other tables that have a table's UUID; none where a mark shows that the UUID is the table's own."""
    if not table.uuid or table.properties.get(TABLE_MARK) == mark_of(table):
        return ()
    found = Catalog(spark).holding(table.uuid)
    return tuple(other for other in found if other.uuid == table.uuid and other.quoted != table.quoted)


def shared_text(table: Table, others: list[Table] | tuple[Table, ...]) -> str:
    """Say that tables share a UUID, and what to do."""
    names = ", ".join(other.full_name for other in others)
    return (
        f"{table.full_name} has the UUID of {names} ({table.uuid}), as CREATE TABLE … LIKE copies it, so their files, "
        "keys and audits cannot be told apart; write the rows of the later one into a new table that is not made LIKE "
        "another, and drop it when the new one is proven"
    )


def mark_of(table: Table) -> str:
    """Return what marks a table as the owner of its UUID: a copy of it was created at another time."""
    return f"{table.uuid} {table.created}"


def _has_bound_files(spark: SparkSession, table: Table, owner: str) -> bool:
    files = HadoopFiles(spark)
    for status in itertools.islice(files.data_files(table.location) if table.location else (), _LOOKED_AT):
        try:
            with files.open(status.path) as stream:
                prefix = inspect_orc(stream).identity if is_orc(stream) else inspect_file(stream).aad_prefix
        except FormatError:
            continue
        if prefix is not None and prefix.startswith(f"{owner}/".encode()):
            return True
    return False

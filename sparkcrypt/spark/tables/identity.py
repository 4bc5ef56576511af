"""Gives each table the UUID that its files are bound to, and detects tables that share one."""

from __future__ import annotations

import itertools
import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sparkcrypt.errors import FormatError, PlanError
from sparkcrypt.files.format import format_of
from sparkcrypt.names import TABLE_MARK, TABLE_UUID
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""A UUID as `uuid` writes it."""
_LOOKED_AT = 20
"""Maximum number of files of a table whose AAD prefixes are read; one that has the UUID is enough."""


def ensure_identity(spark: SparkSession, name: str) -> Table:
    """Give a table a UUID of its own if it has none, so that its files can be bound to it.

    ``CREATE TABLE … LIKE`` copies the UUID.  A table that shares its UUID keeps it if its own files are bound to it, or
    if it is the oldest of these tables and no files are; otherwise it gets a new one.

    Returns:
        The table with its current properties.

    Raises:
        PlanError: files of several tables are bound to the same UUID.
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
    """Return the option that gives a table a new UUID if it has none or must not keep its own, else no option.

    Raises:
        PlanError: files of several tables are bound to the same UUID.
    """
    fresh = {TABLE_UUID: str(uuid.uuid4())}
    if not table.uuid:
        return fresh
    others = find_sharing_tables(spark, table)
    if not others:
        return {}
    bound = [other for other in others if _has_bound_files(spark, other, table.uuid)]
    if _has_bound_files(spark, table, table.uuid):
        if bound:
            raise PlanError(shared_text(table, bound))
        return {}
    oldest = all(0 < table.created < other.created for other in others)
    return {} if oldest and not bound else fresh


def find_sharing_tables(spark: SparkSession, table: Table) -> tuple[Table, ...]:
    """Return the other tables that have a table's UUID; none if a mark shows that the table owns its UUID."""
    if not table.uuid or table.properties.get(TABLE_MARK) == mark_of(table):
        return ()
    return _list_sharing_tables(spark, table)


class Identities:
    """The tables of the catalog by the UUIDs in their entries, which are read once, for a command over many tables.

    Threads may ask concurrently.

    Args:
        spark: a classic session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._mutex = spark, threading.Lock()
        self._names: dict[str, list[str]] | None = None

    def find(self, uuid: str) -> Iterator[Table]:
        """Yield the tables whose catalog entries contain a UUID, as they are now."""
        if re.fullmatch(_UUID, uuid) is None:  # somebody's own text
            yield from Catalog(self._spark).find_tables_with_text(uuid)
            return
        catalog, names = Catalog(self._spark), self._read().get(uuid, ())
        if not all(map(catalog.exists, names)):  # one was dropped, or renamed, since the entries were read
            self._names = None
            names = self._read().get(uuid, ())
        yield from map(catalog.table, names)

    def _read(self) -> Mapping[str, Sequence[str]]:
        with self._mutex:
            if self._names is None:
                names: dict[str, list[str]] = {}
                for name, text in Catalog(self._spark).list_entries():
                    for found in set(re.findall(f"(?=({_UUID}))", text)):  # wherever one begins
                        names.setdefault(found, []).append(name)
                self._names = names
            return self._names


def refuse_shared_identity(spark: SparkSession, table: Table, known: Identities | None = None) -> None:
    """Refuse to work on what is kept under a table's UUID if it is not the table's own.

    Anybody who may change a table's properties can copy both the UUID and the mark of its owner, so of several tables
    with a mark the oldest is the owner.

    Args:
        spark: a classic session.
        table: the table.
        known: what the tables of a command share; by default the metastore is queried for this one.

    Raises:
        PlanError: another table has the UUID, and this table is not its owner.
    """
    others = _list_sharing_tables(spark, table, known) if table.uuid else ()
    marked = [other.created for other in others if other.properties.get(TABLE_MARK) == mark_of(other)]
    owns = table.properties.get(TABLE_MARK) == mark_of(table) and all(table.created < created for created in marked)
    if others and not owns:
        raise PlanError(shared_text(table, others))


def _list_sharing_tables(spark: SparkSession, table: Table, known: Identities | None = None) -> tuple[Table, ...]:
    uuid = table.uuid or ""
    found = Catalog(spark).find_tables_with_text(uuid) if known is None else known.find(uuid)
    return tuple(other for other in found if other.uuid == table.uuid and other.quoted != table.quoted)


def shared_text(table: Table, others: list[Table] | tuple[Table, ...]) -> str:
    """Return the error message for tables that share a UUID."""
    names = ", ".join(other.full_name for other in others)
    return (
        f"{table.full_name} has the UUID of {names} ({table.uuid}), as CREATE TABLE … LIKE copies it, so their files, "
        "keys and audits cannot be told apart; write the rows of the later one into a new table that is not made LIKE "
        "another, and drop it when the new one is proven"
    )


def mark_of(table: Table) -> str:
    """Return the mark of a UUID's owner: UUID and time of creation, which differs in a copy of the table."""
    return f"{table.uuid} {table.created}"


def _has_bound_files(spark: SparkSession, table: Table, owner: str) -> bool:
    files = HadoopFiles(spark)
    for status in itertools.islice(files.data_files(table.location) if table.location else (), _LOOKED_AT):
        try:
            with files.open(status.path) as stream:
                prefix = format_of(stream).read_identity(stream)
        except FormatError:
            continue
        if prefix is not None and prefix.startswith(f"{owner}/".encode()):
            return True
    return False

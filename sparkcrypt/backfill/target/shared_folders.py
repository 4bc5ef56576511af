"""Folders that tables share: rewriting one table would change the other's data, and expiry would delete its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from sparkcrypt.backfill.target.unit import base_location
from sparkcrypt.errors import PlanError
from sparkcrypt.paths import comparable_path
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WITH_PARTITIONS = ("hive", "parquet", "orc", "csv", "json", "text", "avro")
"""Formats whose partitions are in the metastore: if these cannot be listed, it is unknown what is in use."""


def folders_of_tables(spark: SparkSession, database: str) -> dict[str, frozenset[str]]:
    """Return table -> its original folder for the tables of all databases, in ``database`` with those of partitions.

    Listing the partitions of all databases of a large metastore would take a quarter of an hour; `locations_of_tables`
    does that, before anything is deleted.  Folders of partitions below their table's own folder are left out.
    """
    return {
        table.full_name: _folders(table, partitions())
        for table, partitions in _tables(Catalog(spark), lambda table: table.database == database)
    }


def locations_of_tables(spark: SparkSession) -> Iterator[tuple[str, str, bool]]:
    """Yield each table's name with its folder, and with that of each of its partitions, over all databases.

    The third value is whether files in folders below are read too; it is False for a partitioned table's own folder.

    This takes a quarter of an hour for a large metastore; it is called before folders are deleted.

    Raises:
        PlanError: the partitions of a table could not be listed, so it is unknown what is in use.
    """
    for table, partitions in _tables(Catalog(spark), lambda _: True):
        yield table.full_name, table.location, not table.partition_columns
        yield from ((table.full_name, location, True) for location in partitions())


def describe_sharing(table: Table, partitions: Iterable[str], folders: Mapping[str, frozenset[str]]) -> str | None:
    """Return how a table's folders overlap with another table's, as text for messages; None if they do not.

    Args:
        table: the table.
        partitions: the folders of its partitions.
        folders: table -> its folders, for all tables.
    """
    own = _folders(table, partitions)
    for name, others in sorted(folders.items()):
        if name == table.full_name:
            continue
        for own_folder in sorted(own):
            for folder in sorted(others):
                if own_folder == folder:
                    return f"{table.full_name} and {name} share the folder {folder}"
                if _is_inside(own_folder, folder) or _is_inside(folder, own_folder):
                    return f"{table.full_name} ({own_folder}) and {name} ({folder}) lie in one another"
    return None


def _tables(
    catalog: Catalog, needs_partitions: Callable[[Table], bool]
) -> Iterator[tuple[Table, Callable[[], tuple[str, ...]]]]:
    """Yield each table that has a folder, with a function that returns its partitions' folders if it needs them."""
    for database in catalog.databases():
        for table in catalog.all_of(database):
            if table.location and table.kind != "VIEW":
                yield table, partial(_of_partitions, catalog, table) if needs_partitions(table) else tuple


def _of_partitions(catalog: Catalog, table: Table) -> tuple[str, ...]:
    if not table.partition_columns:
        return ()
    try:
        return tuple(partition.location for partition in catalog.partitions(table))
    except PlanError:
        if table.provider in _WITH_PARTITIONS and catalog.exists(table.quoted):
            raise
        return ()  # dropped meanwhile, or of a format that keeps its partitions elsewhere


def _folders(table: Table, partitions: Iterable[str]) -> frozenset[str]:
    """Return a table's folders; partitions that runs have put below ``.sparkcrypt`` count as folders of their own.

    After a RENAME such partitions are still below ``.sparkcrypt`` and the first name, which another table may have now.
    """
    return _find_outermost([_folder(table.location), *(comparable_path(folder) for folder in partitions)])


def _find_outermost(folders: Iterable[str]) -> frozenset[str]:
    kept: list[str] = []
    for folder in sorted(set(folders)):
        if not (kept and _is_inside(folder, kept[-1])):
            kept.append(folder)
    return frozenset(kept)


def _folder(location: str) -> str:
    return comparable_path(base_location(location))


def _is_inside(inner: str, outer: str) -> bool:
    return inner.startswith(outer + "/")

"""Folders that tables share: rewriting one table would change the other's data, and expiry would delete its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from sparkcrypt.errors import PlanError
from sparkcrypt.ledger.unit import base_location
from sparkcrypt.paths import Place, PlaceIndex
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WITH_PARTITIONS = ("hive", "parquet", "orc", "csv", "json", "text", "avro")
"""Formats whose partitions are in the metastore: if these cannot be listed, it is unknown what is in use."""


def folders_of_tables(
    spark: SparkSession, database: str, aliases: Sequence[tuple[Place, Place]] = ()
) -> PlaceIndex[str]:
    """Return the tables at their original folders, for all databases, in ``database`` also at those of partitions.

    Listing the partitions of all databases of a large metastore would take a quarter of an hour; `locations_of_tables`
    does that, before anything is deleted.  Folders of partitions below their table's own folder are left out.
    """
    tables = _tables(Catalog(spark), lambda table: table.database == database)
    return PlaceIndex(
        (place, table.full_name) for table, partitions in tables for place in _folders(table, partitions(), aliases)
    )


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


def describe_sharing(
    table: Table,
    partitions: Iterable[str],
    folders: PlaceIndex[str],
    aliases: Sequence[tuple[Place, Place]] = (),
) -> str | None:
    """Return how a table's folders overlap with another table's, as text for messages; None if they do not.

    Args:
        table: the table.
        partitions: the folders of its partitions.
        folders: the names of all tables, at their folders.
        aliases: those of the policy.
    """
    found = []
    for own in _folders(table, partitions, aliases):
        for place, name in (*folders.find_above(own), *folders.find_below(own)):
            if name != table.full_name:
                found.append((name, own.text(), place.text()))
    for name, own_folder, folder in sorted(found):
        if own_folder == folder:
            return f"{table.full_name} and {name} share the folder {folder}"
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


def _folders(table: Table, partitions: Iterable[str], aliases: Sequence[tuple[Place, Place]]) -> frozenset[Place]:
    """Return a table's folders; partitions that runs have put below ``.sparkcrypt`` count as folders of their own.

    After a RENAME such partitions are still below ``.sparkcrypt`` and the first name, which another table may have now.
    """
    found = {Place.of(folder, aliases).without_links() for folder in (base_location(table.location), *partitions)}
    kept: list[Place] = []
    for place in sorted(found, key=lambda place: (place.scheme or "", place.authority, f"{place.path}/")):
        if not (kept and place.is_within(kept[-1])):
            kept.append(place)
    return frozenset(kept)

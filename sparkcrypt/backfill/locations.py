"""Tables that share a folder with another: rewriting one would change what the other's readers see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sparkcrypt.backfill.units import base_location
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.spark.catalog import Catalog, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def folders_of_tables(spark: SparkSession) -> dict[str, str]:
    """Return table -> its original folder, for every table of every database that has one."""
    catalog = Catalog(spark)
    tables = (catalog.table(name) for database in catalog.databases() for name in catalog.tables(database))
    return {table.full_name: _folder(table.location) for table in tables if table.location and table.kind != "VIEW"}


def shared_with(table: Table, partitions: Iterable[str], folders: Mapping[str, str]) -> str | None:
    """Return why a table's folders are not its own, or None.

    Args:
        table: which table.
        partitions: the folders of its partitions.
        folders: of all tables, by name.
    """
    own = {_folder(table.location), *(_folder(one) for one in partitions)}
    for name, folder in sorted(folders.items()):
        if name == table.full_name:
            continue
        for one in sorted(own):
            if one == folder:
                return f"{table.full_name} and {name} share the folder {folder}"
            if _inside(one, folder) or _inside(folder, one):
                return f"{table.full_name} ({one}) and {name} ({folder}) lie in one another"
    return None


def _folder(location: str) -> str:
    return comparable_path(base_location(location)).rstrip("/")


def _inside(inner: str, outer: str) -> bool:
    return inner.startswith(outer + "/")

"""A metastore, and folders of files, that count what they are asked, for tests of what runs ask about tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from sparkcrypt.runs.table.in_use import InUse, OtherTables
from sparkcrypt.spark.tables.table import Partition, Table


@dataclass
class Metastore:
    """A metastore of one database, and how often it was asked for all of it, and for partitions of each table.

    Attributes:
        tables: by their names.
        partitions_of: the number of partitions of each table that has any.
        seconds: how long it takes to tell all tables.
    """

    tables: dict[str, Table] = field(default_factory=dict)
    partitions_of: dict[str, int] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    now: float = 1000.0
    seconds: float = 0.0

    def add(self, name: str, location: str, partitions: int = 0) -> Table:
        """Make a table."""
        columns = ("p",) if partitions else ()
        table = Table("db", name, "EXTERNAL", "parquet", "", location, "", columns, {}, {}, owner="")
        self.tables[table.quoted], self.partitions_of[table.quoted] = table, partitions
        return table

    def databases(self) -> tuple[str, ...]:
        """Return the database; this begins a look at all tables."""
        self.asked["all tables"] += 1
        self.now += self.seconds
        return ("db",)

    def list_entries(self) -> Iterator[tuple[str, str]]:
        """Yield the names of the tables with the texts of their entries."""
        self.asked["all entries"] += 1
        yield from ((name, f"CatalogTable({table})") for name, table in self.tables.items())

    def find_tables_with_text(self, text: str) -> Iterator[Table]:
        """Yield the tables whose entries have a text."""
        self.asked["entries of one"] += 1
        yield from (table for table in self.tables.values() if text in str(table))

    def all_of(self, _database: str) -> Iterator[Table]:
        """Yield the tables."""
        yield from self.tables.values()

    def default_location(self, _name: str) -> None:
        """Return that it is not known."""

    def exists(self, name: str) -> bool:
        """Return whether there is a table."""
        return name in self.tables

    def table(self, name: str) -> Table:
        """Return a table."""
        return self.tables[name]

    def partitions(self, table: Table) -> tuple[Partition, ...]:
        """Return the partitions of a table."""
        self.asked[table.quoted] += 1
        names = (str(number) for number in range(self.partitions_of[table.quoted]))
        return tuple(Partition((("p", name),), f"{table.location}/p={name}", "") for name in names)


def in_use_of(table: Table, others: OtherTables) -> InUse:
    """Return what tells the folders in use beside a table's."""
    target = SimpleNamespace(table=table, name=table.full_name, base=table.location)
    return InUse(cast("Any", None), cast("Any", target), others)


class Folders:
    """Folders of files that are renamed aside in one step and deleted, as a file system has them."""

    def __init__(self, *folders: str) -> None:
        self.there = set(folders)

    def exists(self, folder: str) -> bool:
        """Return whether a folder is there."""
        return folder in self.there

    def renames_at_once(self, _folder: str) -> bool:
        """Return that it does."""
        return True

    def make_folder(self, folder: str) -> None:
        """Make none: folders are there with their files."""

    def rename(self, source: str, target: str) -> None:
        """Rename a folder."""
        self.there.remove(source)
        self.there.add(target)

    def delete_tree(self, folder: str) -> None:
        """Delete a folder."""
        self.there.remove(folder)

    def delete_empty(self, folder: str) -> None:
        """Delete nothing: no folder is empty."""

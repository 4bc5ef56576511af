"""The folders that are in use now, according to the metastore, and those that tables share.

A state directory may lack the latest records (it was restored, or lost its end), and users move partitions during runs.
Before a folder is deleted, renamed or adopted, the metastore is therefore queried: for the target's own folders each
time, for those of all other tables once per `OtherTables`, which lives as long as a pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sparkcrypt.errors import PlanError, VerificationError
from sparkcrypt.ledger.unit import base_location
from sparkcrypt.paths import Place, PlaceIndex, is_hidden
from sparkcrypt.runs.table.target import Target
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


@dataclass(frozen=True, slots=True)
class User:
    """A table or partition whose location is a folder.

    Attributes:
        name: the name of a unit of the target, or ``db.table``.
        reads_below: whether files in folders below are read too; False for a partitioned table, whose partitions have
            their own locations.
    """

    name: str
    reads_below: bool = True


class Places:
    """A snapshot of the locations of tables and partitions.

    Args:
        users: folders, each with a table or partition that has it as location.
        aliases: those of the policy.
    """

    def __init__(self, users: Iterable[tuple[str, User]], aliases: Sequence[tuple[Place, Place]] = ()) -> None:
        self._aliases = aliases
        self._users = PlaceIndex((self._place(folder), user) for folder, user in users)

    def user_of(self, folder: str, *, but: str | None = None) -> str | None:
        """Return a table or partition that uses a folder, as text for messages; None if there is none.

        It uses the folder if its location is the folder, is inside it, or is above it without a hidden folder between.

        Args:
            folder: the folder.
            but: the name of a unit that does not count.
        """
        uses = ((place, user) for place, user in self._uses(folder) if user.name != but)
        return next((f"{user.name} points to {place.text()}" for place, user in uses), None)

    def has_other_user(self, folder: str, *own: str) -> bool:
        """Return whether another table or partition uses a folder, in the sense of `user_of`.

        Args:
            folder: the folder.
            own: names of units and tables that do not count.
        """
        return any(user.name not in own for _, user in self._uses(folder))

    def is_read(self, folder: str, *but: str) -> bool:
        """Return whether a table or partition reads the files of a folder: it is its location, or below it.

        Args:
            folder: the folder.
            but: names of units and tables that do not count.
        """
        place = self._place(folder)
        return any(user.name not in but for _, user in (*self._users.find_at(place), *self._find_above(place)))

    def uses(self, folder: str) -> bool:
        """Return whether a table or partition has exactly this folder as location."""
        place = self._place(folder)
        return any(True for _ in self._users.find_at(place))

    def _uses(self, folder: str) -> Iterator[tuple[Place, User]]:
        place = self._place(folder)
        yield from self._users.find_at(place)
        yield from self._users.find_below(place)
        yield from self._find_above(place)

    def _find_above(self, place: Place) -> Iterator[tuple[Place, User]]:
        """Yield what reads the files of folders below its own, without a hidden folder between."""
        for outer, user in self._users.find_above(place):
            between = place.path[len(outer.path) :].split("/")[1:]
            if user.reads_below and between and not any(map(is_hidden, between)):
                yield outer, user

    def _place(self, folder: str) -> Place:
        return Place.of(folder, self._aliases).without_links()


class OtherTables:
    """The locations of all tables but one, cached after the first query.

    Args:
        spark: a classic session.
        aliases: those of the policy.
    """

    def __init__(self, spark: SparkSession, aliases: Sequence[tuple[Place, Place]] = ()) -> None:
        self._spark, self.aliases = spark, aliases
        self._known: tuple[tuple[str, User], ...] | None = None

    def users(self, but: str | None, *, afresh: bool = False) -> Iterator[tuple[str, User]]:
        """Yield the location of each table and partition, with its user.

        Args:
            but: a table that is left out: ``db.table``.
            afresh: query the metastore again instead of using the cache.
        """
        known = self._known
        if known is None or afresh:
            found = locations_of_tables(self._spark)
            known = self._known = tuple((place, User(name, reads_below=below)) for name, place, below in found)
        return (use for use in known if use[1].name != but)


@dataclass(slots=True)
class InUse:
    """Queries of the folders that are in use.

    Attributes:
        target: the target, whose own folders are not cached; None if there is none, so that all tables are others.
        others: the folders of all other tables.
    """

    spark: SparkSession
    target: Target | None
    others: OtherTables
    _own: tuple[tuple[str, User], ...] = ()
    _asked: float | None = None

    def look(self, *, afresh: bool = False) -> Places:
        """Return the locations of all tables and partitions.

        Args:
            afresh: query the other tables again too, instead of using the cache.

        Raises:
            PlanError: the table no longer exists, or a table's partitions cannot be listed.
        """
        users = (*self._own_users(0.0), *self.others.users(self._own_table(), afresh=afresh))
        return Places(users, self.others.aliases)

    def is_free(self, folder: str) -> bool:
        """Return whether no other table uses a folder, in the sense of `Places.user_of`."""
        return Places(self.others.users(self._own_table()), self.others.aliases).user_of(folder) is None

    def find_own(self, *, seconds_old: float) -> Places:
        """Return the target's own locations; they may be up to ``seconds_old`` seconds old."""
        return Places(self._own_users(seconds_old), self.others.aliases)

    def units(self, *, seconds_old: float = 0.0) -> Mapping[str, str]:
        """Return unit -> its folder, from a new query; it may be up to ``seconds_old`` seconds old."""
        return {user.name: place for place, user in self._own_users(seconds_old) if user.reads_below}

    def _own_table(self) -> str | None:
        return None if self.target is None or self.target.table is None else self.target.name

    def _own_users(self, seconds_old: float) -> tuple[tuple[str, User], ...]:
        if self._asked is None or time.monotonic() - self._asked > seconds_old:
            now = time.monotonic()
            self._own, self._asked = tuple(_of_target(self.spark, self.target)), now
        return self._own


def refuse_used(places: Places, unit: str, folder: str, what: str) -> None:
    """Refuse to rename or adopt a folder that another table or partition uses.

    Raises:
        VerificationError: the folder is used; the message names it and its user.
    """
    user = places.user_of(folder, but=unit)
    if user is not None:
        raise VerificationError(
            f"{unit}: {folder} {what}, and {user}, so it stays where it is; point that to a copy of its files with "
            "ALTER TABLE … SET LOCATION, then run again"
        )


def _of_target(spark: SparkSession, target: Target | None) -> Iterator[tuple[str, User]]:
    if target is None:
        return
    if target.table is None:
        yield target.base, User(target.name)
        return
    catalog = Catalog(spark)
    table = catalog.table(target.table.quoted)
    yield table.location, User(target.name, reads_below=not table.partition_columns)
    if table.partition_columns:
        for partition in catalog.partitions(table):
            yield partition.location, User(partition.folder)

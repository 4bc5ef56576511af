"""The folders that are in use now, according to the metastore, and those that tables share.

A state directory may lack the latest records (it was restored, or lost its end), and users move partitions during runs.
Before a folder is deleted, renamed or adopted, the metastore is therefore queried: for the target's own folders each
time, for those of all other tables once per `OtherTables`, which lives as long as a command.  Once folders are set
aside, these are queried again too.  A query that began after a folder was set aside tells of every table that was
pointed there before.  Each table of a command would ask about every table, which is a square of the tables, so one
such query serves for the tables that set folders aside within `FRESH_SECONDS` of its end, or within the time that it
took if that is longer: then queries take at most half of a command's time, however many tables it has.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from sparkcrypt.errors import PlanError, VerificationError
from sparkcrypt.ledger.unit import base_location
from sparkcrypt.paths import Place, PlaceIndex, is_hidden
from sparkcrypt.runs.table.target import Target
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.identity import Identities
from sparkcrypt.spark.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FRESH_SECONDS = 60.0
"""How long the folders of other tables count as queried again, in seconds after the end of that query."""
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
        others: the folders of all tables, which are asked after those.
        but: a table of these that does not count: ``db.table``.
    """

    def __init__(
        self,
        users: Iterable[tuple[str, User]],
        aliases: Sequence[tuple[Place, Place]] = (),
        others: PlaceIndex[User] | None = None,
        but: str | None = None,
    ) -> None:
        self._aliases, self._but = aliases, but
        self._indexes = (_index(users, aliases), others or PlaceIndex[User](()))

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
        return any(user.name not in but for _, user in (*self._find_at(place), *self._find_above(place)))

    def uses(self, folder: str) -> bool:
        """Return whether a table or partition has exactly this folder as location."""
        place = self._place(folder)
        return any(True for _ in self._find_at(place))

    def _uses(self, folder: str) -> Iterator[tuple[Place, User]]:
        place = self._place(folder)
        yield from self._find_at(place)
        yield from self._counted(index.find_below(place) for index in self._indexes)
        yield from self._find_above(place)

    def _find_at(self, place: Place) -> Iterator[tuple[Place, User]]:
        return self._counted(index.find_at(place) for index in self._indexes)

    def _find_above(self, place: Place) -> Iterator[tuple[Place, User]]:
        """Yield what reads the files of folders below its own, without a hidden folder between."""
        for outer, user in self._counted(index.find_above(place) for index in self._indexes):
            between = place.path[len(outer.path) :].split("/")[1:]
            if user.reads_below and between and not any(map(is_hidden, between)):
                yield outer, user

    def _counted(self, found: Iterable[Iterator[tuple[Place, User]]]) -> Iterator[tuple[Place, User]]:
        own, others = found
        yield from own
        yield from (use for use in others if use[1].name != self._but)

    def _place(self, folder: str) -> Place:
        return _place(folder, self._aliases)


def _index(users: Iterable[tuple[str, User]], aliases: Sequence[tuple[Place, Place]]) -> PlaceIndex[User]:
    return PlaceIndex((_place(folder, aliases), user) for folder, user in users)


def _place(folder: str, aliases: Sequence[tuple[Place, Place]]) -> Place:
    return Place.of(folder, aliases).without_links()


class OtherTables:
    """The locations and UUIDs of all tables, cached after the first query, and shared by the tables of a command.

    Args:
        spark: a classic session.
        aliases: those of the policy.
    """

    def __init__(self, spark: SparkSession, aliases: Sequence[tuple[Place, Place]] = ()) -> None:
        self._spark, self.aliases, self.identities = spark, aliases, Identities(spark)
        self._known: PlaceIndex[User] | None = None
        self._fresh_until: float | None = None
        self._mutex = threading.Lock()

    def index(self, *, afresh: bool = False) -> PlaceIndex[User]:
        """Return the location of each table and partition, with its user; threads may ask concurrently.

        Args:
            afresh: query the metastore again instead of using the cache, unless it was queried again a moment ago, for
                another table (`FRESH_SECONDS`).
        """
        with self._mutex:
            known, now = self._known, time.monotonic()
            if known is None or (afresh and (self._fresh_until is None or now > self._fresh_until)):
                found = locations_of_tables(self._spark)
                users = ((place, User(name, reads_below=below)) for name, place, below in found)
                known = self._known = _index(users, self.aliases)
                if afresh:
                    end = time.monotonic()
                    self._fresh_until = end + max(FRESH_SECONDS, end - now)
            return known


class _Own:
    """The target's own locations, as one query told them; threads may ask concurrently."""

    def __init__(self, users: Iterable[tuple[str, User]], aliases: Sequence[tuple[Place, Place]]) -> None:
        self._users, self._aliases = tuple(users), aliases
        self._all: tuple[PlaceIndex[User], Places] | None = None

    @cached_property
    def places(self) -> Places:
        """They alone."""
        return Places(self._users, self._aliases)

    @cached_property
    def units(self) -> Mapping[str, str]:
        """Unit -> its folder."""
        return {user.name: place for place, user in self._users if user.reads_below}

    def beside(self, others: PlaceIndex[User], but: str | None) -> Places:
        """Return them with the locations of all other tables."""
        known = self._all
        if known is None or known[0] is not others:
            known = self._all = others, Places(self._users, self._aliases, others, but)
        return known[1]


@dataclass(slots=True)
class InUse:
    """Queries of the folders that are in use; threads may ask concurrently.

    Attributes:
        target: the target, whose own folders are not cached; None if there is none, so that all tables are others.
        others: the folders of all other tables.
    """

    spark: SparkSession
    target: Target | None
    others: OtherTables
    _known: tuple[float, _Own] | None = None

    def look(self, *, afresh: bool = False, seconds_old: float = 0.0) -> Places:
        """Return the locations of all tables and partitions.

        Args:
            afresh: query the other tables again too, as `OtherTables.index` does.
            seconds_old: how old the target's own may be, where many units ask; nothing is deleted on such an answer.

        Raises:
            PlanError: the table no longer exists, or a table's partitions cannot be listed.
        """
        own = self._ask(seconds_old)
        return own.beside(self.others.index(afresh=afresh), self._own_table())

    def is_free(self, folder: str) -> bool:
        """Return whether no other table uses a folder, in the sense of `Places.user_of`."""
        return Places((), self.others.aliases, self.others.index(), self._own_table()).user_of(folder) is None

    def find_own(self, *, seconds_old: float) -> Places:
        """Return the target's own locations; they may be up to ``seconds_old`` seconds old."""
        return self._ask(seconds_old).places

    def place(self, name: str, location: str) -> Places:
        """Return the location of one unit alone, as its caller has it from the metastore."""
        return Places([(location, User(name))], self.others.aliases)

    def units(self, *, seconds_old: float = 0.0) -> Mapping[str, str]:
        """Return unit -> its folder, from a new query; it may be up to ``seconds_old`` seconds old."""
        return self._ask(seconds_old).units

    def _own_table(self) -> str | None:
        return None if self.target is None or self.target.table is None else self.target.name

    def _ask(self, seconds_old: float) -> _Own:
        """Return the target's own locations, from a new query unless they are known and not older than that."""
        known = self._known
        if known is None or time.monotonic() - known[0] >= seconds_old:
            now = time.monotonic()
            known = self._known = now, _Own(_of_target(self.spark, self.target), self.others.aliases)
        return known[1]


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

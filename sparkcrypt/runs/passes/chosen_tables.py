"""Choice of the tables of a pass, by name, pattern or database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from sparkcrypt.errors import PlanError
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WILD = "*?["


@dataclass(frozen=True, slots=True)
class Choice:
    """The tables and databases that the operator named.

    Attributes:
        tables: ``db.table``, or patterns such as ``sales.cust*``.
        databases: databases whose tables are all chosen; views and tables of other formats are skipped.
    """

    tables: tuple[str, ...] = ()
    databases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """A chosen table; ``named`` if its full name was given, so that an unsuitable table is an error."""

    table: Table
    named: bool


def choose_tables(spark: SparkSession, choice: Choice) -> tuple[Chosen, ...]:
    """Return the tables of a choice, each once, in the order of their names.

    Raises:
        PlanError: a table or database does not exist, or a pattern matches no table.
    """
    catalog = Catalog(spark)
    found: dict[str, Chosen] = {}
    for database in choice.databases:
        for table in catalog.all_of(database):
            _add(found, Chosen(table, named=False))
    for pattern in choice.tables:
        if any(sign in pattern for sign in _WILD):
            fitting = list(_find_matching_tables(catalog, pattern, spark.catalog.currentDatabase()))
            if not fitting:
                raise PlanError(f"--table {pattern}: fits no table; SHOW TABLES IN … lists what is there")
            for table in fitting:
                _add(found, Chosen(table, named=False))
        else:
            _add(found, Chosen(catalog.table(pattern), named=True))
    return tuple(found[name] for name in sorted(found))


def _add(found: dict[str, Chosen], chosen: Chosen) -> None:
    name = chosen.table.full_name
    if chosen.named or name not in found:
        found[name] = chosen


def _find_matching_tables(catalog: Catalog, pattern: str, current: str) -> Iterator[Table]:
    database, dot, table = pattern.replace("`", "").lower().rpartition(".")
    for name in catalog.databases() if dot else (current,):
        if not dot or fnmatchcase(name.lower(), database):
            for found in catalog.all_of(name):
                if fnmatchcase(found.name.lower(), table):
                    yield found

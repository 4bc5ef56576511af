"""A table that a person names wrongly, or without its database, is searched among those that there are."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkcrypt.errors import PlanError
from sparkcrypt.spark.tables import catalog as catalog_module
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.table import Table, describe_near_names, find_bare_name

KNOWN = ("crm.customers", "sales.customers", "sales.orders", "hr.staff")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("customers", ["crm.customers", "sales.customers"]),
        ("`Orders`", ["sales.orders"]),
        ("sales.orders", []),
        ("spark_catalog.sales.orders", []),
        ("order", []),
    ],
)
def test_a_name_without_a_database_fits_those_of_any(name: str, found: list[str]) -> None:
    """In any case; one that has a database fits nothing else."""
    assert find_bare_name(name, KNOWN) == found


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("sales.custmers", "did you mean sales.customers or "),
        ("custmers", "did you mean crm.customers or sales.customers? "),
        ("nosuch.staff", "did you mean hr.staff? "),
        ("sales.`Order`", "did you mean sales.orders"),
        ("zzz.qqq", ""),
    ],
)
def test_similar_names_are_asked_for(name: str, asked: str) -> None:
    """The same table of another database first, then what is spelt alike; nothing where nothing is alike."""
    told = describe_near_names(name, KNOWN)
    assert told.startswith(asked) and bool(told) == bool(asked)


class Listed(Catalog):
    """A catalog of a few tables, without a JVM, that counts how often all names are listed."""

    def __init__(self, *known: str) -> None:
        self._known, self._names, self.listed = known, None, 0

    def databases(self) -> tuple[str, ...]:
        """Return the databases."""
        self.listed += 1
        return tuple(sorted({name.partition(".")[0] for name in self._known}))

    def tables(self, database: str) -> tuple[str, ...]:
        """Return a database's tables, quoted."""
        parts = (name.partition(".") for name in self._known)
        return tuple(f"`{base}`.`{table}`" for base, _, table in parts if base == database)

    def table(self, name: str) -> Table:
        """Return something that has the name which was looked up."""
        return cast("Table", SimpleNamespace(name=name))

    def _describe(self) -> str:
        return "here"

    def look_for(self, name: str) -> Any:
        """Look for a name that the metastore has not found."""
        return self._search(name)


def test_the_only_table_of_a_name_is_taken_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    """Once for each name, however often it is looked up."""
    catalog_module._note_database.cache_clear()
    catalog = Listed(*KNOWN)
    with caplog.at_level(logging.WARNING):
        assert catalog.look_for("orders").name == catalog.look_for("orders").name == "`sales`.`orders`"
    assert caplog.messages == ["note: the current database has no table orders, so it is taken for sales.orders"]
    assert catalog.listed == 1


def test_a_name_of_several_databases_is_refused_with_all() -> None:
    """Nobody is to guess which one is meant."""
    with pytest.raises(PlanError, match=r"several databases: crm\.customers, sales\.customers; name the database"):
        Listed(*KNOWN).look_for("customers")


def test_a_wrong_name_is_refused_with_the_similar_ones() -> None:
    """What is not found, where it was looked for, and what may be meant."""
    with pytest.raises(PlanError, match=r"table sales\.ordres: not found .* here; did you mean sales\.orders"):
        Listed(*KNOWN).look_for("sales.ordres")


def test_names_that_cannot_be_listed_are_no_other_error() -> None:
    """The table is not found, whatever else is wrong."""

    class Denied(Listed):
        def tables(self, database: str) -> tuple[str, ...]:
            raise PlanError("may not be listed")

    with pytest.raises(PlanError, match=r"table staff: not found in the session catalog, here; SHOW TABLES"):
        Denied(*KNOWN).look_for("staff")

"""Locates the tables for which a policy has rules."""

from __future__ import annotations

from pyspark.sql import SparkSession

from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.tables.catalog import Catalog


def table_locations(spark: SparkSession, policy: Policy) -> dict[str, dict[str, str | None]]:
    """Return the locations of all tables that the policy lists: location -> table name and UUID.

    They include the location that Spark would give each table, so that a table that is dropped and re-created by
    ``saveAsTable`` stays under its rule.
    """
    catalog = Catalog(spark)
    found: dict[str, dict[str, str | None]] = {}
    for rule in policy.tables:
        if catalog.exists(rule.name):
            table = catalog.table(rule.name)
            found[table.location] = {"table": rule.name, "uuid": table.uuid}
        default = catalog.default_location(rule.name)
        if default is not None:
            found.setdefault(default, {"table": rule.name, "uuid": None})
    return found

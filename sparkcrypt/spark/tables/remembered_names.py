"""Remembers what tables require by their names, in properties of their database, so that tables made anew get it.

A table's own entry is gone with the table, and another application only has the name.  The record has the tags that
people set (``tags set``, ``unset``, ``copy`` and ``apply``), never those that only followed data.  Whoever may change
the database can change the record, as they can change the tags of its tables.  A record adds tags and refuses tables;
none is ever a reason to remove a tag.

    sparkcrypt.name.<table>      {"tags": {"<column path>": ["pii"]}, "require_encryption": true, "uuid": "…"}
    sparkcrypt.name.<table>#1    the rest of a record that is too long for one property of a Hive metastore
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone

from pyspark.sql import SparkSession

from sparkcrypt.errors import PlanError, StorageError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.names import NAME_PREFIX, REQUIRE_ENCRYPTION
from sparkcrypt.schema import Path, fold, property_name, schema_from_spark, split_dotted
from sparkcrypt.spark.jvm.gateway import JVM_ERRORS, java_session, jvm, option, read_java_error, to_dict
from sparkcrypt.spark.jvm.jar import bring_jar
from sparkcrypt.spark.tables.catalog import Catalog, ask_metastore
from sparkcrypt.spark.tables.table import Table, quote_name, quote_text
from sparkcrypt.tags.model import tags_of_properties, tags_of_schema

_LOG = logging.getLogger(__name__)
_MOST_CHARACTERS = 3_900
"""Of one property's value; a Hive metastore takes 4,000."""
_KEPT_DAYS = 90
"""How long a name without a table is remembered, from the first pass that finds none."""
_ATTEMPTS = 4
"""To write a record: a change of the same database at the same moment may undo another."""


@dataclass(frozen=True, slots=True)
class RememberedName(JsonObject):
    """What a table of this name requires.

    Attributes:
        tags: dotted column path -> tags.
        require_encryption: whether its files must be encrypted.
        uuid: the UUID of the table whose tags were set last.
        gone: the day on which a pass first found no table of this name (ISO 8601); None if there is one.
    """

    tags: Mapping[str, tuple[str, ...]]
    require_encryption: bool
    uuid: str | None
    gone: str | None = None


def remembered_names(spark: SparkSession, database: str) -> dict[str, RememberedName]:
    """Return what is remembered of the names of a database: table, in lower case -> what it requires.

    Raises:
        PlanError: there is no such database, or a record is damaged; the message says how to be rid of it.
    """
    properties = _properties(spark, database)
    names = (name.removeprefix(NAME_PREFIX) for name in properties if name.startswith(NAME_PREFIX) and "#" not in name)
    found = {table: _read(properties, f"{database}.{table}", table) for table in names}
    return {table: record for table, record in sorted(found.items()) if record is not None}


def remember_name(spark: SparkSession, table: Table) -> None:
    """Record what a table requires now under its name; a table that requires nothing has no record.

    If the database's properties cannot be changed, a warning is logged: the table itself has its tags.
    """
    required = table.options.get(REQUIRE_ENCRYPTION, "").strip().lower() == "true"
    record = RememberedName(_own_tags(table), required, table.uuid)
    try:
        _write(spark, table.database, table.name.lower(), record if record.tags or required else None)
    except StorageError as error:
        _LOG.warning("%s", error)


def forget_tags(spark: SparkSession, name: str) -> RememberedName | None:
    """Forget what a table's name requires, so that the next table of this name may be without the tags.

    This is recorded in the metastore, and holds at once in this application; another that is running keeps what it has
    seen itself until it ends.

    Returns:
        What was recorded; None if it was nothing.

    Raises:
        PlanError: a table of this name has tags, or there is no such database.
        StorageError: the database's properties cannot be changed.
    """
    catalog = Catalog(spark)
    identifier = catalog.identifier(name)
    database, table = str(option(identifier.database())), str(identifier.table())
    found = catalog.find(name)
    if found is not None and _own_tags(found):
        raise PlanError(
            f"{name} has tags, which say what its name requires; allowed: a table that was dropped, or has no tag; "
            f"remove them: `sparkcrypt tags unset {name} COLUMN…`"
        )
    before, properties = None, _properties(spark, database)
    with contextlib.suppress(PlanError):  # a damaged record is removed too
        before = _read(properties, name, table.lower())
    _write(spark, database, table.lower(), None)
    bring_jar(spark)
    register = jvm(spark).io.sparkcrypt.PolicyRegister(spark.sparkContext._jsc.sc())
    register.forgetName(java_session(spark), database, table)
    return before


def expire_names(spark: SparkSession, database: str, today: date | None = None) -> None:
    """Note which names of a database have no table any more, and forget those that have had none for 90 days.

    Args:
        spark: a classic session.
        database: the database.
        today: the day to count to; None: today in UTC.

    Raises:
        PlanError: there is no such database, or a record is damaged.
        StorageError: the database's properties cannot be changed.
    """
    today, catalog = today or datetime.now(timezone.utc).date(), Catalog(spark)
    for table, record in remembered_names(spark, database).items():
        kept: RememberedName | None = record
        if catalog.exists(f"{quote_name(database)}.{quote_name(table)}"):
            kept = replace(record, gone=None)
        elif record.gone is None:
            kept = replace(record, gone=today.isoformat())
        elif today - date.fromisoformat(record.gone) > timedelta(days=_KEPT_DAYS):
            kept = None
        if kept != record:
            _write(spark, database, table, kept)


def lost_tags_of_name(spark: SparkSession, table: Table) -> dict[str, tuple[str, ...]]:
    """Return the tags that a table's name is remembered with and that its columns lack: dotted column path -> tags.

    Raises:
        PlanError: the name's record is damaged; the message says how to be rid of it.
    """
    record = _read(_properties(spark, table.database), table.full_name, table.name.lower())
    if record is None:
        return {}
    schema = schema_from_spark(table.schema_json)
    nodes = {fold(logical) for _, chain in schema.walk_leaves() for logical, _, _ in chain}
    present = {fold(split_dotted(column)): names for column, names in _own_tags(table).items()}
    lost = {}
    for column, names in record.tags.items():
        path = fold(split_dotted(column))
        while path and path not in nodes:
            path = path[:-1]  # a field that is gone has handed its tags to the nearest one above it
        lost[column] = tuple(name for name in names if path and name not in present.get(path, ()))
    return {column: names for column, names in lost.items() if names}


def _own_tags(table: Table) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    spelled: dict[Path, str] = {}
    for column in (*tags_of_schema(schema_from_spark(table.schema_json)), *tags_of_properties(table.options)):
        path = spelled.setdefault(fold(column.path), property_name(column.path))
        found[path] = tuple(dict.fromkeys((*found.get(path, ()), *column.tags)))
    return dict(sorted(found.items()))


def _properties(spark: SparkSession, database: str) -> dict[str, str]:
    catalog = java_session(spark).sessionState().catalog()
    if not ask_metastore(lambda: catalog.databaseExists(database)):
        raise PlanError(f"database {database}: not found in the session catalog; SHOW DATABASES lists what is there")
    return to_dict(spark, ask_metastore(lambda: catalog.getDatabaseMetadata(database)).properties())


def _keys(table: str, count: int) -> list[str]:
    return [f"{NAME_PREFIX}{table}" if number == 0 else f"{NAME_PREFIX}{table}#{number}" for number in range(count)]


def _text(properties: Mapping[str, str], table: str) -> str:
    return "".join(properties.get(key, "") for key in _keys(table, len(properties)))


def _read(properties: Mapping[str, str], name: str, table: str) -> RememberedName | None:
    text = _text(properties, table)
    if not text:
        return None
    try:
        record = json.loads(text)
        tags = {str(column): tuple(map(str, names)) for column, names in record["tags"].items()}
        day = None if record["gone"] is None else date.fromisoformat(record["gone"]).isoformat()
        return RememberedName(tags, bool(record["require_encryption"]), record["uuid"], day)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise PlanError(
            f"{name}: database property {NAME_PREFIX}{table} is not what sparkcrypt wrote there; set the tags of the "
            f"table again, or remove it: `sparkcrypt tags forget {name}`"
        ) from error


def _write(spark: SparkSession, database: str, table: str, record: RememberedName | None) -> None:
    text = "" if record is None else json.dumps(record.to_dict(), sort_keys=True, separators=(",", ":"))
    parts = [text[start : start + _MOST_CHARACTERS] for start in range(0, len(text), _MOST_CHARACTERS)]
    for _ in range(_ATTEMPTS):
        before = _properties(spark, database)
        if _text(before, table) == text:
            return
        present = [key for key in _keys(table, len(before) + 1) if key in before]
        # SQL cannot remove a property of a database on every Spark, so it is set to empty.
        pairs = {**dict.fromkeys(present, ""), **dict(zip(_keys(table, len(parts)), parts, strict=True))}
        listed = ", ".join(f"{quote_text(key)} = {quote_text(value)}" for key, value in sorted(pairs.items()))
        try:
            spark.sql(f"ALTER DATABASE {quote_name(database)} SET DBPROPERTIES ({listed})")
        except JVM_ERRORS as error:
            raise StorageError(
                f"{database}.{table}: what its name requires could not be recorded in the properties of its database "
                f"({': '.join(read_java_error(error))}), so another application that makes it anew does not know its "
                "tags; get the right to change the database, or name the table in the policy's `tables`"
            ) from error
    raise StorageError(
        f"{database}.{table}: what its name requires could not be recorded in the database's properties, which others "
        "change at the same time; do this again"
    )

"""Tables of the session catalog and their partitions: read, changed, and chosen by a predicate over partition columns.

A query of the metastore is repeated once if the connection breaks.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkcrypt.errors import PlanError, PredicateError, StorageError
from sparkcrypt.names import PARTITIONS_CLASS, PIN, STATISTICS_GUARD_CLASS
from sparkcrypt.paths import is_same_place
from sparkcrypt.spark.jvm.failures import short_text
from sparkcrypt.spark.jvm.gateway import (
    JVM_ERRORS,
    call_static,
    hadoop_conf,
    java_session,
    jvm,
    option,
    read_java_error,
    to_dict,
    to_json,
    to_list,
)
from sparkcrypt.spark.tables.table import (
    HIVE,
    NULL_VALUE,
    Partition,
    Table,
    describe_near_names,
    find_bare_name,
    quote_name,
    quote_text,
)

_LOG = logging.getLogger(__name__)
Answer = TypeVar("Answer")

PAUSE_SECONDS = 1.0
"""Time between a broken connection and the one repetition."""
_BROKEN = (
    *(
        "TTransportException",
        "java.net.SocketException",
        "java.net.ConnectException",
        "java.net.SocketTimeoutException",
    ),
    *("Broken pipe", "Connection reset", "Connection refused"),
)
_NO_SUCH = ("NoSuchTableException", "NoSuchDatabaseException", "NoSuchNamespaceException")
"""The classes of Spark's errors that say that there is no such table; all others say nothing of that."""
_DERBY_IS_HELD = "Another instance of Derby may have already booted the database"


def ask_metastore(question: Callable[[], Answer]) -> Answer:
    """Return the result of a read-only query; use it for no change, which may have been made before a failure.

    Raises:
        Exception: as the query; an error of a broken connection only if the second attempt fails too.
    """
    try:
        return question()
    except JVM_ERRORS as error:
        if not is_broken(error):
            raise
    time.sleep(PAUSE_SECONDS)
    return question()


def is_broken(error: BaseException) -> bool:
    """Tell whether the cause of a JVM error is a metastore connection that broke or could not be opened."""
    return any(sign in text for text in _list_causes(error) for sign in _BROKEN)


def _list_causes(error: BaseException) -> list[str]:
    """Return the texts of a JVM error and of all of its causes."""
    texts = [str(error)]
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        texts.append(str(java.toString()))
        java = java.getCause()
    return texts


_SESSION_CATALOG = re.compile(r"^\s*(?:spark_catalog|`spark_catalog`)\.(?=[^.]+\.)", re.IGNORECASE)
_AT_ONCE = 1000
"""Number of partitions that one call copies out of the JVM."""


def _as_path(uri: str) -> str:
    """Return a URI as the text of a Hadoop path, unescaped, as ``CatalogUtils.URIToString`` does."""
    parts = urlsplit(uri)
    scheme = f"{parts.scheme}:" if parts.scheme else ""
    authority = f"//{parts.netloc}" if parts.netloc else ""
    return f"{scheme}{authority}{unquote(parts.path)}"


_DERBY = "jdbc:derby:;databaseName=metastore_db;create=true"
"""What Spark uses where nothing names a metastore: a database in the present folder, made where it is missing."""


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """A partition, with where it must point before; the folder to which it is pointed; and its new pin, if any."""

    partition: Partition
    location: str
    pin: str = ""


@cache
def _note_database(name: str, full_name: str) -> None:
    """Say once which table was taken for a name without a database."""
    _LOG.warning("note: the current database has no table %s, so it is taken for %s", name, full_name)


class Catalog:
    """The session catalog of a classic session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._catalog = java_session(spark).sessionState().catalog()
        self._names: tuple[str, ...] | None = None

    def identifier(self, name: str) -> Any:
        """Return Spark's identifier of a table: ``table``, ``database.table`` or ``spark_catalog.database.table``."""
        try:
            parser = java_session(self._spark).sessionState().sqlParser()
            parsed = parser.parseTableIdentifier(_SESSION_CATALOG.sub("", name))
        except JVM_ERRORS as error:
            raise PlanError(
                f"{name!r} is not a name of a table in the session catalog; allowed: table, database.table, or "
                "spark_catalog.database.table, with back-quotes where needed"
            ) from error
        if option(parsed.database()) is None:
            maker = jvm(self._spark).org.apache.spark.sql.catalyst.TableIdentifier
            parsed = maker(parsed.table(), jvm(self._spark).scala.Option.apply(self._catalog.getCurrentDatabase()))
        return parsed

    def exists(self, name: str) -> bool:
        """Tell whether a table exists."""
        identifier = self.identifier(name)
        return bool(ask_metastore(lambda: self._catalog.tableExists(identifier)))

    def table(self, name: str) -> Table:
        """Return a table.

        A name without a database that the current one lacks is searched in the others, and taken where one alone has
        it, with a note.  The names of all tables are listed for that, once, and only where the table is not found.

        Raises:
            PlanError: there is no table of that name; the message has similar names.
            StorageError: the metastore cannot be reached, or does not answer.
        """
        return self.find(name) or self._search(name)

    def find(self, name: str) -> Table | None:
        """Return a table, or None if there is none; a name without a database is one of the current database.

        Raises:
            PlanError: it is no name of a table.
            StorageError: as for `table`.
        """
        identifier = self._catalog.qualifyIdentifier(self.identifier(name))
        database, table = option(identifier.database()), identifier.table()
        try:
            found = ask_metastore(lambda: self._catalog.externalCatalog().getTable(database, table))
        except JVM_ERRORS as error:
            if read_java_error(error)[0].rpartition(".")[2] in _NO_SUCH:
                return None
            why = ": ".join(read_java_error(error))
            if any(_DERBY_IS_HELD in text for text in _list_causes(error)):
                why = "another process has its Derby database open; end that one, or use a metastore service"
            raise StorageError(f"table {name}: the metastore cannot be asked: {why}") from error
        return self._read_entry(found)

    def _read_entry(self, found: Any) -> Table:
        """Return the table of a CatalogTable as the external catalog has it."""
        storage = found.storage()
        types = jvm(self._spark).org.apache.spark.sql.catalyst.util.CharVarcharUtils
        schema = types.replaceCharVarcharWithStringInSchema(found.schema())
        options = to_dict(self._spark, storage.properties())
        properties = to_dict(self._spark, found.properties())
        provider = (option(found.provider()) or HIVE).lower()
        location = option(storage.locationUri())
        return Table(
            database=str(option(found.identifier().database())),
            name=str(found.identifier().table()),
            kind=str(found.tableType().name()),
            provider=provider,
            serde=str(option(storage.serde()) or ""),
            location=self._text_of(location) if location is not None else "",
            schema_json=str(schema.json()),
            partition_columns=tuple(str(entry) for entry in to_list(self._spark, found.partitionColumnNames())),
            options=properties if provider == HIVE else options,
            properties=properties,
            owner=str(found.owner()),
            bucket_columns=self._bucket_columns(option(found.bucketSpec())),
            created=int(found.createTime()),
            unused=options if provider == HIVE else properties,
        )

    def _search(self, name: str) -> Table:
        """Return the one table of another database that a name without a database means.

        Raises:
            PlanError: there is none, or several.
        """
        if self._names is None:
            try:
                self._names = tuple(full.replace("`", "") for base in self.databases() for full in self.tables(base))
            except (PlanError, *JVM_ERRORS):  # a database that was just dropped, or may not be listed
                self._names = ()
        found = find_bare_name(name, self._names)
        if len(found) == 1:
            _note_database(name, found[0])
            return self.table(".".join(map(quote_name, found[0].split(".", 1))))
        here = f"table {name}: not found in the session catalog, {self._describe()}; "
        if found:
            raise PlanError(
                f"{here}it is in several databases: {', '.join(found)}; name the database too, as in {found[0]}"
            )
        near = describe_near_names(name, self._names)
        raise PlanError(f"{here}{near}SHOW TABLES lists what is there")

    def _describe(self) -> str:
        """Return where the session catalog is, since a session without one of its own silently makes an empty one."""
        if str(self._spark.conf.get("spark.sql.catalogImplementation", "in-memory")) != "hive":
            return "which is in memory and ends with this session: start Spark with Hive's support"
        conf = hadoop_conf(self._spark)
        uris, database = conf.get("hive.metastore.uris"), str(conf.get("javax.jdo.option.ConnectionURL") or _DERBY)
        if uris:
            return f"the metastore at {uris}"
        if not database.startswith("jdbc:derby:"):
            return "in the database of javax.jdo.option.ConnectionURL"
        here = jvm(self._spark).java.lang.System.getProperty("user.dir")
        return (
            f"an embedded Derby ({database}) of a Spark that was started in {here} and may have made it new: name "
            "yours by spark.hadoop.hive.metastore.uris or a hive-site.xml in SPARK_CONF_DIR, or start where it was made"
        )

    def _bucket_columns(self, buckets: Any) -> tuple[str, ...]:
        return () if buckets is None else tuple(map(str, to_list(self._spark, buckets.bucketColumnNames())))

    def _text_of(self, uri: Any) -> str:
        """Return a location as the text of a Hadoop path, in which only names of partition folders are escaped."""
        return str(jvm(self._spark).org.apache.spark.sql.catalyst.catalog.CatalogUtils.URIToString(uri))

    def databases(self) -> tuple[str, ...]:
        """Return the names of all databases."""
        return tuple(sorted(str(entry) for entry in to_list(self._spark, ask_metastore(self._catalog.listDatabases))))

    def tables(self, database: str) -> tuple[str, ...]:
        """Return the quoted full names of a database's tables and views, without temporary views.

        Raises:
            PlanError: there is no such database.
        """
        return tuple(f"{quote_name(database)}.{quote_name(name)}" for name in self._list_names(database))

    def _list_names(self, database: str) -> list[str]:
        if not ask_metastore(lambda: self._catalog.databaseExists(database)):
            known = ", ".join(self.databases())
            raise PlanError(
                f"database {database}: not found in the session catalog, {self._describe()}; allowed: {known}"
            )
        listed = to_list(self._spark, ask_metastore(lambda: self._catalog.listTables(database)))
        return sorted(str(entry.table()) for entry in listed if option(entry.database()) is not None)

    def all_of(self, database: str) -> Iterator[Table]:
        """Yield the tables and views of a database; one that is dropped meanwhile is skipped.

        Raises:
            PlanError: there is no such database.
        """
        names = self._list_names(database)
        for start in range(0, len(names), _AT_ONCE):
            yield from self._read_several(database, names[start : start + _AT_ONCE])

    def _read_several(self, database: str, names: Sequence[str]) -> Iterator[Table]:
        """Yield tables by one query, or each by its own where one of them cannot be read."""
        external = self._catalog.externalCatalog()
        try:
            entries = ask_metastore(lambda: external.getTablesByName(database, self._as_scala(list(names))))
        except JVM_ERRORS:
            quoted = (f"{quote_name(database)}.{quote_name(name)}" for name in names)
            yield from (table for table in map(self.find, quoted) if table is not None)
        else:
            tables = map(self._read_entry, to_list(self._spark, entries))
            yield from sorted(tables, key=lambda table: table.name)

    def partitions(self, table: Table, having: Mapping[str, str] | None = None) -> tuple[Partition, ...]:
        """Return a table's partitions in the metastore.

        Args:
            table: a partitioned table.
            having: partition column -> value; the metastore returns only partitions that have these values.

        Raises:
            PlanError: the table no longer exists or is not partitioned, or a partition has no location.
        """
        with _listing(table):
            listed = ask_metastore(partial(self._list, table, having))
        found = []
        for start in range(0, int(listed.size()), _AT_ONCE):
            found.extend(self._read_partitions(table, listed.slice(start, start + _AT_ONCE)))
        return tuple(sorted(found, key=lambda item: item.values))

    def _read_partitions(self, table: Table, listed: Any) -> list[Partition]:
        """Return the partitions that a Scala sequence has, in its order."""
        found = []
        for entry in to_json(self._spark, listed):
            spec = {name.lower(): str(value) for name, value in entry["spec"].items()}
            values = tuple((name, spec[name.lower()]) for name in table.partition_columns)
            storage = entry["storage"]
            if not storage["locationUri"]:
                raise PlanError(
                    f"table {table.quoted}: the metastore knows no location of partition {values}; set it to "
                    "where its files are with ALTER TABLE … SET LOCATION"
                )
            # Spark reads a data source table by its provider, and if Hive lacks a type, stores any SerDe
            serde = str(storage["serde"] or "") if table.is_hive else ""
            pin = str((entry.get("parameters") or {}).get(PIN, ""))
            found.append(Partition(values, _as_path(storage["locationUri"]), serde, pin))
        return found

    def find_partitions(self, table: Table, wanted: Sequence[Partition]) -> dict[str, Partition]:
        """Return folder name -> partition as the metastore has it now, of some partitions; one that was dropped lacks.

        Args:
            table: a partitioned table.
            wanted: partitions, of which the values count.

        Raises:
            PlanError: the table no longer exists, or a partition has no location.
        """
        return {partition.folder: partition for partition in self._fetch(table, wanted)[1]}

    def _fetch(self, table: Table, wanted: Sequence[Partition]) -> tuple[Any, list[Partition]]:
        """Return a Java list of Spark's CatalogTablePartition, and the same as values, of those that there are."""
        machine, missing = jvm(self._spark), {partition.folder: partition for partition in wanted}
        names = [
            replace(partition, values=tuple((name.lower(), value) for name, value in partition.values)).folder
            for partition in wanted
        ]
        question = json.dumps({"database": table.database, "table": table.name, "names": names})
        external = self._catalog.externalCatalog()
        found = machine.java.util.ArrayList()
        with _listing(table):
            several = ask_metastore(lambda: call_static(self._spark, PARTITIONS_CLASS, "find", external, question))
            if several is not None:
                found.addAll(several)
            read = self._read_partitions(table, self._as_scala(found))
            for partition in read:
                missing.pop(partition.folder, None)
            for partition in missing.values():  # dropped, or the metastore cannot be asked for it by name
                one = ask_metastore(partial(self._list, table, dict(partition.values)))
                found.addAll(machine.scala.collection.JavaConverters.seqAsJavaList(one))
                read.extend(self._read_partitions(table, one))
        return found, read

    def _as_scala(self, collection: Any) -> Any:
        return jvm(self._spark).org.apache.spark.api.python.PythonUtils.toSeq(collection)

    def _list(self, table: Table, having: Mapping[str, str] | None) -> Any:
        """Return a Scala sequence of the partitions that have some values."""
        machine = jvm(self._spark)
        wanted = machine.scala.Option.empty()
        if having is not None:
            values = machine.java.util.HashMap()
            for name, value in having.items():
                values.put(name, value)
            wanted = machine.scala.Option.apply(machine.org.apache.spark.api.python.PythonUtils.toScalaMap(values))
        return self._catalog.externalCatalog().listPartitions(table.database, table.name, wanted)

    def set_options(self, table: Table, options: Mapping[str, str]) -> None:
        """Set the properties that reach the table's writers: TBLPROPERTIES of a Hive table, else SERDEPROPERTIES."""
        self._set(table, "TBLPROPERTIES" if table.is_hive else "SERDEPROPERTIES", options)

    def set_properties(self, table: Table, properties: Mapping[str, str]) -> None:
        """Set TBLPROPERTIES, which do not reach writers of data source tables."""
        self._set(table, "TBLPROPERTIES", properties)

    def _set(self, table: Table, words: str, values: Mapping[str, str]) -> None:
        if values:
            pairs = ", ".join(f"{quote_text(name)} = {quote_text(value)}" for name, value in sorted(values.items()))
            self._alter(table, f" SET {words} ({pairs})")

    def _alter(self, table: Table, change: str) -> None:
        self._spark.sql(f"ALTER TABLE {table.quoted}{change}")
        self._spark.catalog.refreshTable(table.quoted)

    def find_tables_with_text(self, text: str) -> Iterator[Table]:
        """Yield the tables whose catalog entries contain a text; a database without any costs one query."""
        external = self._catalog.externalCatalog()
        for database in self.databases():
            listed = external.getTablesByName(database, external.listTables(database))
            if text in str(listed):
                for entry in to_list(self._spark, listed):
                    if text in str(entry):
                        yield self._read_entry(entry)

    def list_entries(self) -> Iterator[tuple[str, str]]:
        """Yield the quoted full name of each table, with the text of its catalog entry."""
        external = self._catalog.externalCatalog()
        for database in self.databases():
            for entry in to_list(self._spark, external.getTablesByName(database, external.listTables(database))):
                yield f"{quote_name(database)}.{quote_name(str(entry.identifier().table()))}", str(entry)

    def unset_options(self, table: Table, names: tuple[str, ...]) -> None:
        """Remove properties; a data source table's options cannot be removed in SQL, so they are set to empty."""
        present = [name for name in names if table.options.get(name)]
        if not present:
            return
        if table.is_hive:
            listed = ", ".join(quote_text(name) for name in present)
            self._alter(table, f" UNSET TBLPROPERTIES IF EXISTS ({listed})")
        else:
            self.set_options(table, dict.fromkeys(present, ""))

    def set_schema_metadata(self, table: Table, schema_json: str) -> None:
        """Replace the Spark schema that the metastore stores for a table's data columns."""
        schema = jvm(self._spark).org.apache.spark.sql.types.DataType.fromJson(schema_json)
        self._catalog.alterTableDataSchema(self.identifier(table.quoted), schema)
        self._spark.catalog.refreshTable(table.quoted)

    def set_location(self, table: Table, location: str) -> None:
        """Point a table to another folder in one atomic change of the metastore."""
        self._alter(table, f" SET LOCATION {quote_text(location)}")

    def move_partitions(self, table: Table, moves: Sequence[PartitionMove]) -> dict[str, str | None]:
        """Point partitions to other folders in one change of the metastore, right after they were read again.

        The metastore does not compare: a partition that no longer points where it is to be moved from is left out.

        Returns:
            Folder name -> where it points now, None if it was dropped, of the partitions that were left out.

        Raises:
            Exception: the metastore failed; nothing, all, or (with catalogs other than Hive's) a part may be changed.
        """
        found, now = self._fetch(table, [move.partition for move in moves])
        todo = {move.partition.folder: move for move in moves}
        left: dict[str, str | None] = {name: None for name in todo}
        changes: list[dict[str, Any] | None] = []
        for partition in now:
            move = todo.get(partition.folder)
            if move is None:  # none that was asked for
                changes.append(None)
            elif is_same_place(partition.location, move.partition.location):
                del left[partition.folder]
                pin = {PIN: move.pin} if move.pin else {}
                changes.append({"values": dict(partition.values), "location": move.location, "parameters": pin})
            else:
                left[partition.folder] = partition.location
                changes.append(None)
        if any(changes):
            moved = call_static(self._spark, PARTITIONS_CLASS, "move", found, json.dumps(changes))
            self._catalog.alterPartitions(self.identifier(table.quoted), moved)
            self._spark.catalog.refreshTable(table.quoted)
        return left

    def statistics(self, table: Table) -> Any:
        """Return Spark's CatalogStatistics of a table, or None."""
        return option(ask_metastore(lambda: self._catalog.getTableMetadata(self.identifier(table.quoted))).stats())

    def restore_statistics(self, table: Table, statistics: Any, without: frozenset[str]) -> None:
        """Restore a table's statistics, without the column statistics of some columns."""
        machine = jvm(self._spark)
        names = machine.java.util.ArrayList()
        for name in without:
            names.add(name)
        kept = call_static(self._spark, STATISTICS_GUARD_CLASS, "without", statistics, names)
        self._catalog.alterTableStats(self.identifier(table.quoted), machine.scala.Option.apply(kept))

    def default_location(self, name: str) -> str | None:
        """Return the location that Spark would give a managed table of that name, or None if it is unknown."""
        identifier = self.identifier(name)
        try:
            return self._text_of(self._catalog.defaultTablePath(identifier))
        except JVM_ERRORS:  # the database does not exist yet
            database = option(identifier.database())
            if database is None:
                return None
        warehouse = str(self._spark.conf.get("spark.sql.warehouse.dir")).rstrip("/")
        return f"{warehouse}/{str(database).lower()}.db/{str(identifier.table()).lower()}"


@contextmanager
def _listing(table: Table) -> Iterator[None]:
    try:
        yield
    except JVM_ERRORS as error:
        raise PlanError(
            f"the partitions of table {table.quoted} cannot be listed: {': '.join(read_java_error(error))}; see "
            "that it is still there and partitioned"
        ) from error


def sample_texts(
    spark: SparkSession, table: Table, columns: Sequence[tuple[str, ...]], rows: int
) -> dict[tuple[str, ...], list[str]]:
    """Return column -> its values in some rows of a table, without nulls; the rows are those that come first.

    Args:
        spark: a session that may read the columns.
        table: the table.
        columns: paths of columns of texts, with structs above them alone.
        rows: the largest number of rows.

    Raises:
        PlanError: the rows cannot be read.
    """
    if not columns:
        return {}
    chosen = [F.col(".".join(map(quote_name, path))).cast("string").alias(f"c{n}") for n, path in enumerate(columns)]
    try:
        found = spark.table(table.quoted).select(*chosen).limit(rows).collect()
    except Exception as error:  # Spark's errors have no base that every version shares
        raise PlanError(f"rows of {table.full_name} cannot be read: {short_text(error)}") from error
    return {path: [row[n] for row in found if row[n] is not None] for n, path in enumerate(columns)}


_PLACE = "#"
_CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
_CHAR = re.compile(r"char\((\d+)\)")


def data_schema(table: Table) -> T.StructType:
    """Return the schema of the columns that are in a table's files, with their metadata."""
    partition = {name.lower() for name in table.partition_columns}
    return T.StructType([field for field in _schema(table).fields if field.name.lower() not in partition])


def choose_partitions(spark: SparkSession, table: Table, where: str | None) -> tuple[Partition, ...]:
    """Return the partitions for which a predicate is true, or all partitions without one.

    Args:
        spark: a classic session.
        table: a partitioned table.
        where: SQL over partition columns, such as ``day >= '2026-01-01'``.

    Raises:
        PredicateError: the predicate is not SQL, or names other columns.
    """
    partitions = Catalog(spark).partitions(table)
    if not where or not partitions:
        return partitions
    fields = {field.name.lower(): field for field in _schema(table).fields}
    texts = T.StructType([T.StructField(name, T.StringType()) for name in (_PLACE, *table.partition_columns)])
    rows = [
        (str(place), *(None if value == NULL_VALUE else value for _, value in partition.values))
        for place, partition in enumerate(partitions)
    ]
    try:
        frame = spark.createDataFrame(rows, texts)
        frame = frame.select(_PLACE, *(_cast_column(name, fields[name.lower()]) for name in table.partition_columns))
        with _without_log():
            kept = {int(row[_PLACE]) for row in frame.where(where).collect()}
    except JVM_ERRORS as error:
        types = {name: fields[name.lower()].dataType.simpleString() for name in table.partition_columns}
        columns = ", ".join(f"{name} ({kind})" for name, kind in types.items())
        name, value = partitions[-1].values[0]
        raise PredicateError(
            f"--where {where!r}: {_reason(error, [*fields])}; allowed: a condition in SQL on the partition columns of "
            f"{table.full_name}: {columns}; such as --where \"{name} = '{value}'\""
        ) from error
    return tuple(partition for place, partition in enumerate(partitions) if place in kept)


def _reason(error: BaseException, columns: list[str]) -> str:
    """Return Spark's reason against a predicate, without its error class and its names of internal columns."""
    text = " ".join(next((line for line in str(error).splitlines() if line.strip()), "it is no condition").split())
    unknown = re.search(r"with name (`[^ ]+`) cannot be resolved", text)
    if unknown is None:
        return re.sub(r"^\[[A-Z_.]+\] ?", "", text).partition(" SQLSTATE")[0].rstrip(".;")
    in_files = unknown[1].strip("`").lower() in columns
    return f"{unknown[1]} is {'in the files, and no partition column' if in_files else 'no column of the table'}"


@contextmanager
def _without_log() -> Iterator[None]:
    """Keep pyspark, in 4.0 and later, from logging an error with its whole stack of Java before it raises it."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        yield
        return
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def _cast_column(name: str, field: T.StructField) -> Column:
    """Return a column of texts with a field's type; values of CHAR(n) are padded, as Spark does when it reads them."""
    column = F.col(quote_name(name))
    char = _CHAR.fullmatch(str(field.metadata.get(_CHAR_TYPE)))
    if char is None:
        return column.cast(field.dataType).alias(name)
    return F.rpad(column, int(char[1]), " ").alias(name, metadata={_CHAR_TYPE: char[0]})  # so it pads literals too


def _schema(table: Table) -> T.StructType:
    return T.StructType.fromJson(json.loads(table.schema_json))

"""The target of a run: a table, or a bare folder, with its plan and its units; other tables are refused."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparkcrypt import names
from sparkcrypt.errors import PlanError, PredicateError, SourceChangedError
from sparkcrypt.files.format import FORMATS, format_of
from sparkcrypt.files.listing import refuse_marks_above, refuse_marks_at
from sparkcrypt.ledger.audit.pins import PinPlace
from sparkcrypt.ledger.unit import Folder, Unit, base_location, list_folders, refuse_overlaps
from sparkcrypt.names import FileFormat
from sparkcrypt.paths import comparable_path, partition_values, trailing_partition
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import Schema
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.tables.catalog import Catalog, choose_partitions, data_schema
from sparkcrypt.spark.tables.identity import ensure_identity
from sparkcrypt.spark.tables.planning import plan_of, plan_path
from sparkcrypt.spark.tables.table import Partition, Table
from sparkcrypt.spark.tables.table_rules import put_rule, rule_change
from sparkcrypt.tags.model import TaggedColumn, tag_property, tags_of_avro

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

LEFT_ALONE = (
    "holds ORC files, which runs leave alone unless the policy says `formats: [parquet, orc]`; say so to have its "
    "tagged columns encrypted, once its readers have what opens encrypted ORC: others see nulls there"
)


def find_other_kind(table: Table) -> str | None:
    """Return why no file of a table can be encrypted, whatever the policy says; None if it can."""
    if table.kind == "VIEW":
        return f"{table.full_name} is a view and has no files; name the tables that it reads"
    if table.format is None:
        return (
            f"{table.full_name} is a {table.provider} table, neither Parquet nor ORC; convert it first "
            "(CREATE TABLE … USING parquet AS SELECT …)"
        )
    if table.properties.get("transactional", "").lower() == "true":
        return (
            f"{table.full_name} is a Hive ACID table, whose files belong to Hive's transactions; it cannot be swapped"
        )
    return None


def refuse_kinds(table: Table, policy: Policy) -> None:
    """Refuse a view, a table in a format that the policy does not encrypt, and a Hive ACID table.

    Raises:
        PlanError: the table is refused; the message contains the reason.
    """
    if table.kind != "VIEW" and table.format is not None and table.format not in policy.formats:
        raise PlanError(f"{table.full_name} {LEFT_ALONE}")
    reason = find_other_kind(table)
    if reason is not None:
        raise PlanError(reason)


class Target(ABC):
    """A table or a bare folder on which a run works.

    Attributes:
        spark: a classic session.
        name: the table's name or the folder, for reports.
        plan: the plan of every file.
        format: the format of every file.
        table: the table in the metastore; None for a bare folder.
        uuid: the table's UUID in AAD prefixes, or None.
        table_id: the id in the state directory, which does not change if the table is renamed; for a table without a
            UUID a digest of its name, for a bare folder one of its path.
        base: the original folder, beside which the staging folder is.
    """

    table: Table | None = None
    uuid: str | None = None
    table_id: str
    base: str

    def __init__(self, spark: SparkSession, name: str, plan: EncryptionPlan, file_format: FileFormat) -> None:
        self.spark, self.name, self.plan, self.format = spark, name, plan, file_format

    @property
    @abstractmethod
    def schema(self) -> StructType:
        """The columns in files, as a Spark schema with its metadata."""

    @abstractmethod
    def units(self, where: str | None) -> tuple[Unit, ...]:
        """Return the units without their files, which are listed later, one unit at a time.

        Raises:
            PredicateError: ``where`` refers to something other than partition columns.
            PlanError: units overlap.
        """

    @abstractmethod
    def options(self) -> dict[str, str]:
        """Return the writer and reader options for files of this target."""

    def locations(self) -> tuple[str, ...]:
        """Return its current folders according to the metastore."""
        return (self.base,)

    def refuse_other_table(self) -> None:  # noqa: B027 - a bare folder is no table
        """Refuse a table that was dropped and re-created under its name since it was looked up.

        Raises:
            SourceChangedError: the table was re-created: staged files have another table's identity, keys and rows.
        """

    def with_identity(self, policy: Policy) -> Target:
        """Give the table an identity for AAD prefixes, and its rule in its properties, and return it.

        A bare folder is returned unchanged, since nothing can be stored with it.

        Raises:
            PlanError: another table's files are bound to the same UUID.
        """
        return self


class CatalogTarget(Target):
    """A table of the session catalog; ``avro_tags`` are the tags of its Avro schema."""

    table: Table

    def __init__(
        self, spark: SparkSession, table: Table, plan: EncryptionPlan, avro_tags: tuple[TaggedColumn, ...] = ()
    ) -> None:
        super().__init__(spark, table.full_name, plan, table.format or "parquet")
        self.table, self.uuid, self.table_id, self.base = table, table.uuid, id_of(table), base_location(table.location)
        self._avro_tags = avro_tags

    @property
    def schema(self) -> StructType:
        """The table's data columns."""
        return data_schema(self.table)

    def refuse_other_table(self) -> None:
        """Refuse the table if the one that now has its name has another UUID."""
        now = Catalog(self.spark).table(self.table.quoted).uuid
        if now != self.uuid:
            raise SourceChangedError(
                f"table {self.name} was dropped, and made anew under its name, since the run began: its identity was "
                f"{self.uuid} and is {now or 'none'}; nothing of it was changed; run again"
            )

    def units(self, where: str | None) -> tuple[Unit, ...]:
        """Return the table's partitions, or the table itself."""
        files = HadoopFiles(self.spark)
        refuse_marks_above(self.base, files.exists, files.names)
        if self.table.partition_columns:
            refuse_marks_at(self.base, files.exists, files.names)  # units are partitions; a format's list is above
        elif where:
            raise PredicateError(f"--where {where!r}: {self.name} has no partitions to choose among; leave it out")
        units = units_of(self.spark, self.table, where)
        refuse_overlaps(units)
        return units

    def locations(self) -> tuple[str, ...]:
        """Return the table's folder and those of its partitions."""
        catalog = Catalog(self.spark)
        now = catalog.table(self.table.quoted)
        partitions = catalog.partitions(now) if now.partition_columns else ()
        return (now.location, *(partition.location for partition in partitions))

    def with_identity(self, policy: Policy) -> CatalogTarget:
        """Add a UUID and its rule to the table's properties where they are missing, and return the table."""
        put_rule(self.spark, rule_change(self.spark, self.table, self.plan.rule, policy), policy)
        return CatalogTarget(self.spark, ensure_identity(self.spark, self.name), self.plan, self._avro_tags)

    def options(self) -> dict[str, str]:
        """Return the table's own options, its name, and the tags of the Avro schema."""
        own = {name: value for name, value in self.table.options.items() if name.startswith("parquet.")}
        avro = {tag_property(column.path): ",".join(column.tags) for column in self._avro_tags}
        return {**avro, **own, names.TABLE: self.name}


class PathTarget(Target):
    """A bare folder of files of one format."""

    def __init__(
        self, spark: SparkSession, path: str, plan: EncryptionPlan, schema: StructType, file_format: FileFormat
    ) -> None:
        super().__init__(spark, path, plan, file_format)
        self.table_id, self.base, self._schema = target_folder_id(path), path.rstrip("/"), schema

    @property
    def schema(self) -> StructType:
        """The columns of the folder's first file."""
        return self._schema

    def units(self, where: str | None) -> tuple[Unit, ...]:
        """Return the folder as one unit."""
        if where:
            raise PredicateError(f"--where {where!r}: a bare folder is swapped as a whole, so leave it out")
        return (Unit(self.name, self.name, None, "", {}),)

    def options(self) -> dict[str, str]:
        """Return the tags as options, since they cannot be stored with a bare folder."""
        tags = {tag_property(column.path): ",".join(column.tags) for column in self.plan.columns if column.tags}
        return tags if self.plan.table is None else {**tags, names.TABLE: self.plan.table}


def id_of(table: Table) -> str:
    """Return a table's id in the state directory: its UUID, or a digest of its name before it has one."""
    return table.uuid or id_of_name(table.full_name)


def id_of_name(name: str) -> str:
    """Return the id in the state directory of a table without a UUID, by its name."""
    return _digest(name)


def units_of(spark: SparkSession, table: Table, where: str | None = None) -> tuple[Unit, ...]:
    """Return a table's partitions that a predicate chooses, or the table itself, without their files.

    Raises:
        PredicateError: ``where`` refers to something other than partition columns.
        PlanError: the partitions cannot be listed.
    """
    if not table.partition_columns:
        return (Unit(table.full_name, table.location, None, "", {}),)
    return tuple(map(_unit_of, choose_partitions(spark, table, where)))


def _unit_of(partition: Partition) -> Unit:
    return Unit(partition.folder, partition.location, partition, partition.folder, dict(partition.values))


def locations_of(spark: SparkSession, target: Target, output: str | None) -> tuple[str, ...]:
    """Return the current folders of a target, and the folder of a run's copy.

    Args:
        spark: a classic session.
        target: a table or a folder.
        output: the folder to which a bare folder is copied; None if the run swaps.
    """
    copies = () if output is None else (HadoopFiles(spark).qualify(output.rstrip("/")),)
    return (*target.locations(), *copies)


def pin_places_of(spark: SparkSession, target: Target, unit: Unit | None = None) -> tuple[PinPlace, ...]:
    """Return the places of a table in the metastore that may have a pin; a bare folder has none.

    Args:
        spark: a classic session.
        target: a table or a folder.
        unit: the unit of which the place is asked for; none is returned if it was dropped.  All by default.
    """
    if target.table is None:
        return ()
    catalog = Catalog(spark)
    table, one = catalog.table(target.table.quoted), None if unit is None else unit.partition
    if one is None:
        return places_of_units(table, units_of(spark, table))
    return places_of_units(table, map(_unit_of, catalog.find_partitions(table, [one]).values()))


def places_of_units(table: Table, units: Iterable[Unit]) -> tuple[PinPlace, ...]:
    """Return the places of units that may have a pin, as the metastore had them when it was asked for the units."""
    return tuple(PinPlace.of(unit, table.properties.get(names.PIN, "")) for unit in units)


def target_folder_id(path: str) -> str:
    """Return the id of a bare folder in the state directory: a digest of its path, as Hadoop prints it."""
    return _digest(path)


def catalog_target(spark: SparkSession, table: Table, policy: Policy, avro: Schema | None) -> CatalogTarget:
    """Return a table as a target.

    Raises:
        PlanError: it is not a table whose files can be encrypted and swapped; the message contains the reason.
    """
    refuse_kinds(table, policy)
    avro_tags = tags_of_avro(avro) if avro is not None else ()
    plan = plan_of(spark, table, policy, avro=avro)
    FORMATS[table.format or "parquet"].refuse_plan(plan)
    return CatalogTarget(spark, table, plan, avro_tags)


def path_target(spark: SparkSession, path: str, policy: Policy, avro: Schema | None) -> PathTarget:
    """Return a bare folder as a target, with the schema of its first file, and tags of that and of the Avro schema.

    Raises:
        PlanError: there is no such folder, or it has no files in a format that the policy encrypts, or another table
            format keeps a list of its files in it or above it.
    """
    files = HadoopFiles(spark)
    path = files.qualify(path.rstrip("/"))
    if not files.exists(path):
        raise PlanError(f"{path}: is not there; name a folder of data files")
    refuse_marks_above(path, files.exists, files.names)
    folders = list_folders(files, path)
    if not folders:
        raise PlanError(f"{path}: holds no data files; name a folder of data files")
    name, first = _table_at(policy, path), next(file.path for folder in folders for file in folder.files)
    with files.open(first) as stream:
        found = format_of(stream).name
    if found not in policy.formats:
        raise PlanError(f"{path} {LEFT_ALONE}")
    reader = spark.read.options(**({names.TABLE: name} if name else {}))
    schema = reader.format(found).load(first).schema
    partition_columns = tuple(dict.fromkeys(column for folder in folders for column in partition_values(_hive(folder))))
    plan = plan_path(schema.json(), policy, partition_columns=partition_columns, table=name, avro=avro)
    FORMATS[found].refuse_plan(plan)
    return PathTarget(spark, path, plan, schema, found)


def _hive(folder: Folder) -> str:
    return trailing_partition(folder.relative.split("/"))


def _table_at(policy: Policy, path: str) -> str | None:
    here = comparable_path(path)
    return next((rule.name for rule in policy.tables if rule.location and comparable_path(rule.location) == here), None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]

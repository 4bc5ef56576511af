"""What a run works on: a table, or a bare directory; its plan, its units, and what is refused."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sparkcrypt import names
from sparkcrypt.backfill.units import Folder, Unit, base_location, list_folders, refuse_formats, refuse_overlaps
from sparkcrypt.bridge.context import comparable_path
from sparkcrypt.bridge.identity import partition_values, trailing_partition
from sparkcrypt.errors import PlanError
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.policy.model import Policy
from sparkcrypt.schema import Schema
from sparkcrypt.spark.catalog import Catalog, Table
from sparkcrypt.spark.files import HadoopFiles
from sparkcrypt.spark.partitions import choose_partitions, data_schema
from sparkcrypt.spark.planning import plan_of, plan_path
from sparkcrypt.tags.avro import tags_of_avro
from sparkcrypt.tags.model import TaggedColumn, tag_property

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class Target(Protocol):
    """What a run works on."""

    @property
    def name(self) -> str:
        """The table's name or the directory, for reports."""

    @property
    def table_id(self) -> str:
        """A name for the state directory that stays the same whatever the table is called."""

    @property
    def base(self) -> str:
        """The original folder; staging is made beside it."""

    @property
    def uuid(self) -> str | None:
        """The identity in AAD prefixes, or None."""

    @property
    def plan(self) -> EncryptionPlan:
        """The plan of every file."""

    @property
    def schema(self) -> StructType:
        """The columns in files, as Spark's schema with its metadata."""

    def units(self, where: str | None) -> tuple[Unit, ...]:
        """Return the units; their files are listed later, one unit at a time."""

    def options(self) -> dict[str, str]:
        """Return the writer and reader options that tie files to this target."""


@dataclass(frozen=True, slots=True)
class CatalogTarget:
    """A table of the session catalog."""

    spark: SparkSession
    table: Table
    policy: Policy
    plan: EncryptionPlan
    avro_tags: tuple[TaggedColumn, ...] = ()

    @property
    def name(self) -> str:
        """``database.table``."""
        return self.table.full_name

    @property
    def table_id(self) -> str:
        """The table's UUID, which survives a rename; before it has one, its name."""
        return self.table.uuid or _digest(self.table.full_name)

    @property
    def base(self) -> str:
        """The table's original folder."""
        return base_location(self.table.location)

    @property
    def uuid(self) -> str | None:
        """The table's UUID."""
        return self.table.uuid

    @property
    def schema(self) -> StructType:
        """The table's data columns."""
        return data_schema(self.table)

    def units(self, where: str | None) -> tuple[Unit, ...]:
        """Return the table's partitions, or the table itself.

        Raises:
            PlanError: ``where`` asks for something other than partition columns, or units overlap.
        """
        if not self.table.partition_columns:
            if where:
                raise PlanError(f"{self.name} has no partitions, so it cannot be narrowed by --where; leave it out")
            return (Unit(self.name, self.table.location, None, "", {}),)
        refuse_formats(HadoopFiles(self.spark), self.base)  # units are partitions, and a format's list is above them
        partitions = choose_partitions(self.spark, self.table, where)
        units = tuple(Unit(one.folder, one.location, one, one.folder, dict(one.values)) for one in partitions)
        refuse_overlaps(units)
        return units

    def options(self) -> dict[str, str]:
        """Return the table's own options, its name, and tags that come from elsewhere."""
        own = {name: value for name, value in self.table.options.items() if name.startswith("parquet.")}
        avro = {tag_property(one.path): ",".join(one.tags) for one in self.avro_tags}
        return {**avro, **own, names.TABLE: self.name}


@dataclass(frozen=True, slots=True)
class PathTarget:
    """A bare directory of Parquet files."""

    spark: SparkSession
    path: str
    plan: EncryptionPlan
    schema: StructType
    tagged: tuple[TaggedColumn, ...]

    @property
    def name(self) -> str:
        """The directory."""
        return self.path

    @property
    def table_id(self) -> str:
        """A digest of the path."""
        return directory_id(self.path)

    @property
    def base(self) -> str:
        """The directory."""
        return self.path.rstrip("/")

    @property
    def uuid(self) -> str | None:
        """A bare path has no identity of its own."""
        return None

    def units(self, where: str | None) -> tuple[Unit, ...]:
        """Return the directory as one unit."""
        if where:
            raise PlanError("--where works on tables; a bare directory is swapped as a whole")
        return (Unit(self.path, self.path, None, "", {}),)

    def options(self) -> dict[str, str]:
        """Return the tags as options, since a bare directory has no place for them."""
        tags = {tag_property(one.path): ",".join(one.tags) for one in self.tagged}
        return tags if self.plan.table is None else {**tags, names.TABLE: self.plan.table}


def locations_of(spark: SparkSession, target: Target, output: str | None) -> tuple[str, ...]:
    """Return the folders that a target has now, and that of the copy which a run was asked for.

    Args:
        spark: a classic session.
        target: a table or a directory.
        output: where the copy of a directory goes.
    """
    copies = () if output is None else (HadoopFiles(spark).qualified(output.rstrip("/")),)
    if not isinstance(target, CatalogTarget):
        return (target.base, *copies)
    catalog = Catalog(spark)
    now = catalog.table(target.table.quoted)
    partitions = catalog.partitions(now) if now.partition_columns else ()
    return (now.location, *(one.location for one in partitions), *copies)


def directory_id(path: str) -> str:
    """Return the name of a bare directory in the state directory: a digest of its path, as Hadoop prints it."""
    return _digest(path)


def catalog_target(spark: SparkSession, table: Table, policy: Policy, avro: Schema | None) -> CatalogTarget:
    """Return a table as a target.

    Raises:
        PlanError: it is not a Parquet table whose files can be swapped; the reason is told.
    """
    refuse_kinds(table)
    avro_tags = tags_of_avro(avro) if avro is not None else ()
    return CatalogTarget(spark, table, policy, plan_of(spark, table, policy, avro=avro), avro_tags)


def refuse_kinds(table: Table) -> None:
    """Refuse what is not a plain Parquet table.

    Raises:
        PlanError: it says what the table is.
    """
    if table.kind == "VIEW":
        raise PlanError(f"{table.full_name} is a view and has no files; name the tables that it reads")
    if not table.is_parquet:
        raise PlanError(
            f"{table.full_name} is a {table.provider} table, not Parquet; convert it first (CREATE TABLE … USING "
            "parquet AS SELECT …)"
        )
    if table.properties.get("transactional", "").lower() == "true":
        raise PlanError(
            f"{table.full_name} is a Hive ACID table, whose files belong to Hive's transactions; it cannot be swapped"
        )


def path_target(spark: SparkSession, path: str, policy: Policy, avro: Schema | None) -> PathTarget:
    """Return a bare directory as a target; its schema comes from its files, tags from it and the Avro schema.

    Raises:
        PlanError: there is no such directory, or it holds no Parquet files.
    """
    files = HadoopFiles(spark)
    path = files.qualified(path.rstrip("/"))
    if not files.exists(path):
        raise PlanError(f"{path}: is not there; name a directory of Parquet files")
    folders = list_folders(files, path)
    if not folders:
        raise PlanError(f"{path}: holds no data files; name a directory of Parquet files")
    name = _table_at(policy, path)
    reader = spark.read.options(**({names.TABLE: name} if name else {}))
    schema = reader.parquet(*[one.path for folder in folders for one in folder.files][:1]).schema
    partition_columns = tuple(dict.fromkeys(column for folder in folders for column in partition_values(_hive(folder))))
    plan = plan_path(schema.json(), policy, partition_columns=partition_columns, table=name, avro=avro)
    tagged = tuple(
        TaggedColumn(column.leaf.parquet, column.tags, "table property") for column in plan.columns if column.tags
    )
    return PathTarget(spark, path, plan, schema, tagged)


def _hive(folder: Folder) -> str:
    return trailing_partition(folder.relative.split("/"))


def _table_at(policy: Policy, path: str) -> str | None:
    here = comparable_path(path)
    return next((rule.name for rule in policy.tables if rule.location and comparable_path(rule.location) == here), None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]

"""Opens a table for pyarrow, pandas, polars and DuckDB: lists its files, collects its tags, decides its denials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sparkcrypt import names
from sparkcrypt.arrow.denied import DeniedLeaves, decide_denied
from sparkcrypt.arrow.files import DataFile, find_files, partition_columns, table_folder
from sparkcrypt.arrow.judge import Judge
from sparkcrypt.arrow.reader import Reader, ReadOptions, encode, refuse_unknown_options
from sparkcrypt.arrow.shape import SPARK_SCHEMA, columns_of, make_nullable, spark_json
from sparkcrypt.arrow.table import GuardedTable, dropped_columns, read_schema
from sparkcrypt.errors import ConfigError, show
from sparkcrypt.policy.load import PolicySource, policy_of
from sparkcrypt.policy.model import READ_MODES, Policy
from sparkcrypt.schema import property_name, split_dotted

if TYPE_CHECKING:
    from typing_extensions import Unpack

_NEVER = (
    names.POLICY,
    names.KEY_SERVICE,
    names.SESSION_TOKEN,
    names.TABLE,
    names.LOCATIONS,
    names.OWNER_SCHEMAS,
    names.ALLOW_MASKED,
)


class TableOptions(ReadOptions, total=False):
    """What may be said of a table that is opened, beside its folder and policy.

    Attributes:
        tags: column path -> tags that neither the rule nor Spark's schema in the files has.
        schema: the table's schema, if it is not that of the first file; it may have types for partition columns.
    """

    tags: Mapping[str, Sequence[str]] | None
    schema: pa.Schema | None


def open_table(
    path: str | Sequence[str] | None,
    policy: PolicySource,
    **options: Unpack[TableOptions],
) -> GuardedTable:
    """Open a table by its folder: list its files and read the footer of the first one, but no rows.

    Args:
        path: a folder or file, or several folders, such as those of partitions in the metastore: a local path,
            ``file:``, ``hdfs:``, ``s3a:`` or any other location that the native engine opens.  None: the location in
            the table's rule of the policy.
        policy: the table's policy, or the path of its file.
        options: ``table``, ``tags``, ``properties``, ``schema``, ``principal``, ``settings`` and ``lifetime_seconds``,
            as `TableOptions`; and ``on_denied``.  ``error``: a denied column is an error; ``mask``: denied leaves are
            null, in the partitions where they are denied, and their siblings keep their values; ``drop``: as ``mask``,
            and top-level columns that are denied in every partition are left out.  None: the policy's tags decide.

    Raises:
        ConfigError: the folder does not exist or has no files, or an argument is invalid.
        KeyAccessDeniedError, KeyNotFoundError: the footer's key is denied or missing, so nothing can be read.
        KeyServiceUnavailableError: the key service cannot be asked which keys are denied.
        VerificationError, FormatError, StorageError: the first file cannot or may not be read; StorageError also if
            the policy's access_log is required and cannot be written.
    """
    refuse_unknown_options(TableOptions, options)
    policy = policy_of(policy)
    on_denied, table, schema = options.get("on_denied"), options.get("table"), options.get("schema")
    if on_denied is not None and on_denied not in READ_MODES:
        raise ConfigError(f"on_denied is {show(on_denied)}; allowed: {', '.join(READ_MODES)}")
    settings = options.get("settings") or {}
    listed = find_files(_folders(path, policy, table), settings)
    table_properties = gather_properties(table, options.get("tags") or {}, options.get("properties") or {})
    reader = Reader.of(policy, table or table_properties.get(names.TABLE_NAME), options)
    events = reader.begin_events(table_folder(listed[0]))
    first = Judge(reader, events, table_properties, settings=settings)
    found = read_schema(first, listed[0].path)
    of_spark = (found.metadata or {}).get(SPARK_SCHEMA, b"").decode()
    if of_spark:
        table_properties.setdefault(names.TABLE_SCHEMA, of_spark)
    variants = columns_of(first.footer(listed[0].path), of_spark).variants()
    partitions = partition_columns(listed, schema)
    if schema is None:
        _refuse_both(found, partitions.names, listed[0])
    file_schema = pa.schema(
        [
            make_nullable(field, variants)
            for field in (found if schema is None else schema)
            if field.name not in partitions.names
        ]
    )
    judge = Judge(reader, events, table_properties, settings=settings)
    denied = decide_denied(
        reader,
        {"path": table_folder(listed[0]), "properties": table_properties, "schema": spark_json(file_schema)},
        None if on_denied is None else READ_MODES[on_denied],
        listed,
        sample=_sampler(judge),
    )
    events.close()
    dropped = dropped_columns(file_schema, denied) if on_denied == "drop" else frozenset[str]()
    return GuardedTable(
        reader, table_properties, settings, listed, partitions, _mark_masked(file_schema, denied), denied, dropped
    )


def read_table(
    path: str | Sequence[str] | None,
    policy: PolicySource,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | None = None,
    **options: Unpack[TableOptions],
) -> pa.Table:
    """Read a table into memory.

    Args:
        path: as `open_table`.
        policy: the table's policy, or the path of its file.
        columns: as `GuardedTable.scan`.
        filter: as `GuardedTable.scan`.
        options: further arguments of `open_table`.

    Raises:
        SparkcryptError: as `open_table` and `GuardedTable.scan`.
    """
    return open_table(path, policy, **options).to_table(columns, filter)


def _folders(path: str | Sequence[str] | None, policy: Policy, table: str | None) -> Sequence[str]:
    if path is not None:
        found = [path] if isinstance(path, str) else list(path)
        if not found:
            raise ConfigError("path is empty; allowed: a folder or file, or several folders")
        return found
    location = policy.table(table).location if table else None
    if location is None:
        raise ConfigError(
            f"no path is given, and the policy has no location for table {show(table)}; name the table's folder"
        )
    return [location]


def gather_properties(
    table: str | None, tags: Mapping[str, Sequence[str]], properties: Mapping[str, str]
) -> dict[str, str]:
    """Return a table's properties as Spark's readers get them.

    Args:
        table: the table's name.
        tags: dotted column path -> names of its tags.
        properties: the table's properties in the metastore.

    Raises:
        ConfigError: the tags of a column are a string instead of a list.
    """
    gathered = {
        name: value for name, value in properties.items() if name.startswith(names.PREFIX) and name not in _NEVER
    }
    if table is not None:
        gathered[names.TABLE_NAME] = table
    for column, of_column in tags.items():
        if isinstance(of_column, str):
            raise ConfigError(f"tags: column {column} has {show(of_column)}; allowed: a list of names")
        gathered[names.TAGS_PREFIX + property_name(split_dotted(column))] = ",".join(of_column)
    return gathered


def _refuse_both(schema: pa.Schema, partitions: Sequence[str], file: DataFile) -> None:
    both = [name for name in schema.names if name in partitions]
    if both:
        raise ConfigError(
            f"{file.path}: column {', '.join(both)} is in the file and in the names of its folders; read the table "
            "with Spark, which takes the folders' values"
        )


def _mark_masked(schema: pa.Schema, denied: DeniedLeaves) -> pa.Schema:
    """Return a schema whose masked columns have the reason in their metadata, as in Spark's frames."""
    reasons = denied.reasons()
    return pa.schema(
        [
            field.with_metadata({names.MASKED: reasons[field.name]}) if field.name in reasons else field
            for field in schema
        ]
    )


def _sampler(judge: Judge) -> Callable[[DataFile], list[str]]:
    def sample(file: DataFile) -> list[str]:
        metadata = [column.key_metadata for column in judge.footer(file.path).columns or () if column.own_key]
        return [text for text in map(encode, metadata) if text]

    return sample

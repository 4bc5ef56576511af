"""Reads and writes the tags of tables, which the metastore stores in the Spark schema and in properties."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeAlias

from pyspark.sql import SparkSession

from sparkcrypt.errors import PlanError
from sparkcrypt.keys.ids import decode_key_id, encode_key_id
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.sealed_history import SealedHistories, Unwrap, seal_history
from sparkcrypt.names import REQUIRE_ENCRYPTION
from sparkcrypt.paths import is_local, local_path
from sparkcrypt.policy.model import PLAINTEXT, Policy, TagRule
from sparkcrypt.schema import Path, Schema, fold, join_dotted, schema_from_spark, split_dotted
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.jvm.gateway import to_dict
from sparkcrypt.spark.jvm.jar import bring_jar
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.identity import ensure_identity
from sparkcrypt.spark.tables.remembered_names import remember_name
from sparkcrypt.spark.tables.table import Table
from sparkcrypt.tags.avro import read_avro_file, schema_from_avro
from sparkcrypt.tags.model import (
    TaggedColumn,
    history_of_properties,
    history_property,
    tag_property,
    tags_of_avro,
    tags_of_properties,
    unite_tags,
)

_LOG = logging.getLogger(__name__)
AvroSource: TypeAlias = Schema | str | os.PathLike[str]
"""What users give as an Avro schema: one that was read, or the path or URI of an .avsc file."""
AVRO_LITERAL, AVRO_URL = "avro.schema.literal", "avro.schema.url"
AVRO_NONE = "none"


def tags_of_table(spark: SparkSession, table: Table) -> tuple[TaggedColumn, ...]:
    """Return the tags of a table's Spark schema, of its properties, and of the Avro schema that these name."""
    schema = schema_from_spark(table.schema_json)
    return unite_tags(schemas=[schema], properties=table.options, avro=[_avro_of_properties(spark, table)])


def _avro_of_properties(spark: SparkSession, table: Table) -> Schema | None:
    merged = {**table.properties, **table.options}
    literal, url = merged.get(AVRO_LITERAL), merged.get(AVRO_URL)
    if literal and literal.strip().lower() != AVRO_NONE:
        return schema_from_avro(literal, where=f"{table.full_name}: {AVRO_LITERAL}")
    if url and url.strip().lower() != AVRO_NONE:
        return read_avro(spark, url)
    return None


def read_avro(spark: SparkSession, url: str) -> Schema:
    """Read an Avro schema from any file system that the session supports.

    Raises:
        PlanError: it does not exist, or is not an Avro record.
    """
    files = HadoopFiles(spark)
    if not files.exists(url):
        raise PlanError(f"Avro schema {url}: is not there; name an .avsc file")
    try:
        return schema_from_avro(files.read(url).decode("utf-8"), where=url)
    except UnicodeDecodeError as error:
        raise PlanError(f"Avro schema {url}: is not UTF-8 text") from error


def avro_of(spark: SparkSession, given: AvroSource) -> Schema:
    """Return an Avro schema, which is read if its path or URI is given.

    Raises:
        PlanError: as ``read_avro``.
    """
    if isinstance(given, Schema):
        return given
    place = os.fspath(given)
    return read_avro_file(local_path(place)) if is_local(place) else read_avro(spark, place)


def set_tags(
    spark: SparkSession, name: str, tags: Mapping[str, Iterable[str]], policy: Policy | None = None
) -> dict[str, tuple[str, ...]]:
    """Set the tags of columns, in both places: the Spark schema, and the properties that reach every writer.

    If a column of a table that requires encryption gets another key, the earlier key is added to the column's history:
    readers accept files under it, and runs do not treat them as forgeries, until a run has replaced them.  The columns'
    statistics in the metastore are dropped.

    Args:
        spark: a classic session.
        name: the table.
        tags: dotted column path -> tags, which replace the column's tags.
        policy: if given, unknown tags are refused, and earlier keys are added to the history.  A tag that differs from
            one of the policy's in case alone is that one, with a note.

    Returns:
        Dotted column path -> the tags that were set.

    Raises:
        PlanError: no such table or column, a partition column, or an unknown tag; no tag was changed.
        KeyServiceError: the key service does not wrap under a column's new key, so its history cannot be sealed; no tag
            was changed. A policy whose tag names the earlier key under ``history`` needs no seal.
    """
    catalog = Catalog(spark)
    table = catalog.table(name)
    name = table.quoted
    refuse_formats_without_keys(table, policy)
    wanted = {path: tuple(dict.fromkeys(names)) for path, names in resolved_paths(table, tags).items()}
    if policy is not None:
        wanted = {path: as_policy_writes(names, policy) for path, names in wanted.items()}
        _refuse_unknown(wanted, policy)
    for path, names in wanted.items():
        _check_names(path, names)
    table = ensure_identity(spark, name)
    history = {} if policy is None else _earlier_keys(spark, table, wanted, policy)
    catalog.set_options(table, {tag_property(path): ",".join(names) for path, names in wanted.items()} | history)
    own = {tag_property(path) for path in wanted}
    catalog.unset_options(table, tuple(set(_tag_properties(table, wanted)) - own))
    _write_schema(catalog, catalog.table(name), wanted)
    remember_name(spark, catalog.table(name))
    _drop_statistics(spark, catalog, name, wanted)
    return {join_dotted(path): names for path, names in wanted.items()}


def _drop_statistics(spark: SparkSession, catalog: Catalog, name: str, wanted: Iterable[Path]) -> None:
    """Remove tagged columns' statistics from the metastore, since bounds and histograms contain their values.

    The table's size, its row count and the statistics of other columns stay.
    """
    table = catalog.table(name)
    statistics = catalog.statistics(table)
    if statistics is None:
        return
    tagged = {path[0].lower() for path in wanted}
    held = frozenset(column for column in to_dict(spark, statistics.colStats()) if column.lower() in tagged)
    if held:
        bring_jar(spark)
        catalog.restore_statistics(table, statistics, held)


def _earlier_keys(
    spark: SparkSession, table: Table, wanted: Mapping[Path, tuple[str, ...]], policy: Policy
) -> dict[str, str]:
    """Return the history properties of columns whose key changes, if the table requires encryption.

    They are sealed under the column's new key, unless the policy's own history names the earlier ones.
    """
    required = table.options.get(REQUIRE_ENCRYPTION, "").lower() == "true"
    if not (required or policy.table(table.full_name).require_encryption):
        return {}
    schema = schema_from_spark(table.schema_json)
    before: dict[Path, set[str]] = {}
    for tagged in tags_of_table(spark, table):
        before.setdefault(_logical(schema, tagged.path), set()).update(tagged.tags)
    histories = SealedHistories(policy, table.uuid, unwrap_by(policy))
    history_by_path, found = history_of_properties(table.options), {}
    for path, names in wanted.items():
        old, new = _fixed_key(policy, before.get(path, ())), _fixed_key(policy, names)
        if old is not None and old != new:
            known = [entry for text in history_by_path.get(path, ()) for entry in histories.open(text, old, path)]
            entries = tuple(dict.fromkeys((*known, encode_key_id(old))))
            rule = first_rule(policy, names)
            of_rule = set() if rule is None else set(rule.history)
            if new is not None and not set(map(decode_key_id, entries)) <= of_rule:
                entries = seal_history(open_key_service(policy.key_service), new, table.uuid or "", path, entries)
            found[history_property(path)] = ",".join(entries)
    return found


def unwrap_by(policy: Policy) -> Unwrap:
    """Return a function that unwraps by a policy's key service, which is opened when it is first needed."""
    return lambda key_id, wrapped: open_key_service(policy.key_service).unwrap(key_id, wrapped)


def first_rule(policy: Policy, tags: Iterable[str]) -> TagRule | None:
    """Return the rule that decides on a column with some tags; None if the policy has none for any of them."""
    carried = set(tags)
    return next((rule for rule in policy.tags if rule.name in carried), None)


def _fixed_key(policy: Policy, tags: Iterable[str]) -> str | None:
    """Return the key of the policy's first rule for these tags; None if it means plaintext or depends on partitions."""
    rule = first_rule(policy, tags)
    return rule.key.text if rule is not None and rule.key is not None and not rule.key.columns else None


def unset_tags(spark: SparkSession, name: str, columns: Iterable[str]) -> None:
    """Remove all tags of columns, in both places.

    A column that the table lacks, such as one that was renamed, loses the property that tags it.
    ``plaintext`` is added to the column's history: it shows a run that the tags were removed on purpose and not lost,
    so the run decrypts what is still encrypted.

    Raises:
        PlanError: no such table or column; nothing was changed.
    """
    catalog = Catalog(spark)
    table = catalog.table(name)
    name = table.quoted
    schema = schema_from_spark(table.schema_json)
    paths_by_name = {column: split_dotted(column) for column in columns}
    lost_columns = {tagged.path for tagged in tags_of_properties(table.options)} - set(_nodes(schema))
    paths = [
        _resolve_column(schema, table, column) for column, path in paths_by_name.items() if path not in lost_columns
    ]
    tagged_paths = {_logical(schema, tagged.path) for tagged in tags_of_table(spark, table)}
    history_by_path = history_of_properties(table.options)
    history = {path: (*history_by_path.get(path, ()), PLAINTEXT) for path in paths if path in tagged_paths}
    catalog.set_options(
        table, {history_property(path): ",".join(dict.fromkeys(entries)) for path, entries in history.items()}
    )
    of_lost_columns = tuple(tag_property(path) for path in paths_by_name.values() if path in lost_columns)
    catalog.unset_options(table, (*_tag_properties(table, paths), *of_lost_columns))
    _write_schema(catalog, catalog.table(name), dict.fromkeys(paths, ()))
    remember_name(spark, catalog.table(name))


def _tag_properties(table: Table, columns: Iterable[Path]) -> tuple[str, ...]:
    """Return the properties that tag some columns, by whichever of their names, in any case."""
    schema, folded = schema_from_spark(table.schema_json), {fold(path) for path in columns}
    tagged = (column.path for column in tags_of_properties(table.options))
    return tuple(tag_property(path) for path in tagged if fold(_logical(schema, path)) in folded)


def copy_tags(spark: SparkSession, name: str, avro: Schema, policy: Policy | None = None) -> dict[str, tuple[str, ...]]:
    """Copy the tags of an Avro schema to a table.

    Returns:
        Dotted column path -> tags that were set.

    Raises:
        PlanError: the schema has no tags, or as ``set_tags``, such as for a column that the table lacks.
    """
    found = {join_dotted(column.path): column.tags for column in tags_of_avro(avro)}
    if not found:
        raise PlanError(
            f'the Avro schema tags no field; tag one with the property "confluent:tags": ["…"], then copy to {name}'
        )
    return set_tags(spark, name, found, policy)


def refuse_formats_without_keys(table: Table, policy: Policy | None) -> None:
    """Refuse a table whose files no tag can encrypt.

    Args:
        table: the table from the catalog.
        policy: defines which formats runs encrypt; None: only Parquet.

    Raises:
        PlanError: it is a view, or runs do not encrypt its format.
    """
    formats = ("parquet",) if policy is None else policy.formats
    if table.kind == "VIEW":
        raise PlanError(
            f"{table.full_name} is a view, which has no files, so its tags would encrypt nothing; allowed: tables "
            f"whose files are {' or '.join(formats)}; tag the columns of the tables that it reads, which "
            f"SHOW CREATE TABLE {table.quoted} names: tags follow their columns into what is written from the view"
        )
    if table.format not in formats:
        found = table.provider if not table.is_hive else table.serde.rpartition(".")[2] or "unknown"
        reason, advice = "nothing of ours writes that format", "make a Parquet table of it, and tag that"
        if table.format == "orc":
            reason = "runs encrypt ORC only where the policy says `formats: [parquet, orc]`"
            advice = f"say so, and give the policy (--policy), or {advice}"
        raise PlanError(
            f"{table.full_name}: its format is {found}, so its tags would encrypt nothing: {reason}; allowed: "
            f"{', '.join(formats)}; {advice}"
        )


def resolved_paths(
    table: Table, tags: Mapping[str, Iterable[str]], *, lenient: bool = False
) -> dict[Path, tuple[str, ...]]:
    """Return logical column path -> tags, for columns given by their logical or Parquet names.

    A column that is given by several names has the tags of all.

    Args:
        table: the table.
        tags: dotted column path -> tags.
        lenient: keep the paths of columns that the table lacks, instead of refusing them.

    Raises:
        PlanError: no such column, or a partition column.
    """
    schema = schema_from_spark(table.schema_json)
    found: dict[Path, tuple[str, ...]] = {}
    for column, names in tags.items():
        path = _logical(schema, split_dotted(column)) if lenient else _resolve_column(schema, table, column)
        found[path] = tuple(dict.fromkeys((*found.get(path, ()), *names)))
    return found


def _check_names(path: Path, names: tuple[str, ...]) -> None:
    for tag in names:
        if not tag.strip() or any(sign in tag for sign in ",;:= \t\n"):
            raise PlanError(
                f"column {join_dotted(path)}: {tag!r} is not a tag's name; allowed: text without spaces, commas, ';', "
                "':' or '='"
            )
    if not names:
        raise PlanError(f"column {join_dotted(path)}: no tag given; to remove its tags use `sparkcrypt tags unset`")


def as_policy_writes(names: Iterable[str], policy: Policy) -> tuple[str, ...]:
    """Return tags as a policy writes them: one that differs from a single tag of the policy in case alone is that."""
    found = [(name, policy.find_tag(name)) for name in names]
    for name, rule in found:
        if rule is not None and rule.name != name:
            _note_case(name, rule.name)
    return tuple(dict.fromkeys(name if rule is None else rule.name for name, rule in found))


@cache
def _note_case(name: str, written: str) -> None:
    """Say once which tag was taken for another."""
    _LOG.warning("note: the tag %s is taken for %s, as the policy writes it", name, written)


def _refuse_unknown(wanted: Mapping[Path, tuple[str, ...]], policy: Policy) -> None:
    unknown = sorted({tag for names in wanted.values() for tag in names if policy.tag(tag) is None})
    if unknown:
        known = ", ".join(rule.name for rule in policy.tags)
        near = get_close_matches(unknown[0], [rule.name for rule in policy.tags], 1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise PlanError(
            f"the policy does not define the tag {unknown[0]!r}; {meant}allowed: {known}; correct the tag, or "
            "define it in the policy"
        )


def _resolve_column(schema: Schema, table: Table, column: str) -> Path:
    """Return the logical path of a column that is named exactly or up to case."""
    path = split_dotted(column)
    if path[0].lower() in {name.lower() for name in table.partition_columns}:
        raise PlanError(
            f"{table.full_name}: column {column} is a partition column and cannot be encrypted, since its values are "
            "folder "
            "names; partition by a column that is not sensitive"
        )
    found = _logical(schema, path)
    if found not in _nodes(schema):
        names = ", ".join(join_dotted(leaf.logical) for leaf in schema.leaves()[:12])
        raise PlanError(
            f"{table.full_name}: has no column {column!r}; allowed: {names} (a dot inside a name is written %2E)"
        )
    return found


def _nodes(schema: Schema) -> dict[Path, Path]:
    """Return the logical and the Parquet path of every node -> its logical path."""
    nodes: dict[Path, Path] = {}
    for _, chain in schema.walk_leaves():
        for logical, parquet, _ in chain:
            nodes[parquet] = logical
    for _, chain in schema.walk_leaves():
        for logical, _, _ in chain:
            nodes[logical] = logical
    return nodes


def _logical(schema: Schema, path: Path) -> Path:
    nodes = _nodes(schema)
    if path in nodes:
        return nodes[path]
    folded = {
        logical
        for name, logical in nodes.items()
        if [entry.lower() for entry in name] == [text.lower() for text in path]
    }
    return folded.pop() if len(folded) == 1 else path


def _write_schema(catalog: Catalog, table: Table, wanted: Mapping[Path, tuple[str, ...]]) -> None:
    """Write tags into the metadata of the stored Spark schema; elements, map keys and map values have none there."""
    document = json.loads(table.schema_json)
    partition = {name.lower() for name in table.partition_columns}
    document["fields"] = [field for field in document["fields"] if field["name"].lower() not in partition]
    changed = False
    for path, names in wanted.items():
        field = _field(document, path)
        if field is not None:
            metadata = field.setdefault("metadata", {})
            metadata.pop("tags", None)
            if names:
                metadata["tags"] = list(names)
            changed = True
    if changed:
        catalog.set_schema_metadata(table, json.dumps(document))


def _field(struct: Mapping[str, Any], path: Path) -> dict[str, Any] | None:
    """Return the struct field that a logical path names; None if it names an element, key or value."""
    for field in struct["fields"]:
        if field["name"] == path[0]:
            if len(path) == 1:
                found: dict[str, Any] = field
                return found
            inner, rest = _struct_below(field["type"], path[1:])
            return _field(inner, rest) if inner is not None and rest else None
    return None


def _struct_below(kind: Any, path: Path) -> tuple[Mapping[str, Any] | None, Path]:
    steps: dict[tuple[str, str], Callable[[Any], Any]] = {
        ("array", "element"): lambda entry: entry["elementType"],
        ("map", "key"): lambda entry: entry["keyType"],
        ("map", "value"): lambda entry: entry["valueType"],
    }
    while isinstance(kind, Mapping) and path and kind.get("type") != "struct":
        step = steps.get((kind["type"], path[0]))
        if step is None:
            return None, ()
        kind, path = step(kind), path[1:]
    return (kind, path) if isinstance(kind, Mapping) and kind.get("type") == "struct" else (None, ())

"""Reads and writes the tags of tables, which the metastore stores in the Spark schema and in properties.

A policy's rule for a table is written there too, for sessions that read only the properties.  A further property
records what a rule wrote, so that it can be removed once the policy no longer has it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from sparkcrypt.errors import PlanError
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.ids import decode_key_id, encode_key_id
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.sealed_history import SealedHistories, Unwrap, seal_history
from sparkcrypt.names import REQUIRE_ENCRYPTION, RULE_MARK
from sparkcrypt.policy.model import PLAINTEXT, Policy, TableRule, TagRule, normalized_table
from sparkcrypt.schema import Path, Schema, fold, join_dotted, schema_from_spark, split_dotted
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.jvm.gateway import to_dict
from sparkcrypt.spark.jvm.jar import bring_jar
from sparkcrypt.spark.tables.catalog import Catalog
from sparkcrypt.spark.tables.identity import ensure_identity
from sparkcrypt.spark.tables.remembered_names import remember_name
from sparkcrypt.spark.tables.table import Table
from sparkcrypt.tags.avro import schema_from_avro
from sparkcrypt.tags.model import (
    TaggedColumn,
    history_of_properties,
    history_property,
    tag_property,
    tags_of_avro,
    tags_of_properties,
    unite_tags,
)

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


def set_tags(spark: SparkSession, name: str, tags: Mapping[str, Iterable[str]], policy: Policy | None = None) -> None:
    """Set the tags of columns, in both places: the Spark schema, and the properties that reach every writer.

    If a column of a table that requires encryption gets another key, the earlier key is added to the column's history:
    readers accept files under it, and runs do not treat them as forgeries, until a run has replaced them.  The columns'
    statistics in the metastore are dropped.

    Args:
        spark: a classic session.
        name: the table.
        tags: dotted column path -> tags, which replace the column's tags.
        policy: if given, unknown tags are refused, and earlier keys are added to the history.

    Raises:
        PlanError: no such table or column, a partition column, or an unknown tag; no tag was changed.
        KeyServiceError: the key service does not wrap under a column's new key, so its history cannot be sealed; no tag
            was changed. A policy whose tag names the earlier key under ``history`` needs no seal.
    """
    catalog = Catalog(spark)
    table = catalog.table(name)
    refuse_formats_without_keys(table, policy)
    wanted = {path: tuple(dict.fromkeys(names)) for path, names in resolved_paths(table, tags).items()}
    if policy is not None:
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
            rule = _first_rule(policy, names)
            of_rule = set() if rule is None else set(rule.history)
            if new is not None and not set(map(decode_key_id, entries)) <= of_rule:
                entries = seal_history(open_key_service(policy.key_service), new, table.uuid or "", path, entries)
            found[history_property(path)] = ",".join(entries)
    return found


def unwrap_by(policy: Policy) -> Unwrap:
    """Return a function that unwraps by a policy's key service, which is opened when it is first needed."""
    return lambda key_id, wrapped: open_key_service(policy.key_service).unwrap(key_id, wrapped)


def _first_rule(policy: Policy, tags: Iterable[str]) -> TagRule | None:
    carried = set(tags)
    return next((rule for rule in policy.tags if rule.name in carried), None)


def _fixed_key(policy: Policy, tags: Iterable[str]) -> str | None:
    """Return the key of the policy's first rule for these tags; None if it means plaintext or depends on partitions."""
    rule = _first_rule(policy, tags)
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
    set_tags(spark, name, found, policy)
    return found


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
        raise PlanError(f"{table.full_name} is a view, which has no files; tag the columns of the tables below it")
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

    Args:
        table: the table.
        tags: dotted column path -> tags.
        lenient: keep the paths of columns that the table lacks, instead of refusing them.

    Raises:
        PlanError: no such column, or a partition column.
    """
    schema = schema_from_spark(table.schema_json)
    if lenient:
        return {_logical(schema, split_dotted(column)): tuple(names) for column, names in tags.items()}
    return {_resolve_column(schema, table, column): tuple(names) for column, names in tags.items()}


def _check_names(path: Path, names: tuple[str, ...]) -> None:
    for tag in names:
        if not tag.strip() or any(sign in tag for sign in ",;:= \t\n"):
            raise PlanError(
                f"column {join_dotted(path)}: {tag!r} is not a tag's name; allowed: text without spaces, commas, ';', "
                "':' or '='"
            )
    if not names:
        raise PlanError(f"column {join_dotted(path)}: no tag given; to remove its tags use `sparkcrypt tags unset`")


def _refuse_unknown(wanted: Mapping[Path, tuple[str, ...]], policy: Policy) -> None:
    unknown = sorted({tag for names in wanted.values() for tag in names if policy.tag(tag) is None})
    if unknown:
        known = ", ".join(rule.name for rule in policy.tags)
        raise PlanError(f"the policy does not define the tag {unknown[0]!r}; allowed: {known}")


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


Tags = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class RuleChange(JsonObject, json_names={"taken": "taken_back", "mark": None}):
    """The changes that make a table's properties match its rule.

    ``tags`` and ``taken`` are dotted column path -> all tags that the column has after the change.
    ``require_encryption`` is None if it does not change.
    """

    table: str
    identity: bool
    require_encryption: bool | None
    tags: Tags
    taken: Tags
    mark: str

    @property
    def is_needed(self) -> bool:
        """Whether the table's properties need any change."""
        return self.identity or self.require_encryption is not None or bool(self.tags or self.taken)

    def lines(self) -> Iterator[str]:
        """Yield a line for each change."""
        if self.identity:
            yield "a UUID"
        if self.require_encryption is not None:
            yield "encryption required" if self.require_encryption else "encryption no longer required"
        yield from (f"{column}: {','.join(names)}" for column, names in self.tags.items())
        yield from (f"{column}: {','.join(names) or 'no tags'} (taken back)" for column, names in self.taken.items())


def rule_change(
    spark: SparkSession, table: Table, rule: TableRule, policy: Policy | None = None, *, prune: bool = False
) -> RuleChange:
    """Compare a table's properties with its rule.

    Args:
        spark: a classic session.
        table: the table from the catalog.
        rule: the policy's rule for it; a rule with ``enforce: false`` adds nothing.
        policy: defines which formats runs encrypt; None: only Parquet.
        prune: remove what an earlier rule wrote and this one does not have.

    Raises:
        PlanError: the rule names a column that the table lacks or that is a partition column.
    """
    wanted = rule if rule.enforce else TableRule(rule.name)
    if wanted.tags or wanted.require_encryption:
        refuse_formats_without_keys(table, policy)
    laid, required_by_rule = _read_mark(table)
    present = _read_present_tags(spark, table)
    overlay = {join_dotted(path): tags for path, tags in resolved_paths(table, dict(wanted.tags)).items()}
    tags, now_laid = _tags_to_add(overlay, present, laid)
    taken = _tags_to_remove(overlay, present, laid) if prune else {}
    kept = {column: names for column, names in laid.items() if column not in taken}
    required = table.options.get(REQUIRE_ENCRYPTION, "").lower() == "true"
    change: bool | None = None
    if wanted.require_encryption and not required:
        change, required_by_rule = True, True
    elif prune and required and required_by_rule and not wanted.require_encryption:
        change, required_by_rule = False, False
    mark = {"require_encryption": required_by_rule, "tags": {**kept, **now_laid}}
    needed = bool(wanted.tags or wanted.require_encryption)
    return RuleChange(table.full_name, needed and not table.uuid, change, tags, taken, json.dumps(mark, sort_keys=True))


def put_rule(spark: SparkSession, change: RuleChange, policy: Policy | None = None) -> None:
    """Apply a change to the table's properties.

    Args:
        spark: a classic session.
        change: from ``rule_change``.
        policy: if given, tags that it does not define are refused, and earlier keys are added to the history.
    """
    if not change.is_needed:
        return
    catalog = Catalog(spark)
    ensure_identity(spark, change.table)
    table = catalog.table(change.table)
    # The mark is written first: what it names can be removed again even if it was not written yet.
    catalog.set_properties(table, {RULE_MARK: change.mark})
    if change.require_encryption is not None:
        catalog.set_options(table, {REQUIRE_ENCRYPTION: str(change.require_encryption).lower()})
    set_again = {column: names for column, names in {**change.tags, **change.taken}.items() if names}
    if set_again:
        set_tags(spark, change.table, set_again, policy)
    untagged = [column for column, names in change.taken.items() if not names]
    if untagged:
        unset_tags(spark, change.table, untagged)
    remember_name(spark, catalog.table(change.table))


def rule_lines(spark: SparkSession, table: Table, policy: Policy) -> tuple[str, ...]:
    """Return the changes that the policy's rule needs in the properties, which sessions without the extension read.

    A policy without a rule for the table asks for none: what is there may come from another file of `tags apply`.
    """
    rule = policy.table(table.full_name)
    if all(normalized_table(known.name) != normalized_table(table.full_name) for known in policy.tables):
        return ()
    change = rule_change(spark, table, rule, policy, prune=True)
    return tuple(change.lines()) if change.is_needed else ()


def rule_changes(
    spark: SparkSession, rules: Iterable[TableRule], policy: Policy | None = None, *, prune: bool
) -> tuple[tuple[RuleChange, ...], tuple[str, ...]]:
    """Compare many tables with their rules.

    Returns:
        The changes that are needed, and the names of tables that do not exist; with ``prune`` also the changes of
        tables that no rule names any more.
    """
    catalog = Catalog(spark)
    named = {rule.name: rule for rule in rules if rule.location is None or catalog.exists(rule.name)}
    absent = tuple(name for name in named if not catalog.exists(name))
    tables = {catalog.table(name).quoted: rule for name, rule in named.items() if name not in absent}
    if prune:
        for table in catalog.find_tables_with_text(RULE_MARK):
            tables.setdefault(table.quoted, TableRule(table.full_name))
    changes = (rule_change(spark, catalog.table(name), rule, policy, prune=prune) for name, rule in tables.items())
    return tuple(change for change in changes if change.is_needed), absent


def _read_mark(table: Table) -> tuple[dict[str, tuple[str, ...]], bool]:
    """Return what rules wrote: column -> tags, and whether a rule made encryption required."""
    text = table.properties.get(RULE_MARK)
    try:
        mark = json.loads(text) if text else {}
        tags = {str(column): tuple(map(str, names)) for column, names in mark.get("tags", {}).items()}
        return tags, bool(mark.get("require_encryption", False))
    except (ValueError, AttributeError, TypeError) as error:
        raise PlanError(
            f"{table.full_name}: table property {RULE_MARK} is not what sparkcrypt wrote there; remove it with ALTER "
            f"TABLE {table.quoted} UNSET TBLPROPERTIES ('{RULE_MARK}'): tags stay, and are then the table's own"
        ) from error


def _read_present_tags(spark: SparkSession, table: Table) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for column in tags_of_table(spark, table):
        for path in resolved_paths(table, {join_dotted(column.path): column.tags}, lenient=True):
            found[join_dotted(path)] = tuple(dict.fromkeys((*found.get(join_dotted(path), ()), *column.tags)))
    return found


def _tags_to_add(
    overlay: Tags, present: Tags, laid: Tags
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    tags, marks = {}, {}
    for column, names in overlay.items():
        missing = tuple(name for name in names if name not in present.get(column, ()))
        if missing:
            tags[column] = (*present.get(column, ()), *missing)
            marks[column] = tuple(dict.fromkeys((*laid.get(column, ()), *missing)))
    return tags, marks


def _tags_to_remove(overlay: Tags, present: Tags, laid: Tags) -> dict[str, tuple[str, ...]]:
    taken = {}
    for column, names in laid.items():
        stale = [name for name in names if name not in overlay.get(column, ()) and name in present.get(column, ())]
        if stale:
            taken[column] = tuple(name for name in present.get(column, ()) if name not in stale)
    return taken
